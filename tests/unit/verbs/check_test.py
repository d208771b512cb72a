"""`gaccd check` as real processes: check_test.py GACCD MPIRUN [GACCD_STANDIN FOLDER]

FOLDER holds a libcublasLt that forwards to a stand-in. GACCD_STANDIN is the program with stand-ins of GPUs (tests/standin): GACCD_STANDIN_DEVICES says how many.
"""

import json
import os
import re
import resource
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

LAUNCHER_VARIABLES = ("SLURM_", "OMPI_", "PMIX_", "PMI_")


def environment(**more):
    clean = {k: v for k, v in os.environ.items() if not k.startswith(LAUNCHER_VARIABLES)}
    # Without a launcher these run as root and on fewer cores than ranks.
    clean.update(OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1",
                 OMPI_MCA_rmaps_base_oversubscribe="1", OMPI_MCA_mpi_yield_when_idle="1")
    return {**clean, **more}


def run(*args, **more):
    return subprocess.run([str(a) for a in args], env=environment(**more), text=True,
                          capture_output=True, timeout=200)


class Check(unittest.TestCase):
    def ranks(self, count, *args, **more):
        done = run(MPIRUN, "-n", count, GACCD, "check", *args, **more)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        return done.stdout

    def test_one_process_needs_no_launcher(self):
        done = run(GACCD, "check", "--device=cpu")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("1 rank on 1 node; the same on all:", done.stdout)
        self.assertIn("device cpu: asked for", done.stdout)

    def test_three_ranks_are_three_lines(self):
        text = self.ranks(3, "--device=cpu")
        self.assertIn("3 ranks on 1 node; the same on all:", text)
        lines = text[text.index("  rank "):].splitlines()
        self.assertEqual([line.split()[0] for line in lines[1:4]], ["0", "1", "2"])
        self.assertEqual([line.split()[2] for line in lines[1:4]], ["0", "1", "2"])

    def test_json_is_one_line_per_rank(self):
        reports = [json.loads(line) for line in self.ranks(3, "--format=json").splitlines()]
        self.assertEqual([r["rank"] for r in reports], [0, 1, 2])
        self.assertEqual({r["local_size"] for r in reports}, {3})
        self.assertEqual(len({r["build_id"] for r in reports}), 1)
        for key in ("cuda", "driver", "cublaslt", "cudnn", "nccl"):  # only one of them has loaded these
            self.assertEqual(len({r[key] for r in reports}), 1, key)
        for report in reports:
            self.assertGreaterEqual(report["cpu_count"], 1)
            for key in ("host", "mpi", "onednn", "cpus", "gaccd"):
                self.assertNotEqual(report[key], "", key)

    def test_many_ranks_that_are_alike_are_few_lines(self):
        text = self.ranks(20, "--device=cpu")
        self.assertIn("20 ranks on 1 node", text)
        self.assertIn("  0-19  ", text)
        self.assertLess(text.count("\n"), 25)

    def test_cores_and_gpus_that_slurm_promised(self):
        with_more = {"SLURM_CPUS_PER_TASK": "4096"}
        text = self.ranks(2, "--device=cpu", **with_more)
        self.assertIn("warning: ranks 0-1 on ", text)
        self.assertIn("expected SLURM_CPUS_PER_TASK=4096", text)

    def test_the_device_is_that_of_the_training(self):
        job = Path(__file__).resolve().parents[3] / "slurm" / "examples" / "linear.txtpb"
        train = [GACCD, "check", f"--job={job}", "--target-batch=8", "--max-updates=2", "--micro-batch=auto"]
        done = run(*train, "--set", "device=cuda")
        self.assertEqual(done.returncode, 78, done.stdout)
        self.assertIn("expected a usable GPU on every rank", done.stderr)
        with tempfile.TemporaryDirectory() as folder:
            cuda = Path(folder, "job.txtpb")
            cuda.write_text(job.read_text() + "device: CUDA\n")
            self.assertEqual(run(GACCD, "check", f"--job={cuda}").returncode, 78)
            self.assertEqual(run(GACCD, "check", f"--job={cuda}", "--device=cpu").returncode, 0)

    def limited(self, limit, *args):
        return run(MPIRUN, "-n", "4", "bash", "-c", f'ulimit {limit} && exec "$0" "$@"', *args)

    def test_the_soft_limit_of_open_files_is_raised(self):
        done = self.limited("-Sn 40", GACCD, "check", "--format=json")
        self.assertEqual(done.returncode, 0, done.stderr)
        for report in map(json.loads, done.stdout.splitlines()):
            self.assertGreater(report["descriptors"], 40)
            self.assertEqual(report["descriptors_needed"], 64 + 2 * 3)

    def test_too_few_open_files_are_refused(self):
        job = Path(__file__).resolve().parents[3] / "slurm" / "examples" / "linear.txtpb"
        for verb in (["check"], ["train", f"--job={job}", "--target-batch=8", "--max-updates=2"]):
            done = self.limited("-n 69", GACCD, *verb)
            self.assertEqual(done.returncode, 78, done.stderr)
            self.assertIn("may have 69 files open at once, expected at least 70 for 4 ranks", done.stderr)
        # As many as are said to be needed are enough.
        done = self.limited("-n 70", GACCD, *verb)
        self.assertEqual(done.returncode, 0, done.stderr)

    def test_another_build_is_refused_by_all(self):
        with tempfile.TemporaryDirectory() as folder:
            other = Path(folder) / "gaccd"
            build = bytes.fromhex(json.loads(run(GACCD, "check", "--format=json").stdout)["build_id"])
            program = Path(GACCD).read_bytes()
            self.assertEqual(program.count(build), 1)
            other.write_bytes(program.replace(build, bytes(b ^ 1 for b in build)))
            other.chmod(0o755)
            done = run(MPIRUN, "-n", "2", GACCD, "check", "--device=cpu",
                       ":", "-n", "1", other, "check", "--device=cpu")
        self.assertEqual(done.returncode, 78, done.stderr)
        self.assertEqual(done.stderr.count("error (config, exit 78): 3 ranks cannot work together"), 1)
        self.assertIn("gaccd differs: ", done.stderr)
        self.assertRegex(done.stderr, r"build [0-9a-f]{12} on ranks 0-1 on .*, build [0-9a-f]{12} on rank 2 ")

    def test_bad_formats(self):
        done = run(GACCD, "check", "--format=txtpb")
        self.assertEqual(done.returncode, 64)
        self.assertIn("text or json", done.stderr)


class Selftest(unittest.TestCase):
    @unittest.skipIf(os.geteuid() != 0, "needs root, to be a user that has no other processes")
    def test_with_too_few_threads_the_possible_number_of_ranks_is_reported(self):
        def become_a_user_with_100_threads():
            resource.setrlimit(resource.RLIMIT_NPROC, (100, 100))
            os.setuid(20_000 + os.getppid() % 30_000)  # its own for each run of this test

        def start(ranks):
            return subprocess.run([GACCD, "selftest", "--nodes=1", f"--gpus-per-node={ranks}", "--target-batch=500"],
                                  preexec_fn=become_a_user_with_100_threads, text=True, capture_output=True, timeout=200)

        try:
            done = start(240)
        except PermissionError:
            self.skipTest("the program is in a folder that others may not read")
        self.assertEqual(done.returncode, 71, done.stderr)
        most = re.search(r"can run (\d+) ranks as threads, expected 240: they need 484 threads", done.stderr)
        self.assertGreaterEqual(int(most[1]), 40)
        done = start(most[1])
        self.assertEqual(done.returncode, 0, done.stderr)


WIDE_JOB = """name: "wide"
model { layer { name: "fc1" linear { in: 64 out: 4096 } } layer { name: "relu" relu {} }
        layer { name: "fc2" linear { in: 4096 out: 4 } } loss { mean_squared_error {} } }
data { train { synthetic { samples: 1300 features: 64 outputs: 4 } }
       eval { synthetic { samples: 100 features: 64 outputs: 4 } } }
batch { target: 600 }  optimizer { lr: 0.01 adamw {} }  epochs: 1  device: CPU
"""


class MicroBatchByMemory(unittest.TestCase):
    """`gaccd train --micro-batch=auto` on three real ranks."""

    def train(self, *args):
        with tempfile.TemporaryDirectory() as folder:
            job = Path(folder, "job.txtpb")
            job.write_text(WIDE_JOB)
            done = run(MPIRUN, "-n", "3", GACCD, "train", f"--job={job}", f"--run-dir={folder}/run", *args)
            self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
            (log,) = Path(folder).glob("run/attempts/0*/events.jsonl")
            events = [json.loads(line) for line in log.read_text().splitlines()]
            plan, = (event for event in events if event["ev"] == "plan")
            for name in ("job.txtpb", "plan.txtpb"):
                kept = Path(folder, "run", name).read_text()
                self.assertRegex(kept, rf"\bmicro(_batch)?: {plan['micro_batch']}\n")
            return plan, [e["loss"] for e in events if e["ev"] == "step"]

    @unittest.skipIf("ASAN_OPTIONS" in os.environ, "AddressSanitizer keeps freed memory, so a process needs more than planned")
    def test_it_trains_what_a_given_one_trains(self):
        whole, expected = self.train("--micro-batch=auto")
        self.assertEqual((whole["micro_batch"], whole["accum_steps"]), (200, 1))
        # Less than that needs, next to what stays free.
        memory = whole["memory_bytes"] + 16_000_000 - 2_000_000
        plan, losses = self.train("--micro-batch=auto", f"--memory={memory}B")
        self.assertGreater(plan["accum_steps"], 1)
        self.assertEqual(plan["micro_batch"], -(-200 // plan["accum_steps"]))
        self.assertLessEqual(plan["memory_bytes"], plan["memory_limit_bytes"])
        given, same = self.train(f"--micro-batch={plan['micro_batch']}")
        self.assertNotIn("memory_bytes", given)
        self.assertEqual(losses, same)
        self.assertEqual(len(expected), len(losses))
        for one, other in zip(expected, losses):
            self.assertAlmostEqual(one, other, delta=1e-5 * max(1, abs(one)))


class CheckOnGpus(unittest.TestCase):
    def setUp(self):
        if not STANDIN:
            self.skipTest("built without CUDA")
        (report,) = (json.loads(line) for line in self.start(1, [1], "check", "--format=json")
                     .stdout.splitlines())
        self.assertEqual(report["gpus"], 1, report)
        if "not found" in (report["cublaslt"], report["nccl"]):
            self.skipTest("cuBLASLt or NCCL is not installed here")

    def start(self, ranks, devices, *args):
        """Starts ranks / len(devices) ranks with each number of GPUs."""
        command = [MPIRUN]
        for count in devices:
            command += [":"] if len(command) > 1 else []
            command += ["-n", ranks // len(devices), "env", f"GACCD_STANDIN_DEVICES={count}", STANDIN, *args]
        return run(*command)

    def test_each_rank_has_its_gpu(self):
        done = self.start(2, [2], "check")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertRegex(done.stdout, r"no conflict; training would use device cuda: stand-in GPU")
        lines = done.stdout[done.stdout.index("  rank "):].splitlines()
        uuids = [line.split()[3] for line in lines[1:3]]
        self.assertEqual(len(set(uuids)), 2)
        self.assertTrue(all(uuid.startswith("GPU-") for uuid in uuids), uuids)

    def test_gpus_that_no_rank_uses_are_named(self):
        unused = "warning: 3 GPUs for 1 rank of this node, the others are not used"
        self.assertIn(unused[9:], self.start(1, [3], "check").stdout)
        self.assertNotIn("not used", self.start(1, [1], "check").stdout)
        job = Path(__file__).resolve().parents[3] / "slurm" / "examples" / "linear.txtpb"
        with tempfile.TemporaryDirectory() as folder:
            done = run(STANDIN, "train", f"--job={job}", "--target-batch=100", "--max-updates=1", f"--run-dir={folder}",
                       "--device=cuda", "--deterministic", GACCD_STANDIN_DEVICES="3",
                       GACCD_CACHE_DIR=f"{folder}/cache", LD_LIBRARY_PATH=LIBRARIES)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertIn(unused, done.stdout + done.stderr)

    def test_a_training_on_a_gpu_is_that_of_a_cpu(self):
        job = Path(__file__).resolve().parents[3] / "slurm" / "examples" / "linear.txtpb"
        started, losses = {}, {}
        for device in ("cpu", "auto"):
            with tempfile.TemporaryDirectory() as folder:
                done = run(STANDIN, "train", f"--job={job}", "--target-batch=100", "--epochs=2",
                           f"--run-dir={folder}", f"--device={device}", "--deterministic",
                           GACCD_STANDIN_DEVICES="1", GACCD_CACHE_DIR=f"{folder}/cache",
                           LD_LIBRARY_PATH=LIBRARIES)
                self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
                status = json.loads(Path(folder, "STATUS.json").read_text())
                (log,) = Path(folder).glob("attempts/0*/events.jsonl")
                events = [json.loads(line) for line in log.read_text().splitlines()]
            started[device], = (event for event in events if event["ev"] == "run_start")
            self.assertEqual(status["device"], started[device]["device"])
            losses[device] = [e["loss"] for e in events if e["ev"] == "step"]
        self.assertEqual((started["cpu"]["device"], started["auto"]["device"]), ("cpu", "cuda"))
        self.assertNotIn("gpu", started["cpu"])
        self.assertTrue(started["auto"]["gpu"].startswith("stand-in GPU"), started)
        self.assertGreater(started["auto"]["gpu_memory_planned_bytes"], 0)
        for key in ("cuda", "driver", "cublaslt"):
            self.assertRegex(started["auto"][key], r"^\d+\.\d+\.\d+$")
        self.assertIn("1 node x 1 GPU\n", done.stdout)
        self.assertIn("device cuda: stand-in GPU 0 on 1 rank\n", done.stdout)
        self.assertEqual(len(losses["cpu"]), 42)
        for cpu, gpu in zip(losses["cpu"], losses["auto"], strict=True):
            self.assertAlmostEqual(cpu, gpu, delta=1e-5 * max(1, cpu))

    def test_a_run_on_a_gpu_continues_from_its_checkpoint(self):
        job = Path(__file__).resolve().parents[3] / "slurm" / "examples" / "linear.txtpb"

        def train(folder, *args):
            done = run(STANDIN, "train", f"--job={job}", "--target-batch=100", f"--run-dir={folder}",
                       "--device=cuda", "--deterministic", *args, GACCD_STANDIN_DEVICES="1",
                       GACCD_CACHE_DIR=f"{folder}/cache", LD_LIBRARY_PATH=LIBRARIES)
            self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
            logs = sorted(Path(folder).glob("attempts/0*/events.jsonl"))
            events = [json.loads(line) for log in logs for line in log.read_text().splitlines()]
            return [e["loss"] for e in events if e["ev"] == "step"]

        with tempfile.TemporaryDirectory() as whole, tempfile.TemporaryDirectory() as parts:
            expected = train(whole, "--epochs=2")
            self.assertEqual(len(train(parts, "--epochs=1")), 21)
            self.assertEqual(train(parts, "--epochs=2"), expected)

    def test_the_first_run_times_algorithms_and_the_next_one_takes_them(self):
        job = Path(__file__).resolve().parents[3] / "slurm" / "examples" / "linear.txtpb"
        with tempfile.TemporaryDirectory() as folder:
            kept = []
            for number, args in enumerate(([], [], ["--time-algorithms=false"], ["--deterministic"])):
                cache = Path(folder, "cache" if number < 2 else f"cache{number}")
                done = run(STANDIN, "train", f"--job={job}", "--target-batch=100", "--max-updates=1",
                           f"--run-dir={folder}/{number}", "--device=cuda", *args,
                           GACCD_STANDIN_DEVICES="1", GACCD_CACHE_DIR=str(cache),
                           LD_LIBRARY_PATH=LIBRARIES)
                self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
                kept.append([file.read_text() for file in cache.glob("matmul-*.txt")])
        self.assertEqual([len(files) for files in kept], [1, 1, 0, 0])
        self.assertEqual(kept[0], kept[1], "times would differ")
        self.assertRegex(kept[0][0], r"\nend [1-9]\d*\n$")

    def test_fp16_continues_inside_a_growth_interval(self):
        golden = Path(__file__).resolve().parents[2] / "golden"
        keys = ("step", "loss", "grad_norm", "skipped", "loss_scale", "growth_tracker")

        def train(folder, *args):
            done = run(STANDIN, "train", f"--job={golden}/fp16.txtpb", f"--run-dir={folder}", *args,
                       GACCD_STANDIN_DEVICES="1", GACCD_CACHE_DIR=f"{folder}/cache",
                       LD_LIBRARY_PATH=LIBRARIES)
            logs = sorted(Path(folder).glob("attempts/0*/events.jsonl"))
            events = [json.loads(line) for log in logs for line in log.read_text().splitlines()]
            return done, [tuple(e[key] for key in keys) for e in events if e["ev"] == "step"]

        with tempfile.TemporaryDirectory() as whole, tempfile.TemporaryDirectory() as parts:
            done, expected = train(whole, "--deterministic")
            self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
            self.assertIn("update 6 is skipped: its gradient overflowed; the loss scale is halved to 524288", done.stderr)
            self.assertEqual((len(expected), expected[7][3:]), (36, (False, 524288, 2)))
            for updates in (8, 20, 36):  # 2 and 2 updates of the 3 that it takes to grow
                done, steps = train(parts, "--deterministic", f"--max-updates={updates}")
                self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
                self.assertEqual(steps, expected[:updates])
        with tempfile.TemporaryDirectory() as folder:
            done, _ = train(folder, "--device=cpu")
            self.assertEqual(done.returncode, 78)
            self.assertIn("precision: only GPUs compute in fp16, expected f32, bf16 or f64-sums, found fp16", done.stderr)

    def test_fewer_gpus_than_ranks(self):
        done = self.start(2, [1], "check")
        self.assertEqual(done.returncode, 78)
        self.assertRegex(done.stderr, "fewer GPUs than tasks on .*: expected 2, found 1")
        done = self.start(2, [1], "check", "--allow-gpu-sharing")
        self.assertEqual(done.returncode, 0, done.stderr)

    def test_a_mixture_is_refused_by_check_and_by_train(self):
        done = self.start(2, [2, 0], "check")
        self.assertEqual(done.returncode, 78)
        self.assertIn("ranks with and without a usable GPU: expected all or none of 2, found 1; rank 1",
                      done.stderr)
        job = Path(__file__).resolve().parents[3] / "slurm" / "examples" / "linear.txtpb"
        train = ["train", f"--job={job}", "--target-batch=64", "--max-updates=1"]
        done = self.start(2, [2, 0], *train)
        self.assertEqual(done.returncode, 78, done.stderr)
        self.assertEqual(done.stderr.count("device auto: expected a usable GPU on every rank or on none"), 1)
        done = self.start(2, [2, 0], *train, "--device=cpu")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("device cpu: asked for", done.stdout)


if __name__ == "__main__":
    GACCD, MPIRUN = sys.argv[1:3]
    STANDIN, LIBRARIES = sys.argv[3:5] if len(sys.argv) > 3 else (None, None)
    unittest.main(argv=sys.argv[:1])
