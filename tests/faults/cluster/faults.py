"""The moments of a training, and what can happen to it there.

A moment is waited for, then held while the fault is injected: `with at(moment, training, rng) as
victim`. victim is the rank that the fault is for. How a moment is made certain:

    any time    nothing is waited for
    start-up    the processes of the ranks are there, and no update is done yet
    micro-step  the victim is stopped for 0.2 s, so the others have come to the reduction and wait
    reduction   another rank is stopped, so the victim is in the reduction and waits for it
    save        a checkpoint is in the folder that has no manifest yet
    evaluation  the last update of an epoch is logged, and its evaluation is not
"""

import contextlib
import dataclasses
import os
import signal
import time
from collections.abc import Callable

MOMENTS = ["start-up", "micro-step", "reduction", "save", "evaluation"]
WAIT = 120  # seconds for a moment to come
# A start that a lost node holds up ends after 300 s, by SLURM's PMIx plugin and by gaccd's own bound.
# So long no test waits.
START_BOUND = {"SLURM_PMIX_TIMEOUT": "20"}


@contextlib.contextmanager
def at(moment, training, rng, after=None, on=None):
    """after: not before this update (default: drawn). on: nodes of the victim (default: all).

    Yields the victim's Process.
    """
    if moment in ("start-up", "any time"):
        ranks = _ranks(training)
        time.sleep(rng.uniform(0, 0.8))
        yield _pick(ranks, rng, on)
        return
    if after is None:
        after = rng.randrange(5, training.job.updates // 2)
    training.wait(lambda: (training.poll(), training.step() >= after)[1], WAIT, f"update {after}")
    ranks = _ranks(training)
    chosen = _pick(ranks, rng, on)
    if moment == "micro-step":
        yield from _held(chosen, chosen)
    elif moment == "reduction":
        yield from _held(rng.choice([p for p in ranks if p is not chosen]), chosen)
    elif moment == "save":
        training.wait(lambda: any(not g[3] for g in training.generations()), WAIT, "a save", 0.0005)
        yield chosen
    else:
        _wait_evaluation(training)
        yield chosen


def _held(stopped, chosen):
    stopped.signal(signal.SIGSTOP)
    time.sleep(0.2)
    try:
        yield chosen
    finally:
        if stopped is not chosen:  # what the fault does to the victim is not undone
            with contextlib.suppress(ProcessLookupError):
                stopped.signal(signal.SIGCONT)


def go_on(victim, fault=None):
    """After the moment: a victim that was held continues, unless that is the fault."""
    if fault is None or fault.do is not stop_rank:
        with contextlib.suppress(ProcessLookupError):
            victim.signal(signal.SIGCONT)


def _wait_evaluation(training):
    """From the file's end: whole files are too slow to read for what takes some milliseconds."""
    path = training.last().path / "events.jsonl"
    ends = [f'"step":{n},' for n in range(1, training.job.updates) if not n % training.job.updates_per_epoch]

    def evaluating():
        with open(path, "rb") as file:
            file.seek(max(0, path.stat().st_size - 2000))
            last = file.read().decode(errors="replace").rstrip("\n").rsplit("\n", 1)[-1]
        return '"ev":"step"' in last and any(end in last for end in ends)
    training.wait(evaluating, WAIT, "an evaluation", 0.0005)


def _ranks(training):
    want = int(training.options[0][2:]) * int(training.options[1].split("=")[1])
    return training.wait(lambda: (training.poll(), len(r := training.ranks()) == want and r)[1],
                         WAIT, f"{want} ranks")


def _pick(ranks, rng, on):
    return rng.choice([p for p in ranks if on is None or p.node in on])


# -- faults: each takes the training and the victim, and returns what undoes it (or None) -------------


def kill_rank(_training, victim):
    victim.signal(signal.SIGKILL)


def stop_rank(_training, victim):
    victim.signal(signal.SIGSTOP)


def kill_stepd(training, victim):
    """The slurmstepd of the ranks on the victim's node. The one of the batch script lives on."""
    parent = int(open(f"/proc/{victim.pid}/stat", encoding="ascii").read().rsplit(")", 1)[1].split()[1])
    assert "slurmstepd" in open(f"/proc/{parent}/comm", encoding="ascii").read()
    os.kill(parent, signal.SIGKILL)


def power_off(training, victim):
    training.cluster.power_off(victim.node)
    return lambda: training.cluster.power_on(victim.node)


def cut_link(training, victim):
    training.cluster.link(victim.node, up=False)
    return lambda: training.cluster.link(victim.node, up=True)


def preempt(training, _victim):
    """A job of the urgent partition wants all nodes."""
    training.cluster.run(["sbatch", "-p", "urgent", f"-N{len(training.cluster.nodes)}", "--exclusive",
                          "-o", "/dev/null", "--wrap", "sleep 1"])


def cancel(training, _victim):
    training.cluster.run(["scancel", training.id])


def time_limit(training, _victim):
    """SLURM finds the job over its limit the next time it looks: every 30 s."""
    def limit(minutes):
        training.cluster.run(["scontrol", "update", f"jobid={training.id}", f"TimeLimit={minutes}"],
                             check=False)
    limit(1)
    return lambda: limit("UNLIMITED")


def wait_saved(training):
    """Until SLURM has saved that the job runs; a controller that forgot that starts the job twice."""
    state = training.cluster.dir / "state" / "job_state"
    # Written when srun is called; the step's creation makes SLURM save its state, after seconds.
    srun = training.wait(training.last, WAIT, "an attempt").path / "srun.err"
    training.wait(lambda: state.exists() and srun.exists() and
                  state.stat().st_mtime > srun.stat().st_ctime, WAIT, "saved state")


def restart_controller(training, _victim):
    training.cluster.kill_controller()
    time.sleep(1)
    training.cluster.start_controller()


def fill(path):
    """Writes the file until its disk is full; no more than 64 MB, should the disk not be small."""
    with open(path, "wb", buffering=0) as file, contextlib.suppress(OSError):
        for _ in range(64 << 8):
            file.write(bytes(4096))


def fill_disk(training, _victim=None):
    """The disk of the checkpoints, until a save has failed."""
    filler = training.seen_dir / "ckpt" / "filler"
    before = len(failed_saves(training))
    try:
        fill(filler)
        training.wait(lambda: training.done() or len(failed_saves(training)) > before, WAIT, "an alarm")
    finally:
        filler.unlink()


def failed_saves(training):
    """What the newest attempt has said of saves that failed."""
    return [e for e in training.last().events("log") if "failed (" in e["msg"]]


@dataclasses.dataclass(frozen=True)
class Fault:
    """What is done, and what must be found."""

    do: Callable
    bound: float      # seconds until a rank has written down what it found
    exit: int | None  # code of the verdict; None: the run continues
    reason: str = ""  # a part of the verdict's; {who}: "rank 2 on n3"
    blames: bool = True       # the victim's node is the suspect
    whole_node: bool = False  # any rank of it may be the one that is named

    @property
    def name(self):
        return self.do.__name__


# A dead process is named within 1 s, a silent one within 5 s and the pause between two looks. On two slow
# cores with eight ranks, in seconds more: what SLURM's programs take counts, too.
DEAD, SILENT, STOPPED = 2, 8, 6
# The ranks of a slurmstepd that was killed live for a second more.
FAULTS = [Fault(kill_rank, DEAD, 69, "{who} has ended"),
          Fault(stop_rank, SILENT, 69, "{who} has been silent"),
          Fault(kill_stepd, DEAD + 1, 69, "{who} has ended", whole_node=True),
          Fault(power_off, SILENT, 69, "{who} ", whole_node=True),
          Fault(cut_link, SILENT, 69, "{who} has been silent", whole_node=True),
          Fault(preempt, STOPPED, 75, "stopped by SIGTERM", blames=False),
          Fault(cancel, STOPPED, 75, "stopped by SIGTERM", blames=False)]
# Of the soak alone. SLURM looks at time limits every 30 s, and the limit is a minute.
TIME_LIMIT = Fault(time_limit, 95, 75, "stopped by ", blames=False)
RESTART = Fault(restart_controller, 0, None)
FILL = Fault(fill_disk, 0, None)
