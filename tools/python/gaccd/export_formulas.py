"""Activations and statistics without an operation in gaccd, composed of operations that it has."""

from __future__ import annotations

import math
from typing import Any, Callable

import torch

from .export_convert import Arguments, Converter, Converted, bounded, input_names, inverted, constant_number, permuted, repeated, rows_name, scaled, viewed
from .export_graph import GraphBuilder
from .export_types import HIDDEN, Node

Formula = Callable[[GraphBuilder, Any, str, Arguments], str]  # takes a value by name


def _unary_formula(formula: Formula) -> Converter:
    def made(graph: GraphBuilder, node: Any, a: Arguments) -> Converted:
        return formula(graph, node, graph.value_name(node, node.args[0]), a)
    return made


def _relu(graph: GraphBuilder, node: Any, x: str) -> str:
    return graph.emit(node, Node("relu", [x], {}))


def absolute(graph: GraphBuilder, node: Any, x: str, a: Arguments | None = None) -> str:
    both = [_relu(graph, node, x), _relu(graph, node, scaled(graph, node, x, -1))]
    return graph.emit(node, Node("add", both, {}))


def _log(factor: float) -> Formula:
    return lambda graph, node, x, _: scaled(graph, node, graph.emit(node, Node("log", [x], {})), factor)


def _exp2(graph: GraphBuilder, node: Any, x: str, a: Arguments | None = None) -> str:
    return graph.emit(node, Node("exp", [scaled(graph, node, x, math.log(2))], {}))


def _cosh(graph: GraphBuilder, node: Any, x: str, a: Arguments) -> str:
    both = [graph.emit(node, Node("exp", [scaled(graph, node, x, sign)], {})) for sign in (1, -1)]
    return scaled(graph, node, graph.emit(node, Node("add", both, {})), 0.5)


def _sign(graph: GraphBuilder, node: Any, x: str, a: Arguments) -> str:
    """By comparisons, which have no gradient, like sign."""
    below = [graph.emit(node, Node("less", [scaled(graph, node, x, sign)], {"than": 0.0})) for sign in (-1, 1)]
    return graph.emit(node, Node("add", [below[0], scaled(graph, node, below[1], -1)], {}))


def _softplus(graph: GraphBuilder, node: Any, x: str, a: Arguments) -> str:
    """Above the threshold the result is x, within rounding."""
    beta = float(a["beta"])
    if beta <= 0 or float(a["threshold"]) < 15:
        raise graph.refuse(node, f"with beta {beta:g} and the threshold {a['threshold']}, expected above 0 and at least 15")
    return scaled(graph, node, graph.emit(node, Node("softplus", [scaled(graph, node, x, beta)], {})), 1 / beta)


def _mish(graph: GraphBuilder, node: Any, x: str, a: Arguments) -> str:
    inner = graph.emit(node, Node("tanh", [graph.emit(node, Node("softplus", [x], {}))], {}))
    return graph.emit(node, Node("mul", [x, inner], {}))


def _elu(graph: GraphBuilder, node: Any, x: str, a: Arguments) -> str:
    """Also for celu, and for selu, which PyTorch decomposes into elu."""
    alpha, scale = float(a["alpha"]), float(a["scale"]) if "scale" in a else 1.0
    input_scale = float(a["input_scale"]) if "input_scale" in a else 1 / alpha
    below = graph.emit(node, Node("clamp", [x], {"least": HIDDEN, "most": 0.0}))
    below = graph.emit(node, Node("expm1", [scaled(graph, node, below, input_scale)], {}))
    both = [scaled(graph, node, _relu(graph, node, x), scale), scaled(graph, node, below, alpha * scale)]
    return graph.emit(node, Node("add", both, {}))


def _log_sum(graph: GraphBuilder, node: Any, x: Any, dims: list[int]) -> tuple[str, str, str]:
    """max(x), y = x - max(x), log(sum(exp(y))). Rows whose values are all HIDDEN need no other formula, as those of -inf do."""
    largest = _pooled(graph, node, x, dims, True, 1)
    y = graph.emit(node, Node("add", [graph.value_name(node, x), scaled(graph, node, largest, -1)], {}))
    total = graph.emit(node, Node("sum", [graph.emit(node, Node("exp", [y], {}))], {"dims": dims, "keepdim": True}))
    return largest, y, graph.emit(node, Node("log", [total], {}))


def _log_softmax(graph: GraphBuilder, node: Any, a: Arguments) -> Converted:
    _, y, log_sum = _log_sum(graph, node, a["self"], _inner_dims(graph, node, a["self"], [a["dim"]]))
    return Node("add", [y, scaled(graph, node, log_sum, -1)], {})


def _logsumexp(graph: GraphBuilder, node: Any, a: Arguments) -> Converted:
    largest, _, log_sum = _log_sum(graph, node, a["self"], _inner_dims(graph, node, a["self"], a["dim"]))
    return viewed(graph, node, graph.emit(node, Node("add", [largest, log_sum], {})), graph.sizes(node))


def _binary_extreme(sign: int) -> Converter:
    """maximum and minimum of two values."""
    def made(graph: GraphBuilder, node: Any, a: Arguments) -> Converted:
        x, y = (a["other"], a["self"]) if constant_number(graph, a["self"]) is not None else (a["self"], a["other"])
        return extreme(graph, node, graph.value_name(node, x), y, sign)
    return made


def extreme(graph: GraphBuilder, node: Any, x: str, limit: Any, sign: int) -> str:
    """max (sign 1) or min (-1) of two values; where they are equal each gets half of the gradient."""
    if (number := constant_number(graph, limit)) is not None:
        limits: dict[str, Any] = {"least": bounded(number), "most": -HIDDEN} if sign > 0 else {"least": HIDDEN, "most": bounded(number)}
        return _average(graph, node, *(graph.emit(node, Node(op, [x], limits)) for op in ("clamp", "hardtanh")))
    other = graph.value_name(node, limit)
    distance = scaled(graph, node, graph.emit(node, Node("add", [x, scaled(graph, node, other, -1)], {})), sign)
    chosen = [graph.emit(node, Node("less", [scaled(graph, node, distance, one)], {"than": 0.0})) for one in (-1, 1)]
    neither = inverted(graph, node, graph.emit(node, Node("add", chosen, {})))  # equal, or a NaN, which stays one
    parts = [graph.emit(node, Node("select", [value, where], {})) for value, where in zip((x, other), chosen)]
    both = graph.emit(node, Node("select", [_average(graph, node, x, other), neither], {}))
    return graph.emit(node, Node("add", [graph.emit(node, Node("add", parts, {})), both], {}))


def _average(graph: GraphBuilder, node: Any, x: str, y: str) -> str:
    return scaled(graph, node, graph.emit(node, Node("add", [x, y], {})), 0.5)


def _inner_dims(graph: GraphBuilder, node: Any, x: Any, dims: Any) -> list[int]:
    """The dimensions as ascending non-negative numbers; ExportError if one counts samples."""
    sizes = graph.sizes(node, graph.shape(x))
    found = sorted(dim % len(sizes) for dim in (dims if dims else range(len(sizes))))
    if any(sizes[dim] < 0 for dim in found):
        of_batch = any(kind in str(node.target) for kind in ("var", "std"))  # statistics that forward computes itself
        raise graph.refuse(node, f"over the dimensions {found} of {len(sizes)}, one of which counts samples: an update of gaccd "
                                 "is a sum over samples, which must not depend on each other" + (
                                     "; nn.BatchNorm1d, 2d and 3d have exact statistics of all samples, nn.GroupNorm has those of "
                                     "each sample" if of_batch else ""))
    return found


def _pooled(graph: GraphBuilder, node: Any, x: Any, dims: list[int], keepdim: bool, sign: int) -> str:
    """max (sign 1) or min (-1) over these dimensions, as max pooling of rows."""
    sizes = graph.sizes(node, graph.shape(x))
    kept = sorted((dim for dim in range(len(sizes)) if dim not in dims), key=lambda dim: sizes[dim] >= 0)  # samples first
    y = scaled(graph, node, permuted(graph, node, rows_name(graph, node, x), [*kept, *dims]), sign)
    count = math.prod(sizes[dim] for dim in dims)
    rows = viewed(graph, node, y, [sizes[kept[0]] if kept else 1, math.prod(sizes[dim] for dim in kept[1:]), 1, count])
    pooled = graph.emit(node, Node("max_pool2d", [rows], {
        "kernel": [1, count], "stride": [1, count], "padding": [0, 0], "dilation": [1, 1]}))
    found = [size if dim in kept else 1 for dim, size in enumerate(sizes) if dim in kept or keepdim]
    if kept != sorted(kept):
        pooled = viewed(graph, node, pooled, [sizes[dim] for dim in kept])
        pooled = permuted(graph, node, pooled, [kept.index(dim) for dim in sorted(kept)])
    return viewed(graph, node, scaled(graph, node, pooled, sign), found)


def _reduce_extreme(sign: int) -> Converter:
    """amax and amin. The gradient of the pooling goes to the first of equal values; the mean of their distances from it, which
    is 0, shares it among them."""
    def made(graph: GraphBuilder, node: Any, a: Arguments) -> Converted:
        dims = _inner_dims(graph, node, a["self"], a["dim"] if "dim" in a else None)
        x, largest = graph.value_name(node, a["self"]), _pooled(graph, node, a["self"], dims, True, sign)
        distance = graph.emit(node, Node("add", [x, scaled(graph, node, largest, -1)], {}))
        equal = graph.emit(node, Node("equal", [distance], {"to": 0.0}))
        both = [graph.emit(node, Node("select", [distance, equal], {})), equal]
        total, count = (graph.emit(node, Node("sum", [one], {"dims": dims, "keepdim": True})) for one in both)
        mean = graph.emit(node, Node("mul", [total, graph.emit(node, Node("power", [count], {"exponent": -1.0}))], {}))
        return viewed(graph, node, graph.emit(node, Node("add", [largest, mean], {})), graph.sizes(node))
    return made


def _variance_and_mean(root: bool) -> Converter:
    def made(graph: GraphBuilder, node: Any, a: Arguments) -> Converted:
        dims = _inner_dims(graph, node, a["self"], a["dim"] if "dim" in a else None)
        mean = graph.emit(node, Node("mean", input_names(graph, node, a["self"]), {"dims": dims, "keepdim": bool(a["keepdim"])}))
        return [_variance(root)(graph, node, a), mean]
    return made


def _extreme_values(sign: int) -> Converter:
    """max and min over a dimension: the values without their indices; over all dimensions as amax and amin."""
    def made(graph: GraphBuilder, node: Any, a: Arguments) -> Converted:
        if "dim" not in a:
            return _reduce_extreme(sign)(graph, node, a)
        return [_pooled(graph, node, a["self"], _inner_dims(graph, node, a["self"], [a["dim"]]), bool(a["keepdim"]), sign)]
    return made


def squared_distance(graph: GraphBuilder, node: Any, x: str, dims: list[int], keepdim: bool) -> tuple[str, str]:
    """x - mean(x) over these dimensions, and the mean of its squares."""
    mean = graph.emit(node, Node("mean", [x], {"dims": dims, "keepdim": True}))
    centered = graph.emit(node, Node("add", [x, scaled(graph, node, mean, -1)], {}))
    squares = graph.emit(node, Node("power", [centered], {"exponent": 2.0}))
    return centered, graph.emit(node, Node("mean", [squares], {"dims": dims, "keepdim": keepdim}))


def _variance(root: bool) -> Converter:
    """var, and std, whose gradient of equal values is 0."""
    def made(graph: GraphBuilder, node: Any, a: Arguments) -> Converted:
        dims = _inner_dims(graph, node, a["self"], a["dim"] if "dim" in a else None)
        count = math.prod(graph.shape(a["self"])[dim] for dim in dims)
        less = float(a["unbiased"]) if "unbiased" in a else 1.0 if a["correction"] is None else float(a["correction"])
        if count <= less:
            raise graph.refuse(node, f"of {count} values less {less:g}, expected more values")
        _, squares = squared_distance(graph, node, graph.value_name(node, a["self"]), dims, "keepdim" in a and bool(a["keepdim"]))
        found = scaled(graph, node, squares, count / (count - less))
        return graph.emit(node, Node("root", [found], {})) if root else found
    return made


def _trilinear(graph: GraphBuilder, node: Any, a: Arguments) -> Converted:
    """nn.Bilinear: a linear layer on the products of all pairs of values."""
    x, weight, y = (graph.sizes(node, graph.shape(a[name])) for name in ("i1", "i2", "i3"))
    if [a["expand1"], a["expand2"], a["expand3"], a["sumdim"]] != [[1, 3], [0], [1, 2], [2, 3]] or len(weight) != 3:
        raise graph.refuse(node, "in another form than that of nn.Bilinear")
    first, matrix, second = input_names(graph, node, a["i1"], a["i2"], a["i3"])
    both = [viewed(graph, node, first, [*x, 1]), viewed(graph, node, second, [y[0], 1, y[1]])]
    products = viewed(graph, node, graph.emit(node, Node("mul", both, {})), [x[0], x[1] * y[1]])
    matrix = viewed(graph, node, matrix, [weight[0], weight[1] * weight[2]])
    return Node("matmul", [products, matrix], {"transpose": True})


def _distances(graph: GraphBuilder, node: Any, a: Arguments) -> Converted:
    """cdist: the length of each row less each other row, with all coordinates of all pairs in memory."""
    if a["p"] != 2:
        raise graph.refuse(node, f"with p {a['p']:g}, expected 2")
    *outer, rows, width = graph.sizes(node, graph.shape(a["x1"]))
    *others, columns, _ = graph.sizes(node, graph.shape(a["x2"]))
    x, y = (rows_name(graph, node, a[name]) for name in ("x1", "x2"))
    y = viewed(graph, node, scaled(graph, node, y, -1), [*others, 1, columns, width])
    distance = graph.emit(node, Node("add", [viewed(graph, node, x, [*outer, rows, 1, width]), y], {}))
    squares = graph.emit(node, Node("power", [distance], {"exponent": 2.0}))
    total = graph.emit(node, Node("sum", [squares], {"dims": [len(outer) + 2], "keepdim": False}))
    return Node("root", [total], {})


def _cosine_similarity(graph: GraphBuilder, node: Any, a: Arguments) -> Converted:
    """Lengths are at least eps; as in PyTorch the limit does not change their gradient."""
    shapes = [graph.shape(a[name]) for name in ("x1", "x2")]
    whole, units = list(torch.broadcast_shapes(*shapes)), []
    dim = a["dim"] % len(whole)
    for name, shape in zip(("x1", "x2"), shapes):
        x = rows_name(graph, node, a[name])
        x = x if shape == whole else repeated(graph, node, x, graph.sizes(node, whole))
        squares = graph.emit(node, Node("power", [x], {"exponent": 2.0}))
        length = graph.emit(node, Node("root", [graph.emit(node, Node("sum", [squares], {"dims": [dim], "keepdim": True}))], {}))
        limited = graph.emit(node, Node("clamp", [length], {"least": float(a["eps"]), "most": -HIDDEN}))
        more = graph.emit(node, Node("add", [limited, scaled(graph, node, length, -1)], {}))
        length = graph.emit(node, Node("add", [length, graph.emit(node, Node("detach", [more], {}))], {}))
        units.append(graph.emit(node, Node("div", [x, length], {})))
    return Node("sum", [graph.emit(node, Node("mul", units, {}))], {"dims": [dim], "keepdim": False})


FORMULAS: dict[str, Converter] = {
    "cosine_similarity": _cosine_similarity,
    "abs": _unary_formula(absolute), "softplus": _unary_formula(_softplus), "mish": _unary_formula(_mish),
    **dict.fromkeys(("elu", "celu"), _unary_formula(_elu)),
    "sign": _unary_formula(_sign), "log2": _unary_formula(_log(1 / math.log(2))), "log10": _unary_formula(_log(1 / math.log(10))),
    "exp2": _unary_formula(_exp2), "cosh": _unary_formula(_cosh),
    **dict.fromkeys(("log_softmax", "_log_softmax"), _log_softmax), "logsumexp": _logsumexp,
    "maximum": _binary_extreme(1), "minimum": _binary_extreme(-1), "amax": _reduce_extreme(1), "amin": _reduce_extreme(-1),
    "max": _extreme_values(1), "min": _extreme_values(-1),
    "_trilinear": _trilinear, **dict.fromkeys(("cdist", "_cdist_forward"), _distances), "var": _variance(False), "std": _variance(True), "var_mean": _variance_and_mean(False), "std_mean": _variance_and_mean(True),
}
