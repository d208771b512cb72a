#!/usr/bin/python3
"""Writes tests/golden/train/*.npy and *.txt: what PyTorch makes of the job texts (*.txtpb) there.

Run with Debian's python3-torch and python3-protobuf (the committed files are from 1.13):
  tests/golden/make_train.py

PyTorch knows neither ranks nor micro-batches: it trains in double precision, every update is one
batch, and the loss of an update is the sum over its samples / their number. Only the rounding modes
need to know how many ranks there are, as the effective batch depends on it, and batch norms over
micro-batches: where all are, PyTorch accumulates the gradients of one after the other.

NAME.txt: one line a record, a key, then values.
  torch VERSION
  worlds 1x1 2x3           nodes x ranks a node that must give what follows
  step EPOCH STEP SAMPLES SAMPLES_TOTAL LR LOSS GRAD_NORM     before clipping
  eval EPOCH STEP SAMPLES LOSS [ACCURACY]    of the averaged weights, where the job has an average
  gradient STEP VALUES...  of all parameters, in their order
  buffers STEP VALUES...   running means and variances after it
  weight NAME VALUES...    after the last update; as well
  error grad_norm VALUE    the largest relative error of PyTorch's own single precision, where it is far above 1e-6
"""
import fnmatch
import functools
import math
import os
import subprocess
import sys
import tempfile

import numpy
import torch
import torch.optim.swa_utils
from gaccd_random import mix_group, normal, order_of_epoch, stream, stream_key, uniform
from google.protobuf import text_format

HERE = os.path.dirname(os.path.abspath(__file__))
FOLDER = os.path.join(HERE, "train")
# By job: batches of a few samples, some with hardly any variance. Measured with float32 instead of float64 below.
NORM_ERRORS = {"batch_norm_micro": 7.1e-5, "batch_norm_mixed": 6.6e-6}
WORLDS = {  # by job
    "sgd": ["1x1", "1x3", "2x3"],
    "momentum_cosine": ["1x1", "1x4", "3x2"],
    "nesterov_step_carry": ["1x1", "1x2", "5x1"],
    "adagrad": ["1x1", "1x3", "2x2"],
    "adamw_drop": ["1x1", "1x3", "2x2"],
    "adamw_clipped": ["1x1", "1x5"],
    "adamw_groups": ["1x1", "1x3", "2x2"],
    "momentum_groups": ["1x1", "1x4"],
    "floor_linear": ["1x4", "2x2"],
    "ceil_sqrt": ["1x4", "2x2"],
    "nearest_warmup": ["1x4", "4x1"],
    "fewer_samples_than_ranks": ["1x1", "1x7"],
    "contrastive": ["1x1", "1x3", "2x2", "1x7"],
    "momentum_ema": ["1x1", "1x3", "1x5"],
    "embedding_flatten": ["1x1", "1x3", "2x2"],
    "contrastive_tokens": ["1x1", "1x3", "2x2"],
    "batch_norm": ["1x1", "1x3", "2x2", "1x5"],
    "batch_norm_few": ["1x1", "1x4", "1x8"],
    "batch_norm_frozen": ["1x1", "1x3", "1x7"],
    "batch_norm_micro": ["1x3", "3x1"],
    "batch_norm_mixed": ["1x2"],
    "batch_norm_ghost": ["1x1", "1x3", "1x7"],
    "contrastive_micro": ["1x3"],
    "resnet_micro": ["1x7"],
    "resnet_ghost": ["1x1", "1x3", "1x17"],
    "resnet": ["1x1", "1x3", "2x2"],
    "batch_norm_ema": ["1x1", "1x3", "2x2"],
    "batch_norm_five": ["1x1", "1x7"],
    "batch_norm_240": ["30x8"],
    "resnet_bottleneck": ["1x1", "1x5"],
    "resnet_one_image": ["1x1", "1x3"],
    "resnet18": ["1x1", "1x7", "2x2"],
    "mixup": ["1x1", "1x3", "1x5", "2x2"],
    "cutmix": ["1x1", "1x3", "1x5"],
    "mixup_cutmix_carry": ["1x1", "1x3", "1x5", "30x8"],
    "target_schedule": ["1x1", "1x3", "2x2", "1x17"],
    "target_schedule_carry": ["1x1", "1x5"],
}
GRADIENTS = ["batch_norm_five"]  # of these, gradients and buffers after every update, too


def job_message():
    with tempfile.TemporaryDirectory() as folder:
        root = os.path.join(HERE, "..", "..")
        subprocess.run(["protoc", "-I", root, "--python_out", folder, "proto/field.proto",
                        "proto/job.proto"], check=True)
        sys.path.insert(0, folder)
        from proto import job_pb2
        return job_pb2.Job


def write_data():
    """Every sample differs from every other one."""
    samples, held_out, width, classes, outputs = 53, 11, 6, 4, 3
    features = 2 * uniform(stream(70, 0, (samples + held_out) * width)).reshape(-1, width)
    labels = (features @ uniform(stream(70, 1, width * classes)).reshape(width, -1)).argmax(1)
    targets = numpy.sin(features[:, :outputs] * features[:, outputs:])
    pixels = stream(70, 2, samples * width) % numpy.uint64(256)
    images = stream(70, 4, samples * 2 * 7 * 6) % numpy.uint64(256)
    many = (stream(70, 5, 3072 * 4) % numpy.uint64(256)).reshape(-1, 4)
    many_labels = many.argmax(1)
    tokens = (stream(70, 3, (samples + held_out) * 5) % numpy.uint64(11)).reshape(-1, 5)
    for name, values, kind in (
            ("features", features[:samples], "<f4"), ("eval_features", features[samples:], "<f4"),
            ("labels", labels[:samples], "<i8"), ("eval_labels", labels[samples:], "<i8"),
            ("targets", targets[:samples], "<f4"), ("eval_targets", targets[samples:], "<f4"),
            ("tokens", tokens[:samples], "<i4"), ("eval_tokens", tokens[samples:], "<i4"),
            ("pixels", pixels.reshape(-1, width), "|u1"),
            ("images", images.reshape(-1, 2, 7, 6), "|u1"),
            ("many", many, "|u1"), ("many_labels", many_labels, "|u1")):
        numpy.save(os.path.join(FOLDER, name + ".npy"), values.astype(kind))


def load(source, normalize):
    """What the model reads and what it is compared with; of arrays the first two."""
    if not source.HasField("npy"):
        paths = [one.path for one in source.arrays.array] or [source.tokens.tokens, source.tokens.labels]
        both = [numpy.load(os.path.join(FOLDER, path)) for path in paths]
        return tuple(torch.from_numpy(one.astype(numpy.int64 if one.dtype.kind == "i" else numpy.float64))
                     for one in both)
    features = numpy.load(os.path.join(FOLDER, source.npy.features)).astype(numpy.float64)
    features = (features * normalize.scale - normalize.mean) / normalize.std
    targets = numpy.load(os.path.join(FOLDER, source.npy.targets))
    targets = targets.astype(numpy.int64 if source.npy.classes else numpy.float64)
    return torch.from_numpy(features), torch.from_numpy(targets)


def effective_batch(batch, target, ranks):
    base = ranks * batch.micro
    ratio = target / base
    steps = {batch.FLOOR: max(1, math.floor(ratio)), batch.CEIL: math.ceil(ratio),
             batch.NEAREST: max(1, math.floor(ratio + 0.5))}
    return target if batch.rounding == batch.EXACT else steps[batch.rounding] * base


def target_of(batch, updates, samples):
    """Of the update after so many updates with so many samples together."""
    if not batch.HasField("target_schedule"):
        return batch.target
    return [stage.target for stage in batch.target_schedule.stage
            if (updates >= stage.at_update if stage.HasField("at_update")
                else samples >= stage.at_samples)][-1]


def updates_of(job, size, ranks):
    """(epoch from 1, its samples, the effective batch) of every update."""
    updates, left, epoch, taken = [], [], 0, 0
    while (epoch < job.epochs or not job.epochs) and not 0 < job.max_updates <= len(updates):
        epoch += 1
        left += [(epoch, i) for i in order_of_epoch(job.seed, epoch - 1, size, job.data.shuffle)]
        whole = job.batch.last_cycle == job.batch.CARRY and epoch != job.epochs
        while left:
            batch = effective_batch(job.batch, target_of(job.batch, len(updates), taken), ranks)
            if len(left) < batch and whole:
                break
            part, left = left[:batch], left[batch:]
            if len(part) < batch and job.batch.last_cycle == job.batch.DROP:
                continue
            taken += len(part)
            updates.append((part[0][0], [i for _, i in part], batch))
    return updates[:job.max_updates or None]


def learning_rate(job, updates, update):
    batch = updates[update][2]
    reference = job.batch.reference or target_of(job.batch, 0, 0)
    rule = {job.batch.NONE: 1, job.batch.LINEAR: batch / reference,
            job.batch.SQRT: math.sqrt(batch / reference)}[job.batch.lr_rule]
    lr, warmup, shape = job.optimizer.lr * rule, job.schedule.warmup_updates, 1
    if update < warmup:
        lr *= (update + 1) / warmup
    if job.schedule.WhichOneof("shape") == "cosine" and update > warmup:
        final = job.schedule.cosine.final_ratio
        before = numpy.cumsum([0] + [len(samples) for _, samples, _ in updates])
        if not job.batch.HasField("target_schedule"):
            before = numpy.arange(len(updates))
        done = (before[update] - before[warmup]) / (before[len(updates) - 1] - before[warmup])
        shape = final + (1 - final) * (1 + math.cos(math.pi * done)) / 2
    if job.schedule.WhichOneof("shape") == "step":
        shape = job.schedule.step.gamma ** (update // job.schedule.step.every_updates)
    return lr * shape


def initialize(seed, network):
    """As Model::Initialize: parameter i from stream (seed, i), uniform in +-1/sqrt(in), f32;
    of embeddings normal, 0.02. Buffers count; batch norms start as PyTorch's."""
    kinds = (torch.nn.Linear, torch.nn.Embedding, torch.nn.Conv2d, torch.nn.BatchNorm1d,
             torch.nn.BatchNorm2d)
    modules = [module for module in network.modules() if isinstance(module, kinds)]
    parameters = [(module, p) for module in modules
                  for p in [*module.parameters(), *module.buffers()]]
    for count, (module, parameter) in enumerate(parameters):
        if isinstance(module, (torch.nn.BatchNorm1d, torch.nn.BatchNorm2d)):
            continue
        if isinstance(module, torch.nn.Embedding):
            values = (0.02 * normal(stream(seed, count, parameter.numel()))).astype(numpy.float32)
        elif isinstance(module, torch.nn.Conv2d):
            deviation = math.sqrt(2 / (module.out_channels * math.prod(module.kernel_size)))
            values = (deviation * normal(stream(seed, count, parameter.numel()))).astype(numpy.float32)
        else:
            values = uniform(stream(seed, count, parameter.numel()))
            values = (values / math.sqrt(module.in_features)).astype(numpy.float32)
        parameter.data = torch.from_numpy(values.astype(numpy.float64)).view_as(parameter)


def micro_batches(batch, ranks, samples):
    """The sizes of all micro-batches of an update, in the order of its samples: daemon/plan/plan.h."""
    steps = max(1, math.ceil(math.ceil(samples / ranks) / batch.micro))
    loads = [(i + 1) * samples // ranks - i * samples // ranks for i in range(ranks)]
    return [load // steps + (j < load % steps) for load in loads for j in range(steps)]


class PartsNorm:
    """Normalises parts of its batch by themselves. The running statistics change in end_update(), by
    the means over the parts of all its batches since, weighted by samples."""

    def begin_update(self, sizes):
        self.sizes, self.found = sizes, []

    def forward(self, x):
        if not self.training:
            return super().forward(x)
        parts = x.split([n for n in self.sizes if n > 0]) if self.sizes else [x]
        for part in parts:
            var, mean = torch.var_mean(part.detach().transpose(0, 1).flatten(1), 1)
            self.found.append((len(part), mean, var))
        return torch.cat([torch.nn.functional.batch_norm(
            part, None, None, self.weight, self.bias, True, 0, self.eps) for part in parts])

    def end_update(self):
        samples = sum(n for n, _, _ in self.found)
        for running, values in ((self.running_mean, 1), (self.running_var, 2)):
            mean = sum(one[0] * one[values] for one in self.found) / samples
            running.lerp_(mean, self.momentum)
        self.num_batches_tracked += 1


class PartsNorm1d(PartsNorm, torch.nn.BatchNorm1d):
    pass


class PartsNorm2d(PartsNorm, torch.nn.BatchNorm2d):
    pass


def make_norm(kinds, spec, channels, **options):
    """kinds: of the whole batch, and of parts."""
    stats = spec.DESCRIPTOR.fields_by_name["stats"].enum_type.values_by_number[spec.stats].name
    norm = kinds[stats in ("MICRO", "GHOST")](channels, **options)
    norm.stats, norm.ghost_size = stats, spec.ghost_size
    if stats == "FROZEN":
        norm.eval()
        norm.train = lambda mode=True: norm
    return norm


class Block(torch.nn.Module):
    """torchvision's BasicBlock and Bottleneck."""

    def __init__(self, norm, inputs, width, stride, bottleneck):
        super().__init__()
        out = 4 * width if bottleneck else width
        sizes = [(inputs, width, 3, stride), (width, out, 3, 1)]
        if bottleneck:
            sizes = [(inputs, width, 1, 1), (width, width, 3, stride), (width, out, 1, 1)]
        self.convolutions = len(sizes)
        for i, (first, second, kernel, by) in enumerate(sizes, 1):
            self.add_module(f"conv{i}", torch.nn.Conv2d(first, second, kernel, by, kernel // 2, bias=False))
            self.add_module(f"bn{i}", norm(second))
        if inputs != out or stride != 1:
            self.downsample = torch.nn.Sequential(
                torch.nn.Conv2d(inputs, out, 1, stride, bias=False), norm(out))

    def forward(self, x):
        y = x
        for i in range(1, self.convolutions + 1):
            y = getattr(self, f"bn{i}")(getattr(self, f"conv{i}")(y))
            if i < self.convolutions:
                y = y.relu()
        return (y + (self.downsample(x) if hasattr(self, "downsample") else x)).relu()


class Resnet(torch.nn.Module):
    def __init__(self, spec):
        super().__init__()
        bottleneck, width, inputs = spec.block == spec.BOTTLENECK, spec.width, spec.width
        self.small = spec.stem == spec.SMALL
        kernel, stride = (3, 1) if self.small else (7, 2)
        self.conv1 = torch.nn.Conv2d(spec.channels, width, kernel, stride, kernel // 2, bias=False)
        norm = functools.partial(make_norm, (torch.nn.BatchNorm2d, PartsNorm2d), spec)
        self.bn1 = norm(width)
        for stage, count in enumerate(spec.blocks or {18: [2, 2, 2, 2]}[spec.depth]):
            blocks = []
            for i in range(count):
                blocks.append(Block(norm, inputs, width, 2 if i == 0 and stage > 0 else 1, bottleneck))
                inputs = 4 * width if bottleneck else width
            self.add_module(f"layer{stage + 1}", torch.nn.Sequential(*blocks))
            width *= 2
        self.fc = torch.nn.Linear(inputs, spec.classes)

    def forward(self, x):
        x = self.bn1(self.conv1(x)).relu()
        if not self.small:
            x = torch.nn.functional.max_pool2d(x, 3, 2, 1)
        for name, stage in self.named_children():
            if name.startswith("layer"):
                x = stage(x)
        return self.fc(x.mean((2, 3)))


def make_batch_norm(spec):
    return make_norm((torch.nn.BatchNorm1d, PartsNorm1d), spec, spec.num_features, eps=spec.eps,
                     momentum=spec.momentum)


def make_layers(spec):
    layers = torch.nn.Sequential()
    for layer in spec:
        other = {"relu": lambda _: torch.nn.ReLU(), "flatten": lambda _: torch.nn.Flatten(),
                 "embedding": lambda spec: torch.nn.Embedding(spec.rows, spec.width),
                 "batch_norm": make_batch_norm}
        kind = layer.WhichOneof("kind")
        if kind in other:
            layers.add_module(layer.name, other[kind](getattr(layer, kind)))
            continue
        linear = torch.nn.Linear(getattr(layer.linear, "in"), layer.linear.out, layer.linear.bias)
        layers.add_module(layer.name, linear)
    return layers


class DualEncoder(torch.nn.Module):
    """CLIP's two towers, its loss, and the limit of its scale."""

    def __init__(self, spec):
        super().__init__()
        self.a, self.b = make_layers(spec.a.layer), make_layers(spec.b.layer)
        for tower in (self.a, self.b):
            width = [m for m in tower if isinstance(m, torch.nn.Linear)][-1].out_features
            tower.add_module("projection", torch.nn.Linear(width, spec.width, bias=False))
        scale = numpy.float32(math.log(1 / spec.temperature))
        self.logit_scale = torch.nn.Parameter(torch.tensor([float(scale)]))
        self.limit = math.log(spec.max_scale)

    def loss(self, features, targets):
        a = torch.nn.functional.normalize(self.a(features))
        b = torch.nn.functional.normalize(self.b(targets))
        logits = self.logit_scale.exp() * a @ b.T
        same = torch.arange(len(features))
        cross_entropy = torch.nn.functional.cross_entropy
        return (cross_entropy(logits, same) + cross_entropy(logits.T, same)) / 2

    def after_step(self):
        self.logit_scale.data.clamp_(max=self.limit)


def make_network(job):
    dual = job.model.HasField("dual_encoder")
    if job.model.HasField("resnet"):
        network = Resnet(job.model.resnet)
    else:
        network = DualEncoder(job.model.dual_encoder) if dual else make_layers(job.model.layer)
    initialize(job.seed, network)
    return network


def matches(name, pattern):
    return fnmatch.fnmatchcase(name, pattern)


def group_of(spec, name, parameter):
    """One parameter, one group: decay for matrices, then what the last rule for its name says."""
    group = {"params": [parameter], "lr_factor": 1}
    if parameter.dim() < 2:  # biases, logit_scale
        group["weight_decay"] = 0
    for rule in spec.group:
        if matches(name, rule.match):
            if rule.HasField("weight_decay"):
                group["weight_decay"] = rule.weight_decay
            if rule.HasField("lr_factor"):
                group["lr_factor"] = rule.lr_factor
    return group


def make_optimizer(spec, network):
    for name, parameter in network.named_parameters():
        rules = [rule.freeze for rule in spec.group
                 if matches(name, rule.match) and rule.HasField("freeze")]
        parameter.requires_grad_(not (rules and rules[-1]))
    parameters = [group_of(spec, name, parameter)
                  for name, parameter in network.named_parameters() if parameter.requires_grad]
    if spec.WhichOneof("kind") == "sgd":
        return torch.optim.SGD(parameters, lr=1, momentum=spec.sgd.momentum,
                               weight_decay=spec.sgd.weight_decay, nesterov=spec.sgd.nesterov)
    if spec.WhichOneof("kind") == "adagrad":
        return torch.optim.Adagrad(parameters, lr=1, lr_decay=spec.adagrad.lr_decay,
                                   weight_decay=spec.adagrad.weight_decay, eps=spec.adagrad.epsilon)
    return torch.optim.AdamW(parameters, betas=(spec.adamw.beta1, spec.adamw.beta2),
                             eps=spec.adamw.epsilon, weight_decay=spec.adamw.weight_decay)


def make_average(spec, network):
    """torch's get_ema_multi_avg_fn for versions without it; the network itself where there is none."""
    if not spec.HasField("ema"):
        return network, lambda: None
    averaged = torch.optim.swa_utils.AveragedModel(
        network, avg_fn=lambda a, w, _: torch.lerp(a, w, 1 - spec.ema.decay))

    def update():
        averaged.update_parameters(network)
        # As newer versions: buffers are those of the network.
        for mine, its in zip(averaged.module.buffers(), network.buffers()):
            mine.copy_(its)
    return averaged.module, update


def loss_sum(outputs, targets):
    if targets.dtype == torch.int64:
        return torch.nn.functional.cross_entropy(outputs, targets, reduction="sum")
    return ((outputs - targets) ** 2).mean(dim=1).sum()


def mix(job, update, inputs, labels):
    """The inputs of an update, mixed in its groups, and (labels, weights) twice."""
    mixed, others, shares = inputs.clone(), labels.clone(), torch.ones(len(inputs))
    for group, first in enumerate(range(0, len(inputs), job.data.mix_group)):
        rows = torch.arange(first, min(first + job.data.mix_group, len(inputs)))
        key = stream_key(stream_key(stream_key(job.seed, update), 1 << 34), group)
        lam, box, partners = mix_group(key, len(rows), job.data.mixup.alpha, job.data.cutmix.alpha,
                                       *(inputs.shape[-2:] if inputs.dim() > 2 else (1, 1)))
        partners = first + torch.tensor(partners)
        if box:
            top, left, height, width = box
            part = (..., slice(top, top + height), slice(left, left + width))
            mixed[first:first + len(rows)][part] = inputs[partners][part]
        else:
            mixed[rows] = lam * inputs[rows] + (1 - lam) * inputs[partners]
        others[rows], shares[rows] = labels[partners], lam
    return mixed, ((labels, shares), (others, 1 - shares))


def mixed_loss_sum(outputs, targets, smoothing):
    cross_entropy = torch.nn.functional.cross_entropy
    return sum((cross_entropy(outputs, labels, reduction="none", label_smoothing=smoothing) * weights).sum()
               for labels, weights in targets)


def evaluate(network, features, targets):
    with torch.no_grad():
        network.eval()
        outputs = network(features)
        network.train()
        figures = [loss_sum(outputs, targets).item() / len(features)]
        if targets.dtype == torch.int64:
            figures.append((outputs.argmax(1) == targets).double().mean().item())
        return figures


def write_gradients(update, network, out):
    gradients = torch.cat([p.grad.reshape(-1) for p in network.parameters()])
    buffers = torch.cat([b for b in network.buffers() if b.dim() > 0])
    for name, values in (("gradient", gradients), ("buffers", buffers)):
        out.write("%s %d %s\n" % (name, update, " ".join("%.9g" % v for v in values.tolist())))


def train(job, ranks, out):
    features, targets = load(job.data.train, job.data.normalize)
    updates = updates_of(job, len(features), ranks)
    network = make_network(job)
    optimizer = make_optimizer(job.optimizer, network)
    average, update_average = make_average(job.optimizer, network)
    norms = [module for module in network.modules() if hasattr(module, "stats")]
    in_parts = [norm for norm in norms if isinstance(norm, PartsNorm)]
    accumulates = (in_parts and all(norm.stats in ("MICRO", "FROZEN") for norm in norms)
                   and not isinstance(network, DualEncoder))
    total = 0
    for update, (epoch, samples, _) in enumerate(updates):
        optimizer.zero_grad()
        parts = [n for n in micro_batches(job.batch, ranks, len(samples)) if n > 0]
        for layer in in_parts:
            ghosts = [layer.ghost_size] * (len(samples) // layer.ghost_size)
            ghosts.append(len(samples) - sum(ghosts))
            layer.begin_update([] if accumulates else parts if layer.stats == "MICRO" else ghosts)
        loss = 0
        if isinstance(network, DualEncoder):
            loss = network.loss(features[samples], targets[samples])
            loss.backward()
        elif job.data.HasField("mixup") or job.data.HasField("cutmix"):
            inputs, labels = mix(job, update, features[samples], targets[samples])
            smoothing = job.model.loss.softmax_cross_entropy.label_smoothing
            loss = mixed_loss_sum(network(inputs), labels, smoothing) / len(samples)
            loss.backward()
        else:
            for part in torch.tensor(samples).split(parts if accumulates else [len(samples)]):
                part_loss = loss_sum(network(features[part]), targets[part]) / len(samples)
                part_loss.backward()
                loss += part_loss.detach()
        trained = [p for p in network.parameters() if p.requires_grad]
        norm = torch.nn.utils.clip_grad_norm_(trained, job.clip_norm or math.inf)
        lr = learning_rate(job, updates, update)
        for group in optimizer.param_groups:
            group["lr"] = lr * group.get("lr_factor", 1)
        optimizer.step()
        for layer in in_parts:
            layer.end_update()
        if isinstance(network, DualEncoder):
            network.after_step()
        update_average()
        total += len(samples)
        out.write("step %d %d %d %d %.12g %.12g %.12g\n"
                  % (epoch, update + 1, len(samples), total, lr, loss.item(), norm.item()))
        if job.name in GRADIENTS:
            write_gradients(update + 1, network, out)
        last = update + 1 == len(updates)
        if job.data.HasField("eval") and (last or updates[update + 1][0] > epoch):
            figures = evaluate(average, *load(job.data.eval, job.data.normalize))
            count = len(load(job.data.eval, job.data.normalize)[0])
            out.write("eval %d %d %d %s\n"
                      % (epoch, update + 1, count, " ".join("%.12g" % f for f in figures)))
    # logit_scale is the last one here.
    for name, parameter in sorted(average.state_dict().items(), key=lambda p: p[0] == "logit_scale"):
        values = " ".join("%.9g" % value for value in parameter.reshape(-1).tolist())
        out.write("weight %s %s\n" % (name, values))


if __name__ == "__main__":
    torch.set_num_threads(1)
    torch.set_default_dtype(torch.float64)
    numpy.seterr(over="ignore")
    write_data()
    Job = job_message()
    for case, worlds in WORLDS.items():
        with open(os.path.join(FOLDER, case + ".txtpb")) as text:
            parsed = text_format.Parse(text.read(), Job())
        counts = {math.prod(map(int, world.split("x"))) for world in worlds}
        by_ranks = parsed.batch.rounding != parsed.batch.EXACT or "MICRO" in str(parsed)
        assert not by_ranks or len(counts) == 1
        with open(os.path.join(FOLDER, case + ".txt"), "w") as file:
            file.write("torch %s\nworlds %s\n" % (torch.__version__, " ".join(worlds)))
            if case in NORM_ERRORS:
                file.write("error grad_norm %.3g\n" % NORM_ERRORS[case])
            train(parsed, counts.pop(), file)
