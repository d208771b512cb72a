"""Helpers shared by the converters of export_ops.py, export_layout.py, export_masks.py and so on."""

from __future__ import annotations

import math
from typing import Any, Callable

import torch

from .export_graph import GraphBuilder
from .export_types import HIDDEN, Node

Converted = Any  # a Node, or the value of the fx node: a name, a constant, or a list of them
Converter = Callable[[GraphBuilder, Any, "Arguments"], Converted]


class Arguments:
    """The arguments of a call by the names in the schema of the op, including defaults."""

    def __init__(self, node: Any) -> None:
        self.node = node
        schema = node.target._schema.arguments
        self._values = {one.name: one.default_value for one in schema if one.has_default_value()}
        self._values.update(zip((one.name for one in schema), node.args))
        self._values.update(node.kwargs)

    def __contains__(self, name: str) -> bool:
        return name in self._values

    def __getitem__(self, name: str) -> Any:
        return self._values[name]


def input_names(graph: GraphBuilder, node: Any, *arguments: Any) -> list[str]:
    return ["" if one is None else graph.value_name(node, one) for one in arguments]


def per_dimension(value: Any, count: int, empty: Any = None) -> list[int]:
    """One number for each of `count` dimensions, of a number or a list; `empty` in place of an empty list."""
    values = [value] if isinstance(value, int) else list(value) or per_dimension(empty, count)
    return values * count if len(values) == 1 else values


def constant_number(graph: GraphBuilder, argument: Any) -> float | None:
    """The argument as a number if it is a constant number or tensor of one value, otherwise None."""
    value = graph.value(argument)
    if isinstance(value, torch.Tensor) and value.numel() == 1:
        return float(graph.for_all_samples(argument, argument))
    return float(value) if isinstance(value, (int, float)) else None


def bounded(number: float) -> float:
    """Limits a number so that sums and products of mask values, such as torch.finfo(torch.float32).min, are finite."""
    return min(max(float(number), HIDDEN), -HIDDEN)


def has_infinity(graph: GraphBuilder, x: Any) -> bool:
    """Whether -inf is among the constants that x is computed from."""
    values = [graph.value(one) for call in graph.required_calls(x) for one in (*call.args, *call.kwargs.values())
              if isinstance(one, (torch.fx.Node, float))]
    return any(bool((one == -math.inf).any()) if isinstance(one, torch.Tensor) else one == -math.inf for one in values)


def scaled(graph: GraphBuilder, node: Any, x: str, factor: float) -> str:
    return x if factor == 1 else graph.emit(node, Node("scale", [x], {"factor": bounded(factor)}))


def shifted(graph: GraphBuilder, node: Any, x: str, amount: float) -> str:
    return x if amount == 0 else graph.emit(node, Node("shift", [x], {"amount": bounded(amount)}))


def inverted(graph: GraphBuilder, node: Any, mask: str) -> str:
    """1 - mask."""
    return shifted(graph, node, scaled(graph, node, mask, -1), 1)


def viewed(graph: GraphBuilder, node: Any, x: str, sizes: list[int]) -> str:
    return graph.keep_ids(graph.emit(node, Node("view", [x], {"size": sizes})), x)


def repeated(graph: GraphBuilder, node: Any, x: str, sizes: list[int]) -> str:
    return graph.emit(node, Node("repeat", [x], {"size": sizes}))


def with_samples(graph: GraphBuilder, node: Any, x: Any, name: str) -> str:
    """The name of x, repeated for each sample if x has one row for all samples."""
    sizes = graph.sizes(node, graph.shape(x))
    return name if min(sizes, default=0) >= 0 or x in graph.input_dependent else repeated(graph, node, name, sizes)


def rows_name(graph: GraphBuilder, node: Any, x: Any) -> str:
    """The name of x, which is not broadcast over samples: one row for all of them is repeated."""
    return with_samples(graph, node, x, graph.value_name(node, x))


def sliced(graph: GraphBuilder, node: Any, x: str, dim: int, start: int, end: int, keepdim: bool = True) -> str:
    made = Node("slice", [x], {"dim": dim, "start": start, "end": end, "keepdim": keepdim})
    return graph.keep_ids(graph.emit(node, made), x)


def permuted(graph: GraphBuilder, node: Any, x: str, dims: list[int]) -> str:
    return x if dims == sorted(dims) else graph.keep_ids(graph.emit(node, Node("permute", [x], {"dims": dims})), x)


def limited(graph: GraphBuilder, node: Any, x: str, limit: str, sign: int) -> str:
    """max (sign 1) or min (-1) of x and the limit, broadcast; where they are equal the gradient is that of x."""
    distance = graph.emit(node, Node("add", [x, scaled(graph, node, limit, -1)], {}))
    beyond = graph.emit(node, Node("less", [scaled(graph, node, distance, sign)], {"than": 0.0}))
    parts = [graph.emit(node, Node("select", [value, where], {})) for value, where in ((x, inverted(graph, node, beyond)), (limit, beyond))]
    return graph.emit(node, Node("add", parts, {}))


def full(graph: GraphBuilder, node: Any, value: float, sizes: list[int]) -> str:
    return repeated(graph, node, graph.constant(node, torch.full((1,) * len(sizes), float(value))), sizes)
