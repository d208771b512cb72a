#!/usr/bin/env python3
"""Bad input, given to the real program: every case must end with the right exit code, a message that
names the offending value, on no rank with a hang, and with nothing written over.

Usage: bad_input_test.py GACCD   (run by CTest)
"""

import gzip
import json
import os
import shutil
import struct
import subprocess
import sys
import time
import unittest

from folder_case import FolderCase

GACCD = os.path.abspath(sys.argv.pop(1))
LIMIT_S = 120  # no case may need longer, hangs included

JOB = """
name: "bad-input"
model {{
  layer {{ name: "flatten" flatten {{}} }}
  layer {{ name: "fc" linear {{ in: {inputs} out: {outputs} }} }}
  loss {{ {loss} {{}} }}
}}
data {{ train {{ {source} }} }}
batch {{ target: {target} micro: 2 }}
optimizer {{ lr: 0.1 sgd {{}} }}
epochs: 1
"""


def idx(magic, dims, values):
    return struct.pack(">I", magic) + b"".join(struct.pack(">I", d) for d in dims) + bytes(values)


def crc32c(data):
    crc = 0xffffffff
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82f63b78 if crc & 1 else 0)
    return crc ^ 0xffffffff


def manifest(message):
    framed = b"GACCDMF1" + struct.pack("<I", len(message)) + message
    return framed + struct.pack("<I", crc32c(framed))


def npy(header, payload):
    text = header.encode() + b" " * ((64 - (len(header) + 11) % 64) % 64) + b"\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text + payload


def safetensors(header, payload):
    return struct.pack("<Q", len(header)) + header.encode() + payload


class BadInput(FolderCase):
    def job(self, source='synthetic { samples: 20 features: 4 }', inputs=4, outputs=1,
            loss="mean_squared_error", target=7):
        return self.write("job.txtpb", JOB.format(source=source, inputs=inputs, outputs=outputs,
                                                  loss=loss, target=target))

    def idx_job(self, images, labels, **kwargs):
        source = 'idx { images: "%s" labels: "%s" classes: 3 }' % (images, labels)
        return self.job(source, loss="softmax_cross_entropy", outputs=3, **kwargs)

    def npy_job(self, features, targets):
        return self.job('npy { features: "%s" targets: "%s" }' % (features, targets))

    def run_gaccd(self, *args, ranks=0, env=None):
        command = [GACCD, *args]
        if ranks:
            command = ["mpirun", "--allow-run-as-root", "--oversubscribe", "-n", str(ranks), *command]
        return subprocess.run(command, timeout=LIMIT_S, capture_output=True, text=True,
                              env={**os.environ, "OMPI_MCA_mpi_yield_when_idle": "1", **(env or {})})

    def expect(self, code, texts, *args, **kwargs):
        result = self.run_gaccd(*args, **kwargs)
        said = result.stdout + result.stderr
        self.assertEqual(result.returncode, code, said)
        for text in [texts] if isinstance(texts, str) else texts:
            self.assertIn(text, said)
        return said

    def expect_train(self, code, texts, job, *args, **kwargs):
        """The run must be refused before it makes anything in its folder."""
        run_dir = self.path("run")
        said = self.expect(code, texts, "train", "--job=" + job, "--run-dir=" + run_dir, *args,
                           **kwargs)
        self.assertFalse(os.path.exists(run_dir), said)

    def expect_attempt(self, code, texts, job, *args, **kwargs):
        """Data and model are looked at by who owns the run folder: the attempt leaves a verdict."""
        run_dir = self.path("run")
        said = self.expect(code, texts, "train", "--job=" + job, "--run-dir=" + run_dir, *args,
                           **kwargs)
        with open(os.path.join(run_dir, "attempts", "latest", "verdict.json")) as file:
            verdict = json.load(file)
        self.assertEqual((verdict["verdict"], verdict["exit"]), ("fail", code), said)
        self.assertFalse(os.path.exists(os.path.join(run_dir, "DONE")), said)
        shutil.rmtree(run_dir)

    def test_the_job_itself_is_good(self):
        self.expect(0, "done", "train", "--job=" + self.job())

    def test_counts(self):
        for flag in ("--nodes", "--gpus-per-node", "--micro-batch", "--target-batch"):
            for value in ("0", "-3", "three", "1e3", "", "9223372036854775808"):
                with self.subTest(flag=flag, value=value):
                    self.expect(64, flag.strip("-").split("-")[0], "plan", "--target-batch=9",
                                "%s=%s" % (flag, value))
        self.expect(78, "9223372036854775807", "plan", "--target-batch=9",
                    "--nodes=9223372036854775807")

    def test_bf16_on_a_cpu_without_it(self):
        job = self.job()
        args = (job, "--device=cpu", "--precision=bf16")
        refused = "precision bf16: expected AVX512_BF16 or AMX on the CPU of every rank"
        older, old = ({"ONEDNN_MAX_CPU_ISA": isa} for isa in ("AVX2", "AVX512_CORE"))
        self.expect_attempt(78, [refused, "1 of 1 have neither"], *args, env=old)
        self.expect_attempt(78, [refused, "no AVX-512"], *args, "--allow-emulation", env=older)
        with open("/proc/cpuinfo") as cpuinfo:
            if "avx512bw" in cpuinfo.read():
                self.expect(0, "products in bf16 by emulation", "train", "--job=" + job,
                            "--allow-emulation", *args[1:], env=old)

    def test_output_that_cannot_be_written(self):
        for verb in (["plan", "--target-batch=9"], ["selftest", "--nodes=1", "--gpus-per-node=2"]):
            with self.subTest(verb[0]), open("/dev/full", "w") as full:
                result = subprocess.run([GACCD, *verb], timeout=LIMIT_S, stdout=full)
                self.assertEqual(result.returncode, 74)

    def test_unknown_flags(self):
        self.expect(64, "targetbatch", "plan", "--targetbatch=9")
        flags = self.write("flags", "--nodes=2\n--no_such_flag=1\n")
        self.expect(64, [flags + ":2", "no_such_flag"], "plan", "--flagfile=" + flags)
        self.expect(64, "trian", "trian")

    def test_strict(self):
        self.expect(78, ["2400", "3072"], "plan", "--nodes=30", "--target-batch=3072",
                    "--rounding=floor", "--strict")

    def test_job_text(self):
        broken = self.write("broken.txtpb", 'name: "a"\nmodel {\n  layer { name: ?\n')
        self.expect_train(78, broken + ":3:", broken)
        unknown = self.write("unknown.txtpb", 'name: "a"\nlearning_rate: 1\n')
        self.expect_train(78, [unknown + ":2:", "learning_rate"], unknown)
        self.expect_train(74, "missing.txtpb", self.path("missing.txtpb"))
        self.expect(64, "--job", "train")

    def test_idx(self):
        images = idx(0x803, (9, 2, 2), range(36))
        labels = idx(0x801, (9,), [0, 1, 2] * 3)
        good_images, good_labels = self.write("i", images), self.write("l", labels)
        self.expect(0, "done", "train", "--job=" + self.idx_job(good_images, good_labels))
        bad = {
            "missing": (74, None, "missing"),
            "empty": (65, b"", "empty"),
            "magic": (65, idx(0x12345678, (9, 2, 2), range(36)), "magic"),
            "truncated": (65, images[:-1], "truncated"),
            "oversized": (65, images + b"x", "oversized"),
            "huge": (65, idx(0x803, (0xffffffff,) * 3, []), "huge"),
            "truncated.gz": (65, gzip.compress(images)[:-9], "truncated.gz"),
        }
        for name, (code, data, text) in bad.items():
            with self.subTest(name):
                path = self.path(name) if data is None else self.write(name, data)
                self.expect_attempt(code, text, self.idx_job(path, good_labels))
        out_of_range = self.write("labels", idx(0x801, (9,), [0, 1, 3] * 3))
        self.expect_attempt(65, ["labels", "3"], self.idx_job(good_images, out_of_range))
        fewer = self.write("fewer", idx(0x801, (8,), [0] * 8))
        self.expect_attempt(65, ["8", "9"], self.idx_job(good_images, fewer))

    def test_npy(self):
        def array(shape, descr="<f4", order="False", payload=b""):
            return npy("{'descr': '%s', 'fortran_order': %s, 'shape': %s, }" % (descr, order, shape),
                       payload)
        features = self.write("f", array("(8, 4)", payload=bytes(128)))
        targets = self.write("t", array("(8, 1)", payload=bytes(32)))
        self.expect(0, "done", "train", "--job=" + self.npy_job(features, targets))
        bad = {
            "magic": b"\x93NUMPX" + bytes(200),
            "truncated": array("(8, 4)", payload=bytes(127)),
            "oversized": array("(8, 4)", payload=bytes(129)),
            "huge": array("(9223372036854775807, 4)"),
            "fortran": array("(8, 4)", order="True", payload=bytes(128)),
            "complex": array("(8, 4)", descr="<c8", payload=bytes(256)),
            "header": b"\x93NUMPY\x01\x00\xff\xff{",
        }
        for name, data in bad.items():
            with self.subTest(name):
                self.expect_attempt(65, name, self.npy_job(self.write(name, data), targets))

    def test_safetensors(self):
        weight = '"fc.weight":{"dtype":"F32","shape":[1,4],"data_offsets":[0,16]}'
        bias = '"fc.bias":{"dtype":"F32","shape":[1],"data_offsets":[16,20]}'
        both = "{%s,%s}" % (weight, bias)
        good = self.write("good", safetensors(both, bytes(20)))
        self.expect(0, "done", "train", "--job=" + self.job(), "--init-weights=" + good)
        bad = {
            "header-length": struct.pack("<Q", 1 << 60) + b"{}",
            "truncated": safetensors(both, bytes(19)),
            "oversized": safetensors(both, bytes(21)),
            "overlap": safetensors(both.replace("[16,20]", "[12,16]"), bytes(16)),
            "not-json": safetensors("{oops", bytes(20)),
            "missing-tensor": safetensors("{%s}" % weight, bytes(16)),
            "shape": safetensors(both.replace("[1,4]", "[4,1]"), bytes(20)),
            "half": safetensors(both.replace("F32", "F16"), bytes(20)),
        }
        for name, data in bad.items():
            with self.subTest(name):
                self.expect_attempt(65, name, self.job(), "--init-weights=" + self.write(name, data))

    def test_weights_of_another_model(self):
        other = self.write("other", safetensors(
            '{"fc.weight":{"dtype":"F32","shape":[1,4],"data_offsets":[0,16]},'
            '"fc.bias":{"dtype":"F32","shape":[2],"data_offsets":[16,24]},'
            '"ids":{"dtype":"I64","shape":[1],"data_offsets":[24,32]}}', bytes(32)))
        flags = ["train", "--job=" + self.job(), "--init-weights=" + other]
        self.expect(65, [other + ": weights of another model: fc.bias: expected shape [1], found [2] "
                         "(--new-weights=fc.bias: newly initialised, whatever the file holds); no parameter for 1 tensors: ids (--unused-weights"], *flags)
        self.expect(78, "--new-weights: 'x' matches no parameter", *flags, "--new-weights=x")
        self.expect(64, "need --init-weights=PATH", "train", "--job=" + self.job(), "--new-weights=x")
        self.expect(0, f"weights {other}: 1 of 2 parameters are loaded; newly initialised: fc.bias [1]; "
                    "not used: fc.bias, ids\n", *flags, "--new-weights=fc.bias", "--unused-weights=i*")

    def test_a_library_does_not_print_errors_of_its_own(self):
        folder = self.path("ckpt/step-000000000001-e000001")
        os.makedirs(folder)
        # Field 1, the version, is 1; field 2, a string, is no UTF-8.
        self.write("ckpt/step-000000000001-e000001/MANIFEST", manifest(b"\x08\x01\x12\x02\xff\xfe"))
        said = self.expect(65, "damaged: ", "ckpt", "verify", self.dir)
        self.assertNotIn("libprotobuf", said)

    def test_shapes_and_sizes(self):
        self.expect_attempt(78, ["21", "20"], self.job(target=21))
        self.expect_attempt(78, ["fc", "5", "4"], self.job(inputs=5))
        self.expect_train(78, "softmax_cross_entropy", self.job(loss="softmax_cross_entropy"))
        self.expect_train(78, ["--nodes=2", "1"], self.job(), "--nodes=2")

    def test_run_folder_that_cannot_be_made(self):
        file = self.write("a-file", "")
        self.expect(74, file, "train", "--job=" + self.job(), "--run-dir=" + file + "/run")

    def test_all_ranks_end_together(self):
        missing = self.idx_job(self.path("nowhere"), self.path("nowhere"))
        said = self.expect(74, "nowhere", "train", "--job=" + missing, ranks=3)
        self.assertEqual(said.count("exit 74"), 1, said)  # one rank speaks for all

    def test_ranks_with_different_flags(self):
        common = ["train", "--job=" + self.job()]
        said = self.expect(78, ["flags must be the same", "rank 1"], *common, "--seed=1", ":", "-n", "2",
                           GACCD, *common, "--seed=1", "--epochs=2", ranks=1)
        self.assertEqual(said.count("exit 78"), 1, said)

    def test_ranks_with_different_binaries(self):
        other = self.path("other-gaccd")
        build_id = self.write("id", struct.pack("<III", 4, 20, 3) + b"GNU\0" + bytes(20))
        subprocess.run(["objcopy", "--update-section", ".note.gnu.build-id=" + build_id, GACCD,
                        other], check=True, timeout=LIMIT_S)
        common = ["train", "--job=" + self.job()]
        self.expect(78, "binary must be the same", *common, ":", "-n", "1", other, *common, ranks=1)

    def test_one_rank_cannot_read_its_data(self):
        """Each rank has its own folder of data; rank 1 finds nothing there."""
        images = self.write("i", idx(0x803, (9, 2, 2), range(36)))
        labels = self.write("l", idx(0x801, (9,), [0, 1, 2] * 3))
        os.makedirs(self.path("0/data"))
        os.makedirs(self.path("1/data"))
        shutil.copy(images, self.path("0/data/images"))
        shutil.copy(labels, self.path("0/data/labels"))
        job = self.idx_job("data/images", "data/labels")
        common = [GACCD, "train", "--job=" + job]
        result = subprocess.run(
            ["mpirun", "--allow-run-as-root", "--oversubscribe", "-n", "1", "-wdir",
             self.path("0"), *common, ":", "-n", "1", "-wdir", self.path("1"), *common],
            timeout=LIMIT_S, capture_output=True, text=True)
        said = result.stdout + result.stderr
        self.assertEqual(result.returncode, 74, said)
        self.assertIn("rank 1", said)

    def test_one_rank_cannot_read_the_job_of_a_check(self):
        for folder in ("0", "1"):
            os.makedirs(self.path(folder))
        shutil.copy(self.job(), self.path("0/job.txtpb"))
        common = [GACCD, "check", "--job=job.txtpb", "--device=cpu"]
        result = subprocess.run(
            ["mpirun", "--allow-run-as-root", "--oversubscribe", "-n", "1", "-wdir",
             self.path("0"), *common, ":", "-n", "1", "-wdir", self.path("1"), *common],
            timeout=LIMIT_S, capture_output=True, text=True)
        self.assertEqual(result.returncode, 74, result.stdout + result.stderr)
        self.assertIn("rank 1 on", result.stderr)
        self.assertNotIn("no conflict", result.stdout)

    def test_little_shared_memory(self):
        """Open MPI says it to one rank of a node alone."""
        elsewhere = f"OMPI_MCA_osc_sm_backing_directory={self.dir}"
        for ranks, code, env in ((2, 78, ""), (1, 0, ""), (2, 0, elsewhere)):  # one rank alone needs none
            env += f" OMPI_MCA_btl_vader_backing_directory={self.dir}"  # without it, Open MPI 5 does not start
            mpirun = f"env {env} mpirun --allow-run-as-root --oversubscribe -n {ranks} {GACCD} train --job={self.job()}"
            result = subprocess.run(
                ["unshare", "--mount", "bash", "-c", f"mount -t tmpfs -o size=64k none /dev/shm && exec {mpirun}"],
                timeout=LIMIT_S, capture_output=True, text=True)
            if "unshare: " in result.stderr or "mount: " in result.stderr:
                self.skipTest(result.stderr)
            self.assertEqual(result.returncode, code, result.stdout + result.stderr)
            self.assertEqual("(65536 bytes are free in /dev/shm)" in result.stderr, code == 78, result.stderr)

    def test_one_rank_lacks_memory(self):
        """Its limit is a little more than what a rank with small samples has mapped."""
        limit = self.mapped_kb() + 30000
        wide = self.job("synthetic { samples: 20 features: 1000000 }", inputs=1000000)  # 16 are hashed: 64 MB
        launched = f'[ "$OMPI_COMM_WORLD_RANK" = 0 ] || ulimit -d {limit}; exec {GACCD} train --job={wide}'
        result = subprocess.run(
            ["mpirun", "--allow-run-as-root", "--oversubscribe", "-n", "2", "bash", "-c", launched],
            timeout=LIMIT_S, capture_output=True, text=True)
        self.assertEqual(result.returncode, 78, result.stdout + result.stderr)
        self.assertRegex(result.stderr, r"rank 1 on [^:]*: .*no memory for")

    def mapped_kb(self):
        run_dir = self.path("small")
        run = subprocess.Popen(
            ["mpirun", "--allow-run-as-root", "--oversubscribe", "-n", "2", GACCD, "train", "--job=" + self.job(),
             "--run-dir=" + run_dir, "--epochs=200000000"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            self.wait_for(os.path.join(run_dir, "attempts", "latest", "events.jsonl"), '"ev":"step"', run)
            with open(os.path.join(run_dir, "attempts", "latest", "ranks.tsv")) as table:
                pid = table.read().splitlines()[2].split("\t")[-1]
            with open(f"/proc/{pid}/status") as status:
                return int(next(line for line in status if line.startswith("VmData:")).split()[1])
        finally:
            run.terminate()
            run.wait()

    def wait_for(self, path, text, process):
        for _ in range(LIMIT_S * 10):
            if os.path.exists(path):
                with open(path) as file:
                    if text in file.read():
                        return
            try:
                process.wait(0.1)
                self.fail("the run ended by itself")
            except subprocess.TimeoutExpired:
                pass

    def wait_for_verdict(self, run_dir):
        """A process that outlives the run writes it; the folder must stay until then."""
        for _ in range(LIMIT_S * 10):
            if os.path.exists(os.path.join(run_dir, "attempts", "latest", "verdict.json")):
                return
            time.sleep(0.1)
        self.fail("no verdict.json")

    def test_a_data_file_that_shrinks_under_the_run(self):
        run_dir = self.path("run")
        features = self.write("features", npy("{'descr': '|u1', 'fortran_order': False, "
                                              "'shape': (1000, 4096), }", bytes(4096000)))
        targets = self.write("targets", npy("{'descr': '<f4', 'fortran_order': False, "
                                            "'shape': (1000,), }", bytes(4000)))
        job = self.job('npy { features: "%s" targets: "%s" }' % (features, targets), inputs=4096)
        run = subprocess.Popen([GACCD, "train", "--job=" + job, "--run-dir=" + run_dir,
                                "--epochs=200000000"], stdout=subprocess.DEVNULL,
                               stderr=subprocess.PIPE, text=True)
        try:
            self.wait_for(os.path.join(run_dir, "attempts", "latest", "events.jsonl"),
                          '"ev":"step"', run)
            os.truncate(features, 4096)
            said = run.communicate(timeout=LIMIT_S)[1]
        finally:
            run.kill()
            run.wait()
        self.wait_for_verdict(run_dir)
        self.assertEqual(run.returncode, 65, said)
        with open(os.path.join(run_dir, "attempts", "latest", "crash", "r00000.json")) as file:
            record = json.load(file)
        self.assertEqual(record["exit"], 65)
        for text in (said, record["msg"]):  # by a read, or by the look at all files between updates
            self.assertRegex(text, features + "(', byte [0-9]+;|: was changed while in use)")

    def test_two_runs_in_one_folder(self):
        run_dir = self.path("run")
        job = self.job()
        first = subprocess.Popen([GACCD, "train", "--job=" + job, "--run-dir=" + run_dir,
                                  "--epochs=200000000"], stdout=subprocess.DEVNULL)
        try:
            self.wait_for(os.path.join(run_dir, "STATUS.json"), "", first)
            self.expect(78, [run_dir, str(first.pid)], "train", "--job=" + self.job(),
                        "--run-dir=" + run_dir)
            self.assertIsNone(first.poll())
        finally:
            first.kill()
            first.wait()
        self.wait_for_verdict(run_dir)


if __name__ == "__main__":
    unittest.main(verbosity=1)
