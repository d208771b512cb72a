"""What the exporter makes of recurrent layers, masks and texts: graph_export_text_test.py GACCD

Needs what graph_export_test.py needs, and is skipped as that is.
"""
import contextlib
import io
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

from exporter import open_exporter

WIDTH, CLASSES, LENGTH = 16, 5, 4


class Exported(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.dir = Path(folder.name)
        torch.manual_seed(5)
        self.x, self.steps = torch.randn(2, WIDTH), torch.randn(2, LENGTH, WIDTH)
        self.head = nn.Linear(WIDTH, CLASSES)
        ids = torch.randint(1, 30, (2, 8))
        self.texts = {"input_ids": ids, "attention_mask": torch.ones_like(ids)}

    def check(self, model, example):
        """gaccd's values and gradients are PyTorch's."""
        summary = gaccd.export(model, example, self.dir / "model")
        found = gaccd.verify(model, self.dir / "model", gaccd=GACCD)
        self.assertTrue(found.ok and found.largest.gaccd < 1e-5, str(found))
        return summary

    def refusal(self, model, example):
        with self.assertRaises(gaccd.ExportError) as refused:
            gaccd.export(model, example, self.dir / "refused")
        return str(refused.exception)


class Gradients(Exported):
    def test_functions_with_the_gradient_of_their_forward(self):
        self.check(Calls(lambda m, x: m.f(Swish.apply(m.g(x))), f=self.head, g=nn.Linear(WIDTH, WIDTH)), self.x)

    def test_functions_with_a_backward_of_their_own_are_refused(self):
        class Reversed(torch.autograd.Function):
            @staticmethod
            def forward(ctx, x):
                return x.view_as(x)

            @staticmethod
            def backward(ctx, gradient):
                return -gradient
        model = Calls(lambda m, x: m.f(Reversed.apply(m.g(x))), f=self.head, g=nn.Linear(WIDTH, WIDTH))
        self.assertRegex(self.refusal(model, self.x), r"Reversed: a torch.autograd.Function .* called at graph_export_text_test.py:\d+")
        swish = type("Swish", (Swish,), {"backward": staticmethod(lambda ctx, gradient: Swish.backward(ctx, gradient).clamp(-100, 100))})
        self.assertIn("Swish: a torch.autograd.Function with a backward that is not the gradient", self.refusal(
            Calls(lambda m, x: m.f(swish.apply(x)), f=self.head), self.x))
        x = torch.ones(2, requires_grad=True)
        Reversed.apply(x).sum().backward()
        self.assertEqual(x.grad.tolist(), [-1, -1])

    def test_hooks_are_refused(self):
        def hooked(model, x):
            y = model.f(x)
            y.register_hook(lambda gradient: gradient / 10)
            return y
        self.assertIn("Tensor.register_hook: a hook may change", self.refusal(Calls(hooked, f=self.head), self.x))
        self.head.register_full_backward_hook(lambda *_: None)
        self.assertIn("f: has a backward hook", self.refusal(Calls(lambda m, x: m.f(x), f=self.head), self.x))

    def test_integers_of_values_without_a_gradient(self):
        def of_best(model, x):
            y = model.g(x)
            with torch.no_grad():
                places = model.t(x).topk(3).indices
            return model.f(y * torch.zeros_like(y).scatter(1, places, 1.0) * (y.detach() > -1))
        summary = self.check(Calls(of_best, f=self.head, g=nn.Linear(WIDTH, WIDTH), t=nn.Linear(WIDTH, WIDTH)), self.x)
        self.assertEqual(list(summary.unused), ["t.weight", "t.bias"])
        self.assertRegex((self.dir / "model" / "graph.txtpb").read_text(), r'name: "t.weight" size: \d+ size: \d+ frozen: true')

    def test_changes_in_place_that_gradients_do_not_see_are_refused(self):
        """PyTorch gives the value the gradient that it had before the change."""
        def in_no_grad(m, x):
            y = m.g(x)
            with torch.no_grad():
                y[:, 0] = 0
            return m.f(y)

        def of_zeros(m, x):
            y = torch.zeros(x.shape[0], WIDTH)
            with torch.no_grad():
                y.copy_(m.g(x))
            return m.f(y * m.g(x))

        def detached(m, x):
            y = m.g(x)
            y.view(-1, WIDTH, 1).detach().mul_(2)
            return m.f(y)

        def of_copies(m, x):
            y = torch.zeros(x.shape[0], WIDTH)
            y[:, :3] = m.g(x)[:, :3]
            with torch.no_grad():
                z = y.clone().mul_(2)
            w = m.g(x).detach()
            w[:, 1] = z[:, 2]
            w += m.g(x)
            z = z.mul_(m.g(x))
            with torch.autocast("cpu", enabled=False), torch.no_grad():
                t = m.g(x) * 2
            return m.f(y * w + z * t)
        for forward in (in_no_grad, of_zeros, detached):
            with self.subTest(forward=forward.__name__):
                self.assertRegex(self.refusal(Calls(forward, f=self.head, g=nn.Linear(WIDTH, WIDTH)), self.x),
                                 r"changes a value in place in no_grad or through detach.*near .*_test.py:\d+$")
        self.check(Calls(of_copies, f=self.head, g=nn.Linear(WIDTH, WIDTH)), self.x)

    def test_masks_drawn_in_no_grad(self):
        def masked(m, x):
            y = m.g(x)
            with torch.no_grad():
                best, kept = y.amax(1, keepdim=True), torch.empty(x.shape[0], 1).bernoulli_(0.75) if m.training else 0.75
            return m.f((y - best) * (kept / 0.75))
        gaccd.export(Calls(masked, f=self.head, g=nn.Linear(WIDTH, WIDTH)), self.x, self.dir / "model")
        self.assertIn('op: "drop_samples"', (self.dir / "model" / "graph.txtpb").read_text())

    def test_parameters_whose_shape_alone_is_read_keep_their_values(self):
        def of_shape(m, x):
            y = m.g(x)
            return m.f(y.detach() + torch.ones_like(y))
        self.assertEqual(list(self.check(Calls(of_shape, f=self.head, g=nn.Linear(WIDTH, WIDTH)), self.x).unused), ["g.weight", "g.bias"])

    def test_torch_checkpoint_is_exported(self):
        from torch.utils.checkpoint import checkpoint
        self.check(Calls(lambda m, x: checkpoint(m.f, x, use_reentrant=False), f=self.head), self.x)

    def test_unused_parameters_keep_their_values(self):
        model = Calls(lambda m, x: m.f(x), f=self.head, unused=nn.Linear(3, 2))
        summary = self.check(model, self.x)
        self.assertEqual(summary.unused, {"unused.weight": 6, "unused.bias": 2})
        self.assertRegex(str(summary), r"trains +85 of 93 .*\nunused +unused.weight, unused.bias: no gradient reaches")


class Layers(Exported):
    def test_weights_with_other_buffers_than_the_constants(self):
        """New parameters have the values of the exported folder."""
        model = Calls(lambda m, x: m.f(m.g(x) + 2 * m.shift), f=self.head, g=nn.Linear(WIDTH, WIDTH))
        model.register_buffer("shift", torch.randn(WIDTH))
        self.check(model, self.x)
        self.assertIn(f'name: "shift" size: {WIDTH} buffer: true frozen: true', (self.dir / "model" / "graph.txtpb").read_text())
        for name, values in (("x.npy", self.x), ("y.npy", torch.arange(2))):
            np.save(self.dir / name, values.numpy())
        (self.dir / "job.txtpb").write_text(
            'name: "a" model { graph { path: "model" } loss { softmax_cross_entropy {} } } data { train { npy { features: "x.npy" targets: "y.npy" '
            'classes: 5 } } } batch { target: 2 } optimizer { lr: 1e-30 sgd {} }')
        for shift, said in ((0, ""), (1, "shift: expected the values of ")):
            other = {name: x + (shift if name == "shift" else 1) for name, x in model.state_dict().items()}
            safetensors.torch.save_file(other, self.dir / "other")
            done = subprocess.run([GACCD, "train", "--job=job.txtpb", "--init-weights=other", "--new-weights=f.*", "--save-weights=w"],
                                  cwd=self.dir, capture_output=True, text=True, timeout=60)
            self.assertEqual((done.returncode, said in done.stderr), (65 if shift else 0, True), done.stderr)
        for name, x in model.state_dict().items():
            torch.testing.assert_close(safetensors.torch.load_file(self.dir / "w")[name], x + (1 if name.startswith("g.") else 0))

    def test_texts_are_not_cut_for_labels_that_hide_what_reads_the_padding(self):
        class WithLoss(nn.Module):
            def __init__(self, reads_padding, of_tokens):
                super().__init__()
                self.tokens, self.fc, self.reads_padding, self.of_tokens = nn.Embedding(11, 8), nn.Linear(8, 4), reads_padding, of_tokens

            def forward(self, input_ids, attention_mask, labels):
                x, known = self.tokens(input_ids), 1 if self.reads_padding else attention_mask[..., None].float()
                logits = self.fc(x).transpose(1, 2) if self.of_tokens else self.fc((x * known).sum(1))
                losses = torch.nn.functional.cross_entropy(logits, labels, ignore_index=0, reduction="none")
                return losses.sum(1, keepdim=True) if self.of_tokens else losses[:, None]
        ids = torch.randint(11, (2, 40))
        for reads_padding, of_tokens, lengths in ((True, False, []), (False, False, [16, 32]), (False, True, [])):
            with self.subTest(reads_padding=reads_padding, of_tokens=of_tokens):
                found = gaccd.export(WithLoss(reads_padding, of_tokens), {
                    "input_ids": ids, "attention_mask": torch.ones_like(ids), "labels": torch.zeros_like(ids if of_tokens else ids[:, 0])},
                    self.dir / "loss")
                self.assertEqual(found.lengths, lengths)

    def test_hidden_states_of_recurrent_layers(self):
        fc = nn.Linear(12, CLASSES)
        for model in (Calls(lambda m, x: m.f(m.r(x)[1][0][-1]), f=fc, r=nn.LSTM(WIDTH, 12, 2, batch_first=True)),
                      Calls(lambda m, x: m.f(m.r(x)[1][-1]), f=fc, r=nn.GRU(WIDTH, 12, batch_first=True)),
                      Calls(lambda m, x: m.f(m.r(x)[1].squeeze(0)), f=fc, r=nn.RNN(WIDTH, 12, batch_first=True)),
                      Calls(lambda m, x: m.f(m.r(x)[1].transpose(0, 1).flatten(1)), f=nn.Linear(24, CLASSES),
                            r=nn.GRU(WIDTH, 12, bidirectional=True, batch_first=True))):
            with self.subTest(layer=str(model.r)):
                self.check(model, self.steps)

    def test_queries_whose_keys_are_all_hidden(self):
        known = torch.ones(LENGTH, LENGTH, dtype=torch.bool).tril(-1)
        for mask in (known, torch.where(known, 0.0, -float("inf"))):
            self.check(Calls(lambda m, x, mask=mask: m.f(attention(m, x, mask)), f=self.head, q=nn.Linear(WIDTH, 48)), self.steps)

        def window(model, x, keys, _):
            i = torch.arange(x.shape[1])
            near = (i[:, None] >= i) & (i[:, None] - i < 2)
            return model.f(attention(model, x, near[None, None] & keys.bool()[:, None, None, :]))
        self.check(OfTexts(window, q=nn.Linear(WIDTH, 48)), self.texts)

    def test_masks_of_the_data_that_hide_all_keys(self):
        class Masked(nn.Module):
            def __init__(self, head, causal):
                super().__init__()
                self.f, self.q, self.causal = head, nn.Linear(WIDTH, 48), causal

            def forward(self, x, mask):
                seen = mask.bool()[:, None, None, :]
                return self.f(attention(self, x, seen & torch.ones(LENGTH, LENGTH).bool().tril() if self.causal else seen))

        class Added(Masked):
            def forward(self, x, mask):
                hidden = torch.zeros(mask.shape).masked_fill(mask == 0, -float("inf"))
                y = attention(self, x, hidden[:, None, None] + torch.full((LENGTH, LENGTH), -float("inf")).triu(1) if self.causal else hidden[:, None, None])
                return self.f(y + nn.functional.scaled_dot_product_attention(x, x, x, hidden[:, None]).mean(1))
        for kind, causal in ((Masked, False), (Masked, True), (Added, False), (Added, True)):
            with self.subTest(kind=kind.__name__, causal=causal):
                model = kind(self.head, causal)
                summary = gaccd.export(model, {"x": self.steps, "mask": torch.ones(2, LENGTH).long()}, self.dir / "model")
                self.assertEqual("masked_attention" in summary.functions, kind is Masked)
                found = gaccd.verify(model, self.dir / "model", samples=64, gaccd=GACCD)
                self.assertTrue(found.ok and found.largest.gaccd < 1e-5, str(found))

    def test_queries_or_keys_that_are_the_same_for_all_samples(self):
        attend = nn.functional.scaled_dot_product_attention
        for form in ((1, 1, 3, WIDTH), (1, 3, WIDTH)):
            row = nn.Parameter(torch.randn(form))
            for of in (lambda x, row: attend(x, row, row), lambda x, row: attend(row, x, x)):
                self.check(Calls(lambda m, x, of=of: m.f(of(x[:, None] if m.row.dim() == 4 else x, m.row).flatten(1, -2).mean(1)), f=self.head, row=row),
                           self.steps)

    def test_the_number_of_samples_is_another_size_too(self):
        """2 samples of 2 heads are as many as the values of a head."""
        layer = nn.MultiheadAttention(8, 2, batch_first=True, kdim=4, vdim=6)
        self.check(Calls(lambda m, x: m.f(m.a(x[..., :8], x[..., :4], x[..., 2:8])[0].flatten(1)), a=layer, f=nn.Linear(8 * LENGTH, CLASSES)), self.steps)

    def test_masks_by_the_least_number(self):
        def forward(model, x, keys, _):
            hidden = (1 - keys[:, None, :].to(x.dtype)) * torch.finfo(torch.float32).min
            return model.f(((x @ x.transpose(1, 2) + hidden).softmax(-1) @ x).mean(1))
        self.check(OfTexts(forward), self.texts)

    def test_the_first_rows_of_a_longer_table(self):
        def of(use):
            return OfTexts(lambda m, x, _, __: m.f(use(x, m.table(torch.arange(8)), m).mean(1)), table=nn.Embedding(20, WIDTH),
                           other=nn.Embedding(30, WIDTH), g=nn.Linear(WIDTH, WIDTH))
        for use in (lambda x, p, m: x + p, lambda x, p, m: x * p, lambda x, p, m: x + m.g(p),
                    lambda x, p, m: x + (p + m.other(torch.arange(8)))):
            self.check(of(use), self.texts)

    def test_stochastic_depth_by_floor(self):
        def forward(model, x):
            y = model.g(x)
            return model.f(x + y / 0.8 * (0.8 + torch.rand(x.shape[0], 1)).floor() if model.training else x + y)
        summary = gaccd.export(Calls(forward, f=self.head, g=nn.Linear(WIDTH, WIDTH)), self.x, self.dir / "model")
        self.assertEqual(summary.functions["drop_samples"], 1)
        def twice(model, x):
            mask = (0.8 + torch.rand(x.shape[0], 1)).floor()
            return model.f(x * mask) + torch.where(mask > 0, x[:, :1], 0)
        self.assertIn("become a mask, which is used other than to drop", self.refusal(Calls(twice, f=self.head), self.x))

    def test_a_row_is_repeated_for_each_sample(self):
        row = nn.Parameter(torch.randn(1, 1, WIDTH))
        self.check(Calls(lambda m, x: m.f(torch.cat([m.row.repeat(x.shape[0], 1, 1), x], 1).mean(1)), f=self.head, row=row), self.steps)

    def test_logits_among_several_outputs(self):
        f, g = self.head, nn.Linear(WIDTH, 7)
        self.check(Calls(lambda m, x: {"hidden": m.g(x), "logits": m.f(x)}, f=f, g=g), self.x)
        self.check(Calls(lambda m, x: {"hidden": m.g(x), "prediction_outputs": m.f(x)}, f=f, g=g), self.x)
        self.assertIn("or 'logits' among others, found 2", self.refusal(Calls(lambda m, x: (m.g(x), m.f(x)), f=f, g=g), self.x))

    def test_several_texts_in_a_sample(self):
        """As the choices of BertForMultipleChoice, or the sentences of a document."""
        table = nn.Embedding(9, WIDTH)
        for pooled in (lambda y: y[:, 0], lambda y: y[:, -1], lambda y: y.mean(1), lambda y: y.amax(1)):
            summary = self.check(Calls(lambda m, x, of=pooled: m.f(of(m.t(x.flatten(0, 1)).tanh()).view(x.shape[0], 3, WIDTH).mean(1)),
                                       f=self.head, t=table), torch.zeros(2, 3, 5, dtype=torch.long))
            self.assertEqual(list(summary.inputs), ["x"])

    def test_running_statistics_that_the_output_does_not_read_are_kept(self):
        norms = {name: nn.BatchNorm1d(WIDTH) for name in "gn"}
        summary = self.check(Calls(lambda m, x: {"logits": m.f(m.g(x)), "aux": m.n(x)}, f=self.head, **norms), torch.randn(3, WIDTH))
        self.assertEqual(summary.kept, ["n.num_batches_tracked", "n.running_mean", "n.running_var"])
        self.assertIn("kept       n.num_batches_tracked, n.running_mean, n.running_var: the output does not", str(summary))

    def test_arguments_with_names_of_the_data(self):
        """Lengths are never 0, by which forward divides."""
        class Mean(nn.Module):
            def __init__(self):
                super().__init__()
                self.e, self.f = nn.Embedding(30, WIDTH), nn.Linear(WIDTH, CLASSES)

            def forward(self, tokens, lengths):
                known = torch.arange(tokens.shape[1]) < lengths[:, None]
                return self.f((self.e(tokens) * known[..., None]).sum(1) / lengths[:, None])
        self.check(Mean(), {"tokens": self.texts["input_ids"], "lengths": torch.tensor([8, 3])})

    def test_arguments_of_torch_bool(self):
        class Chosen(nn.Module):
            def __init__(self, head, row):
                super().__init__()
                self.f, self.row = head, row

            def forward(self, x, known):
                return self.f(torch.where(known[..., None], x, self.row).mean(1) + (x * ~known[..., None]).sum(1))
        self.check(Chosen(self.head, nn.Parameter(torch.randn(WIDTH))), {"x": self.steps, "known": torch.rand(2, LENGTH) > 0.5})

    def test_numbers_that_are_never_negative(self):
        class Neighbours(nn.Module):
            def __init__(self, head):
                super().__init__()
                self.f = head

            def forward(self, x, near):
                return self.f((near * near.sum(-1, keepdim=True).rsqrt() @ x).mean(1) + near.log().sum((1, 2))[:, None])
        self.check(Neighbours(self.head), {"x": self.steps, "near": torch.rand(2, LENGTH, LENGTH)})
        self.assertIn("the prediction is not finite", self.refusal(Calls(lambda m, x: m.f(x).log(), f=self.head), self.x))

    def test_a_class_for_each_token(self):
        self.check(OfTexts(lambda m, x, _, __: m.f(x)), self.texts)

        class Decoder(nn.Module):
            """With inputs of other names."""
            def __init__(self):
                super().__init__()
                self.e, self.f = nn.Embedding(30, WIDTH), nn.Linear(WIDTH, CLASSES)

            def forward(self, input_ids, attention_mask, decoder_input_ids):
                return self.f(self.e(decoder_input_ids) * (self.e(input_ids) * attention_mask[..., None]).mean(1, keepdim=True))
        self.check(Decoder(), {**self.texts, "decoder_input_ids": self.texts["input_ids"][:, :5]})

    def test_the_number_of_samples_is_no_value(self):
        """In training alone, where the prediction of evaluation does not show it. Sizes may depend on it."""
        for formula in (lambda y: y / y.shape[0], lambda y: y * y.shape[0] ** 0.5, lambda y: y + torch.full((1,), y.shape[0]),
                        lambda y: y ** (y.shape[0] - 1)):
            model = Calls(lambda m, x, of=formula: of(m.f(x)) if m.training else m.f(x), f=self.head)
            self.assertRegex(self.refusal(model, self.x), "computes with the number of samples")
        self.check(Calls(lambda m, x: m.f(torch.cat([x, x.new_ones(x.shape[0], 1) * torch.arange(x.shape[0])[-1:].clamp(max=0)], 1)[:, :WIDTH]),
                         f=self.head), self.x)

    def test_forward_that_makes_numbers_is_judged_in_double_precision(self):
        self.check(OfTexts(lambda m, x, _, __: m.f((x * torch.linspace(0, 1, 8)[:, None]).mean(1) @ torch.eye(WIDTH))), self.texts)


class Values(Exported):
    def check_together(self, formulas, example):
        """Each formula(model, y) of y [samples, 6], which is the example at first."""
        model = Calls(lambda m, x: m.f(torch.cat([of(m, m.s * x) for of in formulas], 1)), s=nn.Parameter(torch.ones(6)),
                      limit=nn.Parameter(torch.tensor([0.0, 1, 0, 1, 0, 1])), f=nn.Linear(6 * len(formulas), CLASSES))
        return self.check(model, example)

    def test_gradients_where_values_are_equal(self):
        """Ids without a table are 0 and 1, which the limits are."""
        self.check_together([
            lambda m, y: y.clamp(min=1), lambda m, y: y.clamp(max=0), lambda m, y: y.clamp(0, 1), lambda m, y: y.clamp(min=torch.tensor(1.0)),
            lambda m, y: y.clamp(max=m.limit), lambda m, y: y.clamp(m.limit - 1, m.limit)], torch.randint(2, (2, 6)))
        self.check_together([lambda m, y: y.view(-1, 3, 2).std(2).repeat(1, 2), lambda m, y: sum(torch.std_mean(y.view(-1, 3, 2), 2)).repeat(1, 2)],
                            torch.randint(2, (2, 6)))
        self.check_together([lambda m, y: y ** 0 + y], torch.randint(2, (2, 6)))

    def test_topk_takes_the_first_of_equal_values(self):
        self.check(Calls(lambda m, x: m.f(x * torch.zeros_like(x).scatter(1, m.g(x).clamp(max=0).topk(3).indices, 1.0)),
                         f=self.head, g=nn.Linear(WIDTH, WIDTH)), self.x)

    def test_columns_of_a_table(self):
        many = torch.randperm(20)
        for columns in (lambda w, ids: w[:, ids].transpose(0, 1), lambda w, ids: w[:, ids - 3].transpose(0, 1),
                        lambda w, ids: w.index_select(1, ids.flatten()).view(CLASSES, -1, WIDTH).transpose(0, 1),
                        lambda w, ids: w.view(CLASSES, 2, 10).index_select(-1, ids[:, 0]).permute(2, 0, 1) + w.index_select(1, many)[:, :2],
                        lambda w, ids: w.index_select(1, torch.arange(3, 3 + WIDTH).flip(0).expand(ids.shape[0], -1).flatten())
                        .view(CLASSES, -1, WIDTH).transpose(0, 1)):
            self.check(Calls(lambda m, x, columns=columns: m.f(x) + columns(m.t.weight, (x > 0).long() * 2 + (x > 1)).square().sum(2),
                             f=self.head, t=nn.Linear(20, CLASSES)), self.x)

    def test_constants_of_one_value_with_more_dimensions(self):
        two = torch.full((1, 1, 1, 1), 2.0)
        self.check_together([lambda m, y, of=formula: of(y[:, :, None] + m.limit).tanh().sum(2).squeeze(0) for formula in (
            lambda x: x + two, lambda x: two - x, lambda x: x * two, lambda x: x / two, lambda x: two / (x.abs() + 1), lambda x: x ** two,
            lambda x: (x > two) * x, lambda x: torch.minimum(x, two), lambda x: x.clamp(max=two), lambda x: torch.where(x > 0, two, two - 1))], torch.randn(2, 6))

    def test_powers_products_and_buckets(self):
        limits = torch.tensor([-1.0, 0, 1])
        self.check_together([
            lambda m, y: (y.abs() + 1) ** m.limit, lambda m, y: 2 ** y, lambda m, y: y.clamp(min=1e-6).pow(m.limit + 1).mean(1, keepdim=True).pow(1 / (m.limit + 1)),
            lambda m, y: y.view(-1, 2, 3).prod(1, keepdim=True).expand(-1, 2, 3).flatten(1), lambda m, y: y.view(-1, 2, 3).cumprod(2).flatten(1),
            lambda m, y: y * torch.bucketize(y, limits), lambda m, y: m.limit[torch.bucketize(y, limits, right=True)]], torch.randn(2, 6))
        self.check_together([lambda m, y: y.cumprod(1) + y.prod(1, keepdim=True), lambda m, y: y * torch.bucketize(y, torch.tensor([0.0, 1])),
                             lambda m, y: y * torch.bucketize(y, torch.tensor([0.0, 1]), right=True)], torch.randint(2, (2, 6)))  # 0, and limits
        for says, formula in (("of 65 values, expected at most 64", lambda y: y.repeat(1, 65).view(-1, 65, WIDTH).prod(1)),
                              ("to the power of several known numbers", lambda y: y ** torch.arange(WIDTH).float()), ("of -2 to the power", lambda y: (-2) ** y)):
            self.assertIn(says, self.refusal(Calls(lambda m, x, of=formula: m.f(of(m.g(x))), f=self.head, g=nn.Linear(WIDTH, WIDTH)), self.x))

    def test_values_that_are_not_finite(self):
        hidden = -float("inf")
        self.check_together([
            lambda m, y: y.nan_to_num(), lambda m, y: y * ((y > 0) ^ (y < m.limit)),
            lambda m, y: (lambda z: torch.where(z == hidden, m.limit, z))(y.masked_fill(y < 0, hidden) / 8),
            lambda m, y: y * (y.masked_fill(y < 0, hidden) * 0.1 > hidden), lambda m, y: y * (y.masked_fill(y < 0, -hidden) / 4).isinf(),
            lambda m, y: y * (y.masked_fill(y < 0, hidden) / 4).isfinite()], torch.randn(2, 6))
        self.assertIn("asks for NaN after a softmax of -inf", self.refusal(Calls(
            lambda m, x: m.f(x.masked_fill(x < 0.5, hidden).softmax(1).nan_to_num()), f=self.head), self.x))


class State(Exported):
    def test_extra_state_is_left_out(self):
        class Counted(nn.Linear):
            def get_extra_state(self):
                return {"calls": 1}

            def set_extra_state(self, state):
                pass
        self.check(Counted(WIDTH, CLASSES), self.x)

    def test_integers_of_buffers_come_back(self):
        for largest in (2 ** 24, 2 ** 24 + 1):
            model = Calls(lambda m, x: m.f(x) * (m.primes % 5), f=self.head, primes=nn.Buffer(torch.tensor([7, 3, 2, 5, largest])))
            if largest == 2 ** 24:
                self.check(model, self.x)
            else:
                self.assertIn("primes: a buffer of torch.int64 with values that float32 does not hold", self.refusal(model, self.x))

    def test_what_forward_does_beside_its_result_is_refused(self):
        def limits(model, x):
            model.s.data.clamp_(0, 1)
            return model.f(x) * model.s
        self.assertIn("writes a parameter or another tensor by .data", self.refusal(Calls(limits, f=self.head, s=nn.Parameter(torch.ones(1))), self.x))
        attend = nn.functional.scaled_dot_product_attention
        self.assertIn("dropout that does not ask for self.training", self.refusal(
            Calls(lambda m, x: m.f(attend(x, x, x, dropout_p=0.3).mean(1)), f=self.head), self.steps))
        table = nn.Sequential(nn.Embedding(9, WIDTH, max_norm=1.0), nn.Flatten(), nn.Linear(2 * WIDTH, CLASSES))
        self.assertIn("0: max_norm changes rows of the table", self.refusal(table, torch.randint(9, (2, 2))))

    def test_modules_that_forward_moves_to_where_they_are(self):
        def called(model, x):
            model.f = model.f.to(torch.float32)
            return model.f.to(x.device)(x)
        self.check(Calls(called, f=self.head), self.x)
        self.assertIs(torch.nn.Module.to(self.head, torch.float64).weight.dtype, torch.float64)

    def test_a_choice_that_is_known(self):
        """As of scales of series, where no sample lacks values: the mean over the batch is not chosen."""
        def scaled(model, x, known):
            total, count = (x * known).abs().sum(1, keepdim=True), known.sum(1, keepdim=True)
            return model.f(x / torch.where(count > 0, total / count, total.sum(0) / count.sum(0)))
        self.check(Calls(lambda m, x: scaled(m, x, torch.ones_like(x)), f=self.head), self.x)
        some = torch.arange(WIDTH) % 2
        self.check(Calls(lambda m, x: m.f(torch.where(some >= 0, x, x.mean(0))), f=self.head), self.x)
        self.assertIn("over the dimensions [0]", self.refusal(Calls(lambda m, x: m.f(torch.where(some > 0, x, x.mean(0))), f=self.head), self.x))
        self.assertIn("over the dimensions [0]", self.refusal(Calls(lambda m, x: scaled(m, x, (x > 0).float()), f=self.head), self.x))

    def test_writes_of_no_values(self):
        def dropped(model, x, share):
            count = torch.ones(x.shape[0]) + 1
            first = int(x.shape[0] * share)
            count[:first] = torch.randint(1, 2, (x.shape[0],))[:first].float()
            y = model.f(x)
            y[:, CLASSES:] = 1.0
            return y * count[:, None]
        self.check(Calls(lambda m, x: dropped(m, x, 0.0), f=self.head), self.x)
        self.assertIn("one number of samples alone", self.refusal(Calls(lambda m, x: dropped(m, x, 0.5), f=self.head), self.x))

    def test_compiled_models_are_refused(self):
        compiled = torch.compile(self.head, backend="eager")
        self.assertIn("the model that torch.compile was given, model._orig_mod", self.refusal(compiled, self.x))


class Refusals(Exported):
    def test_they_are_short(self):
        printed = io.StringIO()
        with contextlib.redirect_stderr(printed), contextlib.redirect_stdout(printed):
            found = self.refusal(Calls(lambda m, x: m.f(x) if x.sum() > 0 else m.f(-x), f=self.head), self.x)
            self.assertIn("depend on data", found)
            found = self.refusal(Calls(lambda m, x: m.f(x + torch.zeros(2, WIDTH)), f=self.head), self.x)
        self.assertRegex(found, r"it works for one number of samples alone; graph_export_text_test.py:\d+ expects that number; take x.shape\[0\]")
        self.assertEqual(printed.getvalue(), "")

    def test_the_line_that_expects_one_number_of_samples(self):
        def line(function):
            return f"graph_export_text_test.py:{function.__code__.co_firstlineno} expects that number; take"
        for name, function in (("loop", lambda m, x: m.f(torch.stack([one / one.sum() for one in x]))),
                               ("length", lambda m, x: m.f(x) if len(x) == x.shape[0] else x),
                               ("parts of a chunk", lambda m, x: sum(m.f(torch.cat((x, 2 * x))).chunk(2)))):
            with self.subTest(name):
                found = self.refusal(Calls(function, f=self.head), self.x)
                self.assertIn(line(function), found)
        self.assertIn("layers(x.flatten(0, 1)).unflatten(0, (-1, inputs))", found)

    def test_constants_of_other_numbers_of_samples(self):
        """They are evaluated for 7 samples, and for others."""
        for function, why in ((lambda m, x: m.f(x) * (torch.arange(x.shape[0])[:, None] < 100), "differs by the place in the batch"),
                              (lambda m, x: m.f(x) * torch.where(torch.ones_like(x).sum(0)[:1] > 50, 1.0, 2.0), "depends on the number of samples"),
                              (lambda m, x: torch.where(torch.ones_like(x).sum(0)[:1] > 50, m.f(x), 2 * m.f(x)), "depends on the number of samples"),
                              (lambda m, x: m.f(x) / torch.ones_like(x).sum(), "depends on the number of samples")):
            self.assertIn(why, self.refusal(Calls(function, f=self.head), self.x))
        self.check(Calls(lambda m, x: m.f(x) * torch.ones_like(x).mean(), f=self.head), self.x)

    def test_branches_that_depend_on_data(self):
        def clamped(model, x):
            y = model.f(x)
            if not torch.isfinite(y).all():
                y = y.clamp(-1e9, 1e9)
            return y
        self.assertRegex(self.refusal(Calls(clamped, f=self.head), self.x), r"_test.py:\d+; leave this branch out: gaccd does not continue")

        class Experts(nn.ModuleList):
            def forward(self, x):
                chosen = x[:, :2].argmax(1)
                y = torch.zeros(x.shape[0], CLASSES)
                for i, expert in enumerate(self):
                    rows = torch.where(chosen == i)[0]
                    y = y.index_add(0, rows, expert(x[rows])) if len(rows) else y
                return y
        self.assertIn("y = y + expert(x) * weight, with the weight 0 where one is not chosen",
                      self.refusal(Experts([self.head, nn.Linear(WIDTH, CLASSES)]), self.x))

        class OfAll(Experts):
            def forward(self, x):
                chosen = x[:, :2].argmax(1)
                return sum(expert(x) * (chosen == i)[:, None] for i, expert in enumerate(self))
        self.check(OfAll([self.head, nn.Linear(WIDTH, CLASSES)]), self.x)

    def test_two_calls_of_a_batch_norm(self):
        def losses(x, y):
            return (x - y.detach()).square().mean(1)
        net = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.BatchNorm1d(WIDTH))
        twice = Calls(lambda m, x: losses(m.f(x[:, 0]), m.f(x[:, 1])), f=net)
        views = self.steps[:, :2]
        self.assertRegex(self.refusal(twice, views), r"called more than once.*unflatten\(0, \(-1, inputs\)\).*norm.eval\(\).*graph_export_text_test.py:\d+")

        def once(m, x):
            return losses(*m.f(x.flatten(0, 1)).unflatten(0, (-1, 2)).unbind(1))
        gaccd.export(Calls(once, f=net), views, self.dir / "model")
        self.assertTrue((found := gaccd.verify(Calls(once, f=net), self.dir / "model", gaccd=GACCD, computes_loss=True)).ok, found)

    def test_switches_of_transformers(self):
        class Config:
            apply_spec_augment, mask_time_prob, encoder_layerdrop, layerdrop = True, 0.05, 0.2, 0.1
        model = Calls(lambda m, x: m.f(x) if torch.rand([]) > 0.1 else x, f=self.head)
        model.config = Config()
        self.assertRegex(self.refusal(model, self.x), r"; try config.apply_spec_augment=False and config.encoder_layerdrop=0 and config.layerdrop=0$")

    def test_what_cannot_be_taken_apart(self):
        self.assertRegex(self.refusal(Calls(lambda m, x: m.f(torch.fft.fft(x).real), f=self.head), self.x), "it is called at")


def attention(model, x, mask):
    q, k, v = model.q(x).view(x.shape[0], x.shape[1], 3, 2, 8).permute(2, 0, 3, 1, 4)
    y = nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=mask)
    return y.transpose(1, 2).reshape(x.shape[0], x.shape[1], WIDTH).mean(1)


def define_models():
    class Calls(nn.Module):
        def __init__(self, function, **parts):
            super().__init__()
            self.function = function
            for name, part in parts.items():
                setattr(self, name, part)

        def forward(self, x):
            return self.function(self, x)

    class OfTexts(nn.Module):
        def __init__(self, function, **parts):
            super().__init__()
            self.function, self.e, self.f = function, nn.Embedding(30, WIDTH), nn.Linear(WIDTH, CLASSES)
            for name, part in parts.items():
                setattr(self, name, part)

        def forward(self, input_ids, attention_mask):
            return self.function(self, self.e(input_ids), attention_mask, input_ids)

    class Swish(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x * x.sigmoid()

        @staticmethod
        def backward(ctx, gradient):
            x, = ctx.saved_tensors
            return gradient * x.sigmoid() * (1 + x * (1 - x.sigmoid()))
    return Calls, OfTexts, Swish


if __name__ == "__main__":
    gaccd = open_exporter(__doc__)
    import numpy as np
    import safetensors.torch
    import torch
    from torch import nn
    GACCD = sys.argv[1]
    Calls, OfTexts, Swish = define_models()
    unittest.main(argv=sys.argv[:1])
