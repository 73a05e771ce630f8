"""Times exact search and evaluation, compared with faiss-cpu and PyTorch: see README.md."""

import argparse
import json
import os
import platform
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

MILLION = (1_000_000, 128)

# name: (what it is, shape of the queries, shape of the gallery or None for self-search, k, goal)
# The goal is faiss's time divided by ours.
SEARCHES = {
    f"{name}-k{k}": (f"{title}, k = {k}", queries, gallery, k, goals.get(k))
    for name, title, queries, gallery, goals in [
        ("self512", "60,502 x 512 against itself", (60_502, 512), None, {11: 1.6, 1000: 2.0}),
        ("split128", "14,218 in 12,612 x 128", (14_218, 128), (12_612, 128), {11: 1.1, 1000: 1.5}),
        ("self64", "13,180 x 64 against itself", (13_180, 64), None, {11: 1.6, 1000: 2.0}),
    ]
    for k in (11, 100, 1000)
}
# name: (what it is, queries at a time, k, goals by precision)
FEW = {
    "few1": ("1 query in 1,000,000 x 128, k = 10", 1, 10, {"f32": 1.2, "bf16": 2.0}),
    "few16": ("16 queries in 1,000,000 x 128, k = 10", 16, 10, {}),
}
EVALUATE_SECONDS = 7.0
ROWS = [*SEARCHES, *FEW, "evaluate"]


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

    def timed(rows):
        start = time.perf_counter()
        search(rows)
        return time.perf_counter() - start

    if few:
        firsts = [repeat * few % (len(queries) - few) for repeat in range(40)]
        seconds = statistics.median(timed(np.ascontiguousarray(queries[f : f + few])) for f in firsts)
    else:
        seconds = timed(queries)
    print(f"{seconds:.6f} {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss}")


def run(command):
    """The numbers that a process prints."""
    environment = {
        **os.environ,
        "OPENBLAS_CORETYPE": os.environ.get("GALLERIST_CORETYPE", "SkylakeX"),
        "OMP_NUM_THREADS": "2",
        "OPENBLAS_NUM_THREADS": "2",
        "RAYON_NUM_THREADS": "2",
    }
    output = subprocess.run(
        command, env=environment, check=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    ).stdout.split()
    return [float(number) for number in output]


class Bench:
    def __init__(self, options, folder):
        self.options, self.folder = options, folder
        peaks = run([options.program, "peak"])
        self.peak = dict(zip(("f32", "bf16", "bytes"), peaks))

    def stored(self, shape, seed):
        path = self.folder / f"{shape[0]}x{shape[1]}-{seed}.npy"
        if not path.exists():
            np.save(path, unit_rows(shape, seed))
        return str(path)

    def peers(self, queries, gallery, k, few):
        arguments = [queries, gallery, str(k), str(few)]
        return {p: [sys.executable, __file__, "peer", p, *arguments] for p in self.options.peers}

    def row(self, name):
        """Result records of one row, programs alternating."""
        goals, commands, amount, unit = {}, {}, None, None
        program = self.options.program
        if name in SEARCHES:
            title, query_shape, gallery_shape, k, goal = SEARCHES[name]
            queries = self.stored(query_shape, 0)
            # faiss and PyTorch cannot exclude the query itself: their k includes it, and so does ours.
            if gallery_shape is None:
                gallery, mode = "-", ["self", queries]
                # Useful work of a self-search: every pair once.
                amount = query_shape[0] ** 2 * query_shape[1]
            else:
                gallery = self.stored(gallery_shape, 1)
                mode = ["split", queries, gallery]
                amount = 2 * query_shape[0] * gallery_shape[0] * query_shape[1]
            unit, goals = "f32", {"gallerist f32": goal}
            commands["gallerist f32"] = [program, *mode, str(k)]
            commands |= self.peers(queries, gallery, k, 0)
        elif name in FEW:
            title, rows, k, few_goals = FEW[name]
            queries, gallery = self.stored((2_000, MILLION[1]), 0), self.stored(MILLION, 1)
            for precision in ("f32", "bf16", "int8"):
                mode = ["few", queries, gallery, str(k), str(rows), precision]
                commands[f"gallerist {precision}"] = [program, *mode]
                goals[f"gallerist {precision}"] = few_goals.get(precision)
            amount, unit = MILLION[0] * MILLION[1], "bytes"
            commands |= self.peers(queries, gallery, k, rows)
        else:
            title = "all metrics on 60,502 x 512"
            labels = self.folder / "labels.npy"
            np.save(labels, np.sort(np.random.default_rng(2).integers(0, 11_316, 60_502)))
            commands["gallerist f32"] = [program, "evaluate", self.stored((60_502, 512), 0), str(labels)]
            amount, unit = 60_502**2 * 512, "f32"

        if self.options.repeats == 0:
            return []
        runs = {command: [] for command in commands}
        for _ in range(self.options.repeats):
            for label, command in commands.items():
                runs[label].append(run(command))
        medians = {label: statistics.median(r[0] for r in all) for label, all in runs.items()}
        records = []
        for label, all in runs.items():
            record = {
                "row": title,
                "program": label,
                "seconds": medians[label],
                "least": min(r[0] for r in all),
                "mib": max(r[1] for r in all) / 1024,
            }
            if label.startswith("gallerist"):
                record["goal"] = goals.get(label)
                bytes_each = {"gallerist f32": 4, "gallerist bf16": 2, "gallerist int8": 1}[label]
                work = amount * bytes_each if unit == "bytes" else amount
                record["share"] = work / medians[label] / self.peak[unit]
                record["of"] = "memory" if unit == "bytes" else unit
                for peer in self.options.peers:
                    if peer in medians:
                        record[peer] = medians[peer] / medians[label]
            records.append(record)
        return records


def table(records):
    """The records as a Markdown table, and the rows that fall short of their goal."""
    print("| case | program | seconds (least) | faiss / ours | torch / ours | goal | share of peak | peak MiB |")
    print("| --- | --- | ---: | ---: | ---: | ---: | ---: | ---: |")
    short = []
    for r in records:
        number = lambda key, form: form.format(r[key]) if r.get(key) is not None else ""
        print(
            f"| {r['row']} | {r['program']} | {r['seconds']:.4f} ({r['least']:.4f}) "
            f"| {number('faiss', '{:.2f}')} | {number('torch', '{:.2f}')} | {number('goal', '{:.1f}')} "
            f"| {number('share', '{:.0%}')} {r.get('of', '')} | {r['mib']:.0f} |"
        )
        if r.get("goal") and r.get("faiss", r["goal"]) < r["goal"]:
            short.append(f"{r['row']} ({r['program']}): {r['faiss']:.2f} of {r['goal']}")
        if r["row"].startswith("all metrics") and r["seconds"] > EVALUATE_SECONDS:
            short.append(f"{r['row']}: {r['seconds']:.1f} s of {EVALUATE_SECONDS} s")
    print("\nshort of the goal:", "; ".join(short) if short else "none")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--program", help="the built example `search_bench`")
    parser.add_argument("--repeats", type=int, default=3, help="0: only make the data")
    parser.add_argument("--peers", nargs="*", default=["faiss", "torch"])
    parser.add_argument("--row", nargs="*", choices=ROWS, default=ROWS, help="only these rows")
    parser.add_argument("--data", type=Path, help="where the data are kept [default: a temporary folder]")
    parser.add_argument("--results", type=Path, help="add each record to this file, one JSON object a line")
    parser.add_argument("--table", type=Path, help="print the table of a file of results and exit")
    options = parser.parse_args()
    if options.table:
        return table([json.loads(line) for line in options.table.read_text().splitlines()])
    with tempfile.TemporaryDirectory() as folder:
        if options.data:
            options.data.mkdir(parents=True, exist_ok=True)
        bench = Bench(options, options.data or Path(folder))
        print(
            f"{platform.machine()}, 2 threads; measured peaks: {bench.peak['f32'] / 1e9:.0f} GF/s in f32, "
            f"{bench.peak['bf16'] / 1e9:.0f} in bf16, {bench.peak['bytes'] / 1e9:.0f} GB/s read\n"
        )
        records = []
        for name in options.row:
            records += bench.row(name)
            if options.results and records:
                with options.results.open("a") as file:
                    file.writelines(json.dumps(r) + "\n" for r in records)
                table(records)
                records = []
        if records:
            table(records)


if __name__ == "__main__":
    peer_main(sys.argv[2:]) if sys.argv[1:2] == ["peer"] else main()
