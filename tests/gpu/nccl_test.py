#!/usr/bin/env python3
"""The communicators' conformance suite over the real NCCL: ranks that share one GPU, over MPI.

usage: nccl_test.py NCCL_CONFORMANCE [unittest arguments]
"""
import os
import re
import sys
import unittest

import support

PROGRAM = os.path.abspath(sys.argv.pop(1))
GPUS, _ = support.count_gpus()


class NcclConformance(unittest.TestCase):
    def check(self, ranks, *arguments, environment=None):
        with support.Ranks(ranks, [PROGRAM, *arguments], environment) as run:
            run.wait_for(lambda: run.process.poll() is not None, 100, f"{ranks} ranks end")
            codes = [run.code(rank) for rank in range(ranks)]
            if codes != [0] * ranks:
                print(f"\nFACT {' '.join(arguments)}: {' / '.join(run.output().splitlines()[-6:])}", flush=True)
            self.assertEqual(codes, [0] * ranks, run.output())
            self.assertEqual(run.output().count("all cases passed"), ranks, run.output())
            self.times = re.findall(r"a sum of 64 MB takes (.*)", run.output())
            self.starts = re.findall(r"NCCL starts in .*", run.output())
            return set(re.findall(r"digest of the repeated sums: (\w+)", run.output()))

    def test_two_ranks(self):
        self.check(2, "share")

    def test_small_messages(self):
        self.check(2, "share", "message_elements=1000", "largest=5000")

    def gradients(self, title, ranks, *arguments):
        """Collective functions inside graphs, forward and backward, against finite differences."""
        passed = False
        try:
            self.check(ranks, "gradients", *arguments)
            passed = True
        finally:
            support.print_row(f"collective functions and their gradients, {title}", passed,
                              "finite differences", "the same" if passed else "others, or an error")

    def test_collective_functions(self):
        self.gradients("one rank", 1)
        self.gradients("2 ranks that share a GPU", 2, "share")
        if GPUS > 1:
            self.gradients(f"{min(GPUS, 4)} GPUs", min(GPUS, 4))

    def repeat(self, title, ranks, *arguments, environment=None):
        """100 sums of 64 MB give the same bits on all ranks, within a run and in the next one."""
        digests = set()
        for _ in range(2):
            digests |= self.check(ranks, "repeat=100", *arguments, environment=environment)
        support.print_row(f"bits of 2 x 100 sums of 64 MB, {title}", len(digests) == 1,
                          "1 digest", f"{len(digests)}")
        print(f"\nFACT {title}: {self.starts[0]}; a sum of 64 MB: {self.times[0]}")
        self.assertEqual(len(digests), 1)

    def test_bits_repeat(self):
        self.repeat("2 ranks that share a GPU", 2, "share")

    def test_one_gpu_per_rank(self):
        ranks = min(GPUS, 8)
        if ranks < 2:
            self.skipTest("one GPU")
        for windows in ("0", "1"):
            arguments = ["windows"] if windows == "1" else []
            environment = {"NCCL_WIN_ENABLE": windows}
            self.check(ranks, *arguments, environment=environment)
            title = f"{ranks} GPUs, NCCL_WIN_ENABLE={windows}"
            self.repeat(title, ranks, *arguments, environment=environment)
        for ctas in ("8", "16", "32"):
            self.check(ranks, "repeat=20", environment={"NCCL_MAX_CTAS": ctas})
            print(f"\nFACT a sum of 64 MB on {ranks} GPUs, NCCL_MAX_CTAS={ctas}: {self.times[0]}")


if __name__ == "__main__":
    support.main()
