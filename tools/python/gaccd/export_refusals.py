"""One-line reasons for failures of torch.export, with workarounds."""

from __future__ import annotations

import contextlib
import io
import linecache
import logging
import os
import re
import sys
import traceback
import warnings
from typing import Any, Iterator

import torch
from torch.fx.experimental.symbolic_shapes import ShapeEnv

from .export_experts import experts_advice, has_other_experts
from .export_types import TORCH, own_line

NOISY_LOGGER = "torch.fx.experimental.symbolic_shapes"
OTHER_SAMPLES = 61  # hardly a number that a model expects


@contextlib.contextmanager
def quietly() -> Iterator[None]:
    """Suppresses the graph that torch.export prints before it fails; prints the output afterwards if it succeeds. Without the
    warnings of torch.export about its own code, as in PyTorch 2.7 for each constant."""
    logger = logging.getLogger(NOISY_LOGGER)
    level, out, err = logger.level, io.StringIO(), io.StringIO()
    logger.setLevel(logging.ERROR)
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err), warnings.catch_warnings():
            warnings.filterwarnings("ignore", category=UserWarning, module=r"torch\.(export|fx)\.")
            yield
    finally:
        logger.setLevel(level)
    sys.stdout.write(out.getvalue())
    sys.stderr.write(err.getvalue())


@contextlib.contextmanager
def lines_of_fixed_samples() -> Iterator[list[tuple[bool, str]]]:
    """The lines of forward with a condition on the number of samples: False if another number does not meet it, True if
    torch.export may not know that each does."""
    lines: list[tuple[bool, str]] = []
    log: Any = getattr(ShapeEnv, "_log_guard", None)  # without it, as it is no public interface, no line is found
    if log is None:
        yield lines
        return

    def checked_log(env: Any, prefix: str, guard: Any, *args: Any, **kwargs: Any) -> Any:
        with contextlib.suppress(Exception):  # of conditions that are no formulas
            other = guard.subs(dict.fromkeys(guard.free_symbols, OTHER_SAMPLES))
            unmet, divides = other == False, "//" in str(guard)  # noqa: E712 of sympy
            if (unmet or divides) and "suppressed" not in prefix and (line := own_line(traceback.extract_stack())):
                lines.append((not unmet, line))
        return log(env, prefix, guard, *args, **kwargs)
    ShapeEnv._log_guard = checked_log
    try:
        yield lines
    finally:
        ShapeEnv._log_guard = log


def _config_advice(model: torch.nn.Module) -> str:
    """Options of transformers whose random choices cannot be exported."""
    found: dict[str, None] = {}
    for module in model.modules():
        config = getattr(module, "config", None)
        if getattr(config, "apply_spec_augment", False) and getattr(config, "mask_time_prob", 0):
            found["config.apply_spec_augment=False"] = None
        found.update((f"config.{name}=0", None) for name in dir(config) if name.endswith("layerdrop") and getattr(config, name))
    return f"; try {' and '.join(found)}" if found else ""


def reason(error: Exception, model: torch.nn.Module, fixed: list[tuple[bool, str]] | None = None) -> str:
    """fixed: lines_of_fixed_samples()."""
    text = str(error)
    own = [frame for frame in traceback.extract_tb(error.__traceback__)
           if not os.path.abspath(frame.filename).startswith((TORCH, os.path.dirname(__file__))) and not frame.filename.startswith("<")]
    frames = re.findall(r'File "([^"]+)", line (\d+)', text)
    named = [(name, line) for name, line in frames if not os.path.abspath(name).startswith(TORCH) and not name.startswith("<")]
    name, line = named[-1] if named else (own[-1].filename, own[-1].lineno) if own else ("", "")
    where = f"; it is called at {os.path.basename(str(name))}:{line}" if name else ""
    first = next((one.strip() for one in text.splitlines() if one.strip()), type(error).__name__)
    way = ""
    if re.search(r"data.dependent|unbacked|u\d+|GuardOnData", text, re.IGNORECASE):
        way = "; its shapes or branches depend on data: multiply by a mask, or use torch.where, instead"
        if re.search("isfinite|isinf|isnan", linecache.getline(str(name), int(line or 0))):
            way = "; leave this branch out: gaccd does not continue with values that are not finite"
        elif has_other_experts(model):
            way += ("; experts as a sum over all of them, y = y + expert(x) * weight, with the weight 0 where one is not "
                    "chosen")
    elif "fake tensor in the exported program" in text:
        first = "forward reads or writes a parameter or another tensor by .data or .copy_, which torch.export does not see"
        way = ("; read the tensor itself, which a gradient then reaches, and instead of writing compute with the new value, "
               "as w = self.weight.clamp(0, 1)")
        within = re.search(r"model attribute: ([\w.]+)\.\w+", text)
        if within and within[1] in dict(model.named_modules()):  # no frame of forward is known
            where = f" in {within[1]} ({type(model.get_submodule(within[1])).__name__})"
    elif "batch" in text and re.search("[Cc]onstraint|specializ|Dim", text):
        first = "it works for one number of samples alone"
        way = "; take x.shape[0] instead of a number, of len(x) or of a loop over samples"
        where = f"; {min(fixed, key=lambda one: one[0])[1]} expects that number" if fixed else where
        if " // " in text:  # the number of parts of a chunk
            way += (", and instead of torch.cat of several inputs over the samples and chunk call the layers for each input, or "
                    "for one input [samples, inputs, ..] as layers(x.flatten(0, 1)).unflatten(0, (-1, inputs))")
    elif "FakeTensor" in text and any(isinstance(module, torch.nn.RNNBase) for module in model.modules()):
        way = "; leave pack_padded_sequence out and take the last step of each sample by x[torch.arange(x.shape[0]), lengths - 1]"
    return first + where + way + _config_advice(model) + experts_advice(model)
