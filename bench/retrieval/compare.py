"""Times exact search and evaluation beside faiss-cpu and PyTorch: see README.md."""

import argparse
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

# name, (rows, cols) of the queries, (rows, cols) of the gallery or None for self-search, ks
CASES = [
    ("self 60,502 x 512", (60_502, 512), None, [11, 100, 1000]),
    ("self 13,180 x 64", (13_180, 64), None, [11, 100, 1000]),
    ("14,218 in 12,612 x 128", (14_218, 128), (12_612, 128), [11, 100, 1000]),
]
FEW = ("1,000,000 x 128", (1_000_000, 128), [1, 16], 10)


def unit_rows(shape, seed):
    rows = np.random.default_rng(seed).standard_normal(shape, dtype=np.float32)
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


def peer_main(arguments):
    """One search by a peer, in a process of its own: prints seconds and peak memory in KiB."""
    peer, queries, gallery, k, few = arguments
    k, few = int(k), int(few)
    queries = np.load(queries)
    gallery = queries if gallery == "-" else np.load(gallery)
    if peer == "faiss":
        import faiss

        faiss.omp_set_num_threads(2)
        index = faiss.IndexFlatIP(gallery.shape[1])
        index.add(gallery)
        search = lambda rows: index.search(rows, k)
    else:
        import torch

        torch.set_num_threads(2)
        columns = torch.from_numpy(gallery).T
        def search(rows):
            # 1,024 queries at a time: the full product would not fit memory.
            for part in torch.from_numpy(rows).split(1024):
                torch.topk(part @ columns, min(k, len(gallery)), dim=1)
    if few:
        seconds = float("inf")
        for repeat in range(40):
            first = repeat * few % (len(queries) - few)
            batch = np.ascontiguousarray(queries[first : first + few])
            start = time.perf_counter()
            search(batch)
            seconds = min(seconds, time.perf_counter() - start)
    else:
        start = time.perf_counter()
        search(queries)
        seconds = time.perf_counter() - start
    print(f"{seconds:.6f} {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss}")


def run(command):
    """(seconds, processor seconds, peak MiB) of one process that prints seconds and KiB."""
    environment = {
        **os.environ,
        "OPENBLAS_CORETYPE": os.environ.get("GALLERIST_CORETYPE", "SkylakeX"),
        "OMP_NUM_THREADS": "2",
        "OPENBLAS_NUM_THREADS": "2",
        "RAYON_NUM_THREADS": "2",
    }
    before = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime
    output = subprocess.run(
        command, env=environment, check=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    ).stdout.split()
    processor = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime - before
    return float(output[0]), processor, int(output[1]) / 1024


def compare(name, commands, repeats):
    results = {program: [] for program in commands}
    for _ in range(repeats):
        for program, command in commands.items():
            results[program].append(run(command))
    ours = min(results["gallerist"])[0]
    for program, runs in results.items():
        seconds, processor, memory = min(runs)
        print(
            f"{name:36} {program:10} {seconds:9.4f} s {processor:8.2f} cpu s {memory:8.0f} MiB"
            f"   {seconds / ours:5.2f}",
            flush=True,
        )


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--program", required=True, help="the built example `search_bench`")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--peers", nargs="*", default=["faiss", "torch"])
    parser.add_argument("--only", default="", help="run only the cases whose name contains this")
    options = parser.parse_args()
    peer = lambda name, *rest: [sys.executable, __file__, "peer", name, *map(str, rest)]
    print(f"{'case':36} {'program':10} {'wall':>11} {'':>14} {'peak':>12}   ratio to gallerist")
    with tempfile.TemporaryDirectory() as folder:
        def stored(shape, seed):
            path = Path(folder) / f"{shape[0]}x{shape[1]}-{seed}.npy"
            if not path.exists():
                np.save(path, unit_rows(shape, seed))
            return str(path)

        for name, query_shape, gallery_shape, ks in CASES:
            if options.only not in name:
                continue
            queries = stored(query_shape, 0)
            gallery = stored(gallery_shape, 1) if gallery_shape else "-"
            for k in ks:
                # Peers have no self-exclusion: their k includes the row itself, and so does ours.
                mode = ["self", queries] if gallery == "-" else ["split", queries, gallery]
                commands = {"gallerist": [options.program, *mode, str(k)]}
                commands |= {p: peer(p, queries, gallery, k, 0) for p in options.peers}
                compare(f"{name}, k = {k}", commands, options.repeats)
        name, shape, batches, k = FEW
        if options.only in name:
            queries, gallery = stored((2_000, shape[1]), 0), stored(shape, 1)
            for rows in batches:
                commands = {"gallerist": [options.program, "few", queries, gallery, str(k), str(rows)]}
                commands |= {p: peer(p, queries, gallery, k, rows) for p in options.peers}
                compare(f"{rows} in {name}, k = {k}", commands, options.repeats)
        if options.only in "evaluate":
            labels = Path(folder) / "labels.npy"
            np.save(labels, np.sort(np.random.default_rng(2).integers(0, 11_316, 60_502)))
            command = [options.program, "evaluate", stored((60_502, 512), 0), str(labels)]
            compare("evaluate 60,502 x 512", {"gallerist": command}, options.repeats)


if __name__ == "__main__":
    peer_main(sys.argv[2:]) if sys.argv[1:2] == ["peer"] else main()
