"""t-SNE compared with openTSNE and scikit-learn: wall time, CPU time, KL divergence, preserved neighbours.

    pip install openTSNE scikit-learn safetensors numpy
    cargo build --release -p gallerist-map --example layout
    python bench/map/run.py target/release/examples/layout runs/omniglot/embeddings.safetensors

Without a file of embeddings: 659 Gaussians of 20 rows in 64 dimensions. `--rows N` makes it N rows.
All three start from the principal components, with perplexity 30, on two threads. The KL divergence is
computed here for all of them, with exact Q and one P (openTSNE's, of exact neighbours).
"""

import argparse
import os
import resource
import subprocess
import tempfile
import time

THREADS = "2"
for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "RAYON_NUM_THREADS"):
    os.environ[name] = THREADS

import numpy as np
import openTSNE
import sklearn
from openTSNE.affinity import PerplexityBasedNN
from safetensors.numpy import load_file, save_file
from sklearn.manifold import TSNE
from sklearn.neighbors import NearestNeighbors

PERPLEXITY = 30
KEPT = 15


def mixture(rows):
    random = np.random.default_rng(1)
    centres = random.standard_normal((max(rows // 20, 1), 64))
    x = centres[np.arange(rows) % len(centres)] + 0.5 * random.standard_normal((rows, 64))
    return (x / np.linalg.norm(x, axis=1, keepdims=True)).astype(np.float32)


def ours(program, x):
    with tempfile.TemporaryDirectory() as folder:
        save_file({"embeddings": x}, f"{folder}/x.safetensors")
        run = subprocess.run(
            [program, f"{folder}/x.safetensors", f"{folder}/y.npy"],
            check=True, capture_output=True, text=True,
        )
        return float(run.stderr), np.load(f"{folder}/y.npy")


def open_tsne(x):
    start = time.perf_counter()
    y = openTSNE.TSNE(perplexity=PERPLEXITY, n_jobs=int(THREADS), random_state=1).fit(x)
    return time.perf_counter() - start, np.asarray(y)


def open_tsne_tree(x):
    start = time.perf_counter()
    tsne = openTSNE.TSNE(perplexity=PERPLEXITY, n_jobs=int(THREADS), random_state=1, negative_gradient_method="bh")
    y = tsne.fit(x)
    return time.perf_counter() - start, np.asarray(y)


def scikit_learn(x):
    start = time.perf_counter()
    y = TSNE(perplexity=PERPLEXITY, n_jobs=int(THREADS), random_state=1, init="pca").fit_transform(x)
    return time.perf_counter() - start, y


def processor_seconds():
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(one.ru_utime + one.ru_stime for one in used)


def divergence(p, y):
    """KL(P | Q) with every pair in Q's normaliser."""
    y = y.astype(np.float64)
    total = 0.0
    for rows in np.array_split(y, max(len(y) // 500, 1)):
        total += (1 / (1 + ((rows[:, None] - y[None]) ** 2).sum(-1))).sum()
    total -= len(y)
    p = p.tocoo()
    q = 1 / (1 + ((y[p.row] - y[p.col]) ** 2).sum(-1)) / total
    return float((p.data * np.log(p.data / q)).sum())


def kept(near, y):
    found = NearestNeighbors(n_neighbors=KEPT + 1).fit(y).kneighbors(y, return_distance=False)[:, 1:]
    return float(np.mean([len(np.intersect1d(a, b)) / KEPT for a, b in zip(near, found)]))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("program")
    parser.add_argument("embeddings", nargs="?")
    parser.add_argument("--rows", type=int, default=13_180)
    parser.add_argument("--without", nargs="*", default=[])
    arguments = parser.parse_args()
    x = load_file(arguments.embeddings)["embeddings"] if arguments.embeddings else mixture(arguments.rows)
    print(f"{len(x)} x {x.shape[1]}, perplexity {PERPLEXITY}, {THREADS} threads, "
          f"openTSNE {openTSNE.__version__}, scikit-learn {sklearn.__version__}", flush=True)
    p = PerplexityBasedNN(x, perplexity=PERPLEXITY, method="exact", n_jobs=int(THREADS)).P
    near = NearestNeighbors(n_neighbors=KEPT + 1).fit(x).kneighbors(x, return_distance=False)[:, 1:]
    runs = {
        "gallerist": lambda: ours(arguments.program, x),
        "openTSNE (FFT)": lambda: open_tsne(x),
        "openTSNE (Barnes-Hut)": lambda: open_tsne_tree(x),
        "scikit-learn": lambda: scikit_learn(x),
    }
    for name, run in runs.items():
        if name in arguments.without:
            continue
        before = processor_seconds()
        seconds, y = run()
        processor = processor_seconds() - before
        print(f"{name:22} {seconds:7.1f} s, {processor:7.1f} s of CPU time  KL {divergence(p, y):.4f}  "
              f"{KEPT} nearest kept {kept(near, y):.4f}", flush=True)


if __name__ == "__main__":
    main()
