"""Operations that the exporter makes of others, and what it refuses: graph_operations_test.py GACCD

Small modules, each exported and compared with PyTorch by gaccd.verify. Needs what graph_export_test.py needs, else it is
skipped: exit code 77.
"""
import sys
import tempfile
import unittest
from pathlib import Path

from exporter import open_exporter


class GraphOperations(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.dir = Path(folder.name)
        torch.manual_seed(5)

    def check(self, formulas, sizes=(4,), tolerance=1e-5, table=False):
        """Each formula(model, y) of y [samples, 6] between two linear layers; its result has 6 values for each sample."""
        for name, formula in formulas.items():
            with self.subTest(formula=name):
                self.check_model(Between(formula, table), torch.randn(2, *sizes), tolerance)

    def verify(self, model, example):
        gaccd_export.export(model, example, self.dir / "model")
        return gaccd_export.verify(model, self.dir / "model", gaccd=GACCD)

    def check_model(self, model, example, tolerance=1e-5):
        found = self.verify(model, example)
        self.assertTrue(found.ok, found)
        self.assertLess(found.largest.gaccd, max(tolerance, 4 * found.largest.pytorch), found)

    def refusal(self, formula, sizes=(4,)):
        return self.refusal_of(Between(formula), torch.randn(2, *sizes))

    def refusal_of(self, model, example):
        with self.assertRaises(gaccd_export.ExportError) as refused:
            gaccd_export.export(model, example, self.dir / "refused")
        self.assertFalse((self.dir / "refused").exists())
        return str(refused.exception)

    def test_limits_and_means(self):
        self.check({
            "at least a parameter": lambda m, y: y.clamp(min=m.weight),
            "between parameters": lambda m, y: y.clamp(min=m.weight - 1, max=m.weight),
            "a number and a parameter": lambda m, y: y.clamp(min=torch.tensor(-0.2), max=m.weight),
            "similarity": lambda m, y: y * torch.nn.functional.cosine_similarity(y, m.weight[None], dim=1)[:, None],
            "of all values": lambda m, y: y * m.weight.mean() + m.weight.sum()})

    def test_products_with_parameters_that_are_permuted(self):
        self.check({
            "transposed": lambda m, y: y @ m.table.t(), "as it is": lambda m, y: y @ m.table,
            "einsum": lambda m, y: torch.einsum("bi,ij->bj", y, m.table), "einsum, transposed": lambda m, y: torch.einsum("bi,ji->bj", y, m.table),
            "einsum of rows": lambda m, y: torch.einsum("bti,ij->btj", y[:, None] * torch.ones(2, 1), m.table).sum(1),
            "computed": lambda m, y: y @ (m.weight[:, None] * 2 * m.table.tanh()),
            "computed, einsum": lambda m, y: torch.einsum("bij,ijk->bik", y.view(-1, 2, 3), m.table[:4].tanh().view(2, 3, 4)).flatten(1)[:, :6],
            "a computed bias": lambda m, y: torch.nn.functional.linear(y, m.table, m.weight * 2)}, table=True)

    def test_what_training_refuses_is_refused_by_export(self):
        self.assertRegex(self.refusal(lambda m, y: y + torch.nn.functional.dropout(m.weight, 0.5, m.training)),
                         r"without samples, \[6\]: .* set its p to 0; it is called at .*_test.py:\d+$")
        images = torch.nn.Conv2d(3, 6, 1)
        self.assertIn("found 4 dimensions, ['N', 6, 5, 5]", self.refusal_of(images, torch.randn(2, 3, 5, 5)))

    def test_groups_that_count_samples_are_refused(self):
        def grouped(m, y):
            return torch.nn.functional.conv1d(y.reshape(1, -1, 1), y.reshape(-1, 1, 1), groups=6 * y.shape[0]).view(-1, 6)
        self.assertIn("groups depend on the number of samples", self.refusal(grouped))

    def test_verification_of_what_looks_like_dropout_and_has_no_gradient(self):
        class DropNothing(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.register_buffer("p", torch.ones(6))
                self.fc = torch.nn.Linear(4, 6)

            def forward(self, x):
                return self.fc(x) * self.p
        self.check_model(DropNothing(), torch.randn(2, 4))
        still = DropNothing()
        still.p.zero_()
        gaccd_export.export(still, torch.randn(2, 4), self.dir / "still")
        self.assertTrue(gaccd_export.verify(still, self.dir / "still", gaccd=GACCD).ok)

    def test_formulas(self):
        f = torch.nn.functional
        self.check({
            "abs": lambda m, y: y.abs(), "elu": lambda m, y: f.elu(y, 0.7), "selu": lambda m, y: f.selu(y),
            "celu": lambda m, y: f.celu(y, 0.7), "softplus": lambda m, y: f.softplus(y, 2), "mish": lambda m, y: f.mish(y),
            "maximum": lambda m, y: torch.maximum(y, -2 * y), "minimum": lambda m, y: torch.minimum(m.weight, y),
            "amax": lambda m, y: y * y.view(-1, 2, 3).amax(1).sum(1, keepdim=True), "amin": lambda m, y: y * y.amin(1, keepdim=True),
            "var": lambda m, y: y + y.var(1, keepdim=True), "std": lambda m, y: y / y.view(-1, 2, 3).std((1, 2), correction=0)[:, None],
            "softmax": lambda m, y: y.view(-1, 2, 3).softmax(1).flatten(1)})
        self.assertIn("return them", self.refusal(lambda m, y: y.log_softmax(1)))
        self.assertIn("which counts samples", self.refusal(lambda m, y: y.softmax(0)))

    def test_nothing_is_seen_of_what_where_does_not_choose(self):
        """As large values are infinite in single precision, and their differences NaN."""
        hidden, inf = torch.tensor([True, False, False, True, False, False]), float("inf")

        def large(y):
            return y * 1e30 * 1e30
        self.check({
            "infinite": lambda m, y: torch.where(hidden, torch.where(hidden, y, large(y)), 2 * y),
            "NaN, of data": lambda m, y: torch.where(y > 0, torch.where(y > 0, y, large(y) - large(y)), 2 * y),
            "NaN, not filled": lambda m, y: (large(m.weight) - large(m.weight)).masked_fill(y < 9, 0.5) * m.weight + y,
            "parameters": lambda m, y: torch.where(y > 0, y * y, m.weight) + torch.where(m.weight > y, 0, y),
            "repeated": lambda m, y: torch.where(y[:, :1, None] > 0, m.weight, y[:, None] * m.weight[:3, None]).sum(1),
            "infinite constants": lambda m, y: (y + torch.zeros(6).masked_fill(hidden, -inf)).softmax(1) * y,
            "infinite scores": lambda m, y: y * y.masked_fill(hidden, -inf).softmax(1) + torch.where(y.masked_fill(hidden, -inf) == -inf, 2, y)})
        self.assertIn("puts NaN", self.refusal(lambda m, y: y.masked_fill(y > 0, float("nan"))))

    def test_norms(self):
        nn = torch.nn
        for norm in (nn.LayerNorm((3, 5)), nn.LayerNorm((3, 5), elementwise_affine=False), nn.GroupNorm(2, 6, affine=False),
                     nn.BatchNorm1d(6, affine=False), nn.InstanceNorm1d(6), nn.InstanceNorm1d(6, affine=True)):
            with self.subTest(norm=str(norm)):
                three = isinstance(norm, nn.LayerNorm)
                model = nn.Sequential(nn.Conv1d(3, 6, 1), nn.Unflatten(1, (2, 3)) if three else nn.Identity(), norm, nn.ReLU(),
                                      nn.Flatten(), nn.Linear(30, 4))
                self.check_model(model, torch.randn(2, 3, 5))
        model = nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6, track_running_stats=False))
        self.assertIn("expected track_running_stats=True", self.refusal_of(model, torch.randn(2, 4)))

    def test_places_and_parts(self):
        many = torch.randperm(36).view(2, 18)
        table = torch.randperm(4).view(2, 2)

        def written(m, y):
            y = y.clone()
            y[:, 1:3] = m.weight[:2]
            y[:, 5] = 0
            return y
        self.check({
            "of two dimensions": lambda m, y: y * y.view(-1, 2, 3)[:, table % 2, table % 3].flatten(1).sum(1, keepdim=True),
            "a table of places": lambda m, y: y * y.view(-1, 6, 1)[:, table].sum((1, 2)),
            "many": lambda m, y: y * (y[:, :, None] * y[:, None]).flatten(1)[:, many].cumsum(2)[:, 0, 3:9],
            "stack": lambda m, y: torch.stack((y, y * 2, torch.ones_like(y)), 1).cumsum(1)[:, 1], "written": written,
            "stack before the samples": lambda m, y: torch.stack((y, y * 2), 0)[1],
            "unfold": lambda m, y: y * y.unfold(1, 3, 1).mean(2).sum(1, keepdim=True),
            "cut by pad": lambda m, y: torch.nn.functional.pad(y, (-1, 1)) + torch.nn.functional.pad(y, (2, -2), value=0.7),
            "pad": lambda m, y: torch.nn.functional.pad(y[:, 1:3], (1, 3), value=0.7),
            "repeat": lambda m, y: m.weight[None].repeat(y.shape[0], 1) * y})
        self.assertIn("dim=1", self.refusal(lambda m, y: torch.cat((y, y), 0)[:y.shape[0]]))
        self.assertIn("p.expand(samples", self.refusal(lambda m, y: y.repeat(2, 1)[:, :6]))

    def test_attention_of_other_ranks(self):
        dot = torch.nn.functional.scaled_dot_product_attention

        def of(*shape, **how):
            return lambda m, y: dot(*((y[:, :, None] * torch.arange(1., 5) * scale).view(-1, *shape) for scale in (1, 2, 3)), **how) \
                .flatten(1)[:, :6] * y
        self.check({
            "no heads": of(6, 4), "causal": of(6, 4, is_causal=True), "windows": of(3, 1, 2, 4), "scaled": of(3, 2, 2, 2, scale=0.3),
            "scaled, causal": of(3, 2, 2, 2, scale=0.3, is_causal=True)})
        self.assertIn("flatten the others", self.refusal(of(6, 4, attn_mask=torch.eye(6).bool())))

    def test_images(self):
        nn = torch.nn

        class Resized(nn.Conv2d):
            def __init__(self, how):
                super().__init__(3, 4, 1)
                self.how = how

            def forward(self, x):
                return nn.functional.interpolate(super().forward(x), **self.how).mean((2, 3))
        for change in (nn.AdaptiveMaxPool2d((3, 2)), nn.AdaptiveMaxPool2d(1)):
            with self.subTest(change=str(change)):
                self.check_image(change)
        for how in (dict(size=(4, 5), mode="bicubic", antialias=True), dict(scale_factor=0.5, mode="bilinear", antialias=True)):
            with self.subTest(how=how):
                self.check_model(Resized(how), torch.randn(2, 3, 9, 8))
        self.assertIn("expected sizes that divide", self.refusal_of(
            nn.Sequential(nn.Conv2d(3, 4, 1), nn.AdaptiveMaxPool2d(2), nn.Flatten()), torch.randn(2, 3, 9, 8)))

    def test_convolutions_by_computed_weights(self):
        nn, f = torch.nn, torch.nn.functional
        weight_norm = nn.utils.parametrizations.weight_norm

        class Standardized(nn.Conv2d):
            def forward(self, x):
                weight = f.batch_norm(self.weight.view(1, len(self.weight), -1), None, None, training=True, eps=1e-4)
                return f.conv2d(x, weight.view_as(self.weight), self.bias * 2, self.stride, self.padding, self.dilation, self.groups)
        for conv, sizes in ((Standardized(4, 8, 3, stride=2, padding=1), (9, 8)), (Standardized(4, 8, (1, 3), dilation=2, groups=2), (9, 8)),
                            (weight_norm(nn.Conv2d(4, 8, 1)), (9, 8)), (weight_norm(nn.ConvTranspose2d(4, 8, 3, 2, groups=2)), (4, 5)),
                            (weight_norm(nn.Conv1d(4, 8, 3)), (9,)), (weight_norm(nn.ConvTranspose1d(4, 8, 3, 2)), (9,))):
            with self.subTest(conv=str(conv)):
                model = nn.Sequential(nn.Flatten(2), nn.Conv1d(4, 4, 1), nn.Unflatten(2, sizes), conv, nn.Tanh(), nn.Flatten(), nn.LazyLinear(3))
                model(torch.randn(2, 4, *sizes))
                self.check_model(model, torch.randn(2, 4, *sizes))

        class OfSamples(nn.Conv2d):
            def forward(self, x):
                return f.conv2d(self.weight[:1], x).view(-1, 4)
        self.assertIn("weight depends on the sample", self.refusal_of(OfSamples(3, 3, 4), torch.randn(2, 3, 3, 3)))

    def check_image(self, change):
        class Changed(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.conv, self.change, self.fc = torch.nn.Conv2d(3, 4, 1), change, torch.nn.Linear(4, 5)

            def forward(self, x):
                x = self.change(self.conv(x))
                return self.fc((x.square() * torch.arange(1, 1 + x.shape[3])).mean((2, 3)))
        self.check_model(Changed(), torch.randn(2, 3, 9, 8))

    def test_rounding_makes_no_samples_depend_on_each_other(self):
        gaccd_export.export(Doubles(16), torch.randn(5, 96), self.dir / "doubles")

        class Mixes(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.fc = torch.nn.Linear(4, 3)

            def forward(self, x):
                return self.fc(x) + (0 if self.training else 1e-3 * self.fc(x).flip(0))
        self.assertRegex(self.refusal_of(Mixes(), torch.randn(3, 4)), r"another by 0\.00\d+, of outputs up to \d")

    def test_what_rounding_makes_differ_is_no_alarm_and_an_error_is_one(self):
        model = Doubles(8)
        self.assertTrue(self.verify(model, torch.randn(2, 96)).ok)
        graph = self.dir / "model" / "graph.txtpb"
        graph.write_text(graph.read_text().replace("number: 4.0", "number: 3.99", 1))
        self.assertFalse(gaccd_export.verify(model, self.dir / "model", gaccd=GACCD).ok)


def define_models():
    """Once PyTorch is there."""
    class Between(torch.nn.Module):
        def __init__(self, formula, table=False):
            super().__init__()
            if table:
                self.table = torch.nn.Parameter(torch.randn(6, 6))
            self.fc, self.weight, self.formula = torch.nn.Linear(4, 6), torch.nn.Parameter(torch.randn(6)), formula
            self.out = torch.nn.Linear(6, 3)

        def forward(self, x):
            return self.out(self.formula(self, self.fc(x) * self.weight))

    class Doubles(torch.nn.Module):
        """Each step doubles what single precision makes of another number of samples."""
        def __init__(self, steps):
            super().__init__()
            self.a, self.b, self.steps = torch.nn.Linear(96, 96), torch.nn.Linear(96, 3), steps

        def forward(self, x):
            y = torch.sigmoid(self.a(x))
            for _ in range(self.steps):
                y = 4 * y * (1 - y)
            return self.b(y)
    return Between, Doubles


if __name__ == "__main__":
    gaccd_export = open_exporter(__doc__)
    import torch
    GACCD = sys.argv[1]
    Between, Doubles = define_models()
    unittest.main(argv=[sys.argv[0], *sys.argv[2:]])
