"""Search, evaluation, indices and files."""

import warnings

import numpy as np
import pytest

import gallerist


@pytest.fixture
def gallery():
    random = np.random.default_rng(6)
    return random.normal(size=(300, 12)).astype(np.float32)


def test_search_is_a_sort_of_all_scores(gallery):
    unit = gallery / np.linalg.norm(gallery, axis=1, keepdims=True)
    scores = unit.astype(np.float64) @ unit.T.astype(np.float64)
    np.fill_diagonal(scores, -np.inf)
    found, values = gallerist.search(gallery, k=7)
    np.testing.assert_array_equal(found, np.argsort(-scores, axis=1, kind="stable")[:, :7])
    np.testing.assert_allclose(values, np.sort(scores, axis=1)[:, ::-1][:, :7], atol=1e-6)
    found, _ = gallerist.search(gallery, gallery[:5], k=1)
    assert found[:, 0].tolist() == [0, 1, 2, 3, 4]
    found, values = gallerist.search(gallery[:3], k=10)
    assert found.shape == (3, 3) and found[0, 2] == 2**32 - 1 and np.isnan(values[0, 2])


@pytest.mark.parametrize(
    "call, message",
    [
        (lambda rows: gallerist.search(rows, k=0), "k: wanted a number of 1 or more, got 0"),
        (lambda rows: gallerist.search(rows, rows[:, :5]), "dimensions|5"),
        (lambda rows: gallerist.search(rows, metric="hamming"), "there is no metric `hamming`"),
        (lambda rows: gallerist.search(rows[:0]), "(?i)no rows|empty"),
        (lambda rows: gallerist.search(rows * np.float32(np.nan)), "finite|NaN"),
        (lambda rows: gallerist.evaluate(rows, [1]), "one label a row, that is 300, got 1"),
        (lambda rows: gallerist.evaluate(rows, np.arange(300), metrics=["recall@0"]), "recall@0|at least 1"),
        (lambda rows: gallerist.evaluate(rows, np.arange(300), metrics=["accuracy"]), "accuracy"),
        (lambda rows: gallerist.evaluate(rows, np.arange(300), protocol="x"), "there is no protocol `x`"),
        (lambda rows: gallerist.evaluate(rows, np.arange(300), bootstrap={"samples": 3}), "bootstrap: unknown field"),
        (lambda rows: gallerist.evaluate(rows, np.arange(300), gallery=rows), "gallery_labels"),
        (lambda rows: gallerist.Index(0), "dimensions"),
        (lambda rows: gallerist.Index(12).add(rows, ids=[-1] * 300), "ids"),
        (lambda rows: gallerist.Index(12).add(rows, ids=[1] * 300), "(?i)id 1"),
        (lambda rows: gallerist.Index(11).add(rows), "12|dimensions"),
        (lambda rows: gallerist.Index(12, kind="tree"), "there is no kind of index `tree`"),
        (lambda rows: gallerist.save("x.txt", rows), "safetensors"),
        (lambda rows: gallerist.load("/nowhere/x.npy"), "nowhere"),
    ],
)
def test_bad_input_is_a_value_error(gallery, call, message):
    with pytest.raises(ValueError, match=message):
        call(gallery)


def test_evaluation(gallery):
    labels = np.arange(300) // 5
    found = gallerist.evaluate(gallery, labels, bootstrap={"resamples": 50}, cluster="faiss20", rerank=True)
    assert 0 <= found["metrics"]["recall@1"] <= 1 and found["queries"] == 300
    assert found["intervals"]["metrics"]["recall@1"]["low"] <= found["metrics"]["recall@1"]
    assert set(found["clustering"]) >= {"nmi"} and "reranked" in found
    split = gallerist.evaluate(gallery[:100], labels[:100], gallery=gallery[100:], gallery_labels=labels[100:])
    assert split["queries_without_match"] == 100
    words = gallerist.evaluate(gallery, [f"class {label}" for label in labels])
    assert words["metrics"] == gallerist.evaluate(gallery, labels)["metrics"]
    assert "recall@K" in gallerist.metrics()
    assert "market1501" in [protocol["name"] for protocol in gallerist.protocols()]


def test_evaluation_as_a_data_frame(gallery):
    pandas = pytest.importorskip("pandas")
    frame = gallerist.evaluate(gallery, np.arange(300) // 5, rerank=True).to_frame()
    assert isinstance(frame, pandas.DataFrame) and set(frame["ranking"]) == {"as measured", "reranked"}


def test_queries_of_one_class_and_camera_are_merged(gallery):
    labels, cameras = np.arange(300) // 5, np.arange(300) % 2
    of_gallery = {"gallery": gallery, "gallery_labels": labels, "gallery_cameras": cameras}
    found = gallerist.evaluate(gallery, labels, cameras=cameras, multi_query="average", **of_gallery)
    assert found["queries"] == 300 and found["multi_query"]["queries"] == 120
    with pytest.raises(ValueError, match="there is no pooling `mean`\nhint: one of average, max"):
        gallerist.evaluate(gallery, labels, multi_query="mean")
    with pytest.raises(ValueError, match="needs queries with cameras and a gallery"):
        gallerist.evaluate(gallery, labels, multi_query="max")


class Missing:
    """As pandas.NA."""


Missing.__name__ = "NAType"


@pytest.mark.parametrize("missing", [None, float("nan"), np.float32("nan"), np.datetime64("NaT"), Missing()])
def test_a_missing_label_path_or_camera_is_refused_with_its_row(gallery, missing, tmp_path):
    values = ["a", "b", missing]
    rows = gallery[:3]
    calls = {
        "labels": [
            lambda: gallerist.evaluate(rows, values),
            lambda: gallerist.save(tmp_path / "x.safetensors", rows, values),
            lambda: gallerist.evaluate(rows, [{"a"}, {"b"}, {missing}]),
        ],
        "paths": [lambda: gallerist.Index(12).add(rows, paths=values), lambda: gallerist.report(rows, [0, 0, 1], paths=values)],
        "cameras": [lambda: gallerist.save(tmp_path / "x.safetensors", rows, cameras=values)],
    }
    for name, of in calls.items():
        for call in of:
            with pytest.raises(ValueError, match=f"{name}: row 2 has no value"):
                call()
    assert not (tmp_path / "x.safetensors").exists()


def test_whole_numbers_of_every_type_are_the_same_label(gallery):
    labels = [i // 5 for i in range(300)]
    split = {"gallery": gallery[1::2], "gallery_labels": labels[1::2]}
    wanted = gallerist.evaluate(gallery[::2], labels[::2], **split)
    assert wanted["queries_without_match"] == 0
    for queries in (
        np.array(labels[::2], dtype=np.float64),
        np.array(labels[::2], dtype=np.uint8),
        [np.array(label) for label in labels[::2]],
        [float(label) for label in labels[::2]],
        [str(label) for label in labels[::2]],
        [{label} for label in labels[::2]],
    ):
        assert gallerist.evaluate(gallery[::2], queries, **split) == wanted


def test_tensors_without_dimensions_are_labels(gallery):
    torch = pytest.importorskip("torch")
    found = gallerist.evaluate(gallery, [torch.tensor(i // 5) for i in range(300)])
    assert found == gallerist.evaluate(gallery, np.arange(300) // 5)


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        (np.eye(300), r"got an array of shape \(300, 300\)\nhint: labels.argmax\(1\)"),
        ([[1, 0, 0]] * 300, "row 0 has a label twice"),
        (np.arange(300) + 0.5, "row 0 is 0.5, which is not a whole number"),
        ([0.0] * 299 + [np.inf], "row 299 is inf"),
        ([b"a"] * 300, "row 0 is b'a'; wanted a text or a whole number"),
        (np.array([b"a"] * 300), "row 0 is b'a'"),
        ({i: i for i in range(300)}, "labels: wanted a list of 300 values"),
        (set(range(300)), "labels: wanted a list of 300 values"),
        ([{"a": 1}] * 300, "wanted a text or a whole number"),
        ([{"a|b"}] * 300, "a label of a set is 'a|b'"),
        ([{"a", " a"}] * 300, "a label of a set is ' a'"),
        ([{""}] * 300, "a label of a set is ''"),
        ([np.arange(3)] * 300, "wanted a text or a whole number"),
        ([object()] * 300, "wanted a text or a whole number"),
    ],
)
def test_labels_that_are_none_are_refused(gallery, labels, message, tmp_path):
    for call in (lambda: gallerist.evaluate(gallery, labels), lambda: gallerist.save(tmp_path / "x.safetensors", gallery, labels)):
        with pytest.raises(ValueError, match=message):
            call()


def test_an_empty_set_of_labels_is_no_label_whatever_the_other_rows_have(gallery, tmp_path):
    rows = gallery[:12]
    for several in ([], [{"a", "c"}]):
        sets = [set()] * 6 + [{"a"}] * 3 + [{"b"}] * 3 + several
        found = gallerist.evaluate(gallery[: len(sets)], sets)
        assert found["queries_without_match"] == 6
    gallerist.save(tmp_path / "x.safetensors", rows, sets[:12])
    again = gallerist.load(tmp_path / "x.safetensors")
    assert gallerist.evaluate(rows, again.labels)["queries_without_match"] == 6


def test_an_empty_label_is_no_class(gallery, tmp_path):
    rows, labels = gallery[:4], ["a", "a", "", ""]
    gallerist.save(tmp_path / "x.safetensors", rows, labels)
    known = gallerist.load(tmp_path / "x.safetensors")
    for call in (lambda: gallerist.evaluate(rows, labels), lambda: gallerist.evaluate(known)):
        with pytest.raises(ValueError, match="2 rows of the embeddings have an empty label\nhint: leave them out"):
            call()
    with pytest.raises(ValueError, match="1 row of the gallery has an empty label"):
        gallerist.evaluate(rows, ["a"] * 4, gallery=rows[:3], gallery_labels=labels[:3])
    with pytest.raises(ValueError, match="have an empty label"):
        gallerist.report(rows, labels)
    assert gallerist.evaluate(known.where("label is not missing"))["queries"] == 2


def test_junk_is_no_class_of_one_set(gallery):
    people = ["0001", "0001", "-1", "-1"] * 75
    known = embeddings(gallery, labels=people, protocol="market1501")
    for call in (lambda: gallerist.evaluate(known), lambda: gallerist.report(known)):
        with pytest.raises(ValueError, match="150 rows with the label `-1` are junk, no class\nhint: .*protocol=\"none\""):
            call()
    with pytest.warns(RuntimeWarning, match="150 rows with the label `-1` count as one class") as found:
        wanted = gallerist.evaluate(gallery, people)
    assert found[0].filename == __file__
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert gallerist.evaluate(known, protocol="none") == wanted
        gallerist.evaluate(gallery, np.arange(300) // 5 - 1, metrics=["recall@1"], protocol="none")
        gallerist.evaluate(gallery, ["-1", *people[:2] * 149, "0001"], metrics=["recall@1"])
    known = embeddings(gallery, labels=[label.replace("-1", "0000") for label in people], protocol="market1501")
    with pytest.warns(RuntimeWarning, match="is one set: every row is compared with the others here"):
        gallerist.evaluate(known)


def embeddings(rows, **known):
    return gallerist.Embeddings(rows, **known)


def test_embeddings_are_compared_as_they_declare(gallery):
    rows = gallery * np.linspace(0.1, 3, 300, dtype=np.float32)[:, None]
    known = embeddings(rows, metric="euclidean", labels=np.arange(300) // 5)
    wanted = gallerist.search(rows, k=5, metric="euclidean")
    for found in (gallerist.search(known, k=5), gallerist.search(known, k=5, metric="euclidean")):
        np.testing.assert_array_equal(found, wanted)
    np.testing.assert_array_equal(gallerist.search(known, rows, k=5), gallerist.search(rows, rows, k=5, metric="euclidean"))
    np.testing.assert_array_equal(gallerist.search(rows, known, k=5), gallerist.search(rows, rows, k=5, metric="euclidean"))
    np.testing.assert_array_equal(gallerist.search(known, k=5, metric="cosine"), gallerist.search(rows, k=5))
    assert gallerist.evaluate(known)["metric"] == "euclidean"
    assert gallerist.evaluate(known) == gallerist.evaluate(rows, np.arange(300) // 5, metric="euclidean")
    assert gallerist.evaluate(known, metric="cosine")["metric"] == "cosine"
    page = gallerist.report(rows, np.arange(300) // 5, metric="euclidean", metrics=["recall@1"])
    assert gallerist.report(known, metrics=["recall@1"]).html == page.html
    np.testing.assert_array_equal(gallerist.map(known, method="pca"), gallerist.map(rows, method="pca"))


def test_embeddings_of_different_models_or_metrics_are_not_compared(gallery):
    one = embeddings(gallery, model="a" * 64, metric="cosine", labels=[0, 1] * 150)
    other = embeddings(gallery, model="b" * 64, metric="cosine", labels=[0, 1] * 150)
    long = embeddings(gallery, model="a" * 64, metric="euclidean", labels=[0, 1] * 150)
    for call in (
        lambda: gallerist.search(one, other),
        lambda: gallerist.evaluate(one, gallery=other),
        lambda: gallerist.report(one, gallery=other),
    ):
        with pytest.raises(ValueError, match="queries were embedded with the network .*, the gallery with"):
            call()
    for call in (
        lambda: gallerist.search(one, long),
        lambda: gallerist.evaluate(one, gallery=long, metric="euclidean"),
    ):
        with pytest.raises(ValueError, match="made to be compared by (cosine|euclidean)"):
            call()
    gallerist.search(one, long, metric="cosine")


def test_rows_of_one_model_that_are_not_scaled_are_compared_by_the_cosine_only(gallery):
    labels = [i // 5 for i in range(300)]
    scaled = embeddings(gallery, model="a" * 64, metric="cosine", labels=labels)
    raw = embeddings(gallery * 3, model="a" * 64 + "#unscaled", metric="cosine", labels=labels)
    for one, other in ((scaled, raw), (raw, scaled)):
        gallerist.search(one, other)
        assert gallerist.evaluate(one, gallery=other)["metric"] == "cosine"
        with pytest.raises(ValueError, match="the rows of the (queries|gallery) are scaled to length 1(?s:.)*hint: .*cosine"):
            gallerist.evaluate(one, gallery=other, metric="euclidean")
        for metric in ("cosine", "euclidean"):
            index = gallerist.Index(12, metric=metric)
            index.add(one)
            if metric == "cosine":
                assert index.search(other, k=1)[0][:, 0].tolist() == list(range(300))
            else:
                with pytest.raises(ValueError, match="are scaled to length 1"):
                    index.search(other, k=1)


def test_files_bring_their_labels_cameras_and_protocol(gallery):
    labels, cameras = np.arange(300) // 6, np.arange(300) % 3
    queries = embeddings(gallery[::2], labels=labels[::2], cameras=cameras[::2], protocol="market1501")
    known = embeddings(gallery, labels=labels, cameras=cameras, protocol="market1501")
    given = {"gallery": gallery, "gallery_labels": labels, "cameras": cameras[::2], "gallery_cameras": cameras}
    found = gallerist.evaluate(queries, gallery=known)
    assert found["protocol"].startswith("market1501")
    assert found["metrics"] == gallerist.evaluate(gallery[::2], labels[::2], **given, protocol="market1501", metric="cosine")["metrics"]
    without = gallerist.evaluate(queries, gallery=known, protocol="none")
    assert without["metrics"] == gallerist.evaluate(gallery[::2], labels[::2], gallery=gallery, gallery_labels=labels)["metrics"]
    # Within one set the cameras of a file do not count, as in `gallerist evaluate`.
    assert gallerist.evaluate(known)["metrics"] == gallerist.evaluate(gallery, labels)["metrics"]
    assert gallerist.evaluate(known, labels[::-1])["metrics"] == gallerist.evaluate(gallery, labels[::-1])["metrics"]


def test_the_seed_decides_resamples_and_episodes(gallery):
    labels = np.arange(300) // 20
    options = {"bootstrap": {"resamples": 20}, "few_shot": {"episodes": 5}, "metrics": ["recall@1"]}
    found = gallerist.evaluate(gallery, labels, seed=9, **options)
    assert found["intervals"]["seed"] == 9 and found["few_shot"]["seed"] == 9
    own = {"bootstrap": {"resamples": 20, "seed": 3}, "few_shot": {"episodes": 5, "seed": 4}}
    found = gallerist.evaluate(gallery, labels, seed=9, metrics=["recall@1"], **own)
    assert found["intervals"]["seed"] == 3 and found["few_shot"]["seed"] == 4
    assert gallerist.evaluate(gallery, labels, bootstrap=True, seed=9, metrics=["recall@1"])["intervals"]["seed"] == 9


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda rows, path: gallerist.evaluate(rows, [0] * 300, gallery_labels=[0] * 300), "need a gallery"),
        (lambda rows, path: gallerist.evaluate(rows, [0] * 300, gallery_cameras=[0] * 300), "need a gallery"),
        (
            lambda rows, path: gallerist.evaluate(rows, [0] * 300, gallery=rows, gallery_labels=[0] * 300, cameras=[0] * 300),
            "cameras need those of the other side",
        ),
        (lambda rows, path: gallerist.report(rows, [0] * 300, gallery_paths=["a"] * 300), "need a gallery"),
        (lambda rows, path: gallerist.save(path / "x.npy", rows, [0] * 300), "embeddings alone.*\n.*safetensors"),
        (lambda rows, path: gallerist.save(path / "x.npy", rows, paths=["a"] * 300), "embeddings alone"),
        (lambda rows, path: gallerist.evaluate(rows, [0] * 300, rerank="k_reciprocal"), "rerank: wanted True, False or a dict"),
        (lambda rows, path: gallerist.evaluate(rows, [0] * 300, bootstrap=500), "bootstrap: wanted True, False or a dict"),
        (lambda rows, path: gallerist.search(np.full((3, 2), 1e300)), "row 0 has 1e\\+300, which is too large for f32"),
        (lambda rows, path: gallerist.evaluate(object(), [0]), "got object"),
    ],
)
def test_what_would_be_ignored_is_refused(gallery, call, message, tmp_path):
    with pytest.raises(ValueError, match=message):
        call(gallery, tmp_path)
    assert not list(tmp_path.iterdir())


def test_what_an_npy_file_cannot_hold_is_a_warning(gallery, tmp_path):
    with pytest.warns(RuntimeWarning, match="left out: labels, metric"):
        gallerist.save(tmp_path / "x.npy", embeddings(gallery, labels=np.arange(300), metric="cosine"))
    np.testing.assert_array_equal(gallerist.load(tmp_path / "x.npy").embeddings, gallery)


def test_options_take_numbers_of_numpy(gallery):
    options = {"k1": np.int64(10), "k2": np.int32(3), "lambda": np.float32(0.5)}
    found = gallerist.evaluate(gallery, np.arange(300) // 5, rerank=options, verification={"fars": np.array([0.01])})
    assert "reranked" in found


def test_cameras(gallery):
    labels, cameras = np.arange(300) // 5, np.arange(300) % 2
    found = gallerist.evaluate(
        gallery[::2], labels[::2], gallery=gallery, gallery_labels=labels, cameras=cameras[::2], gallery_cameras=cameras
    )
    assert "camera" in found["protocol"]


@pytest.mark.parametrize("kind", ["exact", "hnsw"])
def test_index(gallery, tmp_path, kind):
    index = gallerist.Index(12, kind=kind)
    labels = [str(i % 3) for i in range(300)]
    assert index.add(gallery, labels=labels) == (300, 0, 0)
    assert index.add(gallery[:10], ids=np.arange(10), labels=labels[:10]) == (0, 10, 0)
    ids, scores = index.search(gallery[:4], k=5)
    assert ids[:, 0].tolist() == [0, 1, 2, 3] and scores.shape == (4, 5)
    ids, _ = index.search(gallery[:4], k=5, label_in=["1"])
    assert (ids % 3 == 1).all()
    # Values of filters are written as those of items.
    for one in ("1", 1, 1.0, np.int64(1), np.array(1)):
        ids, _ = index.search(gallery[:4], k=300, label_not_in=[one, {"2"}])
        assert set((ids[0] % 3)[ids[0] != 2**64 - 1].tolist()) == {0}
    # One value needs no list.
    wanted = index.search(gallery[:4], k=300, label_in=["1"])[0]
    for one in ("1", 1, 1.0, np.int64(1), np.array(1)):
        np.testing.assert_array_equal(index.search(gallery[:4], k=300, label_in=one)[0], wanted)
    with pytest.raises(ValueError, match="label_in: row 1 is 0.5, which is not a whole number"):
        index.search(gallery[:1], label_in=["1", 0.5])
    for one, message in ((0.5, "row 0 is 0.5"), (b"1", "row 0 is b'1'"), (object(), "wanted a text or a whole number")):
        with pytest.raises(ValueError, match=f"label_in: .*{message}"):
            index.search(gallery[:1], label_in=one)
    ids, _ = index.search(gallery[:4], k=300, id_not_in=[0])
    assert 0 not in ids
    index.save(tmp_path / "x.index")
    assert index.remove([0, 299, 999]) == 2 and len(index) == 298
    index.add(gallery[:1])
    assert index.labels()[0][-1] == 300, "the number of a removed item is not given again"
    again = gallerist.Index.open(tmp_path / "x.index", mmap=True)
    assert len(again) == 300 and again.info["kind"] == kind
    with pytest.raises(ValueError):
        again.add(gallery[:1] + 1, ids=[5])
    with pytest.raises(ValueError, match="either label_in or label_not_in"):
        index.search(gallery[:1], label_in="1", label_not_in="2")


def test_ids_of_paths_are_refused_where_the_items_have_others():
    rows, paths = np.eye(2, dtype=np.float32), ["a", "b"]
    index = gallerist.Index(2)
    index.add(rows, ids=[0, 1], paths=paths)
    with pytest.raises(ValueError, match="ids of its own .item 0 is `a`."):
        index.add(rows, paths=paths)
    assert index.add(rows, ids=[0, 1], paths=paths) == (0, 2, 0)


def test_files(gallery, tmp_path):
    path = tmp_path / "x.safetensors"
    gallerist.save(path, gallery, [{"b", "a"}] * 300, paths=[f"{i}.jpg" for i in range(300)], metric="euclidean")
    found = gallerist.load(path)
    np.testing.assert_array_equal(found.embeddings, gallery)
    assert found.labels[0] == "a|b" and found.paths[7] == "7.jpg" and found.metric == "euclidean"
    gallerist.save(tmp_path / "y.safetensors", found, precision="bf16")
    assert np.abs(gallerist.load(tmp_path / "y.safetensors").embeddings - gallery).max() < 0.02
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    with pytest.raises(ValueError):
        gallerist.load(path)


def test_sources_and_threshold_survive_load_and_save(tmp_path):
    rows = np.eye(3, dtype=np.float32)
    rule = {
        "metric": "cosine", "threshold": 0.75, "near": 0.5, "rate": "comparison", "target": 0.001, "measured": 0.0005,
        "bound": 0.002, "confidence": 0.95, "miss_rate": None, "model": "0123",
    }
    sources = [gallerist.Source("shop", "/photos"), None, gallerist.Source("shop", "/photos")]
    path = tmp_path / "x.safetensors"
    gallerist.save(path, rows, paths=["a", "b", "c"], sources=sources, run="runs/x", threshold=rule)
    found = gallerist.load(path)
    assert found.sources == sources and found.run == "runs/x" and found.threshold == rule
    gallerist.save(tmp_path / "y.safetensors", found.select([2, 1]))
    again = gallerist.load(tmp_path / "y.safetensors")
    assert again.sources == sources[:0:-1] and again.threshold == rule and again.run == "runs/x"
    gallerist.save(path, rows, sources=["a", "b", None])
    assert gallerist.load(path).sources == [gallerist.Source("a"), gallerist.Source("b"), None]
    with pytest.raises(ValueError, match="one a row"):
        gallerist.save(path, rows, sources=["a"])
    with pytest.raises(ValueError, match="threshold: .*`?threshold"):
        gallerist.save(path, rows, threshold={"metric": "cosine"})


def test_long_work_lets_other_threads_run(gallery):
    import threading
    import time

    ticks = []
    stop = threading.Event()

    def tick():
        while not stop.is_set():
            ticks.append(time.perf_counter())
            time.sleep(0.001)

    thread = threading.Thread(target=tick)
    thread.start()
    many = np.random.default_rng(0).normal(size=(20_000, 64)).astype(np.float32)
    start = time.perf_counter()
    gallerist.search(many, k=5)
    end = time.perf_counter()
    stop.set()
    thread.join()
    assert sum(start < at < end for at in ticks) > 10


def test_an_index_knows_the_sources_of_embeddings(gallery, tmp_path):
    paths = [f"{i % 150}.jpg" for i in range(300)]
    sources = [gallerist.Source("a", "/a")] * 150 + [gallerist.Source("b", "/b")] * 150
    known = embeddings(gallery, paths=paths, labels=np.arange(300), sources=sources, model="a" * 64, metric="cosine", run="runs/x")
    gallerist.save(tmp_path / "x.safetensors", known)
    index = gallerist.Index(12)
    assert index.add(gallerist.load(tmp_path / "x.safetensors")) == (300, 0, 0)
    assert index.info["model"] == "a" * 64 and index.info["metric_of_rows"] == "cosine"
    ids, labels = index.labels()
    for again in (
        lambda: index.add(known),
        lambda: index.add(gallery, paths=paths, labels=np.arange(300), sources=sources),
        lambda: index.add(gallery, paths=paths, labels=np.arange(300), sources=[source.name for source in sources]),
    ):
        assert sum(again()[:2]) == 300 and len(index) == 300
    # Without sources, 150 paths would be there twice.
    with pytest.raises(ValueError, match="(?i)id"):
        gallerist.Index(12).add(gallery, paths=paths)
    index.save(tmp_path / "x.index")
    again = gallerist.Index.open(tmp_path / "x.index")
    np.testing.assert_array_equal(again.labels()[0], ids)
    assert again.add(known) == (0, 300, 0)


@pytest.mark.parametrize("kind", ["exact", "hnsw"])
def test_an_index_without_items_has_empty_lists(gallery, kind):
    index = gallerist.Index(12, kind=kind)
    index.add(gallery, ids=np.arange(300))
    index.remove(np.arange(300))
    for empty in (index, gallerist.Index(12, kind=kind)):
        ids, scores = empty.search(gallery[:4], k=5)
        assert ids.shape == scores.shape == (4, 0) and ids.dtype == np.uint64 and scores.dtype == np.float32
        with pytest.raises(ValueError, match="dimensions|values"):
            empty.search(gallery[:4, :5])


def test_other_threads_run_while_an_index_is_busy(gallery):
    import threading

    index = gallerist.Index(64, kind="hnsw")
    rows = np.random.default_rng(0).normal(size=(20_000, 64)).astype(np.float32)
    thread = threading.Thread(target=index.add, args=(rows,))
    thread.start()
    ticks = []
    waiting = threading.Thread(target=lambda: (index.info, index.set_ef(50)))
    waiting.start()
    while thread.is_alive():
        ticks.append(1)
        thread.join(0.01)
    waiting.join()
    assert len(ticks) > 5
