"""Cases h to k of tools/bench/run: updates of models on one core against PyTorch and JAX, and texts
of similar length in one micro-batch against others."""
import array
import json
import math
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
data {{ train {{ {source} }} shuffle: false }}
batch {{ target: {target} micro: {micro} last_cycle: DROP }}
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
    length: int  # of texts; of images height and width
    micro: int
    vocabulary: int  # 0: images
    classes: int  # 0: a label for each token
    updates: int
    wanted: dict  # by precision


MODELS = (
    Model("gpt", "gpt { vocabulary: 65 context: 256 layers: 6 heads: 6 width: 384 }",
          6, 6, 256, 4, 65, 0, 20, {"f32": ">= 1.2", "bf16": ">= 1.3"}),
    Model("bert", "bert { vocabulary: 8192 context: 128 layers: 4 heads: 4 width: 256 }",
          4, 4, 128, 16, 8192, 2, 20, {"f32": ">= 1.2", "bf16": ">= 1.5"}),
)
IMAGES = (
    Model("vit", "vit { image_size: 28 patch_size: 4 width: 192 heads: 3 classes: 10 }",
          12, 3, 28, 32, 0, 10, 20, {"f32": ">= 1.2", "bf16": ">= 1.5"}),
    Model("resnet18", "resnet { depth: 18 classes: 10 stem: SMALL }",
          0, 0, 28, 32, 0, 10, 20, {"f32": ">= 1.15", "bf16": ">= 1.3"}),
)
# The small network: precision, micro-batch, accumulation steps, wanted.
MLPS = (("bf16", 32, 4, ">= 2.5"), ("bf16", 128, 4, ">= 2.0"),
        ("f32", 32, 4, ">= 1.5"), ("f32", 32, 16, ">= 1.5"), ("f32", 128, 4, ">= 1.3"))
# What the peers are tried with, by precision: name, script, flags. The fastest is compared.
TORCH = {"f32": [("PyTorch", []), ("PyTorch compiled", ["--compile"])],
         "bf16": [(f"PyTorch {name}{also}", [f"--precision={name}", *flags])
                  for name in ("autocast", "model")
                  for also, flags in (("", []), (" compiled", ["--compile"]))]}
JAX = {"f32": [("JAX", [])], "bf16": [("JAX bf16", ["--precision=autocast"])]}


class Peers:
    """The interpreters of the peers that are installed."""

    def __init__(self, torch, jax):
        self.installed = [(script, python, ways) for script, python, ways in (
            ("models.py", torch, TORCH), ("jax_models.py", jax, JAX)) if python]

    def of(self, precision):
        """Name and command of each way that a peer computes in this precision."""
        folder = Path(__file__).parent / "peers"
        return [(name, [python, folder / script, *flags])
                for script, python, ways in self.installed for name, flags in ways[precision]]


class ModelInputs:
    """Tokens or images, labels and the job of a model; its first weights are those that gaccd draws."""

    def __init__(self, inputs, gaccd, model):
        self.inputs, self.gaccd, self.model = inputs, gaccd, model
        rng = random.Random(2)
        count = 16 * model.micro
        if model.vocabulary:
            self.samples = self.array("tokens", [count, model.length], rng, model.vocabulary)
        else:
            self.samples = self.images(count, rng)
        self.labels = self.array("labels", [count] if model.classes else [count, model.length], rng,
                                 model.classes or model.vocabulary)
        self.weights = inputs.folder / f"{model.name}.safetensors"
        self.run("f32", 1, ["--set=optimizer.lr=1e-30", f"--save-weights={self.weights}"])

    def array(self, name, shape, rng, below):
        count = shape[0] * (shape[1] if len(shape) > 1 else 1)
        values = array.array("i", (rng.randrange(below) for _ in range(count)))
        return self.inputs.npy(f"{self.model.name}_{name}.npy", "<i4", shape, values)

    def images(self, count, rng):
        shape = [count, 3, self.model.length, self.model.length]
        values = array.array("f", (rng.gauss(0, 1) for _ in range(math.prod(shape))))
        return self.inputs.npy(f"{self.model.name}_images.npy", "<f4", shape, values)

    def source(self, kind):
        model = self.model
        if not model.vocabulary:
            return (f'npy {{ features: "{self.samples}" targets: "{self.labels}" '
                    f'classes: {model.classes} }}')
        kind += f" vocabulary: {model.vocabulary}"
        kind += f" classes: {model.classes}" if model.classes else ""
        return f'tokens {{ tokens: "{self.samples}" labels: "{self.labels}" {kind} }}'

    def run(self, precision, updates, flags=(), kind="", steps=1, ranks=1):
        """The folder of a run of gaccd, and what it printed."""
        model = self.model
        job = self.inputs.folder / f"{model.name}-{updates}.txtpb"
        job.write_text(JOB.format(architecture=model.architecture, source=self.source(kind),
                                  micro=model.micro, lr=LR, target=steps * model.micro,
                                  updates=updates))
        run_dir = self.inputs.run_dir()
        output = harness.mpirun(ranks, [self.gaccd, "train", f"--job={job}", f"--run-dir={run_dir}",
                                    "--device=cpu", f"--precision={precision}",
                                    "--save-every-seconds=0", *flags], 600)
        return run_dir, output

    def ours(self, precision):
        run_dir, output = self.run(precision, 3 + self.model.updates)
        run = harness.Run(run_dir, self.model.micro, 3)
        shutil.rmtree(run_dir)
        measured = re.search(r"measured ([\d.]+) MB", output)
        return run.update_s, run.loss, float(measured.group(1)) * 1e6

    def peer_flags(self):
        model = self.model
        return [f"--model={model.name}", f"--inputs={self.samples}", f"--labels={self.labels}",
                f"--weights={self.weights}", f"--layers={model.layers}", f"--heads={model.heads}",
                f"--micro={model.micro}", f"--lr={LR}", f"--updates={model.updates}"]

    def peer(self, command):
        line = peer(command, self.peer_flags())
        return line["update_s"], line["loss"], line["peak_bytes"]


def peer(command, flags):
    """What a peer prints, run on the first core."""
    core = str(min(os.sched_getaffinity(0)))
    output = harness.call([["taskset", "-c", core, *command, *flags]], 600)
    return json.loads(output.splitlines()[-1])


def fastest(candidates, run):
    """The name and the command of the peer that was fastest in one run each. BenchError: none of them ran."""
    times = {}
    for name, command in candidates:
        try:
            times[name] = run(command)[0]
        except harness.BenchError as error:  # a compiler that is missing
            print(f"    peer {name}: {str(error).splitlines()[-1]}")
    if not times:
        raise harness.BenchError(f"no peer ran of {', '.join(name for name, _ in candidates) or 'none'}")
    print("    " + ", ".join(f"{name} {1e3 * time:.1f} ms" for name, time in times.items()))
    name = min(times, key=times.get)
    return name, dict(candidates)[name]


def in_turn(pairs, ours, peer_run):
    """What each side returned, in two lists."""
    results = []
    for pair in range(pairs):
        # The second to run finds the machine warmer: take turns in that as well.
        if pair % 2 == 0:
            results.append((ours(), peer_run()))
        else:
            late = peer_run()
            results.append((ours(), late))
    return list(zip(*results))


def add_rate(table, case, unit, count, ours, peer_name, theirs, wanted):
    """A row of rates, `count` units an update; the first value of each result is its seconds."""
    rates = [f"{count / statistics.median(result[0] for result in side):,.0f} {unit}/s"
             for side in (ours, theirs)]
    table.add(case, rates[0], f"{rates[1]} {peer_name}",
              [b[0] / a[0] for a, b in zip(ours, theirs)], wanted)
    print(f"    loss of the last update: {ours[0][1]:.6f}, peer {theirs[0][1]:.6f}")


def models(table, inputs, gaccd, peers, pairs, letter="h", of=MODELS):
    for model in of:
        own = ModelInputs(inputs, gaccd, model)
        for precision, wanted in model.wanted.items():
            name, command = fastest(peers.of(precision), own.peer)
            ours, theirs = in_turn(pairs, lambda own=own, p=precision: own.ours(p),
                                   lambda own=own, c=command: own.peer(c))
            case = f"{letter} {model.name} {precision}, 1 rank x {model.micro}"
            unit, count = ("tokens", model.length) if model.vocabulary else ("images", 1)
            add_rate(table, case, unit, model.micro * count, ours, name, theirs, wanted)
            memory = [statistics.median(result[2] for result in side) for side in (ours, theirs)]
            table.add(f"{case}, memory", f"{memory[0] / 1e6:.0f} MB",
                      f"{memory[1] / 1e6:.0f} MB {name}", [b[2] / a[2] for a, b in zip(ours, theirs)], "> 1")


def images(table, inputs, gaccd, peers, pairs):
    models(table, inputs, gaccd, peers, pairs, "k", IMAGES)


def by_length(table, inputs, gaccd, pairs):
    """Texts of any length up to the context, 4 micro-batches an update."""
    model, steps = MODELS[1], 4
    own = ModelInputs(inputs, gaccd, model)
    count, rng = 16 * model.micro, random.Random(3)
    lengths = inputs.npy("lengths.npy", "<i4", [count],
                         array.array("i", (rng.randint(8, model.length) for _ in range(count))))

    def ours(grouped):
        run_dir, _ = own.run("f32", 3 + model.updates, [f"--group-by-length={grouped}"],
                             f'lengths: "{lengths}"', steps)
        run = harness.Run(run_dir, steps * model.micro, 3)
        shutil.rmtree(run_dir)
        return run.update_s, run.loss

    sides = in_turn(pairs, lambda: ours("true"), lambda: ours("false"))
    add_rate(table, f"j bert f32, texts of 8 to {model.length}, by length", "samples",
             steps * model.micro, sides[0], "not by length", sides[1], "> 1")


def small_mlp(table, inputs, gaccd, peers, pairs, peak):
    """`peak`: what peak_flops prints. The ratio that an update of products alone would have at that
    rate is next to the wanted one."""
    for precision, micro, k, wanted in MLPS:
        updates = 1600 // k
        target = micro * k

        def ours(precision=precision, micro=micro, updates=updates, target=target):
            run = harness.train(gaccd, inputs, 1, target, micro, updates,
                                flags=["--device=cpu", f"--precision={precision}"])
            return run.update_s, run.loss

        def theirs(command, micro=micro, k=k, updates=updates):
            line = peer(command, ["--model=mlp", f"--inputs={inputs.features}",
                                  f"--labels={inputs.labels}", f"--weights={inputs.weights}",
                                  f"--micro={micro}", f"--k={k}", "--lr=0.01", "--warmup=10",
                                  f"--updates={updates}"])
            return line["update_s"], line["loss"]

        candidates = peers.of(precision) + (peers.of("f32") if precision == "bf16" else [])
        name, command = fastest(candidates, theirs)
        sides = in_turn(pairs, ours, lambda c=command, run=theirs: run(c))
        if gflops := peak[f"{precision}_gflops"]:
            products_s = target * harness.FLOPS_PER_SAMPLE / gflops / 1e9
            limit = statistics.median(result[0] for result in sides[1]) / products_s
            wanted += f" (limit {limit:.2f})"
        add_rate(table, f"i MLP {precision}, 1 rank x {micro}, k={k}", "samples", target,
                 sides[0], name, sides[1], wanted)
