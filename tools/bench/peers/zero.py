#!/usr/bin/env python3
"""One rank of the peer for sharding: the GPT or the MLP of models.py with DeepSpeed's ZeRO over gloo, one thread a rank.
--precision is the stage. An update is k micro-batches of each rank, then fused AdamW of PyTorch (MLP: SGD) on its shard.

tools/bench/run starts the ranks. All data is in memory before the clock starts. Rank 0 prints one JSON line.
"""
import os
import time

import common
import models  # which sets the thread counts
import torch

os.environ.update(DS_ACCELERATOR="cpu", LOCAL_RANK=os.environ["RANK"])
import deepspeed  # noqa: E402


class Network(torch.nn.Module):
    def __init__(self, weights, args):
        super().__init__()
        self.p, self.args = weights, args
        for name, value in weights.items():
            self.register_parameter(name.replace(".", "/"), value)

    def forward(self, x, y):
        logits = models.NETWORKS[self.args.model](self.p, x, self.args)
        return torch.nn.functional.cross_entropy(logits.flatten(0, -2), y.flatten())


def main():
    args = common.parse_flags(__doc__, ["gpt", "mlp"], ("stage1", "stage2"))
    torch.set_num_threads(1)
    deepspeed.init_distributed("gloo", verbose=False)
    rank, world = torch.distributed.get_rank(), torch.distributed.get_world_size()
    weights = models.read_weights(args.weights, torch.float32)
    network = Network(weights, args)
    engine, *_ = deepspeed.initialize(model=network, optimizer=models.make_optimizer(args, weights), config={
        "train_micro_batch_size_per_gpu": args.micro, "gradient_accumulation_steps": args.k,
        "zero_optimization": {"stage": int(args.precision[-1])}, "zero_allow_untested_optimizer": True,
        "zero_force_ds_cpu_optimizer": False, "steps_per_print": 1 << 30})
    args.k *= world
    updates = models.micro_batches(args, torch.float32)
    durations, first_loss = [], 0.0
    for index in range(args.warmup + args.updates):
        steps = updates[index % len(updates)][rank::world]
        torch.distributed.barrier()
        begin = time.perf_counter()
        total = torch.zeros(1)
        for x, y in steps:
            loss = engine(x, y)
            engine.backward(loss)
            engine.step()
            total += loss.detach() / len(updates[0])
        torch.distributed.barrier()
        durations.append(time.perf_counter() - begin)
        if index == 0:
            torch.distributed.all_reduce(total)
            first_loss = total.item()
    if rank == 0:
        common.print_result(deepspeed.__version__, durations, args.warmup, first_loss)
    torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main()
