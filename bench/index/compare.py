"""Recall and speed of approximate search, compared with faiss, hnswlib and usearch: see docs/benchmarks/index.md."""

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import time
from pathlib import Path

os.environ.setdefault("OPENBLAS_CORETYPE", "SkylakeX")
THREADS = 2
os.environ["OMP_NUM_THREADS"] = os.environ["RAYON_NUM_THREADS"] = str(THREADS)

import numpy as np

K = 10
M = 16
EF_CONSTRUCTION = 100
EFS = [16, 32, 64, 128, 256]


def mixture(random, rows, dimensions, centres, scales, noise):
    """Unit rows around class centres; a few directions hold most of the variance, as in trained embeddings."""
    label = random.integers(0, len(centres), rows)
    values = centres[label] + noise * scales * random.standard_normal((rows, dimensions), dtype=np.float32)
    return values / np.linalg.norm(values, axis=1, keepdims=True), label


def make(folder, rows, queries, dimensions=128, per_class=100):
    random = np.random.default_rng(1)
    scales = (np.arange(1, dimensions + 1) ** -0.5).astype(np.float32)
    centres = scales * random.standard_normal((rows // per_class, dimensions), dtype=np.float32)
    gallery, label = mixture(random, rows, dimensions, centres, scales, 0.7)
    np.save(folder / "rows.npy", gallery)
    queries, query_label = mixture(random, queries, dimensions, centres, scales, 0.7)
    np.save(folder / "queries.npy", queries)
    import faiss

    truth = faiss.IndexFlatIP(dimensions)
    truth.add(gallery)
    lists = np.vstack([truth.search(queries[i : i + 500], K)[1] for i in range(0, len(queries), 500)])
    np.save(folder / "truth.npy", lists)
    same = gallery[label == 0]
    cosines = same @ same.T
    print(
        f"{rows:,} x {dimensions}, {len(centres):,} classes; cosine within a class "
        f"{cosines[np.triu_indices(len(same), 1)].mean():.2f}, between two rows "
        f"{(gallery[:1000] @ gallery[-1000:].T).mean():.2f}; precision@10 of exact search "
        f"{(label[lists] == query_label[:, None]).mean():.3f}"
    )


def recall(folder, lists):
    truth = np.load(folder / "truth.npy")
    return float(np.mean([len(set(a) & set(b)) / K for a, b in zip(truth, lists)]))


def peak_mib():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def faiss_build(folder):
    import faiss

    faiss.omp_set_num_threads(THREADS)
    rows = np.load(folder / "rows.npy")
    index = faiss.IndexHNSWFlat(rows.shape[1], M, faiss.METRIC_INNER_PRODUCT)
    index.hnsw.efConstruction = EF_CONSTRUCTION
    start = time.perf_counter()
    index.add(rows)
    seconds = time.perf_counter() - start
    peak = peak_mib()
    faiss.write_index(index, str(folder / "faiss.index"))
    return seconds, peak


def faiss_open(folder):
    import faiss

    faiss.omp_set_num_threads(THREADS)
    index = faiss.read_index(str(folder / "faiss.index"))

    def search(queries, ef):
        return index.search(queries, K, params=faiss.SearchParametersHNSW(efSearch=ef))[1]

    return search


def hnswlib_build(folder):
    import hnswlib

    rows = np.load(folder / "rows.npy")
    index = hnswlib.Index("ip", rows.shape[1])
    start = time.perf_counter()
    index.init_index(len(rows), ef_construction=EF_CONSTRUCTION, M=M, random_seed=1)
    index.add_items(rows, num_threads=THREADS)
    seconds = time.perf_counter() - start
    peak = peak_mib()
    index.save_index(str(folder / "hnswlib.index"))
    return seconds, peak


def hnswlib_open(folder):
    import hnswlib

    index = hnswlib.Index("ip", np.load(folder / "rows.npy", mmap_mode="r").shape[1])
    index.load_index(str(folder / "hnswlib.index"))
    index.set_num_threads(THREADS)

    def search(queries, ef):
        index.set_ef(ef)
        return index.knn_query(queries, K)[0]

    return search


def usearch_build(folder):
    from usearch.index import Index

    rows = np.load(folder / "rows.npy")
    options = dict(ndim=rows.shape[1], metric="ip", dtype="f32", connectivity=M)
    index = Index(**options, expansion_add=EF_CONSTRUCTION)
    start = time.perf_counter()
    index.add(np.arange(len(rows)), rows, threads=THREADS)
    seconds = time.perf_counter() - start
    peak = peak_mib()
    index.save(str(folder / "usearch.index"))
    return seconds, peak


def usearch_open(folder):
    from usearch.index import Index

    index = Index.restore(str(folder / "usearch.index"))

    def search(queries, ef):
        index.expansion_search = ef
        return index.search(queries, K, threads=THREADS).keys

    return search


PEERS = {
    "faiss": (faiss_build, faiss_open),
    "hnswlib": (hnswlib_build, hnswlib_open),
    "usearch": (usearch_build, usearch_open),
}


def search_peer(folder, name, repeats, efs):
    queries = np.load(folder / "queries.npy")
    search = PEERS[name][1](folder)
    for ef in efs:
        seconds = []
        for _ in range(repeats):
            start = time.perf_counter()
            lists = search(queries, ef)
            seconds.append(time.perf_counter() - start)
        alone = []
        for row in range(min(1000, len(queries))):
            start = time.perf_counter()
            search(queries[row : row + 1], ef)
            alone.append(time.perf_counter() - start)
        line = {
            "ef": ef,
            "queries_per_second": len(queries) / statistics.median(seconds),
            "one_query_microseconds": statistics.median(alone) * 1e6,
            "peak_mib": peak_mib(),
            "recall": recall(folder, lists),
        }
        print(json.dumps({"name": name} | line), flush=True)


def everything(args):
    """Builds and searches with everyone, one process after the other, and prints the tables."""
    names = ["gallerist", *PEERS]
    rest = ["--folder", str(args.folder), "--program", args.program, "--repeats", str(args.repeats)]
    rest += ["--ef", *map(str, args.ef)]

    def step(what, name):
        run = [*args.prefix.split(), sys.executable, __file__, what, "--name", name, *rest]
        out = subprocess.run(run, check=True, stdout=subprocess.PIPE, text=True).stdout
        return [json.loads(line) for line in out.splitlines()]

    print("| | build, s | peak, MiB |\n| --- | ---: | ---: |")
    for name in names:
        (built,) = step("build", name)
        print(f"| {name} | {built['seconds']:.1f} | {built['peak_mib']:,.0f} |", flush=True)
    print("\n| | ef | recall@10 | queries/s | one query, us | peak, MiB |")
    print("| --- | ---: | ---: | ---: | ---: | ---: |")
    for name in [*names, "gallerist-mapped"]:
        for found in step("search", name):
            print(
                f"| {name} | {found['ef']} | {found['recall']:.4f} | {found['queries_per_second']:,.0f} | "
                f"{found['one_query_microseconds']:.0f} | {found['peak_mib']:,.0f} |",
                flush=True,
            )


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=["make", "build", "search", "all"])
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--queries", type=int, default=10_000)
    parser.add_argument("--name", choices=["gallerist", "gallerist-mapped", *PEERS])
    parser.add_argument("--program", help="the built example `index_bench`")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--ef", type=int, nargs="*", default=EFS)
    parser.add_argument("--prefix", default="", help="all: a command that runs each step, e.g. one that waits for quiet")
    args = parser.parse_args()
    folder = args.folder
    if args.what == "make":
        folder.mkdir(parents=True, exist_ok=True)
        make(folder, args.rows, args.queries)
    elif args.what == "all":
        everything(args)
    elif args.what == "build" and args.name == "gallerist":
        files = [str(folder / "rows.npy"), str(folder / "gallerist.index")]
        run = [args.program, "build", *files, str(M), str(EF_CONSTRUCTION)]
        found = json.loads(subprocess.run(run, check=True, capture_output=True).stdout)
        print(json.dumps({"name": args.name} | found))
    elif args.what == "build":
        seconds, peak = PEERS[args.name][0](folder)
        print(json.dumps({"name": args.name, "seconds": seconds, "peak_mib": peak}))
    elif args.name.startswith("gallerist"):
        files = [str(folder / "gallerist.index"), str(folder / "queries.npy")]
        out = str(folder / "lists")
        mode = "map" if args.name == "gallerist-mapped" else "search"
        run = [args.program, mode, *files, str(K), str(args.repeats), out, *map(str, args.ef)]
        done = subprocess.run(run, check=True, stdout=subprocess.PIPE, text=True)
        for line in map(json.loads, done.stdout.splitlines()):
            line["recall"] = recall(folder, np.load(f"{out}.{line['ef']}.npy"))
            print(json.dumps({"name": args.name} | line))
    else:
        search_peer(folder, args.name, args.repeats, args.ef)


if __name__ == "__main__":
    sys.exit(main())
