#!/usr/bin/env python3
"""tools/quickstart with stand-ins for cmake and gaccd:  quickstart_test.py"""

import shutil
import subprocess
import tempfile
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
CMAKE = """#!/bin/bash
[[ ${1:-} != --preset ]] || printf '%s\\n' "$@" >"$LOG/configured"
"""
# Says which limit it runs under.
TIMEOUT = """#!/bin/bash
while [[ $1 == -* ]]; do shift; done
echo "$1" >"$LOG/limit"
shift
exec "$@"
"""
# Writes the events of a run that reached ACCURACY, if it is set.
GACCD = """#!/bin/bash
printf '%s\\n' "$@" >"$LOG/trained"
while (($# > 0)); do
  case $1 in
    --run-dir=* | -run_dir=*) run=${1#*=} ;;
    --run-dir) run=$2; shift ;;
  esac
  shift
done
[[ -z ${EXIT:-} ]] || exit "$EXIT"
[[ -z ${NO_EVENTS:-} ]] || exit 0
mkdir -p "$run/attempts/001"
echo "{\\"ev\\":\\"step\\"}" >"$run/attempts/001/events.jsonl"
[[ -z ${ACCURACY:-} ]] || echo "{\\"metric\\":\\"accuracy\\",\\"value\\":$ACCURACY}" >>"$run/attempts/001/events.jsonl"
"""


class Quickstart(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="quickstart test ")
        self.addCleanup(folder.cleanup)
        self.dir = Path(folder.name)
        for name in ("tools/quickstart", "tools/dev/steps.sh"):
            (self.dir / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, self.dir / name)
        for name, text in (("tools/dev/packages", "#!/bin/bash\n"), ("bin/cmake", CMAKE), ("bin/timeout", TIMEOUT),
                           ("build/release/gaccd", GACCD)):
            (self.dir / name).parent.mkdir(parents=True, exist_ok=True)
            (self.dir / name).write_text(text)
            (self.dir / name).chmod(0o755)

    def start(self, *flags, **env):
        return subprocess.run([self.dir / "tools/quickstart", *flags], text=True, capture_output=True, timeout=60,
                              env={"PATH": f"{self.dir}/bin:/usr/bin:/bin", "LOG": str(self.dir), **env})

    def limit(self):
        return (self.dir / "limit").read_text().strip()

    def test_without_flags_it_has_a_limit_and_an_accuracy_to_reach(self):
        done = self.start(ACCURACY="0.89")
        self.assertEqual((done.returncode, self.limit()), (0, "240"), done.stderr)
        self.assertIn("Test accuracy: 0.89\n", done.stdout)
        done = self.start(ACCURACY="0.8")
        self.assertEqual((done.returncode, "0.8, expected at least 0.88" in done.stderr), (1, True), done.stderr)
        self.assertEqual(self.start().returncode, 1)

    def test_with_flags_it_has_neither(self):
        for flags in (["--epochs=1"], ["--cuda", "--epochs=100"]):
            done = self.start(*flags, ACCURACY="0.7")
            self.assertEqual((done.returncode, self.limit()), (0, "0"), done.stderr)
            self.assertIn("Test accuracy: 0.7\n", done.stdout)
            self.assertEqual((self.dir / "trained").read_text().splitlines()[-1], flags[-1])
        self.assertIn("Test accuracy: none\n", self.start("--max-updates=3").stdout)

    def test_cuda_alone_is_no_flag_of_the_training(self):
        self.assertEqual((self.start("--cuda", ACCURACY="0.8").returncode, self.limit()), (1, "240"))

    def test_a_run_folder_of_the_user_is_where_it_looks(self):
        for flags in (["--run-dir=my run"], ["--run-dir", "my run"], ["-run_dir=my run"],
                      ["--run-dir=other", "--run-dir=my run"], ["--name", "run-dir", "--run-dir=my run"]):
            with self.subTest(flags):
                shutil.rmtree(self.dir / "my run", ignore_errors=True)
                done = self.start(*flags, ACCURACY="0.9")
                self.assertEqual(done.returncode, 0, done.stderr)
                self.assertIn("Events: my run/attempts/001/events.jsonl\n", done.stdout)

    def test_help_installs_and_builds_nothing(self):
        for flag in ("--help", "-h"):
            done = self.start(flag)
            self.assertEqual((done.returncode, "From a fresh clone" in done.stdout), (0, True), flag)
            self.assertFalse((self.dir / "configured").exists(), flag)

    def test_help_from_its_own_folder(self):
        for name in ("quickstart", "test"):
            shutil.copy(ROOT / "tools" / name, self.dir / "tools" / name)
            done = subprocess.run([f"./{name}", "--help"], cwd=self.dir / "tools", text=True, capture_output=True,
                                  timeout=60)
            self.assertEqual((done.returncode, done.stderr), (0, ""))
            self.assertGreater(len(done.stdout.splitlines()), 3)

    def test_says_what_is_missing(self):
        for flags, folder in (([], "runs/"), (["--run-dir=gone"], "gone")):
            done = self.start(*flags, NO_EVENTS="1")
            self.assertEqual(done.returncode, 1)
            self.assertTrue(done.stderr.startswith(f"tools/quickstart: no events.jsonl below {folder}"), done.stderr)
        done = self.start(EXIT="65")
        self.assertEqual((done.returncode, "exit code 65" in done.stderr), (1, True))


if __name__ == "__main__":
    unittest.main()
