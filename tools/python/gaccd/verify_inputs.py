"""Random samples for an exported model that the PyTorch model accepts, and the data of a job made of them."""

from __future__ import annotations

import contextlib
import inspect
import itertools
import os
import re
from dataclasses import dataclass, replace
from typing import Callable, Iterator, Mapping

import torch

from .export_lengths import copied
from .export_model import DATA_NAMES, iterate_outputs

MIXED_RUNS = 3  # of small and large ids
MASK = "attention_mask"  # computed by gaccd from the lengths of texts
TEXTS = {"tokens", "segments", MASK}


@dataclass(frozen=True)
class RandomInput:
    name: str
    ids: bool
    sizes: tuple[int, ...]  # of a sample
    rows: int  # upper bound of ids
    in_table: bool = True  # whether an embedding reads them; else they may be lengths, which start at 1
    least: int = 0
    padding: int | None = None  # the id that the model searches for, as classifiers do to find the last token
    boolean: bool = False  # whether the model takes it as torch.bool
    positive: bool = False  # whether its numbers are drawn from [0, 1), for roots and logarithms
    order: int = 0  # of the ids of a sample, over all inputs: 1 ascends, -1 descends; 0: none

    @property
    def is_mask(self) -> bool:
        return self.name == MASK

    @property
    def drawn(self) -> bool:
        """Whether it has random ids."""
        return self.ids and not self.is_mask


def find_inputs(graph: str, weights: Mapping[str, torch.Tensor]) -> list[RandomInput]:
    found = []
    for name, kind, sizes in re.findall(r'^input { name: "([^"]*)" type: (\w+)((?: size: -?\d+)*) }', graph, re.MULTILINE):
        tables = re.findall(rf'op: "embedding\w*"\n  input: "{re.escape(name)}" input: "([^"]*)"', graph)
        if not tables and name == "tokens":  # by a view
            tables = re.findall(r'op: "embedding\w*"\n  input: "(?!constant:)[^"]*" input: "([^"]*)"', graph)
        rows = min((weights[table].shape[0] for table in tables if table in weights), default=2)
        padding = re.search(rf'op: "equal"\n  input: "{re.escape(name)}"\n  attribute {{ name: "to" number: (\d+)\.0 }}', graph)
        found.append(RandomInput(name, kind == "I64", tuple(map(int, sizes.split()[3::2])), rows, bool(tables),
                            padding=int(padding[1]) if padding else None))
    return found


def draw(inputs: list[RandomInput], samples: int) -> list[torch.Tensor]:
    def one_of(one: RandomInput) -> torch.Tensor:
        if one.is_mask:
            length = one.sizes[-1]  # of each text of a sample, as of choices
            return (torch.arange(length) < torch.randint(1, length + 1, (samples, *one.sizes[:-1], 1))).long()
        if one.ids:
            return torch.randint(one.least, one.rows, (samples, *one.sizes))
        return (torch.rand if one.positive else torch.randn)(samples, *one.sizes)
    tensors = [one_of(one) for one in inputs]
    places = [place for place, one in enumerate(inputs) if one.order]
    if places:
        rows = torch.cat([tensors[place].view(samples, -1) for place in places], 1).sort(1, descending=inputs[places[0]].order < 0)[0]
        for place, part in zip(places, rows.split([tensors[place][0].numel() for place in places], 1)):
            tensors[place] = part.view_as(tensors[place])
    mask = next((tensor for one, tensor in zip(inputs, tensors) if one.is_mask), None)
    return [torch.where(mask == 1, tensor, one.padding) if mask is not None and one.padding is not None and tensor.shape == mask.shape
            else tensor for one, tensor in zip(inputs, tensors)]


@contextlib.contextmanager
def _default_dtype(model: torch.nn.Module) -> Iterator[None]:
    """Makes the type of the model's parameters the default for tensors created by forward."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(next((one.dtype for one in model.parameters() if one.is_floating_point()), before))
    try:
        yield
    finally:
        torch.set_default_dtype(before)


def call_model(model: torch.nn.Module, inputs: list[RandomInput], tensors: list[torch.Tensor],
           names: Mapping[str, str]) -> torch.Tensor:
    own = inspect.signature(model.forward).parameters
    arguments = {data: argument for argument, data in [*DATA_NAMES.items(), *names.items()] if argument in names or data not in own}
    tensors = [tensor.bool() if one.boolean else tensor for one, tensor in zip(inputs, tensors)]
    with _default_dtype(model):
        if len(inputs) == 1:
            output = next(iterate_outputs(model(tensors[0])))
        else:
            output = next(iterate_outputs(model(**{arguments.get(one.name, one.name): tensor for one, tensor in zip(inputs, tensors)})))
    return output[:, None] if output.dim() == 1 else output


def fit_inputs(model: torch.nn.Module, inputs: list[RandomInput], samples: int, names: Mapping[str, str]) -> list[RandomInput]:
    """Inputs that the model accepts, with a finite result if there are such: torch.bool, numbers in [0, 1), ids from 1 if it
    fails for 0, a smaller range if forward increases them, found by halving, and in order if it fails for their differences."""
    judged = copied(model).eval()

    def accepts(given: list[RandomInput], ids: Callable[[RandomInput, torch.Tensor], torch.Tensor]) -> bool:
        bits = draw([replace(one, least=0, rows=2, padding=None) for one in given], samples)
        tensors = [ids(one, tensor) if one.drawn else tensor for one, tensor in zip(given, bits)]
        try:
            with torch.no_grad():
                output = call_model(judged, given, tensors, names)
                return not finite or bool(output.isfinite().all())
        except Exception:  # of many kinds, by the model
            return False

    def fits(given: list[RandomInput]) -> bool:
        """Whether all largest ids are accepted, and the smallest next to the largest."""
        return accepts(given, lambda one, bits: torch.full_like(bits, one.rows - 1)) and all(
            accepts(given, lambda one, bits: one.least + bits * (one.rows - 1 - one.least)) for _ in range(MIXED_RUNS))

    for finite, boolean, positive in itertools.product((True, False), (False, True), (False, True)):
        given = [replace(one, boolean=boolean and one.ids and not one.in_table, positive=positive) for one in inputs]
        if any(accepts(given, lambda _, bits: torch.full_like(bits, value)) for value in (0, 1)):
            inputs = given
            break
    if not accepts(inputs, lambda one, bits: torch.zeros_like(bits)):
        inputs = [one if one.in_table else replace(one, least=1, rows=max(one.rows, 3)) for one in inputs]
    while True:
        for given in (inputs, _in_order(inputs, 1), _in_order(inputs, -1)):
            if fits(given):
                return given
        if not any(one.ids and one.rows > one.least + 1 for one in inputs):
            return inputs
        inputs = [replace(one, rows=max(one.least + 1, one.rows // 2)) for one in inputs]


def _in_order(inputs: list[RandomInput], order: int) -> list[RandomInput]:
    """In one range, as sorting moves ids from an input to another."""
    drawn = [one for one in inputs if one.drawn]
    least, rows = max((one.least for one in drawn), default=0), min((one.rows for one in drawn), default=0)
    return [replace(one, order=order, least=least, rows=rows) if one.drawn else one for one in inputs]


def are_texts(inputs: list[RandomInput], labels: torch.Tensor) -> bool:
    """Whether `tokens` of a job can bring them: with one label, or one for each token."""
    lengths = {one.sizes[0] for one in inputs if one.name == "tokens" and one.sizes}
    if any(len(one.sizes) != 1 for one in inputs):  # one id, or several texts, in each sample
        return False
    return {one.name for one in inputs} <= TEXTS and (labels.dim() == 1 or labels.shape[1] in lengths)


def data_text(inputs: list[RandomInput], labels: torch.Tensor | None, classes: int) -> str:
    paths = {one.name: f'"{one.name}.npy"' for one in inputs}
    if labels is not None and not labels.is_floating_point():
        if are_texts(inputs, labels):
            segments = f' segments: {paths["segments"]}' if "segments" in paths else ""
            segments += f' lengths: {paths[MASK]}' if MASK in paths else ""
            rows = next(one.rows for one in inputs if one.name == "tokens")
            return f'tokens {{ tokens: {paths["tokens"]}{segments} labels: "labels.npy" vocabulary: {rows} classes: {classes} }}'
        if labels.dim() == 1 and "features" in paths:
            return f'npy {{ features: {paths["features"]} targets: "labels.npy" classes: {classes} }}'
    arrays = [f'array {{ name: "{one.name}" path: {paths[one.name]}'
              f'{f" vocabulary: {one.rows}" if one.ids and one.name != "labels" else ""} }}' for one in inputs]
    if labels is None:
        counts = [f" classes: {one.rows}" for one in inputs if one.name == "labels"]
        return f"arrays {{ {' '.join(arrays + counts)} }}"
    labelled = f'array {{ name: "labels" path: "labels.npy" }} classes: {classes}' if classes else 'array { name: "targets" path: "labels.npy" }'
    return f"arrays {{ {' '.join(arrays)} {labelled} }}"


def save_arrays(folder: str, inputs: list[RandomInput], tensors: list[torch.Tensor], labels: torch.Tensor | None) -> None:
    import numpy
    as_lengths = labels is not None and not labels.is_floating_point() and are_texts(inputs, labels)
    for one, tensor in zip(inputs, tensors):
        values = tensor.sum(1) if one.is_mask and as_lengths else tensor
        numpy.save(os.path.join(folder, f"{one.name}.npy"), values.numpy().astype("i4" if one.ids else "f4"))
    if labels is not None:
        numpy.save(os.path.join(folder, "labels.npy"), labels.numpy())
