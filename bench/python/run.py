"""Times the Python package beside pytorch-metric-learning and faiss, alternating in one run.

    python bench/python/run.py [--only PREFIX] [--markdown FILE] [--wheel FILE]

Needs the installed package `gallerist`, and requirements.txt. Two threads each; results are medians over the rounds.
"""

import argparse
import gc
import multiprocessing
import os
import pathlib
import resource
import statistics
import subprocess
import sys
import time

parser = argparse.ArgumentParser()
parser.add_argument("--threads", type=int, default=2)
parser.add_argument("--only", default="", help="rows whose name begins with this")
parser.add_argument("--markdown", help="file to append the table to")
parser.add_argument("--wheel", help="the wheel, to report its size")
arguments = parser.parse_args()
os.environ["OMP_NUM_THREADS"] = str(arguments.threads)

import faiss
import numpy as np
import torch
from pytorch_metric_learning import losses as peer_losses
from pytorch_metric_learning.utils.accuracy_calculator import AccuracyCalculator
from pytorch_metric_learning.utils.inference import FaissKNN

import gallerist
from gallerist.torch import losses

gallerist.set_threads(arguments.threads)
torch.set_num_threads(arguments.threads)
faiss.omp_set_num_threads(arguments.threads)

table = []


def wanted(name):
    return name.startswith(arguments.only)


def row(name, ours, theirs, peer, goal):
    """One row of the table; times in seconds, or None where the peer cannot do it."""
    ours = statistics.median(ours)
    theirs = statistics.median(theirs) if theirs else None
    ratio = f"{theirs / ours:.2f}" if theirs else "–"
    table.append(f"| {name} | {shown(ours)} | {peer} | {shown(theirs) if theirs else f'needs more than {MEMORY_GIB} GiB'} | {ratio} | {goal} |")
    print(table[-1], flush=True)


def shown(seconds):
    return f"{seconds * 1000:.2f} ms" if seconds < 1 else f"{seconds:.2f} s"


def alternate(ours, theirs, rounds):
    """Times of both, in turns; the first turn of each warms up. A call may return the seconds that count."""
    times = ([], [])
    gc.collect()
    for _ in range(rounds + 1):
        for call, seconds in zip((ours, theirs), times):
            if call is not None:
                begin = time.perf_counter()
                part = call()
                whole = time.perf_counter() - begin
                seconds.append(part if isinstance(part, float) else whole)
    return times[0][1:], times[1][1:]


def unit_rows(n, d, seed):
    rows = np.random.default_rng(seed).standard_normal((n, d), dtype=np.float32)
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


def clustered(n, d, seed=1):
    """Rows around one centre per class of four, and their labels."""
    random = np.random.default_rng(seed)
    centres = random.uniform(-1, 1, (n // 4, d)).repeat(4, 0)
    return (0.7 * centres + random.uniform(-1, 1, (n, d)) + 0.5).astype(np.float32), np.arange(n) // 4


# Losses with the same definition: docs/losses-agreement.md. The ranked list loss of the peer has another gradient.
PAIRS = {
    "ranked list": (lambda: losses.RllLoss(), lambda: peer_losses.RankedListLoss(margin=0.4, Tn=10)),
    "multi-similarity": (
        lambda: losses.MultiSimilarityLoss(alpha=2, beta=50, miner="all"),
        lambda: peer_losses.MultiSimilarityLoss(alpha=2, beta=50, base=0.5),
    ),
    "contrastive": (lambda: losses.ContrastiveLoss(margin=1.0), lambda: peer_losses.ContrastiveLoss()),
    "circle": (lambda: losses.CircleLoss(margin=0.4, gamma=80), lambda: peer_losses.CircleLoss()),
}


def time_losses():
    for n, d, rounds, goal in ((180, 512, 40, "3"), (1024, 512, 9, "10"), (32768, 128, 1, "the peer cannot")):
        rows, labels = clustered(n, d)
        labels = torch.from_numpy(labels)
        for name, (ours, theirs) in PAIRS.items():
            title = f"loss {name}, {n:,} x {d}"
            if not wanted(title):
                continue
            # A step of training with a network of one layer; the part of the loss in it is timed: from the embeddings
            # to the gradient by them.
            images = torch.from_numpy(rows)
            torch.manual_seed(1)
            layer = torch.nn.Linear(d, d)
            optimizer = torch.optim.SGD(layer.parameters(), lr=0.0)
            calls = []
            for make in (ours, theirs):
                loss = make()

                def step(loss=loss):
                    optimizer.zero_grad()
                    embeddings = layer(images)
                    leaf = embeddings.detach().requires_grad_()
                    begin = time.perf_counter()
                    loss(leaf, labels).backward()
                    seconds = time.perf_counter() - begin
                    embeddings.backward(leaf.grad)
                    optimizer.step()
                    return seconds

                calls.append(step)
            fits = n < 20_000 or peer_fits(name, n, d)
            row(title, *alternate(calls[0], calls[1] if fits else None, rounds), "pytorch-metric-learning", goal)


MEMORY_GIB = 16


def peer_fits(name, n, d):
    """Whether one step of the peer does with this much memory; in a process of its own."""
    # A fork would inherit OpenMP's locks, but not the threads that hold them.
    process = multiprocessing.get_context("spawn").Process(target=peer_step, args=(name, n, d))
    process.start()
    process.join()
    return process.exitcode == 0


def peer_step(name, n, d):
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_GIB << 30,) * 2)
    rows, labels = clustered(n, d)
    leaf = torch.from_numpy(rows).requires_grad_()
    try:
        PAIRS[name][1]()(leaf, torch.from_numpy(labels)).backward()
    except (RuntimeError, MemoryError):
        sys.exit(1)


def time_evaluation():
    title = "evaluation, 60,502 x 512: Recall@1, R-precision, MAP@R"
    if not wanted(title):
        return
    rows = unit_rows(60_502, 512, 2)
    labels = np.arange(60_502) // 5
    calculator = AccuracyCalculator(
        include=("precision_at_1", "r_precision", "mean_average_precision_at_r"),
        k="max_bin_count",
        knn_func=FaissKNN(index_init_fn=faiss.IndexFlatIP),
        device=torch.device("cpu"),
    )
    tensors = torch.from_numpy(rows), torch.from_numpy(labels)
    ours = lambda: gallerist.evaluate(rows, labels, metrics=["recall@1", "r_precision", "map@r"])
    row(title, *alternate(ours, lambda: calculator.get_accuracy(*tensors), 3), "AccuracyCalculator with faiss", "5")


def time_searches():
    searches = [
        ("search, 60,502 x 512 against itself, k = 11", (60_502, 512), None, 3, "1.6"),
        ("search, 14,218 in 12,612 x 128, k = 11", (12_612, 128), 14_218, 7, "1.1"),
        ("search, 1 in 1,000,000 x 128, k = 10", (1_000_000, 128), 1, 15, "1.2"),
    ]
    for title, shape, queries, rounds, goal in searches:
        if not wanted(title):
            continue
        gallery = unit_rows(*shape, 3)
        asked = gallery if queries is None else unit_rows(queries, shape[1], 4)
        k = int(title.rpartition(" ")[2])
        index = faiss.IndexFlatIP(shape[1])
        index.add(gallery)
        if queries == 1:
            # An index is prepared once; so is that of faiss.
            kept = gallerist.Index(shape[1], metric="inner_product")
            kept.add(gallery)
            ours = lambda: kept.search(asked, k)
        else:
            ours = lambda: gallerist.search(gallery, None if queries is None else asked, k, metric="inner_product")
        row(title, *alternate(ours, lambda: index.search(asked, k), rounds), "faiss", goal)


def import_time():
    if not wanted("import"):
        return
    times = []
    for _ in range(7):
        program = "import numpy, time; begin = time.perf_counter(); import gallerist; print(time.perf_counter() - begin)"
        times.append(float(subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout))
    row("import gallerist, after numpy", times, [], "", "300 ms")
    table[-1] = table[-1].replace(f"needs more than {MEMORY_GIB} GiB", "–")


if __name__ == "__main__":
    time_losses()
    time_evaluation()
    time_searches()
    import_time()
    if arguments.wheel:
        table.append(f"| wheel | {pathlib.Path(arguments.wheel).stat().st_size / 1e6:.1f} MB | | | | 25 MB |")
    head = "| task | gallerist | compared with | its time | ratio of medians | goal |\n| --- | ---: | --- | ---: | ---: | --- |\n"
    print("\n" + head + "\n".join(table))
    if arguments.markdown:
        with open(arguments.markdown, "a", encoding="utf-8") as file:
            file.write(head + "\n".join(table) + "\n")
