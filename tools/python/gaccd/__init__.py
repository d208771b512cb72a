"""Submits trainings of gaccd to SLURM and follows them (Run); plans updates, which gaccd.torch trains in PyTorch."""

from .plan import Plan, RankPlan, plan
from .run import GaccdError, Run, RunFailed
from .submit import submit, sweep

__all__ = ["GaccdError", "Plan", "RankPlan", "Run", "RunFailed", "plan", "submit", "sweep"]
