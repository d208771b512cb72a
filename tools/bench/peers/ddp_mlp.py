#!/usr/bin/env python3
"""One rank of the peer for the training benchmark: 784-512-512-10 with PyTorch DDP over gloo.

The arithmetic is gaccd's: fp32, SGD without momentum, the loss is the sum over the samples of the
update divided by their global count. DDP takes the mean over ranks, so each rank divides by its
own count. The first k-1 micro-steps run under no_sync, the last one reduces.

tools/bench/run starts one process per rank, each with one thread on its own core. All data is in
memory as float tensors before the clock starts. Rank 0 prints one JSON line.
"""
import argparse
import contextlib
import json
import os
import time

for variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[variable] = "1"

import common  # noqa: E402  (after the thread counts are set)
import numpy as np  # noqa: E402
import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402
from torch.nn.parallel import DistributedDataParallel  # noqa: E402


def make_model(weights):
    model = torch.nn.Sequential()
    model.add_module("fc1", torch.nn.Linear(784, 512))
    model.add_module("relu1", torch.nn.ReLU())
    model.add_module("fc2", torch.nn.Linear(512, 512))
    model.add_module("relu2", torch.nn.ReLU())
    model.add_module("fc3", torch.nn.Linear(512, 10))
    if weights:
        arrays = common.read_safetensors(weights)
        model.load_state_dict({name: torch.from_numpy(value) for name, value in arrays.items()})
    return model


def micro_batches(features, labels, args, rank, world):
    """For every update of one pass over the data: the k micro-batches of this rank, in order."""
    target = world * args.micro * args.k
    updates = []
    for begin in range(0, len(labels) - target + 1, target):
        first = begin + rank * args.micro * args.k
        steps = []
        for step in range(args.k):
            rows = slice(first + step * args.micro, first + (step + 1) * args.micro)
            steps.append((features[rows].contiguous(), labels[rows].contiguous()))
        updates.append(steps)
    return updates


def one_update(model, optimizer, steps, samples):
    loss_sum = 0.0
    for index, (x, y) in enumerate(steps):
        last = index + 1 == len(steps)
        with contextlib.nullcontext() if last else model.no_sync():
            loss = torch.nn.functional.cross_entropy(model(x), y, reduction="sum") / samples
            loss.backward()
            loss_sum += loss.item()
    optimizer.step()
    optimizer.zero_grad(set_to_none=False)
    return loss_sum


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--features", required=True, help="NPY, float32 [samples, 784]")
    parser.add_argument("--labels", required=True, help="NPY, int64 [samples]")
    parser.add_argument("--weights", help="safetensors with the first weights")
    parser.add_argument("--micro", type=int, default=32)
    parser.add_argument("--k", type=int, default=1)
    parser.add_argument("--lr", type=float, default=0.01)
    parser.add_argument("--warmup", type=int, default=10, help="updates not counted")
    parser.add_argument("--updates", type=int, default=100, help="updates measured")
    parser.add_argument("--compile", action="store_true", help="torch.compile the model")
    args = parser.parse_args()

    rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    cores = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, {cores[rank % len(cores)]})
    torch.set_num_threads(1)
    dist.init_process_group("gloo")

    features = torch.from_numpy(np.load(args.features))
    labels = torch.from_numpy(np.load(args.labels))
    model = make_model(args.weights)
    if args.compile:
        model = torch.compile(model)
    model = DistributedDataParallel(model, gradient_as_bucket_view=True)
    optimizer = torch.optim.SGD(model.parameters(), lr=args.lr)
    updates = micro_batches(features, labels, args, rank, world)

    durations = []
    for index in range(args.warmup + args.updates):
        begin = time.perf_counter()
        loss = one_update(model, optimizer, updates[index % len(updates)], args.micro * args.k)
        durations.append(time.perf_counter() - begin)
        if index == 0:
            first_update_at = time.time()
    total = torch.tensor([loss], dtype=torch.float64)
    dist.all_reduce(total)
    if rank == 0:
        measured = sorted(durations[args.warmup :])
        median = measured[len(measured) // 2]
        line = {
            "version": torch.__version__,
            "samples_per_s": world * args.micro * args.k / median,
            "median_s": median,
            "first_update_at": first_update_at,
            "updates": args.warmup + args.updates,
            "loss": total.item() / world,
        }
        print(json.dumps(line), flush=True)
    dist.barrier()
    os._exit(0)  # the measurement is out; PyTorch's own teardown of gloo aborts now and then


if __name__ == "__main__":
    main()
