"""Norms: batch, layer and group norms, also of several dimensions and without parameters."""

from __future__ import annotations

import math
from typing import Any

import torch

from .export_convert import Arguments, Converter, Converted, input_names, rows_name, shifted, viewed, with_samples
from .export_formulas import squared_distance
from .export_graph import GraphBuilder
from .export_types import Node
from .export_images import as_image


def _or_filled(graph: GraphBuilder, node: Any, parameters: list[str], size: int) -> list[str]:
    """The parameters, with weights of 1 and biases of 0 for missing ones."""
    return [one or graph.constant(node, torch.full((size,), fill)) for one, fill in zip(parameters, (1.0, 0.0))]


def _batch_norm(graph: GraphBuilder, node: Any, a: Arguments) -> Converted:
    if None in (a["running_mean"], a["running_var"]):
        raise graph.refuse(node, "expected track_running_stats=True, as samples may depend on each other by running statistics alone")
    x, weight, bias, *running = input_names(graph, node, a["input"], a["weight"], a["bias"], a["running_mean"], a["running_var"])
    counter = graph.sibling(running[0], "num_batches_tracked")
    if not counter:
        raise graph.refuse(node, f"expected a buffer num_batches_tracked next to {running[0]}, as nn.BatchNorm1d to 3d have; use one of them")
    if a["momentum"] is None or not 0 < a["momentum"] <= 1:
        raise graph.refuse(node, f"momentum: expected a number in (0, 1], found {a['momentum']}")
    sizes = graph.sizes(node, graph.shape(a["input"]))
    if min(sizes) >= 0:
        raise graph.refuse(node, "normalises what does not depend on samples, expected values of samples; F.batch_norm without running "
                                 "statistics normalises weights")
    x = with_samples(graph, node, a["input"], x)
    given = [as_image(graph, node, x, sizes) if len(sizes) > 4 else x, *_or_filled(graph, node, [weight, bias], sizes[1]), *running, counter]
    made = Node("batch_norm", given, {"eps": float(a["eps"]), "momentum": float(a["momentum"])})
    return made if len(sizes) <= 4 else viewed(graph, node, graph.emit(node, made), sizes)


def _eval_batch_norm(graph: GraphBuilder, node: Any, a: Arguments) -> Converted:
    """A batch norm that uses running statistics also in training."""
    running = [graph.value(a[name]) for name in ("running_mean", "running_var")]
    if not all(isinstance(one, torch.Tensor) for one in running):
        raise graph.refuse(node, "of statistics that are computed or trained, expected buffers")
    sizes = graph.sizes(node, graph.shape(a["input"]))
    rows = [sizes[1], *[1] * (len(sizes) - 2)]
    mean, inverse = (graph.constant(node, one.view(rows)) for one in (-running[0], (running[1] + float(a["eps"])).rsqrt()))
    y = graph.emit(node, Node("add", [graph.value_name(node, a["input"]), mean], {}))
    y = graph.emit(node, Node("mul", [y, inverse], {}))
    return [_affine(graph, node, y, input_names(graph, node, a["weight"], a["bias"]), rows)]


def _affine(graph: GraphBuilder, node: Any, y: str, parameters: list[str], rows: list[int]) -> str:
    """parameters: weight and bias; "": none."""
    for one, op in zip(parameters, ("mul", "add")):
        y = graph.emit(node, Node(op, [y, viewed(graph, node, one, rows)], {})) if one else y
    return y


def _layer_norm(graph: GraphBuilder, node: Any, a: Arguments) -> Converted:
    """Normalises several dimensions as one row."""
    last = list(a["normalized_shape"])
    count = math.prod(last)
    x, weight, bias = input_names(graph, node, a["input"], a["weight"], a["bias"])
    sizes = graph.sizes(node)
    if len(last) == 1 and all(not one or graph.is_parameter(one) for one in (weight, bias)):
        return Node("layer_norm", [x, *_or_filled(graph, node, [weight, bias], count)], {"eps": float(a["eps"])})
    rows = viewed(graph, node, with_samples(graph, node, a["input"], x), [*sizes[:-len(last)], count])
    y = graph.emit(node, Node("layer_norm", [rows, *_or_filled(graph, node, ["", ""], count)], {"eps": float(a["eps"])}))
    y = viewed(graph, node, y, sizes)
    for one, op in ((weight, "mul"), (bias, "add")):
        y = graph.emit(node, Node(op, [y, one], {})) if one else y
    return y


def _group_norm(graph: GraphBuilder, node: Any, a: Arguments) -> Converted:
    x, (weight, bias) = rows_name(graph, node, a["input"]), input_names(graph, node, a["weight"], a["bias"])
    return _in_groups(graph, node, x, [weight, bias], a["num_groups"], a["eps"])


def _instance_norm(graph: GraphBuilder, node: Any, a: Arguments) -> Converted:
    """As group norm with one channel per group."""
    if not a["use_input_stats"] or a["running_mean"] is not None:
        raise graph.refuse(node, "with running statistics, expected track_running_stats=False")
    x, (weight, bias) = rows_name(graph, node, a["input"]), input_names(graph, node, a["weight"], a["bias"])
    return _in_groups(graph, node, x, [weight, bias], graph.shape(a["input"])[1], a["eps"])


def _in_groups(graph: GraphBuilder, node: Any, x: str, parameters: list[str], groups: int, eps: float) -> str:
    sizes = graph.sizes(node)
    given = [as_image(graph, node, x, sizes), *_or_filled(graph, node, parameters, sizes[1])]
    y = graph.emit(node, Node("group_norm", given, {"groups": groups, "eps": float(eps)}))
    return y if len(sizes) == 4 else viewed(graph, node, y, sizes)


def _norm_without_statistics(graph: GraphBuilder, node: Any, a: Arguments) -> Converted:
    """A batch norm of weights [1, rows, values], as in standardized convolutions: the batch dimension does not count samples."""
    sizes = graph.sizes(node, graph.shape(a["input"]))
    if any(size < 0 for size in sizes):
        raise graph.refuse(node, "a batch norm without running statistics, expected track_running_stats=True")
    x, weight, bias = input_names(graph, node, a["input"], a["weight"], a["bias"])
    dims = [dim for dim in range(len(sizes)) if dim != 1]
    centered, squares = squared_distance(graph, node, x, dims, True)
    inverse = graph.emit(node, Node("power", [shifted(graph, node, squares, float(a["eps"]))], {"exponent": -0.5}))
    y = graph.emit(node, Node("mul", [centered, inverse], {}))
    return _affine(graph, node, y, [weight, bias], [sizes[1], *[1] * (len(sizes) - 2)])


NORMS: dict[str, Converter] = {
    **dict.fromkeys(("batch_norm", "_native_batch_norm_legit_functional"), _batch_norm),
    "_native_batch_norm_legit_no_training": _eval_batch_norm, "_native_batch_norm_legit": _norm_without_statistics,
    "layer_norm": _layer_norm, "group_norm": _group_norm, "instance_norm": _instance_norm,
}
