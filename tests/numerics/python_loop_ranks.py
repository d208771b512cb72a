"""One rank of PyTorch for python_loop_test.py: python_loop_ranks.py CASES RANK WORLD FOLDER

CASES is a JSON file with a list of cases, {"do": a function of this file or of python_loop_collectives.py, ...}. Results
go to FOLDER/RANK.json, a list of the same length. A check that fails raises, and the rank exits.
"""
import json
import os
import pickle
import struct
import sys
from dataclasses import replace
from pathlib import Path
from unittest import mock

os.environ["OMP_NUM_THREADS"] = "1"

import numpy  # noqa: E402
import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402
from torch.nn.functional import cross_entropy, gelu, layer_norm, mse_loss  # noqa: E402
from torch.nn.parallel import DistributedDataParallel  # noqa: E402
from torch.utils.data import DataLoader, Dataset  # noqa: E402

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools" / "python"))

import gaccd  # noqa: E402
import gaccd.torch  # noqa: E402
from gaccd.torch import AuditError, ExactBatches, accumulate, all_gather  # noqa: E402
from python_loop_collectives import (  # noqa: E402, F401
    finite_differences, gathered_rows, gradcheck, raised, reduced_constants, second_derivatives)


NEW_TORCH = int(torch.__version__.split(".")[0]) >= 2


class Arrays(Dataset):
    """Rows of arrays, with their position."""

    def __init__(self, paths):
        self.arrays = [torch.from_numpy(numpy.load(path)) for path in paths]

    def __len__(self):
        return len(self.arrays[0])

    def __getitem__(self, i):
        return (i, *(array[i] for array in self.arrays))


class Gpt(torch.nn.Module):
    """GPT-2, with parameters as gaccd and Hugging Face call them; dots are dashes."""

    def __init__(self, tensors, heads=3):
        super().__init__()
        self.heads, self.layers = heads, 1 + max(int(n.split(".")[2]) for n in tensors if ".h." in n)
        for name, tensor in tensors.items():
            self.register_parameter(name.replace(".", "-"), torch.nn.Parameter(tensor))

    def the(self, *name):
        return getattr(self, "-".join(("transformer", *name)))

    def linear(self, x, *name):
        return x @ self.the(*name, "weight") + self.the(*name, "bias")

    def norm(self, x, *name):
        return layer_norm(x, x.shape[-1:], self.the(*name, "weight"), self.the(*name, "bias"), 1e-5)

    def attend(self, x, block):
        rows, length, width = x.shape
        q, k, v = (part.view(rows, length, self.heads, -1).transpose(1, 2)
                   for part in self.linear(x, *block, "attn", "c_attn").split(width, dim=2))
        scores = q @ k.transpose(2, 3) / (width // self.heads) ** 0.5
        later = torch.ones(length, length, dtype=torch.bool).triu(1)
        mixed = scores.masked_fill(later, float("-inf")).softmax(-1) @ v
        return self.linear(mixed.transpose(1, 2).reshape(x.shape), *block, "attn", "c_proj")

    def forward(self, tokens):
        tokens = tokens.long()
        x = self.the("wte", "weight")[tokens] + self.the("wpe", "weight")[:tokens.shape[1]]
        for layer in range(self.layers):
            block = ("h", str(layer))
            x = x + self.attend(self.norm(x, *block, "ln_1"), block)
            hidden = gelu(self.linear(self.norm(x, *block, "ln_2"), *block, "mlp", "c_fc"), approximate="tanh")
            x = x + self.linear(hidden, *block, "mlp", "c_proj")
        return self.norm(x, "ln_f") @ self.the("wte", "weight").T


def read_safetensors(path):
    content = Path(path).read_bytes()
    (size,) = struct.unpack_from("<Q", content)
    tensors = {}
    for name, tensor in json.loads(content[8:8 + size]).items():
        if name != "__metadata__":
            begin, end = (8 + size + offset for offset in tensor["data_offsets"])
            values = numpy.frombuffer(content[begin:end], dtype="<f4").reshape(tensor["shape"])
            tensors[name] = torch.from_numpy(values.copy())
    return tensors


def make_model(weights):
    tensors = read_safetensors(weights)
    if any(name.startswith("transformer") for name in tensors):
        return Gpt(tensors)
    model = torch.nn.Sequential()
    for name in dict.fromkeys(name.split(".")[0] for name in tensors):
        rows, columns = tensors[f"{name}.weight"].shape
        if len(model):
            model.add_module(f"relu_{name}", torch.nn.ReLU())
        model.add_module(name, torch.nn.Linear(columns, rows))
    model.load_state_dict(tensors)
    return model


def losses_of(case, model, batch):
    """(losses, weights) of a micro-batch, for each sample or token."""
    x, y, *weights = batch
    if case["loss"] == "mse":
        return mse_loss(model(x), y, reduction="none").mean(1), None
    if case["loss"] == "labels":
        return cross_entropy(model(x), y, reduction="none"), (weights or [None])[0]
    logits = model(x)  # of tokens, of which -1 does not count
    losses = cross_entropy(logits.flatten(0, 1), y.long().flatten(), reduction="none", ignore_index=-1)
    return losses.view(y.shape), weights[0] * (y != -1)


class Training:
    """A case of the job of the test, and its loop, with what a variant does wrong in it."""

    def __init__(self, case, rank, world):
        self.case, self.rank, self.world = case, rank, world
        other = case.get("variant") if rank == world - 1 else None
        plan = gaccd.plan(nodes=1, gpus_per_node=world, micro_batch=case["micro"],
                          target=case["target"] + (other == "another batch"), gaccd=case["gaccd"])
        data = Arrays(case["data"])
        self.batches = ExactBatches(data, plan, rank, case["seed"] + (other == "another seed"), epochs=case["epochs"],
                                    last_cycle=case["last_cycle"], shuffle=case["shuffle"])
        self.loader = DataLoader(data, batch_sampler=self.batches, num_workers=case.get("workers", 0))
        self.model = DistributedDataParallel(make_model(case["weights"]),
                                             gradient_as_bucket_view=case.get("bucket_view", False))
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=case["lr"], momentum=case["momentum"])
        self.reductions = 0
        self.model.register_comm_hook(None, self.reduce)

    def reduce(self, _, bucket):
        """DDP's own reduction, counted."""
        self.reductions += 1
        averaged = dist.all_reduce(bucket.buffer().div_(self.world), async_op=True).get_future()
        return averaged.then(lambda done: done.value()[0])

    def load(self, path):
        saved = torch.load(path)
        self.model.module.load_state_dict(saved["model"])
        self.optimizer.load_state_dict(saved["optimizer"])
        self.batches.load_state_dict(saved["batches"])

    def save(self, path):
        torch.save({"model": self.model.module.state_dict(), "optimizer": self.optimizer.state_dict(),
                    "batches": self.batches.state_dict()}, path)

    def backward(self, window, batch, first):
        variant, bad = self.case.get("variant"), self.rank == self.world - 1
        if variant == "lost micro-batch" and bad and first:
            return
        if variant == "backward in halves" and bad:
            halves = [[part[half] for part in batch] for half in (slice(0, 1), slice(1, None))]
            for losses, _ in [losses_of(self.case, self.model, half) for half in halves]:
                window.backward(losses)
            return
        losses, weights = losses_of(self.case, self.model, batch)
        if variant == "backward before" and bad and first:
            sum(parameter.square().sum() for parameter in self.model.module.parameters()).backward()
        if variant == "mean of means":
            window.backward(losses.mean(), samples=len(losses))
        elif variant == "sums with counts":
            weights = torch.ones_like(losses) if weights is None else weights
            window.backward((losses * weights).sum(), samples=len(losses), count=weights.sum())
        elif variant == "weights on one rank only" and bad:
            window.backward(losses, torch.ones_like(losses))
        elif variant == "errors that cancel" and first and self.rank > 0:
            window.backward(losses.sum(), samples=len(losses) + (-1 if bad else 1))
        elif variant == "samples counted twice" and bad:
            window.backward(losses.sum(), samples=2 * len(losses))
        else:
            window.backward(losses, weights)
        if variant == "zero_grad in between" and bad and first:
            self.optimizer.zero_grad()
        if variant == "step in the loop" and bad and first:
            self.optimizer.step()
        if variant == "reduced again" and first:
            for parameter in self.model.parameters():
                dist.all_reduce(parameter.grad)

    def run(self):
        found = []
        for update in self.batches.updates(self.loader):
            if update.number > self.case.get("stop_after", update.updates):
                break
            self.reductions, taken = 0, []
            if self.case.get("variant") == "an update apart" and self.rank == self.world - 1 and update.number == 1:
                update.complete()
                continue
            with accumulate(self.model, update) as window:
                if self.case.get("variant") == "a rank that skips" and self.rank == self.world - 1:
                    update = None
                for step, (indices, *batch) in enumerate(window if update else ()):
                    taken.append(indices.tolist())
                    self.backward(window, batch, step == 0)
                if self.case.get("variant") == "step inside" and self.rank == self.world - 1:
                    self.optimizer.step()
            assert self.reductions == 1, f"{self.reductions} reductions in an update"
            norm = torch.stack([p.grad.norm() for p in self.model.parameters()]).norm().item()
            self.optimizer.step()
            self.optimizer.zero_grad()
            found.append({"samples": taken, "loss": window.loss, "grad_norm": norm})
        return found


def train(case, rank, world):
    training = Training(case, rank, world)
    if "load" in case:
        training.load(case["load"])
    before = [p.detach().clone() for p in training.model.parameters()]
    try:
        updates = training.run()
    except AuditError as error:
        same = all(torch.equal(a, b) for a, b in zip(before, training.model.parameters()))
        assert same or "step in" in case["variant"], "the optimiser stepped"
        assert str(pickle.loads(pickle.dumps(error))) == str(error)
        return {"error": str(error), "expected": error.expected, "found": error.found}
    if "save" in case and rank == 0:
        training.save(case["save"])
    weights = {name.replace("-", "."): p.flatten().tolist()
               for name, p in training.model.module.named_parameters()}
    return {"updates": updates, "weights": weights}


def train_with_wrong_factor(case, rank, world):
    """As if DDP summed: every rank counts 1 / world."""
    scaled = mock.patch.object(gaccd.torch.Accumulation, "backward", autospec=True,
                               side_effect=lambda self, *args, own=gaccd.torch.Accumulation.backward, **more:
                               (setattr(self, "_world", 1), own(self, *args, **more), setattr(self, "_world", world)))
    with scaled:
        return train(case, rank, world)


class Branches(torch.nn.Module):
    """A buffer, a parameter that only some samples use, and one that none uses."""

    def __init__(self, order=("always", "sometimes", "never")):
        super().__init__()
        torch.manual_seed(1)
        self.register_buffer("steps", torch.zeros(1))
        for name in order:
            setattr(self, name, torch.nn.Linear(2, 1))

    def forward(self, x):
        y = self.always(x)
        return y + self.sometimes(x) if (x > 0).any() else y


def unused_parameters(case, rank, world):
    """Ranks without samples, in a model with find_unused_parameters: the gradients of one big batch."""
    orders = ("always", "sometimes", "never"), ("sometimes", "never", "always"), ("never", "always", "sometimes")
    few = [train_branches(case, rank, order, nodes=1, gpus_per_node=world, micro_batch=1, target=2)
           for order in orders]
    slow = train_branches(case, rank, orders[2], nodes=world, gpus_per_node=1, micro_batch=1, target=10,
                          speed="a:1,b:0.5,c:0.01")
    # In update 2 only micro-batches before the last one use `sometimes`.
    return {"updates": [*few, slow]}


def train_branches(case, rank, order, **asked):
    torch.manual_seed(2)
    x = torch.randn(40, 2)
    plan = gaccd.plan(**asked, gaccd=case["gaccd"])
    batches = ExactBatches(40, plan, rank, seed=3)
    model = DistributedDataParallel(Branches(order), find_unused_parameters=True)
    whole = Branches(order)
    for update in batches.updates([torch.stack([x[i] for i in one]) for one in batches]):
        with accumulate(model, update) as window:
            for batch in window:
                window.backward(model(batch)[:, 0] ** 2)
        taken = [None] * update.world
        dist.all_gather_object(taken, [i for one in update.micro_batches for i in one])
        whole.zero_grad(set_to_none=True)
        sum(whole(x[i:i + 1])[0, 0] ** 2 / update.samples for one in taken for i in one).backward()
        for (name, p), q in zip(model.module.named_parameters(), whole.parameters()):
            if q.grad is None:
                assert p.grad is None, name
            else:
                torch.testing.assert_close(p.grad, q.grad, msg=name)
    return batches.done


class Contrastive(torch.nn.Module):
    """Rows of two kinds, each of which finds its partner among all rows of the update; the scale is learned."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(1)
        self.a, self.b = torch.nn.Linear(4, 3), torch.nn.Linear(2, 3)
        self.scale = torch.nn.Parameter(torch.tensor(2.0))

    def forward(self, x, y):
        return self.scale, torch.nn.functional.normalize(self.a(x)), torch.nn.functional.normalize(self.b(y))

    @staticmethod
    def losses(scale, a, b):
        logits, same = scale * a @ b.T, torch.arange(len(a))
        return (cross_entropy(logits, same, reduction="none") + cross_entropy(logits.T, same, reduction="none")) / 2


def contrastive(case, rank, world):
    """The gradient of one big batch over ragged ranks, of representations and scale; it is not otherwise."""
    torch.manual_seed(6)
    x, y = torch.randn(40, 4), torch.randn(40, 2)
    plan = gaccd.plan(nodes=1, gpus_per_node=world, micro_batch=5, target=11, gaccd=case["gaccd"])
    right = {}
    for convention, parts in (("per_rank_loss", world), ("replicated_loss", 1)):
        batches = ExactBatches(33, plan, rank, seed=3)
        model, whole = DistributedDataParallel(Contrastive()), Contrastive()
        right[convention] = True
        for update in batches.updates([torch.tensor(one) for one in batches]):
            with accumulate(model, update) as window:
                for rows in window:
                    scale, *both = model(x[rows], y[rows])
                    a, b = (all_gather(one, convention) for one in both)
                    window.backward(Contrastive.losses(scale, a, b).sum() / parts, samples=len(rows))
            rows = all_gather(torch.tensor(update.micro_batches[0]))
            whole.zero_grad()
            loss = Contrastive.losses(*whole(x[rows], y[rows])).mean()
            loss.backward()
            for p, q in zip(model.module.parameters(), whole.parameters()):
                right[convention] &= torch.allclose(p.grad, q.grad, rtol=1e-5, atol=1e-6)
            right[convention] &= abs(window.loss - loss.item()) < 1e-6
    return right


class Scaler:
    """torch.cuda.amp.GradScaler needs a GPU."""

    @staticmethod
    def scale(loss):
        return 8 * loss


def scaler(case, rank, world):
    """The gradient is scaled, the loss is not."""
    plan = gaccd.plan(nodes=1, gpus_per_node=world, micro_batch=1, target=6, gaccd=case["gaccd"])
    batches = ExactBatches(6, plan, rank)
    model = DistributedDataParallel(torch.nn.Linear(1, 1, bias=False))
    torch.nn.init.ones_(model.module.weight)
    for update in batches.updates([torch.tensor(one).float() for one in batches]):
        with accumulate(model, update) as window:
            for x in window:
                window.backward(model(x[:, None])[:, 0], scaler=Scaler)
        return [model.module.weight.grad.item(), window.loss]


class FewSamples(torch.nn.Module):
    """A parameter, complex where DDP over gloo can reduce it, and a buffer that every forward changes."""

    def __init__(self):
        super().__init__()
        self.factor = torch.nn.Parameter(torch.tensor([2.0 + 1.0j] if NEW_TORCH else [2.0]))
        self.register_buffer("seen", torch.zeros(()))

    def forward(self, x):
        if self.training:
            self.seen += len(x)
        return {"value": (self.factor * x).abs() ** 2}


def few_samples(case, rank, world):
    """A rank without samples does not call hooks of the model, and has the buffers of a rank with some; two models."""
    def model():
        one = DistributedDataParallel(FewSamples())
        one.register_forward_hook(lambda module, inputs, output: output["value"])
        return one

    plan = gaccd.plan(nodes=1, gpus_per_node=world, micro_batch=1, target=2, gaccd=case["gaccd"])
    batches, pair = ExactBatches(6, plan, rank), [model(), model()]
    for update in batches.updates(torch.tensor(one).float() for one in batches):
        update = replace(update, batches=list(update.batches))
        for one in pair:
            with accumulate(one, update) as window:
                for x in window:
                    window.backward(one(x))
    assert len(update.micro_batches) == (rank > 0), update.micro_batches
    return {"seen": [one.module.seen.item() for one in pair], "factors": [[abs(one.module.factor.grad.item()), window.loss]
                                                                      for one in pair]}


class Silent(torch.optim.SGD):
    """As fused optimizers: the versions of the parameters remain."""

    def step(self):
        for parameter in self.param_groups[0]["params"]:
            parameter.data += 1


def silent_step(case, rank, world):
    """Whether the audit finds a step of an optimizer that leaves the versions of the parameters, in the loop or after
    it, and not that of another model."""
    plan = gaccd.plan(nodes=1, gpus_per_node=world, micro_batch=1, target=2 * world, gaccd=case["gaccd"])
    found = []
    for own, after in ((True, False), (True, True), (False, True)):
        batches, model = ExactBatches(2 * world, plan, rank), torch.nn.Linear(1, 1)
        optimizer = Silent((model if own else torch.nn.Linear(1, 1)).parameters(), lr=1)
        try:
            with accumulate(DistributedDataParallel(model), next(batches.updates(batches))) as window:
                for x in window:
                    window.backward(window._model(torch.tensor(x)[:, None].float())[:, 0])
                    if not after:
                        optimizer.step()
                if after:
                    optimizer.step()
            found.append(None)
        except AuditError as error:
            found.append(str(error))
        Silent(model.parameters(), lr=1).step()
        assert window._disturbed == (own and NEW_TORCH), "a step after the update is recorded"
    return found if NEW_TORCH else None  # earlier ones have no hook for it


def refusals(case, rank, world):
    """What is refused at once, with what was expected and found."""
    def plan(world, target):
        return gaccd.plan(nodes=1, gpus_per_node=world, micro_batch=4, target=target, gaccd=case["gaccd"])

    model = DistributedDataParallel(torch.nn.Linear(1, 1))
    still = DistributedDataParallel(torch.nn.Linear(1, 1), static_graph=True)
    slow = gaccd.plan(nodes=world, gpus_per_node=1, micro_batch=4, target=16, speed="a:0.5", gaccd=case["gaccd"])
    batches = ExactBatches(16, plan(world, 16), rank)
    window = accumulate(model, batches.at(1))
    two = torch.ones(2, 1)
    sparse = DistributedDataParallel(torch.nn.Embedding(2, 1, sparse=True))

    still_sparse = DistributedDataParallel(torch.nn.Sequential(
        torch.nn.Embedding(2, 1, sparse=True).requires_grad_(False), torch.nn.Linear(1, 1)))
    accumulate(still_sparse, batches.at(1))
    frozen = DistributedDataParallel(torch.nn.Linear(1, 1)).requires_grad_(False)
    synchronized = DistributedDataParallel(torch.nn.Linear(1, 1))
    synchronized.module.norm = torch.nn.SyncBatchNorm(1)  # DDP refuses it for CPUs
    accumulate(synchronized, next(batches.updates(batches)))
    tail = ExactBatches(18, plan(world, 16), rank)
    first_of_two = next(tail.updates(tail))
    limited = torch.nn.Embedding(2, 1, max_norm=1.0)
    alone = ExactBatches(2, plan(1, 2), 0)
    with accumulate(limited, next(alone.updates([torch.arange(2)]))) as on_one_rank:
        for x in on_one_rank:
            on_one_rank.backward(limited(x)[:, 0])

    def without_weights():
        update = next(batches.updates(batches))
        with accumulate(model, update) as window:
            for indices in window:
                losses = model(torch.ones(len(indices), 1))[:, 0]
                window.backward(losses, torch.zeros_like(losses))

    return [raised(ValueError, window.backward, two.mean()), raised(ValueError, window.backward, two),
            raised(ValueError, window.backward, two, torch.ones(3, 1)),
            raised(ValueError, window.backward, two[:, 0], samples=3),
            raised(ValueError, window.backward, two, two, count=2),
            raised(ValueError, window.backward, two, torch.ones(2, 1, requires_grad=True)),
            raised(ValueError, accumulate, sparse, batches.at(1)),
            raised(ValueError, next, batches.updates(DataLoader(torch.ones(16, 1), batch_size=4))),
            raised(ValueError, next, batches.updates(DataLoader(torch.ones(17, 1), batch_sampler=batches))),
            raised(ValueError, accumulate, model, ExactBatches(16, plan(world + 1, 16), rank).at(1)),
            raised(ValueError, accumulate, model, ExactBatches(16, plan(world, 16), (rank + 1) % world).at(1)),
            raised(ValueError, accumulate, still, ExactBatches(16, plan(world, 2), rank).at(1)),
            raised(ValueError, accumulate, still, ExactBatches(16, slow, rank).at(1)),
            raised(ValueError, gaccd.plan, nodes=1, gpus_per_node=1, micro_batch=1, target=1, speed="measured"),
            raised(ValueError, without_weights),
            raised(ValueError, window.backward, two.sum(), torch.ones(()), samples=2),
            raised(ValueError, window.backward, two.sum(), samples=2, count=torch.ones(1)),
            raised(ValueError, window.backward, two[:, 0]),
            raised(ValueError, accumulate, frozen, batches.at(1)),
            raised(ValueError, accumulate, synchronized, first_of_two),
            raised(ValueError, accumulate, still, first_of_two),
            raised(ValueError, accumulate, DistributedDataParallel(limited), batches.at(1))]


def not_reduced(case, rank, world):
    """What DDP does not reduce is found before the optimiser steps: each rank would train a model of its own."""
    def audit(call, thaw, kind=torch.nn.Sequential):
        model = DistributedDataParallel(kind(torch.nn.Linear(1, 1), torch.nn.Linear(1, 1).requires_grad_(not thaw)))
        model.module.requires_grad_()
        batches = ExactBatches(6, gaccd.plan(nodes=1, gpus_per_node=world, micro_batch=1, target=6,
                                             gaccd=case["gaccd"]), rank)
        with accumulate(model, next(batches.updates([torch.tensor(one).float() for one in batches]))) as window:
            for step, x in enumerate(window):
                window.backward(call(model, step)(x[:, None])[:, 0] ** 2)
        return batches.done

    def inside(model, step):
        return model.module

    def whole(model, step):
        return model

    assert audit(lambda model, step: model if step else model.module, False) == 1  # the last one reduces
    class First(torch.nn.Sequential):
        def forward(self, x):
            return self[0](x)

    return [raised(AuditError, audit, inside, False), raised(AuditError, audit, whole, True),
            raised(ValueError, audit, whole, False, First)]


def main():
    cases, rank, world, folder = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), Path(sys.argv[4])
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/rendezvous", rank=rank, world_size=world)
    results = [globals()[case["do"]](case, rank, world) for case in json.loads(Path(cases).read_text())]
    (folder / f"{rank}.json").write_text(json.dumps(results))
    dist.barrier()
    os._exit(0)  # PyTorch's own teardown of gloo aborts now and then


if __name__ == "__main__":
    main()
