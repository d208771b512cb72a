#!/usr/bin/env python3
"""What goes wrong on a cluster: ranks that die or hang, and flags that do not fit the job."""

import signal
import time

from support import EXAMPLES, FASHION_MNIST, ClusterTest, main, program

BOUND = 10  # seconds until the others give a silent rank up (--bound)
SLACK = 60  # for a loaded machine, and SLURM's ways of ending processes


class Faults(ClusterTest):
    def test_a_killed_rank_ends_the_job(self):
        run = self._training()
        self._rank(5).signal(signal.SIGKILL)
        fields = self._assert_ends(run)
        self.assertEqual(fields["ExitCode"], "93:0")  # as below: it would be requeued, whatever MPI makes of it
        self.assertRegex(run.text(), r"rank 5 on n3 has ended")

    def test_a_stopped_rank_is_named(self):
        run = self._training()
        self._rank(3).signal(signal.SIGSTOP)
        fields = self._assert_ends(run)
        self.assertEqual(fields["ExitCode"], "93:0")  # 69 would be requeued, see _training()
        self.assertRegex(run.text(), r"gaccd: exit code 69\b")
        self.assertRegex(run.text(), r"rank 3\b.*n2")

    def test_srun_without_pmix_is_refused(self):
        done = self._train(["srun", "-N4", "--ntasks-per-node=2", "--mpi=none"])
        self.assertEqual(done.returncode, 78, done.stderr)
        self.assertRegex(done.stderr, r"SLURM step has 8 tasks.*--mpi=pmix")

    def test_another_world_than_the_step_is_refused(self):
        launcher = ["srun", "-N2", "-n2", "--mpi=pmix", "--kill-on-bad-exit=0",
                    "env", "SLURM_STEP_NUM_TASKS=3"]
        done = self._train(launcher)
        self.assertEqual(done.returncode, 78, done.stderr)
        self.assertRegex(done.stderr, r"\b2\b.*SLURM_STEP_NUM_TASKS.*\b3\b|"
                                      r"SLURM_STEP_NUM_TASKS.*\b3\b.*\b2\b|"
                                      r"\b3\b.*SLURM_STEP_NUM_TASKS.*\b2\b")

    def test_flags_must_agree_with_the_job(self):
        launcher = ["srun", "-N4", "--ntasks-per-node=2", "--mpi=pmix", "--kill-on-bad-exit=0"]
        done = self._train(launcher, "--nodes=30")
        self.assertEqual(done.returncode, 78, done.stderr)
        self.assertRegex(done.stderr, r"--nodes=30.*\b4\b")
        done = self._train(launcher, "--gpus-per-node=8")
        self.assertEqual(done.returncode, 78, done.stderr)
        self.assertRegex(done.stderr, r"--gpus-per-node=8.*\b2\b")

    def test_a_job_that_cannot_work_fails_with_its_code(self):
        run = self.submit("fashion-mnist.sbatch", "--target-batch=0")
        fields = self.cluster.wait_job(run.job, timeout=120)
        self.assertEqual((fields["JobState"], fields["ExitCode"]), ("FAILED", "64:0"))
        self.assertIn("target", run.text())

    def _training(self):
        """A job that would train for ever, after its third update."""
        run = self.submit("fashion-mnist.sbatch", "--epochs=100000", f"--bound={BOUND}",
                          GACCD_MAX_REQUEUE="0")
        self.wait_until(lambda: len(run.events("step")) >= 3, 180, "three updates")
        return run

    def _rank(self, number):
        return next(p for p in self.cluster.processes("gaccd") if p.rank == number)

    def _assert_ends(self, run):
        """The job fails within the bound, and leaves no process behind. Returns its fields."""
        start = time.monotonic()
        fields = self.cluster.wait_job(run.job, timeout=BOUND + SLACK)
        print(f"ended after {time.monotonic() - start:.1f} s", end=" ", flush=True)
        self.assertEqual(fields["JobState"], "FAILED")
        self.assertNotEqual(fields["ExitCode"], "0:0")
        self.wait_until(lambda: not self.cluster.processes("gaccd"), SLACK, "no gaccd left")
        return fields

    def _train(self, launcher, *flags):
        folder = self.work(f"{self.id().rsplit('.', 1)[-1]}{len(flags)}{time.monotonic_ns()}")
        return self.cluster.run([*launcher, program("GACCD"), "train",
                                 f"--job={EXAMPLES / 'fashion-mnist.txtpb'}",
                                 f"--run-dir={folder}", "--bound=20", *flags],
                                timeout=120, check=False)


if __name__ == "__main__":
    main(needs=[FASHION_MNIST])
