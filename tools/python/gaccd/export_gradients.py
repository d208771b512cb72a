"""Gradients of the model's own: gaccd has those of the operations of forward alone."""

from __future__ import annotations

import contextlib
import os
import traceback
from typing import Any, Iterator

import torch

from .export_graph import TORCH, ExportError

OWN = os.path.dirname(os.path.abspath(__file__)) + os.sep


def _line() -> str:
    frames = [one for one in traceback.extract_stack() if not os.path.abspath(one.filename).startswith((TORCH, OWN))]
    return f"{os.path.basename(frames[-1].filename)}:{frames[-1].lineno}" if frames else "an unknown line"


def _of_torch(name: str) -> bool:
    return name == "torch" or name.startswith("torch.")


@contextlib.contextmanager
def refuse_own_gradients(model: torch.nn.Module) -> Iterator[None]:
    """ExportError where forward, which runs meanwhile, calls a torch.autograd.Function or a hook of gradients."""
    for name, module in model.named_modules():
        if module._backward_hooks or module._backward_pre_hooks:
            raise ExportError(f"{name or 'the model'}: has a backward hook, which may change gradients; gaccd calls none. Remove it first")
    for name, parameter in model.named_parameters():
        if parameter._backward_hooks or getattr(parameter, "_post_accumulate_grad_hooks", None):
            raise ExportError(f"{name}: has a hook of its gradient, which may change it; gaccd calls none. Remove it first")
    apply, register_hook = torch.autograd.Function.__dict__["apply"], torch.Tensor.register_hook

    def checked_apply(cls: type, *args: Any, **kwargs: Any) -> Any:
        if not _of_torch(cls.__module__):
            raise ExportError(f"{cls.__qualname__}: a torch.autograd.Function with a backward of its own, which gaccd cannot follow; "
                              f"write it with operations of PyTorch; it is called at {_line()}")
        return apply.__get__(None, cls)(*args, **kwargs)

    def checked_hook(tensor: torch.Tensor, hook: Any) -> Any:
        if not _of_torch(getattr(hook, "__module__", None) or ""):
            raise ExportError(f"Tensor.register_hook: a hook may change the gradient; gaccd calls none; it is called at {_line()}")
        return register_hook(tensor, hook)

    torch.autograd.Function.apply = classmethod(checked_apply)
    torch.Tensor.register_hook = checked_hook
    try:
        yield
    finally:
        torch.autograd.Function.apply = apply
        torch.Tensor.register_hook = register_hook
