"""Exchanges some labels of a set of embeddings and measures what finds them: `gallerist data issues`, cleanlab, fastdup.

    python compare.py GALLERIST NAME=EMBEDDINGS[,EMBEDDINGS] ... [--share 0.05] [--seeds 1] [--peer cleanlab|fastdup]

A share of the rows, drawn by the seed, gets the label of another class, drawn uniformly. Printed for each method: the
rows it reports, their precision and recall, the average precision of its ranking of all rows, the share of the
exchanged rows found whose suggested label is the true one, and the wall time. Needs numpy, and cleanlab[datalab] or
fastdup.
"""

import argparse
import json
import struct
import subprocess
import sys
import tempfile
import time
import warnings
from pathlib import Path

import numpy as np


def load(path):
    data = Path(path).read_bytes()
    size = struct.unpack("<Q", data[:8])[0]
    header = json.loads(data[8 : 8 + size])

    def tensor(name):
        start, end = header[name]["data_offsets"]
        return data[8 + size + start : 8 + size + end]

    rows = np.frombuffer(tensor("embeddings"), np.float32).reshape(header["embeddings"]["shape"])
    labels = tensor("labels")
    return rows, json.loads(labels) if labels[:1] == b"[" else labels.decode().split("\n")


def write_npy(rows, path):
    with open(path, "wb") as file:
        np.save(file, rows)


def average_precision(scores, wrong):
    order = np.argsort(-scores, kind="stable")
    hits = wrong[order]
    precision = np.cumsum(hits) / np.arange(1, len(hits) + 1)
    return precision[hits].mean()


def report(name, method, seconds, wrong, truth, flagged, scores, suggested):
    found = flagged & wrong
    right = np.mean(suggested[found] == truth[found]) if found.any() else 0.0
    print(
        f"| {name} | {method} | {flagged.sum():,} | {found.sum() / max(flagged.sum(), 1):.3f} | "
        f"{found.sum() / wrong.sum():.3f} | {average_precision(scores, wrong):.3f} | {right:.3f} | {seconds:.1f} |",
        flush=True,
    )


def gallerist(program, rows, labels, folder):
    write_npy(rows, folder / "rows.npy")
    (folder / "labels.txt").write_text("".join(f"{label}\n" for label in labels))

    def run(*options):
        command = [program, "data", "issues", "--embeddings", folder / "rows.npy", "--labels", folder / "labels.txt"]
        command += ["--out", folder / "out", "--metric", "cosine", "--shown", "1", "--json", *options]
        begun = time.perf_counter()
        done = subprocess.run([str(part) for part in command], capture_output=True, text=True)
        if done.returncode != 0:
            sys.exit(done.stderr)
        return json.loads(done.stdout), time.perf_counter() - begun

    found, seconds = run()
    ranked, _ = run("--probability", "0")
    flagged = np.zeros(len(rows), bool)
    flagged[[suspect["image"]["row"] for suspect in found["wrong_labels"]]] = True
    scores, suggested = np.full(len(rows), -1.0), np.full(len(rows), -1)
    for rank, suspect in enumerate(ranked["wrong_labels"]):
        row = suspect["image"]["row"]
        scores[row], suggested[row] = len(rows) - rank, int(suspect["suggested"])
    return seconds, flagged, scores, suggested


def datalab(rows, labels):
    from cleanlab import Datalab

    begun = time.perf_counter()
    lab = Datalab(data={"label": labels}, label_name="label", verbosity=0)
    lab.find_issues(features=rows, issue_types={"label": {}})
    issues = lab.get_issues("label")
    seconds = time.perf_counter() - begun
    suggested = issues["predicted_label"].to_numpy().astype(int)
    return seconds, issues["is_label_issue"].to_numpy(), -issues["label_score"].to_numpy(), suggested


def fastdup(rows, labels):
    """The rule of fastdup's gallery of labels: the share of the 5 nearest neighbours with the label of the image; an image
    without any is reported. Equal shares are ordered by the mean similarity of the neighbours with other labels."""
    import pandas

    import fastdup as peer

    with tempfile.TemporaryDirectory() as folder:
        names = [f"{row:08}.jpg" for row in range(len(rows))]
        table = pandas.DataFrame({"filename": names, "label": labels.astype(str)})
        begun = time.perf_counter()
        run = peer.create(work_dir=f"{folder}/work", input_dir=folder)
        # A threshold below every similarity keeps all neighbours.
        run.run(annotations=table, embeddings=np.ascontiguousarray(rows), nearest_neighbors_k=5, threshold=-1.0,
                num_threads=2)
        found = run.similarity()
        seconds = time.perf_counter() - begun
    first = found["filename_from"].str[:8].astype(int).to_numpy()
    second = found["filename_to"].str[:8].astype(int).to_numpy()
    similarity = found["distance"].to_numpy()
    neighbours = np.bincount(first, minlength=len(rows))
    other = labels[first] != labels[second]
    different = np.bincount(first[other], minlength=len(rows))
    closeness = np.bincount(first[other], weights=similarity[other], minlength=len(rows)) / np.maximum(different, 1)
    scores = different / np.maximum(neighbours, 1) + 1e-3 * closeness
    votes = np.zeros((len(rows), labels.max() + 1), np.int32)
    np.add.at(votes, (first, labels[second]), 1)
    return seconds, (neighbours > 0) & (different == neighbours), scores, votes.argmax(axis=1)


PEERS = {"cleanlab": ("cleanlab Datalab (features)", datalab), "fastdup": ("fastdup (5 neighbours)", fastdup)}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("gallerist")
    parser.add_argument("sets", nargs="+")
    parser.add_argument("--share", type=float, default=0.05)
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--peer", choices=PEERS, nargs="+", default=["cleanlab"])
    args = parser.parse_args()
    warnings.filterwarnings("ignore")
    print("| set | method | reported | precision | recall | average precision | suggestion right | seconds |")
    print("| --- | --- | --- | --- | --- | --- | --- | --- |")
    for given in args.sets:
        name, files = given.split("=", 1)
        parts = [load(file) for file in files.split(",")]
        rows = np.concatenate([part[0] for part in parts])
        rows = rows / np.linalg.norm(rows, axis=1, keepdims=True)
        _, truth = np.unique([label for part in parts for label in part[1]], return_inverse=True)
        classes = truth.max() + 1
        for seed in range(1, args.seeds + 1):
            random = np.random.default_rng(seed)
            wrong = np.zeros(len(rows), bool)
            wrong[random.choice(len(rows), round(args.share * len(rows)), replace=False)] = True
            labels = truth.copy()
            labels[wrong] = (truth[wrong] + 1 + random.integers(classes - 1, size=wrong.sum())) % classes
            title = f"{name}, seed {seed}"
            with tempfile.TemporaryDirectory() as folder:
                found = gallerist(args.gallerist, rows, labels, Path(folder))
            report(title, "gallerist", found[0], wrong, truth, *found[1:])
            for peer in args.peer:
                method, find = PEERS[peer]
                found = find(rows, labels)
                report(title, method, found[0], wrong, truth, *found[1:])


if __name__ == "__main__":
    main()
