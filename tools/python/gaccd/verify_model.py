"""Compares what gaccd computes for an exported model with PyTorch, on random samples."""

from __future__ import annotations

import contextlib
import inspect
import itertools
import os
import re
import shutil
import tempfile
from dataclasses import dataclass, replace
from typing import Callable, Iterator, Mapping

import torch
from safetensors.torch import load_file

from .export_types import ExportError
from .export_evaluation import FirstOfEqual, without_dropout
from .export_graph import MAX_FLOAT
from .export_lengths import copied, in_precision
from .export_model import DATA_NAMES, iterate_outputs, state_tensors
from .export_noise import MeanDraws
from .export_refusals import reason
from .run import call, json_lines

RATE = 2.0 ** 20  # w - RATE gradient has the digits of the gradient, whatever w is
TOLERANCE = 1e-4  # or 10 times the error of PyTorch in single precision, up to MOST
MOST = 0.1
MOST_OF_ROUNDING = 1e3  # the same for gradients of rounding alone, in millionths of all gradients
ROUNDING = 6e-8  # of values in single precision
MIXED_RUNS = 3  # of small and large ids
MOVED_RUNS = 3  # runs with weights and inputs perturbed by ROUNDING, if one run of PyTorch is not sufficient
MASK = "attention_mask"  # computed by gaccd from the lengths of texts
TEXTS = {"tokens", "segments", MASK}


@dataclass(frozen=True)
class Difference:
    """The size of a gradient or another result, and the differences from PyTorch relative to it. For a gradient below a
    millionth of all gradients they are relative to this millionth, for other values around 0 to 0.001 per value."""
    name: str
    size: float
    gaccd: float
    pytorch: float  # difference of PyTorch in single precision, the largest of its runs
    most: float = MOST  # upper bound of the tolerance

    @property
    def share(self) -> float:
        """The difference of gaccd / the tolerance."""
        return self.gaccd / max(TOLERANCE, min(10 * self.pytorch, self.most))

    @property
    def vague(self) -> bool:
        """Whether PyTorch in single precision is too far off to judge gaccd by it."""
        return not self.pytorch <= self.most

    @property
    def ok(self) -> bool:
        return self.share <= 1


@dataclass(frozen=True)
class Verification:
    """The result of verify(); prints as a table."""
    loss: float
    results: list[Difference]  # the output in evaluation, the loss, then by parameter and running statistic
    precision: str = "double"  # of the reference in PyTorch
    changed: tuple[str, ...] = ()  # tensors of the model that have other values in the folder

    @property
    def ok(self) -> bool:
        return all(one.ok for one in self.results)

    @property
    def largest(self) -> Difference:
        return max(self.results, key=lambda one: one.gaccd)

    def __str__(self) -> str:
        width = max(len(one.name) for one in self.results)
        lines = [f"{'':{width}}  {'size':>9}  {'gaccd':>9}  {'PyTorch':>9}   differences from PyTorch in {self.precision} precision"]
        lines += [f"{one.name:{width}}  {one.size:9.3g}  {one.gaccd:9.2g}  {one.pytorch:9.2g}{'' if one.ok else '   differs'}"
                  for one in self.results]
        bad = sum(not one.ok for one in self.results)
        vague = [one.name for one in self.results if one.vague]
        if vague:
            lines.append(f"PyTorch in {self.precision} precision differs from PyTorch in single precision: {vague[0]}"
                         + (f" and {len(vague) - 1} more" if len(vague) > 1 else "") + "; gaccd cannot be judged by them")
        if bad and self.changed:
            lines.append(f"the model has other values than the folder: {self.changed[0]}"
                         + (f" and {len(self.changed) - 1} more" if len(self.changed) > 1 else "")
                         + "; export it again, or load weights.safetensors of the folder into it")
        lines.append(f"{len(self.results) - bad} of {len(self.results)} agree" + (f", {bad} differ" if bad else ""))
        return "\n".join(lines)


@dataclass(frozen=True)
class _Input:
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


def _inputs_of(graph: str, weights: Mapping[str, torch.Tensor]) -> list[_Input]:
    found = []
    for name, kind, sizes in re.findall(r'^input { name: "([^"]*)" type: (\w+)((?: size: -?\d+)*) }', graph, re.MULTILINE):
        tables = re.findall(rf'op: "embedding\w*"\n  input: "{re.escape(name)}" input: "([^"]*)"', graph)
        if not tables and name == "tokens":  # by a view
            tables = re.findall(r'op: "embedding\w*"\n  input: "(?!constant:)[^"]*" input: "([^"]*)"', graph)
        rows = min((weights[table].shape[0] for table in tables if table in weights), default=2)
        padding = re.search(rf'op: "equal"\n  input: "{re.escape(name)}"\n  attribute {{ name: "to" number: (\d+)\.0 }}', graph)
        found.append(_Input(name, kind == "I64", tuple(map(int, sizes.split()[3::2])), rows, bool(tables),
                            padding=int(padding[1]) if padding else None))
    return found


def _draw(inputs: list[_Input], samples: int) -> list[torch.Tensor]:
    def one_of(one: _Input) -> torch.Tensor:
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


def _calls(model: torch.nn.Module, inputs: list[_Input], tensors: list[torch.Tensor],
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


def _in_pytorch(model: torch.nn.Module, kind: torch.dtype, inputs: list[_Input], tensors: list[torch.Tensor],
                labels: torch.Tensor | None, names: Mapping[str, str], move: float = 0.0) -> dict[str, torch.Tensor]:
    """labels: None if the model computes the loss. move: relative random perturbation of weights and inputs."""
    def moved(values: torch.Tensor) -> torch.Tensor:
        return values * (1 + move * torch.randn_like(values)) if move else values
    judged = in_precision(copied(model), kind)
    trained = [(name, parameter) for name, parameter in judged.named_parameters() if parameter.requires_grad]
    given = [moved(t.to(kind)) if t.is_floating_point() else t for t in tensors]
    with torch.no_grad():
        for parameter in judged.parameters() if move else ():
            parameter.copy_(moved(parameter))
    with without_dropout(judged), MeanDraws(), FirstOfEqual():
        with torch.no_grad():
            output = _calls(judged.eval(), inputs, given, names)
        logits = _calls(judged.train(), inputs, given, names)
        if labels is None:
            loss = logits[:, 0].sum() / (logits[:, 1].detach().sum() if logits.shape[1] == 2 else len(logits))
        elif labels.is_floating_point():
            loss = torch.nn.functional.mse_loss(logits, labels.to(kind))
        else:
            loss = torch.nn.functional.cross_entropy(logits.flatten(0, -2), labels.flatten())
        loss.backward()
    results = {"output (evaluation)": output, "loss": loss.detach()}
    for name, parameter in trained:
        results[name] = torch.zeros_like(parameter) if parameter.grad is None else parameter.grad.to_dense()
    state = dict(judged.state_dict())
    results.update((name, state[name].clamp(-MAX_FLOAT, MAX_FLOAT)) for name, buffer in judged.named_buffers() if name in state and buffer.is_floating_point())
    return {name: value.detach().double() for name, value in results.items()}


@contextlib.contextmanager
def _explained(model: torch.nn.Module) -> Iterator[None]:
    try:
        yield
    except ExportError:
        raise
    except Exception as error:  # of many kinds, by the model
        raise ExportError(f"verify: the model fails on random samples: {reason(error, model)}") from error


def _fitting(model: torch.nn.Module, inputs: list[_Input], samples: int, names: Mapping[str, str]) -> list[_Input]:
    """Inputs that the model accepts, with a finite result if there are such: torch.bool, numbers in [0, 1), ids from 1 if it
    fails for 0, a smaller range if forward increases them, found by halving, and in order if it fails for their differences."""
    judged = copied(model).eval()

    def accepts(given: list[_Input], ids: Callable[[_Input, torch.Tensor], torch.Tensor]) -> bool:
        bits = _draw([replace(one, least=0, rows=2, padding=None) for one in given], samples)
        tensors = [ids(one, tensor) if one.drawn else tensor for one, tensor in zip(given, bits)]
        try:
            with torch.no_grad():
                output = _calls(judged, given, tensors, names)
                return not finite or bool(output.isfinite().all())
        except Exception:  # of many kinds, by the model
            return False

    def fits(given: list[_Input]) -> bool:
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


def _in_order(inputs: list[_Input], order: int) -> list[_Input]:
    """In one range, as sorting moves ids from an input to another."""
    drawn = [one for one in inputs if one.drawn]
    least, rows = max((one.least for one in drawn), default=0), min((one.rows for one in drawn), default=0)
    return [replace(one, order=order, least=least, rows=rows) if one.drawn else one for one in inputs]


def _are_texts(inputs: list[_Input], labels: torch.Tensor) -> bool:
    """Whether `tokens` of a job can bring them: with one label, or one for each token."""
    lengths = {one.sizes[0] for one in inputs if one.name == "tokens" and one.sizes}
    if any(len(one.sizes) != 1 for one in inputs):  # one id, or several texts, in each sample
        return False
    return {one.name for one in inputs} <= TEXTS and (labels.dim() == 1 or labels.shape[1] in lengths)


def _data_text(inputs: list[_Input], labels: torch.Tensor | None, classes: int) -> str:
    paths = {one.name: f'"{one.name}.npy"' for one in inputs}
    if labels is not None and not labels.is_floating_point():
        if _are_texts(inputs, labels):
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


def _in_gaccd(folder: str, weights: dict[str, torch.Tensor], samples: int, data: str, loss: str, trained: set[str],
              names: set[str], program: str) -> dict[str, torch.Tensor]:
    import numpy
    with open(os.path.join(folder, "job.txtpb"), "w", encoding="utf-8") as file:
        file.write(f'name: "verify"\nmodel {{ graph {{ path: "model" }} loss {{ {loss} {{}} }} }}\n'
                   f"data {{ train {{ {data} }} eval {{ {data} }} shuffle: false }}\n"
                   f"batch {{ target: {samples} micro: {(samples + 1) // 2} }}\noptimizer {{ lr: {RATE} sgd {{}} }}\nepochs: 1\n")
    common = ["--job=job.txtpb", "--device=cpu"]
    call([program, "predict", *common, "--weights=model/weights.safetensors", "--out=output.npy"], cwd=folder, alone=True)
    call([program, "train", *common, "--run-dir=run", "--save-weights=moved"], cwd=folder, alone=True)
    steps = list(json_lines(call([program, "logs", "--events", "run"], cwd=folder, alone=True)))
    moved = load_file(os.path.join(folder, "moved"))
    if moved.keys() != names:
        raise ExportError("the trained weights have other names than the model's state_dict: "
                          f"{', '.join(sorted(moved.keys() ^ names))}")
    results = {"output (evaluation)": torch.from_numpy(numpy.load(os.path.join(folder, "output.npy"))),
               "loss": torch.tensor(next(step["loss"] for step in steps if step.get("ev") == "step"), dtype=torch.float64)}
    for name, value in moved.items():
        gradient = (weights[name].double() - value.double()) / RATE if name in weights and name in trained else value
        results[name] = gradient.double()
    return results


def _compare(exact: Mapping[str, torch.Tensor], singles: list[dict[str, torch.Tensor]], found: Mapping[str, torch.Tensor],
             gradients: set[str]) -> list[Difference]:
    """singles: results of PyTorch in single precision."""
    floor = 1e-6 * sum(float(exact[name].norm()) ** 2 for name in gradients) ** 0.5
    floor = max(floor, 1e-7 * abs(float(exact["loss"])))  # of gradients that are exactly 0 only rounding is left
    results = []
    for name, value in exact.items():
        if name not in found:
            raise ExportError(f"{name}: the exported model has no such tensor; was it exported from another model?")
        size = float(value.norm())
        scale = max(size, floor if name in gradients else 1e-3 * value.numel() ** 0.5) or 1.0
        most = MOST_OF_ROUNDING if name in gradients and size < floor else MOST  # as of a bias before a batch norm
        *own, other = (float((one[name].reshape(value.shape) - value).norm()) / scale for one in (*singles, found))
        results.append(Difference(name, size, other, max(own), most))
    return results


@dataclass(frozen=True)
class _Compared:
    """A model and its export."""
    model: torch.nn.Module
    path: str
    inputs: list[_Input]
    graph: str  # the text of its file
    weights: dict[str, torch.Tensor]
    names: Mapping[str, str]
    samples: int
    gaccd: str
    computes_loss: bool

    def run(self, seed: int) -> Verification:
        """Compares on samples of this seed. If results differ by more than one run of PyTorch in single precision, compares
        with several, and uses single precision as reference if it is far from double precision, for example if forward
        uses torch.finfo of its type."""
        generator = torch.random.get_rng_state()
        torch.manual_seed(seed)
        try:
            tensors = _draw(self.inputs, self.samples)
            labels, classes = self._labels(tensors)
            kept = self._kept()

            def in_pytorch(kind: torch.dtype, move: float = 0.0) -> dict[str, torch.Tensor]:
                results = _in_pytorch(self.model, kind, self.inputs, tensors, labels, self.names, move)
                return {**results, **{name: value for name, value in kept.items() if name in results}}

            def several() -> list[dict[str, torch.Tensor]]:
                return [in_pytorch(torch.float32, ROUNDING) for _ in range(MOVED_RUNS)]
            exact, singles, precision = self._in_double(in_pytorch)
            trained = {name for name, parameter in self.model.named_parameters() if parameter.requires_grad}
            found = self._in_gaccd(tensors, labels, classes, trained)
            results = _compare(exact, singles or several(), found, trained)
            if singles and not all(one.ok for one in results):
                more = several()
                results = _compare(exact, singles + more, found, trained)
                if any(one.vague for one in results):
                    in_single = _compare(singles[0], more, found, trained)
                    if all(one.ok for one in in_single):
                        exact, results, precision = singles[0], in_single, "single"
        finally:
            torch.random.set_rng_state(generator)
        return Verification(float(exact["loss"]), results, precision)

    def _kept(self) -> dict[str, torch.Tensor]:
        """Buffers that the output does not depend on, which gaccd keeps, as the running statistics of an auxiliary head."""
        return {name: self.weights[name].double() for name, _ in self.model.named_buffers()
                if name in self.weights and f'input: "{name}"' not in self.graph}

    def _in_double(self, in_pytorch: Callable[[torch.dtype], dict[str, torch.Tensor]]) -> tuple[
            dict[str, torch.Tensor], list[dict[str, torch.Tensor]], str]:
        """Results of PyTorch in double and in single precision; only single precision for models that mix types."""
        with contextlib.suppress(Exception):
            return in_pytorch(torch.float64), [in_pytorch(torch.float32)], "double"
        with _explained(self.model):
            return in_pytorch(torch.float32), [], "single"

    def _labels(self, tensors: list[torch.Tensor]) -> tuple[torch.Tensor | None, int]:
        """Random labels, or targets for a prediction of one value, and the number of classes (0 for targets)."""
        if self.computes_loss:
            return None, 0
        with torch.no_grad(), _explained(self.model):
            shape = _calls(copied(self.model).eval(), self.inputs, tensors, self.names).shape
        names = [one.name for one in self.inputs]
        has_classes = (len(shape) == 3 or set(names) <= TEXTS or names == ["features"]) and shape[-1] > 1
        if len(shape) == 3 and not has_classes:
            raise ExportError("verify: predictions of one value for each token are not compared; those of several are, as of classes")
        return (torch.randint(shape[-1], shape[:-1]), shape[-1]) if has_classes else (torch.randn(shape), 0)

    def _in_gaccd(self, tensors: list[torch.Tensor], labels: torch.Tensor | None, classes: int, trained: set[str]) -> dict[str, torch.Tensor]:
        with tempfile.TemporaryDirectory() as folder:
            os.mkdir(os.path.join(folder, "model"))
            shutil.copy(os.path.join(self.path, "weights.safetensors"), os.path.join(folder, "model"))
            with open(os.path.join(folder, "model", "graph.txtpb"), "w", encoding="utf-8") as file:
                file.write(re.sub(r'(op: "(?:drop\w+|uniform_noise)"\n[^\n]*\n  attribute { name: "p" number: )[^ ]+', r"\g<1>0.0", self.graph))
            _save(folder, self.inputs, tensors, labels)
            loss = "output" if labels is None else "softmax_cross_entropy" if classes else "mean_squared_error"
            return _in_gaccd(folder, self.weights, self.samples, _data_text(self.inputs, labels, classes), loss, trained,
                             set(state_tensors(self.model)), self.gaccd)


def verify(model: torch.nn.Module, path: str | os.PathLike[str], *, inputs: Mapping[str, str] | None = None,
           samples: int = 6, seed: int = 0, gaccd: str = "gaccd", computes_loss: bool | None = None) -> Verification:
    """Compares forward and backward of gaccd, on one CPU in two micro-steps, with those of `model` on random samples.

    path: the folder of export() for `model`, whose weights must not have changed since. inputs: as given to export().
    computes_loss: whether the output is the loss of each sample, or the sum of its losses and their count; None: if the model reads `labels` or `targets`.
    Dropout is disabled on both sides. The loss is that of the model or else cross-entropy with random labels, or the squared error for models with
    their own input names that predict no rows of several values. Differences only count if they also occur on other samples (seed + 1). GaccdError: gaccd
    rejected the model; ExportError: the model cannot be compared.
    """
    if not os.path.isfile(os.path.join(path, "graph.txtpb")):
        raise ExportError(f"verify: expected a folder of export(), found no graph.txtpb in {os.fspath(path)!r}")
    with open(os.path.join(path, "graph.txtpb"), encoding="utf-8") as file:
        graph = file.read()
    weights = load_file(os.path.join(path, "weights.safetensors"))
    for name, value in state_tensors(model).items():
        if name in weights and weights[name].numel() != value.numel():
            raise ExportError(f"{name}: the model has the shape {list(value.shape)}, the folder {list(weights[name].shape)}; "
                              "was it exported from another model?")
    given = _fitting(model, _inputs_of(graph, weights), samples, inputs or {})
    if computes_loss is None:
        computes_loss = any(one.name in ("labels", "targets") for one in given)
    compared = _Compared(model, os.fspath(path), given, graph, weights, inputs or {}, samples, gaccd, computes_loss)
    first = compared.run(seed)
    if first.ok:
        return first
    again = compared.run(seed + 1)
    if again.ok and again.precision != first.precision:
        return again
    results = [one if one.ok else min(one, other, key=lambda found: found.share)
               for one, other in zip(first.results, again.results)]
    return replace(first, results=results, changed=_changed(model, weights))


def _changed(model: torch.nn.Module, weights: Mapping[str, torch.Tensor]) -> tuple[str, ...]:
    """Parameters and buffers whose values are not those of the folder, as of a model that was made or trained after export."""
    return tuple(name for name, value in state_tensors(model).items() if name in weights and value.is_floating_point()
                 and not torch.allclose(value.detach().cpu().double().clamp(-MAX_FLOAT, MAX_FLOAT),
                                        weights[name].double().reshape(value.shape), rtol=1e-6, atol=0, equal_nan=True))


def _save(folder: str, inputs: list[_Input], tensors: list[torch.Tensor], labels: torch.Tensor | None) -> None:
    import numpy
    as_lengths = labels is not None and not labels.is_floating_point() and _are_texts(inputs, labels)
    for one, tensor in zip(inputs, tensors):
        values = tensor.sum(1) if one.is_mask and as_lengths else tensor
        numpy.save(os.path.join(folder, f"{one.name}.npy"), values.numpy().astype("i4" if one.ids else "f4"))
    if labels is not None:
        numpy.save(os.path.join(folder, "labels.npy"), labels.numpy())
