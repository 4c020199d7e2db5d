"""Makes `dense-mtp`: the model of `dense-tied` with a random block for multi-token prediction, and records what PyTorch computes for
it. The model's code is that of models/builtin/recipe, which check_reference.py there holds to transformers; here its logits are
held to those of dense-tied's golden file.

    pip install torch safetensors
    python make_prediction.py
"""
import json, pathlib, shutil, sys
import torch
import torch.nn.functional as F
from safetensors.torch import load_file, save_file

HERE = pathlib.Path(__file__).parent
sys.path.insert(0, str(HERE.parents[2] / "models/builtin/recipe"))
from model import Block, Model, Norm

FROM, TO, SEED = HERE / "dense-tied", HERE / "dense-mtp", 20261123


def random_block(c, gen):
    """By the names of a checkpoint. Weights so large that every part of the arithmetic shows."""
    width, block = c["hidden_size"], Block(c, "full_attention")
    of_layer = {f"layers.0.{name}": p.shape for name, p in block.state_dict().items()}
    shapes = {"fc.weight": (width, 2 * width), "pre_fc_norm_embedding.weight": (width,), "pre_fc_norm_hidden.weight": (width,),
              "norm.weight": (width,), **of_layer}
    out = {}
    for name, shape in shapes.items():
        if len(shape) == 1:
            value = torch.empty(shape).uniform_(-0.4, 0.4, generator=gen)
        else:
            value = torch.empty(shape).normal_(0, 1.6 / shape[-1] ** 0.5, generator=gen)
        out[f"mtp.{name}"] = value.to(torch.bfloat16)
    return out


def main():
    config = json.loads((FROM / "config.json").read_text())
    model = Model(config).eval()
    stored = load_file(str(FROM / "model.safetensors"))
    model.load_state_dict({name: value.float() for name, value in stored.items()})
    golden = load_file(str(FROM / "golden.safetensors"))
    prompt, head = golden["prompt"], model.model.embed_tokens.weight
    with torch.no_grad():
        states = model.hidden(prompt[None])[0]                 # behind the last norm
    error = float((states @ head.T - golden["logits"]).norm() / golden["logits"].norm())
    assert error < 1e-4, error

    weights = random_block(config, torch.Generator().manual_seed(SEED))
    get = lambda name: weights[f"mtp.{name}"].float()
    block = Block(config, "full_attention")
    block.load_state_dict({name: get(f"layers.0.{name}") for name in block.state_dict()})
    norm = lambda name, x: F.rms_norm(x, (x.shape[-1],), 1 + get(name), config["rms_norm_eps"])

    def outputs(tokens, before):
        """[row, width]: row i is of token i and of the model's output before it."""
        embedded = F.embedding(tokens, head)
        x = torch.cat([norm("pre_fc_norm_embedding.weight", embedded), norm("pre_fc_norm_hidden.weight", before)], -1)
        angles = torch.arange(len(tokens)).float()[:, None] * model.frequencies
        angles = torch.cat([angles, angles], -1)[:, None]
        return norm("norm.weight", block((x @ get("fc.weight").T)[None], (angles.cos(), angles.sin()))[0])

    with torch.no_grad():
        before = F.pad(states[:-1], (0, 0, 1, 0))              # zeros before the first token
        golden = {"prompt": prompt, "guesses": outputs(prompt, before) @ head.T}
        chained = []
        for at in range(len(prompt)):                          # of the prompt's first at + 1 tokens, four guesses in a row
            tokens, seen, guesses = prompt[:at + 1], before[:at + 1], []
            for _ in range(4):
                out = outputs(tokens, seen)[-1:]
                guesses.append(int((out @ head.T).argmax()))
                tokens, seen = torch.cat([tokens, torch.tensor(guesses[-1:])]), torch.cat([seen, out])
            chained.append(guesses)
        golden["chained"] = torch.tensor(chained)
    TO.mkdir(exist_ok=True)
    save_file({**stored, **weights}, str(TO / "model.safetensors"), {"format": "pt"})
    save_file({name: value.contiguous() for name, value in golden.items()}, str(TO / "golden.safetensors"))
    (TO / "config.json").write_text(json.dumps({**config, "mtp_num_hidden_layers": 1, "mtp_use_dedicated_embeddings": False}, indent=1))
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(FROM / name, TO)
    best = golden["guesses"].topk(2).values
    print("logits against dense-tied", error, "smallest lead", float((best[:, 0] - best[:, 1]).min()), "distinct", len(set(golden["chained"].flatten().tolist())))


main()
