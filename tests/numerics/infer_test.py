"""gaccd eval and gaccd predict as users run them, on 1 to 9 ranks: infer_test.py GACCD MPIRUN

Weights and data are those of tests/golden/models (make_models.py). An evaluation of what a training
left must be that training's own, to the last digit; logits and embeddings are Hugging Face's.
"""
import hashlib
import json
import re
import shutil
import struct
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

from launch import mpirun, run

MODELS = Path(__file__).resolve().parents[1] / "golden" / "models"
WORLDS = (1, 2, 3, 7, 9)  # of 7 samples, so that the last one has ranks without any
TRAIN_DATA = [f"--set=data.eval.tokens.{name}=bert_{name}.npy"
              for name in ("tokens", "lengths", "segments", "labels")]


def gaccd(ranks, *args, code=0, cwd=MODELS):
    return run(*(mpirun(MPIRUN, ranks) if ranks > 1 else []), GACCD, *args, cwd=cwd, code=code)


def evaluate(ranks, job, weights, *args):
    (line,) = gaccd(ranks, "eval", f"--job={job}", f"--weights={weights}", "--device=cpu",
                    "--format=json", *args).splitlines()
    found = json.loads(line)
    assert found.pop("world") == ranks
    assert found.pop("dur_s") >= 0
    return found


def read_npy(path):
    data = Path(path).read_bytes()
    assert data[:8] == b"\x93NUMPY\x01\x00"
    (length,) = struct.unpack("<H", data[8:10])
    assert (10 + length) % 64 == 0
    header = eval(data[10:10 + length], {"False": False})  # noqa: S307: a dictionary of our own
    kind = {"<f4": "f", "<i4": "i"}[header["descr"]]
    values = struct.unpack(f"<{(len(data) - 10 - length) // 4}{kind}", data[10 + length:])
    assert header["fortran_order"] is False
    return header["shape"], values


def read_safetensors(path):
    data = Path(path).read_bytes()
    (length,) = struct.unpack("<Q", data[:8])
    header = json.loads(data[8:8 + length])
    header.pop("__metadata__", None)
    body = data[8 + length:]
    return {name: struct.unpack(f"<{(e['data_offsets'][1] - e['data_offsets'][0]) // 4}f",
                                body[slice(*e["data_offsets"])])
            for name, e in header.items()}


def golden_errors(name):
    words = [line.split() for line in (MODELS / name).read_text().splitlines()]
    return {word[1]: float(word[2]) for word in words if word[0] == "error"}


def rms(found, expected):
    squares = [(a - b) ** 2 for a, b in zip(found, expected, strict=True)]
    return (sum(squares) / len(squares)) ** 0.5


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

    def predict(self, ranks, job, *args, out="out.npy", weights="bert_mini.init"):
        path = self.dir / out
        said = gaccd(ranks, "predict", f"--job={job}", f"--weights={weights}", "--device=cpu",
                     f"--out={path}", *args)
        self.assertIn(f"wrote {path}: ", said)
        self.assertEqual([p.name for p in self.dir.iterdir() if ".tmp" in p.name], [])
        return read_npy(path) if out.endswith(".npy") else path.read_text().splitlines()

    def test_an_evaluation_is_that_of_the_training(self):
        for ranks, models in ((1, ["gpt_weighted"]), (3, ["bert_mini", "gpt_weighted", "bert_weighted", "masked_mini"]),
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

    def test_the_averaged_weights_are_those_of_the_last_evaluation(self):
        job, run = self.job("bert_mini", lr=0.05), self.dir / "run"
        gaccd(2, "train", f"--job={job}", f"--run-dir={run}", "--device=cpu",
              "--set=optimizer.ema.decay=0.75", f"--save-weights={self.dir}/saved")
        events = [json.loads(line) for path in run.glob("attempts/0*/events.jsonl")
                  for line in path.read_text().splitlines()]
        self.assertEqual([e["ema_decay"] for e in events if e["ev"] == "run_start"], [0.75])
        trained = [e["value"] for e in events if e["ev"] == "eval" and e["metric"] == "loss"][-1]
        for out, more in (("averaged", []), ("raw", ["--raw-weights"])):
            gaccd(1, "ckpt", "export", run, f"--out={self.dir}/{out}", *more)
        for weights in (run, self.dir / "saved", self.dir / "averaged"):
            self.assertEqual(evaluate(2, job, weights)["loss"], trained)
        raw = evaluate(2, job, run, "--raw-weights")["loss"]
        self.assertNotEqual(raw, trained)
        self.assertEqual(evaluate(2, job, self.dir / "raw")["loss"], raw)
        self.assertIn("--weights must be a run folder or a checkpoint", gaccd(
            1, "eval", f"--job={job}", f"--weights={self.dir}/raw", "--raw-weights", code=64))

    def test_another_normalisation_than_that_of_the_training_is_reported(self):
        job, run = self.dir / "n.txtpb", self.dir / "run"
        job.write_text("""name: "n" model { mlp { widths: [10, 1] } loss { mean_squared_error {} } }
            data { train { synthetic { samples: 20 } } eval { synthetic { samples: 20 } } normalize { mean: 3 } }
            batch { target: 10 } optimizer { lr: 0.1 sgd {} }""")
        gaccd(1, "train", f"--job={job}", f"--run-dir={run}", "--device=cpu")
        for mean, says in ((3, False), (4, True)):
            done = subprocess.run(
                [GACCD, "eval", f"--job={job}", f"--weights={run}", "--device=cpu",
                 f"--set=data.normalize.mean={mean}"], capture_output=True, text=True, check=True)
            self.assertEqual("trained with scale 1, mean 3, std 1, this job has scale 1, mean 4, std 1"
                             in done.stderr, says, done.stderr)

    def test_integers_are_not_read_as_the_floats_of_the_training(self):
        """0 to 255 and 0 to 1, most likely, which one normalisation cannot fit."""
        def array(name, kind, values):
            header = f"{{'descr': '{kind}', 'fortran_order': False, 'shape': (8, 2), }}".ljust(117) + "\n"
            (self.dir / name).write_bytes(
                b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header.encode() + values)
            return self.dir / name

        floats = array("floats.npy", "<f4", struct.pack("<16f", *(n / 16 for n in range(16))))
        integers = array("integers.npy", "|u1", bytes(range(0, 160, 10)))
        job = self.dir / "f.txtpb"
        source = f'npy {{ features: "{floats}" targets: "{floats}" }}'
        job.write_text(f"""name: "f" model {{ mlp {{ widths: [2, 2] }} loss {{ mean_squared_error {{}} }} }}
            data {{ train {{ {source} }} eval {{ {source} }} }}
            batch {{ target: 4 }} optimizer {{ lr: 0.1 sgd {{}} }} epochs: 1""")
        run, saved, exported = self.dir / "run", self.dir / "saved", self.dir / "exported"
        gaccd(1, "train", f"--job={job}", f"--run-dir={run}", f"--save-weights={saved}", "--device=cpu")
        gaccd(1, "ckpt", "export", run, f"--out={exported}")
        other = f"--set=data.eval.npy.features={integers}"
        for weights in (run, saved, exported):
            evaluate(1, job, weights)
            command = ["eval", f"--job={job}", f"--weights={weights}", "--device=cpu", other]
            said = gaccd(1, *command, code=65)
            self.assertIn("expected features stored as floats, as in the training data of", said)
            gaccd(1, *command, "--set=data.normalize.scale=0.00392156862745098")
        train = ["train", f"--job={job}", "--device=cpu", other, f"--set=data.train.npy.features={integers}"]
        done = subprocess.run([GACCD, *train, f"--init-weights={saved}"], capture_output=True, text=True, check=True)
        self.assertIn("expected features stored as floats", done.stderr)
        self.assertIn("as in data.integer_features of the job, found integers",
                      gaccd(1, *train, "--set=data.integer_features=false", code=65))

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

    def test_logits_are_those_of_hugging_face(self):
        golden = read_safetensors(MODELS / "bert_mini.first")["logits"]
        allowed = 4 * golden_errors("bert_mini.txt")["logits"]
        for ranks in (1, 3):
            shape, rows = self.predict(ranks, self.job("bert_mini", micro=4), *TRAIN_DATA)
            self.assertEqual(shape, (31, 3))
            self.assertLessEqual(rms(rows[:len(golden)], golden), allowed)
        shape, classes = self.predict(7, self.job("bert_mini"), *TRAIN_DATA, "--what=classes")
        self.assertEqual(shape, (31,))
        expected = [max(range(3), key=rows[i:i + 3].__getitem__) for i in range(0, len(rows), 3)]
        self.assertEqual(list(classes), expected)
        self.assertGreater(len(set(classes)), 1)

    def test_rows_are_in_order_on_any_number_of_ranks(self):
        _, alone = self.predict(1, self.job("bert_mini", micro=2))
        for ranks in WORLDS[1:]:
            with self.subTest(ranks=ranks):
                shape, rows = self.predict(ranks, self.job("bert_mini", micro=2))
                self.assertEqual(shape, (7, 3))
                self.assertLessEqual(max(abs(a - b) for a, b in zip(rows, alone, strict=True)), 1e-6)

    def test_logits_of_tokens(self):
        golden = read_safetensors(MODELS / "gpt_mini.first")["logits"]
        data = [f"--set=data.eval.tokens.{name}=gpt_{name}.npy" for name in ("tokens", "labels")]
        shape, rows = self.predict(3, self.job("gpt_mini"), *data, weights="gpt_mini.init")
        self.assertEqual(shape, (31, 10, 23))
        self.assertLessEqual(rms(rows[:len(golden)], golden),
                             4 * golden_errors("gpt_mini.txt")["logits"])
        shape, classes = self.predict(2, self.job("gpt_mini"), *data, "--what=classes",
                                      weights="gpt_mini.init")
        self.assertEqual((shape, len(classes)), ((31, 10), 310))

    def test_embeddings_are_those_of_sentence_transformers(self):
        golden = read_safetensors(MODELS / "bert_mini.embeddings")["embeddings"]
        for ranks in (1, 3):
            shape, rows = self.predict(ranks, self.job("bert_mini"), *TRAIN_DATA, "--what=embeddings")
            self.assertEqual(shape, (31, 12))
            self.assertLessEqual(max(abs(a - b) for a, b in zip(rows, golden, strict=True)), 2e-6)
        self.assertIn("has no embeddings", gaccd(
            1, "predict", f"--job={self.job('gpt_mini')}", "--weights=gpt_mini.init",
            f"--out={self.dir}/x.npy", "--what=embeddings", code=78))

    def test_the_data_are_not_replaced(self):
        tokens = self.dir / "tokens-0.npy"
        tokens.write_bytes((MODELS / "bert_tokens.npy").read_bytes())
        said = gaccd(2, "predict", f"--job={self.job('bert_mini')}", "--weights=bert_mini.init", "--device=cpu",
                     *TRAIN_DATA, f"--set=data.eval.tokens.tokens={self.dir}/./tokens-0.npy", f"--out={tokens}", code=64)
        self.assertIn("tokens-0.npy' is a file of the job's data", said)
        self.assertEqual(tokens.read_bytes(), (MODELS / "bert_tokens.npy").read_bytes())

    def test_lines_have_the_values_of_the_array(self):
        _, rows = self.predict(1, self.job("bert_mini"), *TRAIN_DATA)
        lines = self.predict(3, self.job("bert_mini"), *TRAIN_DATA, out="out.jsonl")
        self.assertEqual(len(lines), 31)
        for i, line in enumerate(lines):
            sample = json.loads(line)
            self.assertEqual(list(sample), ["sample", "logits"])
            self.assertEqual(sample["sample"], i)
            for a, b in zip(sample["logits"], rows[3 * i:3 * i + 3], strict=True):
                self.assertAlmostEqual(a, b, delta=1e-6)
        lines = self.predict(2, self.job("bert_mini"), *TRAIN_DATA, "--what=classes", out="c.jsonl")
        self.assertRegex(lines[30], r'^{"sample":30,"class":[012]}$')

    def test_predictions_need_no_labels(self):
        job, bare = self.job("bert_mini"), self.dir / "bare.txtpb"
        text, count = re.subn(r'labels: "eval_bert_labels.npy" classes: 3 ', "", job.read_text())
        self.assertEqual(count, 1)
        bare.write_text(text)
        for ranks in (1, 3):
            self.assertEqual(self.predict(ranks, bare), self.predict(ranks, job))
        said = gaccd(1, "eval", f"--job={bare}", "--weights=bert_mini.init", code=78)
        self.assertIn("data.eval has no labels", said)

    def test_texts_have_the_lengths_and_segments_of_the_training(self):
        text, bare = self.job("bert_mini").read_text(), self.dir / "bare.txtpb"
        for name in ("lengths", "segments"):
            without, count = re.subn(rf'{name}: "eval_bert_{name}.npy"', "", text)
            self.assertEqual(count, 1)
            bare.write_text(without)
            for verb in (["eval"], ["predict", f"--out={self.dir}/out.npy"]):
                said = gaccd(1, *verb, f"--job={bare}", "--weights=bert_mini.init", code=78)
                self.assertIn(f"data.eval.tokens.{name}: expected an array, as in data.train, found none", said)

    def test_classes_have_the_names_of_the_weights(self):
        job = self.dir / "job.txtpb"
        (self.dir / "t.csv").write_text("".join(f"{x % 5},{x % 3},{x % 2}\n" for x in range(16)))
        names = 'class_name: "no" class_name: "yes" '
        text = f"""name: "named"
            model {{ layer {{ name: "l" linear {{ in: 2 out: 2 }} }} loss {{ softmax_cross_entropy {{}} }} }}
            data {{ train {{ csv {{ path: "t.csv" classes: 2 }} }} eval {{ csv {{ path: "t.csv" classes: 2 }} }} {names} }}
            batch {{ target: 8 micro: 8 }} optimizer {{ lr: 0.5 sgd {{}} }} epochs: 1"""
        job.write_text(text)
        gaccd(1, "train", f"--job={job}", f"--run-dir={self.dir}/run", "--device=cpu", f"--save-weights={self.dir}/w")
        lines = self.predict(1, job, "--what=classes", out="c.jsonl", weights=self.dir / "run")
        self.assertRegex(lines[0], '"name":"(no|yes)"}$')
        job.write_text(text.replace(names, ""))
        for weights in ("run", "w"):
            self.assertEqual(self.predict(2, job, "--what=classes", out="c.jsonl", weights=self.dir / weights), lines)

    def test_whole_numbers_that_are_rounded_are_reported(self):
        (self.dir / "t.csv").write_text("a,label\n1,0\n16777217,1\n")
        (self.dir / "job.txtpb").write_text("""name: "rounded"
            model { layer { name: "l" linear { in: 1 out: 1 } } loss { mean_squared_error {} } }
            data { train { csv { path: "t.csv" } } eval { csv { path: "t.csv" } } }
            batch { target: 2 micro: 2 } optimizer { lr: 1e-30 sgd {} } epochs: 1""")
        common = [f"--job={self.dir}/job.txtpb", "--device=cpu"]
        gaccd(1, "train", *common, f"--save-weights={self.dir}/w")
        for verb in (["eval"], ["predict", f"--out={self.dir}/out.npy"]):
            self.assertIn("16777217 in line 3, column 1 -> 16777216 in f32",
                          gaccd(1, *verb, *common, f"--weights={self.dir}/w"))

    def test_a_damaged_sample_is_left_out_of_an_evaluation_alone(self):
        labels = bytearray((MODELS / "eval_bert_labels.npy").read_bytes())
        size = (len(labels) - 10 - struct.unpack("<H", labels[8:10])[0]) // 7
        labels[-size] = 99  # of the last one; there are 3 classes
        (self.dir / "labels.npy").write_bytes(labels)
        (self.dir / "shared.flags").write_text("--on-bad-record=skip\n--bad-record-quota=1\n")
        common = [f"--flagfile={self.dir}/shared.flags", f"--set=data.eval.tokens.labels={self.dir}/labels.npy"]
        self.assertEqual(evaluate(2, self.job("bert_mini"), "bert_mini.trained", *common)["samples"], 6)
        said = gaccd(2, "predict", f"--job={self.job('bert_mini')}", "--weights=bert_mini.init", "--device=cpu",
                     f"--out={self.dir}/out.npy", *common, code=65)
        self.assertIn("labels.npy: expected labels in [0, 3), found 99 for sample 6", said)
        self.assertFalse((self.dir / "out.npy").exists())

    def test_weights_and_data_have_one_vocabulary(self):
        for name, vocabulary in (("data", {"the": 1, "and": 0}), ("weights", {"the": 0, "and": 1})):
            (self.dir / name).mkdir()
            (self.dir / name / "tokenizer.json").write_text(json.dumps({"model": {"vocab": vocabulary}}))
        tokens = shutil.copy(MODELS / "eval_bert_tokens.npy", self.dir / "data")
        weights = shutil.copy(MODELS / "bert_mini.init", self.dir / "weights")
        common = [f"--job={self.job('bert_mini')}", f"--set=data.eval.tokens.tokens={tokens}"]
        for ranks, verb in ((1, ["eval", f"--weights={weights}"]),
                            (2, ["train", f"--init-weights={weights}"])):
            said = gaccd(ranks, *verb, *common, code=65)
            self.assertIn("weights/tokenizer.json' than in '", said)
            self.assertIn("data/tokenizer.json': expected 'and' as 0, found 1", said)
        (self.dir / "weights" / "tokenizer.json").unlink()
        gaccd(1, "eval", f"--weights={weights}", *common)

    def prepared(self, name, classes=None, **done):
        """A folder with the job and data of bert_mini, and a data.json as tools/prepare makes one."""
        folder = self.dir / name
        folder.mkdir()
        arrays = {path.name: {"file": shutil.copy(path, folder) and path.name}
                  for path in MODELS.glob("*bert_*.npy")}
        shutil.copy(MODELS / "bert_mini.txtpb", folder / "job.txtpb")
        (folder / "data.json").write_text(json.dumps(
            {"v": 1, "classes": classes or [], "train": {"arrays": arrays}, **done}))
        return folder

    def test_a_number_is_the_same_class_in_data_and_weights(self):
        def gaccd_here(*args, **options):  # where no file has the name of one of the data
            return gaccd(*args, cwd=self.dir, **options)
        data = self.prepared("data", ["bad", "fair", "good"])
        few = self.prepared("few", ["bad", "fair"])
        other = self.prepared("other", ["good", "fair", "bad"])
        run, weights = self.dir / "run", self.dir / "weights"
        train = ["train", "--device=cpu", "--max-updates=1"]
        gaccd_here(2, *train, f"--job={data}/job.txtpb", f"--run-dir={run}", f"--save-weights={weights}")
        exported = self.dir / "exported"
        gaccd_here(1, "ckpt", "export", run, f"--out={exported}")
        files = {kind: f"--set=data.eval.tokens.{kind}={other}/eval_bert_{kind}.npy"
                 for kind in ("tokens", "lengths", "segments", "labels")}
        names = "class 0 is 'bad' in "
        for found in (run, weights, exported):
            for verb in (["eval"], ["predict", f"--out={self.dir}/x.npy"]):
                for folder in (data, few):
                    gaccd_here(1, *verb, f"--job={folder}/job.txtpb", f"--weights={found}")
                said = gaccd_here(2, *verb, f"--job={other}/job.txtpb", f"--weights={found}", code=65)
                self.assertIn(names, said)
                self.assertIn(f"and 'good' in {other}/data.json", said)
        # The data of training and evaluation, and a start from weights.
        self.assertIn(names, gaccd_here(1, "eval", f"--job={data}/job.txtpb", f"--weights={weights}",
                                   *files.values(), code=65))
        self.assertIn(names, gaccd_here(2, *train, f"--job={data}/job.txtpb", *files.values(), code=65))
        start = [*train, f"--job={other}/job.txtpb", f"--init-weights={weights}"]
        self.assertIn(names, gaccd_here(2, *start, code=65))
        gaccd_here(2, *start, "--new-weights=classifier.*")

    def test_a_name_is_the_same_column_in_data_and_weights(self):
        rows = [(x / 7 % 1, x / 3 % 1, int(x / 7 % 1 > 0.5)) for x in range(64)]
        places = {"age": 0, "height": 1, "kind": 2}
        job = self.dir / "job.txtpb"
        job.write_text("""name: "columns"
            model { layer { name: "l" linear { in: 2 out: 2 } } loss { softmax_cross_entropy {} } }
            data { train { csv { path: "train.csv" classes: 2 } } eval { csv { path: "train.csv" classes: 2 } } }
            batch { target: 8 micro: 8 } optimizer { lr: 0.5 sgd {} } epochs: 2""")

        def table(name, heading):
            lines = [heading] + [",".join(str(row[places[column.strip('"')]]) for column in heading.split(","))
                                 for row in rows]
            (self.dir / name).write_text("\n".join(lines))

        def found(weights, data):
            return evaluate(1, job, self.dir / weights, f"--set=data.eval.csv.path={self.dir}/{data}")["loss"]

        table("train.csv", "age,height,kind")
        table("other.csv", '"kind",height,age')
        table("swapped.csv", "height,age,kind")
        (self.dir / "wrong.csv").write_text("age,weight,kind\n1,2,0\n")
        gaccd(1, "train", f"--job={job}", f"--run-dir={self.dir}/run", "--device=cpu", f"--save-weights={self.dir}/w")
        gaccd(1, "ckpt", "export", self.dir / "run", f"--out={self.dir}/exported")
        for weights in ("run", "w", "exported"):
            self.assertEqual(found(weights, "other.csv"), found(weights, "train.csv"))
            said = gaccd(1, "eval", f"--job={job}", f"--weights={self.dir / weights}", "--device=cpu",
                         f"--set=data.eval.csv.path={self.dir}/wrong.csv", code=65)
            self.assertIn("expected the columns 'age', 'height', 'kind' in any order, found 'age', 'weight'", said)
        rows_of = [self.predict(ranks, job, f"--set=data.eval.csv.path={self.dir}/{data}", weights=self.dir / "run")
                   for ranks, data in ((1, "train.csv"), (2, "other.csv"))]
        self.assertEqual(*rows_of)
        more = ["--device=cpu", f"--init-weights={self.dir}/w", f"--set=data.train.csv.path={self.dir}/swapped.csv"]
        self.assertIn("'age', 'height', 'kind' in", gaccd(1, "train", f"--job={job}", *more, code=65))
        job.write_text(job.read_text().replace("data {", 'data { column_name: ["age", "height", "kind"]'))
        gaccd(1, "train", f"--job={job}", *more)

    def test_an_export_has_the_tokenizer_of_its_training_from_anywhere(self):
        vocabulary = {"[PAD]": 0, "[UNK]": 1, "[CLS]": 2, "[SEP]": 3}
        text = json.dumps({"model": {"vocab": vocabulary}, "truncation": {"max_length": 7}, "post_processor": {},
                           "added_tokens": [{"id": i, "content": word} for word, i in vocabulary.items()]})
        done = {"for": "bert", "tokenizer_sha256": hashlib.sha256(text.encode()).hexdigest()}
        data = self.prepared("data", ["bad", "fair", "good"], **done)
        (data / "tokenizer.json").write_text(text)
        run, here = self.dir / "run", self.dir / "here"
        here.mkdir()
        (here / "tokenizer.json").write_text(json.dumps({"model": {"vocab": {"other": 0}}}))
        # Trained in the folder of the data, by relative paths; exported elsewhere.
        gaccd(1, "train", "--job=job.txtpb", f"--run-dir={run}", "--device=cpu", "--max-updates=1", cwd=data)

        def export(out, *args, code=0):
            return gaccd(1, "ckpt", "export", run, f"--out={self.dir / out}", "--transformers", *args,
                         cwd=here, code=code)
        self.assertIn(f"with the tokenizer {data}/tokenizer.json", export("model"))
        model = self.dir / "model"
        self.assertEqual((model / "tokenizer.json").read_text(), text)
        config = json.loads((model / "tokenizer_config.json").read_text())
        self.assertEqual((config["model_max_length"], config["cls_token"]), (7, "[CLS]"))
        self.assertEqual(config["model_input_names"], ["input_ids", "attention_mask", "token_type_ids"])
        self.assertEqual(json.loads((model / "config.json").read_text())["id2label"],
                         {"0": "bad", "1": "fair", "2": "good"})
        # One that is not that of the data, and none.
        for content, code, part in ((text.replace("7", "8"), 65, "does not belong to"), (None, 74, "there is no")):
            (data / "tokenizer.json").unlink()
            if content:
                (data / "tokenizer.json").write_text(content)
            said = export("none", code=code)
            self.assertIn(part, said)
            self.assertIn(f"{data}/tokenizer.json", said)
            self.assertIn("--without-tokenizer", said)
            self.assertFalse((self.dir / "none").exists())
        self.assertIn("without a tokenizer", export("none", "--without-tokenizer"))
        self.assertEqual(sorted(path.name for path in (self.dir / "none").iterdir()),
                         ["config.json", "model.safetensors"])
        # An earlier tools/prepare made tokenizers that leave [CLS] and [SEP] out.
        old = json.dumps({**json.loads(text), "post_processor": None})
        (data / "tokenizer.json").write_text(old)
        done = json.loads((data / "data.json").read_text())
        done["tokenizer_sha256"] = hashlib.sha256(old.encode()).hexdigest()
        (data / "data.json").write_text(json.dumps(done))
        self.assertIn("[CLS] and [SEP]", export("old", code=65))

    def test_an_event_lists_the_loaded_weights(self):
        gaccd(2, "train", f"--job={self.job('bert_mini')}", f"--run-dir={self.dir}/run", "--max-updates=1",
              "--init-weights=bert_mini.init", "--new-weights=classifier.*")
        lines = gaccd(1, "logs", self.dir / "run", "--events").splitlines()
        (event,) = [event for event in map(json.loads, lines) if event["ev"] == "weights"]
        self.assertEqual({key: event[key] for key in ("file", "parameters", "loaded", "fresh", "unused")},
                         {"file": "bert_mini.init", "parameters": 41, "loaded": 39,
                          "fresh": "classifier.weight [3, 12], classifier.bias [3]",
                          "unused": "classifier.weight, classifier.bias"})

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
        # A name is printed without what a terminal would execute.
        model = (MODELS / "bert_mini.init").read_bytes()
        end = 8 + int.from_bytes(model[:8], "little")
        header = json.loads(model[8:end])
        header["a\x1b[2J"] = {"dtype": "U8", "shape": [1], "data_offsets": [len(model) - end, len(model) - end + 1]}
        text = json.dumps(header).encode()
        (self.dir / "odd").write_bytes(len(text).to_bytes(8, "little") + text + model[end:] + b"x")
        said = gaccd(1, "eval", f"--job={self.job('bert_mini')}", f"--weights={self.dir}/odd", "--unused-weights=a*")
        self.assertIn(r"are loaded; not used: a\x1b[2J" + "\n", said)
        # As many parameters of the same shapes, in other heads.
        run = self.dir / "run"
        gaccd(1, "train", f"--job={self.job('bert_mini')}", f"--run-dir={run}", "--max-updates=1")
        refused(78, "model.bert.heads: 3 -> 2", self.job("bert_mini", heads=2), weights=run)
        refused(64, "--weights", self.job("bert_mini"), weights="")

    def test_properties_that_shapes_do_not_show_must_be_equal(self):
        """Heads, epsilon, ...: by config.json next to the file, or by the job of a checkpoint."""
        run, folder = self.dir / "run", self.dir / "exported"
        job = self.job("bert_mini")
        gaccd(1, "train", f"--job={job}", f"--run-dir={run}", "--max-updates=1", "--device=cpu")
        folder.mkdir()
        gaccd(1, "ckpt", "export", run, f"--out={folder}/model.safetensors")
        (folder / "config.json").write_text(json.dumps(
            {"model_type": "bert", "num_attention_heads": 3, "max_position_embeddings": 10}))
        of_run = evaluate(2, job, run)
        for weights in (folder, folder / "model.safetensors"):
            self.assertEqual(evaluate(2, job, weights)["loss"], of_run["loss"])
        for weights in (folder, run):  # --init-weights takes them, too
            said = gaccd(2, "train", f"--job={job}", f"--init-weights={weights}", "--max-updates=1")
            self.assertIn("41 of 41 parameters are loaded", said)
        other = self.job("bert_mini", heads=2)
        for verb in (["eval", f"--weights={folder}"], ["predict", f"--weights={folder}", f"--out={self.dir}/p.npy"],
                     ["train", f"--init-weights={folder}/model.safetensors"]):
            said = gaccd(2, *verb, f"--job={other}", code=65)
            self.assertIn("num_attention_heads: expected 2 (bert.heads), found 3", said)
        rules = ["--new-weights=classifier.*"]  # another head, not other layers
        said = gaccd(1, "train", f"--job={other}", f"--init-weights={run}", *rules, code=65)
        self.assertIn("num_attention_heads: expected 2 (bert.heads), found 3", said)
        said = gaccd(1, "train", f"--job={other}", f"--init-weights={run}", code=78)
        self.assertIn("model.bert.heads: 3 -> 2", said)
        said = gaccd(1, "train", f"--job={job}", f"--init-weights={self.dir}/run/attempts", code=65)
        self.assertIn("holds neither a checkpoint nor model.safetensors", said)

    def test_what_is_not_replaced_or_cannot_be_written(self):
        def refused(code, part, out, *args, what="bert_mini"):
            said = gaccd(2, "predict", f"--job={self.job(what)}", "--weights=bert_mini.init",
                         f"--out={out}", *args, code=code)
            self.assertIn(part, said)
            self.assertEqual(said.count("error ("), 1, said)
        kept = self.dir / "kept.npy"
        kept.write_text("mine")
        refused(74, "is not NPY: it is not replaced", kept)
        self.assertEqual(kept.read_text(), "mine")
        refused(64, "expected a name that ends with .npy or .jsonl", self.dir / "x.csv")
        refused(74, "no folder", self.dir / "no/x.npy")
        # Sums of values that are nearly the largest of f32.
        weights = bytearray((MODELS / "bert_mini.init").read_bytes())
        (length,) = struct.unpack("<Q", weights[:8])
        begin, end = json.loads(weights[8:8 + length])["classifier.weight"]["data_offsets"]
        weights[8 + length + begin:8 + length + end] = struct.pack("<f", 3e38) * ((end - begin) // 4)
        (self.dir / "large").write_bytes(weights)
        refused(65, ": the model's answer is not finite: ", self.dir / "x.npy",
                f"--weights={self.dir}/large")
        self.assertEqual(sorted(p.name for p in self.dir.iterdir()), ["job.txtpb", "kept.npy", "large"])


if __name__ == "__main__":
    GACCD, MPIRUN = sys.argv[1:3]
    unittest.main(argv=sys.argv[:1])
