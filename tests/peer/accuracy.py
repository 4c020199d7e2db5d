"""What rounding costs: how far the default path and llama.cpp are from the same file computed without rounding.

    pip install llama-cpp-python numpy safetensors
    python accuracy.py FILE.gguf ... [--reprise target/release/reprise] [--tokens 192]

For each file the f32 path of reprise gives the distributions of the next token; printed is the mean of the divergence
KL(f32 path ‖ other) over all positions, of reprise's default path and of llama.cpp. The exit status is 1 where the default
path's is the larger by more than the error of the difference (two standard errors over positions).
"""

import argparse
import sys

import numpy as np

from llama_check import reprise


def llama(path, tokens, threads):
    from llama_cpp import Llama

    model = Llama(str(path), n_ctx=len(tokens) + 8, n_threads=threads, n_threads_batch=threads, logits_all=True, verbose=False)
    model.eval(tokens)
    return np.array(model.scores[: model.n_tokens], dtype=np.float64)


def log_softmax(logits):
    shifted = logits - logits.max(axis=1, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(axis=1, keepdims=True))


def divergence(of, other):
    of, other = log_softmax(of), log_softmax(other)
    return (np.exp(of) * (of - other)).sum(axis=1)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="+")
    parser.add_argument("--reprise", default="target/release/reprise")
    parser.add_argument("--tokens", type=int, default=192)
    parser.add_argument("--threads", type=int, default=2)
    args = parser.parse_args()
    failed = False
    for path in args.files:
        # Tokens of no meaning: a random model has none either, and a real one is only asked for the difference.
        vocabulary = reprise(args.reprise, path, [0], "f32")[0].shape[1]
        tokens = [int(token) for token in np.random.default_rng(7).integers(0, min(vocabulary, 20000), args.tokens)]
        exact = reprise(args.reprise, path, tokens, "f32")[0]
        ours = divergence(exact, reprise(args.reprise, path, tokens, "default")[0])
        theirs = divergence(exact, llama(path, tokens, args.threads))
        difference = ours - theirs
        error = 2 * difference.std() / len(difference) ** 0.5
        verdict = "larger" if difference.mean() > error else "not larger"
        failed |= verdict == "larger"
        print(f"{path}: reprise {ours.mean():.3e}, llama.cpp {theirs.mean():.3e}: {verdict} (difference {difference.mean():+.1e} ± {error:.1e})", flush=True)
    sys.exit(failed)


if __name__ == "__main__":
    main()
