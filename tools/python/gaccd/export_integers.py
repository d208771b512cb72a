"""Integers that a model computes from its inputs: gaccd holds them as float32."""

from __future__ import annotations

import contextlib
from typing import Any

import torch

from .export_graph import GraphBuilder
from .export_types import SAMPLES, is_discrete

RUNS = 4  # of random ids, after one of the largest
OF_DATA = ("make them outside of the model and give them as an input of their own, or compute with smaller ones: (a * b) % n is "
           "((a % n) * (b % n)) % n")


def check_integers(graph: GraphBuilder) -> None:
    """Refuses integers that float32 rounds, as of hashes: the embeddings that read them would take other rows."""
    computed = {name for name, _, _ in graph.nodes}
    nodes = [node for node in graph.needed_calls() if is_discrete(node) and node.meta["val"].dtype != torch.bool
             and isinstance(name := graph.value(node), str) and name in computed and name not in graph.ids]
    found = {node: given for node in nodes if (given := graph.required_inputs(node))}
    for run in range(RUNS + 1 if found else 0):
        drawn = _drawn(graph, {one for given in found.values() for one in given}, largest=run == 0)
        for node in found:
            rounded = torch.zeros(0)
            with contextlib.suppress(Exception):  # of many kinds, by a model that does not take these ids
                values = graph.evaluate(node, {one: drawn[one] for one in found[node]})
                rounded = values[values != values.float().to(values.dtype)]
            if rounded.numel():
                raise graph.refuse(node, f"gives integers such as {int(rounded[0])}, and gaccd computes those of inputs in float32, which has "
                                         f"all up to 2^24; {OF_DATA}")


def _drawn(graph: GraphBuilder, nodes: set[Any], largest: bool) -> dict[Any, torch.Tensor]:
    """Ids of the tables that read them, and samples of the example for other inputs."""
    generator = torch.Generator().manual_seed(1)
    drawn: dict[Any, torch.Tensor] = {}
    for node in nodes:
        (one,) = [one for one in graph.inputs if one.name == graph.value(node)]
        rows = 0 if one.example.is_floating_point() else graph.min_table_rows(one)
        sizes = (SAMPLES, *one.example.shape[1:])
        if not rows:
            drawn[node] = one.example[torch.arange(SAMPLES) % len(one.example)]
        elif largest:
            drawn[node] = torch.full(sizes, rows - 1, dtype=one.example.dtype)
        else:
            drawn[node] = torch.randint(rows, sizes, generator=generator, dtype=one.example.dtype)
    return drawn
