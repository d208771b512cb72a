"""The plan of an update."""

from __future__ import annotations

import json
from dataclasses import dataclass

from .run import call


@dataclass(frozen=True)
class RankPlan:
    """What one rank takes in an update."""

    rank: int
    first: int  # samples of the ranks before it
    samples: int
    micro_batches: tuple[int, ...]  # sizes; they fall and may reach 0


@dataclass(frozen=True)
class Plan:
    """What `gaccd plan` decided: the keys of its JSON (proto/plan.proto), and what each rank takes."""

    mode: str
    nodes: int
    gpus_per_node: int
    world: int
    micro_batch: int
    base_batch: int
    target_batch: int
    effective_batch: int
    ratio: float
    error_ratio: float
    accum_steps: int
    ranks_hi: int
    ranks_hi_samples: int
    ranks_lo: int
    ranks_lo_samples: int
    balance_ratio: float
    lr_factor: float
    ranks: tuple[RankPlan, ...]
    lr_rule: str
    reference_batch: int
    gaccd: str  # the program that made it

    @property
    def flags(self) -> list[str]:
        """The flags of gaccd that ask for this plan."""
        return [f"--nodes={self.nodes}", f"--gpus-per-node={self.gpus_per_node}", f"--micro-batch={self.micro_batch}",
                f"--target-batch={self.target_batch}", f"--rounding={self.mode}", f"--lr-rule={self.lr_rule}",
                f"--reference-batch={self.reference_batch}"]

    def for_samples(self, samples: int) -> Plan:
        """The exact plan of one update of fewer samples on the same ranks: the last one of an epoch."""
        return plan(nodes=self.nodes, gpus_per_node=self.gpus_per_node, micro_batch=self.micro_batch, target=samples,
                    lr_rule=self.lr_rule, reference_batch=self.reference_batch, gaccd=self.gaccd)


def plan(*, nodes: int, gpus_per_node: int, micro_batch: int, target: int, rounding: str = "exact",
         lr_rule: str = "none", reference_batch: int | None = None, gaccd: str = "gaccd") -> Plan:
    """How many samples each rank takes in each micro-step, so that an update has `target` samples.

    micro_batch: the most samples a rank holds at once. GaccdError when gaccd refuses.
    """
    reference = target if reference_batch is None else reference_batch
    command = [gaccd, "plan", "--format=json", "--ranks", f"--nodes={nodes}", f"--gpus-per-node={gpus_per_node}",
               f"--micro-batch={micro_batch}", f"--target-batch={target}", f"--rounding={rounding}",
               f"--lr-rule={lr_rule}", f"--reference-batch={reference}"]
    decided, *ranks = map(json.loads, call(command).splitlines())
    return Plan(**decided, lr_rule=lr_rule, reference_batch=reference, gaccd=gaccd,
                ranks=tuple(RankPlan(one["rank"], one["first"], one["samples"], tuple(one["micro_batches"]))
                            for one in ranks))
