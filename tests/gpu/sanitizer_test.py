#!/usr/bin/env python3
"""compute-sanitizer over the kernels: memory errors, races in shared memory, reads of memory that
nothing wrote.

usage: sanitizer_test.py TEST_PROGRAM SOURCES...     each SOURCES for --sources=
"""
import os
import shutil
import subprocess
import sys
import unittest

import support

PROGRAM = os.path.abspath(sys.argv[1])
SOURCES = sys.argv[2:]
del sys.argv[1:]
TOOL = shutil.which("compute-sanitizer") or "/usr/local/cuda/bin/compute-sanitizer"
FOUND = 21  # what it ends with when it found something
SECONDS = 100  # for one start under one tool


class Sanitizer(unittest.TestCase):
    def check(self, tool, *options):
        for sources in SOURCES:
            with self.subTest(sources=sources):
                command = [TOOL, f"--tool={tool}", f"--error-exitcode={FOUND}", *options, PROGRAM,
                           f"--sources={sources}"]
                done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                                      text=True, timeout=SECONDS, check=False)
                if "Device not supported" in done.stdout:
                    self.skipTest("compute-sanitizer does not know this device")
                self.assertEqual(done.returncode, 0, done.stdout[-4000:])
                self.assertIn("ERROR SUMMARY: 0 errors" if tool != "racecheck"
                              else "RACECHECK SUMMARY: 0 hazards", done.stdout)

    def test_memcheck(self):
        self.check("memcheck")

    def test_racecheck(self):
        self.check("racecheck")

    def test_initcheck(self):
        self.check("initcheck")


if __name__ == "__main__":
    if not os.access(TOOL, os.X_OK):
        print(f"skipped: no {TOOL}")
        sys.exit(support.SKIPPED)
    support.main()
