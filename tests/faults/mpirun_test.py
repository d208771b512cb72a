#!/usr/bin/env python3
"""Under plain mpirun there is a verdict.json whichever way the ranks end, and mpirun returns what
README.md says. Ranks of --local-ranks have the time to save.

Usage: mpirun_test.py GACCD [unittest arguments]
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

import open_mpi

GACCD = os.path.abspath(sys.argv.pop(1))
LIMIT_S = 120
JOB = """
name: "mpirun"
model {
  layer { name: "fc" linear { in: 64 out: 8 } }
  loss { mean_squared_error {} }
}
data { train { synthetic { samples: 4096 features: 64 outputs: 8 } } }
batch { target: 48 micro: 16 }
optimizer { lr: 0.001 sgd {} }
epochs: 1000000
"""


class Mpirun(unittest.TestCase):
    def setUp(self):
        self.dir = Path(tempfile.mkdtemp(prefix="gaccd-mpirun-"))
        self.addCleanup(shutil.rmtree, self.dir, ignore_errors=True)  # a guard may still write there
        (self.dir / "job.txtpb").write_text(JOB)
        self.attempt = self.dir / "run" / "attempts" / "latest"

    def output(self):
        return (self.dir / "output").read_text()

    def said(self):
        return self.output()[-3000:]

    def wait_for(self, path):
        limit = time.monotonic() + LIMIT_S
        while not path.exists():
            self.assertLess(time.monotonic(), limit, f"no {path}: {self.said()}")
            time.sleep(0.02)
        return path

    def start(self, ranks, local=False, more=None):
        """Until there are updates."""
        launcher = ["mpirun", "--allow-run-as-root", "--oversubscribe", "--bind-to", "none", "-n", str(ranks)]
        flags = [f"--local-ranks={ranks}"] if local else []
        with open(self.dir / "output", "w", encoding="utf-8") as output:
            run = subprocess.Popen([*(launcher if ranks > 1 and not local else []), GACCD, "train",
                                    f"--job={self.dir}/job.txtpb", f"--run-dir={self.dir}/run", *flags],
                                   stdout=output, stderr=subprocess.STDOUT, start_new_session=local,
                                   env={**os.environ, "OMPI_MCA_mpi_yield_when_idle": "1", **(more or {})})
        self.addCleanup(lambda: run.poll() is None and run.terminate())
        events = self.wait_for(self.attempt / "events.jsonl")
        while b'"step":20,' not in events.read_bytes():
            self.assertIsNone(run.poll(), self.said())
            time.sleep(0.02)
        return run

    def pid(self, rank):
        rows = (self.attempt / "ranks.tsv").read_text().splitlines()[1:]
        return int(rows[rank].split("\t")[-1])

    def verdict(self, run, code):
        self.assertEqual(run.wait(LIMIT_S), code, self.said())
        verdict = json.loads(self.wait_for(self.attempt / "verdict.json").read_text())
        self.assertGreaterEqual(verdict["last_step"], 20)
        self.assertEqual(verdict["verdict"], "requeue")
        return verdict

    def test_a_rank_is_killed(self):
        for rank in (0, 2):
            with self.subTest(rank=rank):
                shutil.rmtree(self.dir / "run", ignore_errors=True)
                run = self.start(3)
                os.kill(self.pid(rank), signal.SIGKILL)
                verdict = self.verdict(run, 137)
                self.assertEqual((verdict["exit"], verdict["first_rank"]), (69, rank))

    def test_a_local_rank_is_killed(self):
        """The code is that of verdict.json, not the 137 of mpirun."""
        for rank in (0, 2):
            with self.subTest(rank=rank):
                shutil.rmtree(self.dir / "run", ignore_errors=True)
                run = self.start(3, local=True)
                os.kill(self.pid(rank), signal.SIGKILL)
                verdict = self.verdict(run, 69)
                self.assertEqual((verdict["exit"], verdict["first_rank"]), (69, rank))

    def test_all_ranks_are_killed(self):
        run = self.start(3)
        for pid in [self.pid(rank) for rank in range(3)]:
            os.kill(pid, signal.SIGKILL)
        verdict = self.verdict(run, 137)
        self.assertEqual(verdict["exit"], 69)

    def test_the_only_rank_is_killed(self):
        run = self.start(1)
        run.kill()
        verdict = self.verdict(run, -signal.SIGKILL)
        self.assertIn("has ended without a verdict after update", verdict["reason"])
        self.assertEqual(verdict["first_rank"], 0)

    def test_the_only_rank_outlives_its_shell(self):
        """As after nohup and a logout: no launcher started it."""
        arguments = f"--job={self.dir}/job.txtpb --run-dir={self.dir}/run --max-updates=20000"
        subprocess.run(["sh", "-c", f'"{GACCD}" train {arguments} >"{self.dir}/output" 2>&1 & sleep 2'], check=True)
        verdict = json.loads(self.wait_for(self.attempt / "verdict.json").read_text())
        self.assertEqual((verdict["verdict"], verdict["last_step"]), ("done", 20000), self.said())

    def test_ctrl_c(self):
        # A busy disk may need more than the second that mpirun leaves its ranks for a save.
        run = self.start(3, more={"OMPI_MCA_odls_base_sigkill_timeout": "5"})
        run.send_signal(signal.SIGINT)
        verdict = self.verdict(run, 1)
        if open_mpi.MAJOR >= 5 and verdict["exit"] == 69:
            self.assertIn("mpirun and its ranks have ended", verdict["reason"])
            return
        self.assertEqual(verdict["exit"], 75)
        self.assertRegex(verdict["reason"], "^stopped by SIGTERM .*, saved")

    def test_ctrl_c_twice(self):
        run = self.start(3)
        run.send_signal(signal.SIGINT)
        time.sleep(0.4)  # mpirun has the first one, and waits for a second before it signals its ranks
        run.send_signal(signal.SIGINT)
        verdict = self.verdict(run, 1)
        self.assertEqual(verdict["exit"], 69)
        self.assertRegex(verdict["reason"], "mpirun and its ranks have ended after update [0-9]+: .*--local-ranks=3")
        self.assertNotIn("suspect_hosts", verdict)
        # The others say the same, at once.
        for verb in ("status", "doctor"):
            shown = self.gaccd(verb, f"{self.dir}/run")
            self.assertEqual(shown.returncode, 1, shown.stdout)
            self.assertRegex(shown.stdout, "state +stopped .*exit 69")
            self.assertIn("mpirun and its ranks have ended", shown.stdout)
        self.assertIn("restart it", shown.stdout)

    def gaccd(self, *args):
        return subprocess.run([GACCD, *args], check=False, text=True, timeout=LIMIT_S, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT)

    def test_plain_mpirun_gives_a_warning_once(self):
        run = self.start(2)
        run.send_signal(signal.SIGINT)
        self.verdict(run, 1)
        self.assertEqual(self.output().count("--local-ranks=2"), 1, self.said())

    def test_local_ranks_have_time_to_save(self):
        """A rank is stopped for 1.5 s, as in a long update, when Ctrl-C or timeout signals the whole group of
        processes: mpirun by itself would have killed all ranks after a second."""
        for number in (signal.SIGINT, signal.SIGTERM):
            with self.subTest(signal=number.name):
                shutil.rmtree(self.dir / "run", ignore_errors=True)
                run = self.start(3, local=True)
                held = self.pid(1)
                os.kill(held, signal.SIGSTOP)
                os.killpg(run.pid, number)
                time.sleep(1.5)
                os.kill(held, signal.SIGCONT)
                verdict = self.verdict(run, 75)
                self.assertRegex(verdict["reason"], f"^stopped by {number.name} .*, saved")
                self.assertNotIn("--local-ranks", self.output())
                self.assertIn("stopped by", self.gaccd("status", f"{self.dir}/run").stdout)

    def test_local_ranks_end_with_what_started_them(self):
        run = self.start(2, local=True)
        ranks = [self.pid(rank) for rank in range(2)]
        run.kill()
        reason = self.verdict(run, -signal.SIGKILL)["reason"]
        self.assertRegex(reason, "mpirun and its ranks have ended after update [0-9]+: .* killed$")
        for pid in ranks:
            self.wait_until_gone(pid)

    def wait_until_gone(self, pid):
        limit = time.monotonic() + LIMIT_S
        while os.path.exists(f"/proc/{pid}"):
            self.assertLess(time.monotonic(), limit, f"process {pid} lives")
            time.sleep(0.02)

    def test_local_ranks_are_refused_where_a_launcher_starts_them(self):
        for variable in ("OMPI_COMM_WORLD_SIZE", "SLURM_STEP_ID", "SLURM_JOB_ID"):
            done = subprocess.run([GACCD, "check", "--local-ranks=2"], check=False, text=True, timeout=LIMIT_S,
                                  stderr=subprocess.PIPE, env={**os.environ, variable: "1"})
            self.assertEqual(done.returncode, 64, done.stderr)
            self.assertIn(variable, done.stderr)

    def test_local_ranks_without_mpirun(self):
        done = subprocess.run([GACCD, "check", "--local-ranks=2"], check=False, text=True, timeout=LIMIT_S,
                              stderr=subprocess.PIPE, env={"PATH": str(self.dir)})
        self.assertEqual(done.returncode, 69, done.stderr)
        self.assertIn("needs mpirun", done.stderr)


if __name__ == "__main__":
    unittest.main()
