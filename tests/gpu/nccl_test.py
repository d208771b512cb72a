#!/usr/bin/env python3
"""The communicators' conformance suite over the real NCCL: ranks that share one GPU, over MPI.

usage: nccl_test.py NCCL_CONFORMANCE [unittest arguments]
"""
import os
import sys
import unittest

import support

PROGRAM = os.path.abspath(sys.argv.pop(1))


class NcclConformance(unittest.TestCase):
    def check(self, ranks, *arguments):
        with support.Ranks(ranks, [PROGRAM, "share", *arguments]) as run:
            run.wait_for(lambda: run.process.poll() is not None, 50, f"{ranks} ranks end")
            codes = [run.code(rank) for rank in range(ranks)]
            self.assertEqual(codes, [0] * ranks, run.output())
            self.assertEqual(run.output().count("all cases passed"), ranks, run.output())

    def test_two_ranks(self):
        self.check(2)

    def test_small_messages(self):
        self.check(2, "message_elements=1000", "largest=5000")


if __name__ == "__main__":
    support.main()
