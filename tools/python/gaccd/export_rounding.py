"""Rounding, and divisions that round: without gradients, but for the remainder's of the dividend."""

from __future__ import annotations

import math
import operator
from typing import Any

import torch

from .export_convert import Arguments, Converter, Converted, constant_number, inverted, scaled, shifted
from .export_graph import GraphBuilder
from .export_types import Node, SampleMask, Uniform, is_discrete


# Of whose results the last digit is that of a value.
FOLLOWED = ("add", "sub", "rsub", "mul", "div", "neg", "abs", "clamp", "clamp_min", "clamp_max", "relu", "relu6", "hardtanh", "where", "maximum", "minimum",
            "sum", "mean", "cumsum", "max", "min", "amax", "amin", "topk", "sort", "getitem", "view", "_unsafe_view", "reshape", "flatten", "unsqueeze", "squeeze",
            "permute", "expand", "repeat", "flip", "clone", "contiguous", "detach", "alias", "copy", "cat", "stack", "split_with_sizes", "unbind", "select",
            "slice", "select_scatter", "slice_scatter", "scatter", "index", "index_select", "gather", "diagonal", "unfold", "constant_pad_nd")
PART_DIGITS = 8  # of a divisor: times a count of 16 digits they have 24, those of float32
ROUNDS = ("floor", "floor_divide", "ceil", "trunc", "round", "frac", "remainder", "fmod")


def rounded_later(node: Any) -> bool:
    """Whether a comparison, a rounding or a conversion to integers follows, for which the last digit may decide."""
    found, seen = [node], {node}
    for one in found:
        for user in one.users:
            name = "getitem" if user.target is operator.getitem else str(user.target).removeprefix("aten.").partition(".")[0]
            if name in ROUNDS or user.kwargs.get("rounding_mode") or is_discrete(user):
                return True
            if name in FOLLOWED and user not in seen:
                seen.add(user)
                found.append(user)
    return False


def divided_by(graph: GraphBuilder, node: Any, x: str, number: float) -> str:
    """x / number. A product with 1 / number has another last digit: 41 times 1 / 41 is below 1."""
    return graph.emit(node, Node("div", [x, graph.constant(node, torch.tensor([float(number)]))], {}))


def _add(graph: GraphBuilder, node: Any, x: str, y: str) -> str:
    return graph.emit(node, Node("add", [x, y], {}))


def _subtract(graph: GraphBuilder, node: Any, x: str, y: str) -> str:
    return _add(graph, node, x, scaled(graph, node, y, -1))


def _less(graph: GraphBuilder, node: Any, x: str, than: float) -> str:
    return graph.emit(node, Node("less", [x], {"than": than}))


def _down(graph: GraphBuilder, node: Any, x: str) -> str:
    return graph.emit(node, Node("floor", [x], {}))


def _up(graph: GraphBuilder, node: Any, x: str) -> str:
    return scaled(graph, node, _down(graph, node, scaled(graph, node, x, -1)), -1)


def to_zero(graph: GraphBuilder, node: Any, x: str) -> str:
    """floor(max(x, 0)) - floor(max(-x, 0))."""
    above, below = (graph.emit(node, Node("relu", [scaled(graph, node, x, sign)], {})) for sign in (1, -1))
    return _subtract(graph, node, _down(graph, node, above), _down(graph, node, below))


def nonzero(graph: GraphBuilder, node: Any, x: str) -> str:
    return inverted(graph, node, graph.emit(node, Node("equal", [x], {"to": 0.0})))


def of_type(graph: GraphBuilder, node: Any, x: Any, after: torch.dtype) -> str:
    """The value of x converted to another type."""
    before = x.meta["val"].dtype
    if before != torch.bool and after == torch.bool:
        return nonzero(graph, node, graph.value_name(node, x))
    if before == after or (not before.is_floating_point and not after.is_floating_point):
        return graph.raw_value_name(node, x)
    if not before.is_floating_point and after == torch.float32:
        return graph.value_name(node, x)
    if before == torch.float32 and not after.is_floating_point:
        return to_zero(graph, node, graph.value_name(node, x))
    raise graph.refuse(node, f"converts {before} to {after}, expected a model of float32; mixed precision is "
                             "numerics of the job")


def _to_even(graph: GraphBuilder, node: Any, x: str) -> str:
    """The nearest integer, of two the even one: floor(x), and 1 more where the rest is above 1/2, or is 1/2 and floor(x) odd."""
    down = _down(graph, node, x)
    rest = _subtract(graph, node, x, down)
    more = _less(graph, node, scaled(graph, node, rest, -1), -0.5)
    tie = graph.emit(node, Node("equal", [rest], {"to": 0.5}))
    half = scaled(graph, node, down, 0.5)
    odd = scaled(graph, node, _subtract(graph, node, half, _down(graph, node, half)), 2)
    tie = graph.emit(node, Node("mul", [tie, odd], {}))
    return _add(graph, node, down, _add(graph, node, more, tie))


def _less_counts(graph: GraphBuilder, node: Any, x: str, count: str, divisor: float) -> str:
    """x - count divisor, exact for counts below 2^16: 5 times 0.1 is rounded to 0.5, which seemed to be a multiple."""
    rest = float(torch.tensor(divisor, dtype=torch.float32))
    while rest:
        digits, exponent = math.frexp(rest)
        part = math.ldexp(round(math.ldexp(digits, PART_DIGITS)), exponent - PART_DIGITS)
        x, rest = _add(graph, node, x, scaled(graph, node, count, -part)), rest - part
    return x


def _quotient(graph: GraphBuilder, node: Any, x: str, divisor: float, truncates: bool = False) -> str:
    """floor(x / divisor), or trunc(); exact for integers below 2^24 and quotients below 2^16: the rest corrects what the rounded 1 / divisor makes wrong."""
    if divisor < 0:
        x, divisor = scaled(graph, node, x, -1), -divisor
    if truncates:
        above, below = (graph.emit(node, Node("relu", [scaled(graph, node, x, sign)], {})) for sign in (1, -1))
        return _subtract(graph, node, _quotient(graph, node, above, divisor), _quotient(graph, node, below, divisor))
    count = _down(graph, node, scaled(graph, node, x, 1 / divisor))
    rest, beyond = (_less_counts(graph, node, x, one, divisor) for one in (count, shifted(graph, node, count, 1)))  # 1 - 1e-10 is 1
    more = inverted(graph, node, _less(graph, node, beyond, 0.0))
    return _subtract(graph, node, _add(graph, node, count, more), _less(graph, node, rest, 0.0))


def _divisor(graph: GraphBuilder, node: Any, a: Arguments) -> float:
    number = constant_number(graph, a["other"])
    if not number or abs(number) > torch.finfo(torch.float32).max:
        raise graph.refuse(node, "divides by " + ("what depends on data or parameters, or by several numbers, expected one number"
                                                  if number is None else f"{number:g}"))
    return number


def divided(graph: GraphBuilder, node: Any, a: Arguments) -> Converted:
    """rounding_mode: "floor" or "trunc"; floor_divide() has none."""
    truncates = "rounding_mode" in a and a["rounding_mode"] == "trunc"
    if "rounding_mode" not in a and graph.depends_on_trained(node):
        raise graph.refuse(node, "has no gradient in PyTorch; torch.div with rounding_mode has one, 0")
    divisor = _divisor(graph, node, a)
    return _quotient(graph, node, graph.value_name(node, a["self"]), divisor, truncates)


def _remainder(truncates: bool) -> Converter:
    """remainder(), which has the sign of the divisor, and fmod(), which has that of x."""
    def made(graph: GraphBuilder, node: Any, a: Arguments) -> Converted:
        divisor = _divisor(graph, node, a)
        x = graph.value_name(node, a["self"])
        count = _quotient(graph, node, x, divisor, truncates)
        return _less_counts(graph, node, x, count, divisor)
    return made


def _rounded(rounding: Any) -> Converter:
    def made(graph: GraphBuilder, node: Any, a: Arguments) -> Converted:
        if "decimals" in a and a["decimals"]:
            raise graph.refuse(node, f"to {a['decimals']} decimals, expected none")
        return rounding(graph, node, graph.value_name(node, a["self"]))
    return made


def _floor(graph: GraphBuilder, node: Any, a: Arguments) -> Converted:
    """Of random numbers in stochastic depth: floor(keep + rand()) is 1 with probability keep."""
    drawn = graph.value(a["self"])
    if isinstance(drawn, Uniform) and 0 < drawn.least <= 1:
        return SampleMask(drawn.least, 1.0, drawn.drawn)
    return _down(graph, node, graph.value_name(node, a["self"]))


def _fraction(graph: GraphBuilder, node: Any, a: Arguments) -> Converted:
    x = graph.value_name(node, a["self"])
    return _subtract(graph, node, x, to_zero(graph, node, x))


ROUNDING: dict[str, Converter] = {
    "floor": _floor, "ceil": _rounded(_up), "trunc": _rounded(to_zero), "round": _rounded(_to_even), "frac": _fraction,
    "floor_divide": divided, "remainder": _remainder(False), "fmod": _remainder(True),
}
