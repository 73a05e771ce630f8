"""Trains on Omniglot with PyTorch and with Gallerist, one after the other, and evaluates both in the same way.

    python bench/omniglot/run.py --gallerist target/release/gallerist [--data data/omniglot] [--peer-steps 2000]
        [--ours train.steps=2000 --ours "train.steps=2000 train.precision=bf16"] [--threads 2]

PyTorch's side is the plain recipe: RLL-Simpler (margin 0.4, T 10), four blocks of 64 channels, 64 dimensions,
batches of 60 x 3, SGD 0.1 with momentum and cosine decay; rotation, scale, shear and shift on the batch's
tensors. Images are decoded and resized to 56 x 56 before the measurement. Gallerist's side is `configs/omniglot.toml` with the settings of
each --ours; its training time is the one that it reports, which includes decoding and validation. Both are evaluated on the
evaluation characters, every image a query against all others.

Needs torch, numpy and Pillow.
"""

import argparse
import io
import json
import math
import os
import pathlib
import subprocess
import sys
import tempfile
import time
import zipfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "bench" / "losses"))
SIDE, STORED, CLASSES, IMAGES = 28, 56, 60, 3


def read(path):
    """Ink as 1, `[images, 1, 56, 56]`, and the number of each image's class."""
    import numpy as np
    import torch
    from PIL import Image

    images, names = [], []
    with zipfile.ZipFile(path) as archive:
        for name in sorted(name for name in archive.namelist() if name.endswith(".png")):
            picture = Image.open(io.BytesIO(archive.read(name))).convert("L").resize((STORED, STORED), Image.BOX)
            images.append(1 - np.asarray(picture, np.float32) / 255)
            names.append(name.rpartition("/")[0])
    order = {name: i for i, name in enumerate(sorted(set(names)))}
    return torch.from_numpy(np.stack(images))[:, None], torch.tensor([order[name] for name in names])


def network():
    from torch import nn

    layers = []
    for inputs in (1, 64, 64, 64):
        layers += [nn.Conv2d(inputs, 64, 3, padding=1, bias=False), nn.BatchNorm2d(64), nn.ReLU(), nn.MaxPool2d(2)]
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(64, 64))


def augmented(images):
    """Turned by up to 15 degrees, scaled by 0.85 to 1.15, sheared by up to 10 degrees, shifted by up to 8 %."""
    import torch

    def uniform(low, high):
        return torch.empty(len(images)).uniform_(low, high)

    turn, shear = uniform(-15, 15) * math.pi / 180, torch.tan(uniform(-10, 10) * math.pi / 180)
    scale, (x, y) = uniform(0.85, 1.15), (uniform(-0.16, 0.16), uniform(-0.16, 0.16))
    cos, sin = torch.cos(turn) / scale, torch.sin(turn) / scale
    rows = torch.stack([cos, cos * shear - sin, x, sin, sin * shear + cos, y], 1).reshape(-1, 2, 3)
    grid = torch.nn.functional.affine_grid(rows, [len(images), 1, STORED, STORED], align_corners=False)
    return shrunk(torch.nn.functional.grid_sample(images, grid, align_corners=False))


def shrunk(images):
    import torch

    return torch.nn.functional.avg_pool2d(images, STORED // SIDE)


def peer(train, test, steps):
    import numpy as np
    import torch
    from peers import rll

    torch.manual_seed(1)
    random = np.random.default_rng(1)
    images, labels = train
    of_class = [np.flatnonzero(labels.numpy() == label) for label in range(int(labels.max()) + 1)]
    model = network().to(memory_format=torch.channels_last)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
    batch = torch.arange(CLASSES).repeat_interleave(IMAGES)
    start = time.perf_counter()
    for _ in range(steps):
        classes = random.choice(len(of_class), CLASSES, replace=False)
        items = np.concatenate([random.choice(of_class[label], IMAGES, replace=False) for label in classes])
        x = augmented(images[items]).contiguous(memory_format=torch.channels_last)
        optimizer.zero_grad()
        rll(torch.nn.functional.normalize(model(x)), batch).backward()
        optimizer.step()
        schedule.step()
    seconds = time.perf_counter() - start
    model.eval()
    with torch.inference_mode():
        images, labels = test
        parts = shrunk(images).split(1000)
        embeddings = torch.cat([torch.nn.functional.normalize(model(part)) for part in parts])
    return seconds, *measured(embeddings, labels)


def measured(embeddings, labels):
    """Recall@1 and MAP@R; all classes are of one size here."""
    import torch

    relevant = int((labels == labels[0]).sum()) - 1
    recall = map_at_r = 0.0
    for first in range(0, len(labels), 1000):
        similar = embeddings[first : first + 1000] @ embeddings.T
        rows = torch.arange(len(similar))
        similar[rows, first + rows] = -torch.inf
        found = labels[similar.topk(relevant, 1).indices] == labels[first : first + 1000, None]
        precision = found.cumsum(1) / torch.arange(1, relevant + 1)
        recall += float(found[:, 0].sum())
        map_at_r += float((precision * found).sum()) / relevant
    return recall / len(labels), map_at_r / len(labels)


def ours(program, data, settings, threads):
    with tempfile.TemporaryDirectory() as folder:
        run = os.path.join(folder, "run")
        sets = [*settings.split(), f"train.threads={threads}", "train.device=cpu"]
        for part in ("train", "test"):
            name = {"train": "background", "test": "evaluation"}[part]
            sets.append(f'data.{part}=["{data / f"omniglot_images_{name}.zip"}"]')
        command = [program, "train", str(ROOT / "configs/omniglot.toml"), "--out", run, "--json"]
        for item in sets:
            command += ["--set", item]
        summary = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL).stdout)
        metrics = json.loads(pathlib.Path(run, "metrics.json").read_text())
        return summary, metrics


def find(value, key):
    """The first value of `key` in nested objects."""
    if isinstance(value, dict):
        if key in value:
            return value[key]
        value = list(value.values())
    if isinstance(value, list):
        return next((found for item in value if (found := find(item, key)) is not None), None)
    return None


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--gallerist", required=True)
    parser.add_argument("--data", type=pathlib.Path, default=ROOT / "data" / "omniglot")
    parser.add_argument("--peer-steps", type=int, default=2000)
    parser.add_argument("--ours", action="append", default=[])
    parser.add_argument("--threads", type=int, default=2)
    options = parser.parse_args()
    import torch

    torch.set_num_threads(options.threads)
    data = options.data.resolve()
    print("| side | training, s | Recall@1 | MAP@R |\n|---|---|---|---|")
    if options.peer_steps > 0:
        sets = [read(data / f"omniglot_images_{name}.zip") for name in ("background", "evaluation")]
        seconds, recall, map_at_r = peer(*sets, options.peer_steps)
        print(f"| PyTorch, {options.peer_steps} steps | {seconds:.0f} | {recall:.4f} | {map_at_r:.4f} |", flush=True)
    for settings in options.ours or ["train.steps=2000"]:
        summary, metrics = ours(options.gallerist, data, settings, options.threads)
        seconds = find(summary, "training_seconds") or find(summary, "seconds")
        recall, map_at_r = (find(metrics, key) for key in ("recall@1", "map@r"))
        print(f"| Gallerist, {settings} | {seconds:.0f} | {recall:.4f} | {map_at_r:.4f} |", flush=True)


if __name__ == "__main__":
    main()
