"""gaccd.torch against gaccd itself: python_loop_test.py GACCD

The same job, data and initial weights are trained by `gaccd train --local-ranks=N` and by PyTorch with
DistributedDataParallel over gloo on N ranks (python_loop_ranks.py). Needs a Python with torch: sys.executable, the
one that GACCD_TORCH_PYTHON names, or Debian's (python3-torch); without one the test is skipped: exit code 77.
"""
import json
import os
import random
import socket
import subprocess
import sys
import tempfile
import time
import unittest
from pathlib import Path
from unittest import mock

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
GOLDEN, MODELS = ROOT / "tests/golden/train", ROOT / "tests/golden/models"
RANKS = HERE / "python_loop_ranks.py"
LAUNCHER_VARIABLES = ("SLURM_", "OMPI_", "PMIX_", "PMI_", "MASTER_")
WORLDS = (1, 3, 5)
SKIPPED = 77
LOSS, WEIGHTS = 1e-6, 4e-6  # of single precision; the norm of a gradient is a sum in another order
MODEL = """model {{
  layer {{ name: "fc1" linear {{ in: 6 out: 8 }} }}
  layer {{ name: "relu1" relu {{}} }}
  layer {{ name: "fc2" linear {{ in: 8 out: {out} }} }}
  loss {{ {loss} {{}} }}
}}
"""
GPT = "model { gpt { vocabulary: 23 context: 10 layers: 2 heads: 3 width: 12 } loss { softmax_cross_entropy {} } }\n"
LABELS = MODEL.format(out=4, loss="softmax_cross_entropy")
TARGETS = MODEL.format(out=3, loss="mean_squared_error")
OF_LABELS = 'npy { features: "features.npy" targets: "labels.npy" classes: 4 }'
OF_WEIGHTED = 'npy { features: "features.npy" targets: "labels.npy" weights: "weights.npy" classes: 4 }'
OF_TARGETS = 'npy { features: "features.npy" targets: "targets.npy" }'
OF_TOKENS = ('tokens { tokens: "gpt_tokens.npy" labels: "gpt_some_labels.npy" weights: "gpt_weights.npy" '
             "ignored_label: -1 vocabulary: 23 }")
# 53 samples (of text 31), so that every job has smaller updates; on 3 and 5 ranks most updates are ragged.
JOBS = {
    "ragged": dict(model=LABELS, source=OF_LABELS, loss="labels", data=("features", "labels"), target=17, micro=2,
                   epochs=3, seed=7, lr=0.3, momentum=0.9),  # the last update of an epoch has 2 samples
    "carry": dict(model=TARGETS, source=OF_TARGETS, loss="mse", data=("features", "targets"), target=19, micro=4,
                  epochs=4, seed=3, last_cycle="carry", lr=0.2, momentum=0.8),
    "drop": dict(model=TARGETS, source=OF_TARGETS, loss="mse", data=("features", "targets"), target=12, micro=1,
                 epochs=2, last_cycle="drop", shuffle=False, lr=0.2, momentum=0),
    "few": dict(model=LABELS, source=OF_LABELS, loss="labels", data=("features", "labels"), target=2, micro=1,
                epochs=1, seed=5, lr=0.1, momentum=0.5),
    "weighted": dict(model=LABELS, source=OF_WEIGHTED, loss="labels", data=("features", "labels", "weights"),
                     target=16, micro=3, epochs=3, seed=9, lr=0.3, momentum=0.9),
    "tokens": dict(model=GPT, source=OF_TOKENS, loss="tokens", target=8, micro=3, epochs=3, seed=4, lr=0.05,
                   momentum=0.9, data=("gpt_tokens", "gpt_some_labels", "gpt_weights"), weights="gpt_mini.init"),
}


def environment(**more):
    kept = {k: v for k, v in os.environ.items() if not k.startswith(LAUNCHER_VARIABLES)}
    return kept | {"GLOO_SOCKET_IFNAME": "lo", "PATH": f"{Path(GACCD).parent}:{kept['PATH']}"} | more


def gaccd(*arguments, cwd):
    done = subprocess.run([GACCD, *map(str, arguments)], cwd=cwd, env=environment(), text=True, capture_output=True,
                          timeout=200, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def run_ranks(world, cases, folder):
    """The results of every rank."""
    folder.mkdir()
    (folder / "cases").write_text(json.dumps(cases))
    with open(folder / "said", "wb") as said:
        ranks = [subprocess.Popen([sys.executable, "-B", RANKS, folder / "cases", str(rank), str(world), folder],
                                  env=environment(), stdout=said, stderr=said) for rank in range(world)]
        deadline = time.monotonic() + 300
        while any(rank.poll() is None for rank in ranks):
            if time.monotonic() > deadline or any(rank.poll() for rank in ranks):
                break
            time.sleep(0.05)
        for rank in ranks:
            rank.kill()
            rank.wait()
    codes = [rank.returncode for rank in ranks]
    assert codes == [0] * world, f"{codes}\n{(folder / 'said').read_text()}"
    return [json.loads((folder / f"{rank}.json").read_text()) for rank in range(world)]


def order_of_epoch(seed, epoch, size):
    sys.path.insert(0, str(ROOT / "tests/golden"))
    import gaccd_random  # of which PyTorch's golden values are made
    return gaccd_random.order_of_epoch(seed, epoch, size, True)


class Reference:
    """A job that gaccd itself has trained, on one world."""

    def __init__(self, name, world, folder):
        spec = JOBS[name]
        self.home = MODELS if "weights" in spec else folder
        job = folder / f"{name}.txtpb"
        job.write_text(f'name: "{name}"\n{spec["model"]}data {{ train {{ {spec["source"]} }} '
                       f'shuffle: {str(spec.get("shuffle", True)).lower()} }}\n'
                       f'batch {{ target: {spec["target"]} micro: {spec["micro"]} '
                       f'last_cycle: {spec.get("last_cycle", "update").upper()} }}\n'
                       f'optimizer {{ lr: {spec["lr"]} sgd {{ momentum: {spec["momentum"]} }} }}\n'
                       f'epochs: {spec["epochs"]} seed: {spec.get("seed", 1)}\n')
        run = folder / f"{name}-{world}"
        flags = [f"--job={job}", "--device=cpu", f"--run-dir={run}", f"--save-weights={run}/weights"]
        self.init = MODELS / spec.get("weights", "") if "weights" in spec else folder / f"{name}.init"
        if not self.init.exists():  # gaccd's own initial weights, after updates that change nothing
            gaccd("train", f"--job={job}", "--device=cpu", f"--run-dir={run}-init", "--max-updates=1", "--set",
                  "optimizer.lr=1e-30", f"--save-weights={self.init}", cwd=self.home)
        gaccd("train", f"--local-ranks={world}", f"--init-weights={self.init}", *flags, cwd=self.home)
        (events,) = run.glob("attempts/0*/events.jsonl")
        self.steps = [e for e in map(json.loads, events.read_text().splitlines()) if e["ev"] == "step"]
        self.weights = run / "weights"
        self.samples = [json.loads(line) for line in
                        gaccd("samples", f"--job={job}", "--format=json", f"--gpus-per-node={world}",
                              cwd=self.home).splitlines()]
        self.case = {"do": "train", "gaccd": GACCD, "seed": 1, "shuffle": True,
                     "last_cycle": "update", **spec, "weights": str(self.init),
                     "data": [str(self.home / f"{one}.npy") for one in spec["data"]]}


class PythonLoop(unittest.TestCase):
    references = {}  # by job and world

    @classmethod
    def setUpClass(cls):
        import numpy
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.dir = Path(folder.name)
        for name in ("features", "labels", "targets"):
            (cls.dir / f"{name}.npy").write_bytes((GOLDEN / f"{name}.npy").read_bytes())
        numpy.save(cls.dir / "weights.npy", numpy.arange(53, dtype="<f4") % 5 / 2)

    def reference(self, name, world):
        if (name, world) not in self.references:
            self.references[name, world] = Reference(name, world, self.dir)
        return self.references[name, world]

    def assert_near(self, found, expected, tolerance, what):
        self.assertLessEqual(abs(found - expected), tolerance * max(1, abs(expected)), f"{what}: {found} != {expected}")

    def differs(self, found, reference):
        """Whether a loss is further off than the tolerance."""
        return any(abs(a["loss"] - b["loss"]) > 10 * LOSS for a, b in zip(found, reference.steps))

    def compare(self, results, reference, world, first=0):
        """Losses, norms of gradients and samples of every update; results: one case, by rank."""
        self.assertEqual({len(result["updates"]) for result in results}, {len(reference.steps) - first})
        for number, step in enumerate(reference.steps[first:], first):
            ranks = [result["updates"][number - first] for result in results]
            for rank in ranks:
                self.assert_near(rank["loss"], step["loss"], LOSS, f"loss of update {number + 1}")
                self.assert_near(rank["grad_norm"], step["grad_norm"], WEIGHTS, f"gradient of update {number + 1}")
            planned = reference.samples[number * world:(number + 1) * world]
            self.assertEqual(sum(len(line["samples"]) for line in planned), step["samples"])
            self.assertEqual([[len(one) for one in rank["samples"]] for rank in ranks],
                             [[size for size in line["micro_batches"] if size] for line in planned])
            self.assertEqual([sum(rank["samples"], []) for rank in ranks], [line["samples"] for line in planned])

    def compare_weights(self, results, reference):
        sys.path.insert(0, str(HERE))
        from train_golden_test import read_safetensors
        for name, expected in read_safetensors(reference.weights).items():
            for result in results:
                for a, b in zip(result["weights"][name], expected):
                    self.assert_near(a, b, WEIGHTS, name)

    def test_trainings_are_those_of_gaccd(self):
        for world in WORLDS:
            references = [self.reference(name, world) for name in JOBS]
            cases = [one.case for one in references]
            cases += [self.reference("weighted", world).case | {"variant": "sums with counts", "workers": 2},
                      self.reference("ragged", world).case | {"bucket_view": True, "workers": 1}]
            references += [self.reference("weighted", world), self.reference("ragged", world)]
            results = run_ranks(world, cases, self.dir / f"trained-{world}")
            for number, reference in enumerate(references):
                with self.subTest(world=world, job=list(JOBS)[number] if number < len(JOBS) else number):
                    of_case = [rank[number] for rank in results]
                    self.compare(of_case, reference, world)
                    self.compare_weights(of_case, reference)

    def test_a_run_continues_on_any_world(self):
        names = ("ragged", "carry", "tokens")
        saved, first = {}, 0
        for world, stop in ((5, 3), (1, 6), (3, None)):
            references = [self.reference(name, world) for name in names]
            cases = []
            for name, reference in zip(names, references):
                case = reference.case | ({"load": saved[name]} if saved else {})
                if stop is not None:
                    case |= {"save": str(self.dir / f"{name}-after-{stop}"), "stop_after": stop}
                cases.append(case)
            results = run_ranks(world, cases, self.dir / f"resumed-{world}")
            for number, (name, reference) in enumerate(zip(names, references)):
                with self.subTest(job=name, world=world):
                    part = Reference.__new__(Reference)
                    part.steps, part.samples = reference.steps[:stop], reference.samples
                    self.compare([rank[number] for rank in results], part, world, first)
            saved, first = {name: case.get("save") for name, case in zip(names, cases)}, stop
        for number, reference in enumerate(references):
            self.compare_weights([rank[number] for rank in results], reference)

    def test_what_is_wrong_is_found(self):
        """By the audit, on every rank, before the optimiser steps; or by other losses than gaccd's."""
        world, reference = 3, self.reference("ragged", 3)
        audited = {  # expected, found, and what the message names; rank 2 does it wrong
            "lost micro-batch": (17, 15, "samples over all ranks (rank 2: 4 of 6)"),
            "samples counted twice": (17, 23, "samples over all ranks (rank 2: 12 of 6)"),
            "errors that cancel": (17, 17, "samples over all ranks (rank 1: 7 of 6, rank 2: 5 of 6)"),
            "a rank that skips": (17, 11, "samples over all ranks (rank 2: 0 of 6)"),
            "weights on one rank only": (0, 6, "micro-batches without weights or a count"),
            "backward in halves": (0, 1, "ranks that called backward() again after the last micro-batch"),
            "zero_grad in between": (0, 1, "something else than backward() changed gradients or parameters"),
            "backward before": (0, 1, "something else than backward() changed gradients or parameters"),
            "step inside": (0, 1, "something else than backward() changed gradients or parameters"),
            "step in the loop": (0, 1, "something else than backward() changed gradients or parameters"),
            "another seed": (0, 1, "is not that of rank 0 (rank 2)"),
            "another batch": (0, 1, "is not that of rank 0 (rank 2)"),
        }
        cases = [reference.case | {"variant": variant} for variant in audited]
        cases += [reference.case | {"variant": "mean of means"}, reference.case | {"do": "train_with_wrong_factor"},
                  reference.case | {"variant": "reduced again", "stop_after": 3},  # in those all ranks have samples
                  reference.case]
        cases.append(reference.case | {"variant": "an update apart"})
        results = run_ranks(world, cases, self.dir / "wrong")
        for rank, found in enumerate(one.pop() for one in results):
            self.assertIn(f"update {2 if rank == 2 else 1}: the sum of the numbers of the ranks' updates", found["error"])
        for number, (variant, (expected, counted, text)) in enumerate(audited.items()):
            for rank in results:
                with self.subTest(variant=variant):
                    found = rank[number]
                    self.assertEqual((found["expected"], found["found"]), (expected, counted), found)
                    self.assertIn("update 1: ", found["error"])
                    self.assertIn(text, found["error"])
        *wrong, right = results[0][len(audited):]
        for one in wrong:
            self.assertTrue(self.differs(one["updates"], reference))
        self.assertFalse(self.differs(right["updates"], reference))

    def test_collectives_have_the_gradients_of_both_conventions(self):
        for world in WORLDS:
            checks = ["finite_differences", "gathered_rows", "reduced_constants", "second_derivatives",
                      *(["gradcheck"] if world == 1 else [])]
            results = run_ranks(world, [{"do": do} for do in checks], self.dir / f"collectives-{world}")
            for rank, (found, refused, unequal, *_) in enumerate(results):
                with self.subTest(world=world, rank=rank):
                    self.assertLess(found["worst"], 1e-7)
                    self.assertTrue(world == 1 or min(found["other"]) > 0.01, "both conventions give the same")
                    self.assertIn("found mean", refused["convention"])
                    self.assertIn("found a single number", refused["number"])
                    if world == 1:
                        continue
                    for what, expected, other in (("sizes", "float32 rows of shape [2]", "float32 rows of shape [3]"),
                                                  ("shapes", "rows of shape [3, 2]", "rows of shape [2, 3]"),
                                                  ("types", "float32 rows", "float64 rows of shape [2] on rank 1")):
                        self.assertIn(expected, refused[what].split("found")[0])
                        self.assertIn(other, refused[what].split("found")[1])
                    for what, expected, other in (
                            ("shapes", "float32 values of shape [2, 3], as on rank 0", "shape [3, 2] on rank 1"),
                            ("numbers", "values of shape []", "values of shape [1] on rank 1"),
                            ("types", "float32 values", "float64 values of shape [2] on rank 1"),
                            ("conventions", "per_rank_loss, as on rank 0", "replicated_loss on rank 1"),
                            ("followed", "gradients to be followed on all ranks", "torch.no_grad() on rank 1")):
                        self.assertIn(expected, unequal[what].split("found")[0])
                        self.assertIn(other, unequal[what].split("found")[1])

    def test_models_with_branches_and_refusals(self):
        results = run_ranks(3, [{"do": do, "gaccd": GACCD} for do in
                                ("unused_parameters", "scaler", "refusals", "contrastive", "few_samples", "silent_step",
                                 "not_reduced")], self.dir / "branches")
        for branches, scaled, refused, contrastive, few, silent, differ in results:
            *differ, unused = differ
            for text, parts in zip(differ, ("as module.0.weight .*: expected 0, found 4", "as module.1.weight .* found 2")):
                self.assertRegex(text, "update 1: parameters whose gradients differ between ranks, " + parts)
            self.assertIn("every parameter, found none of module.1.weight", unused)
            self.assertEqual(few["seen"], [3, 3])  # one in each update, on ranks 1 and 2
            self.assertEqual(few["factors"][0], few["factors"][1])
            if silent is not None:
                self.assertIsNone(silent[2])
                for text in silent[:2]:
                    self.assertIn("changed gradients or parameters", text)
            self.assertEqual(contrastive, {"per_rank_loss": True, "replicated_loss": False})
            self.assertEqual(branches, {"updates": [20] * 3 + [4]})
            self.assertEqual(scaled, [8 * 2.5, 2.5])  # of inputs 0 to 5
            parts = ("without samples=", "found losses of shape [2, 1]", "shape [2, 1], as the losses, found [3, 1]",
                     "expected 3 samples, found losses of 2", "found both", "a count without gradient",
                     "found sparse=True", "found one of other samples", "of 16 samples, as ExactBatches was given, found 17", "expected 4 ranks (the plan), found 3",
                     "expected the samples of rank", "at least 3 samples in every update, found 2", "expected a plan without speeds", "found 'measured'",
                     "update 1: expected a sum of weights above 0, found 0",
                     "expected count= with a loss that is one number", "one number, found shape [1]", "found it outside",
                     "that require a gradient, found none", "SyncBatchNorm needs",
                     "at least 3 samples in every update, found 2", "without max_norm")
            for text, part in zip(refused, parts, strict=True):
                self.assertIn(part, text)


class Example(unittest.TestCase):
    EXAMPLE = ROOT / "tools/python/examples/ddp.py"

    def losses(self, world):
        """As torchrun starts it, which fails where PyTorch 1.13 meets Python 3.11."""
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = str(free.getsockname()[1])
        ranks = [subprocess.Popen([sys.executable, "-B", self.EXAMPLE], stdout=subprocess.PIPE, text=True,
                                  env=environment(PYTHONPATH=str(ROOT / "tools/python"), RANK=str(rank),
                                                  WORLD_SIZE=str(world), MASTER_ADDR="127.0.0.1", MASTER_PORT=port))
                 for rank in range(world)]
        self.addCleanup(lambda: [rank.kill() for rank in ranks])
        said = [rank.communicate(timeout=200)[0] for rank in ranks]
        self.assertEqual([rank.returncode for rank in ranks], [0] * world)
        return [float(line.split()[3]) for line in said[0].splitlines() if line.startswith("epoch")]

    def test_it_is_the_same_on_any_world(self):
        alone = self.losses(1)
        self.assertEqual(len(alone), 5)
        self.assertLess(alone[-1], alone[0])
        for found, expected in zip(self.losses(3), alone):
            self.assertLessEqual(abs(found - expected), 1e-6 + 1e-6)  # and what is printed has 6 digits

    def test_the_page_shows_its_lines(self):
        page, example = (path.read_text() for path in (ROOT / "daemon/docs/pytorch.md", self.EXAMPLE))
        changed = [line[1:] for line in page.splitlines() if line.startswith("+")]
        self.assertEqual(len(changed), 11)
        for line in changed:
            self.assertIn(f"\n{line}\n", example)


class Samples(unittest.TestCase):
    """Which samples: for many seeds, sizes and worlds."""

    @classmethod
    def setUpClass(cls):
        sys.path.insert(0, str(ROOT / "tools/python"))
        import gaccd.torch.batches
        cls.gaccd, cls.module = gaccd, gaccd.torch.batches

    def plan(self, world, micro, target, **more):
        return self.gaccd.plan(nodes=1, gpus_per_node=world, micro_batch=micro, target=target, gaccd=GACCD, **more)

    def test_updates_are_slices_of_the_order(self):
        draw = random.Random(1)
        for _ in range(40):
            size, world, epochs = draw.randrange(1, 400), draw.randrange(1, 10), draw.randrange(1, 4)
            target, micro, seed = draw.randrange(1, size + 1), draw.randrange(1, 9), draw.randrange(1 << 64)
            cycle = draw.choice(("update", "carry", "drop"))
            orders = [order_of_epoch(seed, epoch, size) for epoch in range(epochs)]
            if cycle == "drop":
                orders = [order[:size // target * target] for order in orders]
            parts = [sum(orders, [])] if cycle == "carry" else orders
            expected = [part[i:i + target] for part in parts for i in range(0, len(part), target)]
            plan = self.plan(world, micro, target)
            ranks = [self.module.ExactBatches(size, plan, rank, seed, epochs=epochs, last_cycle=cycle)
                     for rank in range(world)]
            with self.subTest(size=size, world=world, target=target, cycle=cycle, seed=seed):
                self.assertEqual([rank.total for rank in ranks], [len(expected)] * world)
                for number, samples in enumerate(expected, 1):
                    updates = [rank.at(number) for rank in ranks]
                    taken = [list(one) for update in updates for one in update.micro_batches]
                    self.assertEqual(sum(taken, []), samples)
                    self.assertLessEqual(max(map(len, taken)), micro)
                    own = plan if len(samples) == target else plan.for_samples(len(samples))
                    self.assertEqual([update.rank_samples for update in updates],
                                     [rank.samples for rank in own.ranks])
                    self.assertEqual([[len(one) for one in update.micro_batches] for update in updates],
                                     [[size for size in rank.micro_batches if size] for rank in own.ranks])

    def test_the_published_plan(self):
        plan = self.gaccd.plan(nodes=30, gpus_per_node=8, micro_batch=10, target=3072, gaccd=GACCD)
        self.assertEqual((plan.world, plan.accum_steps, plan.effective_batch), (240, 2, 3072))
        self.assertEqual(sorted({rank.micro_batches for rank in plan.ranks}), [(6, 6), (7, 6)])
        self.assertEqual(sum(rank.samples for rank in plan.ranks), 3072)
        self.assertEqual([rank.first for rank in plan.ranks],
                         [sum(rank.samples for rank in plan.ranks[:i]) for i in range(240)])
        tail = plan.for_samples(100)
        self.assertEqual((tail.effective_batch, tail.reference_batch, len(tail.ranks)), (100, 3072, 240))
        self.assertEqual(sum(rank.samples for rank in tail.ranks), 100)
        self.assertEqual(self.plan(4, 5, 27, rounding="ceil").effective_batch, 40)
        with self.assertRaisesRegex(self.gaccd.GaccdError, "--micro-batch=0: must be at least 1"):
            self.plan(1, 0, 1)
        with self.assertRaisesRegex(self.gaccd.GaccdError, "expected the program 'no-such' on the PATH"):
            self.gaccd.plan(nodes=1, gpus_per_node=1, micro_batch=1, target=1, gaccd="no-such")

    def test_hosts_of_different_speed(self):
        plan = self.gaccd.plan(nodes=3, gpus_per_node=2, micro_batch=4, target=37, speed="n[1-2]:1,n3:0.25",
                               gaccd=GACCD)
        self.assertEqual([rank.samples for rank in plan.ranks], [8, 8, 8, 9, 2, 2])
        self.assertEqual((plan.speeds, plan.slowest_time), ("4x1,2x0.25", 9))
        ranks = [self.module.ExactBatches(100, plan, rank, 5) for rank in range(6)]
        for number, samples in enumerate((37, 37, 26), 1):
            updates = [rank.at(number) for rank in ranks]
            taken = [list(one) for update in updates for one in update.micro_batches]
            self.assertEqual(sum(taken, []), order_of_epoch(5, 0, 100)[37 * number - 37:][:samples])
            own = plan if samples == 37 else plan.for_samples(samples)
            self.assertEqual([update.rank_samples for update in updates], [rank.samples for rank in own.ranks])
            self.assertTrue(updates[0].uneven)
        self.assertIsNone(self.plan(2, 4, 8, speed="n1:0.5").speeds)

    def test_a_plan_of_a_newer_gaccd_is_read(self):
        module = sys.modules["gaccd.plan"]
        own = module.call
        with mock.patch.object(module, "call", lambda command: own(command).replace("{", '{"not_yet_known":[1],', 1)):
            self.assertEqual(self.plan(3, 2, 16).effective_batch, 16)

    def test_a_state_belongs_to_its_run(self):
        batches = self.module.ExactBatches(range(50), self.plan(3, 2, 16), 1, seed=2, epochs=2)
        self.assertEqual(batches.total, 8)
        everything = list(batches)
        for update in batches.updates(everything[:1]):
            self.assertEqual(len(list(update.batches)), 1)
            break
        self.assertEqual(batches.state_dict()["updates"], 0)
        with self.assertRaisesRegex(RuntimeError, "update 1 was left .* expected 1 complete updates, found 0"):
            for update in batches.updates(everything):
                pass
        batches.load_state_dict(batches.state_dict() | {"updates": 3, "samples": 16})
        done = sum(len(batches.at(number).micro_batches) for number in (1, 2, 3))
        self.assertEqual(list(batches), everything[done:])
        for wrong, text in (({"seed": 3}, "seed 2, found 3"), ({"batch": 15}, "batch 16, found 15"),
                            ({"updates": 9}, "0 to 8 complete updates, found 9")):
            with self.assertRaisesRegex(ValueError, text):
                batches.load_state_dict(batches.state_dict() | wrong)
        # The last update of a shorter run has 2 samples; here 2 of the next would be lost.
        short, longer = (self.module.ExactBatches(10, self.plan(1, 4, 4), 0, epochs=epochs, last_cycle="carry")
                         for epochs in (1, 2))
        short.done = 3
        with self.assertRaisesRegex(ValueError, "expected 4 samples in update 3, found 2"):
            longer.load_state_dict(short.state_dict())
        with self.assertRaisesRegex(self.gaccd.GaccdError, "below 3, found 3"):
            self.module.ExactBatches(50, self.plan(3, 2, 16), 3)
        with self.assertRaisesRegex(ValueError, "expected the result of state_dict.., found no 'updates' among \\['a'\\]"):
            longer.load_state_dict({"a": 1})
        for number in (0, longer.total + 1):
            with self.assertRaisesRegex(IndexError, f"from 1 to {longer.total}, found {number}"):
                longer.at(number)
        with self.assertRaisesRegex(TypeError, "expected the result of gaccd.plan.., found 16"):
            self.module.ExactBatches(50, 16, 3)
        size = type("Integer", (), {"__index__": lambda self: 50})()  # as those of numpy
        self.assertEqual(self.module.ExactBatches(size, self.plan(3, 2, 16), 1).total, 4)

    def test_an_update_that_is_not_iterated_to_its_end_does_not_affect_the_next(self):
        from torch.utils.data import DataLoader
        for workers, skipped in ((0, 2), (2, 2), (0, 1), (2, 1)):
            batches = self.module.ExactBatches(53, self.plan(2, 3, 17), 1, seed=4, epochs=2)
            loaded, expected = [], []
            for update in batches.updates(DataLoader(range(53), batch_sampler=batches, num_workers=workers)):
                taken = {skipped: 0, 4: 1}.get(update.number, len(update.micro_batches))
                loaded.append([])
                expected.append([list(one) for one in update.micro_batches[:taken]])
                for indices in update.batches if taken else ():
                    loaded[-1].append(indices.tolist())
                    if len(loaded[-1]) == taken:
                        break
                update.complete()
            with self.subTest(workers=workers, skipped=skipped):
                self.assertGreaterEqual(len(loaded), 8)
                self.assertEqual(loaded, expected)

    def test_the_end_of_the_loop_loads_nothing_more(self):
        batches = self.module.ExactBatches(53, self.plan(2, 3, 17), 1, seed=4)
        for ends in ("break", "close", "raise"):
            loaded = []
            updates = batches.updates(loaded.append(number) or one for number, one in enumerate(batches))
            try:
                for update in updates:
                    next(update.batches)
                    self.assertGreater(len(update.micro_batches), 1)
                    if ends == "raise":
                        updates.throw(KeyError())
                    break
            except KeyError:
                self.assertEqual(ends, "raise")
            if ends == "close":
                updates.close()
            del updates
            self.assertEqual((loaded, batches.done), ([0], 0), ends)

    def test_batches_of_other_updates_are_refused(self):
        batches = self.module.ExactBatches(53, self.plan(2, 3, 17), 1, seed=4)
        with self.assertRaisesRegex(ValueError, "in_order=True, found False"):
            next(batches.updates(mock.Mock(batch_sampler=batches, in_order=False)))
        iterator = iter(batches)
        for stop, whole in ((1, True), (2, False)):  # the first loop ends after an update, the second one within
            for update in batches.updates(iterator):
                taken = [tuple(one) for one, _ in zip(update.batches, range(99 if whole else 1))]
                self.assertEqual((update.number, taken), (stop, list(update.micro_batches[:None if whole else 1])))
                if whole:
                    update.complete()
                break
        with self.assertRaisesRegex(ValueError, "begins with update 2, found one that another loop has left"):
            next(batches.updates(iterator))
        self.assertEqual(next(batches.updates(iter(batches))).number, 2)

    def test_an_iterator_may_be_wrapped_anew(self):
        batches = self.module.ExactBatches(53, self.plan(2, 3, 17), 1, seed=4)
        iterator = iter(batches)
        for number in (1, 2):
            for update in batches.updates(map(list, iterator)):
                self.assertEqual((update.number, [tuple(one) for one in update.batches]), (number, list(update.micro_batches)))
                update.complete()
                break

    def test_iterators_from_before_the_state_are_refused(self):
        """They gave the samples of the first updates."""
        from torch.utils.data import DataLoader
        for workers in (0, 2):
            batches = self.module.ExactBatches(53, self.plan(2, 3, 17), 1, seed=4)
            loader = DataLoader(range(53), batch_sampler=batches, num_workers=workers)
            early = iter(loader)
            batches.load_state_dict(batches.state_dict() | {"updates": 1, "samples": 17})
            with self.assertRaisesRegex(ValueError, "begins with update 2, found one that began with update 1: load_state"):
                next(next(batches.updates(early)).batches)
            update = next(batches.updates(loader))
            self.assertEqual([tuple(one.tolist()) for one in update.batches], list(update.micro_batches))

    def test_even_updates(self):
        plan = self.plan(3, 6, 17)
        slow = self.gaccd.plan(nodes=3, gpus_per_node=1, micro_batch=6, target=17, speed="a:0.1", gaccd=GACCD)
        for even, of, more in ((False, plan, {}), (True, plan, {"last_cycle": "drop"}), (False, slow, {"last_cycle": "drop"}),
                               (True, plan, {"last_cycle": "carry", "epochs": 3}), (False, plan, {"last_cycle": "carry", "epochs": 9}),
                               (True, plan, {"max_updates": 3}), (False, plan, {"max_updates": 5, "epochs": 2})):
            with self.subTest(even=even, more=more), mock.patch.object(self.module, "CHUNK_UPDATES", 1):
                batches = self.module.ExactBatches(53, of, 1, **more)
                self.assertEqual(batches.even, even)
                self.assertEqual(batches.at(1).plan, of)

    def test_a_loop_for_each_epoch_is_refused(self):
        batches = self.module.ExactBatches(53, self.plan(2, 3, 17), 1, epochs=2)
        for update in batches.updates(batches):
            update.complete()
        self.assertEqual(batches.done, batches.total)
        with self.assertRaisesRegex(RuntimeError, "all 8 updates are complete: epochs="):
            next(batches.updates(batches))
        with self.assertRaisesRegex(RuntimeError, "other loops need another DataLoader"):
            iter(batches)
        again = self.module.ExactBatches(53, self.plan(2, 3, 17), 1, epochs=2)
        again.load_state_dict(batches.state_dict())  # a run that is complete has nothing to do
        self.assertEqual(list(again.updates(again)), [])
        batches.load_state_dict(batches.state_dict() | {"updates": 1, "samples": 17})
        self.assertEqual(next(batches.updates(batches)).number, 2)

    def test_audit_of_large_numbers(self):
        import gaccd.torch
        import torch
        self.assertIn("expected 10000000, found 9999999", str(gaccd.torch.AuditError("samples", 10_000_000, 9_999_999)))
        batches = gaccd.torch.ExactBatches(2, self.plan(1, 2, 2), 0, epochs=200_000_000)
        batches.done = 94_906_266  # the square of the next number is no float64
        model, rows = torch.nn.Linear(1, 1), torch.utils.data.TensorDataset(torch.zeros(2, 1))
        for update, _ in zip(batches.updates(torch.utils.data.DataLoader(rows, batch_sampler=batches)), range(2)):
            with gaccd.torch.accumulate(model, update) as window:
                for (x,) in window:
                    window.backward((model(x) ** 2).sum(1))
        self.assertEqual(batches.done, 94_906_268)

    def test_one_call_of_gaccd_covers_many_updates(self):
        plan = self.plan(2, 4, 10)
        whole = self.module.ExactBatches(100, plan, 1, epochs=3)
        calls, own = [], self.module.call
        self.module.CHUNK_UPDATES, before = 7, self.module.CHUNK_UPDATES
        self.module.call = lambda command: calls.append(command) or own(command)
        try:
            cut = self.module.ExactBatches(100, plan, 1, epochs=3)
            self.assertEqual(list(cut), list(whole))
            self.assertEqual(len(calls), 5)
            for update in cut.updates(cut):  # iterates and asks in turn
                self.assertEqual([tuple(one) for one in update.batches], list(whole.at(update.number).micro_batches))
                update.complete()
            self.assertLessEqual(len(calls), 10)
        finally:
            self.module.call, self.module.CHUNK_UPDATES = own, before


def python_with_torch():
    for python in (os.environ.get("GACCD_TORCH_PYTHON"), sys.executable, "/usr/bin/python3"):
        if python and subprocess.run([python, "-c", "import torch"], capture_output=True, check=False).returncode == 0:
            return python
    print("no Python with torch; GACCD_TORCH_PYTHON may name one, Debian's is python3-torch")
    sys.exit(SKIPPED)


if __name__ == "__main__":
    GACCD = os.path.abspath(sys.argv[1])
    if "GACCD_TORCH_FOUND" not in os.environ:
        python = python_with_torch()
        os.execve(python, [python, "-B", *sys.argv], os.environ | {"GACCD_TORCH_FOUND": "1"})
    unittest.main(argv=[sys.argv[0], *sys.argv[2:]])
