"""Makes experts.safetensors and the configuration beside it: a layer's stacked experts, an adapter of both stacks in PEFT's
`target_parameters`, and the weights that PEFT merges it to.

    python3 -m venv venv && venv/bin/pip install peft==0.21.2
    venv/bin/python make_experts.py

Made with torch and transformers as that pulls them in. The experts are a class of torch's own with the family's two parameters,
[experts, rows, columns] each; PEFT knows nothing else of the model.
"""

import json
import pathlib

import torch
from peft import LoraConfig, get_peft_model, get_peft_model_state_dict
from safetensors.torch import save_file

HERE = pathlib.Path(__file__).parent
EXPERTS, HIDDEN, WIDTH = 3, 6, 4
generator = torch.Generator().manual_seed(40)
noise = lambda *shape: torch.randn(shape, generator=generator)


class Experts(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.gate_up_proj = torch.nn.Parameter(noise(EXPERTS, 2 * WIDTH, HIDDEN))
        self.down_proj = torch.nn.Parameter(noise(EXPERTS, HIDDEN, WIDTH))

    def forward(self, x):
        gate, up = torch.einsum("eoi,bi->ebo", self.gate_up_proj, x).chunk(2, dim=-1)
        return torch.einsum("eoi,ebi->bo", self.down_proj, torch.nn.functional.silu(gate) * up)


class Named(torch.nn.Module):
    def __init__(self, name, inner):
        super().__init__()
        self.add_module(name, inner)
        self.inner = lambda: inner

    def forward(self, x):
        return self.inner()(x)


layers = torch.nn.ModuleList([Named("mlp", Named("experts", Experts()))])
model = Named("model", Named("layers", layers))
base = {name: value.detach().clone() for name, value in model.named_parameters()}
config = LoraConfig(
    r=2, lora_alpha=3, target_modules=[], target_parameters=["experts.gate_up_proj", "experts.down_proj"],
    rank_pattern={"experts.down_proj": 1},
)
adapted = get_peft_model(model, config)
with torch.no_grad():
    for name, value in adapted.named_parameters():
        if "lora_" in name:
            value.copy_(noise(*value.shape))
adapter = {name: value.clone() for name, value in get_peft_model_state_dict(adapted).items()}
merged = dict(adapted.merge_and_unload().named_parameters())
golden = {f"{part}/{name}": value.detach().contiguous() for part, tensors in
          {"base": base, "adapter": adapter, "lora": merged}.items() for name, value in tensors.items()}
save_file(golden, HERE / "experts.safetensors")
written = config.to_dict()
keys = ["peft_type", "r", "lora_alpha", "target_modules", "target_parameters", "rank_pattern", "alpha_pattern", "use_rslora",
        "use_dora", "bias", "fan_in_fan_out", "init_lora_weights", "modules_to_save", "lora_dropout"]
as_list = lambda value: sorted(value) if isinstance(value, set) else value
text = json.dumps({key: as_list(written[key]) for key in keys}, indent=2, default=str)
(HERE / "experts_config.json").write_text(text + "\n")
print(*sorted(golden), sep="\n")
