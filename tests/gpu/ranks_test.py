#!/usr/bin/env python3
"""Ranks that share one GPU, over MPI and NCCL: they train what one rank trains, also as stages of a
pipeline or with a sharded optimiser; a killed or stopped rank is noticed within the bound, also where each has a GPU; without
--allow-gpu-sharing ranks that would share are refused.

usage: ranks_test.py GACCD [unittest arguments]     GACCD_TEST_DEVICE=cpu tries the test itself
"""
import json
import os
import shutil
import signal
import sys
import tempfile
import time
import unittest
from pathlib import Path

import support

GACCD = os.path.abspath(sys.argv.pop(1))
DEVICE = os.environ.get("GACCD_TEST_DEVICE", "cuda")
SHARED = ["--allow-gpu-sharing"] if DEVICE == "cuda" else []
GPUS, _ = support.count_gpus()
BOUND = 15  # seconds
START = 60  # for CUDA and NCCL of two processes to start
JOB = """
name: "gpu-ranks"
model {{
  layer {{ name: "fc1" linear {{ in: 40 out: 64 }} }}
  layer {{ name: "relu1" relu {{}} }}
  layer {{ name: "fc2" linear {{ in: 64 out: 48 }} }}
  layer {{ name: "relu2" relu {{}} }}
  layer {{ name: "fc3" linear {{ in: 48 out: 6 }} }}
  loss {{ mean_squared_error {{}} }}
}}
data {{ train {{ synthetic {{ samples: 1000 features: 40 outputs: 6 }} }} }}
batch {{ target: {target} micro: 16 }}
optimizer {{ lr: 0.05 sgd {{ momentum: 0.9 }} }}
epochs: {epochs}
clip_norm: 1
log_every: 5
{more}
"""


class GpuRanks(unittest.TestCase):
    def setUp(self):
        self.folder = Path(tempfile.mkdtemp(prefix="gaccd-gpu-ranks-"))
        self.addCleanup(shutil.rmtree, self.folder)

    def start(self, ranks, name, device=DEVICE, target=101, epochs=3, flags=(), environment=None, more=""):
        job = self.folder / f"{name}.txtpb"
        job.write_text(JOB.format(target=target, epochs=epochs, more=more))
        return support.Ranks(ranks, [GACCD, "train", f"--job={job}", f"--device={device}",
                                     f"--run-dir={self.folder / name}", f"--bound={BOUND}",
                                     f"--save-weights={self.folder / name}.safetensors", *flags],
                             environment)

    def trained(self, ranks, name, **kwargs):
        with self.start(ranks, name, **kwargs) as run:
            run.wait_for(lambda: run.process.poll() is not None, START + 30, f"{name} ends")
            codes = [run.code(rank) for rank in range(ranks)]
            self.assertEqual(codes, [0] * ranks, run.output())
        return support.read_safetensors(self.folder / f"{name}.safetensors")

    def test_two_ranks_train_what_one_rank_trains(self):
        # 101 samples do not divide; 1000 leave a smaller last update: every rank has other samples.
        cpu = self.trained(1, "cpu", device="cpu")
        one = self.trained(1, "one")
        two = self.trained(2, "two", flags=SHARED)
        again = self.trained(2, "again", flags=SHARED)
        other = self.trained(2, "other", target=100, flags=SHARED)
        self.assertLess(support.relative_difference(one, cpu), 1e-4)
        self.assertLess(support.relative_difference(two, one), 1e-4)
        self.assertLess(support.relative_difference(again, two), 1e-4)
        # The measure sees one sample more or less.
        self.assertGreater(support.relative_difference(other, two), 1e-3)

    def check_sharded(self, title, ranks, most, flags):
        """Every mode, and a whole optimizer that continues what a sharded one has saved."""
        worst = 0.0
        whole = self.trained(ranks, "whole", flags=flags)
        for mode in ("optimizer", "node", "node-optimizer"):
            sharded = self.trained(ranks, mode, flags=[*flags, f"--shard={mode}",
                                                       "--save-every-updates=12"])
            worst = max(worst, support.relative_difference(sharded, whole))
        saved, = (self.folder / "node").rglob("step-*12-*")
        self.assertTrue((saved / "MANIFEST").exists(), saved)
        continued = self.trained(ranks, "continued", flags=[*flags, f"--resume={saved}"])
        worst = max(worst, support.relative_difference(continued, whole))
        support.print_row(f"a sharded optimizer, {title}", worst <= most,
                          f"weights within {most} of a whole one's", f"{worst:.1e}")
        self.assertLessEqual(worst, most)

    def test_a_sharded_optimizer_trains_what_a_whole_one_trains(self):
        # A sum of two ranks has one order; with --deterministic all others have, too.
        self.check_sharded("2 ranks that share a GPU", 2, 0, [*SHARED, "--deterministic"])

    @unittest.skipUnless(DEVICE == "cuda", "needs a GPU")
    def test_a_sharded_optimizer_in_bf16(self):
        self.check_sharded("2 ranks that share a GPU, bf16", 2, 0,
                           [*SHARED, "--deterministic", "--precision=bf16"])

    @unittest.skipUnless(GPUS > 1, "needs two GPUs")
    def test_a_sharded_optimizer_with_one_gpu_per_rank(self):
        self.check_sharded(f"{min(GPUS, 4)} GPUs", min(GPUS, 4), 1e-5, ["--deterministic"])

    def test_two_stages_train_what_one_rank_trains(self):
        # 7 micro-batches an update, the last of 5 samples.
        one = self.trained(1, "whole")
        for ranks, schedule, shard in ((2, "GPIPE", "NONE"), (2, "ONE_F_ONE_B", "NONE"), (2, "ZERO_BUBBLE", "NONE"),
                                       (4, "ONE_F_ONE_B", "OPTIMIZER")):
            with self.subTest(ranks=ranks, schedule=schedule, shard=shard):
                stages = f"pipeline {{ stages: 2 schedule: {schedule} }} shard: {shard}"
                staged = self.trained(ranks, f"{schedule}-{shard}", flags=SHARED, more=stages)
                difference = support.relative_difference(staged, one)
                support.print_row(f"{ranks // 2} x 2 stages on a GPU, {schedule}, shard {shard}: weights of 1 rank",
                                  difference < 1e-4, "to 1e-4", f"{difference:.1e}")
                self.assertLess(difference, 1e-4)

    def steps(self, name):
        found = sorted((self.folder / name).glob("attempts/*/events.jsonl"))
        lines = found[0].read_text().splitlines(keepends=True) if found else []
        return sum('"ev":"step"' in line for line in lines if line.endswith("\n"))

    def check_noticed(self, name, number, where="that share a GPU", flags=(), environment=None):
        with self.start(2, name, epochs=1000000, flags=flags, environment=environment) as run:
            run.wait_for(lambda: self.steps(name) > 20, START, "20 updates")
            self.assertTrue(run.signal(1, number), run.output())
            begin = time.monotonic()
            run.wait_for(lambda: run.code(0) is not None, BOUND + 5, "rank 0 notices")
            seconds = time.monotonic() - begin
            support.print_row(f"{name} rank 1 of 2 {where} is noticed", seconds < BOUND,
                              f"within {BOUND} s", f"{seconds:.1f} s")
            self.assertEqual(run.code(0), 69, run.output())
            self.assertLess(seconds, BOUND, run.output())
            self.assertRegex(run.output(), r"rank 1 on \S+ (has ended|has been silent|did not enter|entered)")
            run.signal(1, signal.SIGKILL)
        found = (self.folder / name).glob("attempts/*/verdict.json")
        verdicts = list({path.resolve() for path in found})  # `latest` is a link
        self.assertEqual(len(verdicts), 1)
        self.assertEqual(json.loads(verdicts[0].read_text())["exit"], 69)

    def test_killed_rank_is_noticed(self):
        self.check_noticed("killed", signal.SIGKILL, flags=SHARED)

    def test_stopped_rank_is_noticed(self):
        self.check_noticed("stopped", signal.SIGSTOP, flags=SHARED)

    @unittest.skipUnless(GPUS > 1, "needs two GPUs")
    def test_lost_rank_with_a_gpu_of_its_own_is_noticed(self):
        # With windows NCCL's kernels spin for a lost rank, and no abort ends them.
        for windows in ("0", "1"):
            for name, number in (("killed", signal.SIGKILL), ("stopped", signal.SIGSTOP)):
                with self.subTest(windows=windows, name=name):
                    self.check_noticed(f"{name}-{windows}", number,
                                       f"with a GPU each, NCCL_WIN_ENABLE={windows},",
                                       environment={"NCCL_WIN_ENABLE": windows})

    @unittest.skipUnless(DEVICE == "cuda" and GPUS == 1, "needs ranks that would share a GPU")
    def test_sharing_is_refused_unless_allowed(self):
        with self.start(2, "refused") as run:
            run.wait_for(lambda: run.process.poll() is not None, START, "both ranks end")
            self.assertEqual([run.code(0), run.code(1)], [78, 78], run.output())
            self.assertRegex(run.output(), r"GPU")


if __name__ == "__main__":
    if DEVICE == "cuda":
        support.main()
    else:
        unittest.main(verbosity=2)
