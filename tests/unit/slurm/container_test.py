#!/usr/bin/env python3
"""The images of slurm/container and the libraries of tools/dev/prefix, as far as they can be checked without
building them.

  container_test.py [folder with cudnn_version.h, nccl.h, cuda.h] ...

Its shell commands pass shellcheck, its packages are known to apt where this is Debian or Ubuntu, and
its pinned versions are the ones that gaccd is compiled with here.
"""

import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
DOCKERFILE = ROOT / "slurm" / "container" / "Dockerfile"
DEFINITION = ROOT / "slurm" / "container" / "gaccd.def"
PREFIX = ROOT / "tools" / "dev" / "prefix"
INCLUDES = []
# In NVIDIA's package lists, not in Debian's.
OF_NVIDIA = ("libcudnn9", "libnccl")
# Of tools/dev/packages, what Ubuntu 24.04 has by the same name. libjpeg62-turbo-dev, for one, it has not.
OF_UBUNTU = set("""cmake ninja-build mold libopenmpi-dev openmpi-bin libprotobuf-dev protobuf-compiler libgflags-dev
  libgoogle-glog-dev zlib1g-dev libssl-dev nlohmann-json3-dev libjpeg-dev libpng-dev libwebp-dev libarchive-dev libdnnl-dev""".split())


def instructions():
    """(name, rest) of every instruction, continued lines joined with line breaks kept."""
    found, text = [], ""
    for line in DOCKERFILE.read_text().splitlines():
        if not text and (not line.strip() or line.startswith("#")):
            continue
        text += line + "\n"
        if not line.endswith("\\"):
            name, rest = text.split(None, 1)
            found.append((name, rest.strip()))
            text = ""
    return found


def arguments():
    return dict(rest.split("=", 1) for name, rest in instructions() if name == "ARG" and "=" in rest)


def header(name):
    return next((f.read_text() for f in (Path(d) / name for d in INCLUDES) if f.exists()), None)


def numbers(text, *names):
    """The values of #define NAME number, joined by dots."""
    return ".".join(re.search(rf"#define +{name} +(\d+)", text)[1] for name in names)


class Dockerfile(unittest.TestCase):
    def test_the_commands_are_good_shell(self):
        shellcheck = shutil.which("shellcheck")
        commands = [rest for name, rest in instructions() if name == "RUN"]
        self.assertGreaterEqual(len(commands), 5)
        variables = sorted({name.split("=")[0] for kind, name in instructions() if kind == "ARG"})
        for command in commands:
            script = "#!/bin/bash\nset -euo pipefail\n"
            script += "".join(f"{v}=${{{v}:-}}\n" for v in variables if f"${v}" in command)
            script += command + "\n"
            with tempfile.NamedTemporaryFile("w", suffix=".sh") as file:
                file.write(script)
                file.flush()
                subprocess.run(["bash", "-n", file.name], check=True)
                if not shellcheck:
                    continue
                done = subprocess.run([shellcheck, file.name], text=True, capture_output=True)
                self.assertEqual(done.returncode, 0, done.stdout)

    def test_pipes_may_fail(self):
        # Every stage that runs commands has its own SHELL; without pipefail a failed ldd is no failure.
        stages = re.split(r"^FROM .*$", DOCKERFILE.read_text(), flags=re.MULTILINE)[1:]
        for stage in stages:
            self.assertIn('SHELL ["/bin/bash", "-euo", "pipefail", "-c"]', stage)

    def test_every_version_is_exact(self):
        for name, rest in instructions():
            if name == "FROM":
                self.assertRegex(rest.split()[0], r":(\$\{CUDA\}|\d+\.\d+)", rest)
                self.assertNotIn("latest", rest)
        for name, value in arguments().items():
            self.assertRegex(value, r"^\d+(\.\d+)+(-\d+)?(\+cuda\d+\.\d+)?$", name)

    def test_copied_files_exist(self):
        for name, rest in instructions():
            if name == "COPY" and not rest.startswith("--from"):
                self.assertTrue((ROOT / rest.split()[0]).exists(), rest)

    def test_versions_are_those_of_development(self):
        pinned = arguments()
        if text := header("cudnn_version.h"):
            here = numbers(text, "CUDNN_MAJOR", "CUDNN_MINOR", "CUDNN_PATCHLEVEL")
            self.assertTrue(pinned["CUDNN"].startswith(here + "."), (pinned["CUDNN"], here))
        if text := header("nccl.h"):
            here = numbers(text, "NCCL_MAJOR", "NCCL_MINOR", "NCCL_PATCH")
            self.assertTrue(pinned["NCCL"].startswith(here + "-"), (pinned["NCCL"], here))
        if text := header("cuda.h"):
            code = int(re.search(r"#define +CUDA_VERSION +(\d+)", text)[1])
            here = f"{code // 1000}.{code % 1000 // 10}"
            self.assertTrue(pinned["CUDA"].startswith(here + "."), (pinned["CUDA"], here))
            self.assertTrue(pinned["NCCL"].endswith("+cuda" + here), pinned["NCCL"])

    def test_packages_are_known_to_apt(self):
        if not shutil.which("apt-cache"):
            self.skipTest("no apt here")
        text = "\n".join(rest for name, rest in instructions() if name == "RUN")
        names = set()
        for install in re.findall(r"apt-get (?:install|download) ((?:[^&]|\n)*?)(?: &&|$)", text):
            for word in install.replace("\\\n", " ").split():
                if not word.startswith("-") and "$" not in word.split("=")[0]:
                    names.add(word.strip('"').split("=")[0])
        self.assertLessEqual({"openmpi-bin", "g++-12", "libcudnn9-cuda-13"}, names)
        names = [name for name in names if not name.startswith(OF_NVIDIA)]
        known = subprocess.run(["apt-cache", "policy", *names], text=True, capture_output=True).stdout
        if "Candidate" not in known:
            self.skipTest("apt has no package lists")
        unknown = [name for name in names if f"{name}:\n" not in known]
        self.assertEqual(unknown, [])

    def test_the_packages_of_development_have_these_names_in_ubuntu(self):
        names = subprocess.run([ROOT / "tools/dev/packages", "--list", "build"], check=True, text=True,
                               capture_output=True).stdout.split()
        left_out, = re.findall(r"--list build \\\n\s*\| grep -vxE '(.*)'\)", DOCKERFILE.read_text())
        installed = {name for name in names if not re.fullmatch(left_out, name)}
        self.assertEqual(installed - OF_UBUNTU, set(), "look them up: the image is made from Ubuntu")
        self.assertIn("libjpeg-dev", installed)

    def test_the_program_is_not_in_the_context(self):
        ignored = (DOCKERFILE.parent / "Dockerfile.dockerignore").read_text().split()
        self.assertLessEqual({"build*", "runs"}, set(ignored))


class Definition(unittest.TestCase):
    """gaccd.def, of Apptainer."""
    TEXT = DEFINITION.read_text()

    def test_the_commands_are_good_shell(self):
        sections = re.findall(r"^%post\n(.*?)(?=^\S|\Z)", self.TEXT, re.DOTALL | re.MULTILINE)
        self.assertEqual(len(sections), 2)
        for section in sections:
            done = subprocess.run(["sh", "-n"], input=section, text=True, capture_output=True)
            self.assertEqual((done.returncode, done.stderr), (0, ""))

    def test_versions_are_those_of_development(self):
        version = re.search(r"project\(gaccd VERSION ([\d.]+)", (ROOT / "CMakeLists.txt").read_text())[1]
        self.assertIn(f"/build/gaccd_{version}_amd64.deb", self.TEXT)
        self.assertEqual(set(re.findall(r"^From: (\S+)", self.TEXT, re.MULTILINE)), {"debian:12.12-slim"})


class Libraries(unittest.TestCase):
    """What tools/cmake/GaccdDependencies.cmake wants."""
    TEXT = (ROOT / "tools/cmake/GaccdDependencies.cmake").read_text().split("if(GACCD_BUILD_TESTS)")[0]
    # As CMake calls them, and Spack.
    OF_SPACK = {"MPI": "mpi", "Protobuf": "protobuf", "ZLIB": "zlib-api", "JPEG": "libjpeg-turbo", "PNG": "libpng",
                "LibArchive": "libarchive", "WEBP": "libwebp", "OpenSSL": "openssl", "gflags": "gflags", "glog": "glog",
                "nlohmann_json": "nlohmann-json", "DNNL": "onednn"}

    def test_spack_has_all_of_them(self):
        wanted = set(re.findall(r"^find_package\((\w+) REQUIRED", self.TEXT, re.MULTILINE))
        wanted |= set(re.findall(r"^find_library\((\w+)_LIBRARY .*REQUIRED", self.TEXT, re.MULTILINE))
        self.assertEqual(len(re.findall("REQUIRED", self.TEXT)) - len(re.findall(r"^find_path\(", self.TEXT, re.MULTILINE)),
                         len(wanted))
        recipe = (ROOT / "slurm/container/spack/packages/gaccd/package.py").read_text()
        names = re.findall(r'^    depends_on\("([\w-]+)', recipe, re.MULTILINE)
        self.assertEqual({self.OF_SPACK.get(name, name) for name in wanted - {"Threads"}} - set(names), set())

    def test_their_packages_are_those_of_tools_dev_packages(self):
        named = {name for line in re.findall(r"^find_.*# (.*)$", self.TEXT, re.MULTILINE)
                 for name in re.findall(r"[\w+.-]+-(?:dev|compiler)\b", line)}
        listed = subprocess.run([ROOT / "tools/dev/packages", "--list", "build"], check=True, text=True,
                                capture_output=True).stdout.split()
        self.assertEqual(named, {name for name in listed if name.endswith(("-dev", "-compiler"))})


class Prefix(unittest.TestCase):
    def test_versions_are_those_of_development(self):
        if not shutil.which("dpkg-query"):
            self.skipTest("this is not Debian")
        found = dict(re.findall(r"\[(\w+)\]=\w+/[\w.-]+/[\w.-]+_([\d.]+)\.orig", PREFIX.read_text()))
        packages = {"gflags": "libgflags-dev", "glog": "libgoogle-glog-dev", "protobuf": "libprotobuf-dev",
                    "onednn": "libdnnl-dev", "json": "nlohmann-json3-dev", "jpeg": "libjpeg-dev", "png": "libpng-dev",
                    "webp": "libwebp-dev", "archive": "libarchive-dev"}
        self.assertEqual(set(found), set(self.arrays()["files"]))
        self.assertEqual(set(found), set(packages))
        for name, package in packages.items():
            here = subprocess.run(["dpkg-query", "-W", "-f=${Version}", package], text=True,
                                  capture_output=True).stdout
            if here:
                self.assertEqual(found[name], here.split(":")[-1].rsplit("-", 1)[0], package)

    @staticmethod
    def arrays():
        """The values of every declare -A of the script, by name."""
        parts = re.findall(r"^declare -A (\w+)=\(\n(.*?)^\)", PREFIX.read_text(), re.MULTILINE | re.DOTALL)
        return {name: dict(re.findall(r"^  \[(\w+)\]=(.*)$", part, re.MULTILINE)) for name, part in parts}

    def test_every_archive_has_a_checksum_and_options(self):
        arrays = self.arrays()
        self.assertEqual(set(arrays), {"files", "sums", "patches", "patch_sums", "options"})
        self.assertTrue(set(arrays["files"]) == set(arrays["sums"]) == set(arrays["options"]), arrays)
        self.assertEqual(set(arrays["patches"]), set(arrays["patch_sums"]))
        for value in (*arrays["sums"].values(), *arrays["patch_sums"].values()):
            self.assertRegex(value, r"^[0-9a-f]{64}$")

    def test_what_reads_files_of_others_has_debians_patches(self):
        arrays = self.arrays()
        self.assertEqual(set(arrays["patches"]), {"jpeg", "png", "webp", "archive"})
        for name, file in arrays["patches"].items():
            source = arrays["files"][name].split(".orig")[0]
            self.assertRegex(file, rf"^(updates/)?main/{re.escape(source)}-[\w.+]+\.debian\.tar\.xz$")


class PrefixBuilds(unittest.TestCase):
    """tools/dev/prefix with a library of one file and its patches in place of libwebp's."""

    def setUp(self):
        if missing := [program for program in ("cmake", "make", "curl", "patch", "xz") if not shutil.which(program)]:
            self.skipTest(f"not here: {missing}")
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.dir = Path(folder.name)
        self.script = PREFIX.read_text()
        self.add("files", "lib-1", {"CMakeLists.txt": "cmake_minimum_required(VERSION 3.25)\nproject(one LANGUAGES NONE)\n"
                                    "install(FILES said DESTINATION lib)\n", "said": "of the author\n"})

    def add(self, array, top, content):
        """Packs files in the place of libwebp's, and puts their checksum into the script."""
        root = self.dir / array
        for name, text in content.items():
            path = root / top / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        below = ("main/" if array == "files" else "") + Prefix.arrays()[array]["webp"]
        archive = self.dir / "debian/pool" / below
        archive.parent.mkdir(parents=True, exist_ok=True)
        subprocess.run(["tar", "-C", root, "-caf", archive, top], check=True)
        old = Prefix.arrays()["sums" if array == "files" else "patch_sums"]["webp"]
        self.script = self.script.replace(old, hashlib.sha256(archive.read_bytes()).hexdigest())

    def add_patches(self, **texts):
        patches = {f"patches/{name}.patch": f"--- a/said\n+++ b/said\n@@ -1 +1 @@\n-{old}\n+{new}\n"
                   for name, (old, new) in texts.items()}
        series = "# what Debian leaves out\n#none.patch\n\n" + "".join(f"{name}.patch -p1\n" for name in texts)
        self.add("patches", "debian", {"patches/series": series, **patches})

    def build(self):
        script = self.dir / "prefix"
        script.write_text(self.script)
        return subprocess.run(["bash", script, self.dir / "out", "webp"], text=True, capture_output=True, timeout=120,
                              env=os.environ | {"GACCD_MIRROR": f"file://{self.dir}/debian"})

    def test_it_builds_the_patched_sources_in_the_order_of_the_series(self):
        self.add_patches(z=("of the author", "patched"), a=("patched", "patched twice"))
        done = self.build()
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual((self.dir / "out/lib/said").read_text(), "patched twice\n")
        self.assertNotIn("== webp", self.build().stdout)  # it is there

    def test_what_was_built_without_patches_is_built_again(self):
        self.add_patches(a=("of the author", "patched"))
        (self.dir / "out/build").mkdir(parents=True)
        (self.dir / "out/build/webp.done").touch()  # as earlier versions left it
        self.assertIn("== webp", self.build().stdout)
        self.assertEqual((self.dir / "out/lib/said").read_text(), "patched\n")

    def test_a_patch_that_does_not_apply_ends_it(self):
        self.add_patches(a=("of somebody else", "patched"))
        done = self.build()
        self.assertEqual((done.returncode, "webp was not built" in done.stderr), (1, True), done.stderr)
        self.assertFalse((self.dir / "out/lib").exists())

    def test_without_its_patches_nothing_is_built(self):
        self.add_patches(a=("of the author", "patched"))
        (self.dir / "debian/pool" / Prefix.arrays()["patches"]["webp"]).unlink()
        done = self.build()
        self.assertEqual((done.returncode, "GACCD_MIRROR" in done.stderr), (1, True), done.stderr)

    def test_security_updates_have_an_archive_of_their_own(self):
        self.add_patches(a=("of the author", "patched"))
        file = Prefix.arrays()["patches"]["webp"]
        self.script = self.script.replace(f"[webp]={file}", f"[webp]=updates/{file}")
        there = self.dir / "debian-security/pool/updates" / file
        there.parent.mkdir(parents=True)
        (self.dir / "debian/pool" / file).rename(there)
        self.assertEqual(self.build().returncode, 0)
        self.assertEqual((self.dir / "out/lib/said").read_text(), "patched\n")


if __name__ == "__main__":
    INCLUDES = [a for a in sys.argv[1:] if os.path.isdir(a)]
    unittest.main(argv=sys.argv[:1])
