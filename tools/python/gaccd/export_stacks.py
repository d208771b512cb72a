"""Values [parts, samples, ..]: hidden states of recurrent layers, which PyTorch concatenates."""

from __future__ import annotations

from typing import Any

import torch

from .export_convert import Converted, rows_name, viewed
from .export_graph import GraphBuilder
from .export_types import Node


def _parts(node: Any) -> list[Any]:
    """The tensors that `node` concatenates over the samples; []: it is another operation."""
    if not isinstance(node, torch.fx.Node) or node.target != torch.ops.aten.cat.default:
        return []
    over = node.args[1] if len(node.args) > 1 else node.kwargs.get("dim", 0)
    rank = len(node.meta["val"].shape)
    return list(node.args[0]) if over % rank == 0 else []


def joins_samples(graph: GraphBuilder, node: Any) -> bool:
    """Whether a cat is part of torch.stack(.., 0): it concatenates samples of several values, and a view splits them again."""
    parts = _parts(node)
    return bool(parts) and not any(isinstance(graph.shape(one)[0], int) for one in parts) and all(
        stacked(graph, user) for user in node.users)


def stacked(graph: GraphBuilder, node: Any) -> list[Any]:
    """The operands of torch.stack(.., 0) if `node` is its view [parts, samples, ..]; []: it is another operation."""
    parts = _parts(node.args[0]) if node.target == torch.ops.aten.view.default else []
    sizes = graph.shape(node)
    if not parts or sizes[:1] != [len(parts)] or any(graph.shape(one) != sizes[1:] for one in parts):
        return []
    return parts


def stack(graph: GraphBuilder, node: Any, parts: list[Any]) -> Converted:
    rows = [viewed(graph, node, rows_name(graph, node, one), [1, *graph.sizes(node)[1:]]) for one in parts]
    return rows[0] if len(rows) == 1 else Node("cat", rows, {"dim": 0})
