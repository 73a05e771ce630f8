"""Embeddings files."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Sequence
from typing import Any

import numpy as np

from . import _arrays, _native


@dataclasses.dataclass
class Embeddings:
    """Embeddings with what is known of each row."""

    embeddings: np.ndarray
    """Array of shape ``(n, d)``, f32."""
    labels: list[str] | None = None
    """The class of each row; ``a|b`` is a set of two."""
    paths: list[str] | None = None
    """The image of each row."""
    cameras: list[str] | None = None
    """The camera of each row."""
    model: str | None = None
    """The fingerprint of the model that made the embeddings."""
    source: str | None = None
    """Where the images were read from."""
    run: str | None = None
    """The run directory of the model."""
    metric: str | None = None
    """How the rows are to be compared."""
    protocol: str | None = None
    """The protocol of the images' data set."""


def load(path: str | os.PathLike[str]) -> Embeddings:
    """Reads an embeddings file (``.safetensors`` or ``.npy``). A file of which a bit changed is refused."""
    return Embeddings(**_native.load(os.fspath(path)))


def save(
    path: str | os.PathLike[str],
    embeddings: Any,
    labels: Sequence[Any] | None = None,
    *,
    paths: Sequence[Any] | None = None,
    cameras: Sequence[Any] | None = None,
    model: str | None = None,
    source: str | None = None,
    metric: str | None = None,
    protocol: str | None = None,
    precision: str = "f32",
) -> None:
    """Writes an embeddings file for ``load``, ``gallerist evaluate``, ``search`` and ``serve``.

    The file gets its name when it is complete.

    :param path: ``.safetensors``, or ``.npy`` for the embeddings alone.
    :param embeddings: array of shape ``(n, d)``, or :class:`Embeddings`.
    :param labels: ``n`` labels; a set, list or tuple is several labels.
    :param paths: the image of each row.
    :param cameras: the camera of each row.
    :param precision: ``f32``, ``bf16`` (half the bytes) or ``int8`` (a quarter).
    """
    if isinstance(embeddings, Embeddings):
        set_ = embeddings
        labels, paths, cameras = labels or set_.labels, paths or set_.paths, cameras or set_.cameras
        model, source = model or set_.model, source or set_.source
        metric, protocol = metric or set_.metric, protocol or set_.protocol
        embeddings = set_.embeddings
    rows = _arrays.rows(embeddings, "embeddings")
    _native.save(
        os.fspath(path),
        rows,
        _arrays.strings(labels, "labels", len(rows)),
        _arrays.strings(paths, "paths", len(rows)),
        _arrays.strings(cameras, "cameras", len(rows)),
        model,
        source,
        metric,
        protocol,
        precision,
    )
