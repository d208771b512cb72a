"""Converters of arithmetic, powers, sums and softmax."""

from __future__ import annotations

import math
from typing import Any

import torch

from .export_convert import (Arguments, Converter, Converted, bounded, constant_number, full, input_names,
                             inverted, limited, permuted, rows_name, scaled, shifted, sliced, viewed)
from .export_formulas import absolute, extreme
from .export_graph import GraphBuilder
from .export_layout import inner_size
from .export_masks import as_mask, either
from .export_rounding import divided, divided_by, nonzero, of_type, rounded_later
from .export_types import HIDDEN, Node, SampleMask, Uniform, is_discrete

MAX_FACTORS = 64  # of a product
LARGEST_INTEGER = 24  # in bits; export_integers.py refuses larger ones


def _unary(op: str, **attributes: float) -> Converter:
    def made(graph: GraphBuilder, node: Any, a: Arguments) -> Converted:
        return Node(op, input_names(graph, node, node.args[0]), dict(attributes))
    return made


def _gelu(graph: GraphBuilder, node: Any, a: Arguments) -> Converted:
    return Node("gelu", input_names(graph, node, a["self"]), {"tanh": a["approximate"] == "tanh"})


def _leaky_relu(graph: GraphBuilder, node: Any, a: Arguments) -> Converted:
    return Node("leaky_relu", input_names(graph, node, a["self"]), {"slope": float(a["negative_slope"])})


def _sqrt(graph: GraphBuilder, node: Any, a: Arguments) -> Converted:
    """Of the distances that PyTorch makes of cdist the gradient at 0 is 0, as that of cdist."""
    if str(node.meta.get("original_aten")).startswith("aten._euclidean_dist."):
        return Node("root", input_names(graph, node, a["self"]), {})
    return Node("power", input_names(graph, node, a["self"]), {"exponent": 0.5})


def _pow(graph: GraphBuilder, node: Any, a: Arguments) -> Converted:
    exponent = constant_number(graph, a["exponent"])
    if exponent is None:
        return _pow_of_values(graph, node, a)
    if exponent == 0:  # 1, also of 0, and without a gradient
        return shifted(graph, node, scaled(graph, node, graph.value_name(node, a["self"]), 0), 1)
    return Node("power", input_names(graph, node, a["self"]), {"exponent": exponent})


def _pow_of_values(graph: GraphBuilder, node: Any, a: Arguments) -> Converted:
    """exp(exponent log(x)), as x is above 0 where the exponent is no integer; integers are those of a list."""
    if isinstance(graph.value(a["exponent"]), torch.Tensor):
        raise graph.refuse(node, "to the power of several known numbers, expected one; torch.stack of powers has several")
    base, exponent = constant_number(graph, a["self"]), graph.value_name(node, a["exponent"])
    if is_discrete(node) and base != 1:
        return _listed_powers(graph, node, a, base)
    if base is None:
        logarithm = graph.emit(node, Node("log", input_names(graph, node, a["self"]), {}))
        return Node("exp", [graph.emit(node, Node("mul", [logarithm, exponent], {}))], {})
    if base <= 0:
        raise graph.refuse(node, f"of {base:g} to the power of a value, expected a number above 0")
    return Node("exp", [scaled(graph, node, exponent, math.log(base))], {})


def _listed_powers(graph: GraphBuilder, node: Any, a: Arguments, base: float | None) -> Converted:
    """Of integers up to 2^24: exp rounds, so that a conversion to integers may give one less."""
    if base is None or base < 2:
        raise graph.refuse(node, "of integers, expected one number from 2 on to the power of them")
    powers = torch.tensor([base ** n for n in range(int(LARGEST_INTEGER / math.log2(base)) + 1)])
    sizes = graph.sizes(node, graph.shape(a["exponent"]))
    exponent = viewed(graph, node, rows_name(graph, node, a["exponent"]), [*sizes, 1])
    before = graph.constant(node, -torch.arange(len(powers), dtype=torch.float32))
    hits = graph.emit(node, Node("equal", [graph.emit(node, Node("add", [exponent, before], {}))], {"to": 0.0}))
    found = graph.emit(node, Node("mul", [hits, graph.constant(node, powers)], {}))
    return Node("sum", [found], {"dims": [len(sizes)], "keepdim": False})


def _gradient_at_limit(kind: Any) -> float:
    with torch.inference_mode(False), torch.enable_grad():  # gaccd.export may first be called in no_grad()
        x = torch.zeros((), requires_grad=True)
        return float(torch.autograd.grad(x.clamp(min=kind(0.0)), x)[0])


# Where a value is the limit the gradient of clamp differs between versions of PyTorch: 1 or 0, and 1 or half of it for a tensor.
CLAMP = "clamp" if _gradient_at_limit(float) == 1 else "hardtanh"
SHARES_WITH_LIMIT = _gradient_at_limit(torch.tensor) == 0.5


def _limits(op: str, least: str, most: str) -> Converter:
    """Limits are numbers or tensors; the lower limit is applied first, as in PyTorch."""
    def made(graph: GraphBuilder, node: Any, a: Arguments) -> Converted:
        given = [a[name] if name else None for name in (least, most)]
        numbers = [None if one is None else constant_number(graph, one) for one in given]
        low, high = numbers
        if low is not None and high is not None and low > high:
            raise graph.refuse(node, f"between {low:g} and {high:g}, expected the lower limit first")
        x = graph.value_name(node, a["self"])
        if SHARES_WITH_LIMIT and "Tensor" in str(node.target):
            for one, sign in zip(given, (1, -1)):
                x = x if one is None else extreme(graph, node, x, one, sign)
            return x
        if given[0] is not None and low is None:
            x = limited(graph, node, x, graph.value_name(node, given[0]), 1)
        if low is not None or high is not None or given == [None, None]:
            x = graph.emit(node, Node(op, [x], {"least": HIDDEN if low is None else bounded(low),
                                                "most": -HIDDEN if high is None else bounded(high)}))
        if given[1] is not None and high is None:
            x = limited(graph, node, x, graph.value_name(node, given[1]), -1)
        return x
    return made


def _add(sign: float, reversed_: bool = False) -> Converter:
    def made(graph: GraphBuilder, node: Any, a: Arguments) -> Converted:
        if node.meta["val"].dtype == torch.bool:
            return either(graph, node, a)
        for one, other in ((a["self"], a["other"]), (a["other"], a["self"])):
            drawn, number = graph.value(one), constant_number(graph, other)
            if isinstance(drawn, Uniform) and number is not None and sign == a["alpha"] == 1:
                return Uniform(drawn.drawn, drawn.least + number)
        x, y = (a["other"], a["self"]) if reversed_ else (a["self"], a["other"])
        factor = sign * float(a["alpha"])
        if (number := constant_number(graph, y)) is not None:
            return shifted(graph, node, graph.value_name(node, x), factor * number)
        if (number := constant_number(graph, x)) is not None:
            return shifted(graph, node, scaled(graph, node, graph.value_name(node, y), factor), number)
        return Node("add", [graph.value_name(node, x), scaled(graph, node, graph.value_name(node, y), factor)], {})
    return made


def _drop_samples(graph: GraphBuilder, node: Any, x: Any, mask: Any) -> Converted:
    value = graph.value(mask)
    size, *rest = graph.shape(mask)
    if isinstance(size, int):
        raise graph.refuse(node, f"random numbers of the shape {graph.shape(mask)}, expected some for each sample")
    if graph.is_drawn(value.drawn):
        raise graph.refuse(node, "takes the random numbers of samples that another product took; gaccd would draw others. "
                                 "Multiply both at once, as in (x + y) * mask or torch.cat")
    graph.masks_used.add(value.drawn)
    if any(one != 1 for one in rest) or len(rest) + 1 != len(graph.shape(x)):  # one value per channel
        ones = full(graph, node, value.keep * value.scale, graph.sizes(node, graph.shape(mask)))
        drawn = graph.emit(node, Node("dropout", [ones], {"p": 1 - value.keep}))
        return Node("mul", [*input_names(graph, node, x), drawn], {})
    dropped = graph.emit(node, Node("drop_samples", input_names(graph, node, x), {"p": 1 - value.keep}))
    return scaled(graph, node, dropped, 1 if abs(value.scale * value.keep - 1) < 1e-6 else value.scale * value.keep)


def _mul(graph: GraphBuilder, node: Any, a: Arguments) -> Converted:
    x, y = a["self"], a["other"]
    for one, other in ((x, y), (y, x)):
        if isinstance(graph.value(other), SampleMask):
            return _drop_samples(graph, node, one, other)
        if (number := constant_number(graph, other)) is not None:
            return Node("scale", input_names(graph, node, one), {"factor": bounded(number)})
    return Node("mul", input_names(graph, node, x, y), {})


def _div(graph: GraphBuilder, node: Any, a: Arguments) -> Converted:
    if "rounding_mode" in a and a["rounding_mode"] is not None:
        return divided(graph, node, a)
    x, number = a["self"], constant_number(graph, a["other"])
    if number is None:
        if (numerator := constant_number(graph, x)) is not None:
            return Node("div", [graph.constant(node, torch.tensor([numerator])), *input_names(graph, node, a["other"])], {})
        return Node("div", input_names(graph, node, x, a["other"]), {})
    mask = graph.value(x)
    if isinstance(mask, SampleMask):
        return SampleMask(mask.keep, mask.scale / number, mask.drawn)
    if not x.meta["val"].dtype.is_floating_point or number == 0 or rounded_later(node):
        return divided_by(graph, node, graph.value_name(node, x), number)
    return Node("scale", input_names(graph, node, x), {"factor": 1 / number})


def _times_log(op: str) -> Converter:
    """xlogy and xlog1py, x log(y): 0 where x is 0, with the gradient of x there as well, log(y)."""
    def made(graph: GraphBuilder, node: Any, a: Arguments) -> Converted:
        x = graph.value_name(node, a["self"])
        y = shifted(graph, node, graph.value_name(node, a["other"]), 1.0 if op == "log1p" else 0.0)
        zero = graph.emit(node, Node("equal", [x], {"to": 0.0}))
        above = graph.emit(node, Node("less", [scaled(graph, node, y, -1)], {"than": 0.0}))
        hidden = graph.emit(node, Node("mul", [zero, inverted(graph, node, above)], {}))  # 0 log(0)
        argument = graph.emit(node, Node("select", [graph.value_name(node, a["other"]), inverted(graph, node, hidden)], {}))
        argument = graph.emit(node, Node("add", [argument, hidden], {})) if op == "log" else argument
        return Node("mul", [x, graph.emit(node, Node(op, [argument], {}))], {})
    return made


def _sinc(graph: GraphBuilder, node: Any, a: Arguments) -> Converted:
    """sin(pi x) / (pi x), 1 with the gradient 0 where x is 0."""
    x = scaled(graph, node, graph.value_name(node, node.args[0]), math.pi)
    zero = graph.emit(node, Node("equal", [x], {"to": 0.0}))
    divisor = graph.emit(node, Node("add", [graph.emit(node, Node("select", [x, inverted(graph, node, zero)], {})), zero], {}))
    quotient = graph.emit(node, Node("div", [graph.emit(node, Node("sin", [x], {})), divisor], {}))
    return Node("add", [graph.emit(node, Node("select", [quotient, inverted(graph, node, zero)], {})), zero], {})


def _cumsum(graph: GraphBuilder, node: Any, a: Arguments) -> Converted:
    """A product with an upper triangular matrix of ones."""
    order = _last(graph, node, a["self"], a["dim"])
    size = graph.shape(a["self"])[order[-1]]
    ones = graph.constant(node, torch.ones(size, size).triu())
    x = permuted(graph, node, graph.value_name(node, a["self"]), order)
    return permuted(graph, node, graph.emit(node, Node("linear", [x, ones], {"in_out": True})), order)


def _products(cumulative: bool) -> Converter:
    """prod and cumprod as products of two values each, whose gradients are exact also at 0."""
    def made(graph: GraphBuilder, node: Any, a: Arguments) -> Converted:
        rank = len(graph.shape(a["self"]))
        found: list[str] = []
        if "dim" not in a:
            raise graph.refuse(node, "over all dimensions, expected one")
        dim, count = inner_size(graph, node, a["self"], a["dim"])
        if count > MAX_FACTORS:
            raise graph.refuse(node, f"of {count} values, expected at most {MAX_FACTORS}; exp of a sum of logs is, of positive values")
        x = graph.value_name(node, a["self"])
        for place in range(count):
            one = sliced(graph, node, x, dim, place, place + 1, keepdim=cumulative or bool(a["keepdim"]))
            found.append(graph.emit(node, Node("mul", [found[-1], one], {})) if found else one)
        return graph.emit(node, Node("cat", found, {"dim": dim})) if cumulative and rank and count > 1 else found[-1]
    return made


def _without_samples(graph: GraphBuilder, node: Any, x: Any, given: Any) -> list[int]:
    """The dimensions of a sum, all if none is given, as ascending non-negative numbers; ExportError if one counts samples."""
    rank = len(graph.shape(x))
    dims = sorted(dim % rank for dim in ([given] if isinstance(given, int) else given) or range(rank))
    if any(not isinstance(graph.shape(x)[dim], int) for dim in dims):
        raise graph.refuse(node, f"over the dimensions {dims} of {rank}, one of which counts samples: an update of gaccd "
                                 "is a sum over samples, which must not depend on each other; the losses of the samples, "
                                 '[samples], can be the output (reduction="none", then the mean over the other dimensions)')
    return dims


def _sum(op: str) -> Converter:
    def made(graph: GraphBuilder, node: Any, a: Arguments) -> Converted:
        rank = len(graph.shape(a["self"]))
        dims = _without_samples(graph, node, a["self"], a["dim"] if "dim" in a else None)
        keepdim = "keepdim" in a and bool(a["keepdim"])
        if op == "mean" and rounded_later(node):
            total = graph.emit(node, Node("sum", input_names(graph, node, a["self"]), {"dims": dims, "keepdim": keepdim}))
            return divided_by(graph, node, total, math.prod(graph.shape(a["self"])[dim] for dim in dims))
        count = graph.sizes(node, graph.shape(a["self"]))[0] if rank > 0 and a["self"] in graph.input_dependent else 0
        if op == "mean" and count < 0 and rank == 4 and dims == [2, 3]:
            return Node("mean_image", input_names(graph, node, a["self"]), {"keepdim": keepdim})
        if op == "mean" and count == -1 and rank == 3 and dims == [1] and not keepdim:
            return Node("mean_rows", input_names(graph, node, a["self"]), {})
        return Node(op, input_names(graph, node, a["self"]), {"dims": dims, "keepdim": keepdim})
    return made


def _vector_norm(graph: GraphBuilder, node: Any, a: Arguments) -> Converted:
    """The root operation has gradient 0 at 0, unlike sqrt of a sum of squares."""
    if a["ord"] not in (1, 2):
        raise graph.refuse(node, f"a norm of the order {a['ord']}, expected 1 or 2")
    squares = _sum("sum")(graph, node, a)
    if a["ord"] == 1:
        squares.inputs = [absolute(graph, node, squares.inputs[0])]
        return squares
    squares.inputs = [graph.emit(node, Node("power", squares.inputs, {"exponent": 2.0}))]
    return Node("root", [graph.emit(node, squares)], {})


def _binary_cross_entropy(graph: GraphBuilder, node: Any, a: Arguments) -> Converted:
    """The gradient of x is PyTorch's, (x - target) / max(x (1 - x), 1e-12): that of the logarithms is NaN where x is 0 or 1."""
    def emit(op: str, *given: str, **attributes: Any) -> str:
        return graph.emit(node, Node(op, list(given), attributes))
    trained, target = graph.value_name(node, a["self"]), graph.value_name(node, a["target"])
    x = emit("detach", trained)
    below = scaled(graph, node, x, -1)
    logs = [emit("clamp", one, least=-100.0, most=-HIDDEN) for one in (emit("log1p", below), emit("log", x))]
    value = emit("add", emit("mul", shifted(graph, node, target, -1), logs[0]), scaled(graph, node, emit("mul", target, logs[1]), -1))
    least = emit("clamp", emit("mul", x, shifted(graph, node, below, 1)), least=1e-12, most=-HIDDEN)
    least = emit("add", least, emit("equal", least, to=0.0))  # of 16 bits, 1e-12 is 0
    root = emit("power", least, exponent=-0.5)  # twice, as 16 bits do not hold the quotient
    slope = emit("detach", emit("mul", emit("add", x, scaled(graph, node, target, -1)), root))
    y = emit("add", value, emit("mul", slope, emit("mul", root, emit("add", trained, below))))  # adds 0, with the gradient
    y = y if a["weight"] is None else emit("mul", y, graph.value_name(node, a["weight"]))
    if not a["reduction"]:
        return y
    return Node("mean" if a["reduction"] == 1 else "sum", [y], {"dims": _without_samples(graph, node, a["self"], None), "keepdim": False})


def _any(graph: GraphBuilder, node: Any, a: Arguments) -> Converted:
    count = _sum("sum")(graph, node, a)
    count.inputs = [as_mask(graph, node, a["self"])]
    return nonzero(graph, node, graph.emit(node, count))


def _last(graph: GraphBuilder, node: Any, x: Any, dim: int) -> list[int]:
    """The permutation that exchanges this dimension with the last; it is its own inverse."""
    shape = graph.shape(x)
    dim, order = dim % len(shape), list(range(len(shape)))
    if not isinstance(shape[dim], int):
        raise graph.refuse(node, f"over dimension {dim} of {len(shape)}, which counts samples; they must not depend on each other")
    order[dim], order[-1] = order[-1], order[dim]
    return order


def _softmax(graph: GraphBuilder, node: Any, a: Arguments) -> Converted:
    order = _last(graph, node, a["self"], a["dim"])
    x = permuted(graph, node, graph.value_name(node, a["self"]), order)
    return permuted(graph, node, graph.emit(node, Node("softmax", [x], {})), order)


def _to_copy(graph: GraphBuilder, node: Any, a: Arguments) -> Converted:
    return of_type(graph, node, node.args[0], a["dtype"] or node.args[0].meta["val"].dtype)


VALUES: dict[str, Converter] = {
    **{name: _unary(name) for name in ("relu", "silu", "tanh", "sigmoid", "hardswish", "hardsigmoid", "exp", "expm1", "log", "log1p", "sin", "cos",
                                       "erf", "erfc")},
    **{name: _unary("power", exponent=exponent)
       for name, exponent in (("rsqrt", -0.5), ("reciprocal", -1.0), ("square", 2.0))},
    **dict.fromkeys(("_softmax", "softmax"), _softmax),
    "sqrt": _sqrt, "prod": _products(False), "cumprod": _products(True), "sinc": _sinc, "special_sinc": _sinc,
    "xlogy": _times_log("log"), "special_xlogy": _times_log("log"), "special_xlog1py": _times_log("log1p"), "neg": _unary("scale", factor=-1.0), "relu6": _unary("hardtanh", least=0.0, most=6.0),
    "hardtanh": _limits("hardtanh", "min_val", "max_val"), "clamp": _limits(CLAMP, "min", "max"),
    "clamp_min": _limits(CLAMP, "min", ""), "clamp_max": _limits(CLAMP, "", "max"),
    "gelu": _gelu, "leaky_relu": _leaky_relu, "pow": _pow, "add": _add(1), "sub": _add(-1), "rsub": _add(-1, True),
    "mul": _mul, "div": _div, "cumsum": _cumsum, "any": _any,
    "linalg_vector_norm": _vector_norm, "binary_cross_entropy": _binary_cross_entropy, "sum": _sum("sum"), "mean": _sum("mean"), "_to_copy": _to_copy,
}
