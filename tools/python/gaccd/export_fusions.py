"""Fuses several operations into one of gaccd: composed activations, RMS norm, gates as in SwiGLU, rotary positions."""

from __future__ import annotations

import dataclasses
from typing import Any, Callable, Iterator

import torch
import torch.nn.functional as F

from .export_graph import GraphBuilder
from .export_types import HIDDEN, Node

Values = Callable[..., torch.Tensor]
# Elementwise operations, by op.
BY_VALUE: dict[str, Values] = {
    "scale": lambda a, x: x * a["factor"], "shift": lambda a, x: x + a["amount"], "power": lambda a, x: x ** a["exponent"],
    "exp": lambda _, x: x.exp(), "erf": lambda _, x: x.erf(), "tanh": lambda _, x: x.tanh(), "sigmoid": lambda _, x: x.sigmoid(),
    "clamp": lambda a, x: x.clamp(a["least"], a["most"]), "hardtanh": lambda a, x: x.clamp(a["least"], a["most"]),
    "hardsigmoid": lambda _, x: F.hardsigmoid(x), "relu": lambda _, x: x.relu(),
    "add": lambda _, x, y: x + y, "mul": lambda _, x, y: x * y, "div": lambda _, x, y: x / y,
}
ACTIVATIONS: list[tuple[Node, Callable[[torch.Tensor], torch.Tensor]]] = [
    (Node("gelu", [], {"tanh": True}), lambda x: F.gelu(x, approximate="tanh")), (Node("gelu", [], {"tanh": False}), F.gelu),
    (Node("silu", [], {}), F.silu), (Node("hardswish", [], {}), F.hardswish), (Node("tanh", [], {}), torch.tanh),
    (Node("sigmoid", [], {}), torch.sigmoid),
]
FAR = torch.tensor([40, 60, 100, 300], dtype=torch.float64)
PROBES = torch.cat([-FAR, torch.linspace(-30, 30, 1201, dtype=torch.float64), FAR])
TOLERANCE = 2.0 ** -23  # of values up to 1, and of larger ones as a share; a scale next to 1 may be there to keep a log finite
MAX_DEPTH = 10  # max operations from the result of an activation to its input
GATES = {"silu": "silu_mul", "sigmoid": "sigmoid_mul", "gelu": "gelu_mul"}


def fuse(graph: GraphBuilder) -> None:
    """Replaces the last node of each pattern by the fused one; does not remove unused nodes."""
    Fusions(graph).run()


class Fusions:
    def __init__(self, graph: GraphBuilder) -> None:
        self.graph = graph
        self.nodes = {name: node for name, node, _ in graph.nodes}
        self.shapes = graph.shapes_by_name()

    def run(self) -> None:
        for rule in (self.activation, self.rms_norm, self.gate, self.rotary):
            for i, (name, node, source) in enumerate(self.graph.nodes):
                made = rule(name, node)
                if made is not None:
                    self.graph.nodes[i] = (name, made, source)
                    self.nodes[name] = made

    def inputs(self, name: str, op: str, **attributes: Any) -> list[str] | None:
        """The inputs of this node; None: it has another op or other attributes."""
        node = self.nodes.get(name)
        fits = node is not None and node.op == op and all(node.attributes.get(key) == value for key, value in attributes.items())
        return node.inputs if node is not None and fits else None

    def either(self, node: Node) -> Iterator[tuple[str, str]]:
        """The inputs of a sum or product in both orders."""
        yield node.inputs[0], node.inputs[1]
        yield node.inputs[1], node.inputs[0]

    # Recognises an activation by its values, not by its form.
    def activation(self, name: str, node: Node) -> Node | None:
        if node.op not in ("mul", "div", "scale", "add"):
            return None
        above = self._above(name)
        if not any(self.nodes[one].op not in ("scale", "shift", "mul", "div", "add") for one in above if one in self.nodes):
            return None  # only sums and products
        for x in above[1:]:
            found = self._values(name, x)
            if found is None:
                continue
            for known, function in ACTIVATIONS:
                wanted = function(PROBES)
                if float(((found - wanted) / wanted.abs().clamp(min=1)).abs().max()) <= TOLERANCE:
                    return dataclasses.replace(known, inputs=[x])
        return None

    def _above(self, name: str) -> list[str]:
        """The values that this one is computed from elementwise, the nearest first."""
        found, left = [name], [(name, 0)]
        while left:
            one, depth = left.pop(0)
            node = self.nodes.get(one)
            if node is None or node.op not in BY_VALUE or depth == MAX_DEPTH:
                continue
            for given in node.inputs:
                if given not in found:
                    found.append(given)
                    left.append((given, depth + 1))
        return found

    def _values(self, name: str, x: str, depth: int = 0) -> torch.Tensor | None:
        """The values of `name` if x is PROBES; None: it depends on more than x."""
        if name == x:
            return PROBES
        node = self.nodes.get(name)
        if node is None or node.op not in BY_VALUE or depth > MAX_DEPTH or self._limits_more(node):
            return None
        given = [self._values(one, x, depth + 1) for one in node.inputs]
        return None if any(one is None for one in given) else BY_VALUE[node.op](node.attributes, *given)

    def _limits_more(self, node: Node) -> bool:
        """Whether the node may differ outside of PROBES, as a clamp to [-400, 400] does."""
        limits = [abs(float(node.attributes[key])) for key in ("least", "most") if key in node.attributes]  # type: ignore[arg-type]
        return any(float(FAR[-1]) <= one < -HIDDEN for one in limits)

    # weight (x rsqrt(mean(x^2) + eps))
    def rms_norm(self, name: str, node: Node) -> Node | None:
        if node.op != "mul":
            return None
        for weight, normed in self.either(node):
            product = self.nodes.get(normed)
            if product is None or product.op != "mul" or not self.graph.is_parameter(weight):
                continue
            for x, inverse in self.either(product):
                eps = self._match_rms_eps(inverse, x)
                if eps is not None and list(self.graph.tensor(weight).shape) == self.shapes.get(x, [])[-1:]:
                    return Node("rms_norm", [x, weight], {"eps": eps})
        return None

    def _match_rms_eps(self, inverse: str, x: str) -> float | None:
        """eps if `inverse` is 1 / sqrt(mean(x^2) + eps), the mean over the last dimension; otherwise None."""
        shifted = self.inputs(inverse, "power", exponent=-0.5)
        mean = self.inputs(shifted[0], "shift") if shifted else None
        square = self.inputs(mean[0], "mean", dims=[len(self.shapes.get(x, [])) - 1], keepdim=True) if mean else None
        if not shifted or not square or self.inputs(square[0], "power", exponent=2.0) != [x]:
            return None
        return float(self.nodes[shifted[0]].attributes["amount"])  # type: ignore[arg-type]

    # f(a) b
    def gate(self, _: str, node: Node) -> Node | None:
        if node.op != "mul":
            return None
        for gate, other in self.either(node):
            activation = self.nodes.get(gate)
            shape = self.shapes.get(gate)
            if (activation is not None and activation.op in GATES and shape and shape == self.shapes.get(other)
                    and self._depends_on_samples(gate) == self._depends_on_samples(other)):
                return Node(GATES[activation.op], [activation.inputs[0], other], activation.attributes)
        return None

    def _depends_on_samples(self, name: str) -> bool:
        """Whether the value has rows of samples, which depend on them or are repeated; otherwise one row for all samples, like an
        initial state of zeros."""
        found, left = set(), [name]
        inputs = {one.name for one in self.graph.inputs}
        while left:
            one = left.pop()
            if one in inputs:
                return True
            if one not in found and one in self.nodes:
                sizes = self.nodes[one].attributes.get("size", [])
                if isinstance(sizes, list) and any(size < 0 for size in sizes):
                    return True
                found.add(one)
                left += self.nodes[one].inputs
        return False

    # x cos + cat(-x[half:], x[:half]) sin
    def rotary(self, _: str, node: Node) -> Node | None:
        if node.op != "add":
            return None
        for straight, turned in self.either(node):
            if self.inputs(straight, "mul") is None or self.inputs(turned, "mul") is None:
                continue
            for x, cos in self.either(self.nodes[straight]):
                for halves, sin in self.either(self.nodes[turned]):
                    if self._are_angles(cos, x) and self._are_angles(sin, x) and self._are_halves(halves, x):
                        return Node("rotary", [x, cos, sin], {})
        return None

    def _are_angles(self, name: str, x: str) -> bool:
        """Whether `name` is a constant with one value per position and column of x."""
        shape = self.shapes.get(x, [])
        if not self.graph.is_constant(name) or len(shape) < 2:
            return False
        own = list(self.graph.tensor(name).shape)
        return own[-2:] == shape[-2:] and all(size == 1 for size in own[:-2])

    def _are_halves(self, name: str, x: str) -> bool:
        last = len(self.shapes[x]) - 1
        width = self.shapes[x][last]
        parts = self.inputs(name, "cat", dim=last)
        if parts is None or len(parts) != 2 or not isinstance(width, int) or width % 2:
            return False
        second = self.inputs(parts[0], "scale", factor=-1.0)
        return (second is not None and self.inputs(second[0], "slice", dim=last, start=width // 2, end=width) == [x]
                and self.inputs(parts[1], "slice", dim=last, start=0, end=width // 2) == [x])
