"""What formats of keys and values cost: divergence and the best token beside f16, by formats, rotation and length of the past.

    pip install numpy safetensors
    python kv_error.py MODEL [--talk models/builtin/eval/recall_2000.jsonl] [--lengths 512,2048,4096] [--texts 2] [--reprise target/release/reprise]

MODEL is a preset or a file. With --talk the pasts are its conversations; without it tokens drawn at random (a random model
knows no others). Printed is the mean of KL(f16 || formats) over the 256 positions before each length, with two standard
errors, and the share of positions whose best token is the same. The row of f32 tells how much of it is rounding of
activations, which falls otherwise as soon as anything changes.
"""

import argparse
import json
import pathlib
import subprocess
import tempfile

import numpy as np
from safetensors.numpy import load_file

POSITIONS = 256
FORMATS = [
    ("f32", "f32", "off"),
    ("q8", "q8", "off"),
    ("q8", "q8", "on"),
    ("q8", "q4", "off"),
    ("q8", "q4", "on"),
    ("q4", "q4", "off"),
    ("q4", "q4", "on"),
    ("q8", "tq4", "off"),
    ("tq4", "tq4", "on"),
    ("tq4", "tq3", "on"),
    ("tq3", "tq3", "on"),
]


class Reader:
    def __init__(self, args, folder):
        self.args, self.folder = args, pathlib.Path(folder)

    def call(self, *words):
        done = subprocess.run([self.args.reprise, *words], capture_output=True, text=True)
        if done.returncode:
            raise SystemExit(done.stderr)
        return done.stdout

    def rendered(self, conversation):
        request = self.folder / "request.json"
        request.write_text(json.dumps({"messages": conversation["messages"]}))
        return json.loads(self.call("render", "--model", self.args.model, "--request", str(request), "--json"))["tokens"]

    def texts(self, longest):
        if not self.args.talk:
            draw = np.random.default_rng(7)
            return [draw.integers(0, self.vocabulary(), longest).tolist() for _ in range(self.args.texts)]
        lines = iter(self.args.talk.read_text().splitlines())
        texts = []
        for _ in range(self.args.texts):
            text = []
            while len(text) < longest:
                text += self.rendered(json.loads(next(lines)))
            texts.append(text[:longest])
        return texts

    def vocabulary(self):
        return min(self.logits([0], ("f16", "f16", "off")).shape[1], 20000)

    def logits(self, tokens, formats):
        listed, out = self.folder / "tokens", self.folder / "out.safetensors"
        listed.write_text(",".join(map(str, tokens)))
        keys = [f"{key}={value}" for key, value in zip(("k", "v", "rotation"), formats)]
        is_file = pathlib.Path(self.args.model).exists()
        chosen = [] if is_file else ["--set", f"model.preset={self.args.model}"]
        settings = [word for key in keys for word in ("--set", f"preset.kv.{key}")]
        self.call(*chosen, *settings, "logits", "--model", self.args.model, "--tokens", f"@{listed}", "--out", str(out))
        return load_file(out)["logits"]


def log_softmax(logits):
    shifted = logits.astype(np.float64)
    shifted -= shifted.max(axis=1, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(axis=1, keepdims=True))


def compare(exact, other, length):
    """(divergence, whether the best token is the same) of each position"""
    exact, other = (log_softmax(logits[length - POSITIONS : length]) for logits in (exact, other))
    return (np.exp(exact) * (exact - other)).sum(axis=1), exact.argmax(axis=1) == other.argmax(axis=1)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("--talk", type=pathlib.Path)
    parser.add_argument("--lengths", type=lambda text: [int(word) for word in text.split(",")], default=[512, 2048, 4096])
    parser.add_argument("--texts", type=int, default=2)
    parser.add_argument("--reprise", default="target/release/reprise")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        reader = Reader(args, folder)
        texts = reader.texts(max(args.lengths))
        exact = [reader.logits(text, ("f16", "f16", "off")) for text in texts]
        print("| keys | values | rotation | " + " | ".join(map(str, args.lengths)) + " |", flush=True)
        for formats in FORMATS:
            found = [reader.logits(text, formats) for text in texts]
            cells = []
            for length in args.lengths:
                seen = [compare(one, other, length) for one, other in zip(exact, found)]
                divergence, same = (np.concatenate(parts) for parts in zip(*seen))
                error = 2 * divergence.std() / len(divergence) ** 0.5
                cells.append(f"{divergence.mean():.1e} ± {error:.0e}, {100 * same.mean():.1f} %")
            print("| " + " | ".join([*formats, *cells]) + " |", flush=True)


if __name__ == "__main__":
    main()
