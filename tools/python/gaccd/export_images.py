"""Convolutions, pooling and resizing of images, and of sequences [samples, channels, length] as images of one row."""

from __future__ import annotations

import math
from typing import Any

import torch

from .export_convert import Arguments, Converter, Converted, input_names, repeated, viewed
from .export_graph import GraphBuilder
from .export_types import HIDDEN, Node


def _pair(value: Any, empty: Any = None) -> list[int]:
    values = [value] if isinstance(value, int) else list(value) or _pair(empty)
    return values * 2 if len(values) == 1 else values


def as_image(graph: GraphBuilder, node: Any, x: str, sizes: list[int]) -> str:
    """x as [samples, channels, 1, all others]; x itself if it is an image."""
    return x if len(sizes) == 4 else viewed(graph, node, x, [*sizes[:2], 1, math.prod(sizes[2:])])


def _convolution(graph: GraphBuilder, node: Any, a: Arguments) -> Converted:
    """Sequences use kernels of one row. The schemas of conv1d and conv2d have no `transposed`."""
    sizes = graph.sizes(node, graph.shape(a["input"]))
    if len(sizes) > 4:
        raise graph.refuse(node, f"in {len(sizes) - 2} dimensions, expected images or sequences")
    if isinstance(a["padding"], str):
        raise graph.refuse(node, f"padding {a['padding']!r}, expected numbers")
    if not isinstance(a["groups"], int):
        raise graph.refuse(node, "its groups depend on the number of samples, expected a number; a product of each sample with a "
                                 "kernel of its own may be written with matmul")
    x, weight, bias = input_names(graph, node, a["input"], a["weight"], a["bias"])
    if any(not isinstance(size, int) for size in graph.shape(a["weight"])):
        raise graph.refuse(node, "its weight depends on the sample, expected one for all samples")

    def both(name: str, rows_value: int) -> list[int]:
        return _pair(a[name]) if len(sizes) == 4 else [rows_value, _pair(a[name])[0]]
    attributes: dict[str, float | int | bool | list[int]] = {
        "stride": both("stride", 1), "padding": both("padding", 0), "dilation": both("dilation", 1), "groups": a["groups"],
    }
    transposed = "transposed" in a and a["transposed"]
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


def _pool_sizes(a: Arguments) -> tuple[list[int], list[int], list[int], list[int]]:
    kernel = _pair(a["kernel_size"])
    dilation = _pair(a["dilation"]) if "max_pool" in str(a.node.target) else [1, 1]
    return kernel, _pair(a["stride"], kernel), _pair(a["padding"]), dilation


def _beyond(graph: GraphBuilder, node: Any, a: Arguments) -> list[int]:
    """Number of rows and columns that the last windows of ceil_mode need past the end of the image."""
    kernel, stride, padding, dilation = _pool_sizes(a)
    pooled = node.meta["val"][0] if isinstance(node.meta["val"], (list, tuple)) else node.meta["val"]
    return [max(0, (int(pooled.shape[2 + i]) - 1) * stride[i] + dilation[i] * (kernel[i] - 1) + 1 - 2 * padding[i]
                - int(graph.shape(a["self"])[2 + i])) for i in range(2)]


def _max_pool2d(graph: GraphBuilder, node: Any, a: Arguments) -> Converted:
    kernel, stride, padding, dilation = _pool_sizes(a)
    x, sizes = graph.value_name(node, a["self"]), graph.sizes(node, graph.shape(a["self"]))
    for dim, more in zip((2, 3), _beyond(graph, node, a)):
        if more:  # pads with values below all others
            behind = [*sizes[:dim], more, *sizes[dim + 1:]]
            hidden = repeated(graph, node, graph.constant(node, torch.full((1, 1, 1, 1), HIDDEN)), behind)
            x, sizes[dim] = graph.emit(node, Node("cat", [x, hidden], {"dim": dim})), sizes[dim] + more
    return Node("max_pool2d", [x], {"kernel": kernel, "stride": stride, "padding": padding, "dilation": dilation})


def _avg_pool2d(graph: GraphBuilder, node: Any, a: Arguments) -> Converted:
    kernel, stride, padding, _ = _pool_sizes(a)
    x, more, counts = graph.value_name(node, a["self"]), _beyond(graph, node, a), a["count_include_pad"]
    whole = not any(more) and a["divisor_override"] is None
    if any(more):
        x = graph.emit(node, Node("pad", [x], {"before": [0] * 4, "after": [0, 0, *more]}))
    pooled = Node("avg_pool2d", [x], {"kernel": kernel, "stride": stride, "padding": padding,
                                      "count_include_pad": counts or not whole})
    if whole:
        return pooled
    # Scales the averages to the divisors of PyTorch.
    ones = torch.ones(1, 1, *(int(size) for size in graph.shape(a["self"])[2:]))
    wanted = torch.nn.functional.avg_pool2d(ones, kernel, stride, padding, a["ceil_mode"], counts, a["divisor_override"])
    found = torch.nn.functional.avg_pool2d(torch.nn.functional.pad(ones, (0, more[1], 0, more[0])), kernel, stride, padding)
    factor = graph.constant(node, wanted / found)
    return Node("mul", [graph.emit(node, pooled), factor], {})


def _adaptive_avg_pool2d(graph: GraphBuilder, node: Any, a: Arguments) -> Converted:
    return Node("adaptive_avg_pool2d", input_names(graph, node, a["self"]), {"output": _pair(a["output_size"])})


def _adaptive_max_pool2d(graph: GraphBuilder, node: Any, a: Arguments) -> Converted:
    """Windows of equal size; ExportError if the sizes do not divide."""
    height, width = (int(size) for size in graph.shape(a["self"])[2:])
    rows, columns = _pair(a["output_size"])
    if height % rows or width % columns:
        raise graph.refuse(node, f"makes {rows} x {columns} of {height} x {width}, expected sizes that divide")
    kernel = [height // rows, width // columns]
    return Node("max_pool2d", input_names(graph, node, a["self"]),
                {"kernel": kernel, "stride": kernel, "padding": [0, 0], "dilation": [1, 1]})


def _upsample(graph: GraphBuilder, node: Any, a: Arguments) -> Converted:
    """Multiplies each resized dimension by a matrix: the result of PyTorch for images of a single 1."""
    image = node.args[0]
    x, sizes = graph.value_name(node, image), graph.sizes(node, graph.shape(image))
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
    **dict.fromkeys(("conv1d", "conv2d", "convolution"), _convolution),
    **dict.fromkeys(("max_pool2d", "max_pool2d_with_indices"), _max_pool2d), "avg_pool2d": _avg_pool2d, "adaptive_avg_pool2d": _adaptive_avg_pool2d,
    "adaptive_max_pool2d": _adaptive_max_pool2d,
    **dict.fromkeys(("upsample_nearest1d", "upsample_nearest2d", "upsample_linear1d", "upsample_bilinear2d",
                     "upsample_bicubic2d", "_upsample_bilinear2d_aa", "_upsample_bicubic2d_aa"), _upsample),
}
