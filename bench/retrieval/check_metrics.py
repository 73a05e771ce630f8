"""Compares the metrics with naive NumPy, pytorch-metric-learning and scikit-learn: see README.md."""

import argparse
import json
import subprocess
import tempfile
from pathlib import Path

import numpy as np


def naive(embeddings, labels):
    rows = embeddings.astype(np.float64)
    scores = rows @ rows.T / np.outer(*[np.linalg.norm(rows, axis=1)] * 2)
    values = {name: [] for name in ["recall@1", "recall@10", "precision@1", "map@r", "r_precision", "map", "mrr"]}
    for query in range(len(rows)):
        # Scores that f32 cannot tell apart are ties; a stable sort leaves them by index.
        order = np.argsort(-np.round(scores[query], 12), kind="stable")
        relevant = labels[order[order != query]] == labels[query]
        total = relevant.sum()
        values["recall@1"].append(relevant[:1].any())
        values["recall@10"].append(relevant[:10].any())
        values["precision@1"].append(relevant[:1].mean())
        values["mrr"].append(1 / (1 + relevant.argmax()) if total else 0)
        if total:
            precision = np.cumsum(relevant) / np.arange(1, len(relevant) + 1)
            values["map@r"].append((precision * relevant)[:total].sum() / total)
            values["r_precision"].append(relevant[:total].mean())
            values["map"].append((precision * relevant).sum() / total)
    return {name: float(np.mean(list_)) for name, list_ in values.items()}


def ours(program, mode, embeddings, labels):
    with tempfile.TemporaryDirectory() as folder:
        paths = [str(Path(folder) / name) for name in ("rows.npy", "labels.npy")]
        np.save(paths[0], embeddings)
        np.save(paths[1], labels)
        run = subprocess.run([program, mode, *paths], check=True, capture_output=True)
        return json.loads(run.stderr)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--program", required=True, help="the built example `search_bench`")
    program = parser.parse_args().program
    random = np.random.default_rng(0)
    labels = random.integers(0, 60, 1_500)
    embeddings = random.standard_normal((60, 24))[labels] + random.standard_normal((1_500, 24))
    embeddings = embeddings.astype(np.float32)
    # 200 exact duplicates, half of them with another label.
    embeddings[1_300:] = embeddings[:200]
    labels[1_300:1_400] = labels[:100]

    found = ours(program, "evaluate", embeddings, labels)
    print(f"{found['ties']} queries with ties")
    worst = 0.0
    for name, wanted in naive(embeddings, labels).items():
        value = found["metrics"][name]
        worst = max(worst, abs(value - wanted))
        print(f"{name:14} {value:.12f}   naive {wanted:.12f}   {value - wanted:+.1e}")
    # Scores that differ by less than the rounding of f32 may change places, far down the lists.
    assert worst < 1e-7, "the metrics differ from the naive ones"

    try:
        import torch
        from pytorch_metric_learning.distances import CosineSimilarity
        from pytorch_metric_learning.utils.accuracy_calculator import AccuracyCalculator
        from pytorch_metric_learning.utils.inference import CustomKNN
    except ImportError:
        print("pytorch-metric-learning is not installed: skipped")
    else:
        # It leaves the order of ties to topk, so here without the duplicates.
        names = {"map@r": "mean_average_precision_at_r", "r_precision": "r_precision", "precision@1": "precision_at_1"}
        rows, classes = embeddings[:1_300], labels[:1_300]
        calculator = AccuracyCalculator(
            include=tuple(names.values()), k="max_bin_count", knn_func=CustomKNN(CosineSimilarity())
        )
        wanted = calculator.get_accuracy(torch.from_numpy(rows), torch.from_numpy(classes))
        value = ours(program, "evaluate", rows, classes)["metrics"]
        for name, theirs in names.items():
            print(f"{name:14} {value[name]:.12f}   pytorch-metric-learning {wanted[theirs]:.12f}")
            assert abs(value[name] - wanted[theirs]) < 1e-6

    from sklearn.cluster import KMeans
    from sklearn.metrics import adjusted_mutual_info_score, normalized_mutual_info_score

    value = ours(program, "cluster", embeddings, labels)
    rows = embeddings / np.linalg.norm(embeddings, axis=1, keepdims=True)
    clusters = [KMeans(60, init="random", n_init=1, max_iter=20, random_state=seed).fit_predict(rows) for seed in range(5)]
    for name, score in [("nmi", normalized_mutual_info_score), ("ami", adjusted_mutual_info_score)]:
        theirs = [score(labels, each) for each in clusters]
        print(f"{name:14} {value[name]:.4f}   scikit-learn, 5 seeds {min(theirs):.4f} to {max(theirs):.4f}")


if __name__ == "__main__":
    main()
