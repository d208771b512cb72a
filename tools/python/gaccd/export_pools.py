"""Pooling of images, and of volumes: each slice as an image, then depth; the first of equal values is that of PyTorch."""

from __future__ import annotations

import dataclasses
import math
from typing import Any, Callable

import torch

from .export_convert import Arguments, Converter, Converted, per_dimension, repeated, rows_name, sliced, viewed
from .export_graph import GraphBuilder
from .export_types import HIDDEN, Node


@dataclasses.dataclass
class _Windows:
    """Numbers for each dimension of an image or volume."""
    kernel: list[int]
    stride: list[int]
    padding: list[int]
    dilation: list[int]

    def covered(self, dim: int, count: int) -> int:
        """The values that `count` windows cover, with the padding on both sides."""
        return (count - 1) * self.stride[dim] + self.dilation[dim] * (self.kernel[dim] - 1) + 1

    def select(self, dims: list[int]) -> _Windows:
        """The windows of these dimensions; -1: single values."""
        def of(values: list[int], single: int) -> list[int]:
            return [values[dim] if dim >= 0 else single for dim in dims]
        return _Windows(of(self.kernel, 1), of(self.stride, 1), of(self.padding, 0), of(self.dilation, 1))

    def are_single_values(self) -> bool:
        return {*self.kernel, *self.stride} == {1} and not any(self.padding)


def _windows(a: Arguments, count: int) -> _Windows:
    kernel = per_dimension(a["kernel_size"], count)
    return _Windows(kernel, per_dimension(a["stride"], count, kernel), per_dimension(a["padding"], count),
                    per_dimension(a["dilation"], count) if "dilation" in a else [1] * count)


@dataclasses.dataclass
class _Pooling:
    """A call whose values x have these sizes, and its result those: [samples, channels, height, width], or with depth before height."""
    graph: GraphBuilder
    node: Any
    a: Arguments
    x: str
    sizes: list[int]
    result: list[int]

    def emit(self, op: str, x: str, attributes: dict[str, Any]) -> str:
        return self.graph.emit(self.node, Node(op, [x], attributes))

    def viewed(self, x: str, sizes: list[int]) -> str:
        return viewed(self.graph, self.node, x, sizes)

    def windows(self) -> _Windows:
        return _windows(self.a, len(self.sizes) - 2)

    def beyond(self, windows: _Windows) -> list[int]:
        """Number of values that the last windows of ceil_mode need past the end of each dimension."""
        return [max(0, windows.covered(i, self.result[2 + i]) - 2 * windows.padding[i] - size) for i, size in enumerate(self.sizes[2:])]

    def pooled(self, x: str, sizes: list[int], windows: _Windows, op: str, more: dict[str, Any]) -> str:
        """Pools x, of these sizes. Of a volume first height and width, then depth."""
        def image(x: str, sizes: list[int], part: _Windows) -> str:
            if part.are_single_values():
                return x
            attributes = {name: value for name, value in vars(part).items() if name != "dilation" or op == "max_pool2d"}
            return self.emit(op, self.viewed(x, sizes), {**attributes, **more})

        if len(sizes) == 4:
            return image(x, sizes, windows)
        samples, channels, depth, *area = sizes
        x = image(x, [samples, channels * depth, *area], windows.select([1, 2]))
        x = image(x, [samples, channels, depth, self.result[3] * self.result[4]], windows.select([0, -1]))
        return self.viewed(x, self.result)


def _converter(pool: Callable[[_Pooling], str]) -> Converter:
    """What has no channels gets one: PyTorch takes the samples of [samples, height, width] for the channels of one image."""
    def made(graph: GraphBuilder, node: Any, a: Arguments) -> Converted:
        value = node.meta["val"]  # with the positions of the largest values, too
        result = graph.sizes(node, list((value[0] if isinstance(value, (list, tuple)) else value).shape))
        x, sizes = rows_name(graph, node, a["self"]), graph.sizes(node, graph.shape(a["self"]))
        if len(sizes) == (5 if "3d" in str(node.target) else 4):
            return pool(_Pooling(graph, node, a, x, sizes, result))
        image = [sizes[0], 1, *sizes[1:]]
        y = pool(_Pooling(graph, node, a, viewed(graph, node, x, image), image, [result[0], 1, *result[1:]]))
        return viewed(graph, node, y, result)
    return made


def _max_pool(p: _Pooling) -> str:
    windows, x, sizes = p.windows(), p.x, list(p.sizes)
    for dim, more in enumerate(p.beyond(windows), 2):
        if more:  # pads with values below all others
            behind = [*sizes[:dim], more, *sizes[dim + 1:]]
            hidden = repeated(p.graph, p.node, p.graph.constant(p.node, torch.full((1,) * len(sizes), HIDDEN)), behind)
            x, sizes[dim] = p.graph.emit(p.node, Node("cat", [x, hidden], {"dim": dim})), sizes[dim] + more
    return p.pooled(x, sizes, windows, "max_pool2d", {})


def _avg_pool(p: _Pooling) -> str:
    windows, x, sizes, a = p.windows(), p.x, p.sizes, p.a
    more, counts = p.beyond(windows), bool(a["count_include_pad"])
    whole = not any(more) and a["divisor_override"] is None
    if any(more):
        x = p.emit("pad", x, {"before": [0] * len(sizes), "after": [0, 0, *more]})
    longer = [*sizes[:2], *(size + one for size, one in zip(sizes[2:], more))]
    y = p.pooled(x, longer, windows, "avg_pool2d", {"count_include_pad": counts or not whole})
    if whole:
        return y
    # Scales the averages to the divisors of PyTorch.
    pool = torch.nn.functional.avg_pool2d if len(sizes) == 4 else torch.nn.functional.avg_pool3d
    given = (windows.kernel, windows.stride, windows.padding)
    wanted = pool(torch.ones(1, 1, *sizes[2:]), *given, a["ceil_mode"], counts, a["divisor_override"])
    padded = torch.zeros(1, 1, *longer[2:])
    padded[(..., *(slice(size) for size in sizes[2:]))] = 1
    factor = p.graph.constant(p.node, wanted / pool(padded, *given))
    return p.graph.emit(p.node, Node("mul", [y, factor], {}))


def _adaptive_avg_pool(p: _Pooling) -> str:
    output, name = p.result[2:], "adaptive_avg_pool2d"
    if len(p.sizes) == 4:
        return p.emit(name, p.x, {"output": output})
    samples, channels, depth, *area = p.sizes
    count = math.prod(output[1:])
    y = p.emit(name, p.viewed(p.x, [samples, channels * depth, *area]), {"output": output[1:]})
    return p.viewed(p.emit(name, p.viewed(y, [samples, channels, depth, count]), {"output": [output[0], count]}), p.result)


def _adaptive_max_pool(p: _Pooling) -> str:
    before, after = p.sizes[2:], p.result[2:]
    if any(size % count for size, count in zip(before, after)):
        return _windows_of_any_size(p)
    kernel = [size // count for size, count in zip(before, after)]
    return p.pooled(p.x, p.sizes, _Windows(kernel, kernel, [0] * len(kernel), [1] * len(kernel)), "max_pool2d", {})


def _windows_of_any_size(p: _Pooling) -> str:
    """The maxima of each window by themselves, over the last dimension first."""
    x, sizes = p.x, list(p.sizes)
    for dim in range(len(sizes) - 1, 1, -1):
        size, count, found = sizes[dim], p.result[dim], []
        for place in range(count):
            first, last = place * size // count, -(-(place + 1) * size // count)
            part = sliced(p.graph, p.node, x, dim, first, last)
            rows = p.viewed(part, [sizes[0], math.prod(sizes[1:dim]), last - first, math.prod(sizes[dim + 1:])])
            window = _Windows([last - first, 1], [last - first, 1], [0, 0], [1, 1])
            found.append(p.viewed(p.emit("max_pool2d", rows, vars(window)), [*sizes[:dim], 1, *sizes[dim + 1:]]))
        x, sizes[dim] = p.graph.emit(p.node, Node("cat", found, {"dim": dim})) if count > 1 else found[0], count
    return x


POOLS: dict[str, Converter] = {
    **dict.fromkeys(("max_pool2d", "max_pool2d_with_indices", "max_pool3d", "max_pool3d_with_indices"), _converter(_max_pool)),
    **dict.fromkeys(("avg_pool2d", "avg_pool3d"), _converter(_avg_pool)),
    **dict.fromkeys(("adaptive_avg_pool2d", "_adaptive_avg_pool2d", "adaptive_avg_pool3d", "_adaptive_avg_pool3d"), _converter(_adaptive_avg_pool)),
    **dict.fromkeys(("adaptive_max_pool2d", "adaptive_max_pool3d"), _converter(_adaptive_max_pool)),
}
