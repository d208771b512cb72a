"""What timm and torchvision make of gaccd's weights, and gaccd of theirs: image_weights_test.py GACCD

Needs a Python with torch, torchvision, timm and safetensors (tried: 2.15, 0.29 and 1.0.31). It is sys.executable, or
the one that GACCD_TIMM_PYTHON names; without one the test is skipped: exit code 77.

  python3 -m venv V && V/bin/pip install torch torchvision timm
  GACCD_TIMM_PYTHON=$PWD/V/bin/python ctest -R image_weights_test
"""
import json
import os
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

SKIPPED = 77
SAMPLES, HELD_OUT, SIDE, CLASSES = 24, 9, 32, 7
JOB = """name: "images"
model {{ {model} loss {{ softmax_cross_entropy {{}} }} }}
data {{
  train {{ npy {{ features: "train.npy" targets: "labels.npy" classes: {classes} }} }}
  eval {{ npy {{ features: "eval.npy" targets: "eval_labels.npy" classes: {classes} }} }}
  shuffle: false
}}
batch {{ target: 12 micro: 5 }}
optimizer {{ lr: 0.001 adamw {{}} }}
max_updates: 5
epochs: 0
seed: 3
"""
VIT = ("vit {{ image_size: 32 patch_size: 8 width: 48 depth: 3 heads: 4 mlp_ratio: 3 classes: 7 pool: {pool} }}")


def make_vit(pool):
    return timm.models.VisionTransformer(img_size=SIDE, patch_size=8, embed_dim=48, depth=3, num_heads=4,
                                         mlp_ratio=3, num_classes=CLASSES, global_pool=pool)


MODELS = {  # of the job; and the same of the library
    "vit": (VIT.format(pool="TOKEN"), lambda: make_vit("token")),
    "vit_avg": (VIT.format(pool="AVG"), lambda: make_vit("avg")),
    "resnet18": (f"resnet {{ depth: 18 classes: {CLASSES} }}",
                 lambda: torchvision.models.resnet18(num_classes=CLASSES)),
}


class ImageWeightsTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.dir = Path(folder.name)
        random = numpy.random.default_rng(5)
        self.images = {}
        for name, labels, count in (("train", "labels", SAMPLES), ("eval", "eval_labels", HELD_OUT)):
            images = random.standard_normal((count, 3, SIDE, SIDE)).astype("float32")
            self.images[name] = torch.from_numpy(images)
            self.images[labels] = torch.from_numpy(random.integers(CLASSES, size=count))
            numpy.save(self.dir / f"{name}.npy", images)
            numpy.save(self.dir / f"{labels}.npy", self.images[labels].numpy())

    def gaccd(self, *args):
        done = subprocess.run([GACCD, *map(str, args)], cwd=self.dir, text=True, capture_output=True,
                              timeout=120, check=False)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        return done.stdout

    def assert_same_logits(self, model, weights):
        self.gaccd("predict", "--job=job.txtpb", f"--weights={weights}", "--device=cpu", "--out=logits.npy")
        expected = numpy.load(self.dir / "logits.npy")
        with torch.no_grad():
            found = model.eval()(self.images["eval"]).numpy()
        self.assertEqual(found.shape, (HELD_OUT, CLASSES))
        self.assertGreater(found.std(axis=0).min(), 1e-3)  # images have different answers
        difference = abs(found - expected).max()
        print(f"{self.id().split('.')[-1]}: logits differ by {difference:.1e}, up to {abs(found).max():.2g}")
        self.assertLessEqual(difference, 1e-5)

    def job_of(self, name):
        text, make = MODELS[name]
        (self.dir / "job.txtpb").write_text(JOB.format(model=text, classes=CLASSES))
        torch.manual_seed(1)
        return make()

    def opens(self, name):
        """The weights of a run of a few updates."""
        model = self.job_of(name)
        self.gaccd("train", "--job=job.txtpb", "--run-dir=run", "--device=cpu")
        self.gaccd("ckpt", "export", "run", "--out=exported")
        model.load_state_dict(safetensors.torch.load_file(self.dir / "exported"), strict=True)
        self.assert_same_logits(model, "run")

    def starts(self, name):
        """A run from the library's weights, with statistics of a training: its first loss is the library's."""
        model = self.job_of(name).train()
        with torch.no_grad():
            for parameter in model.parameters():
                parameter += 0.02 * torch.randn_like(parameter)
            model(self.images["train"])
        safetensors.torch.save_file(model.state_dict(), self.dir / "weights.safetensors")
        self.assert_same_logits(model, "weights.safetensors")
        self.gaccd("train", "--job=job.txtpb", "--run-dir=run", "--device=cpu", "--max-updates=1",
                   "--init-weights=weights.safetensors")
        (events,) = self.dir.glob("run/attempts/0*/events.jsonl")
        (found,) = (event["loss"] for event in map(json.loads, events.read_text().splitlines())
                    if event["ev"] == "step")
        logits = model.train()(self.images["train"][:12])
        expected = torch.nn.functional.cross_entropy(logits, self.images["labels"][:12]).item()
        self.assertLessEqual(abs(found - expected), 1e-5 * abs(expected))

    def test_vit_opens(self):
        self.opens("vit")

    def test_vit_of_averaged_patches_opens(self):
        self.opens("vit_avg")

    def test_resnet_opens(self):
        self.opens("resnet18")

    def test_vit_starts(self):
        self.starts("vit")

    def test_vit_of_averaged_patches_starts(self):
        self.starts("vit_avg")

    def test_resnet_starts(self):
        self.starts("resnet18")


if __name__ == "__main__":
    own = os.environ.get("GACCD_TIMM_PYTHON")
    if own and "GACCD_TIMM_OPENED" not in os.environ:
        os.environ["GACCD_TIMM_OPENED"] = "1"
        os.execv(own, [own, "-B", *sys.argv])
    try:
        import numpy
        import safetensors.torch
        import timm
        import torch
        import torchvision
    except ImportError as missing:
        print(f"skipped: {missing}; {__doc__}")
        sys.exit(SKIPPED)
    torch.set_num_threads(1)
    GACCD = sys.argv[1]
    unittest.main(argv=sys.argv[:1])
