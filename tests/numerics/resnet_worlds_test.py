"""A ResNet-18 with batch norms over the whole update against PyTorch's one big batch in double precision:
resnet_worlds_test.py GACCD [RANKS..]

1 to 7 ranks with unequal loads, one of them without samples, in micro-batches of 1, 4, 7 and 13: the gradient of the
first update, and weights, running statistics and losses of 10 updates, with `precision: F64_SUMS` to 1e-6 of their
norms. In f32 the gradients of both gaccd and PyTorch are 2 to 4e-6 off. Needs a Python with torch, torchvision and safetensors:
sys.executable, or the one that GACCD_EXPORT_PYTHON names; else it is skipped: exit code 77.
"""
import copy
import json
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

from exporter import SKIPPED, open_exporter

SIDE, CLASSES, TARGET, UPDATES = 64, 10, 13, 10
MOST, OF_CHANGE = 1e-6, 1e-3  # the latter of what 10 updates add to the weights
RATE = 1e-5  # with larger ones, rounding takes inputs of a ReLU over 0, each of which is up to 1 % of a gradient
FAR = 1e4  # a rate with which an update leaves little but the gradient in the weights
JOB = """name: "resnet"
model {{ resnet {{ depth: 18 classes: {classes} }} loss {{ softmax_cross_entropy {{}} }} }}
data {{ train {{ npy {{ features: "images.npy" targets: "labels.npy" classes: {classes} }} }} shuffle: false }}
batch {{ target: {target} micro: {micro} }}
optimizer {{ lr: {rate} sgd {{}} }}
max_updates: {updates}
precision: {precision}
"""
# Ranks, samples of an update. 6 samples on 7 ranks: one has none.
WORLDS = [(1, TARGET), (2, TARGET), (3, TARGET), (4, TARGET), (5, TARGET), (6, TARGET), (7, 6)]


def relative(found, expected):
    """|found - expected| / |expected| of all tensors together."""
    squares = sum(float((found[name].double() - value).norm() ** 2) for name, value in expected.items())
    return (squares / sum(float(value.norm() ** 2) for value in expected.values())) ** 0.5


class Reference:
    """PyTorch in double precision, with updates of `target` samples. Weights are those of float32 after every update, as
    they are stored: of the weights of a batch norm, which are about 1, this rounds away a tenth or more of what 10 updates
    add."""

    def __init__(self, model, images, labels, target):
        model = copy.deepcopy(model).double().train()
        optimizer = torch.optim.SGD(model.parameters(), lr=RATE)
        self.losses = []
        for update in range(UPDATES):
            at = slice(update * target, (update + 1) * target)
            loss = torch.nn.functional.cross_entropy(model(images[at].double()), labels[at])
            optimizer.zero_grad()
            loss.backward()
            if update == 0:
                self.gradient = {name: one.grad.clone() for name, one in model.named_parameters()}
            optimizer.step()
            with torch.no_grad():
                for parameter in model.parameters():
                    parameter.copy_(parameter.float())
            self.losses.append(loss.item())
        self.weights = {name: one.detach() for name, one in model.named_parameters()}
        self.statistics = {name: one for name, one in model.named_buffers() if one.is_floating_point()}


class ResnetWorldsTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        torch.manual_seed(3)
        cls.model = torchvision.models.resnet18(num_classes=CLASSES)
        cls.images = torch.randn(UPDATES * TARGET, 3, SIDE, SIDE)
        cls.labels = torch.randint(CLASSES, (UPDATES * TARGET,))
        cls.references = {target: Reference(cls.model, cls.images, cls.labels, target)
                          for target in {target for _, target in WORLDS}}

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.dir = Path(folder.name)
        numpy.save(self.dir / "images.npy", self.images.numpy())
        numpy.save(self.dir / "labels.npy", self.labels.numpy())
        safetensors.torch.save_file(self.model.state_dict(), self.dir / "start")

    def train(self, ranks, **values):
        """The trained tensors, and the losses."""
        (self.dir / "job.txtpb").write_text(JOB.format(classes=CLASSES, **values))
        run = f"run-{len(list(self.dir.iterdir()))}"
        done = subprocess.run([GACCD, "train", "--job=job.txtpb", "--device=cpu", f"--local-ranks={ranks}", f"--run-dir={run}",
                               "--init-weights=start", f"--save-weights={run}/weights"],
                              cwd=self.dir, text=True, capture_output=True, timeout=300, check=False)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        (events,) = self.dir.glob(f"{run}/attempts/0*/events.jsonl")
        losses = [event["loss"] for event in map(json.loads, events.read_text().splitlines()) if event["ev"] == "step"]
        return safetensors.torch.load_file(self.dir / run / "weights"), losses

    def compare(self, ranks, target, micro, precision):
        """The largest of the differences."""
        reference, values = self.references[target], {"target": target, "micro": micro, "precision": precision}
        start = {name: one.detach().double() for name, one in self.model.named_parameters()}
        moved, _ = self.train(ranks, rate=FAR, updates=1, **values)
        gradient = {name: (one - moved[name].double()) / FAR for name, one in start.items()}
        trained, losses = self.train(ranks, rate=RATE, updates=UPDATES, **values)
        self.assertEqual(len(losses), UPDATES)
        found = {"gradient": relative(gradient, reference.gradient),
                 "weights": relative(trained, reference.weights),
                 "change of weights": relative({name: start[name] - trained[name].double() for name in start},
                                               {name: start[name] - reference.weights[name] for name in start}),
                 "statistics": relative(trained, reference.statistics),
                 "losses": max(abs(a - b) / b for a, b in zip(losses, reference.losses, strict=True))}
        print(f"{ranks} ranks, {target} samples, micro-batch {micro}, {precision}: "
              + ", ".join(f"{name} {value:.1e}" for name, value in found.items()), flush=True)
        return found

    def test_equals_one_big_batch(self):
        for ranks, target in WORLDS:
            if RANKS and str(ranks) not in RANKS:
                continue
            for micro in (1, 4, 7, 13):
                with self.subTest(ranks=ranks, micro=micro):
                    found = self.compare(ranks, target, micro, "F64_SUMS")
                    self.assertLessEqual(found.pop("change of weights"), OF_CHANGE)
                    self.assertLessEqual(max(found.values()), MOST)

    def test_f32_is_worse(self):
        """Otherwise this test would show nothing of the sums in f64."""
        self.assertGreater(self.compare(3, TARGET, 4, "F32")["gradient"], MOST)


if __name__ == "__main__":
    open_exporter(__doc__)
    import numpy
    import safetensors.torch
    import torch
    try:
        import torchvision
    except ImportError:
        print("skipped: torchvision is not installed")
        sys.exit(SKIPPED)
    GACCD, *RANKS = sys.argv[1:]
    unittest.main(argv=sys.argv[:1])
