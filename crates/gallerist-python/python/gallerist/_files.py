"""Embeddings files."""

from __future__ import annotations

import dataclasses
import json
import os
import warnings
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np

from . import _arrays, _columns, _native


class Source(NamedTuple):
    """A set of images that embeddings come from: a folder, an archive, the folder of a manifest."""

    name: str
    """Its name, which with the path of an image makes the id of the image in an index."""
    images: str | None = None
    """What to open to see the images."""


@dataclasses.dataclass
class Embeddings:
    """Embeddings with what is known of each row."""

    embeddings: np.ndarray
    """Array of shape ``(n, d)``, f32."""
    labels: list[str] | None = None
    """The class of each row; ``a|b`` is a set of two, ``|`` the empty set."""
    paths: list[str] | None = None
    """The image of each row."""
    cameras: list[str] | None = None
    """The camera of each row."""
    columns: dict[str, Any] = dataclasses.field(default_factory=dict)
    """Further columns by name: arrays of numbers (f64, NaN where a value is missing), lists of texts and dates (ISO 8601), and
    lists of lists of tags, with None where a value is missing."""
    model: str | None = None
    """The fingerprint of the model that made the embeddings."""
    source: str | None = None
    """Where the images were read from, as a text to show."""
    sources: list[Source | None] | None = None
    """The source of each row; ``gallerist serve`` and ``Index.add`` find the images by it."""
    run: str | None = None
    """The run directory of the model."""
    metric: str | None = None
    """How the rows are to be compared."""
    protocol: str | None = None
    """The protocol of the images' data set."""
    threshold: dict[str, Any] | None = None
    """The threshold at which a result is a match, as ``gallerist threshold --save`` stores it: ``threshold``, ``near``,
    ``metric``, ``rate``, ``target``, ``measured``, ``bound``, ``confidence``, ``miss_rate``, and where known ``gallery`` and
    ``model``."""

    def __len__(self) -> int:
        return len(self.embeddings)

    def mask(self, condition: str) -> np.ndarray:
        """Whether each row meets a condition; see :meth:`where`. An array of ``n`` booleans."""
        count = len(self)
        return _native.where_rows(
            condition,
            count,
            _arrays.names_or_none(self.labels, "labels", count),
            _arrays.strings(self.paths, "paths", count),
            _arrays.strings(self.cameras, "cameras", count),
            _columns.given(self.columns, count),
        )

    def where(self, condition: str) -> Embeddings:
        """The rows that meet a condition, such as ``price < 20 and colour has "red"``.

        ``label``, ``camera`` and ``path`` are columns, too. The language is that of ``gallerist search --where``.

        :raises ValueError: for a condition that cannot be read, and columns that do not exist or are of another kind.
        """
        return self.select(np.flatnonzero(self.mask(condition)))

    def select(self, rows: Any) -> Embeddings:
        """These rows, by number, with all that is known of them."""
        rows = np.asarray(rows)
        if rows.ndim != 1 or rows.dtype.kind not in "iu" and rows.size:
            raise ValueError(f"rows: wanted a list of row numbers, got {rows.dtype} of shape {rows.shape}")
        rows = rows.astype(np.intp)
        if rows.size and not (0 <= rows.min() and rows.max() < len(self)):
            raise ValueError(f"rows: wanted numbers from 0 to {len(self) - 1}, got {rows.min()} to {rows.max()}")

        def some(values: Any) -> Any:
            if values is None or isinstance(values, np.ndarray):
                return values if values is None else values[rows]
            values = list(values)
            return [values[row] for row in rows]

        return dataclasses.replace(
            self,
            embeddings=np.asarray(self.embeddings)[rows],
            labels=some(self.labels),
            paths=some(self.paths),
            cameras=some(self.cameras),
            sources=some(self.sources),
            columns={name: some(values) for name, values in self.columns.items()},
        )

    def to_frame(self, library: str = "pandas") -> Any:
        """What is known of the rows as a data frame: ``label``, ``path``, ``camera`` and the columns.

        :param library: ``pandas`` or ``polars``, which must be installed.
        """
        known = {"label": self.labels, "path": self.paths, "camera": self.cameras}
        return _columns.frame({name: values for name, values in known.items() if values is not None} | self.columns, library)


def rows_of(values: Any) -> Any:
    """The rows of :class:`Embeddings`; other values as they are."""
    return values.embeddings if isinstance(values, Embeddings) else values


def declared_metric(queries: Any, gallery: Any = None, metric: str | None = None) -> str | None:
    """How queries and a gallery are compared: by ``metric`` if it is given, else as the gallery declares, or the queries.

    :raises ValueError: for embeddings of different models; and for rows of which only some are scaled to length 1 and rows
        that are made for different metrics, unless they are compared by the cosine, which takes rows of any length.
    """
    known = [of for of in (gallery, queries) if isinstance(of, Embeddings)]
    metrics = [of.metric for of in known if of.metric is not None]
    compared = metric if metric is not None or not metrics else metrics[0]
    models = [of.model for of in known if of.model is not None]
    if len(models) == 2:
        _native.check_models(*models, compared or "cosine")
    if len(set(metrics)) > 1 and metric != "cosine":
        of_gallery, of_queries = metrics
        raise ValueError(
            f"the rows of the queries are made to be compared by {of_queries}, those of the gallery by {of_gallery}: their "
            'lengths differ\nhint: embed both in the same way, or compare them with metric="cosine"'
        )
    return compared


def load(path: str | os.PathLike[str]) -> Embeddings:
    """Reads an embeddings file (``.safetensors`` or ``.npy``) or a list of shards (``.json``, of ``gallerist merge``).

    A ``.safetensors`` file of Gallerist whose checksum does not match is refused. Tensors of a file of another program that are
    not read are named in a ``RuntimeWarning``.
    """
    return from_native(_native.load(os.fspath(path)))


def from_native(known: dict[str, Any]) -> Embeddings:
    """Embeddings from what the native part knows of them."""
    if known["sources"] is not None:
        sources, places = known["sources"]
        sources = [Source(*source) for source in sources]
        known["sources"] = [None if place is None else sources[place] for place in places]
    if known["threshold"] is not None:
        known["threshold"] = json.loads(known["threshold"])
    return Embeddings(**known)


def save(
    path: str | os.PathLike[str],
    embeddings: Any,
    labels: Iterable[Any] | None = None,
    *,
    paths: Iterable[Any] | None = None,
    cameras: Iterable[Any] | None = None,
    columns: Any = None,
    model: str | None = None,
    source: str | None = None,
    sources: Sequence[Source | str | None] | None = None,
    run: str | None = None,
    metric: str | None = None,
    protocol: str | None = None,
    threshold: dict[str, Any] | None = None,
    precision: str = "f32",
) -> None:
    """Writes an embeddings file for ``load``, ``gallerist evaluate``, ``search`` and ``serve``.

    The file is written under a temporary name and renamed when it is complete.

    :param path: ``.safetensors``, or ``.npy`` for the embeddings alone. With ``.npy``, labels and the other arguments are refused,
        and the other fields of :class:`Embeddings` are left out with a warning.
    :param embeddings: array of shape ``(n, d)``, or :class:`Embeddings`.
    :param labels: ``n`` labels, as :func:`evaluate` takes them.
    :param paths: the image of each row.
    :param cameras: the camera of each row.
    :param columns: further columns (docs/metadata.md): a dictionary of names and ``n`` values, or a frame of pandas or polars.
        Values are numbers, texts, dates, or sets of texts (tags); None and NaN are missing.
    :param sources: the :class:`Source` of each row, or its name.
    :param run: the run directory of the model.
    :param threshold: the threshold of a match, with the keys of :attr:`Embeddings.threshold`.
    :param precision: ``f32``, ``bf16`` (half the bytes) or ``int8`` (a quarter).
    """
    given = [labels, paths, cameras, columns, model, source, sources, run, metric, protocol, threshold]
    is_npy = os.fspath(path).lower().endswith(".npy")
    if is_npy and any(value is not None for value in given):
        raise ValueError(f"`{os.fspath(path)}`: an .npy file holds embeddings alone\nhint: give a path that ends in .safetensors")
    if isinstance(embeddings, Embeddings) and is_npy:
        known = {field.name: getattr(embeddings, field.name) for field in dataclasses.fields(embeddings)[1:]}
        lost = [name for name, value in known.items() if value is not None and not (name == "columns" and not value)]
        if lost:
            warnings.warn(f"`{os.fspath(path)}` holds embeddings alone: left out: {', '.join(lost)}", RuntimeWarning, stacklevel=2)
        embeddings = embeddings.embeddings
    if isinstance(embeddings, Embeddings):
        set_ = embeddings
        labels, paths, cameras = either(labels, set_.labels), either(paths, set_.paths), either(cameras, set_.cameras)
        columns = either(columns, set_.columns)
        model, source = either(model, set_.model), either(source, set_.source)
        sources, run = either(sources, set_.sources), either(run, set_.run)
        metric, protocol = either(metric, set_.metric), either(protocol, set_.protocol)
        threshold = either(threshold, set_.threshold)
        embeddings = set_.embeddings
    rows = _arrays.rows(embeddings, "embeddings")
    _native.save(
        os.fspath(path),
        rows,
        _arrays.names_or_none(labels, "labels", len(rows)),
        _arrays.strings(paths, "paths", len(rows)),
        _arrays.strings(cameras, "cameras", len(rows)),
        _columns.given(columns, len(rows)),
        model,
        source,
        places(sources, len(rows)),
        run,
        metric,
        protocol,
        None if threshold is None else json.dumps(threshold),
        precision,
    )


def places(sources: Sequence[Source | str | None] | None, count: int) -> tuple[list[tuple[str, str | None]], list[int | None]] | None:
    """The different sources, and the place of each row's source among them."""
    if sources is None:
        return None
    if isinstance(sources, (str, Source)) or len(sources) != count:
        raise ValueError(f"sources: wanted {count} sources, one a row, got {sources!r:.60}")
    known: dict[Source, int] = {}
    places: list[int | None] = []
    for source in sources:
        if isinstance(source, str):
            source = Source(source)
        elif source is not None and not isinstance(source, Source):
            raise ValueError(f"sources: wanted gallerist.Source, text or None, got {source!r:.60}")
        places.append(None if source is None else known.setdefault(source, len(known)))
    return [(source.name, source.images) for source in known], places


def either(given: Any, known: Any) -> Any:
    """What is given, or what is known where nothing is given. An array has no truth value."""
    return known if given is None else given
