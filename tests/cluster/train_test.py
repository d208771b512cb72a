#!/usr/bin/env python3
"""Trains Fashion-MNIST the way a user does: sbatch of an example script, 4 nodes x 2 ranks."""

import json
import os
import re

from support import EXAMPLES, FASHION_MNIST, ClusterTest, Run, main, program

FASHION_JOB = EXAMPLES / "fashion-mnist.txtpb"
HOSTS = ["n1", "n1", "n2", "n2", "n3", "n3", "n4", "n4"]  # by rank


class Train(ClusterTest):
    def test_fashion_mnist_with_a_target_that_does_not_divide(self):
        run = self.submit("fashion-mnist.sbatch", "--target-batch=1000", "--micro-batch=32",
                          "--epochs=3")
        self._assert_completed(run, timeout=600)

        (plan,) = run.events("plan")
        self.assertEqual((plan["nodes"], plan["world"], plan["base_batch"]), (4, 8, 256))
        self.assertEqual((plan["target_batch"], plan["effective_batch"]), (1000, 1000))
        steps = run.events("step")
        self.assertEqual([s["step"] for s in steps], list(range(1, 181)))
        self.assertEqual({(s["samples"], s["target"]) for s in steps}, {(1000, 1000)})
        self.assertEqual(steps[-1]["samples_total"], 180_000)
        accuracy = [e["value"] for e in run.events("eval") if e["metric"] == "accuracy"]
        self.assertEqual(len(accuracy), 3)
        self.assertGreaterEqual(accuracy[-1], 0.85)
        self._assert_every_rank_on_its_host(run)
        self.assertEqual(os.readlink(run.attempt.parent / "latest"), run.attempt.name)

    def test_the_last_cycle_is_one_smaller_exact_update(self):
        # 60000 = 8 x 7001 + 3992, and 7001 = 8 ranks x 875 + 1.
        run = self.submit("fashion-mnist.sbatch", "--target-batch=7001", "--epochs=1")
        self._assert_completed(run, timeout=300)
        samples = [s["samples"] for s in run.events("step")]
        self.assertEqual(samples, [7001] * 8 + [3992])

    def test_one_node_example(self):
        run = self.submit("one-node.sbatch", GACCD_CHECK="1")
        self._assert_completed(run, timeout=300)
        self.assertIn("4 ranks on 1 node; the same on all:", (run.attempt / "check.txt").read_text())
        steps = run.events("step")
        self.assertEqual({s["samples"] for s in steps}, {128})
        # y = W x + noise of 0.1: nothing beats a squared error of 0.01.
        self.assertLess(steps[-1]["loss"], 0.1)
        self.assertLess(steps[-1]["loss"], 0.1 * steps[0]["loss"])

    def test_the_reference_network_has_four_micro_batches_of_8(self):
        run = self.submit("one-node.sbatch", "--max-updates=5", GACCD_JOB="mlp.txtpb")
        self._assert_completed(run, timeout=300)
        (plan,) = run.events("plan")
        self.assertEqual((plan["accum_steps"], plan["micro_batch"], plan["effective_batch"]), (4, 8, 128))

    def test_the_3072_example_on_fewer_nodes(self):
        # sbatch's options win over the script's: 4 nodes x 2 ranks instead of 30 x 8.
        run = self.submit("3072.sbatch", "--max-updates=2",
                          options=["--nodes=4", "--ntasks-per-node=2"])
        self._assert_completed(run, timeout=300)
        self.assertEqual([s["samples"] for s in run.events("step")], [3072, 3072])

    def test_three_ranks_on_two_nodes(self):
        run = self.submit("fashion-mnist.sbatch", "--target-batch=1000", "--max-updates=3",
                          options=["--nodes=2", "--ntasks=3", "--ntasks-per-node=2"])
        self._assert_completed(run, timeout=300)
        self.assertEqual([s["samples"] for s in run.events("step")], [1000] * 3)
        self.assertEqual(sorted(r["host"] for r in run.ranks()), ["n1", "n1", "n2"])

    def test_mpirun_inside_a_job(self):
        # mpirun starts one daemon a node as the SLURM step; the ranks are more than that step's tasks.
        folder = self.work("mpirun")
        script = folder / "mpirun.sbatch"
        script.write_text("#!/bin/bash\n"
                          f"mpirun --allow-run-as-root -n 4 {program('GACCD')} train"
                          f" --job={FASHION_JOB} --run-dir={folder}/run --max-updates=2\n")
        job = self.cluster.sbatch(script, options=["-N2", "--ntasks-per-node=2"], cwd=folder)
        fields = self.cluster.wait_job(job, timeout=120)
        self.assertEqual((fields["JobState"], fields["ExitCode"]), ("COMPLETED", "0:0"))
        run = Run(job, folder, folder / "run")
        self.assertEqual([s["samples"] for s in run.events("step")], [1000, 1000])
        self.assertEqual([r["host"] for r in run.ranks()], ["n1", "n1", "n2", "n2"])

    def test_one_rank_has_the_same_losses_as_hosts_of_different_speed(self):
        args = ("--target-batch=1000", "--max-updates=5")
        many = self.submit("fashion-mnist.sbatch", *args, "--speed=n4:0.5")
        self._assert_completed(many, timeout=300)
        self.assertEqual([plan["loads"] for plan in many.events("plan")], ["6x143,2x71"])
        alone = self.work("alone")
        self.cluster.run(["srun", "-n1", "--mpi=pmix", program("GACCD"), "train",
                          f"--job={FASHION_JOB}", f"--run-dir={alone}", *args], timeout=300)
        (events,) = alone.glob("attempts/0*/events.jsonl")
        losses = re.findall(r'"ev":"step".*?"loss":([0-9.e+-]+)', events.read_text())
        for one, other in zip(losses, many.events("step"), strict=True):
            self.assertAlmostEqual(float(one), other["loss"], delta=1e-5)

    def _assert_completed(self, run, timeout):
        fields = self.cluster.wait_job(run.job, timeout)
        self.assertEqual((fields["JobState"], fields["ExitCode"]), ("COMPLETED", "0:0"))
        (verdict,) = run.events("verdict")
        self.assertEqual((verdict["verdict"], verdict["exit"]), ("done", 0))
        status = run.status()
        self.assertEqual((status["state"], status["exit"], status["job"]), ("done", 0, run.job))

    def _assert_every_rank_on_its_host(self, run):
        ranks = run.ranks()
        self.assertEqual([int(r["rank"]) for r in ranks], list(range(8)))
        self.assertEqual([r["host"] for r in ranks], HOSTS)
        self.assertEqual([r["node"] for r in ranks], ["0", "0", "1", "1", "2", "2", "3", "3"])
        self.assertEqual([r["local"] for r in ranks], ["0", "1"] * 4)
        for rank, host in enumerate(HOSTS):  # and each one's own log says so too
            (log,) = run.attempt.glob(f"log/r{rank:05}.*")
            self.assertIn(f"rank {rank} of 8 on {host},", log.read_text())
            own = (run.attempt / "ev" / f"r{rank:05}.jsonl").read_text().splitlines()
            ranks = {(e["rank"], e["host"], e["ev"]) for e in map(json.loads, own)}
            self.assertEqual(ranks, {(rank, host, "rank_step")})
            self.assertEqual(sum(json.loads(line)["updates"] for line in own), len(run.events("step")))


if __name__ == "__main__":
    main(needs=[FASHION_MNIST])
