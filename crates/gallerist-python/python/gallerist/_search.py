"""Exact search."""

from __future__ import annotations

from typing import Any

import numpy as np

from . import _arrays, _native


def search(
    gallery: Any, queries: Any = None, k: int = 10, *, metric: str = "cosine", exclude_self: bool | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """The ``k`` best rows of a gallery for each query, exactly.

    :param gallery: array of shape ``(m, d)``; f32 is read in place, other floating-point types are converted.
    :param queries: array of shape ``(n, d)``; None: every row of the gallery is a query for the others.
    :param k: results a query. Lists are shorter where the gallery has fewer rows.
    :param metric: ``cosine``, ``euclidean`` or ``inner_product``.
    :param exclude_self: leaves row ``i`` of the gallery out of the list of query ``i``. By default only without
        ``queries``.
    :returns: row numbers (u32) and scores (f32), both of shape ``(n, k')`` with ``k' = min(k, m)``, the best first.
        A list that is shorter ends with 2^32 - 1 and NaN. Scores are similarities (falling), or distances (rising)
        for ``euclidean``. Equal scores have the order of the row numbers.
    :raises ValueError: for arrays of another shape or dtype, numbers that are not finite, an empty gallery.
    """
    gallery = _arrays.rows(gallery, "gallery")
    of = None if queries is None else _arrays.rows(queries, "queries")
    exclude = queries is None if exclude_self is None else exclude_self
    return _native.search(gallery, of, _positive(k, "k"), metric, exclude)


def _positive(value: int, name: str) -> int:
    if not isinstance(value, (int, np.integer)) or value < 1:
        raise ValueError(f"{name}: wanted a number of 1 or more, got {value!r}")
    return int(value)
