#!/usr/bin/env python3
"""A rank that has too little of a core or is stopped for a while, ranks that are killed: under mpirun.

usage: bad_ranks_test.py GACCD [unittest arguments]
"""

import contextlib
import glob
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest
from pathlib import Path

import open_mpi

GACCD = os.path.abspath(sys.argv.pop(1))
LIMIT_S = 150  # a rank with a twentieth of a core needs tens of seconds for a hundred updates
CGROUP = Path("/sys/fs/cgroup/cpu")
RANKS = 4
VICTIM = 1
# Updates of 8 ms or more: a rank under cpulimit runs for a tenth of a second and is stopped for most of one, and
# RankTimes wants to see that five times in a hundred updates.
JOB = """
name: "bad-ranks"
model {
  layer { name: "fc1" linear { in: 1024 out: 2048 } }
  layer { name: "fc2" linear { in: 2048 out: 10 } }
  loss { mean_squared_error {} }
}
data { train { synthetic { samples: 4000 features: 1024 outputs: 10 } } }
batch { target: 300 micro: 100 }
optimizer { lr: 0.001 sgd {} }
epochs: 100000
"""


class BadRanksTest(unittest.TestCase):
    def setUp(self):
        self.dir = Path(tempfile.mkdtemp(prefix="gaccd-bad-ranks-"))
        self.addCleanup(shutil.rmtree, self.dir, ignore_errors=True)  # a guard may still write there
        (self.dir / "job.txtpb").write_text(JOB)
        self.output = self.dir / "output"
        with open(self.output, "w", encoding="utf-8") as output:
            self.process = subprocess.Popen(
                ["timeout", "-k", "1", str(2 * LIMIT_S), "mpirun", "--allow-run-as-root", "--oversubscribe",
                 "--bind-to", "none", "-n", str(RANKS), GACCD, "train", f"--job={self.dir}/job.txtpb",
                 f"--run-dir={self.dir}/run", "--save-every-seconds=0"],
                stdout=output, stderr=subprocess.STDOUT,
                env={**os.environ, "OMPI_MCA_mpi_yield_when_idle": "1"})
        self.addCleanup(lambda: self.process.poll() is None and self.process.terminate())
        self.wait(lambda: len(self.events("step")) > 30, "the first updates")
        self.victim = self.pid(VICTIM)

    def events(self, kind):
        files = glob.glob(str(self.dir / "run/attempts/*/events.jsonl"))
        lines = Path(files[0]).read_text(encoding="utf-8").split("\n")[:-1] if files else []
        return [event for event in map(json.loads, lines) if event["ev"] == kind]

    def warnings(self):
        """About the victim. With other programs running another rank may be slow, too."""
        return [e["msg"] for e in self.events("log") if e["msg"].startswith(f"slow rank: rank {VICTIM} ")]

    def wait(self, condition, what):
        deadline = time.monotonic() + LIMIT_S
        while not condition():
            self.assertIsNone(self.process.poll(), self.output.read_text()[-3000:])
            self.assertLess(time.monotonic(), deadline, what)
            time.sleep(0.1)

    def pid(self, rank):
        table = next((self.dir / "run/attempts").glob("0*/ranks.tsv")).read_text().splitlines()
        names = table[0].split("\t")
        return int(dict(zip(names, table[1 + rank].split("\t")))["pid"])

    def verdict_file(self):
        """A process that outlives the run may write it."""
        limit = time.monotonic() + LIMIT_S
        while not (found := list((self.dir / "run/attempts").glob("0*/verdict.json"))):
            self.assertLess(time.monotonic(), limit, "no verdict.json")
            time.sleep(0.1)
        return found[0]

    def stop(self):
        (self.dir / "run" / "STOP").touch()
        self.assertEqual(self.process.wait(timeout=LIMIT_S), 93, self.output.read_text()[-3000:])

    def assert_named(self):
        self.wait(self.warnings, "a warning")
        self.stop()
        print(self.warnings()[0], end=" ")

    def assert_both_named(self, *ranks):
        time.sleep(2)  # all have beaten
        for pid in [self.pid(rank) for rank in ranks]:
            os.kill(pid, signal.SIGKILL)
        self.process.wait(timeout=LIMIT_S)
        verdict = json.loads(self.verdict_file().read_text())
        self.assertEqual(verdict["exit"], 69, verdict)
        if open_mpi.MAJOR >= 5 and "lost_ranks" not in verdict:  # the others had no time to write it
            self.assertIn("or of the end of a rank", verdict["reason"])
            return
        self.assertEqual(sorted(map(int, verdict["lost_ranks"].split(","))), list(ranks), verdict)
        for rank in ranks:
            self.assertIn(f"rank {rank} on ", verdict["reason"])
        self.assertTrue(verdict["first_killed"], verdict)
        self.assertGreater(verdict["first_memory_bytes"], 1e6, verdict)

    def test_two_that_die_together_are_both_named(self):
        self.assert_both_named(1, 2)

    def test_also_when_one_of_them_is_rank_zero(self):
        self.assert_both_named(0, 3)

    def test_a_rank_with_a_twentieth_of_a_core_is_named(self):
        if not (CGROUP / "cpu.cfs_quota_us").exists() and not os.access(CGROUP, os.W_OK):
            self.skipTest(f"no cgroup v1 at {CGROUP}")
        group = CGROUP / f"gaccd-bad-ranks-{os.getpid()}"
        group.mkdir()
        self.addCleanup(lambda: (self.process.wait(), time.sleep(0.2), group.rmdir()))
        (group / "cpu.cfs_period_us").write_text("100000")
        (group / "cpu.cfs_quota_us").write_text("5000")
        (group / "cgroup.procs").write_text(str(self.victim))
        self.assert_named()

    @unittest.skipUnless(shutil.which("cpulimit"), "cpulimit is not installed")
    def test_a_rank_under_cpulimit_is_named(self):
        limiter = subprocess.Popen(["cpulimit", "-p", str(self.victim), "-l", "5", "-q"])
        try:
            self.assert_named()
        finally:
            limiter.kill()
            limiter.wait()
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.victim, signal.SIGCONT)

    def test_a_rank_that_was_stopped_once_is_not_slow(self):
        os.kill(self.victim, signal.SIGSTOP)
        time.sleep(2)
        os.kill(self.victim, signal.SIGCONT)
        done = len(self.events("step"))
        self.wait(lambda: len(self.events("step")) > done + 120, "further updates")
        self.stop()
        self.assertFalse([w for w in self.warnings() if "stopped" in w], self.warnings())
        longest = max(self.events("step"), key=lambda e: e.get("wait_s", 0))  # others wait for a core on a busy machine
        self.assertEqual((longest["straggler_rank"], longest["straggler_phase"]), (VICTIM, "stopped"), longest)


if __name__ == "__main__":
    unittest.main(verbosity=2)
