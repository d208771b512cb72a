#!/usr/bin/env python3
"""The peer of the model benchmarks: the small MLP, GPT-2, BERT, ViT or ResNet-18 in PyTorch, one process, one thread.

The networks are written as functions of a weights file that gaccd made, so that both sides begin with
the same weights and see the same samples in the same order. An update is k micro-steps, then SGD or
fused AdamW. Images and the weights of convolutions are channels_last. --precision: f32; autocast, bf16 over f32 weights; model, all weights bf16.
tools/bench/run starts it. All data is in memory before the clock starts. Prints one JSON line.
"""
import contextlib
import os
import time

for variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[variable] = "1"

import common  # noqa: E402  (after the thread counts are set)
import numpy as np  # noqa: E402
import torch  # noqa: E402

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


def gpt_block(p, x, i, args):
    block = f"transformer.h.{i}."
    y = linear(p, block + "attn.c_attn", layer_norm(p, block + "ln_1", x, 1e-5))
    y = attention(*y.chunk(3, -1), args.heads, True)
    x = x + linear(p, block + "attn.c_proj", y)
    y = F.gelu(linear(p, block + "mlp.c_fc", layer_norm(p, block + "ln_2", x, 1e-5)), approximate="tanh")
    return x + linear(p, block + "mlp.c_proj", y)


def gpt_logits(p, x):
    return F.linear(layer_norm(p, "transformer.ln_f", x, 1e-5), p["transformer.wte.weight"])


def gpt(p, tokens, args):
    x = F.embedding(tokens, p["transformer.wte.weight"]) + p["transformer.wpe.weight"]
    for i in range(args.layers):
        x = gpt_block(p, x, i, args)
    return gpt_logits(p, x)


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


def vit(p, images, args):
    weight = p["patch_embed.proj.weight"]
    x = F.conv2d(images, weight, p["patch_embed.proj.bias"], stride=weight.shape[-1])
    x = torch.cat([p["cls_token"].expand(len(x), -1, -1), x.flatten(2).transpose(1, 2)], 1)
    x = x + p["pos_embed"]
    for i in range(args.layers):
        block = f"blocks.{i}."
        y = linear(p, block + "attn.qkv", layer_norm(p, block + "norm1", x, 1e-6))
        x = x + linear(p, block + "attn.proj", attention(*y.chunk(3, -1), args.heads, False))
        y = F.gelu(linear(p, block + "mlp.fc1", layer_norm(p, block + "norm2", x, 1e-6)))
        x = x + linear(p, block + "mlp.fc2", y)
    return linear(p, "head", layer_norm(p, "norm", x[:, 0], 1e-6))


def conv_norm(p, conv, norm, x, stride=1):
    weight = p[conv + ".weight"]
    y = F.conv2d(x, weight, stride=stride, padding=weight.shape[-1] // 2)
    return F.batch_norm(y, p[norm + ".running_mean"], p[norm + ".running_var"], p[norm + ".weight"],
                        p[norm + ".bias"], training=True)


def resnet18(p, images, _):
    """With a 3x3 convolution at the front and no pooling, for small images."""
    x = F.relu(conv_norm(p, "conv1", "bn1", images))
    for stage in range(1, 5):
        for i in range(2):
            block, stride = f"layer{stage}.{i}.", 2 if stage > 1 and i == 0 else 1
            y = F.relu(conv_norm(p, block + "conv1", block + "bn1", x, stride))
            y = conv_norm(p, block + "conv2", block + "bn2", y)
            if stride == 2:
                x = conv_norm(p, block + "downsample.0", block + "downsample.1", x, stride)
            x = F.relu(x + y)
    return linear(p, "fc", x.mean((2, 3)))


NETWORKS = {"mlp": mlp, "gpt": gpt, "bert": bert, "vit": vit, "resnet18": resnet18}


def read_weights(path, dtype):
    """Parameters, and running statistics, which are not trained."""
    weights = {}
    for name, value in common.read_model_weights(path).items():
        tensor = torch.from_numpy(value).to(dtype)
        if tensor.dim() == 4:
            tensor = tensor.contiguous(memory_format=torch.channels_last)
        weights[name] = tensor if ".running_" in name else torch.nn.Parameter(tensor)
    return weights


def make_optimizer(args, weights):
    if args.model == "mlp":
        return torch.optim.SGD(weights.values(), lr=args.lr)
    trained = [p for p in weights.values() if p.requires_grad]
    decayed = [p for p in trained if p.dim() >= 2]
    others = [p for p in trained if p.dim() < 2]
    return torch.optim.AdamW([{"params": decayed}, {"params": others, "weight_decay": 0}],
                             lr=args.lr, weight_decay=0.01, fused=True)


def micro_batches(args, dtype):
    """For every update of one pass over the data: its k micro-batches."""
    inputs, labels = torch.from_numpy(np.load(args.inputs)), torch.from_numpy(np.load(args.labels))
    inputs = inputs.to(dtype) if inputs.is_floating_point() else inputs.long()
    if inputs.dim() == 4:
        inputs = inputs.contiguous(memory_format=torch.channels_last)
    labels, updates = labels.long(), []
    for begin in range(0, len(labels) - args.micro * args.k + 1, args.micro * args.k):
        rows = [slice(begin + i * args.micro, begin + (i + 1) * args.micro) for i in range(args.k)]
        updates.append([(inputs[r], labels[r]) for r in rows])
    return updates


def main():
    args = common.parse_flags(__doc__, NETWORKS, ("f32", "autocast", "model"))
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
    common.print_result(torch.__version__, durations, args.warmup, total)


if __name__ == "__main__":
    main()
