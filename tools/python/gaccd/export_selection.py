"""topk, sort, and indices that depend on data, by one-hot masks over a small number of positions."""

from __future__ import annotations

from typing import Any

import torch

from .export_convert import Arguments, Converter, Converted, inverted, constant_number, permuted, scaled, sliced, viewed, with_samples
from .export_formulas import FORMULAS
from .export_graph import GraphBuilder
from .export_indices import INDICES
from .export_layout import inner_size
from .export_types import MOST, ExportError, Node

MAX_POSITIONS = 256  # whose indices are exact in 16-bit floats


def _add(graph: GraphBuilder, node: Any, x: str, y: str) -> str:
    return graph.emit(node, Node("add", [x, y], {}))


def _sum_last(graph: GraphBuilder, node: Any, x: str, rank: int) -> str:
    return graph.emit(node, Node("sum", [x], {"dims": [rank - 1], "keepdim": False}))


class _Positions:
    """A value with its dimension `dim` moved to the end."""

    def __init__(self, graph: GraphBuilder, node: Any, x: Any, dim: int) -> None:
        sizes = graph.sizes(node, graph.shape(x))
        if not sizes:
            raise graph.refuse(node, "of a single value, expected several")
        self.dim, self.count = inner_size(graph, node, x, dim)
        if self.count > MAX_POSITIONS:
            raise graph.refuse(node, f"over {self.count} places, expected at most {MAX_POSITIONS}")
        self.graph, self.node, self.order = graph, node, list(range(len(sizes)))
        self.order[self.dim], self.order[-1] = self.order[-1], self.order[self.dim]
        name = with_samples(graph, node, x, graph.value_name(node, x))
        self.name = permuted(graph, node, name, self.order)
        self.sizes = [sizes[one] for one in self.order]

    def column(self) -> str:
        return viewed(self.graph, self.node, self.name, [*self.sizes, 1])

    def row(self, name: str = "") -> str:
        return viewed(self.graph, self.node, name or self.name, [*self.sizes[:-1], 1, self.count])

    def moved(self, name: str) -> str:
        """Moves the last dimension of a value back to `dim`."""
        return permuted(self.graph, self.node, name, self.order)

    def hits(self, count: int) -> str:
        """[.., own count, count]: 1 where the number equals the position."""
        before = self.graph.constant(self.node, -torch.arange(count, dtype=torch.float32))
        distance = _add(self.graph, self.node, self.column(), before)
        return self.graph.emit(self.node, Node("equal", [distance], {"to": 0.0}))


def _best(graph: GraphBuilder, node: Any, x: Any, dim: int, count: int, sign: int) -> tuple[str, str]:
    """The `count` largest (sign 1) or smallest (-1) values in order, and their positions; the first of equal values comes first."""
    given = _Positions(graph, node, x, dim)
    rank = len(given.sizes) + 1
    finite = graph.emit(node, Node("clamp", [given.name], {"least": -MOST, "most": MOST}))
    column, row = viewed(graph, node, finite, [*given.sizes, 1]), given.row(finite)
    distance = _add(graph, node, column, scaled(graph, node, row, -1))
    better = graph.emit(node, Node("less", [scaled(graph, node, distance, sign)], {"than": 0.0}))
    equal = graph.emit(node, Node("equal", [distance], {"to": 0.0}))
    first = graph.emit(node, Node("mul", [equal, graph.constant(node, torch.ones(given.count, given.count).tril(-1))], {}))
    places = _sum_last(graph, node, _add(graph, node, better, first), rank)  # rank of each value in sorted order
    wanted = graph.constant(node, -torch.arange(count, dtype=torch.float32)[:, None])
    chosen = graph.emit(node, Node("equal", [_add(graph, node, given.row(places), wanted)], {"to": 0.0}))
    values = graph.emit(node, Node("select", [given.row(), chosen], {}))
    numbers = graph.emit(node, Node("mul", [chosen, graph.constant(node, torch.arange(given.count, dtype=torch.float32))], {}))
    found = [given.moved(_sum_last(graph, node, one, rank)) for one in (values, numbers)]
    return found[0], found[1]


def _topk(graph: GraphBuilder, node: Any, a: Arguments) -> Converted:
    return list(_best(graph, node, a["self"], a["dim"], a["k"], 1 if a["largest"] else -1))


def _sort(graph: GraphBuilder, node: Any, a: Arguments) -> Converted:
    _, count = inner_size(graph, node, a["self"], a["dim"])
    return list(_best(graph, node, a["self"], a["dim"], count, 1 if a["descending"] else -1))


def _median(graph: GraphBuilder, node: Any, a: Arguments) -> Converted:
    """Of an even number of values the lower one in the middle, as in PyTorch."""
    if "dim" not in a:
        raise graph.refuse(node, "over all dimensions, expected one that is kept")
    dim, count = inner_size(graph, node, a["self"], a["dim"])
    middle = (count - 1) // 2
    best = _best(graph, node, a["self"], dim, middle + 1, -1)
    return [sliced(graph, node, one, dim, middle, middle + 1, bool(a["keepdim"])) for one in best]


def _arg_best(sign: int) -> Converter:
    """argmax and argmin."""
    def made(graph: GraphBuilder, node: Any, a: Arguments) -> Converted:
        if a["dim"] is None:
            raise graph.refuse(node, "over all dimensions, expected one")
        return viewed(graph, node, _best(graph, node, a["self"], a["dim"], 1, sign)[1], graph.sizes(node))
    return made


def _best_with_index(name: str, sign: int) -> Converter:
    """max and min over a dimension; computes indices only if they are used."""
    def made(graph: GraphBuilder, node: Any, a: Arguments) -> Converted:
        if "dim" not in a or not any(user.args[1] == 1 for user in node.users):
            return FORMULAS[name](graph, node, a)
        sizes = graph.sizes(node, list(node.meta["val"][0].shape))
        return [viewed(graph, node, one, sizes) for one in _best(graph, node, a["self"], a["dim"], 1, sign)]
    return made


def _gather(graph: GraphBuilder, node: Any, a: Arguments) -> Converted:
    """Uses a mask if no other conversion applies."""
    try:
        return INDICES["gather"](graph, node, a)
    except ExportError as error:
        try:
            given, places = (_Positions(graph, node, a[name], a["dim"]) for name in ("self", "index"))
        except ExportError:
            raise error
        if given.sizes[:-1] != places.sizes[:-1]:
            raise
        chosen = graph.emit(node, Node("select", [given.row(), places.hits(given.count)], {}))
        return places.moved(_sum_last(graph, node, chosen, len(given.sizes) + 1))


def _last_of_equal(graph: GraphBuilder, node: Any, places: _Positions) -> str:
    """[.., count, 1]: 1 where no later number is equal, else 0."""
    distance = _add(graph, node, places.column(), scaled(graph, node, places.row(), -1))
    equal = graph.emit(node, Node("equal", [distance], {"to": 0.0}))
    later = graph.emit(node, Node("mul", [equal, graph.constant(node, torch.ones(places.count, places.count).triu(1))], {}))
    count = graph.emit(node, Node("sum", [later], {"dims": [len(places.sizes)], "keepdim": True}))
    return graph.emit(node, Node("equal", [count], {"to": 0.0}))


def _scatter(adds: bool) -> Converter:
    """scatter, of values at one position the last, as PyTorch on CPUs; adds: scatter_add."""
    def made(graph: GraphBuilder, node: Any, a: Arguments) -> Converted:
        whole, places = _Positions(graph, node, a["self"], a["dim"]), _Positions(graph, node, a["index"], a["dim"])
        rank = len(whole.sizes)
        if whole.sizes[:-1] != places.sizes[:-1] or ("reduce" in a and a["reduce"] is not None):
            raise graph.refuse(node, "of other sizes than those of the value but for one dimension, or with `reduce`")
        hits = places.hits(whole.count)
        hit = graph.emit(node, Node("sum", [hits], {"dims": [rank - 1], "keepdim": False}))
        hit = inverted(graph, node, graph.emit(node, Node("equal", [hit], {"to": 0.0})))
        number = constant_number(graph, a["value"]) if "value" in a else None
        if number is not None:
            placed = scaled(graph, node, hit, number)
        else:
            given = _Positions(graph, node, a["src"], a["dim"])
            if given.sizes != places.sizes:
                raise graph.refuse(node, f"of values of the sizes {given.sizes}, expected {places.sizes}")
            hits = hits if adds else graph.emit(node, Node("mul", [hits, _last_of_equal(graph, node, places)], {}))
            chosen = graph.emit(node, Node("select", [given.column(), hits], {}))
            placed = graph.emit(node, Node("sum", [chosen], {"dims": [rank - 1], "keepdim": False}))
        kept = whole.name if adds else graph.emit(node, Node("select", [whole.name, inverted(graph, node, hit)], {}))
        return whole.moved(_add(graph, node, kept, placed))
    return made


SELECTION: dict[str, Converter] = {
    "topk": _topk, "sort": _sort, "median": _median, "argmax": _arg_best(1), "argmin": _arg_best(-1),
    "max": _best_with_index("max", 1), "min": _best_with_index("min", -1), "gather": _gather,
    "scatter": _scatter(False), "scatter_add": _scatter(True),
}
