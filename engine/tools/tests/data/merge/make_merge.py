"""Makes golden.safetensors: three tiny models, what mergekit makes of them by each recipe beside this file, and an adapter
with the weights that PEFT merges it to.

    python3 -m venv venv && venv/bin/pip install mergekit==0.1.5 peft==0.21.2
    venv/bin/python make_merge.py

Made with torch 2.15 and transformers as those pull it in. mergekit draws DARE's masks from torch's generator (seed 7), tensor
after tensor in the order of their names.
"""

import json
import os
import pathlib
import tempfile

os.environ["HF_HUB_OFFLINE"] = "1"

import torch
import yaml
from mergekit.config import MergeConfiguration
from mergekit.merge import run_merge
from mergekit.options import MergeOptions
from peft import LoraConfig, get_peft_model, get_peft_model_state_dict
from safetensors.torch import load_file, save_file

HERE = pathlib.Path(__file__).parent
SHAPES = {
    "model.embed_tokens.weight": (8, 24),
    "model.layers.0.mlp.up_proj.weight": (32, 24),
    "model.layers.0.input_layernorm.weight": (24,),
    "model.layers.1.mlp.up_proj.weight": (32, 24),
    "model.layers.1.input_layernorm.weight": (24,),
    "model.norm.weight": (24,),
}
CONFIG = {
    "architectures": ["Qwen3_5ForCausalLM"],
    "model_type": "qwen3_5_text",
    "num_hidden_layers": 2,
    "hidden_size": 24,
    "intermediate_size": 32,
    "vocab_size": 8,
    "layer_types": ["full_attention", "full_attention"],
}

generator = torch.Generator().manual_seed(20261126)
noise = lambda shape, size: size * torch.randn(shape, generator=generator)
base = {name: noise(shape, 1.0) for name, shape in SHAPES.items()}
models = {"base": base}
for model in ("a", "b"):
    models[model] = {name: base[name] + noise(shape, 0.1) for name, shape in SHAPES.items()}

golden = {f"{model}/{name}": tensor for model, tensors in models.items() for name, tensor in tensors.items()}
with tempfile.TemporaryDirectory() as folder:
    os.chdir(folder)
    for model, tensors in models.items():
        os.mkdir(model)
        save_file(tensors, f"{model}/model.safetensors", metadata={"format": "pt"})
        pathlib.Path(model, "config.json").write_text(json.dumps(CONFIG))
    for recipe in sorted(HERE.glob("*.yaml")):
        config = MergeConfiguration.model_validate(yaml.safe_load(recipe.read_text()))
        options = MergeOptions(random_seed=7, allow_crimes=True, write_model_card=False, copy_tokenizer=False)
        run_merge(config, recipe.stem, options=options)
        for name, tensor in load_file(f"{recipe.stem}/model.safetensors").items():
            golden[f"{recipe.stem}/{name}"] = tensor


class Mlp(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.up_proj = torch.nn.Linear(24, 32, bias=False)


class Layer(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.mlp = Mlp()


class Inner(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = torch.nn.ModuleList([Layer(), Layer()])


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.model = Inner()


model = Model()
model.load_state_dict({name: tensor for name, tensor in base.items() if "up_proj" in name})
config = LoraConfig(
    r=4,
    lora_alpha=6,
    target_modules=["up_proj"],
    use_rslora=True,
    rank_pattern={"layers.1.mlp.up_proj": 2},
    alpha_pattern={"layers.1.mlp.up_proj": 5},
)
adapted = get_peft_model(model, config)
for name, parameter in adapted.named_parameters():
    if "lora_" in name:
        parameter.data = noise(parameter.shape, 0.1)
for name, tensor in get_peft_model_state_dict(adapted).items():
    golden[f"adapter/{name}"] = tensor.clone()
stated = {key: value for key, value in config.to_dict().items() if not isinstance(value, set)}
stated["target_modules"] = sorted(config.target_modules)
(HERE / "adapter_config.json").write_text(json.dumps(stated, indent=1, default=str) + "\n")
for name, tensor in adapted.merge_and_unload().state_dict().items():
    golden[f"lora/{name}"] = tensor.clone()
save_file({name: tensor.contiguous() for name, tensor in golden.items()}, HERE / "golden.safetensors")
