"""Products of complex values, as of rotary positions: a complex value is one of floats with a last dimension of real and imaginary parts."""

from __future__ import annotations

from typing import Any

import torch

from .export_convert import Arguments, Converter, Converted, scaled, sliced
from .export_graph import GraphBuilder
from .export_types import Complex, Node, Refused


def _view_as_complex(graph: GraphBuilder, node: Any, a: Arguments) -> Converted:
    return Complex(graph.value_name(node, a["self"]))


def _view_as_real(graph: GraphBuilder, node: Any, a: Arguments) -> Converted:
    value = graph.value(a["self"])
    if isinstance(value, Refused):
        raise value.error
    return value.name


def _part(graph: GraphBuilder, node: Any, x: Any, which: int) -> str:
    """The real (0) or imaginary (1) part, with a last dimension of 1."""
    value = graph.value(x)
    if isinstance(value, Complex):
        return sliced(graph, node, value.name, len(graph.shape(x)), which, which + 1)
    return graph.constant(node, torch.view_as_real(graph.for_all_samples(node, x))[..., which:which + 1])


def _mul(graph: GraphBuilder, node: Any, a: Arguments) -> Converted:
    """(a + bi) (c + di) = (a, b) c + (-b, a) d."""
    x, y = a["self"], a["other"]
    if not isinstance(graph.value(x), Complex):
        x, y = y, x
    if not isinstance(y, torch.fx.Node) or not y.meta["val"].is_complex() or not isinstance(graph.value(x), Complex):
        raise graph.refuse(node, "of a complex value and another, expected two complex ones")
    rank = len(graph.shape(x))
    turned = [scaled(graph, node, _part(graph, node, x, 1), -1), _part(graph, node, x, 0)]
    both = [graph.value(x).name, graph.emit(node, Node("cat", turned, {"dim": rank}))]
    products = [graph.emit(node, Node("mul", [one, _part(graph, node, y, which)], {})) for which, one in enumerate(both)]
    return Complex(graph.emit(node, Node("add", products, {})))


COMPLEX: dict[str, Converter] = {"view_as_complex": _view_as_complex, "mul": _mul}  # whose result is complex
OF_COMPLEX: dict[str, Converter] = {"view_as_real": _view_as_real}
