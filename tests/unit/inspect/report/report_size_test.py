"""`gaccd report` over the events of 240 ranks: the page stays small, and so do memory and time.

  report_size_test.py GACCD
"""

import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "export"))
import replay  # noqa: E402

# Of issue 13; seconds of processor time, which others on the machine do not change.
MOST_PAGE_BYTES, MOST_SECONDS, MOST_BYTES = 2_000_000, 5, 500_000_000


def report(page, *runs):
    """What it used."""
    process = subprocess.Popen([GACCD, "report", *runs, f"--out={page}"], stdout=subprocess.DEVNULL)
    _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode != 0:
        raise RuntimeError(f"gaccd report exits {process.returncode}")
    return used


class SizeTest(unittest.TestCase):
    def check(self, *runs):
        with tempfile.TemporaryDirectory() as folder:
            page = pathlib.Path(folder) / "report.html"
            used = report(page, *runs)
            seconds, memory = used.ru_utime + used.ru_stime, used.ru_maxrss * 1024
            print(f"{len(runs)} runs: page of {page.stat().st_size} bytes, {seconds:.2f} s, {memory / 1e6:.0f} MB")
            self.assertLess(page.stat().st_size, MOST_PAGE_BYTES)
            self.assertLess(seconds, MOST_SECONDS)
            self.assertLess(memory, MOST_BYTES)

    def test_a_long_run_of_240_ranks(self):
        with tempfile.TemporaryDirectory() as folder:
            replay.make(folder, updates=30_000, attempts=6, lines=1, noise=0.1)
            self.check(folder)

    def test_as_many_runs_as_it_compares(self):
        with tempfile.TemporaryDirectory() as folder:
            runs = [f"{folder}/{number}" for number in range(32)]
            for run in runs:
                replay.make(run, ranks=16, updates=2000, attempts=2, lines=1, noise=0.1)
            self.check(*runs)


if __name__ == "__main__":
    GACCD = os.path.abspath(sys.argv.pop())
    unittest.main()
