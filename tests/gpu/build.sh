#!/usr/bin/env bash
# Gathers what a machine with a GPU and without Rust needs into the folder given: test programs, the reference models and
# `run.sh`. Build on the same processor family; nothing in it looks for the place where it was built.
set -euo pipefail
out="${1:?the folder to fill}"
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
mkdir -p "$out/engine" "$out/tests/data"

program() {
  cargo test --quiet --no-run --message-format=json "$@" |
    python3 -c 'import json, sys
for line in sys.stdin:
    message = json.loads(line)
    if message.get("profile", {}).get("test") and message.get("executable"):
        print(message["executable"])'
}
cp "$(program --package gpu --lib)" "$out/kernels-on-gpu"
cp "$(program --package engine --test gpu)" "$out/models-on-gpu"
strip "$out/kernels-on-gpu" "$out/models-on-gpu"
cp -r tests/data/reference "$out/tests/data/"
cp tests/gpu/run.sh "$out/"
du -sh "$out"
