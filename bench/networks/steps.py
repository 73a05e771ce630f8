"""Writes fixtures/networks/steps.json: the losses of ten training steps in PyTorch, in f64.

    pip install torch torchvision timm
    python bench/networks/steps.py

Weights and images are those of formula.py, the images of a step of their own; the networks those of golden.py. The loss is the mean square of the distance of all outputs from the tensor "target", the optimiser SGD
with momentum 0.9, batch norm takes the statistics of the batch. `off` says how far each loss moves, relative to
itself, when all weights move by a part in ten million (f32 knows no more), at most in three trials.
"""

import copy
import json

import torch

import formula
from golden import FIXTURES, BnInception, EfficientNet, MobileNetV2, ResNet, Torchvision, filled, moved

STEPS = 10


def symmetric(name, shape):
    return torch.from_numpy(2 * formula.unit(name, torch.Size(shape).numel()).reshape(shape) - 1)


def train(network, shape, rate):
    network.train()
    optimizer = torch.optim.SGD(network.parameters(), lr=rate, momentum=0.9)
    losses = []
    for step in range(STEPS):
        optimizer.zero_grad()
        outputs = network(symmetric(f"input {step}", shape))
        loss = sum((y - symmetric("target", y.shape)).square().mean() for y in outputs)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def measured(network, shape, rate):
    network, _ = filled(network)
    losses = train(copy.deepcopy(network), shape, rate)
    off = [0.0] * STEPS
    for seed in range(3):
        off = [max(o, abs(a - b) / a) for o, a, b in zip(off, losses, train(moved(network, 1e-7, seed), shape, rate))]
    result = {"input": shape, "learning_rate": rate, "losses": [float(f"{v:.9g}") for v in losses], "off": [float(f"{o:.1e}") for o in off]}
    print(result)
    return result


if __name__ == "__main__":
    torch.manual_seed(0)
    golden = {
        "resnet50-srt": measured(ResNet(50, "max", 1024, 128), [8, 3, 96, 64], 1e-6),
        "mobilenet_v2": measured(MobileNetV2(32), [8, 3, 96, 96], 1e-4),
        "efficientnet_lite0-tf": measured(EfficientNet("tf_efficientnet_lite0", 32), [8, 3, 75, 96], 1e-4),
        "mobilenet_v3-large": measured(Torchvision("mobilenet_v3_large", 960, 16), [8, 3, 75, 96], 1e-4),
        "efficientnet_b0": measured(Torchvision("efficientnet_b0", 1280, 16), [8, 3, 75, 96], 1e-4),
        "bn_inception": measured(BnInception(32, bias=False), [4, 3, 227, 227], 2e-5),
    }
    (FIXTURES / "steps.json").write_text(json.dumps(golden, indent=1) + "\n")
