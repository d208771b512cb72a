#!/usr/bin/python3
"""Writes tests/golden/{mlp,linear}_*.txt: loss, gradients and 20 SGD losses of networks in PyTorch.

Run with Debian's python3-torch (the committed files are from 1.13):  tests/golden/make_mlp.py

The reference is PyTorch in double precision. Beside every result stands `error`: how far PyTorch's
own single precision is from it, relative to the norm of the tensor. That is the yardstick for ours.

One line a record: a key, then numbers; inputs in %.9g (exact for fp32), results in %.17g.
  small networks: everything is in the file
  the large one:  weights, features and labels are made by a formula on both sides (the seed's
                  stream of Model::Initialize and of the test's Samples), and a gradient is given by
                  its norm and its products with 8 vectors of random signs: with e the difference of
                  two gradients, the mean square of the products with e is |e|^2
"""
import os

import numpy
import torch

UPDATES = 20
SIGN_VECTORS = 8
GOLDEN = 0x9E3779B97F4A7C15
MASK = (1 << 64) - 1


def mix64(x):  # uint64 arrays; daemon/tensor/random.h
    x = (x ^ (x >> numpy.uint64(30))) * numpy.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> numpy.uint64(27))) * numpy.uint64(0x94D049BB133111EB)
    return x ^ (x >> numpy.uint64(31))


def stream(a, b, count):  # StreamValue(StreamKey(a, b), 0 .. count-1)
    start = numpy.array([(a + GOLDEN) & MASK], dtype=numpy.uint64)
    key = mix64(mix64(start) + numpy.uint64((b + 1) * GOLDEN & MASK))
    steps = numpy.arange(1, count + 1, dtype=numpy.uint64) * numpy.uint64(GOLDEN)
    return mix64(key + steps)


def uniform(bits):  # [-1, 1), 24 bits
    return (bits >> numpy.uint64(40)).astype(numpy.float64) * 2.0**-23 - 1


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


def make_samples(widths, count, seed, classify):
    features = uniform(stream(seed, 0, count * widths[0])).astype(numpy.float32)
    features = torch.from_numpy(features.reshape(count, widths[0]))
    if classify:
        labels = stream(seed, 1, count) % numpy.uint64(widths[-1])
        return features, torch.from_numpy(labels.astype(numpy.int64))
    targets = uniform(stream(seed, 1, count * widths[-1])).astype(numpy.float32)
    return features, torch.from_numpy(targets.reshape(count, widths[-1]))


def train(initial, features, targets, rate, dtype):
    """Returns the loss and the gradients at the start, and the losses of UPDATES SGD steps."""
    parameters = [value.to(dtype).clone().requires_grad_() for _, value in initial]
    features = features.to(dtype)
    if targets.dtype != torch.int64:
        targets = targets.to(dtype)
    optimizer = torch.optim.SGD(parameters, lr=rate)
    gradients, losses = None, []
    for _ in range(UPDATES):
        optimizer.zero_grad()
        value = features
        for layer in range(0, len(parameters), 2):
            value = torch.nn.functional.linear(value, parameters[layer], parameters[layer + 1])
            if layer + 2 < len(parameters):
                value = torch.relu(value)
        if targets.dtype == torch.int64:
            loss = torch.nn.functional.cross_entropy(value, targets)
        else:
            loss = torch.nn.functional.mse_loss(value, targets)
        loss.backward()
        if gradients is None:
            gradients = [p.grad.double().reshape(-1).clone() for p in parameters]
        losses.append(loss.item())
        optimizer.step()
    return gradients, losses


def numbers(values, form):
    return " ".join(form % value for value in values)


def signs(index, count):
    bits = stream(1000, index, count) >> numpy.uint64(63)
    return torch.from_numpy(bits.astype(numpy.float64) * 2 - 1)


def write(name, widths, classify, samples, rate, everything):
    initial = initial_weights(widths, seed=1)
    features, targets = make_samples(widths, samples, seed=3, classify=classify)
    gradients, losses = train(initial, features, targets, rate, torch.float64)
    gradients32, losses32 = train(initial, features, targets, rate, torch.float32)
    path = os.path.join(os.path.dirname(os.path.abspath(__file__)), name + ".txt")
    with open(path, "w") as out:
        out.write("torch %s\n" % torch.__version__)
        out.write("widths %s\n" % numbers(widths, "%d"))
        out.write("samples %d\nrate %.9g\n" % (samples, rate))
        if everything:
            for key, value in initial:
                out.write("parameter %s %s\n" % (key, numbers(value.reshape(-1).tolist(), "%.9g")))
            out.write("features %s\n" % numbers(features.reshape(-1).tolist(), "%.9g"))
            key, form = ("labels", "%d") if classify else ("targets", "%.9g")
            out.write("%s %s\n" % (key, numbers(targets.reshape(-1).tolist(), form)))
        for (key, _), gradient, gradient32 in zip(initial, gradients, gradients32):
            difference = gradient32 - gradient
            if everything:
                results, error = gradient, difference.norm()
                kind = "gradient"
            else:
                vectors = [signs(i, len(gradient)) for i in range(SIGN_VECTORS)]
                results = [gradient.norm()] + [gradient @ vector for vector in vectors]
                squares = [(difference @ vector) ** 2 for vector in vectors]
                error = (sum(squares) / SIGN_VECTORS) ** 0.5
                kind = "products"
            out.write("%s %s error %.2g values %s\n"
                      % (kind, key, error / gradient.norm(), numbers(results, "%.17g")))
        error = max(abs(a - b) / abs(b) for a, b in zip(losses32, losses))
        out.write("losses error %.2g values %s\n" % (error, numbers(losses, "%.17g")))


if __name__ == "__main__":
    torch.set_num_threads(1)
    numpy.seterr(over="ignore")
    write("mlp_small", [12, 16, 16, 5], True, 32, 0.5, True)
    write("mlp_784_512_512_10", [784, 512, 512, 10], True, 32, 0.1, False)
    write("linear_10_1", [10, 1], False, 32, 0.05, True)
