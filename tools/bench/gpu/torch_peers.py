"""PyTorch's side of the GPU benchmarks: the same work as gaccd's cases, in PyTorch's fastest ways.

Every peer is made once and has run(): seconds of one piece of work, the median of many. float32 is
float32 in both (no TF32); bf16 is autocast over float32 weights.
"""
import statistics
import sys
import time
from argparse import Namespace
from pathlib import Path

import torch
from torch.nn import functional

sys.path.append(str(Path(__file__).resolve().parents[1] / "peers"))
import models  # noqa: E402

FEATURES, HIDDEN, CLASSES = 784, 512, 10
BATCHES = 8  # in pinned memory, used in turn, as on gaccd's side
WARM_UP = 3


class Device:
    """The GPU; in a dry run the CPU, so that the scripts are tried where there is none."""

    def __init__(self, dry_run):
        self.dry_run = dry_run
        self.name = "cpu" if dry_run else "cuda"
        torch.set_float32_matmul_precision("highest")

    def wait(self):
        if not self.dry_run:
            torch.cuda.synchronize()

    def pinned(self, tensor):
        return tensor if self.dry_run else tensor.pin_memory()

    def free_bytes(self):
        return 1 << 34 if self.dry_run else torch.cuda.mem_get_info()[0]

    def forget(self):
        """Gives memory and compiled functions back before the next case."""
        if hasattr(torch, "_dynamo"):  # PyTorch 2
            torch._dynamo.reset()  # pylint: disable=protected-access
        if not self.dry_run:
            torch.cuda.empty_cache()

    def compiled(self, function, mode=None):
        if self.dry_run:
            return torch.compile(function, backend="eager")
        return torch.compile(function, mode=mode, dynamic=False)

    def median_seconds(self, work, repeats):
        """Of single pieces, on the device's clock."""
        for _ in range(WARM_UP):
            work()
        if self.dry_run:
            times = []
            for _ in range(repeats):
                begin = time.perf_counter()
                work()
                times.append(time.perf_counter() - begin)
            return statistics.median(times)
        events = [torch.cuda.Event(enable_timing=True) for _ in range(repeats + 1)]
        events[0].record()
        for event in events[1:]:
            work()
            event.record()
        torch.cuda.synchronize()
        return statistics.median(a.elapsed_time(b) for a, b in zip(events, events[1:])) * 1e-3


class Step:
    """Whole updates of 784-512-512-10: k micro-steps and SGD, seconds for one micro-step.

    Ways: eager; compiled; overhead (torch.compile, mode reduce-overhead, which uses CUDA graphs);
    graph (one CUDA graph of several whole updates, captured by hand, copies on a side stream).
    """

    def __init__(self, device, way, precision, micro, k, updates):
        self.device, self.way, self.micro, self.k, self.updates = device, way, micro, k, updates
        self.bf16 = precision == "bf16"
        torch.manual_seed(1)
        self.model = torch.nn.Sequential(
            torch.nn.Linear(FEATURES, HIDDEN), torch.nn.ReLU(), torch.nn.Linear(HIDDEN, HIDDEN),
            torch.nn.ReLU(), torch.nn.Linear(HIDDEN, CLASSES)).to(device.name)
        fused = {} if device.dry_run else {"fused": True}
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.01, **fused)
        self.batches = [(device.pinned(torch.rand(micro, FEATURES) * 2 - 1),
                         device.pinned(torch.randint(CLASSES, (micro,)))) for _ in range(BATCHES)]
        self.next = 0
        # A tensor, so that one compiled function serves every k.
        self.weight = torch.tensor(1.0 / (micro * k), device=device.name)
        if way == "overhead":  # a gradient that a CUDA graph returns is overwritten by the next run
            for parameter in self.model.parameters():
                parameter.grad = torch.zeros_like(parameter)
        self.loss_sum = torch.zeros((), device=device.name)
        self.loss = self.loss_of
        if way == "compiled":
            self.loss = device.compiled(self.loss_of)
        elif way == "overhead":
            self.loss = device.compiled(self.loss_of, "reduce-overhead")
        self.graph, self.graph_updates = None, 1
        if way == "graph" and not device.dry_run:
            self.capture()

    def loss_of(self, x, y):
        with torch.autocast(self.device.name, torch.bfloat16, enabled=self.bf16,
                            cache_enabled=False):
            return functional.cross_entropy(self.model(x), y, reduction="sum") * self.weight

    def micro_step(self, x, y):
        loss = self.loss(x, y)
        loss.backward()
        self.loss_sum += loss.detach()

    def update(self):
        self.optimizer.zero_grad(set_to_none=self.way != "overhead")
        for _ in range(self.k):
            x, y = self.batches[self.next % BATCHES]
            self.next += 1
            if self.way == "overhead" and not self.device.dry_run:
                torch.compiler.cudagraph_mark_step_begin()
            self.micro_step(x.to(self.device.name, non_blocking=True),
                            y.to(self.device.name, non_blocking=True))
        self.optimizer.step()

    def capture(self):
        """Several updates in one graph, so that a copy overlaps the step before it."""
        self.graph_updates = max(1, BATCHES // self.k)
        steps = self.graph_updates * self.k
        inputs = [tuple(torch.empty_like(part, device="cuda") for part in self.batches[0])
                  for _ in range(min(steps, BATCHES))]
        copies = torch.cuda.Stream()

        def updates():
            main = torch.cuda.current_stream()
            copies.wait_stream(main)
            arrived, used = [], [None] * len(inputs)
            for step in range(steps):
                slot = step % len(inputs)
                if used[slot] is not None:
                    copies.wait_event(used[slot])
                with torch.cuda.stream(copies):
                    for to, source in zip(inputs[slot], self.batches[step % BATCHES]):
                        to.copy_(source, non_blocking=True)
                    arrived.append(copies.record_event())
                if step % self.k == 0:
                    self.optimizer.zero_grad(set_to_none=True)
                main.wait_event(arrived[step])
                self.micro_step(*inputs[slot])
                used[slot] = main.record_event()
                if step % self.k == self.k - 1:
                    self.optimizer.step()
            main.wait_stream(copies)

        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(WARM_UP):
                updates()
        torch.cuda.current_stream().wait_stream(side)
        self.graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self.graph):
            updates()

    def several(self, count):
        if self.graph is None:
            for _ in range(count):
                self.update()
        else:
            for _ in range(count):
                self.graph.replay()

    def run(self):
        # As many calls for the same number of updates as on gaccd's side.
        calls = max(3, self.updates // self.graph_updates)
        self.several(max(WARM_UP, calls // 10))
        self.device.wait()
        begin = time.perf_counter()
        self.several(calls)
        self.device.wait()
        seconds = time.perf_counter() - begin
        if not torch.isfinite(self.loss_sum):
            raise RuntimeError(f"the loss is {self.loss_sum.item()}")
        return seconds / (calls * self.graph_updates * self.k)


def linear_shapes(name, size_in, size_out):
    return {name + ".weight": (size_out, size_in), name + ".bias": (size_out,)}


def norm_shapes(name, width):
    return {name + ".weight": (width,), name + ".bias": (width,)}


def transformer_shapes(model, sizes):
    """The parameters that models.gpt and models.bert take."""
    width, tables = sizes["width"], {"word": sizes["vocabulary"], "position": sizes["context"]}
    shapes = {}
    if model == "gpt":
        for table, rows in zip(("wte", "wpe"), tables.values()):
            shapes[f"transformer.{table}.weight"] = (rows, width)
        for i in range(sizes["layers"]):
            block = f"transformer.h.{i}."
            shapes |= norm_shapes(block + "ln_1", width) | norm_shapes(block + "ln_2", width)
            for name, size_in, size_out in (("attn.c_attn", 1, 3), ("attn.c_proj", 1, 1),
                                            ("mlp.c_fc", 1, 4), ("mlp.c_proj", 4, 1)):
                shapes |= linear_shapes(block + name, size_in * width, size_out * width)
        return shapes | norm_shapes("transformer.ln_f", width)
    for table, rows in (tables | {"token_type": 2}).items():
        shapes[f"bert.embeddings.{table}_embeddings.weight"] = (rows, width)
    shapes |= norm_shapes("bert.embeddings.LayerNorm", width)
    for i in range(sizes["layers"]):
        layer = f"bert.encoder.layer.{i}."
        for name in ("self.query", "self.key", "self.value", "output.dense"):
            shapes |= linear_shapes(f"{layer}attention.{name}", width, width)
        shapes |= linear_shapes(layer + "intermediate.dense", width, 4 * width)
        shapes |= linear_shapes(layer + "output.dense", 4 * width, width)
        shapes |= norm_shapes(layer + "attention.output.LayerNorm", width)
        shapes |= norm_shapes(layer + "output.LayerNorm", width)
    return shapes | linear_shapes("bert.pooler.dense", width, width) | linear_shapes(
        "classifier", width, 2)


class Transformer(Step):
    """The same of a GPT or a BERT with fused AdamW, random weights, tokens and labels. Ways: eager,
    compiled. `sizes`: vocabulary, context, layers, heads, width."""

    def __init__(self, device, way, precision, model, sizes, micro, updates):
        # pylint: disable=super-init-not-called
        self.device, self.way, self.micro, self.k, self.updates = device, way, micro, 1, updates
        self.bf16 = precision == "bf16"
        torch.manual_seed(1)
        self.weights = {
            name: torch.nn.Parameter(torch.ones(shape, device=device.name)
                                     if "ln_" in name or "Norm" in name else
                                     0.02 * torch.randn(shape, device=device.name))
            for name, shape in transformer_shapes(model, sizes).items()}
        self.network, self.sizes = models.NETWORKS[model], Namespace(**sizes)
        fused = {} if device.dry_run else {"fused": True}
        self.optimizer = torch.optim.AdamW(self.weights.values(), lr=3e-4, weight_decay=0.01, **fused)
        tokens, classes = (micro, sizes["context"]), sizes["vocabulary"] if model == "gpt" else 2
        labels = tokens if model == "gpt" else (micro,)
        self.batches = [(device.pinned(torch.randint(sizes["vocabulary"], tokens)),
                         device.pinned(torch.randint(classes, labels))) for _ in range(BATCHES)]
        self.next = 0
        self.weight = 1.0 / self.batches[0][1].numel()
        self.loss_sum = torch.zeros((), device=device.name)
        self.loss = device.compiled(self.loss_of) if way == "compiled" else self.loss_of
        self.graph, self.graph_updates = None, 1

    def loss_of(self, x, y):
        with torch.autocast(self.device.name, torch.bfloat16, enabled=self.bf16):
            logits = self.network(self.weights, x, self.sizes)
            return functional.cross_entropy(logits.flatten(0, -2), y.flatten(),
                                            reduction="sum") * self.weight


# The parameters of GPT-2 small: 124 M in 148 tensors.
def gpt2_shapes(elements):
    layer = [(768,), (768,), (768, 2304), (2304,), (768, 768), (768,), (768,), (768,), (768, 3072),
             (3072,), (3072, 768), (768,)]
    shapes = [(50257, 768), (1024, 768), *(layer * 12), (768,), (768,)]
    return shapes if elements > 1e8 else [(elements,)]


class AdamW:
    """torch.optim.AdamW, fused; over one flat tensor, or over GPT-2's."""

    def __init__(self, device, elements, flat):
        shapes = [(elements,)] if flat else gpt2_shapes(elements)
        self.device = device
        self.parameters = [torch.rand(shape, device=device.name) - 0.5 for shape in shapes]
        for parameter in self.parameters:
            parameter.grad = torch.rand_like(parameter) - 0.5
        self.elements = sum(parameter.numel() for parameter in self.parameters)
        self.optimizer = torch.optim.AdamW(self.parameters, lr=1e-3, fused=True)

    def run(self):
        """Scaled to the same number of elements is the caller's business: see .elements."""
        return self.device.median_seconds(self.optimizer.step, 20)


class Entropy:
    """cross_entropy forward and backward, eager or compiled."""

    def __init__(self, device, precision, rows, columns, compiled):
        dtype = torch.bfloat16 if precision == "bf16" else torch.float32
        self.device = device
        self.logits = torch.empty(rows, columns, device=device.name, dtype=dtype).uniform_(-1, 1)
        self.logits.requires_grad_(True)
        self.labels = torch.randint(columns, (rows,), device=device.name)
        self.loss = device.compiled(self.loss_of) if compiled else self.loss_of

    @staticmethod
    def loss_of(logits, labels):
        return functional.cross_entropy(logits, labels)

    def once(self):
        torch.autograd.grad(self.loss(self.logits, self.labels), self.logits)

    def run(self):
        return self.device.median_seconds(self.once, 10)


def entropy_bytes(precision, rows, columns):
    """What the eager way may hold at once: logits, log-softmax, two gradients, float32 copies."""
    return rows * columns * (4 * 4 if precision == "f32" else 2 + 2 + 3 * 4)
