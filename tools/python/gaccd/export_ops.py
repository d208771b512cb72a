"""Converts ops of PyTorch to ops of gaccd (daemon/models/graph_ops.h)."""

from __future__ import annotations

import math
import operator
from typing import Any

import torch

from .export_attention import attention
from .export_complex import COMPLEX, OF_COMPLEX
from .export_convert import Arguments, Converter, Converted, input_names, permuted, rows_name, scaled, viewed, with_samples
from .export_formulas import FORMULAS
from .export_graph import GraphBuilder
from .export_types import Node, Refused, is_discrete
from .export_images import IMAGES
from .export_indices import INDICES
from .export_layout import LAYOUT
from .export_masks import MASKS
from .export_noise import NOISE
from .export_norms import NORMS
from .export_pools import POOLS
from .export_rounding import ROUNDING
from .export_selection import SELECTION
from .export_values import VALUES

aten = torch.ops.aten

VIEWS = ("aten.permute.", "aten.view.", "aten.unsqueeze.", "aten.squeeze.", "aten.expand.", "aten.clone.", "aten.t.",
         "aten.transpose.")
STATISTIC_OUTPUT = 3  # first of them among the outputs of a functional batch norm

# Not decomposed by run_decompositions().
WHOLE_OPS = [aten.linear.default, aten.conv2d.default, aten.batch_norm.default, aten.layer_norm.default,
             aten.group_norm.default, aten.gelu.default, aten.silu.default, aten.hardswish.default,
             aten.hardsigmoid.default, aten.leaky_relu.default, aten.dropout.default, aten.native_dropout.default,
             aten.max_pool2d.default, aten.avg_pool2d.default, aten.adaptive_avg_pool2d.default,
             aten.max_pool3d.default, aten.avg_pool3d.default, aten.adaptive_avg_pool3d.default,
             aten.upsample_nearest3d.vec, aten.upsample_trilinear3d.vec,
             aten.scaled_dot_product_attention.default, aten.upsample_nearest2d.vec, aten.upsample_nearest1d.vec,
             aten.upsample_bilinear2d.vec, aten.upsample_bicubic2d.vec, aten.upsample_linear1d.vec, aten.conv1d.default,
             aten.hardtanh.default, aten.relu6.default, aten.detach.default, aten.linalg_vector_norm.default, aten.instance_norm.default,
             aten.elu.default, aten.celu.default, aten.softplus.default, aten.mish.default, aten.stack.default, aten.log_softmax.int,
             aten.logsumexp.default, aten.std.correction, aten.std_mean.correction, aten.floor_divide.default, aten.col2im.default,
             aten.sinc.default, aten.special_sinc.default, aten.xlogy.Tensor, aten.special_xlog1py.default, aten.cosine_similarity.default,
             aten.binary_cross_entropy.default]

CONVERTS_FIRST = ("sum", "cumsum", "prod", "cumprod")  # if they are given a dtype
SMALL = (torch.int8, torch.uint8, torch.int16)


def convert(graph: GraphBuilder, node: Any) -> Converted:
    if node.target is operator.getitem:  # selects an output of an op
        value = graph.value(node.args[0])
        if isinstance(value, (list, tuple)) and node.args[1] < len(value):
            return value[node.args[1]]
        if isinstance(value, Refused):
            return value
        if node.args[1] >= STATISTIC_OUTPUT and "batch_norm" in str(node.args[0].target):
            raise graph.refuse(node.args[0], "is called more than once, so that its running statistics would be updated as often; "
                               "a batch norm for each call is exact; so is one call for one input [samples, inputs, ..], as of "
                               "two views, layers(x.flatten(0, 1)).unflatten(0, (-1, inputs)), with statistics of all inputs, "
                               "or norm.eval(), with running ones")
        if node.args[1] != 0:
            raise graph.refuse(node.args[0], f"output {node.args[1]} of it is not supported")
        return value
    if not hasattr(node.target, "_schema"):
        raise graph.refuse(node, "is not supported")
    space, _, name = node.target._schema.name.partition("::")
    value = node.meta.get("val")
    is_complex = isinstance(value, torch.Tensor) and value.is_complex()
    converter = (COMPLEX if is_complex else CONVERTERS).get(name) if space == "aten" else None
    if converter is None:
        raise graph.refuse(node, f"is not supported{' of complex values' if is_complex else ''}" if space == "aten" else
                           "is a custom operation, which gaccd has no kernels for; write it with operations of PyTorch")
    if isinstance(value, torch.Tensor) and value.dtype in SMALL and not (name == "_to_copy" and node.args[0].meta["val"].dtype == torch.bool):
        raise graph.refuse(node, f"computes in {value.dtype}, which wraps where gaccd does not; compute in torch.int64")
    if name in CONVERTS_FIRST and is_discrete(node) and (node.args[0].meta["val"].is_floating_point() or value.dtype == torch.bool):
        raise graph.refuse(node, f"converts its values to {value.dtype} first; write that conversion, as x.long().{name}(dim), or for masks any(dim) or all(dim)")
    return _of_rank(graph, node, converter(graph, node, Arguments(node)))


def _of_rank(graph: GraphBuilder, node: Any, made: Converted) -> Converted:
    """With the dimensions that a constant of one value, such as [1, 1, 1], adds to others of fewer: it became a number."""
    if torch.Tag.pointwise not in node.target.tags or not isinstance(made, (Node, str)):
        return made
    operands = [one for one in node.all_input_nodes if isinstance(one.meta.get("val"), torch.Tensor)]
    numbers = [one for one in operands if isinstance(graph.value(one), torch.Tensor) and graph.value(one).numel() == 1]
    rank = max((len(graph.shape(one)) for one in operands if one not in numbers), default=0)
    if all(len(graph.shape(one)) <= rank for one in numbers):
        return made
    return viewed(graph, node, made if isinstance(made, str) else graph.emit(node, made), graph.sizes(node))


def _linear(graph: GraphBuilder, node: Any, a: Arguments) -> Converted:
    x, weight, bias = input_names(graph, node, a["input"], a["weight"], a["bias"])
    if len(graph.shape(a["weight"])) == 1:  # one output, without a dimension of its own
        weight = viewed(graph, node, weight, [1, *graph.shape(a["weight"])])
    if graph.is_parameter(weight):
        if not bias or graph.is_parameter(bias):
            return Node("linear", [x, weight, bias], {"in_out": False})
        return Node("add", [graph.emit(node, Node("linear", [x, weight, ""], {"in_out": False})), bias], {})
    *rows, width = graph.sizes(node, graph.shape(a["input"]))  # as one product of all rows
    x = viewed(graph, node, with_samples(graph, node, a["input"], x), [math.prod(rows), width])
    if graph.sizes(node)[-1:] and graph.sizes(node)[-1] < 0 <= math.prod(rows):  # A B^T = (B A^T)^T of a weight with a row for each sample
        y = graph.emit(node, Node("matmul", [rows_name(graph, node, a["weight"]), x], {"transpose": True}))
        y = viewed(graph, node, permuted(graph, node, y, [1, 0]), graph.sizes(node))
        return Node("add", [y, bias], {}) if bias else y
    y = graph.emit(node, Node("matmul", [x, weight], {"transpose": True}))
    y = graph.emit(node, Node("add", [y, bias], {})) if bias else y
    return viewed(graph, node, y, graph.sizes(node))


def _addmm(graph: GraphBuilder, node: Any, a: Arguments) -> Converted:
    weight = graph.value_name(node, a["mat2"])
    bias = graph.value_name(node, a["self"])
    alpha, beta = float(a["alpha"]), float(a["beta"])
    if alpha == beta == 1 and graph.is_parameter(weight) and graph.is_parameter(bias):
        return Node("linear", [graph.value_name(node, a["mat1"]), weight, bias], {"in_out": True})
    if graph.sizes(node)[-1] < 0:
        product = _with_samples_last(graph, node, a["mat1"], a["mat2"])
    else:
        product = graph.emit(node, Node("matmul", [graph.value_name(node, a["mat1"]), weight], {"transpose": False}))
    return Node("add", [scaled(graph, node, product, alpha), scaled(graph, node, bias, beta)], {})


def _matmul(graph: GraphBuilder, node: Any, a: Arguments) -> Converted:
    given = [rows_name(graph, node, a[name]) for name in ("self", "mat2")]
    shape = graph.shape(a["self"])
    if len(shape) == 2 and graph.is_parameter(given[1]):
        return Node("linear", given, {"in_out": True})
    if graph.sizes(node)[-1] < 0:
        return _with_samples_last(graph, node, a["self"], a["mat2"])
    found = _as_parameter(graph, a["mat2"]) if len(shape) == 2 or shape[0] == 1 else None
    if found is None:
        if len(shape) == 3 and shape[0] == 1:  # as one product of all rows
            height, width = graph.sizes(node, graph.shape(a["mat2"])[1:])
            if height > 0 and width > 0:
                flat = [viewed(graph, node, given[0], graph.sizes(node, shape[1:])), viewed(graph, node, given[1], [height, width])]
                return viewed(graph, node, graph.emit(node, Node("matmul", flat, {"transpose": False})), graph.sizes(node))
        return Node("matmul", given, {"transpose": False})
    if len(shape) == 2:
        return Node("linear", [given[0], found[0]], {"in_out": found[1]})
    rows = viewed(graph, node, given[0], graph.sizes(node, shape[1:]))
    return viewed(graph, node, graph.emit(node, Node("linear", [rows, found[0]], {"in_out": found[1]})), graph.sizes(node))


def _with_samples_last(graph: GraphBuilder, node: Any, *given: Any) -> str:
    """A B = (B^T A^T)^T."""
    rows, order = [], [1, 0] if graph.shape(node)[:-2] in ([], [1]) else [0, 2, 1]
    for one in given:
        sizes = graph.sizes(node, graph.shape(one)[-len(order):])
        rows.append(permuted(graph, node, viewed(graph, node, rows_name(graph, node, one), sizes), order))
    y = graph.emit(node, Node("matmul", rows[::-1], {"transpose": False}))
    return viewed(graph, node, permuted(graph, node, y, order), graph.sizes(node))


def _as_parameter(graph: GraphBuilder, matrix: Any) -> tuple[str, bool] | None:
    """The two-dimensional parameter that `matrix` is a view of, and whether it is used untransposed."""
    chain: list[Any] = []
    while isinstance(matrix, torch.fx.Node) and not graph.is_parameter(str(graph.value(matrix))):
        if matrix.op != "call_function" or not str(matrix.target).startswith(VIEWS):
            return None
        chain.append(matrix)
        matrix = matrix.args[0]
    if not isinstance(matrix, torch.fx.Node) or len(graph.shape(matrix)) != 2:
        return None
    sizes = graph.shape(matrix)
    places = torch.arange(sizes[0] * sizes[1]).view(sizes)  # positions of the values
    found = places
    for one in reversed(chain):
        if any(not isinstance(size, int) for size in graph.shape(one)):
            return None
        found = one.target(found, *one.args[1:], **one.kwargs)
    for in_out, expected in ((True, places), (False, places.t())):
        if found.numel() == places.numel() and torch.equal(found.reshape(found.shape[-2:]), expected):
            return graph.value(matrix), in_out
    return None


def _dropout(graph: GraphBuilder, node: Any, a: Arguments) -> Converted:
    if a["train"] is False or a["p"] == 0:
        return graph.raw_value_name(node, a["input"])
    if a["p"] == 1:
        raise graph.refuse(node, "drops everything, expected p below 1")
    x, sizes = graph.value_name(node, a["input"]), graph.sizes(node, graph.shape(a["input"]))
    if min(sizes, default=0) >= 0:  # the mask is the same for all samples
        return Node("dropout", [x], {"p": float(a["p"])})
    x = with_samples(graph, node, a["input"], x)
    order = list(range(len(sizes)))  # exchanges the dimension of samples with the first
    samples = next(dim for dim in order if sizes[dim] < 0)
    order[0], order[samples] = samples, 0
    x = permuted(graph, node, x, order)
    return permuted(graph, node, graph.emit(node, Node("dropout", [x], {"p": float(a["p"])})), order)


def _random(graph: GraphBuilder, node: Any, a: Arguments) -> Converted:
    raise graph.refuse(node, "draws random numbers; gaccd draws those of dropout, rand, randn, randint, bernoulli and exponential, by sample, and no others")


CONVERTERS: dict[str, Converter] = {
    **VALUES, **MASKS, **FORMULAS, **LAYOUT, **INDICES, **IMAGES, **POOLS, **NORMS, **ROUNDING, **SELECTION, **OF_COMPLEX, **NOISE,
    **dict.fromkeys(("dropout", "native_dropout"), _dropout), **dict.fromkeys(("bmm", "mm"), _matmul),
    **dict.fromkeys(("randperm", "poisson", "multinomial", "feature_dropout"), _random),
    "linear": _linear, "addmm": _addmm,
    "scaled_dot_product_attention": attention,
}
