"""Training, embedding, maps, reports, Ctrl-C."""

import io
import json
import os
import pathlib
import signal
import subprocess
import sys
import textwrap
import time
import zipfile

import numpy as np
import pytest

import gallerist

DATA = pathlib.Path(__file__).parents[3] / "data" / "omniglot"
TRAIN, TEST = DATA / "omniglot_images_background.zip", DATA / "omniglot_images_evaluation.zip"

CONFIG = {
    "train": {"steps": 12, "seed": 1, "checkpoint_every": 4, "threads": 1},
    "data": {"train": [TRAIN], "test": [TEST], "max_train_classes": 20, "max_test_classes": 10},
    "validation": {"every": 6},
    "image": {"size": 20, "channels": 1, "invert": True, "stored_size": 28},
    "sampler": {"kind": "classes_images", "classes_per_batch": 6, "images_per_class": 3},
    "network": {"kind": "conv_blocks", "channels": [8, 8], "dimensions": 8},
    "loss": {"name": "rll", "margin": 0.4},
    "report": {},
}


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    out = tmp_path_factory.mktemp("runs") / "short"
    events = []
    result = gallerist.train(CONFIG, out, callback=events.append, progress=False)
    return out, result, events


def test_training_returns_metrics_and_reports_each_step(run):
    out, result, events = run
    assert result["end"] == "finished" and result["steps"] == 12 and result["broken_images"] == 0
    assert pathlib.Path(result["directory"]) == out and pathlib.Path(result["report"]).exists()
    assert result["metrics"] == json.loads((out / "metrics.json").read_text())
    steps = [event for event in events if event["event"] == "step"]
    assert [event["step"] for event in steps] == list(range(1, 13))
    assert all(np.isfinite(event["loss"]) for event in steps)
    assert [event["step"] for event in events if event["event"] == "validation"] == [6, 12]
    kinds = [event["event"] for event in events]
    assert kinds.index("started") < kinds.index("step") < kinds.index("trained")


def test_a_callback_ends_a_run_that_resumes_with_the_same_bits(run, tmp_path):
    out, whole, _ = run
    other = tmp_path / "other"
    stop = lambda event: not (event["event"] == "step" and event["step"] == 5)  # noqa: E731
    result = gallerist.train(CONFIG, other, callback=stop, progress=False)
    assert result["end"] == "interrupted" and result["steps"] == 5 and result["metrics"] is None
    result = gallerist.resume(other, progress=False)
    assert result["end"] == "finished" and result["metrics"]["metrics"] == whole["metrics"]["metrics"]
    a, b = gallerist.load(out / "embeddings.safetensors"), gallerist.load(other / "embeddings.safetensors")
    np.testing.assert_array_equal(a.embeddings, b.embeddings)
    assert gallerist.resume(other, progress=False)["end"] == "was finished"


def test_an_exception_of_the_callback_is_raised_after_a_checkpoint(tmp_path):
    def fail(event):
        if event["event"] == "step" and event["step"] == 2:
            raise ZeroDivisionError("of the caller")

    with pytest.raises(ZeroDivisionError, match="of the caller"):
        gallerist.train(CONFIG, tmp_path / "run", callback=fail, progress=False)
    assert (tmp_path / "run" / "checkpoints" / "last.safetensors").exists()


def test_the_bar_shows_a_step_that_is_skipped():
    pytest.importorskip("tqdm")
    from gallerist._progress import Events

    seen = []
    with Events(True, seen.append) as events:
        events("started", '{"step": 0, "steps": 3, "resumed": false}')
        shown = []
        for step, loss in enumerate(("0.25", "null", "0.5"), 1):
            events("step", f'{{"step": {step}, "loss": {loss}}}')
            shown.append((events._bar.n, events._bar.postfix))
    assert shown == [(1, "loss=0.2500"), (2, "loss=NaN"), (3, "loss=0.5000")]
    assert [event["loss"] for event in seen[1:]] == [0.25, None, 0.5]


@pytest.mark.parametrize(
    "change, message",
    [
        ({"train": {"step": 3}}, "the dictionary.*\n*.*did you mean `steps`"),
        ({"train": {"steps": 0}}, "steps"),
        ({"loss": {"name": "rl"}}, "rll"),
        ({"data": {"train": ["/nowhere/images"]}}, "nowhere"),
    ],
)
def test_a_configuration_that_is_not_right(tmp_path, change, message):
    with pytest.raises(ValueError, match=f"(?s){message}"):
        gallerist.train({**CONFIG, **change}, tmp_path / "run", progress=False)


def test_run_files_and_settings(tmp_path):
    with pytest.raises(ValueError, match="no such file"):
        gallerist.train(tmp_path / "none.toml", tmp_path / "run")
    with pytest.raises(ValueError, match="train.step=3"):
        gallerist.train(CONFIG, tmp_path / "run", settings={"train.step": 3}, progress=False)
    file = DATA.parents[1] / "configs" / "smoke.toml"
    few = {"train.steps": 1, "data.max_train_classes": 20, "data.max_test_classes": 5}
    few |= {"network.channels": [4], "sampler.classes_per_batch": 10}
    assert gallerist.train(file, tmp_path / "run", settings=few, progress=False)["steps"] == 1


def images(archive, count):
    image = pytest.importorskip("PIL.Image")
    with zipfile.ZipFile(archive) as files:
        names = sorted(name for name in files.namelist() if name.endswith(".png"))[:count]
        return names, [image.open(io.BytesIO(files.read(name))) for name in names]


def test_a_model_embeds_files_and_arrays_alike(run, tmp_path):
    out, _, _ = run
    model = gallerist.Model.load(out)
    assert model.info["metric"] in repr(model)
    names, pictures = images(TEST, 6)
    for name, picture in zip(names, pictures):
        path = tmp_path / "images" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        picture.save(path)
    of_files = model.embed(tmp_path / "images", progress=False)
    assert of_files.embeddings.shape == (6, 8) and of_files.model == model.info["fingerprint"]
    of_pil = model.embed([picture.convert("L") for picture in pictures], progress=False)
    np.testing.assert_allclose(of_pil.embeddings, of_files.embeddings, atol=1e-5)
    arrays = np.stack([np.asarray(picture.convert("RGB")) for picture in pictures])
    np.testing.assert_array_equal(model.embed(arrays, progress=False).embeddings, of_pil.embeddings)
    np.testing.assert_array_equal(model.embed(arrays[:, ::1, :, ::-1], progress=False).embeddings, of_pil.embeddings)
    (path.parent / "broken.png").write_bytes(b"no image")
    with pytest.warns(RuntimeWarning, match="broken.png"):
        assert len(model.embed(tmp_path / "images", progress=False).embeddings) == 6


def odd_pictures(image):
    """Files with an orientation, transparency or 16 bits, by the names of their files."""
    random = np.random.default_rng(4)
    colours = random.integers(0, 256, (18, 14, 4), dtype=np.uint8)
    rgba = image.fromarray(colours)
    turned = image.Exif()
    turned[0x0112] = 6
    palette = rgba.convert("RGB").quantize(16)
    wide = random.integers(0, 65536, (18, 14)).astype(np.uint16)
    return {
        "turned.png": (rgba.convert("RGB"), {"exif": turned}),
        "rgba.png": (rgba, {}),
        "la.png": (image.fromarray(colours[:, :, :2]), {}),
        "palette.png": (palette, {}),
        "transparent palette.png": (palette, {"transparency": 3}),
        "transparent grey.png": (rgba.convert("L").point(lambda value: value // 64 * 64), {"transparency": 64}),
        "transparent colour.png": (rgba.convert("RGB"), {"transparency": tuple(int(v) for v in colours[0, 0, :3])}),
        "wide.png": (image.fromarray(wide), {}),
        "bits.png": (rgba.convert("1"), {}),
        "turned.tif": (rgba.convert("RGB"), {"exif": turned}),
    }


def test_a_pil_image_has_the_embedding_of_its_file(run, tmp_path):
    image = pytest.importorskip("PIL.Image")
    for channels, change in ((1, {}), (3, {"image.channels": 3, "train.steps": 1})):
        out = tmp_path / f"run{channels}"
        gallerist.train(CONFIG, out, settings={"train.steps": 1, **change}, progress=False)
        model = gallerist.Model.load(out)
        for name, (picture, options) in odd_pictures(image).items():
            picture.save(tmp_path / name, **options)
            of_file = model.embed(tmp_path / name, progress=False).embeddings
            with image.open(tmp_path / name) as opened:
                of_pil = model.embed([opened], progress=False).embeddings
            np.testing.assert_array_equal(of_pil, of_file, err_msg=name)


def test_pil_images_whose_white_is_not_defined_are_refused(run):
    image = pytest.importorskip("PIL.Image")
    model = gallerist.Model.load(run[0])
    for mode in ("I", "F"):
        with pytest.raises(ValueError, match=f"image 1 has the mode '{mode}'(?s:.)*hint: .*convert"):
            model.embed([image.new("L", (8, 8)), image.new(mode, (8, 8))], progress=False)


def test_a_calibrated_model_embeds_in_int8(run, tmp_path):
    out, _, _ = run
    for name, picture in zip(*images(TEST, 6)):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        picture.save(path)
    with pytest.raises(ValueError, match="there are no ranges"):
        gallerist.Model.load(out, products="int8")
    model = gallerist.Model.load(out)
    found = model.calibrate(tmp_path, count=4, progress=False)
    assert found["images"] == 4 and 0 <= found["mean_distance"] <= found["largest_distance"] < 0.05
    with pytest.raises(ValueError, match="count"):
        model.calibrate(tmp_path, count=0)
    wanted = model.embed(tmp_path, progress=False).embeddings
    rows = gallerist.Model.load(out, products="int8").embed(tmp_path, progress=False).embeddings
    assert (wanted * rows).sum(1).min() > 0.95


@pytest.mark.parametrize(
    "images, message",
    [
        (np.zeros((2, 8, 8), np.uint8), r"\(n, height, width, channels\)"),
        (np.zeros((2, 8, 8, 3), np.float32), "uint8"),
        ([np.zeros((8, 8, 4), np.uint8)], r"\(8, 8, 4\)"),
        ([np.zeros((0, 8, 3), np.uint8)], r"\(0, 8, 3\)"),
        ([], "empty"),
        (["/nowhere/x.png"], "nowhere"),
    ],
)
def test_images_that_cannot_be_embedded(run, images, message):
    with pytest.raises(ValueError, match=message):
        gallerist.Model.load(run[0]).embed(images, progress=False)


def test_no_run(tmp_path):
    with pytest.raises(ValueError, match="no run|config.toml"):
        gallerist.Model.load(tmp_path)
    with pytest.raises(ValueError, match="best, last"):
        gallerist.Model.load(tmp_path, checkpoint="first")


def test_map():
    rows = np.random.default_rng(1).normal(size=(60, 10)).astype(np.float32)
    points = gallerist.map(rows, steps=50, perplexity=10, progress=False)
    assert points.shape == (60, 2) and np.isfinite(points).all()
    np.testing.assert_array_equal(points, gallerist.map(rows, steps=50, perplexity=10, progress=False))
    assert gallerist.map(rows, method="pca").shape == (60, 2)
    with pytest.warns(RuntimeWarning, match="perplexity"):
        gallerist.map(rows, steps=1, progress=False)
    with pytest.raises(ValueError, match="tsne, pca"):
        gallerist.map(rows, method="umap")
    with pytest.raises(ValueError, match="perplexity"):
        gallerist.map(rows, perplexity=0.0, progress=False)


def test_reports(run, tmp_path):
    out, _, _ = run
    page = gallerist.report(out)
    page.save(tmp_path / "page.html")
    assert (tmp_path / "page.html").read_text(encoding="utf-8") == page.html
    assert page._repr_html_().startswith("<iframe srcdoc=")
    assert "</html>" in gallerist.report([out, out]).html
    rows = np.random.default_rng(1).normal(size=(40, 6)).astype(np.float32)
    page = gallerist.report(rows, np.arange(40) // 4, title="forty rows", metrics=["recall@1", "map@r"])
    assert "forty rows" in page.html
    page = gallerist.report(rows[:20], np.arange(20) // 4, gallery=rows[20:], gallery_labels=np.arange(20) // 4)
    assert "</html>" in page.html
    with pytest.raises(ValueError, match="run directories, or embeddings"):
        gallerist.report([])
    with pytest.raises(ValueError, match="labels"):
        gallerist.report(rows)


def test_a_progress_bar_is_shown_where_tqdm_is_installed(capsys):
    pytest.importorskip("tqdm")
    rows = np.random.default_rng(1).normal(size=(60, 10)).astype(np.float32)
    gallerist.map(rows, steps=5, perplexity=5)
    assert "map" in capsys.readouterr().err


INTERRUPTED = {
    "search": "gallerist.search(rows, k=10)",
    "search of queries": "gallerist.search(rows, rows[::2], k=10)",
    "evaluation": "gallerist.evaluate(rows, np.arange(len(rows)) // 5)",
    "clustering": "gallerist.evaluate(rows[:30000], np.arange(30000) // 5, cluster='sklearn10', metrics=['recall@1'])",
    "addition": "index.add(rows)",
    "map": "gallerist.map(rows[:40000], progress=False)",
    "training": "gallerist.train({**config, 'train': {'steps': 100000}}, out, progress=False)",
}


@pytest.mark.skipif(sys.platform == "win32", reason="signals are sent")
@pytest.mark.parametrize("what", INTERRUPTED)
def test_ctrl_c_ends_long_work(what, tmp_path):
    config = json.loads(json.dumps(CONFIG, default=str))
    program = f"""
        import signal, numpy as np, gallerist
        # A program in the background of a shell ignores Ctrl-C.
        signal.signal(signal.SIGINT, signal.default_int_handler)
        config, out = {config!r}, {str(tmp_path / "run")!r}
        rows = np.random.default_rng(1).normal(size=(200_000, 64)).astype(np.float32)
        index = gallerist.Index(64, kind="hnsw")
        print("begins", flush=True)
        try:
            {INTERRUPTED[what]}
        except KeyboardInterrupt:
            print("interrupted", flush=True)
        found, _ = gallerist.search(rows[:100], k=1)
        if len(index):
            # What is in is whole: items find themselves, and the rest can be added.
            ids, labels = index.labels()
            assert len(ids) == len(index) < len(rows)
            ids = ids[:: len(ids) // 50]
            assert (index.search(rows[ids], 1)[0][:, 0] == ids).all()
            index.add(rows[-3:], [10**6, 10**6 + 1, 10**6 + 2])
            assert index.search(rows[-1:], 1)[0][0, 0] in (10**6 + 2, len(rows) - 1)
        print(len(found), flush=True)
    """
    command = [sys.executable, "-c", textwrap.dedent(program)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=os.environ) as process:
        assert process.stdout.readline() == "begins\n"
        time.sleep(1.5)
        process.send_signal(signal.SIGINT)
        begun = time.monotonic()
        try:
            output, _ = process.communicate(timeout=60)
        except subprocess.TimeoutExpired:
            process.kill()
            raise
    assert output.split() == ["interrupted", "100"], output
    assert time.monotonic() - begun < 20
    if what == "training":
        assert (tmp_path / "run" / "checkpoints" / "last.safetensors").exists()


def test_configurations_take_booleans_of_numpy_and_no_folder(tmp_path):
    changed = {**CONFIG, "image": {**CONFIG["image"], "invert": np.True_}}
    assert gallerist.train(changed, tmp_path / "run", settings={"train.steps": 1}, progress=False)["steps"] == 1
    with pytest.raises(ValueError, match="a folder\nhint: a run file or a dictionary is wanted"):
        gallerist.train(tmp_path, tmp_path / "other", progress=False)
    with pytest.raises(ValueError, match="got object"):
        gallerist.train({"image": {"invert": object()}}, tmp_path / "other", progress=False)


def test_a_network_of_torch_is_trained_on_omniglot():
    torch = pytest.importorskip("torch")
    image = pytest.importorskip("PIL.Image")
    from gallerist.torch import ClassSampler, losses

    rows, labels = [], []
    with zipfile.ZipFile(TRAIN) as files:
        names = sorted(name for name in files.namelist() if name.endswith(".png"))[: 20 * 90]
        for name in names:
            picture = image.open(io.BytesIO(files.read(name))).convert("L").resize((28, 28), image.Resampling.BOX)
            rows.append(1 - np.asarray(picture, dtype=np.float32) / 255)
            labels.append(name.rpartition("/")[0])
    classes = np.unique(labels, return_inverse=True)[1]
    rows = torch.tensor(np.stack(rows))[:, None]
    train, test = np.flatnonzero(classes < 60), np.flatnonzero(classes >= 60)

    torch.manual_seed(1)
    block = lambda a, b: [torch.nn.Conv2d(a, b, 3, 2, 1), torch.nn.BatchNorm2d(b), torch.nn.ReLU()]  # noqa: E731
    network = torch.nn.Sequential(*block(1, 32), *block(32, 32), *block(32, 64), torch.nn.Flatten(), torch.nn.Linear(1024, 32))
    loss = losses.RllLoss(margin=0.4, t_neg=10.0)
    optimizer = torch.optim.AdamW(network.parameters(), lr=0.003)

    def recall():
        network.eval()
        with torch.no_grad():
            embeddings = network(rows[test])
        network.train()
        return gallerist.evaluate(embeddings, classes[test], metrics=["recall@1"])["metrics"]["recall@1"]

    before = recall()
    sampler = ClassSampler(classes[train], classes=20, images=4, batches=80)
    for batch in sampler:
        at = train[batch]
        optimizer.zero_grad()
        loss(network(rows[at]), torch.tensor(classes[at])).backward()
        optimizer.step()
    after = recall()
    assert after > before + 0.3, (before, after)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
@pytest.mark.parametrize("before", ["gallerist.evaluate(rows, labels)", "gallerist.set_threads(2)", "gallerist.set_threads(0)", ""])
def test_a_fork_after_the_threads_are_started_is_refused_and_does_not_wait(before):
    program = f"""
        import multiprocessing, numpy as np, gallerist
        rows = np.random.default_rng(1).normal(size=(100, 8)).astype(np.float32)
        labels = np.arange(100) // 5
        def measured(_):
            try:
                gallerist.losses.ContrastiveLoss()(rows, labels)
                gallerist.search(rows)
                return gallerist.evaluate(rows, labels)["queries"]
            except RuntimeError as error:
                return str(error)
        {before}
        with multiprocessing.get_context("fork").Pool(2) as pool:
            for found in pool.map(measured, range(4)):
                print("spawn" in str(found) or found)
        print(gallerist.evaluate(rows, labels)["queries"])
    """
    found = subprocess.run([sys.executable, "-c", textwrap.dedent(program)], capture_output=True, text=True, timeout=120, check=True)
    assert found.stdout.split() == (["True"] * 4 if before else ["100"] * 4) + ["100"]


def test_only_false_of_a_callback_ends_a_run(tmp_path):
    few = {"train.steps": 2, "train.checkpoint_every": 1}
    for number, value in enumerate((0, "", [], None, np.zeros(3), np.float64(0))):
        result = gallerist.train(CONFIG, tmp_path / str(number), settings=few, callback=lambda _: value, progress=False)
        assert result["end"] == "finished", value
    for number, value in enumerate((False, np.False_)):
        stop = lambda event: value if event["event"] == "step" else None  # noqa: E731
        result = gallerist.train(CONFIG, tmp_path / f"false{number}", callback=stop, progress=False)
        assert result["end"] == "interrupted" and result["steps"] == 1
