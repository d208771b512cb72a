"""One training on the test cluster, over all its attempts, and what must be true of it at the end."""

import contextlib
import hashlib
import json
import shutil
import struct
import subprocess
import time
from pathlib import Path

from cluster import ClusterError
from support import SOURCE, program

ENDED = ("COMPLETED", "FAILED", "CANCELLED", "NODE_FAIL", "TIMEOUT", "BOOT_FAIL", "OUT_OF_MEMORY")


class Attempt:
    """One start of the training: attempts/NNN-JOB."""

    def __init__(self, path):
        self.path = path
        self.name = path.name
        restart, self.job = path.name.split("-", 1)
        self.restart = int(restart)

    @property
    def order(self):
        return (int(self.job), self.restart)

    def events(self, kind=None):
        path = self.path / "events.jsonl"
        text = path.read_bytes() if path.exists() else b""
        lines = [json.loads(line) for line in text.split(b"\n")[:-1] if line]
        return [event for event in lines if kind in (None, event["ev"])]

    def steps(self):
        return self.events("step")

    def verdict(self):
        path = self.path / "verdict.json"
        return json.loads(path.read_text()) if path.exists() else None

    def text(self):
        files = [*self.path.glob("rank/*"), *self.path.glob("log/r*"), *self.path.glob("srun.err")]
        return "\n".join(f.read_text(errors="replace") for f in files if f.is_file())


class Training:
    """Submitted with slurm/launch, as users do. One object over all jobs that continue the run."""

    def __init__(self, cluster, folder, job, *flags, nodes=4, per_node=1, options=(), run_dir=None):
        self.cluster = cluster
        self.folder = Path(folder)
        self.folder.mkdir(parents=True, exist_ok=True)
        self.run_dir = run_dir or self.folder / "run"
        self.seen_dir = self.run_dir  # how this process reaches it
        self.job = job
        self.flags = [f"--save-weights={self.folder}/final.safetensors", *flags]
        self.options = [f"-N{nodes}", f"--ntasks-per-node={per_node}", "--requeue",
                        "--open-mode=append", "--output=slurm-%j.out", *options]
        self.env = {}            # of the job, in addition to ours
        self.ids = []
        self.committed = 0       # the newest update that was ever seen in a finished checkpoint
        self.promised = {}       # by attempt: what was committed before it was there
        self.requeued = {}       # by job and restart: when that was seen first
        self.by_hand = []        # requeues that the run itself should have done

    # -- life ------------------------------------------------------------------------------------

    def submit(self):
        script = self.folder / "job.sbatch"
        launch = self.folder / "launch"
        shutil.copy2(SOURCE / "slurm" / "launch", launch)  # bash reads as it goes; it may be edited
        script.write_text(f'#!/bin/bash\nexec "{launch}" "{self.job.path}" "$@"\n')
        env = {"GACCD": program("GACCD"), "GACCD_RUN_DIR": self.run_dir, **self.env}
        self.ids.append(self.cluster.sbatch(script, *self.flags, options=self.options,
                                            cwd=self.folder, env=env))
        return self

    @property
    def id(self):
        return self.ids[-1]

    def attempts(self):
        folders = (self.seen_dir / "attempts").glob("[0-9]*-[0-9]*")
        return sorted((Attempt(p) for p in folders), key=lambda a: a.order)

    def last(self):
        attempts = self.attempts()
        return attempts[-1] if attempts else None

    def step(self):
        """Updates done by the attempt that runs now, or 0."""
        last = self.last()
        steps = last.steps() if last else []
        return steps[-1]["step"] if steps else 0

    def done(self):
        return any((a.verdict() or {}).get("verdict") == "done" for a in self.attempts())

    def ranks(self):
        """The processes of the ranks of this run, by rank."""
        return [p for p in self.cluster.processes("gaccd") if p.rank is not None and p.job in self.ids]

    def generations(self):
        """(step, epoch, name, finished) of the checkpoints, newest first."""
        found = []
        for path in (self.seen_dir / "ckpt").glob("step-*"):
            words = path.name.split("-")
            found.append((int(words[1]), int(words[-1][1:]), path.name, (path / "MANIFEST").exists()))
        return sorted(found, key=lambda g: (g[1], g[0]), reverse=True)

    def poll(self):
        """Keeps the run going as SLURM would in its own time, and notes what was promised."""
        for attempt in self.attempts():  # a new one has begun since the last look
            self.promised.setdefault(attempt.name, self.committed)
        self.committed = max([self.committed, *(g[0] for g in self.generations() if g[3])])
        fields = self.fields()
        if fields["JobState"] == "PENDING" and fields["Reason"] == "BeginTime":
            # SLURM lets a requeued job wait (cred_expire), so that nothing of it is left on the
            # nodes: its PMIx server has fixed names, and a credential that was revoked in the same
            # second as the new one counts as that. We can see whether that is so.
            since = self.requeued.setdefault((self.id, fields["Restarts"]), time.monotonic())
            if time.monotonic() - since > 2 and not self.cluster.processes("slurmstepd"):
                self.cluster.run(["scontrol", "update", f"jobid={self.id}", "StartTime=now"],
                                 check=False)
        return fields

    def fields(self):
        """Of the job; while nobody answers: {"JobState": "UNKNOWN"}."""
        try:
            return self.cluster.job(self.id)
        except ClusterError:
            return {"JobState": "UNKNOWN"}

    def wait(self, condition, timeout, what, pause=0.1):
        deadline = time.monotonic() + timeout
        while not (value := condition()):
            if time.monotonic() > deadline:
                raise ClusterError(f"{what}: not within {timeout} s; job {self.id}: "
                                   f"{self.fields()['JobState']}, update {self.step()}")
            time.sleep(pause)
        return value

    def wait_ended(self, timeout=60):
        """Waits until the job is over and was not requeued. Returns its fields."""
        return self.wait(lambda: (f := self.poll())["JobState"] in ENDED and f, timeout, "end of the job")

    def finish(self, timeout=120, by_hand=True):
        """Waits until the training is complete. by_hand: requeues it when that was forgotten."""
        ended = []  # when that was seen first; a job is FAILED for a moment while it is requeued
        def over():
            fields = self.poll()
            if fields["JobState"] not in ENDED:
                ended.clear()
                return False
            if self.done():
                return True
            ended.append(time.monotonic())
            if time.monotonic() - ended[0] < 5:
                return False
            reason = f"{fields['JobState']} {fields['ExitCode']}: {self.last_words()}"
            if not by_hand:
                raise ClusterError(f"job {self.id} was not requeued: {reason}")
            self.by_hand.append(reason)
            ended.clear()
            self.cluster.run(["scontrol", "requeue", self.id])
            return False
        self.wait(over, timeout, "end of the training", pause=0.3)
        return self

    def abandon(self):
        """Ends it, whatever state it is in, so that it is not in the way of the next one."""
        self.cluster.run(["scancel", *self.ids], check=False)
        with contextlib.suppress(ClusterError):
            self.wait(lambda: self.fields()["JobState"] in ENDED and not self.ranks(), 60, "its end")

    def last_words(self):
        out = self.folder / f"slurm-{self.id}.out"
        lines = out.read_text(errors="replace").splitlines() if out.exists() else []
        return " | ".join(lines[-3:])

    # -- what must be true -------------------------------------------------------------------------

    def lineage(self):
        """The updates that count, in order: those of an attempt up to where the next one continued."""
        lineage = []
        for attempt in self.attempts():
            steps = attempt.steps()
            if steps:
                lineage = lineage[:steps[0]["step"] - 1] + steps
        return lineage

    def updates_executed(self):
        return sum(len(a.steps()) for a in self.attempts())

    def digest(self):
        return hashlib.sha256((self.folder / "final.safetensors").read_bytes()).hexdigest()[:16]

    def problems(self, reference=None):
        """What is wrong with a complete run: a list of texts. reference: the undisturbed run."""
        lineage = self.lineage()
        wrong = []
        if [s["step"] for s in lineage] != list(range(1, self.job.updates + 1)):
            wrong.append(f"updates {_ranges(s['step'] for s in lineage)}, expected 1-{self.job.updates}")
        total = 0
        for event in lineage:
            total += event["samples"]
            if event["samples"] != self.job.batch_of(event["step"]) or event["samples_total"] != total:
                wrong.append(f"update {event['step']}: {event['samples']} samples, "
                             f"{event['samples_total']} so far, expected "
                             f"{self.job.batch_of(event['step'])} and {total}")
                break
        for attempt in self.attempts():
            steps = attempt.steps()
            promised = self.promised.get(attempt.name, 0)
            if steps and steps[0]["step"] <= promised:
                wrong.append(f"attempt {attempt.name} began with update {steps[0]['step']}, "
                             f"although {promised} was saved")
        if reference:
            wrong += self.other_figures(reference)
            if not wrong and self.digest() != reference.digest():
                wrong.append(f"final weights {self.digest()}, undisturbed {reference.digest()}")
        return wrong

    def other_figures(self, reference):
        """Where the updates of both begin to differ: a list of one text, or none."""
        for mine, other in zip(self.lineage(), reference.lineage()):
            for key in ("loss", "grad_norm", "samples", "lr"):
                if mine[key] != other[key]:
                    return [f"update {mine['step']}: {key} {mine[key]!r}, undisturbed {other[key]!r}"]
        return []


def weights(path):
    """The values of the only tensor of a safetensors file."""
    data = Path(path).read_bytes()
    size = struct.unpack("<Q", data[:8])[0]
    return struct.unpack(f"<{(len(data) - 8 - size) // 4}f", data[8 + size:])


def export(path, out):
    """The weights of a checkpoint."""
    subprocess.run([program("GACCD"), "ckpt", "export", path, f"--out={out}"], check=True,
                   capture_output=True, timeout=60)
    return weights(out)


def _ranges(numbers):
    text, start, last = [], None, None
    for n in [*numbers, None]:
        if start is not None and n != last + 1:
            text.append(f"{start}-{last}")
            start = None
        if start is None:
            start = n
        last = n
    return " ".join(text)
