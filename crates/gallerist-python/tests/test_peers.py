"""Agreement with pytorch-metric-learning, scikit-learn and faiss, where the definitions are the same."""

import numpy as np
import pytest

import gallerist

torch = pytest.importorskip("torch")
peer = pytest.importorskip("pytorch_metric_learning")

from pytorch_metric_learning import losses as theirs  # noqa: E402

from gallerist.torch import losses as ours  # noqa: E402

# Definitions and differences: docs/losses-agreement.md.
PAIRS = {
    "multi_similarity": (
        lambda: ours.MultiSimilarityLoss(alpha=2.0, beta=50.0, base=0.5, miner="all"),
        lambda: theirs.MultiSimilarityLoss(alpha=2, beta=50, base=0.5),
    ),
    "circle": (lambda: ours.CircleLoss(margin=0.25, gamma=80.0), lambda: theirs.CircleLoss(m=0.25, gamma=80)),
    "sup_con": (lambda: ours.SupConLoss(temperature=0.1), lambda: theirs.SupConLoss(temperature=0.1)),
    "nt_xent": (lambda: ours.SupConLoss(temperature=0.1, form="nt_xent"), lambda: theirs.NTXentLoss(temperature=0.1)),
}


@pytest.mark.parametrize("name", sorted(PAIRS))
def test_losses(name, batch):
    rows = torch.tensor(batch[0], dtype=torch.float64)
    labels = torch.tensor(batch[1])
    found = []
    for make in PAIRS[name]:
        x = rows.clone().requires_grad_()
        value = make()(x, labels)
        value.backward()
        found.append((value.item(), x.grad))
    assert found[0][0] == pytest.approx(found[1][0], rel=1e-9)
    torch.testing.assert_close(found[0][1], found[1][1], rtol=1e-6, atol=1e-9)


def test_evaluation_agrees_with_the_accuracy_calculator():
    from pytorch_metric_learning.utils.accuracy_calculator import AccuracyCalculator
    from pytorch_metric_learning.utils.inference import CustomKNN
    from pytorch_metric_learning.distances import LpDistance

    random = np.random.default_rng(3)
    labels = np.repeat(np.arange(40), 10)
    rows = (random.normal(size=(40, 32))[labels] + 1.2 * random.normal(size=(400, 32))).astype(np.float32)
    calculator = AccuracyCalculator(
        include=("precision_at_1", "r_precision", "mean_average_precision_at_r"),
        knn_func=CustomKNN(LpDistance(normalize_embeddings=False)),
    )
    wanted = calculator.get_accuracy(torch.tensor(rows), torch.tensor(labels))
    found = gallerist.evaluate(rows, labels, metric="euclidean", metrics=["recall@1", "r_precision", "map@r"])["metrics"]
    assert found["recall@1"] == pytest.approx(wanted["precision_at_1"], abs=1e-6)
    assert found["r_precision"] == pytest.approx(wanted["r_precision"], abs=1e-6)
    assert found["map@r"] == pytest.approx(wanted["mean_average_precision_at_r"], abs=1e-6)


def test_clustering_is_measured_as_scikit_learn_does():
    metrics = pytest.importorskip("sklearn.metrics")
    random = np.random.default_rng(4)
    labels = np.repeat(np.arange(6), 20)
    rows = (4 * random.normal(size=(6, 8))[labels] + 0.01 * random.normal(size=(120, 8))).astype(np.float32)
    found = gallerist.evaluate(rows, labels, metric="euclidean", cluster="sklearn10")
    assert found["clustering"]["nmi"] == pytest.approx(metrics.normalized_mutual_info_score(labels, labels))


def test_search_agrees_with_faiss():
    faiss = pytest.importorskip("faiss")
    random = np.random.default_rng(5)
    gallery = random.normal(size=(2000, 24)).astype(np.float32)
    queries = random.normal(size=(50, 24)).astype(np.float32)
    index = faiss.IndexFlatL2(24)
    index.add(gallery)
    distances, wanted = index.search(queries, 10)
    found, scores = gallerist.search(gallery, queries, 10, metric="euclidean")
    np.testing.assert_array_equal(found, wanted)
    np.testing.assert_allclose(scores**2, distances, rtol=1e-4)
