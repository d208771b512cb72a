"""Attention: one fused operation without a mask or with a token mask, otherwise matrix products and a softmax."""

from __future__ import annotations

import math
from typing import Any

import torch

from .export_convert import Arguments, Converted, has_infinity, repeated, rows_name, scaled, shifted, sliced, viewed
from .export_graph import GraphBuilder
from .export_types import HIDDEN, INFINITE, SAMPLES, Node

MASK = "attention_mask"  # of texts; gaccd computes it from their lengths
OTHER_IDS = 10  # more than the two values of a mask


def _additive_mask(mask: torch.Tensor) -> torch.Tensor | None:
    """The mask as values to add to the scores; None: no value is hidden."""
    added = torch.where(mask, 0.0, HIDDEN) if mask.dtype == torch.bool else mask.float().clamp(min=HIDDEN)
    return added if bool(added.any()) else None


def _is_causal(added: torch.Tensor) -> bool:
    rows, columns = added.shape[-2:]
    hidden = torch.ones(rows, columns, dtype=torch.bool).triu(1)
    return rows == columns and bool(((added <= -INFINITE) == hidden).all()) and not bool(added[..., ~hidden].any())


def _visible_rows(graph: GraphBuilder, node: Any, mask: Any) -> str | None:
    """Factors of the weights: 0 for queries whose keys are all hidden, as in PyTorch; None: there are no such queries."""
    if mask is None:
        return None
    if not isinstance(graph.value(mask), torch.Tensor):
        return graph.value_name(node, mask) if mask.meta["val"].dtype == torch.bool else None
    known = graph.for_all_samples(node, mask)
    seen = (known if known.dtype == torch.bool else known > -math.inf).any(-1, keepdim=True)
    return None if bool(seen.all()) else graph.constant(node, seen.float())


def _seen_by_sums(graph: GraphBuilder, node: Any, mask: Any, y: str) -> Converted:
    """y, with 0 for queries whose keys a mask of numbers that depends on data hides all by -inf, as in PyTorch."""
    if mask is None or isinstance(graph.value(mask), torch.Tensor) or mask.meta["val"].dtype == torch.bool or not has_infinity(graph, mask):
        return y
    rank, keys = len(graph.shape(mask)), graph.shape(mask)[-1]
    hidden = graph.emit(node, Node("less", [graph.value_name(node, mask)], {"than": -INFINITE}))
    count = graph.emit(node, Node("sum", [hidden], {"dims": [rank - 1], "keepdim": True}))
    return Node("mul", [y, graph.emit(node, Node("less", [count], {"than": keys - 0.5}))], {})


def _score_bias(graph: GraphBuilder, node: Any, a: Arguments) -> tuple[bool, str | None]:
    """Whether the attention is causal, and the name of the value to add to the scores."""
    rows, columns = graph.shape(a["query"])[-2], graph.shape(a["key"])[-2]
    mask = a["attn_mask"]
    if mask is None:
        if not a["is_causal"] or rows == columns:
            return a["is_causal"], None
        return False, graph.constant(node, _causal(rows, columns))
    if isinstance(graph.value(mask), torch.Tensor):
        added = _additive_mask(graph.for_all_samples(node, mask))
        if added is None or _is_causal(added):
            return added is not None, None
        return False, graph.constant(node, added)
    name = graph.value_name(node, mask)
    if mask.meta["val"].dtype == torch.bool:  # 1 becomes 0, 0 becomes HIDDEN
        name = shifted(graph, node, scaled(graph, node, name, -HIDDEN), HIDDEN)
    return False, name


def _key_mask(graph: GraphBuilder, node: Any, mask: Any) -> tuple[str, bool] | None:
    """The name of a value [samples, length] that is 0 for keys which the mask hides from all queries, and whether the mask is
    also causal; None for another mask. Determined by evaluation, because such masks are computed in many ways."""
    given = graph.required_inputs(mask)
    if len(given) != 1 or mask.meta["val"].dtype != torch.bool or given[0].meta["val"].dim() != 2:
        return None
    length, dtype = given[0].meta["val"].shape[1], given[0].meta["val"].dtype
    shape = graph.shape(mask)
    if shape[-1] != length or len(shape) != 4 or shape[-2] not in (1, length):
        return None
    generator = torch.Generator().manual_seed(0)
    tried = torch.randint(2, (SAMPLES, length), generator=generator)
    tried[0], tried[1], tried[2] = 1, 0, torch.arange(length) < length // 2
    other = torch.randint(OTHER_IDS, (SAMPLES, length), generator=generator)
    try:
        found, of_other = (graph.evaluate(mask, {given[0]: one.to(dtype)}).expand(SAMPLES, *shape[1:-2], length, length)
                           for one in (tried, other))
    except IndexError:  # of a table of fewer rows
        return None
    for causal in (False, True):
        if _hides_keys(found, tried.bool(), causal) and _hides_keys(of_other, of_other[:, 0, -1], causal):
            # Of other ids a comparison may hide any, as ids != 50256 does.
            if graph.value(given[0]) == MASK and not dtype.is_floating_point and torch.equal(of_other[:, 0, -1], other.bool()):
                return graph.raw_value_name(node, given[0]), causal
            return _last_row(graph, node, mask), causal
    return None


def _hides_keys(found: torch.Tensor, keys: torch.Tensor, causal: bool) -> bool:
    seen = keys[:, None, None, :].expand(*keys.shape[:1], 1, *found.shape[-2:])
    return bool(torch.equal(found, (seen.tril() if causal else seen).expand_as(found)))


def _last_row(graph: GraphBuilder, node: Any, mask: Any) -> str:
    """What the last query sees: all keys that are not hidden, also of a causal mask."""
    name, (_, heads, rows, length) = graph.value_name(node, mask), graph.shape(mask)
    for dim, size in ((1, heads), (2, rows)):
        name = sliced(graph, node, name, dim, size - 1, size) if size > 1 else name
    return viewed(graph, node, name, [-1, length])


def _for_samples(graph: GraphBuilder, node: Any, x: Any, samples: int) -> str:
    """Repeats a single row of queries, keys or values for each sample."""
    sizes, name = graph.sizes(node, graph.shape(x)), rows_name(graph, node, x)
    return name if sizes[0] == samples else repeated(graph, node, name, [samples, *sizes[1:]])


def _repeat_for_heads(graph: GraphBuilder, node: Any, x: Any, samples: int, heads: int) -> str:
    """Repeats each head of keys or values for its group of query heads."""
    name = _for_samples(graph, node, x, samples)
    own, length, width = graph.sizes(node, graph.shape(x)[1:])
    if own == heads:
        return name
    name = viewed(graph, node, name, [samples, own, 1, length, width])
    name = repeated(graph, node, name, [samples, own, heads // own, length, width])
    return viewed(graph, node, name, [samples, heads, length, width])


def attention(graph: GraphBuilder, node: Any, a: Arguments) -> Converted:
    if len(graph.shape(a["query"])) == 4:
        return _attention_4d(graph, node, a)
    return _attention_any_rank(graph, node, a)


def _attention_any_rank(graph: GraphBuilder, node: Any, a: Arguments) -> Converted:
    """[samples, .., length, width]: all dimensions between samples and length count heads."""
    shapes = [graph.sizes(node, graph.shape(a[name])) for name in ("query", "key", "value")]
    if any(len(one) < 3 or one[1:-2] != shapes[0][1:-2] for one in shapes):
        raise graph.refuse(node, f"expected queries [samples, .., length, width] and keys and values of as many, found {shapes}")
    if any(size < 0 for size in shapes[0][1:]):
        raise graph.refuse(node, "its samples are in several dimensions, or not the first; permute before it")
    samples = min(one[0] for one in shapes)
    query, key, value = (viewed(graph, node, _for_samples(graph, node, a[name], samples), [samples, math.prod(one[1:-2]), *one[-2:]])
                         for name, one in zip(("query", "key", "value"), shapes))
    scale, usual = _scale(a, shapes[0][-1])
    causal, added = _score_bias(graph, node, a)
    if samples < 0 and usual and not a["dropout_p"] and added is None and shapes[0] == shapes[1] == shapes[2]:
        y = graph.emit(node, Node("attention", [query, key, value], {"causal": causal}))
    else:
        added = graph.constant(node, _causal(shapes[0][-2], shapes[1][-2])) if causal else added
        added, seen = (None if one is None else _flatten_mask_heads(graph, node, one, a["attn_mask"], shapes[0][1:-2])
                       for one in (added, _visible_rows(graph, node, a["attn_mask"])))
        products = _products(graph, node, (scaled(graph, node, query, scale), key, value), added, seen, a["dropout_p"])
        y = viewed(graph, node, graph.emit(node, products), graph.sizes(node))
        return _seen_by_sums(graph, node, a["attn_mask"], y)
    return viewed(graph, node, y, graph.sizes(node))


def _flatten_mask_heads(graph: GraphBuilder, node: Any, name: str, mask: Any, heads: list[int]) -> str:
    """A value computed from the mask [samples, .., rows, columns], in the shape [samples, heads, rows, columns]."""
    sizes = list(graph.tensor(name).shape) if graph.is_parameter(name) else graph.sizes(node, graph.shape(mask))
    if len(sizes) <= 2:
        return name
    sizes = [1] * (len(heads) + 3 - len(sizes)) + sizes
    between, whole = sizes[1:-2], [sizes[0], *heads, *sizes[-2:]]
    if any(size != 1 for size in between) and between != heads:
        name = repeated(graph, node, viewed(graph, node, name, sizes), whole)
        between = heads
    return viewed(graph, node, name, [sizes[0], math.prod(between), *sizes[-2:]])


def _scale(a: Arguments, width: int) -> tuple[float, bool]:
    """The factor of the scores, and whether it is the default 1 / sqrt(width) of the fused operations."""
    scale = width ** -0.5 if a["scale"] is None else float(a["scale"])
    return scale, math.isclose(scale, width ** -0.5, rel_tol=1e-6)


def _causal(rows: int, columns: int) -> torch.Tensor:
    return torch.where(torch.ones(rows, columns, dtype=torch.bool).triu(1), HIDDEN, 0.0)


def _products(graph: GraphBuilder, node: Any, given: tuple[str, str, str], added: str | None, seen: str | None, dropout: float) -> Node:
    """given: scaled queries, keys and values; added: bias of the scores; seen: factors of the weights."""
    query, key, value = given
    scores = graph.emit(node, Node("matmul", [query, key], {"transpose": True}))
    scores = graph.emit(node, Node("add", [scores, added], {})) if added is not None else scores
    weights = graph.emit(node, Node("softmax", [scores], {}))
    weights = graph.emit(node, Node("mul", [weights, seen], {})) if seen is not None else weights
    weights = graph.emit(node, Node("dropout", [weights], {"p": float(dropout)})) if dropout else weights
    return Node("matmul", [weights, value], {"transpose": False})


def _attention_4d(graph: GraphBuilder, node: Any, a: Arguments) -> Converted:
    sizes = graph.sizes(node, graph.shape(a["query"]))
    heads, (scale, usual) = sizes[1], _scale(a, sizes[-1])
    fused = sizes[0] < 0 and not a["dropout_p"] and usual and all(
        graph.sizes(node, graph.shape(a[name])) == sizes for name in ("key", "value"))
    mask = a["attn_mask"]
    keys = _key_mask(graph, node, mask) if fused and isinstance(mask, torch.fx.Node) else None
    if keys is not None:
        given = [graph.value_name(node, a[name]) for name in ("query", "key", "value")]
        return Node("masked_attention", [*given, keys[0]], {"causal": keys[1]})
    causal, added = _score_bias(graph, node, a)
    if added is None and fused:
        return Node("attention", [graph.value_name(node, a[name]) for name in ("query", "key", "value")], {"causal": causal})
    if causal:
        added = graph.constant(node, _causal(sizes[2], sizes[2]))
    samples = graph.sizes(node)[0]
    query = scaled(graph, node, _for_samples(graph, node, a["query"], samples), scale)
    key, value = (_repeat_for_heads(graph, node, a[name], samples, heads) for name in ("key", "value"))
    products = _products(graph, node, (query, key, value), added, _visible_rows(graph, node, mask), a["dropout_p"])
    return _seen_by_sums(graph, node, mask, graph.emit(node, products))
