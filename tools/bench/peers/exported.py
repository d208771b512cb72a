#!/usr/bin/env python3
"""The peer of the benchmark of users' own models: a public model of transformers, torchvision or timm, one process,
one thread. --export writes it for gaccd, with random samples, into --folder; without it PyTorch trains it from the same
weights, with fused AdamW, on the same samples in the same order, and one JSON line is printed. All data is in memory
before the clock starts.
"""
import argparse
import os
import sys
import time
from pathlib import Path

for variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[variable] = "1"

import common  # noqa: E402  (after the thread counts are set)
import numpy as np  # noqa: E402
import torch  # noqa: E402

SAMPLES = 64
nn = torch.nn


def causal(make, words=65, length=256):
    return make, lambda: torch.randint(words, (SAMPLES, length)), lambda: torch.randint(words, (SAMPLES, length))


def texts(make, words=8192, length=128):
    return make, lambda: torch.randint(words, (SAMPLES, length)), lambda: torch.randint(2, (SAMPLES,))


def images(make, size):
    return make, lambda: torch.randn(SAMPLES, 3, size, size), lambda: torch.randint(10, (SAMPLES,))


class Recurrent(nn.Module):
    """A row of an image is a step."""

    def __init__(self):
        super().__init__()
        self.lstm, self.fc = nn.LSTM(96, 128, batch_first=True), nn.Linear(128, 10)

    def forward(self, x):
        return self.fc(self.lstm(x.permute(0, 2, 1, 3).flatten(2))[0][:, -1])


def models():
    import timm
    import torchvision
    import transformers as hf
    gpt = {"n_embd": 384, "n_layer": 6, "n_head": 6, "resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0}
    bert = {"hidden_size": 256, "num_hidden_layers": 4, "num_attention_heads": 4, "intermediate_size": 1024,
            "max_position_embeddings": 128, "hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
    llama = {"hidden_size": 384, "num_hidden_layers": 6, "num_attention_heads": 6, "num_key_value_heads": 6,
             "intermediate_size": 1024, "max_position_embeddings": 256}
    return {
        "gpt": causal(lambda: hf.GPT2LMHeadModel(hf.GPT2Config(vocab_size=65, n_positions=256, use_cache=False, **gpt))),
        "bert": texts(lambda: hf.BertForSequenceClassification(hf.BertConfig(vocab_size=8192, num_labels=2, **bert))),
        "llama": causal(lambda: hf.LlamaForCausalLM(hf.LlamaConfig(vocab_size=65, use_cache=False, **llama))),
        "resnet18": images(lambda: torchvision.models.resnet18(num_classes=10), 64),
        "convnext": images(lambda: timm.create_model("convnext_atto", num_classes=10, drop_path_rate=0.0), 64),
        "vit": images(lambda: timm.models.VisionTransformer(img_size=28, patch_size=4, embed_dim=192, depth=12, num_heads=3,
                                                            num_classes=10), 28),
        "mixer": images(lambda: timm.models.MlpMixer(img_size=32, patch_size=4, embed_dim=192, num_blocks=8,
                                                     num_classes=10), 32),
        "lstm": images(Recurrent, 32),
    }


def export(args, model, inputs, labels):
    sys.path.insert(0, str(Path(__file__).parents[2] / "python"))
    import gaccd
    gaccd.export(model, inputs[:2], args.folder / "model")
    name = "features" if inputs.is_floating_point() else "tokens"
    np.save(args.folder / f"{name}.npy", inputs.numpy() if name == "features" else inputs.numpy().astype("i4"))
    np.save(args.folder / "labels.npy", labels.numpy().astype("i4"))


def train(args, model, inputs, labels):
    groups = [{"params": [p for p in model.parameters() if (p.dim() >= 2) == matrices], "weight_decay": 0.01 * matrices}
              for matrices in (True, False)]
    optimizer = torch.optim.AdamW(groups, lr=args.lr, fused=True)
    if inputs.dim() == 4:
        model, inputs = model.to(memory_format=torch.channels_last), inputs.contiguous(memory_format=torch.channels_last)

    def loss_of(x, y):
        logits = model(x)
        logits = logits if isinstance(logits, torch.Tensor) else logits.logits
        return nn.functional.cross_entropy(logits.flatten(0, -2), y.flatten())

    if args.compile:
        loss_of = torch.compile(loss_of)
    durations = []
    for update in range(args.warmup + args.updates):
        begin = time.perf_counter()
        first = update * args.micro % SAMPLES
        loss = loss_of(inputs[first:first + args.micro], labels[first:first + args.micro])
        loss.backward()
        value = loss.item()
        optimizer.step()
        optimizer.zero_grad()
        durations.append(time.perf_counter() - begin)
    common.print_result(torch.__version__, durations, args.warmup, value)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", required=True)
    parser.add_argument("--folder", required=True, type=Path)
    parser.add_argument("--micro", type=int, default=0)
    parser.add_argument("--lr", type=float, default=0)
    parser.add_argument("--warmup", type=int, default=3, help="updates not counted")
    parser.add_argument("--updates", type=int, default=0, help="updates measured")
    parser.add_argument("--export", action="store_true")
    parser.add_argument("--compile", action="store_true")
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(1)
    make, make_inputs, make_labels = models()[args.model]
    model = make().train()
    (export if args.export else train)(args, model, make_inputs(), make_labels())


if __name__ == "__main__":
    main()
