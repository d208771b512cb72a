#!/usr/bin/env python3
"""Every fault on a real SLURM cluster: found in time, the job requeued, the result unchanged.

A run that was disturbed must have every update once, continue from the newest checkpoint, and end with
the same figures of every update and the same weights as the undisturbed run, to the last bit.

    GACCD_FAULTS=all      every fault at every moment, instead of one moment each
    GACCD_FAULTS_SEED=N   how many ranks a node has, which of them are hit and when
"""

import contextlib
import os
import random
import sys
import time
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "cluster"))

import support
from detection import Lateness, named_after, wrong_in
from faults import (FAULTS, MOMENTS, START_BOUND, at, cut_link, failed_saves, fill, go_on,
                    restart_controller, wait_saved)
from jobs import adamw_job
from training import Training

ALL = os.environ.get("GACCD_FAULTS") == "all"
SEED = os.environ.get("GACCD_FAULTS_SEED", "1")
FAULT = {fault.name: fault for fault in FAULTS}
SLACK = 4  # seconds more, when the machine was late itself
LATE = 0.25

DISK = 4 << 20  # bytes; a checkpoint has 0.3 million


class Faults(support.ClusterTest):
    rows = []  # of the table at the end

    @classmethod
    def setUpClass(cls):
        cls.folder = cls.cluster.dir / "work" / "faults"
        cls.folder.mkdir()
        cls.job = adamw_job(cls.folder)
        cls.references = {}  # by ranks of a node: another number of ranks rounds differently
        for per_node in (1, 2):
            reference = cls._training(f"reference{per_node}", per_node=per_node)
            cls.references[per_node] = reference.submit().finish(by_hand=False)
            assert not reference.problems(), reference.problems()
        cls.reference = cls.references[1]

    @classmethod
    def tearDownClass(cls):
        titles = ("fault", "moment", "victim", "named", "seen", "machine late", "verdict",
                  "as undisturbed")
        widths = [max(len(row[i]) for row in [titles, *cls.rows]) for i in range(len(titles))]
        for row in [titles, *cls.rows]:
            print("  ".join(word.ljust(width) for word, width in zip(row, widths)).rstrip())

    @classmethod
    def _training(cls, name, *flags, **options):
        return Training(cls.cluster, cls.folder / name, cls.job, "--save-every-updates=10", *flags,
                        **options)

    def test_a_killed_rank(self):
        self._at("reduction", "kill_rank")

    def test_a_stopped_rank(self):
        self._at("save", "stop_rank")

    def test_a_killed_slurmstepd(self):
        self._at("micro-step", "kill_stepd")

    def test_a_node_without_power(self):
        self._at("evaluation", "power_off")

    def test_a_link_that_is_cut(self):
        self._at("reduction", "cut_link")

    def test_preemption_with_grace(self):
        self._at("save", "preempt")

    def test_a_job_that_is_cancelled_stays_so_and_can_be_continued(self):
        self._at("micro-step", "cancel")

    def test_the_node_of_rank_zero_and_the_batch_script_without_power(self):
        self._at("micro-step", "power_off", on=["n1"])

    @unittest.skipUnless(ALL, "takes long")
    def test_the_node_of_rank_zero_and_the_batch_script_is_cut_off(self):
        self._at("micro-step", "cut_link", on=["n1"])

    def test_a_signal_before_the_time_limit(self):
        # SLURM counts in minutes: with 50 s of warning the signal comes after 0 to 10 s.
        self._stops_and_goes_on("signal", "SIGUSR2", "--time=1", "--signal=USR2@50")

    @unittest.skipUnless(ALL, "takes long")
    def test_a_time_limit_without_a_signal(self):
        self._stops_and_goes_on("limit", "the job's time limit", "--time=1")

    def _stops_and_goes_on(self, name, reason, *options):
        training = self._training(name, "--epochs=400", options=options)
        training.job = type(self.job)(**{**vars(self.job), "epochs": 400})
        training.submit()
        row = [name, "any time", "", "", "", "", "", "no"]
        self.rows.append(row)
        try:
            # A signal before the first update leaves nothing to continue from; it comes again.
            first = training.wait(lambda: (training.poll(), next(
                (a for a in training.attempts() if a.verdict() and a.steps()), None))[1], 140, "a stop")
            row[6] = str(first.verdict()["exit"])
            self.assertEqual(first.verdict()["exit"], 75, first.verdict())
            self.assertIn(reason, first.verdict()["reason"])
            stopped = first.steps()[-1]["step"]
            self.assertIn(stopped, [g[0] for g in training.generations() if g[3]])
            training.wait(lambda: (training.poll(), training.last().order != first.order
                                   and training.last().steps())[1], 140, "the next attempt")
            self.assertEqual(training.last().steps()[0]["step"], stopped + 1)
            row[7] = "continues"
        finally:
            training.abandon()

    def test_slurmctld_is_restarted(self):
        for moment in MOMENTS[1:] if ALL else ["micro-step"]:
            with self.subTest(moment=moment):
                self._restart_controller(moment)

    def _restart_controller(self, moment):
        # Longer, as it takes seconds until SLURM has saved its state.
        training = self._training(f"controller-{moment}", "--epochs=30")
        training.job = type(self.job)(**{**vars(self.job), "epochs": 30})
        training.submit()
        row = ["restart_controller", moment, *[""] * 5, "no"]
        self.rows.append(row)
        with contextlib.ExitStack() as undo:
            undo.callback(training.abandon)
            wait_saved(training)
            with at(moment, training, random.Random(SEED), after=5) as victim:
                restart_controller(training, victim)
            go_on(victim)
            training.finish(timeout=240, by_hand=False)
            row[7] = "; ".join(training.problems() + training.other_figures(self.reference)) or "yes"
            self.assertEqual(row[7], "yes")
            self.assertEqual(len(training.attempts()), 1)

    @unittest.skipUnless(ALL, "takes long")
    def test_a_link_that_returns_after_two_seconds_ends_no_rank(self):
        for moment in MOMENTS[1:]:
            with self.subTest(moment=moment):
                training = self._training(f"flap-{moment}")
                training.submit()
                with contextlib.ExitStack() as undo:
                    undo.callback(training.abandon)
                    with at(moment, training, random.Random(SEED), on=("n2", "n3", "n4")) as victim:
                        heal = undo.enter_context(contextlib.ExitStack())
                        heal.callback(cut_link(training, victim))
                        time.sleep(2)
                        heal.close()
                    go_on(victim)
                    training.finish(by_hand=False)
                    self.assertEqual(training.problems(self.reference), [])
                    self.assertEqual(len(training.attempts()), 1)

    def test_a_full_disk_that_is_emptied(self):
        training, disk = self._on_disk("small1", "--failed-saves=1000", "--epochs=60", epochs=60)
        for moment in MOMENTS[1:] if ALL else ["any time"]:
            failed = len(failed_saves(training))
            rng = random.Random(f"{SEED} {moment}")
            with at(moment, training, rng, after=training.step() + 5) as victim:
                fill(disk / "filler")
            go_on(victim)
            training.wait(lambda n=failed: len(failed_saves(training)) > n, 60, "an alarm")
            (disk / "filler").unlink()
        training.finish(timeout=240, by_hand=False)
        self.assertEqual(training.problems() + training.other_figures(self.reference), [])
        self.assertEqual(len(training.attempts()), 1)

    def test_a_disk_that_stays_full_ends_the_run_with_74(self):
        training, disk = self._on_disk("small2", "--failed-saves=2")
        fill(disk / "filler")
        fields = training.wait_ended(90)
        self.assertEqual((fields["JobState"], fields["ExitCode"]), ("FAILED", "74:0"))
        self.assertEqual(len(failed_saves(training)), 2)
        checked = self.cluster.run([support.program("GACCD"), "ckpt", "verify", training.run_dir],
                                   check=False)
        self.assertIn("step-", checked.stdout)
        (disk / "filler").unlink()
        training.submit().finish(by_hand=False)
        self.assertEqual(training.problems(self.reference), [])
        self.assertEqual(len(training.attempts()), 2)
        self.assertGreater(training.attempts()[1].steps()[0]["step"], 10)

    def _on_disk(self, disk, *flags, epochs=None):
        """A training whose checkpoints are on a disk of their own, with two of them."""
        training = self._training(disk, *flags, run_dir=self.cluster.dir / "work" / disk / "run")
        training.job = type(self.job)(**{**vars(self.job), "epochs": epochs or self.job.epochs})
        training.seen_dir = self.cluster.path(f"{disk}/run")
        training.submit()
        training.wait(lambda: (training.poll(), training.committed >= 20)[1], 120, "two checkpoints")
        return training, training.seen_dir / "ckpt"

    def _at(self, moment, name, on=("n2", "n3", "n4")):
        """on: where the victim is when a whole node is hit; else it may be any rank."""
        fault = FAULT[name]
        on = on if fault.whole_node else self.cluster.nodes
        for one in MOMENTS if ALL else [moment]:
            with self.subTest(moment=one):
                self._disturb(one, fault, on)

    def _disturb(self, moment, fault, on):
        rng = random.Random(f"{SEED} {fault.name} {moment} {on}")
        per_node = rng.choice([1, 2])
        training = self._training(f"{fault.name}-{moment}-{on[0]}", per_node=per_node)
        training.env = START_BOUND if moment == "start-up" else {}
        training.submit()
        row = [fault.name, moment, *[""] * 5, "no"]
        self.rows.append(row)
        with contextlib.ExitStack() as undo:
            undo.callback(training.abandon)
            with at(moment, training, rng, on=on) as victim:
                row[2] = f"rank {victim.rank} of {4 * per_node} on {victim.node}"
                ranks, since, start = training.ranks(), time.time(), time.monotonic()
                late = undo.enter_context(Lateness())
                healing = undo.enter_context(contextlib.ExitStack())
                if heal := fault.do(training, victim):
                    healing.callback(heal)
            go_on(victim, fault)
            attempt = training.last()
            self._wait_seen(training, moment, fault, victim, attempt)
            row[4], row[5] = f"{time.monotonic() - start:.2f} s", f"{late.most:.2f} s"
            named = attempt and named_after(attempt, since)
            row[3] = f"{named:.2f} s" if named is not None else "-"
            if not (moment == "start-up" and fault.whole_node):  # the cut node's own wait for long
                training.wait(lambda: not self._left(training, victim), 90, "all ranks gone", 0.05)
            verdict = attempt and attempt.verdict()
            row[6] = f"{verdict['exit']} {verdict.get('suspect_hosts', '')}" if verdict else "-"
            # At the start the ranks may not know each other, so that nobody can write one.
            wrong = []
            if moment != "start-up":
                wrong = wrong_in(verdict, fault, victim, ranks)
                bound = fault.bound + (SLACK if late.most > LATE else 0)
                if named is None or named > bound:
                    wrong.append(f"named after {row[3]}, bound {bound} s")
            if ALL and "n1" in on and heal:  # the host of the batch script: SLURM's own to find
                training.wait(lambda: int(training.poll().get("Restarts", 0)) > victim.restart, 120,
                              "SLURM requeues the job")
            healing.close()
            self._finish(training, fault)
            row[7] = "; ".join(training.problems(self.references[per_node])) or "yes"
            self.assertEqual(wrong, [], attempt.text() if attempt else "")
            self.assertEqual(row[7], "yes")
            if fault.exit == 75 and moment != "start-up":
                self.assertEqual(training.updates_executed(), self.job.updates)

    def _left(self, training, victim):
        return [p for p in training.ranks() if (p.job, p.restart) == (victim.job, victim.restart)]

    def _wait_seen(self, training, moment, fault, victim, attempt):
        """Until there is a verdict, or all other ranks are gone."""
        def seen():
            return (attempt and attempt.verdict()) or not [
                p for p in self._left(training, victim)
                if p.pid != victim.pid and (p.node != victim.node or not fault.whole_node)]
        # Before the ranks know each other only SLURM sees it, or gaccd's own bound of 300 s.
        limit = 340 if moment == "start-up" else fault.bound + 20
        training.wait(seen, limit, "somebody sees it", 0.02)

    def _finish(self, training, fault):
        if fault.name == "cancel":
            self.assertEqual(training.wait_ended()["JobState"], "CANCELLED")
            training.submit()
        # SLURM may have requeued it itself (which takes 30 s: cred_expire), or tells a node that was
        # cut off only after two minutes that its processes have to end.
        training.finish(timeout=240, by_hand=False)


if __name__ == "__main__":
    support.main(settings={"SlurmdTimeout": 30},
                 disks={"small1/run/ckpt": DISK, "small2/run/ckpt": DISK})
