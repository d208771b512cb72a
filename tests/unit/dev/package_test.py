#!/usr/bin/env python3
"""The Debian package of a build, unpacked: package_test.py BUILD"""

import gzip
import os
import re
import shutil
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

BUILD = Path(sys.argv.pop(1)).resolve()

# What bash does when Tab is pressed after these words; it has taken --flag=value apart.
PRESS_TAB = """
source "$1"; shift
COMP_WORDS=("$@") COMP_CWORD=$(($# - 1))
compopt() { :; }
_gaccd
printf '%s\\n' "${COMPREPLY[@]}"
"""


def output(*command, **options):
    return subprocess.run(list(map(str, command)), check=True, text=True, timeout=120,
                          stdout=subprocess.PIPE, **options).stdout


class PackageTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.folder = Path(folder.name)
        output("cpack", "-G", "DEB", "-B", cls.folder, cwd=BUILD, umask=0o077)
        cls.package, = cls.folder.glob("gaccd_*_*.deb")
        cls.root = cls.folder / "root"
        output("dpkg-deb", "-x", cls.package, cls.root)
        cls.gaccd = cls.root / "usr/bin/gaccd"
        cls.share = cls.root / "usr/share"

    def test_it_depends_on_the_libraries_that_the_program_loads(self):
        depends = output("dpkg-deb", "-f", self.package, "Depends")
        for library in ("libopenmpi3", "libprotobuf32", "libdnnl2", "libgflags2.2", "zlib1g"):
            self.assertIn(library, depends)

    def test_the_program_and_the_examples_work_from_there(self):
        self.assertEqual(output(self.gaccd, "version"), output(BUILD / "gaccd", "version"))
        examples = sorted((self.share / "gaccd/slurm/examples").glob("*.txtpb"))
        self.assertGreaterEqual(len(examples), 4)
        for job in examples:
            self.assertIn("plan", output(self.gaccd, "plan", f"--job={job}", "--nodes=2", "--gpus-per-node=4",
                                         "--target-batch=100"))
        launch = subprocess.run([self.share / "gaccd/slurm/launch"], capture_output=True, text=True, timeout=60)
        self.assertEqual((launch.returncode, launch.stderr.split(":")[1]), (64, " usage"))

    def test_the_manual_page_has_every_verb_and_flag_and_no_error(self):
        page = self.folder / "gaccd.1"
        page.write_bytes(gzip.decompress((self.share / "man/man1/gaccd.1.gz").read_bytes()))
        done = subprocess.run(["groff", "-man", "-ww", "-Tascii", "-P-c", "-P-b", "-P-u", "-rHY=0", page],
                              capture_output=True, text=True, timeout=60)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        for verb in output(self.gaccd, "help").split("\n\n")[2].splitlines():
            name = verb.split()[0]
            self.assertIn(f"gaccd {name}", done.stdout)
            for line in output(self.gaccd, "help", name).splitlines():
                if line.startswith("  --"):
                    self.assertIn(line.split()[0].split("=")[0], done.stdout)
        self.assertIn("optimizer.adamw.beta1", done.stdout)

    def test_scripts_and_the_module_work_from_there(self):
        self.assertTrue(os.access(self.share / "gaccd/dashboards/dcgm-job-mapping", os.X_OK))
        self.assertIn("--like", output(self.share / "gaccd/tools/prepare", "--help"))
        python = {**os.environ, "PYTHONPATH": str(self.root / "usr/lib/python3/dist-packages")}
        self.assertEqual(output(sys.executable, "-Bc", "import gaccd; print(gaccd.submit.__name__)", env=python),
                         "submit\n")
        self.assertNotIn("__pycache__", output("dpkg-deb", "-c", self.package))

    def test_everybody_may_read_it_whatever_the_umask(self):
        for line in output("dpkg-deb", "-c", self.package).splitlines():
            if "gaccd" in line:  # dpkg leaves folders alone that are there, such as /usr
                self.assertRegex(line, "^(drwxr-xr-x|-rw[x-]r-[x-]r-[x-]) ")

    def test_links_of_the_pages_for_users_resolve(self):
        doc = self.share / "doc/gaccd"
        for name in ("README.md", "daemon/CHANGELOG.md", "daemon/docs/README.md", "daemon/docs/slurm.md",
                     "daemon/docs/trust.md", "daemon/docs/own_models.md", "slurm/OPERATORS.md"):
            page = doc / name
            for link in re.findall(r"\]\(([^)#]+)", page.read_text(encoding="utf-8")):
                if "://" not in link:
                    self.assertTrue((page.parent / link).exists(), f"{name}: {link}")

    @unittest.skipUnless(shutil.which("lintian"), "no lintian")
    def test_debian_finds_no_error(self):
        done = subprocess.run(["lintian", "--allow-root", "--fail-on=error", self.package], capture_output=True,
                              text=True, timeout=100)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)

    def completions(self, *words):
        script = self.share / "bash-completion/completions/gaccd"
        return output("bash", "-c", PRESS_TAB, "bash", script, "gaccd", *words).split()

    def test_bash_completes_verbs_flags_and_choices(self):
        for words, expected in ((("pla",), ["plan"]), (("help", "jo"), ["job"]),
                                (("plan", "--roun"), ["--rounding="]),
                                (("submit", "--tar"), ["--target-batch="]),  # of train
                                (("submit", "--no"), ["--nodes="]), (("submit", "--chai"), ["--chain="]),
                                (("plan", "--rounding", "="), ["exact", "floor", "ceil", "nearest"]),
                                (("plan", "--rounding", "=", "fl"), ["floor"]),
                                (("ckpt", "v"), ["verify"]), (("ckpt", "ls", "run"), []),
                                (("train", "--set", "optimizer.sgd.n"), ["optimizer.sgd.nesterov="]),
                                (("train", "--set", "=", "schedule.w"), ["schedule.warmup_updates="]),
                                (("train", "--set", "batch.last_cycle", "=", "d"), ["drop"]),
                                (("stop", "--job"), []), (("status", "runs"), [])):
            self.assertEqual(self.completions(*words), expected, words)


if __name__ == "__main__":
    unittest.main(verbosity=2)
