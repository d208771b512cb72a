"""Recognises values that depend on the data only by evaluating them, because models compute them in many ways."""

from __future__ import annotations

from typing import Any

import torch

from .export_convert import inverted, viewed
from .export_graph import GraphBuilder
from .export_types import SAMPLES, Node, Refused

MAX_IDS = 64  # candidates for the padding id


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
    return graph.emit(node, Node("mul", [known, graph.emit(node, Node("equal", [after], {"to": 1.0}))], {}))


def _padding(graph: GraphBuilder, places: Any, tokens: Any, length: int) -> int | None:
    """The padding id for which `places` is the position of the last other id."""
    generator = torch.Generator().manual_seed(0)
    numbers = {value for one in graph.required_calls(places) for value in one.args if isinstance(value, int) and value >= 0}
    for padding in sorted(numbers)[:MAX_IDS]:
        tried = torch.randint(padding, padding + 2, (SAMPLES, length), generator=generator)
        tried[:, 0], tried[0], tried[1, 1:] = padding + 1, padding + 1, padding
        expected = ((tried != padding) * torch.arange(length)).argmax(1)
        found = graph.evaluate(places, {tokens: tried.to(tokens.meta["val"].dtype)})
        if torch.equal(found.flatten().long(), expected):
            return padding
    return None
