"""Losses that users write in forward(): graph_losses_test.py GACCD

Each model is exported with its loss and compared with PyTorch by gaccd.verify. Needs what graph_export_test.py needs, else
it is skipped: exit code 77. tests/golden/graphs/losses needs no PyTorch.
"""
import os
import random
import subprocess
import sys
import unittest

from exporter import ROOT, ExportTest, open_exporter


class GraphLosses(ExportTest):
    def check(self, model, losses, targets):
        """Each loss(outputs [samples, 5], targets) of a small network."""
        for name, loss in losses.items():
            with self.subTest(loss=name):
                self.check_model(model(loss), [torch.zeros(2, 6), targets])

    def test_of_targets(self):
        F = torch.nn.functional
        weights = torch.arange(1.0, 6.0)
        self.check(OfTargets, {
            "several labels": lambda y, t: F.binary_cross_entropy_with_logits(y, t, reduction="none").mean(1),
            "weighted": lambda y, t: F.binary_cross_entropy_with_logits(y, t, pos_weight=weights, reduction="none").sum(1),
            "of probabilities": lambda y, t: F.binary_cross_entropy(y.sigmoid(), t, reduction="none").mean(1),
            "soft margin": lambda y, t: F.multilabel_soft_margin_loss(y, t, reduction="none"),
            "soft labels": lambda y, t: F.cross_entropy(y, t.softmax(1), reduction="none"),
            "divergence": lambda y, t: F.kl_div(y.log_softmax(1), t.softmax(1), reduction="none").sum(1),
            "huber": lambda y, t: F.huber_loss(y, t, delta=0.5, reduction="none").mean(1),
            "absolute": lambda y, t: F.smooth_l1_loss(y, t, reduction="none").mean(1) + F.l1_loss(y, t, reduction="none").sum(1),
            "log cosh": lambda y, t: torch.log(torch.cosh(y - t)).mean(1),
            "quantile": lambda y, t: torch.maximum(0.9 * (t - y), 0.1 * (y - t)).mean(1),
            "poisson": lambda y, t: F.poisson_nll_loss(y, t, reduction="none").mean(1),
            "gaussian": lambda y, t: F.gaussian_nll_loss(y, t, y.exp().flip(1), reduction="none").mean(1),
            "gaussian with small variances": lambda y, t: F.gaussian_nll_loss(y, t, y.relu() ** 2, full=True, eps=0.01, reduction="none").sum(1),
            "gaussian with one variance": lambda y, t: F.gaussian_nll_loss(y, t, y[:, :1].exp(), reduction="none").mean(1),
            "cosine": lambda y, t: 1 - F.cosine_similarity(y, t, dim=1),
            "triplet": lambda y, t: F.triplet_margin_loss(y, t, t.flip(1), reduction="none")}, torch.zeros(2, 5))

    def test_of_labels(self):
        F = torch.nn.functional
        self.check(OfLabels, {
            "cross-entropy": lambda y, t: F.cross_entropy(y, t, label_smoothing=0.1, reduction="none"),
            "weights of classes": lambda y, t: F.cross_entropy(y, t, weight=torch.arange(1.0, 6.0), reduction="none"),
            "focal": lambda y, t: (lambda one: (1 - torch.exp(-one)) ** 2 * one)(F.cross_entropy(y, t, reduction="none")),
            "one-hot": lambda y, t: (y.softmax(1) - F.one_hot(t, 5)).square().sum(1),
            "margin": lambda y, t: F.multi_margin_loss(y, t, reduction="none")}, torch.zeros(2, dtype=torch.long))

    def test_of_two_heads_tokens_and_pixels(self):
        F = torch.nn.functional
        ids = torch.zeros(2, dtype=torch.long)

        class Two(WithLoss):
            def forward(self, x, labels, value):
                y = self.net(x)
                return F.cross_entropy(y[:, :4], labels, reduction="none") + (y[:, 4:] - value).square().squeeze(1)

        class Tokens(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.table, self.head = torch.nn.Embedding(11, 8), torch.nn.Linear(8, 11)

            def forward(self, tokens, labels):
                return F.cross_entropy(self.head(self.table(tokens)).transpose(1, 2), labels, reduction="none").mean(1)

        class Pixels(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.conv = torch.nn.Conv2d(3, 4, 3, padding=1)

            def forward(self, image, mask):
                return F.cross_entropy(self.conv(image), mask, reduction="none").mean((1, 2))

        self.check_model(Two(None), [torch.zeros(2, 6), ids, torch.zeros(2, 1)])
        self.check_model(Tokens(), [torch.zeros(2, 6, dtype=torch.long)] * 2)
        self.check_model(Pixels(), [torch.zeros(2, 3, 8, 7), torch.zeros(2, 8, 7, dtype=torch.long)], computes_loss=True)

    def test_of_counts(self):
        """The mean over what counts in the whole batch: a second column is the divisor."""
        F = torch.nn.functional

        class Tokens(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.table, self.head = torch.nn.Embedding(11, 8), torch.nn.Linear(8, 11)

            def forward(self, tokens, labels):
                losses = F.cross_entropy(self.head(self.table(tokens)).transpose(1, 2), labels, ignore_index=3, reduction="none")
                return torch.stack((losses.sum(1), (labels != 3).sum(1)), 1)

        class Classes(WithLoss):
            def forward(self, features, labels):
                weights = torch.arange(1.0, 6.0)[labels]
                return torch.stack((weights * F.cross_entropy(self.net(features), labels, reduction="none"), weights), 1)

        class Known(WithLoss):
            """Values that are not known count neither in the sum nor in the divisor."""
            def forward(self, features, targets):
                known = (targets > 0).float()
                return torch.cat(((known * (self.net(features) - targets).square()).sum(1, keepdim=True), known.sum(1, keepdim=True)), 1)

        class Learnt(WithLoss):
            """The gradient takes the count for a constant."""
            def forward(self, features, targets):
                y = self.net(features)
                return torch.stack(((y - targets).square().sum(1), y.sigmoid().sum(1)), 1)

        self.check_model(Tokens(), [torch.zeros(2, 6, dtype=torch.long)] * 2)
        self.check_model(Classes(None), [torch.zeros(2, 6), torch.zeros(2, dtype=torch.long)])
        self.check_model(Known(None), [torch.zeros(2, 6), torch.zeros(2, 5)])
        self.check_model(Learnt(None), [torch.zeros(2, 6), torch.zeros(2, 5)])

    def test_updates_whose_counts_are_0_are_skipped(self):
        class Known(WithLoss):
            def forward(self, features, targets):
                known = (targets > 0).float()
                return torch.cat(((known * (self.net(features) - targets).square()).sum(1, keepdim=True), known.sum(1, keepdim=True)), 1)

        import gaccd
        import numpy
        targets = torch.ones(6, 5)
        targets[2:4] = -1
        gaccd.export(Known(None), [torch.zeros(2, 6), torch.zeros(2, 5)], self.dir / "model")
        numpy.save(self.dir / "x.npy", torch.randn(6, 6).numpy())
        numpy.save(self.dir / "t.npy", targets.numpy())
        (self.dir / "job.txtpb").write_text("""name: "counts" model { graph { path: "model" } loss { output {} } }
            data { train { npy { features: "x.npy" targets: "t.npy" } } shuffle: false }
            batch { target: 2 micro: 1 } optimizer { lr: 0.1 sgd {} } epochs: 1""")
        done = subprocess.run([sys.argv[1], "train", "--job=job.txtpb", "--device=cpu"], cwd=self.dir, text=True, capture_output=True)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("update 2 is skipped: none of its 2 samples has a label that counts", done.stdout + done.stderr)

    def test_of_stopped_gradients(self):
        """Straight-through estimators, a target that is not trained, a codebook; parameters without a gradient keep their values."""
        F = torch.nn.functional

        class Codes(WithLoss):
            def __init__(self):
                super().__init__(None)
                self.codes, self.back = torch.nn.Embedding(9, 5), torch.nn.Linear(5, 6)

            def forward(self, features):
                z = self.net(features)
                q = self.codes((z[:, None] - self.codes.weight).square().sum(2).argmin(1))
                commitment = (z - q.detach()).square().mean(1) + (z.detach() - q).square().mean(1)
                return (self.back(z + (q - z).detach()) - features).square().mean(1) + commitment

        class Rounded(Codes):
            def forward(self, features):
                z = self.net(features)
                return (self.back(z + ((z * 3).round() / 3 - z).detach()) - features).square().mean(1)

        class Chosen(Codes):
            def forward(self, features):
                return (self.back(F.gumbel_softmax(self.net(features), 0.7, hard=True)) - features).square().mean(1)

        class Taught(Codes):
            def forward(self, features):
                with torch.no_grad():
                    target, scale = self.back(self.net(features)[:, :5]).softmax(1), features[:, 0].exp()
                return -(target[:, :5] * F.log_softmax(self.net(features), 1)).sum(1) * scale

        class InPlace(WithLoss):
            """What is computed of a detached view may not overwrite the value."""
            def forward(self, features):
                y = self.net(features)
                return (y * y.detach().view(-1, 5, 1).relu().flatten(1)).sum(1) + (y.detach().tanh() * y).sum(1)
        for model in (Codes(), Rounded(), Chosen(), Taught(), InPlace(None)):
            with self.subTest(type(model).__name__):
                self.check_model(model, torch.zeros(2, 6), computes_loss=True)
        taught = gaccd_export.export(Taught(), torch.zeros(2, 6), self.dir / "taught")
        self.assertEqual(list(taught.unused), ["codes.weight", "back.weight", "back.bias"])

    def test_without_targets(self):
        """An autoencoder whose noise is an input."""
        class Noisy(WithLoss):
            def forward(self, features, noise):
                return (self.net(features + noise) - features[:, :5]).square().mean(1)
        self.check_model(Noisy(None), [torch.zeros(2, 6)] * 2, computes_loss=True)

    def test_a_gradient_that_is_only_rounding(self):
        class Shift(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.shift = torch.nn.Parameter(torch.ones(()))

            def forward(self, features, labels):
                return torch.nn.functional.cross_entropy(features + self.shift, labels, reduction="none")
        self.assertTrue(self.verify(Shift(), [torch.zeros(2, 6), torch.zeros(2, dtype=torch.long)]).ok)

    def test_a_mean_over_samples_is_refused(self):
        refused = self.refusal_of(OfTargets(torch.nn.functional.mse_loss), [torch.zeros(2, 6), torch.zeros(2, 5)])
        self.assertIn('the losses of the samples, [samples], can be the output (reduction="none"', refused)

    def test_labels_that_are_the_same_in_the_example_are_changed(self):
        from gaccd import export_lengths, export_model

        class ByLabels(WithLoss):
            def forward(self, features, labels):
                return self.net(features)[:, 0] * (labels.sum() / labels.numel())
        reference = export_lengths.Reference(ByLabels(None), lambda found: found)
        for labels in (torch.zeros(2), torch.ones(2), torch.full((2, 3), 4), torch.tensor([True, True])):
            with self.subTest(labels=labels), self.assertRaisesRegex(gaccd_export.ExportError, "samples of a batch depend on each other"):
                labels = labels if labels.dtype == torch.bool else labels.long()
                export_model._check_samples(reference, (torch.zeros(2, 6), labels), {}, [0, 0], False)

    def test_examples_and_paths_that_are_none(self):
        class Several(WithLoss):
            def forward(self, features, *targets):
                return self.loss(self.net(features), *targets)
        mse = torch.nn.functional.mse_loss
        self.assertIn("forward(*targets): expected an argument with a name", self.refusal_of(Several(mse), [torch.zeros(2, 6), torch.zeros(2, 5)]))
        self.assertIn("0.weight: has no size yet", self.refusal_of(torch.nn.Sequential(torch.nn.LazyLinear(3)), torch.zeros(2, 6)))
        self.assertIn("found NoneType", self.refusal_of(WithLoss(mse), None))
        with self.assertRaisesRegex(gaccd_export.ExportError, "found an empty name"):
            gaccd_export.export(WithLoss(mse), torch.zeros(2, 6), "")
        for value, found in (([0.0] * 6, "list"), (torch.zeros(2, 6).numpy(), "ndarray"), (True, "bool"), (None, "NoneType")):
            self.assertIn(f"expected tensors, found {found}", self.refusal_of(WithLoss(mse), {"features": torch.zeros(2, 6), "targets": value}))

    def test_outputs_parameters_and_arguments_that_cannot_be_trained(self):
        class Net(torch.nn.Module):
            def __init__(self, more=None, last=lambda y: y):
                super().__init__()
                self.net, self.more, self.last = torch.nn.Linear(6, 5), more, last

            def forward(self, x, **others):
                return self.last(self.net(x))

        class OfDictionary(torch.nn.Linear):
            def forward(self, batch):
                return super().forward(batch["x"])
        x = torch.zeros(2, 6)
        for model, example, text in (
                (OfDictionary(6, 5), {"x": x}, "with forward(self, x) that returns self.model({'x': x})"),
                (Net(last=lambda y: y > 0), x, "floating-point numbers, found torch.bool"),
                (Net(last=lambda y: y.argmax(1)), x, "floating-point numbers, found torch.int64"),
                (Net(torch.nn.Linear(3, 0)), x, "more.weight: expected parameters with values, found the shape [0, 3]"),
                (Net(torch.nn.BatchNorm1d(5, momentum=None)), x, "more: momentum: expected a number in (0, 1], found None"),
                (Net(), {"x": x, "y": x}, "y: expected an argument of forward with this name, found x, others")):
            with self.subTest(text=text):
                self.assertIn(text, self.refusal_of(model, example))

    def test_what_is_no_model_of_its_own(self):
        net, x = torch.nn.Sequential(torch.nn.Linear(6, 5)), torch.zeros(2, 6)
        renamed = torch.nn.Sequential(torch.nn.Linear(6, 5))
        renamed._register_state_dict_hook(lambda module, state, *more: state.update(other=state.pop("0.weight")))
        with torch.inference_mode():
            inferred = torch.nn.Linear(6, 5)
        for model, text in ((net.forward, "expected a torch.nn.Module, found method"), (torch.nn.Linear, "found <class"),
                            (torch.nn.DataParallel(net), "was given, model.module"), (torch.jit.trace(net, x), "torch.jit was given"),
                            (torch.nn.Linear(6, 5, device="meta"), "weight: has no values"), (inferred, "outside of torch.inference_mode()"),
                            (renamed, "0.weight: is not in state_dict() under its name")):
            with self.subTest(text=text):
                self.assertIn(text, self.refusal_of(model, x))

    def test_random_numbers_of_python_and_numpy(self):
        """A layer that is left out by chance: torch.export records one draw."""
        class LeavesOut(torch.nn.Module):
            def __init__(self, draw):
                super().__init__()
                self.first, self.last, self.draw = torch.nn.Linear(6, 6), torch.nn.Linear(6, 5), draw

            def forward(self, x):
                return self.last(x if self.training and self.draw() < 0.01 else self.first(x))
        for draw in (random.random, lambda: numpy.random.rand()):
            self.assertIn("draws random numbers of Python's random or of numpy", self.refusal_of(LeavesOut(draw), torch.zeros(2, 6)))
        self.check_model(LeavesOut(lambda: 0.5), torch.zeros(2, 6))

    def test_a_caller_without_gradients(self):
        program = ("import gaccd, sys, torch; model = torch.nn.Linear(6, 5)\n"
                   "with torch.no_grad(): gaccd.export(model, torch.zeros(2, 6), sys.argv[1])\n"
                   "print(gaccd.verify(model, sys.argv[1], gaccd=sys.argv[2]).ok)")
        done = subprocess.run([sys.executable, "-c", program, self.dir / "model", sys.argv[1]], env=os.environ | {
            "PYTHONPATH": str(ROOT / "tools/python")}, text=True, capture_output=True, check=False)
        self.assertEqual(done.stdout, "True\n", done.stderr)

    def test_a_folder_of_another_model_is_named(self):
        def network(width):
            return torch.nn.Sequential(torch.nn.Linear(6, width), torch.nn.Tanh(), torch.nn.Linear(width, 5))
        model = network(16)
        self.assertEqual(self.verify(model, torch.zeros(2, 6)).changed, ())
        with torch.no_grad():
            model[0].weight += 0.1
        found = gaccd_export.verify(model, self.dir / "model", gaccd=sys.argv[1])
        self.assertFalse(found.ok)
        self.assertIn("the model has other values than the folder: 0.weight; export it again", str(found))
        for other, folder, message in ((network(8), "model", r"0\.weight: .* shape \[8, 6\], the folder \[16, 6\]; was it exported"),
                                       (model, "", "expected a folder of export")):
            with self.assertRaisesRegex(gaccd_export.ExportError, message):
                gaccd_export.verify(other, self.dir / folder, gaccd=sys.argv[1])

    def test_refusals_name_no_line_of_generated_code_and_a_way(self):
        self.assertNotIn("<string>", self.refusal_of(torch.nn.Linear(6, 5), torch.zeros(2, 7)))
        self.assertIn("found torch.float16; export model.float()", self.refusal_of(torch.nn.Linear(6, 5).half(), torch.zeros(2, 6).half()))


if __name__ == "__main__":
    gaccd_export = open_exporter("tests/numerics/graph_losses_test.py exports models of PyTorch 2.7 or newer")
    import numpy
    import torch

    class WithLoss(torch.nn.Module):
        def __init__(self, loss):
            super().__init__()
            self.net = torch.nn.Sequential(torch.nn.Linear(6, 16), torch.nn.Tanh(), torch.nn.Linear(16, 5))
            self.loss = loss

    class OfTargets(WithLoss):
        def forward(self, features, targets):
            return self.loss(self.net(features), targets)

    class OfLabels(WithLoss):
        def forward(self, features, labels):
            return self.loss(self.net(features), labels)

    unittest.main(argv=[sys.argv[0], *sys.argv[2:]])
