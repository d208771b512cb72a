#!/usr/bin/env python3
"""Kernels, containers and file systems that do not have every system call.

usage: missing_calls_test.py GACCD LIBRARY_OF_missing_calls [unittest arguments]
"""

import glob
import json
import os
import subprocess
import sys
import time
import unittest

from folder_case import FolderCase

GACCD = os.path.abspath(sys.argv.pop(1))
LIBRARY = os.path.abspath(sys.argv.pop(1))
LIMIT_S = 60

JOB = """
name: "missing"
model { layer { name: "fc" linear { in: 4 out: 1 } } loss { mean_squared_error {} } }
data { train { synthetic { samples: 20 features: 4 } } }
batch { target: 7 micro: 2 }
optimizer { lr: 0.1 sgd {} }
"""


class MissingCalls(FolderCase):
    def setUp(self):
        super().setUp()
        self.job = self.write("job.txtpb", JOB)

    def start(self, missing, *args):
        run = subprocess.Popen([GACCD, *args], cwd=self.dir, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                               text=True, env={**os.environ, "LD_PRELOAD": LIBRARY, "MISSING_CALLS": missing})
        self.addCleanup(run.communicate)
        self.addCleanup(run.kill)  # before it
        return run

    def gaccd(self, code, missing, *args):
        run = self.start(missing, *args)
        said = run.communicate(timeout=LIMIT_S)[0]
        self.assertEqual(run.returncode, code, said)
        return said

    def wait(self, condition, what):
        limit = time.monotonic() + LIMIT_S
        while not condition():
            self.assertLess(time.monotonic(), limit, what)
            time.sleep(0.05)

    def guards(self):
        """The processes of this test's runs that write a verdict if a rank is killed."""
        found = []
        for folder in glob.glob("/proc/[0-9]*"):
            try:
                with open(folder + "/comm") as comm:
                    if comm.read() == "gaccd-guard\n" and os.readlink(folder + "/cwd") == self.dir:
                        found.append(folder)
            except OSError:  # it has ended
                pass
        return found

    def test_the_guard_ends_without_close_range(self):
        self.gaccd(0, "close_range", "train", "--job=" + self.job, "--run-dir=run", "--epochs=2")
        self.wait(lambda: not self.guards(), "the guard has not ended")

    def test_the_guard_writes_a_verdict_without_close_range(self):
        run = self.start("close_range", "train", "--job=" + self.job, "--run-dir=run", "--epochs=100000000",
                         "--save-every-seconds=0")
        self.wait(lambda: glob.glob(self.path("run/attempts/*/events.jsonl")) and self.guards(), "no run")
        time.sleep(0.5)  # it is watched
        run.kill()
        self.wait(lambda: glob.glob(self.path("run/attempts/0*/verdict.json")), "no verdict.json")
        with open(glob.glob(self.path("run/attempts/0*/verdict.json"))[0]) as file:
            self.assertIn("has ended without a verdict", json.load(file)["reason"])

    def test_without_hard_links_a_file_is_made_once(self):
        """As verdict.json, STOP and the records of failed ranks are."""
        run = self.start("link", "train", "--job=" + self.job, "--run-dir=run", "--epochs=100000000")
        self.wait(lambda: glob.glob(self.path("run/attempts/*/events.jsonl")), "no run")
        self.assertIn("/STOP' written", self.gaccd(0, "link", "stop", "run"))
        said = run.communicate(timeout=LIMIT_S)[0]
        self.assertEqual(run.returncode, 93, said)
        with open(glob.glob(self.path("run/attempts/0*/verdict.json"))[0]) as file:
            self.assertEqual(json.load(file)["exit"], 93)
        self.assertFalse(glob.glob(self.path("run/**/*.tmp-*"), recursive=True))
        # A file that exists is kept.
        self.write("run/STOP", "first")
        self.assertIn("/STOP' already exists", self.gaccd(0, "link", "stop", "run"))
        with open(self.path("run/STOP")) as file:
            self.assertEqual(file.read(), "first")

    def test_folders_that_cannot_be_synced(self):
        self.gaccd(0, "fsync", "train", "--job=" + self.job, "--run-dir=run", "--save-weights=w")


if __name__ == "__main__":
    unittest.main(verbosity=1)
