"""What a sketch of signs costs or gains beside the levels of tq4 and tq3: keys rounded in the reference implementation, values exact.

    pip install torch transformers safetensors gguf numpy
    python kv_sketch.py builtin                       # talks of models/builtin/eval, made tokens by --reprise
    python kv_sketch.py FOLDER...                     # folders of the reference, with tokens drawn at random
    python kv_sketch.py rows                          # scores of random rows, heads of 64, 128 and 256

A key of b bits is rounded to 2^b levels, or to 2^(b-1) of them and the signs of what is left, rotated by signs of its own (QJL): an
estimate of the score without bias, and with more variance. Printed is the mean of KL(exact || rounded), with two standard errors, the
share of positions whose best token is the same, and the error of the scores (root of the mean square, by that of the scores).
"""

import argparse
import json
import pathlib
import sys
import tempfile

import numpy as np
import torch
import torch.nn.functional as F

from kv_error import Reader, log_softmax

RECIPE = pathlib.Path(__file__).parents[2] / "models/builtin/recipe"
LEVELS = {
    2: [0.452780, 1.510418],
    3: [0.245094, 0.756005, 1.343909, 2.151946],
    4: [0.128395, 0.388048, 0.656759, 0.942340, 1.256231, 1.618046, 2.069017, 2.732590],
}
FORMS = [("4 bits", 4, False), ("3 bits and signs", 3, True), ("3 bits", 3, False), ("2 bits and signs", 2, True), ("2 bits", 2, False)]


def turned(x):
    """The Walsh-Hadamard transform of the last dimension, without a factor."""
    width = x.shape[-1]
    step = 1
    while step < width:
        pairs = x.reshape(*x.shape[:-1], width // (2 * step), 2, step)
        x = torch.stack([pairs[..., 0, :] + pairs[..., 1, :], pairs[..., 0, :] - pairs[..., 1, :]], -2).reshape(x.shape)
        step *= 2
    return x


class Rounding:
    def __init__(self, bits, has_signs, width):
        draw = torch.Generator().manual_seed(11)
        self.signs = [torch.randint(0, 2, (width,), generator=draw) * 2.0 - 1 for _ in range(2)]
        half = torch.tensor(LEVELS[bits])
        self.levels, self.has_signs = torch.cat([-half.flip(0), half]), has_signs

    def __call__(self, keys):
        width = keys.shape[-1]
        first, second = self.signs
        norm = keys.norm(dim=-1, keepdim=True).clamp_min(1e-12)
        spread = turned(keys / norm * first)
        middles = (self.levels[1:] + self.levels[:-1]) / 2
        near = self.levels[torch.bucketize(spread, middles)]
        if self.has_signs:
            left = spread - near
            signs = turned(left * second).sign()
            size = left.norm(dim=-1, keepdim=True)
            near = near + size * ((torch.pi / 2) ** 0.5 / width) * turned(signs) * second
            scale = norm / width**0.5
        else:
            scale = norm / near.norm(dim=-1, keepdim=True)  # the norm stays the row's
        return turned(scale.half().float() * near) * first / width**0.5


def of_gguf(path):
    """The built-in model in plain PyTorch, from its file."""
    import gguf

    sys.path.insert(0, str(RECIPE))
    from export import NAMES
    from model import Model

    names = {there: here for here, there in NAMES.items()}
    weights = {}
    for tensor in gguf.GGUFReader(str(path)).tensors:
        value = torch.tensor(gguf.dequantize(tensor.data, tensor.tensor_type)).float()
        if tensor.name == "token_embd.weight":
            weights["model.embed_tokens.weight"] = value
        elif tensor.name == "output_norm.weight":
            weights["model.norm.weight"] = value - 1
        elif tensor.name.startswith("blk."):
            _, layer, rest = tensor.name.split(".", 2)
            here = names.get(rest)
            if here is None:
                continue
            if here.endswith(("layernorm.weight", "q_norm.weight", "k_norm.weight")):
                value = value - 1
            elif here.endswith("A_log"):
                value = (-value).log()
            elif here.endswith("conv1d.weight"):
                value = value[:, None]
            weights[f"model.layers.{layer}.{here}"] = value
    model = Model().eval()
    missing, _ = model.load_state_dict(weights, strict=False)
    assert not missing, missing
    return model


def of_folder(folder):
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, attn_implementation="sdpa").eval()
    return lambda tokens: model(tokens, use_cache=False).logits


class Scores:
    """Attention that rounds its keys, and the error of its scores."""

    def __init__(self, rounding):
        self.rounding, self.wrong, self.all, self.exact = rounding, 0.0, 0.0, F.scaled_dot_product_attention

    def __enter__(self):
        F.scaled_dot_product_attention = self.attend
        return self

    def __exit__(self, *_):
        F.scaled_dot_product_attention = self.exact

    def attend(self, query, key, value, **options):
        bits, has_signs = self.rounding
        rounded = Rounding(bits, has_signs, key.shape[-1])(key)
        groups = query.shape[1] // key.shape[1]
        exact, other = (query @ keys.repeat_interleave(groups, 1).mT for keys in (key, rounded))
        seen = torch.ones(exact.shape[-2:], dtype=torch.bool).tril()
        self.wrong += float(((exact - other)[..., seen] ** 2).sum())
        self.all += float((exact[..., seen] ** 2).sum())
        return self.exact(query, rounded, value, **options)


def compare(name, model, texts):
    with torch.no_grad():
        exact = [log_softmax(model(text)[0].numpy()) for text in texts]
        for form, bits, has_signs in FORMS:
            with Scores((bits, has_signs)) as scores:
                other = [log_softmax(model(text)[0].numpy()) for text in texts]
            divergence = np.concatenate([(np.exp(a) * (a - b)).sum(1) for a, b in zip(exact, other)])
            same = np.concatenate([a.argmax(1) == b.argmax(1) for a, b in zip(exact, other)])
            error = 2 * divergence.std() / len(divergence) ** 0.5
            score = (scores.wrong / scores.all) ** 0.5
            print(f"| {name} | {form} | {divergence.mean():.1e} ± {error:.0e} | {100 * same.mean():.1f} % | {score:.3f} |", flush=True)


def rows():
    draw = torch.Generator().manual_seed(5)
    for width in (64, 128, 256):
        query, keys = (torch.randn(count, width, generator=draw) for count in (256, 4096))
        exact = query @ keys.T
        for form, bits, has_signs in FORMS:
            other = query @ Rounding(bits, has_signs, width)(keys).T
            slope = (exact * other).sum() / (exact**2).sum()
            error = ((exact - other) ** 2).mean().sqrt() / exact.std()
            print(f"| rows of {width} | {form} | | | {error:.3f}, slope {slope:.3f} |", flush=True)


def talks(args):
    with tempfile.TemporaryDirectory() as folder:
        reader = Reader(args, folder)
        return [torch.tensor([text]) for text in reader.texts(args.length)]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="+")
    parser.add_argument("--length", type=int, default=2048)
    parser.add_argument("--texts", type=int, default=3)
    parser.add_argument("--reprise", default="target/release/reprise")
    args = parser.parse_args()
    print("| model | keys | divergence | same best token | error of scores |")
    for name in args.models:
        if name == "rows":
            rows()
        elif name == "builtin":
            args.model, args.talk = name, RECIPE.parent / "eval/recall_2000.jsonl"
            compare(name, of_gguf(RECIPE.parent / "builtin.gguf"), talks(args))
        else:
            config = json.loads((pathlib.Path(name) / "config.json").read_text())
            draw = torch.Generator().manual_seed(7)
            length = min(args.length, 1024)
            texts = [torch.randint(0, config["vocab_size"], (1, length), generator=draw) for _ in range(args.texts)]
            compare(pathlib.Path(name).name, of_folder(name), texts)


if __name__ == "__main__":
    main()
