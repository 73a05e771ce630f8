"""Compares `gallerist evaluate` with naive NumPy in f64, with pytorch-metric-learning and scikit-learn, and
with the formulas of the re-identification scripts and of k-reciprocal re-ranking: see README.md."""

import argparse
import json
import subprocess
import tempfile
from pathlib import Path

import numpy as np

WORST = 1e-7  # scores that differ by less than the rounding of f32 may change places, far down the lists


def run(program, *arguments, **arrays):
    """The report of one evaluation; every array is written and given as the option of its name."""
    with tempfile.TemporaryDirectory() as folder:
        command = [program, "evaluate", "--json", *map(str, arguments)]
        for name, array in arrays.items():
            text = isinstance(array[0], str)
            path = Path(folder) / f"{name}.{'txt' if text else 'npy'}"
            path.write_text("\n".join(array)) if text else np.save(path, array)
            command += [f"--{name.replace('_', '-')}", str(path)]
        done = subprocess.run(command, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)


class Check:
    """Prints each comparison and keeps what disagreed."""

    def __init__(self):
        self.failed = []

    def close(self, what, found, wanted, tolerance=WORST):
        fine = abs(found - wanted) <= tolerance
        print(f"{'  ok ' if fine else 'DIFFERS'} {what:58} {found:.10f}  {wanted:.10f}  {found - wanted:+.1e}")
        if not fine:
            self.failed.append(what)


def unit(rows):
    rows = rows.astype(np.float64)
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


def cosines(queries, gallery):
    # Scores that f32 cannot tell apart are ties; a stable sort leaves them by index.
    return np.round(unit(queries) @ unit(gallery).T, 12)


def rankings(scores, relevant, skipped):
    """The relevance of what each query finds, in order; `skipped` takes up no rank."""
    for query in range(len(scores)):
        order = np.argsort(-scores[query], kind="stable")
        yield relevant[query][order[~skipped[query][order]]]


def naive(scores, grades, skipped):
    values = {}

    def add(name, value):
        values.setdefault(name, []).append(value)

    for found in rankings(scores, grades, skipped):
        hits, total = found > 0, (found > 0).sum()
        for k in (1, 10):
            add(f"recall@{k}", hits[:k].any())
        add("precision@1", hits[:1].mean())
        add("mrr", 1 / (1 + hits.argmax()) if total else 0)
        if not total:
            continue
        precision = np.cumsum(hits) / np.arange(1, len(hits) + 1)
        add("map@r", (precision * hits)[:total].sum() / total)
        add("r_precision", hits[:total].mean())
        add("map", (precision * hits).sum() / total)
        before = np.concatenate([[1.0], precision[:-1]])
        add("map_trapezoid", ((before + precision) / 2 * hits).sum() / total)
        for k in (1, 5):
            add(f"cmc@{k}", hits[:k].any())
        for name, gain in (("ndcg", found), ("ndcg_exp", 2.0**found - 1)):
            for k, suffix in ((len(found), ""), (10, "@10")):
                discount = 1 / np.log2(np.arange(2, len(found) + 2))
                ideal = np.sort(gain)[::-1]
                add(name + suffix, (gain * discount)[:k].sum() / (ideal * discount)[:k].sum())
    return {name: float(np.mean(of)) for name, of in values.items()}


def torchreid_market(distmat, q_pids, g_pids, q_camids, g_camids, max_rank):
    """eval_market1501 of torchreid: CMC and mAP (the sum form), in its own steps."""
    indices = np.argsort(distmat, axis=1, kind="stable")
    matches = (g_pids[indices] == q_pids[:, np.newaxis]).astype(np.int32)
    all_cmc, all_ap = [], []
    for q in range(len(distmat)):
        order = indices[q]
        keep = ~((g_pids[order] == q_pids[q]) & (g_camids[order] == q_camids[q]))
        raw_cmc = matches[q][keep]
        if not np.any(raw_cmc):
            continue
        cmc = raw_cmc.cumsum()
        cmc[cmc > 1] = 1
        all_cmc.append(np.pad(cmc, (0, max(0, max_rank - len(cmc))), mode="edge")[:max_rank])
        tmp_cmc = [x / (i + 1.0) for i, x in enumerate(raw_cmc.cumsum())] * raw_cmc
        all_ap.append(np.sum(tmp_cmc) / raw_cmc.sum())
    return np.asarray(all_cmc).astype(np.float64).mean(axis=0), np.mean(all_ap)


def market_compute_ap(distmat, q_pids, g_pids, q_camids, g_camids):
    """compute_AP.m of the Market-1501 script: trapezoids, junk left out."""
    aps = []
    for q in range(len(distmat)):
        good = (g_pids == q_pids[q]) & (g_camids != q_camids[q])
        junk = (g_pids == -1) | ((g_pids == q_pids[q]) & (g_camids == q_camids[q]))
        old_recall, old_precision, ap, intersect, j, good_now = 0.0, 1.0, 0.0, 0, 0, 0
        for item in np.argsort(distmat[q], kind="stable"):
            if junk[item]:
                continue
            good_now += good[item]
            intersect = good_now
            recall, precision = intersect / good.sum() if good.any() else 0, intersect / (j + 1)
            ap += (recall - old_recall) * (old_precision + precision) / 2
            old_recall, old_precision, j = recall, precision, j + 1
        if good.any():
            aps.append(ap)
    return np.mean(aps)


def published_re_ranking(q_g_dist, q_q_dist, g_g_dist, k1=20, k2=6, lambda_value=0.3):
    """re_ranking of the published code (Zhong et al. 2017), in f64 and with a stable sort."""
    original_dist = np.concatenate(
        [np.concatenate([q_q_dist, q_g_dist], axis=1), np.concatenate([q_g_dist.T, g_g_dist], axis=1)], axis=0
    )
    original_dist = np.power(original_dist, 2)
    original_dist = np.transpose(original_dist / np.max(original_dist, axis=0))
    V = np.zeros_like(original_dist)
    initial_rank = np.argsort(np.round(original_dist, 12), axis=1, kind="stable")
    query_num, all_num = q_g_dist.shape[0], len(original_dist)

    def reciprocal(i, k):
        forward = initial_rank[i, : k + 1]
        backward = initial_rank[forward, : k + 1]
        return forward[np.where(backward == i)[0]]

    for i in range(all_num):
        index = reciprocal(i, k1)
        expansion = index
        for candidate in index:
            candidates = reciprocal(candidate, int(np.around(k1 / 2)))
            if len(np.intersect1d(candidates, index)) > 2.0 / 3 * len(candidates):
                expansion = np.append(expansion, candidates)
        expansion = np.unique(expansion)
        weight = np.exp(-original_dist[i, expansion])
        V[i, expansion] = weight / np.sum(weight)
    original_dist = original_dist[:query_num]
    if k2 != 1:
        V = np.stack([np.mean(V[initial_rank[i, :k2]], axis=0) for i in range(all_num)])
    jaccard = np.zeros_like(original_dist)
    for i in range(query_num):
        minima = np.minimum(V[i], V).sum(axis=1)
        jaccard[i] = 1 - minima / (2 - minima)
    return (jaccard * (1 - lambda_value) + original_dist * lambda_value)[:, query_num:]


def euclidean(a, b):
    return np.sqrt(np.maximum(2 - 2 * unit(a) @ unit(b).T, 0))


METRICS = (
    "recall@1,recall@10,precision@1,mrr,map@r,r_precision,map,map_trapezoid,cmc@1,cmc@5,ndcg,ndcg@10,ndcg_exp,ndcg_exp@10"
)


def duplicates_and_ties(program, check, random):
    labels = random.integers(0, 60, 1_500)
    rows = random.standard_normal((60, 24))[labels] + random.standard_normal((1_500, 24))
    rows = rows.astype(np.float32)
    # 200 exact duplicates, half of them with another label.
    rows[1_300:] = rows[:200]
    labels[1_300:1_400] = labels[:100]
    found = run(program, "--metrics", METRICS, embeddings=rows, labels=labels)
    print(f"classes, every row against the others: {found['ties']} queries with ties")
    assert found["ties"] > 50
    grades = (labels[:, np.newaxis] == labels).astype(int)
    for name, wanted in naive(cosines(rows, rows), grades, np.eye(len(rows), dtype=bool)).items():
        check.close(f"{name} / naive NumPy", found["metrics"][name], wanted)

    sets = [frozenset(random.choice(12, random.integers(1, 4), replace=False)) for _ in range(1_500)]
    found = run(program, "--metrics", METRICS, embeddings=rows, labels=["|".join(map(str, s)) for s in sets])
    grades = np.array([[len(a & b) for b in sets] for a in sets])
    print(f"label sets: {found['ties']} queries with ties")
    for name, wanted in naive(cosines(rows, rows), grades, np.eye(len(rows), dtype=bool)).items():
        check.close(f"{name}, label sets / naive NumPy", found["metrics"][name], wanted)
    return rows, labels


def re_identification(program, check, random):
    """Queries, a gallery with junk and distractors, cameras; duplicates in the gallery."""
    identities = random.integers(1, 41, 120), random.integers(-1, 41, 900)
    cameras = random.integers(0, 4, 120), random.integers(0, 4, 900)
    centres = random.standard_normal((42, 16))
    queries, gallery = (
        (centres[of + 1] + 1.5 * random.standard_normal((len(of), 16))).astype(np.float32) for of in identities
    )
    gallery[800:] = gallery[:100]
    arrays = dict(
        query=queries,
        gallery=gallery,
        query_labels=identities[0],
        gallery_labels=identities[1],
        query_cameras=cameras[0],
        gallery_cameras=cameras[1],
    )
    found = run(program, "--protocol", "market1501", "--rerank", "k_reciprocal", "--multi-query", "average", **arrays)
    distances = -cosines(queries, gallery)
    kept = identities[1] != -1
    assert found["gallery"] == kept.sum()
    print(f"cameras and junk: {found['ties']} queries with ties, {found['queries_without_match']} without a match")

    def scripts(what, metrics, distances, labels_q, cams_q):
        # torchreid never loads junk; the Market-1501 script passes over it.
        cmc, mean_ap = torchreid_market(
            distances[:, kept], labels_q, identities[1][kept], cams_q, cameras[1][kept], 10
        )
        for k in (1, 5, 10):
            check.close(f"cmc@{k}{what} / torchreid", metrics[f"cmc@{k}"], cmc[k - 1])
        check.close(f"map{what} / torchreid", metrics["map"], mean_ap)
        wanted = market_compute_ap(distances, labels_q, identities[1], cams_q, cameras[1])
        check.close(f"map_trapezoid{what} / compute_AP.m", metrics["map_trapezoid"], wanted)

    scripts("", found["metrics"], distances, identities[0], cameras[0])

    # The published code has no junk in its matrices.
    left = gallery[kept]
    final = published_re_ranking(euclidean(queries, left), euclidean(queries, queries), euclidean(left, left))
    ranked = np.full(distances.shape, np.inf)
    ranked[:, kept] = np.round(final, 7)
    # Duplicates that are their own first neighbours only by the lower index change a few vectors.
    reranked = found["reranked"]["metrics"]
    cmc, mean_ap = torchreid_market(ranked[:, kept], identities[0], identities[1][kept], cameras[0], cameras[1][kept], 10)
    check.close("map, re-ranked, duplicates / published code", reranked["map"], mean_ap, 2e-3)

    groups = sorted({(i, c) for i, c in zip(*(of.tolist() for of in (identities[0], cameras[0])))})
    pooled = np.stack([unit(queries)[(identities[0] == i) & (cameras[0] == c)].mean(axis=0) for i, c in groups])
    labels_q, cams_q = np.array(groups).T
    scripts(", multi-query", found["multi_query"]["metrics"], -cosines(pooled, gallery), labels_q, cams_q)

    # Without duplicates the published code has no choice to make.
    del arrays["gallery"]
    gallery[800:] = (centres[identities[1][800:] + 1] + 1.5 * random.standard_normal((100, 16))).astype(np.float32)
    found = run(program, "--protocol", "market1501", "--rerank", "k_reciprocal", gallery=gallery, **arrays)
    left = gallery[kept]
    final = published_re_ranking(euclidean(queries, left), euclidean(queries, queries), euclidean(left, left))
    cmc, mean_ap = torchreid_market(final, identities[0], identities[1][kept], cameras[0], cameras[1][kept], 10)
    reranked = found["reranked"]["metrics"]
    check.close("map, re-ranked / published code", reranked["map"], mean_ap, 1e-6)
    check.close("cmc@1, re-ranked / published code", reranked["cmc@1"], cmc[0], 1e-6)


def query_expansion(program, check, rows, labels):
    found = run(program, "--query-expansion", 5, "--alpha", 3, "--metrics", "map,recall@1", embeddings=rows, labels=labels)
    normal, scores = unit(rows), cosines(rows, rows)
    np.fill_diagonal(scores, -np.inf)
    expanded = normal.copy()
    for query in range(len(rows)):
        for item in np.argsort(-scores[query], kind="stable")[:5]:
            expanded[query] += max(scores[query, item], 0) ** 3 * normal[item]
    grades = (labels[:, np.newaxis] == labels).astype(int)
    wanted = naive(cosines(expanded, rows), grades, np.eye(len(rows), dtype=bool))
    check.close("map, alpha-QE / naive NumPy", found["expanded"]["metrics"]["map"], wanted["map"], 1e-5)
    check.close("recall@1, alpha-QE / naive NumPy", found["expanded"]["metrics"]["recall@1"], wanted["recall@1"], 1e-3)


def peers(program, check, rows, labels):
    import torch
    from pytorch_metric_learning.distances import CosineSimilarity
    from pytorch_metric_learning.utils.accuracy_calculator import AccuracyCalculator
    from pytorch_metric_learning.utils.inference import CustomKNN
    from sklearn.metrics import adjusted_mutual_info_score, normalized_mutual_info_score, roc_auc_score, roc_curve

    # It leaves the order of ties to topk, so here without the duplicates.
    rows, labels = rows[:1_300], labels[:1_300]
    names = {
        "map@r": "mean_average_precision_at_r",
        "map": "mean_average_precision",
        "r_precision": "r_precision",
        "precision@1": "precision_at_1",
        "mrr": "mean_reciprocal_rank",
    }
    found = run(program, "--metrics", ",".join(names), "--verification", "--cluster", embeddings=rows, labels=labels)
    for k, some in (("max_bin_count", ["map@r", "r_precision", "precision@1"]), (None, ["map", "mrr"])):
        calculator = AccuracyCalculator(
            include=tuple(names[name] for name in some),
            k=k or len(rows) - 1,
            knn_func=CustomKNN(CosineSimilarity()),
        )
        wanted = calculator.get_accuracy(torch.from_numpy(rows), torch.from_numpy(labels))
        for name in some:
            # It computes in f32.
            theirs = float(wanted[names[name]])
            check.close(f"{name} / pytorch-metric-learning", found["metrics"][name], theirs, 1e-6)

    i, j = np.triu_indices(len(rows), 1)
    scores, genuine = (unit(rows) @ unit(rows).T)[i, j], labels[i] == labels[j]
    verification = found["verification"]
    check.close("auc / scikit-learn", verification["auc"], roc_auc_score(genuine, scores))
    far, tar, _ = roc_curve(genuine, scores, drop_intermediate=False)
    for point in verification["tar_at_far"]:
        wanted = tar[far <= point["far"] + 1e-12].max()
        check.close(f"tar at far {point['far']:g} / scikit-learn", point["tar"], wanted, 1e-6)
    at = np.argmax(far >= 1 - tar)
    lower, upper = (far - 1 + tar)[at - 1 : at + 1]
    eer = far[at - 1] + (far[at] - far[at - 1]) * -lower / (upper - lower)
    check.close("eer / scikit-learn's curve", verification["eer"], eer, 1e-6)

    # k-means of different programs find different clusters: the agreement is compared on clusters that
    # everybody finds.
    clusters, every_seventh = np.arange(1_200) % 6, np.arange(1_200) // 7 % 6
    centres = np.eye(6, dtype=np.float32)[clusters] * 5
    clear = (centres + 0.2 * np.random.default_rng(5).standard_normal(centres.shape)).astype(np.float32)
    classes = np.where(np.random.default_rng(6).random(1_200) < 0.3, every_seventh, clusters)
    clustering = run(program, "--cluster", "--kmeans", "sklearn10", embeddings=clear, labels=classes)["clustering"]
    check.close("nmi / scikit-learn", clustering["nmi"], normalized_mutual_info_score(classes, clusters), 1e-9)
    check.close("ami / scikit-learn", clustering["ami"], adjusted_mutual_info_score(classes, clusters), 1e-9)
    same_class, same_cluster = ((of[:, np.newaxis] == of)[np.triu_indices(1_200, 1)] for of in (classes, clusters))
    both = (same_class & same_cluster).sum()
    check.close("pair_f1 / naive NumPy", clustering["pair_f1"], 2 * both / (same_class.sum() + same_cluster.sum()), 1e-9)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--program", required=True, help="the built program `gallerist`")
    program = parser.parse_args().program
    random, check = np.random.default_rng(0), Check()
    rows, labels = duplicates_and_ties(program, check, random)
    re_identification(program, check, random)
    query_expansion(program, check, rows, labels)
    try:
        peers(program, check, rows, labels)
    except ImportError as error:
        print(f"{error.name} is not installed: its comparisons are skipped")
    if check.failed:
        raise SystemExit(f"{len(check.failed)} differ: {', '.join(check.failed)}")
    print("all agree")


if __name__ == "__main__":
    main()
