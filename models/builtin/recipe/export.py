"""Writes the trained weights as a Hugging Face folder and as GGUF, with the tensors and keys that the family's files have.

    python export.py CHECKPOINT.pt OUT_FOLDER [BEFORE.pt SHARE]     # OUT/hf/*, OUT/builtin.f32.gguf, OUT/builtin.q8_0.gguf

With the end of the sitting before, the weights are a mean of which it has this share.
"""
import json, pathlib, shutil, sys
import gguf, numpy as np, torch
from safetensors.torch import save_file
from model import CONFIG
from render import REST
from tokenizer import CONTROL

HERE = pathlib.Path(__file__).parent
NAMES = {"input_layernorm.weight": "attn_norm.weight", "post_attention_layernorm.weight": "post_attention_norm.weight",
         "mlp.gate_proj.weight": "ffn_gate.weight", "mlp.up_proj.weight": "ffn_up.weight", "mlp.down_proj.weight": "ffn_down.weight",
         "self_attn.q_proj.weight": "attn_q.weight", "self_attn.k_proj.weight": "attn_k.weight", "self_attn.v_proj.weight": "attn_v.weight",
         "self_attn.o_proj.weight": "attn_output.weight", "self_attn.q_norm.weight": "attn_q_norm.weight", "self_attn.k_norm.weight": "attn_k_norm.weight",
         "linear_attn.in_proj_qkv.weight": "attn_qkv.weight", "linear_attn.in_proj_z.weight": "attn_gate.weight", "linear_attn.in_proj_a.weight": "ssm_alpha.weight",
         "linear_attn.in_proj_b.weight": "ssm_beta.weight", "linear_attn.conv1d.weight": "ssm_conv1d.weight", "linear_attn.A_log": "ssm_a",
         "linear_attn.dt_bias": "ssm_dt.bias", "linear_attn.norm.weight": "ssm_norm.weight", "linear_attn.out_proj.weight": "ssm_out.weight"}


def tensors(weights):
    yield "token_embd.weight", weights["model.embed_tokens.weight"]
    yield "output_norm.weight", weights["model.norm.weight"] + 1
    for name, value in weights.items():
        if not name.startswith("model.layers."):
            continue
        _, _, layer, rest = name.split(".", 3)
        if rest.endswith(("layernorm.weight", "q_norm.weight", "k_norm.weight")):
            value = value + 1
        elif rest.endswith("A_log"):
            value = -value.exp()
        elif rest.endswith("conv1d.weight"):
            value = value[:, 0]
        yield f"blk.{layer}.{NAMES[rest]}", value


def vocabulary(writer):
    saved = json.loads((HERE / "tokenizer.json").read_text())
    ids = dict(saved["model"]["vocab"])
    ids.update({t["content"]: t["id"] for t in saved["added_tokens"]})
    tokens = sorted(ids, key=ids.get)
    # As the ecosystem's converter has it: control tokens are hidden, think and tool tags are text that users see.
    shown = {"<think>", "</think>", "<tool_call>", "</tool_call>", "<tool_response>", "</tool_response>"}
    kind = lambda t: gguf.TokenType.USER_DEFINED if t in shown else gguf.TokenType.CONTROL if t in CONTROL else gguf.TokenType.NORMAL
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("qwen35")
    writer.add_token_list(tokens)
    writer.add_token_types([kind(t) for t in tokens])
    writer.add_token_merges([m if isinstance(m, str) else " ".join(m) for m in saved["model"]["merges"]])
    writer.add_eos_token_id(ids["<|im_end|>"])
    writer.add_pad_token_id(ids["<|endoftext|>"])
    writer.add_chat_template(REST.read_text())


def write(path, weights, quantised):
    c, arch = CONFIG, "qwen35"
    w = gguf.GGUFWriter(str(path), arch)
    w.add_type("model")
    w.add_name("Reprise builtin")
    w.add_description("A tiny demonstration model, trained from scratch on synthetic conversations. models/builtin/README.md is its card.")
    w.add_license("the repository's")
    w.add_size_label(f"{sum(v.numel() for v in weights.values()) / 1e6:.1f}M")
    w.add_block_count(c["num_hidden_layers"])
    w.add_context_length(c["max_position_embeddings"])
    w.add_embedding_length(c["hidden_size"])
    w.add_feed_forward_length(c["intermediate_size"])
    w.add_head_count(c["num_attention_heads"])
    w.add_head_count_kv(c["num_key_value_heads"])
    w.add_key_length(c["head_dim"])
    w.add_value_length(c["head_dim"])
    w.add_layer_norm_rms_eps(c["rms_norm_eps"])
    rope = c["rope_parameters"]
    w.add_rope_freq_base(rope["rope_theta"])
    w.add_rope_dimension_count(int(c["head_dim"] * rope["partial_rotary_factor"]))
    w.add_array(f"{arch}.rope.dimension_sections", [*rope["mrope_section"], 0])
    w.add_ssm_conv_kernel(c["linear_conv_kernel_dim"])
    w.add_ssm_state_size(c["linear_key_head_dim"])
    w.add_ssm_group_count(c["linear_num_key_heads"])
    w.add_ssm_time_step_rank(c["linear_num_value_heads"])
    w.add_ssm_inner_size(c["linear_num_value_heads"] * c["linear_value_head_dim"])
    w.add_array(f"{arch}.attention.recurrent_layers", [kind == "linear_attention" for kind in c["layer_types"]])
    w.add_uint32(f"{arch}.full_attention_interval", c["full_attention_interval"])
    w.add_file_type(gguf.LlamaFileType.MOSTLY_Q8_0 if quantised else gguf.LlamaFileType.ALL_F32)
    w.add_quantization_version(gguf.GGML_QUANT_VERSION)
    vocabulary(w)
    for name, value in tensors(weights):
        value = value.float().contiguous().numpy()
        if quantised and value.ndim == 2 and "conv1d" not in name and not name.endswith(("ssm_alpha.weight", "ssm_beta.weight")):
            kind = gguf.GGMLQuantizationType.Q8_0
            w.add_tensor(name, gguf.quants.quantize(value, kind), raw_dtype=kind)
        else:
            w.add_tensor(name, value)
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()


if __name__ == "__main__":
    saved, out = torch.load(sys.argv[1], map_location="cpu", weights_only=False), pathlib.Path(sys.argv[2])
    weights = {k: v.float() for k, v in saved["model"].items()}
    if len(sys.argv) > 3:
        before, share = torch.load(sys.argv[3], map_location="cpu", weights_only=False)["model"], float(sys.argv[4])
        weights = {k: v * (1 - share) + before[k].float() * share for k, v in weights.items()}
    (out / "hf").mkdir(parents=True, exist_ok=True)
    save_file(weights, str(out / "hf" / "model.safetensors"), {"format": "pt"})
    shutil.copy(HERE / "tokenizer.json", out / "hf")
    shutil.copy(REST, out / "hf" / "chat_template.jinja")
    (out / "hf" / "config.json").write_text(json.dumps(CONFIG, indent=1))
    (out / "hf" / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": "Qwen2Tokenizer", "eos_token": "<|im_end|>", "pad_token": "<|endoftext|>", "model_max_length": CONFIG["max_position_embeddings"]}))
    write(out / "builtin.f32.gguf", weights, False)
    write(out / "builtin.q8_0.gguf", weights, True)
    print({p.name: p.stat().st_size for p in out.glob("*.gguf")}, saved["state"])
