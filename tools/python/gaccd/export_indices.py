"""Indices of several dimensions, stacks, and assignments to parts of a value."""

from __future__ import annotations

import math
from typing import Any

import torch

from .export_convert import (Arguments, Converter, Converted, bounded, constant_number, inverted, permuted, repeated, rows_name, scaled, sliced, viewed,
                             with_samples)
from .export_data import ones_at
from .export_graph import GraphBuilder
from .export_rounding import of_type
from .export_types import Node
from .export_layout import LAYOUT, MAX_PARTS, inner_size, split_into_ranges, taken


def take_dims(graph: GraphBuilder, node: Any, x: str, sizes: list[int], dims: range, index: torch.Tensor) -> str:
    """Takes the positions `index` of the flattened dimensions `dims` of x, which has these sizes; they become the sizes of the index."""
    before, after = sizes[:dims.start], sizes[dims.stop:]
    count = math.prod(sizes[dim] for dim in dims)
    x = viewed(graph, node, x, [*before, count, *after]) if len(dims) > 1 else x
    places, rank = index.flatten(), len(before) + len(after) + 1
    if len(split_into_ranges(places.tolist())) <= MAX_PARTS:
        y = taken(graph, node, x, dims.start, count, places)
    else:  # as rows of a table
        order = [dims.start, *(dim for dim in range(rank) if dim != dims.start)]
        others = [*before, *after]
        if sum(size < 0 for size in others) > 1:
            raise graph.refuse(node, "takes indices of several dimensions that count samples")
        table = viewed(graph, node, permuted(graph, node, x, order), [count, math.prod(others)])
        y = graph.emit(node, Node("embedding", [graph.constant(node, places), table], {}))
        y = viewed(graph, node, y, [len(places), *others])
        y = permuted(graph, node, y, [*range(1, dims.start + 1), 0, *range(dims.start + 1, rank)])
    return viewed(graph, node, y, [*before, *index.shape, *after])


def _index(graph: GraphBuilder, node: Any, a: Arguments) -> Converted:
    """Constant indices of adjacent dimensions that do not count samples; other indices: export_layout.py."""
    indices = a["indices"]
    used = [dim for dim, one in enumerate(indices) if one is not None]
    if used == [0] and (rows := _all_samples(graph, node, a["self"], indices[0])):
        return rows
    if len(used) == 1 and not isinstance(graph.value(indices[used[0]]), torch.Tensor) and (
            rows := _gather_rows(graph, node, a["self"], used[0], indices[used[0]], wraps=True)):
        return rows
    known = [graph.value(indices[dim]) for dim in used]
    sizes = graph.sizes(node, graph.shape(a["self"]))
    dims = range(used[0], used[-1] + 1)
    usual = used == [0] and len(sizes) == 2 or len(used) == 1 and isinstance(known[0], torch.Tensor) and known[0].dim() == 1 \
        and len(split_into_ranges(known[0].tolist())) <= MAX_PARTS
    if usual or used != list(dims) or any(sizes[dim] < 0 for dim in dims) or not all(
            isinstance(one, torch.Tensor) and one.dtype != torch.bool for one in known) or not all(
            isinstance(size, int) for dim in used for size in graph.shape(indices[dim])):
        return LAYOUT["index"](graph, node, a)
    flat = torch.zeros((), dtype=torch.int64)
    for dim, one in zip(used, known):
        flat = flat * sizes[dim] + one % sizes[dim]
    return take_dims(graph, node, rows_name(graph, node, a["self"]), sizes, dims, flat)


def _all_samples(graph: GraphBuilder, node: Any, x: Any, samples: Any) -> str:
    """x[samples] for all samples in order, a view, as x[torch.arange(x.shape[0])[:, None]] is one; otherwise "". """
    rows, sizes = graph.value(samples), graph.sizes(node, graph.shape(samples))
    if graph.sizes(node, graph.shape(x))[0] != -1 or isinstance(graph.value(x), torch.Tensor) or not isinstance(rows, torch.Tensor):
        return ""
    if sorted(sizes) != [-1, *[1] * (len(sizes) - 1)] or not torch.equal(rows.flatten(), torch.arange(rows.numel())):
        return ""
    return viewed(graph, node, with_samples(graph, node, x, graph.raw_value_name(node, x)), graph.sizes(node))


def _gather_rows(graph: GraphBuilder, node: Any, table: Any, dim: int, places: Any, wraps: bool) -> str:
    """Rows, counted by `dim`, of a table that does not depend on samples, at positions that do; otherwise "". wraps: negative
    positions count from the end."""
    sizes = graph.sizes(node, graph.shape(table))
    if min(sizes) < 0 or places.meta["val"].dtype == torch.bool:
        return ""
    ids, rows = graph.raw_value_name(node, places), graph.value_name(node, table)
    if wraps and ids not in graph.ids:
        below = graph.emit(node, Node("less", [ids], {"than": 0.0}))
        ids = graph.emit(node, Node("add", [ids, scaled(graph, node, below, sizes[dim])], {}))
    others = [*sizes[:dim], *sizes[dim + 1:]]
    rows = permuted(graph, node, rows, [dim, *(one for one in range(len(sizes)) if one != dim)])
    if len(sizes) != 2:
        rows = viewed(graph, node, rows, [sizes[dim], math.prod(others)])
    found, rank = graph.sizes(node, graph.shape(places)), len(graph.shape(places))
    y = viewed(graph, node, graph.emit(node, Node("embedding", [ids, rows], {})), [*found, *others])
    return permuted(graph, node, y, [*range(rank, rank + dim), *range(rank), *range(rank + dim, rank + len(others))])


def _index_select(graph: GraphBuilder, node: Any, a: Arguments) -> Converted:
    sizes, places = graph.sizes(node, graph.shape(a["self"])), graph.sizes(node, graph.shape(a["index"]))
    dim, known = a["dim"] % len(sizes), graph.value(a["index"])
    if not isinstance(known, torch.Tensor) or min(places, default=0) < -1:
        return _gather_rows(graph, node, a["self"], dim, a["index"], wraps=False) or LAYOUT["index_select"](graph, node, a)
    if sizes[dim] < 0 or min(places, default=0) < 0:
        return LAYOUT["index_select"](graph, node, a)
    return take_dims(graph, node, rows_name(graph, node, a["self"]), sizes, range(dim, dim + 1), known.flatten())


def _unfold(graph: GraphBuilder, node: Any, a: Arguments) -> Converted:
    dim, size = inner_size(graph, node, a["self"], a["dimension"])
    sizes = graph.sizes(node, graph.shape(a["self"]))
    index = torch.arange(0, size - a["size"] + 1, a["step"])[:, None] + torch.arange(a["size"])
    y = take_dims(graph, node, rows_name(graph, node, a["self"]), sizes, range(dim, dim + 1), index)
    rank = len(sizes) + 1
    return permuted(graph, node, y, [*(one for one in range(rank) if one != dim + 1), dim + 1])


def _diagonal(graph: GraphBuilder, node: Any, a: Arguments) -> Converted:
    """Takes the positions of the diagonal of two dimensions, moved to the end."""
    sizes = graph.sizes(node, graph.shape(a["self"]))
    (row, height), (column, width) = (inner_size(graph, node, a["self"], a[name]) for name in ("dim1", "dim2"))
    order = [*(dim for dim in range(len(sizes)) if dim not in (row, column)), row, column]
    steps = torch.arange(graph.sizes(node)[-1])
    index = (steps + max(-a["offset"], 0)) * width + steps + max(a["offset"], 0)
    x = permuted(graph, node, rows_name(graph, node, a["self"]), order)
    return take_dims(graph, node, x, [*(sizes[dim] for dim in order[:-2]), height, width], range(len(sizes) - 2, len(sizes)), index)


def _stack(graph: GraphBuilder, node: Any, a: Arguments) -> Converted:
    sizes = graph.sizes(node)
    dim = a["dim"] % len(sizes)
    sizes[dim] = 1
    names = [viewed(graph, node, rows_name(graph, node, one), sizes) for one in a["tensors"]]
    return names[0] if len(names) == 1 else Node("cat", names, {"dim": dim})


def _slice_scatter(graph: GraphBuilder, node: Any, a: Arguments) -> Converted:
    """Concatenates the values before and after the part with the assigned values."""
    if any(isinstance(size, int) and size == 0 for size in graph.shape(a["src"])):  # as dropout of quantizers with a rate of 0
        return graph.value(a["self"])
    whole, part = a["self"], a["src"]
    if graph.sizes(node, graph.shape(part)) == graph.sizes(node) and a["step"] == 1:
        return graph.value_name(node, part)
    dim, size = inner_size(graph, node, whole, a["dim"])
    places = range(*slice(a["start"], a["end"], a["step"]).indices(size))
    return _written(graph, node, whole, dim, places, _expand_to(graph, node, part, graph.sizes(node, graph.shape(part))))


def _select_scatter(graph: GraphBuilder, node: Any, a: Arguments) -> Converted:
    dim, size = inner_size(graph, node, a["self"], a["dim"])
    sizes = graph.sizes(node)
    sizes[dim] = 1
    part = viewed(graph, node, _expand_to(graph, node, a["src"], graph.sizes(node, graph.shape(a["src"]))), sizes)
    return _written(graph, node, a["self"], dim, range(a["index"] % size, a["index"] % size + 1), part)


def _expand_to(graph: GraphBuilder, node: Any, x: Any, sizes: list[int]) -> str:
    name = rows_name(graph, node, x)
    return repeated(graph, node, name, sizes) if graph.is_constant(name) else name


def _written(graph: GraphBuilder, node: Any, whole: Any, dim: int, places: range, part: str) -> Converted:
    if places.step != 1:
        raise graph.refuse(node, f"writes over each {places.step}th place, expected places that follow each other; torch.where does it")
    x, size = _expand_to(graph, node, whole, graph.sizes(node)), graph.sizes(node)[dim]
    parts = [sliced(graph, node, x, dim, 0, places.start)] if places.start else []
    parts.append(part)
    parts += [sliced(graph, node, x, dim, places.stop, size)] if places.stop < size else []
    return part if len(parts) == 1 else Node("cat", parts, {"dim": dim})


def _copy(graph: GraphBuilder, node: Any, a: Arguments) -> Converted:
    """Assigns the second value, with the sizes and the type of the first."""
    x, same = a["src"], graph.sizes(node) == graph.sizes(node, graph.shape(a["src"]))
    before, after = (one.meta["val"].dtype for one in (x, node))
    if before != after and (after == torch.bool or (before.is_floating_point and not after.is_floating_point)):
        name = of_type(graph, node, x, after)
    else:
        name = graph.raw_value_name(node, x) if same else graph.value_name(node, x)
    return name if same else repeated(graph, node, name, graph.sizes(node))


def _gather(graph: GraphBuilder, node: Any, a: Arguments) -> Converted:
    """Constant indices that are the same for all samples; other indices: export_layout.py."""
    index, rank = graph.value(a["index"]), len(graph.shape(a["self"]))
    sizes = graph.sizes(node, graph.shape(a["self"]))
    if not isinstance(index, torch.Tensor) or not sizes or sizes[0] > 0 or sizes[0] != graph.sizes(node)[0] or min(
            sizes[1:], default=0) < 0 or isinstance(graph.value(a["self"]), torch.Tensor):
        return LAYOUT["gather"](graph, node, a)
    known = graph.for_all_samples(node, a["index"])[0]
    dim, flat = a["dim"] % rank - 1, torch.zeros((), dtype=torch.int64)
    if dim < 0:
        return LAYOUT["gather"](graph, node, a)
    for one, size in enumerate(sizes[1:]):
        place = known if one == dim else torch.arange(known.shape[one]).view([-1 if i == one else 1 for i in range(rank - 1)])
        flat = flat * size + place
    return take_dims(graph, node, rows_name(graph, node, a["self"]), sizes, range(1, rank), flat)


def _index_put(graph: GraphBuilder, node: Any, a: Arguments) -> Converted:
    """Writes at constant indices of adjacent dimensions, and of a number also x[mask] = number and x[arange, places] = number for
    one place of each sample, as models of audio mark where padding begins."""
    indices, number, sizes = a["indices"], constant_number(graph, a["values"]), graph.sizes(node)
    if a["accumulate"]:
        raise graph.refuse(node, "adds values at indices; a product with a constant matrix of zeros and ones does it")
    if (known := _known_places(graph, indices, sizes)) is not None:
        return _put_rows(graph, node, a, *known)
    if number is None or any(one is None for one in indices):
        raise graph.refuse(node, "writes values at indices that depend on data, expected one number; torch.where does it")
    if len(indices) == 1 and indices[0].meta["val"].dtype == torch.bool:
        rank, hits = len(graph.shape(indices[0])), graph.value_name(node, indices[0])
    elif len(indices) == 2 and sizes[0] == -1 and _are_all_samples(graph, indices[0]) and (
            ones := ones_at(graph, node, indices[1], inner_size(graph, node, a["self"], 1)[1])) is not None:
        rank, hits = 2, ones
    else:
        raise graph.refuse(node, "writes at indices, expected a mask, or torch.arange(x.shape[0]) and one place of each sample; torch.where does it")
    x = rows_name(graph, node, a["self"])
    if isinstance(graph.value(indices[0]), torch.Tensor) and len(indices) == 1:
        hits = repeated(graph, node, hits, sizes[:rank])
    hits = viewed(graph, node, hits, [*sizes[:rank], *(1 for _ in sizes[rank:])]) if len(sizes) > rank else hits
    kept = graph.emit(node, Node("select", [x, inverted(graph, node, hits)], {}))
    return Node("add", [kept, scaled(graph, node, hits, bounded(number))], {}) if number else kept


def _known_places(graph: GraphBuilder, indices: Any, sizes: list[int]) -> tuple[range, torch.Tensor] | None:
    """Adjacent dimensions that do not count samples, and the places in them, flattened, if all are constant."""
    used = [dim for dim, one in enumerate(indices) if one is not None]
    dims, flat = range(used[0], used[-1] + 1), torch.zeros((), dtype=torch.int64)
    for dim in dims:
        one = graph.value(indices[dim]) if indices[dim] is not None else None
        if not isinstance(one, torch.Tensor) or one.dtype == torch.bool or sizes[dim] < 0 or not all(
                isinstance(size, int) for size in graph.shape(indices[dim])):
            return None
        flat = flat * sizes[dim] + one % sizes[dim]
    return dims, flat


def _put_rows(graph: GraphBuilder, node: Any, a: Arguments, dims: range, flat: torch.Tensor) -> Converted:
    """Appends the values to the flattened dimensions, and takes of both what is there in the end; the last one written counts."""
    sizes = graph.sizes(node)
    before, after, count = sizes[:dims.start], sizes[dims.stop:], math.prod(sizes[dim] for dim in dims)
    x = viewed(graph, node, _expand_to(graph, node, a["self"], sizes), [*before, count, *after])
    values = repeated(graph, node, graph.value_name(node, a["values"]), [*before, *flat.shape, *after])
    values = viewed(graph, node, values, [*before, flat.numel(), *after])
    places = torch.arange(count)
    places[flat.flatten()] = count + torch.arange(flat.numel())
    both = graph.emit(node, Node("cat", [x, values], {"dim": dims.start}))
    joined = [*before, count + flat.numel(), *after]
    return viewed(graph, node, take_dims(graph, node, both, joined, range(dims.start, dims.start + 1), places), sizes)


def _are_all_samples(graph: GraphBuilder, samples: Any) -> bool:
    """Whether `samples` is torch.arange(x.shape[0])."""
    rows = graph.value(samples)
    return isinstance(rows, torch.Tensor) and rows.dim() == 1 and not isinstance(graph.shape(samples)[0], int) and torch.equal(
        rows, torch.arange(len(rows)))


INDICES: dict[str, Converter] = {
    "index": _index, "unfold": _unfold, "stack": _stack, "slice_scatter": _slice_scatter, "select_scatter": _select_scatter,
    "copy": _copy, "gather": _gather, "diagonal": _diagonal, "index_select": _index_select,
    "index_put": _index_put,
}
