"""tools/python: runs submitted and followed from Python, by the real gaccd and a stand-in for sbatch.

  package_test.py GACCD
"""

import contextlib
import io
import os
import pathlib
import pickle
import subprocess
import sys
import tempfile
import threading
import time
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[3]
PACKAGE = ROOT / "tools" / "python"
JOB = ROOT / "slurm" / "examples" / "linear.txtpb"
sys.path.insert(0, str(PACKAGE))

import gaccd  # noqa: E402

SBATCH = """#!/bin/bash
[[ -z ${REFUSE:-} ]] || { echo "sbatch: error: $REFUSE" >&2; exit 1; }
echo x >>"$LOG/ids"
echo $((16 + $(wc -l <"$LOG/ids")))
"""
SCANCEL = """#!/bin/bash
echo "$@" >"$LOG/scancel"
"""


class Package(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="gaccd package ")
        self.addCleanup(folder.cleanup)
        self.dir = pathlib.Path(folder.name).resolve()
        self.bin = self.dir / "bin"
        self.bin.mkdir()
        for name, text in (("sbatch", SBATCH), ("scancel", SCANCEL)):
            (self.bin / name).write_text(text)
            (self.bin / name).chmod(0o755)
        saved = dict(os.environ)
        self.addCleanup(lambda: (os.environ.clear(), os.environ.update(saved)))
        os.environ |= {"PATH": f"{self.bin}:/usr/bin:/bin", "LOG": str(self.dir)}
        for name in list(os.environ):
            if name.startswith(("SLURM_", "OMPI_", "PMIX_")):
                del os.environ[name]

    def submit(self, **more):
        return gaccd.submit(JOB, "it's one", nodes=1, gpus_per_node=1, target_batch=64, cwd=self.dir, gaccd=GACCD,
                            **more)

    def train(self, run, *flags):
        """As its script would."""
        return subprocess.run([GACCD, "train", f"--job={run.folder}/submit.txtpb", f"--run-dir={run.folder}",
                               "--target-batch=64", "--device=cpu", *flags], capture_output=True, timeout=60)

    def test_a_run_from_submission_to_its_result(self):
        run = self.submit(values={"epochs": 3}, chain=2,
                          sbatch=["--mem=0"])
        self.assertEqual(run.folder, self.dir / "runs" / "it's one")
        self.assertIn("--set epochs=3", (run.folder / "submit.sbatch").read_text())
        self.assertIn("#SBATCH --mem=0\n", (run.folder / "submit.sbatch").read_text())
        self.assertEqual((run.state(), run.jobs), ("submitted", ["17", "18"]))
        with self.assertRaisesRegex(TimeoutError, "is submitted after 0"):
            run.wait(timeout=0)
        run.cancel()
        self.assertEqual((self.dir / "scancel").read_text(), "17 18\n")
        self.assertEqual(self.train(run, "--max-updates=5").returncode, 0)
        self.assertEqual(run.wait(timeout=60, poll=0.1), "done")
        self.assertEqual(run.result(timeout=0)["step"], 5)
        (events,) = run.folder.glob("attempts/[0-9]*/events.jsonl")
        last = events.read_text().splitlines()[-1]
        with events.open("a", encoding="utf-8") as more:
            more.write(last.replace('"ev":"verdict"', '"ev":"log","msg":"a\u2028b"') + "\n")
        self.assertEqual([e["step"] for e in run.events() if e["ev"] == "step"], [1, 2, 3, 4, 5])
        self.assertIn("a\u2028b", [e["msg"] for e in run.events() if e["ev"] == "log"])
        self.assertIn("5 updates", run.logs())

    def test_what_fails_is_raised_with_its_reason(self):
        with self.assertRaisesRegex(gaccd.GaccdError, "--strict") as plan:
            self.submit(flags=["--strict", "--rounding=floor", "--set", "batch.micro=5"])
        self.assertEqual(plan.exception.code, 78)
        os.environ["REFUSE"] = "no such account"
        with self.assertRaisesRegex(gaccd.GaccdError, "no such account"):
            self.submit()
        del os.environ["REFUSE"]
        run = self.submit()
        training = threading.Thread(target=lambda: ended.append(self.train(run, "--epochs=100000").returncode))
        ended = []
        training.start()
        while training.is_alive() and run.state() != "running":
            time.sleep(0.05)
        (run.folder / "STOP").touch()
        training.join()
        self.assertEqual(ended, [93])
        with self.assertRaisesRegex(gaccd.RunFailed, "stopped, .*STOP") as stopped:
            run.result(timeout=60)
        self.assertEqual(stopped.exception.status["exit"], 93)

    def test_a_stopped_run_is_not_at_its_end(self):
        run = self.submit()
        ts = '"v":1,"ts":"2999-01-01T00:00:00.000000Z"'
        for code, job, ended in ((130, "17", True), (75, "local-8", True), (75, "17", False)):
            (run.folder / "STATUS.json").write_text(f'{{{ts},"job":"{job}","state":"failed","exit":{code}}}')
            self.assertEqual((run.state(), run.ended()), ("stopped", ended))
        (run.folder / "HOLD").touch()
        self.assertTrue(run.ended())

    def test_a_run_whose_job_was_cancelled_has_ended(self):
        run = self.submit()
        for name, text in (("squeue", ""), ("sacct", "echo '17|17|CANCELLED by 1000|0:15'")):
            (self.bin / name).write_text(f"#!/bin/bash\n{text}\n")
            (self.bin / name).chmod(0o755)
        self.assertEqual(run.wait(timeout=0), "stopped")
        with self.assertRaisesRegex(gaccd.RunFailed, "job 17 is CANCELLED"):
            run.result(timeout=0)

    def test_warnings_of_a_submission_are_shown(self):
        self.submit()
        with contextlib.redirect_stderr(io.StringIO()) as said:
            self.submit(values={"optimizer.lr": 0.5})
        self.assertIn("it will use the new job text, too", said.getvalue())

    def test_a_relative_program_starts_at_this_folder(self):
        self.addCleanup(os.chdir, os.getcwd())
        os.chdir(self.dir)
        (self.bin / "mine").symlink_to(GACCD)
        (self.dir / "below").mkdir()
        run = gaccd.submit(JOB, "a", nodes=1, gpus_per_node=1, target_batch=64, cwd="below", gaccd="bin/mine")
        self.assertEqual((run.folder, run.state()), (self.dir / "below/runs/a", "submitted"))

    def test_other_letters_are_read_in_the_locale_c(self):
        code = "import gaccd, sys; print(gaccd.Run(*sys.argv[1:]).state())"
        folder = gaccd.submit(JOB, "\u00fc", nodes=1, gpus_per_node=1, target_batch=64, cwd=self.dir, gaccd=GACCD).folder
        done = subprocess.run([sys.executable, "-Bc", code, folder, GACCD], capture_output=True, text=True, timeout=60,
                              env={**os.environ, "PYTHONPATH": str(PACKAGE), "LC_ALL": "C", "PYTHONUTF8": "0",
                                   "PYTHONCOERCECLOCALE": "0"})
        self.assertEqual((done.stdout, done.returncode), ("submitted\n", 0), done.stderr)

    def test_a_sweep_is_a_list_of_runs(self):
        runs = gaccd.sweep(JOB, "lr", nodes=1, gpus_per_node=1, target_batch=64, cwd=self.dir, gaccd=GACCD,
                           values={"optimizer.lr": [0.1, 0.01], "seed": [1, 2]})
        self.assertEqual([run.folder.name for run in runs],
                         [f"{i}-optimizer.lr={lr}+seed={seed}" for i, (lr, seed) in
                          enumerate([(0.1, 1), (0.1, 2), (0.01, 1), (0.01, 2)])])
        self.assertEqual([run.jobs for run in runs], [[f"17_{i}"] for i in range(4)])

    def test_what_would_be_another_submission_is_refused(self):
        for some, kind, text in (("0.1", TypeError, "expected a list, found the text '0.1'"),
                                 (["a,b.npy", "c.npy"], ValueError, "expected values without a comma, found 'a,b.npy'")):
            with self.assertRaisesRegex(kind, text):
                gaccd.sweep(JOB, "lr", nodes=1, gaccd=GACCD, values={"optimizer.lr": some})
        for more, kind, text in (({"sbatch": "-p"}, TypeError, "sbatch: expected a list, found the text '-p'"),
                                 ({"flags": "--dry-run"}, TypeError, "flags: expected a list"),
                                 ({"flags": ["--dry-run"]}, ValueError, "found --dry-run, which submits nothing"),
                                 ({"flags": ["-dry_run=true"]}, ValueError, "found -dry_run=true, which submits"),
                                 ({"sbatch": ["--test-only"]}, ValueError, "found --test-only")):
            with self.assertRaisesRegex(kind, text):
                self.submit(**more)
        self.assertFalse((self.dir / "runs").exists())

    def test_the_target_batch_has_one_value_under_either_name(self):
        of_issue = gaccd.plan(nodes=30, gpus_per_node=8, micro_batch=10, target=3072, gaccd=GACCD)
        self.assertEqual(of_issue, gaccd.plan(nodes=30, gpus_per_node=8, micro_batch=10, target_batch=3072, gaccd=GACCD))
        self.assertEqual((of_issue.effective_batch, of_issue.for_samples(100).target_batch), (3072, 100))
        for targets, found in (({}, "None and None"), ({"target": 1, "target_batch": 2}, "2 and 1")):
            with self.assertRaisesRegex(TypeError, f"expected one of target_batch and target, found {found}"):
                gaccd.plan(nodes=1, gpus_per_node=1, micro_batch=1, gaccd=GACCD, **targets)
        with self.assertRaisesRegex(TypeError, r"target_batch is 64 and values\['batch.target'\] 32"):
            self.submit(values={"batch.target": 32})
        with self.assertRaisesRegex(TypeError, r"target_batch is 64 and values\['batch.target'\] 32,48"):
            gaccd.sweep(JOB, "lr", nodes=1, target_batch=64, gaccd=GACCD, values={"batch.target": [32, 48]})

    def test_errors_pass_between_processes(self):
        for error in (gaccd.GaccdError(["gaccd", "plan"], 64, "said"), gaccd.GaccdError(["gaccd"], 3, ""),
                      gaccd.RunFailed({"folder": "runs/a", "phase": "failed", "reason": "oom"})):
            copied = pickle.loads(pickle.dumps(error))
            self.assertEqual((str(copied), vars(copied)), (str(error), vars(error)))

    def test_torch_is_needed_only_by_gaccd_torch(self):
        code = "import gaccd, sys; assert 'torch' not in sys.modules; sys.modules['torch'] = None; import gaccd.torch"
        done = subprocess.run([sys.executable, "-Bc", code], env={**os.environ, "PYTHONPATH": str(PACKAGE)},
                              capture_output=True, text=True, timeout=60)
        self.assertIn("import of torch halted", done.stderr)
        code = "import sys; sys.modules['torch'] = None; from gaccd import *; print(submit.__name__, 'export' in globals())"
        done = subprocess.run([sys.executable, "-Bc", code], env={**os.environ, "PYTHONPATH": str(PACKAGE)},
                              capture_output=True, text=True, timeout=60)
        self.assertEqual(done.stdout, "submit False\n", done.stderr)

    def test_what_the_export_needs_is_said(self):
        """As export_model cannot be imported with an old PyTorch, or fails in it with an AttributeError."""
        for name in ("safetensors", "numpy"):
            (self.dir / name).mkdir()
            (self.dir / name / "__init__.py").write_text("")
        (self.dir / "safetensors" / "torch.py").write_text("")
        (self.dir / "torch-2.5.1.dist-info").mkdir()
        (self.dir / "torch-2.5.1.dist-info" / "METADATA").write_text("Metadata-Version: 2.1\nName: torch\nVersion: 2.5.1\n")
        code = "from gaccd import *; assert 'export' not in globals(); import gaccd; gaccd.export"
        minimum = r"ImportError: gaccd.export and gaccd.verify need PyTorch 2\.7 or newer, safetensors and numpy: pip install torch .*"
        missing = "raise ModuleNotFoundError('No module named torch')\n"  # whether or not this Python has it
        for torch, found in (("__version__ = '2.5.1+cu124'\n", r"\(found PyTorch 2\.5\.1\+cu124\)"),
                             (missing, r"\(No module named torch\)")):
            (self.dir / "torch.py").write_text(torch)
            done = subprocess.run([sys.executable, "-BSc", code], env={**os.environ, "PYTHONPATH": f"{PACKAGE}:{self.dir}"},
                                  capture_output=True, text=True, timeout=60)
            self.assertRegex(done.stderr, minimum + found)

    def test_the_export_needs_one_version_everywhere(self):
        """Of pyproject.toml, which pip reads, and of the page for users."""
        least = ".".join(map(str, gaccd.needs.MIN_TORCH))
        self.assertIn(f'"torch>={least}"', (PACKAGE / "pyproject.toml").read_text())
        self.assertIn(f"PyTorch {least} or newer", (ROOT / "daemon/docs/own_models.md").read_text())

    def test_types_are_whole(self):
        done = subprocess.run(["mypy", "--config-file", str(PACKAGE / "pyproject.toml"), "--cache-dir",
                               str(self.dir / "cache"), str(PACKAGE / "gaccd")],
                              capture_output=True, text=True, timeout=300)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)


if __name__ == "__main__":
    GACCD = os.path.abspath(sys.argv.pop(1))
    unittest.main()
