#!/usr/bin/env python3
"""Parts of tools/bench/run that no time depends on:  bench_test.py"""

import contextlib
import io
import re
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
sys.dont_write_bytecode = True
sys.path.insert(0, str(ROOT / "tools" / "bench"))

import harness  # noqa: E402
import model_cases  # noqa: E402
import parallel_cases  # noqa: E402


class Fastest(unittest.TestCase):
    def fastest(self, **seconds):
        """Of peers that take so long, or fail."""
        def run(command):
            if seconds[command] is None:
                raise harness.BenchError("no compiler\nis here")
            return (seconds[command],)
        with contextlib.redirect_stdout(io.StringIO()):
            return model_cases.fastest([(name.title(), name) for name in seconds], run)

    def test_is_among_those_that_run(self):
        self.assertEqual(self.fastest(eager=2.0, compiled=None, jax=1.0), ("Jax", "jax"))

    def test_a_case_without_a_peer_that_runs_fails_as_a_case(self):
        with self.assertRaisesRegex(harness.BenchError, "no peer ran of Eager, Compiled$"):
            self.fastest(eager=None, compiled=None)


class SlowedRanks(unittest.TestCase):
    def test_paths_may_have_any_characters(self):
        with tempfile.TemporaryDirectory() as folder:
            odd = Path(folder, "it's $HOME; a `b`  c")
            (odd / "group-3").mkdir(parents=True)
            gaccd = odd / "gaccd"
            gaccd.write_text('#!/bin/sh\necho $$ "$@"\n')
            gaccd.chmod(0o755)
            program = Path(folder, "program")
            program.write_text(parallel_cases.SlowedRanks.script(odd / "group", gaccd))
            program.chmod(0o755)
            done = subprocess.run([program, "train", "--name=a b"], env={"OMPI_COMM_WORLD_RANK": "3"}, text=True,
                                  capture_output=True, timeout=60)
            self.assertEqual((done.returncode, done.stderr), (0, ""))
            number, words = done.stdout.split(maxsplit=1)
            self.assertEqual((words, (odd / "group-3/cgroup.procs").read_text()), ("train --name=a b\n", number + "\n"))


class Wanted(unittest.TestCase):
    def test_the_newest_table_wants_of_images_what_the_program_prints(self):
        measured = (ROOT / "tools/bench/README.md").read_text().split("## Measured")[1]
        table = re.search(r"(^\|.*\n)+", measured, re.MULTILINE)[0]
        rows = re.findall(r"^\| k (\w+) (\w+), .* \| ([^|]*) \|$", table, re.MULTILINE)
        printed = [(model.name, precision, wanted) for model in model_cases.IMAGES
                   for precision, wanted in model.wanted.items()]
        self.assertEqual(rows, printed)


if __name__ == "__main__":
    unittest.main()
