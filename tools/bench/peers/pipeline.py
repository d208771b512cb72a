#!/usr/bin/env python3
"""One rank of the peer for pipelines: the GPT of models.py in two stages by torch.distributed.pipelining
over gloo, one thread a rank. The last stage has a copy of the embedding as its output weights: what ties
them, a reduction between the stages, is left out here. An update is k micro-batches, then fused AdamW.

tools/bench/run starts both ranks. All data is in memory before the clock starts. Rank 0 prints one JSON line.
"""
import time

import common
import models  # which sets the thread counts
import torch
import torch.distributed as dist
from torch.distributed.pipelining import PipelineStage, Schedule1F1B, ScheduleGPipe

SCHEDULES = {"gpipe": ScheduleGPipe, "1f1b": Schedule1F1B}
F = torch.nn.functional


class Stage(torch.nn.Module):
    """Half of the blocks, with what comes before or after them."""

    def __init__(self, weights, args, rank):
        super().__init__()
        self.args, self.first = args, rank == 0
        half = args.layers // 2
        self.blocks = range(half) if self.first else range(half, args.layers)
        own = [f"transformer.h.{i}." for i in self.blocks]
        own += ["transformer.w"] if self.first else ["transformer.ln_f", "transformer.wte"]
        self.p = {name: value for name, value in weights.items() if name.startswith(tuple(own))}
        for name, value in self.p.items():
            self.register_parameter(name.replace(".", "/"), value)

    def forward(self, x):
        p = self.p
        if self.first:
            x = F.embedding(x, p["transformer.wte.weight"]) + p["transformer.wpe.weight"]
        for i in self.blocks:
            x = models.gpt_block(p, x, i, self.args)
        return x if self.first else models.gpt_logits(p, x)


def main():
    args = common.parse_flags(__doc__, ["gpt"], tuple(SCHEDULES))
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    stage = Stage(models.read_weights(args.weights, torch.float32), args, rank)
    optimizer = models.make_optimizer(args, stage.p)
    updates = models.micro_batches(args, torch.float32)

    def mean_loss(logits, labels):
        return F.cross_entropy(logits.flatten(0, -2), labels.flatten())

    pipeline = SCHEDULES[args.precision](
        PipelineStage(stage, rank, 2, torch.device("cpu")), args.k, loss_fn=mean_loss)
    durations, first_loss = [], torch.zeros(1)
    for index in range(args.warmup + args.updates):
        steps = updates[index % len(updates)]
        inputs, labels = (torch.cat(parts) for parts in zip(*steps))
        dist.barrier()
        begin = time.perf_counter()
        losses = []
        if rank == 0:
            pipeline.step(inputs)
        else:
            pipeline.step(target=labels, losses=losses)
        optimizer.step()
        optimizer.zero_grad()
        dist.barrier()
        durations.append(time.perf_counter() - begin)
        if index == 0 and losses:
            first_loss = torch.stack(losses).mean().detach().reshape(1)
    dist.broadcast(first_loss, 1)
    if rank == 0:
        common.print_result(torch.__version__, durations, args.warmup, first_loss.item())
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
