#!/usr/bin/env python3
"""The memory of a training is limited while it runs: the limit of its cgroup falls by 30 % of what is free
in it, and the training continues and gives the same weights; then by 30 % of all, and the resumed training takes a
plan that fits.

Usage: memory_limit_test.py GACCD   (run by CTest; needs memory cgroups of version 1 that it may make)
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

MEMORY = Path("/sys/fs/cgroup/memory")
LIMIT_S = 180
UPDATES = 30
LIMIT = 72 << 20
LAYERS = "".join(f'  layer {{ name: "fc{i}" linear {{ in: 128 out: 128 }} }}\n'
                 f'  layer {{ name: "tanh{i}" tanh {{}} }}\n' for i in range(8))
JOB = f"""
name: "memory-limit"
model {{
{LAYERS}  layer {{ name: "fc" linear {{ in: 128 out: 8 }} }}
  loss {{ mean_squared_error {{}} }}
}}
data {{ train {{ synthetic {{ samples: 16384 features: 128 outputs: 8 }} }} }}
batch {{ target: 8192 }}
optimizer {{ lr: 0.01 sgd {{}} }}
epochs: 1000
max_updates: {UPDATES}
log_every: 1
"""


class MemoryLimit(unittest.TestCase):
    def setUp(self):
        self.dir = Path(tempfile.mkdtemp(prefix="gaccd-memory-limit-"))
        self.addCleanup(shutil.rmtree, self.dir, ignore_errors=True)
        (self.dir / "job.txtpb").write_text(JOB)
        self.group = MEMORY / f"gaccd-limit-{os.getpid()}"
        self.group.mkdir()
        self.addCleanup(self.remove_group)
        self.limit = LIMIT
        self.set_limit(LIMIT)

    def remove_group(self):
        """A process that was killed leaves it a little later."""
        end = time.monotonic() + LIMIT_S
        while (self.group / "cgroup.procs").read_text() and time.monotonic() < end:
            time.sleep(0.02)
        self.group.rmdir()

    def set_limit(self, limit):
        (self.group / "memory.limit_in_bytes").write_text(str(limit))
        self.limit = limit

    def resident(self):
        """Bytes of the group that the kernel cannot take back."""
        stat = dict(line.split() for line in (self.group / "memory.stat").read_text().splitlines())
        return int(stat["total_rss"])

    def start(self, name, *flags):
        self.run_dir = self.dir / name
        with open(self.dir / f"{name}.out", "a", encoding="utf-8") as output:
            process = subprocess.Popen(
                ["sh", "-c", 'echo $$ >"$0" && exec "$@"', str(self.group / "cgroup.procs"), GACCD, "train",
                 f"--job={self.dir}/job.txtpb", f"--run-dir={self.run_dir}", "--micro-batch=auto", *flags],
                stdout=output, stderr=subprocess.STDOUT)
        self.addCleanup(lambda: process.poll() is None and (process.kill(), process.wait()))
        return process

    def events(self, kind):
        path = self.run_dir / "attempts/latest/events.jsonl"
        lines = path.read_text().splitlines(keepends=True) if path.exists() else []
        events = [json.loads(line) for line in lines if line.endswith("\n")]
        return [event for event in events if event["ev"] == kind]

    def wait_for_updates(self, process, count):
        end = time.monotonic() + LIMIT_S
        while len(self.events("step")) < count:
            self.assertIsNone(process.poll(), "ended too early: " + self.tail())
            self.assertLess(time.monotonic(), end, self.tail())
            time.sleep(0.02)

    def finish(self, process, code=0):
        self.assertEqual(process.wait(LIMIT_S), code, self.tail())

    def tail(self):
        return (self.dir / f"{self.run_dir.name}.out").read_text()[-2000:]

    def plan(self):
        return self.events("plan")[-1]

    def test_a_training_continues_in_less(self):
        process = self.start("lowered", f"--save-weights={self.dir}/lowered.safetensors")
        self.wait_for_updates(process, 5)
        self.assertGreater(self.plan()["accum_steps"], 1, "the limit decides")
        free = self.limit - self.resident()
        self.assertGreater(free, 0)
        self.set_limit(self.limit - free * 3 // 10)
        self.wait_for_updates(process, 10)
        self.assertLessEqual(self.resident(), self.limit)
        self.finish(process)
        self.assertEqual(len(self.events("step")), UPDATES)
        chosen = self.plan()
        # The same plan in a machine's memory.
        self.set_limit(-1)
        other = self.start("free", f"--save-weights={self.dir}/free.safetensors", "--micro-batch="
                           f"{chosen['micro_batch']}", f"--recompute={chosen.get('recompute', 'none')}")
        self.finish(other)
        weights = [(self.dir / f"{name}.safetensors").read_bytes() for name in ("lowered", "free")]
        self.assertEqual(*weights)

    def test_a_resumed_training_takes_what_fits(self):
        process = self.start("resumed")
        self.wait_for_updates(process, 5)
        first = self.plan()
        process.send_signal(signal.SIGTERM)
        self.finish(process, 75)
        self.set_limit(self.limit * 7 // 10)
        process = self.start("resumed")
        self.finish(process)
        second = self.plan()
        self.assertLess(second["memory_bytes"], first["memory_bytes"])
        self.assertLessEqual(second["memory_bytes"], self.limit)
        self.assertEqual(second["effective_batch"], first["effective_batch"])
        self.assertIn(f"done: {UPDATES} updates", self.tail())


if __name__ == "__main__":
    GACCD = sys.argv.pop(1)
    if not os.access(MEMORY, os.W_OK) or not (MEMORY / "memory.limit_in_bytes").exists():
        print(f"no memory cgroup of version 1 that can be made at {MEMORY}")
        sys.exit(77)
    unittest.main()
