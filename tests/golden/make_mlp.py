#!/usr/bin/python3
"""Writes tests/golden/mlp_784_512_512_10.txt: loss and gradients of a network in PyTorch.

Run with Debian's python3-torch (the committed file is from 1.13):  tests/golden/make_mlp.py

The reference is PyTorch in double precision. Next to every result is its `error`: how far PyTorch's
own single precision is from it, relative to the norm of the tensor. That is the yardstick for ours.

mlp_784_512_512_10_bf16.txt is the same with what is multiplied rounded to bf16, sums and all else not.

Weights, features and labels are made by a formula on both sides (the seed's stream of
Model::Initialize and of the test's Samples). A gradient is given by its norm and its products with 8
vectors of random signs: with e the difference of two gradients, the mean square of the products
with e is |e|^2. One line a record: a key, then numbers.
"""
import os

import numpy
import torch
from gaccd_random import stream, uniform

SIGN_VECTORS = 8


def initial_weights(widths, seed):
    """As Model::Initialize: stream (seed, index of the parameter), +-1/sqrt(in)."""
    parameters = []
    for i, (width_in, width_out) in enumerate(zip(widths, widths[1:])):
        limit = 1.0 / numpy.sqrt(float(width_in))
        for kind, shape in (("weight", (width_out, width_in)), ("bias", (width_out,))):
            values = uniform(stream(seed, len(parameters), int(numpy.prod(shape)))) * limit
            values = values.astype(numpy.float32).reshape(shape)
            parameters.append(("fc%d.%s" % (i + 1, kind), torch.from_numpy(values)))
    return parameters


def make_samples(widths, count, seed):
    features = uniform(stream(seed, 0, count * widths[0])).astype(numpy.float32)
    labels = stream(seed, 1, count) % numpy.uint64(widths[-1])
    return (torch.from_numpy(features.reshape(count, widths[0])),
            torch.from_numpy(labels.astype(numpy.int64)))


def rounded(values):
    """The nearest bf16, by way of f32: gaccd's values are f32."""
    return values.float().bfloat16().to(values.dtype)


class Bf16Linear(torch.autograd.Function):
    """x weight^T + bias (or None): products of what is rounded to bf16, sums in the type of x."""

    @staticmethod
    def forward(context, x, weight, bias):
        context.save_for_backward(rounded(x), rounded(weight))
        return torch.nn.functional.linear(rounded(x), rounded(weight), bias)

    @staticmethod
    def backward(context, dy):
        x, weight = context.saved_tensors
        rows = rounded(dy).flatten(0, -2)
        bias = rows.sum(0) if context.needs_input_grad[2] else None
        return rounded(dy) @ weight, rows.T @ x.flatten(0, -2), bias


def loss_and_gradients(initial, features, labels, dtype, linear):
    parameters = [value.to(dtype).clone().requires_grad_() for _, value in initial]
    value = features.to(dtype)
    for layer in range(0, len(parameters), 2):
        value = linear(value, parameters[layer], parameters[layer + 1])
        if layer + 2 < len(parameters):
            value = torch.relu(value)
    loss = torch.nn.functional.cross_entropy(value, labels)
    loss.backward()
    return loss.item(), [p.grad.double().reshape(-1) for p in parameters]


def signs(index, count):
    bits = stream(1000, index, count) >> numpy.uint64(63)
    return torch.from_numpy(bits.astype(numpy.float64) * 2 - 1)


def write(widths, count, suffix="", linear=torch.nn.functional.linear):
    name = "mlp_" + "_".join(map(str, widths)) + suffix + ".txt"
    initial = initial_weights(widths, seed=1)
    samples = make_samples(widths, count, seed=3)
    loss, gradients = loss_and_gradients(initial, *samples, torch.float64, linear)
    loss32, gradients32 = loss_and_gradients(initial, *samples, torch.float32, linear)
    with open(os.path.join(os.path.dirname(os.path.abspath(__file__)), name), "w") as out:
        out.write("torch %s\n" % torch.__version__)
        out.write("widths %s\n" % " ".join(map(str, widths)))
        out.write("samples %d\n" % count)
        out.write("loss error %.2g value %.17g\n" % (abs(loss32 / loss - 1), loss))
        for (key, _), gradient, gradient32 in zip(initial, gradients, gradients32):
            vectors = [signs(i, len(gradient)) for i in range(SIGN_VECTORS)]
            squares = [((gradient32 - gradient) @ vector) ** 2 for vector in vectors]
            error = (sum(squares) / SIGN_VECTORS) ** 0.5 / gradient.norm()
            products = " ".join("%.17g" % (gradient @ vector) for vector in vectors)
            out.write("gradient %s error %.2g norm %.17g products %s\n"
                      % (key, error, gradient.norm(), products))


if __name__ == "__main__":
    torch.set_num_threads(1)
    numpy.seterr(over="ignore")
    write([784, 512, 512, 10], 32)
    write([784, 512, 512, 10], 32, "_bf16", Bf16Linear.apply)
