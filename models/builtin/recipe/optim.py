"""Muon for the matrices (momentum made orthogonal), AdamW for the rest; learning rates are set by the training loop."""
import torch

# Three odd polynomials that, one after the other, push singular values in (0, 1] to about 1.
STEPS = [(3.4445, -4.7750, 2.0315)] * 4


def orthogonal(g):
    x = g.bfloat16() if g.is_cuda else g
    tall = x.shape[-2] > x.shape[-1]
    x = x.mT if tall else x
    x = x / (x.norm(dim=(-2, -1), keepdim=True) + 1e-7)
    for a, b, c in STEPS:
        xx = x @ x.mT
        x = a * x + (b * xx + c * xx @ xx) @ x
    return (x.mT if tall else x).to(g.dtype)


class Optimizer:
    """`groups`: 'matrix' parameters by shape are stacked, so that one product serves all of the same shape."""

    def __init__(self, model, weight_decay=0.02):
        self.decay, self.step_count = weight_decay, 0
        self.matrices, self.others = {}, []
        for name, p in model.named_parameters():
            if p.ndim == 2 and "embed" not in name and min(p.shape) >= 16:
                for piece in pieces(name, p, model.config):
                    self.matrices.setdefault(tuple(piece[0].shape), []).append(piece)
            else:
                self.others.append(p)
        self.momentum = {s: torch.zeros(len(v), *s, device=v[0][0].device) for s, v in self.matrices.items()}
        self.mean = [torch.zeros_like(p) for p in self.others]
        self.square = [torch.zeros_like(p) for p in self.others]

    @torch.no_grad()
    def step(self, rate_matrix, rate_other, momentum=0.95, betas=(0.9, 0.97)):
        self.step_count += 1
        for shape, list_ in self.matrices.items():
            grad = torch.stack([cut(p.grad) for _, p, cut in list_])
            m = self.momentum[shape].lerp_(grad, 1 - momentum)
            update = orthogonal(grad.lerp(m, momentum))
            scale = 0.2 * max(shape) ** 0.5                    # the size that AdamW's steps have
            for (_, p, cut), u in zip(list_, update):
                cut(p.data).mul_(1 - rate_matrix * self.decay).add_(u, alpha=-rate_matrix * scale)
        b1, b2 = betas
        for p, mean, square in zip(self.others, self.mean, self.square):
            mean.lerp_(p.grad, 1 - b1)
            square.lerp_(p.grad.square(), 1 - b2)
            c1, c2 = 1 - b1 ** self.step_count, 1 - b2 ** self.step_count
            p.data.add_((mean / c1) / ((square / c2).sqrt() + 1e-9), alpha=-rate_other)

    def state(self):
        return {"momentum": list(self.momentum.values()), "mean": self.mean, "square": self.square, "step": self.step_count}

    def load(self, state):
        for ours, theirs in zip([*self.momentum.values(), *self.mean, *self.square], [*state["momentum"], *state["mean"], *state["square"]]):
            ours.copy_(theirs)
        self.step_count = state["step"]


def pieces(name, p, config):
    """Fused matrices are made orthogonal part by part: queries, keys, values and gates do not share a scale."""
    def part(a, b):
        return (p[a:b], p, lambda t: t[a:b])
    if "in_proj_qkv" in name:
        n = config["linear_num_value_heads"] * config["linear_key_head_dim"]
        return [part(0, n), part(n, 2 * n), part(2 * n, p.shape[0])]
    if "q_proj" in name:
        h, d = config["num_attention_heads"], config["head_dim"]
        def gather(which):
            return (p.view(h, 2, d, -1)[:, which].reshape(h * d, -1), p, lambda t: t.view(h, 2, d, -1)[:, which])
        return [Gathered(gather(0), h, d), Gathered(gather(1), h, d)]
    return [(p, p, lambda t: t)]


def Gathered(piece, h, d):
    sample, p, cut = piece
    class View:                                                # reads as [h*d, width], writes through
        def __init__(self, t): self.t = t
        def mul_(self, a): self.t.mul_(a); return self
        def add_(self, u, alpha): self.t.add_(u.view(h, d, -1), alpha=alpha); return self
    return (sample, p, lambda t: t_or_view(cut, t, h, d, p, View))


def t_or_view(cut, t, h, d, p, View):
    return View(cut(t)) if t.data_ptr() == p.data.data_ptr() else cut(t).reshape(h * d, -1)
