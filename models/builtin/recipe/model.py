"""The built-in model in plain PyTorch: the Qwen3.5 architecture with the reference implementation's parameter names, so that
its weights load there unchanged (check_reference.py holds the two together). Differences are of speed only: the head and the
end of the last layer are computed where there is a loss, and chunks of the delta rule are solved in one batch."""
import json, math, pathlib
import torch
import torch.nn as nn
import torch.nn.functional as F

CONFIG = json.loads(pathlib.Path(__file__).with_name("config.json").read_text())


class Norm(nn.Module):
    """RMS norm whose weight is kept as a difference from one."""

    def __init__(self, width, eps):
        super().__init__()
        self.weight, self.eps = nn.Parameter(torch.zeros(width)), eps

    def forward(self, x):
        return F.rms_norm(x.float(), (x.shape[-1],), 1.0 + self.weight, self.eps).to(x.dtype)


class GatedNorm(nn.Module):
    def __init__(self, width, eps):
        super().__init__()
        self.weight, self.eps = nn.Parameter(torch.ones(width)), eps

    def forward(self, x, gate):
        return F.rms_norm(x.float(), (x.shape[-1],), self.weight, self.eps) * F.silu(gate.float())


def delta_rule(q, k, v, g, beta, chunk=64):
    """[batch, time, heads, dim] each (g and beta without dim); the chunked form of the gated delta rule, from an empty state."""
    b, t, h, d = q.shape
    q, k, v = (x.transpose(1, 2).float() for x in (q, k, v))
    g, beta = (x.transpose(1, 2).float() for x in (g, beta))
    q = q * (torch.rsqrt((q * q).sum(-1, keepdim=True) + 1e-6) * d ** -0.5)
    k = k * torch.rsqrt((k * k).sum(-1, keepdim=True) + 1e-6)
    pad = -t % chunk
    n = (t + pad) // chunk
    q, k, v = (F.pad(x, (0, 0, 0, pad)).reshape(b, h, n, chunk, x.shape[-1]) for x in (q, k, v))
    g, beta = (F.pad(x, (0, pad)).reshape(b, h, n, chunk) for x in (g, beta))
    total = g.cumsum(-1)
    lower = torch.ones(chunk, chunk, dtype=torch.bool, device=q.device).tril()
    decay = (total.unsqueeze(-1) - total.unsqueeze(-2)).masked_fill(~lower, float("-inf")).exp()
    scaled_k = k * beta.unsqueeze(-1)
    system = (scaled_k @ k.transpose(-1, -2)) * decay
    inside = (q @ k.transpose(-1, -2)) * decay
    sides = torch.cat([v * beta.unsqueeze(-1), scaled_k * total.exp().unsqueeze(-1)], -1)
    solved = torch.linalg.solve_triangular(system, sides, upper=False, unitriangular=True)
    fresh, reads = solved.split([v.shape[-1], d], -1)
    late_k = (k * (total[..., -1:] - total).exp().unsqueeze(-1)).transpose(-1, -2)
    # What a chunk does to the state is one matrix and one addition, so that only these go one after the other.
    keep = torch.eye(d, device=q.device) * total[..., -1].exp()[..., None, None] - late_k @ reads
    states = States.apply(keep, late_k @ fresh)
    out = (q * total.exp().unsqueeze(-1)) @ states + inside @ (fresh - reads @ states)
    return out.reshape(b, h, n * chunk, -1)[:, :, :t].transpose(1, 2)


class States(torch.autograd.Function):
    """The state before each chunk: [batch, heads, chunks, dim, dim] of what is kept and of what is added."""

    @staticmethod
    def forward(ctx, keep, add):
        states = torch.zeros_like(add)
        for i in range(add.shape[2] - 1):
            torch.add(keep[:, :, i] @ states[:, :, i], add[:, :, i], out=states[:, :, i + 1])
        ctx.save_for_backward(keep, states)
        return states

    @staticmethod
    def backward(ctx, grad):
        keep, states = ctx.saved_tensors
        after = torch.zeros_like(grad)                         # of the state behind each chunk
        for i in range(grad.shape[2] - 2, -1, -1):
            torch.add(keep[:, :, i + 1].mT @ after[:, :, i + 1], grad[:, :, i + 1], out=after[:, :, i])
        return after @ states.mT, after


class CausalConvolution(torch.autograd.Function):
    """Depthwise, over this token and the ones before it: [batch, time, channels] by [channels, taps]. Shifted sums in place
    are several times faster on a CPU than a grouped convolution or what autograd makes of the sums."""

    @staticmethod
    def forward(ctx, x, taps):
        ctx.save_for_backward(x, taps)
        out = x * taps[:, -1]
        for back in range(1, taps.shape[1]):
            if back < x.shape[1]:
                out[:, back:].addcmul_(x[:, :-back], taps[:, -1 - back])
        return out

    @staticmethod
    def backward(ctx, grad):
        x, taps = ctx.saved_tensors
        into, of_taps = grad * taps[:, -1], torch.zeros_like(taps)
        of_taps[:, -1] = (grad * x).sum((0, 1))
        for back in range(1, taps.shape[1]):
            if back < x.shape[1]:
                into[:, :-back].addcmul_(grad[:, back:], taps[:, -1 - back])
                of_taps[:, -1 - back] = (grad[:, back:] * x[:, :-back]).sum((0, 1))
        return into, of_taps


class DeltaLayer(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.heads, self.kd, self.vd = c["linear_num_value_heads"], c["linear_key_head_dim"], c["linear_value_head_dim"]
        assert c["linear_num_key_heads"] == self.heads
        keys, values = self.heads * self.kd, self.heads * self.vd
        width, self.taps = c["hidden_size"], c["linear_conv_kernel_dim"]
        self.split = [keys, keys, values]
        self.in_proj_qkv = nn.Linear(width, 2 * keys + values, bias=False)
        self.in_proj_z = nn.Linear(width, values, bias=False)
        self.in_proj_b = nn.Linear(width, self.heads, bias=False)
        self.in_proj_a = nn.Linear(width, self.heads, bias=False)
        self.conv1d = nn.Conv1d(2 * keys + values, 2 * keys + values, self.taps, groups=2 * keys + values, bias=False)
        self.dt_bias = nn.Parameter(torch.zeros(self.heads))
        self.A_log = nn.Parameter(torch.zeros(self.heads))
        self.norm = GatedNorm(self.vd, c["rms_norm_eps"])
        self.out_proj = nn.Linear(values, width, bias=False)

    def forward(self, x, _rotation, where=None):
        b, t, _ = x.shape
        qkv = self.in_proj_qkv(x)
        mixed = CausalConvolution.apply(qkv, self.conv1d.weight[:, 0].to(qkv.dtype))
        q, k, v = (y.reshape(b, t, self.heads, -1) for y in F.silu(mixed).split(self.split, -1))
        g = -self.A_log.float().exp() * F.softplus(self.in_proj_a(x).float() + self.dt_bias.float())
        beta = self.in_proj_b(x).float().sigmoid()
        with torch.autocast(x.device.type, enabled=False):
            o = delta_rule(q, k, v, g, beta)
        z = self.in_proj_z(x).reshape(b, t, self.heads, self.vd)
        return self.out_proj(only(where, self.norm(o, z).reshape(b, t, -1).to(x.dtype)))


class AttentionLayer(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.heads, self.kv, self.d = c["num_attention_heads"], c["num_key_value_heads"], c["head_dim"]
        width = c["hidden_size"]
        self.q_proj = nn.Linear(width, 2 * self.heads * self.d, bias=False)
        self.k_proj = nn.Linear(width, self.kv * self.d, bias=False)
        self.v_proj = nn.Linear(width, self.kv * self.d, bias=False)
        self.o_proj = nn.Linear(self.heads * self.d, width, bias=False)
        self.q_norm, self.k_norm = Norm(self.d, c["rms_norm_eps"]), Norm(self.d, c["rms_norm_eps"])

    def forward(self, x, rotation, where=None):
        b, t, _ = x.shape
        q, gate = self.q_proj(x).reshape(b, t, self.heads, 2 * self.d).split(self.d, -1)
        k = self.k_proj(x).reshape(b, t, self.kv, self.d)
        v = self.v_proj(x).reshape(b, t, self.kv, self.d).transpose(1, 2)
        q, k = (rotate(y, rotation).transpose(1, 2) for y in (self.q_norm(q), self.k_norm(k)))
        groups = self.heads // self.kv
        k, v = (y.repeat_interleave(groups, 1) for y in (k, v))
        o = F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(b, t, -1)
        return self.o_proj(only(where, o * gate.reshape(b, t, -1).sigmoid()))


def only(where, x):
    """The rows of a batch that are asked for, [rows, width]; all of it without."""
    return x if where is None else x.flatten(0, 1)[where]


def rotate(x, rotation):
    cos, sin = rotation                                        # [time, 1, dims]
    n = cos.shape[-1]
    turned, rest = x[..., :n], x[..., n:]
    half = torch.cat([-turned[..., n // 2:], turned[..., :n // 2]], -1)
    return torch.cat([turned * cos + half * sin, rest], -1)


class Mlp(nn.Module):
    def __init__(self, c):
        super().__init__()
        width, inner = c["hidden_size"], c["intermediate_size"]
        self.gate_proj, self.up_proj = nn.Linear(width, inner, bias=False), nn.Linear(width, inner, bias=False)
        self.down_proj = nn.Linear(inner, width, bias=False)

    def forward(self, x):
        return self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))


class Block(nn.Module):
    def __init__(self, c, kind):
        super().__init__()
        if kind == "linear_attention":
            self.linear_attn = DeltaLayer(c)
        else:
            self.self_attn = AttentionLayer(c)
        self.mixer = [self.linear_attn if kind == "linear_attention" else self.self_attn]  # in a list: no second name for the weights
        self.mlp = Mlp(c)
        self.input_layernorm = Norm(c["hidden_size"], c["rms_norm_eps"])
        self.post_attention_layernorm = Norm(c["hidden_size"], c["rms_norm_eps"])

    def forward(self, x, rotation, where=None):
        x = only(where, x) + self.mixer[0](self.input_layernorm(x), rotation, where)
        return x + self.mlp(self.post_attention_layernorm(x))


class Trunk(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.embed_tokens = nn.Embedding(c["vocab_size"], c["hidden_size"])
        self.layers = nn.ModuleList(Block(c, kind) for kind in c["layer_types"])
        self.norm = Norm(c["hidden_size"], c["rms_norm_eps"])


class Model(nn.Module):
    def __init__(self, c=CONFIG):
        super().__init__()
        self.config, self.model = c, Trunk(c)
        rope = c["rope_parameters"]
        dims = int(c["head_dim"] * rope["partial_rotary_factor"])
        self.frequencies = 1.0 / rope["rope_theta"] ** (torch.arange(0, dims, 2).float() / dims)

    def hidden(self, tokens, where=None):
        x = self.model.embed_tokens(tokens)
        if torch.is_autocast_enabled(tokens.device.type):
            x = x.bfloat16()
        angles = torch.arange(tokens.shape[1], device=x.device).float()[:, None] * self.frequencies.to(x.device)
        angles = torch.cat([angles, angles], -1)[:, None]
        rotation = angles.cos().to(x.dtype), angles.sin().to(x.dtype)
        for layer in self.model.layers[:-1]:
            x = layer(x, rotation)
        x = self.model.layers[-1](x, rotation, where)
        return self.model.norm(x)

    def forward(self, tokens):
        return self.hidden(tokens) @ self.model.embed_tokens.weight.T

    def loss(self, tokens, weights):
        """Cross entropy where `weights` (of the token to be predicted) is not 0, and the share of those predicted right."""
        weight, target = weights[:, 1:].flatten(), tokens[:, 1:].flatten()
        where = weight.nonzero()[:, 0]
        weight, target = weight[where], target[where]
        logits = F.linear(self.hidden(tokens[:, :-1], where), self.model.embed_tokens.weight).float()
        each = F.cross_entropy(logits, target, reduction="none")
        return (each * weight).sum() / weight.sum(), logits.argmax(-1) == target


@torch.no_grad()
def initialise(model, seed):
    """What makes recall appear early: decays that forget slowly, queries that begin equal to keys, and keys of half of the
    delta heads that look one token back, so that what followed a token is found by that token from the first step."""
    gen = torch.Generator().manual_seed(seed)
    c = model.config
    width, deep = c["hidden_size"], len(c["layer_types"])
    for name, p in model.named_parameters():
        if "norm" in name:
            continue
        if "embed_tokens" in name:
            p.normal_(0, 0.05, generator=gen)
        elif name.endswith("dt_bias"):
            dt = torch.empty_like(p).uniform_(math.log(1e-3), math.log(1e-1), generator=gen).exp()
            p.copy_(dt + torch.log(-torch.expm1(-dt)))
        elif name.endswith("A_log"):
            p.uniform_(1, 16, generator=gen).log_()
        elif "conv1d" in name:
            p.normal_(0, 0.1, generator=gen)
        elif name.endswith(("out_proj.weight", "o_proj.weight", "down_proj.weight")):
            p.normal_(0, 1 / math.sqrt(p.shape[-1] * 2 * deep), generator=gen)
        elif name.endswith(("in_proj_a.weight", "in_proj_b.weight")):
            p.normal_(0, 0.1 / math.sqrt(width), generator=gen)
        else:
            p.normal_(0, 1 / math.sqrt(p.shape[-1]), generator=gen)
    for layer in model.model.layers:
        m = layer.mixer[0]
        if isinstance(m, DeltaLayer):
            keys = m.heads * m.kd
            qkv, taps = m.in_proj_qkv.weight, m.conv1d.weight
            qkv[keys:2 * keys] = qkv[:keys]
            taps[:keys, 0, -1] += 1
            look_back = torch.arange(m.heads).repeat_interleave(m.kd) % 2 == 0
            taps[keys:2 * keys, 0, -2][look_back] += 1
            taps[keys:2 * keys, 0, -1][~look_back] += 1
            values = torch.arange(m.heads * m.vd) % 4            # values see this token and the ones before it
            for back in range(4):
                taps[2 * keys:, 0, -1 - back][(values == back) | (back == 0)] += 0.7
        else:
            q = m.q_proj.weight.view(m.heads, 2, m.d, width)
            k = m.k_proj.weight.view(m.kv, m.d, width)
            for head in range(m.heads):
                q[head, 0] = k[head // (m.heads // m.kv)]
