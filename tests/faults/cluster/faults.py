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
import os
import signal
import time

MOMENTS = ["start-up", "micro-step", "reduction", "save", "evaluation"]
WAIT = 60  # seconds for a moment to come


@contextlib.contextmanager
def at(moment, training, rng, after=None, victim=None):
    """after: not before this update (default: drawn). victim: a rank (default: drawn).

    Yields the victim's Process.
    """
    if moment in ("start-up", "any time"):
        ranks = _ranks(training)
        time.sleep(rng.uniform(0, 0.8))
        yield _pick(ranks, rng, victim)
        return
    if after is None:
        after = rng.randrange(5, training.job.updates // 2)
    training.wait(lambda: (training.poll(), training.step() >= after)[1], WAIT, f"update {after}")
    ranks = _ranks(training)
    chosen = _pick(ranks, rng, victim)
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


def _pick(ranks, rng, victim):
    return ranks[rng.randrange(len(ranks)) if victim is None else victim]


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


def restart_controller(training, _victim):
    """Not before SLURM has saved that the job runs: otherwise it would start the job twice."""
    state = training.cluster.dir / "state" / "job_state"
    started = training.last().path.stat().st_mtime
    training.wait(lambda: state.exists() and state.stat().st_mtime > started + 1, 30, "saved state")
    training.cluster.kill_controller()
    time.sleep(1)
    training.cluster.start_controller()
