#!/usr/bin/env python3
"""Writes tests/golden/models/: what Hugging Face's GPT-2 and BERT make of the job texts there.

The committed files are from transformers 4.30 on Debian's python3-torch 1.13:
  python3 -m venv --system-site-packages V && V/bin/pip install transformers==4.30.2 'numpy<1.25'
  V/bin/python tests/golden/make_models.py

Every model trains in double precision, every update is one batch, and the loss of an update is the
sum over its labels that count, each times its weight, divided by the sum of these weights. Dropout is
off. With precision BF16 linear functions and attention round what they multiply (Bf16Linear,
Bf16Attention).

NAME.npy files     the data, made by a formula
gpt_mini.init      safetensors: the initial weights, with the names that save_pretrained gives them;
bert_mini.init     of all jobs of a model
masked_mini.init
NAME.trained       safetensors: the weights after the last update
NAME.first         safetensors: "logits" of the first FIRST samples with the initial weights, and the
                   gradient of every parameter for them, as "gradient.NAME"
bert_mini.embeddings  safetensors: of every training sample, with the initial weights: the mean of the last
                   hidden states of its text, of length 1 (as sentence-transformers pools and normalises)
NAME.txt           one line a record:
  torch VERSION transformers VERSION
  worlds 1x1 2x3           nodes x ranks a node that must give what follows
  step EPOCH STEP SAMPLES SAMPLES_TOTAL LR LOSS GRAD_NORM     before clipping
  eval EPOCH STEP SAMPLES LOSS [ACCURACY]
  error loss VALUE         the largest relative error of PyTorch's own single precision over the updates
  error grad_norm VALUE
  error TENSOR VALUE       |f32 - f64| / sqrt(elements) of PyTorch's own single precision, for the
                           tensors of NAME.first and, as "trained.NAME", of NAME.trained
"""
import json
import math
import os
import struct

import numpy
import torch
import transformers
from gaccd_random import stream, stream_key, stream_values
from google.protobuf import text_format
from make_mlp import Bf16Linear, rounded
from make_train import group_of, job_message, learning_rate, updates_of

FOLDER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "models")
FIRST = 9
SAMPLES, HELD_OUT, LENGTH, VOCABULARY, CLASSES = 31, 7, 10, 23, 3
TEXT = 20
JOBS = {  # job: (model, worlds)
    "gpt_mini": ("gpt", ["1x1", "1x2", "3x1", "1x5", "1x7"]),
    "gpt_mini_few": ("gpt", ["1x1", "1x5", "7x1"]),  # a target below the number of ranks
    "bert_mini": ("bert", ["1x1", "2x1", "1x3", "5x1", "1x7"]),
    # Labels that are missing, token weights, label smoothing, groups.
    "gpt_weighted": ("gpt", ["1x1", "1x2", "3x1", "1x5", "1x7"]),
    "gpt_weighted_few": ("gpt", ["1x1", "1x5", "7x1"]),
    "bert_weighted": ("bert", ["1x1", "2x1", "1x3", "5x1", "1x7"]),  # a weight for each sample
    "gpt_bf16": ("gpt", ["1x1", "1x2", "3x1", "1x5", "1x7"]),
    "bert_bf16": ("bert", ["1x1", "2x1", "1x3", "5x1", "1x7"]),
    # Tokens are masked; texts of up to TEXT tokens, more than fit the first length that gaccd cuts to.
    "masked_mini": ("masked", ["1x1", "2x1", "1x3", "5x1", "1x7"]),
}


def write_data():
    """Tokens of a noisy affine rule; lengths of 1 to LENGTH; labels that the tokens decide. Of
    gpt_some_labels a sample has any number, none among them; a weight in four is 0."""
    count = SAMPLES + HELD_OUT
    noise = (stream(80, 0, count * (LENGTH + 1)) % numpy.uint64(3)).astype(numpy.int64)
    noise = noise.reshape(count, -1)
    text = numpy.zeros((count, LENGTH + 1), numpy.int64)
    text[:, 0] = (stream(80, 1, count) % numpy.uint64(VOCABULARY)).astype(numpy.int64)
    for t in range(LENGTH):
        text[:, t + 1] = (3 * text[:, t] + noise[:, t] + 1) % VOCABULARY
    lengths = 1 + (stream(80, 2, count) % numpy.uint64(LENGTH)).astype(numpy.int64)
    inside = numpy.arange(LENGTH) < lengths[:, None]
    split = 1 + (stream(80, 3, count) % numpy.uint64(LENGTH)).astype(numpy.int64)
    segments = numpy.where(inside & (numpy.arange(LENGTH) >= split[:, None]), 1, 0)
    words = numpy.where(inside, text[:, :LENGTH] % (VOCABULARY - 1) + 1, 0)  # 0 is only padding
    labels = (words.sum(1) // 7) % CLASSES
    some = numpy.where(inside & (noise[:, :LENGTH] > 0), text[:, 1:], -1)
    weights = (stream(80, 4, count * (LENGTH + 1)) % numpy.uint64(8)).reshape(count, -1)
    weights = numpy.maximum(weights.astype(numpy.float64) - 1, 0) / 4
    data = {"gpt_some_labels": some, "gpt_weights": weights[:, :LENGTH],
            "bert_weights": weights[:, LENGTH], "gpt_tokens": text[:, :-1], "gpt_labels": text[:, 1:], "bert_tokens": words,
            "bert_lengths": lengths, "bert_segments": segments, "bert_labels": labels,
            "masked_tokens": numpy.tile(text[:, :LENGTH], 2) % (VOCABULARY - 2) + 2,
            "masked_lengths": 3 + (stream(80, 5, count) % numpy.uint64(TEXT - 2)).astype(numpy.int64)}
    for name, values in data.items():
        kind = "<f4" if values.dtype == numpy.float64 else "<i4"
        numpy.save(os.path.join(FOLDER, name + ".npy"), values[:SAMPLES].astype(kind))
        numpy.save(os.path.join(FOLDER, "eval_" + name + ".npy"), values[SAMPLES:].astype(kind))
    return {name: torch.from_numpy(values) for name, values in data.items()}


class Bf16Attention(torch.autograd.Function):
    """softmax(q k^T / sqrt(width) + mask) v for [..., rows, width]: products of what is rounded to
    bf16, the softmax before it is divided by its sums, all else in the type of q."""

    @staticmethod
    def forward(context, q, k, v, mask):
        scores = rounded(q) @ rounded(k).mT / math.sqrt(q.shape[-1]) + mask
        top = scores.amax(-1, keepdim=True)
        p = torch.exp(scores - top)
        total = p.sum(-1, keepdim=True)
        y = rounded(p) @ rounded(v) / total
        context.save_for_backward(rounded(q), rounded(k), rounded(v), scores - top - total.log(), y)
        return y

    @staticmethod
    def backward(context, dy):
        q, k, v, logs, y = context.saved_tensors
        p = torch.exp(logs)
        dp = rounded(dy) @ v.mT
        ds = rounded(p * (dp - (dy * y).sum(-1, keepdim=True)) / math.sqrt(q.shape[-1]))
        return ds @ k, ds.mT @ q, rounded(p).mT @ rounded(dy), None


def gpt_attention(q, k, v, *_, **__):
    mask = torch.full(q.shape[-2:-1] * 2, -torch.inf, dtype=q.dtype).triu(1)
    return Bf16Attention.apply(q, k, v, mask), None


def bert_attention(module, x, mask):
    heads = [module.transpose_for_scores(part(x)) for part in (module.query, module.key, module.value)]
    return (Bf16Attention.apply(*heads, mask).transpose(1, 2).flatten(2),)


def round_products(network):
    for module in network.modules():
        if isinstance(module, transformers.models.gpt2.modeling_gpt2.GPT2Attention):
            module._attn = gpt_attention
        elif isinstance(module, transformers.models.bert.modeling_bert.BertSelfAttention):
            module.forward = lambda x, mask, *_, m=module, **__: bert_attention(m, x, mask)
        if isinstance(module, torch.nn.Linear):
            module.forward = lambda x, m=module: Bf16Linear.apply(x, m.weight, m.bias)
        elif isinstance(module, transformers.pytorch_utils.Conv1D):
            module.forward = lambda x, m=module: Bf16Linear.apply(x, m.weight.T, m.bias)


def make_network(model, bf16):
    torch.manual_seed(5)
    if model == "gpt":
        network = transformers.GPT2LMHeadModel(transformers.GPT2Config(
            vocab_size=VOCABULARY, n_positions=LENGTH, n_embd=12, n_layer=2, n_head=3,
            resid_pdrop=0, embd_pdrop=0, attn_pdrop=0))
    else:
        kind = {"bert": transformers.BertForSequenceClassification,
                "masked": transformers.BertForMaskedLM}[model]
        network = kind(transformers.BertConfig(
            vocab_size=VOCABULARY, hidden_size=12, num_hidden_layers=2, num_attention_heads=3,
            intermediate_size=20, max_position_embeddings=TEXT if model == "masked" else LENGTH,
            num_labels=CLASSES, hidden_dropout_prob=0, attention_probs_dropout_prob=0))
    if model == "masked":  # which may put any token in the place of one: padding learns as others do
        network.bert.embeddings.word_embeddings.padding_idx = None
    with torch.no_grad():  # as f32 holds them; larger, so that no gradient is almost zero
        for name, parameter in network.named_parameters():
            if parameter.dim() == 2:
                parameter *= 8
            if name.endswith("bias"):
                parameter += 0.1 * torch.randn_like(parameter)
            parameter.copy_(parameter.float().double())
    if bf16:
        round_products(network)
    return network


def mask_tokens(job, data, samples, update):
    """Tokens and labels as daemon/data/masked_tokens.h masks them; update None: of an evaluation."""
    source = job.data.train.tokens
    draw = 0 if update is None else stream_key(job.seed, update)
    first = SAMPLES if update is None else 0
    tokens, labels = data["masked_tokens"][samples].clone(), torch.full((len(samples), TEXT), -100)
    for row, sample in enumerate(samples):
        key = stream_key(stream_key(draw, 1 << 32), sample - first)
        bits = stream_values(key, TEXT)
        anything = stream_values(key, TEXT, 1 << 32) % numpy.uint64(VOCABULARY)
        draws = {t: int(bits[t]) & 0xffffffff for t in range(data["masked_lengths"][sample])
                 if int(tokens[row, t]) not in source.masked.special_token}
        end = max(int(source.masked.probability * 2**32), min(draws.values(), default=0) + 1)
        for t in (t for t in draws if draws[t] < end):
            token, kind = int(tokens[row, t]), int(bits[t]) >> 32
            labels[row, t] = token
            if kind < int(0.8 * 2**32):
                tokens[row, t] = source.masked.mask_token
            elif kind < int(0.9 * 2**32):
                tokens[row, t] = int(anything[t])
    return tokens, labels


def logits_of(model, job, network, data, samples, update):
    if model == "gpt":
        return network(data["gpt_tokens"][samples]).logits
    if model == "masked":
        mask = torch.arange(TEXT) < data["masked_lengths"][samples][:, None]
        return network(mask_tokens(job, data, samples, update)[0],
                       attention_mask=mask.to(next(network.parameters()).dtype)).logits
    mask = torch.arange(LENGTH) < data["bert_lengths"][samples][:, None]
    return network(data["bert_tokens"][samples], attention_mask=mask.to(next(network.parameters()).dtype),
                   token_type_ids=data["bert_segments"][samples]).logits


def embeddings_of(network, data):
    mask = (torch.arange(LENGTH) < data["bert_lengths"][:SAMPLES, None]).to(torch.get_default_dtype())
    states = network.bert(data["bert_tokens"][:SAMPLES], attention_mask=mask,
                          token_type_ids=data["bert_segments"][:SAMPLES]).last_hidden_state
    mean = (states * mask[..., None]).sum(1) / mask.sum(1, keepdim=True)
    return torch.nn.functional.normalize(mean)


def labels_and_weights(job, data, samples, update):
    """As lists; what does not count has weight 0 and any label."""
    source = job.data.train.tokens
    if source.HasField("masked"):
        labels = mask_tokens(job, data, samples, update)[1].reshape(-1)
    else:
        labels = data[source.labels.removesuffix(".npy")][samples].reshape(-1)
    weights = torch.ones(len(labels))
    if source.weights:
        weights = data[source.weights.removesuffix(".npy")][samples].reshape(-1)
    counts = (labels != source.ignored_label).to(weights.dtype)
    return labels.clamp(min=0), weights * counts


def loss_and_logits(model, job, network, data, samples, smoothing, update=None):
    logits = logits_of(model, job, network, data, samples, update)
    labels, weights = labels_and_weights(job, data, samples, update)
    losses = torch.nn.functional.cross_entropy(logits.reshape(-1, logits.shape[-1]), labels,
                                               reduction="none", label_smoothing=smoothing)
    weights = weights.to(losses.dtype)
    return (weights * losses).sum() / weights.sum(), logits


def smoothing_of(job):
    return job.model.loss.softmax_cross_entropy.label_smoothing


def make_optimizer(spec, network):
    """Biases and the weights of layer norms do not decay, unless a group says so."""
    groups = [group_of(spec, name, p) for name, p in network.named_parameters()]
    for group in groups:
        if group["params"][0].dim() == 1:
            group.setdefault("weight_decay", 0)
    adamw = spec.adamw
    return torch.optim.AdamW(groups, lr=1, betas=(adamw.beta1, adamw.beta2), eps=adamw.epsilon,
                             weight_decay=adamw.weight_decay)


def tensors_of(network, prefix=""):
    return {prefix + name: p.detach() for name, p in network.named_parameters()}


def first_of(model, job, network, data):
    loss, logits = loss_and_logits(model, job, network, data, list(range(FIRST)), smoothing_of(job))
    loss.backward()
    tensors = {"gradient." + n: p.grad.clone() for n, p in network.named_parameters()}
    network.zero_grad()
    return {"logits": logits.detach(), **tensors}


def train(model, job, network, data, out=None):
    """The loss and the gradient norm of every update."""
    optimizer = make_optimizer(job.optimizer, network)
    figures = []
    updates = updates_of(job, SAMPLES, job.batch.target)
    total = 0
    for update, (epoch, samples) in enumerate(updates):
        optimizer.zero_grad()
        loss, _ = loss_and_logits(model, job, network, data, samples, smoothing_of(job), update)
        loss.backward()
        norm = torch.nn.utils.clip_grad_norm_(network.parameters(), job.clip_norm or math.inf)
        lr = learning_rate(job, update, len(updates), job.batch.target)
        for group in optimizer.param_groups:
            group["lr"] = lr * group["lr_factor"]
        optimizer.step()
        total += len(samples)
        figures.append((loss.item(), norm.item()))
        if out is None:
            continue
        out.write("step %d %d %d %d %.12g %.12g %.12g\n"
                  % (epoch, update + 1, len(samples), total, lr, loss.item(), norm.item()))
        if update + 1 == len(updates) or updates[update + 1][0] > epoch:
            held_out = list(range(SAMPLES, SAMPLES + HELD_OUT))
            with torch.no_grad():
                loss, logits = loss_and_logits(model, job, network, data, held_out, 0)
            labels, weights = labels_and_weights(job, data, held_out, None)
            answers = logits.argmax(-1).reshape(-1)
            right = (answers == labels)[weights != 0].double().mean().item()
            out.write("eval %d %d %d %.12g %.12g\n"
                      % (epoch, update + 1, HELD_OUT, loss.item(), right))
    return numpy.array(figures)


def write_safetensors(path, tensors):
    header, at = {"__metadata__": {"format": "pt"}}, 0
    for name, tensor in tensors.items():
        size = 4 * tensor.numel()
        header[name] = {"dtype": "F32", "shape": list(tensor.shape), "data_offsets": [at, at + size]}
        at += size
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for tensor in tensors.values():
            file.write(tensor.detach().numpy().astype("<f4").tobytes())


def write_errors(out, single, double, prefix=""):
    for name, tensor in double.items():
        error = (single[name].double() - tensor).norm().item() / math.sqrt(tensor.numel())
        out.write("error %s%s %.3g\n" % (prefix, name, error))


def make(name, model, worlds, data):
    with open(os.path.join(FOLDER, name + ".txtpb")) as text:
        job = text_format.Parse(text.read(), JOB())
    bf16 = job.precision == job.BF16
    network, single = make_network(model, bf16), make_network(model, bf16).float()
    base = os.path.join(FOLDER, name)
    with open(base + ".txt", "w") as out:
        out.write("torch %s transformers %s\n" % (torch.__version__, transformers.__version__))
        out.write("worlds %s\n" % " ".join(worlds))
        if name == model + "_mini":
            write_safetensors(base + ".init", tensors_of(network))
        if name == "bert_mini":
            write_safetensors(base + ".embeddings", {"embeddings": embeddings_of(network, data)})
        if not name.endswith("_few") and model != "masked":
            first = first_of(model, job, network, data)
            write_safetensors(base + ".first", first)
            write_errors(out, first_of(model, job, single, data), first)
        figures = train(model, job, network, data, out)
        errors = numpy.abs(train(model, job, single, data) / figures - 1).max(0)
        out.write("error loss %.3g\nerror grad_norm %.3g\n" % tuple(errors))
        write_safetensors(base + ".trained", tensors_of(network))
        write_errors(out, tensors_of(single), tensors_of(network), "trained.")


if __name__ == "__main__":
    torch.set_num_threads(1)
    torch.set_default_dtype(torch.float64)
    numpy.seterr(over="ignore")
    made = write_data()
    JOB = job_message()
    for job_name, (kind, its_worlds) in JOBS.items():
        make(job_name, kind, its_worlds, made)
