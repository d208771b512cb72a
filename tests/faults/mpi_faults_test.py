#!/usr/bin/env python3
"""Ranks that hang or die: every other rank must leave in time and name the offender.

usage: mpi_faults_test.py RANK_PROCESS [unittest arguments]
"""

import os
import pathlib
import re
import subprocess
import sys
import tempfile
import time
import unittest

BOUND = 5.0  # seconds; what the issue asks to be tested with
AT_ONCE = 3.0  # well before the deadline of 0.7 * BOUND, also on a busy machine
# The launcher's own time: it starts the ranks, and waits between SIGTERM and SIGKILL for a stopped process.
# How soon the ranks themselves leave is in their records.
LAUNCHER_SLACK = 30.0
PROGRAM = sys.argv.pop(1)
RECOVER = ["--enable-recovery"]  # mpirun leaves the survivors alone, so that they can speak


class Outcome:
    def __init__(self, code, seconds, output, records):
        self.code = code
        self.seconds = seconds
        self.output = output
        self.records = records  # by rank: (seconds in the failing operation, exit code, message)


def run(fault, victim, ranks=4, nodes=(), mpirun=()):
    with tempfile.TemporaryDirectory() as directory:
        command = ["timeout", "-k", "1", "90", "mpirun", "--allow-run-as-root", "--oversubscribe",
                   "--bind-to", "none", "--mca", "mpi_yield_when_idle", "1", *mpirun,
                   "-n", str(ranks), PROGRAM, "faults", fault, str(victim), str(int(BOUND * 1000)),
                   directory, *map(str, nodes)]
        start = time.monotonic()
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        seconds = time.monotonic() - start
        records = {}
        for path in pathlib.Path(directory).glob("rank.*"):
            took, code, message = path.read_text().strip().split(" ", 2)
            records[int(path.suffix[1:])] = (float(took), int(code), message)
        return Outcome(done.returncode, seconds, done.stdout, records)


class MpiFaultsTest(unittest.TestCase):
    def check(self, outcome, survivors, pattern, code=69, within=BOUND, recovering=False,
              victim=None):
        detail = f"records {outcome.records}, output:\n{outcome.output}"
        if not recovering:  # mpirun then ends with 0 whatever the ranks do
            self.assertNotEqual(outcome.code, 0, detail)
        self.assertLess(outcome.seconds, BOUND + LAUNCHER_SLACK, detail)
        # The launcher wakes a stopped rank before it kills it; that one may then write, too.
        records = {r: record for r, record in outcome.records.items() if r != victim}
        self.assertEqual(sorted(records), sorted(survivors), detail)
        for rank, (took, exit_code, message) in records.items():
            self.assertLess(took, within, f"rank {rank}: {detail}")
            self.assertEqual(exit_code, code, f"rank {rank}: {detail}")
            self.assertRegex(message, pattern, f"rank {rank}: {detail}")

    def test_sleeping_rank_is_named(self):
        host = re.escape(os.uname().nodename)
        outcome = run("sleep", victim=3)
        self.check(outcome, [0, 1, 2], rf"rank 3 on {host} did not enter all-reduce #17$")

    def test_stopped_rank_is_named(self):
        outcome = run("stop", victim=1)
        self.check(outcome, [0, 2, 3], r": rank 1 on \S+ did not enter all-reduce #17$", victim=1)

    def test_rank_stopped_inside_an_operation_is_named(self):
        outcome = run("inside", victim=2)
        self.check(outcome, [0, 1, 3], r": rank 2 on \S+ (did not enter all-reduce #\d+|"
                   r"entered all-reduce #\d+ and stopped in it)$", victim=2)

    def test_killed_rank_is_named_at_once(self):
        outcome = run("kill", victim=2, mpirun=RECOVER)
        self.check(outcome, [0, 1, 3], r": rank 2 on \S+ has ended \(its process does not exist\)$",
                   within=AT_ONCE, recovering=True)

    def test_killed_rank_behind_tcp_is_named_at_once(self):
        """Open MPI 5 by itself ends the others when their connection to it is closed."""
        tcp = ["--mca", "btl", "tcp,self", "--mca", "btl_tcp_if_include", "lo"]
        for victim in (0, 3):
            with self.subTest(victim=victim):
                outcome = run("kill", victim=victim, nodes=(0, 0, 1, 1), mpirun=[*RECOVER, *tcp])
                self.check(outcome, sorted({0, 1, 2, 3} - {victim}), rf": rank {victim} on \S+ has ended ",
                           within=AT_ONCE, recovering=True)

    def test_rank_that_exits_is_named_at_once(self):
        outcome = run("exit", victim=0, mpirun=RECOVER)
        self.check(outcome, [1, 2, 3], r": rank 0 on \S+ has ended \(its process does not exist\)$",
                   within=AT_ONCE, recovering=True)

    def test_killed_rank_without_recovery_ends_the_job(self):
        outcome = run("kill", victim=2)
        self.assertNotEqual(outcome.code, 0)
        self.assertLess(outcome.seconds, BOUND + LAUNCHER_SLACK)

    def test_other_operation_is_named(self):
        outcome = run("other", victim=1)
        victim = outcome.records.pop(1)
        self.assertRegex(victim[2], r"rank 0 on \S+ entered all-reduce #17 where rank 1 on \S+ "
                         r"entered broadcast #17$")
        self.check(outcome, [0, 2, 3], r"rank 1 on \S+ entered broadcast #17 where rank \d on \S+ "
                   r"entered all-reduce #17$", code=70, within=AT_ONCE)

    def test_sleeping_rank_of_another_node_is_named(self):
        outcome = run("sleep", victim=3, nodes=(0, 0, 1, 1))
        self.check(outcome, [0, 1, 2], r": rank 3 on fake1 did not enter all-reduce #17$")

    def test_killed_rank_of_another_node_is_named(self):
        outcome = run("kill", victim=3, nodes=(0, 0, 1, 1), mpirun=RECOVER)
        self.check(outcome, [0, 1, 2], r": rank 3 on fake1 has ended \(its process does not exist\)$",
                   within=AT_ONCE, recovering=True)

    def test_sleeping_rank_is_named_in_time_where_polls_are_slow(self):
        outcome = run("busy", victim=2, ranks=3, nodes=(0, 1, 2))
        self.check(outcome, [0, 1], r": rank 2 on fake2 did not enter all-reduce #17 \(no rank of "
                   r"its node answers\)$")

    def test_silent_node_is_named(self):
        outcome = run("stop", victim=2, ranks=3, nodes=(0, 0, 1))
        self.check(outcome, [0, 1], r": rank 2 on fake1 did not enter all-reduce #17 \(no rank of "
                   r"its node answers\)$", victim=2)

    def test_start_without_all_ranks_ends_in_time(self):
        outcome = run("early", victim=1, ranks=2)
        self.assertEqual(outcome.code, 69, outcome.output)
        self.assertLess(outcome.seconds, BOUND + LAUNCHER_SLACK, outcome.output)
        self.assertRegex(outcome.output, r"MPI_Init did not end within 5000 ms: other ranks did not "
                         r"enter it \(OMPI_COMM_WORLD_SIZE=2\)")


if __name__ == "__main__":
    unittest.main()
