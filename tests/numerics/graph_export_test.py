"""Models from PyTorch to gaccd and back, with the exporter itself: graph_export_test.py GACCD MPIRUN

Needs a Python with PyTorch 2.5 or newer and safetensors, and for resnet18 torchvision. It is sys.executable, or the
one that GACCD_EXPORT_PYTHON names; without one the test is skipped: exit code 77. tests/golden/graphs needs none.
"""
import os
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SKIPPED = 77
SAMPLES, BATCH, UPDATES, LR = 11, 11, 1, 0.01
JOB = """name: "exported"
model {{
  graph {{ path: "model" }}
  loss {{ softmax_cross_entropy {{}} }}
}}
data {{
  train {{ {data} }}
  shuffle: false
}}
batch {{ target: {batch} micro: 3 }}
optimizer {{ lr: {lr} sgd {{ momentum: 0.9 }} }}
epochs: {epochs}
"""
NPY = 'npy { features: "features.npy" targets: "labels.npy" classes: 10 }'
TOKENS = 'tokens { tokens: "features.npy" labels: "labels.npy" vocabulary: 23 }'


def run(*command, cwd):
    env = {k: v for k, v in os.environ.items() if not k.startswith(("SLURM_", "OMPI_", "PMIX_", "PMI_"))}
    done = subprocess.run([str(word) for word in command], cwd=cwd, env=env, text=True, capture_output=True, timeout=300)
    if done.returncode:
        raise AssertionError(done.stdout + done.stderr)
    return done.stdout


class GraphExport(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.dir = Path(folder.name)
        torch.manual_seed(5)

    def train_in_pytorch(self, model, features, labels):
        """In double precision, every update one batch; what single precision makes of it, too."""
        results = []
        for kind in (torch.float64, torch.float32):
            trained = copy.deepcopy(model).to(kind).train()
            optimizer = torch.optim.SGD(trained.parameters(), lr=LR, momentum=0.9)
            inputs = features.to(kind) if features.is_floating_point() else features
            for update in range(UPDATES):
                rows = slice(update * BATCH % SAMPLES, update * BATCH % SAMPLES + BATCH)
                optimizer.zero_grad()
                logits = trained(inputs[rows])
                torch.nn.functional.cross_entropy(logits.flatten(0, -2), labels[rows].flatten()).backward()
                optimizer.step()
            results.append(trained.state_dict())
        return results

    def check_training(self, model, features, labels, data, share=1e-3):
        """The weights that gaccd trains on 1, 3 and 5 ranks are loaded by load_state_dict() and are PyTorch's, but for
        8 times what single precision costs PyTorch, or this share of the update."""
        gaccd_export.export(model, features[:2], self.dir / "model")
        exact, single = self.train_in_pytorch(model, features, labels)
        numpy.save(self.dir / "features.npy", features.numpy().astype("f4" if features.is_floating_point() else "i4"))
        numpy.save(self.dir / "labels.npy", labels.numpy())
        (self.dir / "job.txtpb").write_text(
            JOB.format(data=data, batch=BATCH, lr=LR, epochs=UPDATES * BATCH // SAMPLES))
        for ranks in (1, 3, 5):
            with self.subTest(ranks=ranks):
                run(MPIRUN, "--allow-run-as-root", "--oversubscribe", "--bind-to", "none", "--mca",
                    "mpi_yield_when_idle", "1", "-n", ranks, GACCD, "train", "--job=job.txtpb", "--device=cpu",
                    "--save-weights=trained", cwd=self.dir)
                loaded = copy.deepcopy(model)
                loaded.load_state_dict(safetensors.torch.load_file(self.dir / "trained"), strict=True)
                for name, found in loaded.state_dict().items():
                    error, own, moved = ((values.double() - exact[name].double()).norm().item()
                                         for values in (found, single[name], model.state_dict()[name]))
                    self.assertLessEqual(error, max(8 * own, share * moved, 1e-7), name)
                    if moved > 1e-4:  # keys have a bias without gradient
                        self.assertLess(error, moved / 10, name)

    def test_resnet18_of_torchvision(self):
        try:
            from torchvision.models import resnet18
        except ImportError:
            self.skipTest("torchvision is not installed")
        self.check_training(resnet18(num_classes=10), torch.randn(SAMPLES, 3, 64, 64),
                            torch.randint(10, (SAMPLES,)), NPY, share=0.05)  # a ReLU near 0 counts much
        job = (self.dir / "job.txtpb").read_text()
        for name, model in (("a", 'graph { path: "model" }'), ("b", "resnet { classes: 10 }")):
            (self.dir / "job.txtpb").write_text(job.replace('graph { path: "model" }', model))
            run(GACCD, "train", "--job=job.txtpb", "--device=cpu", "--init-weights=model/weights.safetensors",
                f"--save-weights={name}", cwd=self.dir)
        self.assertEqual((self.dir / "a").read_bytes(), (self.dir / "b").read_bytes())  # the same functions

    def test_a_language_model(self):
        import make_graphs

        class Language(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.tokens, self.positions = torch.nn.Embedding(23, 16), torch.nn.Embedding(9, 16)
                self.blocks = torch.nn.Sequential(*(make_graphs.Head(16, 2, True) for _ in range(2)))
                self.head = torch.nn.Linear(16, 23, bias=False)

            def forward(self, ids):
                places = torch.arange(ids.shape[1], device=ids.device)
                return self.head(self.blocks(self.tokens(ids) + self.positions(places)))
        tokens = torch.randint(23, (SAMPLES, 9))
        self.check_training(Language(), tokens, tokens.roll(-1, 1), TOKENS)

    def test_language_models_of_transformers(self):
        """Rotary positions, grouped heads, RMS norm and SwiGLU; tied embeddings, whose copies are written, too."""
        try:
            import transformers
        except ImportError:
            self.skipTest("transformers is not installed")

        class Logits(torch.nn.Module):
            def __init__(self, model):
                super().__init__()
                self.model = model

            def forward(self, input_ids):
                return self.model(input_ids).logits
        small = {"vocab_size": 23, "use_cache": False}
        models = {"llama": transformers.LlamaForCausalLM(transformers.LlamaConfig(
                      hidden_size=16, intermediate_size=24, num_hidden_layers=2, num_attention_heads=4,
                      num_key_value_heads=2, **small)),
                  "gpt2": transformers.GPT2LMHeadModel(transformers.GPT2Config(
                      n_positions=9, n_embd=16, n_layer=2, n_head=2, resid_pdrop=0, embd_pdrop=0, attn_pdrop=0, **small))}
        tokens = torch.randint(23, (SAMPLES, 9))
        for name, model in models.items():
            with self.subTest(name):
                self.check_training(Logits(model), tokens, tokens.roll(-1, 1), TOKENS)

    def test_squeeze_and_excitation_of_torchvision(self):
        try:
            from torchvision.models import mobilenet_v3_small
        except ImportError:
            self.skipTest("torchvision is not installed")
        self.check_training(mobilenet_v3_small(num_classes=10, dropout=0), torch.randn(SAMPLES, 3, 64, 64),
                            torch.randint(10, (SAMPLES,)), NPY, share=0.05)

    def test_layers_of_torch_with_packed_attention(self):
        layer = torch.nn.TransformerEncoderLayer
        model = torch.nn.Sequential(
            layer(8, 2, 16, dropout=0, batch_first=True), layer(8, 4, 16, dropout=0, batch_first=True, norm_first=True),
            torch.nn.Flatten(), torch.nn.Linear(40, 10))
        self.check_training(model, torch.randn(SAMPLES, 5, 8), torch.randint(10, (SAMPLES,)), NPY)
        graph = (self.dir / "model" / "graph.txtpb").read_text()
        self.assertEqual(graph.count('op: "attention"'), 2)

    def refusal(self, function, example):
        class Model(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.fc = torch.nn.Linear(4, 3)

            def forward(self, x):
                return function(self.fc, x)
        with self.assertRaises(gaccd_export.ExportError) as refused:
            gaccd_export.export(Model(), example, self.dir / "refused")
        self.assertFalse((self.dir / "refused").exists())
        return str(refused.exception)

    def test_what_gaccd_lacks_is_refused_with_its_line(self):
        x = torch.zeros(2, 4)
        self.assertRegex(self.refusal(lambda fc, x: fc(x).cumprod(1), x),
                         r"aten.cumprod.default: is not supported; it is called at graph_export_test.py:\d+$")
        self.assertIn("over the dimensions [0]", self.refusal(lambda fc, x: fc(x) - fc(x).mean(0), x))
        self.assertIn("expected a model with one output", self.refusal(lambda fc, x: (fc(x), fc(x)), x))
        self.assertIn("at least 2", self.refusal(lambda fc, x: fc(x), x[:1]))
        with self.assertRaisesRegex(gaccd_export.ExportError, "float32, found torch.float64"):
            gaccd_export.export(torch.nn.Linear(4, 3).double(), x.double(), self.dir / "refused")

    def test_a_model_whose_samples_depend_on_each_other_is_refused(self):
        class Mixes(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.fc = torch.nn.Linear(4, 3)

            def forward(self, x):
                return self.fc(x) if self.training else self.fc(x).flip(0)
        with self.assertRaisesRegex(gaccd_export.ExportError, "the samples of a batch depend on each other"):
            gaccd_export.export(Mixes(), torch.zeros(3, 4), self.dir / "mixes")

    def test_the_model_is_left_as_it_was(self):
        model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Dropout(0.5, inplace=True), torch.nn.Linear(4, 2)).eval()
        before = {name: value.clone() for name, value in model.state_dict().items()}
        gaccd_export.export(model, torch.zeros(2, 4), self.dir / "left")
        self.assertFalse(any(module.training for module in model.modules()))
        self.assertTrue(model[1].inplace)
        for name, value in model.state_dict().items():
            self.assertTrue(torch.equal(value, before[name]))
        self.assertIn('op: "dropout"', (self.dir / "left" / "graph.txtpb").read_text())


if __name__ == "__main__":
    own = os.environ.get("GACCD_EXPORT_PYTHON")
    if own and "GACCD_EXPORT_OPENED" not in os.environ:
        os.environ["GACCD_EXPORT_OPENED"] = "1"
        os.execv(own, [own, "-B", *sys.argv])
    try:
        import copy

        import numpy
        import safetensors.torch
        import torch
        if tuple(map(int, torch.__version__.split(".")[:2])) < (2, 5):
            raise ImportError(f"torch is {torch.__version__}, expected 2.5 or newer")
    except ImportError as missing:
        print(f"skipped: {missing}; {__doc__}")
        sys.exit(SKIPPED)
    sys.path[:0] = [str(ROOT / "tools" / "python"), str(ROOT / "tests" / "golden")]
    import gaccd as gaccd_export
    torch.set_num_threads(1)
    GACCD, MPIRUN = sys.argv[1:3]
    unittest.main(argv=sys.argv[:1])
