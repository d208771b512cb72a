"""Converters of comparisons, masks and choices by them. A mask is a float value, 1 where it is true."""

from __future__ import annotations

import math
from typing import Any

import torch

from .export_convert import Arguments, Converter, Converted, bounded, constant_number, has_infinity, input_names, inverted, rows_name, scaled, viewed
from .export_graph import GraphBuilder
from .export_rounding import nonzero
from .export_types import INFINITE, MOST, Node, is_discrete


def _compare(op: str, negated: bool = False, exchanged: bool = False) -> Converter:
    """Computes x op y as (x - y) op 0. negated: not (x op y), for "less" of numbers, which may be NaN, x above or equal to y;
    exchanged: y op x."""
    key = "to" if op == "equal" else "than"

    def made(graph: GraphBuilder, node: Any, a: Arguments) -> Converted:
        x, y = (a["other"], a["self"]) if exchanged else (a["self"], a["other"])
        limit, of_numbers = constant_number(graph, y), not all(is_discrete(one) for one in node.all_input_nodes)
        if (number := constant_number(graph, x)) is not None:  # number < y: -y < -number
            name, limit = scaled(graph, node, graph.value_name(node, y), -1), -number
        elif limit is not None:
            name = graph.value_name(node, x)
        else:
            both = input_names(graph, node, x, y)
            if of_numbers and (negated or op == "equal"):  # so that infinities are equal
                both = [graph.emit(node, Node("clamp", [one], {"least": -MOST, "most": MOST})) for one in both]
            name, limit = graph.emit(node, Node("add", [both[0], scaled(graph, node, both[1], -1)], {})), 0.0
        if limit == -math.inf and of_numbers and op == "less":  # x >= -inf is true but for NaN, x < -inf never
            zero = graph.emit(node, Node("clamp", [name], {"least": 0.0, "most": 0.0}))
            return Node("equal", [zero], {"to": 0.0}) if negated else Node("less", [zero], {"than": 0.0})
        if negated and of_numbers and op == "less":
            than = INFINITE if limit == math.inf else bounded(limit)
            above = graph.emit(node, Node("less", [scaled(graph, node, name, -1)], {"than": -than}))
            return Node("add", [above, graph.emit(node, Node("equal", [name], {"to": than}))], {})
        if math.isinf(limit) and op == "equal":
            found = graph.emit(node, Node("less", [scaled(graph, node, name, -1 if limit > 0 else 1)], {"than": -INFINITE}))
        else:
            found = graph.emit(node, Node(op, [name], {key: INFINITE if limit == math.inf else bounded(limit)}))
        return inverted(graph, node, found) if negated else found
    return made


def _isnan(graph: GraphBuilder, node: Any, a: Arguments) -> Converted:
    """Neither below 0 nor above nor 0."""
    if has_infinity(graph, a["self"]) and any("softmax" in str(one.target) for one in graph.required_calls(a["self"])):
        raise graph.refuse(node, "asks for NaN after a softmax of -inf, which gaccd has no NaN for; hide by torch.finfo(x.dtype).min, and "
                                 "multiply what a softmax of hidden values makes by a mask")
    x = graph.value_name(node, a["self"])
    known = graph.emit(node, Node("equal", [x], {"to": 0.0}))
    for sign in (1, -1):
        known = graph.emit(node, Node("add", [known, graph.emit(node, Node("less", [scaled(graph, node, x, sign)], {"than": 0.0}))], {}))
    return inverted(graph, node, known)


def _isinf(graph: GraphBuilder, node: Any, a: Arguments) -> Converted:
    x = graph.value_name(node, a["self"])
    return Node("add", [graph.emit(node, Node("less", [scaled(graph, node, x, sign)], {"than": -INFINITE})) for sign in (1, -1)], {})


def as_mask(graph: GraphBuilder, node: Any, x: Any) -> str:
    """The operand of a logical or bitwise operation as a mask."""
    name = graph.value_name(node, x)
    dtype = x.meta["val"].dtype
    if dtype != torch.bool and "bitwise" in str(node.target):
        raise graph.refuse(node, f"of {dtype}, expected masks of torch.bool, as x != 0 is one")
    return name if dtype == torch.bool else nonzero(graph, node, name)


def _and(graph: GraphBuilder, node: Any, a: Arguments) -> Converted:
    for one, other in ((a["self"], a["other"]), (a["other"], a["self"])):
        known = graph.value(other)
        if isinstance(known, torch.Tensor) and known.dtype == torch.bool and bool(known.all()):
            if graph.sizes(node) == graph.sizes(node, graph.shape(one)):
                return as_mask(graph, node, one)
    return Node("mul", [as_mask(graph, node, a["self"]), as_mask(graph, node, a["other"])], {})


def either(graph: GraphBuilder, node: Any, a: Arguments) -> Converted:
    neither = Node("mul", [inverted(graph, node, as_mask(graph, node, one)) for one in (a["self"], a["other"])], {})
    return inverted(graph, node, graph.emit(node, neither))


def _xor(graph: GraphBuilder, node: Any, a: Arguments) -> Converted:
    one, other = (as_mask(graph, node, a[name]) for name in ("self", "other"))
    return nonzero(graph, node, graph.emit(node, Node("add", [one, scaled(graph, node, other, -1)], {})))


def _not(graph: GraphBuilder, node: Any, a: Arguments) -> Converted:
    return inverted(graph, node, as_mask(graph, node, a["self"]))


def _chosen(graph: GraphBuilder, node: Any, x: Any) -> Converted | None:
    """x as the result of a where() that chooses nothing else; None if it is to be broadcast or is the same for all samples."""
    if x not in graph.input_dependent or graph.shape(x) != graph.shape(node):
        return None
    if x.meta["val"].dtype != node.meta["val"].dtype:
        return None
    return graph.raw_value_name(node, x)


def _where(graph: GraphBuilder, node: Any, a: Arguments) -> Converted:
    """Adds the selected values of both sides; values that are not selected, even NaN, have no effect."""
    known = graph.value(a["condition"])
    if isinstance(known, torch.Tensor) and known.numel() and bool((known == known.flatten()[0]).all()):
        graph.for_all_samples(node, a["condition"])  # refuses one that depends on the number of samples
        if (chosen := _chosen(graph, node, a["self"] if bool(known.flatten()[0]) else a["other"])) is not None:
            return chosen
    mask = graph.value_name(node, a["condition"])
    parts = []
    for value, where in ((a["self"], mask), (a["other"], inverted(graph, node, mask))):
        number = constant_number(graph, value)
        if number is None:
            parts.append(graph.emit(node, Node("select", [graph.value_name(node, value), where], {})))
        elif math.isnan(number):
            roots = Node("power", [scaled(graph, node, where, -1)], {"exponent": 0.5})  # NaN for -1
            parts.append(graph.emit(node, roots))
        elif number != 0:
            parts.append(scaled(graph, node, where, number))
    return Node("add", parts, {}) if len(parts) == 2 else parts[0] if parts else scaled(graph, node, mask, 0)


def _bucketize(graph: GraphBuilder, node: Any, a: Arguments) -> Converted:
    """The number of boundaries below the value; right: below or at it."""
    limits = graph.value(a["boundaries"])
    if not isinstance(limits, torch.Tensor):
        raise graph.refuse(node, "by boundaries that depend on data or parameters, expected known ones")
    sizes = graph.sizes(node, graph.shape(a["self"]))
    x = viewed(graph, node, rows_name(graph, node, a["self"]), [*sizes, 1])
    distance = graph.emit(node, Node("add", [x, graph.constant(node, -limits.float())], {}))
    distance = distance if a["right"] else scaled(graph, node, distance, -1)
    below = graph.emit(node, Node("less", [distance], {"than": 0.0}))
    below = inverted(graph, node, below) if a["right"] else below
    return Node("sum", [below], {"dims": [len(sizes)], "keepdim": False})


MASKS: dict[str, Converter] = {
    "eq": _compare("equal"), "ne": _compare("equal", negated=True), "lt": _compare("less"),
    "ge": _compare("less", negated=True), "gt": _compare("less", exchanged=True),
    "le": _compare("less", negated=True, exchanged=True),
    **dict.fromkeys(("bitwise_and", "logical_and"), _and), **dict.fromkeys(("bitwise_or", "logical_or"), either),
    **dict.fromkeys(("bitwise_xor", "logical_xor"), _xor), **dict.fromkeys(("bitwise_not", "logical_not"), _not),
    "isnan": _isnan, "isinf": _isinf, "where": _where, "bucketize": _bucketize,
}
