"""Layers: what gaccd has for each op of PyTorch. The ops of the file: daemon/models/graph_ops.h."""

from __future__ import annotations

import math
import operator
from typing import Any

import torch

from .export_attention import attention
from .export_convert import Arguments, Converter, Made, inputs_of, viewed
from .export_graph import GraphBuilder, Node, SampleMask, Uniform
from .export_images import IMAGES, as_image
from .export_layout import LAYOUT
from .export_values import VALUES

aten = torch.ops.aten

FIRST_STATISTIC = 3  # of the outputs of a functional batch norm

# run_decompositions() leaves these as they are.
WHOLE_OPS = [aten.linear.default, aten.conv2d.default, aten.batch_norm.default, aten.layer_norm.default,
             aten.group_norm.default, aten.gelu.default, aten.silu.default, aten.hardswish.default,
             aten.hardsigmoid.default, aten.leaky_relu.default, aten.dropout.default, aten.native_dropout.default,
             aten.max_pool2d.default, aten.avg_pool2d.default, aten.adaptive_avg_pool2d.default,
             aten.scaled_dot_product_attention.default, aten.upsample_nearest2d.vec, aten.upsample_nearest1d.vec,
             aten.upsample_bilinear2d.vec, aten.upsample_bicubic2d.vec, aten.upsample_linear1d.vec, aten.conv1d.default,
             aten.hardtanh.default, aten.relu6.default, aten.detach.default, aten.linalg_vector_norm.default]


def convert(graph: GraphBuilder, node: Any) -> Made:
    if node.target is operator.getitem:  # of an op that has several outputs
        value = graph.value(node.args[0])
        if isinstance(value, (list, tuple)):
            return value[node.args[1]]
        if node.args[1] >= FIRST_STATISTIC and "batch_norm" in str(node.args[0].target):
            raise graph.refuse(node.args[0], "is called more than once, so that its running statistics would be updated as often; "
                               "a batch norm for each call is exact")
        if node.args[1] != 0:
            raise graph.refuse(node.args[0], f"output {node.args[1]} of it is not supported")
        return value
    if not hasattr(node.target, "_schema"):
        raise graph.refuse(node, "is not supported")
    space, _, name = node.target._schema.name.partition("::")
    converter = CONVERTERS.get(name) if space == "aten" else None
    if converter is None:
        raise graph.refuse(node, "is not supported" if space == "aten" else "is a custom operation, which gaccd has no kernels "
                                 "for; write it with operations of PyTorch")
    return converter(graph, node, Arguments(node))


def _linear(graph: GraphBuilder, node: Any, a: Arguments) -> Made:
    given = inputs_of(graph, node, a["input"], a["weight"], a["bias"])
    if not graph.is_parameter(given[1]):  # as one product of all rows
        *rows, width = graph.sizes(node, graph.shape(a["input"]))
        y = graph.emit(node, Node("matmul", [viewed(graph, node, given[0], [math.prod(rows), width]), given[1]], {"transpose": True}))
        y = graph.emit(node, Node("add", [y, given[2]], {})) if given[2] else y
        return viewed(graph, node, y, graph.sizes(node))
    return Node("linear", given, {"in_out": False})


def _addmm(graph: GraphBuilder, node: Any, a: Arguments) -> Made:
    weight = graph.name_of(node, a["mat2"])
    bias = graph.name_of(node, a["self"])
    if a["beta"] != 1 or a["alpha"] != 1:
        raise graph.refuse(node, "with alpha or beta, expected 1")
    if graph.is_parameter(weight) and graph.is_parameter(bias):
        return Node("linear", [graph.name_of(node, a["mat1"]), weight, bias], {"in_out": True})
    product = graph.emit(node, Node("matmul", [graph.name_of(node, a["mat1"]), weight], {"transpose": False}))
    return Node("add", [product, bias], {})


def _matmul(graph: GraphBuilder, node: Any, a: Arguments) -> Made:
    given = inputs_of(graph, node, a["self"], a["mat2"])
    if len(graph.shape(a["self"])) == 2 and graph.is_parameter(given[1]):
        return Node("linear", given, {"in_out": True})
    return Node("matmul", given, {"transpose": False})


def _batch_norm(graph: GraphBuilder, node: Any, a: Arguments) -> Made:
    if None in (a["weight"], a["bias"], a["running_mean"], a["running_var"]):
        raise graph.refuse(node, "expected affine=True and track_running_stats=True")
    inputs = inputs_of(graph, node, a["input"], a["weight"], a["bias"], a["running_mean"], a["running_var"])
    counter = graph.sibling(inputs[3], "num_batches_tracked")
    if not counter or a["momentum"] is None or not 0 < a["momentum"] <= 1:
        raise graph.refuse(node, f"momentum: expected a number in (0, 1], found {a['momentum']}")
    return Node("batch_norm", [*inputs, counter], {"eps": float(a["eps"]), "momentum": float(a["momentum"])})


def _layer_norm(graph: GraphBuilder, node: Any, a: Arguments) -> Made:
    if len(a["normalized_shape"]) != 1:
        raise graph.refuse(node, "over several dimensions, expected the last one; flatten them before")
    given = inputs_of(graph, node, a["input"], a["weight"], a["bias"])
    for i, fill in ((1, 1.0), (2, 0.0)):
        given[i] = given[i] or graph.constant(node, torch.full(tuple(a["normalized_shape"]), fill))
    return Node("layer_norm", given, {"eps": float(a["eps"])})


def _group_norm(graph: GraphBuilder, node: Any, a: Arguments) -> Made:
    if None in (a["weight"], a["bias"]):
        raise graph.refuse(node, "expected affine=True")
    x, weight, bias = inputs_of(graph, node, a["input"], a["weight"], a["bias"])
    sizes = graph.sizes(node)
    y = graph.emit(node, Node("group_norm", [as_image(graph, node, x, sizes), weight, bias],
                              {"groups": a["num_groups"], "eps": float(a["eps"])}))
    return y if len(sizes) == 4 else viewed(graph, node, y, sizes)


def _dropout(graph: GraphBuilder, node: Any, a: Arguments) -> Made:
    if a["train"] is False or a["p"] == 0:
        return graph.raw_name(node, a["input"])
    return Node("dropout", inputs_of(graph, node, a["input"]), {"p": float(a["p"])})


def _rand(graph: GraphBuilder, node: Any, a: Arguments) -> Made:
    return Uniform(node)


def _floor(graph: GraphBuilder, node: Any, a: Arguments) -> Made:
    """floor(keep + rand()) is 1 with the probability keep."""
    drawn = graph.value(node.args[0])
    if isinstance(drawn, Uniform) and 0 < drawn.least <= 1:
        return SampleMask(drawn.least, 1.0, drawn.drawn)
    raise graph.refuse(node, "rounds what depends on data or parameters; compute it in the data instead")


def _random(graph: GraphBuilder, node: Any, a: Arguments) -> Made:
    raise graph.refuse(node, "draws random numbers; gaccd draws those of dropout, by sample, and no others")


CONVERTERS: dict[str, Converter] = {
    **VALUES, **LAYOUT, **IMAGES,
    **dict.fromkeys(("batch_norm", "_native_batch_norm_legit_functional"), _batch_norm),
    **dict.fromkeys(("dropout", "native_dropout"), _dropout), **dict.fromkeys(("bmm", "mm"), _matmul),
    **dict.fromkeys(("rand", "rand_like"), _rand), "floor": _floor,
    **dict.fromkeys(("randn", "randn_like", "randint", "randint_like", "randperm", "normal", "normal_functional",
                     "poisson", "multinomial", "uniform", "exponential", "feature_dropout"), _random),
    "linear": _linear, "addmm": _addmm, "layer_norm": _layer_norm, "group_norm": _group_norm,
    "scaled_dot_product_attention": attention,
}
