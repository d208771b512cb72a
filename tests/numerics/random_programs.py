"""Random models for graph_fuzz.py: straight-line programs of what the exporter accepts, drawn by a seed.

A program is text: parts (parameters, buffers and modules of the model `m`), and lines, each of which computes a value
from former ones. Dimension 0 of what depends on inputs counts samples; no line uses it, as they must not depend on
each other.
"""
import dataclasses
import random
import re

import torch
import torch.nn.functional as F
from torch import nn

SAMPLES = 7  # of the values that a draft computes; no size of a sample is 7
MAX_COUNT, MAX_SIZE = 2000, 50.0  # of the values of a line
IDS = 5  # ids are below it


def assigned(x, index, y):
    """x with y in the place of x[index]."""
    x = x.clone()
    x[index] = y
    return x


def times(x, y):
    """The product of complex values, as real and imaginary parts."""
    return torch.view_as_real(torch.view_as_complex(x.contiguous()) * torch.view_as_complex(y.contiguous()))


NAMES = {"torch": torch, "F": F, "nn": nn, "assigned": assigned, "times": times}


@dataclasses.dataclass
class Program:
    """inputs: the sizes of a sample by name; those whose name begins with `ids` are integers."""
    seed: int
    inputs: dict
    parts: dict
    lines: dict
    result: str

    def __str__(self):
        return "\n".join([*(f"m.{name} = {text}" for name, text in self.parts.items()),
                          *(f"{name}: {list(sizes)}" for name, sizes in self.inputs.items()),
                          *(f"{name} = {text}" for name, text in self.lines.items()), f"return {self.result}"])

    def without_unused(self):
        used, lines = set(re.findall(r"\w+", self.result)), {}
        for name, text in reversed(self.lines.items()):
            if name in used:
                lines[name] = text
                used.update(re.findall(r"\w+", text))
        inputs, parts = ({name: one for name, one in all_of.items() if name in used} for all_of in (self.inputs, self.parts))
        return dataclasses.replace(self, lines=dict(reversed(lines.items())), inputs=inputs, parts=parts)

    def size(self):
        return len(self.lines), sum(map(len, self.lines.values())) + len(self.result)

    def example(self, samples):
        return {name: torch.randint(IDS, (samples, *sizes)) if name.startswith("ids") else torch.randn(samples, *sizes)
                for name, sizes in self.inputs.items()}

    def model(self):
        """A module whose attribute `noise` moves each value, which changes gradients at kinks and ties alone."""
        class Drawn(nn.Module):
            noise = 0.0

            def moved(self, x):
                return x + self.noise * torch.randn_like(x) if self.noise and x.is_floating_point() else x
        lines = [f"    {name} = m.moved({text})" for name, text in self.lines.items()]
        names = dict(NAMES)
        exec(compile("\n".join([f"def forward(m, {', '.join(self.inputs)}):", *lines, f"    return {self.result}"]),
                     f"<program {self.seed}>", "exec"), names)
        Drawn.forward = names["forward"]
        model = Drawn()
        torch.manual_seed(self.seed)
        for name, text in self.parts.items():
            setattr(model, name, eval(text, NAMES))
        return model


class Draft:
    """A program that grows, with the values of its lines for an example."""
    def __init__(self, seed):
        self.random = random.Random(seed)
        self.program = Program(seed, {}, {}, {}, "")
        self.values = {}  # name -> tensor
        self.of_samples = set()
        self.model, self.parts = nn.Module(), 0
        torch.manual_seed(seed)

    def chance(self, share):
        return self.random.random() < share

    def part(self, text):
        name, self.parts = f"p{self.parts}", self.parts + 1
        setattr(self.model, name, eval(text, NAMES))
        self.program.parts[name] = text
        return f"m.{name}"

    def module(self, text):
        """A module, at times one that the program has already."""
        old = [name for name, other in self.program.parts.items() if other == text and "BatchNorm" not in text]
        return f"m.{old[0]}" if old and self.chance(0.5) else self.part(text)

    def parameter(self, *sizes):
        text = f"torch.randn({', '.join(map(str, sizes))})" if sizes else "torch.randn(())"
        kinds = ["nn.Parameter({})", "nn.Buffer({})", "nn.Parameter({}, requires_grad=False)"]
        return self.module(self.random.choices(kinds, [8, 1, 1])[0].format(text))

    def add_input(self, name, *sizes):
        self.program.inputs[name] = sizes
        self.values.update(self.program.example(SAMPLES))
        self.of_samples.add(name)

    def add(self, text):
        """Adds a line if its value is usable."""
        try:
            with torch.no_grad():
                value = eval(text, NAMES, {"m": self.model, **self.values})
        except Exception:  # of many kinds, by the operation
            return False
        depends = not self.of_samples.isdisjoint(re.findall(r"\w+", text))
        if not isinstance(value, torch.Tensor) or depends and value.shape[:1] != (SAMPLES,) or value.is_complex():
            return False
        if not 0 < value.numel() <= MAX_COUNT * (SAMPLES if depends else 1) or value.dim() > 5:
            return False
        if SAMPLES in value.shape[depends:] or not value.isfinite().all() or value.abs().max() > MAX_SIZE:
            return False
        name = f"v{len(self.program.lines)}"
        self.program.lines[name], self.values[name] = text, value
        self.of_samples |= {name} if depends else set()
        return True

    # What the formulas below draw.

    def names(self, fits=lambda value: True, ids=False):
        return [name for name, value in self.values.items() if value.is_floating_point() != ids and fits(value)]

    def value(self, least=0, most=5, samples=None):
        """The name of a value with so many dimensions, rather a new one; a parameter if there is none."""
        found = [name for name in self.names(lambda value: least <= value.dim() <= most)
                 if samples is None or (name in self.of_samples) == samples]
        if not found or samples is not True and self.chance(0.06):
            if samples is True:
                raise LookupError
            rank = self.random.randint(max(least, 1), min(most, 3))
            return self.parameter(*(self.random.randint(1, 5) for _ in range(rank)))
        return self.random.choices(found, [place + 1 for place in range(len(found))])[0]

    def shape(self, name):
        return list((self.values[name] if name in self.values else getattr(self.model, name[2:])).shape)

    def dims(self, name):
        """The dimensions that do not count samples."""
        rank = len(self.shape(name))
        found = list(range(name in self.of_samples, rank))
        if not found:
            raise LookupError
        return found

    def dim(self, name):
        found = self.random.choice(self.dims(name))
        return found - len(self.shape(name)) if self.chance(0.4) else found

    def some_dims(self, name):
        dims = self.dims(name)
        return sorted(self.random.sample(dims, self.random.randint(1, len(dims))))

    def like(self, name):
        """A value that is broadcast with this one, or to which it is: itself, another, a mean of one, a parameter."""
        shape, first = self.shape(name), name in self.of_samples
        kind = self.random.random()
        if kind < 0.2:
            return name
        fitting = [other for other in self.names() if other != name and broadcast(shape, self.shape(other))]
        if kind < 0.65 and fitting:
            return self.random.choice(fitting)
        if kind < 0.8 and len(shape) > first:
            return f"{name}.{self.random.choice(['mean', 'sum', 'amax', 'amin'])}({self.some_dims(name)}, keepdim=True)"
        own = [1 if self.chance(0.3) else size for size in shape[first:]]
        return self.parameter(*own[self.random.randint(0, len(own)):] if self.chance(0.3) else own)


def broadcast(one, other):
    return all(a == b or 1 in (a, b) for a, b in zip(one[::-1], other[::-1]))


def _formulas(text):
    return [one.strip() for one in text.split(";")]


BY_VALUE = _formulas("""
    {x}.relu() ; {x}.tanh() ; {x}.sigmoid() ; F.silu({x}) ; F.gelu({x}) ; F.gelu({x}, approximate='tanh') ;
    F.elu({x}, 0.7) ; F.selu({x}) ; F.celu({x}, 0.7) ; F.softplus({x}, 2) ; F.mish({x}) ; F.hardswish({x}) ;
    F.hardsigmoid({x}) ; F.relu6({x} * 4) ; F.hardtanh({x}, -0.5, 0.8) ; F.leaky_relu({x}, 0.2) ; {x}.abs() ;
    {x}.sin() ; {x}.cos() ; {x}.exp() ; {x}.erf() ; {x}.sign() ; ({x}.abs() + 0.3).log() ; ({x} * {x} + 0.1).sqrt() ;
    ({x}.square() + 0.5).rsqrt() ; 1 / (1.5 + {x}.sin()) ; {x} ** 2 ; {x} ** 3 ; ({x}.abs() + 0.2) ** -1.5 ;
    {x}.floor() ; {x}.frac() ; {x}.expm1() ; torch.log1p({x}.abs()) ; F.softsign({x}) ; F.tanhshrink({x}) ;
    F.hardshrink({x}, 0.4) ; F.softshrink({x}, 0.4) ; F.logsigmoid({x}) ; {x}.clamp(-0.5, 0.7) ; {x}.clamp(min=-0.2) ;
    -{x} ; 2 - {x} ; {x} * 0.7 ; {x} / 3 ; {x} + 1 ; {x} % 0.7 ; torch.fmod({x}, 0.7) ; F.threshold({x}, 0.1, -0.3) ;
    {x}.round() ; 2 ** {x} ; {x} ** 0 ; {x}.erfc() ; {x}.log2() ; torch.where({x} > 0.2, {x}, -0.5) ;
    {x}.masked_fill({x} < -0.1, 0.3) ; ({x} > 0).float() ; {x}.trunc() ; {x}.nan_to_num() ; {x}.clone() ; {x} - 1.5 ;
    torch.heaviside({x}, {x})""")
BY_TWO = _formulas("""
    {x} + {y} ; {x} + {y} ; {x} * {y} ; {x} * {y} ; {x} - {y} ; {x} / ({y} * {y} + 0.6) ; torch.maximum({x}, {y}) ;
    torch.minimum({x}, {y}) ; torch.where({x} > {y}, {x}, {y}) ; torch.where({y} > 0, {x}, {y}) ;
    torch.lerp({x}, {y}, 0.3) ; torch.addcmul({x}, {y}, {y}, value=0.5) ; torch.add({x}, {y}, alpha=0.7) ;
    torch.rsub({x}, {y}) ; {x} * ({y} > 0) ; torch.where(({x} > 0) & ({y} < 0.5), {x}, 0.1) ;
    torch.logaddexp({x}, {y}) ; {x}.sigmoid() * {y} ; F.silu({x}) * {y} ; ({x} - {y}).abs() ; ({x} - {y}) ** 2 ;
    {x} + {y}.tanh() * {x} ; ({x}.abs() + 0.3) ** {y} ; ({x} >= {y}).float() * {x} ; {x}.clamp(max={y}) ;
    {x}.clamp({y} - 1, {y}) ; torch.addcdiv({x}, {y}, {y} * {y} + 1)""")
OVER_DIMS = _formulas("""
    {x}.sum({d}{k}) ; {x}.mean({d}{k}) ; {x}.amax({d}{k}) ; {x}.amin({d}{k}) ; {x}.var({d}{k}) ; {x}.std({d}{k}) ;
    {x}.logsumexp({d}{k}) ; torch.linalg.vector_norm({x}, dim={d}{k}) ; {x}.abs().sum({d}{k}) ; {x}.flip({d}) ;
    torch.roll({x}, {r}, {d}) ; {x}.std({d}, correction=0{k}) ; ({x} > 0).any({d}{k}).float()""")
OVER_DIM = _formulas("""
    {x}.softmax({d}) ; {x}.log_softmax({d}) ; {x}.cumsum({d}) ; {x}.max({d}{k}).values ; {x}.min({d}{k})[0] ;
    {x}.prod({d}{k}) ; {x}.median({d}{k}).values ; F.normalize({x}, dim={d}) ; {x}.flip({d}) ;
    torch.roll({x}, {i}, {d}) ; {x}.sort({d}).values ; {x}.sort({d}, descending=True)[0] ; {x}.topk(2, {d}).values ;
    {x}.argmax({d}{k}) * 0.3 ; {x}.select({d}, {i}) ; {x}.cumprod({d}) ; {x}.narrow({d}, 1, 2) ; {x}.chunk(2, {d})[1] ;
    {x}.split(2, {d})[0] ; {x}.unbind({d})[-1] ; torch.cat([{x}, {x}], {d}) ; torch.stack([{x}, {x} * 2], {d}) ;
    {x}.repeat_interleave(2, {d}) ; {x}.unfold({d}, 2, 1) ; {x}.index_select({d}, torch.tensor([1, 0, 1])) ;
    F.glu({x}, {d}) ; {x}.diff(dim={d}) ; torch.cat([{x}.chunk(2, {d})[1], {x}.chunk(2, {d})[0]], {d}) ;
    {x}.unsqueeze({d}) ; {x}.squeeze({d}) ; {x}.transpose({d}, -1) ; {x}.movedim({d}, -1) ;
    torch.cat([-{x}.narrow({d}, 1, 1), {x}], {d}) ; {x}.take_along_dim({x}.argsort({d}), {d}) ;
    {x} - {x}.mean({d}, keepdim=True) ; F.softmin({x}, {d}) ; {x}.gather({d}, {x}.argsort({d})) ; sum({x}.unbind({d})) ;
    sum({x}.split(1, {d})) ; {x}.expand_as({x}).sum({d}{k}) ; {x}.count_nonzero({d}) + {x}.sum({d})""")
LAYOUT = _formulas("""
    {x}[..., None] ; {x}[..., ::2] ; {x}[..., 1:] ; {x}[..., :-1] ; {x}[..., -1] ; {x}[..., [0, -1, 0]] ;
    F.pad({x}, (1, 0)) ; F.pad({x}, (1, 2), value=0.3) ; F.pad({x}, (-1, 1)) ; {x}.mT ; {x}.tril() ; {x}.triu(1) ;
    {x}.diagonal(dim1=-2, dim2=-1) ; {x}.flatten({f}) ; {x}.expand(*{x}.shape[:-1], 3) ;
    {x}[..., None].expand(*{x}.shape, 2) ; {x}.reshape(*{x}.shape[:-1], -1, 2) ; {x}.reshape(*{x}.shape[:-1], 2, -1) ;
    {x}.unflatten(-1, (1, -1)) ; {x}[..., None, :] * {x}[..., None] ; {x}[..., None, :] - {x}[..., None] ;
    {x} @ {x}.mT ; {x}.mT @ {x} ; {x}.mT.contiguous().mT ; torch.rot90({x}, 1, (-2, -1)) ; {x}[..., 0] * {x}[..., -1] ;
    {x}[..., 0, :] + {x}[..., 1, :] ; torch.einsum('...i,...i->...', {x}, {x}) ;
    torch.einsum('...i,...j->...ij', {x}, {x}) ; torch.einsum('...ij,...ik->...jk', {x}, {x}) ;
    {x}.softmax(-1) @ {x}.mT ; torch.cdist({x}, {x} + 0.5) ; F.cosine_similarity({x}, {x}.flip(-1), dim=-1) ;
    assigned({x}, (..., 0), {x}[..., -1] * 2) ; assigned({x}, (..., slice(1, None)), 0.3) ;
    assigned({x}, (..., slice(None, None, 2)), -{x}[..., ::2]) ;
    times({x}[..., :2], {x}[..., -2:]) ;
    torch.einsum('...i->...', {x}) ; torch.outer({x}, {x}) ; torch.kron({x}, {x}) ; {x}.swapaxes(-1, -2).flip(-1) ;
    F.pixel_shuffle({x}, 2) ; F.one_hot({x}.argmax(-1), {w}).float() * {x} ;
    {x}.scatter(-1, {x}.argmax(-1, keepdim=True), 0.5) ; {x}.new_ones({x}.shape) * {x}[..., :1] ;
    torch.block_diag({x}, {x}) ; {x}.triu() + {x}.tril(-1) * 2 ; {x}.bool().float() + {x} ;
    torch.zeros_like({x}) + {x}.mean(-1, keepdim=True)""")
OF_IDS = _formulas("""
    {i}.float() ; F.one_hot({i}, 5).float() ; m_embedding({i}) ; m_embedding({i}) ; ({i} > 2).float() ;
    m_embedding(({i} * 3 + 1) % 5) ; ({i} == 1).float() - ({i} != 3).float() ; {i} * 0.3 ;
    F.embedding_bag({i}, m_table) ; m_table[{i}] ; m_table.index_select(0, {i}[:, 0]) ;
    m_embedding({i}).masked_fill(({i} == 0)[..., None], 0.2) ; m_embedding({i}.flip(-1)) ;
    m_embedding({i}) @ m_table.t()""")
# {w}: the size of the last dimension, {c}: of the second, {o}: any.
CALLS = _formulas("""
    nn.Linear({w}, {o}) ; nn.Linear({w}, {w}) ; nn.Linear({w}, {o}, bias=False) ; nn.LayerNorm({w}) ;
    nn.LayerNorm({w}, elementwise_affine=False) ; nn.RMSNorm({w}) ; nn.LayerNorm([{c}, {w}]) ; nn.GroupNorm(1, {c}) ;
    nn.GroupNorm({c}, {c}) ; nn.GroupNorm(2, {c}, affine=False) ; nn.BatchNorm1d({c}) ; nn.BatchNorm2d({c}) ;
    nn.PReLU() ; nn.PReLU({c}) ; nn.Conv1d({c}, {o}, 1) ; nn.Conv1d({c}, {o}, 3, padding=1) ;
    nn.Conv1d({c}, {o}, 2, stride=2) ; nn.Conv1d({c}, {c}, 3, padding=2, dilation=2, groups={c}) ;
    nn.Conv2d({c}, {o}, 1) ; nn.Conv2d({c}, {o}, 3, padding=1) ;
    nn.Conv2d({c}, {c}, (1, 3), padding=(0, 1), groups={c}) ; nn.Conv2d({c}, {o}, 2, stride=2, bias=False) ;
    nn.ConvTranspose1d({c}, {o}, 2, stride=2) ; nn.ConvTranspose2d({c}, {o}, 2, stride=2) ;
    nn.ConvTranspose2d({c}, {o}, 3, padding=1) ; nn.MaxPool1d(2) ; nn.MaxPool1d(3, 1, 1) ; nn.AvgPool1d(2) ;
    nn.AvgPool1d(3, 1, 1) ; nn.MaxPool2d(2) ; nn.MaxPool2d(3, 2, 1) ; nn.AvgPool2d(2) ;
    nn.AvgPool2d(3, 1, 1, count_include_pad=False) ; nn.AvgPool2d(3, 2, 1, ceil_mode=True) ; nn.AdaptiveAvgPool1d(2) ;
    nn.AdaptiveAvgPool2d((1, 2)) ; nn.AdaptiveAvgPool2d(3) ; nn.AdaptiveMaxPool2d(2) ; nn.AdaptiveMaxPool1d(3) ;
    nn.Upsample(scale_factor=2) ; nn.Upsample(scale_factor=2, mode='bilinear') ; nn.Upsample(size=5, mode='linear') ;
    nn.InstanceNorm1d({c}) ; nn.InstanceNorm2d({c}, affine=True) ; nn.LPPool1d(2, 2) ; nn.Bilinear({w}, {w}, {o}) ;
    nn.LocalResponseNorm(2) ; nn.ReflectionPad1d(1) ; nn.ReplicationPad2d(1) ; nn.Softmax2d() ; nn.CircularPad1d(1) ;
    nn.ZeroPad2d(1) ; nn.Unfold(2) ; nn.ChannelShuffle(2) ; nn.Flatten(1, 2) ; nn.Dropout(0.0) ; nn.Identity()""")
THREE = _formulas("""
    nn.TransformerEncoderLayer({w}, 1, 6, 0.0, batch_first=True) ; nn.GRU({w}, {o}, batch_first=True) ;
    nn.LSTM({w}, {o}, batch_first=True) ; nn.RNN({w}, {o}, batch_first=True, bidirectional=True)""")
ATTENTION = _formulas("""
    F.scaled_dot_product_attention({x}, {x}, {x}) ; F.scaled_dot_product_attention({x}, {y}, {y}, is_causal=True) ;
    F.scaled_dot_product_attention({y}, {x}, {x} * {y}, attn_mask={m}) ;
    F.scaled_dot_product_attention({x}, {y}, {x}, scale=0.5) ;
    F.scaled_dot_product_attention({x}, {x}, {y}, attn_mask={m} > -0.5) ;
    F.scaled_dot_product_attention({x}, {x} * 2, {x}.cumsum(-2))""")
PRODUCTS = _formulas("""
    {x} @ {p} ; {q} @ {x} ; F.linear({x}, {p}.mT) ; torch.einsum('...i,ij->...j', {x}, {p}) ;
    torch.einsum('...i,ij->j...', {x}, {p}).movedim(0, -1) ; ({p}.mT @ {x}.mT).mT ; F.linear({x}, {p}.mT, {b}) ;
    {x} @ {p} @ {p}.mT ; {x} @ ({p} * 2).tanh() ; {x} @ {p} + {b} ; {x} * {p}.sum(1)""")


JOINED = _formulas("""
    torch.cat([{n}], {d}) ; torch.stack([{n}], {d}) ; sum([{n}]) ; torch.stack([{n}]).sum(0) ; torch.stack([{n}], {d}).amax({d})""")
SAMPLES_SECOND = _formulas("""
    ({x}.transpose(0, 1) * {y}).transpose(0, 1) ; {x}.transpose(0, 1).softmax(-1).sum(0) ;
    {x}.transpose(0, 1).contiguous().flip(0).transpose(0, 1) ; ({x}.transpose(0, 1) @ {p}).transpose(0, 1)""")
SAME_FOR_SAMPLES = _formulas("""
    {p}.expand({x}.shape) ; {x}.new_zeros({x}.shape) + {p} ; {x}.new_ones({x}.shape) * 0.5 ; torch.full_like({x}, 0.3) * {p} ;
    {x}.new_zeros({x}.shape[0], 1) + {p}""")


def _call(draft):
    x = draft.value(2, 5, samples=True)
    shape = draft.shape(x)
    sizes = {"w": shape[-1], "c": shape[1], "o": draft.random.randint(1, 5)}
    if len(shape) == 3 and draft.chance(0.1):
        text = draft.random.choice(THREE).format(**sizes)
        return f"{draft.module(text)}({x}){'' if 'Transformer' in text else '[0]'}"
    text = draft.random.choice(CALLS).format(**sizes)
    return f"{draft.module(text)}({x}, {x})" if "Bilinear(" in text else f"{draft.module(text)}({x})"


def _attention(draft):
    x = draft.value(3, 4, samples=True)
    y = draft.random.choice([name for name in draft.names() if draft.shape(name) == draft.shape(x)])
    rows = draft.shape(x)[-2]
    return draft.random.choice(ATTENTION).format(x=x, y=y, m=draft.parameter(rows, rows))


def _product(draft):
    x = draft.value(2, 4, samples=True)
    shape, width = draft.shape(x), draft.random.randint(1, 5)
    text = draft.random.choice(PRODUCTS)
    given = {"p": (shape[-1], width), "q": (width, shape[-2]), "b": (width,)}
    made = {name: draft.parameter(*sizes) if f"{{{name}}}" in text else "" for name, sizes in given.items()}
    return text.format(x=x, **made)


def _of_ids(draft):
    ids = draft.random.choice(draft.names(ids=True))
    text, width = draft.random.choice(OF_IDS).format(i=ids), draft.random.randint(1, 5)
    text = text.replace("m_table", draft.parameter(IDS, width)) if "m_table" in text else text
    return text.replace("m_embedding", draft.module(f"nn.Embedding({IDS}, {width})")) if "m_embedding" in text else text


def _keepdim(draft):
    return ", keepdim=True" if draft.chance(0.5) else ""


def _of_one(texts):
    def made(draft):
        x = draft.value(1)
        return draft.random.choice(texts).format(
            x=x, d=draft.dim(x), i=draft.random.choice([0, 1, -1, 2]), k=_keepdim(draft), f=int(x in draft.of_samples),
            w=draft.shape(x)[-1])
    return made


def _over_dims(draft):
    x = draft.value(2)
    dims = draft.some_dims(x)
    by = [draft.random.randint(-2, 2) for _ in dims]
    return draft.random.choice(OVER_DIMS).format(x=x, d=dims, r=by, k=_keepdim(draft))


def _of_two(draft):
    x = draft.value()
    given = [x, draft.like(x)]
    draft.random.shuffle(given)
    text = draft.random.choice(BY_TWO)
    x, y = (f"({one})" if " " in one and "(" not in one else one for one in given)
    return text.format(x=x, y=y)


def _with_itself(draft):
    """A sum of a value and of its rearrangement: both have one gradient, which is read in two orders."""
    x, one, two = draft.value(1), "{x}.flip({d})", "torch.roll({x}, {r}, {d})"
    text = draft.random.choice([f"{{x}} + {one}", f"{two} + {{x}}", f"{one} + {two} + {{x}}", f"{one} - {{x}}", f"{{x}} * {two}"])
    return text.format(x=x, d=draft.dim(x), r=draft.random.choice([1, 2]))


def _joined(draft):
    """Several values of one shape, one of them perhaps twice."""
    x = draft.value(2)
    same = [name for name in draft.names(lambda value: list(value.shape) == draft.shape(x))
            if (name in draft.of_samples) == (x in draft.of_samples)]
    names = ", ".join(draft.random.choices(same, k=draft.random.randint(2, 3)))
    return draft.random.choice(JOINED).format(n=names, d=draft.dim(x))


def _samples_second(draft):
    """Samples in the second dimension, and back."""
    x = draft.value(3, 4, samples=True)
    width = draft.shape(x)[-1]
    return draft.random.choice(SAMPLES_SECOND).format(x=x, y=draft.parameter(width), p=draft.parameter(width, 3))


def _same_for_samples(draft):
    """A value that is the same for all samples, though it counts them."""
    x = draft.value(2, 4, samples=True)
    return draft.random.choice(SAME_FOR_SAMPLES).format(x=x, p=draft.parameter(*draft.shape(x)[1:]))


FORMULAS = [(_of_one(BY_VALUE), 5), (_of_two, 6), (_over_dims, 2), (_of_one(OVER_DIM), 5), (_of_one(LAYOUT), 4),
            (_of_ids, 1.5), (_call, 5), (_attention, 0.7), (_product, 2), (_joined, 1.5), (_with_itself, 1.5), (_samples_second, 0.5), (_same_for_samples, 0.3)]


def draw(seed):
    """A program of 3 to 20 lines."""
    draft = Draft(seed)
    rank = draft.random.choices([1, 2, 3], [3, 4, 3])[0]
    sizes = [draft.random.choice([1, 2, 3, 4, 5, 6]) for _ in range(rank)]
    for name in draft.random.choices([("x",), ("ids",), ("x", "y"), ("x", "ids"), ("x", "y", "z")], [6, 1, 2, 2, 1])[0]:
        own = sizes if draft.chance(0.6) and name != "ids" else [draft.random.choice([1, 3, 4])]
        draft.add_input(name, *(own if own is sizes or name == "ids" else own * draft.random.randint(1, 2)))
    count = draft.random.randint(3, 20)
    makers, weights = zip(*FORMULAS)
    for _ in range(20 * count):
        before = dict(draft.program.parts)
        try:
            added = draft.add(draft.random.choices(makers, weights)[0](draft))
        except Exception:  # of many kinds: nothing fits, or a module has no such sizes
            added = False
        if not added:
            draft.program.parts = before
        if len(draft.program.lines) == count:
            break
    draft.program.result = _result(draft)
    return draft.program.without_unused()


def _result(draft):
    """Of the values that no line uses, most of the time all."""
    used = set(re.findall(r"\w+", " ".join(draft.program.lines.values())))
    last = [name for name in draft.program.lines if name not in used and name in draft.of_samples]
    last = last or list(draft.program.inputs)
    last = [name for name in last if draft.values[name].is_floating_point()] or [f"{name}.float()" for name in last]
    shape = draft.values[last[-1]].shape if last[-1] in draft.values else ()
    parts = draft.program.parts.values()
    trained = any(text.startswith("nn.") and "Buffer" not in text and "False" not in text for text in parts)
    rows = len(shape) == 3 and 1 < shape[-1] < 7 and len(draft.program.inputs) == 1
    if trained and draft.chance(0.25) and (len(shape) in (1, 2) or rows):
        return last[-1]
    if draft.chance(0.2):
        last = last[-1:]
    rows = [f"{name}.reshape({name.split('.')[0]}.shape[0], -1)" for name in last]
    width = sum(draft.values[name.split(".")[0]][0].numel() for name in last)
    if trained and draft.chance(0.3) and width > 1:
        return f"torch.cat([{', '.join(rows)}], 1)"
    return f"{draft.part(f'nn.Linear({width}, {draft.random.randint(2, 4)})')}(torch.cat([{', '.join(rows)}], 1))"
