"""Constants of an exported graph for another number of samples: gaccd's micro-batches have any number, and the exporter evaluates
constants for SAMPLES of them."""
from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from .export_types import SAMPLES, takes_shape_alone

if TYPE_CHECKING:
    from .export_graph import GraphBuilder

FEWEST, MOST = 13, 4099  # other numbers of samples
ELEMENTS = 1 << 22  # of the largest constant


def _counts_samples(node: Any) -> bool:
    return isinstance(node.meta.get("val"), torch.SymInt)


def _is_shaped_by_samples(node: Any) -> bool:
    """Whether the node takes the shape of a tensor of all samples."""
    return takes_shape_alone(node) and not all(isinstance(size, int) for size in node.args[0].meta["val"].shape)


def _operands(node: Any) -> list[Any]:
    shaped = [node.args[0]] if takes_shape_alone(node) else []
    return [] if _counts_samples(node) else [one for one in node.all_input_nodes if one not in shaped]


def for_other_samples(graph: GraphBuilder, output: Any) -> torch.Tensor | None:
    """The value of the constant `output` for another number of samples; None if it does not depend on the number, or is
    not computed from constants, as positions that count the tokens before padding."""
    needed, left = set(), [output]
    while left:
        node = left.pop()
        if node not in needed:
            needed.add(node)
            left += _operands(node)
    if not all(isinstance(graph.value(node), (torch.Tensor, int, float)) for node in needed):
        return None
    if not any(_counts_samples(node) or _is_shaped_by_samples(node) for node in needed):
        return None
    known = [graph.value(node) for node in needed]
    largest = max((one.numel() for one in known if isinstance(one, torch.Tensor)), default=1)
    count = max(FEWEST, min(MOST, ELEMENTS * SAMPLES // max(largest, 1)))
    values: dict[Any, Any] = {}
    for node in graph.program.graph.nodes:
        if node not in needed:
            continue
        if _counts_samples(node):
            values[node] = graph.count_at(node.meta["val"], count)
        elif node.op == "call_function":
            args: Any = torch.fx.map_arg(node.args, values.get)
            if takes_shape_alone(node):
                like: Any = node.args[0].meta["val"]
                sizes = [size if isinstance(size, int) else graph.count_at(size, count) for size in like.shape]
                args = (torch.empty(sizes, dtype=like.dtype), *args[1:])
            values[node] = node.target(*args, **torch.fx.map_arg(node.kwargs, values.get))
            if "empty" in str(node.target):
                values[node].zero_()  # as where it was folded
        else:
            values[node] = graph.value(node)
    value: torch.Tensor = values[output]
    return value


def reduced(sizes: list[Any], tensor: torch.Tensor) -> torch.Tensor | None:
    """`tensor` reduced to one index in dimensions of `sizes` that count samples; None if it differs along them."""
    for dim, size in enumerate(sizes):
        if not isinstance(size, int):
            if not torch.equal(tensor, tensor.narrow(dim, 0, 1).expand_as(tensor)):
                return None
            tensor = tensor.narrow(dim, 0, 1)
    return tensor


def equal(a: torch.Tensor, b: torch.Tensor) -> bool:
    """NaN is equal to NaN."""
    return a.shape == b.shape and bool(((a == b) | ((a != a) & (b != b))).all())
