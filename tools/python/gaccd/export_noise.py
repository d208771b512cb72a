"""Random numbers of forward, composed of dropout, which draws by sample: the same on any number of ranks and after a restart.

Evaluation has their means, as that of dropout has: 0.5 for rand, 0 for randn, the middle for randint.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from .export_convert import Arguments, Converted, Converter, constant_number, full, scaled, shifted
from .export_graph import GraphBuilder
from .export_types import Node, Uniform

BITS = 23  # float32 represents the middle of each of 2^23 parts of (0, 1)
MOST_INTEGERS = 2 ** 16  # each of which has nearly the same number of parts


def uniform(graph: GraphBuilder, node: Any) -> str:
    """Numbers in (0, 1) of the shape of `node`, from BITS random bits each."""
    sizes = graph.sizes(node)
    if min(sizes, default=0) < 0 <= sizes[0]:
        raise graph.refuse(node, f"draws random numbers of the shape {graph.shape(node)}, expected samples in the first dimension")
    half, total = full(graph, node, 0.5, sizes), ""
    for bit in range(1, BITS + 1):
        drawn = scaled(graph, node, graph.emit(node, Node("dropout", [half], {"p": 0.5})), 0.5 ** bit)
        total = graph.emit(node, Node("add", [total, drawn], {})) if total else drawn
    return shifted(graph, node, total, 0.5 ** (BITS + 1))


def _standard_normal(graph: GraphBuilder, node: Any) -> str:
    """sqrt(-2 log(u)) sin(2 pi (v - 1/2)) of two uniform numbers (Box and Muller 1958)."""
    logarithm = graph.emit(node, Node("log", [uniform(graph, node)], {}))
    radius = graph.emit(node, Node("power", [scaled(graph, node, logarithm, -2)], {"exponent": 0.5}))
    angle = scaled(graph, node, shifted(graph, node, uniform(graph, node), -0.5), 2 * math.pi)
    return graph.emit(node, Node("mul", [radius, graph.emit(node, Node("sin", [angle], {}))], {}))


def _normal(graph: GraphBuilder, node: Any, a: Arguments) -> Converted:
    z = _standard_normal(graph, node)
    for name, op in (("std", "mul"), ("mean", "add")):
        if name not in a:
            continue
        if (number := constant_number(graph, a[name])) is not None:
            z = (scaled if op == "mul" else shifted)(graph, node, z, number)
        else:
            z = graph.emit(node, Node(op, [z, graph.value_name(node, a[name])], {}))
    return z


def _rand(graph: GraphBuilder, node: Any, a: Arguments) -> Converted:
    """Its use decides: stochastic depth compares it with a number."""
    return Uniform(node)


def _between(graph: GraphBuilder, node: Any, a: Arguments) -> Converted:
    low, high = a["from"], a["to"]
    return Uniform(node) if (low, high) == (0, 1) else shifted(graph, node, scaled(graph, node, uniform(graph, node), high - low), low)


def _integers(graph: GraphBuilder, node: Any, a: Arguments) -> Converted:
    low, high = a["low"] if "low" in a else 0, a["high"]
    if not isinstance(low, int) or not isinstance(high, int) or not 0 < high - low <= MOST_INTEGERS:
        raise graph.refuse(node, f"between {low} and {high}, expected 1 to {MOST_INTEGERS} integers")
    parts = graph.emit(node, Node("floor", [scaled(graph, node, uniform(graph, node), high - low)], {}))
    return shifted(graph, node, parts, low)


class MeanDraws(TorchFunctionMode):
    """randn, normal, randint, uniform_ and, if `uniform`, numbers from 0 to 1 give their means, as in an evaluation by gaccd."""
    def __init__(self, uniform: bool = True) -> None:
        super().__init__()
        self._uniform = uniform

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs, name = dict(kwargs or {}), getattr(function, "__name__", "")
        result = function(*args, **kwargs)
        if name in ("randint", "randint_like"):
            given = [one for one in (*args, kwargs.get("low"), kwargs.get("high")) if isinstance(one, int)]
            return torch.full_like(result, (given[0] + given[1] if len(given) > 1 else given[0]) // 2)
        if name in ("rand", "rand_like") and self._uniform:
            return torch.full_like(result, 0.5)
        if name == "uniform_":
            low, high = (kwargs.get(one, args[place] if len(args) > place else place - 1) for place, one in ((1, "from"), (2, "to")))
            return result.fill_((low + high) / 2) if self._uniform or (low, high) != (0, 1) else result
        if name in ("randn", "randn_like"):
            return torch.zeros_like(result)
        if name == "normal":
            return torch.zeros_like(result) + kwargs.get("mean", (*args, 0.0)[0])
        return result.fill_(kwargs.get("mean", (*args, 0.0)[1])) if name == "normal_" else result


NOISE: dict[str, Converter] = {
    **dict.fromkeys(("rand", "rand_like"), _rand), "uniform": _between,
    **dict.fromkeys(("randint", "randint_like"), _integers),
    **dict.fromkeys(("randn", "randn_like", "normal", "normal_functional"), _normal),
}
