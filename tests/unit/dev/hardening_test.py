#!/usr/bin/env python3
"""The built program has what tools/cmake/GaccdHardening.cmake promises, and each of its sources was
compiled so; its slowest loops are vector code:  hardening_test.py GACCD COMPILE_COMMANDS SOURCE_FOLDER"""

import functools
import json
import platform
import re
import shlex
import subprocess
import sys
import unittest
from pathlib import Path


def readelf(*options):
    done = subprocess.run(["readelf", "-W", *options, PROGRAM], text=True, capture_output=True, check=True)
    return done.stdout


@functools.cache
def symbols():
    return subprocess.run(["nm", "-S", PROGRAM], text=True, capture_output=True, check=True).stdout


class Hardening(unittest.TestCase):
    def test_is_position_independent(self):
        self.assertRegex(readelf("-h"), r"Type:\s+DYN")
        self.assertIn("PIE", readelf("-d"))

    def test_library_addresses_are_read_only_from_the_start(self):
        self.assertIn("GNU_RELRO", readelf("-l"))
        self.assertTrue(re.search(r"BIND_NOW|Flags: .*\bNOW\b", readelf("-d")), "functions are bound late")

    def test_no_memory_is_writable_and_executable(self):
        segments = re.findall(r"^\s+(LOAD|GNU_STACK)\s+(?:0x\w+\s+){5}([RWE ]{3})\s", readelf("-l"), re.M)
        self.assertGreaterEqual(len(segments), 3)
        self.assertIn("GNU_STACK", [kind for kind, _ in segments])
        for kind, rights in segments:
            self.assertFalse("W" in rights and "E" in rights, (kind, rights))

    def test_overflows_are_noticed(self):
        names = self.imported()
        for what, name in (("stack protector", "__stack_chk_fail"), ("_FORTIFY_SOURCE", r"__\w+_chk"),
                           ("_GLIBCXX_ASSERTIONS", r"_ZSt21__glibcxx_assert_fail\w+")):
            self.assertTrue(any(re.fullmatch(name, found) for found in names), f"{what}: no {name}")

    def test_every_source_was_compiled_so(self):
        """One object with the flags is enough for the symbols above."""
        ours = 0
        for entry in json.loads(Path(COMMANDS).read_text()):
            path = Path(entry["directory"], entry["file"])
            if path.is_relative_to(SOURCE) and path.relative_to(SOURCE).parts[0] in ("tests", "tools"):
                continue
            ours += 1
            words = shlex.split(entry["command"])
            if path.suffix == ".cu" and "nvcc" in Path(words[0]).name:
                self.assertIn("-Xcompiler=-fstack-protector-strong", words, path)
                continue
            for flag in ("-fstack-protector-strong", "-D_FORTIFY_SOURCE=3", "-D_GLIBCXX_ASSERTIONS"):
                self.assertIn(flag, words, path)
            self.assertTrue({"-fPIE", "-fPIC"} & set(words), path)
            for flag in ("-fno-stack-protector", "-D_FORTIFY_SOURCE=0", "-fno-pie", "-U_GLIBCXX_ASSERTIONS"):
                self.assertNotIn(flag, words, path)
        self.assertGreater(ours, 100)

    def test_starts_no_shell_and_other_programs_in_one_place(self):
        """No name or path can become a command; SLURM's programs and mpirun are called by their arguments."""
        for name in self.imported():
            self.assertNotRegex(name, r"^(system|popen|execl\w*|execve?|execvpe|fexecve|wordexp)$")
        for call, callers in (("posix_spawn", {"slurm/commands.cc"}), ("execvp", {"daemon/verbs/local_ranks.cc"})):
            found = {str(path.relative_to(SOURCE)) for room in ("collectives", "daemon", "slurm")
                     for path in Path(SOURCE, room).rglob("*.cc") if call in path.read_text()}
            self.assertEqual(found, callers)

    def test_steps_of_optimisers_are_vector_code(self):
        """Which takes -fno-math-errno; the compiler says nothing where it has no effect."""
        self.assertRegex(self.clone("AdamW4Loop", "v4"), r"vsqrtps\s.*%zmm")

    def test_loops_are_vector_code_of_avx2(self):
        """Which takes -fno-trapping-math where a loop branches, and no vectors wider than the registers."""
        for function, wanted in (("10SoftmaxRow", r"vpslld\s.*%ymm"), ("11GradientRowEPfS1_", r"vpslld\s.*%ymm"),
                                 ("9UnaryLoopINS_11GeluFormula.*Ef", r"vpslld\s.*%ymm"),  # of the exponential function
                                 ("15ValuesAndSlopesINS_11GeluFormula.*EfE", r"vpslld\s.*%ymm"),
                                 ("5gaccd11TileProduct", r"vfmadd\d+ps\s+%ymm\d+,%ymm\d+,%ymm\d+"),
                                 ("23TransposeAttentionTilesERK\w*IfE", r"vshufps\s.*%ymm"),
                                 ("15TransformPixels", r"vmov(dqu|ups)\s+%ymm\d+,")):
            self.assertRegex(self.clone(function, "v3"), wanted, function)

    def clone(self, function, level):
        """The code of a function's clone for this level of x86-64."""
        if "-O3" not in Path(COMMANDS).read_text() or platform.machine() != "x86_64":
            self.skipTest("not optimised for this processor")
        found = re.findall(rf"^(\w+) (\w+) \w \S*{function}\S*\.arch_x86_64_{level}$", symbols(), re.M)
        self.assertEqual(len(found), 1, function)
        begin, size = (int(number, 16) for number in found[0])
        return subprocess.run(["objdump", "-d", f"--start-address={begin}", f"--stop-address={begin + size}", PROGRAM],
                              text=True, capture_output=True, check=True).stdout

    def imported(self):
        return set(re.findall(r"\sUND\s+([^\s@]+)", readelf("--dyn-syms")))


if __name__ == "__main__":
    PROGRAM, COMMANDS, SOURCE = (sys.argv.pop(1) for _ in range(3))
    unittest.main()
