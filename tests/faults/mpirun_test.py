#!/usr/bin/env python3
"""Under plain mpirun there is a verdict.json whichever way the ranks end, and mpirun returns what
README.md says.

Usage: mpirun_test.py GACCD [unittest arguments]
"""

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

GACCD = os.path.abspath(sys.argv.pop(1))
LIMIT_S = 60
JOB = """
name: "mpirun"
model {
  layer { name: "fc" linear { in: 64 out: 8 } }
  loss { mean_squared_error {} }
}
data { train { synthetic { samples: 4096 features: 64 outputs: 8 } } }
batch { target: 48 micro: 16 }
optimizer { lr: 0.001 sgd {} }
epochs: 1000000
"""


class Mpirun(unittest.TestCase):
    def setUp(self):
        self.dir = Path(tempfile.mkdtemp(prefix="gaccd-mpirun-"))
        self.addCleanup(shutil.rmtree, self.dir)
        (self.dir / "job.txtpb").write_text(JOB)
        self.attempt = self.dir / "run" / "attempts" / "latest"

    def said(self):
        return (self.dir / "output").read_text()[-3000:]

    def wait_for(self, path):
        limit = time.monotonic() + LIMIT_S
        while not path.exists():
            self.assertLess(time.monotonic(), limit, f"no {path}: {self.said()}")
            time.sleep(0.02)
        return path

    def start(self, ranks):
        """Until there are updates."""
        launcher = ["mpirun", "--allow-run-as-root", "--oversubscribe", "--bind-to", "none", "-n", str(ranks)]
        with open(self.dir / "output", "w", encoding="utf-8") as output:
            run = subprocess.Popen([*(launcher if ranks > 1 else []), GACCD, "train", f"--job={self.dir}/job.txtpb",
                                    f"--run-dir={self.dir}/run"],
                                   stdout=output, stderr=subprocess.STDOUT,
                                   env={**os.environ, "OMPI_MCA_mpi_yield_when_idle": "1"})
        self.addCleanup(lambda: run.poll() is None and run.terminate())
        events = self.wait_for(self.attempt / "events.jsonl")
        while b'"step":20,' not in events.read_bytes():
            self.assertIsNone(run.poll(), self.said())
            time.sleep(0.02)
        return run

    def pid(self, rank):
        rows = (self.attempt / "ranks.tsv").read_text().splitlines()[1:]
        return int(rows[rank].split("\t")[-1])

    def verdict(self, run, code):
        self.assertEqual(run.wait(LIMIT_S), code, self.said())
        verdict = json.loads(self.wait_for(self.attempt / "verdict.json").read_text())
        self.assertGreaterEqual(verdict["last_step"], 20)
        self.assertEqual(verdict["verdict"], "requeue")
        return verdict

    def test_a_rank_is_killed(self):
        for rank in (0, 2):
            with self.subTest(rank=rank):
                shutil.rmtree(self.dir / "run", ignore_errors=True)
                run = self.start(3)
                os.kill(self.pid(rank), signal.SIGKILL)
                verdict = self.verdict(run, 137)
                self.assertEqual((verdict["exit"], verdict["first_rank"]), (69, rank))

    def test_all_ranks_are_killed(self):
        run = self.start(3)
        for pid in [self.pid(rank) for rank in range(3)]:
            os.kill(pid, signal.SIGKILL)
        verdict = self.verdict(run, 137)
        self.assertEqual(verdict["exit"], 69)

    def test_the_only_rank_is_killed(self):
        run = self.start(1)
        run.kill()
        verdict = self.verdict(run, -signal.SIGKILL)
        self.assertIn("has ended without a verdict after update", verdict["reason"])
        self.assertEqual(verdict["first_rank"], 0)

    def test_ctrl_c(self):
        run = self.start(3)
        run.send_signal(signal.SIGINT)
        verdict = self.verdict(run, 1)
        self.assertEqual(verdict["exit"], 75)
        self.assertRegex(verdict["reason"], "^stopped by SIGTERM .*, saved")

    def test_ctrl_c_twice(self):
        run = self.start(3)
        run.send_signal(signal.SIGINT)
        time.sleep(0.1)
        run.send_signal(signal.SIGINT)
        verdict = self.verdict(run, 1)
        self.assertEqual(verdict["exit"], 69)
        self.assertIn("was it interrupted twice?", verdict["reason"])
        self.assertNotIn("suspect_hosts", verdict)


if __name__ == "__main__":
    unittest.main()
