"""Layers: what gaccd has for each op of PyTorch. The ops of the file: daemon/models/graph_ops.h."""

from __future__ import annotations

import operator
from typing import Any

import torch

from .export_attention import attention
from .export_convert import Arguments, Converter, Made, inputs_of
from .export_graph import GraphBuilder, Node
from .export_layout import LAYOUT
from .export_values import VALUES

aten = torch.ops.aten

# run_decompositions() leaves these as they are.
WHOLE_OPS = [aten.linear.default, aten.conv2d.default, aten.batch_norm.default, aten.layer_norm.default,
             aten.group_norm.default, aten.gelu.default, aten.silu.default, aten.hardswish.default,
             aten.hardsigmoid.default, aten.leaky_relu.default, aten.dropout.default, aten.native_dropout.default,
             aten.max_pool2d.default, aten.avg_pool2d.default, aten.adaptive_avg_pool2d.default,
             aten.scaled_dot_product_attention.default, aten.upsample_nearest2d.vec, aten.hardtanh.default,
             aten.relu6.default, aten.detach.default]


def convert(graph: GraphBuilder, node: Any) -> Made:
    if node.target is operator.getitem:  # of an op that has several outputs
        value = graph.value(node.args[0])
        if isinstance(value, (list, tuple)):
            return value[node.args[1]]
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


def _pair(value: Any, empty: Any = None) -> list[int]:
    values = [value] if isinstance(value, int) else list(value) or _pair(empty)
    return values * 2 if len(values) == 1 else values


def _linear(graph: GraphBuilder, node: Any, a: Arguments) -> Made:
    given = inputs_of(graph, node, a["input"], a["weight"], a["bias"])
    if not graph.is_parameter(given[1]):
        raise graph.refuse(node, "its weight is computed, expected a parameter")
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


def _convolution(graph: GraphBuilder, node: Any, a: Arguments) -> Made:
    if len(a["stride"]) != 2:
        raise graph.refuse(node, f"in {len(a['stride'])} dimensions, expected images; a Conv2d of 1 x k does what Conv1d does")
    if not a["transposed"]:
        return _conv2d(graph, node, a)
    return Node("conv_transpose2d", inputs_of(graph, node, a["input"], a["weight"], a["bias"]),
                {"stride": list(a["stride"]), "padding": list(a["padding"]), "output_padding": list(a["output_padding"]),
                 "dilation": list(a["dilation"]), "groups": a["groups"]})


def _conv2d(graph: GraphBuilder, node: Any, a: Arguments) -> Made:
    if isinstance(a["padding"], str):
        raise graph.refuse(node, f"padding {a['padding']!r}, expected numbers")
    return Node("conv2d", inputs_of(graph, node, a["input"], a["weight"], a["bias"]),
                {"stride": _pair(a["stride"]), "padding": _pair(a["padding"]), "dilation": _pair(a["dilation"]),
                 "groups": a["groups"]})


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
    return Node("group_norm", inputs_of(graph, node, a["input"], a["weight"], a["bias"]),
                {"groups": a["num_groups"], "eps": float(a["eps"])})


def _check_ceil(graph: GraphBuilder, node: Any, a: Arguments) -> None:
    if a["ceil_mode"]:
        raise graph.refuse(node, "ceil_mode is not supported")


def _max_pool2d(graph: GraphBuilder, node: Any, a: Arguments) -> Made:
    _check_ceil(graph, node, a)
    kernel = _pair(a["kernel_size"])
    return Node("max_pool2d", inputs_of(graph, node, a["self"]),
                {"kernel": kernel, "stride": _pair(a["stride"], kernel), "padding": _pair(a["padding"]),
                 "dilation": _pair(a["dilation"])})


def _avg_pool2d(graph: GraphBuilder, node: Any, a: Arguments) -> Made:
    _check_ceil(graph, node, a)
    if a["divisor_override"] is not None:
        raise graph.refuse(node, "divisor_override is not supported")
    kernel = _pair(a["kernel_size"])
    return Node("avg_pool2d", inputs_of(graph, node, a["self"]),
                {"kernel": kernel, "stride": _pair(a["stride"], kernel), "padding": _pair(a["padding"]),
                 "count_include_pad": a["count_include_pad"]})


def _adaptive_avg_pool2d(graph: GraphBuilder, node: Any, a: Arguments) -> Made:
    return Node("adaptive_avg_pool2d", inputs_of(graph, node, a["self"]), {"output": _pair(a["output_size"])})


def _dropout(graph: GraphBuilder, node: Any, a: Arguments) -> Made:
    if a["train"] is False or a["p"] == 0:
        return graph.raw_name(node, a["input"])
    return Node("dropout", inputs_of(graph, node, a["input"]), {"p": float(a["p"])})


def _random(graph: GraphBuilder, node: Any, a: Arguments) -> Made:
    raise graph.refuse(node, "draws random numbers; gaccd draws those of dropout, by sample, and no others")


CONVERTERS: dict[str, Converter] = {
    **VALUES, **LAYOUT,
    **dict.fromkeys(("batch_norm", "_native_batch_norm_legit_functional"), _batch_norm),
    **dict.fromkeys(("dropout", "native_dropout"), _dropout), **dict.fromkeys(("bmm", "mm"), _matmul),
    **dict.fromkeys(("rand", "randn", "rand_like", "randn_like", "randint", "randperm", "normal", "multinomial", "uniform",
                     "exponential", "feature_dropout"), _random),
    "linear": _linear, "addmm": _addmm, "conv2d": _conv2d, "convolution": _convolution, "layer_norm": _layer_norm,
    "group_norm": _group_norm, "max_pool2d": _max_pool2d, "avg_pool2d": _avg_pool2d,
    "adaptive_avg_pool2d": _adaptive_avg_pool2d, "scaled_dot_product_attention": attention,
}
