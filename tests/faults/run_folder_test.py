#!/usr/bin/env python3
"""A run folder that is used again, files and folders that a user names by mistake: nothing is
written over or lost, and what is seldom meant is said.

usage: run_folder_test.py GACCD LIBRARY_OF_hold_open [unittest arguments]
"""

import glob
import json
import os
import re
import struct
import subprocess
import sys
import time
import unittest

from folder_case import FolderCase

GACCD = os.path.abspath(sys.argv.pop(1))
HOLD = os.path.abspath(sys.argv.pop(1))
LIMIT_S = 120  # no case may need longer, hangs included

JOB = """
name: "again"
model {{ layer {{ name: "fc" linear {{ in: 4 out: 1 }} }} loss {{ mean_squared_error {{}} }} }}
data {{ train {{ {source} }} }}
batch {{ target: 7 micro: 2 }}
optimizer {{ lr: 0.1 {optimizer} {{}} }}
schedule {{ warmup_updates: {warmup} }}
epochs: 2
"""


def npy(values):
    header = "{'descr': '<f4', 'fortran_order': False, 'shape': (%d, %d), }" % (
        len(values), len(values[0]))
    header += " " * ((64 - (len(header) + 11) % 64) % 64) + "\n"
    data = b"".join(struct.pack("<%df" % len(row), *row) for row in values)
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header.encode() + data


class RunFolder(FolderCase):
    def setUp(self):
        super().setUp()
        self.run_dir = self.path("run")
        self.run_flag = "--run-dir=" + self.run_dir

    def job(self, source="synthetic { samples: 20 features: 4 }", optimizer="sgd", warmup=0):
        return self.write("job.txtpb",
                          JOB.format(source=source, optimizer=optimizer, warmup=warmup))

    def gaccd(self, code, texts, *args, env=None):
        result = subprocess.run([GACCD, *args], timeout=LIMIT_S, capture_output=True, text=True,
                                cwd=self.dir, env={**os.environ, **(env or {})})
        said = result.stdout + result.stderr
        self.assertEqual(result.returncode, code, said)
        for text in texts:
            self.assertIn(text, said)
        return said

    def train(self, code, texts, *args, job=None, **kwargs):
        return self.gaccd(code, texts, "train", "--job=" + (job or self.job()), *args, **kwargs)

    def attempts(self):
        return len(glob.glob(self.run_dir + "/attempts/[0-9]*"))

    def done(self):
        with open(self.run_dir + "/DONE") as file:
            return file.readline().strip()

    def weights(self, name):
        with open(self.path(name), "rb") as file:
            return file.read()

    def test_a_complete_run(self):
        self.train(0, ["done: 6 updates"], self.run_flag, "--save-weights=first")
        self.train(0, ["this run is complete (6 updates, 40 samples): nothing to do"],
                   self.run_flag, "--micro-batch=3", "--log-every=7")
        self.train(0, ["wrote second: the parameters after 6 updates"], self.run_flag,
                   "--save-weights=second")
        self.assertEqual(self.weights("first"), self.weights("second"))
        for flag, text in (("--seed=3", "seed: 1 -> 3"), ("--target-batch=6", "target: 7 -> 6"),
                           ("--epochs=1", "epochs: 2 -> 1"), ("--resume=never", "is removed")):
            self.train(78, ["'%s' is complete" % self.run_dir, text], self.run_flag, flag)
        self.train(78, ["adamw"], self.run_flag, "--epochs=4", job=self.job(optimizer="adamw"))
        self.train(78, ["samples: 20 -> 21"], self.run_flag,
                   job=self.job("synthetic { samples: 21 features: 4 }"))
        self.train(65, ["'nowhere/ckpt' holds no checkpoint"], self.run_flag, "--resume=nowhere")
        self.train(0, ["nothing to do"], self.run_flag, "--resume=" + self.run_dir)
        self.assertEqual(self.attempts(), 1)
        self.assertEqual(self.done(), "6 updates, 40 samples")
        # A job that fails leaves DONE as it is, one that continues replaces it.
        self.train(78, ["seed"], self.run_flag, "--seed=3", "--epochs=4")
        self.train(0, ["resumed after update 6", "epochs: 2 -> 4"], self.run_flag, "--epochs=4")
        self.assertEqual(self.done(), "12 updates, 80 samples")

    def test_a_complete_run_with_more_updates_is_incomplete_until_they_are_done(self):
        self.train(0, ["done: 6 updates"], self.run_flag)
        missing = self.path("no") + "/weights"
        self.train(74, [missing], self.run_flag, "--epochs=4", "--save-weights=" + missing)
        self.assertEqual(self.done(), "6 updates, 40 samples")
        self.write("run/STOP", "")
        said = self.train(93, ["remove %s/STOP" % self.run_dir], self.run_flag, "--epochs=4")
        self.assertNotIn("resumed", said)
        self.assertEqual(self.done(), "6 updates, 40 samples")
        os.remove(self.path("run/STOP"))
        self.train(0, [], self.run_flag, "--epochs=4", "--max-updates=9")
        self.assertEqual(self.done(), "9 updates, 60 samples")

    def test_a_complete_run_without_checkpoints(self):
        flags = [self.run_flag, "--save-every-seconds=0"]
        self.train(0, ["done: 6 updates"], *flags)
        self.train(0, ["nothing to do"], *flags)
        self.train(78, ["seed: 1 -> 3"], *flags, "--seed=3")
        self.train(0, ["no checkpoint to continue from: another --run-dir"], *flags)
        self.train(78, ["epochs: 2 -> 4; it has no checkpoint to continue from"], *flags, "--epochs=4")
        self.train(78, ["no checkpoint"], *flags, "--save-weights=late")
        self.write("run/DONE", "")  # by hand
        self.train(0, ["its length is unknown"], *flags, "--seed=3")

    def test_a_run_that_saves_nothing_reports_where_it_begins(self):
        off = "--save-every-seconds=0"
        self.train(0, ["stopped, the run begins again at update 1\n"], self.run_flag, off)
        os.remove(self.run_dir + "/DONE")
        self.train(0, ["has 1 earlier attempt and no checkpoint: the training begins at update 1"],
                   self.run_flag)
        said = self.train(0, ["stopped, the run begins again at update 7\n"], self.run_flag, off,
                          "--epochs=4")
        self.assertNotIn("earlier attempt", said)
        # The newest training there has saved nothing yet.
        with open(max(glob.glob(self.run_dir + "/ckpt/.epoch-*")), "a") as claim:
            claim.write("begun 9 from never\n")
        os.remove(self.run_dir + "/DONE")
        said = self.train(0, ["has saved nothing and begins again", "done: 6 updates"],
                          self.run_flag, off)
        self.assertNotIn("resumed", said)

    def test_a_run_that_stopped_early_continues_only_with_more_patience(self):
        """No evaluation is better by so much: the second one after the first ends it."""
        job = self.write("job.txtpb", JOB.replace("train {{", "eval {{ {source} }} train {{").format(
            source="synthetic { samples: 20 features: 4 }", optimizer="sgd", warmup=0) +
            "evaluation { every_updates: 1 patience: 1 least_change: 1e9 keep_best: true }")
        early = "stopped early: no better loss for 1 evaluation"
        self.train(0, [early, "done: 2 updates", "w has "], self.run_flag, "--save-weights=w", job=job)
        with open(self.run_dir + "/attempts/latest/verdict.json") as file:
            verdict = json.load(file)
        self.assertEqual((verdict["verdict"], verdict["reason"]), ("done", early))
        for flag in ("--epochs=2", "--epochs=9"):
            self.train(0, ["(2 updates, 14 samples; %s): nothing to do; raise evaluation.patience"
                           % early], self.run_flag, flag, job=job)
        self.train(0, ["resumed after update 2", "no better loss for 2 evaluations",
                       "done: 3 updates"], self.run_flag, "--set=evaluation.patience=2", job=job)
        self.gaccd(0, ["the best: loss "], "ckpt", "ls", "run")
        self.gaccd(0, ["eval: loss is "], "eval", "--job=" + job, "--weights=run", "--best")
        self.gaccd(64, ["--best"], "eval", "--job=" + job, "--weights=w", "--best")

    def test_the_weights_in_a_file_are_reported(self):
        """With a high learning rate the loss grows, and the first evaluation is the best."""
        base = JOB.replace("train {{", "eval {{ {source} }} train {{").format(
            source="synthetic { samples: 20 features: 4 }", optimizer="sgd", warmup=0)
        for rate, best in ((0.001, 6), (100, 2)):
            job = self.write("job.txtpb", base.replace("lr: 0.1", "lr: %g" % rate) +
                             "evaluation { every_updates: 2 keep_best: true }")
            has = "these weights" if best == 6 else "the last weights, after update 6"
            run = "run-%g" % rate
            said = self.train(0, ["after update %d; w has %s" % (best, has)], "--run-dir=" + run,
                              "--save-weights=w", job=job)
            other = best != 6
            self.assertEqual("; eval, predict and ckpt export use its checkpoint" in said, other)
            for verb in (["ckpt", "export", run, "--out=x"],
                         ["eval", "--job=" + job, "--weights=" + run]):
                text = "the best evaluation was that after update %d; eval" % best
                self.assertEqual(text in self.gaccd(0, [], *verb), other)
                self.assertNotIn(text, self.gaccd(0, [], *verb, "--best"))

        self.train(0, ["after update 2; no checkpoint in 'other/ckpt' has its weights"],
                   "--run-dir=other", "--resume=run-100", "--max-updates=7", "--epochs=9",
                   "--set=optimizer.lr=0.000001", job=job)
        self.gaccd(65, ["of update 2", "another run folder has it"], "ckpt", "verify", "other",
                   "--best")
        self.gaccd(0, ["wrote p.jsonl: prediction [20, 1]"], "predict", "--job=" + job,
                   "--weights=run-100", "--out=p.jsonl")
        with open(self.path("p.jsonl")) as lines:
            self.assertEqual(list(json.loads(lines.readline())), ["sample", "prediction"])

    def test_every_so_many_checkpoints_stay(self):
        self.train(0, ["done: 5 updates"], self.run_flag, "--save-every-updates=1", "--keep=1",
                   "--keep-every=2", "--max-updates=5")
        steps = sorted(int(os.path.basename(path).split("-")[1])
                       for path in glob.glob(self.run_dir + "/ckpt/step-*"))
        self.assertEqual(steps, [2, 4, 5])

    def test_a_checkpoint_that_is_skipped_is_reported(self):
        save = [self.run_flag, "--save-every-updates=2"]
        self.train(0, ["done: 4 updates"], *save, "--max-updates=4")
        newest = max(glob.glob(self.run_dir + "/ckpt/step-*"))
        shard, = glob.glob(newest + "/shard-*")
        os.truncate(shard, os.path.getsize(shard) // 2)
        said = self.train(0, ["resumed after update 2"], *save)
        self.assertRegex(said, "(?m)^.*checkpoint skipped: .*%s" % os.path.basename(newest))
        self.assertEqual(said.count("checkpoint skipped"), 1, said)
        self.train(0, ["the job has changed since the checkpoint: epochs: 2 -> 4"], *save,
                   "--epochs=4")

    def test_digests_are_taken_every_so_many_updates(self):
        self.train(0, ["done: 6 updates"], self.run_flag, "--digest-every=4")
        self.assertEqual([e["step"] for e in self.steps() if e.get("digest")], [4, 6])
        self.train(0, ["done: 6 updates"], "--run-dir=run2", "--digest-every=0")
        self.assertEqual([e["step"] for e in self.steps("run2") if e.get("digest")], [])

    def steps(self, run="run"):
        """The step events of a run."""
        with open(self.path(run + "/attempts/latest/events.jsonl")) as file:
            return [e for e in map(json.loads, file) if e["ev"] == "step"]

    def test_weights_go_where_a_file_belongs(self):
        os.mkfifo(self.path("fifo"))
        os.symlink("file", self.path("link"))
        for target, text in (("fifo", "found a FIFO"), (".", "found a folder"),
                             ("job.txtpb", "not a safetensors file"), ("no/w", "no folder 'no'")):
            self.train(74, ["--save-weights: ", target, text], "--save-weights=" + target)
        self.train(0, ["done"], "--save-weights=link")
        self.assertTrue(os.path.islink(self.path("link")))
        self.assertIn(b"fc.weight", self.weights("file"))
        # A file in the folder that the run makes.
        self.train(0, ["done"], self.run_flag, "--save-weights=run/w")
        self.assertIn(b"fc.weight", self.weights("run/w"))

    def test_weights_that_cannot_be_written_at_the_end_are_not_lost(self):
        features = self.write("features", npy([[float(i % 5)] * 4 for i in range(20)]))
        targets = self.write("targets", npy([[float(i % 3)] for i in range(20)]))
        job = self.job('npy { features: "%s" targets: "%s" }' % (features, targets))
        for args, text in (([self.run_flag], "gaccd ckpt export %s/ckpt/step-" % self.run_dir),
                           ([self.run_flag + "2", "--save-every-seconds=0"], "run2/w."),
                           ([], self.dir + "/w.")):
            with self.subTest(text):
                os.mkdir(self.path("out"))
                command = [GACCD, "train", "--job=" + job, "--save-weights=out/w", *args]
                env = {**os.environ, "LD_PRELOAD": HOLD, "HOLD_PATH": features, "TMPDIR": self.dir}
                with subprocess.Popen(command, cwd=self.dir, env=env, text=True,
                                      stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as run:
                    self.wait_for(features + ".seen-*")
                    os.rmdir(self.path("out"))  # after it was checked
                    self.write("features.go", "")
                    said = run.communicate(timeout=LIMIT_S)[0]
                self.assertEqual(run.returncode, 74, said)
                self.assertIn("cannot create 'out/w': No such file", said)
                self.assertIn(text, said)
                self.assertFalse(glob.glob(self.dir + "/run*/DONE"))
                for name in glob.glob(features + ".*"):
                    os.remove(name)
                if "instead" in said:
                    kept = said.split("the weights are in '")[1].split("'")[0]
                    self.assertIn(b"fc.weight", self.weights(kept))
        # Started again, the first run has only its weights to write.
        said = self.train(0, ["resumed after update 6"], self.run_flag, "--save-weights=w", job=job)
        self.assertIn(b"fc.weight", self.weights("w"))
        self.assertEqual(self.done(), "6 updates, 40 samples")

    def wait_for(self, pattern):
        limit = time.monotonic() + LIMIT_S
        while not glob.glob(pattern):
            self.assertLess(time.monotonic(), limit)
            time.sleep(0.01)

    def test_likely_mistakes_give_a_warning(self):
        self.train(0, ["warning: nothing of this run will be kept"])
        self.train(0, ["warning: --rounding=floor: an update has 6 samples, the target is 8"], "--rounding=floor",
                   "--micro-batch=6", "--target-batch=8")
        said = self.train(0, ["done"], "--save-weights=w")
        self.assertNotIn("warning", said)
        parts = re.search(r"memory per rank: planned ([\d.]+) MB = ([\d.]+) MB program and data \+ ([\d.]+) [kM]B model, "
                          "gradients, optimizer, activations, batches and checkpoints\n", said)
        self.assertIn(f"MB, planned {parts[1]} MB\n", said)
        said = self.train(0, ["done"], self.run_flag)
        self.assertNotIn("warning", said)
        self.train(0, ["warning: --init-weights=w is ignored: the run resumes"], self.run_flag,
                   "--init-weights=w", "--epochs=3")
        os.remove(self.path("w"))
        self.train(0, ["resumed after update 9"], self.run_flag, "--init-weights=w", "--epochs=4")
        self.train(74, ["cannot read 'w'"], "--run-dir=other", "--init-weights=w")
        os.mkdir(self.path("photos"))
        self.write("photos/job.txtpb", "")
        self.write("photos/a.jpg", "")
        self.write("photos/b.jpg", "")
        self.train(0, ["'photos' is neither a run folder nor empty; it contains 'a.jpg' and 1 more"],
                   "--run-dir=photos")
        self.assertNotIn("a run folder nor empty", self.train(0, [], "--run-dir=photos", "--epochs=3"))
        os.mkdir(self.path("open"))
        os.chmod(self.path("open"), 0o777)
        said = self.train(0, ["open' belongs to ", "everybody can replace"], "--run-dir=open/run")
        self.assertEqual(said.count("warning"), 1, said)

    def test_a_schedule_that_does_nothing_is_reported(self):
        long = "warning: the warm-up of 9 updates is longer than the run of 6"
        self.train(0, [long], job=self.job(warmup=9))
        self.gaccd(0, [long], "plan", "--job=" + self.job(warmup=9))
        scale = ["--set", "loss_scale.init_scale=128"]
        unused = "warning: loss_scale of the job is ignored: the precision is f32, not fp16"
        self.train(0, [unused], *scale)
        said = self.gaccd(0, [], "plan", "--job=" + self.job(warmup=6), "--format=json")
        json.loads(said)

    def test_export_is_refused_once(self):
        self.train(0, ["done"], self.run_flag)
        said = self.gaccd(74, ["'no/w': there is no folder 'no'"], "ckpt", "export", "run",
                          "--out=no/w")
        self.assertEqual(said.count("\n"), 1, said)
        self.train(0, ["done"], "--run-dir=unsaved", "--save-every-seconds=0")
        self.gaccd(65, ["'unsaved' holds no checkpoint: nothing was saved"], "ckpt", "export", "unsaved", "--out=w")


if __name__ == "__main__":
    unittest.main(verbosity=1)
