#!/usr/bin/env python3
"""slurm/launch and the example scripts with stand-ins for srun and scontrol: arguments, folders, exit codes."""

import os
import subprocess
import tempfile
import unittest
from pathlib import Path

SLURM = Path(__file__).resolve().parents[3] / "slurm"

# Says what it was called with, prints SRUN_ERR as srun would, and ends with SRUN_RC. The check before
# a training is recognised, and ends with CHECK_RC; SIGNAL_IN_CHECK tells the script about a stop meanwhile. With
# RANKS_TAKE_SIGNALS the training lasts until the script hands a signal on.
SRUN = """#!/bin/bash
if [[ " $* " == *" verdict "* ]]; then
  printf '%s\\n' "$@" >"$LOG/verdict"
  printf '%b' "${GACCD_SAYS:-done\\\\nall is well\\\\n}"
  exit
fi
if [[ " $* " == *" check "* ]]; then
  printf '%s\\n' "$@" >"$LOG/check"
  echo "4 ranks on 2 nodes"
  printf '%b' "${CHECK_ERR:-}"
  [[ -z ${SIGNAL_IN_CHECK:-} ]] || kill -"$SIGNAL_IN_CHECK" "$PPID"
  exit "${CHECK_RC:-0}"
fi
printf '%s\\n' "$@" >"$LOG/srun"
env | sort >"$LOG/env"
echo start >>"$LOG/starts"
[[ -z ${LATE_RANKS:-} ]] || { kill -USR2 "$PPID"; /bin/sleep 0.5; kill -HUP "$PPID"; /bin/sleep 0.5; }
[[ -z ${SIGNAL_AT_START:-} || $(wc -l <"$LOG/starts") != 1 ]] || kill -"$SIGNAL_AT_START" "$PPID"
[[ $(wc -l <"$LOG/starts") -gt ${FAILED_LAUNCHES:-0} ]] || {
  echo "srun: error: task 2 launch failed: Unspecified error" >&2
  exit
}
printf '%b' "${SRUN_ERR:-}" >&2
[[ -z ${REMOVE:-} ]] || rm -r -- "$REMOVE"
if [[ -n ${RANKS_TAKE_SIGNALS:-} ]]; then
  for name in TERM HUP USR1 USR2 ALRM; do trap "echo $name >>'$LOG/ranks_got'; exit 75" "$name"; done
  touch "$GACCD_ATTEMPT_DIR/events.jsonl"
fi
[[ -z ${SIGNAL_PARENT:-} ]] || kill -"$SIGNAL_PARENT" "$PPID"
for ((i = 0; i < 1200 && ${RANKS_TAKE_SIGNALS:-0}; i++)); do /bin/sleep 0.05; done
exit "${SRUN_RC:-0}"
"""
# Says of an attempt what GACCD_SAYS says, lines apart by \n; unset: that an srun that returned 0 is done.
# Of one without srun's code it says requeue, enters it, and holds the run with GACCD_HOLDS.
GACCD = """#!/bin/bash
printf '%s\\n' "$*" >>"$LOG/gaccd"
if [[ $* != *--srun-rc* ]]; then
  printf 'requeue\\nthe job script was lost\\n'
  name=${2##*/} run=${2#*=} run=${run%/attempts/*}
  printf '{"v":1,"attempt":"%s"}\\n' "$name" >>"$run/ledger.jsonl"
  [[ -z ${GACCD_HOLDS:-} ]] || echo "3 restarts" >"$run/HOLD"
  exit
fi
[[ -n ${GACCD_SAYS+x} || $* != *--srun-rc=0 ]] || GACCD_SAYS='done\\nall is well\\n'
printf '%b' "${GACCD_SAYS:-}"
"""
BANNER = """--------------------------------------------------------------------------
MPI_ABORT was invoked on rank 5 in communicator MPI_COMM_WORLD
with errorcode 65.

NOTE: invoking MPI_ABORT causes Open MPI to kill all MPI processes.
--------------------------------------------------------------------------
[n2:00123] PMIX ERROR: UNREACHABLE in file server/pmix_server.c at line 2198
slurmstepd: error: *** STEP 7.0 ON n1 CANCELLED AT 2026-11-20T10:00:00 ***
srun: Job step aborted: Waiting up to 32 seconds for job step to finish.
"""
# The waits between two tries are not the test's.
SLEEP = """#!/bin/bash
echo "$1" >>"$LOG/sleep"
"""
SCONTROL = """#!/bin/bash
printf '%b' "${SCONTROL_ERR:-}" >&2
if [[ $1 == show ]]; then
  printf 'JobId=7\\n   JobState=%s Dependency=(null)\\n   Requeue=1 Restarts=%s BatchFlag=1\\n' \\
    "${STATE:-RUNNING Reason=None}" "${RESTARTS:-${SLURM_RESTART_COUNT:-0}}"
  [[ ${SLURM_TIME_FORMAT:-standard} == standard ]] || END=06:05
  printf '   EndTime=%s Deadline=N/A\\n   Command=%s\\n   WorkDir=/\\n' "${END:-Unknown}" "${COMMAND:-}"
  exit
fi
printf '%s\\n' "$*" >>"$LOG/scontrol"
[[ $(wc -l <"$LOG/scontrol") -gt ${FAILED_REQUEUES:-0} ]]
"""


class WithStandIns(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="launch test ")  # spaces on purpose
        self.addCleanup(folder.cleanup)
        self.dir = Path(folder.name)
        (self.dir / "bin").mkdir()
        for name, text in (("srun", SRUN), ("scontrol", SCONTROL), ("gaccd", GACCD),
                           ("sleep", SLEEP)):
            path = self.dir / "bin" / name
            path.write_text(text)
            path.chmod(0o755)
        self.job = self.dir / "my job.txtpb"
        self.job.write_text("")

    def start(self, command, **env):
        full = {"PATH": f"{self.dir}/bin:/usr/bin:/bin", "LOG": str(self.dir), "SLURM_JOB_ID": "91",
                "SLURM_JOB_NAME": "demo", "SLURM_SUBMIT_DIR": str(self.dir), "SLURM_NTASKS": "8",
                **env}
        return subprocess.run([str(c) for c in command], env=full, cwd="/", text=True,
                              capture_output=True, timeout=120)

    def launch(self, *args, **env):
        return self.start([SLURM / "launch", self.job, *args], **env)

    def log(self, name):
        path = self.dir / name
        return path.read_text().splitlines() if path.exists() else []


class Launch(WithStandIns):
    def test_one_is_singular(self):
        said = self.launch(SLURM_NTASKS="1", SLURM_JOB_NUM_NODES="1", SLURM_RESTART_COUNT="1").stdout
        self.assertIn("1 rank on 1 node, logs", said)
        self.assertIn("exit code 0 after 1 restart, logs", said)

    def test_ranks_that_could_not_be_started_are_started_again(self):
        done = self.launch(FAILED_LAUNCHES="2", SRUN_RC="78", GACCD_SAYS="fail\\nwhy\\n")
        self.assertEqual(done.returncode, 78, done.stderr)
        self.assertEqual(len(self.log("starts")), 3)
        self.launch(FAILED_LAUNCHES="99", GACCD_SAYS="fail\\nwhy\\n")
        self.assertEqual(len(self.log("starts")), 11)

    def test_a_signal_that_only_the_script_received_is_forwarded(self):
        for sent, got in (("USR1", "USR1"), ("USR2", "USR2"), ("TERM", "TERM"), ("INT", "TERM"), ("HUP", "HUP"),
                          ("ALRM", "ALRM"), ("XCPU", "TERM")):
            (self.dir / "ranks_got").unlink(missing_ok=True)
            done = self.launch(SIGNAL_PARENT=sent, RANKS_TAKE_SIGNALS="1", GACCD_SAYS="requeue\\nwhy\\n",
                               GACCD_RUN_DIR=str(self.dir / sent))
            self.assertEqual((done.returncode, self.log("ranks_got")), (75, [got]), sent)
            self.assertTrue(self.log("gaccd")[-1].endswith("--srun-rc=75"), sent)

    def test_a_signal_during_failed_launches_waits_for_the_ranks(self):
        done = self.launch(FAILED_LAUNCHES="2", SIGNAL_AT_START="USR1", RANKS_TAKE_SIGNALS="1",
                           GACCD_SAYS="requeue\\nwhy\\n")
        self.assertEqual((done.returncode, len(self.log("starts"))), (75, 3), done.stderr)
        self.assertEqual(self.log("ranks_got"), ["USR1"])

    def test_a_request_to_save_does_not_replace_a_stop(self):
        done = self.launch(LATE_RANKS="1", RANKS_TAKE_SIGNALS="1", GACCD_SAYS="requeue\\nwhy\\n")
        self.assertEqual((done.returncode, self.log("ranks_got")), (75, ["USR2"]), done.stderr)

    def test_passes_job_folder_and_flags(self):
        done = self.launch("--target-batch=1000", "--name=a b")
        self.assertEqual(done.returncode, 0, done.stderr)
        run = f"{self.dir}/runs/demo-91"
        self.assertEqual(self.log("srun"), [
            "--mpi=pmix", "--kill-on-bad-exit=1", "--wait=60",
            f"--output={run}/attempts/000-91/rank/r%5t.out",
            f"--error={run}/attempts/000-91/rank/r%5t.err",
            f"{self.dir}/bin/gaccd", "train", f"--job={self.job}", f"--run-dir={run}",
            "--target-batch=1000", "--name=a b"])
        self.assertTrue((Path(run) / "attempts/000-91/rank").is_dir())
        for line in ("SLURM_EXIT_ERROR=71", "SLURM_PMIX_FENCE=ring", "SLURM_PMIX_TIMEOUT=100",
                     f"GACCD_ATTEMPT_DIR={run}/attempts/000-91"):
            self.assertIn(line, self.log("env"))

    def test_srun_gets_the_cores_of_a_rank_that_the_job_asked_for_and_no_others(self):
        def cores():
            return [line for line in self.log("env") if line.startswith("SRUN_CPUS_PER_TASK=")]
        self.assertEqual(self.launch().returncode, 0)
        self.assertEqual(cores(), [])
        self.assertEqual(self.launch(SLURM_CPUS_PER_TASK="6").returncode, 0)
        self.assertEqual(cores(), ["SRUN_CPUS_PER_TASK=6"])

    def test_a_percent_in_the_folder_is_no_pattern(self):
        run = self.dir / "50%t"
        self.assertEqual(self.launch(GACCD_RUN_DIR=str(run)).returncode, 0)
        self.assertIn(f"--output={self.dir}/50%%t/attempts/000-91/rank/r%5t.out", self.log("srun"))
        self.assertTrue((run / "attempts/000-91/rank").is_dir())

    def test_exit_codes_of_gaccd_pass_through(self):
        for code in (64, 70, 78, 93, 134):
            self.assertEqual(self.launch(SRUN_RC=str(code)).returncode, code)
        self.assertEqual(self.log("scontrol"), [])

    def test_the_verdict_decides(self):
        for says, rc, code, requeued in (
                ("done\\nall is well\\n", 0, 0, False),
                ("done\\na rank died after the end\\n", 137, 0, False),
                ("requeue\\na peer was lost\\n--exclude=n3\\n", 143, 75, True),
                ("norequeue\\nheld\\n", 75, 93, False),
                ("fail\\nthe data is damaged\\n", 65, 65, False)):
            with self.subTest(says):
                (self.dir / "scontrol").unlink(missing_ok=True)
                done = self.launch(SRUN_RC=str(rc), GACCD_SAYS=says)
                self.assertEqual(done.returncode, code, done.stderr)
                self.assertEqual(self.log("scontrol"), ["requeue 91"] if requeued else [])
                word, reason = says.split("\\n")[:2]
                self.assertIn(f"gaccd: {word}: {reason}\n", done.stdout)
                self.assertEqual("sbatch --exclude=n3" in done.stdout, "--exclude" in says)
        attempt = f"{self.dir}/runs/demo-91/attempts/000-91"
        self.assertEqual(self.log("gaccd")[-1], f"verdict --attempt-dir={attempt} --srun-rc=65")

    def test_a_signal_does_not_prevent_the_verdict(self):
        done = self.launch(SRUN_RC="75", SIGNAL_PARENT="TERM", GACCD_SAYS="requeue\\nSIGTERM\\n")
        self.assertEqual(done.returncode, 75, done.stderr)
        self.assertEqual(self.log("scontrol"), ["requeue 91"])

    def test_without_an_answer_the_code_decides(self):
        for rc, code in ((0, 70), (64, 64), (69, 75), (71, 75), (75, 75), (93, 93), (137, 75), (139, 139), (143, 75),
                         (253, 253)):
            for says in ("", "oops\\n"):
                (self.dir / "scontrol").unlink(missing_ok=True)
                done = self.launch(SRUN_RC=str(rc), GACCD_SAYS=says)
                self.assertEqual(done.returncode, code, (rc, says))
                self.assertEqual(self.log("scontrol"), ["requeue 91"] if code == 75 else [])
                self.assertIn(f"gaccd verdict gave no answer, srun returned {rc}", done.stdout)

    def test_the_rank_that_failed_first_gives_the_code(self):
        report = ("srun: error: n3: task 5: Exited with exit code 78\\n"
                  "srun: error: n3: task 6: Exited with exit code 69\\n"
                  "srun: error: n1: tasks 0-1: Terminated\\n")
        done = self.launch(SRUN_RC="143", SRUN_ERR=report)
        self.assertEqual(done.returncode, 78)
        self.assertIn("task 5: Exited with exit code 78", done.stderr)
        killed = "srun: error: n3: task 5: Killed\\nsrun: error: n1: tasks 0-1: Terminated\\n"
        self.launch(SRUN_RC="143", SRUN_ERR=killed)
        self.assertIn("--srun-rc=143", self.log("gaccd")[-1])

    def test_a_run_folder_that_is_gone_is_reported_first(self):
        run = self.dir / "run"
        done = self.launch(GACCD_RUN_DIR=str(run), REMOVE=str(run), SRUN_RC="74")
        self.assertEqual(done.returncode, 74)
        self.assertTrue(done.stderr.startswith(
            f"slurm/launch: the folder {run}/attempts/000-91 is gone, srun returned 74"), done.stderr)

    def test_shows_the_output_of_the_ranks(self):
        rank = self.dir / "runs/demo-91/attempts/000-91/rank"
        rank.mkdir(parents=True)
        (rank / "r00002.err").write_text("labels file is truncated\n")
        done = self.launch(SRUN_RC="65")
        self.assertEqual(done.returncode, 65)
        self.assertIn("labels file is truncated", done.stderr)

    def test_shows_the_output_of_gaccd_on_the_ranks(self):
        rank = self.dir / "runs/demo-91/attempts/000-91/rank"
        rank.mkdir(parents=True)
        for number in range(5):
            (rank / f"r0000{number}.err").write_text(BANNER)
        (rank / "r00005.err").write_text("gaccd: rank 5 on n2: error (data, exit 65): labels\n" + BANNER)
        done = self.launch(SRUN_RC="65")
        self.assertIn("r00005.err\ngaccd: rank 5 on n2: error (data, exit 65): labels\n", done.stderr)
        for word in ("MPI_ABORT", "NOTE", "--------", "PMIX", "slurmstepd", "r00004"):
            self.assertNotIn(word, done.stderr)
        (rank / "r00005.err").unlink()  # nobody else explains it
        self.assertIn("NOTE: invoking MPI_ABORT", self.launch(SRUN_RC="65").stderr)

    def test_exit_75_requeues_the_job(self):
        self.launch(SRUN_RC="75")
        self.launch(SRUN_RC="75", SLURM_ARRAY_JOB_ID="88", SLURM_ARRAY_TASK_ID="3")
        self.assertEqual(self.log("scontrol"), ["requeue 91", "requeue 88_3"])

    def test_passes_the_end_of_the_job_to_gaccd(self):
        self.assertEqual(self.launch(END="2026-11-20T10:00:00", TZ="UTC").returncode, 0)
        self.assertIn("SLURM_JOB_END_TIME=1795168800", self.log("env"))
        self.launch(END="2026-11-20T10:00:00", TZ="UTC", SLURM_TIME_FORMAT="%H:%M")
        self.assertIn("SLURM_JOB_END_TIME=1795168800", self.log("env"))
        # 02:30 in summer; an hour later it is 02:30 again. scontrol prints the local time, as date does.
        stand_in = self.dir / "bin" / "scontrol"
        stand_in.write_text(SCONTROL.replace("  printf '   EndTime", '  END=$(date -d "@$AT" +%FT%T)\n'
                                             "  printf '   EndTime"))
        for at in ("1792888200", "1792891800"):
            self.launch(AT=at, TZ="CET-1CEST,M3.5.0,M10.5.0/3")
            self.assertIn(f"SLURM_JOB_END_TIME={at}", self.log("env"))
        stand_in.write_text(SCONTROL)
        self.launch(END="2026-11-20T10:00:00", SLURM_JOB_END_TIME="17")
        self.assertIn("SLURM_JOB_END_TIME=17", self.log("env"))
        self.launch()
        self.assertFalse([line for line in self.log("env") if line.startswith("SLURM_JOB_END")])

    def test_every_state_of_the_job(self):
        again = ("RUNNING Reason=None", "SIGNALING Reason=None", "SUSPENDED Reason=None", "STOPPED Reason=None",
                 "CONFIGURING Reason=None", "COMPLETING Reason=TimeLimit", "COMPLETING Reason=NodeDown",
                 "TIMEOUT Reason=TimeLimit", "PREEMPTED Reason=None", "NODE_FAIL Reason=NodeDown",
                 "BOOT_FAIL Reason=None")
        by_slurm = ("PENDING Reason=BeginTime", "REQUEUED Reason=None", "REQUEUE_HOLD Reason=None",
                    "REQUEUE_FED Reason=None", "EXPEDITING Reason=None", "SPECIAL_EXIT Reason=JobHeldUser")
        memory = ("OUT_OF_MEMORY Reason=OutOfMemory", "COMPLETING Reason=OutOfMemory")
        ended = ("COMPLETING Reason=None", "CANCELLED Reason=None", "COMPLETED Reason=None",
                 "FAILED Reason=NonZeroExitCode", "DEADLINE Reason=DeadLine", "REVOKED Reason=None")
        said = {by_slurm: (75, "SLURM has put the job back"), memory: (253, "--mem"),
                ended: (75, "somebody ended it")}
        for states in (again, by_slurm, memory, ended):
            for state in states:
                with self.subTest(state):
                    (self.dir / "scontrol").unlink(missing_ok=True)
                    done = self.launch(SRUN_RC="75", STATE=state)
                    code, text = said.get(states, (75, ""))
                    self.assertEqual((done.returncode, text in done.stdout + done.stderr), (code, True))
                    self.assertEqual(self.log("scontrol"), ["requeue 91"] if states is again else [])

    def test_a_job_that_the_user_requeued_is_not_requeued_again(self):
        """SLURM 22.05 shows it as COMPLETING while its script ends, as after scancel, with one restart more."""
        for before, restarts, said in (("0", "1", "SLURM has put the job back"), ("1", "2", "SLURM has put the job back"),
                                       ("1", "1", "somebody ended it")):
            with self.subTest(before=before, restarts=restarts):
                done = self.launch(SRUN_RC="75", STATE="COMPLETING Reason=None", SLURM_RESTART_COUNT=before, RESTARTS=restarts)
                self.assertEqual((done.returncode, self.log("scontrol")), (75, []))
                self.assertIn(said, done.stdout + done.stderr)

    def test_a_restarting_controller_is_queried_again(self):
        self.assertEqual(self.launch(SRUN_RC="75", FAILED_REQUEUES="2").returncode, 75)
        self.assertEqual((self.log("scontrol"), self.log("sleep")), (["requeue 91"] * 3, ["0", "5", "10"]))
        done = self.launch(SRUN_RC="75", FAILED_REQUEUES="99")
        self.assertEqual((done.returncode, "requeue 91 failed" in done.stderr), (71, True))

    def test_a_rank_that_was_out_of_memory(self):
        for said in ("srun: error: n2: task 3: Out Of Memory\\nsrun: error: n1: task 0: Exited with exit code 69\\n",
                     "slurmstepd: error: Detected 1 oom_kill event in StepId=7.0. Some of the step tasks have been "
                     "OOM Killed.\\n", "slurmstepd-n1: error: Detected 1 oom-kill event(s) in step 7.0 cgroup.\\n"):
            self.launch(SRUN_RC="137", SRUN_ERR=said, GACCD_SAYS="fail\\nwhy\\n")
            self.assertIn("--srun-rc=253", self.log("gaccd")[-1], said)
        rank = self.dir / "runs/demo-91/attempts/000-91/rank/r00002.err"
        rank.write_text("I am out of memory, says the job\n")
        self.launch(SRUN_RC="137", GACCD_SAYS="fail\\nwhy\\n")
        self.assertIn("--srun-rc=137", self.log("gaccd")[-1])
        rank.write_text("slurmstepd: error: Detected 2 oom-kill event(s) in StepId=7.0 cgroup\n")
        self.launch(SRUN_RC="137", GACCD_SAYS="fail\\nwhy\\n")
        self.assertIn("--srun-rc=253", self.log("gaccd")[-1])

    def test_an_attempt_whose_script_was_lost_is_entered_by_the_next(self):
        self.launch(SRUN_RC="75")  # has no line, as a stand-in judged it
        (self.dir / "gaccd").unlink()
        run = self.dir / "runs/demo-91"
        for restarts in ("1", "2"):
            (run / f"attempts/00{restarts}-91").mkdir()
        (run / "ledger.jsonl").write_text('{"v":1,"attempt":"001-91.2"}\n')
        self.assertEqual(self.launch(SLURM_RESTART_COUNT="3").returncode, 0)
        lost = [line for line in self.log("gaccd") if "srun-rc" not in line]
        self.assertEqual(lost, [f"verdict --attempt-dir={run}/attempts/00{n}-91" for n in (0, 2)])
        self.launch(SLURM_RESTART_COUNT="3")
        self.assertEqual(len([line for line in self.log("gaccd") if "srun-rc" not in line]), 2, "once")

    def test_a_run_that_is_held_for_lost_attempts_starts_nothing(self):
        (self.dir / "runs/demo-91/attempts/000-91").mkdir(parents=True)
        done = self.launch(SLURM_RESTART_COUNT="1", GACCD_HOLDS="1")
        self.assertEqual((done.returncode, "HOLD is there: 3 restarts" in done.stderr), (93, True))
        self.assertEqual(self.log("srun"), [])

    def test_requeues_only_so_often(self):
        hold = self.dir / "runs/demo-91/HOLD"
        done = self.launch(SRUN_RC="75", GACCD_MAX_REQUEUE="0")
        self.assertEqual((done.returncode, hold.exists()), (93, False))
        self.assertEqual(self.launch(SRUN_RC="75", SLURM_RESTART_COUNT="20").returncode, 93)
        self.assertEqual(hold.read_text(), "requeued 20 times already, GACCD_MAX_REQUEUE=20\n")
        self.assertEqual(self.log("scontrol"), [])

    def test_the_comment_is_written_at_every_end(self):
        wanted = {"GACCD_COMMENT": "1"}
        for env, code in (({}, 0), ({"SRUN_RC": "75", "GACCD_MAX_REQUEUE": "0"}, 93), ({"SRUN_RC": "65"}, 65),
                          ({"SRUN_RC": "75", "STATE": "CANCELLED Reason=None"}, 75),
                          ({"SRUN_RC": "75", "STATE": "OUT_OF_MEMORY Reason=OutOfMemory"}, 253)):
            with self.subTest(env):
                (self.dir / "scontrol").unlink(missing_ok=True)
                self.assertEqual(self.launch(**wanted, **env).returncode, code)
                (said,) = self.log("scontrol")
                self.assertRegex(said, rf"^update jobid=91 comment=gaccd:v1;.*;exit={code}$")
        (self.dir / "scontrol").unlink()
        self.launch(**wanted, SRUN_RC="75")
        self.assertEqual(self.log("scontrol"), ["requeue 91"])

    def test_every_attempt_has_its_folder(self):
        self.launch()
        self.launch(SLURM_RESTART_COUNT="1")
        attempts = self.dir / "runs/demo-91/attempts"
        self.assertEqual(sorted(os.listdir(attempts)), ["000-91", "001-91"])

    def test_every_start_within_a_job_has_its_folder(self):
        attempts = self.dir / "runs/demo-91/attempts"
        self.launch()
        (attempts / "000-91/verdict.json").touch()
        self.assertEqual(self.launch(SRUN_RC="78", GACCD_SAYS="fail\\nwhy\\n").returncode, 78)
        self.assertTrue(self.log("gaccd")[-1].endswith("/000-91.2 --srun-rc=78"), self.log("gaccd"))
        self.assertIn(f"GACCD_ATTEMPT_DIR={attempts}/000-91.2", self.log("env"))
        # One that failed before it wrote there has been judged.
        (attempts.parent / "ledger.jsonl").write_text('{"v":1,"attempt":"000-91.2","exit":78}\n')
        self.launch()
        self.assertEqual(sorted(os.listdir(attempts)), ["000-91", "000-91.2", "000-91.3"])

    def test_stop_files_start_nothing(self):
        run = self.dir / "run"
        run.mkdir()
        (run / "STOP").touch()
        self.assertEqual(self.launch(GACCD_RUN_DIR=str(run)).returncode, 93)
        (run / "STOP").unlink()
        (run / "HOLD").write_text("3 restarts\n")
        held = self.launch(GACCD_RUN_DIR=str(run))
        self.assertEqual(held.returncode, 93)
        self.assertIn("HOLD is there: 3 restarts", held.stderr)
        self.assertEqual(self.log("srun"), [])

    def test_gaccd_decides_what_a_new_job_means_for_a_complete_run(self):
        (self.dir / "run").mkdir()
        (self.dir / "run/DONE").touch()
        for restarts in ("0", "1"):  # SLURM may requeue a job before its ranks have removed DONE
            done = self.launch(GACCD_RUN_DIR=str(self.dir / "run"), SLURM_RESTART_COUNT=restarts, SRUN_RC="78",
                               GACCD_SAYS="fail\\nwhy\\n")
            self.assertEqual((done.returncode, self.log("srun")[-1:]), (78, ["--run-dir=" + str(self.dir / "run")]))

    def test_checks_the_ranks_first(self):
        done = self.launch("--set", "device=cuda", "--epochs=1", GACCD_CHECK="1")
        self.assertEqual(done.returncode, 0, done.stderr)
        *before, job, _, _, _ = self.log("check")
        self.assertEqual(before, ["--mpi=pmix", "--kill-on-bad-exit=1", "--wait=60", f"{self.dir}/bin/gaccd", "check"])
        self.assertEqual(self.log("check")[-3:], ["--set", "device=cuda", "--epochs=1"])
        self.assertIn(job, self.log("srun"))
        attempt = self.dir / "runs/demo-91/attempts/000-91"
        self.assertEqual((attempt / "check.txt").read_text(), "4 ranks on 2 nodes\n")
        self.assertIn("train", self.log("srun"))

    def test_ranks_that_do_not_fit_start_no_training(self):
        done = self.launch(GACCD_CHECK="1", CHECK_RC="78")
        self.assertEqual((done.returncode, "4 ranks on 2 nodes" in done.stderr), (78, True))
        self.assertEqual(self.log("srun"), [])

    def test_a_check_that_was_ended_is_judged_as_a_training(self):
        report = "srun: error: n3: task 5: Exited with exit code 69\\nsrun: error: n1: tasks 0-1: Terminated\\n"
        for rc, said, judged in (("69", "", 69), ("143", report, 69), ("140", "", 140)):
            (self.dir / "scontrol").unlink(missing_ok=True)
            done = self.launch(GACCD_CHECK="1", CHECK_RC=rc, CHECK_ERR=said, GACCD_SAYS="requeue\\nwhy\\n")
            self.assertEqual(done.returncode, 75, done.stderr)
            self.assertEqual(self.log("scontrol"), ["requeue 91"])
            self.assertTrue(self.log("gaccd")[-1].endswith(f"--srun-rc={judged}"), self.log("gaccd"))
        self.assertEqual(self.log("srun"), [])

    def test_a_stop_during_the_check(self):
        done = self.launch(GACCD_CHECK="1", SIGNAL_IN_CHECK="TERM", GACCD_SAYS="requeue\\nwhy\\n")
        self.assertEqual((done.returncode, self.log("srun")), (75, []), done.stderr)
        self.assertTrue(self.log("gaccd")[-1].endswith("--srun-rc=75"), self.log("gaccd"))
        done = self.launch(GACCD_CHECK="1", SIGNAL_IN_CHECK="TERM", CHECK_RC="143", GACCD_SAYS="fail\\nwhy\\n")
        self.assertIn("slurm/launch: gaccd check was stopped: ", done.stderr)
        self.assertEqual(self.log("scontrol"), ["requeue 91"])

    def test_a_container_mounts_what_the_run_needs(self):
        image, more = "registry#team/gaccd:1", "/data:/data"
        done = self.launch("--epochs=1", GACCD="no-such-program-here", GACCD_CONTAINER=image,
                           GACCD_CONTAINER_MOUNTS=more, GACCD_CHECK="1", SLURMD_NODENAME="n7")
        self.assertEqual(done.returncode, 0, done.stderr)
        run = f"{self.dir}/runs/demo-91"
        container = [f"--container-image={image}",
                     f"--container-mounts={run}:{run},{self.dir}:{self.dir},{more}"]
        self.assertEqual(self.log("srun")[3:5], container)
        # The host may have no gaccd to ask.
        self.assertEqual(self.log("verdict")[:3], ["--nodes=1", "--ntasks=1", "--nodelist=n7"])
        self.assertIn(container[0], self.log("verdict"))
        self.assertEqual(self.log("srun")[7:9], ["no-such-program-here", "train"])
        self.assertEqual(self.log("check")[3:7],
                         [*container, "no-such-program-here", "check"])
        self.assertEqual(self.launch(GACCD_CONTAINER=image).returncode, 0)
        self.assertTrue(self.log("srun")[4].endswith(f",{self.dir}:{self.dir}"))
        done = self.launch(GACCD_CONTAINER=image, GACCD_RUN_DIR=f"{self.dir}/a,b")
        self.assertEqual((done.returncode, "a,b" in done.stderr), (78, True))

    def test_says_what_is_missing(self):
        self.assertEqual(self.start([SLURM / "launch"]).returncode, 64)
        done = self.launch(SLURM_JOB_ID="")
        self.assertEqual((done.returncode, "sbatch" in done.stderr), (78, True))
        done = self.launch(GACCD="/no/gaccd")
        self.assertEqual((done.returncode, "/no/gaccd" in done.stderr), (78, True))
        done = self.start([SLURM / "launch", "/no/job.txtpb"])
        self.assertEqual((done.returncode, "/no/job.txtpb" in done.stderr), (74, True))
        done = self.launch(GACCD_RUN_DIR="/proc/run")
        self.assertEqual((done.returncode, done.stderr),
                         (74, "slurm/launch: cannot make the folder /proc/run: No such file or directory\n"))
        self.assertEqual(self.log("srun"), [])


    @unittest.skipIf(os.geteuid() != 0, "needs root, to mount a small disk")
    def test_a_full_disk_is_reported_first(self):
        disk = self.dir / "disk"
        disk.mkdir()
        done = self.start(["unshare", "--mount", "bash", "-c", 'mount -t tmpfs -o size=32k none "$0" && "$@"', disk,
                           SLURM / "launch", self.job], GACCD_RUN_DIR=str(disk / "run"))
        folder = disk / "run/attempts/000-91"
        self.assertEqual(done.returncode, 74)
        self.assertTrue(done.stderr.startswith(
            f"slurm/launch: cannot write to the folder {folder}: No space left on device"), done.stderr)
        self.assertEqual(self.log("srun"), [])


class Examples(WithStandIns):
    """The scripts find their folder although SLURM runs a copy of them."""

    def example(self, name, *args, **env):
        copy = self.dir / "slurm_script"
        copy.write_text((SLURM / "examples" / name).read_text())
        command = " ".join([str(SLURM / "examples" / name), *args])
        return self.start(["bash", copy, *args], **{"COMMAND": command, **env})

    def test_fashion_mnist(self):
        done = self.example("fashion-mnist.sbatch", "--target-batch=1000", "a b")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(self.log("srun")[6:], [
            "train", f"--job={SLURM}/examples/fashion-mnist.txtpb",
            f"--run-dir={self.dir}/runs/demo-91", "--target-batch=1000", "a b"])

    def test_3072(self):
        done = self.example("3072.sbatch")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn(f"--job={SLURM}/examples/3072.txtpb", self.log("srun"))

    def test_gpus(self):
        done = self.example("gpus.sbatch", "--precision=bf16")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(self.log("check")[-2:], ["--device=cuda", "--precision=bf16"])
        self.assertIn(f"--job={SLURM}/examples/fashion-mnist.txtpb", self.log("srun"))
        self.assertEqual(self.log("srun")[-2:], ["--device=cuda", "--precision=bf16"])
        self.example("gpus.sbatch", GACCD_JOB="3072.txtpb", GACCD_CHECK="0")
        self.assertIn(f"--job={SLURM}/examples/3072.txtpb", self.log("srun"))

    def test_gpus_are_not_bound_to_tasks(self):
        # It breaks peer access (operations.md): no example may ask SLURM for it.
        for script in (SLURM / "examples").glob("*.sbatch"):
            asked = [line for line in script.read_text().splitlines() if line.startswith("#SBATCH")]
            self.assertNotIn("--gpus-per-task", " ".join(asked), script)
            self.assertNotIn("--gpu-bind", " ".join(asked), script)
            self.assertNotIn("per-gpu", " ".join(asked), script)

    def test_gpu_ranks_are_on_the_socket_of_their_gpu(self):
        text = (SLURM / "examples" / "gpus.sbatch").read_text()
        self.assertIn("#SBATCH --distribution=block:block\n", text)

    def test_ranks_of_long_jobs_are_notified_in_time(self):
        for name in ("3072.sbatch", "gpus.sbatch"):
            self.assertIn("#SBATCH --signal=USR2@120\n", (SLURM / "examples" / name).read_text())

    def test_one_node(self):
        done = self.example("one-node.sbatch", "--epochs=1", SLURM_NTASKS="3")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn(f"--job={SLURM}/examples/linear.txtpb", self.log("srun"))
        self.assertEqual(self.log("srun")[-2:], ["--target-batch=96", "--epochs=1"])
        self.example("one-node.sbatch", GACCD_JOB="mlp.txtpb")
        self.assertIn(f"--job={SLURM}/examples/mlp.txtpb", self.log("srun"))

    def test_the_folder_can_be_given(self):
        done = self.example("3072.sbatch", GACCD_EXAMPLES=f"{SLURM}/examples", COMMAND="(null)")
        self.assertEqual(done.returncode, 0, done.stderr)


if __name__ == "__main__":
    unittest.main()
