#!/usr/bin/env python3
"""What happens between the start of a run and its first update: two runs of one folder, a rank that
hangs while it reads its data, ranks with different data.

usage: start_test.py GACCD LIBRARY_OF_hold_open [unittest arguments]
"""

import fcntl
import glob
import itertools
import json
import os
import shutil
import signal
import struct
import subprocess
import sys
import time
import unittest

from folder_case import FolderCase

GACCD = os.path.abspath(sys.argv.pop(1))
HOLD = os.path.abspath(sys.argv.pop(1))
LIMIT_S = 120  # no case may need longer, hangs included
HOST = os.uname().nodename

JOB = """
name: "start"
model {{
  layer {{ name: "flatten" flatten {{}} }}
  layer {{ name: "fc" linear {{ in: 4 out: 3 }} }}
  loss {{ softmax_cross_entropy {{}} }}
}}
data {{ train {{ idx {{ images: "{images}" labels: "{labels}" classes: 3 }} }} shuffle: false }}
batch {{ target: 4 micro: 2 }}
optimizer {{ lr: 0.1 sgd {{}} }}
epochs: {epochs}
"""


def idx(magic, dims, values):
    return struct.pack(">I", magic) + b"".join(struct.pack(">I", d) for d in dims) + bytes(values)


def wait_for(what, seconds=LIMIT_S):
    limit = time.monotonic() + seconds
    while time.monotonic() < limit:
        found = what()
        if found:
            return found
        time.sleep(0.01)
    raise AssertionError("it did not come within %s s" % seconds)


class StartTest(FolderCase):
    def setUp(self):
        super().setUp()
        self.run_dir = self.path("run")
        self.write("labels", idx(0x801, (8,), [0, 1, 2, 0, 1, 2, 0, 1]))
        self.write("images", idx(0x803, (8, 2, 2), range(32)))

    def job(self, images="images", epochs=3):
        text = JOB.format(images=images if images.startswith("data/") else self.path(images),
                          labels=self.path("labels"), epochs=epochs)
        return self.write("job-%s-%s.txtpb" % (images.replace("/", "-"), epochs), text)

    def train(self, *args, ranks=0, hold=None, held_rank=None, launcher=(), launcher_alone=(), job=None):
        command = [*launcher_alone, GACCD, "train", "--job=" + (job or self.job()), "--run-dir=" + self.run_dir, *args]
        if ranks:
            command = ["mpirun", "--allow-run-as-root", "--oversubscribe", "--bind-to", "none",
                       "-n", str(ranks), *launcher, *command]
        env = {**os.environ, "OMPI_MCA_mpi_yield_when_idle": "1"}
        if hold:
            env.update(LD_PRELOAD=HOLD, HOLD_PATH=self.path(hold))
        if held_rank is not None:
            env.update(HOLD_RANK=str(held_rank))
        return subprocess.Popen(["timeout", "-k", "1", str(LIMIT_S), *command], text=True, env=env,
                                stdout=subprocess.PIPE, stderr=subprocess.STDOUT)

    def held(self, name):
        """The process that waits to open the file."""
        seen = wait_for(lambda: glob.glob(self.path(name) + ".seen-*"))
        return int(seen[0].rsplit("-", 1)[1])

    def verdict(self):
        with open(os.path.join(self.run_dir, "attempts/latest/verdict.json")) as file:
            return json.load(file)

    def crash(self, rank):
        with open(os.path.join(self.run_dir, "attempts/latest/crash/r%05d.json" % rank)) as file:
            return json.load(file)

    def test_a_second_run_is_refused_before_it_opens_its_data(self):
        os.makedirs(self.run_dir)
        with open("/proc/self/stat") as file:
            started = file.read().rsplit(")", 1)[1].split()[19]
        with open(os.path.join(self.run_dir, ".owner"), "w") as owner:
            fcntl.flock(owner, fcntl.LOCK_EX)
            owner.write("job 77\nattempt 0\nhost %s\npid %d\nstarted %s\n" %
                        (HOST, os.getpid(), started))
            owner.flush()
            began = time.monotonic()
            second = self.train(hold="images")
            said = second.communicate()[0]
            self.assertEqual(second.returncode, 78, said)
            self.assertIn("is in use by job 77 (process %d on %s)" % (os.getpid(), HOST), said)
            # It waits 1 s for the owner; it would wait 45 s for an owner of its own job.
            self.assertLess(time.monotonic() - began, 20, said)
        self.assertEqual(glob.glob(self.path("images.seen-*")), [])

    def test_a_run_opens_its_data_after_it_owns_the_folder_and_sees_earlier_commits(self):
        """Run B starts while run A is in its last save. Until B has taken A's right to write, A may
        commit; B must not look before."""
        first = self.train("--save-every-updates=1", "--max-updates=4")
        self.assertEqual(first.wait(), 0, first.stdout.read())
        first.stdout.close()
        os.remove(os.path.join(self.run_dir, "DONE"))
        newest = os.path.join(self.run_dir, "ckpt/step-%012d-e%06d" % (4, 1))
        os.rename(newest, self.path("not-yet"))
        second = self.train("--save-every-updates=1", hold="images")
        self.held("images")
        self.assertTrue(os.path.exists(os.path.join(self.run_dir, "ckpt/.epoch-000002")))
        os.rename(self.path("not-yet"), newest)
        self.write("images.go", "")
        said = second.communicate()[0]
        self.assertEqual(second.returncode, 0, said)
        self.assertIn("resumed after update 4", said)

    def test_the_job_is_read_once(self):
        job = self.job()
        self.write(os.path.basename(job) + ".go", "")
        run = self.train(hold=os.path.basename(job), job=job)
        said = run.communicate()[0]
        self.assertEqual(run.returncode, 0, said)
        self.assertEqual([os.path.getsize(seen) for seen in glob.glob(job + ".seen-*")], [1])

    def test_bad_data_leaves_a_verdict(self):
        self.write("images", b"no images")
        run = self.train()
        said = run.communicate()[0]
        self.assertEqual(run.returncode, 65, said)
        self.assertEqual(self.verdict()["exit"], 65)

    def test_out_of_memory_is_attributed_to_the_job(self):
        job = self.write("large.txtpb", """name: "large"
            model { mlp { widths: [4000, 100000, 4000] } loss { mean_squared_error {} } }
            data { train { synthetic { samples: 2 features: 4000 outputs: 4000 } } }
            batch { target: 2 micro: 1 }
            optimizer { lr: 0.1 sgd {} }""")
        run = self.train("--device=cpu", job=job, launcher_alone=("prlimit", "--as=%d" % (3 << 30)))
        said = run.communicate()[0]
        self.assertEqual(run.returncode, 78, said)
        verdict = self.verdict()
        self.assertEqual((verdict["exit"], verdict["verdict"]), (78, "fail"))
        self.assertRegex(verdict["reason"], r"no memory for .*: wanted 320\d+ bytes, \d+ are free")

    def test_a_rank_that_stops_while_it_opens_its_data(self):
        # Far below the bound of 300 s that would end it otherwise.
        for args, within in ((("--heartbeat-seconds=2",), 40),
                             (("--heartbeat-seconds=0", "--bound=4"), 40)):
            with self.subTest(args):
                shutil.rmtree(self.run_dir, ignore_errors=True)
                run = self.train(*args, ranks=4, hold="images", held_rank=2)
                stopped = self.held("images")
                os.remove(glob.glob(self.path("images.seen-*"))[0])
                began = time.monotonic()
                os.kill(stopped, signal.SIGSTOP)
                said = run.communicate()[0]
                self.assertEqual(run.returncode, 69, said)
                self.assertLess(time.monotonic() - began, within, said)
                self.assertIn("rank 2 on " + HOST, said)
                verdict = self.verdict()
                self.assertEqual(verdict["exit"], 69, verdict)
                self.assertEqual(verdict["suspect_hosts"], HOST, verdict)
                crash = self.crash(0)
                self.assertEqual(crash["collective"], "all-reduce", crash)
                self.assertGreater(crash["seq"], 0, crash)

    def test_ranks_with_different_data(self):
        """Rank 1 reads a stale copy of the data, or another job."""
        job = self.with_eval("data/images")
        with open(job) as file:
            changed = self.write("changed", file.read().replace("lr: 0.1", "lr: 0.2"))
        for rank, content in ((0, range(32)), (1, [9] * 32)):
            os.makedirs(self.path("%d/data" % rank))
            self.write("%d/data/images" % rank, idx(0x803, (8, 2, 2), content))
        weights = self.trained(job, self.path("0"))
        cases = ((job, "1", ["data must be the same on all ranks",
                             "rank 1 on %s has '8 samples, content " % HOST]),
                 (changed, "0", ["flags must be the same on all ranks", "rank 1 on " + HOST]))
        for (other, folder, texts), command in itertools.product(cases, (
                ["train", "--run-dir=" + self.run_dir], ["eval", weights],
                ["predict", weights, "--out=" + self.path("out.npy")])):
            with self.subTest((texts[0], command[0])):
                run = subprocess.run(
                    ["timeout", str(LIMIT_S), "mpirun", "--allow-run-as-root", "--oversubscribe",
                     "-n", "1", "-wdir", self.path("0"), GACCD, *command, "--job=" + job, ":",
                     "-n", "1", "-wdir", self.path(folder), GACCD, *command, "--job=" + other],
                    capture_output=True, text=True,
                    env={**os.environ, "OMPI_MCA_mpi_yield_when_idle": "1"})
                said = run.stdout + run.stderr
                self.assertEqual(run.returncode, 78, said)
                for text in texts:
                    self.assertIn(text, said)

    def with_eval(self, images):
        """A job whose evaluation data is its training data."""
        with open(self.job(images)) as file:
            text = file.read()
        source = text.split("train {")[1].split("} shuffle")[0]
        return self.write("job", text.replace("shuffle:", "eval {%s} shuffle:" % source))

    def trained(self, job, folder):
        """Trains the job; returns the flag --weights for eval and predict."""
        made = subprocess.run([GACCD, "train", "--job=" + job, "--save-weights=" + self.path("weights")],
                              cwd=folder, capture_output=True, text=True)
        self.assertEqual(made.returncode, 0, made.stderr)
        return "--weights=" + self.path("weights")

    def test_data_that_changes_while_it_is_evaluated(self):
        job = self.with_eval("images")
        weights = self.trained(job, self.dir)
        for command in (["eval"], ["predict", "--out=" + self.path("out.npy")]):
            with self.subTest(command[0]):
                env = {**os.environ, "LD_PRELOAD": HOLD, "HOLD_PATH": self.path("weights")}
                with subprocess.Popen([GACCD, *command, "--job=" + job, weights], env=env,
                                      stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                                      text=True) as run:
                    self.held("weights")
                    os.utime(self.path("images"), (len(command), len(command)))
                    self.write("weights.go", "")
                    said = run.communicate(timeout=LIMIT_S)[0]
                self.assertEqual(run.returncode, 65, said)
                self.assertIn("images: was changed while in use", said)
                self.assertFalse(os.path.exists(self.path("out.npy")))
                for name in glob.glob(self.path("weights.*")):
                    os.remove(name)


if __name__ == "__main__":
    unittest.main(verbosity=1)
