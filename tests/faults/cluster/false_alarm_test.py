#!/usr/bin/env python3
"""A machine that is overloaded is no lost rank: busy processes during a training of four ranks.

    GACCD=... false_alarm_test.py [SECONDS] [BUSY_PROCESSES]    (default: 20 s, 50)
"""

import json
import os
import subprocess
import sys
import tempfile
import time
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "cluster"))

from jobs import adamw_job
from support import program

SECONDS = int(sys.argv[1]) if len(sys.argv) > 1 else 20
BUSY = int(sys.argv[2]) if len(sys.argv) > 2 else 50


class FalseAlarm(unittest.TestCase):
    def test_an_overloaded_machine_loses_no_rank(self):
        with tempfile.TemporaryDirectory(prefix="gaccd-busy-") as folder:
            job = adamw_job(folder, epochs=100_000)
            command = ["mpirun", "--allow-run-as-root", "--oversubscribe", "-n", "4", program("GACCD"),
                       "train", f"--job={job.path}", f"--run-dir={folder}/run", "--heartbeat-seconds=5",
                       "--digest-every=10"]
            env = {**os.environ, "OMPI_MCA_mpi_yield_when_idle": "1"}
            busy = []
            with open(f"{folder}/out", "w+") as out:
                run = subprocess.Popen(command, stdout=out, stderr=out, env=env)
                try:
                    self._wait_for_step(folder, run, out, 3, 60)
                    busy = [subprocess.Popen(["sh", "-c", "while :; do :; done"]) for _ in range(BUSY)]
                    end = time.monotonic() + SECONDS
                    while time.monotonic() < end:
                        self.assertIsNone(run.poll(), self._text(out))
                        time.sleep(0.5)
                    done = self._steps(folder)
                finally:
                    for process in busy:
                        process.kill()
                        process.wait()
                # It is alive: it continues, and stops when it is asked to.
                self._wait_for_step(folder, run, out, done + 3, 120)
                (Path(folder) / "run" / "STOP").touch()
                self.assertEqual(run.wait(timeout=60), 93, self._text(out))
                self.assertNotIn("silent", self._text(out))
                digests = [e["step"] for e in self._step_events(folder) if e.get("digest")]
                self.assertIn(10, digests)
                self.assertEqual([step for step in digests if step % 10], [])
                print(f"{BUSY} busy processes for {SECONDS} s: update {done}, no rank lost", end=" ")

    def _steps(self, folder):
        """Updates done so far."""
        return max([e["step"] for e in self._step_events(folder)], default=0)

    def _step_events(self, folder):
        paths = list(Path(folder).glob("run/attempts/0*/events.jsonl"))
        lines = paths[0].read_text().split("\n")[:-1] if paths else []
        return [e for e in map(json.loads, lines) if e["ev"] == "step"]

    def _wait_for_step(self, folder, run, out, step, timeout):
        deadline = time.monotonic() + timeout
        while self._steps(folder) < step:
            self.assertIsNone(run.poll(), self._text(out))
            self.assertLess(time.monotonic(), deadline, f"update {step}: not within {timeout} s")
            time.sleep(0.2)

    def _text(self, out):
        return Path(out.name).read_text()[-3000:]


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=2)
