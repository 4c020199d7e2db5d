"""Time and memory of `reprise import --quantize` beside llama.cpp's converter and quantiser, on a random checkpoint.

    pip install numpy gguf torch transformers safetensors sentencepiece
    cmake -B llama.cpp/build llama.cpp -DGGML_NATIVE=ON && cmake --build llama.cpp/build --target llama-quantize
    python import_speed.py --shape config/shapes/4b.toml --converter llama.cpp/convert_hf_to_gguf.py \\
        --quantiser llama.cpp/build/bin/llama-quantize --reprise target/release/reprise --folder /some/disk/with/30GB \\
        [--quantize q4_k_m] [--runs 3] [--json out.json]

Without --quantiser the package llama-cpp-python quantises.

The checkpoint has the shape's sizes, values of a normal distribution in bf16, and the tokenizer of a small reference model, so that
nothing is downloaded. Both sides start from the same folder and end with one GGUF file of the same types: reprise in one command,
llama.cpp by its converter to bf16 and its quantiser after that. Each step is a process of its own; its wall time, and the largest part
of memory that was its own at a time (`RssAnon`, sampled; pages of mapped files can be dropped at any moment, and are told apart).
Runs alternate. The exit status is 1 where the medians' ratio of time or of memory is above 0.5.
"""

import argparse
import json
import pathlib
import shutil
import statistics
import struct
import subprocess
import sys
import threading
import time
import tomllib

import numpy as np

HERE = pathlib.Path(__file__).resolve().parent
TOKENIZER = HERE.parent / "data/reference/dense-gva2"
FILE_TYPES = {"q4_0": 2, "q8_0": 7, "q4_k_m": 15, "q5_k_m": 17, "q6_k": 18, "iq4_xs": 30}
LIMIT = 0.5


def tensors_of(shape):
    """Names and shapes of the checkpoint's tensors."""
    yield "model.embed_tokens.weight", [shape["vocab"], shape["hidden"]]
    layers, hidden = list(layers_of(shape)), shape["hidden"]
    yield from layers
    yield "model.norm.weight", [hidden]
    # The block for prediction: llama.cpp's converter does not read a model of the family without one.
    yield "mtp.fc.weight", [hidden, 2 * hidden]
    for norm in ("pre_fc_norm_embedding", "pre_fc_norm_hidden", "norm"):
        yield f"mtp.{norm}.weight", [hidden]
    last = f"model.layers.{shape['attention_every'] - 1}."
    yield from ((name.replace(last, "mtp.layers.0."), sizes) for name, sizes in layers if name.startswith(last))
    if not shape["tied"]:
        yield "lm_head.weight", [shape["vocab"], hidden]


def layers_of(shape):
    hidden, heads, kv, head = (shape[key] for key in ("hidden", "q_heads", "kv_heads", "head_dim"))
    keys, values, key, value = (shape[key] for key in ("key_heads", "value_heads", "key_dim", "value_dim"))
    channels = 2 * keys * key + values * value
    for layer in range(shape["layers"]):
        name = f"model.layers.{layer}."
        yield name + "input_layernorm.weight", [hidden]
        yield name + "post_attention_layernorm.weight", [hidden]
        for part, sizes in (("gate", [shape["ffn"], hidden]), ("up", [shape["ffn"], hidden]), ("down", [hidden, shape["ffn"]])):
            yield f"{name}mlp.{part}_proj.weight", sizes
        if (layer + 1) % shape["attention_every"] == 0:
            yield name + "self_attn.q_proj.weight", [2 * heads * head, hidden]
            yield name + "self_attn.k_proj.weight", [kv * head, hidden]
            yield name + "self_attn.v_proj.weight", [kv * head, hidden]
            yield name + "self_attn.o_proj.weight", [hidden, heads * head]
            yield name + "self_attn.q_norm.weight", [head]
            yield name + "self_attn.k_norm.weight", [head]
            continue
        yield name + "linear_attn.in_proj_qkv.weight", [channels, hidden]
        yield name + "linear_attn.in_proj_z.weight", [values * value, hidden]
        yield name + "linear_attn.in_proj_a.weight", [values, hidden]
        yield name + "linear_attn.in_proj_b.weight", [values, hidden]
        yield name + "linear_attn.out_proj.weight", [hidden, values * value]
        yield name + "linear_attn.conv1d.weight", [channels, 1, shape["conv_kernel"]]
        yield name + "linear_attn.A_log", [values]
        yield name + "linear_attn.dt_bias", [values]
        yield name + "linear_attn.norm.weight", [value]


def write_checkpoint(shape, folder):
    folder.mkdir(parents=True)
    config = json.loads((TOKENIZER / "config.json").read_text())
    config |= {
        "vocab_size": shape["vocab"], "hidden_size": shape["hidden"], "intermediate_size": shape["ffn"],
        "mtp_num_hidden_layers": 1, "num_hidden_layers": shape["layers"], "num_attention_heads": shape["q_heads"],
        "num_key_value_heads": shape["kv_heads"], "head_dim": shape["head_dim"],
        "max_position_embeddings": shape["native_ctx"], "rms_norm_eps": shape["rms_eps"],
        "tie_word_embeddings": shape["tied"], "linear_conv_kernel_dim": shape["conv_kernel"],
        "linear_key_head_dim": shape["key_dim"], "linear_value_head_dim": shape["value_dim"],
        "linear_num_key_heads": shape["key_heads"], "linear_num_value_heads": shape["value_heads"],
        "layer_types": ["full_attention" if (layer + 1) % shape["attention_every"] == 0 else "linear_attention"
                        for layer in range(shape["layers"])],
    }
    config["rope_parameters"] |= {
        "rope_theta": shape["rope_theta"], "partial_rotary_factor": shape["rope_dims"] / shape["head_dim"],
        "mrope_section": shape["rope_sections"][:3],
    }
    (folder / "config.json").write_text(json.dumps(config))
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(TOKENIZER / name, folder / name)
    head, at, listed = {}, 0, list(tensors_of(shape))
    for name, sizes in listed:
        size = 2 * int(np.prod(sizes))
        head[name] = {"dtype": "BF16", "shape": sizes, "data_offsets": [at, at + size]}
        at += size
    text = json.dumps(head).encode()
    text += b" " * (-len(text) % 8)
    rng = np.random.default_rng(1)
    # The values of a piece are used again and again: quantisers search blocks of 256, which stay different.
    piece = (rng.standard_normal(1 << 24, dtype=np.float32) * 0.02).view(np.uint32)
    piece = (piece >> 16).astype("<u2")
    with open(folder / "model.safetensors", "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for _, sizes in listed:
            left, begin = int(np.prod(sizes)), int(rng.integers(1 << 20))
            while left > 0:
                part = piece[begin : begin + left]
                file.write(part.tobytes())
                left, begin = left - len(part), 0


def own_memory(pid):
    """Bytes of a process that no file backs."""
    try:
        lines = pathlib.Path(f"/proc/{pid}/status").read_text().splitlines()
    except (FileNotFoundError, ProcessLookupError):
        return 0, 0
    of = lambda key: next((1024 * int(line.split()[1]) for line in lines if line.startswith(key + ":")), 0)
    return of("RssAnon"), of("VmHWM")


def timed(arguments):
    """(seconds, most memory of its own, most memory with files)"""
    begin = time.monotonic()
    process = subprocess.Popen([str(argument) for argument in arguments], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    most, told = [0, 0], []
    reader = threading.Thread(target=lambda: told.append(process.stderr.read()))
    reader.start()
    while process.poll() is None:
        most = [max(pair) for pair in zip(most, own_memory(process.pid))]
        time.sleep(0.01)
    took = time.monotonic() - begin
    reader.join()
    if process.returncode != 0:
        sys.exit(f"{arguments}: {told[0].decode(errors='replace')[-2000:]}")
    return took, *most


# The converter knows tokenizers by a hash; that of the small reference model splits text as the family's does.
CONVERTER = """
import pathlib, runpy, sys
sys.argv = sys.argv[1:]
sys.path.insert(0, str(pathlib.Path(sys.argv[0]).parent))
from conversion import base
base.TextModel.get_vocab_base_pre = lambda model, tokenizer: "qwen35"
runpy.run_path(sys.argv[0], run_name="__main__")
"""

QUANTISER = """
import sys, llama_cpp
params = llama_cpp.llama_model_quantize_default_params()
params.ftype, params.nthread = int(sys.argv[3]), int(sys.argv[4])
sys.exit(llama_cpp.llama_model_quantize(sys.argv[1].encode(), sys.argv[2].encode(), params))
"""


def main():
    parser = argparse.ArgumentParser()
    for name in ("--shape", "--converter", "--folder"):
        parser.add_argument(name, required=True, type=pathlib.Path)
    parser.add_argument("--reprise", default=HERE.parents[1] / "target/release/reprise", type=pathlib.Path)
    parser.add_argument("--quantiser", type=pathlib.Path)
    parser.add_argument("--quantize", default="q4_k_m", choices=FILE_TYPES)
    parser.add_argument("--threads", default=2, type=int)
    parser.add_argument("--runs", default=3, type=int)
    parser.add_argument("--json", type=pathlib.Path)
    args = parser.parse_args()
    shape = tomllib.loads(args.shape.read_text())
    checkpoint = args.folder / "checkpoint"
    if not checkpoint.exists():
        write_checkpoint(shape, checkpoint)
    print(f"{shape['name']}: {(checkpoint / 'model.safetensors').stat().st_size / 2**30:.2f} GiB of bf16, to {args.quantize}")
    ours, whole, theirs = (args.folder / name for name in ("ours.gguf", "whole.gguf", "theirs.gguf"))
    quantiser = [args.quantiser] if args.quantiser else [sys.executable, "-c", QUANTISER]
    rows = {"reprise import": [], "convert_hf_to_gguf": [], "llama quantize": []}
    for run in range(args.runs):
        sides = [
            lambda: rows["reprise import"].append(timed([
                args.reprise, "import", checkpoint, "--out", ours, "--quantize", args.quantize, "--threads", args.threads])),
            lambda: (
                rows["convert_hf_to_gguf"].append(timed([
                    sys.executable, "-c", CONVERTER, args.converter, checkpoint, "--outtype", "bf16", "--outfile", whole])),
                rows["llama quantize"].append(timed([*quantiser, whole, theirs, FILE_TYPES[args.quantize], args.threads])),
            ),
        ]
        for side in sides if run % 2 == 0 else reversed(sides):
            side()
        whole.unlink()
    median = {name: [statistics.median(column) for column in zip(*runs)] for name, runs in rows.items()}
    for name, (seconds, own, files) in median.items():
        print(f"{name:20} {seconds:8.1f} s {own / 2**20:8.0f} MiB of its own, {files / 2**20:8.0f} MiB with files")
    of_ours, first, second = median.values()
    ratios = {"time": of_ours[0] / (first[0] + second[0]), "memory": of_ours[1] / max(first[1], second[1]),
              "memory with files": of_ours[2] / max(first[2], second[2])}
    for name, ratio in ratios.items():
        print(f"{name}: {ratio:.2f} of llama.cpp's")
    sizes = [path.stat().st_size for path in (ours, theirs)]
    print(f"files: {sizes[0]} and {sizes[1]} bytes")
    if args.json:
        args.json.write_text(json.dumps({"shape": shape["name"], "runs": rows, "median": median, "ratios": ratios}))
    sys.exit(0 if max(ratios["time"], ratios["memory"]) <= LIMIT else 1)


main()
