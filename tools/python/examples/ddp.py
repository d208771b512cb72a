"""A loop of PyTorch with exact updates: torchrun --nproc_per_node=3 tools/python/examples/ddp.py

What differs from an ordinary loop: daemon/docs/pytorch.md. `gaccd` must be on PATH, tools/python on PYTHONPATH.
"""
import torch
import torch.distributed as dist
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset

import gaccd
from gaccd.torch import ExactBatches, accumulate


def main():
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(1)
    inputs = torch.randn(1000, 10)
    data = TensorDataset(inputs, (inputs[:, 0] * inputs[:, 1] > 0).long())
    layers = torch.nn.Sequential(torch.nn.Linear(10, 32), torch.nn.ReLU(), torch.nn.Linear(32, 2))
    model = DistributedDataParallel(layers)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)

    plan = gaccd.plan(nodes=1, gpus_per_node=world, micro_batch=8, target_batch=96)
    batches = ExactBatches(data, plan, rank, seed=1, epochs=5)
    loader = DataLoader(data, batch_sampler=batches)
    for update in batches.updates(loader):
        with accumulate(model, update) as window:
            for features, labels in window:
                window.backward(cross_entropy(model(features), labels, reduction="none"))
        optimizer.step()
        optimizer.zero_grad()
        if rank == 0 and update.epoch_end:
            print(f"epoch {update.epoch}: loss {window.loss:.6f} over the last {update.samples} samples")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
