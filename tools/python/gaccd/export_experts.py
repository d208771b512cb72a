"""Experts of transformers, which choose the tokens of each expert or the weights of each token: exported as products of all tokens."""

from __future__ import annotations

import contextlib
import functools
from typing import Any, Iterator

import torch

SIGNS = ("has_gate", "has_bias", "is_transposed", "num_experts", "down_proj")  # set by transformers.integrations.moe


def _are_experts(module: torch.nn.Module) -> bool:
    return all(hasattr(module, name) for name in SIGNS) and not getattr(module, "has_post_expert_norm", False)


def _implementation(module: torch.nn.Module) -> Any:
    return getattr(getattr(module, "config", None), "_experts_implementation", None)


@contextlib.contextmanager
def all_experts(model: torch.nn.Module) -> Iterator[None]:
    """Lets each expert compute all tokens, unless the config has experts_implementation="batched_mm"."""
    replaced = [module for module in model.modules() if _are_experts(module) and _implementation(module) != "batched_mm"]
    for module in replaced:
        module.forward = functools.partial(_of_all_tokens, module)
    try:
        yield
    finally:
        for module in replaced:
            del module.forward


def _of_all_tokens(experts: Any, x: torch.Tensor, top_k_index: torch.Tensor, top_k_weights: torch.Tensor) -> torch.Tensor:
    """The sum of all experts times their weights, which are 0 where they are not chosen; in memory are their inner values."""
    chosen = top_k_index[..., None] == torch.arange(experts.num_experts, device=x.device)
    weights = (chosen * top_k_weights[..., None]).sum(-2)
    matrix = experts.gate_up_proj if experts.has_gate else experts.up_proj
    matrix = matrix.transpose(1, 2) if experts.is_transposed else matrix
    y = torch.nn.functional.linear(x, matrix.flatten(0, 1)).unflatten(-1, matrix.shape[:2])
    if experts.has_bias:
        y = y + (experts.gate_up_proj_bias if experts.has_gate else experts.up_proj_bias)
    y = experts._apply_gate(y) if experts.has_gate else experts.act_fn(y)
    matrix = experts.down_proj if experts.is_transposed else experts.down_proj.transpose(1, 2)
    y = (y * weights[..., None]).flatten(-2) @ matrix.flatten(0, 1)
    return y + weights @ experts.down_proj_bias if experts.has_bias else y


def has_other_experts(model: torch.nn.Module) -> bool:
    """Whether experts remain as they are, probably in a loop over those that a token chooses."""
    return any(type(module).__name__.endswith("Experts") and not _are_experts(module) for module in model.modules())


def experts_advice(model: torch.nn.Module) -> str:
    """Advice for other mixture-of-experts models of transformers, whose loop over experts or sorted product cannot be exported."""
    configs = [config for module in model.modules() if (config := getattr(module, "config", None)) is not None
               and any(getattr(config, count, None) for count in ("num_experts", "num_local_experts", "n_routed_experts"))]
    chosen = {getattr(config, "_experts_implementation", None) for config in configs}
    offered = [module for module in model.modules() if hasattr(module, "is_transposed")]  # others ignore the config
    if not chosen & {"eager", "grouped_mm"} or not offered or any(_are_experts(module) for module in offered):
        return ""
    return ("; the experts of this model may be the reason: experts_implementation='batched_mm' in its config selects their weights for "
            "each token, with the memory of that")
