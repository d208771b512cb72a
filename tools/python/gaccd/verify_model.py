"""Compares what gaccd computes for an exported model with PyTorch, on random samples."""

from __future__ import annotations

import contextlib
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
from .export_model import state_tensors
from .export_noise import MeanDraws
from .export_refusals import reason
from .run import call, json_lines
from .verify_inputs import TEXTS, RandomInput, call_model, data_text, draw, find_inputs, fit_inputs, save_arrays

RATE = 2.0 ** 20  # w - RATE gradient has the digits of the gradient, whatever w is
TOLERANCE = 1e-4  # or 10 times the error of PyTorch in single precision, up to MOST
MOST = 0.1
MOST_OF_ROUNDING = 1e3  # the same for gradients of rounding alone, in millionths of all gradients
ROUNDING = 6e-8  # of values in single precision
MOVED_RUNS = 3  # runs with weights and inputs perturbed by ROUNDING, if one run of PyTorch is not sufficient


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


def _in_pytorch(model: torch.nn.Module, kind: torch.dtype, inputs: list[RandomInput], tensors: list[torch.Tensor],
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
            output = call_model(judged.eval(), inputs, given, names)
        logits = call_model(judged.train(), inputs, given, names)
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
    inputs: list[RandomInput]
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
            tensors = draw(self.inputs, self.samples)
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
            shape = call_model(copied(self.model).eval(), self.inputs, tensors, self.names).shape
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
            save_arrays(folder, self.inputs, tensors, labels)
            loss = "output" if labels is None else "softmax_cross_entropy" if classes else "mean_squared_error"
            return _in_gaccd(folder, self.weights, self.samples, data_text(self.inputs, labels, classes), loss, trained,
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
    given = fit_inputs(model, find_inputs(graph, weights), samples, inputs or {})
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
