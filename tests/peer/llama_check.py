"""Whether llama.cpp loads a model file and computes the same from it as reprise.

    pip install llama-cpp-python numpy safetensors
    python llama_check.py FILE.gguf [--reprise target/release/reprise] [--greedy 32] [--precision f32]

llama.cpp reads a short chat prompt and goes on greedily. reprise then reads the prompt and those same tokens, so that
one token chosen differently does not make all that follow incomparable, and goes on from the prompt on its own too.
Compared are the logits of every position, and the choices. The exit status is 1 where

- a logit of llama.cpp is not finite, or its logits hardly vary,
- the logits differ by more than --tolerance (norm of the difference by the norm of llama.cpp's),
- a choice differs although llama.cpp's best token leads by more than the noise: eight times the root mean square of
  the differences at that position, over tokens that have a logit at all. Both engines round activations to eight bits,
  each in its own way, so on quantised files near ties go either way.

Without --reprise only llama.cpp is checked, and its speed is printed. An f32 file with --precision f32 rounds nowhere:
there the tolerance is 1e-3 and every choice must agree.
"""

import argparse
import pathlib
import subprocess
import sys
import tempfile
import time

import numpy as np

PROMPT = (
    "<|im_start|>user\nTurn on the lights in the kitchen, please. What is the weather like tomorrow?<|im_end|>\n"
    "<|im_start|>assistant\n<think>\n\n</think>\n\n"
)


def llama(path, count, threads):
    """(prompt tokens, greedy tokens, logits [position, vocab] of both but the last token)"""
    from llama_cpp import Llama

    model = Llama(str(path), n_ctx=1024, n_threads=threads, n_threads_batch=threads, logits_all=True, verbose=False)
    prompt = model.tokenize(PROMPT.encode(), special=True, add_bos=False)
    start = time.time()
    model.eval(prompt)
    read = time.time() - start
    greedy = []
    for _ in range(count):
        greedy.append(int(model.scores[model.n_tokens - 1].argmax()))
        model.eval([greedy[-1]])
    speed = count / (time.time() - start - read)
    print(f"llama.cpp: {len(prompt)} tokens read at {len(prompt) / read:.0f}/s, {count} written at {speed:.1f}/s")
    print("  " + repr(model.detokenize(greedy).decode(errors="replace")))
    return prompt, greedy, np.array(model.scores[: model.n_tokens - 1], dtype=np.float64)


def reprise(binary, path, tokens, precision, greedy=0):
    """(logits [position, vocab], greedy tokens)"""
    from safetensors.numpy import load_file

    with tempfile.TemporaryDirectory() as folder:
        listed, out = pathlib.Path(folder, "tokens"), pathlib.Path(folder, "out.safetensors")
        listed.write_text(",".join(map(str, tokens)))
        command = [binary, "logits", "--model", path, "--tokens", f"@{listed}", "--out", out, "--greedy", str(greedy)]
        if precision:
            command += ["--precision", precision]
        subprocess.run(list(map(str, command)), check=True, stdout=subprocess.DEVNULL)
        found = load_file(out)
        return found["logits"].astype(np.float64), found.get("greedy", np.zeros(0)).tolist()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", type=pathlib.Path)
    parser.add_argument("--reprise", type=pathlib.Path)
    parser.add_argument("--greedy", type=int, default=32)
    parser.add_argument("--precision", choices=["default", "f32"])
    parser.add_argument("--tolerance", type=float)
    parser.add_argument("--threads", type=int, default=2)
    args = parser.parse_args()
    tolerance = args.tolerance or (1e-3 if args.precision == "f32" else 0.15)
    failures = []

    prompt, greedy, theirs = llama(args.file, args.greedy, args.threads)
    spread = theirs.std(axis=1)
    print(f"  logits: deviation {spread.min():.3f} to {spread.max():.3f}; {len(set(greedy))} different tokens")
    if not np.isfinite(theirs).all():
        failures.append("a logit of llama.cpp is not finite")
    if not spread.min() > 0.1:
        failures.append("the logits of llama.cpp hardly vary")

    if args.reprise and not failures:
        tokens = prompt + greedy
        ours, _ = reprise(args.reprise, args.file, tokens[:-1], args.precision)
        _, alone = reprise(args.reprise, args.file, prompt, args.precision, args.greedy)
        difference = np.linalg.norm(ours - theirs) / np.linalg.norm(theirs)
        # Reserved tokens of random models have no weights: their logit is 0 in both.
        noise = np.sqrt(((ours - theirs) ** 2).sum(axis=1) / (theirs != 0).sum(axis=1))
        best = np.sort(theirs, axis=1)[:, -2:]
        lead = best[:, 1] - best[:, 0]
        differ = np.nonzero(ours.argmax(1) != theirs.argmax(1))[0]
        same = next((i for i, (a, b) in enumerate(zip(greedy, alone)) if a != b), len(greedy))
        print(f"reprise: logits differ by {difference:.2e}")
        print(f"  choices: {len(lead) - len(differ)} of {len(lead)} agree, given the same tokens before")
        print(f"  greedy on its own: the first {same} of {len(greedy)} agree")
        if not difference <= tolerance:
            failures.append(f"the logits differ by {difference:.2e}, more than {tolerance}")
        for at in differ:
            print(f"  position {at}: llama.cpp leads by {lead[at]:.4f}, the difference is {noise[at]:.4f} on average")
            if lead[at] > 8 * noise[at] or args.precision == "f32":
                failures.append(f"another choice at position {at}, which is no near tie")

    for failure in failures:
        print(f"failed: {failure}")
    sys.exit(1 if failures else 0)


if __name__ == "__main__":
    main()
