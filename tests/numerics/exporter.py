"""What the tests of the exporter begin with: a Python that has PyTorch, and the package of tools/python."""
import os
import sys
import tempfile
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SKIPPED = 77


def open_exporter(needs):
    """The module gaccd; in the Python that GACCD_EXPORT_PYTHON names, if it is set. Without PyTorch 2.7 the program ends
    with SKIPPED, which CTest shows as skipped, and says what is missing and what it `needs`."""
    own = os.environ.get("GACCD_EXPORT_PYTHON")
    if own and "GACCD_EXPORT_OPENED" not in os.environ:
        os.environ["GACCD_EXPORT_OPENED"] = "1"
        os.execv(own, [own, "-B", *sys.argv])
    sys.path[:0] = [str(ROOT / "tools" / "python"), str(ROOT / "tests" / "golden")]
    import gaccd
    try:
        gaccd.needs.check_needs()
    except ImportError as missing:
        print(f"skipped: {missing}; {needs}")
        sys.exit(SKIPPED)
    import torch
    torch.set_num_threads(1)
    return gaccd


class ExportTest(unittest.TestCase):
    """Modules, each exported and compared with PyTorch by gaccd.verify; after open_exporter(). sys.argv[1] is gaccd."""
    def setUp(self):
        import torch
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.dir = Path(folder.name)
        torch.manual_seed(5)

    def verify(self, model, example, **options):
        import gaccd
        gaccd.export(model, example, self.dir / "model")
        return gaccd.verify(model, self.dir / "model", gaccd=sys.argv[1], **options)

    def check_model(self, model, example, tolerance=1e-5, **options):
        found = self.verify(model, example, **options)
        self.assertTrue(found.ok, found)
        self.assertLess(found.largest.gaccd, max(tolerance, 4 * found.largest.pytorch), found)

    def refusal_of(self, model, example):
        import gaccd
        with self.assertRaises(gaccd.ExportError) as refused:
            gaccd.export(model, example, self.dir / "refused")
        self.assertFalse((self.dir / "refused").exists())
        return str(refused.exception)
