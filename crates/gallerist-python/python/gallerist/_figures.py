"""Maps and reports."""

from __future__ import annotations

import html
import json
import os
import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np

from . import _arrays, _native
from ._evaluate import options_json, sides
from ._files import Embeddings, rows_of
from ._progress import Events


def map(  # noqa: A001: the name on the command line
    embeddings: Any,
    *,
    method: str = "tsne",
    perplexity: float = 30.0,
    steps: int = 750,
    progress: bool = True,
) -> np.ndarray:
    """A point in the plane for each row.

    :param embeddings: array of shape ``(n, d)``, or :class:`Embeddings`; rows of one or two values are not projected.
    :param method: ``tsne`` (Barnes-Hut t-SNE, van der Maaten 2014) keeps neighbours together; ``pca`` keeps the plane
        of largest variance.
    :param perplexity: effective number of neighbours of t-SNE, 1 or more; at most a third of the rows.
    :param steps: steps of gradient descent of t-SNE.
    :param progress: shows a progress bar if tqdm is installed.
    :returns: array of shape ``(n, 2)``, f32. The same rows give the same points.
    """
    rows = _arrays.rows(rows_of(embeddings), "embeddings")
    with Events(progress) as events:
        points, _, notes = _native.map(rows, method, perplexity, _arrays.integer(steps, "steps"), events)
    for note in notes:
        warnings.warn(note, RuntimeWarning, stacklevel=2)
    return points


class Report:
    """A page with metrics, curves, maps and ranked lists. A notebook shows it; :meth:`save` writes it."""

    def __init__(self, page: str) -> None:
        self.html = page
        """The page: one HTML document without references to other files."""

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes the page to a temporary file and renames it when it is complete."""
        _native.write_text(os.fspath(path), self.html)

    def _repr_html_(self) -> str:
        page = html.escape(self.html, quote=True)
        return f'<iframe srcdoc="{page}" style="width: 100%; height: 800px; border: 0"></iframe>'

    def __repr__(self) -> str:
        return f"Report({len(self.html):,} characters; save() writes the page)"


def report(
    of: Any,
    labels: Any = None,
    *,
    paths: Sequence[Any] | None = None,
    gallery: Any = None,
    gallery_labels: Any = None,
    gallery_paths: Sequence[Any] | None = None,
    cameras: Sequence[Any] | None = None,
    gallery_cameras: Sequence[Any] | None = None,
    images: str | os.PathLike[str] | None = None,
    title: str = "embeddings",
    **options: Any,
) -> Report:
    """The report of a run, the comparison of several, or the report of embeddings.

    :param of: a run directory, a list of run directories, embeddings of shape ``(n, d)``, or :class:`Embeddings`, whose labels,
        paths, cameras and metric are used where none are given.
    :param labels: of embeddings, ``n`` labels.
    :param paths: of embeddings, the image of each row.
    :param gallery: array of shape ``(m, d)``, or :class:`Embeddings`; the rows of ``of`` are then the queries.
    :param images: the folder or archive that ``paths`` are relative to, for the pictures of ranked lists and map.
    :param title: the title of the page.
    :param options: those of :func:`gallerist.evaluate`: ``protocol``, ``metrics``, ``metric``, ``rerank``, ...
    """
    if labels is None and gallery is None and not hasattr(of, "ndim") and not isinstance(of, Embeddings):
        runs = [of] if isinstance(of, (str, os.PathLike)) else list(of)
        if not runs or not all(isinstance(run, (str, os.PathLike)) for run in runs):
            raise ValueError("of: wanted run directories, or embeddings with their labels")
        return Report(_native.run_report([os.fspath(run) for run in runs]))
    rules = {"protocol": options.pop("protocol", None), "metric": options.pop("metric", None)}
    queries, of_gallery, rules = sides(of, labels, cameras, gallery, gallery_labels, gallery_cameras, **rules)
    if isinstance(of, Embeddings) and paths is None:
        paths = of.paths
    if isinstance(gallery, Embeddings) and gallery_paths is None:
        gallery_paths = gallery.paths
    if of_gallery is None and gallery_paths is not None:
        raise ValueError("gallery_paths need a gallery")
    page = _native.embeddings_report(
        title,
        queries,
        _arrays.strings(paths, "paths", len(queries[0])),
        of_gallery,
        None if of_gallery is None else _arrays.strings(gallery_paths, "gallery_paths", len(of_gallery[0])),
        None if images is None else os.path.abspath(images),
        options_json(**rules, **options),
    )
    return Report(page)
