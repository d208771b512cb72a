#!/usr/bin/env python3
"""The peer of the model benchmarks: the small MLP, GPT-2 or BERT in PyTorch, one process, one thread.

The networks are written as functions of a weights file that gaccd made, so that both sides begin with
the same weights and see the same samples in the same order. An update is k micro-steps, then SGD or
fused AdamW. --precision: f32; autocast, bf16 over f32 weights; model, all weights bf16.
tools/bench/run starts it. All data is in memory before the clock starts. Prints one JSON line.
"""
import argparse
import contextlib
import json
import os
import time

for variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[variable] = "1"

import numpy as np  # noqa: E402  (after the thread counts are set)
import torch  # noqa: E402
from ddp_mlp import read_safetensors  # noqa: E402

F = torch.nn.functional


def linear(p, name, x):
    return F.linear(x, p[name + ".weight"], p[name + ".bias"])


def layer_norm(p, name, x, epsilon):
    return F.layer_norm(x, x.shape[-1:], p[name + ".weight"], p[name + ".bias"], epsilon)


def attention(q, k, v, heads, causal):
    """q, k, v [B, T, heads x D]."""
    batch, length, width = q.shape
    q, k, v = (part.view(batch, length, heads, -1).transpose(1, 2) for part in (q, k, v))
    y = F.scaled_dot_product_attention(q, k, v, is_causal=causal)
    return y.transpose(1, 2).reshape(batch, length, width)


def mlp(p, features, _):
    x = F.relu(linear(p, "fc1", features))
    return linear(p, "fc3", F.relu(linear(p, "fc2", x)))


def gpt(p, tokens, args):
    x = F.embedding(tokens, p["transformer.wte.weight"]) + p["transformer.wpe.weight"]
    for i in range(args.layers):
        block = f"transformer.h.{i}."
        y = linear(p, block + "attn.c_attn", layer_norm(p, block + "ln_1", x, 1e-5))
        y = attention(*y.chunk(3, -1), args.heads, True)
        x = x + linear(p, block + "attn.c_proj", y)
        y = F.gelu(linear(p, block + "mlp.c_fc", layer_norm(p, block + "ln_2", x, 1e-5)),
                   approximate="tanh")
        x = x + linear(p, block + "mlp.c_proj", y)
    return F.linear(layer_norm(p, "transformer.ln_f", x, 1e-5), p["transformer.wte.weight"])


def bert(p, tokens, args):
    embeddings = "bert.embeddings."
    x = F.embedding(tokens, p[embeddings + "word_embeddings.weight"])
    x = x + p[embeddings + "token_type_embeddings.weight"][0]
    x = layer_norm(p, embeddings + "LayerNorm",
                   x + p[embeddings + "position_embeddings.weight"], 1e-12)
    for i in range(args.layers):
        layer = f"bert.encoder.layer.{i}."
        parts = [linear(p, f"{layer}attention.self.{part}", x) for part in ("query", "key", "value")]
        y = linear(p, layer + "attention.output.dense", attention(*parts, args.heads, False))
        x = layer_norm(p, layer + "attention.output.LayerNorm", x + y, 1e-12)
        y = linear(p, layer + "output.dense", F.gelu(linear(p, layer + "intermediate.dense", x)))
        x = layer_norm(p, layer + "output.LayerNorm", x + y, 1e-12)
    return linear(p, "classifier", torch.tanh(linear(p, "bert.pooler.dense", x[:, 0])))


NETWORKS = {"mlp": mlp, "gpt": gpt, "bert": bert}


def read_weights(path, dtype):
    weights = read_safetensors(path)
    for name, value in weights.items():
        # GPT-2's Conv1D as a Linear, which PyTorch computes faster.
        if ".c_" in name and name.endswith(".weight"):
            value = value.T.contiguous()
        weights[name] = torch.nn.Parameter(value.to(dtype))
    return weights


def make_optimizer(args, weights):
    if args.model == "mlp":
        return torch.optim.SGD(weights.values(), lr=args.lr)
    decayed = [p for p in weights.values() if p.dim() == 2]
    others = [p for p in weights.values() if p.dim() != 2]
    return torch.optim.AdamW([{"params": decayed}, {"params": others, "weight_decay": 0}],
                             lr=args.lr, weight_decay=0.01, fused=True)


def micro_batches(args, dtype):
    """For every update of one pass over the data: its k micro-batches."""
    inputs, labels = torch.from_numpy(np.load(args.inputs)), torch.from_numpy(np.load(args.labels))
    inputs = inputs.to(dtype) if inputs.is_floating_point() else inputs.long()
    labels, updates = labels.long(), []
    for begin in range(0, len(labels) - args.micro * args.k + 1, args.micro * args.k):
        rows = [slice(begin + i * args.micro, begin + (i + 1) * args.micro) for i in range(args.k)]
        updates.append([(inputs[r].contiguous(), labels[r].contiguous()) for r in rows])
    return updates


def peak_bytes():
    """Resident memory at its most, without the pages of programs and libraries, as gaccd counts."""
    with open("/proc/self/status") as file:
        status = dict(line.split(":", 1) for line in file)
    most, of_files = (int(status[key].split()[0]) for key in ("VmHWM", "RssFile"))  # kB
    return 1024 * (most - of_files)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", required=True, choices=NETWORKS)
    parser.add_argument("--inputs", required=True, help="NPY: features or tokens")
    parser.add_argument("--labels", required=True, help="NPY")
    parser.add_argument("--weights", required=True, help="safetensors with the first weights")
    parser.add_argument("--layers", type=int, default=0)
    parser.add_argument("--heads", type=int, default=0)
    parser.add_argument("--micro", type=int, required=True)
    parser.add_argument("--k", type=int, default=1)
    parser.add_argument("--lr", type=float, required=True)
    parser.add_argument("--warmup", type=int, default=3, help="updates not counted")
    parser.add_argument("--updates", type=int, required=True, help="updates measured")
    parser.add_argument("--precision", choices=("f32", "autocast", "model"), default="f32")
    parser.add_argument("--compile", action="store_true", help="torch.compile the loss")
    args = parser.parse_args()

    torch.set_num_threads(1)
    dtype = torch.bfloat16 if args.precision == "model" else torch.float32
    weights = read_weights(args.weights, dtype)
    optimizer = make_optimizer(args, weights)
    updates = micro_batches(args, dtype)
    network = NETWORKS[args.model]

    def loss_sum(p, x, y):
        logits = network(p, x, args)
        return F.cross_entropy(logits.flatten(0, -2).float(), y.flatten(), reduction="sum")

    if args.compile:
        loss_sum = torch.compile(loss_sum)
    autocast = args.precision == "autocast"
    durations = []
    for index in range(args.warmup + args.updates):
        begin = time.perf_counter()
        steps = updates[index % len(updates)]
        predictions = sum(y.numel() for _, y in steps)
        total = 0.0
        for x, y in steps:
            with torch.autocast("cpu", torch.bfloat16) if autocast else contextlib.nullcontext():
                loss = loss_sum(weights, x, y) / predictions
            loss.backward()
            total += loss.item()
        optimizer.step()
        optimizer.zero_grad()
        durations.append(time.perf_counter() - begin)
    measured = sorted(durations[args.warmup:])
    print(json.dumps({"version": torch.__version__, "update_s": measured[len(measured) // 2],
                      "loss": total,
                      "peak_bytes": peak_bytes()}))


if __name__ == "__main__":
    main()
