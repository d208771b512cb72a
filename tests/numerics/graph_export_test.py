"""Models from PyTorch to gaccd and back, with the exporter itself: graph_export_test.py GACCD MPIRUN

Needs a Python with PyTorch 2.7 or newer and safetensors, and for resnet18 torchvision. It is sys.executable, or the
one that GACCD_EXPORT_PYTHON names; without one the test is skipped: exit code 77. tests/golden/graphs needs none.
"""
import dataclasses
import functools
import sys
import tempfile
import unittest.mock
from pathlib import Path

from exporter import open_exporter
from launch import mpirun, run

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
                run(*mpirun(MPIRUN, ranks), GACCD, "train", "--job=job.txtpb", "--device=cpu",
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
                self.head.weight = self.tokens.weight

            def forward(self, ids):
                places = torch.arange(ids.shape[1], device=ids.device)
                return self.head(self.blocks(self.tokens(ids) + self.positions(places)))
        tokens = torch.randint(23, (SAMPLES, 9))
        self.check_training(Language(), tokens, tokens.roll(-1, 1), TOKENS)

    def test_layers_of_torch_with_packed_attention(self):
        layer = torch.nn.TransformerEncoderLayer
        model = torch.nn.Sequential(
            layer(8, 2, 16, dropout=0, batch_first=True), layer(8, 4, 16, dropout=0, batch_first=True, norm_first=True),
            torch.nn.Flatten(), torch.nn.Linear(40, 10))
        self.check_training(model, torch.randn(SAMPLES, 5, 8), torch.randint(10, (SAMPLES,)), NPY)
        graph = (self.dir / "model" / "graph.txtpb").read_text()
        self.assertEqual(graph.count('op: "attention"'), 2)

    def model_of(self, function):
        class Model(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.fc = torch.nn.Linear(4, 3)

            def forward(self, x):
                return function(self.fc, x)
        return Model()

    def refusal(self, function, example):
        with self.assertRaises(gaccd_export.ExportError) as refused:
            gaccd_export.export(self.model_of(function), example, self.dir / "refused")
        self.assertFalse((self.dir / "refused").exists())
        return str(refused.exception)

    def test_what_gaccd_lacks_is_refused_with_its_line(self):
        x = torch.zeros(2, 4)
        self.assertRegex(self.refusal(lambda fc, x: torch.lgamma(fc(x)), x),
                         r"aten.lgamma.default: is not supported; it is called at graph_export_test.py:\d+$")
        self.assertRegex(self.refusal(lambda fc, x: fc(x) - fc(x).mean(0), x), r"over the dimensions \[0\].*_test.py:\d+$")
        self.assertIn("takes part of the samples", self.refusal(lambda fc, x: fc(x).flip(0), x))
        self.assertIn("the place in the batch", self.refusal(lambda fc, x: fc(x) + torch.arange(x.shape[0])[:, None], x))
        self.assertIn("draws random numbers", self.refusal(lambda fc, x: fc(x) + torch.poisson(x[:, :3]), x))
        for quotient in (lambda y: torch.div(y, y + 9, rounding_mode="floor"), lambda y: torch.div(1, y, rounding_mode="trunc"),
                         lambda y: y % torch.arange(1.0, 4.0)):
            self.assertRegex(self.refusal(lambda fc, x: quotient(fc(x)), x), r"divides by what depends on data.*_test.py:\d+$")
        for mask in (lambda ids: ~ids, lambda ids: ids & (ids > 1), lambda ids: (ids > 1) | ids):
            self.assertIn("expected masks of torch.bool, as x != 0 is one", self.refusal(
                lambda fc, x: fc(x) * mask((x > 0).long())[:, :3], x))
        self.assertIn("multiply by the mask instead", self.refusal(lambda fc, x: fc(x)[x[:, 0] > 0], x))
        self.assertRegex(self.refusal(lambda fc, x: fc(x) if x.sum() > 0 else -fc(x), x),
                         r"graph_export_test.py:\d+; its shapes or branches depend on data: .* torch.where, instead$")
        self.assertIn("for one number of samples", self.refusal(lambda fc, x: fc(x).view(2, 3), x))
        self.assertIn("changes its input 'x' in place", self.refusal(lambda fc, x: fc(x.mul_(2)), x))
        self.assertIn("is a custom operation", self.refusal(lambda fc, x: torch.ops.gaccd_test.twice(fc(x)), x))
        self.assertIn("expected a model with one output", self.refusal(lambda fc, x: (fc(x), fc(x)), x))
        self.assertIn("at least 2", self.refusal(lambda fc, x: fc(x), x[:1]))
        with self.assertRaisesRegex(gaccd_export.ExportError, "scale_grad_by_freq: .* expected False; it is called at 0 "):
            gaccd_export.export(torch.nn.Sequential(torch.nn.Embedding(5, 4, scale_grad_by_freq=True), torch.nn.Linear(4, 3)),
                                torch.zeros(2, 3, dtype=torch.int64), self.dir / "refused")
        with self.assertRaisesRegex(gaccd_export.ExportError, "float32, found torch.float64"):
            gaccd_export.export(torch.nn.Linear(4, 3).double(), x.double(), self.dir / "refused")

    def test_only_an_exported_model_is_replaced(self):
        model, x = torch.nn.Linear(4, 3), torch.zeros(2, 4)
        (self.dir / "model").mkdir()
        self.assertIn(f"\nwrote      {self.dir}/model\n", str(gaccd_export.export(model, x, self.dir / "model")))
        (self.dir / "model" / "features.npy").touch()
        found = gaccd_export.export(torch.nn.Linear(4, 5), x, self.dir / "model")
        self.assertIn(f"\nreplaced   {self.dir}/model\n", str(found))
        weights = safetensors.torch.load_file(self.dir / "model" / "weights.safetensors")
        self.assertEqual(weights["weight"].shape, (5, 4))
        self.assertTrue((self.dir / "model" / "features.npy").exists())
        (self.dir / "model" / "graph.txtpb").unlink()
        before = {file.name: file.read_bytes() for file in (self.dir / "model").iterdir()}
        for place, says in (("model", "found 'features.npy' and 1 more at '"), ("model/features.npy", "found a file at '")):
            with self.assertRaisesRegex(gaccd_export.ExportError, "expected a new or empty folder, .*" + says):
                gaccd_export.export(model, x, self.dir / place)
        self.assertEqual({file.name: file.read_bytes() for file in (self.dir / "model").iterdir()}, before)

    def test_random_numbers_of_samples_are_used_once(self):
        def twice(masks):
            def function(fc, x):
                first, second = masks(x.new_empty(x.shape[0], 1)) if fc.training else (1, 1)
                return fc(x) * first + x[:, 1:] * second
            return function
        x = torch.zeros(2, 4)
        gaccd_export.export(self.model_of(twice(lambda empty: (empty.bernoulli(0.5), empty.bernoulli(0.5) / 0.5))), x, self.dir / "two")
        self.assertEqual((self.dir / "two" / "graph.txtpb").read_text().count('op: "drop_samples"'), 2)
        self.assertRegex(self.refusal(twice(lambda empty: (lambda mask: (mask, mask / 0.5))(empty.bernoulli(0.5))), x),
                         r"that another product took; gaccd would draw others\. Multiply both at once, .*_test.py:\d+$")

    def test_what_changes_from_call_to_call_is_no_constant(self):
        """In training alone, where the prediction of evaluation does not show it."""
        self.assertIn("draws random numbers", self.refusal(
            lambda fc, x: fc(x) * torch.poisson(torch.ones(3)) if fc.training else fc(x), torch.zeros(2, 4)))

        class Counts(torch.nn.Module):
            def __init__(self, persistent, uses):
                super().__init__()
                self.norm, self.fc, self.uses = torch.nn.BatchNorm1d(4), torch.nn.Linear(4, 3), uses
                self.register_buffer("calls", torch.zeros(()), persistent=persistent)

            def forward(self, x):
                self.calls += self.training
                return self.fc(self.norm(x) * (1 - 1 / self.calls if self.training and self.uses else 1))
        for persistent in (False, True):
            with self.assertRaisesRegex(gaccd_export.ExportError, "takes the buffer 'calls', which forward changes; .*_test.py:"):
                gaccd_export.export(Counts(persistent, True), torch.randn(2, 4), self.dir / "refused")
        self.check_verification(Counts(False, False), torch.randn(2, 4))

    def verify(self, model, example):
        self.summary = gaccd_export.export(model, example, self.dir / "model")
        return gaccd_export.verify(model, self.dir / "model", gaccd=GACCD)

    def check_verification(self, model, example, tolerance=1e-5):
        found = self.verify(model, example)
        self.assertTrue(found.ok, found)
        self.assertLess(found.largest.gaccd, max(tolerance, 4 * found.largest.pytorch), found)
        names = {name for name, parameter in model.named_parameters() if parameter.requires_grad}
        self.assertLessEqual({"output (evaluation)", "loss", *names}, {one.name for one in found.results})

    def test_operations_agree_with_pytorch(self):
        import make_graphs
        tokens = torch.randint(11, (2, 5))
        for model, example in ((make_graphs.Language(), tokens), (make_graphs.Excite(), torch.randn(2, 2, 7, 6)),
                               (Masked(), {"x": torch.randn(2, 5, 8), "mask": torch.randint(2, (2, 5))}),
                               (Recurrent(), torch.randn(2, 5, 8)), (Values(), torch.randn(2, 4, 6))):
            with self.subTest(model=type(model).__name__):
                self.check_verification(model, example)

    def test_formulas_agree_with_pytorch(self):
        class Formula(torch.nn.Module):
            def __init__(self, formula):
                super().__init__()
                self.fc, self.weight, self.formula = torch.nn.Linear(4, 6), torch.nn.Parameter(torch.randn(6)), formula
                self.out = torch.nn.Linear(6, 3)

            def forward(self, x):
                return self.out(self.formula(self.fc(x), self.weight))
        def four(x):
            return x.unsqueeze(1).expand(-1, 4, -1)
        for name, formula in (
                ("what is known is rounded", lambda x, w: x * w + torch.arange(6) // 2),
                ("a product with less", lambda x, w: (four(x) * w).sum(1)), ("a sum with itself", lambda x, w: (four(x) + four(w * x)).sum(1)),
                ("a product with a number", lambda x, w: (2 * four(x) - four(x) * four(w * x)).sum(1)),
                ("a difference from as many", lambda x, w: (w.expand(x.shape[0], 6) - x) * four(w * x).sum(1)),
                ("a norm of nothing", lambda x, w: x * w + torch.nn.functional.normalize(x * 0) + (x * 0).norm(dim=1, keepdim=True)),
                ("angles that are learned", lambda x, w: x * w.sin() + (x * w).cos()),
                ("rows that are parameters", lambda x, w: x * w.softmax(0) * torch.nn.functional.layer_norm(w, (6,))),
                ("a weight that is computed", lambda x, w: torch.nn.functional.linear(four(x), w.view(6, 1) * w, w).sum(1)),
                ("not a number", lambda x, w: x * w * torch.logical_not(x.relu())),
                ("numbers that are masks", lambda x, w: x * torch.logical_or(torch.logical_and(x.relu(), x < w), torch.arange(6) * x)),
                ("rows of a table", lambda x, w: x * w + (x[:, :4].view(-1, 2, 2) + w.view(1, 3, 2)[:, 1:]).sum((1, 2))[:, None]),
                ("a sum of masks", lambda x, w: x * ((x > 0) + (x > w)))):
            with self.subTest(formula=name):
                self.check_verification(Formula(formula), torch.randn(2, 4))

    def test_masks_of_tokens_are_one_operation_with_attention(self):
        """Those that are computed from the mask alone; another one is added to the scores."""
        import make_graphs
        texts = {"input_ids": torch.randint(11, (2, 5)), "attention_mask": torch.ones(2, 5, dtype=torch.int64)}

        class Diagonal(make_graphs.Padded):
            def forward(self, input_ids, attention_mask):
                return super().forward(input_ids, (attention_mask.bool() | (input_ids == 3)).long())
        for model, fused in ((make_graphs.Padded(), 2), (Diagonal(), 0)):
            with self.subTest(model=type(model).__name__):
                self.check_verification(model, texts)
                graph = (self.dir / "model" / "graph.txtpb").read_text()
                self.assertEqual([graph.count(f'op: "{op}"') for op in ("masked_attention", "softmax")], [fused, 2 - fused])

    def test_texts_are_cut_where_padding_changes_nothing(self):
        import make_graphs
        texts = {"input_ids": torch.randint(11, (2, 40)), "attention_mask": torch.ones(2, 40, dtype=torch.int64)}
        for reads_padding in (False, True):
            with self.subTest(reads_padding=reads_padding):
                self.check_verification(make_graphs.Padded(length=40, reads_padding=reads_padding), texts)
                self.assertEqual(self.summary.lengths, [] if reads_padding else [16, 32])
                self.assertEqual("texts are cut to 16, 32 tokens" in str(self.summary), not reads_padding)
        model = make_graphs.Padded(length=40, reads_padding=False)
        model.classifier = torch.nn.Sequential(torch.nn.BatchNorm1d(16), model.classifier)
        found = gaccd_export.export(model, texts, self.dir / "normed")
        self.assertIn("to 16, 32 tokens where they are short, with stats: FROZEN\n", str(found))

    def test_texts_are_not_cut_where_training_will_read_the_padding(self):
        """A scale that begins at 0 hides it from the initial weights."""
        import make_graphs

        class Neighbours(torch.nn.Module):
            def __init__(self, *shape):
                super().__init__()
                self.conv, self.scale = torch.nn.Conv1d(8, 8, 3, padding=1), torch.nn.Parameter(torch.full(shape, 1e-6))

            def forward(self, x):
                return x + self.scale * self.conv(x.transpose(1, 2)).transpose(1, 2)
        texts = {"input_ids": torch.randint(11, (2, 40)), "attention_mask": torch.ones(2, 40, dtype=torch.int64)}
        for shape in ((), (1, 1, 8)):
            with self.subTest(shape=shape):
                model = make_graphs.Padded(length=40, reads_padding=False)
                model.tokens = torch.nn.Sequential(model.tokens, Neighbours(*shape))
                self.assertEqual(gaccd_export.export(model, texts, self.dir / "hidden").lengths, [])

    def test_dropout_is_the_same_however_texts_are_grouped(self):
        """An element draws by its place in the whole text, also one of the weights of attention."""
        class Dropped(torch.nn.Module):
            def __init__(self, of_rows, of_weights):
                super().__init__()
                self.tokens, self.fc, self.of_rows, self.of_weights = torch.nn.Embedding(23, 8), torch.nn.Linear(8, 4), of_rows, of_weights

            def forward(self, input_ids, attention_mask):
                x = torch.nn.functional.dropout(self.tokens(input_ids), self.of_rows, self.training)
                heads = x.unflatten(2, (2, 4)).transpose(1, 2)
                heads = torch.nn.functional.scaled_dot_product_attention(
                    heads, heads, heads, attention_mask.bool()[:, None, None], self.of_weights * self.training)
                first = heads.transpose(1, 2).flatten(2)[:, 0]
                return self.fc(torch.nn.functional.dropout(first, self.of_rows, self.training))
        tokens, lengths = torch.randint(23, (SAMPLES, 40)), 1 + torch.arange(SAMPLES) * 7 % 40
        for name, values in (("features", tokens), ("lengths", lengths), ("labels", torch.arange(SAMPLES) % 4)):
            numpy.save(self.dir / f"{name}.npy", values.numpy().astype("i4"))
        data = TOKENS.replace("vocabulary", 'lengths: "lengths.npy" classes: 4 vocabulary')
        (self.dir / "job.txtpb").write_text(JOB.format(data=data, batch=BATCH, lr=1, epochs=1))
        for of_rows, of_weights in ((0.5, 0), (0, 0), (0, 0.5), (0.5, 0.5)):
            with self.subTest(of_rows=of_rows, of_weights=of_weights):
                model = Dropped(of_rows, of_weights)
                found = gaccd_export.export(model, {"input_ids": tokens[:2], "attention_mask": 0 * tokens[:2] + 1}, self.dir / "model")
                self.assertEqual(found.lengths, [16, 32])
                trained = []
                for grouped in ("true", "false"):
                    run(GACCD, "train", "--job=job.txtpb", "--device=cpu", f"--group-by-length={grouped}",
                        f"--save-weights={grouped}", cwd=self.dir)
                    trained.append(safetensors.torch.load_file(self.dir / grouped))
                for key, values in trained[0].items():
                    torch.testing.assert_close(values, trained[1][key], rtol=1e-4, atol=1e-5)

    def test_operations_that_are_written_out_are_one(self):
        """What gaccd has one operation for; what is like it and differs stays as it is."""
        class Written(torch.nn.Module):
            def __init__(self, formula):
                super().__init__()
                self.a, self.b, self.formula = torch.nn.Linear(8, 8), torch.nn.Linear(8, 8), formula
                self.weight = torch.nn.Parameter(1 + torch.randn(8) / 4)
                self.register_buffer("cos", torch.randn(5, 8))
                self.register_buffer("sin", torch.randn(5, 8))

            def forward(self, x):
                a, b = self.a(x), self.b(x)
                return torch.cat((self.formula(self, a, b), b + self.weight), -1).mean(1)  # every parameter is used

        def gelu(scale):
            return lambda _, a, b: b + 0.5 * a * (1 + torch.tanh(scale * (a + 0.044715 * torch.pow(a, 3))))

        def norm(of, dim, m, a, b):
            return m.weight * ((a if of else b) * torch.rsqrt(a.pow(2).mean(dim, keepdim=True) + 1e-5))

        def rotary(sign, m, a, _):
            first, second = a[..., :4], a[..., 4:]
            return a * m.cos + torch.cat((-second, first) if sign else (second, -first), -1) * m.sin
        silu, part = torch.nn.functional.silu, functools.partial
        for op, formula, like in (
                ("gelu", gelu((2 / torch.pi) ** 0.5), gelu(0.7)),
                ("silu", lambda _, a, b: b + a * torch.sigmoid(a), lambda _, a, b: a * torch.sigmoid(b + b)),
                ("rms_norm", part(norm, True, -1), part(norm, False, -1)), ("rms_norm", part(norm, True, -1), part(norm, True, 1)),
                ("silu_mul", lambda _, a, b: b * silu(a), lambda _, a, b: b[..., :1] * silu(a)),
                ("sigmoid_mul", lambda _, a, b: torch.sigmoid(a) * b, lambda m, a, b: torch.sigmoid(a) * m.weight + b),
                ("rotary", part(rotary, True), part(rotary, False))):
            for one in (formula, like):
                with self.subTest(op=op, like=one is like):
                    self.check_verification(Written(one), torch.randn(2, 5, 8))
                    graph = (self.dir / "model" / "graph.txtpb").read_text()
                    self.assertEqual(graph.count(f'op: "{op}"'), int(one is formula))

    def test_places_that_data_say_are_taken(self):
        """The last token that is no padding, as sequence classifiers of transformers find it, and places that are computed."""
        class Last(torch.nn.Module):
            def __init__(self, places):
                super().__init__()
                self.tokens, self.fc, self.places = torch.nn.Embedding(4, 8), torch.nn.Linear(8, 5), places
                self.positions = torch.nn.Parameter(torch.randn(5, 8))

            def forward(self, input_ids, attention_mask):
                x = torch.tanh(self.tokens(input_ids) + self.positions) + attention_mask[..., None]
                return self.fc(x[torch.arange(x.shape[0]), self.places(input_ids, attention_mask)])

        def last(tokens, _):
            return (torch.arange(tokens.shape[1]) * (tokens != 2)).argmax(-1)
        texts = {"input_ids": torch.randint(4, (2, 5)), "attention_mask": torch.ones(2, 5, dtype=torch.int64)}
        for places in (last, lambda _, mask: mask.sum(1) - 1):
            self.check_verification(Last(places), texts)
            self.assertNotIn('op: "less"', (self.dir / "model" / "graph.txtpb").read_text())  # no comparison of each two tokens
        self.check_verification(Last(lambda tokens, _: tokens.argmax(-1)), texts)

    def test_the_last_token_is_that_of_the_model_for_all_ids(self):
        """Also of texts without any, and where more than one id is no token: the comparison with one id is then another."""
        class Last(torch.nn.Module):
            def __init__(self, is_token):
                super().__init__()
                self.tokens, self.fc, self.is_token = torch.nn.Embedding(9, 8), torch.nn.Linear(8, 5), is_token

            def forward(self, ids):
                last = (torch.arange(ids.shape[1]) * self.is_token(ids)).argmax(-1)
                return self.fc(torch.tanh(self.tokens(ids)).cumsum(1)[torch.arange(ids.shape[0]), last])
        for is_token in (lambda ids: ids != 2, lambda ids: ids > 2, lambda ids: (ids != 2) & (ids != 7), lambda ids: ids < 8):
            model = Last(is_token)
            gaccd_export.export(model, torch.randint(9, (2, 2)), self.dir / "model")
            found = gaccd_export.verify(model, self.dir / "model", samples=128, gaccd=GACCD)
            self.assertTrue(found.ok and found.largest.gaccd < 1e-5, found)

    def test_ids_that_are_computed_are_exact_in_bf16(self):
        """As a plan for a GPU shows, which needs none: positions as RoBERTa counts them, and a token before the others."""
        class Ids(torch.nn.Module):
            def __init__(self, ids):
                super().__init__()
                self.table, self.fc, self.ids = torch.nn.Embedding(23, 8), torch.nn.Linear(8, 10), ids

            def forward(self, input_ids, attention_mask):
                x = self.table(self.ids(input_ids, attention_mask))
                return self.fc((x + self.table(torch.arange(x.shape[1]) % 2)).mean(1))  # known ids, as of segments
        texts = {"input_ids": torch.randint(23, (SAMPLES, 5)), "attention_mask": torch.ones(SAMPLES, 5, dtype=torch.int64)}
        numpy.save(self.dir / "features.npy", texts["input_ids"].numpy().astype("i4"))
        numpy.save(self.dir / "lengths.npy", numpy.full(SAMPLES, 5, "i4"))
        numpy.save(self.dir / "labels.npy", numpy.zeros(SAMPLES, "i4"))
        (self.dir / "job.txtpb").write_text(JOB.format(data=TOKENS.replace(" labels", ' lengths: "lengths.npy" labels')
                                                       .replace("23", "23 classes: 10"), batch=BATCH, lr=LR, epochs=1))
        for ids in (lambda ids, mask: (mask.cumsum(1) * mask).long() + 1,
                    lambda ids, mask: torch.cat([torch.full_like(ids[:, :1], 22), ids], 1)):
            self.check_verification(Ids(ids), texts)
            plan = run(GACCD, "plan", "--job=job.txtpb", "--device=cuda", "--precision=bf16", cwd=self.dir)
            self.assertIn("a rank on a GPU", plan)
            self.assertNotIn("not known", plan)

    def test_images_of_other_sizes_agree_with_pytorch(self):
        import make_graphs

        class Changed(torch.nn.Module):
            def __init__(self, change):
                super().__init__()
                self.conv, self.change, self.fc = torch.nn.Conv2d(3, 4, 3, padding=1), change, torch.nn.Linear(4, 5)

            def forward(self, x):
                x = self.change(self.conv(x))
                return self.fc((x.square() * torch.arange(x.shape[3])).mean((2, 3)))  # by their places

        def sized(**how):
            return lambda x: torch.nn.functional.interpolate(x, **how)
        x, pool = torch.randn(2, 3, 9, 8), torch.nn
        for change in (sized(size=(13, 11), mode="bilinear"), sized(size=(4, 11), mode="bilinear", align_corners=True),
                       sized(scale_factor=1.7, mode="bilinear"), sized(scale_factor=2, mode="bicubic"), sized(size=(13, 10)),
                       sized(scale_factor=3.1), sized(scale_factor=(2, 3)),
                       pool.MaxPool2d(3, 2, ceil_mode=True), pool.MaxPool2d(2, 3, padding=1, ceil_mode=True),
                       pool.AvgPool2d(3, 2, padding=1, ceil_mode=True), pool.AvgPool2d(2, 2, divisor_override=3),
                       pool.AvgPool2d(3, 2, ceil_mode=True, count_include_pad=False)):
            with self.subTest(change=str(change)):
                self.check_verification(Changed(change), x)
        self.check_verification(make_graphs.Waves(), torch.randn(2, 2, 7, 6))

    def test_verification_finds_an_operation_that_differs(self):
        import make_graphs
        model = make_graphs.Tied()
        with unittest.mock.patch.dict("os.environ", {"SLURM_NTASKS": "4", "SLURM_JOB_ID": "5", "OMPI_COMM_WORLD_SIZE": "3"}):  # it is one process
            self.assertTrue(self.verify(model, torch.zeros(2, 6)).ok)
        graph = self.dir / "model" / "graph.txtpb"
        graph.write_text(graph.read_text().replace('op: "tanh"', 'op: "sigmoid"'))
        found = gaccd_export.verify(model, self.dir / "model", gaccd=GACCD)
        self.assertFalse(found.ok)
        self.assertRegex(str(found), r"first.weight .* differs\n(.*\n)*\d of \d agree, \d differ$")

    def test_models_of_transformers(self):
        try:
            import transformers
        except ImportError:
            self.skipTest("transformers is not installed")
        sizes = {"vocab_size": 40, "hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2,
                 "intermediate_size": 24, "max_position_embeddings": 12}
        ids = {"input_ids": torch.randint(40, (2, 9))}
        ones = torch.ones(2, 9, dtype=torch.int64)
        for kind, config in (
                ("BertForSequenceClassification", transformers.BertConfig(**sizes, num_labels=3)),
                ("LlamaForCausalLM", transformers.LlamaConfig(**sizes, num_key_value_heads=1)),
                ("RobertaForSequenceClassification", transformers.RobertaConfig(**sizes, num_labels=3)),
                ("LlamaForSequenceClassification", transformers.LlamaConfig(**sizes, num_labels=3, pad_token_id=0)),
                ("GPT2LMHeadModel", transformers.GPT2Config(vocab_size=40, n_positions=12, n_embd=16, n_layer=1, n_head=2))):
            with self.subTest(kind=kind):
                caches = getattr(config, "use_cache", None)
                if kind.startswith("Bert"):
                    config.attention_probs_dropout_prob = 0.0
                self.check_verification(getattr(transformers, kind)(config), ids)
                texts = {**ids, "attention_mask": ones, **({"token_type_ids": 0 * ones} if kind.startswith("Bert") else {})}
                self.check_verification(getattr(transformers, kind)(config), texts)
                graph = (self.dir / "model" / "graph.txtpb").read_text()
                dropped = bool(getattr(config, "attn_pdrop", getattr(config, "attention_probs_dropout_prob", 0)))
                self.assertEqual('op: "masked_attention"' in graph, not dropped)
                self.assertEqual(getattr(config, "use_cache", None), caches)  # off for the export alone

    def test_parts_without_values_are_left_out(self):
        class Begins(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.fc = torch.nn.Linear(4, 3)

            def forward(self, x):
                return self.fc(torch.cat([x.new_zeros(x.shape[0], 0), x, torch.zeros(x.shape[0], 1)], dim=1)[:, :4])
        self.check_verification(Begins(), torch.randn(3, 4))

    def test_the_summary_lists_what_was_found(self):
        self.verify(torch.nn.Sequential(torch.nn.Conv2d(3, 8, 3), torch.nn.ReLU(), torch.nn.Flatten(), torch.nn.Linear(72, 5)),
                    torch.zeros(2, 3, 5, 5))
        text = str(self.summary)
        self.assertRegex(text, r"0 +Conv2d +\[N, 8, 3, 3\] +224 +3,888\n")
        self.assertRegex(text, r"reads +features \[N, 3, 5, 5\]; predicts \[N, 5\]\ntrains +589 of 589 parameters")
        self.assertIn("conv2d 1, relu 1, view 1, linear 1", text)
        self.assertRegex(text, r"\nnext +gaccd.verify\(model, '.*/model'\) compares")
        self.assertEqual(self.summary.flops, 2 * (8 * 9 * 27 + 72 * 5))
        one = str(dataclasses.replace(self.summary, folded=1, constants=1))
        self.assertIn("folded     1 call that is the same for all data; 1 constant stays\n", one)

    def test_a_model_whose_samples_depend_on_each_other_is_refused(self):
        class Mixes(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.fc = torch.nn.Linear(4, 3)

            def forward(self, x):
                return self.fc(x) if self.training else self.fc(x).flip(0)

        class MixesLater(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.fc, self.scale = torch.nn.Linear(4, 3), torch.nn.Parameter(torch.zeros(3))

            def forward(self, x):
                return self.fc(x) + self.scale * (self.fc(x) if self.training else self.fc(x).flip(0))
        for model in (Mixes(), MixesLater()):
            with self.assertRaisesRegex(gaccd_export.ExportError, "the samples of a batch depend on each other"):
                gaccd_export.export(model, torch.zeros(3, 4), self.dir / "mixes")

    def test_the_model_is_left_as_it_was(self):
        model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Dropout(0.5, inplace=True), torch.nn.Linear(4, 2)).eval()
        before = {name: value.clone() for name, value in model.state_dict().items()}
        gaccd_export.export(model, torch.zeros(2, 4), self.dir / "left")
        self.assertFalse(any(module.training for module in model.modules()))
        self.assertTrue(model[1].inplace)
        for name, value in model.state_dict().items():
            self.assertTrue(torch.equal(value, before[name]))
        self.assertIn('op: "dropout"', (self.dir / "left" / "graph.txtpb").read_text())


def define_models():
    """Once PyTorch is there."""
    nn = torch.nn

    class Masked(nn.Module):
        """Attention with a mask from the data, whose padding is masked by where()."""
        def __init__(self):
            super().__init__()
            self.qkv, self.out, self.table = nn.Linear(8, 24), nn.Linear(8, 3), nn.Embedding(2, 8)

        def forward(self, x, mask):
            q, k, v = (part.unflatten(-1, (2, 4)).transpose(1, 2) for part in self.qkv(x + self.table(mask)).split(8, -1))
            seen = mask.bool()[:, None, None] | torch.eye(5, dtype=torch.bool)
            y = nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=seen, dropout_p=0.1 * self.training)
            y = y.transpose(1, 2).flatten(2).masked_fill(mask[..., None] == 0, 0.5)
            return self.out(y.mean(1))

    class Recurrent(nn.Module):
        def __init__(self):
            super().__init__()
            self.lstm, self.out = nn.LSTM(8, 6, batch_first=True), nn.Linear(6, 4)

        def forward(self, x):
            return self.out(self.lstm(x)[0][:, -1])

    class Values(nn.Module):
        """What is done to values and their order."""
        def __init__(self):
            super().__init__()
            self.a, self.b, self.out = nn.Linear(6, 6), nn.Parameter(torch.rand(4, 1) + 1), nn.Linear(6, 3)

        def forward(self, x):
            x = self.a(x)
            y = (x.clamp(-0.3, 0.4) + 2 - x.square() / self.b) * torch.exp(-x) + (1 - x) ** 3
            y = y.roll(2, 1).cumsum(2) * torch.where(x > 0.1, y, x * 2) + (3 / (x * x + 1)).log()
            first, *others = torch.cat([y, x[:, 1:3].repeat(1, 2, 1)], 1).chunk(4, dim=1)
            weights = torch.softmax(first @ others[0].transpose(1, 2), -1)
            return self.out((weights @ others[1] + others[2]).sum(1))
    return Masked, Recurrent, Values


if __name__ == "__main__":
    gaccd_export = open_exporter(__doc__)
    import copy

    import numpy
    import safetensors.torch
    import torch
    GACCD, MPIRUN = sys.argv[1:3]
    Masked, Recurrent, Values = define_models()
    torch.library.define("gaccd_test::twice", "(Tensor x) -> Tensor")
    torch.library.impl("gaccd_test::twice", "default", lambda x: 2 * x)
    torch.library.register_fake("gaccd_test::twice", torch.empty_like)
    unittest.main(argv=[sys.argv[0], *sys.argv[3:]])
