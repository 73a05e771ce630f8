#!/usr/bin/env python3
"""The two halves of the gradient of Instance Cross Entropy on embeddings of a run.

    gallerist embed --run DIR --images IMAGES --out embeddings.safetensors
    bench/losses/ice_sides.py embeddings.safetensors

The true derivative is the scale times the sum of two parts: that of the positives and negatives (the paper's, not
normalised) and that of the anchors. For batches of 60 classes and 3 images, rows of length 1, it prints for a step
against each gradient, all of the same length, the rates of change of the squared length of the mean row, of the mean
squared distance of a class's centre from the mean row, and of the number of dimensions that the rows fill (participation
ratio of the covariance). Needs NumPy.
"""

import argparse
import itertools
import json

import numpy as np

from service import Service

CLASSES, IMAGES, BATCHES = 60, 3, 8
STEP = 1e-3


def read(path):
    with open(path, "rb") as file:
        header = json.loads(file.read(int.from_bytes(file.read(8), "little")))
        data = file.read()
    part = lambda name: data[slice(*header[name]["data_offsets"])]
    rows = np.frombuffer(part("embeddings"), "<f4").reshape(header["embeddings"]["shape"]).astype("<f8")
    return rows / np.linalg.norm(rows, axis=1, keepdims=True), np.unique(json.loads(part("labels")), return_inverse=True)[1]


def gradient(service, rows, kind, scale):
    """Along the sphere, with a mean squared length of 1."""
    found = service.ask({"name": "ice", "scale": scale, "gradient": kind}, gradient=True)["gradient"].astype("<f8")
    found -= (found * rows).sum(1, keepdims=True) * rows
    return found * np.sqrt(len(rows)) / np.linalg.norm(found)


def state(rows, labels):
    """Squared length of the mean, mean squared distance of the classes' centres from it, dimensions that are filled."""
    mean = rows.mean(0)
    centres = np.stack([rows[labels == label].mean(0) for label in np.unique(labels)])
    variances = np.linalg.svd(rows - mean, compute_uv=False) ** 2
    dimensions = variances.sum() ** 2 / np.square(variances).sum()
    return np.array([mean @ mean, np.square(centres - mean).sum(1).mean(), dimensions])


def rates(rows, labels, gradient):
    moved = rows - STEP * gradient
    moved /= np.linalg.norm(moved, axis=1, keepdims=True)
    return (state(moved, labels) - state(rows, labels)) / STEP


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("embeddings", nargs="+")
    parser.add_argument("--binary", help="the benchmark as built; default: cargo bench")
    args = parser.parse_args()
    service = Service(args.binary)
    print("| embeddings | squared length of the mean | scale | gradient | mean | centres | dimensions |")
    print("| --- | ---: | ---: | --- | ---: | ---: | ---: |")
    for path in args.embeddings:
        rows, labels = read(path)
        random = np.random.default_rng(0)
        batches = []
        for _ in range(BATCHES):
            classes = random.choice(labels.max() + 1, CLASSES, replace=False)
            batches.append(np.concatenate([random.choice(np.flatnonzero(labels == c), IMAGES, replace=False) for c in classes]))
        mean = np.mean([np.square(rows[batch].mean(0)).sum() for batch in batches])
        found = {}
        for batch in batches:
            x, y = rows[batch], labels[batch]
            service.load(x, y)
            for scale, kind in itertools.product((1.0, 16.0, 64.0), ("paper", "unnormalized", "query", "autodiff")):
                found.setdefault((scale, kind), []).append(rates(x, y, gradient(service, x, kind, scale)))
        for (scale, kind), of_batches in found.items():
            cells = " | ".join(f"{rate:+.2f}" for rate in np.mean(of_batches, 0))
            print(f"| {path} | {mean:.2f} | {scale:g} | {kind} | {cells} |")


if __name__ == "__main__":
    main()
