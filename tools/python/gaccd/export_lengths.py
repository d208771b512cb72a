"""Graphs of one model for shorter texts: gaccd cuts the texts of a micro-batch to the next of several lengths that holds them."""

from __future__ import annotations

import contextlib
import copy
import math
from typing import Any, Callable, Iterator

import torch

from .export_graph import GraphBuilder
from .export_noise import MeanDraws
from .export_types import ExportError, Input
from .export_refusals import reason

TEXT_INPUTS = {"tokens", "segments", "attention_mask"}
SAMPLES = 4
MOST_LABELS = (4, 3, 2, 1)  # the first that the model takes
TOLERANCES = {torch.float64: 1e-5, torch.float32: 1e-4}  # relative to the scale; parts of a model may compute in f32
MIN_SCALE = 1e-3


def cut_lengths(context: int) -> list[int]:
    """The lengths of daemon/data/formats/tokens.cc: eighths of the context, in whole vectors."""
    step = -(-context // 128) * 16
    return list(range(step, context, step))


def shorter_graphs(builder: GraphBuilder, run: Reference,
                   build: Callable[[dict[str, torch.Tensor], GraphBuilder], GraphBuilder]) -> dict[int, GraphBuilder]:
    """Graphs by length; {} without an attention_mask, for predictions per token, and if padding changes the prediction.

    run: for inputs by the names of the model's arguments; build: their graph, with the constants of another.
    """
    texts = [one for one in builder.inputs if one.name in TEXT_INPUTS and one.example.dim() == 2]
    names = {one.name for one in texts}
    if not {"tokens", "attention_mask"} <= names or len(builder.output_node.meta["val"].shape) != 2:
        return {}
    lengths = cut_lengths(texts[0].example.shape[1])
    if not all(_ignores_padding(builder, texts, run, length) for length in lengths):
        return {}
    found: dict[int, GraphBuilder] = {}
    before = builder
    for length in lengths:
        before = found[length] = build(_cut({one.argument: one.example for one in builder.inputs}, texts, length), before)
    return found


def _cut(inputs: dict[str, torch.Tensor], texts: list[Input], length: int) -> dict[str, torch.Tensor]:
    text_arguments = {one.argument for one in texts}
    return {name: x[:, :length].contiguous() if name in text_arguments else x for name, x in inputs.items()}


def _ignores_padding(builder: GraphBuilder, texts: list[Input], run: Reference, length: int) -> bool:
    for labels in MOST_LABELS:
        inputs = _drawn(builder, texts, length, labels)
        try:
            whole = run(**inputs)
        except ExportError:  # of labels that are too large
            continue
        try:
            cut = run(**_cut(inputs, texts, length))
        except ExportError:  # as of a loss of labels of all tokens, which are not cut
            return False
        return not run.difference(cut, whole, max_magnitude(whole))
    return False


def _drawn(builder: GraphBuilder, texts: list[Input], length: int, labels: int) -> dict[str, torch.Tensor]:
    """Inputs of texts up to `length`. Of integers without a table each below `labels` occurs, as a loss may ignore some."""
    known = torch.randint(1, length + 1, (SAMPLES, 1))
    known[0] = length
    inputs: dict[str, torch.Tensor] = {}
    for one in builder.inputs:
        shape = (SAMPLES, *one.example.shape[1:])
        rows = builder.min_table_rows(one)
        if one in texts and one.name == "attention_mask":
            value: Any = torch.arange(shape[1]) < known
        elif one.example.is_floating_point():
            value = torch.randn(shape)
        else:
            value = torch.randint(rows, shape) if rows else torch.arange(math.prod(shape)).view(shape) % labels
        inputs[one.argument] = value.to(one.example.dtype)
    return inputs


def max_magnitude(values: torch.Tensor) -> float:
    return max(MIN_SCALE, float(values.abs().max()))


def copied(model: torch.nn.Module) -> torch.nn.Module:
    """A deep copy, also of models that store computed tensors, as torch.nn.utils.weight_norm stores its weight."""
    computed = {id(value): value.detach().clone() for module in model.modules() for value in vars(module).values()
                if isinstance(value, torch.Tensor) and not value.is_leaf}
    try:
        return copy.deepcopy(model, computed)
    except Exception as error:
        raise ExportError(f"the model cannot be copied by copy.deepcopy(), which comparisons need ({error})") from error


def in_precision(model: torch.nn.Module, kind: torch.dtype) -> torch.nn.Module:
    """Changes the model; complex buffers stay complex, which .to(kind) would make real."""
    return model.double() if kind == torch.float64 else model.float()


def reference_copy(model: torch.nn.Module) -> torch.nn.Module:
    """A copy in evaluation mode with noise added to its weights: a weight of 0 would hide differences that training shows."""
    reference = copied(model).eval()
    random = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in reference.parameters():
            if parameter.requires_grad:
                inputs = math.prod([size for size in parameter.shape if size > 1][1:])
                noise = 0.1 / math.sqrt(inputs) * torch.randn(parameter.shape, generator=random)
                parameter += torch.copysign(noise.to(parameter), parameter)  # keeps the sign
    return reference


class Reference:
    """Computes predictions of a reference_copy(), in double precision if the model supports it, so that rounding is no difference.
    If the model rejects numbers, as a loss of probabilities does, they are mapped to (0, 1)."""

    def __init__(self, model: torch.nn.Module, first: Callable[[Any], torch.Tensor]) -> None:
        """first: selects the prediction among the outputs of the model."""
        self.model, self._first, self._kind = reference_copy(model).double(), first, torch.float64
        self._as_probabilities = False

    def __call__(self, *args: torch.Tensor, **kwargs: torch.Tensor) -> torch.Tensor:
        with contextlib.suppress(Exception):
            found = self._run(args, kwargs)
            if self._kind == torch.float32 or bool(found.isfinite().all()):
                return found
        before = self._kind, self._as_probabilities
        failed: Exception | None = None
        for kind, as_probabilities in ((torch.float32, before[1]), (torch.float64, True), (torch.float32, True)):
            self._kind, self._as_probabilities = kind, as_probabilities  # float32: the model may mix types, or use the limits of one
            in_precision(self.model, kind)
            try:
                return self._run(args, kwargs)
            except Exception as error:
                failed = failed or error
        self._kind, self._as_probabilities = before
        in_precision(self.model, self._kind)
        assert failed is not None
        raise ExportError(f"the model fails on other inputs than the example: {reason(failed, self.model)}") from failed

    def tried(self, run: Callable[[], torch.Tensor], otherwise: torch.Tensor) -> torch.Tensor:
        """What `run` computes; `otherwise` if the model does not take the inputs, or not in the same precision."""
        before = self._kind, self._as_probabilities
        with contextlib.suppress(ExportError):
            found = run()
            if before == (self._kind, self._as_probabilities):
                return found
        self._kind, self._as_probabilities = before
        in_precision(self.model, self._kind)
        return otherwise

    @contextlib.contextmanager
    def in_training(self) -> Iterator[None]:
        self.model.train()
        try:
            yield
        finally:
            self.model.eval()

    def _run(self, args: Any, kwargs: Any) -> torch.Tensor:
        def to_dtype(x: torch.Tensor) -> torch.Tensor:
            if not x.is_floating_point():
                return x
            return torch.sigmoid(x.to(self._kind)) if self._as_probabilities else x.to(self._kind)
        draws: Any = contextlib.nullcontext() if self.model.training else MeanDraws()
        with torch.no_grad(), draws:
            return self._first(self.model(*map(to_dtype, args), **{name: to_dtype(x) for name, x in kwargs.items()}))

    def difference(self, found: torch.Tensor, expected: torch.Tensor, scale: float) -> float:
        """The largest difference; 0.0 if it is within rounding of values of this scale."""
        largest = float((found - expected).abs().max())
        return 0.0 if largest <= TOLERANCES[self._kind] * scale else largest
