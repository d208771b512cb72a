"""The result of export() as an object that prints as a table."""

from __future__ import annotations

import collections
import math
import re
from dataclasses import dataclass
from typing import Any

import torch

from .export_graph import GraphBuilder

PRODUCTS = {"linear", "addmm", "mm", "bmm", "conv2d", "convolution", "scaled_dot_product_attention"}
MAX_NAMES = 5  # unused parameters shown
MODES = ("batch_norm", "drop")  # functions that compute something else in evaluation


@dataclass(frozen=True)
class ModuleRow:
    name: str
    kind: str  # class name
    output: str  # "[N, 64, 8, 8]", N the samples
    parameters: int  # without those of submodules
    flops: float  # of matrix products, per sample and forward pass


@dataclass(frozen=True)
class Summary:
    """Summary of an exported model."""
    path: str
    inputs: dict[str, str]  # name in the data -> shape
    output: str
    modules: list[ModuleRow]  # modules with own computations, in order
    parameters: int
    frozen: int  # among the parameters
    buffers: int
    functions: dict[str, int]  # gaccd's op -> number of nodes
    folded: int  # calls of PyTorch that depend on neither data nor parameters, evaluated as constants
    constants: int  # number of constant tensors in the graph
    unused: dict[str, int]  # trainable parameters without a gradient -> number of values, not trained
    kept: list[str]  # buffers that PyTorch changes in forward, and gaccd does not
    lengths: list[int]  # lengths that texts are cut to, with a graph for each
    replaced: bool  # whether an exported model was replaced
    evaluation: float  # relative difference of outputs between evaluation and training
    switched: list[str]  # parts in evaluation mode of a model in training mode, which gaccd trains in training mode

    @property
    def flops(self) -> float:
        """FLOPs of products per sample and forward pass; a training step has about three times as many."""
        return sum(row.flops for row in self.modules)

    def __str__(self) -> str:
        rows = [("module", "class", "output", "parameters", "FLOPs"),
                *((row.name or "(the model)", row.kind, row.output, f"{row.parameters:,}", f"{row.flops:,.0f}")
                  for row in self.modules)]
        widths = [max(len(row[i]) for row in rows) for i in range(5)]
        lines = ["  ".join([*(cell.ljust(width) for cell, width in zip(row[:3], widths)),
                            *(cell.rjust(width) for cell, width in zip(row[3:], widths[3:]))]) for row in rows]
        functions = ", ".join(f"{name} {count}" for name, count in self.functions.items())
        reads = ", ".join(f"{name} {shape}" for name, shape in self.inputs.items())
        lines += ["", f"reads      {reads}; predicts {self.output}",
                  f"trains     {self.parameters - self.frozen - sum(self.unused.values()):,} of {self.parameters:,} parameters, "
                  f"{self.buffers:,} values of buffers",
                  *([f"unused     {_some(list(self.unused))}: no gradient reaches them, they keep their values"]
                    if self.unused else []),
                  *([f"kept       {_some(self.kept)}: the output does not depend on them, they keep their values"]
                    if self.kept else []),
                  f"FLOPs      {self.flops:,.0f} for a sample, forward, in products",
                  f"functions  {functions}",
                  *([f"lengths    texts are cut to {', '.join(map(str, self.lengths))} tokens where they are short"
                     + (", with stats: FROZEN" if "batch_norm" in self.functions else "")] if self.lengths else []),
                  *([f"evaluation the model computes something else than in training, by {self.evaluation:.2g} of the output; gaccd "
                     "computes what training does"] if self.evaluation else []),
                  *([f"mode       {_some(self.switched)}: in evaluation mode; gaccd trains what model.train() computes, with dropout and "
                     "statistics of the data; graph { stats: FROZEN } uses the running ones in all batch norms, and a method train() "
                     "of the model can leave a part in evaluation mode"]
                    if self.switched and any(name.startswith(MODES) for name in self.functions) else []),
                  f"folded     {self.folded} call{' that is' if self.folded == 1 else 's that are'} the same for all data; "
                  f"{self.constants} constant{' stays' if self.constants == 1 else 's stay'}",
                  f"{'replaced' if self.replaced else 'wrote':<9}  {self.path}",
                  f"next       gaccd.verify(model, {self.path!r}) compares its values and gradients with PyTorch's"]
        return "\n".join(lines)


def _some(names: list[str]) -> str:
    return ", ".join(names[:MAX_NAMES]) + (f" and {len(names) - MAX_NAMES} more" if len(names) > MAX_NAMES else "")


def _shape(sizes: Any) -> str:
    return "[" + ", ".join(str(size) if isinstance(size, int) else re.sub(r"\bs\d+\b", "N", str(size).replace("*", " "))
                           for size in sizes) + "]"


def _per_sample(shape: Any) -> float:
    return float(math.prod(size if isinstance(size, int) else int(size.node.expr.subs({s: 1 for s in size.node.expr.free_symbols}))
                           for size in shape))


def _flops(node: Any) -> float:
    name = node.target._schema.name.rpartition("::")[2] if hasattr(node.target, "_schema") else ""
    if name not in PRODUCTS:
        return 0.0
    shapes: list[list[Any]] = [list(one.meta["val"].shape) for one in node.args
                               if isinstance(one, torch.fx.Node) and isinstance(one.meta["val"], torch.Tensor)]
    values = _per_sample(node.meta["val"].shape)
    if name == "scaled_dot_product_attention":
        return float(2.0 * values * shapes[1][-2] + 2.0 * _per_sample(shapes[0]) * shapes[1][-2])
    if name == "linear":
        return float(2.0 * values * shapes[0][-1])
    if name == "convolution" and node.args[6]:  # transposed
        return float(2.0 * _per_sample(shapes[0]) * math.prod(shapes[1][1:]))
    if name in ("conv2d", "convolution"):
        return float(2.0 * values * math.prod(shapes[1][1:]))
    return float(2.0 * values * shapes[1 if name == "addmm" else 0][-1])


def _module_name(node: Any) -> tuple[str, str]:
    stack = list((node.meta.get("nn_module_stack") or {}).values())
    if not stack:
        return "", ""
    path, kind = stack[-1]
    kind = kind if isinstance(kind, str) else kind.__qualname__
    return re.sub(r"^L\['self'\]\.?", "", path), kind.rpartition(".")[2]


def summarize(model: torch.nn.Module, graph: GraphBuilder, path: str, lengths: list[int], replaced: bool,
              evaluation: float, switched: list[str]) -> Summary:
    rows: dict[str, ModuleRow] = {}
    for node in graph.needed_calls():
        if not isinstance(getattr(node.meta.get("val"), "shape", None), torch.Size):
            continue
        name, kind = _module_name(node)
        own = dict(model.named_modules()).get(name)
        parameters = sum(p.numel() for p in own.parameters(recurse=False)) if own is not None else 0
        before = rows[name].flops if name in rows else 0.0
        rows[name] = ModuleRow(name, kind, _shape(node.meta["val"].shape), parameters, before + _flops(node))
    trained = {id(p): p for p in model.parameters()}.values()
    return Summary(
        path=path, inputs={one.name: _shape(["N", *one.example.shape[1:]]) for one in graph.inputs},
        output=_shape(graph.output_node.meta["val"].shape), modules=list(rows.values()),
        parameters=sum(p.numel() for p in trained), frozen=sum(p.numel() for p in trained if not p.requires_grad),
        buffers=sum(b.numel() for name, b in model.named_buffers() if name in model.state_dict()),
        functions=dict(collections.Counter(node.op for _, node, _ in graph.nodes).most_common()),
        folded=graph.folded, constants=len(graph.constants), lengths=lengths, replaced=replaced, evaluation=evaluation, switched=switched,
        unused={name: tensor.numel() for name, tensor in graph.unused().items()}, kept=graph.kept())
