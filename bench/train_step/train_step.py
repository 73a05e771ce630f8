"""Milliseconds of one training step of the small network in PyTorch.

    python train_step.py [BATCH] [STEPS] [--channels-last] [--threads N] [--cpu-time]

The same network, weights, data, loss and optimiser as the example `train_step` of
gallerist-kernels: 4 x [convolution 3x3 of 64 channels, batch norm, ReLU, max pool 2x2] on
BATCH x 1 x 28 x 28, then a linear layer to 128 values. The first losses show that both programs
compute the same. --cpu-time counts the time of all threads instead of that on the clock, for a
machine that is not quiet; set OMP_WAIT_POLICY=passive with it, or waiting counts as work.
"""

import argparse
import math
import statistics
import time

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn


def values(count: int, key: int) -> np.ndarray:
    """Values in [-1, 1) from a hash of the index: the same in Rust and in Python."""
    mask = np.uint64(0xFFFFFFFF)
    x = np.arange(count, dtype=np.uint64) * np.uint64(2654435761)
    x = (x + np.uint64((key + 1) * 0x9E3779B9 & 0xFFFFFFFF)) & mask
    for _ in range(2):
        x ^= x >> np.uint64(16)
        x = (x * np.uint64(0x45D9F3B)) & mask
    x ^= x >> np.uint64(16)
    return x.astype(np.float64) / 4294967296.0 * 2.0 - 1.0


def fill(weight: torch.Tensor, key: int, fan_in: int) -> None:
    he = values(weight.numel(), key) * math.sqrt(6 / fan_in)
    with torch.no_grad():
        weight.copy_(torch.from_numpy(he.astype(np.float32)).view_as(weight))


class Small(nn.Module):
    def __init__(self):
        super().__init__()
        self.convolutions = nn.ModuleList()
        for block in range(4):
            channels = 1 if block == 0 else 64
            layer = nn.Conv2d(channels, 64, 3, padding=1, bias=False)
            fill(layer.weight, block, channels * 9)
            self.convolutions.append(layer)
        self.norms = nn.ModuleList(nn.BatchNorm2d(64) for _ in range(4))
        self.linear = nn.Linear(64, 128)
        fill(self.linear.weight, 4, 64)
        nn.init.zeros_(self.linear.bias)

    def forward(self, x):
        for convolution, norm in zip(self.convolutions, self.norms):
            x = F.max_pool2d(F.relu(norm(convolution(x))), 2)
        return self.linear(x.flatten(1))


def loss_of(embeddings, same):
    unit = embeddings / (embeddings.pow(2).sum(1, keepdim=True) + 1e-12).sqrt()
    return (unit @ unit.t() - same).pow(2).mean()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("batch", type=int, nargs="?", default=180)
    parser.add_argument("steps", type=int, nargs="?", default=11)
    parser.add_argument("--channels-last", action="store_true")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--cpu-time", action="store_true")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    clock = time.process_time if options.cpu_time else time.perf_counter

    model = Small().train()
    shape = (options.batch, 1, 28, 28)
    x = torch.from_numpy(values(math.prod(shape), 1000).astype(np.float32)).view(shape)
    if options.channels_last:
        model = model.to(memory_format=torch.channels_last)
        x = x.to(memory_format=torch.channels_last)
    labels = torch.arange(options.batch) // 4
    same = (labels[:, None] == labels[None]).float()
    optimiser = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)

    warm = 2
    times, losses = [], []
    for _ in range(warm + options.steps):
        start = clock()
        optimiser.zero_grad()
        loss = loss_of(model(x), same)
        loss.backward()
        optimiser.step()
        losses.append(loss.item())
        times.append((clock() - start) * 1e3)
    times = times[warm:]
    layout = "channels last" if options.channels_last else "channels first"
    unit = "CPU ms" if options.cpu_time else "ms"
    print(
        f"torch {torch.__version__}, {layout}, batch {options.batch}, {options.threads} threads: "
        f"{unit} per step, median {statistics.median(times):.1f} (minimum {min(times):.1f})"
    )
    print("losses " + " ".join(f"{loss:.6f}" for loss in losses[:5]))


if __name__ == "__main__":
    main()
