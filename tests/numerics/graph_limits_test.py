"""Values near the limits of float32, what an export says of integers that it does not hold, and of mistakes: graph_limits_test.py GACCD

Needs what graph_export_test.py needs, else it is skipped: exit code 77.
"""
import dataclasses
import subprocess
import sys
import unittest
from unittest import mock

from exporter import ExportTest, open_exporter

SECONDS = 1_700_000_000


class GraphLimits(ExportTest):
    def test_integers_that_float32_rounds_are_refused(self):
        """They chose other rows of the table, without a word."""
        for name, formula in (("hash", lambda ids: (ids * 7919 + 13) % 97), ("pairs", lambda ids: (ids[:, 1:] * 50000 + ids[:, :-1]) % 97),
                              ("sums", lambda ids: (ids.cumsum(1) * 1000003) % 97)):
            with self.subTest(integers=name):
                found = self.refusal_of(Looks(50000, formula), torch.randint(50000, (2, 5)))
                self.assertRegex(found, "gives integers such as [0-9]+, .* float32, which has all up to 2\\^24; .*graph_limits_test.py")

    def test_smaller_integers_are_exact(self):
        self.check_model(Looks(5000, lambda ids: ((ids % 97) * (7919 % 97) + 13) % 97), torch.randint(5000, (2, 5)))
        self.check_model(Looks(300, lambda ids: (ids[:, 1:] * 300 + ids[:, :-1]) % 97), torch.randint(300, (2, 5)))

    def test_powers_of_integers_are_exact(self):
        """2^15 was 32767, by its logarithm."""
        for name, formula in (("of 2", lambda ids: 2 ** (ids % 24) % 97), ("of 10", lambda ids: 10 ** (ids % 8) // 3 % 97),
                              ("square", lambda ids: ids ** 2 % 97)):
            with self.subTest(powers=name):
                self.check_model(Looks(300, formula), torch.randint(300, (2, 5)), samples=32)
        self.assertIn("gives integers such as", self.refusal_of(Looks(300, lambda ids: 3 ** (ids % 20) % 97), torch.randint(300, (2, 5))))
        self.assertIn("of integers, expected one number", self.refusal_of(Looks(9, lambda ids: ids ** (ids % 3)), torch.randint(9, (2, 5))))

    def test_quotients_of_integers_are_exact(self):
        """41 times 1 / 41 is below 1."""
        self.check_model(Looks(9000, lambda ids: (ids % 60 * 41 / 41).long()), torch.randint(9000, (2, 5)))
        self.check_model(Looks(9000, lambda ids: (ids % 60 * 47 / (ids * 0 + 47)).long()), torch.randint(9000, (2, 5)))
        self.check_model(Looks(9000, lambda ids: ((ids % 60).float() * 41 / 41 + 1).long()), torch.randint(9000, (2, 5)))
        self.check_model(Looks(9000, lambda ids: ids % 60 + (ids[..., None].expand(-1, -1, 41) * 0 + 1.0).mean(2).long()), torch.randint(9000, (2, 5)))

        for name, formula in (
                ("parts", lambda ids: torch.cat([((ids % 60).float() * 41 / 41)[:, :3], (ids[:, 3:] % 60).float()], 1).long()),
                ("one of several", lambda ids: ((ids % 60)[..., None].float() * torch.tensor([47.0, 41.0]) / 41)[..., 1].long()),
                ("of floats", lambda ids: ((ids % 60).float() * 41 / 41 // 1).long()),
                ("of a number", lambda ids: (torch.tensor(47.0) / (ids % 2 * 0 + 47)).long() + ids % 60),
                ("the largest", lambda ids: ((ids % 60).float() * 41 / 41).max(1, keepdim=True)[0].long())):
            with self.subTest(quotients=name):
                self.check_model(Looks(9000, formula), torch.randint(9000, (2, 5)))

    def test_quotients_of_decimals_are_exact(self):
        """0.5 // 0.1 is 4: 0.1 in binary is above it, and 5 times that is rounded to 0.5."""
        for divisor in (0.1, 0.01, -0.3):
            with self.subTest(divisor=divisor):
                self.check_model(Looks(200, lambda ids: (ids / 2 // divisor).long() % 97), torch.randint(200, (2, 5)), samples=32)
                self.check_model(Looks(200, lambda ids: (torch.fmod(ids / 2 - 30, divisor).abs() < 0.01) + 0), torch.randint(200, (2, 5)), samples=32)
        self.check_model(Scaled(lambda p: (p + torch.tensor([0.5, 1.0, 1.5])) % 0.1), torch.randn(2, 4))

    def test_small_values(self):
        functions = nn.functional
        for name, formula in (
                ("quotients of small sums", lambda y: (lambda k: k / k.sum(1, keepdim=True))((-55 - y ** 2).exp())),
                ("inverse of small values", lambda y: 1e-25 / (y.sigmoid() * 1e-25)), ("expm1", lambda y: torch.expm1(1e-5 * y) * 1e5),
                ("log1p", lambda y: torch.log1p(1e-6 * y) * 1e6), ("erfc", lambda y: torch.log(torch.erfc(y + 4))),
                ("softplus", lambda y: torch.log(functions.softplus(y - 12))), ("elu", lambda y: functions.elu(1e-5 * y) * 1e5)):
            with self.subTest(formula=name):
                self.check_model(nn.Sequential(nn.Linear(4, 6), Formula(formula), nn.Linear(6, 3)), torch.randn(2, 4))

    def test_gradients_at_0(self):
        for formula in (nn.functional.softplus, nn.functional.mish, nn.functional.elu, nn.functional.silu, nn.functional.logsigmoid):
            with self.subTest(formula=formula.__name__):
                self.check_model(Scaled(formula), torch.randn(2, 4))

    def test_gradients_where_pieces_meet(self):
        functions = nn.functional
        for name, formula in (
                ("hardswish at 3", lambda p: functions.hardswish(p + 3)), ("hardswish at -3", lambda p: functions.hardswish(p - 3)),
                ("its parts", lambda p: (p + 3) * functions.relu6(p + 6) / 6 + (p - 3) * (p + 0).clamp(0, 6) / 6),
                ("xlogy", lambda p: torch.xlogy(p, 3 + p) + torch.xlogy(p.detach(), p + 1)), ("xlog1py", lambda p: torch.special.xlog1py(p, 2 + p)),
                ("sinc", lambda p: torch.sinc(p * 2) + torch.sinc(p + 0.3))):
            with self.subTest(formula=name):
                self.check_model(Scaled(formula), torch.randn(2, 4))

    def test_losses_of_certain_probabilities(self):
        """PyTorch limits the gradient where a probability is 0 or 1; the gradient of the logarithms was NaN."""
        loss, values = nn.functional.binary_cross_entropy, torch.tensor([40., -40., -30.])
        targets, weights = torch.tensor([1., 1., 0.7]), torch.tensor([1., 2., 0.5])
        for name, formula in (
                ("each", lambda p: loss((p + values).sigmoid(), targets, reduction="none")),
                ("the mean, weighted", lambda p: loss((p + values).sigmoid(), targets, weights)),
                ("of trained targets", lambda p: loss((p + 0.3).sigmoid(), (p - 1).sigmoid(), reduction="sum"))):
            with self.subTest(of=name):
                self.check_model(Scaled(formula), torch.randn(2, 4))
        self.assertIn("one of which counts samples", self.refusal_of(
            nn.Sequential(nn.Linear(4, 3), Formula(lambda y: y + loss(y.sigmoid(), torch.zeros_like(y)))), torch.randn(2, 4)))

    def test_distances_of_many_equal_points(self):
        """PyTorch makes a root of cdist beyond 25 rows; its gradient at 0 is infinite with versions whose clamp has one there."""
        from gaccd import export_ops, export_values
        for clamp in ("clamp", "hardtanh"):
            with self.subTest(clamp=clamp), mock.patch.dict(export_ops.CONVERTERS, clamp=export_values._limits(clamp, "min", "max")):
                self.check_model(Scaled(lambda p: (lambda rows: torch.cdist(rows, rows).sum(1)[:3])(p[:, None].repeat(10, 2))), torch.randn(2, 4))

    def test_quotients_of_small_negative_values(self):
        """x - 1 * -1 is 1 for x of -1e-10, as if x had reached the divisor."""
        for name, formula in (("remainder", lambda p: (p - 1e-10) % 1), ("floor", lambda p: p + torch.div(p - 1e-10, 3, rounding_mode="floor")),
                              ("of one value", lambda p: p + ((p.sum() + 41) / 41 >= 1))):
            with self.subTest(of=name):
                self.check_model(Scaled(formula), torch.randn(2, 4))

    def test_norms_of_equal_values(self):
        """A mean that is one digit off was divided by the root of a small eps."""
        norm = nn.LayerNorm(300, eps=1e-12)
        self.check_model(nn.Sequential(Formula(lambda x: x[:, :1].expand(-1, 300) * 7), norm, nn.Linear(300, 3)), torch.randn(64, 4))

    def test_scales_near_1(self):
        """They keep a logarithm finite."""
        clipped = lambda y: torch.log(1 - (torch.sigmoid(y * 100) * (1 - 2e-7) + 1e-7))
        self.check_model(nn.Sequential(nn.Linear(4, 6), Formula(clipped), nn.Linear(6, 3)), torch.randn(2, 4))

    def test_largest_of_values_far_apart(self):
        """x + relu(y - x) lost y where x was hidden or large: half of y was left."""
        hidden = lambda y: y.masked_fill(y > 0, -torch.inf)
        for name, formula in (
                ("hidden", lambda y: torch.maximum(hidden(y), y.tanh())), ("of -1e9", lambda y: torch.maximum(y * 0 - 1e9, y)),
                ("from inf", lambda y: torch.minimum(torch.full_like(y, torch.inf), y)), ("of 1e4", lambda y: torch.minimum(y * 1e-5 + 1e4, y)),
                ("at least", lambda y: y.clamp(min=torch.tensor([-torch.inf, 0, 0, -1e9, 0, 0]))),
                ("at most", lambda y: hidden(y).clamp(max=y.tanh() + 1).clamp(min=y))):
            with self.subTest(values=name):
                self.check_model(nn.Sequential(nn.Linear(4, 6), Formula(formula), nn.Linear(6, 3)), torch.randn(2, 4), tolerance=1e-6)

    def test_comparisons_have_no_gradient(self):
        """Theirs was 0, which became NaN where a root or a logarithm has an infinite one."""
        for name, formula in (("logarithm", lambda p: p * (p.log() > -5)), ("root", lambda p: p + 1 * (p.sqrt() < 0.5)),
                              ("integers", lambda p: p * p.sqrt().long()), ("position", lambda p: p + p.log().argmax(0)),
                              ("distances", lambda p: ((p[:, None] - p).pow(2).sqrt() < 1.5).float() @ p)):
            with self.subTest(of=name):
                self.check_model(Scaled(formula), torch.randn(2, 4))

    def test_comparisons_with_nan_and_infinity(self):
        """A NaN, as a missing feature, was at least each number; infinities were not equal."""
        def log0(y):
            return torch.log(1 - (y > 0.3).float()).detach()

        def chosen(z, other, y):
            masks = (z >= other, z <= other, z > other, z < other, z == other, z != other)
            return sum(torch.where(mask, y, k * y) for k, mask in enumerate(masks, 2))
        for value, values in (("NaN", lambda y: y.masked_fill(y > 0.3, torch.nan).detach()), ("infinity", lambda y: y.detach() - log0(y)),
                              ("-infinity", lambda y: y.detach() + log0(y))):
            for name, formula in (("a number", lambda y: chosen(values(y), 0, y)), ("of a number", lambda y: chosen(torch.tensor(0.1), values(y), y)),
                                  ("infinity", lambda y: chosen(values(y), torch.inf, y)), ("-infinity", lambda y: chosen(values(y), -torch.inf, y)),
                                  ("others", lambda y: chosen(values(y), values(y + 0 * y.mean(1, keepdim=True)), y))):
                with self.subTest(value=value, compared_with=name):
                    self.check_model(nn.Sequential(nn.Linear(4, 6), Formula(formula), nn.Linear(6, 3)), torch.randn(2, 4))

    def test_positions_of_equal_infinite_values(self):
        """Each was the first, so that their positions were added."""
        for name, formula in (("argmax", lambda p: p + (p * 0).log().argmax(0)), ("topk", lambda p: p + (1 / (p * p).detach()).topk(3)[1])):
            with self.subTest(of=name):
                self.check_model(Scaled(formula), torch.randn(2, 4))

    def test_lengths_below_eps(self):
        """cosine_similarity limits a length without changing its gradient."""
        functions = nn.functional
        for name, formula in (
                ("of rows", lambda p: functions.cosine_similarity(p[:, None] + torch.ones(3), torch.arange(3.) - p[:, None], 1, 9.0) + p),
                ("of pairs", lambda p: functions.cosine_similarity((p + 1)[:, None, None], (p + torch.arange(3.)[:, None])[:, :, None], -1, 2.0).sum(1)),
                ("broadcast", lambda p: functions.cosine_similarity((p + 1)[:, None], (p[:, None] - torch.arange(3.)), 1, 0.5)),
                ("columns", lambda p: functions.cosine_similarity(p[None] + torch.ones(3, 1), p + torch.arange(3.)[:, None], 0, 0.01))):
            with self.subTest(formula=name):
                self.check_model(Scaled(formula), torch.randn(2, 4))

    def test_shapes_that_training_refused(self):
        class OneOutput(nn.Module):
            """A weight of one dimension."""
            def __init__(self):
                super().__init__()
                self.weight, self.out = nn.Parameter(torch.randn(6)), nn.Linear(5, 3)

            def forward(self, x):
                return self.out(nn.functional.linear(x, self.weight))
        self.check_model(OneOutput(), torch.randn(2, 5, 6))
        mask, known = torch.tensor([True, False, True, True]), torch.tensor([1, 0, 3, 2])
        chosen = nn.Sequential(nn.Linear(4, 4), Formula(lambda y: y[:, mask]))
        self.assertIn("by a mask that is known; keep its places", self.refusal_of(chosen, torch.randn(2, 4)))
        repeated = nn.Sequential(nn.Linear(4, 4), Formula(lambda y: y.repeat_interleave(known, 1)), nn.Linear(6, 3))
        self.check_model(repeated, torch.randn(2, 4))
        repeated[2] = nn.Softmax(1)
        self.assertIn("repeat_interleave takes a known one as output_size", self.refusal_of(repeated, torch.randn(2, 4)))
        repeated[1].formula = lambda y: y.repeat_interleave(known, 1, output_size=6)
        self.check_model(repeated, torch.randn(2, 4))

    def test_writes_that_torch_export_does_not_see_are_named_by_their_module(self):
        class Clamps(nn.Linear):
            def forward(self, x):
                self.weight.data.clamp_(-1, 1)
                return super().forward(x)
        refusal = self.refusal_of(nn.Sequential(nn.Linear(4, 4), Clamps(4, 3)), torch.randn(2, 4))
        self.assertIn("which torch.export does not see in 1 (Clamps); read the tensor itself", refusal)

    def test_writes_of_a_number(self):
        """At a mask, and at one place of each sample, which may be counted from the end."""
        def at_mask(y):
            z = y.clone()
            z[y > 0] = 2.5
            return z

        def at_places(y):
            z = y.clone()
            z[torch.arange(y.shape[0]), (y > 0).sum(1) - 1] = 1.5
            return z
        def hides(y):
            z = y.clone()
            z[y > 0] = float("-inf")
            return z.softmax(1)
        for formula in (at_mask, at_places, hides):
            with self.subTest(formula=formula.__name__):
                self.check_model(nn.Sequential(nn.Linear(4, 4), Formula(formula), nn.Linear(4, 3)), torch.randn(2, 4))

    def test_bits_of_values_are_refused(self):
        """They were taken for the values."""
        found = self.refusal_of(Scaled(lambda p: p + p.detach().view(torch.int32) % 7), torch.randn(2, 4))
        self.assertIn("reads the bits of values as those of another type; x.to(dtype)", found)
        self.check_model(Scaled(lambda p: p + p.view(torch.float32) * p.view(3, 1)[:, 0]), torch.randn(2, 4))

    def test_sums_of_another_type(self):
        """sum(dtype=torch.long) truncates each value before it adds them; of masks, torch.bool gives whether there is one."""
        for name, formula in (("integers", lambda y: y + y.detach().sum(1, dtype=torch.long)[:, None]),
                              ("mask", lambda y: torch.where((y > 0).sum(1, dtype=torch.bool)[:, None], y, 2 * y))):
            with self.subTest(to=name):
                found = self.refusal_of(nn.Sequential(nn.Linear(4, 4), Formula(formula)), torch.randn(2, 4))
                self.assertRegex(found, r"converts its values to torch\.(int64|bool) first; write that conversion, as x\.long\(\)\.sum\(dim\), or for masks any")
        for formula in (lambda y: y + y.detach().to(torch.int64).sum(1)[:, None], lambda y: y * (y > 0).cumsum(1, dtype=torch.long)):
            self.check_model(nn.Sequential(nn.Linear(4, 4), Formula(formula)), torch.randn(2, 4))

    def test_scatter_of_several_values_at_one_place(self):
        """They were added, to each other and to what was there."""
        for name, formula in (
                ("equal", lambda y: y * torch.ones_like(y).scatter(1, (y > 0).long(), torch.full_like(y, 0.5))),
                ("others", lambda y: y * y.scatter(1, (y > 0).long() * 2, y.detach() * 3)),
                ("several hot", lambda y: y * torch.zeros(y.shape[0], 4).scatter_(1, (y > 0) + (y > 0.3).long(), 1.0)),
                ("one of each", lambda y: y.scatter(1, y.argsort(dim=1), y * 3)),
                ("added", lambda y: y.scatter_add(1, (y > 0).long() * 2, y * 3))):
            with self.subTest(values=name):
                self.check_model(nn.Sequential(nn.Linear(4, 4), Formula(formula), nn.Linear(4, 3)), torch.randn(2, 4))

    def test_writes_of_another_type(self):
        """Into integers numbers are truncated, into masks they are whether they are not 0."""
        def into(dtype):
            def formula(y):
                z = torch.zeros(y.shape[0], 4, dtype=dtype)
                z[:, :2] = y[:, :2].detach() * 3
                z[:, 2:] = (y[:, :1] > 0).detach() * 2
                return torch.where(z, y, 2 * y) if dtype == torch.bool else y * z
            return formula
        for dtype in (torch.long, torch.bool, torch.float32):
            with self.subTest(into=dtype):
                self.check_model(nn.Sequential(nn.Linear(4, 4), Formula(into(dtype)), nn.Linear(4, 3)), torch.randn(2, 4))

    def test_writes_at_known_places(self):
        """Of a number, of values of the sample, and of parameters; of two dimensions, and of many places."""
        places = torch.tensor([2, 0])

        def put(write):
            def formula(y):
                z = y.clone()
                write(z, y)
                return z
            return Formula(formula)

        class Learned(nn.Module):
            def __init__(self):
                super().__init__()
                self.row = nn.Parameter(torch.randn(2))

            def forward(self, y):
                z = y.clone()
                z[:, places] = self.row
                return z
        for name, module in {
                "number": put(lambda z, y: z.__setitem__((slice(None), places), 0.5)),
                "values": put(lambda z, y: z.__setitem__((slice(None), [-1, 1]), y[:, :2] * 2)),
                "learned": Learned(),
                "fill": Formula(lambda y: y.index_fill(1, places, -1.0)),
                "copy": Formula(lambda y: y.index_copy(1, places, y[:, 1:3]))}.items():
            with self.subTest(name):
                self.check_model(nn.Sequential(nn.Linear(4, 4), module, nn.Linear(4, 3)), torch.randn(2, 4))
        rows, columns = torch.triu_indices(5, 5, 1)
        symmetric = put(lambda z, y: z.__setitem__((slice(None), rows, columns), y[:, columns, rows]))
        self.check_model(nn.Sequential(nn.Linear(5, 5), symmetric, nn.Flatten(), nn.Linear(25, 3)), torch.randn(2, 5, 5))
        added = Formula(lambda y: y.index_add(1, places, y[:, 1:3]))
        self.assertIn("a product with a constant matrix", self.refusal_of(nn.Sequential(nn.Linear(4, 4), added), torch.randn(2, 4)))

    def test_gates_of_repeated_rows(self):
        """A recurrent layer reads learned steps, which are repeated for each sample, and begins with one row of zeros."""
        class Decoder(nn.Module):
            def __init__(self, layer):
                super().__init__()
                self.steps, self.layer, self.out = nn.Parameter(torch.randn(1, 3, 4)), layer, nn.Linear(6, 3)

            def forward(self, x):
                return self.out(self.layer(self.steps.expand(x.shape[0], -1, -1))[0].flatten(1) * x)
        for layer in (nn.GRU(4, 2, batch_first=True), nn.LSTM(4, 2, batch_first=True)):
            self.check_model(Decoder(layer), torch.randn(2, 6))

    def test_samples_last(self):
        def of_columns(y, formula):
            return formula(y.view(-1, 2, 3).permute(1, 2, 0)).t()
        for name, formula in (
                ("addmm", lambda m, y: torch.addmm(m.of[0][:, :1], m.of[0], y.t(), beta=0.5, alpha=2).t()), ("mm", lambda m, y: (m.of[0] @ y.t()).t()),
                ("bmm", lambda m, y: torch.bmm(m.of, torch.stack((y.t(), y.sin().t()))).permute(2, 0, 1).flatten(1)),
                ("linear", lambda m, y: nn.functional.linear(m.of[0], y, y[:, 0]).t()), ("extremes", lambda m, y: of_columns(y, lambda z: z.amax(1) - z.amin(1))),
                ("log_softmax", lambda m, y: of_columns(y, lambda z: z.log_softmax(0)[:, 1] + z.logsumexp(1))),
                ("einsum", lambda m, y: torch.einsum("koi,kin->kon", m.of, torch.stack((y.t(), y.sin().t()))).sum(0).t())):
            with self.subTest(formula=name):
                self.check_model(Products(formula), torch.randn(2, 4))

    def test_single_ids_and_bags_of_pairs(self):
        self.check_model(nn.Sequential(nn.Embedding(9, 4), nn.Linear(4, 3)), torch.randint(9, (2,)))
        for padding in (None, 2):
            bags = nn.Sequential(Formula(lambda ids: ids.view(-1, 2)), nn.EmbeddingBag(9, 4, padding_idx=padding), Formula(lambda y: y.view(-1, 12)),
                                 nn.Linear(12, 3))
            self.check_model(bags, torch.randint(9, (2, 6)))

        class Rest(nn.Module):
            """The last bag has the ids that others left."""
            def __init__(self):
                super().__init__()
                self.bag = nn.EmbeddingBag(9, 4)

            def forward(self, tokens):
                return self.bag(tokens.flatten(), torch.arange(0, tokens.shape[0] * 2, 2))
        self.assertIn("bags of different lengths", self.refusal_of(Rest(), torch.randint(9, (2, 4))))

    def test_first_rows_of_a_table_with_expanded_values(self):
        for name, rows in (("expanded", lambda x: x[:, None].expand(-1, 3, -1)), ("zeros", lambda x: torch.zeros(x.shape[0], 3, 4))):
            with self.subTest(values=name):
                self.check_model(Rows(rows), torch.randn(2, 4))

    def test_times_are_refused(self):
        model = Looks(0, lambda when: when // 3600 % 24)
        gaccd_export.export(model, {"when": torch.randint(SECONDS, (2, 1))}, self.dir / "model", inputs={"when": "when"})
        numpy.save(self.dir / "when.npy", torch.randint(SECONDS, (20, 1)).numpy())
        numpy.save(self.dir / "y.npy", torch.randint(3, (20,)).numpy())
        (self.dir / "job.txtpb").write_text(
            'name: "times" model { graph { path: "model" } loss { softmax_cross_entropy {} } }\n'
            f'data {{ train {{ arrays {{ array {{ name: "when" path: "when.npy" vocabulary: {SECONDS} }} '
            'array { name: "labels" path: "y.npy" } classes: 3 } } }\nbatch { target: 10 } optimizer { lr: 0.1 sgd {} }\n')
        done = subprocess.run([sys.argv[1], "train", "--job=job.txtpb", "--device=cpu"], cwd=self.dir, text=True, capture_output=True)
        self.assertEqual(done.returncode, 78, done.stderr)
        self.assertIn("the integers for 'when' in f32, which has all up to 16777216: expected a vocabulary of at most 16777217", done.stderr)

    def test_parts_in_evaluation_mode_are_named(self):
        model = torch.nn.Sequential(torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.BatchNorm1d(4)), torch.nn.Linear(4, 2))
        said = "mode       0: in evaluation mode; gaccd trains what model.train() computes"
        for mode, expected in (("all in training", False), ("a part in evaluation", True), ("all in evaluation", False)):
            with self.subTest(mode=mode):
                model.train(mode != "all in evaluation")
                model[0].train(mode == "all in training")
                self.assertEqual(said in str(gaccd_export.export(model, torch.zeros(2, 4), self.dir / "model")), expected)
                self.assertEqual(model[0][1].training, mode == "all in training")

    def test_mistakes(self):
        self.assertIn("mask: forward needs this argument, expected an example of it", self.refusal_of(Masked(), torch.zeros(2, 4)))
        packed = torch.nn.Sequential(torch.ao.nn.quantized.dynamic.Linear(4, 4))
        self.assertIn("0: is a quantized Linear, which cannot be trained", self.refusal_of(packed, torch.zeros(2, 4)))

        class Choices(Looks):
            def forward(self, tokens):
                return super().forward(tokens)
        self.assertIn("tokens: expected tokens [samples, length], found [2, 3, 4]; other integers need another name, as by inputs={'tokens': 'ids'}",
                      self.refusal_of(Choices(0, lambda ids: ids % 97), torch.zeros(2, 3, 4, dtype=torch.long)))

    def test_what_forward_stores_is_left_out(self):
        model = Stores(read=False)
        self.check_model(model, torch.zeros(2, 4))
        gaccd_export.export(model, torch.zeros(2, 4), self.dir / "model")
        self.assertFalse(hasattr(model, "samples"))
        self.assertIn("forward gives another output when it is called again", self.refusal_of(Stores(read=True), torch.zeros(2, 4)))

    def test_complex_buffers_are_compared(self):
        """verify made them real, so that a model that agreed seemed to differ."""
        self.check_model(Rotates(), torch.zeros(2, 5, 8))

    def test_own_statistics_of_a_batch_are_refused_with_a_way(self):
        """As in EvoNorm-B0 and B1 of timm."""
        model = nn.Sequential(nn.Conv2d(3, 4, 3), Formula(lambda y: y / y.var((0, 2, 3), keepdim=True).sqrt()), nn.Flatten(), nn.Linear(16, 5))
        self.assertRegex(self.refusal_of(model, torch.randn(2, 3, 4, 4)), "one of which counts samples: .*; nn.BatchNorm1d, 2d and 3d have exact")

    def test_gradients_of_rounding_alone_agree(self):
        """A batch norm cancels the bias; verify said that the rounding of its gradient differs, though PyTorch's is as large."""
        model = nn.Sequential(Formula(lambda x: x * 1e-2), nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8, eps=1e-9), nn.ReLU(), nn.AdaptiveAvgPool2d(1),
                              nn.Flatten(), nn.Linear(8, 5))
        found = self.verify(model, torch.zeros(2, 3, 32, 32))
        bias = next(one for one in found.results if one.name == "1.bias")
        self.assertLess(bias.size, 1e-9)
        self.assertGreater(bias.gaccd, 0.1)
        self.assertTrue(found.ok, found)
        self.assertFalse(dataclasses.replace(bias, gaccd=11 * bias.pytorch).ok)

    def test_a_prediction_for_some_tokens_is_compared(self):
        self.check_model(Looks(9, lambda ids: ids[:, 1:3], mean=False), torch.randint(9, (2, 5)))

    def test_masks_of_certain_values(self):
        """The attention read the input itself as the mask, so that each value but 0 was visible."""
        ids = torch.randint(9, (2, 6))
        for name, formula, example in (("equal", lambda ids: ids == 1, ids), ("below", lambda ids: (ids > 0) & (ids < 5), ids),
                                       ("not", lambda ids: (ids != 0) & (ids != 7), ids), ("numbers", lambda x: x > 0.5, torch.rand(2, 6))):
            for causal in (False, True):
                with self.subTest(mask=name, causal=causal):
                    self.check_model(Hides(formula, causal), example, samples=32)

    def test_layer_norms_of_computed_weights(self):
        class Norm(torch.nn.LayerNorm):  # as Nemotron's
            def forward(self, x):
                return torch.nn.functional.layer_norm(x, (4,), self.weight + 1, self.bias, self.eps)
        self.check_model(torch.nn.Sequential(torch.nn.Linear(3, 4), Norm(4)), torch.zeros(2, 3))


def define_models():
    """Once PyTorch is there."""
    nn = torch.nn

    class Looks(nn.Module):
        """Rows of a table that integers choose, and of one of `rows` that reads ids themselves."""
        def __init__(self, rows, formula, mean=True):
            super().__init__()
            self.formula, self.mean, self.out = formula, mean, nn.Linear(4, 3)
            self.table, self.own = nn.Embedding(97, 4), nn.Embedding(rows, 4) if rows else None

        def forward(self, when):
            y = self.table(self.formula(when))
            if not self.mean:
                return self.out(y)
            return self.out(y.mean(1) if self.own is None else y.mean(1) + self.own(when).mean(1))

    class Masked(nn.Linear):
        def __init__(self):
            super().__init__(4, 2)

        def forward(self, x, mask):
            return super().forward(x * mask)

    class Stores(nn.Linear):
        """Stores what torch.export replaces: a size, and a value that it may read in its next call."""
        def __init__(self, read):
            super().__init__(4, 2)
            self.read = read

        def forward(self, x):
            y = super().forward(x) + (getattr(self, "last", 0) if self.read else 0)
            self.samples, self.last = x.shape[0], y.detach()
            return y

    class Formula(nn.Module):
        def __init__(self, formula):
            super().__init__()
            self.formula = formula

        def forward(self, y):
            return self.formula(y)

    class Scaled(nn.Module):
        """By values of parameters that are 0."""
        def __init__(self, formula):
            super().__init__()
            self.fc, self.raw, self.formula = nn.Linear(4, 3), nn.Parameter(torch.zeros(3)), formula

        def forward(self, x):
            return self.fc(x) * (1 + self.formula(self.raw))

    class Products(nn.Module):
        def __init__(self, formula):
            super().__init__()
            self.fc, self.of, self.formula = nn.Linear(4, 6), nn.Parameter(torch.randn(2, 3, 6)), formula

        def forward(self, x):
            return self.formula(self, self.fc(x))

    class Rows(nn.Module):
        def __init__(self, rows):
            super().__init__()
            self.rows, self.table, self.fc = rows, nn.Embedding(9, 4), nn.Linear(4, 2)

        def forward(self, x):
            return self.fc(self.rows(x) + self.table(torch.arange(3))).flatten(1) + x[:, :1]

    class Rotates(nn.Module):
        def __init__(self):
            super().__init__()
            self.q, self.out = nn.Linear(8, 8), nn.Linear(8, 3)
            self.register_buffer("angles", torch.polar(torch.ones(5, 4), torch.rand(5, 4)), persistent=False)

        def forward(self, x):
            turned = torch.view_as_complex(self.q(x).unflatten(-1, (4, 2)).contiguous()) * self.angles
            return self.out(torch.view_as_real(turned).flatten(2).mean(1))

    class Hides(nn.Module):
        """Attention to the keys of certain values."""
        def __init__(self, formula, causal):
            super().__init__()
            self.formula, self.seen = formula, torch.ones(6, 6).bool().tril() if causal else torch.ones(6, 6).bool()
            self.places, self.tokens, self.q = nn.Parameter(torch.randn(6, 8)), nn.Embedding(9, 8), nn.Linear(8, 8)

        def forward(self, x):
            y = x[..., None] * self.places if x.is_floating_point() else self.tokens(x)
            q, k = (one.unflatten(2, (2, 4)).transpose(1, 2) for one in (self.q(y) + self.places, y))
            mask = self.formula(x)[:, None, None, :] & self.seen
            return nn.functional.scaled_dot_product_attention(q, k, k, attn_mask=mask).transpose(1, 2).flatten(2)
    return Formula, Hides, Looks, Masked, Products, Rotates, Rows, Scaled, Stores


if __name__ == "__main__":
    gaccd_export = open_exporter("tests/numerics/graph_limits_test.py exports models of PyTorch 2.7 or newer")
    import numpy
    import torch
    from torch import nn
    Formula, Hides, Looks, Masked, Products, Rotates, Rows, Scaled, Stores = define_models()
    unittest.main(argv=[sys.argv[0], *sys.argv[2:]])
