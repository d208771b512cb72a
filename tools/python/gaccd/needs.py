"""What export() and verify() need besides Python; tested before their modules are imported, which an old PyTorch cannot."""

from __future__ import annotations

import re
from importlib import import_module
from importlib.util import find_spec

MIN_TORCH = (2, 7)  # as in pyproject.toml and daemon/docs/own_models.md
NEEDS = ("torch", "safetensors.torch", "numpy")


def has_needs() -> bool:
    """Whether check_needs() finds all. Does not import torch only because gaccd is imported."""
    if not all(find_spec(name.partition(".")[0]) for name in NEEDS):
        return False
    try:
        from importlib.metadata import version
        return _is_new_enough(version("torch") or "")
    except ImportError:  # a PyTorch built in its folder has no such information
        return True


def check_needs() -> None:
    """ImportError with what to install."""
    way = (f"gaccd.export and gaccd.verify need PyTorch {'.'.join(map(str, MIN_TORCH))} or newer, safetensors and numpy: "
           "pip install torch safetensors packaging numpy")  # some versions of safetensors need packaging
    for name in NEEDS:
        try:
            module = import_module(name)
        except ModuleNotFoundError as error:
            raise ImportError(f"{way} ({error})") from error
        if name == "torch" and not _is_new_enough(module.__version__):
            raise ImportError(f"{way} (found PyTorch {module.__version__})")


def _is_new_enough(version: str) -> bool:
    found = re.match(r"(\d+)\.(\d+)", version)
    return found is None or (int(found[1]), int(found[2])) >= MIN_TORCH
