#!/usr/bin/env python3
"""The run folder fills up, becomes read-only or is removed while the real program trains: training
continues to its end, lost lines are counted, and a later line says how many.

Usage: log_folder_test.py GACCD   (run by CTest; mounts a small tmpfs in a namespace of its own)
"""

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
import unittest
from pathlib import Path

LIMIT_S = 120
UPDATES = 3000
JOB = """
name: "log-folder"
model {
  layer { name: "fc1" linear { in: 256 out: 256 } }
  layer { name: "fc2" linear { in: 256 out: 8 } }
  loss { mean_squared_error {} }
}
data { train { synthetic { samples: 4096 features: 256 outputs: 8 } } }
batch { target: 256 micro: 256 }
optimizer { lr: 0.001 sgd {} }
epochs: 1000
max_updates: %d
log_every: 1
""" % UPDATES


class LogFolder(unittest.TestCase):
    def setUp(self):
        self.dir = Path(tempfile.mkdtemp(prefix="gaccd-log-folder-"))
        self.addCleanup(shutil.rmtree, self.dir, ignore_errors=True)
        self.disk = self.dir / "disk"
        self.disk.mkdir(mode=0o700)
        self.mount("-t", "tmpfs", "-o", "size=8m,mode=0700", "tmpfs", str(self.disk))
        self.addCleanup(subprocess.run, ["umount", "-l", str(self.disk)], check=False)
        self.run_dir = self.disk / "run"
        (self.dir / "job.txtpb").write_text(JOB)
        self.output = self.dir / "output"

    def mount(self, *arguments):
        subprocess.run(["mount", *arguments], check=True)

    def start(self, *args):
        with open(self.output, "w", encoding="utf-8") as output:
            process = subprocess.Popen(
                [GACCD, "train", f"--job={self.dir}/job.txtpb", f"--run-dir={self.run_dir}",
                 *(args or ["--save-every-seconds=0"])],  # a checkpoint at the end would fail, too
                stdout=output, stderr=subprocess.STDOUT)
        self.addCleanup(lambda: process.poll() is None and process.kill())
        self.wait_until(lambda: len(self.events()) > 200, process)
        return process

    def wait_until(self, condition, process):
        end = time.monotonic() + LIMIT_S
        while not condition():
            self.assertIsNone(process.poll(), "ended too early: " + self.tail())
            self.assertLess(time.monotonic(), end, self.tail())
            time.sleep(0.01)

    def finish(self, process, code=0):
        """All updates are done. 74: only that the run is complete (DONE) could not be written down."""
        self.assertEqual(process.wait(LIMIT_S), code, self.tail())
        text = self.output.read_text()
        self.assertEqual(text.count(f" step: {UPDATES}, loss is "), 1, self.tail())
        self.assertRegex(text, rf"\n(done|stopped): {UPDATES} updates")
        return text

    def tail(self):
        return self.output.read_text()[-1000:]

    def events(self):
        path = self.run_dir / "attempts/latest/events.jsonl"
        return path.read_bytes().splitlines() if path.exists() else []

    def status(self):
        return json.loads((self.run_dir / "STATUS.json").read_text())

    def fill(self):
        ballast = self.disk / "ballast"
        with open(ballast, "wb", buffering=0) as file:
            try:
                while file.write(b"x" * 4096):
                    pass
            except OSError:
                pass
        return ballast

    def test_a_full_disk_is_reported_before_its_consequences(self):
        process = self.start("--save-every-updates=300", "--failed-saves=2")
        self.fill()
        self.assertEqual(process.wait(LIMIT_S), 74, self.tail())
        said = [line for line in self.output.read_text().splitlines() if line.startswith("gaccd: ")]
        for line in said:
            self.assertRegex(line, r"^gaccd: (warning|error \(io, exit 74\)): cannot \w+ '[^;]*': No space left on device")
        self.assertRegex(said[-1], r"; 2 saves failed in a row")
        # Room was kept for how it ended.
        attempt = self.run_dir / "attempts/latest"
        verdict = json.loads((attempt / "verdict.json").read_text())
        self.assertEqual(verdict["exit"], 74)
        self.assertIn("No space left on device", verdict["reason"])
        self.assertEqual(self.status()["exit"], 74)
        judged = subprocess.run([GACCD, "verdict", f"--attempt-dir={attempt}", "--srun-rc=74"],
                                capture_output=True, text=True, check=True).stdout.splitlines()
        self.assertEqual(judged[0], "fail")
        self.assertIn("No space left on device", judged[1])
        self.assertEqual(len((self.run_dir / "ledger.jsonl").read_text().splitlines()), 1)
        doctor = subprocess.run([GACCD, "doctor", str(self.run_dir)], capture_output=True, text=True, check=False)
        self.assertEqual(doctor.returncode, 2)
        self.assertIn("free space", doctor.stdout)

    def test_a_full_disk_and_free_space_again(self):
        process = self.start()
        ballast = self.fill()
        self.wait_until(lambda: "training continues" in self.output.read_text(), process)
        time.sleep(0.5)
        ballast.unlink()
        text = self.finish(process)
        self.assertEqual(text.count("training continues, some log lines are lost"), 1, "said once")
        reported = 0
        for line in self.events():
            try:
                event = json.loads(line)
            except ValueError:
                continue  # the half line that was written last
            if event["ev"] == "dropped":
                reported += event["lines"]
                self.assertRegex(event["reason"], "No space left on device")
        seen = sum(b'"ev":"step"' in line and line.endswith(b"}") for line in self.events())
        lost = UPDATES - seen
        self.assertGreater(lost, 20)
        self.assertIn(reported - lost, (0, 1), "steps, and perhaps the warning")
        status = self.status()
        self.assertEqual(status["state"], "done")
        self.assertGreaterEqual(status["dropped_lines"], reported)
        log = (self.run_dir / "attempts/latest/log/gaccd.INFO").read_text()
        self.assertRegex(log, r"\n# \S+Z \d+ lines are lost: cannot write ")

    def test_a_disk_that_becomes_read_only(self):
        process = self.start()
        # Open files keep a disk writable, as far as remounting goes; a bind mount does not ask them.
        self.mount("--bind", str(self.disk), str(self.disk))
        self.mount("-o", "remount,bind,ro", str(self.disk))
        self.addCleanup(subprocess.run, ["umount", "-l", str(self.disk)], check=False)
        self.assertRegex(self.finish(process, 74), r"error .*DONE.*: Read-only file system")

    def test_a_folder_that_is_removed(self):
        process = self.start()
        shutil.rmtree(self.run_dir)
        self.assertRegex(self.finish(process, 74), r"error .*DONE.*: No such file or directory")


def in_namespace(arguments):
    own = ["unshare", "--mount"] if os.geteuid() == 0 else ["unshare", "--user", "--map-root-user", "--mount"]
    if subprocess.run([*own, "true"], check=False, capture_output=True).returncode != 0:
        print("skipped: this machine gives no mount namespace", file=sys.stderr)
        sys.exit(77)
    os.execvp(own[0], [*own, sys.executable, "-B", os.path.abspath(__file__), "--inside", *arguments])


if __name__ == "__main__":
    if sys.argv[1] != "--inside":
        in_namespace(sys.argv[1:])
    sys.argv.pop(1)
    GACCD = os.path.abspath(sys.argv.pop(1))
    unittest.main()
