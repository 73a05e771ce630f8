"""The Python blocks of the documentation run, with small data and short trainings."""

import pathlib
import re

import numpy as np
import pytest

import gallerist

torch = pytest.importorskip("torch")
pytest.importorskip("pytorch_metric_learning")
image = pytest.importorskip("PIL.Image")

ROOT = pathlib.Path(__file__).parents[3]
PAGES = ["README.md", "docs/python.md", "docs/guides/from-pytorch-metric-learning.md"]
SMALL = {
    "train.steps": 4,
    "image.size": 24,
    "network": {"kind": "conv_blocks", "channels": [8, 8], "dimensions": 8},
    "sampler": {"kind": "classes_images", "classes_per_batch": 3, "images_per_class": 3},
}


def blocks(page):
    return re.findall(r"^```python\n(.*?)^```", (ROOT / page).read_text(encoding="utf-8"), flags=re.M | re.S)


@pytest.fixture
def names(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    random = np.random.default_rng(1)
    for label in range(8):
        folder = tmp_path / "photos" / f"class{label}"
        folder.mkdir(parents=True)
        for number in range(6):
            pixels = random.integers(0, 60, (24, 24, 3)) + 20 * label
            image.fromarray(pixels.astype(np.uint8)).save(folder / f"{number}.jpg")
    image.fromarray(pixels.astype(np.uint8)).save(tmp_path / "new.jpg")
    (tmp_path / "configs").mkdir()
    (tmp_path / "configs" / "omniglot.toml").write_text(
        '[data]\ntrain = ["../photos"]\ntest_fraction = 0.3\n[train]\nsteps = 500\nseed = 1\n[loss]\nname = "rll"\n', encoding="utf-8"
    )
    train = gallerist.train
    monkeypatch.setattr(gallerist, "train", lambda config, out, **options: train(config, out, settings=SMALL, **options))
    from pytorch_metric_learning import losses, miners, samplers

    n, d = 96, 128
    embeddings = torch.randn(n, d, requires_grad=True)
    labels = torch.arange(n) // 4
    data = torch.utils.data.TensorDataset(torch.randn(n, 16), labels)
    model = torch.nn.Linear(16, 8)
    return {
        "gallerist": gallerist,
        "np": np,
        "torch": torch,
        "embeddings": embeddings,
        "rows": embeddings.detach().numpy(),
        "labels": labels,
        "paths": [f"{i}.jpg" for i in range(n)],
        "prices": random.uniform(0, 40, n),
        "shops": ["x", "y"] * (n // 2),
        "gallery": embeddings.detach(),
        "gallery_labels": labels,
        "gallery_cameras": [i % 3 for i in range(n)],
        "queries": torch.randn(8, d),
        "query_labels": list(range(8)),
        "query_cameras": [5] * 8,
        "data": data,
        "model": model,
        "loader": torch.utils.data.DataLoader(data, batch_size=64),
        "losses": losses,
        "miners": miners,
        "samplers": samplers,
    }


@pytest.mark.filterwarnings("ignore::RuntimeWarning", "ignore::UserWarning")
@pytest.mark.parametrize("page", PAGES)
def test_the_blocks_of_a_page_run(page, names):
    found = blocks(page)
    assert found
    labels = names["labels"]
    for number, block in enumerate(found):
        # A loop over batches has the name, too.
        names["labels"] = labels
        exec(compile(block, f"{page}, block {number + 1}", "exec"), names)


def test_the_python_section_of_the_readme_is_short():
    assert len(blocks("README.md")) == 1 and len(blocks("README.md")[0].splitlines()) <= 12
