#!/usr/bin/env python3
"""What tools/soak says of a run, without a cluster:  soak_test.py"""

import sys
import unittest
from importlib.machinery import SourceFileLoader
from importlib.util import module_from_spec, spec_from_loader
from pathlib import Path
from types import SimpleNamespace

sys.dont_write_bytecode = True
ROOT = Path(__file__).resolve().parents[3]
LOADER = SourceFileLoader("soak", str(ROOT / "tools" / "soak"))
soak = module_from_spec(spec_from_loader("soak", LOADER))
LOADER.exec_module(soak)


class Run:
    """A training that was as it must be."""
    by_hand, job = (), SimpleNamespace(updates=100)

    def problems(self, _):
        return []

    def updates_executed(self):
        return 110

    def digest(self):
        return "0123"

    def attempts(self):
        return ["one", "two"]


def found(times, bound=2, ends=True, count=None, wrong=()):
    kind = soak.Found(bound, ends)
    kind.count, kind.times, kind.wrong = len(times) if count is None else count, times, list(wrong)
    return kind


class Judge(unittest.TestCase):
    def judge(self, kinds):
        """The rows that are not fine, and all figures by row."""
        rows = soak.judge(Run(), None, kinds)
        return [what for what, _, fine in rows if not fine], {what: figure for what, figure, _ in rows}

    def test_faults_that_were_named_in_time(self):
        wrong, figures = self.judge({"kill_rank": found([0.5, 1.0, 3.0]), "fill_disk": found([], 0, False, 2)})
        self.assertEqual(wrong, [])
        self.assertEqual(figures["faults injected"], "5, of 2 kinds")
        self.assertIn("median 1.00 s", figures["named: kill_rank"])

    def test_no_fault_at_all_is_not_fine(self):
        self.assertEqual(self.judge({})[0], ["faults injected"])
        wrong, figures = self.judge({"kill_rank": found([])})  # it was tried, between two attempts
        self.assertEqual((wrong, figures["faults injected"]), (["faults injected"], "0, of 0 kinds"))

    def test_a_kind_that_was_never_timed_is_not_fine(self):
        wrong, figures = self.judge({"kill_rank": found([], count=3), "cut_link": found([1.0])})
        self.assertEqual(wrong, ["named: kill_rank"])
        self.assertEqual(figures["named: kill_rank"], "3 times, never timed")

    def test_late_or_wrong_names_are_not_fine(self):
        self.assertEqual(self.judge({"kill_rank": found([1.0, 2.5, 3.0])})[0], ["named: kill_rank"])
        self.assertEqual(self.judge({"kill_rank": found([1.0], wrong=["no verdict"])})[0], ["named: kill_rank"])


if __name__ == "__main__":
    unittest.main()
