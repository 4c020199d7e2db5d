"""Computes what the encoder's tests expect, with the reference implementation.

    pip install tensorflow-cpu==2.15.1 transformers==4.40.2 'numpy<2'
    python make.py tiny                     a network of random weights, and its vectors: tiny/
    python make.py vectors FOLDER OUT.json  the vectors of a folder's network: minilm.json
"""

import json
import pathlib
import sys

import numpy as np
from safetensors.numpy import save_file
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors
from transformers import TFBertModel

HERE = pathlib.Path(__file__).parent
SENTENCES = [
    "My sister lives in Lisbon.",
    "where does my sister live",
    "Turn the lights off in the kitchen!",
    "Crème brûlée, Müller & Söhne — 42,50 €",
    "我妹妹住在里斯本。",
    "ok",
    "",
    "The spare key hangs in the shed, behind the second beam on the left, where nobody ever looks for it. " * 8,
]


def vectors(folder: pathlib.Path) -> list[list[float]]:
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    tokenizer.no_padding()
    tokenizer.enable_truncation(128)
    network = TFBertModel.from_pretrained(folder)
    found = []
    for sentence in SENTENCES:
        ids = np.array([tokenizer.encode(sentence).ids])
        rows = network(input_ids=ids, attention_mask=np.ones_like(ids)).last_hidden_state.numpy()[0]
        vector = rows.astype(np.float64).mean(axis=0)
        found.append([round(float(x), 6) for x in vector / np.linalg.norm(vector)])
    return found


def tiny(folder: pathlib.Path) -> None:
    folder.mkdir(exist_ok=True)
    pieces = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "my", "sister", "live", "##s", "in", "the", "kitchen", "turn", "lights", "off"]
    letters = [chr(ord("a") + at) for at in range(26)] + list(".,!&0123456789")
    pieces += letters + ["##" + letter for letter in letters]
    tokenizer = Tokenizer(models.WordPiece({piece: at for at, piece in enumerate(pieces)}, unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer()
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.post_processor = processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))
    tokenizer.save(str(folder / "tokenizer.json"), pretty=False)
    config = {
        "model_type": "bert", "architectures": ["BertModel"], "hidden_act": "gelu", "hidden_size": 24,
        "intermediate_size": 40, "layer_norm_eps": 1e-12, "max_position_embeddings": 128, "num_attention_heads": 3,
        "num_hidden_layers": 2, "vocab_size": len(pieces), "type_vocab_size": 2,
    }
    (folder / "config.json").write_text(json.dumps(config, indent=1) + "\n")
    random = np.random.default_rng(42)

    def values(*shape: int, scale: float = 0.2, around: float = 0.0) -> np.ndarray:
        # Numbers that 16 bits hold, so that nothing but arithmetic differs.
        return (around + scale * random.standard_normal(shape)).astype(np.float16).astype(np.float32)

    width, wide = config["hidden_size"], config["intermediate_size"]
    tensors = {}

    def norm(name: str) -> None:
        tensors[f"{name}.weight"], tensors[f"{name}.bias"] = values(width, around=1.0), values(width)

    def linear(name: str, rows: int, cols: int) -> None:
        tensors[f"{name}.weight"], tensors[f"{name}.bias"] = values(rows, cols), values(rows)

    for table, rows in [("word", len(pieces)), ("position", 128), ("token_type", 2)]:
        tensors[f"embeddings.{table}_embeddings.weight"] = values(rows, width)
    norm("embeddings.LayerNorm")
    for layer in range(config["num_hidden_layers"]):
        at = f"encoder.layer.{layer}"
        for part in ["attention.self.query", "attention.self.key", "attention.self.value", "attention.output.dense"]:
            linear(f"{at}.{part}", width, width)
        norm(f"{at}.attention.output.LayerNorm")
        linear(f"{at}.intermediate.dense", wide, width)
        linear(f"{at}.output.dense", width, wide)
        norm(f"{at}.output.LayerNorm")
    linear("pooler.dense", width, width)
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})


def write(path: pathlib.Path, folder: pathlib.Path) -> None:
    expected = [{"text": text, "vector": vector} for text, vector in zip(SENTENCES, vectors(folder))]
    lines = ",\n".join(json.dumps(one, ensure_ascii=False, separators=(",", ":")) for one in expected)
    path.write_text(f"[\n{lines}\n]\n")


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["tiny"]:
            tiny(HERE / "tiny")
            write(HERE / "tiny" / "vectors.json", HERE / "tiny")
        case ["vectors", folder, out]:
            write(pathlib.Path(out), pathlib.Path(folder))
        case _:
            sys.exit(__doc__)
