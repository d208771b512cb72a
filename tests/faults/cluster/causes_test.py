#!/usr/bin/env python3
"""A verdict names the cause: all ranks that died together, and what the kernel killed for its memory."""

import dataclasses
import json
import os
import re
import signal
import sys
import time
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "cluster"))

import support
from jobs import adamw_job
from training import Training

MEMORY = Path("/sys/fs/cgroup/memory")
VICTIM = 3
# In the place of gaccd: the rank is in a group of its own with little memory.
WRAPPER = """#!/bin/sh
if [ "$1" = train ] && [ "$SLURM_PROCID" = %(victim)d ]; then echo $$ >%(group)s/cgroup.procs; fi
exec %(gaccd)s "$@"
"""


def why_no_memory_group():
    """Why the memory of a process cannot be limited here, or None."""
    if not (MEMORY / "memory.limit_in_bytes").exists():
        return f"no cgroup v1 at {MEMORY}"
    return None if os.access(MEMORY, os.W_OK) else f"{MEMORY} is read-only"


class Causes(support.ClusterTest):
    @classmethod
    def setUpClass(cls):
        cls.folder = cls.cluster.dir / "work" / "causes"
        cls.folder.mkdir()
        cls.job = adamw_job(cls.folder)

    def _training(self, name, *flags, **options):
        training = Training(self.cluster, self.folder / name, self.job, *flags, per_node=2, **options)
        self.addCleanup(training.abandon)
        return training

    def _ended(self, training, count):
        """The first `count` attempts, when all have a line in the ledger. As (verdict, entry)."""
        path = training.run_dir / "ledger.jsonl"
        def entries():
            training.poll()
            lines = path.read_text().splitlines() if path.exists() else []
            return len(lines) >= count and [json.loads(line) for line in lines]
        ledger = training.wait(entries, 180, f"{count} ended attempts")
        return [(a.verdict(), e) for a, e in zip(training.attempts(), ledger)]

    def _kill_two(self, name, *victims):
        training = self._training(name, "--epochs=100000").submit()
        training.wait(lambda: training.step() >= 10, 120, "the first updates")
        time.sleep(2)  # all have sent their memory with a heartbeat, every 250 ms
        ranks = training.ranks()
        for victim in victims:
            ranks[victim].signal(signal.SIGKILL)
        (verdict, entry), = self._ended(training, 1)[:1]
        hosts = verdict["suspect_hosts"]  # in the order of their deaths
        self.assertEqual((verdict["verdict"], verdict["exit"]), ("requeue", 69), verdict)
        self.assertEqual(sorted(hosts.split(",")), sorted(ranks[v].node for v in victims), verdict)
        self.assertEqual(sorted(verdict["lost_ranks"].split(",")), sorted(map(str, victims)), verdict)
        for victim in victims:
            self.assertIn(f"rank {victim} on {ranks[victim].node} ", verdict["reason"])
        self.assertIn("killed from outside", verdict["reason"])
        self.assertGreater(verdict["first_memory_bytes"], 1e6)
        # One word for it everywhere, and srun's is quoted.
        self.assertEqual((entry["verdict"], entry["exit"]), ("requeue", 69), entry)
        self.assertIn("; srun: n", entry["reason"])
        self.assertIn(": Killed", entry["reason"])
        out = training.folder / f"slurm-{training.id}.out"
        training.wait(lambda: "excnodelist=" in out.read_text(), 60, "the advice of slurm/launch")
        excluded = re.search(r"excnodelist=(\S+)", out.read_text())
        self.assertEqual(sorted(excluded[1].split(",")), sorted(hosts.split(",")))

    def test_two_ranks_that_die_together_are_both_named(self):
        self._kill_two("two", 3, 5)

    def test_also_when_one_of_them_is_rank_zero(self):
        self._kill_two("with-zero", 0, 5)

    @unittest.skipIf(why_no_memory_group(), why_no_memory_group())
    def test_a_second_out_of_memory_is_attributed_to_no_host(self):
        group = MEMORY / f"gaccd-causes-{os.getpid()}"
        group.mkdir()
        self.addCleanup(group.rmdir)
        training = self._training("memory")
        large = training.folder / "large.txtpb"  # 26 MB of parameters and their like
        large.write_text(self.job.path.read_text().replace(": 32 ", ": 2048 "))
        training.job = dataclasses.replace(self.job, path=large)
        self.addCleanup(lambda: training.wait(lambda: not (group / "cgroup.procs").read_text(), 60, "its end"))
        (group / "memory.limit_in_bytes").write_text(str(48 << 20))
        wrapper = training.folder / "gaccd"
        wrapper.write_text(WRAPPER % {"victim": VICTIM, "group": group, "gaccd": support.program("GACCD")})
        wrapper.chmod(0o755)
        training.env = {"GACCD": wrapper}
        training.submit()
        (first, first_entry), (second, second_entry) = self._ended(training, 2)[:2]
        for verdict in (first, second):
            self.assertTrue(verdict["first_killed"], verdict)
            self.assertEqual(verdict["first_rank"], VICTIM, verdict)
            if verdict.get("first_memory_bytes", 0) > 0:
                self.assertRegex(verdict["reason"], r"its memory was [\d.]+ MB, planned [\d.]+ MB")
        self.assertIn(": task 3: ", first_entry["reason"])
        self.assertNotIn("too large", first_entry["reason"])
        # A rank tells its memory with its heartbeats: on a busy machine the last one may be older,
        # or there may be none yet.
        memory = [verdict.get("first_memory_bytes", 0) for verdict in (first, second)]
        same = min(memory) > 0 and abs(memory[1] - memory[0]) <= memory[0] / 10
        check = self.assertIn if same else self.assertNotIn
        check("the job is too large for the memory it has", second_entry["reason"])
        said = (training.folder / f"slurm-{training.id}.out").read_text()
        self.assertLessEqual(said.count("excnodelist="), 1 if same else 2, said)
        print(second_entry["reason"], end=" ")


if __name__ == "__main__":
    support.main(nodes=4)
