#!/usr/bin/env python3
"""The memory that `gaccd train` plans for a GPT, a BERT and a ResNet against what the process uses: 3 %,
and 3 MB more on several ranks. There rank 0 is measured; its gradients are in memory that it shares with the
others, and how much of Open MPI's own shared memory it has touched differs from run to run.

Usage: model_memory_test.py GACCD MPIRUN
"""

import array
import random
import re
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

VOCABULARY, LENGTH, SAMPLES = 2000, 64, 400
SIZES = f"vocabulary: {VOCABULARY} context: {LENGTH} layers: 4 heads: 4 width: 128"
JOB = """
name: "memory"
model {{ {model} loss {{ softmax_cross_entropy {{}} }} }}
data {{ train {{ {data} }} }}
batch {{ target: 50 micro: 8 }}
optimizer {{ lr: 0.001 adamw {{}} }}
max_updates: 4
"""
MODELS = {
    "gpt": (f"gpt {{ {SIZES} }}",
            f'stream {{ path: "stream.npy" length: {LENGTH} vocabulary: {VOCABULARY} }}'),
    "bert": (f"bert {{ {SIZES} }}",
             'tokens { tokens: "tokens.npy" lengths: "lengths.npy" labels: "labels.npy" '
             f"vocabulary: {VOCABULARY} classes: 2 }}"),
    # The batch norms keep what lives on between their sums, of all micro-batches of an update.
    "resnet": ("resnet { depth: 18 width: 12 classes: 2 stem: SMALL }",
               'npy { features: "images.npy" targets: "labels.npy" classes: 2 }'),
}
CASES = [(1, "f32", "none"), (1, "f32", "blocks"), (3, "f32", "none")]
if "avx512bw" in Path("/proc/cpuinfo").read_text():  # oneDNN emulates bf16 with it
    CASES.append((1, "bf16", "none"))
else:
    print("bf16 is not measured: this CPU has no AVX-512")


def save_npy(path, shape, values, kind="<i4"):
    header = f"{{'descr': '{kind}', 'fortran_order': False, 'shape': {shape}, }}"
    header += " " * (-(len(header) + 11) % 64) + "\n"
    path.write_bytes(b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header.encode() +
                     array.array("i" if kind == "<i4" else "B", values).tobytes())


class ModelMemory(unittest.TestCase):
    def test_planned_is_within_3_percent_of_measured(self):
        rng = random.Random(1)
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            tokens = [rng.randrange(VOCABULARY) for _ in range(SAMPLES * LENGTH + 1)]
            save_npy(folder / "stream.npy", (len(tokens),), tokens)
            save_npy(folder / "tokens.npy", (SAMPLES, LENGTH), tokens[1:])
            # Few are shorter: the first of a rank's micro-batches, which has the shortest texts and may
            # have one more than the others, is then as long as what memory is planned for.
            save_npy(folder / "lengths.npy", (SAMPLES,),
                     [LENGTH if i % 10 else rng.randint(5, LENGTH) for i in range(SAMPLES)])
            save_npy(folder / "labels.npy", (SAMPLES,), [rng.randrange(2) for _ in range(SAMPLES)])
            save_npy(folder / "images.npy", (SAMPLES, 3, 32, 32), rng.randbytes(SAMPLES * 3 * 32 * 32), "|u1")
            for model, (architecture, data) in MODELS.items():
                job = folder / f"{model}.txtpb"
                job.write_text(JOB.format(model=architecture, data=data))
                for ranks, precision, recompute in CASES:
                    launch = [MPIRUN, "-n", str(ranks), "--oversubscribe", "--allow-run-as-root"]
                    output = subprocess.run([*(launch if ranks > 1 else []), GACCD, "train",
                                             f"--job={job}", f"--precision={precision}",
                                             f"--recompute={recompute}",
                                             "--allow-emulation"], check=True, text=True,
                                            timeout=200, capture_output=True).stdout
                    found = re.search(r"measured ([\d.]+) MB, planned ([\d.]+) MB", output)
                    self.assertTrue(found, output)
                    measured, planned = map(float, found.groups())
                    case = (f"{model} {precision} on {ranks} ranks, recompute {recompute}: planned {planned} MB, "
                            f"measured {measured} MB")
                    print(case)
                    self.assertAlmostEqual(planned, measured, msg=case,
                                           delta=0.03 * measured + 3 * (ranks > 1))


if __name__ == "__main__":
    GACCD, MPIRUN = sys.argv.pop(1), sys.argv.pop(1)
    unittest.main()
