"""Convolutions of volumes and videos [samples, channels, depth, height, width], as those of images."""

from __future__ import annotations

from typing import Any

from .export_convert import permuted, sliced, viewed
from .export_graph import GraphBuilder
from .export_types import Node

Attributes = dict[str, "float | int | bool | list[int]"]


def _swapped(graph: GraphBuilder, node: Any, x: str) -> str:
    """Exchanges channels and depth, so that each slice is an image."""
    return permuted(graph, node, x, [0, 2, 1, 3, 4])


def _from_slices(graph: GraphBuilder, node: Any, y: str) -> str:
    """The result, whose images y are the slices of each sample."""
    samples, channels, *others = graph.sizes(node)
    return _swapped(graph, node, viewed(graph, node, y, [samples, others[0], channels, *others[1:]]))


def convolution(graph: GraphBuilder, node: Any, x: str, weight: str, a: dict[str, list[int]], groups: int) -> str:
    """A convolution of slices whose channels are those of all slices below the kernel; one of single places, in depth alone, is one
    of images [depth, height * width]. a: stride, padding and dilation."""
    samples, channels, depth, height, width = graph.sizes(node, graph.shape(node.args[0]))
    out, inputs, taps, *area = graph.shape(node.args[1])
    (stride, *strides), (pad, *pads), (step, *steps) = a["stride"], a["padding"], a["dilation"]
    if area == [1, 1] and strides == [1, 1] and pads == [0, 0]:
        x = viewed(graph, node, x, [samples, channels, depth, height * width])
        kernel = viewed(graph, node, weight, [out, inputs, taps, 1])
        along: Attributes = {"stride": [stride, 1], "padding": [pad, 0], "dilation": [step, 1], "groups": groups}
        return viewed(graph, node, graph.emit(node, Node("conv2d", [x, kernel, ""], along)), graph.sizes(node))
    count = graph.sizes(node)[2]
    if pad:
        x = graph.emit(node, Node("pad", [x], {"before": [0, 0, pad, 0, 0], "after": [0, 0, pad, 0, 0]}))
    below = []  # for each tap of the kernel the slices that it is multiplied with
    for tap in range(taps):
        made = Node("take", [x], {"dim": 2, "start": tap * step, "count": count, "step": stride})
        below.append(viewed(graph, node, graph.emit(node, made), [samples, channels, 1, count, height, width]))
    x = below[0] if taps == 1 else graph.emit(node, Node("cat", below, {"dim": 2}))
    x = viewed(graph, node, permuted(graph, node, x, [0, 3, 1, 2, 4, 5]), [samples * count, channels * taps, height, width])
    kernel = viewed(graph, node, weight, [out, inputs * taps, *area])
    within: Attributes = {"stride": strides, "padding": pads, "dilation": steps, "groups": groups}
    return _from_slices(graph, node, graph.emit(node, Node("conv2d", [x, kernel, ""], within)))


def transposed(graph: GraphBuilder, node: Any, x: str, weight: str, a: dict[str, list[int]], groups: int) -> str:
    """A transposed convolution of slices that makes the channels of all taps; the sum of them, each at its depth.
    a: stride, padding, output_padding and dilation."""
    samples, channels, depth, height, width = graph.sizes(node, graph.shape(node.args[0]))
    inputs, _, taps, *area = graph.shape(node.args[1])
    (stride, *strides), (pad, *pads), (step, *steps), (more, *mores) = (
        a[name] for name in ("stride", "padding", "dilation", "output_padding"))
    _, out, result, *image = graph.sizes(node)
    x = viewed(graph, node, _swapped(graph, node, x), [samples * depth, channels, height, width])
    kernel = viewed(graph, node, weight, [inputs, out // groups * taps, *area])
    within: Attributes = {"stride": strides, "padding": pads, "dilation": steps, "groups": groups, "output_padding": mores}
    y = graph.emit(node, Node("conv_transpose2d", [x, kernel, ""], within))
    y = permuted(graph, node, viewed(graph, node, y, [samples, depth, out, taps, *image]), [0, 2, 3, 1, 4, 5])
    whole = depth * stride + step * (taps - 1) + more  # slices, before `padding` of them are cut at the start
    total = ""
    for tap in range(taps):
        one = viewed(graph, node, sliced(graph, node, y, 2, tap, tap + 1), [samples, out, depth, 1, *image])
        if stride > 1:  # zeros between the slices
            one = graph.emit(node, Node("pad", [one], {"before": [0] * 6, "after": [0, 0, 0, stride - 1, 0, 0]}))
        one = viewed(graph, node, one, [samples, out, depth * stride, *image])
        before = tap * step
        one = graph.emit(node, Node("pad", [one], {"before": [0, 0, before, 0, 0],
                                                   "after": [0, 0, whole - depth * stride - before, 0, 0]}))
        total = graph.emit(node, Node("add", [total, one], {})) if total else one
    return sliced(graph, node, total, 2, pad, pad + result)
