"""Operations that the exporter makes of others, and what it refuses: graph_operations_test.py GACCD

Small modules, each exported and compared with PyTorch by gaccd.verify. Needs what graph_export_test.py needs, else it is
skipped: exit code 77.
"""
import os
import sys
import tempfile
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SKIPPED = 77


class GraphOperations(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.dir = Path(folder.name)
        torch.manual_seed(5)

    def check(self, formulas, sizes=(4,), tolerance=1e-5):
        """Each formula(model, y) of y [samples, 6] between two linear layers; its result has 6 values for each sample."""
        for name, formula in formulas.items():
            with self.subTest(formula=name):
                self.check_model(Between(formula), torch.randn(2, *sizes), tolerance)

    def check_model(self, model, example, tolerance=1e-5):
        gaccd_export.export(model, example, self.dir / "model")
        found = gaccd_export.verify(model, self.dir / "model", gaccd=GACCD)
        self.assertTrue(found.ok, found)
        self.assertLess(found.largest.gaccd, max(tolerance, 4 * found.largest.pytorch), found)

    def refusal(self, formula, sizes=(4,)):
        return self.refusal_of(Between(formula), torch.randn(2, *sizes))

    def refusal_of(self, model, example):
        with self.assertRaises(gaccd_export.ExportError) as refused:
            gaccd_export.export(model, example, self.dir / "refused")
        self.assertFalse((self.dir / "refused").exists())
        return str(refused.exception)

    def test_limits_and_means(self):
        self.check({
            "at least a parameter": lambda m, y: y.clamp(min=m.weight),
            "between parameters": lambda m, y: y.clamp(min=m.weight - 1, max=m.weight),
            "a number and a parameter": lambda m, y: y.clamp(min=torch.tensor(-0.2), max=m.weight),
            "similarity": lambda m, y: y * torch.nn.functional.cosine_similarity(y, m.weight[None], dim=1)[:, None],
            "of all values": lambda m, y: y * m.weight.mean() + m.weight.sum()})

    def test_groups_that_count_samples_are_refused(self):
        def grouped(m, y):
            return torch.nn.functional.conv1d(y.reshape(1, -1, 1), y.reshape(-1, 1, 1), groups=6 * y.shape[0]).view(-1, 6)
        self.assertIn("groups depend on the number of samples", self.refusal(grouped))

    def test_verification_of_what_looks_like_dropout_and_has_no_gradient(self):
        class DropNothing(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.register_buffer("p", torch.ones(6))
                self.fc = torch.nn.Linear(4, 6)

            def forward(self, x):
                return self.fc(x) * self.p
        self.check_model(DropNothing(), torch.randn(2, 4))
        still = DropNothing()
        still.p.zero_()
        gaccd_export.export(still, torch.randn(2, 4), self.dir / "still")
        self.assertTrue(gaccd_export.verify(still, self.dir / "still", gaccd=GACCD).ok)


def define_models():
    """Once PyTorch is there."""
    class Between(torch.nn.Module):
        def __init__(self, formula):
            super().__init__()
            self.fc, self.weight, self.formula = torch.nn.Linear(4, 6), torch.nn.Parameter(torch.randn(6)), formula
            self.out = torch.nn.Linear(6, 3)

        def forward(self, x):
            return self.out(self.formula(self, self.fc(x) * self.weight))
    return Between


if __name__ == "__main__":
    own = os.environ.get("GACCD_EXPORT_PYTHON")
    if own and "GACCD_EXPORT_OPENED" not in os.environ:
        os.environ["GACCD_EXPORT_OPENED"] = "1"
        os.execv(own, [own, "-B", *sys.argv])
    try:
        import safetensors.torch
        import torch
        if tuple(map(int, torch.__version__.split(".")[:2])) < (2, 5):
            raise ImportError(f"torch is {torch.__version__}, expected 2.5 or newer")
    except ImportError as missing:
        print(f"skipped: {missing}; {__doc__}")
        sys.exit(SKIPPED)
    sys.path.insert(0, str(ROOT / "tools" / "python"))
    import gaccd as gaccd_export
    torch.set_num_threads(1)
    GACCD = sys.argv[1]
    Between = define_models()
    unittest.main(argv=[sys.argv[0], *sys.argv[2:]])
