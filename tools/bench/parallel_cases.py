"""Cases l, m and o of tools/bench/run: a model in stages, a sharded optimiser, and ranks of unequal speed, against others."""
import json
import os
import shlex
import shutil
import statistics
from pathlib import Path

import harness
import model_cases

STEPS = 4  # micro-batches of an update


def ours(own, ranks, steps, flags):
    """Seconds of an update, and the loss of the first one."""
    run_dir, _ = own.run("f32", 3 + own.model.updates, [f"--init-weights={own.weights}", *flags],
                         steps=steps, ranks=ranks)
    run = harness.Run(run_dir, steps * own.model.micro, 3)
    events = next(run_dir.glob("attempts/0*/events.jsonl")).read_text().splitlines()
    first = next(event for event in map(json.loads, events) if event["ev"] == "step")
    shutil.rmtree(run_dir)
    return run.update_s, first["loss"]


def row(table, case, unit, count, sides, peer_name, wanted):
    rates = [f"{count / statistics.median(result[0] for result in side):,.0f} {unit}/s" for side in sides]
    table.add(case, rates[0], f"{rates[1]} {peer_name}",
              [b[0] / a[0] for a, b in zip(*sides)], wanted)
    print(f"    loss of the first update: {sides[0][0][1]:.6f}, peer {sides[1][0][1]:.6f}")


def pipelines(table, inputs, gaccd, python, pairs):
    model = model_cases.MODELS[0]
    own = model_cases.ModelInputs(inputs, gaccd, model)

    def theirs(schedule):
        line = harness.torch_ranks(python, 2, "pipeline.py",
                                   [*own.peer_flags(), f"--k={STEPS}", f"--precision={schedule}"])
        return line["update_s"], line["loss"]

    for mine, peer in (("GPIPE", "gpipe"), ("ONE_F_ONE_B", "1f1b"), ("ZERO_BUBBLE", "1f1b")):
        flags = ["--pipeline=2", f"--set=pipeline.schedule={mine}"]
        sides = model_cases.in_turn(pairs, lambda f=flags: ours(own, 2, STEPS, f), lambda p=peer: theirs(p))
        row(table, f"l gpt in 2 stages, {STEPS} x {model.micro}, {mine.lower()}", "tokens",
            STEPS * model.micro * model.length, sides, f"torch {peer}", ">= 1.2")


def sharding(table, inputs, gaccd, python, pairs):
    """4 ranks on whatever cores there are against none; 2 ranks against DeepSpeed, where it is installed."""
    model = model_cases.MODELS[0]
    own = model_cases.ModelInputs(inputs, gaccd, model)
    sides = model_cases.in_turn(pairs, lambda: ours(own, 4, 4, ["--shard=optimizer"]),
                                lambda: ours(own, 4, 4, []))
    row(table, "m gpt, 4 ranks, shard optimizer", "tokens", 4 * model.micro * model.length, sides,
        "none", ">= 0.97")
    if python is None or not harness.has_module(python, "deepspeed"):
        table.note("m gpt, 2 ranks", "-", "peer missing: DeepSpeed", "-", "-")
        return
    for stage, wanted in ((1, ">= 2"), (2, ">= 3")):
        def theirs(stage=stage):
            line = harness.torch_ranks(python, 2, "zero.py", [*own.peer_flags(), f"--k={STEPS // 2}", f"--precision=stage{stage}"])
            return line["update_s"], line["loss"]

        def mlp(stage=stage):
            line = harness.torch_ranks(python, 2, "zero.py", [
                "--model=mlp", f"--inputs={inputs.features}", f"--labels={inputs.labels}", f"--weights={inputs.weights}",
                "--micro=32", f"--k={STEPS}", "--lr=0.01", "--warmup=10", "--updates=300", f"--precision=stage{stage}"])
            return line["update_s"], line["loss"]

        def own_mlp():
            run = harness.train(gaccd, inputs, 2, 2 * STEPS * 32, 32, 300, flags=["--device=cpu", "--shard=optimizer"])
            return run.update_s, run.first_loss

        sides = model_cases.in_turn(pairs, own_mlp, mlp)
        row(table, f"m MLP, 2 ranks x {STEPS} x 32, shard optimizer", "samples", 2 * STEPS * 32, sides,
            f"DeepSpeed ZeRO-{stage}", wanted)
        sides = model_cases.in_turn(pairs, lambda: ours(own, 2, STEPS, ["--shard=optimizer"]), theirs)
        row(table, f"m gpt, 2 ranks x {STEPS // 2} x {model.micro}, shard optimizer", "tokens", STEPS * model.micro * model.length,
            sides, f"DeepSpeed ZeRO-{stage}", wanted)


class SlowedRanks:
    """A program that runs gaccd, each rank in a control group with its share of a core. OSError: there are no such groups."""
    PERIOD_US = 5000

    def __init__(self, folder, gaccd, shares):
        v1 = Path("/sys/fs/cgroup/cpu")
        name = f"gaccd-bench-{os.getpid()}-" + "-".join(map(str, shares))
        self.groups = [(v1 if v1.is_dir() else Path("/sys/fs/cgroup")) / f"{name}-{rank}" for rank in range(len(shares))]
        for group, share in zip(self.groups, shares):
            group.mkdir()
            quota = round(share * self.PERIOD_US)
            if v1.is_dir():
                (group / "cpu.cfs_period_us").write_text(str(self.PERIOD_US))
                (group / "cpu.cfs_quota_us").write_text(str(quota))
            else:
                (group / "cpu.max").write_text(f"{quota} {self.PERIOD_US}")
        self.program = folder / name
        self.program.write_text(self.script(self.groups[0].parent / name, gaccd))
        self.program.chmod(0o755)

    @staticmethod
    def script(groups, gaccd):
        """groups: the path of a group without "-" and its rank."""
        return ('#!/bin/sh\n'
                f'echo $$ >{shlex.quote(f"{groups}-")}"$OMPI_COMM_WORLD_RANK"/cgroup.procs\n'
                f'exec {shlex.quote(str(gaccd))} "$@"\n')

    def __enter__(self):
        return self.program

    def __exit__(self, *_):
        for group in self.groups:
            group.rmdir()


# Of each rank, on two cores: as all would have it, and slowed. Four are not given all of both, which they would not get.
SLOWED = (((1, 1), (1, 0.6)), ((0.4, 0.4, 0.4, 0.4), (0.4, 0.24, 0.4, 0.24)))


def uneven(table, inputs, gaccd, pairs):
    """The MLP, half of the ranks at 0.6 of their speed: loads by measured speeds against equal ones and against what is possible."""
    target, micro, updates = 8192, 64, 60
    for shares, slowed in SLOWED:
        ranks = len(shares)
        case = f"o MLP, {ranks} ranks, {ranks // 2} at 0.6 of their speed"
        try:
            with SlowedRanks(inputs.folder, gaccd, shares) as even, SlowedRanks(inputs.folder, gaccd, slowed) as program:
                def seconds(one, flags=(), ranks=ranks):
                    return harness.train(one, inputs, ranks, target, micro, updates, warmup=40,
                                         flags=["--device=cpu", *flags]).update_s
                results = [(seconds(program, ["--speed=measured"]), seconds(program), seconds(even) * sum(shares) / sum(slowed))
                           for _ in range(pairs)]
        except OSError as error:
            table.note(case, "-", f"no control groups: {error}", "-", "-")
            continue
        mean, equal, best = (statistics.median(values) for values in zip(*results))
        ours_text = f"{target / mean:,.0f} samples/s"
        table.add(case, ours_text, f"{target / equal:,.0f} samples/s equal loads", [b / a for a, b, _ in results], ">= 1.25")
        table.add(case, ours_text, f"{target / best:,.0f} samples/s without a loss", [c / a for a, _, c in results], ">= 0.95")
