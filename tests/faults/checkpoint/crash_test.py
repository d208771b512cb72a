#!/usr/bin/env python3
"""Kills or fails a save at every call that changes a file, one after the other.

  crash_test.py SAVE_PROBE FILE_FAULTS_LIBRARY [first|KIND...]

For every kind of fault of file_faults.cc and every N (of kinds that take the same way as "kill" every
third, GACCD_SOAK=1 for all, as tools/soak does): from a folder with two generations, a run of
three saves meets the fault at call N. Then, without faults, the next run must find a generation
that is whole (it compares the content) and not older than the last one that was reported as
committed, and must save three more. Whatever has a manifest must be whole, also what the run was
about to remove, and no writer epoch may be given twice. Under errors that are no crash, the run itself
must continue.

The same for calls that read, while a run looks for what it continues from: after one failure the
newest generation is found all the same; when all fail, it is an error or all generations count as
damaged, never a start from nothing.
"""
import os
import shutil
import subprocess
import sys
import tempfile
import unittest

PROBE, LIBRARY = sys.argv[1:3]
CRASHES = ["kill", "torn", "power"]
ERRORS = ["short", "enospc", "eio", "full", "broken", "flip"]
EVERY_CALL = ["kill", "power"]  # of the others every third, each kind with another first one
RANKS = 2
IO_ERROR = 74  # ErrorKind::kIo


def probe(folder, words=(), kind="", at=0, count=None, reads="", watched=None):
    """Runs the probe. Returns it and the words of the lines that it printed."""
    environment = dict(os.environ)
    if kind or count:
        environment.update(LD_PRELOAD=LIBRARY, FAULT_FOLDER=watched or folder, FAULT_KIND=kind,
                           FAULT_AT=str(at), FAULT_COUNT=count or "", FAULT_READS=reads)
    done = subprocess.run([PROBE, folder, str(RANKS), *words], env=environment,
                          capture_output=True, text=True, timeout=200)
    return done, [line.split() for line in done.stdout.splitlines()]


def places(kind, calls):
    """The calls at which `kind` is tried."""
    if kind in EVERY_CALL or os.environ.get("GACCD_SOAK"):
        return range(1, calls + 1)
    return range(1 + (CRASHES + ERRORS).index(kind) % 3, calls + 1, 3)


def run(folder, kind="", at=0, count=None, watched=None):
    """A run of three saves: its exit status, [epoch, since] if it began, the steps it committed, errors.
    Without a fault, what it finds at its start must be whole."""
    done, words = probe(folder, () if kind else ["check"], kind, at, count, watched=watched)
    steps = [int(line[1]) for line in words if line[0] == "committed"]
    started = [[int(word) for word in line[1:]] for line in words if line[0] == "started"]
    damaged = [" ".join(line) for line in words if line[0] == "damaged"]
    return done.returncode, (started or [None])[0], steps, "; ".join(damaged + [done.stderr])


class CrashTest(unittest.TestCase):
    def setUp(self):
        self.top = tempfile.mkdtemp(prefix="gaccd-crash-", dir="/dev/shm")
        self.addCleanup(shutil.rmtree, self.top)
        self.base = os.path.join(self.top, "base")
        code, _, steps, error = run(self.base)
        self.assertEqual((code, steps), (0, [1, 2, 3]), error)

    def fresh(self):
        folder = os.path.join(self.top, "ckpt")
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(self.base, folder)
        return folder

    def calls(self):
        """How many calls a run without faults makes; threads change it by a few."""
        count = os.path.join(self.top, "count")
        code, _, steps, error = run(self.fresh(), count=count)
        self.assertEqual((code, steps), (0, [4, 5, 6]), error)
        with open(count, encoding="ascii") as file:
            return int(file.read())

    def check(self, kind):
        calls = self.calls()
        self.assertGreater(calls, 100)
        reached = 0
        tried = places(kind, calls)
        for at in tried:
            folder = self.fresh()
            code, started, committed, error = run(folder, kind, at)
            where = f"{kind} at call {at} of {calls}: {error}"
            if kind in CRASHES:
                self.assertIn(code, (0, -9), where)
                reached += code == -9
            elif started:
                self.assertEqual(code, 0, where)
            last = max(committed, default=3)
            code, again, steps, error = run(folder)
            self.assertEqual(code, 0, f"{where}; then: {error}")
            self.assertNotIn("damaged", error, where)
            if started:
                self.assertEqual(started, [2, 1], where)
                self.assertEqual(again, [3, 1], f"{where}: its claim was lost")
            self.assertGreaterEqual(steps[0], last + 1, f"{where}: step {last} was committed")
            self.assertLessEqual(steps[0], 7, where)
            self.assertEqual(len(steps), 3, where)
        if kind in CRASHES:
            self.assertGreater(reached, len(tried) * 0.9)
        print(f"{kind}: {len(tried)} of {calls} calls")

    def test_power_in_the_first_run(self):
        """The name of the checkpoint folder itself is on the disk before anything counts."""
        for at in range(1, 80):
            folder = os.path.join(self.top, "run", "ckpt")
            shutil.rmtree(os.path.dirname(folder), ignore_errors=True)
            os.mkdir(os.path.dirname(folder))
            _, _, committed, error = run(folder, "power", at, watched=os.path.dirname(folder))
            last = max(committed, default=0)
            code, _, steps, again = run(folder)
            self.assertEqual(code, 0, again)
            self.assertGreaterEqual(steps[0], last + 1, f"call {at}: {error}")

    def test_another_writer_is_faster(self):
        """Between the look at the folder and the claim: the number that is taken is not given twice."""
        code, started, steps, error = run(self.fresh(), "claim", 1)
        self.assertEqual((code, started[0], steps), (0, 3, [4, 5, 6]), error)

    def check_load(self, kind):
        count = os.path.join(self.top, "count")
        done, words = probe(self.base, ["load"], count=count, reads="1")
        self.assertEqual(words, [["loaded", "3"]], done.stderr)
        with open(count, encoding="ascii") as file:
            calls = int(file.read())
        self.assertGreater(calls, 30)
        for at in range(1, calls + 1):
            done, words = probe(self.base, ["load"], kind, at, reads="1")
            where = f"{kind} at call {at} of {calls}: {done.returncode} {words} {done.stderr}"
            if kind == "broken":
                wanted = (done.returncode == IO_ERROR or words == [["nothing", "2"]]
                          or words == [["loaded", "3"]])
                self.assertTrue(wanted, where)
            else:
                self.assertEqual((done.returncode, words), (0, [["loaded", "3"]]), where)
        print(f"load, {kind}: {calls} calls")


def make(kind):
    return lambda self: self.check(kind)


for one in CRASHES + ERRORS:
    setattr(CrashTest, f"test_{one}", make(one))

for one in ["eio", "short", "broken"]:
    setattr(CrashTest, f"test_load_{one}", lambda self, kind=one: self.check_load(kind))

if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1] + sys.argv[3:])
