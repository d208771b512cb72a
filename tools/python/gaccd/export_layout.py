"""Converters of views, slices and gathers."""

from __future__ import annotations

from typing import Any

import torch

from .export_convert import Arguments, Converter, Converted, full, inverted, repeated, rows_name, scaled, sliced, viewed, with_samples
from .export_data import ones_at
from .export_gradients import gives_integers_alone
from .export_graph import GraphBuilder
from .export_types import HIDDEN, Node
from .export_stacks import joins_samples, stack, stacked

MAX_PARTS = 16  # max slices of an index


def _same(graph: GraphBuilder, node: Any, a: Arguments) -> Converted:
    return graph.raw_value_name(node, node.args[0])


def _detach(graph: GraphBuilder, node: Any, a: Arguments) -> Converted:
    if graph.depends_on_trained(node) and not gives_integers_alone(node):
        return Node("detach", [graph.value_name(node, a["self"])], {})
    return graph.value(node.args[0])  # also a mask that is yet to be drawn


def _view(graph: GraphBuilder, node: Any, a: Arguments) -> Converted:
    if "dtype" in a and a["dtype"] != a["self"].meta["val"].dtype:
        raise graph.refuse(node, "reads the bits of values as those of another type; x.to(dtype) converts values")
    if parts := stacked(graph, node):
        return stack(graph, node, parts)
    x = with_samples(graph, node, a["self"], graph.raw_value_name(node, a["self"]))
    return viewed(graph, node, x, graph.sizes(node))


def _permute(graph: GraphBuilder, node: Any, a: Arguments) -> Converted:
    rank = len(graph.shape(a["self"]))
    x = graph.raw_value_name(node, a["self"])
    return graph.keep_ids(graph.emit(node, Node("permute", [x], {"dims": [dim % rank for dim in a["dims"]]})), x)


def inner_size(graph: GraphBuilder, node: Any, x: Any, dim: int) -> tuple[int, int]:
    """The dimension as a non-negative number, and its size; ExportError if it counts samples."""
    dim %= len(graph.shape(x))
    size = graph.sizes(node, [graph.shape(x)[dim]])[0]
    if size < 0:
        raise graph.refuse(node, f"takes part of the samples, which dimension {dim} counts; their order in a batch must not "
                                 "matter. Where it should count something else (torch.cat, a loop over heads), put that dimension "
                                 "after the samples: dim=1")
    return dim, size


def _select(graph: GraphBuilder, node: Any, a: Arguments) -> Converted:
    dim, size = inner_size(graph, node, a["self"], a["dim"])
    index = a["index"] + size if a["index"] < 0 else a["index"]
    x = graph.raw_value_name(node, a["self"])
    of_samples = a["self"] in graph.input_dependent and graph.sizes(node, graph.shape(a["self"]))[0] == -1
    if len(graph.shape(a["self"])) == 3 and dim == 1 and index == 0 and of_samples and x not in graph.ids:
        return Node("first_row", [x], {})
    return sliced(graph, node, x, dim, index, index + 1, keepdim=False)


def _take(graph: GraphBuilder, node: Any, x: str, dim: int, indices: range) -> str:
    if indices.step == 1:
        return sliced(graph, node, x, dim, indices.start, indices.stop)
    made = Node("take", [x], {"dim": dim, "start": indices.start, "count": len(indices), "step": indices.step})
    return graph.keep_ids(graph.emit(node, made), x)


def _slice(graph: GraphBuilder, node: Any, a: Arguments) -> Converted:
    x = graph.raw_value_name(node, a["self"])
    whole = graph.shape(a["self"])[a["dim"]]
    if graph.sizes(node) == graph.sizes(node, graph.shape(a["self"])) and a["step"] == 1:
        return x
    dim, size = inner_size(graph, node, a["self"], a["dim"])
    assert isinstance(whole, int)
    return _take(graph, node, x, dim, range(*slice(a["start"], a["end"], a["step"]).indices(size)))


def _split(graph: GraphBuilder, node: Any, a: Arguments) -> Converted:
    dim, _ = inner_size(graph, node, a["self"], a["dim"])
    x, parts, first = graph.raw_value_name(node, a["self"]), [], 0
    for size in a["split_sizes"]:
        parts.append(sliced(graph, node, x, dim, first, first + size))
        first += size
    return parts


def _unbind(graph: GraphBuilder, node: Any, a: Arguments) -> Converted:
    dim, size = inner_size(graph, node, a["self"], a["dim"])
    x = graph.raw_value_name(node, a["self"])
    return [sliced(graph, node, x, dim, index, index + 1, keepdim=False) for index in range(size)]


def _flip(graph: GraphBuilder, node: Any, a: Arguments) -> Converted:
    x = graph.raw_value_name(node, a["self"])
    for one in a["dims"]:
        dim, size = inner_size(graph, node, a["self"], one)
        x = _take(graph, node, x, dim, range(size - 1, -1, -1))
    return x


def _cat(graph: GraphBuilder, node: Any, a: Arguments) -> Converted:
    if joins_samples(graph, node):
        return None
    # A key-value cache is an empty tensor at first.
    tensors = [one for one in a["tensors"] if not any(isinstance(size, int) and size == 0 for size in graph.shape(one))]
    dim, _ = inner_size(graph, node, tensors[0], a["dim"])
    names = []
    for one in tensors:
        names.append(with_samples(graph, node, one, graph.value_name(node, one)))
    return names[0] if len(names) == 1 else Node("cat", names, {"dim": dim})


def _repeat(graph: GraphBuilder, node: Any, a: Arguments) -> Converted:
    """A count that depends on the number of samples repeats the value for each sample."""
    x, shape, counts = graph.value_name(node, a["self"]), graph.shape(a["self"]), list(a["repeats"])
    if len(counts) > len(shape):
        shape = [1] * (len(counts) - len(shape)) + shape
        x = viewed(graph, node, x, graph.sizes(node, shape))
    counts_samples = [not isinstance(count, int) for count in counts]
    if counts_samples == [True] + [False] * (len(counts) - 1) and isinstance(shape[0], int) and shape[0] > 1 and set(counts[1:]) <= {1}:
        sizes = graph.sizes(node)
        x = repeated(graph, node, viewed(graph, node, x, [1, *shape]), [sizes[0] // shape[0], *shape])
        return viewed(graph, node, x, sizes)
    for dim, count in enumerate(counts):
        if isinstance(shape[dim], int) and (not counts_samples[dim] or shape[dim] == 1):
            x = graph.emit(node, Node("cat", [x] * count, {"dim": dim})) if not counts_samples[dim] and count > 1 else x
        elif counts_samples[dim] or count != 1:
            raise graph.refuse(node, "repeats samples, so that a sample would count more than once; a parameter is given to each "
                                     "sample by p.expand(samples, ..), or by a sum or product, which do so themselves")
    return repeated(graph, node, x, graph.sizes(node)) if any(counts_samples) else x


def _pad(graph: GraphBuilder, node: Any, a: Arguments) -> Converted:
    pad, rank = list(a["pad"]), len(graph.shape(a["self"]))
    if not any(pad):
        return graph.raw_value_name(node, a["self"])
    name, sizes = rows_name(graph, node, a["self"]), graph.sizes(node, graph.shape(a["self"]))
    for i, (before, after) in enumerate(zip(pad[::2], pad[1::2])):  # negative padding cuts
        if min(before, after) < 0:
            dim, first = rank - 1 - i, max(-before, 0)
            last = sizes[dim] - max(-after, 0)
            name, sizes[dim] = sliced(graph, node, name, dim, first, last), last - first
    pad = [max(size, 0) for size in pad]
    if a["value"]:
        return _padded_with(graph, node, name, sizes, pad, max(min(float(a["value"]), -HIDDEN), HIDDEN))
    pad += [0] * (2 * rank - len(pad))
    return Node("pad", [name], {"before": pad[::2][::-1], "after": pad[1::2][::-1]})


def _padded_with(graph: GraphBuilder, node: Any, name: str, sizes: list[int], pad: list[int], value: float) -> str:
    """pad: before and after the last dimension, then the one before it, and so on."""
    for i, (before, after) in enumerate(zip(pad[::2], pad[1::2])):
        dim = len(sizes) - 1 - i
        parts = [full(graph, node, value, [*sizes[:dim], more, *sizes[dim + 1:]]) if more else "" for more in (before, after)]
        given = [one for one in (parts[0], name, parts[1]) if one]
        name = graph.emit(node, Node("cat", given, {"dim": dim})) if len(given) > 1 else name
        sizes[dim] += before + after
    return name


def _repeats(graph: GraphBuilder, user: Any, node: Any) -> bool:
    """Whether `user` is a sum or product with another value that has the sizes which `node`, an expand, gives to its input."""
    others = [one for one in user.args[:2] if one is not node]
    name = user.target._schema.name if hasattr(user.target, "_schema") else ""
    if name not in ("aten::add", "aten::mul", "aten::sub") or len(others) != 1 or not isinstance(others[0], torch.fx.Node):
        return False
    if others[0].target == node.target or graph.will_be_folded(others[0]):
        return False
    given, sizes, found = (graph.sizes(user, graph.shape(one)) for one in (node.args[0], node, others[0]))
    given, found = ([1] * (len(sizes) - len(one)) + one for one in (given, found))
    return all(before == size or size == other for before, size, other in zip(given[::-1], sizes[::-1], found[::-1]))


def _expand(graph: GraphBuilder, node: Any, a: Arguments) -> Converted:
    """Skips the expansion if all users are sums or products that broadcast the value themselves."""
    name = graph.raw_value_name(node, a["self"])
    same = graph.sizes(node) == graph.sizes(node, graph.shape(a["self"]))
    if same or all(_repeats(graph, user, node) for user in node.users):
        return name
    return repeated(graph, node, graph.value_name(node, a["self"]), graph.sizes(node))


def split_into_ranges(indices: list[int]) -> list[range]:
    """Splits indices into as few ranges as possible."""
    runs: list[list[int]] = []
    for index in indices:
        last = runs[-1] if runs else []
        if len(last) == 1 and index != last[0] or len(last) > 1 and index - last[-1] == last[1] - last[0]:
            last.append(index)
        else:
            runs.append([index])
    return [range(run[0], run[-1] + step, step) for run in runs
            for step in [run[1] - run[0] if len(run) > 1 else 1]]


def _index_select(graph: GraphBuilder, node: Any, a: Arguments) -> Converted:
    return _indexed(graph, node, a["self"], a["dim"], a["index"])


def _indexed(graph: GraphBuilder, node: Any, x: Any, dim: int, index: Any) -> Converted:
    dim, size = inner_size(graph, node, x, dim)
    known = graph.value(index)
    if not isinstance(known, torch.Tensor) or known.dtype == torch.bool or known.dim() > 1:
        raise graph.refuse(node, "takes indices that depend on data, or of several dimensions, expected a list that is known")
    return taken(graph, node, graph.value_name(node, x), dim, size, known)


def taken(graph: GraphBuilder, node: Any, x: str, dim: int, size: int, indices: torch.Tensor) -> str:
    runs = split_into_ranges([one % size for one in indices.tolist()])
    if len(runs) > MAX_PARTS:
        raise graph.refuse(node, f"takes indices of {len(runs)} runs, expected at most {MAX_PARTS}")
    if runs == [range(size)]:
        return x
    parts = [_take(graph, node, x, dim, run) for run in runs]
    return parts[0] if len(parts) == 1 else graph.emit(node, Node("cat", parts, {"dim": dim}))


def _index(graph: GraphBuilder, node: Any, a: Arguments) -> Converted:
    indices = a["indices"]
    used = [dim for dim, one in enumerate(indices) if one is not None]
    masks = [indices[dim] for dim in used if indices[dim].meta["val"].dtype == torch.bool]
    if masks and all(isinstance(graph.value(one), torch.Tensor) for one in masks):
        raise graph.refuse(node, "selects by a mask that is known; keep its places instead, as self.places = mask.nonzero()[:, 0] in __init__")
    if masks:
        raise graph.refuse(node, "selects by a mask, so that its size depends on data; multiply by the mask instead, or of the last place take "
                                 "x[torch.arange(x.shape[0]), (mask * torch.arange(mask.shape[1])).amax(1)]; a module around the parts of a model "
                                 "of another library can do so")
    table = graph.sizes(node, graph.shape(a["self"]))
    if used == [0] and len(table) == 2 and min(table) > 0 and isinstance(graph.value(indices[0]), torch.Tensor):
        rows = graph.constant(node, graph.for_all_samples(node, indices[0]) % table[0])
        return Node("embedding", [rows, graph.value_name(node, a["self"])], {})
    if len(used) == 1:
        return _indexed(graph, node, a["self"], used[0], indices[used[0]])
    if used == [0, 1]:
        return _index_per_sample(graph, node, a["self"], *indices)
    raise graph.refuse(node, "indexes several dimensions at once; index one after the other")


def _index_per_sample(graph: GraphBuilder, node: Any, x: Any, samples: Any, places: Any) -> Converted:
    """x[samples, places] for all samples in order: the same positions of each sample, as in the masks of transformers."""
    rows, known = graph.value(samples), graph.value(places)
    covers_all = isinstance(rows, torch.Tensor) and rows.dim() == 1 and torch.equal(rows, torch.arange(len(rows)))
    if covers_all and not isinstance(known, torch.Tensor) and not isinstance(graph.shape(samples)[0], int):
        _, length = inner_size(graph, node, x, 1)
        if (ones := ones_at(graph, node, places, length)) is not None:
            return _selected(graph, node, x, ones)
    if not isinstance(rows, torch.Tensor) or not isinstance(known, torch.Tensor):
        raise graph.refuse(node, "takes indices that depend on data, expected those that are known")
    rank = max(rows.dim(), known.dim())
    counts_samples = rows.dim() == rank and (known.dim() < rank or known.shape[0] == 1)
    if not counts_samples or isinstance(graph.shape(samples)[0], int) or not torch.equal(rows.flatten(), torch.arange(rows.shape[0])):
        raise graph.refuse(node, "takes other samples than its own; their order in a batch must not matter")
    name = taken(graph, node, graph.value_name(node, x), *inner_size(graph, node, x, 1), known.flatten())
    return viewed(graph, node, name, graph.sizes(node))


def _selected(graph: GraphBuilder, node: Any, x: Any, ones: str) -> Node:
    """Selects the position of each sample in [samples, length, ..] at which the one-hot `ones` is 1."""
    sizes = graph.sizes(node, graph.shape(x))
    mask = viewed(graph, node, ones, [*sizes[:2], *(1 for _ in sizes[2:])])
    kept = graph.emit(node, Node("mul", [graph.value_name(node, x), mask], {}))
    return Node("sum", [kept], {"dims": [1], "keepdim": False})


def _shared_index(graph: GraphBuilder, index: Any) -> Any:
    """The node [samples] of which `index` is an expansion; None: `index` is not one."""
    while isinstance(index, torch.fx.Node) and len(graph.shape(index)) > 1:
        expands = str(index.target).startswith("aten.expand.")
        if not expands and (not str(index.target).startswith(("aten.view.", "aten.unsqueeze.")) or set(graph.shape(index)[1:]) != {1}):
            return None
        index = index.args[0]
    return index if isinstance(index, torch.fx.Node) and graph.shape(index) and not isinstance(graph.shape(index)[0], int) else None


def _gather(graph: GraphBuilder, node: Any, a: Arguments) -> Converted:
    value = graph.value(a["self"])
    if isinstance(value, torch.Tensor) and value.numel() and bool((value == value.flatten()[0]).all()):
        return value.flatten()[0].expand(graph.concrete_sizes(graph.shape(node)))  # independent of the indices
    if (places := _shared_index(graph, a["index"])) is not None and a["dim"] % len(graph.shape(a["self"])) == 1:
        _, length = inner_size(graph, node, a["self"], 1)
        if (ones := ones_at(graph, node, places, length)) is not None:
            return viewed(graph, node, graph.emit(node, _selected(graph, node, a["self"], ones)), graph.sizes(node))
    raise graph.refuse(node, "takes other elements of each sample; x[torch.arange(x.shape[0]), lengths - 1] takes one step of each, "
                       "and an embedding or a product with a mask may do the same")


def _takes_first_rows(graph: GraphBuilder, node: Any, table: Any, count: int) -> bool:
    """Whether all users of the rows accept the whole table: sums with samples read the first rows of a longer one, but repeat none."""
    def accepts(user: Any) -> bool:
        if user.target != torch.ops.aten.add.Tensor or isinstance(graph.shape(user)[0], int):
            return False
        others = [one for one in user.all_input_nodes if one is not node]
        return all(graph.shape(one)[-2:] == graph.shape(node)[-2:] and one in graph.input_dependent
                   and one.target != torch.ops.aten.expand.default for one in others)  # an expanded one is repeated by the sum
    return bool(graph.shape(table)[0] == count) or all(accepts(user) for user in node.users)


def _embedding(graph: GraphBuilder, node: Any, a: Arguments) -> Converted:
    if a["scale_grad_by_freq"]:
        raise graph.refuse(node, "scale_grad_by_freq: the gradients of a sample depend on the others, expected False")
    ids = graph.value(a["indices"])
    table = graph.value_name(node, a["weight"])
    if isinstance(ids, torch.Tensor):
        rows = graph.for_all_samples(node, a["indices"])
        if a["padding_idx"] < 0 or not bool((rows == a["padding_idx"]).any()):
            if torch.equal(rows.flatten(), torch.arange(rows.numel())) and _takes_first_rows(graph, node, a["weight"], rows.numel()):
                return Node("positions", [table], {"size": [*rows.shape, graph.shape(a["weight"])[1]]})
            return Node("embedding", [graph.constant(node, rows), table], {})
    given = [graph.raw_value_name(node, a["indices"]), table]
    if a["padding_idx"] >= 0:
        return Node("embedding_with_padding", given, {"padding_idx": a["padding_idx"]})
    return Node("embedding", given, {})


def _embedding_bag(graph: GraphBuilder, node: Any, a: Arguments) -> Converted:
    """Bags of equal length: sums of embedding rows."""
    (ids,), offsets = graph.sizes(node, graph.shape(a["indices"])), graph.value(a["offsets"])
    bags = graph.sizes(node, list(node.meta["val"][0].shape))[0]  # -k: k for each sample
    length = ids // bags if ids < 0 and bags < 0 else 0
    if ids != bags * length or not isinstance(offsets, torch.Tensor) or not torch.equal(offsets, torch.arange(len(offsets)) * length):
        raise graph.refuse(node, "of bags of different lengths, expected ids [samples, length] without offsets")
    if a["mode"] == 2 or a["scale_grad_by_freq"]:
        raise graph.refuse(node, "with mode='max' or scale_grad_by_freq, expected sums or means")
    rows = viewed(graph, node, graph.raw_value_name(node, a["indices"]), [bags, length])
    y = graph.emit(node, Node("embedding", [rows, graph.value_name(node, a["weight"])], {}))
    kept: list[str] = []  # factors [samples, length, 1] of the rows
    if a["padding_idx"] >= 0:
        numbers = graph.emit(node, Node("numbers", [rows], {})) if rows in graph.ids else rows
        padding = graph.emit(node, Node("equal", [numbers], {"to": float(a["padding_idx"])}))
        kept.append(viewed(graph, node, inverted(graph, node, padding), [bags, length, 1]))
    if a["per_sample_weights"] is not None:
        kept.append(viewed(graph, node, graph.value_name(node, a["per_sample_weights"]), [bags, length, 1]))
    for factor in kept:
        y = graph.emit(node, Node("mul", [y, factor], {}))
    y = graph.emit(node, Node("sum", [y], {"dims": [1], "keepdim": False}))
    if not a["mode"]:
        return [y]
    if not kept:
        return [scaled(graph, node, y, 1 / length)]
    count = graph.emit(node, Node("clamp", [graph.emit(node, Node("sum", kept, {"dims": [1], "keepdim": False}))],
                                  {"least": 1.0, "most": -HIDDEN}))
    return [graph.emit(node, Node("mul", [y, graph.emit(node, Node("power", [count], {"exponent": -1.0}))], {}))]


def _filled(value: float) -> Converter:
    def made(graph: GraphBuilder, node: Any, a: Arguments) -> Converted:
        return torch.full(graph.concrete_sizes(graph.shape(node)), value, dtype=node.meta["val"].dtype)
    return made


def _full(graph: GraphBuilder, node: Any, a: Arguments) -> Converted:
    return torch.full(graph.concrete_sizes(graph.shape(node)), a["fill_value"], dtype=node.meta["val"].dtype)


LAYOUT: dict[str, Converter] = {
    **dict.fromkeys(("clone", "alias", "contiguous", "lift_fresh_copy"), _same),
    **dict.fromkeys(("view", "reshape", "_unsafe_view", "unsqueeze", "squeeze", "flatten"), _view),
    **dict.fromkeys(("zeros_like", "new_zeros"), _filled(0.0)), **dict.fromkeys(("ones_like", "new_ones"), _filled(1.0)),
    **dict.fromkeys(("full_like", "new_full"), _full), "detach": _detach,
    "permute": _permute, "select": _select, "slice": _slice, "split_with_sizes": _split, "unbind": _unbind, "flip": _flip,
    "cat": _cat, "constant_pad_nd": _pad, "expand": _expand, "repeat": _repeat, "index_select": _index_select, "index": _index,
    "gather": _gather, "embedding": _embedding, "_embedding_bag": _embedding_bag,
}
