"""Evaluation by the metrics and protocols of the field."""

from __future__ import annotations

import json
import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from . import _arrays, _columns, _native
from ._files import Embeddings, declared_metric

_FRAME = ("ranking", "metric", "value", "low", "high")


class Evaluation(dict):
    """The result of :func:`evaluate`: a dictionary with the keys of ``gallerist evaluate --json``.

    ``result["metrics"]["recall@1"]`` is a value from 0 to 1.
    """

    def to_frame(self, library: str = "pandas") -> Any:
        """The metrics as a data frame, one row for each ranking (as measured, re-ranked, ...) and metric.

        :param library: ``pandas`` or ``polars``, which must be installed.
        """
        rows = []
        for name, part in (("", self), *((name, self[name]) for name in ("multi_query", "reranked", "expanded") if name in self)):
            intervals = (part.get("intervals") or {}).get("metrics", {})
            for metric, value in part["metrics"].items():
                interval = intervals.get(metric, {})
                rows.append(
                    {
                        "ranking": name or "as measured",
                        "metric": metric,
                        "value": value,
                        "low": interval.get("low"),
                        "high": interval.get("high"),
                    }
                )
        return _columns.frame({key: [row[key] for row in rows] for key in _FRAME}, library)


def evaluate(
    embeddings: Any,
    labels: Any = None,
    *,
    gallery: Any = None,
    gallery_labels: Any = None,
    cameras: Sequence[Any] | None = None,
    gallery_cameras: Sequence[Any] | None = None,
    metrics: Sequence[str] | None = None,
    metric: str | None = None,
    protocol: str | None = None,
    ignore_cameras: bool = False,
    rerank: Mapping[str, Any] | bool = False,
    expansion: Mapping[str, Any] | None = None,
    multi_query: str | None = None,
    cluster: str | None = None,
    verification: Mapping[str, Any] | bool = False,
    few_shot: Mapping[str, Any] | bool = False,
    bootstrap: Mapping[str, Any] | bool = False,
    seed: int = 0,
) -> Evaluation:
    """Measures retrieval: every row against all others, or queries against a gallery.

    Ranks are exact. A query never finds itself, equal scores have the order of their rows, and the result says where
    that order matters (``ties``, ``tie_bounds``, ``notes``).

    :param embeddings: array of shape ``(n, d)``, computed in f32; or :class:`Embeddings`, whose labels, cameras and metric are
        used where none are given.
    :param labels: ``n`` labels: texts or whole numbers, which are equal whatever their type. A set, list or tuple is several
        labels, and an empty one is none. Every row needs a value: None, NaN and empty texts are refused.
    :param gallery: array of shape ``(m, d)``, or :class:`Embeddings`; the rows of ``embeddings`` are then the queries.
    :param gallery_labels: the labels of the gallery.
    :param cameras: the camera of each row: images of the query's class from its own camera are skipped. Queries and
        gallery both need them.
    :param gallery_cameras: the cameras of the gallery.
    :param metrics: names such as ``recall@1``, ``map@r``, ``map``, ``cmc@1``; :func:`metrics` lists them. By default
        those of the protocol, or Recall@1, 2, 4, 8, precision@1, MAP@R and R-precision.
    :param metric: how rows are compared: ``cosine``, ``euclidean`` or ``inner_product``; by default as :class:`Embeddings`
        declare, else as the protocol does, else ``cosine``.
    :param protocol: the rules of a benchmark, such as ``market1501``; :func:`protocols` lists them. By default the one that
        queries and gallery both name, if they are :class:`Embeddings`; ``none`` compares without it. Without a gallery,
        :class:`Embeddings` with junk by a protocol of queries and a gallery are refused unless it is ``none``.
    :param ignore_cameras: cameras are ignored: no image is skipped because of its camera.
    :param rerank: adds a row ``reranked``, by k-reciprocal neighbours (Zhong et al., CVPR 2017): True, or a dictionary
        with ``k1``, ``k2``, ``lambda``.
    :param expansion: adds a row ``expanded``, with expanded queries: a dictionary with ``neighbours`` and ``alpha``.
    :param multi_query: adds a row ``multi_query``, with all queries of one class and camera merged into one: by ``average`` or
        ``max``. It needs cameras and a gallery.
    :param cluster: adds NMI, AMI and pair F1 of a k-means clustering: ``faiss20`` or ``sklearn10``.
    :param verification: adds true accept rates: True, or ``{"fars": [0.001]}``.
    :param few_shot: adds retrieval in small galleries: True, or a dictionary with ``ways``, ``shots``, ``queries``, ``episodes``.
    :param bootstrap: adds 95 % intervals: True, or a dictionary with ``resamples``, ``over``, ``seed``.
    :param seed: seed of the first centres of k-means, and of ``few_shot`` and ``bootstrap`` if these have none of their own.
    :raises ValueError: for arrays and options that do not fit together, and :class:`Embeddings` of different models.
    """
    queries, of_gallery, rules = sides(
        embeddings, labels, cameras, gallery, gallery_labels, gallery_cameras, protocol=protocol, metric=metric
    )
    options = options_json(
        **rules,
        metrics=metrics,
        ignore_cameras=ignore_cameras,
        rerank=rerank,
        expansion=expansion,
        multi_query=multi_query,
        cluster=cluster,
        verification=verification,
        few_shot=few_shot,
        bootstrap=bootstrap,
        seed=seed,
    )
    return Evaluation(json.loads(_native.evaluate(queries, of_gallery, options)))


def options_json(**options: Any) -> str:
    """Options of :func:`evaluate` as the native part takes them."""
    for name in ("rerank", "expansion", "verification", "few_shot", "bootstrap"):
        options[name] = _options(options.get(name), name)
    for name in ("few_shot", "bootstrap"):
        if options[name] is not None and options.get("seed") is not None:
            options[name].setdefault("seed", options["seed"])
    if isinstance(options.get("metrics"), str):
        options["metrics"] = [options["metrics"]]
    elif options.get("metrics") is not None:
        options["metrics"] = list(options["metrics"])
    return json.dumps(options, default=_plain)


Part = tuple[Any, list[str], "list[str] | None"]


def sides(
    queries: Any,
    labels: Any,
    cameras: Any,
    gallery: Any,
    gallery_labels: Any,
    gallery_cameras: Any,
    *,
    protocol: str | None,
    metric: str | None,
) -> tuple[Part, Part | None, dict[str, Any]]:
    """Queries and gallery as the native part takes them, and the protocol and the metric by which they are compared."""
    if gallery is None and not (gallery_labels is None and gallery_cameras is None):
        raise ValueError("gallery_labels and gallery_cameras need a gallery\nhint: give gallery=..., the rows that they belong to")
    if gallery is not None and (cameras is None) != (gallery_cameras is None):
        known = queries if cameras is None else gallery
        if not isinstance(known, Embeddings) or known.cameras is None:
            raise ValueError("cameras need those of the other side\nhint: give cameras=... and gallery_cameras=..., or neither")
    metric = declared_metric(queries, gallery, metric)
    if protocol is None and isinstance(queries, Embeddings) and isinstance(gallery, Embeddings):
        protocol = queries.protocol if queries.protocol == gallery.protocol else None
    of_queries = _part(queries, labels, cameras, "")
    of_gallery = None if gallery is None else _part(gallery, gallery_labels, gallery_cameras, "gallery_")
    if gallery is None and protocol is None:
        of_file = queries.protocol if isinstance(queries, Embeddings) else None
        warning = _native.check_one_set(of_queries[1], of_file)
        if warning is not None:
            warnings.warn(warning, RuntimeWarning, stacklevel=3)
    if cameras is None and gallery_cameras is None and protocol in (None, "none"):
        # Cameras that only the files have: they do not count where they cannot, or where no rules are wanted.
        parts = [of_queries] if of_gallery is None else [of_queries, of_gallery]
        are_sets = any("|" in label for _, of, _ in parts for label in of)
        if of_gallery is None or are_sets or protocol == "none":
            of_queries, of_gallery = (part and (part[0], part[1], None) for part in (of_queries, of_gallery))
    return of_queries, of_gallery, {"protocol": None if protocol == "none" else protocol, "metric": metric}


def _part(rows: Any, labels: Any, cameras: Any, prefix: str) -> Part:
    if isinstance(rows, Embeddings):
        labels = rows.labels if labels is None else labels
        cameras = rows.cameras if cameras is None else cameras
        rows = rows.embeddings
    array = _arrays.rows(rows, f"{prefix}embeddings" if not prefix else "gallery")
    if labels is None:
        raise ValueError(f"{prefix}labels: wanted one label a row, that is {len(array)}, got None")
    return (
        array,
        _arrays.names(labels, f"{prefix}labels", len(array)),
        _arrays.strings(cameras, f"{prefix}cameras", len(array)),
    )


def _options(given: Any, name: str) -> dict[str, Any] | None:
    if given is None or isinstance(given, (bool, np.bool_)):
        return {} if given else None
    if not isinstance(given, Mapping):
        raise ValueError(f"{name}: wanted True, False or a dictionary, got {given!r:.60}")
    return dict(given)


def _plain(value: Any) -> Any:
    """A value of NumPy as JSON has it."""
    # A long double stays one.
    if isinstance(value, (np.generic, np.ndarray)) and not isinstance(found := value.tolist(), np.generic):
        return found
    raise ValueError(f"wanted a text, a number, a boolean, a list or a dictionary, got {type(value).__name__}: {value!r:.60}")


def metrics() -> list[str]:
    """The names of all metrics, with ``K`` for a number."""
    return _native.metrics()


def protocols() -> list[dict[str, Any]]:
    """The protocols: name, title, what is compared with what, metrics."""
    return json.loads(_native.protocols())
