"""Exact search."""

from __future__ import annotations

from typing import Any

import numpy as np

from . import _arrays, _native
from ._files import Embeddings, declared_metric, rows_of


def search(
    gallery: Any,
    queries: Any = None,
    k: int = 10,
    *,
    metric: str | None = None,
    exclude_self: bool | None = None,
    where: str | None = None,
) -> tuple[np.ndarray, np.ndarray]:
    """The ``k`` best rows of a gallery for each query, exactly.

    :param gallery: array of shape ``(m, d)``, or :class:`Embeddings`; f32 is read in place, other floating-point types
        are converted.
    :param queries: array of shape ``(n, d)``, or :class:`Embeddings`; None: every row of the gallery is a query for the others.
    :param k: results a query. Lists are shorter where the gallery has fewer rows.
    :param metric: ``cosine``, ``euclidean`` or ``inner_product``; by default the one that :class:`Embeddings` declare, else
        ``cosine``.
    :param exclude_self: leaves row ``i`` of the gallery out of the list of query ``i``. By default only without
        ``queries``.
    :param where: a condition on the columns, labels, cameras and paths of a gallery that is :class:`Embeddings`, such as
        ``price < 20``: only rows that meet it are results, see :meth:`Embeddings.where`.
    :returns: row numbers (u32) and scores (f32), both of shape ``(n, k')`` with ``k' = min(k, m)``, the best first.
        A list that is shorter ends with 2^32 - 1 and NaN. Scores are similarities (falling), or distances (rising)
        for ``euclidean``. Equal scores have the order of the row numbers.
    :raises ValueError: for arrays of another shape or dtype, numbers that are not finite, an empty gallery, and
        :class:`Embeddings` of different models.
    """
    admitted = None
    if where is not None:
        if not isinstance(gallery, Embeddings):
            raise ValueError("where: a condition needs a gallery of gallerist.Embeddings, which has columns")
        admitted = gallery.mask(where)
    metric = declared_metric(queries, gallery, metric) or "cosine"
    gallery = _arrays.rows(rows_of(gallery), "gallery")
    of = None if queries is None else _arrays.rows(rows_of(queries), "queries")
    exclude = queries is None if exclude_self is None else exclude_self
    return _native.search(gallery, of, _positive(k, "k"), metric, exclude, admitted)


def _positive(value: int, name: str) -> int:
    return _arrays.integer(value, name, 1)
