"""Operations on images and volumes that the exporter makes of others: graph_image_operations_test.py GACCD

Small modules, each exported and compared with PyTorch by gaccd.verify. Needs what graph_export_test.py needs, else it is
skipped: exit code 77.
"""
import sys
import unittest

from exporter import ExportTest, open_exporter


class GraphImageOperations(ExportTest):
    def test_what_is_the_same_for_all_samples(self):
        """One row in the file, which operations that do not broadcast repeat; PyTorch has one for each sample."""
        f = torch.nn.functional

        class Given(torch.nn.Module):
            def __init__(self, formula):
                super().__init__()
                self.fc, self.table, self.formula = torch.nn.Linear(4, 6), torch.nn.Parameter(torch.randn(6, 6)), formula

            def forward(self, x):
                return self.formula(self.fc(x), x.new_zeros(x.shape[0], 1, 1) + self.table)
        for name, formula in {
                "a constant @": lambda y, same: torch.linspace(-1, 1, 36).view(6, 6) @ (y[:, None] + same),
                "keys": lambda y, same: f.scaled_dot_product_attention(y[:, None], same, same * y[:, None]),
                "known keys": lambda y, same: f.scaled_dot_product_attention(y[:, None], torch.eye(6).expand(y.shape[0], 6, 6), same),
                "stack": lambda y, same: torch.stack([y, same[:, 0]], 1).amax(1), "stack first": lambda y, same: torch.stack([y, same[:, 0]]).sum(0),
                "conv1d": lambda y, same: y * f.conv1d(same, torch.ones(2, 6, 1)).mean(1),
                "cdist": lambda y, same: torch.cdist(same, y[:, None]), "group_norm": lambda y, same: y * f.group_norm(same, 3)[:, 1],
                "first row": lambda y, same: y + same[:, 0], "mean": lambda y, same: y * same.mean(1), "pool": lambda y, same: y[:, :3] * f.max_pool1d(same, 2)[:, 0],
                "pad": lambda y, same: y + f.pad(same, (1, 0), value=2.0)[:, 0, :6], "assigned": lambda y, same: y.slice_scatter(same[:, 0, 1:3], 1, 2, 4)}.items():
            with self.subTest(formula=name):
                self.check_model(Given(lambda y, same, formula=formula: formula(y, same).flatten(1)), torch.randn(2, 4))

    def test_images(self):
        nn = torch.nn

        class Resized(nn.Conv2d):
            def __init__(self, how):
                super().__init__(3, 4, 1)
                self.how = how

            def forward(self, x):
                return nn.functional.interpolate(super().forward(x), **self.how).mean((2, 3))
        for change in (nn.AdaptiveMaxPool2d((3, 2)), nn.AdaptiveMaxPool2d(1), nn.AdaptiveMaxPool2d((4, 3))):
            with self.subTest(change=str(change)):
                self.check_image(change)
        for how in (dict(size=(4, 5), mode="bicubic", antialias=True), dict(scale_factor=0.5, mode="bilinear", antialias=True)):
            with self.subTest(how=how):
                self.check_model(Resized(how), torch.randn(2, 3, 9, 8))

    def test_pooling_without_channels(self):
        f = torch.nn.functional
        pools = {"avg 2": lambda y: f.avg_pool2d(y, 2), "max 2": lambda y: f.max_pool2d(y, 3, 2, 1, ceil_mode=True), "adaptive 2": lambda y: f.adaptive_avg_pool2d(y, 2),
                 "adaptive max 2": lambda y: f.adaptive_max_pool2d(y, 2), "avg 1": lambda y: f.avg_pool1d(y[:, 0], 2),
                 "max 1": lambda y: f.max_pool1d(y[:, 1], 2), "adaptive 1": lambda y: f.adaptive_avg_pool1d(y[:, 2], 2)}

        class Pooled(torch.nn.Module):
            def __init__(self, pool):
                super().__init__()
                self.first, self.pool, self.last = torch.nn.Linear(6, 6), pool, torch.nn.LazyLinear(3)

            def forward(self, x):
                return self.last(self.pool(self.first(x)).flatten(1))
        for name, pool in pools.items():
            with self.subTest(pool=name):
                model = Pooled(pool)
                model(torch.randn(2, 4, 6))
                self.check_model(model, torch.randn(2, 4, 6))

    def test_volumes(self):
        nn, f = torch.nn, torch.nn.functional

        class Weighted(nn.Conv3d):
            def forward(self, x):
                return f.conv3d(x, self.weight / self.weight.std((1, 2, 3, 4), keepdim=True), 2 * self.bias, padding=1)
        changes = [
            nn.Conv3d(4, 4, 3, padding="same"), nn.Conv3d(4, 6, (3, 2, 3), (2, 1, 2), (1, 0, 2), bias=False), Weighted(4, 2, 3),
            nn.Conv3d(4, 4, (2, 3, 2), dilation=(3, 1, 2), padding=(2, 1, 0), groups=2), nn.Conv3d(4, 4, (1, 3, 3)), nn.Conv3d(4, 2, 1, (1, 2, 2)),
            nn.Conv3d(4, 4, (3, 1, 1), (2, 1, 1), (1, 0, 0), groups=2), nn.ConvTranspose3d(4, 6, (3, 2, 2), 2, 1, groups=2, bias=False),
            nn.ConvTranspose3d(4, 3, 3, (2, 1, 3), (1, 0, 2), (1, 0, 1), dilation=(1, 2, 1)), nn.ConvTranspose3d(4, 3, 2, dilation=(3, 1, 1), padding=(2, 0, 0)),
            nn.BatchNorm3d(4), nn.InstanceNorm3d(4, eps=0.1), nn.GroupNorm(2, 4), nn.LocalResponseNorm(3, 0.5),
            nn.MaxPool3d(3, 2, 1), nn.MaxPool3d((2, 3, 2), ceil_mode=True), nn.MaxPool3d((1, 2, 2)), nn.MaxPool3d(2, 1, dilation=(1, 2, 3)),
            nn.AvgPool3d((2, 1, 1)), nn.AvgPool3d(3, 2, 1, count_include_pad=False), nn.AvgPool3d((3, 2, 3), 2, 1, True, False),
            nn.AvgPool3d(2, divisor_override=3), nn.AdaptiveAvgPool3d((2, 4, 3)), nn.AdaptiveAvgPool3d((None, 1, 1)), nn.AdaptiveMaxPool3d((5, 3, 1)), nn.AdaptiveMaxPool3d((2, 4, 3)),
            nn.Upsample(scale_factor=2), nn.Upsample((7, 4, 9), mode="trilinear"), nn.ReplicationPad3d((1, 2, 1, 0, 1, 1))]
        example = torch.randn(2, 2, 5, 6, 7)
        for change in changes:
            with self.subTest(change=str(change)):
                model = nn.Sequential(nn.Conv3d(2, 4, 1), change, nn.Flatten(), nn.LazyLinear(3))
                model(example)
                self.check_model(model, example)

        class Ties(nn.Module):  # each value twice in each dimension: the first of equal ones has the gradient
            def __init__(self, pool):
                super().__init__()
                self.pool, self.weight, self.fc = pool, nn.Parameter(torch.zeros(1, 2, 6, 6, 6)), nn.Linear(2 * 27, 3)

            def forward(self, x):
                y = x.repeat_interleave(2, 2).repeat_interleave(2, 3).repeat_interleave(2, 4)
                return self.fc(self.pool(y + self.weight).flatten(1))
        for pool in (lambda y: f.max_pool3d(y, 3, 2, 1), lambda y: f.adaptive_max_pool3d(y, (4, 4, 4))[:, :, :3, :3, :3]):
            self.check_model(Ties(pool), torch.randn(2, 2, 3, 3, 3))

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

    def test_convolutions_by_weights_of_each_sample(self):
        nn, f = torch.nn, torch.nn.functional

        class OfSamples(nn.Module):
            def __init__(self, groups, kernel, how):
                super().__init__()
                self.groups, self.kernel, self.how = groups, kernel, how
                self.weight, self.bias = nn.Linear(2, 6 * 4 // groups * torch.Size(kernel).numel()), nn.Linear(2, 6)
                self.last = nn.LazyLinear(3)

            def forward(self, x):
                samples, routes = x.shape[0], torch.sigmoid(x.flatten(2).mean(2)[:, :2])
                weight = self.weight(routes).view(samples * 6, 4 // self.groups, *self.kernel)
                bias = self.bias(routes).view(samples * 6) if self.how.get("stride") else None
                conv = f.conv2d if len(self.kernel) == 2 else f.conv1d
                y = conv(x.reshape(1, samples * 4, *x.shape[2:]), weight, bias, groups=samples * self.groups, **self.how)
                return self.last(y.view(samples, 6, *y.shape[2:]).flatten(1))
        for groups, kernel, how in ((1, (3, 2), dict(stride=(2, 1), padding=1)), (2, (2, 3), dict(dilation=(2, 1))), (1, (1, 1), {}),
                                    (2, (3,), dict(stride=2, padding=1))):
            with self.subTest(groups=groups, kernel=kernel):
                example = torch.randn(2, 4, *(7, 6)[:len(kernel)])
                model = OfSamples(groups, kernel, how)
                model(example)
                self.check_model(model, example)

    def test_fold(self):
        nn = torch.nn

        class Folded(nn.Module):
            def __init__(self, size, how):
                super().__init__()
                self.unfold, self.fold = nn.Unfold(**how), nn.Fold(size, **how)
                self.mix, self.last = nn.Conv1d(2 * torch.Size(how["kernel_size"]).numel(), 3 * torch.Size(how["kernel_size"]).numel(), 1), nn.Conv2d(3, 2, 1)

            def forward(self, x):
                y = self.last(self.fold(torch.tanh(self.mix(self.unfold(x)))))
                return (y * torch.arange(1, 1 + y.shape[3])).mean((2, 3))
        for how in (dict(kernel_size=(3, 3), padding=1, stride=2), dict(kernel_size=(2, 3), dilation=(3, 1)), dict(kernel_size=(2, 2), stride=(3, 2))):
            with self.subTest(how=how):
                self.check_model(Folded((7, 8), how), torch.randn(2, 2, 7, 8))

    def test_grid_sample(self):
        nn, f = torch.nn, torch.nn.functional

        class Sampled(nn.Module):
            def __init__(self, **how):
                super().__init__()
                self.how, self.place, self.conv = how, nn.Linear(4, 6), nn.Conv2d(2, 2, 1)

            def forward(self, x):
                theta = self.place(x.flatten(2).mean(2).repeat(1, 2)).view(-1, 2, 3)
                y = f.grid_sample(self.conv(x), f.affine_grid(theta, [x.shape[0], 2, 4, 5], align_corners=True), **self.how)
                return (y * torch.arange(1, 1 + y.shape[3])).mean((2, 3))
        for how in (dict(align_corners=False), dict(align_corners=True), dict(align_corners=False, padding_mode="border")):
            with self.subTest(how=how):
                self.check_model(Sampled(**how), torch.randn(2, 2, 7, 6))
        model = Sampled(align_corners=True)  # points on pixels, as a spatial transformer begins
        nn.init.zeros_(model.place.weight)
        model.place.bias.data.copy_(torch.eye(2, 3).flatten())
        self.check_model(model, torch.randn(2, 2, 4, 5))
        self.assertIn("expected mode='bilinear'", self.refusal_of(Sampled(align_corners=True, mode="nearest"), torch.randn(2, 2, 7, 6)))

    def check_image(self, change):
        class Changed(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.conv, self.change, self.fc = torch.nn.Conv2d(3, 4, 1), change, torch.nn.Linear(4, 5)

            def forward(self, x):
                x = self.change(self.conv(x))
                return self.fc((x.square() * torch.arange(1, 1 + x.shape[3])).mean((2, 3)))
        self.check_model(Changed(), torch.randn(2, 3, 9, 8))


if __name__ == "__main__":
    open_exporter(__doc__)
    import torch
    unittest.main(argv=[sys.argv[0], *sys.argv[2:]])
