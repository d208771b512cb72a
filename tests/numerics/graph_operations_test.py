"""Operations that the exporter makes of others, and what it refuses: graph_operations_test.py GACCD

Small modules, each exported and compared with PyTorch by gaccd.verify. Needs what graph_export_test.py needs, else it is
skipped: exit code 77.
"""
import subprocess
import sys
import unittest

from exporter import ExportTest, open_exporter


class GraphOperations(ExportTest):
    def check(self, formulas, sizes=(4,), tolerance=1e-5, table=False):
        """Each formula(model, y) of y [samples, 6] between two linear layers; its result has 6 values for each sample."""
        for name, formula in formulas.items():
            with self.subTest(formula=name):
                self.check_model(Between(formula, table), torch.randn(2, *sizes), tolerance)

    def exported(self, model):
        gaccd_export.export(model, torch.randn(2, 4), self.dir / "other")
        return self.dir / "other"

    def refusal(self, formula, sizes=(4,)):
        return self.refusal_of(Between(formula), torch.randn(2, *sizes))

    def test_limits_and_means(self):
        self.check({
            "at least a parameter": lambda m, y: y.clamp(min=m.weight),
            "between parameters": lambda m, y: y.clamp(min=m.weight - 1, max=m.weight),
            "a number and a parameter": lambda m, y: y.clamp(min=torch.tensor(-0.2), max=m.weight),
            "all samples in order": lambda m, y: y[torch.arange(y.shape[0])[:, None, None]].flatten(1) * 2,
            "similarity": lambda m, y: y * torch.nn.functional.cosine_similarity(y, m.weight[None], dim=1)[:, None],
            "of all values": lambda m, y: y * m.weight.mean() + m.weight.sum()})

    def test_products_with_parameters_that_are_permuted(self):
        self.check({
            "transposed": lambda m, y: y @ m.table.t(), "as it is": lambda m, y: y @ m.table,
            "einsum": lambda m, y: torch.einsum("bi,ij->bj", y, m.table), "einsum, transposed": lambda m, y: torch.einsum("bi,ji->bj", y, m.table),
            "einsum of rows": lambda m, y: torch.einsum("bti,ij->btj", y[:, None] * torch.ones(2, 1), m.table).sum(1),
            "computed": lambda m, y: y @ (m.weight[:, None] * 2 * m.table.tanh()),
            "computed, einsum": lambda m, y: torch.einsum("bij,ijk->bik", y.view(-1, 2, 3), m.table[:4].tanh().view(2, 3, 4)).flatten(1)[:, :6],
            "samples last": lambda m, y: (m.table @ y.t()).t(), "samples last, einsum": lambda m, y: torch.einsum("bi,ij->jb", y, m.table).t(),
            "addmm": lambda m, y: torch.addmm(m.weight, y, m.table, beta=0.5, alpha=3),
            "a computed bias": lambda m, y: torch.nn.functional.linear(y, m.table, m.weight * 2)}, table=True)
        self.check({
            "known rows": lambda m, y: y + m.table[torch.arange(3)[None].repeat(y.shape[0], 1)].sum(1),  # as positions of Whisper
            "computed": lambda m, y: y @ (m.weight[:, None] * 2 * m.weight), "computed, of steps": lambda m, y:
            torch.einsum("bnd,de->bne", y.view(-1, 2, 3), (m.table[:3, :3] * 2).tanh()).flatten(1), "of heads": lambda m, y:
            torch.einsum("bnd,jnd->bnj", y.view(-1, 2, 3), m.table.tanh()[:3].view(3, 2, 3)).flatten(1),
            "repeated": lambda m, y: (y.view(-1, 1, 3) @ m.table.tanh().view(2, 6, 3).mT.repeat(y.shape[0], 1, 1)).view(-1, 2, 6).sum(1)}, table=True)

    def test_what_training_refuses_is_refused_by_export(self):
        self.assertIn("between 0.5 and 0.2, expected the lower limit first", self.refusal(lambda m, y: y.clamp(0.5, 0.2)))
        self.assertIn("drops everything", self.refusal(lambda m, y: torch.nn.functional.dropout(y, 1.0, m.training)))
        images = torch.nn.Conv2d(3, 6, 1)
        self.assertRegex(self.refusal(lambda m, y: y + y[:, :0].sum(1, keepdim=True)), r"has no values; it is called at .*_test.py:\d+$")
        self.assertIn("is not supported", self.refusal(lambda m, y: y @ torch.linalg.inv(torch.outer(m.weight, m.weight))))
        self.assertIn("call the layers for each input", self.refusal(lambda m, y: sum(torch.cat([y, y * 2]).chunk(2))))
        self.assertIn("found 4 dimensions, ['N', 6, 5, 5]", self.refusal_of(images, torch.randn(2, 3, 5, 5)))

    def test_classes_of_pixels(self):
        nn = torch.nn
        images = nn.Sequential(nn.Conv2d(3, 6, 3, padding=1), nn.ReLU(), nn.Conv2d(6, 4, 1))
        self.assertIn("let a module around it give y.flatten(2).transpose(1, 2)", self.refusal_of(images, torch.randn(2, 3, 5, 5)))
        pixels = Calls(lambda m, x: {"out": m.images(x), "aux": m.aux(x)}, images=images, aux=nn.Conv2d(3, 4, 1))
        self.assertIn("as model(x)['out'] is", self.refusal_of(pixels, torch.randn(2, 3, 5, 5)))
        self.check_model(Calls(lambda m, x: m.pixels(x)["out"].flatten(2).transpose(1, 2), pixels=pixels), torch.randn(2, 3, 5, 5))

    def test_gradients_that_forward_stops(self):
        def without_gradient(m, y):
            with torch.inference_mode():
                z = y * 2
            return y + z

        def of_data(m, x):
            with torch.inference_mode():
                z = x * 2
            return m.fc(x + z)
        doubled = torch.inference_mode()(lambda y: y * 2)
        for formula in (without_gradient, lambda m, y: y + doubled(y), lambda m, y: y * torch.no_grad()(m.fc)(y[:, :1] * torch.ones(4))):
            self.check_model(Calls(lambda m, x: formula(m, m.fc(x)), fc=torch.nn.Linear(4, 3)), torch.randn(2, 4))
        self.assertRegex(self.refusal(lambda m, y: y * (y * 1).detach_()), r"detach_\(\) of a trained .*_test.py:\d+$")
        self.check_model(Calls(of_data, fc=torch.nn.Linear(4, 3)), torch.randn(2, 4))
        with torch.inference_mode():
            self.assertTrue(torch.is_inference_mode_enabled())
        spectral = torch.nn.utils.parametrizations.spectral_norm(torch.nn.Linear(4, 3))
        self.assertIn("spectral_norm changes its vectors", self.refusal_of(spectral, torch.randn(2, 4)))

    def test_buffers_that_change_are_refused(self):
        def counted(m, x):
            m.calls += 1
            return m.fc(x)
        for persistent in (False, True):
            model = Calls(counted, fc=torch.nn.Linear(4, 3), calls=torch.nn.Buffer(torch.zeros(1), persistent=persistent))
            if persistent:
                self.assertRegex(self.refusal_of(model, torch.randn(2, 4)), r"changes the buffer 'calls'; .*_test.py:\d+$")
            else:
                self.check_model(model, torch.randn(2, 4))
        half = Calls(lambda m, x: m.fc(x) * m.scale.float(), fc=torch.nn.Linear(4, 3), scale=torch.nn.Buffer(torch.randn(3).half()))
        self.check_model(half, torch.randn(2, 4))

    def test_the_summary_reports_a_different_evaluation(self):
        def softmax(m, y):
            return y if m.training else y.softmax(1)

        def same(m, y):
            return m.norm(torch.nn.functional.dropout(y, 0.5, m.training))
        for formula, differs in ((softmax, True), (same, False)):
            model = Between(formula)
            model.norm = torch.nn.BatchNorm1d(6)
            summary = gaccd_export.export(model, torch.randn(2, 4), self.dir / "model")
            self.assertEqual(summary.evaluation > 0.01, differs)
            self.assertEqual("evaluation the model computes something else than in training, by " in str(summary), differs)

    def test_what_training_computes_by_its_calls_is_refused(self):
        def counted(m, x):
            m.calls += m.training
            return m.fc(x) * (1 + 1 / m.calls if m.training else 1)

        def kept(m, x):
            y = m.fc(x) + (m.last if m.training else 0)
            m.last = y.detach().abs().amax()
            return y

        def noisy(m, x):
            return m.fc(x) * torch.nn.functional.dropout(torch.ones_like(x[:, :3]), 0.5, m.training)
        for forward in (counted, kept):
            model = Calls(forward, fc=torch.nn.Linear(4, 3), calls=0, last=torch.zeros(()))
            self.assertIn("something else when it is called again", self.refusal_of(model, torch.randn(2, 4)))
        self.check_model(Calls(noisy, fc=torch.nn.Linear(4, 3)), torch.randn(2, 4))

    def test_dropout_of_what_has_no_samples_is_the_same_for_all(self):
        """The gradient of a weight is 0 where it was dropped, and else the sum over all samples, in any micro-batches."""
        class Dropped(torch.nn.Module):
            def __init__(self, p, of_samples=False):
                super().__init__()
                self.p, self.weight, self.of_samples = p, torch.nn.Parameter(torch.ones(40)), of_samples

            def forward(self, x):
                y = self.weight + torch.zeros_like(x) if self.of_samples else self.weight
                return (torch.nn.functional.dropout(y, self.p, self.training) * x).sum(1, keepdim=True)
        (self.dir / "job.txtpb").write_text(
            'name: "dropped"\nmodel { graph { path: "model" } loss { mean_squared_error {} } }\n'
            'data { train { npy { features: "x.npy" targets: "y.npy" } } shuffle: false }\n'
            'batch { target: 8 micro: 8 }\noptimizer { lr: 0.5 sgd {} }\nepochs: 1\n')
        numpy.save(self.dir / "x.npy", numpy.ones((8, 40), numpy.float32))
        numpy.save(self.dir / "y.npy", numpy.full((8, 1), 1e6, numpy.float32))

        def share(micro, *dropped):
            """Of the gradients of weights in that where nothing is dropped."""
            found = []
            for model in (Dropped(*dropped), Dropped(0.0)):
                gaccd_export.export(model, torch.randn(2, 40), self.dir / "model")
                run = subprocess.run([GACCD, "train", "--job=job.txtpb", "--device=cpu", "--save-weights=moved", f"--set=batch.micro={micro}"],
                                     cwd=self.dir, text=True, capture_output=True, check=False)
                self.assertEqual(run.returncode, 0, run.stderr)
                found.append(safetensors.torch.load_file(self.dir / "moved")["weight"] - 1)
            return found[0] / found[1]
        of_all = share(8, 0.25)
        self.assertTrue(torch.allclose(of_all, torch.where(of_all > 0.5, 4 / 3, 0.0), atol=1e-3), of_all)
        self.assertTrue(4 < int((of_all < 0.5).sum()) < 18, of_all)
        self.assertTrue(torch.allclose(share(2, 0.25), of_all, atol=1e-3))
        of_each = share(8, 0.25, True)
        self.assertTrue(8 < len(torch.unique(of_each.mul(6).round())) or 4 < int(((of_each > 0.1) & (of_each < 1.3)).sum()), of_each)

    def test_integers_that_wrap_are_refused(self):
        class Small(torch.nn.Module):
            def __init__(self, of):
                super().__init__()
                self.fc, self.of = torch.nn.Linear(6, 3), of

            def forward(self, tokens):
                return self.fc(self.of(tokens).float())
        for of in (lambda x: (x * 20).to(torch.int8), lambda x: (x > 3).to(torch.uint8) - 1):
            self.assertRegex(self.refusal_of(Small(of), torch.randint(9, (2, 6))), r"computes in torch.u?int8, which wraps")
        self.check_model(Small(lambda x: (x > 0).to(torch.uint8)), torch.randint(2, (2, 6)))

    def test_infinite_buffers_are_the_largest_number(self):
        limited = Calls(lambda m, x: m.fc(x).clamp(m.least, m.most), fc=torch.nn.Linear(4, 3))
        limited.register_buffer("least", torch.tensor(-0.3))
        limited.register_buffer("most", torch.tensor(torch.inf))
        self.check_model(limited, torch.randn(2, 4))
        limited.fc.bias.data[1] = torch.inf
        self.assertIn("fc.bias: expected finite values", self.refusal_of(limited, torch.randn(2, 4)))

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
        self.check({
            "log1p": lambda m, y: torch.log1p(y.abs()), "expm1": lambda m, y: torch.expm1(y), "sign": lambda m, y: y + y.sign() * y ** 2,
            "softsign": lambda m, y: f.softsign(y), "logsigmoid": lambda m, y: f.logsigmoid(y), "softshrink": lambda m, y: f.softshrink(y),
            "gelu by erf": lambda m, y: y * 0.5 * (1 + torch.erf(y / 2 ** 0.5)), "log_softmax": lambda m, y: (20 * y).log_softmax(1),
            "log_softmax of columns": lambda m, y: y.view(-1, 2, 3).log_softmax(1).flatten(1),
            "max": lambda m, y: y * y.view(-1, 2, 3).max(1)[0].sum(1, keepdim=True),
            "min": lambda m, y: y * y.view(-1, 2, 3).min(2, keepdim=True).values.sum(1),
            "logsumexp": lambda m, y: y * (y + (y[:, :1] < 0) * torch.finfo(y.dtype).min).logsumexp(1, keepdim=True).sigmoid(),
            "any": lambda m, y: y * (y > 0.5).any(1, keepdim=True) + y * (y > -1).all(1)[:, None] + y.view(-1, 2, 3).relu().any(1).repeat(1, 2),
            "a norm of the order 1": lambda m, y: f.normalize(y, p=1, dim=1) + (y * (y > 0)).norm(1, dim=1)[:, None]})
        self.check({
            "erf": lambda m, y: torch.erf(y), "erfc": lambda m, y: torch.erfc(3 * y), "log2": lambda m, y: torch.log2(y.abs() + 1),
            "log10": lambda m, y: torch.log10(y.abs() + 1), "exp2": lambda m, y: torch.exp2(y), "var_mean": lambda m, y: y * sum(
                torch.var_mean(y, 1, keepdim=True)), "std_mean": lambda m, y: y * sum(torch.std_mean(y, 1, keepdim=True))})
        for extreme in (torch.maximum, torch.minimum):  # half of the gradient for each where both are equal
            one, other = (torch.nn.Parameter(torch.ones(4)) for _ in range(2))
            self.check_model(Calls(lambda m, x: m.fc(extreme(m.one * (x > 0), m.other * (x > 0)) + extreme(m.one, torch.ones(4)) + x), one=one,
                                   other=other, fc=torch.nn.Linear(4, 3)), torch.randn(2, 4))
        for best in (lambda y: y.amax(1), lambda y: -(-y).amin(1, keepdim=True)[:, 0]):  # equal ones share the gradient
            one, other = (torch.nn.Parameter(torch.ones(4)) for _ in range(2))
            self.check_model(Calls(lambda m, x: m.fc(best(torch.stack((m.one * (x > 0), m.other * (x > 0)), 1)) + x), one=one,
                                   other=other, fc=torch.nn.Linear(4, 3)), torch.randn(2, 4))
        self.check({"of all values": lambda m, y: y / m.weight.abs().max() + y * m.weight.amin()})
        self.assertIn("which counts samples", self.refusal(lambda m, y: y.softmax(0)))

    def test_the_largest_values_and_places_that_data_say(self):
        f = torch.nn.functional

        def gates(m, y):
            values, places = y.topk(3, 1)
            return torch.full_like(y, float("-inf")).scatter(1, places, values).softmax(1) * y
        self.check({
            "topk": lambda m, y: y * y.topk(2, 1)[0].sum(1, keepdim=True), "sort": lambda m, y: y.sort(1, descending=True)[0], "gates": gates,
            "smallest, of columns": lambda m, y: y * y.view(-1, 2, 3).topk(1, 1, largest=False)[0].sum((1, 2))[:, None],
            "places": lambda m, y: (lambda v, i: (v.softmax(1)[:, :, None] * f.one_hot(i, 6)).sum(1) * y)(*y.topk(3, 1)),
            "gather": lambda m, y: torch.cat([one.gather(1, y.topk(3, 1)[1]) for one in (y, m.weight * y)], 1),
            "of equal ones the first": lambda m, y: y * y.relu().max(1)[1][:, None] + y.relu().argsort(dim=1, stable=True),
            "argmin": lambda m, y: y * (y.argmin(1, keepdim=True) == torch.arange(6)), "scatter a number": lambda m, y: y.scatter(1, y.topk(3, 1)[1], 0.5),
            "scatter_add": lambda m, y: torch.zeros_like(y).scatter_add(1, (y > 0).long(), y * m.weight)})
        self.check({"weights of experts": lambda m, y: (m.table.view(3, 2, 6)[y[:, :3].topk(2, 1)[1]].sum(2) * y.topk(2, 1)[0][:, :, None]).sum(1)}, table=True)
        self.assertIn("takes part of the samples", self.refusal(lambda m, y: y.sort(0)[0]))
        self.assertIn("over 300 places, expected at most 256", self.refusal(lambda m, y: y.repeat(1, 50).sort(1)[0][:, :6]))
        self.assertIn("over all dimensions", self.refusal(lambda m, y: y * y.argmax()))

    def test_products_of_complex_values(self):
        def turned(by):
            def made(m, y):
                z = torch.view_as_complex(y.reshape(-1, 3, 2))
                return torch.view_as_real(z * by(m, z)).flatten(1)
            return made
        angles = torch.polar(torch.ones(3), torch.randn(3))
        self.check({"angles": turned(lambda m, z: angles[None]), "square": turned(lambda m, z: z),
                    "weights": turned(lambda m, z: torch.view_as_complex(m.weight.view(3, 2)))})
        self.assertIn("add.Tensor: is not supported of complex values", self.refusal(turned(lambda m, z: z + angles)))

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
            "NaN": lambda m, y: y.masked_fill(y > 9, float("nan")) * y + torch.xlogy(y * y, m.weight.square() + 0.5),
            "infinite scores": lambda m, y: y * y.masked_fill(hidden, -inf).softmax(1) + torch.where(y.masked_fill(hidden, -inf) == -inf, 2, y)})

    def test_norms(self):
        nn = torch.nn
        for norm in (nn.LayerNorm((3, 5)), nn.LayerNorm((3, 5), elementwise_affine=False), nn.GroupNorm(2, 6, affine=False),
                     nn.BatchNorm1d(6, affine=False), nn.InstanceNorm1d(6), nn.InstanceNorm1d(6, affine=True)):
            with self.subTest(norm=str(norm)):
                three = isinstance(norm, nn.LayerNorm)
                model = nn.Sequential(nn.Conv1d(3, 6, 1), nn.Unflatten(1, (2, 3)) if three else nn.Identity(), norm, nn.ReLU(),
                                      nn.Flatten(), nn.Linear(30, 4))
                self.check_model(model, torch.randn(2, 3, 5))
        for shape, affine in (((2, 6), True), ((2, 6, 5), False)):
            with self.subTest(still=shape):
                model = nn.Sequential(nn.Conv1d(6, 6, 1) if len(shape) == 3 else nn.Linear(6, 6), Still(6, affine=affine), nn.ReLU(), nn.Flatten(),
                                      nn.Linear(30 if len(shape) == 3 else 6, 4))
                self.check_model(model, torch.randn(shape))
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
            "rows of a table": lambda m, y: y * m.weight[(y[:, :3] > 0).long()].sum(1, keepdim=True),
            "from the end": lambda m, y: y * m.weight.view(2, 3).tanh()[(y > 0).long() - 1].sum((1, 2))[:, None],
            "index_select": lambda m, y: y * m.weight.index_select(0, (y > 0).long().view(-1)).view(-1, 6),
            "many": lambda m, y: y * (y[:, :, None] * y[:, None]).flatten(1)[:, many].cumsum(2)[:, 0, 3:9],
            "stack": lambda m, y: torch.stack((y, y * 2, torch.ones_like(y)), 1).cumsum(1)[:, 1], "written": written,
            "stack before the samples": lambda m, y: torch.stack((y, y * 2), 0)[1],
            "known places": lambda m, y: y * (y[:, :, None] * y[:, None]).gather(2, (table % 3).repeat(3, 1)[None].expand(y.shape[0], -1, -1)).sum(2),
            "rows of samples": lambda m, y: y * (y.reshape(-1, 1) * m.weight[:2] + torch.arange(6.)[None].repeat(y.shape[0], 1)
                                                 .view(-1, 1)).view(-1, 6, 2).square().sum(2),
            "rows of samples, by rows": lambda m, y: y * (y.t().reshape(-1, 1) * m.weight[:2] + torch.arange(6.)[:, None].repeat(1, y.shape[0])
                                                          .view(-1, 1)).view(6, -1, 2).square().sum(2).t(),
            "unfold": lambda m, y: y * y.unfold(1, 3, 1).mean(2).sum(1, keepdim=True),
            "cut by pad": lambda m, y: torch.nn.functional.pad(y, (-1, 1)) + torch.nn.functional.pad(y, (2, -2), value=0.7),
            "pad": lambda m, y: torch.nn.functional.pad(y[:, 1:3], (1, 3), value=0.7),
            "repeat": lambda m, y: m.weight[None].repeat(y.shape[0], 1) * y})
        self.assertIn("dim=1", self.refusal(lambda m, y: torch.cat((y, y), 0)[:y.shape[0]]))
        self.assertIn("p.expand(samples", self.refusal(lambda m, y: y.repeat(2, 1)[:, :6]))

    def test_values_that_are_added_in_another_order(self):
        """The gradient of both terms is one value, which their sum must not overwrite while it is read."""
        for formula in (lambda y: y + y.flip(1), lambda y: y + y.roll(1, 1), lambda y: y + y.unflatten(1, (2, 4)).transpose(1, 2).flatten(1)):
            self.check_model(Calls(lambda m, x, formula=formula: m.b(formula(m.a(x))), a=torch.nn.Linear(8, 8), b=torch.nn.Linear(8, 3)),
                             torch.randn(2, 8))

    def test_attention_of_other_ranks(self):
        dot = torch.nn.functional.scaled_dot_product_attention

        def of(*shape, **how):
            return lambda m, y: dot(*((y[:, :, None] * torch.arange(1., 5) * scale).view(-1, *shape) for scale in (1, 2, 3)), **how) \
                .flatten(1)[:, :6] * y
        self.check({
            "no heads": of(6, 4), "causal": of(6, 4, is_causal=True), "windows": of(3, 1, 2, 4), "scaled": of(3, 2, 2, 2, scale=0.3),
            "scaled, causal": of(3, 2, 2, 2, scale=0.3, is_causal=True)})
        windows = torch.randn(1, 3, 1, 2, 2)
        self.check({
            "mask": of(6, 4, attn_mask=torch.rand(6, 6) > 0.4), "causal mask": of(6, 4, attn_mask=torch.ones(6, 6).bool().tril()),
            "all hidden": of(6, 4, attn_mask=torch.ones(6, 6).bool().tril(-1)), "mask of windows": of(3, 2, 2, 2, attn_mask=windows),
            "mask of all windows": of(3, 2, 2, 2, attn_mask=windows.expand(1, 3, 2, 2, 2)), "row": of(6, 4, attn_mask=torch.randn(6, 6)[None]),
            "of heads": lambda m, y: of(3, 2, 2, 2, attn_mask=m.weight.view(3, 2, 1, 1))(m, y),
            "of the data": lambda m, y: of(6, 4, attn_mask=y[:, None] > 0)(m, y),
            "of the data and heads": lambda m, y: of(3, 2, 2, 2, attn_mask=(y[:, :2] * y[:, 2:4]).view(-1, 1, 1, 1, 2))(m, y)})

    def test_layers_with_their_samples_in_another_place(self):
        nn = torch.nn
        encoder = nn.TransformerEncoder(nn.TransformerEncoderLayer(4, 2, 8, 0.1), 1, enable_nested_tensor=False)
        causal = nn.Transformer.generate_square_subsequent_mask(3)
        encoder.layers[0].self_attn.dropout = 0.0
        self.check_model(Calls(lambda m, x: m.fc(m.encoder(x.transpose(0, 1), causal)[-1]), encoder=encoder, fc=nn.Linear(4, 3)),
                         torch.randn(2, 3, 4))
        self.assertIn('op: "attention"', (self.dir / "model" / "graph.txtpb").read_text())

    def test_a_row_that_is_the_same_for_all_samples(self):
        ones = torch.nn.Linear(4, 6)

        def row(m, x):
            return m.ones(torch.ones_like(x))
        for formula in (lambda m, x: x + row(m, x).view(x.shape[0], 2, 3).sum(1).repeat(1, 2)[:, :4],
                        lambda m, x: torch.cat([x[:, :2], row(m, x)[:, :2]], 1),
                        lambda m, x: x * m.pairs(torch.ones_like(x).view(-1, 2)).view(x.shape)):
            self.check_model(Calls(lambda m, x: m.fc(formula(m, x)), ones=ones, pairs=torch.nn.Linear(2, 2), fc=torch.nn.Linear(4, 3)),
                             torch.randn(2, 4))

    def test_dropout_of_channels(self):
        nn = torch.nn
        for layer, x in ((nn.Dropout2d(0.3), torch.randn(2, 3, 4, 4)), (nn.Dropout1d(0.3), torch.randn(2, 3, 4))):
            conv = nn.Conv2d(3, 6, 1) if x.dim() == 4 else nn.Conv1d(3, 6, 1)
            self.check_model(nn.Sequential(conv, layer, nn.Flatten(), nn.Linear(6 * x[0, 0].numel(), 3)), x)
            self.assertRegex((self.dir / "model" / "graph.txtpb").read_text(), r'op: "dropout"\n.*\n.* number: 0\.3')

        def own(m, y):
            rows = y.view(-1, 2, 3)
            return (rows * (rows.new_empty(y.shape[0], 1, 3).bernoulli_(0.7) / 0.7) if m.training else rows).flatten(1)
        self.check({"of columns": own})

    def test_bags_and_pairs(self):
        nn = torch.nn
        ids = torch.randint(9, (2, 5))
        for mode, padding in (("mean", None), ("sum", None), ("mean", 3), ("sum", 0)):
            with self.subTest(mode=mode, padding=padding):
                self.check_model(nn.Sequential(nn.EmbeddingBag(9, 4, mode=mode, padding_idx=padding), nn.Linear(4, 3)), ids)
        bag = nn.EmbeddingBag(9, 4, mode="sum")
        self.check_model(Calls(lambda m, x: m.fc(m.bag(x, per_sample_weights=(x > 4) + 0.5)), bag=bag, fc=nn.Linear(4, 3)), ids)
        self.check_model(Calls(lambda m, x: m.fc(m.bag(x.clamp(min=3))), bag=nn.EmbeddingBag(9, 4, padding_idx=3), fc=nn.Linear(4, 3)), ids)
        self.assertIn("mode='max'", self.refusal_of(nn.Sequential(nn.EmbeddingBag(9, 4, mode="max"), nn.Linear(4, 3)), ids))
        self.check_model(Calls(lambda m, x: m.pair(x, x[:, :2]), pair=nn.Bilinear(4, 2, 3)), torch.randn(2, 4))

    def test_ids_that_forward_moves(self):
        nn = torch.nn
        for own, shift in ((nn.Embedding(18, 4), torch.tensor([0, 7, 12])), (nn.Embedding(18, 4), 6)):
            model = Calls(lambda m, x, by=shift: m.fc((m.own(x) + m.moved(x + by)).flatten(1)), own=own, moved=nn.Embedding(18, 4), fc=nn.Linear(12, 3))
            self.check_model(model, torch.randint(5, (2, 3)))
        self.assertRegex(self.refusal_of(Calls(lambda m, x: m.fc(m.moved(x + 16).flatten(1)), moved=nn.Embedding(18, 4), fc=nn.Linear(12, 3)),
                                         torch.randint(2, 5, (2, 3))), r"index out of range.* called at .*_test.py:\d+")

        for sign in (1, -1):  # differences are not below 0
            model = Calls(lambda m, x, sign=sign: m.fc((m.own(x[:, 1:]) + m.moved((x[:, :-1] - x[:, 1:]) * sign)).flatten(1)),
                          own=nn.Embedding(18, 4), moved=nn.Embedding(18, 4), fc=nn.Linear(8, 3))
            self.check_model(model, torch.tensor([[9, 5, 1], [7, 7, 0]] if sign > 0 else [[1, 5, 9], [0, 7, 7]]))
        near = Calls(lambda m, x: m.fc((m.own(x[:, 1:]) + m.moved(x[:, :-1] - x[:, 1:] + 4)).flatten(1)), own=nn.Embedding(18, 4),
                     moved=nn.Embedding(9, 4), fc=nn.Linear(8, 3))
        self.check_model(near, torch.tensor([[3, 1, 2], [0, 4, 4]]))

        class Last(nn.Module):
            def __init__(self):
                super().__init__()
                self.fc = nn.Linear(4, 3)

            def forward(self, x, lengths):
                return self.fc(x.gather(1, (lengths - 1).view(-1, 1, 1).expand(-1, 1, 4)).squeeze(1))
        self.check_model(Last(), {"x": torch.randn(2, 5, 4), "lengths": torch.tensor([5, 3])})

    def test_predictions_of_one_value(self):
        nn = torch.nn
        for model in (nn.Sequential(nn.Linear(4, 1), nn.Flatten(0)), nn.Linear(4, 1)):
            self.check_model(model, torch.randn(2, 4))
        self.check_model(nn.Sequential(nn.Embedding(9, 4), nn.Flatten(), nn.Linear(12, 1)), torch.randint(9, (2, 3)))
        found = gaccd_export.verify(nn.Linear(4, 1), self.exported(nn.Linear(4, 1)), gaccd=GACCD)
        self.assertFalse(found.ok, found)  # of one class the gradient of each would be 0

    def test_what_trains_otherwise_in_pytorch(self):
        nn = torch.nn
        model = nn.Sequential(nn.Linear(4, 4, bias=False), nn.Linear(4, 4, bias=False), nn.Linear(4, 3))
        model[1].weight = nn.Parameter(model[0].weight.t())
        self.assertRegex(self.refusal_of(model, torch.randn(2, 4)), r"^1\.weight: shares memory with 0\.weight, .*transpose")
        whole = torch.randn(4, 8)
        model[0].weight, model[1].weight = nn.Parameter(whole[:, :4]), nn.Parameter(whole[:, 4:])  # other places of one memory
        self.check_model(model, torch.randn(2, 4))
        model[2].bias.register_hook(lambda gradient: gradient / 10)
        self.assertIn("2.bias: has a hook of its gradient", self.refusal_of(model, torch.randn(2, 4)))
        self.check({"a swish with limits": lambda m, y: (lambda z: z.clamp(-12, 12) * z.sigmoid())(200 * y)})

    def test_what_forward_keeps_is_copied(self):
        model = torch.nn.Sequential(torch.nn.utils.weight_norm(torch.nn.Linear(4, 6)), torch.nn.Linear(6, 3))
        model(torch.randn(2, 4))
        self.check_model(model, torch.randn(2, 4))

    def test_forward_that_needs_single_precision(self):
        table = torch.randn(6, 6)
        self.check({"a table that is no buffer": lambda m, y: y @ table,
                    "the least number": lambda m, y: y * (y + (y < m.weight) * torch.finfo(y.dtype).min).softmax(1)})
        found = self.verify(Between(lambda m, y: y * (1 if y.dtype == torch.float32 else 2)), torch.randn(2, 4))
        self.assertTrue(found.ok, found)
        self.assertIn("differences from PyTorch in single precision", str(found))

    def test_what_is_no_activation_far_from_0(self):
        f = torch.nn.functional
        for formula in (lambda m, y: y.tanh() + f.relu(y - 10), lambda m, y: y.tanh() * (1 + f.relu(y - 9)), lambda m, y: y.sigmoid() + f.relu(-25 - y)):
            self.assertIn('op: "relu"', (self.exported(Between(formula)) / "graph.txtpb").read_text())

    def test_norms_and_attention_of_parameters(self):
        p = torch.nn.Parameter(torch.randn(1, 3, 4))
        attention = torch.nn.functional.scaled_dot_product_attention
        self.check_model(Calls(lambda m, x: m.fc(x) + attention(m.p, m.p, m.p).mean((0, 1)), p=p, fc=torch.nn.Linear(4, 4)), torch.randn(2, 4))
        for rows in (lambda m, x: torch.zeros(x.shape[0], 3, 4) + m.p, lambda m, x: m.p.expand(x.shape[0], 3, 4)):
            self.check_model(Calls(lambda m, x: m.fc(x) + m.bn(rows(m, x)).mean(1), p=p, bn=torch.nn.BatchNorm1d(3), fc=torch.nn.Linear(4, 4)),
                             torch.randn(2, 4))
        self.assertIn("does not depend on samples", self.refusal_of(
            Calls(lambda m, x: m.fc(x) + m.bn(m.p).mean((0, 1)), p=p, bn=torch.nn.BatchNorm1d(3), fc=torch.nn.Linear(4, 4)), torch.randn(2, 4)))
        self.assertIn("over 300 places", self.refusal_of(Calls(lambda m, x: m.fc(x) * x.topk(4)[1], fc=torch.nn.Linear(300, 4)), torch.randn(2, 300)))

    def test_rounding(self):
        self.check({
            "floor": lambda m, y: y * (3 * y).floor(), "ceil": lambda m, y: y * (3 * y).ceil(), "trunc": lambda m, y: y * (3 * y).trunc(),
            "round": lambda m, y: y * (3 * y).round(), "frac": lambda m, y: (3 * y).frac(), "integers": lambda m, y: y * (3 * y).long(),
            "remainder": lambda m, y: (5 * y) % 0.7 + (5 * y) % -0.7, "fmod": lambda m, y: torch.fmod(5 * y, 0.7),
            "quotients": lambda m, y: y * torch.div(5 * y, -0.7, rounding_mode="trunc") + torch.div(5 * y, 0.7, rounding_mode="floor")})

        class Buckets(torch.nn.Module):
            def __init__(self, bucket, count):
                super().__init__()
                self.bucket, self.rows, self.fc = bucket, torch.nn.Embedding(count, 4), torch.nn.Linear(28, 3)

            def forward(self, ids):
                return self.fc(self.rows(self.bucket(ids)).flatten(1))
        halves = torch.tensor([-2.5, -1.5, -0.5, 0.5, 1.5, 2.5, 3.5])  # of two integers the even one
        ids = torch.randint(0, 10_000, (2, 7))
        for name, bucket, count in (
                ("%", lambda ids: ids % 13, 13), ("//", lambda ids: ids // 769, 14), ("hashed", lambda ids: (ids * 31 + 5) % 17, 17),
                ("below 0", lambda ids: (ids - 5_000) % 7, 7), ("of -", lambda ids: 6 + (ids - 5_000) % -7, 7),
                ("fmod", lambda ids: torch.fmod(ids - 5_000, 7) + 6, 13), ("multiples", lambda ids: (ids % 100 * 49) // 49, 100),
                ("halves", lambda ids: (ids % 2 + halves + 3).round().long(), 9), ("scaled", lambda ids: (ids * 0.0013).long(), 14)):
            with self.subTest(bucket=name):
                self.check_model(Buckets(bucket, count), ids)
        for refused, why in ((lambda m, y: y % 0, "divides by 0"), (lambda m, y: y // 0.5, "has no gradient in PyTorch"),
                             (lambda m, y: y.round(decimals=2), "to 2 decimals, expected none")):
            self.assertIn(why, self.refusal(refused))

    def test_places_of_pairs(self):
        self.check({
            "diagonals": lambda m, y: (y[:, :, None] * y[:, None]).diagonal(dim1=1, dim2=2) + y.sum(1, keepdim=True),
            "another diagonal": lambda m, y: torch.nn.functional.pad((y[:, :, None] * m.weight).diagonal(-2, 2, 1), (1, 1)),
            "median": lambda m, y: y * y.view(-1, 2, 3).median(2).values.sum(1, keepdim=True) + y.median(1, keepdim=True)[0],
            "its place": lambda m, y: y * y.median(1, keepdim=True)[1],
            "cdist": lambda m, y: torch.cdist(y.view(-1, 3, 2), m.weight.view(3, 2) + y.view(-1, 3, 2)).sum(2).repeat(1, 2)})
        self.assertIn("with p 1, expected 2", self.refusal(lambda m, y: torch.cdist(y.view(-1, 3, 2), y.view(-1, 3, 2), 1).sum(2).repeat(1, 2)))

    def test_names_and_rows_of_parameters(self):
        def named(name, formula, *sizes):
            return Calls(formula, **{name: torch.nn.Parameter(torch.randn(*sizes)), "fc": torch.nn.Linear(4, 3)})
        for model in (named("mean", lambda m, x: m.fc((x - m.mean) * x.mean(1, keepdim=True)), 4),
                      Calls(lambda m, x: m.fc(x * m.add[0] + m.add[1] + x.sin().cos()), fc=torch.nn.Linear(4, 3),
                            add=torch.nn.ParameterList([torch.randn(4), torch.randn(4)])),
                      named("p", lambda m, x: m.fc(x + m.p[:, 0].sum(0)), 2, 3, 4), named("p", lambda m, x: m.fc(x + m.p.mean(1).sum(0)), 2, 3, 4)):
            self.check_model(model, torch.randn(2, 4))
        table = torch.nn.Embedding(9, 4)
        for formula in (lambda m, x: m.fc(x[:, :3, None] + m.table(torch.arange(3))).sum(1),
                        lambda m, x: m.fc(x[:, None] + m.table(torch.arange(3))).flatten(1)):
            self.check_model(Calls(formula, table=table, fc=torch.nn.Linear(4, 3)), torch.randn(2, 4))
        taken = named("features", lambda m, x: m.fc(x * m.features), 4)
        self.assertIn("a parameter has the name of the data", self.refusal_of(taken, torch.randn(2, 4)))
        pair = torch.nn.Bilinear(4, 4, 3)
        for inputs, why in (({"q": "a"}, "expected names of arguments"), ({"input1": "a", "input2": "a"}, "expected other data for each")):
            with self.assertRaisesRegex(gaccd_export.ExportError, why):
                gaccd_export.export(pair, (torch.randn(2, 4), torch.randn(2, 4)), self.dir / "refused", inputs=inputs)

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

    class Calls(torch.nn.Module):
        def __init__(self, function, **parts):
            super().__init__()
            self.function = function
            for name, part in parts.items():
                setattr(self, name, part)

        def forward(self, x):
            return self.function(self, x)

    class Still(torch.nn.BatchNorm1d):
        """In evaluation always."""
        def __init__(self, *sizes, **how):
            super().__init__(*sizes, **how)
            self.running_mean.normal_()
            self.running_var.uniform_(0.5, 2)

        def train(self, _=True):
            return super().train(False)
    return Between, Calls, Doubles, Still


if __name__ == "__main__":
    gaccd_export = open_exporter(__doc__)
    import numpy
    import safetensors.torch
    import torch
    GACCD = sys.argv[1]
    Between, Calls, Doubles, Still = define_models()
    unittest.main(argv=[sys.argv[0], *sys.argv[2:]])
