#!/usr/bin/env python3
"""The file server of the run folder stops for longer than --bound while four ranks train: they continue
and nobody is blamed; what must end meanwhile ends within the bound and names the folder.

Usage: hang_test.py GACCD [--seconds=8] [--bound=5] [unittest arguments]
"""

import argparse
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest
from pathlib import Path

SKIPPED = 77  # CTest's SKIP_RETURN_CODE
RANKS = 4
LIMIT_S = 120  # in addition to the hang
LAUNCHER_S = 10  # mpirun's own time, on a busy machine: it signals twice, a second apart
HERE = Path(__file__).resolve().parent
JOB = """
name: "hang"
model {
  layer { name: "fc" linear { in: 64 out: 8 } }
  loss { mean_squared_error {} }
}
data { train { synthetic { samples: 4096 features: 64 outputs: 8 } } }
batch { target: 64 micro: 16 }
optimizer { lr: 0.001 sgd {} }
epochs: 1000000
log_every: 10
"""


def wait_for(what, text, seconds=LIMIT_S):
    limit = time.monotonic() + seconds
    while not (found := what()):
        if time.monotonic() > limit:
            raise AssertionError("it did not come within %s s: %s" % (seconds, text()))
        time.sleep(0.02)
    return found


class Hang(unittest.TestCase):
    def setUp(self):
        self.dir = Path(tempfile.mkdtemp(prefix="gaccd-hang-"))
        self.addCleanup(shutil.rmtree, self.dir, ignore_errors=True)
        self.disk, self.mount = self.dir / "disk", self.dir / "mount"
        for folder in (self.disk, self.mount):
            folder.mkdir(mode=0o700)
        self.server = subprocess.Popen([sys.executable, "-B", str(HERE / "hang_server.py"),
                                        str(self.disk), str(self.mount)])
        self.addCleanup(self.server.wait)
        self.addCleanup(subprocess.run, ["umount", "-l", str(self.mount)], check=False)
        self.addCleanup(self.server.send_signal, signal.SIGCONT)
        wait_for(lambda: os.path.ismount(self.mount), lambda: "no mount")
        (self.dir / "job.txtpb").write_text(JOB)
        self.output = self.dir / "output"

    # Files on the disk can be read while the server does not answer.
    def run_dir(self):
        return self.disk / "run"

    def said(self):
        """Without most of the lines about updates."""
        lines = self.output.read_text().splitlines()
        return "\n".join(line for i, line in enumerate(lines)
                         if " step: " not in line or i + 20 > len(lines))

    def train(self, *args, program=(), run_dir=None):
        """Until some updates are done. program: what starts gaccd on each rank."""
        with open(self.output, "w", encoding="utf-8") as output:
            run = subprocess.Popen(
                ["timeout", "-k", "1", str(LIMIT_S + 3 * SECONDS), "mpirun", "--allow-run-as-root",
                 "--oversubscribe", "--bind-to", "none", "-n", str(RANKS), *program, GACCD, "train",
                 f"--job={self.dir}/job.txtpb", f"--run-dir={run_dir or self.mount / 'run'}", f"--bound={BOUND}",
                 *args],
                stdout=output, stderr=subprocess.STDOUT,
                env={**os.environ, "OMPI_MCA_mpi_yield_when_idle": "1"})
        self.addCleanup(lambda: run.poll() is None and run.terminate())
        wait_for(lambda: self.updates() > 50 or run.poll() is not None, self.said)
        self.assertIsNone(run.poll(), self.said())
        return run

    def updates(self):
        """As printed on stdout, which does not hang."""
        steps = re.findall(r" step: (\d+), loss", self.output.read_text())
        return int(steps[-1]) if steps else 0

    def pids(self):
        table = (self.run_dir() / "attempts/latest/ranks.tsv").read_text().splitlines()
        return [int(row.split("\t")[-1]) for row in table[1:]]

    def events(self):
        text = (self.run_dir() / "attempts/latest/events.jsonl").read_text()
        return [json.loads(line) for line in text.splitlines()]

    def crashes(self):
        return list((self.run_dir() / "attempts/latest/crash").iterdir())

    def hang(self):
        """Stops the server while it has no request: a process whose request it has cannot be killed."""
        server = Path(f"/proc/{self.server.pid}")
        while True:
            taken = (server / "io").read_text().splitlines()[0]  # bytes that read() has returned
            waits = (server / "syscall").read_text().startswith("0 ")  # in read()
            self.server.send_signal(signal.SIGSTOP)
            wait_for(lambda: ") T " in (server / "stat").read_text(), self.said)
            if waits and (server / "io").read_text().splitlines()[0] == taken:
                return
            self.server.send_signal(signal.SIGCONT)
            time.sleep(0.01)

    def end(self, run, within):
        began = time.monotonic()
        try:
            run.wait(LIMIT_S)
        except subprocess.TimeoutExpired:
            self.fail(self.said())
        self.assertLess(time.monotonic() - began, within, self.said())
        return run.returncode

    def test_training_continues_while_the_folder_hangs(self):
        run = self.train("--save-every-updates=50")
        postponed = "is postponed: the two before it are not written yet"
        self.hang()
        before, before_hang = self.updates(), self.said().count(postponed)
        time.sleep(SECONDS / 2)
        halfway = self.updates()
        time.sleep(SECONDS / 2)
        after = self.updates()
        self.assertGreater(halfway, before + 20, self.said())
        self.assertGreater(after, halfway + 20, "the ranks make no progress: " + self.said())
        # A disk that is slow may have postponed one before, which lasts until there is room.
        self.assertIn(postponed, self.said())
        self.assertLessEqual(self.said().count(postponed) - before_hang, 1, "said once in a hang: " + self.said())
        self.server.send_signal(signal.SIGCONT)
        newest = lambda: max((int(name.name.split("-")[1]) for name in
                              (self.run_dir() / "ckpt").glob("step-*") if (name / "MANIFEST").exists()),
                             default=0)
        wait_for(lambda: newest() > after, self.said)
        os.kill(self.pids()[0], signal.SIGUSR1)
        self.assertEqual(self.end(run, LIMIT_S), 75, self.said())
        text = self.said()
        self.assertRegex(text, r"stopped by SIGUSR1 .*, saved")
        self.assertEqual(self.crashes(), [], "nobody is blamed")
        events = self.events()
        self.assertEqual(events[-1]["ev"], "verdict")
        self.assertNotIn("suspect_hosts", events[-1])
        steps = [e["step"] for e in events if e["ev"] == "step"]
        lost = sum(e["lines"] for e in events if e["ev"] == "dropped")
        self.assertEqual(len(events) - sum(e["ev"] == "dropped" for e in events) + lost,
                         events[-1]["seq"], "every line is there or counted")
        self.assertGreaterEqual(events[-1]["last_step"], after)
        self.assertLessEqual(events[-1]["last_step"] - len(steps), lost, "steps")
        if SECONDS >= 30:
            self.assertIn("has not answered for 10 s; training continues", text)

    def test_a_rank_is_killed_while_the_folder_hangs(self):
        run = self.train("--save-every-seconds=0")
        pids = self.pids()
        self.hang()
        time.sleep(SECONDS / 2)
        os.kill(pids[RANKS - 1], signal.SIGKILL)
        self.assertEqual(self.end(run, BOUND + LAUNCHER_S), 137, self.said())
        text = self.said()
        self.assertRegex(text, r"error \(unavailable, exit 69\): rank 0 .*rank 3 on \S+ has ended.*; the run folder "
                               rf"'{self.mount}/run' does not answer: verdict.json was not written")
        # FUSE lets go of a killed process only now if its server was at what that had asked for.
        self.server.send_signal(signal.SIGCONT)
        for pid in pids:
            wait_for(lambda pid=pid: not Path(f"/proc/{pid}").exists(), self.said)

    def test_a_rank_that_crashes_while_the_folder_hangs(self):
        """Its record cannot be written: it ends all the same, and the others with it."""
        run = self.train("--save-every-seconds=0", "--heartbeat-seconds=60", "--bound=60")
        pids = self.pids()
        self.hang()
        os.kill(pids[2], signal.SIGSEGV)
        self.assertEqual(self.end(run, 30), 128 + signal.SIGALRM, self.said())
        self.assertIn("SIGSEGV", self.said())

    def test_a_run_that_is_stopped_while_the_folder_hangs(self):
        run = self.train("--save-every-updates=50")
        pids = self.pids()
        self.hang()
        time.sleep(1)
        os.kill(pids[1], signal.SIGUSR1)
        self.assertEqual(self.end(run, 2 * BOUND + LAUNCHER_S), 75, self.said())
        self.assertRegex(self.said(), r"error \(tempfail, exit 75\): stopped by SIGUSR1 \(1 of 4 ranks\) after update \d+, "
                                      rf"not saved: .*the file system of '{self.mount}/run/ckpt' does not answer")

    def test_training_continues_while_its_output_hangs(self):
        """As under slurm/launch, the output of each rank is a file; here only that file hangs."""
        self.output = self.disk / "0.out"
        self.run_dir = lambda: self.dir / "run"
        to_file = 'exec "$0" "$@" >"%s/$OMPI_COMM_WORLD_RANK.out" 2>&1' % self.mount
        run = self.train(program=["sh", "-c", to_file], run_dir=self.run_dir())
        steps = lambda: sum(event["ev"] == "step" for event in self.events())
        pids = self.pids()
        self.hang()
        before, printed = steps(), self.updates()
        time.sleep(SECONDS)
        self.assertGreater(steps(), before + 20, self.said())
        os.kill(pids[1], signal.SIGUSR1)
        wait_for(lambda: self.events()[-1]["ev"] == "verdict", self.said)
        self.assertEqual(self.end(run, 2 * BOUND + LAUNCHER_S), 75, self.said())
        self.assertLessEqual(self.updates(), printed + 20, "the output hangs until here")

    def test_a_run_that_is_complete_while_the_folder_hangs(self):
        run = self.train("--save-every-seconds=0", "--max-updates=30000")  # some seconds: hang() comes in time
        self.hang()
        code = self.end(run, LIMIT_S)
        self.assertEqual(code, 75, self.said())
        self.assertRegex(self.said(), rf"the training is complete, but the file system of '{self.mount}/run' does not answer")


def in_namespace():
    """Mounts of its own, gone with it."""
    if os.geteuid() != 0 or not os.path.exists("/dev/fuse"):
        return "needs root and /dev/fuse"
    if not os.path.exists("/usr/lib/python3/dist-packages/fusepy.py"):
        return "needs Debian's python3-fusepy"
    if subprocess.run(["unshare", "--mount", "true"], check=False, capture_output=True).returncode != 0:
        return "this machine gives no mount namespace"
    os.execvp("unshare", ["unshare", "--mount", sys.executable, "-B", os.path.abspath(__file__), "--inside",
                          *sys.argv[1:]])


if __name__ == "__main__":
    if sys.argv[1] != "--inside":
        print("skipped:", in_namespace(), file=sys.stderr)
        sys.exit(SKIPPED)
    sys.argv.pop(1)
    parser = argparse.ArgumentParser()
    parser.add_argument("gaccd")
    parser.add_argument("--seconds", type=float, default=8)
    parser.add_argument("--bound", type=int, default=5)
    options, rest = parser.parse_known_args()
    GACCD, SECONDS, BOUND = os.path.abspath(options.gaccd), options.seconds, options.bound
    unittest.main(argv=[sys.argv[0], *rest])
