"""Random numbers of forward, drawn by sample as dropout is: the same on any number of ranks and after a restart.

Evaluation has what rand gives at 0.5, as that of dropout has the mean: 0 for randn, the middle for randint, the median for exponential.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from .export_convert import Arguments, Converted, Converter, constant_number, full, scaled, shifted
from .export_graph import GraphBuilder
from .export_types import Node, SampleMask, Uniform

MOST_INTEGERS = 2 ** 16  # each of which has nearly the same number of parts


def uniform(graph: GraphBuilder, node: Any) -> str:
    """Numbers in (0, 1) of the shape of `node`: the middle of one of 2^23 equal parts."""
    sizes = graph.sizes(node)
    if min(sizes, default=0) < 0 <= sizes[0]:
        raise graph.refuse(node, f"draws random numbers of the shape {graph.shape(node)}, expected samples in the first dimension")
    return graph.emit(node, Node("uniform_noise", [full(graph, node, 0.5, sizes)], {"p": 1.0}))


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


def _exponential(graph: GraphBuilder, node: Any, a: Arguments) -> Converted:
    logarithm = graph.emit(node, Node("log", [uniform(graph, node)], {}))
    return scaled(graph, node, logarithm, -1 / (a["lambd"] if "lambd" in a else 1))


def _bernoulli(graph: GraphBuilder, node: Any, a: Arguments) -> Converted:
    """1 with the probability p, a number (then usually a mask that drops values) or `self`, a tensor."""
    if "p" not in a:
        difference = Node("add", [uniform(graph, node), scaled(graph, node, graph.value_name(node, a["self"]), -1)], {})
        return Node("less", [graph.emit(node, difference)], {"than": 0.0})
    if not isinstance(a["p"], float) or not 0 < a["p"] <= 1:
        raise graph.refuse(node, "draws with a probability that is no number in (0, 1]")
    return SampleMask(a["p"], 1.0, node)


def _gumbel_softmax(logits: torch.Tensor, tau: float = 1, hard: bool = False, eps: float = 1e-10, dim: int = -1) -> torch.Tensor:
    """torch.nn.functional.gumbel_softmax for equal draws."""
    y = (logits / tau).softmax(dim)
    return torch.zeros_like(y).scatter_(dim, y.argmax(dim, keepdim=True), 1.0) - y.detach() + y if hard else y


class MeanDraws(TorchFunctionMode):
    """randn, normal, randint and, if `uniform`, rand and what is computed of it give what they have in an evaluation by gaccd."""
    def __init__(self, uniform: bool = True) -> None:
        super().__init__()
        self._uniform = uniform

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs, name = dict(kwargs or {}), getattr(function, "__name__", "")
        if name == "gumbel_softmax":  # draws inside, where this mode is off
            with self:
                return _gumbel_softmax(*args, **kwargs)
        result = function(*args, **kwargs)

        def given(place: int, key: str, default: float) -> Any:
            return kwargs.get(key, args[place] if len(args) > place else default)
        if name in ("randint", "randint_like"):
            limits = [one for one in (*args, kwargs.get("low"), kwargs.get("high")) if isinstance(one, int)]
            return torch.full_like(result, (limits[0] + limits[1] if len(limits) > 1 else limits[0]) // 2)
        if name in ("rand", "rand_like") and self._uniform:
            return torch.full_like(result, 0.5)
        if name in ("randn", "randn_like"):
            return torch.zeros_like(result)
        if name == "normal":
            return torch.zeros_like(result) + given(0, "mean", 0.0)
        if name == "bernoulli" and "p" not in kwargs and len(args) == 1:
            return (args[0] > 0.5).to(result.dtype)
        if name == "normal_":
            return result.fill_(given(1, "mean", 0.0))
        if name == "uniform_":
            low, high = given(1, "from", 0.0), given(2, "to", 1.0)
            return result.fill_((low + high) / 2) if self._uniform or (low, high) != (0, 1) else result
        return result.fill_(math.log(2) / given(1, "lambd", 1.0)) if name == "exponential_" else result


NOISE: dict[str, Converter] = {
    **dict.fromkeys(("rand", "rand_like"), _rand), "uniform": _between,
    **dict.fromkeys(("randint", "randint_like"), _integers),
    "exponential": _exponential, "bernoulli": _bernoulli,
    **dict.fromkeys(("randn", "randn_like", "normal", "normal_functional"), _normal),
}
