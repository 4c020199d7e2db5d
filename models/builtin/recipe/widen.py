"""The same model in the shape of a larger one, for measuring: its words at the larger one's cost.

    python widen.py ../builtin.gguf WIDE.gguf          # the 0.8B's shape, in q8_0

Widths, heads and layers beyond its own are zero, and norms make up for them, so it says what it said. It is as good as it was.
"""
import sys
import gguf, numpy as np

HIDDEN, INNER, LAYERS, EVERY = 1024, 3584, 24, 4
HEADS, KV, HEAD = 8, 2, 256
DELTA_HEADS, DELTA_HEAD = 16, 128
VOCAB = 248320
# Where its layers stand: linear ones in places of linear ones, attention in places of attention.
PLACES = [0, 3, 4, 7, 8, 11]


class Small:
    def __init__(self, path):
        self.reader = gguf.GGUFReader(path)
        self.tensors = {t.name: np.array(gguf.quants.dequantize(t.data, t.tensor_type), dtype=np.float32) for t in self.reader.tensors}
        number = lambda name: int(self.reader.fields[f"qwen35.{name}"].contents())
        self.hidden, self.inner = number("embedding_length"), number("feed_forward_length")
        self.heads, self.kv, self.head = number("attention.head_count"), number("attention.head_count_kv"), number("attention.key_length")
        self.delta_heads, self.delta_head = number("ssm.time_step_rank"), number("ssm.state_size")
        self.layers = number("block_count") - (number("nextn_predict_layers") if "qwen35.nextn_predict_layers" in self.reader.fields else 0)


def spread(count, width, wide, place=lambda part: part):
    """Where the values of parts of one width stand among wider parts."""
    return np.concatenate([place(part) * wide + np.arange(width) for part in range(count)])


def matrix(value, rows, cols, shape):
    """In halves, which says that it is to be quantised."""
    out = np.zeros(shape, np.float16)
    out[np.ix_(rows, cols)] = value
    return out


def vector(value, at, size, rest=0.0):
    out = np.full(size, rest, np.float32)
    out[at] = value
    return out


def wide_norm(value, size):
    """Over more values, of which the others are zero, the mean square is smaller."""
    return vector(value * (len(value) / size) ** 0.5, np.arange(len(value)), size)


def feed_forward(s, get, put):
    own, inner = np.arange(s.hidden), np.arange(s.inner)
    for name in ("ffn_gate", "ffn_up"):
        put(f"{name}.weight", matrix(get(f"{name}.weight"), inner, own, (INNER, HIDDEN)))
    put("ffn_down.weight", matrix(get("ffn_down.weight"), own, inner, (HIDDEN, INNER)))
    for name in ("attn_norm", "post_attention_norm"):
        put(f"{name}.weight", wide_norm(get(f"{name}.weight"), HIDDEN))


def attention(s, get, put):
    own, group = np.arange(s.hidden), s.heads // s.kv
    place = lambda head: head // group * (HEADS // KV) + head % group
    queries = np.concatenate([place(h) * 2 * HEAD + part * HEAD + np.arange(s.head) for h in range(s.heads) for part in (0, 1)])
    values = spread(s.kv, s.head, HEAD)
    put("attn_q.weight", matrix(get("attn_q.weight"), queries, own, (2 * HEADS * HEAD, HIDDEN)))
    put("attn_k.weight", matrix(get("attn_k.weight"), values, own, (KV * HEAD, HIDDEN)))
    put("attn_v.weight", matrix(get("attn_v.weight"), values, own, (KV * HEAD, HIDDEN)))
    put("attn_output.weight", matrix(get("attn_output.weight"), own, spread(s.heads, s.head, HEAD, place), (HIDDEN, HEADS * HEAD)))
    # Scores are divided by the root of a head's width.
    put("attn_q_norm.weight", wide_norm(get("attn_q_norm.weight"), HEAD) * (HEAD / s.head) ** 0.5)
    put("attn_k_norm.weight", wide_norm(get("attn_k_norm.weight"), HEAD))


def delta(s, get, put):
    own, heads, keys = np.arange(s.hidden), np.arange(s.delta_heads), DELTA_HEADS * DELTA_HEAD
    values = spread(s.delta_heads, s.delta_head, DELTA_HEAD)
    mixed = np.concatenate([part * keys + values for part in range(3)])
    put("attn_qkv.weight", matrix(get("attn_qkv.weight"), mixed, own, (3 * keys, HIDDEN)))
    put("attn_gate.weight", matrix(get("attn_gate.weight"), values, own, (keys, HIDDEN)))
    put("ssm_out.weight", matrix(get("ssm_out.weight"), own, values, (HIDDEN, keys)))
    for name in ("ssm_alpha", "ssm_beta"):
        put(f"{name}.weight", matrix(get(f"{name}.weight"), heads, own, (DELTA_HEADS, HIDDEN)).astype(np.float32))
    put("ssm_a", vector(get("ssm_a"), heads, DELTA_HEADS, -1.0))
    put("ssm_dt.bias", vector(get("ssm_dt.bias"), heads, DELTA_HEADS))
    taps = np.zeros((3 * keys, get("ssm_conv1d.weight").shape[1]), np.float32)
    taps[mixed] = get("ssm_conv1d.weight")
    put("ssm_conv1d.weight", taps)
    put("ssm_norm.weight", wide_norm(get("ssm_norm.weight"), DELTA_HEAD))




def main():
    s, path = Small(sys.argv[1]), sys.argv[2]
    w, arch = gguf.GGUFWriter(path, "qwen35"), "qwen35"
    predicts = f"blk.{s.layers}.nextn.eh_proj.weight" in s.tensors
    changed = {"block_count": LAYERS + predicts, "embedding_length": HIDDEN, "feed_forward_length": INNER,
               "attention.head_count": HEADS, "attention.head_count_kv": KV, "attention.key_length": HEAD, "attention.value_length": HEAD,
               "ssm.state_size": DELTA_HEAD, "ssm.group_count": DELTA_HEADS, "ssm.time_step_rank": DELTA_HEADS,
               "ssm.inner_size": DELTA_HEADS * DELTA_HEAD, "full_attention_interval": EVERY,
               "attention.recurrent_layers": [layer % EVERY != EVERY - 1 for layer in range(LAYERS)]}
    changed = {f"{arch}.{name}": value for name, value in changed.items()}
    changed |= {"general.name": "Reprise builtin, widened", "general.file_type": int(gguf.LlamaFileType.MOSTLY_Q8_0)}
    for field in s.reader.fields.values():
        if field.name.startswith("GGUF.") or field.name == "general.architecture":
            continue
        kind, value = field.types[0], changed.get(field.name, field.contents())
        if field.name == "tokenizer.ggml.tokens":
            value = value + [f"<|unused_{at}|>" for at in range(len(value), VOCAB)]
        elif field.name == "tokenizer.ggml.token_type":
            value = value + [int(gguf.TokenType.UNUSED)] * (VOCAB - len(value))
        w.add_key_value(field.name, value, kind, field.types[-1] if kind == gguf.GGUFValueType.ARRAY else None)
    kind = gguf.GGMLQuantizationType.Q8_0

    def put(name, value):
        if value.dtype == np.float16:
            w.add_tensor(name, gguf.quants.quantize(value.astype(np.float32), kind), raw_dtype=kind)
        else:
            w.add_tensor(name, value)

    embedded = np.zeros((VOCAB, HIDDEN), np.float16)
    embedded[:len(s.tensors["token_embd.weight"]), :s.hidden] = s.tensors["token_embd.weight"]
    put("token_embd.weight", embedded)
    put("output_norm.weight", wide_norm(s.tensors["output_norm.weight"], HIDDEN))

    def layer(at, get, is_attention):
        into = lambda name, value: put(f"blk.{at}.{name}", value)
        (attention if is_attention else delta)(s, get, into)
        feed_forward(s, get, into)

    own = dict(zip(PLACES, range(s.layers)))
    for at in range(LAYERS):
        is_attention = at % EVERY == EVERY - 1
        if at in own:
            layer(at, lambda name: s.tensors[f"blk.{own[at]}.{name}"], is_attention)
        else:
            like = 1 if is_attention else 0
            layer(at, lambda name: np.zeros_like(s.tensors[f"blk.{like}.{name}"]) - (name == "ssm_a"), is_attention)
    if predicts:
        get = lambda name: s.tensors[f"blk.{s.layers}.{name}"]
        layer(LAYERS, get, True)
        both = np.concatenate([np.arange(s.hidden), HIDDEN + np.arange(s.hidden)])
        put(f"blk.{LAYERS}.nextn.eh_proj.weight", matrix(get("nextn.eh_proj.weight"), np.arange(s.hidden), both, (HIDDEN, 2 * HIDDEN)))
        for name in ("enorm", "hnorm", "shared_head_norm"):
            put(f"blk.{LAYERS}.nextn.{name}.weight", wide_norm(get(f"nextn.{name}.weight"), HIDDEN))
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()


main()
