"""Holds model.py to the reference implementation: the same weights give the same logits.

    python check_reference.py [WEIGHTS.safetensors]
"""
import sys, torch
from safetensors.torch import load_file
from transformers import Qwen3_5TextConfig, Qwen3_5ForCausalLM
from model import CONFIG, Model, initialise

torch.manual_seed(0)
ours = Model().eval()
initialise(ours, 1)
if len(sys.argv) > 1:
    ours.load_state_dict(load_file(sys.argv[1]))
config = Qwen3_5TextConfig(**CONFIG)
config._attn_implementation = "eager"
theirs = Qwen3_5ForCausalLM(config).float().eval()
missing, unexpected = theirs.load_state_dict(ours.state_dict(), strict=False)
assert not unexpected and set(missing) <= {"lm_head.weight"}, (missing, unexpected)
theirs.tie_weights()
with torch.no_grad():
    for length in (1, 5, 63, 64, 200, 513):
        tokens = torch.randint(0, CONFIG["vocab_size"], (2, length))
        a, b = ours(tokens), theirs(tokens, use_cache=False).logits
        error = float((a - b).norm() / b.norm())
        print(length, "relative difference", error)
        assert error < 1e-5
print(sum(p.numel() for p in ours.parameters()), "parameters")

# The states' own gradient, against finite differences.
from model import States
keep, add = (torch.randn(1, 2, 4, 3, 3, dtype=torch.float64, requires_grad=True) for _ in range(2))
assert torch.autograd.gradcheck(States.apply, (keep, add))
