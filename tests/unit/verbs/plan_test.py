"""What `gaccd plan --job` prints of the run: plan_test.py GACCD"""

import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

MLP = pathlib.Path(__file__).resolve().parents[3] / "slurm" / "examples" / "mlp.txtpb"


def run(*args):
    return subprocess.run([GACCD, *args], text=True, capture_output=True, timeout=60, check=False)


class PlanTest(unittest.TestCase):
    def test_a_smaller_micro_batch_of_a_pipeline_is_suggested_if_it_exists(self):
        def plan(micro_batch):
            return run("plan", f"--job={MLP}", "--nodes=2", "--gpus-per-node=1", "--pipeline=2",
                       "--target-batch=2", f"--micro-batch={micro_batch}").stdout

        self.assertRegex(plan(2), r"  bubble .*, predicted for 1 micro-batches\n"
                                  r" {17}a smaller micro-batch gives more of them, which wait less\n")
        self.assertRegex(plan(1), r"  bubble .*, predicted for 2 micro-batches\n    stages ")
        # Of two pipelines a rank sends as many bytes as its gradients have.
        two = run("plan", f"--job={MLP}", "--gpus-per-node=4", "--pipeline=2", "--target-batch=24", "--micro-batch=3").stdout
        rows = re.findall(r"^ +[12] +\d+ +(\d+) .* ([\d.]+) MB$", two, re.MULTILINE)
        self.assertEqual([sent for _, sent in rows], [f"{int(count) * 4e-6:.1f}" for count, _ in rows])
        self.assertEqual(len(rows), 2, two)

    def test_the_micro_batch_by_the_memory(self):
        job = """name: "wide"
model { layer { name: "fc1" linear { in: 256 out: 4096 } } layer { name: "relu" relu {} }
        layer { name: "fc2" linear { in: 4096 out: 4 } } loss { mean_squared_error {} } }
data { train { synthetic { samples: 20000 features: 256 outputs: 4 } } }
batch { target: 6000 }  optimizer { lr: 0.01 adamw {} }
"""
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder, "job.txtpb")
            path.write_text(job)

            def plan(*args):
                return run("plan", f"--job={path}", "--micro-batch=auto", "--gpus-per-node=3", *args)

            done = plan("--memory=110MB")
            self.assertEqual((done.returncode, done.stderr), (0, ""))
            # How many depends on the program itself, which is larger with a sanitizer.
            self.assertRegex(done.stdout, r"  micro-batch    \d{2,4} \(auto\)")
            table = done.stdout[done.stdout.index("Micro-batches by the memory"):].splitlines()
            self.assertEqual(table[1], "  limit          110.0 MB (--memory), 16.0 MB stay free")
            self.assertEqual(table[2].split(), ["micro-batch", "micro-steps", "recompute", "memory", "time"])
            (this,) = (line.split() for line in table if line.endswith("this plan"))
            (none,) = (line.split() for line in table if line.startswith("  none "))
            self.assertEqual(none[1:6], this[:5])  # the same memory in both tables
            self.assertRegex(table[3], r"^         2000            1 +none +\d+\.\d MB +1\.00  does not fit$")
            self.assertEqual([line.split()[-2:] for line in table if "plan" in line], [["this", "plan"]])
            self.assertLessEqual(max(map(len, done.stdout.splitlines())), 80)
            without_copies = "memory: without the copies of a checkpoint, which --run-dir=DIR includes.\n"
            self.assertIn("memory: with program, data and batches.\n" + without_copies, done.stdout)
            self.assertIn("activations; without program, data, batches and checkpoints\n", done.stdout)
            for args in (["--run-dir=r"], ["--save-every-seconds=0"], ["--memory=80GB", "--device=cuda"]):
                done = plan("--memory=200MB", *args)
                self.assertIn("Micro-batches by the memory", done.stdout, done.stderr)
                self.assertNotIn(without_copies, done.stdout)
            done = plan("--memory=110MB")
            line = json.loads(plan("--memory=110MB", "--format=json").stdout)
            self.assertIn(line["micro_batch"], range(10, 2000))
            self.assertEqual(line["memory_limit_bytes"], 94_000_000)
            self.assertLessEqual(line["memory_bytes"], line["memory_limit_bytes"])
            both = [line for line in table if " blocks " in line]
            self.assertRegex(both[0], r"^         2000            1     blocks +\d+\.\d MB +1\.\d\d")
            self.assertRegex(done.stdout, r"  recompute      none; \d+\.\d MB with --recompute=blocks\n"
                                          r" +in 1\.\d\d x the time, predicted\n")
            done = plan("--memory=110MB", "--recompute=blocks")
            micro_batches = done.stdout[done.stdout.index("Micro-batches by the memory"):]
            self.assertNotIn(" none ", micro_batches[:micro_batches.index("Sharding by the memory")])
            self.assertIn("  recompute      blocks: the backward pass computes", done.stdout)
            line = json.loads(plan("--memory=110MB", "--recompute=blocks", "--format=json").stdout)
            self.assertEqual(line["recompute"], "blocks")
            # Known without such a GPU.
            done = plan("--memory=80GB", "--device=cuda")
            self.assertIn("for libraries\n", done.stdout)
            self.assertRegex(done.stdout, r"\n         2000            1 +none +\d+\.\d MB +1\.00  this plan\n")
            modes = done.stdout[done.stdout.index("Sharding by the memory"):]
            self.assertRegex(modes, r"\n  optimizer +2000 +1 +none +\d+\.\d MB\n")
            done = plan("--memory=1434MB", "--device=cuda")  # 1342 MB of them are for libraries
            modes = done.stdout[done.stdout.index("Sharding by the memory"):]
            self.assertLess(int(re.search(r"\n  none +(\d+)", modes)[1]),
                            int(re.search(r"\n  optimizer +(\d+)", modes)[1]))
            done = plan("--device=cuda")
            self.assertEqual((done.returncode, "--memory=SIZE" in done.stderr), (64, True), done.stderr)
            done = plan("--memory=20MB")
            self.assertEqual(done.returncode, 78)
            self.assertRegex(done.stderr, r"needs \d+ bytes .* micro-batches of 1, .*; the limit is 4000000 "
                                          r"\(4.0 MB\), without the 16.0 MB")
            self.assertIn("; the limit is 0 (0.0 MB), without the 16.0 MB or more", plan("--memory=1KB").stderr)
            self.assertEqual(plan().returncode, 0)

    def test_a_pipeline_is_compared_with_others_and_with_none(self):
        file = tempfile.NamedTemporaryFile(mode="w", suffix=".txtpb")  # noqa: SIM115
        self.addCleanup(file.close)
        file.write(MLP.read_text().replace("sgd {}", "adamw {}"))
        file.flush()
        common = ["plan", f"--job={file.name}", "--gpus-per-node=4", "--target-batch=24", "--micro-batch=3"]

        def table(*args):
            """Memory in MB, bubble in % and time, by stages and mode of sharding."""
            text = run(*common, *args).stdout
            rows = re.findall(r"^ +(\d+) +(\d+)  (\S+) +([\d.]+) MB +([\d.]+) % +([\d.]+)(  this plan)?$", text, re.MULTILINE)
            self.assertLessEqual(max(map(len, text[text.index("    stages  pipelines"):].splitlines())), 80)
            self.assertEqual([row[:3] for row in rows if row[6]], [rows[0][:3]], text)
            self.assertEqual({int(row[0]) * int(row[1]) for row in rows}, {4}, text)
            return {(int(row[0]), row[2]): tuple(map(float, row[3:6])) for row in rows}, text

        two, text = table("--pipeline=2")
        self.assertEqual(set(two), {(2, "none"), (1, "none"), (4, "none"), (2, "optimizer"), (2, "node"), (2, "node-optimizer")})
        self.assertIn(f"\n  bubble         {two[2, 'none'][1]} %", text)
        self.assertEqual(two[2, "none"][2], 1)
        self.assertEqual(two[1, "none"][1], 0)
        self.assertLess(two[1, "none"][2], 1)
        self.assertGreater(two[1, "none"][0], two[2, "none"][0])
        self.assertLess(two[2, "node"][0], two[2, "none"][0])
        sharded, text = table("--pipeline=2", "--shard=node")
        self.assertIn("the state of a stage in 2 parts, among the 2 ranks", text)
        self.assertEqual(sharded[2, "none"], two[2, "none"])
        self.assertEqual(sharded[2, "node"], two[2, "node"])
        # As the plan of whole models says.
        whole = run(*common).stdout
        self.assertIn(f"\n  memory         {two[1, 'none'][0]} MB a rank", whole)


if __name__ == "__main__":
    GACCD = os.path.abspath(sys.argv.pop())
    unittest.main()
