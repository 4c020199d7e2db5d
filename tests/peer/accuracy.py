"""What rounding costs: how far the default path and llama.cpp are from the same file computed without rounding.

    pip install llama-cpp-python numpy safetensors
    python accuracy.py FILE.gguf ... [--reprise target/release/reprise] [--as q8_0,q4_k_m] [--talk models/builtin/eval/recall.jsonl]

For each file the f32 path of reprise gives the distributions of the next token; printed is the mean of the divergence
KL(f32 path ‖ other) over all positions, of reprise's default path and of llama.cpp, and the error of their difference (two
standard errors over positions). The exit status is 1 where reprise's is the larger by more than that error.

--as has llama.cpp quantise each file anew first: what is compared is still one file computed in three ways.
Without --talk the tokens are drawn at random (a random model knows no others); with it they are conversations of such a
file, in the words of the family's template and the file's own tokens, as llama.cpp reads them from its metadata. Where it
cannot read the vocabulary (a file whose pre-tokenizer it does not know), it is told to leave it alone and gets the token ids.
"""

import argparse
import ctypes
import json
import pathlib
import sys
import tempfile

import numpy as np

from llama_check import reprise

FORMATS = {"q8_0": 7, "q4_k_m": 15}


class Peer:
    """llama.cpp with one file."""

    def __init__(self, path, threads, length):
        from llama_cpp import Llama

        self.has_vocabulary = True
        common = {"n_ctx": length + 8, "n_threads": threads, "n_threads_batch": threads, "logits_all": True, "verbose": False}
        try:
            self.model = Llama(str(path), **common)
        except ValueError:
            self.has_vocabulary = False
            override = {"tokenizer.ggml.model": "no_vocab"}
            self.model = Llama(str(path), kv_overrides=override, **common)

    def tokens(self, text):
        return self.model.tokenize(text.encode(), special=True, add_bos=False)

    def logits(self, tokens):
        self.model.reset()
        self.model.eval(tokens)
        return np.array(self.model.scores[: len(tokens)], dtype=np.float64)


def quantised(path, name, folder):
    """The file in another format, or None with the reason printed."""
    import llama_cpp as api

    params = api.llama_model_quantize_default_params()
    params.ftype, params.allow_requantize = FORMATS[name], True
    out = folder / f"{path.stem.removesuffix('.bf16')}.{name}.gguf"
    if api.llama_model_quantize(str(path).encode(), str(out).encode(), ctypes.byref(params)) != 0:
        print(f"{path.name}: llama.cpp cannot make {name} of it")
        return None
    return out


def talk(path, peer, length):
    text = ""
    for line in path.read_text().splitlines():
        for message in json.loads(line).get("messages", []):
            text += f"<|im_start|>{message['role']}\n{message['content']}<|im_end|>\n"
        tokens = peer.tokens(text)
        if len(tokens) >= length:
            return tokens[:length]
    return tokens


def log_softmax(logits):
    shifted = logits - logits.max(axis=1, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(axis=1, keepdims=True))


def divergence(of, other):
    of, other = log_softmax(of), log_softmax(other)
    return (np.exp(of) * (of - other)).sum(axis=1)


def measure(path, args):
    """Whether reprise's divergence is the larger one."""
    peer = Peer(path, args.threads, args.tokens)
    if args.talk and peer.has_vocabulary:
        tokens = talk(args.talk, peer, args.tokens)
    else:
        vocabulary = reprise(args.reprise, path, [0], "f32")[0].shape[1]
        tokens = [int(token) for token in np.random.default_rng(7).integers(0, min(vocabulary, 20000), args.tokens)]
    exact = reprise(args.reprise, path, tokens, "f32")[0]
    ours = divergence(exact, reprise(args.reprise, path, tokens, "default")[0])
    theirs = divergence(exact, peer.logits(tokens))
    difference = ours - theirs
    error = 2 * difference.std() / len(difference) ** 0.5
    is_larger = difference.mean() > error
    note = "LARGER" if is_larger else ""
    note += "" if peer.has_vocabulary else " (llama.cpp without the vocabulary)"
    print(f"{path.name:36} {len(tokens):6} {ours.mean():10.2e} {theirs.mean():10.2e} {ours.mean() / theirs.mean():6.2f} {error:9.1e}  {note}", flush=True)
    return is_larger


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="+", type=pathlib.Path)
    parser.add_argument("--reprise", default="target/release/reprise")
    parser.add_argument("--as", dest="formats", type=lambda text: text.split(","), default=[])
    parser.add_argument("--talk", type=pathlib.Path)
    parser.add_argument("--tokens", type=int, default=900)
    parser.add_argument("--threads", type=int, default=2)
    args = parser.parse_args()
    is_larger = False
    print(f"{'':36} {'tokens':>6} {'reprise':>10} {'llama.cpp':>10} {'ratio':>6} {'± of both':>9}")
    with tempfile.TemporaryDirectory() as folder:
        for path in args.files:
            for name in args.formats or [None]:
                file = quantised(path, name, pathlib.Path(folder)) if name else path
                if file:
                    is_larger |= measure(file, args)
    sys.exit(int(is_larger))


if __name__ == "__main__":
    main()
