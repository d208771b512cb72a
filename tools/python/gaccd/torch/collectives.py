"""Collective operations with a gradient.

x_r: input of rank r; y_r: output of rank r; dy_r, dx_r: derivatives of the objective J by them. What they mean is the
argument `convention`, as in gaccd itself (daemon/ops/collective/collective.h):
  "per_rank_loss"    J = sum over ranks of L_r(y_r): every rank has a loss of its own.
  "replicated_loss"  J = L(y): every rank computes the same loss from the same y, and it counts once.
The wrong one multiplies gradients by the number of ranks, or loses the parts of the other ranks; both are silent.
accumulate() sums over ranks: with it, it is "per_rank_loss", and a loss that all ranks compute alike is divided by
their number. Otherwise parameters after the operation, as the scale of a contrastive loss, count once for each rank.
All ranks of the group call the same operations in the same order, also one without rows. Inputs are not changed.
"""

from __future__ import annotations

from typing import Any

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
        if total.numel() > 0:  # gloo fails without values
            dist.all_reduce(total, group=group)
        return total

    @staticmethod
    def backward(ctx: Any, dy: Tensor) -> tuple[Tensor, None, None]:
        return (dy if ctx.replicated else _AllReduceSum.apply(dy, False, ctx.group)), None, None


class _AllGather(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, rows: list[int], replicated: bool, group: Any) -> Tensor:
        ctx.rows, ctx.replicated, ctx.group = rows, replicated, group
        most = max(rows)
        padded = x.new_zeros((most, *x.shape[1:]))  # the backends gather equal sizes
        padded[:len(x)] = x.detach()
        every = [torch.empty_like(padded) for _ in rows]
        if padded.numel() > 0:
            dist.all_gather(every, padded, group=group)
        return torch.cat([part[:count] for part, count in zip(every, rows)])

    @staticmethod
    def backward(ctx: Any, dy: Tensor) -> tuple[Tensor, None, None, None]:
        total = dy if ctx.replicated else _AllReduceSum.apply(dy, False, ctx.group)
        rank = dist.get_rank(ctx.group)
        return total.narrow(0, sum(ctx.rows[:rank]), ctx.rows[rank]), None, None, None


MOST_DIMENSIONS = 8
DTYPES = (torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.uint8, torch.int8, torch.int16, torch.int32,
          torch.int64, torch.bool, torch.complex64, torch.complex128)


def _rows_by_rank(x: Tensor, group: Any) -> tuple[list[int], bool]:
    """And whether x needs a gradient on any rank. ValueError on all ranks where they differ in type or shape of a row."""
    if x.dim() == 0:
        raise ValueError("expected a tensor with rows, found a single number")
    if x.dim() > MOST_DIMENSIONS or x.dtype not in DTYPES:
        raise ValueError(f"expected at most {MOST_DIMENSIONS} dimensions of a plain type, found {x.dim()} of {x.dtype}")
    row = [*x.shape[1:], *[-1] * (MOST_DIMENSIONS - x.dim())]
    own = torch.tensor([len(x), x.requires_grad, DTYPES.index(x.dtype), *row], device=x.device)
    every = [torch.empty_like(own) for _ in range(dist.get_world_size(group))]
    dist.all_gather(every, own, group=group)
    found = [one.tolist() for one in every]

    def described(one: list[int]) -> str:
        return f"{DTYPES[one[2]]} rows of shape {[size for size in one[3:] if size >= 0]}"
    for rank, one in enumerate(found):
        if one[2:] != found[0][2:]:
            raise ValueError(f"expected {described(found[0])}, as on rank 0, found {described(one)} on rank {rank}")
    return [one[0] for one in found], any(one[1] for one in found)


def all_reduce_sum(x: Tensor, convention: str = "per_rank_loss", group: Any = None) -> Tensor:
    """y = sum over ranks of x_r. Gradient: dx = sum over ranks of dy_r; of a replicated loss: dx = dy.

    x has the same shape on every rank.
    """
    result: Tensor = _AllReduceSum.apply(x, _check(convention), group)
    return result


def all_gather(x: Tensor, convention: str = "per_rank_loss", group: Any = None) -> Tensor:
    """y = the rows of all ranks, in the order of the ranks. Gradient: dx = own rows of the sum over ranks of dy_r; of a
    replicated loss: dx = own rows of dy.

    The number of rows may differ by rank and may be 0; the type and the sizes of the other dimensions may not. Where x
    needs a gradient on one rank, all ranks take part in the backward.
    """
    replicated = _check(convention)
    rows, needs_gradient = _rows_by_rank(x, group)
    if needs_gradient and torch.is_grad_enabled() and not x.requires_grad:
        x = x.detach().requires_grad_()
    result: Tensor = _AllGather.apply(x, rows, replicated, group)
    return result
