#!/usr/bin/env python3
"""Kernels, containers and file systems that do not have every system call, or report an error late.

usage: missing_calls_test.py GACCD LIBRARY_OF_missing_calls [unittest arguments]
"""

import glob
import json
import os
import shutil
import subprocess
import sys
import time
import unittest

from folder_case import FolderCase

GACCD = os.path.abspath(sys.argv.pop(1))
LIBRARY = os.path.abspath(sys.argv.pop(1))
PICTURE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../golden/pictures/rgb.png")
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

    def test_a_quota_that_is_reported_when_a_file_is_closed(self):
        env = {**os.environ, "LD_PRELOAD": LIBRARY, "MISSING_CALLS": "quota"}
        for args in (["version"], ["plan", "--job=" + self.job], ["help"]):
            with open(self.path("out"), "w") as out:
                run = subprocess.run([GACCD, *args], cwd=self.dir, stdout=out, stderr=subprocess.PIPE, text=True,
                                     timeout=LIMIT_S, env=env, check=False)
            self.assertEqual(run.returncode, 74, run.stderr)
            self.assertIn("cannot write to standard output: Disk quota exceeded", run.stderr)
        os.makedirs(self.path("images/a"))
        shutil.copy(PICTURE, self.path("images/a/1.png"))
        job = self.write("images.txtpb", """
            name: "images"
            model { layer { name: "fc" linear { in: 12 out: 2 } } loss { softmax_cross_entropy {} } }
            data { train { images { path: "images" classes: 1 size: 2 } } }
            batch { target: 1 micro: 1 } optimizer { lr: 0.1 sgd {} }""")
        self.assertIn("written: ", self.gaccd(0, "", "data", "show", "--job=" + job, "--out=a.png"))
        said = self.gaccd(74, "quota", "data", "show", "--job=" + job, "--out=a.png")
        self.assertIn("cannot write 'a.png': Disk quota exceeded", said)


if __name__ == "__main__":
    unittest.main(verbosity=1)
