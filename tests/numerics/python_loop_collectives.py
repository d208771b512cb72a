"""Cases of python_loop_ranks.py: the collectives of gaccd.torch, and their gradients."""
import torch
import torch.distributed as dist

import gaccd.torch
from gaccd.torch import all_gather, all_reduce_sum


def raised(kind, call, *args, **more):
    try:
        call(*args, **more)
    except kind as error:
        return str(error)
    raise AssertionError(f"no {kind.__name__}")


def finite_differences(case, rank, world):
    """dJ/dx of all_gather and all_reduce_sum, by perturbing every value on every rank, in double precision."""
    generator = torch.Generator().manual_seed(5)
    rows = [(2, 0, 3, 1, 2)[r] if world > 1 else 2 for r in range(world)]
    worst, other = 0.0, []
    for operation in ("all_gather", "all_reduce_sum"):
        sizes = rows if operation == "all_gather" else [2] * world
        starts = [torch.randn(size, 3, generator=generator, dtype=torch.float64) for size in sizes]
        factors = [torch.randn(sum(rows) if operation == "all_gather" else 2, 3, generator=generator,
                               dtype=torch.float64) for _ in range(world)]

        def loss(x, convention):
            call = all_gather if operation == "all_gather" else all_reduce_sum
            y = call(x, convention)
            factor = factors[rank] if convention == "per_rank_loss" else factors[0]
            return (factor * y.sin() * y).sum()

        def objective(x, convention):
            value = loss(x, convention).detach()
            if convention == "per_rank_loss":
                dist.all_reduce(value)
            return value.item()

        gradients = {}
        for convention in ("per_rank_loss", "replicated_loss"):
            x = starts[rank].clone().requires_grad_()
            before = x.detach().clone()
            loss(x, convention).backward()
            assert torch.equal(x.detach(), before), "the input was changed"
            gradients[convention] = x.grad
            for r in range(world):
                for i in range(starts[r].numel()):
                    values = []
                    for step in (1e-6, -1e-6):
                        moved = starts[rank].clone()
                        if r == rank:
                            moved.view(-1)[i] += step
                        values.append(objective(moved, convention))
                    if r == rank:
                        numeric = (values[0] - values[1]) / 2e-6
                        worst = max(worst, abs(numeric - x.grad.view(-1)[i].item()))
        if sizes[rank]:
            other.append((gradients["per_rank_loss"] - gradients["replicated_loss"]).abs().max().item())
    return {"worst": worst, "other": other}


def gradcheck(case, rank, world):
    """First and second derivatives by PyTorch's own check, which can perturb one rank alone."""
    x = torch.randn(3, 2, dtype=torch.float64, requires_grad=True)
    for operation in (all_gather, all_reduce_sum):
        for convention in gaccd.torch.collectives.CONVENTIONS:
            def call(x, operation=operation, convention=convention):
                return operation(x, convention) ** 3
            assert torch.autograd.gradcheck(call, x) and torch.autograd.gradgradcheck(call, x)


def second_derivatives(case, rank, world):
    """The gradient of a penalty on the gradients of all ranks, compared with one process that has the values of all."""
    def loss(y, factor=1.0):
        return factor * torch.sin(y.sum()) * y.square().sum()

    values = [torch.tensor([0.3 + r, 0.7 * r + 0.1], dtype=torch.float64) for r in range(world)]
    for operation, whole in ((all_gather, torch.cat), (all_reduce_sum, sum)):
        for convention in gaccd.torch.collectives.CONVENTIONS:
            factors = [r + 1.0 if convention == "per_rank_loss" else 1.0 for r in range(world)]
            x = values[rank].clone().requires_grad_()
            (gradient,) = torch.autograd.grad(loss(operation(x, convention), factors[rank]), x, create_graph=True)
            penalty = gradient.square().sum()
            (penalty if convention == "per_rank_loss" else all_reduce_sum(penalty, convention)).backward()
            every = [one.clone().requires_grad_() for one in values]
            losses = loss(whole(every), sum(factors) if convention == "per_rank_loss" else 1.0)
            gradients = torch.autograd.grad(losses, every, create_graph=True)
            sum(one.square().sum() for one in gradients).backward()
            torch.testing.assert_close(x.grad, every[rank].grad, msg=f"{operation.__name__} {convention}")


def gathered_rows(case, rank, world):
    """Values, types, empty results and refusals of all_gather."""
    mine = torch.arange(rank + 1) + 10 * rank
    expected = torch.cat([torch.arange(r + 1) + 10 * r for r in range(world)])
    assert torch.equal(all_gather(mine), expected)
    assert all_gather(torch.zeros(0, 4)).shape == (0, 4)
    total = all_reduce_sum(torch.full((2,), rank + 1.0))
    assert torch.equal(total, torch.full((2,), world * (world + 1) / 2))
    convention = raised(ValueError, all_gather, mine, "mean")
    number = raised(ValueError, all_gather, torch.tensor(1.0))
    if world > 1:
        group = dist.new_group([0])
        outside = all_reduce_sum(mine, group=group).tolist() if rank == 0 else raised(
            ValueError, all_reduce_sum, mine, group=group)
        assert outside == [0] if rank == 0 else "found one that is not in it" in outside, outside
    sizes = raised(ValueError, all_gather, torch.zeros(1, 2 + (rank == 1))) if world > 1 else ""
    shapes = raised(ValueError, all_gather, torch.zeros(2, 3 - (rank == 1), 2 + (rank == 1))) if world > 1 else ""
    types = raised(ValueError, all_gather, torch.zeros(1, 2).to([torch.float32, torch.float64][rank == 1])
                   ) if world > 1 else ""
    # A constant without rows on every other rank: these take part in the backward all the same.
    x = torch.ones(2, 3, requires_grad=True) if rank % 2 == 0 else torch.zeros(0, 3)
    y = all_gather(x)
    assert y.requires_grad
    (y.sum() * (rank + 1)).backward()
    assert x.grad is None if rank % 2 else torch.equal(x.grad, torch.full((2, 3), world * (world + 1) / 2))
    with torch.no_grad():
        assert not all_gather(x).requires_grad
    return {"convention": convention, "number": number, "sizes": sizes, "shapes": shapes, "types": types}


def reduced_constants(case, rank, world):
    """Only rank 0 has something that needs a gradient, as where others have no samples: they take part in the backward
    all the same, and the operation after it meets that of the other ranks. And refusals of all_reduce_sum."""
    everyone = world * (world + 1) / 2
    for convention, expected in (("per_rank_loss", everyone), ("replicated_loss", 1.0)):
        for shape in ((), (1,), (2, 3)):
            x = torch.ones(shape, requires_grad=True) if rank == 0 else torch.zeros(shape)
            own = torch.ones((), requires_grad=True)  # of each rank, so that it has a backward
            y = all_reduce_sum(x, convention)
            factor = rank + 1.0 if convention == "per_rank_loss" else 1.0
            (y.sum() * factor * own).backward()
            after = torch.full(shape, rank + 1.0)
            dist.all_reduce(after)
            assert torch.equal(after, torch.full(shape, everyone)), f"{convention}: then a sum of {after}"
            if rank == 0:
                assert torch.equal(x.grad, torch.full(shape, expected)), f"{convention}: {x.grad}"
            else:
                assert x.grad is None and not x.requires_grad
            with torch.no_grad():
                assert not all_reduce_sum(x, convention).requires_grad
    counts = all_reduce_sum(torch.tensor([rank, 1]))
    assert counts.tolist() == [everyone - world, world] and not counts.requires_grad
    if world == 1:
        return None
    return {"shapes": raised(ValueError, all_reduce_sum, torch.zeros(3, 2) if rank == 1 else torch.zeros(2, 3)),
            "numbers": raised(ValueError, all_reduce_sum, torch.zeros(1) if rank == 1 else torch.zeros(())),
            "types": raised(ValueError, all_reduce_sum, torch.zeros(2, dtype=torch.float64 if rank == 1 else None)),
            "conventions": raised(ValueError, all_reduce_sum, torch.zeros(2), gaccd.torch.collectives.CONVENTIONS[rank == 1]),
            "followed": raised(ValueError, not_followed_on_rank_1, rank)}


def not_followed_on_rank_1(rank):
    with torch.set_grad_enabled(rank != 1):
        all_reduce_sum(torch.zeros(2, requires_grad=True))
