"""The text of proto/graph.proto."""

from __future__ import annotations

import json
from typing import Any

import torch

from .export_graph import GraphBuilder

VERSION = 1  # version of the format


def graph_text(graph: GraphBuilder, shorter: dict[int, GraphBuilder]) -> str:
    """shorter: graphs of the same model by length of texts, ascending; the last one has all constants."""
    constants = [graph, *shorter.values()][-1].constants
    lines = ["# proto-file: proto/graph.proto", "# proto-message: gaccd.proto.ExportedGraph", "",
             f"version: {VERSION}", f'producer: "torch {torch.__version__}"']
    for one in graph.inputs:
        kind = "F32" if one.example.is_floating_point() else "I64"
        sizes = "".join(f" size: {size}" for size in [-1, *one.example.shape[1:]])
        lines.append(f"input {{ name: {json.dumps(one.name)} type: {kind}{sizes} }}")
    in_constants = graph.buffers_in_constants()
    for name, tensor in graph.own.items():
        sizes = "".join(f" size: {size}" for size in tensor.shape)
        buffer = " buffer: true" if graph.is_kept(name) else ""
        frozen = " frozen: true" if (name in in_constants if buffer else graph.is_frozen(name)) else ""
        aliases = "".join(f" alias: {json.dumps(alias)}" for alias in graph.aliases.get(name, []))
        lines.append(f"parameter {{ name: {json.dumps(name)}{sizes}{buffer}{frozen}{aliases} }}")
    for name, tensor in constants.items():
        sizes = "".join(f" size: {size}" for size in tensor.shape)
        same = bool((tensor == tensor.flatten()[0]).all())
        values = ", ".join(repr(value) for value in (tensor.flatten()[:1] if same else tensor.flatten()).tolist())
        lines.append(f"parameter {{ name: {json.dumps(name)}{sizes} value: [{values}] }}")
    lines += _body(graph)
    for length, builder in shorter.items():
        lines += [f"shorter {{ length: {length}", *_body(builder), "}"]
    return "\n".join(lines) + "\n"


def _body(graph: GraphBuilder) -> list[str]:
    lines = []
    for name, node, source in graph.nodes:
        lines += [f"node {{ name: {json.dumps(name)} op: {json.dumps(node.op)}",
                  "  " + " ".join(f"input: {json.dumps(one)}" for one in node.inputs)]
        lines += [f"  attribute {{ name: {json.dumps(key)}{_value_text(value)} }}"
                  for key, value in node.attributes.items()]
        lines.append(f"  source: {json.dumps(source)} }}")
    return [*lines, f"output: {json.dumps(graph.output)}"]


def _value_text(value: Any) -> str:
    if isinstance(value, float):
        return f" number: {value!r}"
    values = value if isinstance(value, list) else [int(value)]
    return "".join(f" integer: {one}" for one in values)
