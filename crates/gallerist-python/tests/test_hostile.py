"""Nothing that a caller passes crashes the process: odd types and shapes at every public function and class."""

import gc
import inspect
import itertools
import json
import warnings

import numpy as np
import pytest

import gallerist
from gallerist import _native, losses

ALL = {entry["name"]: entry for entry in json.loads(_native.losses())}
ROWS = np.random.default_rng(1).normal(size=(12, 6)).astype(np.float32)
LABELS = np.arange(12) // 3

# A wrong type is Python's own TypeError, everything else a ValueError; a file that cannot be opened is an OSError.
DOCUMENTED = (ValueError, TypeError, OSError)


def unaligned():
    raw = np.zeros(ROWS.nbytes + 1, dtype=np.uint8)
    raw[1:] = np.frombuffer(ROWS.tobytes(), dtype=np.uint8)
    return raw[1:].view(np.float32).reshape(ROWS.shape)


class Liar:
    """Says that it has rows, and fails."""

    shape = (3, 4)
    ndim = 2
    dtype = np.dtype(np.float32)

    def __array__(self, *_, **__):
        raise RuntimeError("no array")

    def __len__(self):
        return -5

    def __iter__(self):
        raise RuntimeError("no items")


def values():
    nan, infinite = ROWS.copy(), ROWS.copy()
    nan[3, 2], infinite[0, 0] = np.nan, np.inf
    return {
        "none": None,
        "number": 3,
        "negative": -1,
        "huge": 2**70,
        "real": 0.5,
        "nan": float("nan"),
        "text": "abc",
        "nul": "a\0b",
        "surrogate": "\ud800",
        "bytes": b"abc",
        "list": [1, 2, 3],
        "ragged": [[1.0, 2.0], [3.0]],
        "nested": [[[]]],
        "empty list": [],
        "dictionary": {"a": 1},
        "set": {1, 2},
        "object": object(),
        "function": len,
        "class": int,
        "generator": (i for i in range(3)),
        "rows": ROWS,
        "labels": LABELS,
        "no rows": np.zeros((0, 6), np.float32),
        "no columns": np.zeros((12, 0), np.float32),
        "scalar array": np.float32(3),
        "zero dimensions": np.array(5.0),
        "one dimension": np.zeros(5, np.float32),
        "three dimensions": np.zeros((2, 3, 4), np.float32),
        "NaN in rows": nan,
        "infinity in rows": infinite,
        "huge values": np.full((12, 6), 3e38, np.float32),
        "huge f64": np.full((12, 6), 1e300),
        "subnormal": np.full((12, 6), 1e-45, np.float32),
        "zeros": np.zeros((12, 6), np.float32),
        "integers": np.ones((12, 6), np.int64),
        "booleans": np.ones((12, 6), bool),
        "complex": np.ones((12, 6), np.complex64),
        "objects": np.array([[object()] * 6] * 12),
        "texts": np.array([["a"] * 6] * 12),
        "dates": np.zeros((12, 6), "datetime64[s]"),
        "structured": np.zeros(12, dtype=[("a", "f4"), ("b", "i8")]),
        "big endian": ROWS.astype(">f4"),
        "half": ROWS.astype(np.float16),
        "long double": ROWS.astype(np.longdouble),
        "reversed": ROWS[::-1, ::-1],
        "fortran": np.asfortranarray(ROWS),
        "broadcast": np.broadcast_to(np.float32(1), (12, 6)),
        "enormous broadcast": np.broadcast_to(np.float32(1), (2**40, 2**20)),
        "unaligned": unaligned(),
        "masked": np.ma.masked_greater(ROWS, 0),
        "matrix": np.asmatrix(ROWS),
        "liar": Liar(),
    }


def tried(call):
    """Calls it; only documented exceptions come."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return call()
    except DOCUMENTED as error:
        assert "fault of gallerist" not in str(error)
    except RuntimeError as error:
        # What the caller's own object raises passes through.
        assert str(error) in ("no array", "no items"), error
    return None


NAMES = sorted(values())


@pytest.mark.parametrize("name", NAMES)
def test_embeddings_and_labels_of_losses(name):
    if name == "enormous broadcast":
        pytest.skip("8 exabytes: NumPy refuses the copy with a MemoryError")
    made = {n: getattr(losses, n) for n in losses.__all__ if n.endswith("Loss") and n != "Loss"}
    for of in made.values():
        sizes = {"classes": 4, "dimensions": 6} if ALL[of.name]["learns"] else {}
        loss = of(**sizes)
        found = tried(lambda: loss(values()[name], LABELS))
        tried(lambda: loss(ROWS, values()[name]))
        if found is not None:
            assert found.gradient.shape == (12, 6), name
    loss = losses.ContrastiveLoss()
    for key in ("memory", "memory_labels", "normalize", "gradient", "step", "steps"):
        tried(lambda: loss(ROWS, LABELS, **{key: values()[name]}))
    tried(lambda: loss(ROWS, LABELS, memory=values()[name], memory_labels=LABELS))


def test_values_in_odd_memory_give_the_same_loss():
    wanted = losses.RllLoss()(ROWS, LABELS)
    locked = ROWS.copy()
    locked.flags.writeable = False
    for rows in (np.asfortranarray(ROWS), ROWS.astype(">f4"), unaligned(), locked, np.repeat(ROWS, 2, axis=0)[::2]):
        found = losses.RllLoss()(rows, LABELS)
        assert found.value == wanted.value
        np.testing.assert_array_equal(found.gradient, wanted.gradient)
    ml_dtypes = pytest.importorskip("ml_dtypes")
    rounded = ROWS.astype(ml_dtypes.bfloat16)
    assert losses.RllLoss()(rounded, LABELS).value == losses.RllLoss()(rounded.astype(np.float32), LABELS).value


@pytest.mark.parametrize("name", NAMES)
def test_parameters_of_losses_and_miners(name):
    for of in (getattr(losses, n) for n in losses.__all__ if n.endswith("Loss") and n != "Loss"):
        for key in inspect.signature(of.__init__).parameters:
            if key != "self" and not (key in ("classes", "dimensions", "centers", "bins") and name == "huge"):
                tried(lambda: of(**{key: values()[name]}))


# Functions with the arguments that are right; each is replaced by every odd value in turn.
CALLS = {
    "evaluate": (
        gallerist.evaluate,
        {
            "embeddings": ROWS,
            "labels": LABELS,
            **dict.fromkeys(
                ["gallery", "gallery_labels", "cameras", "gallery_cameras", "metrics", "metric", "protocol", "ignore_cameras"]
                + ["rerank", "expansion", "multi_query", "cluster", "verification", "few_shot", "bootstrap", "seed"]
            ),
        },
    ),
    "search": (gallerist.search, {"gallery": ROWS, "queries": ROWS, "k": 3, "metric": "cosine", "exclude_self": None, "where": None}),
    "map": (gallerist.map, {"embeddings": ROWS, "method": "pca", "perplexity": 3.0, "steps": 5, "progress": False}),
    "set_threads": (gallerist.set_threads, {"count": 0}),
    "load": (gallerist.load, {"path": "/nonexistent"}),
    "Model.load": (gallerist.Model.load, {"run": "/nonexistent", "checkpoint": "best", "device": "cpu", "normalize": None}),
    "resume": (gallerist.resume, {"run": "/nonexistent", "callback": None, "progress": False}),
    "Index": (
        gallerist.Index,
        {"dimensions": 6, "metric": "cosine", "kind": "hnsw", "m": 4, "ef_construction": 8, "ef": 4, "seed": 1},
    ),
    "Index.open": (gallerist.Index.open, {"path": "/nonexistent", "mmap": False}),
    "Embeddings.where": (gallerist.Embeddings(ROWS, labels=LABELS).where, {"condition": 'label = "1"'}),
    "Embeddings.select": (gallerist.Embeddings(ROWS, labels=LABELS).select, {"rows": [1]}),
    "report": (gallerist.report, {"of": ROWS, "labels": LABELS, "paths": None, "gallery": None, "images": None, "title": "x"}),
}


@pytest.mark.parametrize(("what", "name"), list(itertools.product(CALLS, NAMES)))
def test_arguments_of_functions(what, name):
    call, right = CALLS[what]
    for key in right:
        value = values()[name]
        if name == "enormous broadcast" and key not in ("path", "run"):
            continue
        tried(lambda: call(**{**{k: v for k, v in right.items() if v is not None}, key: value}))


@pytest.mark.parametrize("name", NAMES)
def test_arguments_of_an_index_and_of_files(name, tmp_path):
    if name == "enormous broadcast":
        pytest.skip("8 exabytes")
    for kind in ("exact", "hnsw"):
        index = gallerist.Index(6, kind=kind)
        index.add(ROWS, labels=LABELS)
        for key in ("ids", "labels", "paths", "cameras", "columns", "replace"):
            tried(lambda: index.add(ROWS, **{key: values()[name]}))
        tried(lambda: index.add(values()[name]))
        tried(lambda: index.search(values()[name]))
        for key in inspect.signature(index.search).parameters:
            if key != "queries":
                tried(lambda: index.search(ROWS, **{key: values()[name]}))
        tried(lambda: index.remove(values()[name]))
        tried(lambda: index.set_ef(values()[name]))
        tried(lambda: index.labels(values()[name]))
        if not isinstance(values()[name], (str, int)):
            tried(lambda: index.save(values()[name]))
        # It still works.
        index.add(ROWS, np.arange(12) + 1000, replace=True)
        assert index.search(ROWS, 1)[0].shape == (12, 1)
    path = tmp_path / "x.safetensors"
    right = inspect.signature(gallerist.save).parameters
    tried(lambda: gallerist.save(path, values()[name]))
    for key in right:
        if key not in ("path", "embeddings"):
            tried(lambda: gallerist.save(path, ROWS, **{key: values()[name]}))
    tried(lambda: gallerist.save(path, gallerist.Embeddings(values()[name], labels=values()[name])))


@pytest.mark.parametrize("name", NAMES)
def test_configurations(name, tmp_path):
    if isinstance(values()[name], str) and "\0" not in values()[name]:
        return
    tried(lambda: gallerist.train(values()[name], tmp_path / "run", progress=False))
    tried(lambda: gallerist.train({"data": {"train": values()[name]}}, tmp_path / "run", progress=False))
    tried(lambda: gallerist.train({"train": {"steps": values()[name]}}, tmp_path / "run", progress=False))


@pytest.mark.parametrize("name", NAMES)
def test_tensors(name):
    torch = pytest.importorskip("torch")
    from gallerist.torch import ClassSampler, CrossBatchMemory
    from gallerist.torch import losses as of_torch

    if name == "enormous broadcast":
        return
    loss = of_torch.RllLoss()
    rows, labels = torch.tensor(ROWS), torch.tensor(LABELS)
    value = values()[name]
    try:
        tensor = torch.as_tensor(value)
    except Exception:
        tensor = value
    for odd in (value, tensor):
        tried(lambda: loss(odd, labels))
        tried(lambda: loss(rows, odd))
        tried(lambda: loss(rows, labels, memory=odd, memory_labels=labels))
        tried(lambda: loss(rows, labels, memory=rows, memory_labels=odd))
        tried(lambda: ClassSampler(odd, 2, 2))
        tried(lambda: ClassSampler(LABELS, odd, 2))
    tried(lambda: CrossBatchMemory(loss, size=value))


def test_tensors_on_other_devices_and_layouts():
    torch = pytest.importorskip("torch")
    from gallerist.torch import losses as of_torch

    labels = torch.tensor(LABELS)
    for tensor in (
        torch.empty(12, 6, device="meta"),
        torch.zeros(12, 6).to_sparse(),
        torch.zeros(12, 6, dtype=torch.complex64),
        torch.quantize_per_tensor(torch.zeros(12, 6), 0.1, 0, torch.qint8),
        torch.zeros(12, 6).to(torch.float8_e4m3fn),
    ):
        with pytest.raises(ValueError, match="embeddings"):
            of_torch.RllLoss()(tensor, labels)
    # Transposed memory, conjugate and negative views, broadcast rows.
    rows = torch.tensor(ROWS)
    wanted = of_torch.RllLoss()(rows, labels)
    odd = torch.tensor(np.asfortranarray(ROWS))
    assert of_torch.RllLoss()(rows.T.contiguous().T, labels) == wanted == of_torch.RllLoss()(odd, labels)
    gc.collect()
