"""Cases h and i of tools/bench/run: updates of models on one core, f32 and bf16, against PyTorch."""
import array
import json
import os
import random
import re
import shutil
import statistics
from dataclasses import dataclass
from pathlib import Path

import harness

JOB = """name: "bench"
model {{ {architecture} loss {{ softmax_cross_entropy {{}} }} }}
data {{ train {{ tokens {{ tokens: "{tokens}" labels: "{labels}" {kind} }} }} shuffle: false }}
batch {{ target: {micro} micro: {micro} last_cycle: DROP }}
optimizer {{ lr: {lr} adamw {{ weight_decay: 0.01 }} }}
epochs: 1000000
max_updates: {updates}
log_every: 1000000
"""
LR = 0.0003


@dataclass
class Model:
    name: str
    architecture: str  # of the job
    layers: int
    heads: int
    length: int
    micro: int
    vocabulary: int
    classes: int  # 0: a label for each token
    updates: int
    wanted: dict  # by precision


MODELS = (
    Model("gpt", "gpt { vocabulary: 65 context: 256 layers: 6 heads: 6 width: 384 }",
          6, 6, 256, 4, 65, 0, 20, {"f32": ">= 1.2", "bf16": ">= 1.3"}),
    Model("bert", "bert { vocabulary: 8192 context: 128 layers: 4 heads: 4 width: 256 }",
          4, 4, 128, 16, 8192, 2, 20, {"f32": ">= 1.2", "bf16": ">= 1.5"}),
)
# What PyTorch is tried with; the fastest is the peer.
PEERS = {"f32": [("f32", []), ("f32, compiled", ["--compile"])],
         "bf16": [(f"{name}{also}", [f"--precision={name}", *flags])
                  for name in ("autocast", "model")
                  for also, flags in (("", []), (", compiled", ["--compile"]))]}


class ModelInputs:
    """Tokens, labels and the job of a model; its first weights are those that gaccd draws."""

    def __init__(self, inputs, gaccd, model):
        self.inputs, self.gaccd, self.model = inputs, gaccd, model
        rng = random.Random(2)
        count = 16 * model.micro
        self.tokens = self.array("tokens", [count, model.length], rng, model.vocabulary)
        self.labels = self.array("labels", [count] if model.classes else [count, model.length], rng,
                                 model.classes or model.vocabulary)
        self.weights = inputs.folder / f"{model.name}.safetensors"
        self.run("f32", 1, ["--set=optimizer.lr=1e-30", f"--save-weights={self.weights}"])

    def array(self, name, shape, rng, below):
        count = shape[0] * (shape[1] if len(shape) > 1 else 1)
        values = array.array("i", (rng.randrange(below) for _ in range(count)))
        return self.inputs.npy(f"{self.model.name}_{name}.npy", "<i4", shape, values)

    def run(self, precision, updates, flags=()):
        """The folder of a run of gaccd, and what it printed."""
        model = self.model
        kind = f"vocabulary: {model.vocabulary}"
        kind += f" classes: {model.classes}" if model.classes else ""
        job = self.inputs.folder / f"{model.name}-{updates}.txtpb"
        job.write_text(JOB.format(architecture=model.architecture, tokens=self.tokens,
                                  labels=self.labels, kind=kind, micro=model.micro, lr=LR,
                                  updates=updates))
        run_dir = self.inputs.run_dir()
        output = harness.mpirun(1, [self.gaccd, "train", f"--job={job}", f"--run-dir={run_dir}",
                                    "--device=cpu", f"--precision={precision}",
                                    "--save-every-seconds=0", *flags], 600)
        return run_dir, output

    def ours(self, precision):
        run_dir, output = self.run(precision, 3 + self.model.updates)
        run = harness.Run(run_dir, self.model.micro, 3)
        shutil.rmtree(run_dir)
        measured = re.search(r"measured ([\d.]+) MB", output)
        return run.update_s, run.loss, float(measured.group(1)) * 1e6

    def peer(self, python, flags):
        model = self.model
        line = peer(python, [f"--model={model.name}", f"--inputs={self.tokens}",
                             f"--labels={self.labels}", f"--weights={self.weights}",
                             f"--layers={model.layers}", f"--heads={model.heads}",
                             f"--micro={model.micro}", f"--lr={LR}", f"--updates={model.updates}",
                             *flags])
        return line["update_s"], line["loss"], line["peak_bytes"]


def peer(python, flags):
    """What peers/models.py prints, on the first core."""
    script = Path(__file__).parent / "peers" / "models.py"
    core = str(min(os.sched_getaffinity(0)))
    output = harness.call([["taskset", "-c", core, python, script, *flags]], 600)
    return json.loads(output.splitlines()[-1])


def fastest(candidates, run):
    """The name and the flags of the peer that was fastest in one run each."""
    times = {}
    for name, flags in candidates:
        try:
            times[name] = run(flags)[0]
        except harness.BenchError as error:  # a compiler that is missing
            print(f"    peer {name}: {str(error).splitlines()[-1]}")
    print("    " + ", ".join(f"{name} {1e3 * time:.1f} ms" for name, time in times.items()))
    name = min(times, key=times.get)
    return name, dict(candidates)[name]


def in_turn(pairs, ours, peer_run):
    results = []
    for pair in range(pairs):
        # Whoever runs second finds the machine warmer: take turns in that as well.
        if pair % 2 == 0:
            results.append((ours(), peer_run()))
        else:
            late = peer_run()
            results.append((ours(), late))
    return results


def models(table, inputs, gaccd, python, pairs):
    for model in MODELS:
        own = ModelInputs(inputs, gaccd, model)
        tokens = model.micro * model.length
        for precision, wanted in model.wanted.items():
            name, flags = fastest(PEERS[precision], lambda f, own=own: own.peer(python, f))
            results = in_turn(pairs, lambda own=own, p=precision: own.ours(p),
                              lambda own=own, f=flags: own.peer(python, f))
            ours, theirs = zip(*results)
            rates = [f"{tokens / statistics.median(r[0] for r in side):,.0f} tokens/s"
                     for side in (ours, theirs)]
            table.add(f"h {model.name} {precision}, 1 rank x {model.micro}", rates[0],
                      f"{rates[1]} {name}", [b[0] / a[0] for a, b in results], wanted)
            print(f"    loss of the last update: {ours[0][1]:.6f}, peer {theirs[0][1]:.6f}; memory "
                  f"{ours[0][2] / 1e6:.0f} MB, peer {theirs[0][2] / 1e6:.0f} MB")


def small_mlp(table, inputs, gaccd, python, pairs):
    for micro, wanted in ((32, ">= 2.5"), (128, ">= 2.0")):
        k, updates = 4, 400
        target = micro * k

        def ours():
            run = harness.train(gaccd, inputs, 1, target, micro, updates,
                                flags=["--device=cpu", "--precision=bf16"])
            return run.update_s, run.loss

        def theirs(flags):
            line = peer(python, ["--model=mlp", f"--inputs={inputs.features}",
                                 f"--labels={inputs.labels}", f"--weights={inputs.weights}",
                                 f"--micro={micro}", f"--k={k}", "--lr=0.01", "--warmup=10",
                                 f"--updates={updates}", *flags])
            return line["update_s"], line["loss"]

        name, flags = fastest(PEERS["bf16"] + PEERS["f32"][:1], theirs)
        results = in_turn(pairs, ours, lambda: theirs(flags))
        medians = [statistics.median(r[side][0] for r in results) for side in (0, 1)]
        table.add(f"i MLP bf16, 1 rank x {micro}, k={k}", f"{target / medians[0]:,.0f} samples/s",
                  f"{target / medians[1]:,.0f} samples/s {name}",
                  [b[0] / a[0] for a, b in results], wanted)
        print(f"    loss of the last update: {results[0][0][1]:.6f}, peer {results[0][1][1]:.6f}")
