#!/usr/bin/env python3
"""The networks of models.py in JAX, with the same flags: one process, one thread. An update is one
jitted function, a scan over the k micro-steps and SGD or AdamW, whose weights are donated.

--precision: f32; autocast, bf16 computation with f32 weights. tools/bench/run starts it.
"""
import os
import time

os.environ["XLA_FLAGS"] = "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1"
os.environ["JAX_PLATFORMS"] = "cpu"

import common  # noqa: E402  (after the flags are set)
import jax  # noqa: E402
import jax.numpy as jnp  # noqa: E402
import numpy as np  # noqa: E402

BETAS, EPSILON, DECAY = (0.9, 0.999), 1e-8, 0.01


def linear(p, name, x):
    return x @ p[name + ".weight"].T + p[name + ".bias"]


def layer_norm(p, name, x, epsilon):
    x = x.astype(jnp.float32)
    x = x - x.mean(-1, keepdims=True)
    x = x * jax.lax.rsqrt(jnp.square(x).mean(-1, keepdims=True) + epsilon)
    weight = p[name + ".weight"]
    return x.astype(weight.dtype) * weight + p[name + ".bias"]


def attention(q, k, v, heads, causal):
    """q, k, v [B, T, heads x D]."""
    q, k, v = (part.reshape(*part.shape[:2], heads, -1) for part in (q, k, v))
    y = jax.nn.dot_product_attention(q, k, v, is_causal=causal)
    return y.reshape(*y.shape[:2], -1)


def mlp(p, features, _):
    x = jax.nn.relu(linear(p, "fc1", features))
    return linear(p, "fc3", jax.nn.relu(linear(p, "fc2", x)))


def gpt(p, tokens, args):
    x = p["transformer.wte.weight"][tokens] + p["transformer.wpe.weight"]
    for i in range(args.layers):
        block = f"transformer.h.{i}."
        y = linear(p, block + "attn.c_attn", layer_norm(p, block + "ln_1", x, 1e-5))
        y = attention(*jnp.split(y, 3, -1), args.heads, True)
        x = x + linear(p, block + "attn.c_proj", y)
        y = jax.nn.gelu(linear(p, block + "mlp.c_fc", layer_norm(p, block + "ln_2", x, 1e-5)))
        x = x + linear(p, block + "mlp.c_proj", y)
    return layer_norm(p, "transformer.ln_f", x, 1e-5) @ p["transformer.wte.weight"].T


def bert(p, tokens, args):
    embeddings = "bert.embeddings."
    x = p[embeddings + "word_embeddings.weight"][tokens]
    x = x + p[embeddings + "token_type_embeddings.weight"][0]
    x = layer_norm(p, embeddings + "LayerNorm",
                   x + p[embeddings + "position_embeddings.weight"], 1e-12)
    for i in range(args.layers):
        layer = f"bert.encoder.layer.{i}."
        parts = [linear(p, f"{layer}attention.self.{part}", x) for part in ("query", "key", "value")]
        y = linear(p, layer + "attention.output.dense", attention(*parts, args.heads, False))
        x = layer_norm(p, layer + "attention.output.LayerNorm", x + y, 1e-12)
        y = linear(p, layer + "intermediate.dense", x)
        y = linear(p, layer + "output.dense", jax.nn.gelu(y, approximate=False))
        x = layer_norm(p, layer + "output.LayerNorm", x + y, 1e-12)
    return linear(p, "classifier", jnp.tanh(linear(p, "bert.pooler.dense", x[:, 0])))


NETWORKS = {"mlp": mlp, "gpt": gpt, "bert": bert}


def micro_batches(args):
    """For every update of one pass over the data: its micro-batches [k, micro, ...]."""
    inputs, labels = np.load(args.inputs), np.load(args.labels)
    updates, target = [], args.micro * args.k
    for begin in range(0, len(labels) - target + 1, target):
        rows = slice(begin, begin + target)
        updates.append(tuple(
            jnp.asarray(part[rows].reshape(args.k, args.micro, *part.shape[1:]), dtype)
            for part, dtype in ((inputs, None), (labels, jnp.int32))))
    return updates


def make_update(args):
    network = NETWORKS[args.model]
    dtype = jnp.bfloat16 if args.precision == "autocast" else jnp.float32

    def loss_sum(weights, x, y):
        weights = {name: value.astype(dtype) for name, value in weights.items()}
        logits = network(weights, x.astype(dtype) if x.dtype == jnp.float32 else x, args)
        scores = jax.nn.log_softmax(logits.astype(jnp.float32))
        return -jnp.take_along_axis(scores, y[..., None], -1).sum()

    def adamw(p, g, m, v, t):
        m = BETAS[0] * m + (1 - BETAS[0]) * g
        v = BETAS[1] * v + (1 - BETAS[1]) * g * g
        step = m / (1 - BETAS[0] ** t) / (jnp.sqrt(v / (1 - BETAS[1] ** t)) + EPSILON)
        decay = DECAY if p.ndim == 2 else 0
        return p - args.lr * (step + decay * p), m, v

    def update(weights, state, t, xs, ys):
        def micro_step(sums, batch):
            loss, gradients = jax.value_and_grad(loss_sum)(weights, *batch)
            return jax.tree.map(jnp.add, sums, (loss, gradients)), None

        zeros = (jnp.zeros(()), jax.tree.map(jnp.zeros_like, weights))
        if args.k == 1:
            (loss, gradients), _ = micro_step(zeros, (xs[0], ys[0]))
        else:
            (loss, gradients), _ = jax.lax.scan(micro_step, zeros, (xs, ys))
        gradients = {name: value / ys.size for name, value in gradients.items()}
        if args.model == "mlp":
            weights = {name: p - args.lr * gradients[name] for name, p in weights.items()}
        else:
            new = {name: adamw(p, gradients[name], *state[name], t) for name, p in weights.items()}
            weights = {name: value[0] for name, value in new.items()}
            state = {name: value[1:] for name, value in new.items()}
        return weights, state, loss / ys.size

    return jax.jit(update, donate_argnums=(0, 1))


def main():
    args = common.parse_flags(__doc__, NETWORKS, ("f32", "autocast"))
    weights = jax.tree.map(jnp.asarray, common.read_model_weights(args.weights))
    state = {} if args.model == "mlp" else {name: (jnp.zeros_like(p), jnp.zeros_like(p))
                                            for name, p in weights.items()}
    updates, update = micro_batches(args), make_update(args)
    durations = []
    for index in range(args.warmup + args.updates):
        begin = time.perf_counter()
        weights, state, loss = update(weights, state, index + 1.0, *updates[index % len(updates)])
        loss = float(loss)
        durations.append(time.perf_counter() - begin)
    common.print_result(jax.__version__, durations, args.warmup, loss)


if __name__ == "__main__":
    main()
