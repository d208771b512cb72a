#!/usr/bin/env python3
"""Public models of PyTorch on one GPU: trained by gaccd as a user trains them, and by PyTorch, of the same weights and batch.

usage: own_models.py GACCD FOLDER [--models=NAME,..] [--warm] [--compile] [--updates=N] [--seconds=N]

Prints lines "ROW [check, result, gaccd, peer, ratio, spread, goal]", as tools/bench/gpu/run does. bf16 is autocast over f32
weights on PyTorch's side. --warm: only what torch.compile keeps on disk; may run while tests do. GACCD_BENCH_ENV: more
variables for GACCD, as JSON.
"""
import argparse
import json
import os
import subprocess
import sys
import time
from pathlib import Path

import numpy
import torch

ROOT = Path(__file__).resolve().parents[3]
sys.path[:0] = [str(ROOT / "tools" / "python"), str(ROOT / "tools" / "bench")]
import harness  # noqa: E402

SAMPLES, WARM_UP, RATE = 256, 8, 1e-4
nn = torch.nn


def images(make, micro, size=224, classes=1000):
    return make, micro, lambda: torch.randn(SAMPLES, 3, size, size), lambda: torch.randint(classes, (SAMPLES,)), (
        f'npy {{ features: "features.npy" targets: "labels.npy" classes: {classes} }}')


def causal(make, micro, words, length):
    return make, micro, lambda: torch.randint(words, (SAMPLES, length)), lambda: torch.randint(words, (SAMPLES, length)), (
        f'tokens {{ tokens: "tokens.npy" labels: "labels.npy" vocabulary: {words} }}')


def texts(make, micro, words, length):
    return make, micro, lambda: torch.randint(words, (SAMPLES, length)), lambda: torch.randint(2, (SAMPLES,)), (
        f'tokens {{ tokens: "tokens.npy" labels: "labels.npy" vocabulary: {words} classes: 2 }}')


def models():
    import timm
    import torchvision
    import transformers as hf
    gpt = {"resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0}
    bert = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0, "num_labels": 2}
    llama = {"vocab_size": 32000, "hidden_size": 768, "num_hidden_layers": 12, "num_attention_heads": 12,
             "num_key_value_heads": 12, "intermediate_size": 2048, "max_position_embeddings": 1024}
    return {
        "gpt-2": causal(lambda: hf.GPT2LMHeadModel(hf.GPT2Config(**gpt)), 16, 50257, 1024),
        "llama": causal(lambda: hf.LlamaForCausalLM(hf.LlamaConfig(**llama)), 16, 32000, 1024),
        "bert": texts(lambda: hf.BertForSequenceClassification(hf.BertConfig(**bert)), 64, 30522, 128),
        "resnet50": images(lambda: torchvision.models.resnet50(), 128),
        "vit-s": images(lambda: timm.create_model("vit_small_patch16_224"), 128),
        "convnext": images(lambda: timm.create_model("convnext_tiny", drop_path_rate=0.0), 128),
        "resnet18": images(lambda: torchvision.models.resnet18(num_classes=10), 256, 32, 10),
    }


JOB = """name: "own"
model {{ graph {{ path: "model" }} loss {{ softmax_cross_entropy {{}} }} }}
data {{ train {{ {source} }} shuffle: false }}
batch {{ target: {micro} micro: {micro} }}
optimizer {{ lr: {rate} adamw {{ weight_decay: 0.01 }} }}
log_every: 1
epochs: {epochs}
"""


class Model:
    def __init__(self, name, args):
        self.name, self.args, self.folder = name, args, args.folder / name
        make, self.micro, inputs, labels, self.source = models()[name]
        torch.manual_seed(1)
        self.model, self.inputs, self.labels = make().train(), inputs(), labels()

    def export(self):
        import gaccd
        self.folder.mkdir(parents=True, exist_ok=True)
        gaccd.export(self.model, self.inputs[:2], self.folder / "model")
        floats = self.inputs.is_floating_point()
        numpy.save(self.folder / ("features.npy" if floats else "tokens.npy"),
                   self.inputs.numpy() if floats else self.inputs.numpy().astype("i4"))
        numpy.save(self.folder / "labels.npy", self.labels.numpy().astype("i4"))

    def ours(self, precision):
        """Seconds of an update, the last loss, what the run printed of memory."""
        epochs = -(-(WARM_UP + self.args.updates) * self.micro // SAMPLES)
        (self.folder / "job.txtpb").write_text(JOB.format(source=self.source, micro=self.micro, rate=RATE, epochs=epochs))
        run_dir = self.folder / f"run-{precision}-{time.monotonic_ns()}"
        env = {**os.environ, **json.loads(os.environ.get("GACCD_BENCH_ENV", "{}"))}
        begin = time.monotonic()
        done = subprocess.run([self.args.gaccd, "train", f"--job={self.folder}/job.txtpb", f"--run-dir={run_dir}", "--device=cuda",
                               f"--precision={precision}", "--save-every-seconds=0"], cwd=self.folder, env=env, text=True,
                              capture_output=True, timeout=200)
        if done.returncode:
            raise RuntimeError((done.stdout + done.stderr)[-1500:])
        seconds = time.monotonic() - begin
        (self.folder / f"log-{precision}.txt").write_text(done.stdout + done.stderr)
        run = harness.Run(run_dir, self.micro, WARM_UP)
        memory = [line for line in (done.stdout + done.stderr).splitlines() if "measured" in line or "planned" in line]
        print(f"FACT {self.name} {precision}: {seconds:.1f} s in all, {run.update_s * 1e3:.1f} ms an update; {' / '.join(memory)[:300]}",
              flush=True)
        return run.update_s, run.loss

    def theirs(self, precision, compiled, updates):
        """Seconds of an update, the last loss."""
        torch.manual_seed(1)
        model = models()[self.name][0]().train().cuda()
        channels_last = self.inputs.dim() == 4
        if channels_last:
            model = model.to(memory_format=torch.channels_last)
        batches = []
        for first in range(0, SAMPLES, self.micro):
            x = self.inputs[first:first + self.micro]
            x = x.contiguous(memory_format=torch.channels_last) if channels_last else x
            batches.append((x.pin_memory(), self.labels[first:first + self.micro].pin_memory()))
        optimizer = torch.optim.AdamW(model.parameters(), lr=RATE, weight_decay=0.01, fused=True)

        def loss_of(x, y):
            with torch.autocast("cuda", torch.bfloat16, enabled=precision == "bf16"):
                logits = model(x)
                logits = logits if isinstance(logits, torch.Tensor) else logits.logits
                return nn.functional.cross_entropy(logits.flatten(0, -2), y.flatten())

        if compiled:
            loss_of = torch.compile(loss_of, dynamic=False)
        for update in range(WARM_UP + updates):
            if update == WARM_UP:
                torch.cuda.synchronize()
                begin = time.perf_counter()
            x, y = (part.cuda(non_blocking=True) for part in batches[update % len(batches)])
            loss = loss_of(x, y)
            loss.backward()
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
        last = loss.item()
        took = (time.perf_counter() - begin) / updates if updates else 0
        peak = torch.cuda.max_memory_allocated() / 1e9
        del model, optimizer, loss
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
        return took, last, peak


def rate(micro, seconds):
    return f"{micro / seconds:,.0f} samples/s"


def compare(model, precision, args):
    own, own_loss = model.ours(precision)
    ways = [("torch eager", False)] + [("torch.compile", True)] * args.compile
    for label, compiled in ways:
        took, loss, peak = model.theirs(precision, compiled, args.updates)
        print("ROW " + json.dumps([f"own {model.name} {precision}, {model.micro} samples", "", rate(model.micro, own),
                                   f"{rate(model.micro, took)} {label}", f"{took / own:.2f}", "",
                                   f"losses {own_loss:.4f} and {loss:.4f}; PyTorch's peak {peak:.1f} GB"]), flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("gaccd", type=os.path.abspath)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--models", default="gpt-2,resnet50,vit-s,llama,bert,convnext,resnet18")
    parser.add_argument("--precision", default="bf16")
    parser.add_argument("--updates", type=int, default=24)
    parser.add_argument("--compile", action="store_true")
    parser.add_argument("--warm", action="store_true")
    parser.add_argument("--seconds", type=float, default=1e9, help="no model is begun with less than 60 left")
    args = parser.parse_args()
    args.folder = args.folder.resolve()
    torch.set_float32_matmul_precision("highest")
    failed, begin_of_all = False, time.monotonic()
    for name in args.models.split(","):
        for precision in args.precision.split(","):
            if args.seconds - (time.monotonic() - begin_of_all) < 60:
                print("ROW " + json.dumps([f"own {name} {precision}", "CUT", "", "", "", "", "no time left"]), flush=True)
                continue
            try:
                model = Model(name, args)
                if args.warm:
                    begin = time.monotonic()
                    model.export()
                    model.theirs(precision, True, 1)
                    print(f"FACT {name}: exported and compiled in {time.monotonic() - begin:.0f} s", flush=True)
                else:
                    if not (model.folder / "model").exists():
                        model.export()
                    compare(model, precision, args)
            except Exception as error:  # pylint: disable=broad-except  # one model; the others continue
                failed = True
                print("ROW " + json.dumps([f"own {name} {precision}", "FAIL", "", "", "", "", f"{type(error).__name__}: {error}"[:1500]]),
                      flush=True)
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
