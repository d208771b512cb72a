"""What the tests of the exporter begin with: a Python that has PyTorch, and the package of tools/python."""
import os
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SKIPPED = 77


def open_exporter(needs):
    """The module gaccd; in the Python that GACCD_EXPORT_PYTHON names, if it is set. Without PyTorch 2.5 the program ends
    with SKIPPED, which CTest shows as skipped, and says what is missing and what it `needs`."""
    own = os.environ.get("GACCD_EXPORT_PYTHON")
    if own and "GACCD_EXPORT_OPENED" not in os.environ:
        os.environ["GACCD_EXPORT_OPENED"] = "1"
        os.execv(own, [own, "-B", *sys.argv])
    try:
        import safetensors.torch  # noqa: F401
        import torch
        if tuple(map(int, torch.__version__.split(".")[:2])) < (2, 5):
            raise ImportError(f"torch is {torch.__version__}, expected 2.5 or newer")
    except ImportError as missing:
        print(f"skipped: {missing}; {needs}")
        sys.exit(SKIPPED)
    sys.path[:0] = [str(ROOT / "tools" / "python"), str(ROOT / "tests" / "golden")]
    import gaccd
    torch.set_num_threads(1)
    return gaccd
