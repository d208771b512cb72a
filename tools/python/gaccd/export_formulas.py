"""Activations and statistics that gaccd has no operation for, made of those that it has."""

from __future__ import annotations

import math
from typing import Any, Callable

from .export_convert import Arguments, Converter, Made, inputs_of, limited, number_of, permuted, scaled, shifted, viewed
from .export_graph import GraphBuilder
from .export_types import HIDDEN, Node

Formula = Callable[[GraphBuilder, Any, str, Arguments], str]  # of a value by its name


def _of(formula: Formula) -> Converter:
    def made(graph: GraphBuilder, node: Any, a: Arguments) -> Made:
        return formula(graph, node, graph.name_of(node, node.args[0]), a)
    return made


def _relu(graph: GraphBuilder, node: Any, x: str) -> str:
    return graph.emit(node, Node("relu", [x], {}))


def _abs(graph: GraphBuilder, node: Any, x: str, a: Arguments | None = None) -> str:
    both = [_relu(graph, node, x), _relu(graph, node, scaled(graph, node, x, -1))]
    return graph.emit(node, Node("add", both, {}))


def _log_of_sum(graph: GraphBuilder, node: Any, x: str) -> str:
    """log(1 + exp(x)) = relu(x) + log(1 + exp(-|x|))."""
    small = graph.emit(node, Node("exp", [scaled(graph, node, _abs(graph, node, x), -1)], {}))
    more = graph.emit(node, Node("log", [shifted(graph, node, small, 1)], {}))
    return graph.emit(node, Node("add", [_relu(graph, node, x), more], {}))


def _log1p(graph: GraphBuilder, node: Any, x: str, a: Arguments) -> str:
    return graph.emit(node, Node("log", [shifted(graph, node, x, 1)], {}))


def _expm1(graph: GraphBuilder, node: Any, x: str, a: Arguments) -> str:
    return shifted(graph, node, graph.emit(node, Node("exp", [x], {})), -1)


def _log(factor: float) -> Formula:
    return lambda graph, node, x, _: scaled(graph, node, graph.emit(node, Node("log", [x], {})), factor)


def _exp2(graph: GraphBuilder, node: Any, x: str, a: Arguments | None = None) -> str:
    return graph.emit(node, Node("exp", [scaled(graph, node, x, math.log(2))], {}))


def _erfc(graph: GraphBuilder, node: Any, x: str, a: Arguments) -> str:
    return shifted(graph, node, scaled(graph, node, graph.emit(node, Node("erf", [x], {})), -1), 1)


def _sign(graph: GraphBuilder, node: Any, x: str, a: Arguments) -> str:
    """Comparisons have no gradient, as sign has none."""
    below = [graph.emit(node, Node("less", [scaled(graph, node, x, sign)], {"than": 0.0})) for sign in (-1, 1)]
    return graph.emit(node, Node("add", [below[0], scaled(graph, node, below[1], -1)], {}))


def _softplus(graph: GraphBuilder, node: Any, x: str, a: Arguments) -> str:
    """Above the threshold it is x, within rounding."""
    beta = float(a["beta"])
    if beta <= 0 or float(a["threshold"]) < 15:
        raise graph.refuse(node, f"with beta {beta:g} and the threshold {a['threshold']}, expected above 0 and at least 15")
    return scaled(graph, node, _log_of_sum(graph, node, scaled(graph, node, x, beta)), 1 / beta)


def _mish(graph: GraphBuilder, node: Any, x: str, a: Arguments) -> str:
    inner = graph.emit(node, Node("tanh", [_log_of_sum(graph, node, x)], {}))
    return graph.emit(node, Node("mul", [x, inner], {}))


def _elu(graph: GraphBuilder, node: Any, x: str, a: Arguments) -> str:
    """Also selu, which is decomposed into it, and celu."""
    alpha, scale = float(a["alpha"]), float(a["scale"]) if "scale" in a else 1.0
    input_scale = float(a["input_scale"]) if "input_scale" in a else 1 / alpha
    below = graph.emit(node, Node("clamp", [x], {"least": HIDDEN, "most": 0.0}))
    below = shifted(graph, node, graph.emit(node, Node("exp", [scaled(graph, node, below, input_scale)], {})), -1)
    both = [scaled(graph, node, _relu(graph, node, x), scale), scaled(graph, node, below, alpha * scale)]
    return graph.emit(node, Node("add", both, {}))


def _log_softmax(graph: GraphBuilder, node: Any, a: Arguments) -> Made:
    """x less its largest, y, less the logarithm of the sum of exp(y)."""
    dims = _inner_dims(graph, node, a["self"], [a["dim"]])
    largest = _pooled(graph, node, a["self"], dims, True, 1)
    y = graph.emit(node, Node("add", [graph.name_of(node, a["self"]), scaled(graph, node, largest, -1)], {}))
    total = graph.emit(node, Node("sum", [graph.emit(node, Node("exp", [y], {}))], {"dims": dims, "keepdim": True}))
    return Node("add", [y, scaled(graph, node, graph.emit(node, Node("log", [total], {})), -1)], {})


def _extreme(sign: int) -> Converter:
    """The larger or smaller of two values; where they are equal each has half of the gradient."""
    def made(graph: GraphBuilder, node: Any, a: Arguments) -> Made:
        x, y = a["self"], a["other"]
        for one, other in ((x, y), (y, x)):
            if (number := number_of(graph, other)) is not None:
                limits: dict[str, Any] = {"least": number, "most": -HIDDEN} if sign > 0 else {"least": HIDDEN, "most": number}
                return _mean_of_two(graph, node, *(graph.emit(node, Node(op, inputs_of(graph, node, one), limits)) for op in ("clamp", "hardtanh")))
        one, other = inputs_of(graph, node, x, y)
        return _mean_of_two(graph, node, limited(graph, node, one, other, sign), limited(graph, node, other, one, sign))
    return made


def _mean_of_two(graph: GraphBuilder, node: Any, x: str, y: str) -> Made:
    return scaled(graph, node, graph.emit(node, Node("add", [x, y], {})), 0.5)


def _inner_dims(graph: GraphBuilder, node: Any, x: Any, dims: Any) -> list[int]:
    """Ascending, from 0 on; none counts samples."""
    sizes = graph.sizes(node, graph.shape(x))
    found = sorted(dim % len(sizes) for dim in (dims if dims else range(len(sizes))))
    if any(sizes[dim] < 0 for dim in found):
        raise graph.refuse(node, f"over the dimensions {found} of {len(sizes)}, one of which counts samples: an update of gaccd "
                                 "is a sum over samples, which must not depend on each other")
    return found


def _pooled(graph: GraphBuilder, node: Any, x: Any, dims: list[int], keepdim: bool, sign: int) -> str:
    """The largest (sign 1) or smallest (-1) over these dimensions, as a pooling of rows."""
    sizes = graph.sizes(node, graph.shape(x))
    kept = [dim for dim in range(len(sizes)) if dim not in dims]
    if not kept:
        raise graph.refuse(node, "over all dimensions, expected one that is kept")
    y = scaled(graph, node, permuted(graph, node, graph.name_of(node, x), [*kept, *dims]), sign)
    count = math.prod(sizes[dim] for dim in dims)
    rows = viewed(graph, node, y, [sizes[kept[0]], math.prod(sizes[dim] for dim in kept[1:]), 1, count])
    pooled = graph.emit(node, Node("max_pool2d", [rows], {
        "kernel": [1, count], "stride": [1, count], "padding": [0, 0], "dilation": [1, 1]}))
    found = [size if dim in kept else 1 for dim, size in enumerate(sizes) if dim in kept or keepdim]
    return viewed(graph, node, scaled(graph, node, pooled, sign), found)


def _largest(sign: int) -> Converter:
    """amax and amin. The gradient of the pooling goes to the first of equal values; the mean of their distances from it, which
    is 0, shares it among them."""
    def made(graph: GraphBuilder, node: Any, a: Arguments) -> Made:
        dims = _inner_dims(graph, node, a["self"], a["dim"])
        x, largest = graph.name_of(node, a["self"]), _pooled(graph, node, a["self"], dims, True, sign)
        distance = graph.emit(node, Node("add", [x, scaled(graph, node, largest, -1)], {}))
        equal = graph.emit(node, Node("equal", [distance], {"to": 0.0}))
        both = [graph.emit(node, Node("select", [distance, equal], {})), equal]
        total, count = (graph.emit(node, Node("sum", [one], {"dims": dims, "keepdim": True})) for one in both)
        mean = graph.emit(node, Node("mul", [total, graph.emit(node, Node("power", [count], {"exponent": -1.0}))], {}))
        return viewed(graph, node, graph.emit(node, Node("add", [largest, mean], {})), graph.sizes(node))
    return made


def _variance_and_mean(graph: GraphBuilder, node: Any, a: Arguments) -> Made:
    dims = _inner_dims(graph, node, a["self"], a["dim"] if "dim" in a else None)
    mean = graph.emit(node, Node("mean", inputs_of(graph, node, a["self"]), {"dims": dims, "keepdim": bool(a["keepdim"])}))
    return [_variance(1)(graph, node, a), mean]


def _largest_and_place(sign: int) -> Converter:
    """max and min over a dimension: the values, without their places."""
    def made(graph: GraphBuilder, node: Any, a: Arguments) -> Made:
        if "dim" not in a:
            raise graph.refuse(node, "over all dimensions, expected one that is kept")
        return [_pooled(graph, node, a["self"], _inner_dims(graph, node, a["self"], [a["dim"]]), bool(a["keepdim"]), sign)]
    return made


def squared_distance(graph: GraphBuilder, node: Any, x: str, dims: list[int], keepdim: bool) -> tuple[str, str]:
    """x minus its mean over these dimensions, and the mean of the squares of that."""
    mean = graph.emit(node, Node("mean", [x], {"dims": dims, "keepdim": True}))
    centered = graph.emit(node, Node("add", [x, scaled(graph, node, mean, -1)], {}))
    squares = graph.emit(node, Node("power", [centered], {"exponent": 2.0}))
    return centered, graph.emit(node, Node("mean", [squares], {"dims": dims, "keepdim": keepdim}))


def _variance(exponent: float) -> Converter:
    """var, and std with the exponent 0.5."""
    def made(graph: GraphBuilder, node: Any, a: Arguments) -> Made:
        dims = _inner_dims(graph, node, a["self"], a["dim"] if "dim" in a else None)
        count = math.prod(graph.shape(a["self"])[dim] for dim in dims)
        less = float(a["unbiased"]) if "unbiased" in a else 1.0 if a["correction"] is None else float(a["correction"])
        if count <= less:
            raise graph.refuse(node, f"of {count} values less {less:g}, expected more values")
        _, squares = squared_distance(graph, node, graph.name_of(node, a["self"]), dims, "keepdim" in a and bool(a["keepdim"]))
        found = scaled(graph, node, squares, count / (count - less))
        return found if exponent == 1 else graph.emit(node, Node("power", [found], {"exponent": exponent}))
    return made


def _trilinear(graph: GraphBuilder, node: Any, a: Arguments) -> Made:
    """nn.Bilinear: a linear layer of the products of each two values."""
    x, weight, y = (graph.sizes(node, graph.shape(a[name])) for name in ("i1", "i2", "i3"))
    if [a["expand1"], a["expand2"], a["expand3"], a["sumdim"]] != [[1, 3], [0], [1, 2], [2, 3]] or len(weight) != 3:
        raise graph.refuse(node, "in another form than that of nn.Bilinear")
    first, matrix, second = inputs_of(graph, node, a["i1"], a["i2"], a["i3"])
    both = [viewed(graph, node, first, [*x, 1]), viewed(graph, node, second, [y[0], 1, y[1]])]
    products = viewed(graph, node, graph.emit(node, Node("mul", both, {})), [x[0], x[1] * y[1]])
    matrix = viewed(graph, node, matrix, [weight[0], weight[1] * weight[2]])
    return Node("matmul", [products, matrix], {"transpose": True})


FORMULAS: dict[str, Converter] = {
    "abs": _of(_abs), "softplus": _of(_softplus), "mish": _of(_mish), **dict.fromkeys(("elu", "celu"), _of(_elu)),
    **dict.fromkeys(("log_softmax", "_log_softmax"), _log_softmax), "log1p": _of(_log1p), "expm1": _of(_expm1), "sign": _of(_sign),
    "log2": _of(_log(1 / math.log(2))), "log10": _of(_log(1 / math.log(10))), "exp2": _of(_exp2), "erfc": _of(_erfc),
    "maximum": _extreme(1), "minimum": _extreme(-1), "amax": _largest(1), "amin": _largest(-1),
    "max": _largest_and_place(1), "min": _largest_and_place(-1),
    "_trilinear": _trilinear, "var": _variance(1), "std": _variance(0.5), "var_mean": _variance_and_mean,
}
