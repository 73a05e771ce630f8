"""Times forward + backward of the losses, compared with other implementations, alternating in one run.

    python bench/losses/run.py [--threads 2] [--binary PATH] [--markdown FILE] [--only NAME] [--size N] [--rounds N]

Needs torch, pytorch-metric-learning and numpy. Each round times a few repetitions of Gallerist, then of the
peer; the results are the medians and the minima over all rounds. Other load on the machine affects both.
"""

import argparse
import os
import statistics
import sys
import time

parser = argparse.ArgumentParser()
parser.add_argument("--threads", type=int, default=2)
parser.add_argument("--binary", help="the benchmark as built; default: cargo bench")
parser.add_argument("--markdown", help="file to append the table to")
parser.add_argument("--only")
parser.add_argument("--size", type=int)
parser.add_argument("--rounds", type=int, help="number of rounds [default: depends on the size]")
arguments = parser.parse_args()
os.environ["OMP_NUM_THREADS"] = str(arguments.threads)

import numpy as np
import torch

from peers import timed_peers
from service import Service

torch.set_num_threads(arguments.threads)


def batch(n, d, seed=1):
    """Normalised rows around one centre per class of four."""
    random = np.random.default_rng(seed)
    centres = random.uniform(-1, 1, (n // 4, d)).repeat(4, 0)
    x = 0.7 * centres + random.uniform(-1, 1, (n, d)) + 0.5
    x /= np.linalg.norm(x, axis=1, keepdims=True)
    return x.astype(np.float32), np.arange(n) // 4


def time_peer(peer, x, labels, repeat):
    seconds = []
    for _ in range(repeat):
        leaf = x.clone().requires_grad_()
        start = time.perf_counter()
        peer(leaf, labels).backward()
        seconds.append(time.perf_counter() - start)
    return seconds


# (n, d), rounds, repetitions a round.
SIZES = [((180, 512), 15, 8), ((1024, 512), 9, 3), ((8192, 128), 3, 1)]
# Peers that take minutes or tens of gigabytes there.
TOO_MUCH = {("srt", 8192), ("triplet_all", 8192)}
# Peers that take seconds: two repetitions.
SLOW = {("srt", 1024), ("triplet_all", 1024)}

rows = []
service = Service(arguments.binary, arguments.threads)
for (n, d), rounds, repeat in SIZES:
    if arguments.size and arguments.size != n:
        continue
    x, labels = batch(n, d)
    service.load(x, labels)
    x, labels = torch.from_numpy(x), torch.from_numpy(labels)
    for name, peers in timed_peers().items():
        if arguments.only and arguments.only != name:
            continue
        for what, peer, parameters in peers:
            loss = {"name": name, **parameters}
            ours, theirs = [], []
            slow = (name, n) in SLOW
            for _ in range(2 if slow else arguments.rounds or rounds):
                ours += service.ask(loss, repeat=repeat)["seconds"]
                if (name, n) not in TOO_MUCH:
                    theirs += time_peer(peer, x, labels, 1 if slow else repeat)
            # The first repetition of each warms up.
            ours, theirs = ours[1:] or ours, theirs[1:] or theirs
            row = [name, what, f"{n} x {d}", *(1e3 * f(ours) for f in (statistics.median, min))]
            row += [1e3 * f(theirs) for f in (statistics.median, min)] if theirs else [None, None]
            rows.append(row)
            ratio = f"{row[5] / row[3]:.1f} x" if theirs else "-"
            print(name, what, f"{n}x{d}", *(f"{v:.2f}" if v else "-" for v in row[3:]), ratio, file=sys.stderr, flush=True)

lines = [
    "| loss | batch | Gallerist, ms | compared with | its time, ms | ratio of medians | ratio of minima |",
    "| --- | --- | ---: | --- | ---: | ---: | ---: |",
]
for name, what, size, median, least, peer_median, peer_least in rows:
    if peer_median is None:
        theirs, ratios = "not run", "| – | – |"
    else:
        theirs = f"{peer_median:.2f} ({peer_least:.2f})"
        ratios = f"| {peer_median / median:.1f} | {peer_least / least:.1f} |"
    lines.append(f"| `{name}` | {size} | {median:.2f} ({least:.2f}) | {what} | {theirs} {ratios}")
table = "\n".join(lines) + "\n"
print(table)
if arguments.markdown:
    with open(arguments.markdown, "a") as file:
        file.write(table)
