"""What gaccd has for each op of PyTorch. The ops of the file: daemon/models/graph_ops.h."""

from __future__ import annotations

import math
import operator
from typing import Any, Callable

import torch

from .export_graph import SIZE, GraphBuilder, Node

aten = torch.ops.aten

# run_decompositions() leaves these as they are.
WHOLE_OPS = [aten.linear.default, aten.conv2d.default, aten.batch_norm.default, aten.layer_norm.default,
             aten.group_norm.default, aten.gelu.default, aten.silu.default, aten.hardswish.default,
             aten.hardsigmoid.default, aten.leaky_relu.default, aten.dropout.default, aten.native_dropout.default,
             aten.max_pool2d.default, aten.avg_pool2d.default, aten.adaptive_avg_pool2d.default, aten.scaled_dot_product_attention.default]

Made = Any  # a Node, or what the value of the fx node is: a name, a constant
Converter = Callable[[GraphBuilder, Any, "Arguments"], Made]


class Arguments:
    """The arguments of a call by the names of the op's schema, with its defaults."""

    def __init__(self, node: Any) -> None:
        self.node = node
        schema = node.target._schema.arguments
        self._values = {one.name: one.default_value for one in schema if one.has_default_value()}
        self._values.update(zip((one.name for one in schema), node.args))
        self._values.update(node.kwargs)

    def __getitem__(self, name: str) -> Any:
        return self._values[name]


def convert(graph: GraphBuilder, node: Any) -> Made:
    if node.target is operator.getitem:  # the first output of an op that has several
        if node.args[1] != 0:
            raise graph.refuse(node.args[0], f"output {node.args[1]} of it is not supported")
        return graph.value(node.args[0])
    if not hasattr(node.target, "_schema"):
        return SIZE
    name = node.target._schema.name.removeprefix("aten::")
    converter = CONVERTERS.get(name)
    if name.startswith("sym_"):
        return SIZE
    if converter is None:
        raise graph.refuse(node, "is not supported")
    return converter(graph, node, Arguments(node))


def _pair(value: Any, empty: Any = None) -> list[int]:
    values = [value] if isinstance(value, int) else list(value) or _pair(empty)
    return values * 2 if len(values) == 1 else values


def _inputs(graph: GraphBuilder, node: Any, *arguments: Any) -> list[str]:
    return ["" if one is None else graph.name_of(node, one) for one in arguments]


def _same(graph: GraphBuilder, node: Any, a: Arguments) -> Made:
    return graph.value(node.args[0])


def _copy(graph: GraphBuilder, node: Any, a: Arguments) -> Made:
    if a["dtype"] not in (None, node.args[0].meta["val"].dtype):
        raise graph.refuse(node, f"converts to {a['dtype']}, expected a model of one type")
    return graph.value(node.args[0])


def _unary(op: str) -> Converter:
    def made(graph: GraphBuilder, node: Any, a: Arguments) -> Made:
        return Node(op, _inputs(graph, node, node.args[0]), {})
    return made


def _gelu(graph: GraphBuilder, node: Any, a: Arguments) -> Made:
    return Node("gelu", _inputs(graph, node, a["self"]), {"tanh": a["approximate"] == "tanh"})


def _leaky_relu(graph: GraphBuilder, node: Any, a: Arguments) -> Made:
    return Node("leaky_relu", _inputs(graph, node, a["self"]), {"slope": float(a["negative_slope"])})


def _linear(graph: GraphBuilder, node: Any, a: Arguments) -> Made:
    return Node("linear", _inputs(graph, node, a["input"], a["weight"], a["bias"]), {"in_out": False})


def _addmm(graph: GraphBuilder, node: Any, a: Arguments) -> Made:
    weight = graph.name_of(node, a["mat2"])
    if not graph.is_parameter(weight) or a["beta"] != 1 or a["alpha"] != 1:
        raise graph.refuse(node, "multiplies two values, expected a value and a parameter")
    return Node("linear", _inputs(graph, node, a["mat1"], a["mat2"], a["self"]), {"in_out": True})


def _conv2d(graph: GraphBuilder, node: Any, a: Arguments) -> Made:
    if isinstance(a["padding"], str):
        raise graph.refuse(node, f"padding {a['padding']!r}, expected numbers")
    return Node("conv2d", _inputs(graph, node, a["input"], a["weight"], a["bias"]),
                {"stride": _pair(a["stride"]), "padding": _pair(a["padding"]), "dilation": _pair(a["dilation"]),
                 "groups": a["groups"]})


def _batch_norm(graph: GraphBuilder, node: Any, a: Arguments) -> Made:
    if None in (a["weight"], a["bias"], a["running_mean"], a["running_var"]):
        raise graph.refuse(node, "expected affine=True and track_running_stats=True")
    inputs = _inputs(graph, node, a["input"], a["weight"], a["bias"], a["running_mean"], a["running_var"])
    counter = graph.sibling(inputs[3], "num_batches_tracked")
    if not counter or a["momentum"] is None or not 0 < a["momentum"] <= 1:
        raise graph.refuse(node, f"momentum: expected a number in (0, 1], found {a['momentum']}")
    return Node("batch_norm", [*inputs, counter], {"eps": float(a["eps"]), "momentum": float(a["momentum"])})


def _layer_norm(graph: GraphBuilder, node: Any, a: Arguments) -> Made:
    if len(a["normalized_shape"]) != 1 or None in (a["weight"], a["bias"]):
        raise graph.refuse(node, "expected a norm of the last dimension with weight and bias")
    return Node("layer_norm", _inputs(graph, node, a["input"], a["weight"], a["bias"]), {"eps": float(a["eps"])})


def _group_norm(graph: GraphBuilder, node: Any, a: Arguments) -> Made:
    if None in (a["weight"], a["bias"]):
        raise graph.refuse(node, "expected affine=True")
    return Node("group_norm", _inputs(graph, node, a["input"], a["weight"], a["bias"]),
                {"groups": a["num_groups"], "eps": float(a["eps"])})


def _check_ceil(graph: GraphBuilder, node: Any, a: Arguments) -> None:
    if a["ceil_mode"]:
        raise graph.refuse(node, "ceil_mode is not supported")


def _max_pool2d(graph: GraphBuilder, node: Any, a: Arguments) -> Made:
    _check_ceil(graph, node, a)
    kernel = _pair(a["kernel_size"])
    return Node("max_pool2d", _inputs(graph, node, a["self"]),
                {"kernel": kernel, "stride": _pair(a["stride"], kernel), "padding": _pair(a["padding"]),
                 "dilation": _pair(a["dilation"])})


def _avg_pool2d(graph: GraphBuilder, node: Any, a: Arguments) -> Made:
    _check_ceil(graph, node, a)
    if a["divisor_override"] is not None:
        raise graph.refuse(node, "divisor_override is not supported")
    kernel = _pair(a["kernel_size"])
    return Node("avg_pool2d", _inputs(graph, node, a["self"]),
                {"kernel": kernel, "stride": _pair(a["stride"], kernel), "padding": _pair(a["padding"]),
                 "count_include_pad": a["count_include_pad"]})


def _adaptive_avg_pool2d(graph: GraphBuilder, node: Any, a: Arguments) -> Made:
    return Node("adaptive_avg_pool2d", _inputs(graph, node, a["self"]), {"output": _pair(a["output_size"])})


def _view(graph: GraphBuilder, node: Any, a: Arguments) -> Made:
    return Node("view", _inputs(graph, node, a["self"]), {"size": graph.sizes(node)})


def _permute(graph: GraphBuilder, node: Any, a: Arguments) -> Made:
    rank = len(graph.shape(a["self"]))
    return Node("permute", _inputs(graph, node, a["self"]), {"dims": [dim % rank for dim in a["dims"]]})


def _mean(graph: GraphBuilder, node: Any, a: Arguments) -> Made:
    """Of images over height and width, of sequences over their rows."""
    rank = len(graph.shape(a["self"]))
    dims = sorted(dim % rank for dim in a["dim"] or range(rank))
    if rank == 4 and dims == [2, 3]:
        return Node("mean_image", _inputs(graph, node, a["self"]), {"keepdim": a["keepdim"]})
    if rank == 3 and dims == [1] and not a["keepdim"]:
        return Node("mean_rows", _inputs(graph, node, a["self"]), {})
    raise graph.refuse(node, f"over the dimensions {dims} of {rank}, expected height and width or the rows of sequences")


def _select(graph: GraphBuilder, node: Any, a: Arguments) -> Made:
    rank = len(graph.shape(a["self"]))
    if rank == 3 and a["dim"] % rank == 1 and a["index"] == 0:
        return Node("first_row", _inputs(graph, node, a["self"]), {})
    return _columns(graph, node, a["self"], a["dim"] % rank, a["index"], None)


def _columns(graph: GraphBuilder, node: Any, x: Any, dim: int, start: int, end: int | None) -> Made:
    """Part of the inner dimensions; end None: one index, without its dimension."""
    size = graph.sizes(node, [graph.shape(x)[dim]])[0]
    if size < 0:
        raise graph.refuse(node, "takes part of the samples")
    start = min(start + size if start < 0 else start, size)
    last = start + 1 if end is None else min(end + size if end < 0 else end, size)
    return Node("slice", _inputs(graph, node, x), {"dim": dim, "start": start, "end": last, "keepdim": end is not None})


def _slice(graph: GraphBuilder, node: Any, a: Arguments) -> Made:
    size = graph.shape(a["self"])[a["dim"]]
    start, end = a["start"] or 0, a["end"]
    whole = not isinstance(size, int) or end is None or end >= size
    if start == 0 and whole:
        return graph.value(a["self"])
    if a["step"] != 1:
        raise graph.refuse(node, "takes steps of more than 1")
    return _columns(graph, node, a["self"], a["dim"] % len(graph.shape(a["self"])), start, size if whole else end)


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) or (isinstance(value, torch.Tensor) and value.numel() == 1)


def _scale(graph: GraphBuilder, node: Any, x: Any, factor: float) -> Made:
    return Node("scale", _inputs(graph, node, x), {"factor": float(factor)})


def _add(graph: GraphBuilder, node: Any, a: Arguments) -> Made:
    if a["alpha"] != 1 or _is_number(graph.value(a["other"])):
        raise graph.refuse(node, "adds a number or a multiple, expected two values")
    return Node("add", _inputs(graph, node, a["self"], a["other"]), {})


def _mul(graph: GraphBuilder, node: Any, a: Arguments) -> Made:
    x, y = a["self"], a["other"]
    for one, other in ((x, y), (y, x)):
        value = graph.value(other)
        if _is_number(value):
            return _scale(graph, node, one, float(value))
    return Node("multiply", _inputs(graph, node, x, y), {})


def _div(graph: GraphBuilder, node: Any, a: Arguments) -> Made:
    value = graph.value(a["other"])
    if not _is_number(value):
        raise graph.refuse(node, "divides by a value, expected a number")
    return _scale(graph, node, a["self"], 1 / float(value))


def _dropout(graph: GraphBuilder, node: Any, a: Arguments) -> Made:
    if a["train"] is False:
        return graph.value(a["input"])
    return Node("dropout", _inputs(graph, node, a["input"]), {"p": float(a["p"])})


def _embedding(graph: GraphBuilder, node: Any, a: Arguments) -> Made:
    if a["padding_idx"] >= 0:
        raise graph.refuse(node, "padding_idx is not supported: its row would be trained; make the embedding without")
    ids = graph.value(a["indices"])
    if not isinstance(ids, torch.Tensor):
        return Node("embedding", _inputs(graph, node, a["indices"], a["weight"]), {})
    if not torch.equal(ids.flatten(), torch.arange(ids.numel())):
        raise graph.refuse(node, "its constant indices are not 0, 1, 2, ...")
    return Node("positions", _inputs(graph, node, a["weight"]), {"size": graph.sizes(node)})


def _expand(graph: GraphBuilder, node: Any, a: Arguments) -> Made:
    """Constants and parameters are broadcast by what takes them."""
    value = graph.value(a["self"])
    if isinstance(value, torch.Tensor) or graph.sizes(node) == graph.sizes(node, graph.shape(a["self"])):
        return value
    raise graph.refuse(node, "repeats a value")


def _attention(graph: GraphBuilder, node: Any, a: Arguments) -> Made:
    width = graph.shape(a["query"])[-1]
    scale = a["scale"]
    if a["attn_mask"] is not None:
        raise graph.refuse(node, "a mask is not supported, only is_causal")
    if a["dropout_p"] != 0:
        raise graph.refuse(node, f"dropout of attention weights: expected 0, found {a['dropout_p']}")
    if scale is not None and not math.isclose(scale, width ** -0.5, rel_tol=1e-6):
        raise graph.refuse(node, f"scale: expected 1 / sqrt({width}), found {scale}")
    if a["enable_gqa"]:
        raise graph.refuse(node, "groups of queries are not supported")
    return Node("attention", _inputs(graph, node, a["query"], a["key"], a["value"]), {"causal": a["is_causal"]})


CONVERTERS: dict[str, Converter] = {
    **{name: _unary(name) for name in ("relu", "silu", "tanh", "sigmoid", "hardswish", "hardsigmoid")},
    **dict.fromkeys(("clone", "alias", "contiguous", "lift_fresh_copy"), _same),
    **dict.fromkeys(("view", "reshape", "_unsafe_view", "unsqueeze", "squeeze", "flatten"), _view),
    **dict.fromkeys(("batch_norm", "_native_batch_norm_legit_functional"), _batch_norm),
    **dict.fromkeys(("dropout", "native_dropout"), _dropout),
    "_to_copy": _copy, "gelu": _gelu, "leaky_relu": _leaky_relu, "linear": _linear, "addmm": _addmm,
    "conv2d": _conv2d, "layer_norm": _layer_norm, "group_norm": _group_norm, "max_pool2d": _max_pool2d,
    "avg_pool2d": _avg_pool2d, "adaptive_avg_pool2d": _adaptive_avg_pool2d, "permute": _permute, "mean": _mean,
    "select": _select, "slice": _slice, "add": _add, "mul": _mul, "div": _div,
    "embedding": _embedding, "expand": _expand, "scaled_dot_product_attention": _attention,
}

