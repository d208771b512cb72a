"""What `gaccd export` writes, read by TensorBoard and by OpenTelemetry's own messages.

  python_test.py GACCD

They are in the virtual environment of tools/dev/test_python.
"""

import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

import replay

SKIPPED = 77  # CTest's SKIP_RETURN_CODE
ENVIRONMENT = pathlib.Path(__file__).resolve().parents[4] / "tools/dev/test_python"


def use_environment():
    """Starts this script again with the Python of that environment."""
    folder = subprocess.run([ENVIRONMENT, "--folder"], text=True, capture_output=True, timeout=60,
                            check=True).stdout.strip()
    if sys.prefix == folder:
        return
    python = f"{folder}/bin/python"
    if not os.path.exists(python):
        print(f"skipped: no {python}: tools/dev/test_python")
        sys.exit(SKIPPED)
    os.execv(python, [python, "-B", *sys.argv])


class PythonTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.run_dir = pathlib.Path(cls.folder.name) / "run"
        replay.make(cls.run_dir, ranks=16, updates=60, attempts=2, lines=5)

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    def export(self, form, *args):
        return subprocess.run([GACCD, "export", str(self.run_dir), f"--format={form}", *args], text=True,
                              capture_output=True, timeout=60, check=True).stdout

    def test_tensorboard_opens_its_files(self):
        from tensorboard.backend.event_processing import event_accumulator
        out = f"{self.folder.name}/tb"
        self.export("tensorboard", f"--out={out}")
        second = event_accumulator.EventAccumulator(f"{out}/001-812")
        second.Reload()
        self.assertIn("loss", second.Tags()["scalars"])
        loss = second.Scalars("loss")
        self.assertEqual([one.step for one in loss], list(range(24, 61)))
        self.assertAlmostEqual(loss[-1].value, 2.3 + 5 / 60, places=5)
        self.assertAlmostEqual(second.Scalars("eval/accuracy")[0].value, 0.9, places=6)

    def test_opentelemetry_takes_its_lines(self):
        from google.protobuf import json_format
        from opentelemetry.proto.collector.metrics.v1 import metrics_service_pb2
        points = 0
        for line in self.export("otlp-json").splitlines():
            request = json_format.Parse(line, metrics_service_pb2.ExportMetricsServiceRequest())
            for metric in request.resource_metrics[0].scope_metrics[0].metrics:
                points += len(metric.gauge.data_points) if metric.name == "gaccd.loss" else 0
        self.assertEqual(points, 67)


if __name__ == "__main__":
    use_environment()
    GACCD = os.path.abspath(sys.argv.pop())
    unittest.main()
