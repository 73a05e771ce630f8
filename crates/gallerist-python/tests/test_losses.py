"""Losses on NumPy arrays."""

import copy
import json
import pickle

import numpy as np
import pytest

import gallerist
from gallerist import _native, losses, miners

ALL = {entry["name"]: entry for entry in json.loads(_native.losses())}
CLASSES = {getattr(losses, name).name: getattr(losses, name) for name in losses.__all__ if name.endswith("Loss") and name != "Loss"}


def made(name, **parameters):
    sizes = {"classes": 12, "dimensions": 16} if ALL[name]["learns"] else {}
    return CLASSES[name](**sizes, **parameters)


def test_every_loss_and_miner_has_a_class():
    assert set(CLASSES) == set(ALL)
    names = {getattr(miners, name).name for name in miners.__all__ if name != "Miner"}
    assert names == {entry["name"] for entry in json.loads(_native.miners())}


@pytest.mark.parametrize("name", sorted(ALL))
def test_defaults_are_those_of_the_library(name):
    assert made(name).settings == {"name": name} | ALL[name]["parameters"]


@pytest.mark.parametrize("name", sorted(ALL))
def test_value_gradient_and_diagnostics_have_their_shapes(name, batch):
    rows, labels = batch
    found = made(name)(rows, labels)
    assert np.isfinite(found.value)
    assert found.gradient.shape == rows.shape and found.gradient.dtype == np.float32
    assert np.isfinite(found.gradient).all()
    assert len(found.queries.positives) in (0, len(rows))
    wide = made(name)(rows.astype(np.float64), labels)
    assert wide.gradient.dtype == np.float64
    assert wide.value == pytest.approx(found.value, rel=1e-3, abs=1e-5)
    assert made(name)(rows, labels, gradient=False).gradient is None


# The losses whose gradient is by definition the derivative of their value.
TRUE = {
    "contrastive": {},
    "triplet_all": {},
    "multi_similarity": {},
    "sup_con": {},
    "n_pair": {},
    "angular": {},
    "proxy_anchor": {},
    "proxy_nca": {},
    "softmax": {},
    "soft_triple": {},
    "smooth_ap": {},
    "fast_ap": {},
    "rll": {"gradient": "autodiff"},
    "ice": {"gradient": "autodiff", "scale": 8.0},
}


@pytest.mark.parametrize("name", sorted(TRUE))
def test_the_gradient_is_the_derivative_of_the_value(name, batch):
    rows, labels = batch[0].astype(np.float64), batch[1]
    loss = made(name, **TRUE[name])
    gradient = loss(rows, labels).gradient
    random = np.random.default_rng(2)
    for _ in range(4):
        direction = random.normal(size=rows.shape)
        step = 1e-6
        values = [loss(rows + sign * step * direction, labels, gradient=False).value for sign in (1, -1)]
        slope = (values[0] - values[1]) / (2 * step)
        assert (gradient * direction).sum() == pytest.approx(slope, rel=2e-4, abs=1e-7)


def test_labels_of_any_numbers_and_sets(batch):
    rows, labels = batch
    loss = losses.ContrastiveLoss()
    plain = loss(rows, labels).value
    assert loss(rows, labels * -1000 + 7).value == plain
    assert loss(rows, [{label} for label in labels.tolist()]).value == plain
    assert loss(rows, [{label, 100} for label in labels.tolist()]).value != plain
    assert loss(rows, labels.astype(np.uint8)).value == plain


def test_a_memory_lengthens_the_lists(batch):
    rows, labels = batch
    found = losses.RllLoss()(rows[:24], labels[:24], memory=rows[24:], memory_labels=labels[24:])
    assert (found.queries.positives == 3).all() and (found.queries.negatives == 44).all()
    assert found.gradient.shape == (24, 16)
    with pytest.raises(ValueError, match="no cross-batch memory|takes no"):
        made("softmax")(rows[:24], labels[:24], memory=rows[24:], memory_labels=labels[24:])


def test_a_miner_chooses_pairs(batch):
    rows, labels = batch
    every = losses.ContrastiveLoss()(rows, labels)
    hard = losses.ContrastiveLoss(miner=miners.HardMiner())(rows, labels)
    assert losses.ContrastiveLoss(miner="hard")(rows, labels).value == hard.value
    assert hard.queries.mined_negatives.max() <= 1 < every.queries.negatives.max()


def test_parameters_of_its_own_can_be_changed(batch):
    rows, labels = batch
    loss = made("proxy_anchor")
    before = loss(rows, labels)
    (name,) = loss.parameters
    assert loss.parameters[name].shape == (12, 16)
    assert before.parameter_gradients[name].shape == (12, 16)
    loss.parameters[name] -= 0.5 * before.parameter_gradients[name]
    assert loss(rows, labels).value < before.value


@pytest.mark.parametrize("name", ["rll", "contrastive", "proxy_anchor", "hist"])
def test_losses_are_copied_and_pickled_with_their_parameters(name, batch):
    rows, labels = batch
    loss = made(name) if name != "contrastive" else losses.ContrastiveLoss(margin=0.7, miner=miners.MultiSimilarityMiner(epsilon=0.2))
    for values in loss.parameters.values():
        values += 0.25
    wanted = loss(rows, labels)
    for other in (copy.deepcopy(loss), pickle.loads(pickle.dumps(loss))):
        found = other(rows, labels)
        assert found.value == wanted.value and other.settings == loss.settings
        np.testing.assert_array_equal(found.gradient, wanted.gradient)


def test_a_learnt_boundary(batch):
    rows, labels = batch
    for boundary, count in (("learnt", 1), ("per_class", 12)):
        loss = losses.MarginLoss(boundary=boundary, nu=0.1, classes=12, dimensions=16)
        (name,) = loss.parameters
        assert loss.parameters[name].shape == (count,)
        assert np.abs(loss(rows, labels).parameter_gradients[name]).max() > 0
        with pytest.raises(ValueError, match="classes=.*dimensions="):
            losses.MarginLoss(boundary=boundary)


def test_a_boundary_for_each_class_takes_no_sets_of_labels(batch):
    rows, labels = batch
    sets = [{int(label), (int(label) + 1) % 12} for label in labels]
    sizes = {"classes": 12, "dimensions": 16}
    with pytest.raises(ValueError, match="needs one class per sample"):
        losses.MarginLoss(boundary="per_class", **sizes)(rows, sets)
    assert np.isfinite(losses.MarginLoss(boundary="learnt", **sizes)(rows, sets).value)


def test_golden_value():
    """The ranked list loss of four points of a line by hand: alpha 1.2, margin 0.4, equal weights."""
    rows = np.array([[0.0], [1.0], [1.5], [4.0]])
    found = losses.RllLoss(alpha=1.2, t_neg=0.0)(rows, [0, 0, 1, 1], normalize=False)
    # Positives pull beyond 0.8: .2, .2, 1.7, 1.7. Negatives push within 1.2: row 1 and row 2 at .5: .7 each.
    assert found.value == pytest.approx(0.5 * np.mean([0.2, 0.2 + 0.7, 1.7 + 0.7, 1.7]))


BAD = [
    (lambda: losses.RllLoss(margin=-1.0), "margin"),
    (lambda: losses.RllLoss(t_pos="high"), "t_pos"),
    (lambda: losses.ContrastiveLoss(miner="x"), "x"),
    (lambda: losses.RllLoss()(np.zeros(4, np.float32), [0, 0, 1, 1]), r"shape \(n, d\), got shape \(4,\)"),
    (lambda: losses.RllLoss()(np.zeros((4, 2), np.int64), [0, 0, 1, 1]), "floating-point numbers.*int64"),
    (lambda: losses.RllLoss()(np.zeros((4, 2), np.float32), [0, 0, 1]), "one label a row, that is 4, got 3"),
    (lambda: losses.RllLoss()(np.zeros((4, 2), np.float32), ["a", "a", "b", "b"]), "wanted integers"),
    (lambda: losses.RllLoss()(np.zeros((4, 2), np.float32), [0.5, 0, 1, 1]), "wanted integers"),
    (lambda: losses.RllLoss()(np.zeros((4, 2), np.float32), 3), "labels: wanted a list of 4 labels, got 3"),
    (lambda: losses.RllLoss()(np.zeros((4, 2), np.float32), None), "labels: wanted a list of 4 labels, got None"),
    (lambda: losses.RllLoss()(np.zeros((3, 2), np.float32), [{1}, 2, {3}]), "labels: row 1 is 2, and other rows are sets.*hint"),
    (lambda: losses.RllLoss()(np.full((4, 2), np.nan, np.float32), [0, 0, 1, 1]), "not finite in row 0"),
    (lambda: losses.RllLoss()(np.zeros((0, 2), np.float32), []), "hold no values"),
    (lambda: made("proxy_anchor")(np.ones((2, 16), np.float32), [0, 99]), "label 99 is not one of the 12"),
    (lambda: made("proxy_anchor")(np.ones((2, 8), np.float32), [0, 1]), "8 dimensions.*made for 16"),
    (lambda: losses.ProxyAnchorLoss(classes=0, dimensions=4), "1 or more"),
    (lambda: losses.ProxyAnchorLoss(classes=2**40, dimensions=2**30), "too many"),
]


@pytest.mark.parametrize("call, message", BAD)
def test_bad_input_is_a_value_error(call, message):
    with pytest.raises(ValueError, match=f"(?s){message}"):
        call()


def test_arrays_of_every_kind(batch):
    rows, labels = batch
    loss = losses.RllLoss()
    wanted = loss(rows, labels)
    wide = np.zeros((48, 32), np.float32)
    wide[:, ::2] = rows
    read_only = rows.copy()
    read_only.flags.writeable = False
    for array in (np.asfortranarray(rows), wide[:, ::2], read_only, rows.astype(">f4"), rows.tolist()):
        assert loss(array, labels).value == pytest.approx(wanted.value, rel=1e-6)
    half = loss(rows.astype(np.float16), labels)
    assert half.gradient.dtype == np.float32 and half.value == pytest.approx(wanted.value, rel=1e-2)
    ml_dtypes = pytest.importorskip("ml_dtypes")
    assert loss(rows.astype(ml_dtypes.bfloat16), labels).value == pytest.approx(wanted.value, rel=5e-2)


def test_big_endian_f64_is_computed_in_f64(batch):
    rows, labels = batch[0].astype(np.float64), batch[1]
    found, wanted = losses.RllLoss()(rows.astype(">f8"), labels), losses.RllLoss()(rows, labels)
    assert found.value == wanted.value and found.gradient.dtype == np.float64
    np.testing.assert_array_equal(found.gradient, wanted.gradient)


def test_arrays_without_dimensions_are_labels(batch):
    rows, labels = batch
    assert losses.RllLoss()(rows, [np.array(label) for label in labels]).value == losses.RllLoss()(rows, labels).value
    torch = pytest.importorskip("torch")
    assert losses.RllLoss()(rows, [torch.tensor(label) for label in labels]).value == losses.RllLoss()(rows, labels).value


def test_an_absurd_parameter_is_no_crash(batch):
    rows, labels = batch
    for value in (0, 1e300, -1e300, float("inf"), float("nan")):
        for name in ("rll", "ice", "circle"):
            key = {"rll": "t_neg", "ice": "scale", "circle": "gamma"}[name]
            try:
                CLASSES[name](**{key: float(value)})(rows, labels)
            except ValueError:
                pass


def test_version():
    assert gallerist.__version__.count(".") == 2
