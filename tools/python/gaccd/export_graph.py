"""From the graph of torch.export to the text of proto/graph.proto."""

from __future__ import annotations

import dataclasses
import json
import os
import re
from typing import Any, Iterator

import torch

VERSION = 1  # of the format
SIZE = object()  # the value of a node that computes with the number of samples
TORCH = os.path.dirname(torch.__file__) + os.sep


class ExportError(ValueError):
    """A model that gaccd cannot train; the message says why, and where in the model."""


@dataclasses.dataclass
class Input:
    argument: str
    name: str  # in the data
    example: torch.Tensor


@dataclasses.dataclass
class Node:
    """What is written of one node: its op and inputs, by name, and attributes as texts of numbers."""
    op: str
    inputs: list[str]
    attributes: dict[str, float | int | bool | list[int]]


def _source(node: Any) -> str:
    """ "layer1.0.conv1 (net.py:12)": the module, and the last line of the user's own files."""
    frames = re.findall(r'File "([^"]+)", line (\d+)', node.meta.get("stack_trace") or "")
    own = [frame for frame in frames if not os.path.abspath(frame[0]).startswith(TORCH)
           and not frame[0].startswith("torch/")] or frames
    line = f"{os.path.basename(own[-1][0])}:{own[-1][1]}" if own else ""
    modules = [path for path, _ in (node.meta.get("nn_module_stack") or {}).values()]
    module = re.sub(r"^L\['self'\]\.?", "", modules[-1]) if modules else ""
    return f"{module} ({line})" if module and line else module or line


class GraphBuilder:
    """Takes what torch.export gives apart and writes what gaccd reads."""

    def __init__(self, program: Any, tensors: dict[str, torch.Tensor], inputs: list[Input]) -> None:
        from .export_ops import convert
        self.program = program
        self.inputs = inputs
        self.nodes: list[tuple[str, Node, str]] = []
        self._names: dict[Any, Any] = {}  # fx node -> name, constant tensor or other value
        self._shapes: dict[str, Any] = {}  # name -> torch's shape
        self._batch: Any = None
        self._own: dict[str, torch.Tensor] = {}  # of the state_dict, each tensor once
        self._aliases: dict[str, list[str]] = {}
        self._canonical: dict[str, str] = {}
        for name, tensor in tensors.items():
            first = next((known for known, other in self._own.items() if other is tensor), name)
            self._own.setdefault(first, tensor)
            self._canonical[name] = first
            if first != name:
                self._aliases.setdefault(first, []).append(name)
        self._mutated = set(program.graph_signature.buffers_to_mutate.values())
        self._add_placeholders()
        self.output = self._convert_nodes(convert)
        self._check_weights()

    # What the converters of export_ops.py ask.

    def refuse(self, node: Any, why: str) -> ExportError:
        return ExportError(f"{node.target}: {why}; it is called at {_source(node) or 'an unknown line'}")

    def value(self, argument: Any) -> Any:
        """The name of a value, a constant tensor, or the argument itself."""
        return self._names[argument] if isinstance(argument, torch.fx.Node) else argument

    def name_of(self, node: Any, argument: Any) -> str:
        value = self.value(argument)
        if isinstance(value, str):
            return value
        raise self.refuse(node, "takes a constant that is no parameter")

    def is_parameter(self, name: str) -> bool:
        return name in self._own

    def shape(self, argument: Any) -> list[Any]:
        return list(argument.meta["val"].shape)

    def sizes(self, node: Any, shape: list[Any] | None = None) -> list[int]:
        """Of the value of `node`; -k is k times the samples."""
        return [self._size(node, size) for size in (self.shape(node) if shape is None else shape)]

    def sibling(self, name: str, last: str) -> str:
        """The tensor of the same module called `last`; "" where there is none."""
        other = f"{name.rpartition('.')[0]}.{last}".lstrip(".")
        return other if other in self._own else ""

    def _size(self, node: Any, size: Any) -> int:
        if isinstance(size, int):
            return size
        expression = size.node.expr
        factor = expression / self._batch
        if not factor.is_Integer or factor < 1:
            raise self.refuse(node, f"has a size that is no multiple of the samples, {expression}")
        return -int(factor)

    def _add_placeholders(self) -> None:
        by_argument = {one.argument: one for one in self.inputs}
        specs = {spec.arg.name: spec for spec in self.program.graph_signature.input_specs}
        for node in self.program.graph.nodes:
            if node.op != "placeholder":
                continue
            spec = specs[node.name]
            if node.name in by_argument:
                self._names[node] = by_argument[node.name].name
                if self._batch is None:
                    self._batch = node.meta["val"].shape[0].node.expr
            elif spec.target in self._canonical:
                self._names[node] = self._canonical[spec.target]
            elif spec.target in self.program.constants:
                self._names[node] = self.program.constants[spec.target]
            else:  # a buffer that is not saved
                self._names[node] = dict(self.program.named_buffers())[spec.target]

    def _needed(self, output: Any) -> set[Any]:
        needed, left = set(), [output]
        while left:
            node = left.pop()
            if node not in needed:
                needed.add(node)
                left += node.all_input_nodes
        return needed

    def _convert_nodes(self, convert: Any) -> str:
        outputs = [spec.arg.name for spec in self.program.graph_signature.output_specs
                   if spec.kind.name == "USER_OUTPUT"]
        if len(outputs) != 1:
            raise ExportError(f"expected a model with one output, the prediction, found {len(outputs)}")
        (output,) = [node for node in self.program.graph.nodes if node.name == outputs[0]]
        needed = self._needed(output)
        for node in self.program.graph.nodes:
            if node.op != "call_function" or node not in needed:
                continue
            arguments = [self.value(one) for one in node.all_input_nodes]
            if all(isinstance(one, torch.Tensor) for one in arguments):
                self._names[node] = self._fold(node)
                continue
            made = convert(self, node)
            if isinstance(made, Node):
                self.nodes.append((node.name, made, _source(node)))
                self._names[node] = node.name
            else:
                self._names[node] = made
        return self.name_of(output, output)

    def _fold(self, node: Any) -> Any:
        return node.target(*torch.fx.map_arg(node.args, self.value), **torch.fx.map_arg(node.kwargs, self.value))

    def _check_weights(self) -> None:
        used = {name for _, node, _ in self.nodes for name in node.inputs}
        for name, tensor in self._own.items():
            counter = name.endswith("num_batches_tracked")
            if tensor.dtype != torch.float32 and not counter:
                raise ExportError(f"{name}: expected values of float32, found {tensor.dtype}")
            if name not in used:
                raise ExportError(f"{name}: no op of the network uses it; gaccd trains what it uses. Remove it first")

    # What is written.

    def weights(self) -> Iterator[tuple[str, torch.Tensor]]:
        yield from self._own.items()

    def rows_of_tokens(self) -> int:
        """Of the first table that is read; 0: none."""
        names = [node.inputs[1] for _, node, _ in self.nodes if node.op == "embedding"]
        return int(self._own[names[0]].shape[0]) if names else 0

    def text(self) -> str:
        lines = ["# proto-file: proto/graph.proto", "# proto-message: gaccd.proto.ExportedGraph", "",
                 f"version: {VERSION}", f'producer: "torch {torch.__version__}"']
        for one in self.inputs:
            kind = "F32" if one.example.is_floating_point() else "I64"
            sizes = "".join(f" size: {size}" for size in [-1, *one.example.shape[1:]])
            lines.append(f"input {{ name: {json.dumps(one.name)} type: {kind}{sizes} }}")
        for name, tensor in self._own.items():
            sizes = "".join(f" size: {size}" for size in tensor.shape)
            buffer = " buffer: true" if name in self._mutated else ""
            frozen = " frozen: true" if not buffer and not tensor.requires_grad else ""
            aliases = "".join(f" alias: {json.dumps(alias)}" for alias in self._aliases.get(name, []))
            lines.append(f"parameter {{ name: {json.dumps(name)}{sizes}{buffer}{frozen}{aliases} }}")
        for name, node, source in self.nodes:
            lines += [f"node {{ name: {json.dumps(name)} op: {json.dumps(node.op)}",
                      "  " + " ".join(f"input: {json.dumps(one)}" for one in node.inputs)]
            lines += [f"  attribute {{ name: {json.dumps(key)}{_value_text(value)} }}"
                      for key, value in node.attributes.items()]
            lines.append(f"  source: {json.dumps(source)} }}")
        lines.append(f"output: {json.dumps(self.output)}")
        return "\n".join(lines) + "\n"


def _value_text(value: Any) -> str:
    if isinstance(value, float):
        return f" number: {value!r}"
    values = value if isinstance(value, list) else [int(value)]
    return "".join(f" integer: {one}" for one in values)
