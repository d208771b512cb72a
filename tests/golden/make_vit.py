#!/usr/bin/env python3
"""Writes tests/golden/models/vit*: what timm's VisionTransformer makes of the job texts there.

Needs timm, transformers (for make_models.py) and protobuf; the committed files are from timm 1.0.31 on PyTorch 2.15:
  V/bin/python tests/golden/make_vit.py

The files, their records and the tolerances are those of make_models.py; of vit_bf16 the convolution of the patches
rounds what it multiplies, too; of vit_drop_path the samples that skip are gaccd's. The data: vit_images.npy, eval_vit_images.npy and their labels. Normalized pixels are
exact in f32, so that both sides round the same values to bf16.
"""
import math
import os

import numpy
import timm
import torch
from gaccd_random import stream, stream_key, stream_values
from google.protobuf import text_format
from make_mlp import Bf16Linear
from make_models import (Bf16Attention, FIRST, FOLDER, HELD_OUT, SAMPLES, make_optimizer, tensors_of,
                         write_errors, write_safetensors)
from make_train import job_message, learning_rate, updates_of

CHANNELS, SIDE, CLASSES = 3, 8, 4
JOBS = {  # job: worlds
    "vit_mini": ["1x1", "1x3", "2x2", "1x7"],
    "vitavg_mini": ["1x1", "3x1", "1x7"],
    "vit_bf16": ["1x1", "1x3", "1x7"],
    "vit_drop_path": ["1x1", "1x3", "2x2", "1x7"],
}


def write_data():
    """Images of any pixels; labels that two of them decide."""
    count = SAMPLES + HELD_OUT
    pixels = stream(90, 0, count * CHANNELS * SIDE * SIDE) % numpy.uint64(256)
    pixels = pixels.reshape(count, CHANNELS, SIDE, SIDE)
    labels = ((pixels[:, 0, 1, 1] + pixels[:, 2, 6, 3]) // numpy.uint64(37)) % numpy.uint64(CLASSES)
    for name, values, kind in (("vit_images", pixels, "|u1"), ("vit_labels", labels, "<i4")):
        numpy.save(os.path.join(FOLDER, name + ".npy"), values[:SAMPLES].astype(kind))
        numpy.save(os.path.join(FOLDER, "eval_" + name + ".npy"), values[SAMPLES:].astype(kind))
    return (torch.from_numpy(pixels.astype(numpy.float64)),
            torch.from_numpy(labels.astype(numpy.int64)))


def bf16_attention(module, x):
    rows, tokens, width = x.shape
    q, k, v = module.qkv(x).reshape(rows, tokens, 3, module.num_heads, -1).permute(2, 0, 3, 1, 4)
    y = Bf16Attention.apply(q, k, v, torch.zeros((), dtype=x.dtype))
    return module.proj(y.transpose(1, 2).reshape(rows, tokens, width))


def bf16_patches(conv, x):
    """A convolution whose windows are the patches is a product of each of them."""
    side = conv.kernel_size[0]
    patches = torch.nn.functional.unfold(x, side, stride=side).transpose(1, 2)
    y = Bf16Linear.apply(patches, conv.weight.flatten(1), conv.bias)
    return y.transpose(1, 2).unflatten(2, (x.shape[2] // side, -1))


def round_products(network):
    for module in network.modules():
        if isinstance(module, timm.layers.Attention):
            module.forward = lambda x, m=module, **_: bf16_attention(m, x)
        elif isinstance(module, torch.nn.Linear):
            module.forward = lambda x, m=module: Bf16Linear.apply(x, m.weight, m.bias)
        elif isinstance(module, torch.nn.Conv2d):
            module.forward = lambda x, m=module: bf16_patches(m, x)


class Skips:
    """In place of timm's random numbers: those of gaccd (daemon/ops/pointwise/dropout.h); none outside of updates."""

    def __init__(self, job, network):
        self.job, self.update, self.samples = job, None, None
        paths = [m for m in network.modules() if isinstance(m, timm.layers.DropPath)]
        for layer, path in enumerate(paths):  # as they are called: two in each block
            path.forward = lambda x, path=path, layer=layer: self.drop(x, path.drop_prob, layer)

    def drop(self, x, probability, layer):
        if self.update is None:
            return x
        key = stream_key(stream_key(self.job.seed, self.update), layer)
        draws = [int(stream_values(stream_key(key, sample), 1)[0]) & 0xFFFFFFFF for sample in self.samples]
        kept = torch.tensor([float(draw >= int(probability * 2**32)) for draw in draws], dtype=x.dtype)
        return x * (kept / (1 - probability))[:, None, None]


def make_network(job):
    torch.manual_seed(5)
    vit = job.model.vit
    network = timm.models.VisionTransformer(
        img_size=vit.image_size, patch_size=vit.patch_size, in_chans=vit.channels, embed_dim=vit.width,
        depth=vit.depth, num_heads=vit.heads, mlp_ratio=vit.mlp_ratio, num_classes=vit.classes,
        global_pool="avg" if vit.pool == vit.AVG else "token", drop_path_rate=vit.drop_path)
    network.skips = Skips(job, network)
    with torch.no_grad():  # as f32 holds them; larger, so that no gradient is almost zero
        for name, parameter in network.named_parameters():
            if parameter.dim() == 2 or name == "pos_embed":
                parameter *= 8
            if name.endswith("bias") or name == "cls_token":
                parameter += 0.1 * torch.randn_like(parameter)
            parameter.copy_(parameter.float().double())
    if job.precision == job.BF16:
        round_products(network)
    return network


def loss_and_logits(job, network, data, samples):
    pixels, labels = data
    rule = job.data.normalize
    images = (pixels[samples] * rule.scale - rule.mean) / rule.std
    logits = network(images.to(network.head.weight.dtype))
    return torch.nn.functional.cross_entropy(logits, labels[samples]), logits


def first_of(job, network, data):
    loss, logits = loss_and_logits(job, network, data, list(range(FIRST)))
    loss.backward()
    tensors = {"gradient." + n: p.grad.clone() for n, p in network.named_parameters()}
    network.zero_grad()
    return {"logits": logits.detach(), **tensors}


def evaluate(job, network, data):
    held_out = list(range(SAMPLES, SAMPLES + HELD_OUT))
    with torch.no_grad():
        loss, logits = loss_and_logits(job, network, data, held_out)
    return loss.item(), (logits.argmax(1) == data[1][held_out]).double().mean().item()


def train(job, network, data, out=None):
    """The loss and the gradient norm of every update."""
    optimizer = make_optimizer(job.optimizer, network)
    figures, total = [], 0
    updates = updates_of(job, SAMPLES, job.batch.target)
    for update, (epoch, samples) in enumerate(updates):
        optimizer.zero_grad()
        network.skips.update, network.skips.samples = update, samples
        loss, _ = loss_and_logits(job, network, data, samples)
        network.skips.update = None
        loss.backward()
        norm = torch.nn.utils.clip_grad_norm_(network.parameters(), job.clip_norm or math.inf)
        lr = learning_rate(job, update, len(updates), job.batch.target)
        for group in optimizer.param_groups:
            group["lr"] = lr * group["lr_factor"]
        optimizer.step()
        total += len(samples)
        figures.append((loss.item(), norm.item()))
        if out is None:
            continue
        out.write("step %d %d %d %d %.12g %.12g %.12g\n"
                  % (epoch, update + 1, len(samples), total, lr, loss.item(), norm.item()))
        if update + 1 == len(updates) or updates[update + 1][0] > epoch:
            out.write("eval %d %d %d %.12g %.12g\n"
                      % (epoch, update + 1, HELD_OUT, *evaluate(job, network, data)))
    return numpy.array(figures)


def make(name, worlds, job, data):
    network, single = make_network(job), make_network(job).float()
    base = os.path.join(FOLDER, name)
    with open(base + ".txt", "w") as out:
        out.write("torch %s timm %s\nworlds %s\n"
                  % (torch.__version__, timm.__version__, " ".join(worlds)))
        if name.endswith("_mini"):
            write_safetensors(base + ".init", tensors_of(network))
        first = first_of(job, network, data)
        write_safetensors(base + ".first", first)
        write_errors(out, first_of(job, single, data), first)
        figures = train(job, network, data, out)
        errors = numpy.abs(train(job, single, data) / figures - 1).max(0)
        out.write("error loss %.3g\nerror grad_norm %.3g\n" % tuple(errors))
        write_safetensors(base + ".trained", tensors_of(network))
        write_errors(out, tensors_of(single), tensors_of(network), "trained.")


if __name__ == "__main__":
    torch.set_num_threads(1)
    torch.set_default_dtype(torch.float64)
    numpy.seterr(over="ignore")
    made, Job = write_data(), job_message()
    for job_name, its_worlds in JOBS.items():
        with open(os.path.join(FOLDER, job_name + ".txtpb")) as text:
            make(job_name, its_worlds, text_format.Parse(text.read(), Job()), made)
