"""ONNX of ResNet-50 v2 up to its third stage, from MXNet's ImageNet weights as .npy files (GitHub ibelem/test-data at d9f1537,
models/resnet50v2_nchw/weights, Apache-2.0). The repository lacks nine convolutions of the fourth stage.

    pip install torch onnx numpy
    python bench/networks/resnet50_v2_trunk.py FOLDER trunk.onnx

The features are the 1,024 channels after the first batch norm and ReLU of the fourth stage, the mean over all positions. Images
have mean 0.485 0.456 0.406 and standard deviation 0.229 0.224 0.225: then the statistics of every batch norm's input are
near its running ones.
"""
import pathlib
import sys

import numpy as np
import torch
from torch import nn


class Unit(nn.Module):
    def __init__(self, width, inner, out, stride, project):
        super().__init__()
        self.bn = nn.ModuleList([nn.BatchNorm2d(width), nn.BatchNorm2d(inner), nn.BatchNorm2d(inner)])
        self.conv = nn.ModuleList([
            nn.Conv2d(width, inner, 1, bias=False),
            nn.Conv2d(inner, inner, 3, stride, 1, bias=False),
            nn.Conv2d(inner, out, 1, bias=False),
        ])
        self.project = nn.Conv2d(width, out, 1, stride, bias=False) if project else None

    def forward(self, x):
        y = self.bn[0](x).relu()
        x = self.project(y) if self.project else x
        y = self.conv[0](y)
        y = self.conv[1](self.bn[1](y).relu())
        return x + self.conv[2](self.bn[2](y).relu())


class Trunk(nn.Module):
    def __init__(self):
        super().__init__()
        self.first_norm, self.first, self.norm = nn.BatchNorm2d(3), nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64)
        self.stages, width = nn.ModuleList(), 64
        for stage, count in enumerate((3, 4, 6)):
            inner, out = 64 << stage, 256 << stage
            units = [Unit(width if i == 0 else out, inner, out, 2 if i == 0 and stage else 1, i == 0) for i in range(count)]
            self.stages.append(nn.Sequential(*units))
            width = out
        self.last = nn.BatchNorm2d(width)

    def forward(self, x):
        x = self.norm(self.first(self.first_norm(x))).relu()
        x = nn.functional.max_pool2d(x, 3, 2, 1)
        for stage in self.stages:
            x = stage(x)
        return self.last(x).relu().mean((2, 3))


def fill(trunk, folder):
    def values(name):
        return torch.from_numpy(np.load(folder / f"resnetv24_{name}.npy"))

    def norm(module, name):
        for ours, theirs in (("weight", "gamma"), ("bias", "beta"), ("running_mean", "running_mean"), ("running_var", "running_var")):
            getattr(module, ours).data.copy_(values(f"{name}_{theirs}"))

    def conv(module, name):
        module.weight.data.copy_(values(f"{name}_weight"))

    norm(trunk.first_norm, "batchnorm0")
    conv(trunk.first, "conv0")
    norm(trunk.norm, "batchnorm1")
    for stage, units in enumerate(trunk.stages, 1):
        norms = convs = 0
        for unit in units:
            for module in unit.bn:
                norm(module, f"stage{stage}_batchnorm{norms}")
                norms += 1
            for module in [*unit.conv, *([unit.project] if unit.project else [])]:
                conv(module, f"stage{stage}_conv{convs}")
                convs += 1
    norm(trunk.last, "stage4_batchnorm0")


if __name__ == "__main__":
    trunk = Trunk().eval()
    with torch.no_grad():
        fill(trunk, pathlib.Path(sys.argv[1]))
    torch.onnx.export(trunk, torch.zeros(1, 3, 224, 224), sys.argv[2], input_names=["images"], output_names=["features"],
                      dynamic_axes={"images": {0: "n", 2: "height", 3: "width"}, "features": {0: "n"}},
                      opset_version=17, dynamo=False)
