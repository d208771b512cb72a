"""gaccd eval as users run it, on 1 to 9 ranks: infer_test.py GACCD MPIRUN

Weights and data are those of tests/golden/models (make_models.py). An evaluation of what a training
left must be that training's own, to the last digit.
"""
import json
import os
import re
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

MODELS = Path(__file__).resolve().parents[1] / "golden" / "models"
LAUNCHER_VARIABLES = ("SLURM_", "OMPI_", "PMIX_", "PMI_")
WORLDS = (1, 2, 3, 7, 9)  # of 7 samples, so that the last one has ranks without any


def gaccd(ranks, *args, code=0):
    env = {k: v for k, v in os.environ.items() if not k.startswith(LAUNCHER_VARIABLES)}
    command = [GACCD, *args]
    if ranks > 1:
        command = [MPIRUN, "--allow-run-as-root", "--oversubscribe", "--bind-to", "none", "--mca",
                   "mpi_yield_when_idle", "1", "-n", str(ranks), *command]
    done = subprocess.run([str(word) for word in command], cwd=MODELS, env=env, text=True,
                          capture_output=True, timeout=60, check=False)
    assert done.returncode == code, (done.returncode, done.stdout, done.stderr)
    return done.stdout if code == 0 else done.stderr


def evaluate(ranks, job, weights, *args):
    (line,) = gaccd(ranks, "eval", f"--job={job}", f"--weights={weights}", "--device=cpu",
                    "--format=json", *args).splitlines()
    found = json.loads(line)
    assert found.pop("world") == ranks
    assert found.pop("dur_s") >= 0
    return found


class InferTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.dir = Path(folder.name)

    def job(self, name, **changes):
        """A job of the golden models that takes its data from there, and has other metrics."""
        text = (MODELS / f"{name}.txtpb").read_text()
        for old, new in changes.items():
            text, count = re.subn(rf"\b{old}: \S+", f"{old}: {new}", text)
            self.assertGreater(count, 0, old)
        path = self.dir / "job.txtpb"
        path.write_text(text + "metric { accuracy {} } metric { f1_macro {} } metric { matthews {} }\n")
        return path

    def test_an_evaluation_is_that_of_the_training(self):
        for ranks, models in ((1, ["gpt_weighted"]), (3, ["bert_mini", "gpt_weighted", "bert_weighted"]),
                              (9, ["bert_mini"])):
            for model in models:
                with self.subTest(ranks=ranks, model=model):
                    job, run = self.job(model), self.dir / f"{model}-{ranks}"
                    gaccd(ranks, "train", f"--job={job}", f"--run-dir={run}", "--device=cpu",
                          f"--save-weights={self.dir}/weights")
                    events = [json.loads(line) for path in run.glob("attempts/0*/events.jsonl")
                              for line in path.read_text().splitlines()]
                    last = max(e["step"] for e in events if e["ev"] == "eval")
                    trained = {e["metric"]: e["value"] for e in events
                               if e["ev"] == "eval" and e["step"] == last}
                    (checkpoint,) = run.glob(f"ckpt/step-{last:012}-*")
                    before = sorted(str(p) for p in self.dir.rglob("*"))
                    for weights in (self.dir / "weights", run, checkpoint):
                        found = evaluate(ranks, job, weights)
                        self.assertEqual({key: found[key] for key in trained}, trained)
                        self.assertEqual(found.get("step"),
                                         None if weights.is_file() else last)
                    self.assertEqual(sorted(str(p) for p in self.dir.rglob("*")), before,
                                     "it writes nothing")

    def test_any_number_of_ranks_finds_the_same(self):
        for model, micro in (("bert_mini", 2), ("gpt_weighted", 1)):
            job = self.job(model, micro=micro)
            weights = model.split("_")[0] + "_mini.trained"
            alone = evaluate(1, job, weights)
            self.assertEqual(alone["samples"], 7)
            for ranks in WORLDS[1:]:
                with self.subTest(model=model, ranks=ranks):
                    found = evaluate(ranks, job, weights)
                    self.assertAlmostEqual(found.pop("loss"), alone["loss"], delta=1e-7)
                    self.assertEqual(found, {k: v for k, v in alone.items() if k != "loss"})

    def test_it_finds_what_pytorch_finds(self):
        last = [line.split() for line in (MODELS / "bert_mini.txt").read_text().splitlines()
                if line.startswith("eval ")][-1]
        found = evaluate(2, self.job("bert_mini"), "bert_mini.trained")
        self.assertAlmostEqual(found["loss"], float(last[4]), delta=4e-6)
        self.assertAlmostEqual(found["accuracy"], float(last[5]), delta=1e-11)
        said = gaccd(2, "eval", f"--job={self.job('bert_mini')}", "--weights=bert_mini.trained",
                     "--device=cpu")
        self.assertIn("weights bert_mini.trained: 41 of 41 parameters are loaded\n", said)
        self.assertIn(f"\neval: accuracy is {float(last[5]):.4f}, ", said)

    def test_what_does_not_fit_is_named(self):
        def refused(code, part, job, *args, weights="bert_mini.init"):
            said = gaccd(1, "eval", f"--job={job}", f"--weights={weights}", *args, code=code)
            self.assertIn(part, said)
        refused(65, "bert_mini.init: weights of another model: classifier.weight: expected shape "
                "[4, 12], found [3, 12], classifier.bias: expected shape [4], found [3]",
                self.job("bert_mini", classes=4))
        refused(65, "bert.embeddings.word_embeddings.weight: expected shape [24, 12], found [23, 12]",
                self.job("bert_mini", vocabulary=24))
        refused(65, "no tensor for 41 of 41 parameters: bert.embeddings.", self.job("bert_mini"),
                weights="gpt_mini.init")
        refused(65, "and 25 more", self.job("bert_mini"), weights="gpt_mini.init")
        said = gaccd(1, "eval", f"--job={self.job('bert_mini', classes=4)}",
                     "--weights=bert_mini.init", "--new-weights=classifier.*")
        self.assertIn("39 of 41 parameters are loaded; newly initialised: classifier.weight [4, 12], "
                      "classifier.bias [4]; not used: classifier.weight, classifier.bias\n", said)
        # As many parameters of the same shapes, in other heads.
        run = self.dir / "run"
        gaccd(1, "train", f"--job={self.job('bert_mini')}", f"--run-dir={run}", "--max-updates=1")
        refused(78, "model.bert.heads: 3 -> 2", self.job("bert_mini", heads=2), weights=run)
        refused(64, "--weights", self.job("bert_mini"), weights="")


if __name__ == "__main__":
    GACCD, MPIRUN = sys.argv[1:3]
    unittest.main(argv=sys.argv[:1])
