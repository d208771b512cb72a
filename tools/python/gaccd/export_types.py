"""The parts of an exported graph, and errors."""

from __future__ import annotations

import dataclasses
import os
import re
import traceback
from typing import Any

import torch

SAMPLES = 7  # for values that depend on the number of samples only
HIDDEN = -1e30  # replaces -inf: exp(HIDDEN) is 0
INFINITE = 1e27  # beyond it a number counts as infinite: HIDDEN may have been scaled
MOST = 1e38  # in place of infinity, whose difference from itself is NaN
TORCH = os.path.dirname(torch.__file__) + os.sep
PACKAGE = os.path.dirname(os.path.abspath(__file__)) + os.sep


class ExportError(ValueError):
    """The model cannot be trained by gaccd; the message gives the reason and the position in the model."""


@dataclasses.dataclass
class Input:
    argument: str
    name: str  # name in the data
    example: torch.Tensor


@dataclasses.dataclass
class SampleMask:
    """A random number per sample: `scale` with probability `keep`, otherwise 0."""
    keep: float
    scale: float
    drawn: Any  # fx node that draws it


@dataclasses.dataclass
class Uniform:
    """Random numbers from `least` to 1 above it; stochastic depth rounds them down."""
    drawn: Any  # fx node that draws it
    least: float = 0.0


@dataclasses.dataclass
class Complex:
    """A complex value: the name of that of floats, with a last dimension of real and imaginary parts."""
    name: str


@dataclasses.dataclass
class Node:
    """A node of the file: its op, the names of its inputs, and its attributes."""
    op: str
    inputs: list[str]
    attributes: dict[str, float | int | bool | list[int]]


@dataclasses.dataclass
class Refused:
    """A value that gaccd cannot compute but that depends on data only: an operation that uses it may be recognised as a whole."""
    error: ExportError


def is_discrete(node: Any) -> bool:
    """Whether the value is one of integers or masks, which have no gradient."""
    value = node.meta.get("val")
    return isinstance(value, torch.Tensor) and not value.is_floating_point() and not value.is_complex()


def is_detached(node: Any) -> bool:
    return str(node.target) == "aten.detach.default"


def takes_shape_alone(node: Any) -> bool:
    """Whether the operation reads no values of its tensors, as zeros_like."""
    name = str(node.target).removeprefix("aten.").partition(".")[0]
    return name.startswith("new_") or name.endswith("_like")


def own_line(stack: traceback.StackSummary) -> str:
    """ "net.py:12", the last line outside of PyTorch and this package; "" if there is none."""
    own = [one for one in stack
           if one.filename[:1] != "<" and not os.path.abspath(one.filename).startswith((TORCH, PACKAGE))]
    return f"{os.path.basename(own[-1].filename)}:{own[-1].lineno}" if own else ""


def is_random(node: Any) -> bool:
    return torch.Tag.nondeterministic_seeded in getattr(node.target, "tags", ())


def source_location(node: Any) -> str:
    """ "layer1.0.conv1 (net.py:12)": the module, and the last line of the user's own files."""
    frames = re.findall(r'File "([^<"][^"]*)", line (\d+)', node.meta.get("stack_trace") or "")  # no generated code
    own = [frame for frame in frames if not os.path.abspath(frame[0]).startswith(TORCH)
           and not frame[0].startswith("torch/")] or frames
    line = f"{os.path.basename(own[-1][0])}:{own[-1][1]}" if own else ""
    modules = [path for path, _ in (node.meta.get("nn_module_stack") or {}).values()]
    module = re.sub(r"^L\['self'\]\.?", "", modules[-1]) if modules else ""
    return f"{module} ({line})" if module and line else module or line
