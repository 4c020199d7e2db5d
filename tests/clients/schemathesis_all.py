"""Schemathesis sends what the OpenAPI document allows, and what it does not: no defect, no answer that the document lacks."""

import subprocess
import sys
from pathlib import Path

from common import ADDRESS

CHECKS = ["not_a_server_error", "status_code_conformance", "content_type_conformance", "response_schema_conformance"]
SERVICE = f"http://{ADDRESS}"

command = [
    str(Path(sys.executable).with_name("schemathesis")),
    *["run", f"{SERVICE}/openapi.json", "--url", SERVICE],
    *["--checks", ",".join(CHECKS)],
    *["--max-examples", "20", "--seed", "20", "--request-timeout", "20", "--no-color"],
]
run = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
print(run.stdout[-6000:])
if run.returncode != 0 or "generated" not in run.stdout:
    sys.exit("the service does not do what its document says")
