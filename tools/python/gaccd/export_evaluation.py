"""Compares a model in evaluation with the model in training without dropout."""

from __future__ import annotations

import contextlib
import random
import re
import sys
from typing import Any, Callable, Iterator

import torch
from torch.overrides import TorchFunctionMode

from .export_lengths import Reference
from .export_noise import MeanDraws
from .export_types import ExportError

DROPOUTS = ("dropout", "dropout_", "dropout1d", "dropout2d", "dropout3d", "alpha_dropout", "feature_dropout", "scaled_dot_product_attention")
TRAINING_ARGUMENT = 5  # index of the argument `training` of both functions called batch_norm


class _WithoutDropout(TorchFunctionMode):
    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = dict(kwargs or {})
        if getattr(function, "__name__", "") == "bernoulli_" and isinstance(probability := kwargs.get("p", (*args, None)[1]), float):
            return args[0].fill_(probability)  # the mean of the random values: forward divides by it
        if getattr(function, "__name__", "") in DROPOUTS:
            if function.__name__ != "scaled_dot_product_attention":
                return args[0] if args else kwargs["input"]
            args, kwargs = args[:4] + (0.0,) * (len(args) > 4) + args[5:], {**kwargs, **({} if len(args) > 4 else {"dropout_p": 0.0})}
        return function(*args, **kwargs)


@contextlib.contextmanager
def without_dropout(model: torch.nn.Module) -> Iterator[None]:
    """Disables dropout, including that of whole samples (stochastic depth), because random numbers differ."""
    for module in model.modules():
        if re.search("drop|stochasticdepth", type(module).__name__, re.IGNORECASE):
            for name in ("p", "drop_prob"):
                if isinstance(getattr(module, name, None), (int, float)):
                    setattr(module, name, 0.0)
        for name, value in list(vars(module).items()):  # "dropout", "attention_dropout", "dropout_p"
            if "dropout" in name and isinstance(value, float):
                setattr(module, name, 0.0)
    with _WithoutDropout():
        yield


class FirstOfEqual(TorchFunctionMode):
    """topk takes the first of equal values, as gaccd does; PyTorch takes any of them."""
    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return _topk(*args, **(kwargs or {})) if getattr(function, "__name__", "") == "topk" else function(*args, **(kwargs or {}))


def _topk(input: torch.Tensor, k: int, dim: int = -1, largest: bool = True, sorted: bool = True) -> Any:
    values, places = torch.sort(input, dim=dim, descending=largest, stable=True)
    return torch.return_types.topk((values.narrow(dim, 0, k), places.narrow(dim, 0, k)))


class _WithRunningStatistics(TorchFunctionMode):
    """Makes batch norms use running statistics, as in evaluation."""
    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = dict(kwargs or {})
        if getattr(function, "__name__", "") == "batch_norm":
            if len(args) > TRAINING_ARGUMENT:
                args = (*args[:TRAINING_ARGUMENT], False, *args[TRAINING_ARGUMENT + 1:])
            else:
                kwargs["training"] = False
        return function(*args, **kwargs)


def _states_of_other_random() -> list[Any]:
    """Of the generators that torch.export does not record."""
    numpy = sys.modules.get("numpy")
    states = [random.getstate()]
    if numpy is not None:
        _, keys, *more = numpy.random.get_state()
        states.append((keys.tobytes(), more))
    return states


def difference_in_evaluation(reference: Reference, run: Callable[[], torch.Tensor], scale: float, uniform: bool) -> float:
    """The difference between evaluation and training of what `run` computes by the reference, where random numbers have their
    means, also those of torch.rand if `uniform`; 0.0: none, or others were drawn. ExportError: in training each call of forward
    gives another result, as with a counter, or draws numbers of Python's random or of numpy."""
    def seeded(seed: int) -> torch.Tensor:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            return run()
    expected, other_random = run(), _states_of_other_random()
    try:
        with reference.in_training(), without_dropout(reference.model), _WithRunningStatistics(), MeanDraws(uniform):
            found, again, other = (seeded(seed) for seed in (0, 0, 1))
    except Exception:  # any type, depending on the model
        return 0.0
    if _states_of_other_random() != other_random:
        raise ExportError("in training, forward draws random numbers of Python's random or of numpy, as to leave out layers; gaccd would compute "
                          "what one draw gave. Leave them out, or draw by torch.rand(x.shape[0]), one for each sample")
    if found.shape != expected.shape or not bool(found.isfinite().all()):
        return 0.0
    if again.shape != found.shape or reference.difference(again, found, scale):
        raise ExportError("in training, forward computes something else when it is called again, as by a counter or by what it keeps of the "
                          "samples before; gaccd would compute what the first call does. Give what changes as an input")
    return 0.0 if reference.difference(other, found, scale) else reference.difference(found, expected, scale)
