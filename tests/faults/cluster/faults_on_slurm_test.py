#!/usr/bin/env python3
"""Every fault on a real SLURM cluster: found in time, the job requeued, the result unchanged.

A run that was disturbed must have every update once, go on from the newest checkpoint, and end with
the same figures of every update and the same weights as the undisturbed run, to the last bit.

    GACCD_FAULTS=all      every fault at every moment, instead of one moment each
    GACCD_FAULTS_SEED=N   which ranks and moments
"""

import contextlib
import os
import random
import signal
import sys
import time
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "cluster"))

import support
from faults import (MOMENTS, at, cancel, cut_link, kill_rank, kill_stepd, power_off, preempt,
                    restart_controller, stop_rank)
from jobs import adamw_job
from training import Training

ALL = os.environ.get("GACCD_FAULTS") == "all"
SEED = int(os.environ.get("GACCD_FAULTS_SEED", "1"))
# A dead process is named within 1 s and a silent one within 5 s; the rest is for a busy machine: the
# time until this test has seen it, which is a process of the same machine.
DEAD, SILENT, SLACK = 1, 5, 4

DISK = 4 << 20  # bytes; a checkpoint has 0.3 million


def _fill(disk):
    with open(disk / "filler", "wb", buffering=0) as file, contextlib.suppress(OSError):
        for _ in range(DISK // 4096):
            file.write(bytes(4096))


class Faults(support.ClusterTest):
    @classmethod
    def setUpClass(cls):
        cls.folder = cls.cluster.dir / "work" / "faults"
        cls.folder.mkdir()
        cls.job = adamw_job(cls.folder)
        cls.reference = cls._training("reference").submit().finish(by_hand=False)
        assert not cls.reference.problems(), cls.reference.problems()

    @classmethod
    def _training(cls, name, *flags, **options):
        return Training(cls.cluster, cls.folder / name, cls.job, "--save-every-updates=10", *flags,
                        **options)

    def test_a_killed_rank(self):
        self._at("reduction", kill_rank, bound=DEAD, names="rank {rank} on {node}")

    def test_a_stopped_rank(self):
        self._at("save", stop_rank, bound=SILENT, names="rank {rank} on {node} is silent")

    def test_a_killed_slurmstepd(self):
        self._at("micro-step", kill_stepd, bound=DEAD, names="rank {rank} on {node}")

    def test_a_node_without_power(self):
        self._at("evaluation", power_off, bound=SILENT, names="rank {rank} on {node}")

    def test_a_link_that_is_cut(self):
        self._at("reduction", cut_link, bound=SILENT, names="rank {rank} on {node} is silent")

    def test_preemption_with_grace(self):
        self._at("save", preempt, bound=3, exit=75, loses_nothing=True)

    def test_a_job_that_is_cancelled_stays_so_and_can_be_continued(self):
        def check(training):
            fields = training.wait_ended()
            self.assertEqual(fields["JobState"], "CANCELLED")
            training.submit()
        self._at("micro-step", cancel, bound=3, exit=75, loses_nothing=True, then=check)

    def test_a_signal_before_the_time_limit(self):
        # SLURM counts in minutes: with 50 s of warning the signal comes after 0 to 10 s.
        training = self._training("limit", "--epochs=40", options=["--time=1", "--signal=USR2@50"])
        training.job = type(self.job)(**{**vars(self.job), "epochs": 40})
        training.submit()
        try:
            first = training.wait(lambda: any(a.verdict() for a in training.attempts())
                                  and training.attempts()[0], 90, "a stop")
            self.assertEqual(first.verdict()["exit"], 75, first.verdict())
            self.assertIn("SIGUSR2", first.verdict()["reason"])
            stopped = first.steps()[-1]["step"]
            self.assertIn(stopped, [g[0] for g in training.generations() if g[3]])
            training.wait(lambda: (training.poll(), training.last().order != first.order
                                   and training.last().steps())[1], 60, "the next attempt")
            self.assertEqual(training.last().steps()[0]["step"], stopped + 1)
        finally:
            self.cluster.run(["scancel", training.id])
            training.wait_ended()

    def test_slurmctld_is_restarted(self):
        training = self._training("controller").submit()
        with at("micro-step", training, random.Random(SEED), after=5) as victim:
            restart_controller(training, victim)
            victim.signal(signal.SIGCONT)
        training.finish(by_hand=False)
        self.assertEqual(training.problems(self.reference), [])
        self.assertEqual(len(training.attempts()), 1)

    def test_a_full_disk_that_is_emptied(self):
        training, disk = self._on_disk("small1", "--failed-saves=1000")
        _fill(disk)
        training.wait(lambda: self._failed_saves(training), 60, "an alarm")
        (disk / "filler").unlink()
        training.finish(by_hand=False)
        self.assertEqual(training.problems(self.reference), [])
        self.assertEqual(len(training.attempts()), 1)

    def test_a_disk_that_stays_full_ends_the_run_with_74(self):
        training, disk = self._on_disk("small2", "--failed-saves=2")
        _fill(disk)
        fields = training.wait_ended(90)
        self.assertEqual((fields["JobState"], fields["ExitCode"]), ("FAILED", "74:0"))
        self.assertEqual(len(self._failed_saves(training)), 2)
        checked = self.cluster.run([support.program("GACCD"), "ckpt", "verify", training.run_dir],
                                   check=False)
        self.assertIn("step-", checked.stdout)
        (disk / "filler").unlink()
        training.submit().finish(by_hand=False)
        self.assertEqual(training.problems(self.reference), [])
        self.assertEqual(len(training.attempts()), 2)
        self.assertGreater(training.attempts()[1].steps()[0]["step"], 10)

    def _on_disk(self, disk, *flags):
        """A training whose checkpoints are on a disk of their own, with two of them."""
        training = self._training(disk, *flags, run_dir=self.cluster.dir / "work" / disk / "run")
        training.seen_dir = self.cluster.path(f"{disk}/run")
        training.submit()
        training.wait(lambda: (training.poll(), training.committed >= 20)[1], 60, "two checkpoints")
        return training, training.seen_dir / "ckpt"

    def _failed_saves(self, training):
        return [e for e in training.last().events("log") if "failed (" in e["msg"]]

    def _at(self, moment, fault, **expected):
        for one in MOMENTS if ALL else [moment]:
            with self.subTest(moment=one):
                self._disturb(one, fault, **expected)

    def _disturb(self, moment, fault, bound, exit=69, names=None, loses_nothing=False, then=None):
        training = self._training(f"{fault.__name__}-{moment}").submit()
        # The node of the batch script is the first; what happens to it is SLURM's to see.
        with at(moment, training, random.Random(SEED), victim=2) as victim:
            start = time.monotonic()
            heal = fault(training, victim)
        if moment == "micro-step" and fault in (preempt, cancel):
            victim.signal(signal.SIGCONT)
        attempt = training.last() if moment != "start-up" else None

        def seen():
            return (attempt and attempt.verdict()) or not [
                p for p in training.ranks() if p.restart == victim.restart and p.pid != victim.pid]
        # Before the ranks know each other nobody but SLURM sees a fault.
        limit = 30 if moment == "start-up" else bound + SLACK
        training.wait(seen, limit, "somebody sees it", 0.02)
        print(f"{moment}: seen after {time.monotonic() - start:.2f} s", end=" ", flush=True)
        training.wait(lambda: not [p for p in training.ranks() if p.restart == victim.restart], 30,
                      "all ranks gone", 0.05)
        if heal:
            heal()
        if attempt:
            verdict = attempt.verdict()
            self.assertIsNotNone(verdict, attempt.text())
            self.assertEqual(verdict["exit"], exit, verdict)
            if names:
                self.assertIn(names.format(rank=victim.rank, node=victim.node), verdict["reason"])
                self.assertEqual(verdict["suspect_hosts"], victim.node)
        if then:
            then(training)
        training.finish(by_hand=False)
        print(f"complete after {time.monotonic() - start:.1f} s", end=" ", flush=True)
        self.assertEqual(training.problems(self.reference), [])
        if loses_nothing and moment != "start-up":
            self.assertEqual(training.updates_executed(), self.job.updates)


if __name__ == "__main__":
    support.main(settings={"SlurmdTimeout": 30},
                 disks={"small1/run/ckpt": DISK, "small2/run/ckpt": DISK})
