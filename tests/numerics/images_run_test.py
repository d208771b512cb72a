"""Trainings on image files by the program itself: images_run_test.py GACCD MPIRUN

The images are those of tests/golden/pictures.
"""
import io
import json
import os
import re
import shutil
import struct
import sys
import tarfile
import tempfile
import unittest
import zlib
from pathlib import Path

from launch import mpirun, run

PICTURES = Path(__file__).resolve().parents[1] / "golden" / "pictures"
CLASSES = {"cat": ("420.jpg", "rgba.png", "lossless.webp", "la.png"),
           "dog": ("palette.png", "cmyk.jpg", "lossy.webp", "grey.jpg", "base.png")}
JOB = """
name: "pictures"
model { layer { name: "flatten" flatten {} } layer { name: "fc" linear { in: 192 out: 2 } }
        loss { softmax_cross_entropy {} } }
data {
  train { images { path: "train" classes: 2 size: 8 random_resized_crop {} horizontal_flip: 0.5
                   rand_augment { num_ops: 1 } color_jitter { brightness: 0.4 contrast: 0.4 saturation: 0.4 hue: 0.1 }
                   random_erasing { p: 0.25 } } }
  eval { images { path: "eval" classes: 2 size: 8 center_crop { resize: 9 } } }
  normalize { scale: 0.004 channel_mean: 0.5 channel_mean: 0.4 channel_mean: 0.3 }
}
batch { target: 5 micro: 2 } optimizer { lr: 0.05 sgd {} } epochs: 4
"""
# Groups of 3 of the 5 or 4 samples of an update.
MIXED = JOB.replace("  normalize", "  mixup { alpha: 0.8 } cutmix { alpha: 1 } mix_group: 3\n  normalize")


def gaccd(ranks, *args, code=0, cwd=None):
    return run(*(mpirun(MPIRUN, ranks) if ranks > 1 else []), GACCD, *args, cwd=cwd, code=code)


def read_png(path):
    """Height, width and bytes of an RGB image whose rows have no filter or any of the five."""
    data, at, body = path.read_bytes(), 8, b""
    while at < len(data):
        (length,) = struct.unpack(">I", data[at:at + 4])
        kind, content = data[at + 4:at + 8], data[at + 8:at + 8 + length]
        if kind == b"IHDR":
            width, height = struct.unpack(">II", content[:8])
        body += content if kind == b"IDAT" else b""
        at += 12 + length
    return height, width, zlib.decompress(body)


def pixels_of(path):
    """The bytes of an RGB image, without the filters of its rows."""
    height, width, data = read_png(path)
    rows, size = [bytes(3 * width)], 3 * width + 1
    for y in range(height):
        kind, row, above = data[y * size], bytearray(data[y * size + 1:(y + 1) * size]), rows[-1]
        for x, value in enumerate(row):
            left, corner = (row[x - 3], above[x - 3]) if x >= 3 else (0, 0)
            guess = left + above[x] - corner
            paeth = min((left, above[x], corner), key=lambda one: abs(guess - one))
            row[x] = (value + (0, left, above[x], (left + above[x]) // 2, paeth)[kind]) % 256
        rows.append(bytes(row))
    return b"".join(rows[1:])


class ImagesRunTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.dir = Path(folder.name)
        for use in ("train", "eval"):
            for name, files in CLASSES.items():
                (self.dir / use / name).mkdir(parents=True)
                for file in files:
                    shutil.copy(PICTURES / file, self.dir / use / name / f"of-{file}")
        (self.dir / "job.txtpb").write_text(JOB)

    def train(self, ranks, run, *args, code=0):
        return gaccd(ranks, "train", "--job=job.txtpb", f"--run-dir={run}", "--device=cpu", *args, code=code,
                     cwd=self.dir)

    def step_losses(self, run):
        lines = gaccd(1, "logs", run, "--events", cwd=self.dir).splitlines()
        return {event["step"]: event["loss"] for event in map(json.loads, lines) if event["ev"] == "step"}

    def losses(self, run):
        lines = gaccd(1, "logs", run, "--events", cwd=self.dir).splitlines()
        return [event["value"] for event in map(json.loads, lines)
                if event["ev"] == "eval" and event["metric"] == "loss"]

    def test_any_ranks_threads_and_a_restart_see_the_same_images(self):
        self.train(1, "one")
        expected = self.losses("one")
        self.assertEqual(len(expected), 4)
        self.train(3, "three", "--set", "data.train.images.threads=2")
        self.train(2, "stopped", "--epochs=2")
        self.train(3, "stopped")
        for run, epochs in (("three", 4), ("stopped", 2)):  # a run that continues evaluates its start again
            for a, b in zip(self.losses(run)[-epochs:], expected[-epochs:], strict=True):
                self.assertAlmostEqual(a, b, delta=2e-6)
        other = self.train(1, "seed", "--seed=2") and self.losses("seed")
        self.assertGreater(abs(other[-1] - expected[-1]), 1e-4)

    def test_any_ranks_micro_batches_and_a_restart_mix_the_same_samples(self):
        (self.dir / "job.txtpb").write_text(MIXED)
        self.train(1, "one", "--micro-batch=5")
        expected = self.step_losses("one")
        self.assertEqual(len(expected), 8)
        self.train(3, "three", "--micro-batch=1")
        self.train(2, "stopped", "--max-updates=3")  # in an epoch
        self.train(3, "stopped", "--set", "data.train.images.threads=2")
        for run in ("three", "stopped"):
            found = self.step_losses(run)
            self.assertEqual(sorted(found), sorted(expected))
            for step, loss in found.items():
                self.assertAlmostEqual(loss, expected[step], delta=2e-6)
        (self.dir / "job.txtpb").write_text(JOB)
        self.train(1, "plain")
        self.assertGreater(abs(self.step_losses("plain")[1] - expected[1]), 1e-4)

    def test_tar_files_are_the_same_data(self):
        self.train(1, "folders")
        files = sorted((self.dir / "train").glob("*/*"))
        for number, part in enumerate((files[:4], files[4:])):
            with tarfile.open(self.dir / f"train-{number}.tar", "w") as shard:
                for i, file in enumerate(part):
                    kind = {b"\xff\xd8": "jpg", b"\x89P": "png", b"RI": "webp"}[file.read_bytes()[:2]]
                    shard.add(file, f"{i}.{kind}")
                    label = tarfile.TarInfo(f"{i}.cls")
                    label.size = 1
                    shard.addfile(label, io.BytesIO(b"%d" % (file.parent.name == "dog")))
        (self.dir / "job.txtpb").write_text(JOB.replace('path: "train"', 'path: "train-*.tar"'))
        self.train(3, "shards")
        for a, b in zip(self.losses("shards"), self.losses("folders"), strict=True):
            self.assertAlmostEqual(a, b, delta=2e-6)
        said = gaccd(1, "data", "show", "--job=job.txtpb", "--sample=8", "--out=a.png", cwd=self.dir)
        self.assertRegex(said, r"sample 8 of 9: train-1.tar: 4.png, label 1\n")
        with tarfile.open(self.dir / "bare.tar", "w") as shard:
            shard.add(files[0], "a\x1b[2J.jpg")
        (self.dir / "bare.txtpb").write_text(JOB.replace('path: "train"', 'path: "bare.tar"'))
        said = gaccd(1, "data", "show", "--job=bare.txtpb", "--out=a.png", cwd=self.dir)
        self.assertIn(r"sample 0 of 1: bare.tar: a\x1b[2J.jpg, no label: bare.tar: a\x1b[2J.jpg: expected a label", said)
        os.truncate(self.dir / "train-1.tar", 3000)
        self.assertIn("train-1.tar: ", self.train(2, "short", code=65))

    def test_mixing_needs_features_with_classes(self):
        for change, words in ((("softmax_cross_entropy", "mean_squared_error"),
                               "data.cutmix: mixes class labels, expected model.loss softmax_cross_entropy, "
                               "found mean_squared_error"),
                              (("images { path: \"train\" classes: 2 size: 8 random_resized_crop {} horizontal_flip: 0.5",
                                "stream { path: \"x\" length: 4 vocabulary: 2 } } #"),
                               "data.cutmix: mixes features, expected data.train idx, npy, csv or images, found stream")):
            text = MIXED.replace(*change)
            if "stream" in text:  # the rest of the source, too
                text = text[:text.index("#")] + text[text.index("  eval {"):]
            (self.dir / "job.txtpb").write_text(text)
            self.assertIn(words, self.train(1, "run", code=78))

    def test_classes_keep_their_names(self):
        self.train(2, "run")
        gaccd(2, "predict", "--job=job.txtpb", "--weights=run", "--what=classes", "--out=c.jsonl", cwd=self.dir)
        for line in map(json.loads, (self.dir / "c.jsonl").read_text().splitlines()):
            self.assertEqual(line["name"], ["cat", "dog"][line["class"]])
        (self.dir / "eval/dog").rename(self.dir / "eval/bird")
        said = gaccd(1, "eval", "--job=job.txtpb", "--weights=run", code=65, cwd=self.dir)
        self.assertRegex(said, "class 0 is '(cat|bird)' in")

    def test_damaged_images(self):
        damaged = self.dir / "train/dog/of-cmyk.jpg"
        os.truncate(damaged, 400)
        said = self.train(2, "stop", code=65)
        self.assertIn("dog/of-cmyk.jpg: damaged JPEG image", said)
        self.train(2, "skip", "--on-bad-record=skip", "--bad-record-quota=1")
        self.assertEqual(len(self.losses("skip")), 4)
        # It is one of the samples that the ranks compare.
        said = self.train(2, "late", "--set", "data.train.images.decode_all=false", code=65)
        (line,) = [line for line in said.splitlines() if "dog/of-cmyk.jpg: damaged JPEG image" in line]
        self.assertNotIn("update", line)
        self.assertEqual([*(self.dir / "late/ckpt").glob("step-*")], [])

    def test_what_the_model_sees_is_shown(self):
        show = ["data", "show", "--job=job.txtpb", "--sample=8"]
        said = gaccd(1, *show, "--epoch=3", "--out=a.png", cwd=self.dir)
        self.assertRegex(said, r"sample 8 of 9: train/dog/of-palette.png, label 1\nepoch 3, seed 1: crop top \d+")
        self.assertRegex(said, r"flip (yes|no), [A-Z][A-Za-z]+( -?[\d.]+)?, ")
        for name in ("brightness", "contrast", "saturation", "hue"):
            self.assertRegex(said, rf", {name} -?\d\.\d")
        self.assertEqual(read_png(self.dir / "a.png")[:2], (8, 8))
        self.assertEqual(gaccd(1, *show, "--epoch=3", "--out=b.png", cwd=self.dir).replace("b.png", "a.png"), said)
        self.assertEqual(read_png(self.dir / "a.png"), read_png(self.dir / "b.png"))
        gaccd(1, *show, "--epoch=4", "--out=b.png", cwd=self.dir)
        self.assertNotEqual(read_png(self.dir / "a.png"), read_png(self.dir / "b.png"))
        own = self.dir / "train/dog/of-palette.png"
        before = own.read_bytes()
        self.assertIn("is not an image that gaccd wrote: it is not replaced",
                      gaccd(1, *show, f"--out={own}", code=74, cwd=self.dir))
        self.assertEqual(own.read_bytes(), before)
        self.assertIn("ends in .png, found 'a.jpg'", gaccd(1, *show, "--out=a.jpg", code=64, cwd=self.dir))
        self.assertIn("below the 9", gaccd(1, *show[:3], "--sample=9", code=64, cwd=self.dir))

    def test_a_mix_is_shown(self):
        kinds = set()
        for sample in range(9):
            show = ["data", "show", "--job=job.txtpb", "--epoch=2"]
            (self.dir / "job.txtpb").write_text(MIXED)
            said = gaccd(1, *show, f"--sample={sample}", "--out=mix.png", cwd=self.dir)
            found = re.search(r"update [34], place \d: (not mixed|lambda ([\d.e-]+), with sample (\d): train/)", said)
            self.assertTrue(found, said)
            mixed = pixels_of(self.dir / "mix.png")
            (self.dir / "job.txtpb").write_text(JOB)
            own, partner = (gaccd(1, *show, f"--sample={one}", "--out=one.png", cwd=self.dir) and
                            pixels_of(self.dir / "one.png") for one in (sample, found[3] or sample))
            box = re.search(r"box top (\d+) left (\d+) height (\d+) width (\d+)", said)
            kinds.add("none" if found[2] is None else "cutmix" if box else "mixup")
            share = float(found[2] or 1)
            for at, (value, a, b) in enumerate(zip(mixed, own, partner, strict=True)):
                y, x = at // 3 // 8, at // 3 % 8
                if box:
                    top, left, height, width = map(int, box.groups())
                    inside = top <= y < top + height and left <= x < left + width
                    self.assertEqual(value, b if inside else a)
                else:
                    self.assertAlmostEqual(value, share * a + (1 - share) * b, delta=1.01)
        self.assertIn("mixup", kinds)
        self.assertIn("cutmix", kinds)
        (self.dir / "job.txtpb").write_text(MIXED)
        self.assertIn("does not take sample 8 in epoch 5",
                      gaccd(1, *show, "--sample=8", "--epoch=5", code=64, cwd=self.dir))

    def test_what_cannot_be_is_named(self):
        for change, words in ((("size: 8 random_resized_crop {}", "size: 8 size: 8 size: 8"),
                               "data.train.images.size: expected one value, or height and width, found 3"),
                              (("random_resized_crop {}", "random_resized_crop { scale: 1 scale: 0.5 }"),
                               "random_resized_crop.scale: expected the least value first, found 1 and 0.5"),
                              (("center_crop { resize: 9 }", "horizontal_flip: 0.5"),
                               "data.eval.images: expected no random operation"),
                              (("num_ops: 1", "magnitude: 31"),
                               "rand_augment.magnitude: expected a number below the 31 bins, found 31"),
                              (("center_crop { resize: 9 }", "rand_augment {}"),
                               "data.eval.images: expected no random operation"),
                              (("size: 8 center", "size: 8 channels: 2 center"), "expected 1 or 3, found 2")):
            (self.dir / "job.txtpb").write_text(JOB.replace(*change))
            self.assertIn(words, self.train(1, "run", code=78))


if __name__ == "__main__":
    GACCD, MPIRUN = map(Path, sys.argv[1:3])
    unittest.main(argv=sys.argv[:1])
