"""Convolutions and resizing of images, and of sequences [samples, channels, length] as images of one row."""

from __future__ import annotations

import math
from typing import Any

import torch

from . import export_volumes as volumes
from .export_convert import Arguments, Converter, Converted, input_names, per_dimension, repeated, rows_name, scaled, shifted, sliced, viewed, with_samples
from .export_graph import GraphBuilder
from .export_types import Node


def as_image(graph: GraphBuilder, node: Any, x: str, sizes: list[int]) -> str:
    """x as [samples, channels, 1, all others]; x itself if it is an image."""
    return x if len(sizes) == 4 else viewed(graph, node, x, [*sizes[:2], 1, math.prod(sizes[2:])])


def _convolution(graph: GraphBuilder, node: Any, a: Arguments) -> Converted:
    """Sequences use kernels of one row. The schemas of conv1d and conv2d have no `transposed`."""
    sizes = graph.sizes(node, graph.shape(a["input"]))
    if isinstance(a["padding"], str):
        raise graph.refuse(node, f"padding {a['padding']!r}, expected numbers")
    x, (weight, bias) = rows_name(graph, node, a["input"]), input_names(graph, node, a["weight"], a["bias"])
    transposed, of_samples = "transposed" in a and bool(a["transposed"]), not isinstance(a["groups"], int)
    if any(not isinstance(size, int) for size in graph.shape(a["weight"])) and not of_samples:
        raise graph.refuse(node, "its weight depends on the sample, expected one for all samples")
    if len(sizes) == 5 and not of_samples:
        three = {name: list(a[name]) for name in ("stride", "padding", "dilation", "output_padding")}
        y = (volumes.transposed if transposed else volumes.convolution)(graph, node, x, weight, three, a["groups"])
        return Node("add", [y, viewed(graph, node, bias, [graph.shape(node)[1], 1, 1, 1])], {}) if bias else y

    def both(name: str, rows_value: int) -> list[int]:
        return per_dimension(a[name], 2) if len(sizes) == 4 else [rows_value, per_dimension(a[name], 1)[0]]
    attributes: dict[str, float | int | bool | list[int]] = {
        "stride": both("stride", 1), "padding": both("padding", 0), "dilation": both("dilation", 1), "groups": a["groups"],
    }
    if of_samples:
        if transposed or len(sizes) == 5:
            raise graph.refuse(node, "a transposed convolution, or one of volumes, by kernels of each sample, expected kernels for all samples")
        return _convolution_of_samples(graph, node, a, [x, weight, bias], attributes)
    if transposed:
        attributes["output_padding"] = both("output_padding", 0)
    own = bias if not bias or graph.is_parameter(bias) else ""
    made = Node("conv_transpose2d" if transposed else "conv2d", [as_image(graph, node, x, sizes), weight, own], attributes)
    if len(sizes) == 4 and own == bias:
        return made
    y = viewed(graph, node, graph.emit(node, made), graph.sizes(node))
    if own == bias:
        return y
    return Node("add", [y, viewed(graph, node, bias, [graph.shape(node)[1], *[1] * (len(sizes) - 2)])], {})


def _single_values(graph: GraphBuilder, node: Any, channels: int, kernel: list[int]) -> str:
    """Kernels that each select one value below a window of a channel."""
    count = math.prod(kernel)
    return graph.constant(node, torch.eye(count).view(count, 1, *kernel).repeat(channels, 1, 1, 1))


def _convolution_of_samples(graph: GraphBuilder, node: Any, a: Arguments, given: list[str],
                            attributes: dict[str, float | int | bool | list[int]]) -> Converted:
    """Kernels of each sample, whose channels are groups of [1, samples * channels, ..]: products with the values below windows."""
    (one, channels, *area), (out, inputs, *kernel) = (graph.sizes(node, graph.shape(a[name])) for name in ("input", "weight"))
    groups = graph.sizes(node, [a["groups"].meta["val"]])[0]
    if one != 1 or max(channels, out, groups) >= 0:
        raise graph.refuse(node, "its groups depend on the number of samples, expected an input [1, samples * channels, ..] and weights for each sample")
    channels, out, groups = -channels, -out, -groups
    area, kernel, result = [1] * (2 - len(area)) + area, [1] * (2 - len(kernel)) + kernel, graph.sizes(node)
    x, weight, bias = given
    windows = Node("conv2d", [viewed(graph, node, x, [-1, channels, *area]), _single_values(graph, node, channels, kernel), ""],
                   {**attributes, "groups": channels})
    values = inputs * math.prod(kernel)
    columns = viewed(graph, node, graph.emit(node, windows), [-1, groups, values, math.prod(result[2:])])
    rows = viewed(graph, node, weight, [-1, groups, out // groups, values])
    y = graph.emit(node, Node("matmul", [rows, columns], {"transpose": False}))
    y = graph.emit(node, Node("add", [y, viewed(graph, node, bias, [-1, groups, out // groups, 1])], {})) if bias else y
    return viewed(graph, node, y, result)


def _fold(graph: GraphBuilder, node: Any, a: Arguments) -> Converted:
    """A transposed convolution of each channel, which adds each value at its place of the window."""
    x, (samples, values, _) = rows_name(graph, node, a["self"]), graph.sizes(node, graph.shape(a["self"]))
    kernel, stride, padding, dilation = (per_dimension(a[name], 2) for name in ("kernel_size", "stride", "padding", "dilation"))
    spans = [size + 2 * pad - step * (taps - 1) - 1 for size, pad, step, taps in zip(a["output_size"], padding, dilation, kernel)]
    blocks = [span // step + 1 for span, step in zip(spans, stride)]
    channels = values // math.prod(kernel)
    return Node("conv_transpose2d", [viewed(graph, node, x, [samples, values, *blocks]), _single_values(graph, node, channels, kernel), ""], {
        "stride": stride, "padding": padding, "dilation": dilation, "groups": channels,
        "output_padding": [span % step for span, step in zip(spans, stride)]})


def _nearness(graph: GraphBuilder, node: Any, distance: str) -> str:
    """max(0, 1 - |distance|), by comparisons, so that the gradient at whole numbers is that of PyTorch, of what follows."""
    below = [graph.emit(node, Node("less", [distance], {"than": float(than)})) for than in (-1, 0, 1)]
    parts = []
    for sign, before, after in ((1, below[0], below[1]), (-1, below[1], below[2])):
        within = graph.emit(node, Node("add", [after, scaled(graph, node, before, -1)], {}))
        parts.append(graph.emit(node, Node("select", [shifted(graph, node, scaled(graph, node, distance, sign), 1), within], {})))
    return graph.emit(node, Node("add", parts, {}))


def _grid_sample(graph: GraphBuilder, node: Any, a: Arguments) -> Converted:
    """Products with the nearness of each point to each column, then to each row."""
    if a["interpolation_mode"] != 0 or a["padding_mode"] not in (0, 1):
        raise graph.refuse(node, "expected mode='bilinear' and padding_mode='zeros' or 'border'")
    x, grid = (with_samples(graph, node, a[name], graph.value_name(node, a[name])) for name in ("input", "grid"))
    samples, channels, *area = graph.sizes(node, graph.shape(a["input"]))
    count = math.prod(graph.shape(node)[2:])
    near = []
    for place, size in zip((1, 0), area):
        at = viewed(graph, node, sliced(graph, node, grid, 3, place, place + 1), [samples, 1, 1, count])
        at = shifted(graph, node, scaled(graph, node, at, (size - a["align_corners"]) / 2), (size - 1) / 2)
        if a["padding_mode"]:
            at = graph.emit(node, Node("hardtanh", [at], {"least": 0.0, "most": size - 1.0}))
        pixels = graph.constant(node, -torch.arange(size, dtype=torch.float32)[:, None])
        near.append(_nearness(graph, node, graph.emit(node, Node("add", [at, pixels], {}))))
    height, width = area
    lines = viewed(graph, node, x, [samples, channels * height, width])
    y = graph.emit(node, Node("matmul", [lines, viewed(graph, node, near[1], [samples, width, count])], {"transpose": False}))
    y = graph.emit(node, Node("mul", [viewed(graph, node, y, [samples, channels, height, count]), near[0]], {}))
    return viewed(graph, node, graph.emit(node, Node("sum", [y], {"dims": [2], "keepdim": False})), graph.sizes(node))


def _upsample(graph: GraphBuilder, node: Any, a: Arguments) -> Converted:
    """Multiplies each resized dimension by a matrix: the result of PyTorch for images of a single 1."""
    image = node.args[0]
    x, sizes = rows_name(graph, node, image), graph.sizes(node, graph.shape(image))
    sized = [int(size) for size in graph.shape(node)[2:]]
    ratios = [new / old for new, old in zip(sized, sizes[2:])]
    # With other scale factors PyTorch reads other positions.
    whole = all(ratio.is_integer() for ratio in ratios) and "scale_factors" in a and a["scale_factors"] in (None, ratios)
    if "nearest" in str(node.target) and len(sized) == 2 and whole:
        samples, channels, height, width = sizes
        x = viewed(graph, node, x, [samples, channels, height, 1, width, 1])
        x = repeated(graph, node, x, [samples, channels, height, sized[0] // height, width, sized[1] // width])
        return viewed(graph, node, x, [samples, channels, *sized])
    last = len(sizes) - 1
    for dim in range(2, len(sizes)):
        # Other dimensions have size 2, and one index is used: with antialias PyTorch 2.15 is wrong for sizes of 1.
        shape = [sizes[dim], 1, *(2 for _ in sized)]
        shape[dim] = sizes[dim]
        ones = torch.eye(sizes[dim]).view(sizes[dim], 1, *(-1 if i == dim else 1 for i in range(2, len(sizes)))).expand(shape).contiguous()
        given = dict(zip((one.name for one in node.target._schema.arguments), node.args)) | dict(node.kwargs)
        size = [sized[i - 2] if i == dim else 2 for i in range(2, len(sizes))]
        factors = given.get("scale_factors")
        if given.get("output_size") is None and factors is not None:  # positions depend on the factor, not on the sizes
            given["scale_factors"] = [factors[i - 2] if i == dim else 1.0 for i in range(2, len(sizes))]
        else:
            given["output_size"] = size
        given[node.target._schema.arguments[0].name] = ones
        made = node.target(**given).movedim(dim, 1)
        matrix = made[(slice(None), slice(None), *(0 for _ in range(2, made.dim())))]
        order = list(range(len(sizes)))
        order[dim], order[last] = last, dim
        if dim != last:
            x = graph.emit(node, Node("permute", [x], {"dims": order}))
        x = graph.emit(node, Node("linear", [x, graph.constant(node, matrix)], {"in_out": True}))
        if dim != last:
            x = graph.emit(node, Node("permute", [x], {"dims": order}))
    return x


IMAGES: dict[str, Converter] = {
    **dict.fromkeys(("conv1d", "conv2d", "convolution"), _convolution), "col2im": _fold, "grid_sampler_2d": _grid_sample,
    **dict.fromkeys(("upsample_nearest1d", "upsample_nearest2d", "upsample_nearest3d", "upsample_linear1d", "upsample_bilinear2d",
                     "upsample_trilinear3d", "upsample_bicubic2d", "_upsample_bilinear2d_aa", "_upsample_bicubic2d_aa"), _upsample),
}
