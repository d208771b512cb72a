#!/usr/bin/env python3
"""Writes tests/golden/images.txt: outputs and gradients of the functions of images in PyTorch, in
double precision.

Run with any Python that has PyTorch (the committed file is from 2.15):  tests/golden/make_images.py

The records are those of functions.txt (make_functions.py); `ids options` are the numbers that a
function is made with. What a function gives is flattened to [samples, values].
"""
import os

import torch
import torch.nn.functional as F

WEIGHT = 0.375
generator = torch.Generator().manual_seed(20261124)
lines = []


def values(*shape, limit=2.0):  # as f32, so that both sides start from the same
    x = (torch.rand(*shape, generator=generator) * 2 - 1) * limit
    return x.double().requires_grad_()


def line(key, name, x):
    x = torch.as_tensor(x).detach()
    shape = "[" + ",".join(str(n) for n in x.shape) + "]"
    lines.append(" ".join([key, name, shape] + ["%.9g" % v for v in x.flatten().tolist()]))


def case(name, function, inputs, options=()):
    lines.append("case " + name)
    for key, x in inputs.items():
        line("in", key, x)
    if options:
        line("ids", "options", torch.tensor(options))
    out = function(**inputs).flatten(1)
    targets = values(*out.shape).detach()
    line("in", "targets", targets)
    line("out", "y", out)
    (WEIGHT / out.shape[1] * ((out - targets) ** 2).sum()).backward()
    for key, x in inputs.items():
        line("grad", key, x.grad)


# images, channels, height, width; out, kernel; stride, padding, dilation; groups, bias
CONVOLUTIONS = [
    ((1, 1, 1, 1), (1, 1, 1), (1, 1), (0, 0), (1, 1), 1, True),
    ((2, 3, 1, 1), (4, 1, 1), (1, 1), (0, 0), (1, 1), 1, False),
    ((2, 3, 1, 1), (4, 3, 3), (1, 1), (1, 1), (1, 1), 1, True),
    ((2, 1, 6, 6), (3, 3, 3), (1, 1), (1, 1), (1, 1), 1, True),
    ((3, 3, 7, 5), (4, 3, 3), (1, 1), (0, 0), (1, 1), 1, True),
    ((2, 3, 5, 7), (5, 3, 3), (2, 2), (1, 1), (1, 1), 1, False),
    ((2, 3, 6, 6), (2, 7, 7), (2, 2), (3, 3), (1, 1), 1, False),
    ((2, 4, 7, 7), (3, 1, 1), (2, 2), (0, 0), (1, 1), 1, True),
    ((1, 3, 6, 5), (4, 1, 1), (3, 2), (0, 0), (1, 1), 1, False),
    ((2, 2, 5, 5), (3, 1, 1), (2, 2), (1, 1), (1, 1), 1, True),
    ((2, 3, 6, 5), (4, 2, 3), (1, 2), (1, 0), (1, 1), 1, True),
    ((2, 3, 7, 7), (4, 3, 3), (1, 1), (2, 2), (2, 2), 1, True),
    ((1, 2, 7, 6), (3, 2, 3), (2, 1), (2, 1), (3, 1), 1, True),
    ((2, 4, 5, 5), (6, 3, 3), (1, 1), (1, 1), (1, 1), 2, True),
    ((2, 6, 5, 4), (6, 3, 3), (1, 1), (1, 1), (1, 1), 6, False),
    ((2, 3, 5, 5), (6, 3, 3), (2, 2), (1, 1), (1, 1), 3, True),
    ((2, 6, 4, 4), (4, 1, 1), (2, 2), (0, 0), (1, 1), 2, True),
    ((1, 4, 3, 3), (4, 2, 2), (1, 1), (2, 2), (1, 1), 4, True),
    ((1, 2, 2, 2), (3, 3, 3), (1, 1), (3, 3), (1, 1), 1, True),
    ((2, 2, 4, 1), (3, 3, 1), (1, 1), (1, 0), (1, 1), 1, True),
]
for number, (x, weight, stride, padding, dilation, groups, bias) in enumerate(CONVOLUTIONS):
    out, *kernel = weight
    inputs = {"x": values(*x), "weight": values(out, x[1] // groups, *kernel)}
    if bias:
        inputs["bias"] = values(out)
    case("conv2d_%02d" % number,
         lambda x, weight, bias=None: F.conv2d(x, weight, bias, stride, padding, dilation, groups),
         inputs, [*stride, *padding, *dilation, groups])


def distinct(*shape):  # no maximum is reached twice
    count = torch.Size(shape).numel()
    x = torch.randperm(count, generator=generator).reshape(shape) * (4 / count) - 2
    return x.float().double().requires_grad_()


# images, channels, height, width; kernel, stride, padding; dilation, or whether padding counts
for number, (x, kernel, stride, padding, dilation) in enumerate([
        ((2, 3, 6, 6), (2, 2), (2, 2), (0, 0), (1, 1)),
        ((2, 3, 7, 5), (3, 3), (2, 2), (1, 1), (1, 1)),
        ((1, 2, 5, 6), (3, 2), (1, 2), (1, 0), (1, 1)),
        ((2, 1, 7, 7), (3, 3), (1, 1), (1, 1), (2, 2)),
        ((2, 2, 1, 1), (1, 1), (1, 1), (0, 0), (1, 1)),
        ((1, 3, 2, 2), (3, 3), (1, 1), (1, 1), (1, 1)),
        ((1, 2, 8, 5), (2, 3), (3, 1), (1, 1), (3, 1))]):
    case("max_pool2d_%02d" % number,
         lambda x: F.max_pool2d(x, kernel, stride, padding, dilation), {"x": distinct(*x)},
         [*kernel, *stride, *padding, *dilation])
for number, (x, kernel, stride, padding, counts) in enumerate([
        ((2, 3, 6, 6), (2, 2), (2, 2), (0, 0), 1),
        ((2, 3, 7, 5), (3, 3), (2, 2), (1, 1), 1),
        ((2, 3, 7, 5), (3, 3), (2, 2), (1, 1), 0),
        ((1, 2, 5, 6), (3, 2), (1, 3), (1, 1), 0),
        ((2, 2, 1, 1), (1, 1), (1, 1), (0, 0), 1),
        ((1, 3, 2, 2), (3, 3), (1, 1), (1, 1), 1)]):
    case("avg_pool2d_%02d" % number,
         lambda x: F.avg_pool2d(x, kernel, stride, padding, count_include_pad=bool(counts)),
         {"x": values(*x)}, [*kernel, *stride, *padding, counts])
for number, (x, size) in enumerate([
        ((2, 3, 7, 7), (1, 1)), ((2, 3, 7, 5), (3, 2)), ((1, 2, 3, 4), (5, 7)),
        ((2, 2, 6, 6), (3, 3)), ((2, 2, 1, 1), (1, 1)), ((1, 1, 10, 9), (4, 7))]):
    case("adaptive_avg_pool2d_%02d" % number, lambda x: F.adaptive_avg_pool2d(x, size),
         {"x": values(*x)}, size)
for number, (x, groups) in enumerate([
        ((2, 4, 5, 3), 2), ((3, 6, 4, 4), 1), ((2, 6, 3, 3), 6), ((1, 6, 7, 7), 3),
        ((2, 6, 1, 1), 2)]):
    case("group_norm_%02d" % number,
         lambda x, gamma, beta: F.group_norm(x, groups, gamma, beta, 1e-5),
         {"x": values(*x, limit=5), "gamma": values(x[1]), "beta": values(x[1])}, [groups])


def edges():  # far from 0, near it, at and near the corners of hardswish
    x = values(2, 40, limit=6)
    special = [0, 1e-6, -1e-6, 0.5, -0.5, 2.9999, -2.9999, 3.0001, -3.0001, 10, -10, 40, -40]
    x.data[0, : len(special)] = torch.tensor(special)
    x.data = x.data.float().double()
    return x


case("sigmoid", lambda x: torch.sigmoid(x), {"x": edges()})
case("hardswish", lambda x: F.hardswish(x), {"x": edges()})
case("leaky_relu", lambda x: F.leaky_relu(x, 0.01), {"x": edges()})

path = os.path.join(os.path.dirname(os.path.abspath(__file__)), "images.txt")
with open(path, "w", encoding="utf-8") as file:
    file.write("\n".join(lines) + "\n")
