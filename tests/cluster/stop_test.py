#!/usr/bin/env python3
"""Stopping and starting again: signals, files, time limit, preemption; what the job script makes of it."""

import json
import signal
import subprocess
import time

from support import EXAMPLES, FASHION_MNIST, SOURCE, ClusterTest, Run, main, program

# Trains until it is stopped, and saves only when it stops or is asked to.
ENDLESS = ["--epochs=100000", "--save-every-updates=1000000", "--bound=60"]
TWO_NODES = ["--nodes=2", "--ntasks-per-node=2"]
SLACK = 120  # seconds, for a machine that does other things, too


class Stopping(ClusterTest):
    def test_a_signal_saves_requeues_and_the_next_attempt_continues(self):
        run = self._training()
        self.cluster.run(["scancel", "--signal=USR2", run.job])
        last = self._assert_requeued(run, "SIGUSR2", cancel=False)
        again = self._start_again(run, 1)
        self.assertGreater(again.events("step")[0]["step"], last)
        self.assertEqual(again.events("step")[0]["step"], self._ledger(run)[0]["last_step"] + 1)
        # STOP is for good: saved, but not requeued, and a further start does nothing.
        (run.dir / "STOP").touch()
        fields = self.cluster.wait_job(run.job, timeout=SLACK)
        self.assertEqual((fields["JobState"], fields["ExitCode"]), ("FAILED", "93:0"))
        verdict = json.loads((again.attempt / "verdict.json").read_text())
        self.assertEqual((verdict["verdict"], verdict["exit"]), ("norequeue", 93))
        self.assertIn("the file STOP", verdict["reason"])
        self.assertEqual([e["verdict"] for e in self._ledger(run)], ["requeue", "norequeue"])
        self.assertEqual(self._ledger(run)[1]["last_step"], verdict["last_step"])

    def test_a_signal_for_the_job_script_alone_reaches_the_ranks(self):
        # As #SBATCH --signal=B:USR1@120 sends it.
        run = self._training()
        self.cluster.run(["scancel", "--batch", "--signal=USR1", run.job])
        self._assert_requeued(run, "SIGUSR1")

    def test_sigterm_of_one_rank_stops_all(self):
        run = self._training()
        self.cluster.processes("gaccd", "n2")[0].signal(15)
        self._assert_requeued(run, "SIGTERM (1 of 4 ranks)")

    def test_the_time_limit_is_seen_in_time(self):
        run = self._training(options=[*TWO_NODES, "--time=1"])
        self._assert_requeued(run, "the job's time limit", timeout=60 + SLACK)

    def test_preemption_saves_within_the_grace(self):
        run = self._training(options=["--nodes=4", "--ntasks-per-node=2", "--exclusive"])
        urgent = self.cluster.run(["sbatch", "--parsable", "--partition=urgent", "--nodes=4",
                                   "--exclusive", "--wrap=true"]).stdout.strip()
        self._assert_requeued(run, "SIGTERM")
        self.assertEqual(self.cluster.wait_job(urgent, timeout=SLACK)["JobState"], "COMPLETED")

    def test_a_preempted_pipeline_is_continued_by_whole_models(self):
        """2 pipelines of 3 stages, whose states are divided in their node; then 4 ranks with all of a GPT.
        No more ranks: Linux 6.18 stalls for a minute if many call sched_yield on few cores."""
        folder, run_dir = self.work("pipeline"), self.cluster.dir / "work" / "pipeline" / "run"
        run = Run(self._submit_gpt(folder, run_dir, 1, 6, "--pipeline=3", "--shard=node"), folder, run_dir)
        self.wait_until(lambda: len(run.events("step")) >= 20, 180, "20 updates")
        urgent = self.cluster.run(["sbatch", "--parsable", "--partition=urgent", "--nodes=4",
                                   "--exclusive", "--wrap=true"]).stdout.strip()
        last = self._assert_requeued(run, "SIGTERM")
        self.assertEqual(self.cluster.wait_job(urgent, timeout=SLACK)["JobState"], "COMPLETED")
        again = Run(self._submit_gpt(folder, run_dir, 1, 4), folder, run_dir)
        self.assertEqual(self.cluster.wait_job(again.job, timeout=SLACK)["JobState"], "COMPLETED", again.text())
        subprocess.run([program("GACCD"), "train", f"--job={folder}/job.txtpb", f"--run-dir={folder}/alone",
                        "--local-ranks=1"], check=True, capture_output=True, timeout=SLACK)
        (alone,) = (folder / "alone").glob("attempts/0*/events.jsonl")
        expected = [e for e in map(json.loads, alone.read_text().splitlines()) if e["ev"] == "step"]
        found = [*run.events("step"), *again.events("step")]
        self.assertLess(last, len(expected))
        self.assertEqual([e["step"] for e in found], [e["step"] for e in expected])
        for one, other in zip(found, expected):
            self.assertEqual(one["samples_total"], other["samples_total"])
            self.assertAlmostEqual(one["loss"], other["loss"], delta=1e-6 * other["loss"])

    def test_a_file_save_saves_and_continues(self):
        run = self._training()
        self.assertEqual(self._checkpoints(run), [])
        (run.dir / "SAVE").touch()
        self.wait_until(lambda: self._checkpoints(run), SLACK, "a checkpoint")
        self.wait_until(lambda: not (run.dir / "SAVE").exists(), SLACK, "SAVE is removed")
        step = run.events("step")[-1]["step"]
        self.wait_until(lambda: run.events("step")[-1]["step"] > step + 3, SLACK, "it continues")
        self.cluster.run(["scancel", "--signal=HUP", run.job])
        # The signal may reach the ranks on both sides of an update's end: then there are two more.
        self.wait_until(lambda: len(self._checkpoints(run)) > 1, SLACK, "another one, by SIGHUP")
        self._cancel(run)

    def test_a_second_signal_exits_without_a_save(self):
        run = self._training("--heartbeat-seconds=60")
        ranks = self.cluster.processes("gaccd")
        # No rank can decide without the last one, so both requests arrive before a decision.
        ranks[-1].signal(signal.SIGSTOP)
        time.sleep(1)
        ranks[0].signal(signal.SIGTERM)
        time.sleep(5)  # two signals within 2 s count as one request, and a busy machine delivers late
        ranks[0].signal(signal.SIGTERM)
        ranks[-1].signal(signal.SIGCONT)
        verdict = self.wait_until(lambda: self._verdict(run), SLACK, "a verdict")
        self.assertEqual((verdict["verdict"], verdict["exit"]), ("requeue", 75))
        self.assertIn("a second request", verdict["reason"])
        self.assertTrue(verdict["reason"].endswith(", not saved"), verdict)
        self.assertEqual(self._checkpoints(run), [])
        self.wait_until(lambda: self._pending(run.job), SLACK, "pending again")  # else that undoes the cancelling
        self._cancel(run)

    def test_an_array_requeues_its_own_task(self):
        folder = self.work("array")
        script = folder / "array.sbatch"
        script.write_text(
            "#!/bin/bash\n#SBATCH --nodes=1 --ntasks-per-node=2 --requeue --open-mode=append\n"
            f'export GACCD_RUN_DIR={folder}/run-$SLURM_ARRAY_TASK_ID\n'
            f'exec "{EXAMPLES}/../launch" "{EXAMPLES}/fashion-mnist.txtpb" {" ".join(ENDLESS)}\n')
        job = self.cluster.sbatch(script, options=["--array=3,5"], cwd=folder,
                                  env={"GACCD": program("GACCD")})
        runs = {}
        for task in (3, 5):
            runs[task] = self._array_run(folder, job, task)
        self.cluster.run(["scancel", "--signal=USR2", f"{job}_5"])
        self.wait_until(lambda: self._verdict(runs[5]), SLACK, "a verdict")
        fields = self.wait_until(lambda: self._pending(f"{job}_5"), SLACK, "task 5 is pending again")
        self.assertEqual(fields["Restarts"], "1")
        self.assertEqual(self.cluster.job(f"{job}_3")["JobState"], "RUNNING")
        self.assertIsNone(self._verdict(runs[3]))
        self.cluster.run(["scancel", job])
        self.wait_until(lambda: not self.cluster.processes("gaccd"), SLACK, "no gaccd left")

    def test_a_second_job_on_one_run_folder_names_the_owner(self):
        run = self._training(options=["--nodes=1", "--ntasks-per-node=2"])
        other = self._submit_into(run)
        fields = self.cluster.wait_job(other.job, timeout=SLACK)
        self.assertEqual((fields["JobState"], fields["ExitCode"]), ("FAILED", "78:0"))
        self.assertRegex(other.text(), rf"job {run.job}\b")
        # It is as fast as any start: the ranks find out before they prepare anything.
        self.assertIsNone(self._verdict(run))
        step = run.events("step")[-1]["step"]
        self.wait_until(lambda: run.events("step")[-1]["step"] > step, SLACK, "the first continues")
        self._cancel(run)

    def test_a_complete_run_is_reported_as_complete(self):
        run = self.submit("fashion-mnist.sbatch", "--max-updates=3", options=TWO_NODES, GACCD_COMMENT="1")
        fields = self.cluster.wait_job(run.job, timeout=SLACK)
        self.assertEqual(fields["JobState"], "COMPLETED")
        self.assertRegex(fields["Comment"], r"^gaccd:v1;updates=3;samples=3000;goodput=0\.\d+;exit=0$")
        self.assertTrue((run.dir / "DONE").read_text().startswith("3 updates, 3000 samples\n"))
        self.assertEqual([e["verdict"] for e in self._ledger(run)], ["done"])
        for flag, code, line in (("--max-updates=3", "0:0", "3 updates"), ("--seed=2", "78:0", "3 updates"),
                                 ("--max-updates=4", "0:0", "4 updates")):
            again = self._submit_into(run, [flag])
            self.assertEqual(self.cluster.wait_job(again.job, timeout=SLACK)["ExitCode"], code, again.text())
            self.assertTrue((run.dir / "DONE").read_text().startswith(line))

    def test_a_run_without_progress_is_held(self):
        run = self.submit("fashion-mnist.sbatch", *ENDLESS, options=["--nodes=1", "--ntasks-per-node=2"])
        for attempt in range(4):
            now = self._attempt(run, attempt)
            self.wait_until(lambda: now.events("step"), SLACK, f"updates of attempt {attempt}")
            for rank in self.cluster.processes("gaccd"):
                rank.signal(9)
            if attempt < 3:
                self.wait_until(lambda: self._pending(run.job), SLACK, "pending again")
                self._start_now(run)
        fields = self.cluster.wait_job(run.job, timeout=SLACK)
        self.assertEqual(fields["ExitCode"], "93:0")
        self.assertIn("3 restarts in a row", (run.dir / "HOLD").read_text())
        self.assertEqual([e["verdict"] for e in self._ledger(run)], ["requeue"] * 3 + ["norequeue"])

    # -- helpers ---------------------------------------------------------------------------------

    def _training(self, *flags, options=TWO_NODES, updates=3):
        run = self.submit("fashion-mnist.sbatch", *ENDLESS, *flags, options=options)
        self.wait_until(lambda: len(run.events("step")) >= updates, 180, f"{updates} updates")
        return run

    def _submit_gpt(self, folder, run_dir, nodes, ranks_of_each, *flags):
        """Ragged: 4 ranks take 6, 5, 6 and 5 samples, 2 pipelines 11 of at most 2. Returns the job's number."""
        data = SOURCE / "tests" / "golden" / "models"
        (folder / "job.txtpb").write_text(
            'name: "gpt" model { gpt { vocabulary: 23 context: 10 layers: 2 heads: 3 width: 12 } '
            'loss { softmax_cross_entropy {} } } '
            f'data {{ train {{ tokens {{ tokens: "{data}/gpt_tokens.npy" labels: "{data}/gpt_labels.npy" '
            'vocabulary: 23 } } } batch { target: 22 micro: 2 last_cycle: CARRY } '
            'optimizer { lr: 0.0003 sgd { momentum: 0.9 } } clip_norm: 1 epochs: 0 max_updates: 2000')
        script = folder / "gpt.sbatch"
        script.write_text("#!/bin/bash\n#SBATCH --requeue --open-mode=append --overcommit\n"
                          f'exec "{EXAMPLES}/../launch" "{folder}/job.txtpb" {" ".join(flags)}\n')
        return self.cluster.sbatch(
            script, options=[f"--nodes={nodes}", f"--ntasks-per-node={ranks_of_each}", "--exclusive"], cwd=folder,
            env={"GACCD": program("GACCD"), "GACCD_RUN_DIR": run_dir})

    def _submit_into(self, run, flags=ENDLESS):
        """Another job of the same example with the same run folder."""
        folder = self.work(f"{run.folder.name}-{flags[-1][2:]}")
        job = self.cluster.sbatch(EXAMPLES / "fashion-mnist.sbatch", *flags, cwd=folder,
                                  options=["--nodes=1", "--ntasks-per-node=2"],
                                  env={"GACCD": program("GACCD"), "GACCD_RUN_DIR": run.dir})
        return Run(job, folder, run.dir)

    def _attempt(self, run, number):
        again = Run(run.job, run.folder, run.dir)
        again.attempt = run.dir / "attempts" / f"{number:03}-{run.job}"
        return again

    def _array_run(self, folder, job, task):
        run_dir = folder / f"run-{task}"
        self.wait_until(lambda: list(run_dir.glob("attempts/000-*/events.jsonl")), 180, "a start")
        number = next(run_dir.glob("attempts/000-*")).name.split("-")[1]
        run = Run(number, folder, run_dir)
        self.wait_until(lambda: len(run.events("step")) >= 3, 180, "three updates")
        return run

    def _start_now(self, run):
        """SLURM lets a requeued job wait for two minutes; an administrator can be quicker.

        Not too quick: slurmd refuses what was signed in the second in which the job was ended.
        """
        time.sleep(3)
        self.cluster.run(["scontrol", "update", f"jobid={run.job}", "StartTime=now"])

    def _start_again(self, run, number):
        self.wait_until(lambda: self._pending(run.job), SLACK, "pending again")
        self._start_now(run)
        again = self._attempt(run, number)
        self.wait_until(lambda: len(again.events("step")) >= 3, 180, "updates of the next attempt")
        return again

    def _pending(self, job):
        fields = self.cluster.job(job)
        return fields if fields["JobState"] == "PENDING" else None

    def _verdict(self, run):
        path = run.attempt / "verdict.json"
        return json.loads(path.read_text()) if path.exists() else None

    def _ledger(self, run):
        return [json.loads(line) for line in (run.dir / "ledger.jsonl").read_text().splitlines()]

    def _checkpoints(self, run):
        return sorted(p.parent.name for p in run.dir.glob("ckpt/step-*/MANIFEST"))

    def _assert_requeued(self, run, reason, timeout=SLACK, cancel=True):
        """The run stops with a save and is put back; the job is pending. Returns its last update."""
        start = time.monotonic()
        verdict = self.wait_until(lambda: self._verdict(run), timeout, "a verdict")
        print(f"stopped after {time.monotonic() - start:.1f} s", end=" ", flush=True)
        self.assertEqual((verdict["verdict"], verdict["exit"]), ("requeue", 75), verdict)
        self.assertIn(reason, verdict["reason"])
        self.assertTrue(verdict["reason"].endswith(", saved"), verdict["reason"])
        self.assertEqual(verdict["last_step"], run.events("step")[-1]["step"])
        (name,) = self._checkpoints(run)
        self.assertEqual(int(name.split("-")[1]), verdict["last_step"])
        fields = self.wait_until(lambda: self._pending(run.job), timeout, "pending again")
        self.assertEqual(fields["Restarts"], "1")
        (entry,) = self._ledger(run)
        self.assertEqual((entry["verdict"], entry["exit"], entry["last_step"]),
                         ("requeue", 75, verdict["last_step"]))
        if cancel:
            self._cancel(run)
        return verdict["last_step"]

    def _cancel(self, run):
        self.cluster.run(["scancel", run.job], check=False)
        self.wait_until(lambda: not self.cluster.processes("gaccd"), SLACK, "no gaccd left")


if __name__ == "__main__":
    main(needs=[FASHION_MNIST])
