"""Random numbers that forward draws: graph_noise_test.py GACCD

Exported and compared with PyTorch, where both have their means; and what gaccd draws: its moments, and the same on any
number of ranks. Needs what graph_export_test.py needs, else it is skipped: exit code 77.
"""
import re
import subprocess
import sys
import unittest

from exporter import ExportTest, open_exporter

SAMPLES, EACH = 2000, 50


class GraphNoise(ExportTest):
    def test_models_that_draw(self):
        for name, model, example in (
                ("autoencoder", Autoencoder(lambda mean, log: mean + torch.exp(log / 2) * torch.randn_like(mean)), torch.zeros(2, 6)),
                ("distribution", Autoencoder(lambda mean, log: torch.distributions.Normal(
                    mean, torch.exp(log / 2), validate_args=False).rsample()), torch.zeros(2, 6)),
                ("in place", Autoencoder(lambda mean, log: mean + torch.zeros_like(log).normal_(0.5, 2)), torch.zeros(2, 6)),
                ("uniform, in place", Autoencoder(lambda mean, log: mean + torch.empty_like(log).uniform_(-0.5, 1)), torch.zeros(2, 6)),
                ("relaxed", Autoencoder(lambda mean, log: torch.nn.functional.gumbel_softmax(mean, 0.5) * log), torch.zeros(2, 6)),
                ("bits", Autoencoder(lambda mean, log: torch.bernoulli(mean.sigmoid()) * log), torch.zeros(2, 6)),
                ("laplace", Autoencoder(lambda mean, log: torch.distributions.Laplace(
                    mean, torch.exp(log), validate_args=False).rsample()), torch.zeros(2, 6)),
                ("flow", Flow(), torch.zeros(2, 6)), ("diffusion", Diffusion(), torch.zeros(2, 3, 5, 5))):
            with self.subTest(model=name):
                self.check_model(model, example, computes_loss=True)

    def losses(self, formula, ranks):
        """Of three updates: the means of formula() over all samples, and that of the evaluation."""
        gaccd_export.export(Draws(formula), torch.zeros(2, 6), self.dir / "draws")
        numpy.save(self.dir / "x.npy", numpy.ones((SAMPLES, 6), "f4"))
        source = f'arrays {{ array {{ name: "features" path: "{self.dir}/x.npy" }} }}'
        (self.dir / "job.txtpb").write_text(
            f'name: "draws" model {{ graph {{ path: "{self.dir}/draws" }} loss {{ output {{}} }} }}\n'
            f"data {{ train {{ {source} }} eval {{ {source} }} }} batch {{ target: {SAMPLES} micro: 170 }}\n"
            "optimizer { lr: 1 sgd {} } epochs: 3 log_every: 1\n")
        done = subprocess.run([sys.argv[1], "train", f"--job={self.dir}/job.txtpb", f"--local-ranks={ranks}", "--device=cpu"],
                              capture_output=True, text=True, timeout=120)
        self.assertEqual(done.returncode, 0, done.stderr)
        found = [[float(one) for one in re.findall(pattern, done.stdout)]
                 for pattern in (r"step: \d+, loss is (\S+),", r"eval: loss is (\S+) ")]
        self.assertEqual([len(one) for one in found], [3, 3], done.stdout)
        return found

    def test_moments(self):
        """Each within 4.5 standard errors; the same on 1 and 3 ranks, another in each update."""
        count = SAMPLES * EACH
        for name, formula, mean, deviation, in_evaluation in (
                ("randn", lambda x: torch.randn(x.shape[0], EACH).mean(1), 0, 1, 0),
                ("squares", lambda x: torch.randn(x.shape[0], EACH).square().mean(1), 1, 2 ** 0.5, 0),
                ("fourth powers", lambda x: torch.randn(x.shape[0], EACH).pow(4).mean(1), 3, 96 ** 0.5, 0),
                ("below 1", lambda x: (torch.randn(x.shape[0], EACH) < 1).float().mean(1), 0.841345, 0.365, 1),
                ("rand", lambda x: torch.rand(x.shape[0], EACH).mean(1), 0.5, 12 ** -0.5, 0.5),
                ("squares of rand", lambda x: torch.rand(x.shape[0], EACH).square().mean(1), 1 / 3, 0.3, 0.25),
                ("exponential", lambda x: torch.empty(x.shape[0], EACH).exponential_(2).mean(1), 0.5, 0.5, 0.34657),
                ("squares of exponential", lambda x: torch.empty(x.shape[0], EACH).exponential_().square().mean(1), 2, 20 ** 0.5, 0.480453),
                ("uniform", lambda x: torch.empty(x.shape[0], EACH).uniform_(-1, 3).mean(1), 1, 4 * 12 ** -0.5, 1),
                ("bernoulli", lambda x: torch.bernoulli(0.3 * x[:, :1].expand(-1, EACH)).mean(1), 0.3, 0.21 ** 0.5, 0),
                ("integers", lambda x: torch.randint(-3, 5, (x.shape[0], EACH)).float().mean(1), 0.5, 5.25 ** 0.5, 1),
                ("two draws", lambda x: (torch.randn(x.shape[0], EACH) * torch.randn(x.shape[0], EACH)).mean(1), 0, 1, 0),
                ("neighbours", lambda x: (lambda z: (z[:, 1:] * z[:, :-1]).mean(1))(torch.randn(x.shape[0], EACH + 1)), 0, 1, 0)):
            with self.subTest(name):
                (found, evaluated), (other, _) = self.losses(formula, 1), self.losses(formula, 3)
                self.assertLess(max(abs(one - mean) for one in found), 4.5 * deviation / count ** 0.5, found)
                self.assertLess(max(abs(one - two) for one, two in zip(found, other)), 1e-6)
                self.assertEqual(len(set(found)), 3)
                self.assertAlmostEqual(evaluated[0], in_evaluation, places=5)

    def test_one_draw_for_all_samples(self):
        """Without a dimension of samples, and only in training: the summary says that evaluation is another function."""
        for draw in (lambda: torch.normal(0., 1., (3,)), lambda: torch.zeros(3).normal_(), lambda: torch.zeros(3).uniform_(2, 3),
                     lambda: torch.randint_like(torch.ones(3), 5)):
            with self.subTest():
                class InTraining(Draws):
                    def forward(self, features):
                        y = features[:, :3] * (1 + self.weight)
                        return y * self.formula(y) if self.training else y
                model = InTraining(lambda _, drawn=draw: drawn())
                self.assertGreater(gaccd_export.export(model, torch.zeros(2, 6), self.dir / "one").evaluation, 0.01)

    def test_refusals(self):
        for refused, formula in (("expected samples in the first dimension", lambda x: torch.rand(3, x.shape[0]).t()),
                                 ("expected 1 to 65536 integers", lambda x: torch.randint(0, 1 << 20, (x.shape[0], 3)).float()),
                                 ("draws random numbers", lambda x: torch.poisson(x))):
            self.assertIn(refused, self.refusal_of(Draws(formula), torch.zeros(2, 6)))


def define_models():
    nn, F = torch.nn, torch.nn.functional

    class Autoencoder(nn.Module):
        def __init__(self, draw):
            super().__init__()
            self.encoder, self.decoder, self.draw = nn.Linear(6, 6), nn.Linear(3, 6), draw

        def forward(self, features):
            mean, log = self.encoder(features).chunk(2, 1)
            divergence = (log.exp() + mean.square() - 1 - log).sum(1) / 2
            return (self.decoder(self.draw(mean, log)) - features).square().sum(1) + divergence

    class Flow(nn.Module):
        def __init__(self):
            super().__init__()
            self.net = nn.Sequential(nn.Linear(7, 16), nn.SiLU(), nn.Linear(16, 6))

        def forward(self, features):
            time, noise = torch.rand(features.shape[0], 1), torch.randn_like(features)
            path = (1 - time) * features + time * noise
            return (self.net(torch.cat([path, time], 1)) - (noise - features)).square().mean(1)

    class Diffusion(nn.Module):
        def __init__(self, steps=1000):
            super().__init__()
            self.register_buffer("kept", torch.cumprod(1 - torch.linspace(1e-4, 0.02, steps), 0))
            self.time, self.linear = nn.Embedding(steps, 8), nn.Linear(8, 8)
            self.conv1, self.conv2, self.steps = nn.Conv2d(3, 8, 3, padding=1), nn.Conv2d(8, 3, 3, padding=1), steps

        def forward(self, image):
            time, noise = torch.randint(0, self.steps, (image.shape[0],)), torch.randn_like(image)
            kept = self.kept[time][:, None, None, None]
            y = self.conv1(kept.sqrt() * image + (1 - kept).sqrt() * noise) + self.linear(self.time(time))[:, :, None, None]
            return F.mse_loss(self.conv2(F.silu(y)), noise, reduction="none").mean((1, 2, 3))

    class Draws(nn.Module):
        def __init__(self, formula):
            super().__init__()
            self.weight, self.formula = nn.Parameter(torch.zeros(())), formula

        def forward(self, features):
            drawn = self.formula(features)
            return drawn + 0 * self.weight * (features[:, 0] if drawn.dim() == 1 else features[:, :1])
    return Autoencoder, Flow, Diffusion, Draws


if __name__ == "__main__":
    gaccd_export = open_exporter("tests/numerics/graph_noise_test.py exports models of PyTorch 2.7 or newer")
    import numpy
    import torch
    Autoencoder, Flow, Diffusion, Draws = define_models()
    unittest.main(argv=[sys.argv[0], *sys.argv[2:]])
