#!/usr/bin/env python3
"""A run that continues with other numbers of nodes and ranks takes the same samples, with the same weight.

The ledger job of jobs.py is saved after every update: two checkpoints that follow each other differ
exactly in the weights of the samples that the update between them took.
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "cluster"))

import support
from jobs import ledger_job
from training import Training, export, weights

# Nodes x ranks of each.
OTHERS = [(3, 2), (1, 2), (5, 1), (1, 5)]


class Elastic(support.ClusterTest):
    def test_the_same_samples_on_any_number_of_ranks(self):
        folder = self.work("elastic")
        job = ledger_job(folder)
        flags = ["--save-every-updates=1", "--keep=1000"]
        reference = Training(self.cluster, folder / "reference", job, *flags, nodes=4, per_node=2)
        reference.submit().finish(by_hand=False)
        self.assertEqual(reference.problems(), [])
        expected = self._sets(reference)
        self._assert_epochs(job, expected)

        run = Training(self.cluster, folder / "moved", job, *flags, nodes=4, per_node=2)
        for number, (nodes, per_node) in enumerate([(4, 2), *OTHERS]):
            run.options[:2] = [f"-N{nodes}", f"--ntasks-per-node={per_node}"]
            run.submit()
            if number < len(OTHERS):
                stop_at = (number + 1) * job.updates // (len(OTHERS) + 1)
                self._stop(run, stop_at)
            else:
                run.finish(by_hand=False)
            self.assertEqual(run.last().events("run_start")[0]["world"], nodes * per_node)
        self.assertEqual(run.problems(), [])
        moved = self._sets(run)
        for step, samples in expected.items():
            self.assertEqual(moved[step], samples, f"update {step}")
        for one, other in zip(weights(run.folder / "final.safetensors"),
                              weights(reference.folder / "final.safetensors"), strict=True):
            self.assertAlmostEqual(one, other, delta=1e-6 * max(1, abs(other)))
        worlds = [a.events("run_start")[0]["world"] for a in run.attempts()]
        print("ranks", worlds, "first updates", [a.steps()[0]["step"] for a in run.attempts()], end=" ")

    def _stop(self, run, update):
        """As a preemption does: SIGTERM to all ranks. The job is cancelled, to be sent elsewhere."""
        run.wait(lambda: (run.poll(), run.step() >= update)[1], 120, f"update {update}", 0.01)
        self.cluster.run(["scancel", run.id])
        run.wait_ended()
        verdict = run.last().verdict()
        self.assertEqual(verdict["exit"], 75, verdict)

    def _sets(self, training):
        """The samples of every update, from the checkpoints."""
        newest = {}
        for step, epoch, name, finished in training.generations():
            if finished and "micro" not in name and epoch > newest.get(step, (0, ""))[0]:
                newest[step] = (epoch, name)
        out = training.folder / "weights.safetensors"
        sets, before = {}, None
        for step in sorted(newest):
            now = export(training.run_dir / "ckpt" / newest[step][1], out)
            if before is not None and step - 1 in newest:
                sets[step] = {i for i, (a, b) in enumerate(zip(before, now)) if a != b}
            before = now
        return sets

    def _assert_epochs(self, job, sets):
        """Every update has its number of samples, every epoch has every sample once."""
        self.assertEqual(sorted(sets), list(range(2, job.updates + 1)))
        for step, samples in sets.items():
            self.assertEqual(len(samples), job.batch_of(step), f"update {step}")
        per_epoch = job.updates_per_epoch
        for epoch in range(1, job.epochs):
            taken = [i for step in range(epoch * per_epoch + 1, (epoch + 1) * per_epoch + 1)
                     for i in sets[step]]
            self.assertEqual(sorted(taken), list(range(job.samples)), f"epoch {epoch + 1}")


if __name__ == "__main__":
    support.main(nodes=5)
