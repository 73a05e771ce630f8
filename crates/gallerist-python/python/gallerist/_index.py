"""Galleries that change."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from . import _arrays, _columns, _native
from ._files import Embeddings, Source, declared_metric, either, places, rows_of
from ._search import _positive


class Index:
    """A gallery of items with ids: add, remove, search, filter, save.

    ``kind="exact"`` compares a query with every item; ``kind="hnsw"`` is a graph for millions of items (Malkov and
    Yashunin, 2018), whose lists are approximate.

    >>> index = Index(2)
    >>> index.add([[1.0, 0.0], [0.0, 1.0]], labels=["wren", "heron"])
    (2, 0, 0)
    >>> ids, scores = index.search([[1.0, 0.1]], k=1)
    >>> int(ids[0, 0])
    0
    """

    def __init__(
        self,
        dimensions: int,
        *,
        metric: str = "cosine",
        kind: str = "exact",
        m: int = 16,
        ef_construction: int = 100,
        ef: int = 64,
        seed: int = 1,
    ) -> None:
        """An empty index in memory.

        :param dimensions: values of an embedding.
        :param metric: ``cosine``, ``euclidean`` or ``inner_product``.
        :param kind: ``exact`` or ``hnsw``.
        :param m: links of an item of ``hnsw``, 2 or more.
        :param ef_construction: candidates for the links of a new item of ``hnsw``.
        :param ef: candidates of a search in ``hnsw``.
        :param seed: seed of the graph.
        """
        self._native = _native.Index(
            _positive(dimensions, "dimensions"),
            metric,
            kind,
            _positive(m, "m"),
            _positive(ef_construction, "ef_construction"),
            _positive(ef, "ef"),
            _arrays.integer(seed, "seed"),
        )

    @classmethod
    def open(cls, path: str | os.PathLike[str], *, mmap: bool = False) -> Index:
        """Reads an index that was saved, by this package or by ``gallerist index``.

        :param mmap: leaves the rows in the file, which may be larger than memory; the index cannot be changed then.
        """
        index = cls.__new__(cls)
        index._native = _native.Index.open(os.fspath(path), mmap)
        return index

    @property
    def info(self) -> dict[str, Any]:
        """``kind``, ``metric``, ``dimensions``, ``count``, ``model`` (the fingerprint of the model that made the items) and
        ``metric_of_rows`` (the metric that this model declares); the last two are None if they are not known."""
        return self._native.info()

    def __len__(self) -> int:
        return self._native.info()["count"]

    def __repr__(self) -> str:
        info = self.info
        return f"Index({info['count']} items, dimensions={info['dimensions']}, kind={info['kind']!r}, metric={info['metric']!r})"

    def add(
        self,
        embeddings: Any,
        ids: Any = None,
        *,
        labels: Iterable[Any] | None = None,
        paths: Iterable[Any] | None = None,
        cameras: Iterable[Any] | None = None,
        columns: Any = None,
        sources: Sequence[Source | str | None] | None = None,
        replace: bool = False,
    ) -> tuple[int, int, int]:
        """Adds items. Items that are in the index unchanged stay as they are.

        Ctrl-C ends it with ``KeyboardInterrupt``. The index stays whole: an exact index then has all items of the call or
        none, an ``hnsw`` index those that are linked already; add them again to complete it.

        :param embeddings: array of shape ``(n, d)``; or :class:`Embeddings`, whose labels, paths, cameras, columns and sources are
            used if they are not given here. Their model, and the metric that they declare, must be those of the index.
        :param ids: ``n`` ids below 2^63. By default they are computed from sources and paths, as ``gallerist index`` does, and
            refused if the items of the index have other ids; without paths they are the numbers after the largest id that an
            item has or had.
        :param columns: further columns, as :func:`save` takes them.
        :param sources: the :class:`Source` of each row, or its name.
        :param replace: replaces items whose id exists; otherwise items that differ are refused.
        :returns: numbers of new, unchanged and replaced items.
        """
        known = embeddings if isinstance(embeddings, Embeddings) else Embeddings(embeddings)
        labels, paths, cameras = either(labels, known.labels), either(paths, known.paths), either(cameras, known.cameras)
        columns, sources = either(columns, known.columns or None), either(sources, known.sources)
        rows = _arrays.rows(known.embeddings, "embeddings")
        return self._native.add(
            rows,
            None if ids is None else _arrays.ids(ids, "ids"),
            _arrays.names_or_none(labels, "labels", len(rows)),
            _arrays.strings(paths, "paths", len(rows)),
            _arrays.strings(cameras, "cameras", len(rows)),
            _columns.given(columns, len(rows)),
            known.model,
            known.source,
            places(sources, len(rows)),
            known.run,
            known.metric,
            replace,
        )

    def remove(self, ids: Any) -> int:
        """Removes the items with these ids, and returns how many there were."""
        return self._native.remove(_arrays.ids(ids, "ids"))

    def search(
        self,
        queries: Any,
        k: int = 10,
        *,
        label_in: Sequence[Any] | None = None,
        label_not_in: Sequence[Any] | None = None,
        camera_in: Sequence[Any] | None = None,
        camera_not_in: Sequence[Any] | None = None,
        path_in: Sequence[Any] | None = None,
        path_not_in: Sequence[Any] | None = None,
        id_in: Any = None,
        id_not_in: Any = None,
        where: str | None = None,
    ) -> tuple[np.ndarray, np.ndarray]:
        """The best ``k`` items for each query, of those that pass all filters.

        :param queries: array of shape ``(n, d)``, or :class:`Embeddings` of the model of the index.
        :param label_in: only items with one of these labels, which are compared as whole texts; ``label_not_in``: only items with
            none of them. The same holds for cameras, paths and ids. Values may have the types that :meth:`add` takes; one
            label, camera or path needs no list.
        :param where: a condition on the columns, labels, cameras and paths, such as ``price < 20``; see
            :meth:`Embeddings.where`.
        :returns: ids (u64) and scores (f32) of shape ``(n, k')`` with ``k' = min(k, items)``, the best first. A list
            that is shorter ends with 2^64 - 1 and NaN.
        """
        if isinstance(queries, Embeddings):
            info = self.info
            of_index = Embeddings(np.zeros((0, 0)), model=info["model"], metric=info["metric_of_rows"])
            declared_metric(queries, of_index, info["metric"])
        return self._native.search(
            _arrays.rows(rows_of(queries), "queries"),
            _positive(k, "k"),
            (_texts(label_in, "label_in", _arrays.names), _texts(label_not_in, "label_not_in", _arrays.names)),
            (_texts(camera_in, "camera_in"), _texts(camera_not_in, "camera_not_in")),
            (_texts(path_in, "path_in"), _texts(path_not_in, "path_not_in")),
            (_ids(id_in, "id_in"), _ids(id_not_in, "id_not_in")),
            where,
        )

    def labels(self, where: str | None = None) -> tuple[np.ndarray, list[str | None]]:
        """The ids of all items, rising, and their labels.

        :param where: a condition; only items that meet it.
        """
        return self._native.labels(where)

    def set_ef(self, ef: int) -> None:
        """Candidates of a search in ``hnsw``: more find more of the nearest items and take longer."""
        self._native.set_ef(_positive(ef, "ef"))

    def compact(self) -> None:
        """Frees the memory of removed items."""
        self._native.compact()

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes the index to a temporary file and renames it when it is complete."""
        self._native.save(os.fspath(path))


def _texts(
    values: Any, name: str, texts: Callable[[Any, str, int], list[str] | None] = _arrays.strings
) -> list[str] | None:
    """The values of a filter, as :meth:`Index.add` stores them."""
    if values is None:
        return None
    items = _arrays.alone_or_all(values, name)
    return texts(items, name, len(items))


def _ids(values: Any, name: str) -> list[int] | None:
    return None if values is None else _arrays.ids(values, name).tolist()
