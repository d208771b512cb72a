"""Collective operations with a gradient.

x_r: input of rank r; y_r: output of rank r; dy_r, dx_r: derivatives of the objective J by them. `convention` defines J,
as in gaccd (daemon/ops/collective/collective.h):
  "per_rank_loss"    J = sum over ranks of L_r(y_r): every rank has its own loss.
  "replicated_loss"  J = L(y): every rank computes the same loss from the same y, and it counts once.
The wrong convention silently multiplies gradients by the number of ranks, or loses the parts of other ranks.
accumulate() sums over ranks, so it needs "per_rank_loss", and a loss that all ranks compute equally must be divided by
their number; otherwise parameters after the operation, such as the scale of a contrastive loss, count once per rank.
All ranks of the group must call the same operations in the same order, also ranks without rows. Inputs are not changed.
"""

from __future__ import annotations

from typing import Any, Sequence

import torch
import torch.distributed as dist
from torch import Tensor

CONVENTIONS = ("per_rank_loss", "replicated_loss")


def _check(convention: str) -> bool:
    """Whether the loss is replicated."""
    if convention not in CONVENTIONS:
        raise ValueError(f"expected the convention {' or '.join(CONVENTIONS)}, found {convention}")
    return convention == "replicated_loss"


class _AllReduceSum(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, replicated: bool, group: Any) -> Tensor:
        ctx.replicated, ctx.group = replicated, group
        total = x.detach().clone(memory_format=torch.contiguous_format)
        if total.numel() > 0:  # gloo fails for empty tensors
            dist.all_reduce(total, group=group)
        return total

    @staticmethod
    def backward(ctx: Any, dy: Tensor) -> tuple[Tensor, None, None]:
        return _derivative(dy, ctx.replicated, ctx.group), None, None


class _Replicated(torch.autograd.Function):
    """dy of a replicated loss, which each rank takes for its own dx. So what depends on the dx of all ranks, as a penalty on
    gradients does, depends on dy in as many ways."""
    @staticmethod
    def forward(ctx: Any, dy: Tensor, group: Any) -> Tensor:
        ctx.group = group
        return dy.view_as(dy)

    @staticmethod
    def backward(ctx: Any, ddx: Tensor) -> tuple[Tensor, None]:
        return _AllReduceSum.apply(ddx, True, ctx.group), None


def _derivative(dy: Tensor, replicated: bool, group: Any) -> Tensor:
    """Of the objective by the sum over ranks of x_r."""
    result: Tensor = _Replicated.apply(dy, group) if replicated else _AllReduceSum.apply(dy, False, group)
    return result


class _AllGather(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, rows: list[int], replicated: bool, group: Any) -> Tensor:
        ctx.rows, ctx.replicated, ctx.group = rows, replicated, group
        most = max(rows)
        padded = x.new_zeros((most, *x.shape[1:]))  # backends require equal sizes
        padded[:len(x)] = x.detach()
        every = [torch.empty_like(padded) for _ in rows]
        if padded.numel() > 0:
            dist.all_gather(every, padded, group=group)
        return torch.cat([part[:count] for part, count in zip(every, rows)])

    @staticmethod
    def backward(ctx: Any, dy: Tensor) -> tuple[Tensor, None, None, None]:
        total = _derivative(dy, ctx.replicated, ctx.group)
        rank = dist.get_rank(ctx.group)
        return total.narrow(0, sum(ctx.rows[:rank]), ctx.rows[rank]), None, None, None


MOST_DIMENSIONS = 8
DTYPES = (torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.uint8, torch.int8, torch.int32, torch.int64,
          torch.bool, torch.complex64, torch.complex128)


def _agree(x: Tensor, shape: Sequence[int], what: str, replicated: bool, group: Any) -> tuple[list[int], bool]:
    """By rank: the number of rows of x; and whether x needs a gradient on one. ValueError on all ranks if x differs in type
    or in `shape`, which is that of x or of its rows, or if a rank would not participate in backward."""
    if x.dim() > MOST_DIMENSIONS or x.dtype not in DTYPES:
        raise ValueError(f"expected at most {MOST_DIMENSIONS} dimensions of a type that gloo and NCCL have, found {x.dim()} of {x.dtype}")
    world = dist.get_world_size(group)
    if world < 1:
        raise ValueError("expected a rank of the group, found one that is not in it")
    padded = [*shape, *[-1] * (MOST_DIMENSIONS - len(shape))]
    follows = torch.is_grad_enabled()
    own = torch.tensor([len(x) if x.dim() else 1, x.requires_grad and follows, follows, replicated, DTYPES.index(x.dtype), *padded],
                       device=x.device)
    every = [torch.empty_like(own) for _ in range(world)]
    dist.all_gather(every, own, group=group)
    found = [one.tolist() for one in every]

    def described(one: list[int]) -> str:
        return f"{DTYPES[one[4]]} {what} of shape {[size for size in one[5:] if size >= 0]}"
    needed = any(one[1] for one in found)
    for rank, one in enumerate(found):
        if one[4:] != found[0][4:]:
            raise ValueError(f"expected {described(found[0])}, as on rank 0, found {described(one)} on rank {rank}")
        if one[3] != found[0][3]:
            raise ValueError(f"expected the convention {CONVENTIONS[found[0][3]]}, as on rank 0, found {CONVENTIONS[one[3]]} on "
                             f"rank {rank}")
        if needed and not one[2]:
            raise ValueError("expected gradients to be followed on all ranks, as one needs them, found torch.no_grad() on rank "
                             f"{rank}")
    return [one[0] for one in found], needed


def _taking_part(x: Tensor, needs_gradient: bool) -> Tensor:
    """x, requiring a gradient if it does on another rank. Otherwise this rank would not participate in the sum over ranks
    in backward, which would then be matched with the next operation of this rank."""
    return x.detach().requires_grad_() if needs_gradient and torch.is_grad_enabled() and not x.requires_grad else x


def all_reduce_sum(x: Tensor, convention: str = "per_rank_loss", group: Any = None) -> Tensor:
    """y = sum over ranks of x_r. Gradient: dx = sum over ranks of dy_r; of a replicated loss: dx = dy.

    x must have the same type and shape on every rank. If x needs a gradient on one rank, all ranks participate in
    backward.
    """
    replicated = _check(convention)
    _, needed = _agree(x, x.shape, "values", replicated, group)
    result: Tensor = _AllReduceSum.apply(_taking_part(x, needed), replicated, group)
    return result


def all_gather(x: Tensor, convention: str = "per_rank_loss", group: Any = None) -> Tensor:
    """y = the rows of all ranks, in rank order. Gradient: dx = own rows of the sum over ranks of dy_r; for a replicated
    loss: dx = own rows of dy.

    The number of rows may differ by rank and may be 0; the type and the sizes of other dimensions must be equal. If x
    needs a gradient on one rank, all ranks participate in backward.
    """
    replicated = _check(convention)
    if x.dim() == 0:
        raise ValueError("expected a tensor with rows, found a single number")
    rows, needed = _agree(x, x.shape[1:], "rows", replicated, group)
    result: Tensor = _AllGather.apply(_taking_part(x, needed), rows, replicated, group)
    return result
