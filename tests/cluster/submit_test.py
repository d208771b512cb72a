#!/usr/bin/env python3
"""gaccd submit from a login shell of a user who is not root, and what the run's files tell from there on.

A run is preempted, a rank of another one is killed; then arrays, chains, and what SLURM refuses.
"""

import itertools
import json
import os
import re
import shlex
import shutil
import signal
import sys
from pathlib import Path

from support import EXAMPLES, FASHION_MNIST, ClusterTest, Run, main, program

sys.path[:0] = [str(Path(__file__).resolve().parents[1] / "unit" / "inspect" / name) for name in ("export", "report")]
import report_page  # noqa: E402
import scrape  # noqa: E402

USER, GROUP = 5, 60  # games, in every Debian
SLACK = 120  # seconds, for a machine that does other things, too
NAME = "it's `touch CANARY` \"$(touch CANARY)\" 100%j #1 hetjob"


class Submit(ClusterTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        place = cls.cluster.dir / "work" / "installed"  # the user may be kept from the folder of the sources
        place.mkdir()
        cls.gaccd = shutil.copy(program("GACCD"), place)
        cls.job = shutil.copy(EXAMPLES / "fashion-mnist.txtpb", place)

    def test_a_preempted_run_continues_and_the_script_alone_runs_again(self):
        folder = self._home("user")
        self._gaccd(folder, "submit", "--nodes=2", "--gpus-per-node=2", "--target-batch=1000", f"--job={self.job}",
                    f"--run={NAME}", "--epochs=100000", "--time=30", "--", "--exclusive",
                    "--comment=it's \"$(x)\" \\ #1")
        run = self._run(folder / "runs" / NAME)
        watched = self._watch(folder, run)
        self.assertEqual(os.stat(run.dir).st_uid, USER)
        self._wait_updates(run, 3)
        self.wait_until(lambda: watched()[-1] == "running", SLACK, "status --watch shows it run")
        fields = self.cluster.job(run.job)
        self.assertEqual((fields["UserId"], fields["NumNodes"]), (f"games({USER})", "2"))
        self.assertIn("Comment=it's \"$(x)\" \\ #1 \n", self.cluster.run(["scontrol", "show", "job", run.job]).stdout)
        self.assertRegex(self._gaccd(folder, "status", run.dir), rf"state +(starting|running),[^\n]*\nsubmitted +job {run.job},")

        urgent = self.cluster.sbatch(self._true(folder), options=["--partition=urgent", "--nodes=4", "--exclusive"])
        self.wait_until(lambda: self.cluster.job(run.job).get("Restarts") == "1", SLACK, "it is preempted")
        self.cluster.wait_job(urgent, timeout=SLACK)
        (first,) = self._ledger(run)
        self.assertEqual(first["verdict"], "requeue")
        self.wait_until(lambda: watched()[-1] == "stopped", SLACK, "status --watch shows it stopped")
        self._begin_now(run.job)
        again = self._run(run.dir, restart=1)
        self._wait_updates(again, 1)
        self.assertEqual(again.events("step")[0]["step"], first["last_step"] + 1)
        self.wait_until(lambda: watched()[-1] == "running", SLACK, "status --watch shows it continue")

        self._gaccd(folder, "stop", run.dir)
        self.assertEqual(self.cluster.wait_job(run.job, timeout=SLACK)["ExitCode"], "93:0")
        self.wait_until(lambda: watched()[-1] == "exit", SLACK, "status --watch ends")
        (run.dir / "STOP").unlink()
        last = self._ledger(run)[-1]["last_step"]
        said = self._shell("/", f"sbatch --parsable {shlex.quote(str(run.dir))}/submit.sbatch --max-updates={last + 2}")
        job = said.strip()
        self.assertEqual(self.cluster.wait_job(job, timeout=SLACK)["ExitCode"], "0:0", self._output(run, job))
        self.assertIn("DONE", os.listdir(run.dir))
        self.assertIn("complete", self._gaccd(folder, "doctor", run.dir))
        self.assertIn(f"job {job}, ", self._output(run, job))
        self.assertEqual(watched(), ["running", "stopped", "running", "stopped", "exit"])
        attempts = [run, again, self._run(run.dir, job=job)]
        self._assert_reported(folder, run, attempts)
        self._assert_scraped(folder, job, attempts)
        self.assertEqual(list(folder.rglob("CANARY")), [])

    def test_doctor_names_the_host_of_a_killed_rank(self):
        folder = self._home("killed")
        self._shell(folder, "GACCD_MAX_REQUEUE=0 " + self._command(
            "submit", "--nodes=2", "--gpus-per-node=2", "--target-batch=1000", f"--job={self.job}", "--run=killed",
            "--epochs=100000"))
        run = self._run(folder / "runs" / "killed")
        self._wait_updates(run, 3)
        victim = next(p for p in self.cluster.processes("gaccd") if p.rank == 3)
        victim.signal(signal.SIGKILL)
        self.assertEqual(self.cluster.wait_job(run.job, timeout=SLACK)["ExitCode"], "93:0")
        said = self._shell(folder, self._command("doctor", run.dir), code=1)
        self.assertIn(f"rank 3 on {victim.node} ", said)
        self.assertRegex(said, rf"suspected hosts\n +{victim.node}, in 1 of 1 attempts\n")
        self.assertIn(f"sbatch --exclude={victim.node}\n", said)

    def test_a_sweep_is_compared(self):
        folder = self._home("sweep")
        self._gaccd(folder, "submit", "--nodes=1", "--gpus-per-node=2", "--target-batch=1000", f"--job={self.job}",
                    "--run=lr", "--array", "--set", "optimizer.lr=0.1,0.001", "--epochs=1")
        runs = [self._run(folder / "runs" / "lr" / name) for name in ("0-optimizer.lr=0.1", "1-optimizer.lr=0.001")]
        for run in runs:
            self.assertEqual(self.cluster.wait_job(run.job, timeout=300)["ExitCode"], "0:0")
        table = [json.loads(line) for line in self._gaccd(folder, "runs", "runs/lr", "--format=json").splitlines()]
        self.assertEqual([row["phase"] for row in table], ["done", "done"])
        self.assertEqual({row["best_metric"] for row in table}, {"loss"}, "evaluation.metric of the job")
        self.assertLess(table[0]["best_value"], table[1]["best_value"])

    def test_later_jobs_of_a_chain_end_at_once_when_the_run_is_complete(self):
        folder = self._home("chain")
        self._gaccd(folder, "submit", "--nodes=1", "--gpus-per-node=2", "--target-batch=1000", f"--job={self.job}",
                    "--run=chain", "--chain=2", "--max-updates=2")
        jobs = self._jobs(folder / "runs" / "chain")
        self.assertEqual(len(jobs), 2)
        self.assertEqual([self.cluster.wait_job(job, timeout=SLACK)["ExitCode"] for job in jobs], ["0:0", "0:0"])
        attempts = [p.name for p in (folder / "runs" / "chain" / "attempts").glob("0*")]
        self.assertEqual(attempts, [f"000-{jobs[0]}"])

    def test_slurm_is_queried_and_its_answer_is_used(self):
        folder = self._home("ask")
        flags = ["--nodes=2", "--gpus-per-node=2", "--target-batch=1000", f"--job={self.job}", "--run=r", "--test-only"]
        self.assertRegex(self._gaccd(folder, "submit", *flags), r"sbatch: Job \d+ to start at .* 4 processors")
        refused = self._shell(folder, self._command("submit", *flags, "--partition=none", "--chain=2"), code=71)
        self.assertIn("there is no partition none", refused)
        self.assertIn("invalid partition", refused)
        self.assertNotIn("--mpi", refused)
        self.assertFalse((folder / "runs").exists())

    # -- helpers ---------------------------------------------------------------------------------

    def _home(self, name):
        folder = self.work(name)
        os.chown(folder, USER, GROUP)
        return folder

    def _command(self, *args):
        return shlex.join(map(str, [self.gaccd, *args]))

    def _gaccd(self, folder, *args):
        return self._shell(folder, self._command(*args))

    def _shell(self, folder, command, code=0):
        """What a login shell of the user prints, both streams."""
        done = self.cluster.run(["setpriv", f"--reuid={USER}", f"--regid={GROUP}", "--clear-groups", "env", "-u",
                                 "SLURM_PMIX_FENCE", f"HOME={folder}", "bash", "-lc", command], cwd=folder, check=False)
        self.assertEqual(done.returncode, code, done.stdout + done.stderr)
        return done.stdout + done.stderr

    def _true(self, folder):
        script = folder / "true.sbatch"
        script.write_text("#!/bin/bash\ntrue\n")
        return script

    def _jobs(self, run_dir):
        lines = (run_dir / "submit.jsonl").read_text().splitlines()
        return json.loads(lines[-1])["jobs"].split(",")

    def _watch(self, folder, run):
        """Starts status --watch; a call of what is returned tells the states that it has shown so far."""
        out = folder / "watched"
        watch = f"{self._command('status', '--watch', run.dir)}; echo state exit"
        self._shell(folder, f"setsid --fork bash -c {shlex.quote(watch)} >watched 2>&1")
        def states():
            shown = re.findall(r"^state +(running|stopped|exit)", out.read_text(), re.M)
            return [state for state, _ in itertools.groupby(shown)] or [None]
        return states

    def _assert_reported(self, folder, run, attempts):
        """The page tells of all attempts, and its figures are those of the events."""
        self._gaccd(folder, "report", run.dir)
        (page,) = report_page.runs_of(run.dir / "report.html")
        self.assertEqual(len(page["attempts"]), len(attempts))
        for shown, attempt, verdict, why in zip(page["attempts"], attempts, ("requeue", "norequeue", "done"),
                                               ("SIGTERM", "STOP", "")):
            steps = [event["step"] for event in attempt.events("step")]
            self.assertEqual((shown["name"], shown["first_step"], shown["last_step"], shown["verdict"]),
                             (attempt.attempt.name, steps[0], steps[-1], verdict))
            self.assertIsNotNone(shown["exit"])
            self.assertIn(why, shown["reason"])
        last = attempts[-1].events("step")[-1]
        self.assertEqual(page["figures"]["samples"], last["samples_total"])
        losses = {}
        for piece in page["curves"]["loss"]["pieces"]:
            losses |= dict(zip(piece["steps"], piece["values"], strict=True))
        written = {event["step"]: event["loss"] for attempt in attempts for event in attempt.events("step")}
        self.assertEqual(losses, {step: written[step] for step in losses})
        self.assertLessEqual({attempt.events("step")[-1]["step"] for attempt in attempts}, losses.keys())

    def _assert_scraped(self, folder, job, attempts):
        """An operator's export reaches Prometheus by way of node_exporter."""
        prom = self._home("prom")
        self._gaccd(folder, "export", "runs", "--format=prometheus", f"--out={prom}/gaccd.prom")
        updates = sum(len(attempt.events("step")) for attempt in attempts)
        last = attempts[-1].events("step")[-1]
        with scrape.Prometheus(prom) as prometheus:
            for metric, value in (("gaccd_steps_total", updates), ("gaccd_step", last["step"]),
                                  ("gaccd_samples_total", last["samples_total"]), ("gaccd_loss", last["loss"]),
                                  ("gaccd_restarts_total", 2), ('gaccd_state{state="done"}', 1)):
                (row,) = prometheus.query(metric)
                self.assertEqual((row[0]["run"], row[0]["slurm_job_id"], float(row[1])), (NAME, job, value), metric)

    def _run(self, run_dir, restart=0, job=None):
        """The run of a job, or of the newest submission; a task of an array by its own number."""
        number = self.cluster.job(job or self._jobs(run_dir)[0])["JobId"]
        run = Run(number, run_dir, run_dir)
        run.attempt = run_dir / "attempts" / f"{restart:03}-{number}"
        return run

    def _wait_updates(self, run, count):
        self.wait_until(lambda: len(run.events("step")) >= count, 180, f"{count} updates")

    def _begin_now(self, job):
        """SLURM lets a requeued job wait for two minutes; an administrator can be quicker."""
        self.wait_until(lambda: self.cluster.job(job)["JobState"] == "PENDING", SLACK, "pending again")
        self.cluster.run(["sleep", "3"])  # slurmd refuses what was signed in the second in which the job was ended
        self.cluster.run(["scontrol", "update", f"jobid={job}", "StartTime=now"])

    def _ledger(self, run):
        return [json.loads(line) for line in (run.dir / "ledger.jsonl").read_text().splitlines()]

    def _output(self, run, job):
        return (run.dir / f"slurm-{job}.out").read_text()


if __name__ == "__main__":
    main(needs=[FASHION_MNIST, *(f"/usr/bin/{name}" for name in scrape.PROGRAMS)])
