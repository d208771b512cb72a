"""gaccd submit with stand-ins for SLURM's programs; the scripts it writes are run by bash.

  submit_test.py GACCD
"""

import json
import os
import pathlib
import stat
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "inspect" / "report"))
import report_page  # noqa: E402

SLURM = pathlib.Path(__file__).resolve().parents[3] / "slurm"
JOB = SLURM / "examples" / "linear.txtpb"
LAUNCH = SLURM / "launch"
# Jobs 17, 18, ...; says what it was called with. With FAILS_AT it refuses the N-th.
SBATCH = """#!/bin/bash
printf '%s\\n' "$*" >>"$LOG/sbatch"
if [[ $1 == --test-only ]]; then cat >"$LOG/stdin"; echo "sbatch: Job 99 to start at noon" >&2; exit; fi
number=$(wc -l <"$LOG/sbatch")
if [[ $number == "${FAILS_AT:-}" ]]; then echo "sbatch: error: no such account" >&2; exit 1; fi
echo "$((16 + number));cluster"
"""
SCONTROL = """#!/bin/bash
if [[ "$*" == "show config" ]]; then printf '%b' "${CONFIG:-}"; exit; fi
[[ $1 == --oneliner ]] || exit 0
echo "PartitionName=main Default=YES ${TIMES:-} PreemptMode=${PREEMPT:-REQUEUE} State=UP"
"""
SRUN = """#!/bin/bash
if [[ $1 == --mpi=list ]]; then printf 'MPI plugin types are...\\n\\tnone\\n\\tpmix\\n'; exit; fi
printf '%s\\0' "$@" >"$LOG/srun"
pwd >"$LOG/pwd"
"""
SINFO = """#!/bin/bash
echo "${GRES:-(null)}"
"""
# Each call is a line of the log. SQUEUE and SACCT: what they say; without SQUEUE it knows no job.
SQUEUE = """#!/bin/bash
printf '%s\\n' "$*" >>"$LOG/squeue"
if [[ -z ${SQUEUE:-} ]]; then echo "slurm_load_jobs error: Invalid job id specified" >&2; exit 1; fi
printf '%b' "$SQUEUE"
"""
SACCT = """#!/bin/bash
printf '%s\\n' "$*" >>"$LOG/sacct"
[[ -n ${SACCT:-} ]] || { echo "Slurm accounting storage is disabled" >&2; exit 1; }
printf '%b' "$SACCT"
"""
# What the script calls in addition to srun.
VERDICT = """#!/bin/bash
printf 'done\\nall is well\\n'
"""
HOSTILE = ["it's", 'a "quoted" one', "$(touch CANARY)", "`touch CANARY`", "a;touch CANARY;b", "a&&b|c>CANARY",
           "#SBATCH", "x #y", "-rf", "*?[a]", "~root", "$HOME", "!!", "100%j", "ünï ☃", " blank ", "a=b", "{a,b}"]


class Submit(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="submit 'test ")
        self.addCleanup(folder.cleanup)
        self.dir = pathlib.Path(folder.name).resolve()
        (self.dir / "bin").mkdir()
        for name, text in (("sbatch", SBATCH), ("scontrol", SCONTROL), ("srun", SRUN), ("sinfo", SINFO),
                           ("squeue", SQUEUE), ("sacct", SACCT),
                           ("verdict", VERDICT)):
            (self.dir / "bin" / name).write_text(text)
            (self.dir / "bin" / name).chmod(0o755)
        self.env = {"PATH": f"{self.dir}/bin:/usr/bin:/bin", "LOG": str(self.dir), "HOME": "/", "LC_ALL": "C.UTF-8",
                    "GACCD": f"{self.dir}/bin/verdict"}
        self.runs = self.dir / "runs"

    def call(self, *args, **env):
        return subprocess.run([GACCD, *map(str, args)], cwd=self.dir, env=self.env | env, text=True,
                              capture_output=True, timeout=60)

    def submit(self, *args, code=0, **env):
        done = self.call("submit", "--nodes=2", "--gpus-per-node=3", "--target-batch=100", f"--job={JOB}", *args, **env)
        self.assertEqual(done.returncode, code, done.stdout + done.stderr)
        return done

    def start(self, script, *args, **env):
        """What srun got of a script that bash runs as SLURM would; None: it was not called."""
        subprocess.run(["bash", "-n", script], check=True)
        (self.dir / "srun").unlink(missing_ok=True)
        done = subprocess.run(["bash", script, *args], cwd="/", text=True, capture_output=True, timeout=60,
                              env=self.env | {"SLURM_JOB_ID": "17", "SLURM_SUBMIT_DIR": "/"} | env)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.said = done.stdout
        log = self.dir / "srun"
        return log.read_text().split("\0")[:-1] if log.exists() else None

    def log(self, name):
        path = self.dir / name
        return path.read_text().splitlines() if path.exists() else []

    def jobs(self, run):
        return [json.loads(line)["jobs"] for line in (run / "submit.jsonl").read_text().splitlines()]

    def test_a_run_is_written_submitted_and_entered(self):
        done = self.submit("--run=r50", "--time=1:00:00", "--epochs=2", "--", "--mem=0", "--comment=a b")
        run = self.runs / "r50"
        self.assertEqual(self.log("sbatch"), [f"--parsable {run}/submit.sbatch"])
        script = (run / "submit.sbatch").read_text()
        self.assertEqual(done.stdout, script + f"submitted: job 17, {run}\n")
        for line in ("--nodes=2", "--ntasks-per-node=3", "--time=1:00:00", "--signal=USR2@300", '--mem=0 "--comment=a b"'):
            self.assertIn(f"\n#SBATCH {line}\n", script)
        self.assertEqual(self.jobs(run), ["17"])
        self.assertEqual((run / "submit.launch").read_bytes(), LAUNCH.read_bytes())
        for path in run.iterdir():
            self.assertEqual(stat.S_IMODE(path.stat().st_mode), 0o600, path)
        waits = {"SQUEUE": "17|17|PENDING|Resources\\n"}
        said = self.call("status", run, **waits)
        self.assertEqual(said.returncode, 0)
        self.assertRegex(said.stdout, r"state +submitted.*\nsubmitted +job 17, \d:\d\d ago")
        self.assertRegex(self.call("runs", self.runs, **waits).stdout, r"r50 +submitted")
        self.assertIn("job 17 is PENDING (Resources)", self.call("doctor", run, **waits).stdout)
        self.assertEqual(self.call("report", run, **waits).returncode, 0)
        (page,) = report_page.runs_of(run / "report.html")
        self.assertEqual((page["phase"], page["job"]), ("submitted", "17"))
        self.assertIn("job 17 is PENDING (Resources)", page["advice"][0]["en"])
        self.assertIn("gaccd status --watch", page["next_command"])
        again = self.submit("--run=r50", "--dry-run")
        self.assertIn(f"job 17 of '{run}' has not begun", again.stderr)
        self.assertIn("remove the file", self.call("stop", run).stdout)

    def test_a_complete_run_gives_a_warning(self):
        run = self.runs / "r50"
        run.mkdir(parents=True, mode=0o700)
        (run / "STATUS.json").write_text('{"ts":"2026-11-20T03:00:00.000000Z","job":"17",'
                                         '"attempt_dir":"attempts/000-17","state":"done","exit":0}')
        done = self.submit("--run=r50", "--dry-run")
        self.assertIn(f"the run in '{run}' is complete", done.stderr)

    def test_a_job_without_a_verdict_has_the_state_that_slurm_reports(self):
        self.submit("--run=r", "--chain=2")
        run = self.runs / "r"
        for squeue, sacct, code, state in (
                ("17|17|FAILED|NonZeroExitCode\\n18|18|PENDING|Dependency\\n", "", 0, "submitted"),
                ("17|17|RUNNING|None\\n", "", 0, "starting"),
                ("", "17|17|FAILED|78:0\\n18|18|FAILED|78:0\\n", 2, "failed"),
                ("", "17|17|COMPLETED|0:0\\n18|18|CANCELLED by 0|0:0\\n", 1, "stopped"),
                ("", "", 2, "failed")):
            with self.subTest(state, squeue=squeue, sacct=sacct):
                said = self.call("status", run, "--format=json", SQUEUE=squeue, SACCT=sacct)
                self.assertEqual((said.returncode, json.loads(said.stdout)["phase"]), (code, state), said.stderr)
                self.assertEqual(said.stderr, "")
        metrics = self.call("export", self.runs, "--format=prometheus", SACCT="17|17|FAILED|78:0\\n").stdout
        self.assertIn('gaccd_state{run="r",slurm_job_id="17,18",state="failed"} 1', metrics)
        # It ends, and asks no more than is needed.
        (self.dir / "squeue").unlink()
        watched = self.call("status", run, "--watch", SACCT="18|18|FAILED|1:0\\n")
        self.assertEqual(watched.returncode, 2, watched.stdout)
        self.assertEqual(len(self.log("squeue")), 1)
        # A machine without SLURM has only the files.
        self.assertEqual(self.call("status", run, PATH="/nonexistent").returncode, 0)

    def test_the_script_alone_is_enough(self):
        self.submit("--run=r50", "--epochs=2", "--set", "seed=7")
        run = self.runs / "r50"
        got = self.start(run / "submit.sbatch", "--epochs=5")
        self.assertEqual(got[got.index("train"):], [
            "train", f"--job={run}/submit.txtpb", f"--run-dir={run}", "--nodes=2", "--gpus-per-node=3",
            "--target-batch=100", "--epochs=2", "--set", "seed=7", "--epochs=5"])
        self.assertEqual(self.log("pwd"), [str(self.dir)])

    def test_no_name_breaks_the_script(self):
        for name in HOSTILE:
            with self.subTest(name):
                self.submit(f"--run={name}", f"--init-weights={name}\n$(touch CANARY)'", f"--account={name}",
                            "--", f"--comment={name}")
                run = self.runs / name
                got = self.start(run / "submit.sbatch")
                self.assertIn(f"--run-dir={run}", got)
                self.assertIn(f"--job={run}/submit.txtpb", got)
                self.assertIn(f"--init-weights={name}\n$(touch CANARY)'", got)
                self.assertEqual(list(self.dir.rglob("CANARY")), [])
        for name in ("a\nb", "a\x1bb", "", "a/b", ".", "..", "a\\b", "a%0"):
            with self.subTest(name):
                self.submit(f"--run={name}", code=64)
        for flag in ("--partition=a\nb", "--time=1\n2"):
            self.submit("--run=r", flag, code=64)
        self.submit("--run=r", "--", "--comment=a\nb", code=64)
        self.submit("--run=r", "--", "--exclusive", "", code=64)

    def test_what_cannot_work_is_refused_and_nothing_is_written(self):
        self.submit("--run=r", "--strict", "--rounding=floor", code=78)
        self.submit("--run=r", "--target-batch=0", code=64)
        self.submit("--run=r", "extra", code=64)
        said = self.submit("--run=r", "--array", code=64).stderr
        self.assertIn("several values, separated by commas, found none", said)
        said = self.submit("--run=r", "--array", "--set", "seed=3", code=64).stderr
        self.assertIn("separated by commas, found '--set seed=3'", said)
        self.submit("--run=r", "--set", "optimizer.lr=0.1,0.01", code=64)
        self.submit("--run=r", "--array", "--set", "optimizer.lr=0.1,", code=64)
        self.submit("--run=r", "--time=tomorrow", code=64)
        self.submit("--run=r", "--exclude-suspects", "--", "--exclude=n1", code=64)
        self.submit("--run=r", "--dry-run", "--", "-N2", "--ntasks-per-node=3", "-n6")
        for word, flag in (("--nodes=4", "--nodes"), ("-N0", "--nodes"), ("--ntasks-per-node=2", "--gpus-per-node"),
                           ("--ntasks=4", "--nodes and --gpus-per-node"), ("-n2", "--nodes and --gpus-per-node")):
            said = self.submit("--run=r", "--shard=optimizer", "--", word, "--mem=4G", code=64).stderr
            self.assertRegex(said, f"as in the plan, found [024]; set {flag} before --")
        self.submit(code=64)
        self.assertEqual(self.call("submit", "--run=r", "--target-batch=8").returncode, 64)
        self.assertFalse(self.runs.exists())
        self.assertEqual(self.log("sbatch"), [])
        (self.runs / "r").mkdir(parents=True)
        for name in ("STOP", "HOLD"):
            (self.runs / "r" / name).touch()
            self.assertIn(name, self.submit("--run=r", code=78).stderr)
            (self.runs / "r" / name).unlink()

    def array(self, path, shape):
        header = f"{{'descr': '<f4', 'fortran_order': False, 'shape': {shape}, }}".ljust(117) + "\n"
        with open(path, "wb") as file:
            file.write(b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header.encode())
            file.truncate(file.tell() + 4 * shape[0] * shape[1])

    def test_a_job_that_cannot_train_with_files_that_are_here_is_refused(self):
        job = self.dir / "job.txtpb"
        job.write_text('name: "n"\nmodel { layer { name: "fc" linear { in: 9 out: 2 } } loss { mean_squared_error {} } }\n'
                       'data { train { npy { features: "x.npy" targets: "y.npy" } } }\n'
                       'batch { target: 100 micro: 10 }\noptimizer { lr: 0.1 sgd {} }\nepochs: 1\n')
        self.assertIn("there is no 'x.npy' here", self.submit(f"--job={job}", "--run=r", "--dry-run").stderr)
        self.array(self.dir / "x.npy", (300, 8))
        self.array(self.dir / "y.npy", (300, 2))
        refused = "layer 'fc': linear.in is 9, but its input has the shape [8]"
        for more in ([], ["--dry-run"], ["--array", "--set", "seed=1,2"], ["--micro-batch=auto"]):
            self.assertIn(refused, self.submit(f"--job={job}", "--run=r", *more, code=78).stderr)
        self.assertFalse(self.runs.exists())
        said = self.submit(f"--job={job}", "--run=r", "--dry-run", "--container-image=ubuntu").stderr
        self.assertIn("with the files that are here the training would end with: " + refused, said)
        self.array(self.dir / "x.npy", (300, 9))
        self.submit(f"--job={job}", "--run=r")
        said = self.submit(f"--job={job}", "--run=s", "--dry-run", "--array",
                           "--set", "data.train.npy.features=x.npy,none.npy").stderr
        self.assertEqual(said.count("there is no "), 1, said)
        self.assertIn("there is no 'none.npy' here", said)
        script = self.call("submit", f"--job={job}", "--run=t", "--dry-run", "--nodes=1", "--gpus-per-node=1",
                           "--target-batch=10").stdout
        self.assertIn("gaccd submit: 1 node x 1 = 1 rank, 10 samples an update (target 10) in 1 micro-step\n", script)

    def test_a_batch_that_is_not_the_target_is_reported(self):
        for rounding, samples in (("floor", 96), ("ceil", 192)):
            said = self.submit("--run=r", "--dry-run", f"--rounding={rounding}", "--micro-batch=16").stderr
            self.assertIn(f"--rounding={rounding}: an update has {samples} samples, the target is 100; "
                          "--rounding=exact gives the target", said)
        self.assertEqual(self.submit("--run=r", "--dry-run", "--rounding=floor", "--target-batch=96",
                                     "--micro-batch=16").stderr, "")

    def test_a_run_folder_next_to_a_linked_one_is_where_training_puts_it(self):
        (self.dir / "there" / "sub").mkdir(parents=True)
        (self.dir / "link").symlink_to("there/sub")
        for path in ("link/../runs/r", "link/../runs/r/"):
            script = self.submit(f"--run-dir={path}", "--dry-run").stdout
            self.assertIn("/there/runs/r/slurm-%j.out", script)

    def test_a_dry_run_and_a_test_write_nothing(self):
        script = self.submit("--run=r", "--dry-run").stdout
        self.assertTrue(script.startswith("#!/bin/bash\n"))
        self.assertEqual(self.log("sbatch"), [])
        tested = self.submit("--run=r", "--test-only")
        self.assertEqual(tested.stdout, script + "sbatch: Job 99 to start at noon\n")
        self.assertEqual((self.dir / "stdin").read_text(), script)
        self.assertFalse(self.runs.exists())

    def test_a_chain_waits_and_ends_with_the_run(self):
        done = self.submit("--run=r", "--chain=3")
        path = f"{self.runs}/r/submit.sbatch"
        self.assertEqual(self.log("sbatch"), [f"--parsable {path}", f"--parsable --dependency=afterany:17 {path}",
                                              f"--parsable --dependency=afterany:18 {path}"])
        self.assertIn("submitted: job 17,18,19,", done.stdout)
        (self.runs / "r" / "DONE").touch()
        self.assertIsNone(self.start(path, SLURM_JOB_DEPENDENCY="afterany:17"))
        self.assertEqual(self.said, "gaccd: nothing to do: an earlier job has completed the training\n")
        self.assertIsNotNone(self.start(path))
        self.submit("--run=s")  # with the user's own dependency the ranks decide whether DONE is enough
        (self.runs / "s" / "DONE").touch()
        self.assertIsNotNone(self.start(f"{self.runs}/s/submit.sbatch", SLURM_JOB_DEPENDENCY="afterany:17"))

    def test_the_job_id_is_the_last_line_of_sbatch(self):
        sbatch = self.dir / "bin" / "sbatch"
        sbatch.write_text(SBATCH.replace("number=", 'echo "Welcome to 2 clusters;"\nnumber='))
        self.submit("--run=r", "--chain=2")
        self.assertEqual(self.jobs(self.runs / "r"), ["17,18"])

    def test_sigterm_does_not_announce_the_end_of_the_job(self):
        """After it, as from scancel, the ranks expect SIGKILL within --term-budget."""
        script = self.submit("--run=r", "--dry-run", "--time=1:00:00", "--stop-signals=TERM").stdout
        self.assertNotIn("--signal", script)
        self.assertNotIn("--term-budget", script)
        self.assertIn("\n# No signal before the end: SIGTERM is also that of scancel", script)
        script = self.submit("--run=r", "--dry-run", "--time=1:00:00", "--stop-signals=TERM,XCPU", "--term-budget=7").stdout
        self.assertIn("\n#SBATCH --signal=XCPU@300\n", script)
        self.assertIn("--term-budget=7", script)

    def test_the_error_of_sbatch_is_reported(self):
        said = self.submit("--run=a", FAILS_AT="1", code=71)
        self.assertIn("sbatch: error: no such account", said.stderr)
        self.assertFalse((self.runs / "a" / "submit.jsonl").exists())
        self.submit("--run=b", "--chain=2", FAILS_AT="3", code=71)
        self.assertEqual(self.jobs(self.runs / "b"), ["18"])

    def test_a_working_folder_that_was_removed_is_named(self):
        done = subprocess.run(["sh", "-c", 'mkdir gone && cd gone && rmdir ../gone && exec "$@"', "-", GACCD, "submit",
                               "--run=r", f"--job={JOB}", "--nodes=1", "--target-batch=100"],
                              cwd=self.dir, env=self.env, text=True, capture_output=True, timeout=50)
        self.assertEqual(done.returncode, 74, done.stderr)
        self.assertIn("the current folder cannot be found", done.stderr)

    def test_a_queued_job_that_cannot_be_recorded_is_named(self):
        (self.runs / "r" / "submit.jsonl").mkdir(parents=True)
        said = self.submit("--run=r", code=74)
        self.assertIn(f"submitted: job 17, {self.runs}/r\n", said.stdout)
        self.assertIn("job 17 is submitted, but not recorded: cannot open", said.stderr)

    def test_a_caller_that_ignores_the_ends_of_children_loses_none(self):
        done = subprocess.run(["/usr/bin/python3", "-c", "import os, signal, sys\n"
                               "signal.signal(signal.SIGCHLD, signal.SIG_IGN)\nos.execv(sys.argv[1], sys.argv[1:])",
                               GACCD, "submit", "--run=r", f"--job={JOB}", "--nodes=1", "--gpus-per-node=1", "--target-batch=100"],
                              cwd=self.dir, env=self.env, text=True, capture_output=True, timeout=50)
        self.assertIn("submitted: job 17", done.stdout, done.stderr)

    def test_a_sweep_is_an_array_of_runs(self):
        done = self.submit("--run=sweep", "--array", "--set", "optimizer.lr=0.1,0.01", "--set", "seed=3", "--format=json")
        sweep = self.runs / "sweep"
        folders = ["0-optimizer.lr=0.1", "1-optimizer.lr=0.01"]
        self.assertEqual([json.loads(line) for line in done.stdout.splitlines()],
                         [{"folder": f"{sweep}/{name}", "jobs": f"17_{i}", "script": f"{sweep}/submit.sbatch"}
                          for i, name in enumerate(folders)])
        for i, name in enumerate(folders):
            self.assertEqual(self.jobs(sweep / name), [f"17_{i}"])
        got = self.start(sweep / "submit.sbatch", SLURM_JOB_ID="19", SLURM_ARRAY_TASK_ID="1",
                         SLURM_ARRAY_JOB_ID="17")
        self.assertIn(f"--run-dir={sweep}/{folders[1]}", got)
        self.assertEqual(got[-4:], ["--set", "seed=3", "--set", "optimizer.lr=0.01"])
        for task in ("", "2", "$(touch CANARY)"):
            bad = subprocess.run(["bash", sweep / "submit.sbatch"], env=self.env | {"SLURM_ARRAY_TASK_ID": task},
                                 capture_output=True, timeout=60)
            self.assertEqual(bad.returncode, 78)
        self.assertEqual(len(self.call("runs", sweep).stdout.splitlines()), 3)
        above = self.call("runs", self.runs, SQUEUE="18|17_0|PENDING|None\\n19|17_1|RUNNING|None\\n").stdout
        self.assertRegex(above, rf"sweep/{folders[0]} +submitted")
        self.assertRegex(above, rf"sweep/{folders[1]} +starting")
        metrics = self.call("export", self.runs, "--format=prometheus", SQUEUE="18|17_0|PENDING|None\\n").stdout
        self.assertIn(f'gaccd_state{{run="sweep/{folders[0]}",slurm_job_id="17_0",state="submitted"}} 1', metrics)
        # Each of its runs is planned and checked.
        said = self.submit("--run=warned", "--dry-run", "--array", "--set", "batch.target=96,100", "--rounding=floor",
                           "--micro-batch=16").stderr
        self.assertIn("an update has 96 samples, the target is 100", said)
        self.submit("--run=other", "--array", "--set", "batch.target=96,100", "--rounding=floor", "--strict", code=78)
        said = self.submit("--run=same", "--array", "--set", "optimizer.lr=0.1,0.2,0.1", code=64).stderr
        self.assertIn("different values of optimizer.lr, found 0.1 twice", said)
        for first, second in (("optimizer.lr=0.1", "optimizer.lr=1e-1"), ("seed=1", "seed=01")):
            said = self.submit("--run=same", "--array", "--set", f"{first},{second.split('=')[1]}", code=64).stderr
            self.assertIn(f"expected runs that differ, found 0-{first} and 1-{second} with the same job", said)
        for words in (["--array=1-3"], ["-a", "0"], ["-a0-9%2"]):
            self.assertIn("all tasks would train in one run folder", self.submit("--run=one", "--", *words, code=64).stderr)

    def test_the_cluster_is_queried_once_and_gives_a_warning(self):
        said = self.submit("--run=r", "--dry-run", PREEMPT="CANCEL", GACCD_MPI="pmi2").stderr
        self.assertIn("partition main cancels a job that is preempted", said)
        self.assertIn("srun does not support --mpi=pmi2 here", said)
        self.assertNotIn("main cancels", self.submit("--run=r", "--dry-run").stderr)
        alone = self.submit("--run=r", "--dry-run", PATH="/nonexistent")
        self.assertIn("SLURM gave no answer: cannot start scontrol", alone.stderr)
        self.assertEqual(alone.stderr.count("SLURM gave no answer"), 1)

    def test_variables_of_sbatch_do_not_override_the_script(self):
        user = {"SBATCH_TIMELIMIT": "30", "SBATCH_PARTITION": "long", "SBATCH_NO_REQUEUE": "1", "SBATCH_QOS": "low",
                "SBATCH_MEM_PER_NODE": "1", "SBATCH_JOB_NAME": "mine", "SBATCH_RESERVATION": "night"}
        (self.dir / "bin" / "sbatch").write_text(SBATCH.replace("\n", '\nenv >"$LOG/variables"\n', 1))
        self.submit("--run=r", "--time=1:00:00", "--partition=main", "--", "-q", "high", "--mem=0", **user)
        seen = [line for line in self.log("variables") if line.startswith("SBATCH_")]
        self.assertEqual(seen, ["SBATCH_RESERVATION=night"])
        gpus = {"SBATCH_GPUS": "4", "SBATCH_CLUSTERS": "other", "SBATCH_MEM_PER_CPU": "1", "SBATCH_GPUS_PER_TASK": "2"}
        self.submit("--run=g", "--device=cuda", "--", "-M", "here", "--mem=0", **gpus)
        self.assertNotIn("SBATCH_", "\n".join(self.log("variables")))
        self.submit("--run=c", "--device=cpu", **gpus)
        self.assertIn("SBATCH_CLUSTERS=other", self.log("variables"), "the script names no cluster")
        self.submit("--run=q", "--", "--constraint=a100&ib", SBATCH_CONSTRAINT="cpu")
        self.assertNotIn("SBATCH_CONSTRAINT=cpu", self.log("variables"), "a flag in quotes")
        self.submit("--run=s", **user)
        self.assertIn("SBATCH_PARTITION=long", self.log("variables"), "the script has no partition")

    def test_problems_that_prevent_training_are_reported_at_once(self):
        limits = {"TIMES": "MaxTime=10 MaxNodes=1 TotalNodes=9"}
        said = self.submit("--run=r", "--dry-run", "--time=9", "--init-weights=none.safetensors", **limits).stderr
        self.assertIn("2 nodes, MaxNodes is 1", said)
        self.assertIn("there is no 'none.safetensors' here", said)
        self.assertIn("there is no 'runs/none' here", self.submit("--run=r", "--dry-run", "--resume=runs/none").stderr)
        self.assertEqual(self.submit("--run=r", "--dry-run", "--resume=never").stderr, "")
        said = self.submit("--run=r", "--dry-run", "--time=11", "--", "--nodes=2-3", **limits).stderr
        self.assertIn("660 s, MaxTime is 600 s", said)
        self.assertNotIn("MaxNodes", said, "a range")
        said = self.submit("--run=r", "--dry-run", "--", "--nodes=3-4", code=64).stderr
        self.assertIn("--nodes after --: expected 2, as in the plan, found 3-4", said)
        job = self.dir / "job.txtpb"
        job.write_text(JOB.read_text().split("data {")[0].split("model {")[0] +
                       'model { mlp { widths: [4000, 4000, 4000] } loss { mean_squared_error {} } }\n'
                       'data { train { npy { features: "x-*.npy" targets: "y-*.npy" } } }\n'
                       'batch { target: 64 micro: 4 }\noptimizer { lr: 0.1 sgd {} }\nepochs: 1\n')
        said = self.submit(f"--job={job}", "--run=r", "--dry-run", "--device=cpu", "--", "--mem=200M").stderr
        self.assertRegex(said, "3 ranks of a node need at least 7[0-9][0-9] MiB .*asks for 200 MiB")
        said = self.submit(f"--job={job}", "--run=r", "--dry-run", "--device=cpu", "--pipeline=6", "--", "--mem=200M").stderr
        self.assertNotIn("need at least", said, "each rank has a sixth of the model")
        self.assertIn("there is no 'x-*.npy' here", said)
        for name in ("x-1.npy", "y-1.npy"):
            self.array(self.dir / name, (100, 4000))
        said = self.submit(f"--job={job}", "--run=r", "--dry-run", "--device=cpu", "--", "--mem=1G").stderr
        self.assertEqual(said, "")

    def test_the_wait_of_a_requeued_job_is_the_sites(self):
        script = self.submit("--run=r", "--dry-run", CONFIG="AuthInfo = (null)\\nSlurmdTimeout = 300 sec\\n").stdout
        self.assertRegex(script, r"\n#SBATCH --requeue\n# .*waits 120 s here.*SlurmdTimeout=300 sec")
        script = self.submit("--run=r", "--dry-run", CONFIG="AuthInfo = (null)\\n"
                             "SlurmctldParameters = enable_expedited_requeue\\n").stdout
        self.assertIn("\n#SBATCH --requeue=expedite\n", script)

    def test_gpus_are_requested_if_the_cluster_has_them(self):
        line = "#SBATCH --gpus-per-node=3\n"
        self.assertIn(line, self.submit("--run=r", "--dry-run", "--device=auto", GRES="gpu:h100:8").stdout)
        self.assertNotIn(line, self.submit("--run=r", "--dry-run", "--device=auto").stdout)
        self.assertNotIn(line, self.submit("--run=r", "--dry-run", "--device=cpu", GRES="gpu:8").stdout)

    def test_a_container_mounts_its_folders(self):
        script = self.submit("--run=r", "--dry-run", "--container-image=/i/gaccd$x.sqsh",
                             GACCD_CONTAINER_MOUNTS="/data:/data").stdout
        self.assertIn("export GACCD_CONTAINER='/i/gaccd$x.sqsh'\n", script)
        self.assertIn(f"export GACCD_CONTAINER_MOUNTS={JOB.parent}:{JOB.parent},/data:/data\n", script)

    def test_a_container_mounts_only_folders_that_it_can(self):
        for folder in ("v1:2", "a,b"):
            (self.dir / folder).mkdir()
            job = self.dir / folder / "job.txtpb"
            job.write_text(JOB.read_text())
            self.submit("--run=r", "--dry-run", f"--job={job}")
            said = self.submit("--run=r", "--dry-run", f"--job={job}", "--container-image=/i/g.sqsh", code=64).stderr
            self.assertIn(f"a container cannot mount '{job.parent}'", said)
            said = self.submit(f"--run-dir={folder}/r", "--dry-run", "--container-image=/i/g.sqsh", code=64).stderr
            self.assertIn(f"a container cannot mount '{job.parent}/r'", said)

    def test_earlier_attempts_give_the_save_time_and_hosts_to_exclude(self):
        run = self.runs / "r"
        attempt = run / "attempts" / "000-5"
        attempt.mkdir(parents=True)
        ts = '"v":1,"ts":"2026-11-20T03:00:00.000000Z","run":"r","job":"5","attempt":0,"rank":0,"host":"n1"'
        (attempt / "events.jsonl").write_text(f'{{{ts},"ev":"step","seq":1,"step":1,"dur_p99_s":2.5}}\n'
                                              f'{{{ts},"ev":"save","seq":2,"step":1,"ok":true,"dur_s":200}}\n')
        (attempt / "verdict.json").write_text(f'{{{ts},"ev":"verdict","seq":3,"exit":69,"suspect_hosts":"n7,n3"}}\n')
        (run / "STATUS.json").write_text(f'{{{ts},"state":"failed","exit":69,"attempt_dir":"attempts/000-5"}}\n')
        script = self.submit("--run=r", "--exclude-suspects", "--dry-run").stdout
        self.assertIn("#SBATCH --signal=USR2@465\n", script)
        self.assertIn("#SBATCH --exclude=n3,n7\n", script)
        said = self.submit("--run=new", "--exclude-suspects", "--dry-run")
        self.assertNotIn("--exclude", said.stdout)
        self.assertIn("no earlier attempt suspects a host", said.stderr)
        said = self.submit("--run=r", "--dry-run", "--time=10")
        self.assertIn("the time limit is short for the saves", said.stderr)
        self.assertIn("#SBATCH --signal=USR2@150\n", said.stdout)
        self.assertNotIn("--exclude", said.stdout)

    def test_the_signal_leaves_time_to_train_for_any_source_of_the_limit(self):
        for flags, lead in ((["--time=8"], 120), (["--time=8", "--", "-t", "12"], 180), (["--", "--time=8"], 120),
                            ([], 240)):
            said = self.submit("--run=r", "--dry-run", *flags, TIMES="DefaultTime=00:16:00 MaxTime=1-00:00:00").stdout
            self.assertIn(f"#SBATCH --signal=USR2@{lead}\n", said)
        self.submit("--run=r", "--dry-run", "--", "--time=tomorrow", code=64)

    def test_the_signal_is_one_that_stops_the_run(self):
        self.assertIn("--signal=USR2@", self.submit("--run=r", "--dry-run", "--stop-signals=TERM,USR2").stdout)
        self.assertIn("--signal=XCPU@", self.submit("--run=r", "--dry-run", "--stop-signals=XCPU,TERM").stdout)

    def test_relative_data_is_found_from_the_run_folder(self):
        (self.dir / "jobs").mkdir()
        self.array(self.dir / "jobs" / "x.npy", (100, 10))
        job = self.dir / "jobs" / "job.txtpb"
        job.write_text(JOB.read_text().split("data {")[0] +
                       'data { train { npy { features: "x.npy" targets: "none.npy" } } }\n'
                       'batch { target: 64 micro: 4 }\noptimizer { lr: 0.1 sgd {} }\nepochs: 1\n')
        for name in ("y.npy", "z.npy"):
            self.array(self.dir / "jobs" / name, (100, 1))
        (self.dir / "here.npy").touch()
        data = "data.train.npy.targets="
        script = self.submit(f"--job={job}", "--run=r", "--set", f"{data}y.npy", "--set", "name=y.npy").stdout
        quoted = str(job.parent).replace("'", "'\\''")
        self.assertIn(f"--set '{data}{quoted}/y.npy' --set name=y.npy", script)
        script = self.submit(f"--job={job}", "--run=a", "--dry-run", "--array", "--set", f"{data}y.npy,z.npy").stdout
        for task, name in enumerate(("y.npy", "z.npy")):
            self.assertIn(f"{task}) run={task}-{data}{name} values=(--set '{data}{quoted}/{name}')", script)
        self.assertIn(f"--set {data}none.npy", self.submit(f"--job={job}", "--run=n", "--dry-run", "--set", f"{data}none.npy").stdout)
        self.submit(f"--job={job}", "--run=r")
        text = (self.runs / "r" / "submit.txtpb").read_text()
        self.assertIn(f'features: "{job.parent}/x.npy"'.replace("'", "\\'"), text)
        self.assertIn('targets: "none.npy"', text)


if __name__ == "__main__":
    GACCD = os.path.abspath(sys.argv.pop(1))
    unittest.main()
