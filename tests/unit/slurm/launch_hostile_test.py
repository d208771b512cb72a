#!/usr/bin/env python3
"""slurm/launch with names and variables that would be commands if a shell read them twice."""

import os
import stat
import sys
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
from launch_test import WithStandIns  # noqa: E402

COMMANDS = ("$(touch pwned)", "`touch pwned`", "a;touch pwned", "a\ntouch pwned\n", "'\"$(touch pwned)\"'",
            "a[$(touch pwned)]", "| touch pwned", "&& touch pwned", "../../pwned", "-rf /", "%t * ? ~")


class Hostile(WithStandIns):
    def launch_in(self, *args, **env):
        """As launch(), but a file that a command makes would be in the test's folder."""
        return self.start(["/bin/bash", "-c", 'cd "$LOG" && exec "$0" "$@"', *self.command(*args)], **env)

    def command(self, *args):
        return [Path(__file__).resolve().parents[3] / "slurm" / "launch", self.job, *args]

    def check_nothing_ran(self, what):
        found = [path for path in self.dir.rglob("pwned*")]
        self.assertEqual(found, [], what)
        self.assertFalse((self.dir.parent / "pwned").exists(), what)

    def test_job_names(self):
        for name in COMMANDS:
            done = self.launch_in(SLURM_JOB_NAME=name)
            self.assertEqual(done.returncode, 0, (name, done.stderr))
            self.check_nothing_ran(name)
        for run in (self.dir / "runs").iterdir():
            self.assertRegex(run.name, r"^[A-Za-z0-9._-]+-91$")

    def test_flags_are_passed_as_they_are(self):
        for text in COMMANDS:
            done = self.launch_in(f"--name={text}")
            self.assertEqual(done.returncode, 0, (text, done.stderr))
            self.assertIn(f"--name={text}", "\n".join(self.log("srun")))
            self.check_nothing_ran(text)

    def test_run_folders(self):
        for text in COMMANDS:
            if "/" in text:
                continue
            done = self.launch_in(GACCD_RUN_DIR=f"{self.dir}/{text.replace('pwned', 'x')}")
            self.assertEqual(done.returncode, 0, (text, done.stderr))
            self.assertFalse((self.dir / "x").exists(), text)

    def test_run_folders_in_which_srun_cannot_write(self):
        for name in ("a\\b", "a%%b", "a%5tb"):
            done = self.launch_in(GACCD_RUN_DIR=f"{self.dir}/{name}")
            self.assertEqual((done.returncode, name in done.stderr), (78, True), done.stderr)
            self.assertFalse((self.dir / name).exists())

    def test_numbers_are_numbers(self):
        for name in ("SLURM_JOB_ID", "SLURM_RESTART_COUNT", "GACCD_MAX_REQUEUE"):
            for text in (*COMMANDS, "-1", "08", "1 2", "9" * 19):
                done = self.launch_in(SRUN_RC="75", GACCD_SAYS="requeue\\nwhy\\n", **{name: text})
                self.assertEqual(done.returncode, 78, (name, text, done.stderr))
                self.assertIn("expected a number", done.stderr)
                self.check_nothing_ran((name, text))
        self.assertEqual(self.log("scontrol"), [])

    def test_folders_are_for_their_user_only(self):
        for flags, mode in (((), 0o700), (("--group-access",), 0o750), (("--group_access=true",), 0o750),
                            (("-group-access=1",), 0o750), (("--group-access=YES",), 0o750),
                            (("--group-access=t",), 0o750), (("--group-access=false",), 0o700),
                            (("--group-access", "--nogroup_access"), 0o700),
                            (("--group-access", "--group-access=0"), 0o700)):
            run = self.dir / f"run{len(list(self.dir.iterdir()))}"
            before = os.umask(0)
            try:
                self.assertEqual(self.launch_in(*flags, GACCD_RUN_DIR=str(run)).returncode, 0)
            finally:
                os.umask(before)
            for path in (run, run / "attempts", run / "attempts/000-91", run / "attempts/000-91/rank"):
                self.assertEqual(stat.S_IMODE(path.stat().st_mode), mode, (flags, path))

    def test_links_in_the_run_folder_are_refused(self):
        victim = self.dir / "victim"
        victim.mkdir()
        target = victim / "srun.err"
        for name in ("attempts", "attempts/000-91", "attempts/000-91/rank"):
            with self.subTest(name):
                run = self.dir / f"run{name.count('/')}"
                link = run / name
                link.parent.mkdir(parents=True)
                target.write_text("precious")
                link.symlink_to(victim)
                done = self.launch(GACCD_RUN_DIR=str(run), GACCD_CHECK="1")
                self.assertEqual(done.returncode, 78, done.stderr)
                self.assertIn(f"{link} is a link", done.stderr)
                self.assertEqual(target.read_text(), "precious")
                self.assertEqual(self.log("srun") + self.log("check"), [])

    def test_output_files_that_are_links(self):
        attempt = self.dir / "runs/demo-91/attempts/000-91"
        attempt.mkdir(parents=True)
        target = self.dir / "precious"
        target.write_text("precious")
        for name in ("srun.err", "check.txt"):
            (attempt / name).symlink_to(target)
        self.assertEqual(self.launch(GACCD_CHECK="1").returncode, 0)
        self.assertEqual(target.read_text(), "precious")
        self.assertEqual((attempt / "check.txt").read_text(), "4 ranks on 2 nodes\n")

    @unittest.skipIf(os.geteuid() != 0, "needs root, to make folders of somebody else")
    def test_folders_of_another_user(self):
        for name in ("", "attempts", "attempts/000-91", "attempts/000-91/rank"):
            with self.subTest(name):
                folder = self.dir / f"foreign{len(name)}" / name
                folder.mkdir(parents=True)
                os.chown(folder, 4711, -1)
                done = self.launch(GACCD_RUN_DIR=str(self.dir / f"foreign{len(name)}"))
                self.assertEqual(done.returncode, 78, done.stderr)
                self.assertIn(f"{folder} belongs to user 4711", done.stderr)
                self.assertEqual(self.log("srun"), [])

    def test_texts_cannot_control_the_terminal(self):
        run = self.dir / "run"
        run.mkdir()
        (run / "HOLD").write_bytes(b"a\x1b]0;title\x07b\xc2\x9b2J\xc3\xbc\n")
        held = self.launch(GACCD_RUN_DIR=str(run))
        self.assertIn("HOLD is there: a?]0;title?b?2J\u00fc\n", held.stderr)
        done = self.launch(SRUN_RC="65", GACCD_SAYS="fail\\nwhy\\033[2J\\n", SRUN_ERR="\\033[31m red\\n")
        self.assertIn("gaccd: fail: why?[2J\n", done.stdout)
        self.assertIn("?[31m red\n", done.stderr)
        said = self.launch(SRUN_RC="75", GACCD_SAYS="requeue\\nwhy\\n", SCONTROL_ERR="\\033[2J\\0233J\\000x\\n",
                           FAILED_REQUEUES="9", GACCD_RUN_DIR=f"{self.dir}/\033[31m red")
        self.assertIn("?[2J?J?x\n", said.stderr)
        self.assertNotIn("\033", said.stdout + said.stderr)
        planted = self.dir / "\033[31m planted"
        planted.write_text("no folder")
        self.assertIn("/?[31m planted", self.launch(GACCD_RUN_DIR=str(planted)).stderr)
        (run / "HOLD").unlink()
        os.mkfifo(run / "HOLD")  # nobody writes: must not wait
        self.assertEqual(self.launch(GACCD_RUN_DIR=str(run)).returncode, 93)


if __name__ == "__main__":
    unittest.main()
