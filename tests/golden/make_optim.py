#!/usr/bin/python3
"""Writes tests/golden/optim_*.txt: what PyTorch's own optimisers do in 20 updates.

Run with Debian's python3-torch (the committed files are from 1.13):  tests/golden/make_optim.py
One line a record, values in %.9g, which is exact for fp32:
  case NAME | torch VERSION | clip C | start p... | then for every update: lr L | grad g... | params p...
"""
import os

import torch

UPDATES = 20
PARAMETERS = 37  # not a multiple of any vector width
CASES = {
    "sgd": (torch.optim.SGD, dict()),
    "sgd_decay": (torch.optim.SGD, dict(weight_decay=0.1)),
    "sgd_momentum": (torch.optim.SGD, dict(momentum=0.9, weight_decay=0.01)),
    "sgd_nesterov": (torch.optim.SGD, dict(momentum=0.9, weight_decay=0.01, nesterov=True)),
    "sgd_clipped": (torch.optim.SGD, dict(momentum=0.5)),
    "adamw": (torch.optim.AdamW, dict(betas=(0.9, 0.999), eps=1e-8, weight_decay=0.01)),
    "adamw_other": (torch.optim.AdamW, dict(betas=(0.8, 0.95), eps=1e-3, weight_decay=0.3)),
    "adamw_clipped": (torch.optim.AdamW, dict(weight_decay=0)),
}
CLIP = {"sgd_clipped": 1.5, "adamw_clipped": 0.5}


def line(name, tensor):
    return name + " " + " ".join("%.9g" % value for value in tensor.tolist()) + "\n"


def write(name, make, options, folder):
    torch.manual_seed(sum(name.encode()))
    param = torch.randn(PARAMETERS).requires_grad_()
    optimizer = make([param], lr=0.1, **options)
    clip = CLIP.get(name, 0)
    with open(os.path.join(folder, "optim_%s.txt" % name), "w") as out:
        out.write("case %s\ntorch %s\nclip %g\n" % (name, torch.__version__, clip))
        out.write(line("start", param.detach()))
        for update in range(UPDATES):
            lr = 0.1 * 0.9**update
            grad = torch.randn(PARAMETERS) * 10.0 ** (update % 3 - 1)
            grad[5] = 0  # a parameter that never gets a gradient
            out.write("lr %.17g\n" % lr)
            out.write(line("grad", grad))
            param.grad = grad.clone()
            if clip:
                torch.nn.utils.clip_grad_norm_([param], clip)
            for group in optimizer.param_groups:
                group["lr"] = lr
            optimizer.step()
            out.write(line("params", param.detach()))


if __name__ == "__main__":
    for case, (maker, settings) in CASES.items():
        write(case, maker, settings, os.path.dirname(os.path.abspath(__file__)))
