"""Holds what the engine computes for the exported file to the reference implementation, and the quantised file to the exact one.

    python check_export.py OUT_FOLDER REPRISE_BINARY     # the folder that export.py wrote
"""
import json, pathlib, random, subprocess, sys, tempfile
import torch
from safetensors.torch import load_file
from transformers import Qwen3_5ForCausalLM
import bpe, mix, render

out, binary = pathlib.Path(sys.argv[1]), sys.argv[2]
tokenizer = bpe.Tokenizer()
reference = Qwen3_5ForCausalLM.from_pretrained(str(out / "hf"), dtype=torch.float32, attn_implementation="eager").eval()


def engine(file, tokens, precision):
    with tempfile.TemporaryDirectory() as folder:
        done = pathlib.Path(folder) / "logits.safetensors"
        command = [binary, "logits", "--model", str(file), "--tokens", ",".join(map(str, tokens)), "--out", str(done), "--precision", precision]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        return load_file(str(done))["logits"]


rng = random.Random(3)
rng.held = True
worst, changed, places = 0.0, 0, 0
for _ in range(12):
    home = mix.conversation(rng, 1.0)
    ids, weights = render.encode(tokenizer, render.segments(home.messages, home.tools))
    ids, weights = ids[:2000], torch.tensor(weights[:2000])
    with torch.no_grad():
        theirs = reference(torch.tensor([ids]), use_cache=False).logits[0]
    exact, small = engine(out / "builtin.f32.gguf", ids, "f32"), engine(out / "builtin.q8_0.gguf", ids, "default")
    worst = max(worst, float((exact - theirs).norm() / theirs.norm()))
    where = (weights[1:] > 0).nonzero()[:, 0]
    changed += int((exact[where].argmax(-1) != small[where].argmax(-1)).sum())
    places += len(where)
print(f"f32 file against transformers: relative difference {worst:.1e} at most; q8_0 changes {changed} of {places} greedy tokens ({changed / places:.2%})")
assert worst <= 1e-4 and changed <= 0.02 * places
