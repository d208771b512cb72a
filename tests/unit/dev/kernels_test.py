#!/usr/bin/env python3
"""For which GPUs a build makes kernels, by the way it was configured:  kernels_test.py

Configures only, in a folder of its own, as tools/test and tools/quickstart do."""

import json
import re
import shlex
import subprocess
import tempfile
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
WITHOUT_A_GPU, EVERY = ["sm_80"], ["compute_90", "sm_100", "sm_80", "sm_90"]
OF_THE_FIRST_TOOLS_TEST = ("-DCMAKE_CUDA_ARCHITECTURES=80-real", "-DGACCD_OPTIMISE_KERNELS=OFF")


def flags_of(tool):
    """What a script of tools/ passes to cmake --preset release, as on a machine without a GPU."""
    text = (ROOT / "tools" / tool).read_text().replace("\\\n", " ")
    words = shlex.split(re.search(r"cmake --preset release (.*)", text)[1])
    kernels = shlex.split(" ".join(re.findall(r"\bkernels\+?=\(([^)]*)\)", text)))
    return [flag for word in words for flag in (kernels if word == "${kernels[@]}" else [word.replace("$cuda", "ON")])]


class Kernels(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory()  # one for all: CMake tries the compilers in a new folder
        cls.addClassCleanup(folder.cleanup)
        cls.build = folder.name

    def configure(self, *flags):
        """The architectures that nvcc is called for."""
        subprocess.run(["cmake", "--preset", "release", "-B", self.build, *flags, "-DGACCD_BUILD_TESTS=OFF",
                        "-DGACCD_BUILD_BENCHMARKS=OFF"], cwd=ROOT, check=True, stdout=subprocess.DEVNULL, timeout=120)
        commands = [entry["command"] for entry in json.loads(Path(self.build, "compile_commands.json").read_text())
                    if entry["file"].endswith(".cu")]
        commands = [command for command in commands if "--generate-code" in command]
        self.assertTrue(commands)
        found = {",".join(re.findall(r",code=\[([\w,]+)\]", command)) for command in commands}
        self.assertEqual(len(found), 1, found)
        return sorted(found.pop().split(","))

    def assert_reports_that_kernels_are_not_optimised(self, expected):
        """When it is installed."""
        script = Path(self.build, "cmake_install.cmake").read_text()
        self.assertEqual("(80-real, not optimised)" in script, expected)

    def test_kernels_of_a_build(self):
        # What a test without a GPU leaves is not shipped.
        self.assertEqual(self.configure(*flags_of("test")), WITHOUT_A_GPU)
        self.assert_reports_that_kernels_are_not_optimised(True)
        self.assertEqual(self.configure(*flags_of("quickstart")), EVERY)
        self.assert_reports_that_kernels_are_not_optimised(False)
        self.assertEqual(self.configure(*flags_of("test")), WITHOUT_A_GPU)
        self.assertEqual(self.configure(), EVERY)
        # Nor is the cache of an older build.
        self.assertEqual(self.configure(*OF_THE_FIRST_TOOLS_TEST), WITHOUT_A_GPU)
        self.assertEqual(self.configure(*flags_of("quickstart")), EVERY)
        # Architectures that the user names are kept.
        self.assertEqual(self.configure("-DCMAKE_CUDA_ARCHITECTURES=90-real"), ["sm_90"])
        self.assertEqual(self.configure(), ["sm_90"])


if __name__ == "__main__":
    unittest.main()
