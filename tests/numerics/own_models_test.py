"""Public models of PyTorch, trained: own_models_test.py GACCD MPIRUN [MODEL.. | SHARE/SHARES]

20 updates of AdamW with clipping on 1, 3 and 5 ranks with unequal loads against PyTorch's one big batch in double
precision, and the trained weights back in the model they came from. Needs a Python with PyTorch 2.7 or newer, safetensors,
torchvision, timm and transformers: sys.executable, or the one that GACCD_EXPORT_PYTHON names; else it is skipped: exit code 77.
GACCD_TEST_DEVICE=cuda: on a GPU, which 2 ranks share.
As a program of its own it prints a table.
"""
import copy
import os
import subprocess
import sys
import tempfile
import unittest
from functools import partial
from pathlib import Path

from launch import mpirun

ROOT = Path(__file__).resolve().parents[2]
SKIPPED = 77
DEVICE = os.environ.get("GACCD_TEST_DEVICE", "cpu")
WORLDS = (1, 3, 5) if DEVICE == "cpu" else (1, 2)
SAMPLES, BATCH, UPDATES, LENGTH, WORDS, CLASSES = 22, 11, 20, 12, 40, 5
RATE, EPSILON, DECAY, CLIP = 2e-4, 1e-3, 0.05, 1.0
DEEP = 1e-5  # the rate of deep networks: with a larger one, they amplify the rounding of single precision
MOST, OF_MOVED = 1e-5, 0.1  # of the weights; the latter of their distance from those before the training
OF_PYTORCH = 4  # of the logits: or what single precision costs PyTorch, by this factor
KINK = 1e-3  # of the logits in one of the three worlds, where rounding took a ReLU's input over 0
JOB = f"""name: "own"
model {{ graph {{ path: "model" }} loss {{ softmax_cross_entropy {{}} }} }}
data {{ train {{ DATA }} eval {{ DATA }} shuffle: false }}
batch {{ target: {BATCH} micro: 2 }}
optimizer {{ lr: RATE adamw {{ epsilon: {EPSILON} weight_decay: {DECAY} }} }}
clip_norm: {CLIP}
epochs: {UPDATES * BATCH // SAMPLES}
"""


def images(make, size=32, frames=(), rate=RATE):
    return make, lambda: ({"features": torch.randn(SAMPLES, 3, *frames, size, size)}, torch.randint(CLASSES, (SAMPLES,))), rate


def texts(make, per_token=False):
    def data():
        mask = (torch.arange(LENGTH) < torch.randint(1, LENGTH + 1, (SAMPLES, 1))).long()
        ids = torch.randint(3, WORDS, (SAMPLES, LENGTH)) * mask
        labels = torch.randint(WORDS, (SAMPLES, LENGTH)) if per_token else torch.randint(CLASSES, (SAMPLES,))
        return {"input_ids": ids, "attention_mask": mask}, labels
    return make, data, RATE


def models():
    import timm
    import torchvision.models as vision
    import transformers as hf
    nn, video, sizes = torch.nn, vision.video.resnet, {"num_classes": CLASSES}
    text = {"vocab_size": WORDS, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 64,
            "max_position_embeddings": LENGTH + 4}
    labels = {**text, "num_labels": CLASSES, "attention_dropout": 0.0}
    bert = {**text, "num_labels": CLASSES, "hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
    causal = {**text, "use_cache": False}

    class Recurrent(nn.Module):
        def __init__(self):
            super().__init__()
            self.lstm, self.fc = nn.LSTM(32, 24, batch_first=True), nn.Linear(24, CLASSES)

        def forward(self, x):
            return self.fc(self.lstm(x.mean(1))[0][:, -1])

    class UNet(nn.Module):
        def __init__(self):
            super().__init__()
            self.down = nn.ModuleList(nn.Sequential(nn.Conv2d(a, b, 3, padding=1), nn.BatchNorm2d(b), nn.ReLU())
                                      for a, b in ((3, 8), (8, 16), (16, 32)))
            self.up = nn.ModuleList(nn.Conv2d(a, b, 3, padding=1) for a, b in ((48, 16), (24, 8)))
            self.fc = nn.Linear(8, CLASSES)

        def forward(self, x):
            skipped = []
            for layer in self.down[:-1]:
                x = layer(x)
                skipped.append(x)
                x = nn.functional.max_pool2d(x, 2)
            x = self.down[-1](x)
            for layer, other in zip(self.up, reversed(skipped)):
                x = nn.functional.interpolate(x, scale_factor=2, mode="bilinear")
                x = torch.relu(layer(torch.cat([x, other], 1)))
            return self.fc(x.mean((2, 3)))

    class Shared(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.block = nn.Conv2d(3, 8, 3), nn.Sequential(nn.Conv2d(8, 8, 3, padding=1), nn.GroupNorm(2, 8), nn.ReLU())
            self.fc = nn.Linear(8, CLASSES)

        def forward(self, x):
            x = self.first(x)
            for _ in range(3):
                x = x + self.block(x)
            return self.fc(x.mean((2, 3)))

    vit = {"image_size": 32, "patch_size": 8, "num_layers": 2, "num_heads": 4, "hidden_dim": 32, "mlp_dim": 64}
    small = {"img_size": 32, "patch_size": 8, "embed_dim": 32, **sizes}
    return {
        "resnet18": images(lambda: vision.resnet18(**sizes), 64, rate=DEEP),
        "resnet50": images(lambda: vision.resnet50(**sizes), 64, rate=DEEP / 5),
        "mobilenet_v3_small": images(lambda: vision.mobilenet_v3_small(**sizes)),
        "efficientnet_b0": images(lambda: vision.efficientnet_b0(**sizes), 64),
        "convnext": images(lambda: vision.ConvNeXt([vision.convnext.CNBlockConfig(24, 48, 2),
                                                    vision.convnext.CNBlockConfig(48, None, 2)], **sizes)),
        "densenet": images(lambda: vision.DenseNet(16, (2, 2, 2), 16, **sizes), 64, rate=DEEP),
        "vit (torchvision)": images(lambda: vision.VisionTransformer(**vit, **sizes)),
        "swin": images(lambda: vision.SwinTransformer([4, 4], 16, [2, 2], [2, 4], [4, 4], **sizes)),
        "vit (timm)": images(lambda: timm.models.VisionTransformer(**small, depth=2, num_heads=4)),
        "nf-resnet": images(lambda: timm.models.NormFreeNet(timm.models.nfnet.NfCfg(
            depths=(1, 2), channels=(32, 64), stem_type="3x3", stem_chs=16, group_size=8), **sizes)),
        "bit": images(lambda: timm.models.ResNetV2([1, 1], [32, 64], stem_chs=16, norm_layer=partial(
            timm.layers.GroupNormAct, num_groups=4), stem_type="fixed", **sizes), rate=DEEP),
        "mlp-mixer": images(lambda: timm.models.MlpMixer(**small, num_blocks=2)),
        "video resnet": images(lambda: video.VideoResNet(video.BasicBlock, [video.Conv3DSimple] * 4, [1] * 4, video.BasicStem, **sizes),
                               16, [4], DEEP),
        "lstm": images(Recurrent), "u-net": images(UNet), "shared block": images(Shared),
        "bert": texts(lambda: hf.BertForSequenceClassification(hf.BertConfig(**bert))),
        "roberta": texts(lambda: hf.RobertaForSequenceClassification(hf.RobertaConfig(**bert))),
        "distilbert": texts(lambda: hf.DistilBertForSequenceClassification(hf.DistilBertConfig(
            vocab_size=WORDS, dim=32, n_layers=2, n_heads=4, hidden_dim=64, max_position_embeddings=LENGTH, num_labels=CLASSES,
            dropout=0.0, attention_dropout=0.0, seq_classif_dropout=0.0))),
        "modernbert": texts(lambda: hf.ModernBertForSequenceClassification(hf.ModernBertConfig(
            **labels, pad_token_id=0, cls_token_id=1, sep_token_id=2, bos_token_id=1, eos_token_id=2, local_attention=4))),
        "gpt-2": texts(lambda: hf.GPT2LMHeadModel(hf.GPT2Config(
            vocab_size=WORDS, n_positions=LENGTH, n_embd=32, n_layer=2, n_head=4, use_cache=False, resid_pdrop=0.0,
            embd_pdrop=0.0, attn_pdrop=0.0)), per_token=True),
        "llama": texts(lambda: hf.LlamaForCausalLM(hf.LlamaConfig(**causal, num_key_value_heads=2)), per_token=True),
        "llama classifier": texts(lambda: hf.LlamaForSequenceClassification(hf.LlamaConfig(
            **causal, num_key_value_heads=2, num_labels=CLASSES, pad_token_id=0))),
        "qwen3": texts(lambda: hf.Qwen3ForCausalLM(hf.Qwen3Config(**causal, num_key_value_heads=2, head_dim=8)), per_token=True),
    }


def without_dropout(model):
    for module in model.modules():
        for name in ("p", "drop_prob"):
            if hasattr(module, name) and isinstance(getattr(module, name), float):
                setattr(module, name, 0.0)
    return model


def logits_of(model, inputs):
    given = {name: x.to(next(model.parameters()).dtype) if x.is_floating_point() else x for name, x in inputs.items()}
    found = model(**given) if "input_ids" in given else model(given["features"])
    return found if isinstance(found, torch.Tensor) else found.logits


def train_in_pytorch(model, kind, inputs, labels, rate):
    trained = copy.deepcopy(model).to(kind).train()
    groups = [{"params": [p for p in trained.parameters() if (p.dim() >= 2) == matrices], "weight_decay": DECAY * matrices}
              for matrices in (True, False)]  # what gaccd does unless a group of the job says otherwise
    optimizer = torch.optim.AdamW(groups, lr=rate, eps=EPSILON)
    for update in range(UPDATES):
        rows = slice(update * BATCH % SAMPLES, update * BATCH % SAMPLES + BATCH)
        optimizer.zero_grad()
        logits = logits_of(trained, {name: x[rows] for name, x in inputs.items()})
        torch.nn.functional.cross_entropy(logits.flatten(0, -2), labels[rows].flatten()).backward()
        torch.nn.utils.clip_grad_norm_(trained.parameters(), CLIP)
        optimizer.step()
    return trained


def run(*command, cwd):
    launched_by = ("SLURM_", "OMPI_", "PMIX_", "PMI_") if DEVICE == "cpu" else ()  # tools/gpu-check says where Open MPI is
    env = {k: v for k, v in os.environ.items() if not k.startswith(launched_by)}
    done = subprocess.run([str(word) for word in command], cwd=cwd, env=env, text=True, capture_output=True, timeout=600)
    if done.returncode:
        raise AssertionError(done.stdout + done.stderr)


def distance(model, exact):
    """Of all trained weights from those of double precision, as a share of how large these are; of the logits, too."""
    weights, others = (torch.cat([p.detach().double().flatten() for p in one.parameters()]) for one in (exact, model))
    return float((weights - others).norm() / weights.norm())


def compare(name, folder):
    """By world: distances of the weights and of the logits; PyTorch's own in single precision, and those before the training."""
    make, data, rate = models()[name]
    torch.manual_seed(1)
    model = without_dropout(make())
    inputs, labels = data()
    example = {key: x[:2] for key, x in inputs.items()} if "input_ids" in inputs else inputs["features"][:2]
    gaccd_export.export(model, example, folder / "model")
    if "input_ids" in inputs:
        numpy.save(folder / "tokens.npy", inputs["input_ids"].numpy().astype("i4"))
        numpy.save(folder / "lengths.npy", inputs["attention_mask"].sum(1).numpy().astype("i4"))
        classes = "" if labels.dim() == 2 else f" classes: {CLASSES}"
        source = f'tokens {{ tokens: "tokens.npy" lengths: "lengths.npy" labels: "labels.npy" vocabulary: {WORDS}{classes} }}'
    else:
        numpy.save(folder / "features.npy", inputs["features"].numpy())
        source = f'npy {{ features: "features.npy" targets: "labels.npy" classes: {CLASSES} }}'
    numpy.save(folder / "labels.npy", labels.numpy())
    (folder / "job.txtpb").write_text(JOB.replace("DATA", source).replace("RATE", str(rate)))
    exact, single = (train_in_pytorch(model, kind, inputs, labels, rate) for kind in (torch.float64, torch.float32))
    results = {}

    def judged(trained):
        with torch.no_grad():
            expected, found = (logits_of(one.eval(), inputs).double() for one in (exact, trained))
        return distance(trained, exact), float((found - expected).norm() / expected.norm())

    for ranks in WORLDS:
        launcher = mpirun(MPIRUN, ranks) if ranks > 1 else []
        share = ["--allow-gpu-sharing"] if DEVICE == "cuda" and ranks > 1 else []
        run(*launcher, GACCD, "train", "--job=job.txtpb", f"--device={DEVICE}", f"--save-weights=of{ranks}", *share, cwd=folder)
        loaded = copy.deepcopy(model)
        loaded.load_state_dict(safetensors.torch.load_file(folder / f"of{ranks}"), strict=True)
        results[ranks] = judged(loaded)
    results["PyTorch"], results["before"] = judged(single), judged(copy.deepcopy(model).double())
    return results


def wanted():
    if len(ONLY) == 1 and "/" in ONLY[0]:
        share, shares = map(int, ONLY[0].split("/"))
        return list(models())[share - 1::shares]
    return ONLY or models()


class OwnModels(unittest.TestCase):
    def test_all(self):
        print(f"{'':20}" + "".join(f"{key:>22}" for key in (*(f"{n} ranks" for n in WORLDS), "PyTorch in f32", "before")))
        for name in wanted():
            with self.subTest(model=name), tempfile.TemporaryDirectory() as folder:
                results = compare(name, Path(folder))
                print(f"{name:20}" + "".join(f"{weights:11.1e}{logits:11.1e}" for weights, logits in results.values()), flush=True)
                (_, own_logits), (moved, _) = results.pop("PyTorch"), results.pop("before")
                for ranks, (weights, _) in results.items():
                    self.assertLessEqual(weights, min(MOST, OF_MOVED * moved), ranks)
                logits = sorted(found for _, found in results.values())
                for found, most in zip(logits, (MOST,) * (len(WORLDS) - 1) + (KINK,)):
                    self.assertLessEqual(found, max(most, OF_PYTORCH * own_logits), results)


if __name__ == "__main__":
    python = os.environ.get("GACCD_EXPORT_PYTHON")
    if python and "GACCD_EXPORT_OPENED" not in os.environ:
        os.environ["GACCD_EXPORT_OPENED"] = "1"
        os.execv(python, [python, "-B", *sys.argv])
    sys.path[:0] = [str(ROOT / "tools" / "python"), str(ROOT / "tests" / "gpu")]
    import gaccd as gaccd_export
    try:
        gaccd_export.needs.check_needs()
        import numpy
        import safetensors.torch
        import timm
        import torch
        import torchvision
        import transformers
    except ImportError as error:
        print(f"skipped: {error}")
        sys.exit(SKIPPED)
    if DEVICE == "cuda":
        from support import count_gpus
        if not count_gpus()[0]:
            print(f"skipped: {count_gpus()[1]}")
            sys.exit(SKIPPED)
    GACCD, MPIRUN, *ONLY = os.path.abspath(sys.argv[1]), *sys.argv[2:]
    torch.set_num_threads(1)
    unittest.main(argv=sys.argv[:1])
