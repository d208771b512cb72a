"""Submits trainings of gaccd to SLURM and follows them; see Run."""

from .run import GaccdError, Run, RunFailed
from .submit import submit, sweep

__all__ = ["GaccdError", "Run", "RunFailed", "submit", "sweep"]
