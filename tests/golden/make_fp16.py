#!/usr/bin/python3
"""Writes tests/golden/fp16.txt: what PyTorch and its GradScaler make of the job fp16.txtpb.

Run with a PyTorch whose GradScaler knows CPUs, 2.3 or newer, and Google's protobuf (the committed
file is from 2.15):  python tests/golden/make_fp16.py

As make_train.py, in double precision, but everything that gaccd keeps in fp16 is rounded to it where
gaccd does: weights and biases as the products read them, features, what a layer gives, and the
gradients of these. Sums and the gradients of parameters are not.

  step EPOCH STEP SAMPLES SAMPLES_TOTAL LR LOSS GRAD_NORM LOSS_SCALE SKIPPED GROWTH_TRACKER
"""
import os

import numpy
import torch
from google.protobuf import text_format
from make_train import (HERE, initialize, job_message, learning_rate, loss_sum, make_layers,
                        make_optimizer, updates_of)


def half(values):
    """The nearest fp16, by way of f32: gaccd's values are f32."""
    return values.float().half().double()


class Half(torch.autograd.Function):
    @staticmethod
    def forward(context, values):
        return half(values)

    @staticmethod
    def backward(context, gradient):
        return half(gradient)


class HalfParameter(torch.autograd.Function):
    """Its gradient is f32."""

    @staticmethod
    def forward(context, values):
        return half(values)

    @staticmethod
    def backward(context, gradient):
        return gradient


def outputs_of(network, features):
    value = half(features)
    for layer in network:
        if isinstance(layer, torch.nn.Linear):
            value = Half.apply(torch.nn.functional.linear(
                value, HalfParameter.apply(layer.weight), HalfParameter.apply(layer.bias)))
        else:
            value = layer(value)
    return value


def train(job, out):
    npy = job.data.train.npy
    features = torch.from_numpy(numpy.load(os.path.join(HERE, npy.features)).astype(numpy.float64))
    labels = torch.from_numpy(numpy.load(os.path.join(HERE, npy.targets)))
    updates = updates_of(job, len(features), job.batch.target)
    network = make_layers(job.model.layer)
    initialize(job.seed, network)
    optimizer = make_optimizer(job.optimizer, network)
    scaler = torch.amp.GradScaler("cpu", init_scale=job.loss_scale.init_scale,
                                  growth_interval=job.loss_scale.growth_interval)
    total = 0
    for update, (epoch, samples) in enumerate(updates):
        optimizer.zero_grad()
        loss = loss_sum(outputs_of(network, features[samples]), labels[samples]) / len(samples)
        scale = scaler.get_scale()
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        norm = torch.nn.utils.clip_grad_norm_(network.parameters(), job.clip_norm)
        lr = learning_rate(job, update, len(updates), job.batch.target)
        for group in optimizer.param_groups:
            group["lr"] = lr
        before = [p.detach().clone() for p in network.parameters()]
        scaler.step(optimizer)
        scaler.update()
        skipped = all(torch.equal(a, b) for a, b in zip(before, network.parameters()))
        assert skipped == (scaler.get_scale() < scale)
        total += 0 if skipped else len(samples)
        out.write("step %d %d %d %d %.12g %.12g %.12g %.12g %d %d\n"
                  % (epoch, update + 1, len(samples), total, lr, loss.item(),
                     0 if skipped else norm.item(), scale, skipped, scaler._get_growth_tracker()))


if __name__ == "__main__":
    torch.set_num_threads(1)
    torch.set_default_dtype(torch.float64)
    numpy.seterr(over="ignore")
    with open(os.path.join(HERE, "fp16.txtpb")) as text:
        parsed = text_format.Parse(text.read(), job_message()())
    with open(os.path.join(HERE, "fp16.txt"), "w") as file:
        file.write("torch %s\n" % torch.__version__)
        train(parsed, file)
