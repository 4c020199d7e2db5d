"""lm-evaluation-harness through a running service, beside its own Hugging Face backend on the same model.

    pip install -r requirements.txt
    python same_figures.py --reprise target/release/reprise [--model tests/data/reference/dense-wide] [--json out.json]

Starts the service with the model in f32, lets the harness measure the two tasks of this folder with its models `local-completions` and
`hf`, and prints their figures and the farthest log-likelihood of a single question. The exit status is 1 where a figure differs by
more than a thousandth of itself, or a choice differs at all.
"""

import argparse
import json
import os
import pathlib
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request

os.environ["HF_HUB_OFFLINE"] = os.environ["HF_DATASETS_OFFLINE"] = "1"
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")

from lm_eval import simple_evaluate
from lm_eval.tasks import TaskManager

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[2]
TASKS = ["own_choices", "own_text"]
NEAR = 1e-3


def start(reprise, model, folder):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    arguments = [reprise, "serve", "--model", model, "--port", port, "--set", "engine.precision=f32", "--set", "engine.device=cpu",
                 "--set", "preset.kv.k=f32", "--set", "preset.kv.v=f32"]
    service = subprocess.Popen([str(argument) for argument in arguments], cwd=folder, stdout=subprocess.DEVNULL)
    for _ in range(300):
        try:
            urllib.request.urlopen(f"http://127.0.0.1:{port}/healthz", timeout=1)
            return service, port
        except OSError:
            if service.poll() is not None:
                sys.exit("the service ended")
            time.sleep(0.2)
    sys.exit("the service does not answer")


def measured(model, arguments, tasks):
    """The figures of each task, and each question's log-likelihoods."""
    result = simple_evaluate(model=model, model_args=arguments, tasks=TASKS, batch_size=4, task_manager=tasks, log_samples=True,
                             bootstrap_iters=0)
    figures = {f"{task} {name.split(',')[0]}": value for task, row in result["results"].items() for name, value in row.items()
               if isinstance(value, float) and "stderr" not in name}
    numbers = lambda response: [float(number) for number in (response if isinstance(response, (list, tuple)) else [response])[:1]]
    likely = [number for task in TASKS for sample in sorted(result["samples"][task], key=lambda sample: sample["doc_id"])
              for response in sample["filtered_resps"] for number in numbers(response)]
    return figures, likely


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--reprise", default=ROOT / "target/release/reprise", type=pathlib.Path)
    parser.add_argument("--model", default=ROOT / "tests/data/reference/dense-wide", type=pathlib.Path)
    parser.add_argument("--json", type=pathlib.Path)
    args = parser.parse_args()
    model = args.model.resolve()
    with tempfile.TemporaryDirectory() as folder:
        # Paths of a task's data are the process's own.
        for file in HERE.iterdir():
            if file.suffix in (".yaml", ".jsonl"):
                shutil.copy(file, folder)
        reprise = args.reprise.resolve()
        os.chdir(folder)
        tasks = TaskManager(include_path=folder, include_defaults=False)
        service, port = start(reprise, model, folder)
        try:
            url = f"http://127.0.0.1:{port}/v1/completions"
            ours = measured("local-completions", f"model=default,base_url={url},tokenizer={model},tokenizer_backend=huggingface,"
                            "max_length=2048", tasks)
        finally:
            service.terminate()
            service.wait()
        theirs = measured("hf", f"pretrained={model},dtype=float32,device=cpu,max_length=2048", tasks)
    is_same = len(ours[1]) == len(theirs[1]) > 0
    for name, figure in ours[0].items():
        of_theirs = theirs[0][name]
        is_near = abs(figure - of_theirs) <= (0 if " acc" in name else NEAR * abs(of_theirs))
        is_same = is_same and is_near
        print(f"{name:28} {figure:14.6f} by reprise {of_theirs:14.6f} by transformers{'' if is_near else '  DIFFERENT'}")
    far = max(abs(a - b) for a, b in zip(ours[1], theirs[1]))
    print(f"{len(ours[1])} log-likelihoods, from {min(theirs[1]):.2f} to {max(theirs[1]):.2f}: the farthest is {far:.1e} nats away")
    if args.json:
        args.json.write_text(json.dumps({"reprise": ours, "transformers": theirs, "farthest": far}))
    sys.exit(0 if is_same and far < NEAR * abs(min(theirs[1])) else 1)


main()
