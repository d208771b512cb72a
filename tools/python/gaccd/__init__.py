"""Submits trainings of gaccd to SLURM and monitors them (Run); plans updates for PyTorch loops (gaccd.torch);
exports PyTorch models to gaccd."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Callable

from .needs import check_needs, has_needs
from .plan import Plan, RankPlan, plan
from .run import GaccdError, Run, RunFailed
from .submit import submit, sweep

if TYPE_CHECKING:
    from .export_types import ExportError
    from .export_model import export
    from .verify_model import Verification, verify

__all__ = ["GaccdError", "Plan", "RankPlan", "Run", "RunFailed", "plan", "submit", "sweep"]
if TYPE_CHECKING or has_needs():  # `import *` imports all that is listed
    __all__ += ["ExportError", "Verification", "export", "verify"]


def __getattr__(name: str) -> Callable[..., Any]:
    """Imports export() and verify() lazily, because only they need PyTorch."""
    if name not in ("ExportError", "Verification", "export", "verify"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    check_needs()
    from . import export_model, verify_model
    found: Callable[..., Any] = getattr(verify_model if name in ("Verification", "verify") else export_model, name)
    return found
