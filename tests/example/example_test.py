#!/usr/bin/env python3
"""The examples of README.md touch the files that it names, at most five, and one row of each table."""
import re
import unittest
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
SOURCES = [path for folder in ("collectives", "daemon", "proto", "slurm", "tests/unit/engine",
                            "tests/unit/optim", "tests/unit/data")
           for path in (ROOT / folder).rglob("*")
           if path.suffix in {".h", ".cc", ".cu", ".proto"} or path.name == "CMakeLists.txt"]
SOURCES += [HERE / "tanh_shrink.h", ROOT / "tests/support/graph_cases.cc"]
TEXTS = {str(path.relative_to(ROOT)): path.read_text(encoding="utf-8") for path in SOURCES}


def examples():
    """(what, patterns, files, rows) of every line of the table."""
    for line in (HERE / "README.md").read_text(encoding="utf-8").splitlines():
        cells = re.split(r"(?<!\\)\|", line.strip().strip("|"))
        if len(cells) == 4 and "`" in cells[1]:
            yield cells[0].strip(), *(re.findall(r"`([^`]+)`", cell) for cell in cells[1:])


class WorkedExample(unittest.TestCase):
    def test_files(self):
        self.assertGreaterEqual(len(list(examples())), 3)
        for what, patterns, files, rows in examples():
            with self.subTest(what):
                pattern = re.compile("|".join(patterns))
                found = {path for path, text in TEXTS.items() if pattern.search(text)}
                self.assertEqual(found, set(files + rows))
                self.assertLessEqual(len(files), 5)
                for row in rows:
                    lines = [line for line in TEXTS[row].splitlines()
                             if pattern.search(line) and not line.startswith("#include")]
                    self.assertEqual(len(lines), 1, row)


if __name__ == "__main__":
    unittest.main()
