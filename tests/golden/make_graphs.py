#!/usr/bin/env python3
"""Writes tests/golden/graphs: models of PyTorch exported by gaccd.export, and what PyTorch makes of the job
texts (*.txtpb) there, as make_train.py does and in its format.

Run with a Python that has PyTorch 2.7 or newer, safetensors and protobuf (the committed files are from 2.15):
  tests/golden/make_graphs.py [NAME..]

NAME/ is the exported model with random weights; it is exported in single precision and trained in double.
"""
import functools
import io
import os
import sys

import numpy
import torch

HERE = os.path.dirname(os.path.abspath(__file__))
FOLDER = os.path.join(HERE, "graphs")
sys.path.insert(0, os.path.join(HERE, "..", "..", "tools", "python"))
WORLDS = ["1x1", "1x3", "1x5"]
nn = torch.nn


class Residual(nn.Module):
    """As torchvision's BasicBlock, with a depthwise convolution and a group norm on the way."""

    def __init__(self, inputs, width, stride):
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, width, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.conv2 = nn.Conv2d(width, width, 3, 1, 1, groups=width)
        self.norm2 = nn.GroupNorm(2, width)
        self.downsample = nn.Sequential(nn.Conv2d(inputs, width, 1, stride, bias=False), nn.BatchNorm2d(width))
        self.relu = nn.ReLU(inplace=True)

    def forward(self, x):
        y = self.norm2(self.conv2(nn.functional.hardswish(self.bn1(self.conv1(x)))))
        return self.relu(y + self.downsample(x))


class Head(nn.Module):
    """Attention of several heads, written as most people write it."""

    def __init__(self, width, heads, causal):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.query, self.key, self.value, self.out = (nn.Linear(width, width) for _ in range(4))
        self.mlp = nn.Sequential(nn.Linear(width, 2 * width), nn.GELU("tanh"), nn.Linear(2 * width, width))
        self.heads, self.causal = heads, causal

    def forward(self, x):
        samples, length, width = x.shape
        y = self.norm1(x)
        q, k, v = (layer(y).view(samples, length, self.heads, -1).transpose(1, 2)
                   for layer in (self.query, self.key, self.value))
        y = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=self.causal)
        x = x + self.out(y.transpose(1, 2).reshape(samples, length, width))
        return x + self.mlp(self.norm2(x))


class Transformer(nn.Module):
    def __init__(self, tokens=11, length=5, width=8, classes=4):
        super().__init__()
        self.tokens, self.positions = nn.Embedding(tokens, width), nn.Embedding(length, width)
        self.bias = nn.Parameter(0.1 * torch.randn(1, length, width))
        self.layers = nn.Sequential(Head(width, 2, True), Head(width, 4, False))
        self.classifier = nn.Linear(width, classes)

    def forward(self, ids):
        x = self.tokens(ids) + self.positions(torch.arange(ids.shape[1])) + self.bias
        return self.classifier(self.layers(x).mean(1))


class Tied(nn.Module):
    """One matrix, there and back; and what is done value by value."""

    def __init__(self):
        super().__init__()
        self.first = nn.Linear(6, 6)
        self.second = nn.Linear(6, 6, bias=False)
        self.second.weight = self.first.weight
        self.last = nn.Linear(6, 4)

    def forward(self, x):
        y = nn.functional.silu(self.first(x))
        return self.last(torch.sigmoid(self.second(torch.tanh(y) * 0.5) / 2 + x))


class Rotary(nn.Module):
    """A block as Llama's: RMS norms, rotary positions, a key and a value for two queries, SwiGLU; and a window."""

    def __init__(self, width=8, heads=2, length=5):
        super().__init__()
        self.norm1, self.norm2 = nn.RMSNorm(width), nn.RMSNorm(width)
        self.query, self.key, self.value, self.out = (
            nn.Linear(width, size, bias=False) for size in (width, width // heads, width // heads, width))
        self.gate, self.up, self.down = nn.Linear(width, 12), nn.Linear(width, 12), nn.Linear(12, width)
        self.heads = heads
        angles = torch.outer(torch.arange(length).float(), 0.5 ** torch.arange(width // heads // 2).float())
        self.register_buffer("angles", torch.cat([angles, angles], 1), persistent=False)

    def rotate(self, x):
        first, second = x.chunk(2, dim=-1)
        return x * self.angles.cos() + torch.cat([-second, first], -1) * self.angles.sin()

    def forward(self, x):
        samples, length, width = x.shape
        y = self.norm1(x)
        q, k, v = (layer(y).view(samples, length, -1, width // self.heads).transpose(1, 2)
                   for layer in (self.query, self.key, self.value))
        places = torch.arange(length)
        window = (places[:, None] >= places) & (places[:, None] - places < 3)
        y = nn.functional.scaled_dot_product_attention(self.rotate(q), self.rotate(k), v, attn_mask=window, enable_gqa=True)
        x = x + self.out(y.transpose(1, 2).reshape(samples, length, width))
        y = self.norm2(x)
        return x + self.down(nn.functional.silu(self.gate(y)) * self.up(y))


class Language(nn.Module):
    """With a token that is padding: it has no gradient, and is not attended to in the mean."""

    def __init__(self, tokens=11, width=8, classes=4):
        super().__init__()
        self.tokens = nn.Embedding(tokens, width, padding_idx=3)
        self.blocks = nn.Sequential(Rotary(), Rotary())
        self.classifier = nn.Linear(width, classes)

    def forward(self, ids):
        kept = (ids != 3).unsqueeze(-1).float()
        x = self.blocks(self.tokens(ids)) * kept
        return self.classifier(x.sum(1) / (kept.sum(1) + 1))


class Excite(nn.Module):
    """Images there and back: squeeze and excitation, a smaller image and a larger one, channels in another order."""

    def __init__(self, classes=4):
        super().__init__()
        self.conv1, self.down = nn.Conv2d(2, 4, 3, padding=1), nn.Conv2d(4, 6, 2, stride=2)
        self.squeeze, self.excite = nn.Conv2d(4, 2, 1), nn.Conv2d(2, 4, 1)
        self.up = nn.ConvTranspose2d(6, 4, 3, stride=2, padding=1, output_padding=1)
        self.mixed = nn.Conv2d(8, 4, 3, padding=1)
        self.scale = nn.Parameter(torch.full((4, 1, 1), 0.5))
        self.register_buffer("order", torch.tensor([2, 0, 3, 1]))
        self.classifier = nn.Linear(4, classes)

    def forward(self, x):
        x = nn.functional.relu6(self.conv1(nn.functional.pad(x, (1, 1, 0, 1))))
        x = x * nn.functional.hardsigmoid(self.excite(torch.relu(self.squeeze(x.mean((2, 3), keepdim=True)))))
        small = self.down(x)
        large = nn.functional.interpolate(nn.functional.max_pool2d(self.up(small), 2), scale_factor=2)
        x = x[:, self.order] * self.scale + self.mixed(torch.cat([x, large], 1))
        return self.classifier(x.flip(2)[:, :, 1:].mean((2, 3)))


class Waves(nn.Module):
    """Sequences, and images of other sizes; windows that reach beyond the last value."""

    def __init__(self, classes=4):
        super().__init__()
        self.conv1, self.norm1 = nn.Conv1d(2, 6, 3, stride=2, padding=1, bias=False), nn.BatchNorm1d(6)
        self.conv2, self.norm2 = nn.Conv1d(6, 6, 5, padding=4, dilation=2, groups=3), nn.GroupNorm(2, 6)
        self.up = nn.ConvTranspose1d(6, 6, 3, stride=2, padding=1, output_padding=1)
        self.conv3, self.classifier = nn.Conv2d(6, 4, 3, padding=1), nn.Linear(4, classes)

    def forward(self, x):
        x = nn.functional.max_pool1d(self.norm1(self.conv1(x.flatten(2))), 2)
        x = nn.functional.interpolate(self.up(self.norm2(self.conv2(x))), size=12, mode="linear")
        x = nn.functional.interpolate(x.unflatten(2, (3, 4)), size=(6, 7), mode="bilinear", align_corners=True)
        x = nn.functional.max_pool2d(self.conv3(x), 2, 2, ceil_mode=True)
        return self.classifier(nn.functional.avg_pool2d(x, 2, 2, 1, ceil_mode=True).tanh().mean((2, 3)))


class Padded(nn.Module):
    """Texts of several lengths, masked as transformers does: keys alone are hidden, and all rows are computed."""

    def __init__(self, tokens=11, width=8, length=5, outputs=4, heads=2, reads_padding=True):
        super().__init__()
        self.reads_padding = reads_padding
        self.tokens, self.positions = nn.Embedding(tokens, width), nn.Embedding(length, width)
        self.qkv = nn.ModuleList(nn.Linear(width, 3 * width) for _ in range(2))
        self.out = nn.ModuleList(nn.Linear(width, width) for _ in range(2))
        self.heads, self.classifier = heads, nn.Linear(2 * width, outputs)

    def forward(self, input_ids, attention_mask):
        samples, length = input_ids.shape
        places = torch.arange(length)
        seen = attention_mask.bool()[torch.arange(samples)[:, None, None, None], places]
        x = self.tokens(input_ids) + self.positions(places)
        for qkv, out, mask in zip(self.qkv, self.out, (seen, seen & (places <= places[:, None]))):
            q, k, v = (part.view(samples, length, self.heads, -1).transpose(1, 2) for part in qkv(x).chunk(3, -1))
            y = nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=mask.expand(samples, 1, length, length))
            x = x + out(y.transpose(1, 2).reshape(samples, length, -1))
        mask = attention_mask[:, :, None]
        known = (x * mask).sum(1) / mask.sum(1)
        return self.classifier(torch.cat([known, x.mean(1) if self.reads_padding else x[:, 0]], 1))


class Losses(nn.Module):
    """A mean and a variance for each value, and the negative logarithm of the likelihood of the targets."""

    def __init__(self, width=6, outputs=3):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(width, 8), nn.BatchNorm1d(8), nn.Tanh(), nn.Linear(8, 2 * outputs))

    def forward(self, features, targets=None):
        outputs = self.body(features)
        return outputs if targets is None else self.losses(outputs, targets)

    @staticmethod
    def losses(outputs, targets):
        mean, log_variance = outputs.chunk(2, 1)
        return ((mean - targets).square() * torch.exp(-log_variance) + log_variance).sum(1) / 2


class Counted(Losses):
    """The mean over the positive targets of the whole update; the others count neither in the sum nor in the divisor."""

    @staticmethod
    def losses(outputs, targets):
        mean, log_variance = outputs.chunk(2, 1)
        each = (mean - targets).square() * torch.exp(-log_variance) + log_variance
        counted = (targets > 0).to(outputs.dtype)
        return torch.stack(((counted * each).sum(1), counted.sum(1)), 1)


class Taught(Losses):
    """Its targets are also those of a network that is not trained, whose batch norm counts samples all the same."""

    def __init__(self, width=6, outputs=3):
        super().__init__(width, outputs)
        self.teacher = nn.Sequential(nn.Linear(width, outputs), nn.BatchNorm1d(outputs))

    def forward(self, features, targets=None):
        with torch.no_grad():
            taught = self.teacher(features)
        outputs = self.body(features)
        outputs = torch.cat([outputs[:, :3] + taught + (outputs[:, :3].round() - outputs[:, :3]).detach(), outputs[:, 3:]], 1)
        return outputs if targets is None else self.losses(outputs, targets)


class Shared(nn.Module):
    """Layers that it uses before and after batch norms."""

    def __init__(self):
        super().__init__()
        self.body, self.norm, self.head = nn.Linear(6, 6), nn.BatchNorm1d(6), nn.Linear(6, 4)
        self.other = nn.BatchNorm1d(6)

    def forward(self, x):
        x = self.body(torch.relu(self.norm(self.body(x))))
        return self.head(torch.relu(self.other(x)) + self.body(x))


def loss_sum(network, outputs, targets):
    """make_train divides it by the number of samples."""
    losses = network.losses(outputs, targets)
    return losses.sum() if losses.dim() == 1 else losses[:, 0].sum() / losses[:, 1].sum() * len(outputs)


def padded_load(make_train):
    """As make_train.load, but for the masks, which are in one array with the tokens."""
    drawn = make_train.stream(70, 6, 53 * 5).reshape(53, 5)
    lengths = 1 + drawn[:, 0] % numpy.uint64(5)
    some = (drawn >> numpy.uint64(20)) % numpy.uint64(2)
    some[:, 0] = 1  # a row that sees no key has no softmax
    long = make_train.stream(70, 7, 53 * 41).reshape(53, 41)
    for name, values in (("lengths", lengths), ("masks", some), ("long", long[:, 1:] % numpy.uint64(11)),
                         ("long_lengths", 1 + long[:, 0] % numpy.uint64(40))):
        numpy.save(os.path.join(FOLDER, name + ".npy"), values.astype("<i4"))

    def load(source, normalize):
        if not source.tokens.lengths and len(source.arrays.array) != 3:
            return make_train.load_of_all(source, normalize)
        paths = [one.path for one in source.arrays.array] or [source.tokens.tokens, source.tokens.lengths, source.tokens.labels]
        ids, mask, targets = (torch.from_numpy(numpy.load(os.path.join(FOLDER, path))) for path in paths)
        if mask.dim() == 1:
            mask = (torch.arange(ids.shape[1]) < mask[:, None]).int()
        return torch.cat([ids, mask], 1).long(), targets.double() if targets.is_floating_point() else targets
    return load


NETWORKS = {  # by job, and an example
    "mlp": (lambda: nn.Sequential(nn.Flatten(), nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 4)), torch.zeros(2, 6)),
    "tied": (Tied, torch.zeros(2, 6)),
    "residual": (lambda: nn.Sequential(
        nn.Conv2d(2, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU(inplace=True), nn.MaxPool2d(3, 1, 1),
        Residual(4, 6, 2), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(6, 4)), torch.zeros(2, 2, 7, 6)),
    "flat": (lambda: nn.Sequential(nn.Conv2d(2, 3, 3, stride=2), nn.GELU(), nn.AvgPool2d(2, 1), nn.Flatten(),
                                   nn.Linear(6, 8), nn.BatchNorm1d(8), nn.LeakyReLU(0.1), nn.Linear(8, 4)),
             torch.zeros(2, 2, 7, 6)),
    "transformer": (Transformer, torch.zeros(2, 5, dtype=torch.int64)),
    "rotary": (Language, torch.zeros(2, 5, dtype=torch.int64)),
    "excite": (Excite, torch.zeros(2, 2, 7, 6)),
    "waves": (Waves, torch.zeros(2, 2, 7, 6)),
    "padded": (Padded, [torch.zeros(2, 5, dtype=torch.int64), torch.ones(2, 5, dtype=torch.int64)]),
    "ragged": (lambda: Padded(length=40, reads_padding=False),
               [torch.zeros(2, 40, dtype=torch.int64), torch.ones(2, 40, dtype=torch.int64)]),
    "masked": (lambda: Padded(outputs=3), [torch.zeros(2, 5, dtype=torch.int64), torch.ones(2, 5, dtype=torch.int64)]),
    "losses": (Losses, [torch.zeros(2, 6), torch.zeros(2, 3)]),
    "counts": (Counted, [torch.zeros(2, 6), torch.zeros(2, 3)]),
    "taught": (Taught, [torch.zeros(2, 6), torch.zeros(2, 3)]),
    "shared": (Shared, torch.zeros(2, 6)),
}


def main():
    import make_train
    from gaccd import export
    from google.protobuf import text_format
    torch.set_num_threads(1)
    numpy.seterr(over="ignore")
    job_message = make_train.job_message()
    make_train.FOLDER = FOLDER
    make_train.load_of_all, make_train.load = make_train.load, padded_load(make_train)
    for seed, (name, (make, example)) in enumerate(NETWORKS.items()):
        if sys.argv[1:] and name not in sys.argv[1:]:
            continue
        torch.manual_seed(seed)
        network = make()
        export(network, example, os.path.join(FOLDER, name))
        if isinstance(network, Padded):
            network.register_forward_pre_hook(lambda _, both: both[0].chunk(2, 1))
        if isinstance(network, Losses):
            make_train.loss_sum = functools.partial(loss_sum, network)
        make_train.make_network = lambda _, trained=network.double(): trained
        with open(os.path.join(FOLDER, name + ".txtpb")) as text:
            job = text_format.Parse(text.read(), job_message())
        out = io.StringIO()
        make_train.train(job, 1, out)
        own = {tensor_name for tensor_name, _ in [*network.named_parameters(), *network.named_buffers()]}
        with open(os.path.join(FOLDER, name + ".txt"), "w") as file:
            file.write("torch %s\nworlds %s\n" % (torch.__version__, " ".join(WORLDS)))
            for line in out.getvalue().splitlines(True):  # a tied tensor once
                if not line.startswith("weight ") or line.split()[1] in own:
                    file.write(line)


if __name__ == "__main__":
    main()
