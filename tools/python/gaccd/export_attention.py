"""Attention: one operation where there is no mask, else products and a softmax."""

from __future__ import annotations

import math
from typing import Any

import torch

from .export_convert import Arguments, Made, repeated, scaled, shifted, viewed
from .export_graph import HIDDEN, GraphBuilder, Node


def _known_mask(mask: torch.Tensor) -> torch.Tensor | None:
    """What is added to the scores; None: nothing."""
    added = torch.where(mask, 0.0, HIDDEN) if mask.dtype == torch.bool else mask.float().clamp(min=HIDDEN)
    return added if bool(added.any()) else None


def _is_causal(added: torch.Tensor) -> bool:
    rows, columns = added.shape[-2:]
    hidden = torch.ones(rows, columns, dtype=torch.bool).triu(1)
    return rows == columns and bool(((added <= HIDDEN * 1e-3) == hidden).all()) and not bool(added[..., ~hidden].any())


def _added(graph: GraphBuilder, node: Any, a: Arguments) -> tuple[bool, str | None]:
    """Whether it is causal, and the name of what is added to the scores."""
    rows, columns = graph.shape(a["query"])[-2], graph.shape(a["key"])[-2]
    mask = a["attn_mask"]
    if mask is None:
        if not a["is_causal"] or rows == columns:
            return a["is_causal"], None
        hidden = torch.ones(rows, columns, dtype=torch.bool).triu(1)
        return False, graph.constant(node, torch.where(hidden, HIDDEN, 0.0))
    if isinstance(graph.value(mask), torch.Tensor):
        added = _known_mask(graph.for_all_samples(node, mask))
        if added is None or _is_causal(added):
            return added is not None, None
        return False, graph.constant(node, added)
    name = graph.name_of(node, mask)
    if mask.meta["val"].dtype == torch.bool:  # 1 becomes 0, 0 becomes HIDDEN
        name = shifted(graph, node, scaled(graph, node, name, -HIDDEN), HIDDEN)
    return False, name


def _for_all_heads(graph: GraphBuilder, node: Any, x: Any, heads: int) -> str:
    """Each head of keys or values for a group of queries."""
    sizes, name = graph.sizes(node, graph.shape(x)), graph.name_of(node, x)
    if sizes[1] == heads:
        return name
    samples, own, length, width = sizes
    name = viewed(graph, node, name, [samples, own, 1, length, width])
    name = repeated(graph, node, name, [samples, own, heads // own, length, width])
    return viewed(graph, node, name, [samples, heads, length, width])


def attention(graph: GraphBuilder, node: Any, a: Arguments) -> Made:
    sizes = graph.sizes(node, graph.shape(a["query"]))
    if len(sizes) != 4:
        raise graph.refuse(node, f"expected queries [samples, heads, length, width], found {graph.shape(a['query'])}")
    width, heads = sizes[-1], sizes[1]
    scale = width ** -0.5 if a["scale"] is None else float(a["scale"])
    usual = math.isclose(scale, width ** -0.5, rel_tol=1e-6)
    causal, added = _added(graph, node, a)
    if added is None and not a["dropout_p"] and usual and all(
            graph.sizes(node, graph.shape(a[name])) == sizes for name in ("key", "value")):
        return Node("attention", [graph.name_of(node, a[name]) for name in ("query", "key", "value")], {"causal": causal})
    if causal:
        hidden = torch.ones(sizes[2], sizes[2], dtype=torch.bool).triu(1)
        added = graph.constant(node, torch.where(hidden, HIDDEN, 0.0))
    query = scaled(graph, node, graph.name_of(node, a["query"]), scale)
    scores = graph.emit(node, Node("matmul", [query, _for_all_heads(graph, node, a["key"], heads)], {"transpose": True}))
    if added is not None:
        scores = graph.emit(node, Node("add", [scores, added], {}))
    weights = graph.emit(node, Node("softmax", [scores], {}))
    if a["dropout_p"]:
        weights = graph.emit(node, Node("dropout", [weights], {"p": float(a["dropout_p"])}))
    return Node("matmul", [weights, _for_all_heads(graph, node, a["value"], heads)], {"transpose": False})
