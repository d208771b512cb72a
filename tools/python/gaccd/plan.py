"""The plan of an update."""

from __future__ import annotations

from dataclasses import dataclass, fields

from .run import call, json_lines


@dataclass(frozen=True)
class RankPlan:
    """The samples of one rank in an update."""

    rank: int
    first: int  # number of samples of the previous ranks
    samples: int
    micro_batches: tuple[int, ...]  # sizes, not increasing, may be 0


@dataclass(frozen=True)
class Plan:
    """The result of `gaccd plan`: keys of its JSON (proto/plan.proto), and the samples of each rank."""

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
    gaccd: str  # the program that computed it
    speed: str | None = None
    speeds: str | None = None  # of the ranks, if different: "160x1,80x0.6"
    slowest_time: float | None = None  # if speeds differ: in samples of a rank of speed 1
    idle_ratio: float | None = None
    gain_ratio: float | None = None

    @property
    def flags(self) -> list[str]:
        """The flags of gaccd for this plan."""
        return [f"--nodes={self.nodes}", f"--gpus-per-node={self.gpus_per_node}", f"--micro-batch={self.micro_batch}",
                f"--target-batch={self.target_batch}", f"--rounding={self.mode}", f"--lr-rule={self.lr_rule}",
                f"--reference-batch={self.reference_batch}", *([f"--speed={self.speed}"] if self.speed else [])]

    def for_samples(self, samples: int) -> Plan:
        """The exact plan of a smaller update on the same ranks, such as the last of an epoch."""
        return plan(nodes=self.nodes, gpus_per_node=self.gpus_per_node, micro_batch=self.micro_batch,
                    target_batch=samples, lr_rule=self.lr_rule, reference_batch=self.reference_batch,
                    speed=self.speed, gaccd=self.gaccd)


def plan(*, nodes: int, gpus_per_node: int, micro_batch: int, target_batch: int | None = None,
         rounding: str = "exact", lr_rule: str = "none", reference_batch: int | None = None, speed: str | None = None,
         gaccd: str = "gaccd", target: int | None = None) -> Plan:
    """Plans the samples of each rank in each micro-step for updates of `target_batch` samples.

    target: alias of target_batch. micro_batch: the maximum samples per rank and micro-step. speed: of the hosts,
    "n[1-20]:1,n[21-30]:0.6"; they are the first nodes, in this order, independent of their names. GaccdError if gaccd
    reports an error.
    """
    given = [one for one in (target_batch, target) if one is not None]
    if len(given) != 1:
        raise TypeError(f"expected one of target_batch and target, found {target_batch} and {target}")
    if speed == "measured":
        raise ValueError("speed: expected HOSTS:SPEED, found 'measured', which only gaccd train does")
    reference = given[0] if reference_batch is None else reference_batch
    command = [gaccd, "plan", "--format=json", "--ranks", f"--nodes={nodes}", f"--gpus-per-node={gpus_per_node}",
               f"--micro-batch={micro_batch}", f"--target-batch={given[0]}", f"--rounding={rounding}",
               f"--lr-rule={lr_rule}", f"--reference-batch={reference}", *([f"--speed={speed}"] if speed else [])]
    decided, *ranks = json_lines(call(command))
    known = {one.name for one in fields(Plan)}  # newer versions of gaccd may have more keys
    return Plan(**{key: value for key, value in decided.items() if key in known}, lr_rule=lr_rule,
                reference_batch=reference, speed=speed, gaccd=gaccd,
                ranks=tuple(RankPlan(one["rank"], one["first"], one["samples"], tuple(one["micro_batches"]))
                            for one in ranks))
