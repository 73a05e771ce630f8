"""Further columns: files, conditions, indices, frames."""

import datetime

import numpy as np
import pytest

import gallerist

ROWS = np.random.default_rng(1).normal(size=(6, 4)).astype(np.float32)
COLUMNS = {
    "price": [12.5, 80, None, 5, np.nan, 7],
    "stock": np.array([1, 2, 3, 4, 5, 6]),
    "shop": ["x", "y", None, "x", "x", "y"],
    "code": ["0012", "13", "14", "15", "16", "17"],
    "added": [datetime.date(2024, 5, 1), datetime.date(2024, 5, 2), None, *[datetime.date(2023, 1, 1)] * 3],
    "colour": [{"red", "blue"}, ["red"], None, [], ("green",), {"red"}],
}


@pytest.fixture
def stored(tmp_path):
    path = tmp_path / "x.safetensors"
    gallerist.save(path, ROWS, np.arange(6) // 2, paths=[f"{i}.jpg" for i in range(6)], columns=COLUMNS)
    return path


def test_columns_come_back(stored, tmp_path):
    found = gallerist.load(stored)
    assert list(found.columns) == list(COLUMNS)
    np.testing.assert_array_equal(found.columns["price"], [12.5, 80, np.nan, 5, np.nan, 7])
    assert found.columns["stock"].dtype == np.float64
    assert found.columns["shop"] == ["x", "y", None, "x", "x", "y"]
    assert found.columns["code"] == ["0012", "13", "14", "15", "16", "17"]
    assert found.columns["added"][:3] == ["2024-05-01", "2024-05-02", None]
    assert found.columns["colour"][:2] == [["blue", "red"], ["red"]] and not found.columns["colour"][2]
    again = tmp_path / "again.safetensors"
    gallerist.save(again, found)
    for name, values in gallerist.load(again).columns.items():
        wanted = found.columns[name]
        assert values == wanted if isinstance(values, list) else np.array_equal(values, wanted, equal_nan=True), name


@pytest.mark.parametrize(
    ("condition", "wanted"),
    [
        ("price < 20", [0, 3, 5]),
        ('price < 20 and shop = "x"', [0, 3]),
        ("price is missing", [2, 4]),
        ('colour has "red"', [0, 1, 5]),
        ("added >= 2024-05-02", [1]),
        ('label = "1" or path = "5.jpg"', [2, 3, 5]),
        ('code = "0012"', [0]),
        ("stock > 100", []),
    ],
)
def test_conditions(stored, condition, wanted):
    found = gallerist.load(stored)
    part = found.where(condition)
    np.testing.assert_array_equal(part.embeddings, ROWS[wanted])
    assert part.paths == [f"{i}.jpg" for i in wanted] and len(part) == len(wanted)
    assert part.columns["code"] == [found.columns["code"][i] for i in wanted]
    # Search finds the rows that meet it, by their numbers in the whole gallery.
    indices, scores = gallerist.search(found, ROWS, k=6, where=condition)
    for row, of_row in zip(indices, scores):
        assert sorted(row[~np.isnan(of_row)]) == wanted
    indices, _ = gallerist.search(found, k=6, where=condition)
    for i, row in enumerate(indices):
        assert sorted(set(row) - {2**32 - 1}) == [j for j in wanted if j != i]


def test_an_index_keeps_columns(tmp_path):
    for kind in ("exact", "hnsw"):
        index = gallerist.Index(4, kind=kind)
        index.add(ROWS, labels=np.arange(6) // 2, columns=COLUMNS)
        ids, _ = index.search(ROWS[:1], 6, where="price < 20")
        assert sorted(ids[0][ids[0] < 6]) == [0, 3, 5]
        assert index.labels("stock >= 5")[0].tolist() == [4, 5]
        index.save(tmp_path / kind)
        again = gallerist.Index.open(tmp_path / kind)
        assert again.labels('shop = "y"')[1] == ["0", "2"]
        with pytest.raises(ValueError, match="prise"):
            again.search(ROWS, where="prise < 3")


def test_frames(stored, tmp_path):
    pandas = pytest.importorskip("pandas")
    found = gallerist.load(stored)
    frame = found.to_frame()
    assert list(frame.columns) == ["label", "path", *COLUMNS] and frame["price"].isna().sum() == 2
    frame["when"] = pandas.to_datetime(["2024-01-01 10:00", None, *["2024-03-05"] * 4], format="ISO8601")
    frame["size"] = pandas.array([1, None, 3, 4, 5, 6], dtype="Int64")
    gallerist.save(tmp_path / "y.safetensors", ROWS, frame["label"], columns=frame[["price", "when", "size"]])
    other = gallerist.load(tmp_path / "y.safetensors")
    assert other.labels == found.labels and other.columns["when"][1] is None
    assert other.where("when >= 2024-02-01 and size > 4").columns["size"].tolist() == [5, 6]
    polars = pytest.importorskip("polars")
    frame = found.to_frame("polars")
    assert frame.columns == ["label", "path", *COLUMNS]
    gallerist.save(tmp_path / "z.safetensors", ROWS, columns=frame.select("price", "shop", "colour"))
    assert gallerist.load(tmp_path / "z.safetensors").columns["shop"] == found.columns["shop"]
    with pytest.raises(ValueError, match="wanted pandas or polars"):
        found.to_frame("numpy")
    assert polars is not None


def test_a_column_of_numbers_stays_one_without_any_value(tmp_path):
    columns = {"array": np.full(6, np.nan), "list": [np.nan] * 6, "none": [None] * 6}
    wanted = {"array", "list"}
    try:
        import pandas

        columns |= {"pandas": pandas.Series([None] * 6, dtype="Int64"), "pandas f64": pandas.Series([np.nan] * 6)}
        wanted |= {"pandas", "pandas f64"}
    except ImportError:
        pass
    try:
        import polars

        columns["polars"] = polars.Series([None] * 6, dtype=polars.Int32)
        wanted.add("polars")
    except ImportError:
        pass
    gallerist.save(tmp_path / "x.safetensors", ROWS, columns=columns)
    found = gallerist.load(tmp_path / "x.safetensors").columns
    assert {name for name, values in found.items() if isinstance(values, np.ndarray)} == wanted
    gallerist.save(tmp_path / "y.safetensors", ROWS[:0], columns={"a": np.zeros(0), "b": []})
    found = gallerist.load(tmp_path / "y.safetensors").columns
    assert isinstance(found["a"], np.ndarray) and found["b"] == []


def test_embeddings_with_arrays_as_lists_are_saved(tmp_path):
    rows = gallerist.Embeddings(ROWS, labels=np.arange(6), paths=np.array([f"{i}.png" for i in range(6)]))
    gallerist.save(tmp_path / "a.safetensors", rows)
    assert gallerist.load(tmp_path / "a.safetensors").labels == list("012345")
    gallerist.save(tmp_path / "b.safetensors", rows, labels=np.arange(6)[::-1], cameras=np.zeros(6, dtype=int))
    found = gallerist.load(tmp_path / "b.safetensors")
    assert found.labels == list("543210") and found.paths == [f"{i}.png" for i in range(6)] and found.cameras == ["0"] * 6
    # What is given replaces what is known, even if it is empty.
    gallerist.save(tmp_path / "c.safetensors", gallerist.load(stored := tmp_path / "b.safetensors"), model="")
    assert gallerist.load(tmp_path / "c.safetensors").labels == gallerist.load(stored).labels


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"price": [1, 2]}, "wanted one value a row, that is 6, got 2"),
        ({"label": [1] * 6}, "reserved"),
        ({3: [1] * 6}, "a name must be text"),
        ({"a": [object()] * 6}, "wanted numbers, texts, dates or sets"),
        ({"a": "abcdef"}, "wanted 6 values"),
        ({"a": 5}, "wanted 6 values"),
        ({"a": [2**60] * 6}, "give them as text"),
        ({"a": np.full(6, np.inf)}, "finite"),
        ({"a": np.zeros((6, 2))}, "shape"),
        ({"a": [{"x|y"}] * 6}, "tag"),
        ([1, 2], "a dictionary or a frame"),
    ],
)
def test_wrong_columns_are_refused(columns, message, tmp_path):
    with pytest.raises(ValueError, match=message):
        gallerist.save(tmp_path / "x.safetensors", ROWS, columns=columns)
    with pytest.raises(ValueError, match=message):
        gallerist.Index(4).add(ROWS, columns=columns)


def test_wrong_conditions_are_refused(stored):
    found = gallerist.load(stored)
    for condition in ("prise < 20", "price <", 'price = "x"', "", "(" * 100_000):
        with pytest.raises(ValueError):
            found.where(condition)
    with pytest.raises(ValueError, match="Embeddings"):
        gallerist.search(ROWS, where="price < 20")
    for rows in ([6], [-1], [0.5], [[0]], "a"):
        with pytest.raises(ValueError, match="rows: wanted"):
            found.select(rows)
