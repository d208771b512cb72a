"""Recognises values that depend on the data only by evaluating them, because models compute them in many ways."""

from __future__ import annotations

from typing import Any

import torch

from .export_convert import inverted, viewed
from .export_graph import GraphBuilder
from .export_types import SAMPLES, Node, Refused

MAX_IDS = 64  # candidates for the padding id
MAX_TRIED = 512  # other ids, of large tables


def ones_at(graph: GraphBuilder, node: Any, places: Any, length: int) -> str | None:
    """One-hot values [samples, length], 1 at the position of each sample; None: `places` is not one position per sample."""
    if graph.shape(places)[1:]:
        return None
    value = graph.value(places)
    if isinstance(value, Refused) or any("aten.argmax." in str(one.target) for one in graph.required_calls(places)):
        if (ones := _ones_at_last(graph, node, places, length)) is not None:
            return ones
    if isinstance(value, Refused):
        raise value.error
    column = viewed(graph, node, graph.value_name(node, places), [*graph.sizes(node, graph.shape(places)), 1])
    before = graph.constant(node, -torch.arange(length, dtype=torch.float32)[None])
    distance = graph.emit(node, Node("add", [column, before], {}))
    both = [graph.emit(node, Node("equal", [distance], {"to": float(to)})) for to in (0, -length)]  # -1 is the last position
    return graph.emit(node, Node("add", both, {}))


def _ones_at_last(graph: GraphBuilder, node: Any, places: Any, length: int) -> str | None:
    """One-hot values if `places` is the position of the last token that is not padding, otherwise None."""
    given = graph.required_inputs(places)
    if len(given) != 1 or given[0].meta["val"].dim() != 2 or given[0].meta["val"].is_floating_point():
        return None
    if given[0].meta["val"].shape[1] != length:
        return None
    padding = _padding(graph, places, given[0], length)
    if padding is None:
        return None
    is_padding = graph.emit(node, Node("equal", [graph.value_name(node, given[0])], {"to": float(padding)}))
    known = inverted(graph, node, is_padding)
    # Number of tokens from this one on, padding excluded: 1 for the last token.
    after = graph.emit(node, Node("linear", [known, graph.constant(node, torch.ones(length, length).tril())], {"in_out": True}))
    ones = graph.emit(node, Node("mul", [known, graph.emit(node, Node("equal", [after], {"to": 1.0}))], {}))
    # Of texts without any token, which have no last one, the position that the model takes.
    place = int(_places_of(graph, places, given[0], torch.full((SAMPLES, length), padding))[0]) % length
    count = graph.emit(node, Node("sum", [known], {"dims": [1], "keepdim": True}))
    empty = graph.emit(node, Node("equal", [count], {"to": 0.0}))
    chosen = graph.constant(node, (torch.arange(length) == place).float()[None])
    return graph.emit(node, Node("add", [ones, graph.emit(node, Node("mul", [empty, chosen], {}))], {}))


def _places_of(graph: GraphBuilder, places: Any, tokens: Any, ids: torch.Tensor) -> torch.Tensor:
    return graph.evaluate(places, {tokens: ids.to(tokens.meta["val"].dtype)}).flatten().long()


def _padding(graph: GraphBuilder, places: Any, tokens: Any, length: int) -> int | None:
    """The padding id for which `places` is the position of the last other id, whatever the other ids are."""
    generator = torch.Generator().manual_seed(0)
    numbers = {value for one in graph.required_calls(places) for value in one.args if isinstance(value, int) and value >= 0}
    tried = _ids_to_try(graph, tokens, numbers)
    for padding in sorted(numbers)[:MAX_IDS]:
        others = tried[tried != padding]
        if len(others) and all(_is_last(graph, places, tokens, padding, others, first, length, generator)
                               for first in range(0, len(others), SAMPLES)):
            return padding
    return None


def _is_last(graph: GraphBuilder, places: Any, tokens: Any, padding: int, others: torch.Tensor, first: int, length: int,
             generator: torch.Generator) -> bool:
    """Whether `places` is the position of others[first], others[first + 1], .. where these are the last ids of texts."""
    last = others[(first + torch.arange(SAMPLES)) % len(others)]
    for place in (torch.randint(length, (SAMPLES,), generator=generator), torch.full((SAMPLES,), length - 1), torch.zeros(SAMPLES).long()):
        ids = others[torch.randint(len(others), (SAMPLES, length), generator=generator)]
        ids = torch.where(torch.rand(ids.shape, generator=generator) < 0.5, padding, ids)
        ids[torch.arange(SAMPLES), place] = last
        ids = torch.where(torch.arange(length) > place[:, None], padding, ids)
        if not torch.equal(_places_of(graph, places, tokens, ids), place):
            return False
    return True


def _ids_to_try(graph: GraphBuilder, tokens: Any, numbers: set[int]) -> torch.Tensor:
    """Ids of the table, evenly spaced if these are many, and those around the numbers that the model compares with."""
    rows = max((graph.min_table_rows(one) for one in graph.inputs if one.name == graph.value(tokens)), default=0)
    most = max(rows, *numbers, SAMPLES) if numbers else rows
    evenly = torch.linspace(0, most, MAX_TRIED).long().tolist() if most > MAX_TRIED else range(most)
    near = {number + step for number in sorted(numbers)[:MAX_IDS] for step in (-1, 0, 1)}
    return torch.tensor(sorted(one for one in {*evenly, *near} if 0 <= one and (one < rows or not rows)))
