#!/usr/bin/python3
"""Writes tests/golden/functions.txt: outputs and gradients of functions in PyTorch, in double precision.

Run with Debian's python3-torch (the committed file is from 1.13):  tests/golden/make_functions.py

One line a record: a key, a name, the shape in brackets, values. `in` are float inputs, `ids` whole
numbers, `out` what the function gives, `grad` the gradients. The objective of a function that is no
loss is 0.375 / columns * sum (out - targets)^2, of a loss 0.375 * loss.
"""
import os

import torch
import torch.nn.functional as F

WEIGHT = 0.375
generator = torch.Generator().manual_seed(20240229)
lines = []


def values(*shape, limit=2.0):  # as f32, so that both sides start from the same
    x = (torch.rand(*shape, generator=generator) * 2 - 1) * limit
    return x.double().requires_grad_()


def whole(*shape, limit):
    return torch.randint(0, limit, shape, generator=generator)


def line(key, name, x):
    x = x.detach()
    shape = "[" + ",".join(str(n) for n in x.shape) + "]"
    lines.append(" ".join([key, name, shape] + ["%.9g" % v for v in x.flatten().tolist()]))


def case(name, function, inputs, ids=None, loss=False):
    lines.append("case " + name)
    ids = ids or {}
    for key, x in inputs.items():
        line("in", key, x)
    for key, x in ids.items():
        line("ids", key, x)
    out = function(**inputs, **ids)
    if loss:
        objective = WEIGHT * out
        line("out", "loss", out.reshape(1))
    else:
        targets = values(*out.shape).detach()
        line("in", "targets", targets)
        line("out", "y", out)
        objective = WEIGHT / out.shape[1] * ((out - targets) ** 2).sum()
    objective.backward()
    for key, x in inputs.items():
        if x.grad is not None:
            line("grad", key, x.grad)


def edges():  # far from 0, near it, and in between
    x = values(2, 40, limit=6)
    special = [0, 1e-6, -1e-6, 1e-3, -1e-3, 0.5, -0.5, 1, -1, 3, -3, 10, -10, 40, -40]
    x.data[0, : len(special)] = torch.tensor(special)
    x.data = x.data.float().double()
    return x


def attention(heads, causal):
    def run(q, k, v, lengths=None):
        width = q.shape[1]
        sequences = 2
        length = q.shape[0] // sequences
        module = torch.nn.MultiheadAttention(width, heads, batch_first=True).double()
        eye = torch.eye(width, dtype=torch.double)
        module.in_proj_weight.data = torch.cat([eye, eye, eye])
        module.out_proj.weight.data = eye
        module.in_proj_bias.data.zero_()
        module.out_proj.bias.data.zero_()
        q, k, v = [x.view(sequences, length, width) for x in (q, k, v)]
        hidden = torch.ones(length, length, dtype=torch.bool).triu(1) if causal else None
        padding = None
        if lengths is not None:
            padding = torch.arange(length)[None, :] >= lengths[:, None]
        y, _ = module(q, k, v, key_padding_mask=padding, attn_mask=hidden)
        if lengths is not None:
            y = y.masked_fill(padding[:, :, None], 0.0)
        return y.reshape(sequences * length, width)
    return run


def parts():
    return {name: values(2 * 50, 4) for name in "qkv"}


case("gelu", lambda x: F.gelu(x), {"x": edges()})
case("gelu_tanh", lambda x: F.gelu(x, approximate="tanh"), {"x": edges()})
case("tanh", lambda x: torch.tanh(x), {"x": edges()})
case("silu", lambda x: F.silu(x), {"x": edges()})
case("embedding", lambda ids, table: F.embedding(ids, table).reshape(-1, 5),
     {"table": values(7, 5)}, {"ids": whole(4, 6, limit=7)})
case("layer_norm", lambda x, gamma, beta: F.layer_norm(x, (37,), gamma, beta, 1e-5),
     {"x": values(21, 37, limit=5), "gamma": values(37), "beta": values(37)})
case("attention", attention(2, False), parts())
case("attention_causal", attention(2, True), parts())
case("attention_with_lengths", attention(2, False), parts(), {"lengths": torch.tensor([50, 17])})
case("softmax", lambda x: F.softmax(x, 1), {"x": values(5, 70, limit=20)})


def rows():
    x = values(6, 33)
    x.data[2] = 0
    return x


case("l2_normalize", lambda x: F.normalize(x), {"x": rows()})


def labels():
    t = whole(17, limit=41)
    t[3] = t[7] = -100
    return {"labels": t}


def logits():
    return {"z": values(17, 41, limit=12)}


case("cross_entropy", lambda z, labels: F.cross_entropy(z, labels, reduction="sum"), logits(),
     labels(), loss=True)
case("cross_entropy_smoothed",
     lambda z, labels: F.cross_entropy(z, labels, label_smoothing=0.1, reduction="sum"), logits(),
     labels(), loss=True)
weights = values(17)
weights.requires_grad_(False)
case("cross_entropy_weighted",
     lambda z, weights, labels: (weights * F.cross_entropy(
         z, labels, label_smoothing=0.1, reduction="none")).sum(),
     {**logits(), "weights": weights}, labels(), loss=True)


def rms_norm(x, gamma):
    return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6) * gamma


def rotary(x, cos, sin):
    """Llama's, of rows [sequence, position, head]."""
    x = x.view(2, 6, 2, -1)
    half = x.shape[-1] // 2
    turned = torch.cat((-x[..., half:], x[..., :half]), -1)
    return (x * cos[:, None] + turned * sin[:, None]).view(24, -1)


def angles():
    return {name: values(6, 10).detach() for name in ("cos", "sin")}


case("rms_norm", rms_norm, {"x": values(21, 37, limit=5), "gamma": values(37)})
case("gated", lambda a, b: F.silu(a) * b, {"a": edges(), "b": values(2, 40)})
case("rotary", rotary, {"x": values(24, 10), **angles()})

path = os.path.join(os.path.dirname(os.path.abspath(__file__)), "functions.txt")
with open(path, "w", encoding="utf-8") as file:
    file.write("\n".join(lines) + "\n")
