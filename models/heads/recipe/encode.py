"""A sentence encoder in torch, for training the heads. The service has its own (engine/encoder)."""

import json
import pathlib

import numpy as np
import torch
from safetensors.torch import load_file
from tokenizers import Tokenizer
from torch.nn.functional import gelu, layer_norm, linear, scaled_dot_product_attention


class Encoder:
    def __init__(self, folder: pathlib.Path):
        self.w = {name: weights.float() for name, weights in load_file(folder / "model.safetensors").items() if weights.is_floating_point()}
        self.config = json.loads((folder / "config.json").read_text())
        self.tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
        self.tokenizer.no_padding()
        self.tokenizer.enable_truncation(128)

    def norm(self, x, name):
        return layer_norm(x, x.shape[-1:], self.w[f"{name}.weight"], self.w[f"{name}.bias"], self.config["layer_norm_eps"])

    def linear(self, x, name):
        return linear(x, self.w[f"{name}.weight"], self.w[f"{name}.bias"])

    @torch.no_grad()
    def states(self, ids):  # [texts, tokens], all of one length
        texts, tokens = ids.shape
        heads = self.config["num_attention_heads"]
        x = self.w["embeddings.word_embeddings.weight"][ids] + self.w["embeddings.position_embeddings.weight"][:tokens]
        x = self.norm(x + self.w["embeddings.token_type_embeddings.weight"][0], "embeddings.LayerNorm")
        for layer in range(self.config["num_hidden_layers"]):
            at = f"encoder.layer.{layer}"
            q, k, v = (
                self.linear(x, f"{at}.attention.self.{part}").reshape(texts, tokens, heads, -1).transpose(1, 2)
                for part in ["query", "key", "value"]
            )
            attended = scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(texts, tokens, -1)
            x = self.norm(x + self.linear(attended, f"{at}.attention.output.dense"), f"{at}.attention.output.LayerNorm")
            wide = gelu(self.linear(x, f"{at}.intermediate.dense"))
            x = self.norm(x + self.linear(wide, f"{at}.output.dense"), f"{at}.output.LayerNorm")
        return x.numpy()

    def each(self, texts):
        """Yields places of some of the texts with the states of their tokens, until all are encoded."""
        ids = [self.tokenizer.encode(text).ids for text in texts]
        by_length = {}
        for at, one in enumerate(ids):
            by_length.setdefault(len(one), []).append(at)
        for places in by_length.values():
            for start in range(0, len(places), 64):
                some = places[start : start + 64]
                yield some, self.states(torch.tensor([ids[at] for at in some]))

    def __call__(self, texts):
        out = np.zeros((len(texts), self.config["hidden_size"]), np.float32)
        for places, states in self.each(texts):
            out[places] = of_length_one(states.mean(1))
        return out

    def tokens(self, texts, most):
        """Returns the first `most` tokens of each text, of length one, without those that the tokenizer puts around them; and vectors."""
        width = self.config["hidden_size"]
        rows, vectors = np.zeros((len(texts), most, width), np.float32), np.zeros((len(texts), width), np.float32)
        for places, states in self.each(texts):
            vectors[places] = of_length_one(states.mean(1))
            inner = states[:, 1:-1][:, :most]
            rows[places, : inner.shape[1]] = of_length_one(inner)
        return rows, vectors


def of_length_one(x):
    return x / np.linalg.norm(x, axis=-1, keepdims=True)
