"""A sentence encoder in numpy, for training the heads. The service has its own (engine/encoder)."""

import json
import pathlib

import numpy as np
from safetensors.numpy import load_file
from scipy.special import erf
from tokenizers import Tokenizer


class Encoder:
    def __init__(self, folder: pathlib.Path):
        self.w = load_file(folder / "model.safetensors")
        self.config = json.loads((folder / "config.json").read_text())
        self.tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
        self.tokenizer.no_padding()
        self.tokenizer.enable_truncation(128)

    def norm(self, x, name):
        x = x - x.mean(-1, keepdims=True)
        x = x / np.sqrt((x * x).mean(-1, keepdims=True) + self.config["layer_norm_eps"])
        return x * self.w[f"{name}.weight"] + self.w[f"{name}.bias"]

    def linear(self, x, name):
        return x @ self.w[f"{name}.weight"].T + self.w[f"{name}.bias"]

    def batch(self, ids):  # [texts, tokens], all of one length
        texts, tokens = ids.shape
        heads = self.config["num_attention_heads"]
        x = self.w["embeddings.word_embeddings.weight"][ids] + self.w["embeddings.position_embeddings.weight"][:tokens]
        x = self.norm(x + self.w["embeddings.token_type_embeddings.weight"][0], "embeddings.LayerNorm")
        for layer in range(self.config["num_hidden_layers"]):
            at = f"encoder.layer.{layer}"
            q, k, v = (
                self.linear(x, f"{at}.attention.self.{part}").reshape(texts, tokens, heads, -1).transpose(0, 2, 1, 3)
                for part in ["query", "key", "value"]
            )
            scores = q @ k.transpose(0, 1, 3, 2) / np.sqrt(q.shape[-1])
            weights = np.exp(scores - scores.max(-1, keepdims=True))
            attended = (weights / weights.sum(-1, keepdims=True)) @ v
            attended = attended.transpose(0, 2, 1, 3).reshape(texts, tokens, -1)
            x = self.norm(x + self.linear(attended, f"{at}.attention.output.dense"), f"{at}.attention.output.LayerNorm")
            wide = self.linear(x, f"{at}.intermediate.dense")
            wide = 0.5 * wide * (1 + erf(wide / np.float32(np.sqrt(2))))
            x = self.norm(x + self.linear(wide, f"{at}.output.dense"), f"{at}.output.LayerNorm")
        x = x.mean(1)
        return x / np.linalg.norm(x, axis=-1, keepdims=True)

    def __call__(self, texts):
        ids = [self.tokenizer.encode(text).ids for text in texts]
        out = np.zeros((len(texts), self.config["hidden_size"]), np.float32)
        by_length = {}
        for at, one in enumerate(ids):
            by_length.setdefault(len(one), []).append(at)
        for places in by_length.values():
            for start in range(0, len(places), 64):
                some = places[start : start + 64]
                out[some] = self.batch(np.array([ids[at] for at in some]))
        return out
