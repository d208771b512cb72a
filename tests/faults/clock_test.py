#!/usr/bin/env python3
"""Wall clocks that are wrong: ranks under mpirun, one of them with libfaketime.

usage: clock_test.py GACCD [unittest arguments]
"""

import glob
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
import unittest
from pathlib import Path

SKIPPED = 77  # CTest's SKIP_RETURN_CODE
GACCD = os.path.abspath(sys.argv.pop(1))
LIMIT_S = 120
LIBRARY = next(iter(glob.glob("/usr/lib/*/faketime/libfaketimeMT.so.1")), None)
JOB = """
name: "clock"
model {
  layer { name: "fc" linear { in: 64 out: 8 } }
  loss { mean_squared_error {} }
}
data { train { synthetic { samples: 4096 features: 64 outputs: 8 } } }
batch { target: 64 micro: 64 }
optimizer { lr: 0.001 sgd {} }
epochs: 100000
"""
# The rank of its own time: its offset is in a file. Files keep the time of the machine.
START = """
if [ "$OMPI_COMM_WORLD_RANK" = "$FAKE_RANK" ]; then
  export LD_PRELOAD=$FAKE_LIBRARY FAKETIME_TIMESTAMP_FILE=$FAKE_FILE FAKETIME_NO_CACHE=1
  export FAKETIME_DONT_FAKE_MONOTONIC=1 NO_FAKE_STAT=1
fi
exec "$@"
"""


class ClockTest(unittest.TestCase):
    def setUp(self):
        self.dir = Path(tempfile.mkdtemp(prefix="gaccd-clock-"))
        self.addCleanup(shutil.rmtree, self.dir, ignore_errors=True)  # a guard may still write there
        (self.dir / "job.txtpb").write_text(JOB)
        self.run_dir = self.dir / "run"
        self.output = self.dir / "output"

    def set_clock(self, offset):
        (self.dir / "offset.new").write_text(offset + "\n")
        (self.dir / "offset.new").replace(self.dir / "offset")

    def start(self, rank):
        """Four ranks of a job that ends in 10 minutes."""
        env = {**os.environ, "OMPI_MCA_mpi_yield_when_idle": "1", "FAKE_RANK": str(rank),
               "FAKE_LIBRARY": LIBRARY, "FAKE_FILE": str(self.dir / "offset"),
               "SLURM_JOB_ID": "1", "SLURM_JOB_END_TIME": str(int(time.time()) + 600)}
        with open(self.output, "w", encoding="utf-8") as output:
            process = subprocess.Popen(
                ["timeout", "-k", "1", str(3 * LIMIT_S), "mpirun", "--allow-run-as-root", "--oversubscribe",
                 "--bind-to", "none", "-n", "4", "sh", "-c", START, "sh", GACCD, "train",
                 f"--job={self.dir}/job.txtpb", f"--run-dir={self.run_dir}", "--save-every-seconds=1"],
                stdout=output, stderr=subprocess.STDOUT, env=env)
        self.addCleanup(lambda: process.poll() is None and process.terminate())
        return process

    def events(self):
        files = glob.glob(str(self.run_dir / "attempts" / "*" / "events.jsonl"))
        lines = Path(files[0]).read_text(encoding="utf-8").split("\n")[:-1] if files else []
        return [json.loads(line) for line in lines]

    def wait_events(self, process, kind, count):
        """Until there are so many events of this kind. Returns all of them."""
        deadline = time.monotonic() + LIMIT_S
        while len(found := [e for e in self.events() if e["ev"] == kind]) < count:
            self.assertIsNone(process.poll(), self.said())
            self.assertLess(time.monotonic(), deadline, f"{count} events {kind}")
            time.sleep(0.05)
        return found

    def said(self):
        return self.output.read_text(encoding="utf-8")[-3000:]

    def stop(self, process):
        (self.run_dir / "STOP").touch()
        self.assertEqual(process.wait(timeout=LIMIT_S), 93, self.said())

    def jumps(self, rank, *offsets):
        self.set_clock("+0")
        process = self.start(rank)
        self.wait_events(process, "step", 10)
        for offset in offsets:
            self.set_clock(offset)
            saves = len(self.wait_events(process, "save", 0))
            self.wait_events(process, "save", saves + 2)  # it continues, and saves as often as before
        self.stop(process)
        self.assertNotIn("the clock of", self.said())

    def test_a_clock_jump_of_an_hour_stops_no_rank(self):
        self.jumps(2, "+3600")

    def test_rank_zero_does_not_stop_them_either(self):
        self.jumps(0, "+3600", "-3600")

    def test_a_clock_that_is_wrong_from_the_start_is_reported(self):
        self.set_clock("+3600")
        process = self.start(2)
        self.wait_events(process, "step", 10)
        self.stop(process)
        warnings = [e["msg"] for e in self.events() if e["ev"] == "log"]
        self.assertTrue(any(w.startswith("the clock of rank 2 on ") and " s ahead of " in w
                            for w in warnings), warnings)


if __name__ == "__main__":
    if LIBRARY is None:
        print("skipped: libfaketime is not installed (Debian package libfaketime)")
        sys.exit(SKIPPED)
    unittest.main(verbosity=2)
