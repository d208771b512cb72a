#!/usr/bin/env python3
"""Writes tests/golden/resnet_names.txt: MODEL NAME SHAPE of every tensor of torchvision's ResNets.

Run with torchvision (the committed file is from 0.23): tests/golden/make_resnet_names.py
"""
import os

import torchvision

with open(os.path.join(os.path.dirname(os.path.abspath(__file__)), "resnet_names.txt"), "w") as file:
    for name in ("resnet18", "resnet34", "resnet50"):
        for key, value in getattr(torchvision.models, name)().state_dict().items():
            file.write(" ".join([name, key, *map(str, value.shape)]) + "\n")
