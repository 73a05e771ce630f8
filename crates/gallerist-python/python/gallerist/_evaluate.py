"""Evaluation by the metrics and protocols of the field."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from . import _arrays, _columns, _native

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
    labels: Any,
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
    cluster: str | None = None,
    verification: Mapping[str, Any] | bool = False,
    few_shot: Mapping[str, Any] | bool = False,
    bootstrap: Mapping[str, Any] | bool = False,
    seed: int = 0,
) -> Evaluation:
    """Measures retrieval: every row against all others, or queries against a gallery.

    Ranks are exact. A query never finds itself, equal scores have the order of their rows, and the result says where
    that order matters (``ties``, ``tie_bounds``, ``notes``).

    :param embeddings: array of shape ``(n, d)``; computed in f32.
    :param labels: ``n`` labels: texts or whole numbers, which are equal whatever their type. A set, list or tuple is several
        labels, and an empty one is none. Every row needs a value: None and NaN are refused.
    :param gallery: array of shape ``(m, d)``; the rows of ``embeddings`` are then the queries.
    :param gallery_labels: the labels of the gallery.
    :param cameras: the camera of each row: images of the query's class from its own camera are skipped.
    :param gallery_cameras: the cameras of the gallery.
    :param metrics: names such as ``recall@1``, ``map@r``, ``map``, ``cmc@1``; :func:`metrics` lists them. By default
        those of the protocol, or Recall@1, 2, 4, 8, precision@1, MAP@R and R-precision.
    :param metric: how rows are compared: ``cosine`` (default), ``euclidean`` or ``inner_product``.
    :param protocol: the rules of a benchmark, such as ``market1501``; :func:`protocols` lists them.
    :param ignore_cameras: cameras do not count.
    :param rerank: adds a row ``reranked``, by k-reciprocal neighbours (Zhong et al., CVPR 2017): True, or a dictionary
        with ``k1``, ``k2``, ``lambda``.
    :param expansion: adds a row ``expanded``, with expanded queries.
    :param cluster: adds NMI, AMI and pair F1 of a k-means clustering: ``faiss20`` or ``sklearn10``.
    :param verification: adds true accept rates: True, or ``{"fars": [0.001]}``.
    :param few_shot: adds retrieval in small galleries: True, or a dictionary with ``ways``, ``shots``, ``queries``, ``episodes``.
    :param bootstrap: adds 95 % intervals: True, or a dictionary with ``resamples``, ``over``, ``seed``.
    :param seed: decides the first centres of k-means.
    :raises ValueError: for arrays and options that do not fit together.
    """
    queries = _part(embeddings, labels, cameras, "")
    of_gallery = None
    if gallery is not None:
        of_gallery = _part(gallery, gallery_labels, gallery_cameras, "gallery_")
    options = options_json(
        protocol=protocol,
        metric=metric,
        metrics=metrics,
        ignore_cameras=ignore_cameras,
        rerank=rerank,
        expansion=expansion,
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
        options[name] = _options(options.get(name))
    if isinstance(options.get("metrics"), str):
        options["metrics"] = [options["metrics"]]
    elif options.get("metrics") is not None:
        options["metrics"] = list(options["metrics"])
    return json.dumps(options)


def _part(rows: Any, labels: Any, cameras: Any, prefix: str) -> tuple[Any, list[str], list[str] | None]:
    array = _arrays.rows(rows, f"{prefix}embeddings" if not prefix else "gallery")
    if labels is None:
        raise ValueError(f"{prefix}labels: wanted one label a row, that is {len(array)}, got None")
    return (
        array,
        _arrays.names(labels, f"{prefix}labels", len(array)),
        _arrays.strings(cameras, f"{prefix}cameras", len(array)),
    )


def _options(given: Any) -> dict[str, Any] | None:
    if given is None or given is False:
        return None
    return {} if given is True else dict(given)


def metrics() -> list[str]:
    """The names of all metrics, with ``K`` for a number."""
    return _native.metrics()


def protocols() -> list[dict[str, Any]]:
    """The protocols: name, title, what is compared with what, metrics."""
    return json.loads(_native.protocols())
