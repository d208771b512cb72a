"""tools/gpu-check finds the libraries of CUDA in the layout of PyTorch's wheels (no GPU needed)."""
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path
from unittest import mock

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tools" / "dev"))
import gpu_bundle  # noqa: E402


def make_library(path, function="", how="returned", version=0):
    """A shared library that tells its version as the real one does."""
    body = {"returned": f"unsigned long {function}(void) {{ return {version}; }}",
            "written": f"int {function}(int* v) {{ *v = {version}; return 0; }}"}[how]
    path.parent.mkdir(parents=True, exist_ok=True)
    subprocess.run(["cc", "-shared", "-x", "c", "-o", path, "-"], text=True, check=True,
                   input=body if function else "")


class FindCuda(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = Path(folder.name)
        self.into = self.root / "links"

    def find(self, *site_packages):
        """find_cuda() on a machine that has no other libraries."""
        with mock.patch.object(sys, "path", [str(self.root / name) for name in site_packages]), \
                mock.patch.dict("os.environ", {"LD_LIBRARY_PATH": "", "CUDA_HOME": "", "CUDA_PATH": ""}), \
                mock.patch.object(gpu_bundle, "system_libraries", dict), \
                mock.patch.object(gpu_bundle, "TOOLKITS", []), \
                mock.patch.object(gpu_bundle, "OTHER_PYTHONS", []):
            return gpu_bundle.find_cuda(self.into)

    def make_wheels(self, name, version):
        wheels = self.root / name / "nvidia"
        make_library(wheels / "cu13/lib/libcublasLt.so.13", "cublasLtGetVersion", "returned", version)
        make_library(wheels / "nccl/lib/libnccl.so.2", "ncclGetVersion", "written", version)
        make_library(wheels / "cudnn/lib/libcudnn.so.9", "cudnnGetVersion", "returned", version)
        for part in ("cudnn/lib/libcudnn_graph.so.9", "cu13/lib/libnvrtc.so.13",
                     "cu13/lib/libnvrtc-builtins.so.13.2"):
            make_library(wheels / part)

    def test_the_newest_and_what_it_loads_by_name(self):
        self.make_wheels("old", 130000)
        self.make_wheels("new", 130100)
        found = self.find("old", "new")
        self.assertEqual({name: version for name, (version, _) in found.items()},
                         dict.fromkeys(gpu_bundle.CUDA_LIBRARIES, 130100))
        self.assertEqual(sorted(link.name for link in self.into.iterdir()),
                         ["libcublasLt.so.13", "libcudnn.so.9", "libcudnn_graph.so.9", "libnccl.so.2",
                          "libnvrtc-builtins.so.13.2", "libnvrtc.so.13"])
        for name, (_, path) in found.items():
            self.assertEqual((self.into / name).resolve(), Path(path).resolve())

    def test_missing_parts_are_reported(self):
        wheels = self.root / "cu12" / "nvidia"
        make_library(wheels / "cublas/lib/libcublasLt.so.12")
        (wheels / "nccl/lib").mkdir(parents=True)
        (wheels / "nccl/lib/libnccl.so.2").write_text("cut off")
        found = self.find("cu12")
        self.assertEqual([version for version, _ in found.values()], [0, 0, 0])
        self.assertIn("not found, but", found["libcublasLt.so.13"][1])
        self.assertIn("libcublasLt.so.12", found["libcublasLt.so.13"][1])
        self.assertIn("none of these loads", found["libnccl.so.2"][1])
        self.assertEqual(found["libcudnn.so.9"][1], "not found")
        self.assertEqual(list(self.into.iterdir()), [])


if __name__ == "__main__":
    unittest.main()
