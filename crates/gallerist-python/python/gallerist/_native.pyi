"""The native part. Its functions take arrays of the right dtype and shape: use those of ``gallerist`` instead."""

from collections.abc import Callable
from typing import Any, TypeAlias, final

import numpy as np
from numpy.typing import NDArray

_F32: TypeAlias = NDArray[np.float32]
_Rows: TypeAlias = NDArray[np.float32] | NDArray[np.float64]
_Part: TypeAlias = tuple[_F32, list[str], list[str] | None]
_Condition: TypeAlias = tuple[list[str] | None, list[str] | None]
_Columns: TypeAlias = list[tuple[str, NDArray[np.float64] | tuple[bool, list[str | None]]]] | None
_Sources: TypeAlias = tuple[list[tuple[str, str | None]], list[int | None]] | None
_Events: TypeAlias = Callable[[str, str], Any]

@final
class Loss:
    def __new__(
        cls, name: str, settings: list[str], classes: int | None, dimensions: int | None, seed: int
    ) -> Loss: ...
    def settings(self) -> str: ...
    def has_schedule(self) -> bool: ...
    def parameters(self) -> dict[str, _F32]: ...
    def compute(
        self,
        embeddings: _Rows,
        labels: NDArray[np.int64],
        ends: NDArray[np.uint64] | None,
        memory: _Rows | None,
        memory_labels: NDArray[np.int64] | None,
        memory_ends: NDArray[np.uint64] | None,
        parameters: dict[str, _F32] | None,
        normalize: bool | None,
        gradient: _Rows | None,
        step: int,
        steps: int,
    ) -> dict[str, Any]: ...

@final
class Index:
    def __new__(
        cls, dimensions: int, metric_name: str, kind: str, m: int, ef_construction: int, ef: int, seed: int
    ) -> Index: ...
    @staticmethod
    def open(path: str, mapped: bool) -> Index: ...
    def info(self) -> dict[str, Any]: ...
    def add(
        self,
        embeddings: _F32,
        ids: NDArray[np.uint64] | None,
        labels: list[str] | None,
        paths: list[str] | None,
        cameras: list[str] | None,
        columns: _Columns,
        model: str | None,
        source: str | None,
        given_sources: _Sources,
        run: str | None,
        metric_name: str | None,
        replace: bool,
    ) -> tuple[int, int, int]: ...
    def remove(self, ids: NDArray[np.uint64]) -> int: ...
    def search(
        self,
        queries: _F32,
        k: int,
        labels: _Condition,
        cameras: _Condition,
        paths: _Condition,
        ids: tuple[list[int] | None, list[int] | None],
        condition: str | None,
    ) -> tuple[NDArray[np.uint64], _F32]: ...
    def labels(self, condition: str | None) -> tuple[NDArray[np.uint64], list[str | None]]: ...
    def set_ef(self, ef: int) -> None: ...
    def compact(self) -> None: ...
    def save(self, path: str) -> None: ...

@final
class Model:
    @staticmethod
    def load(
        run: str, checkpoint: str | None, device: str, normalize: bool | None, products: str | None
    ) -> Model: ...
    def info(self) -> dict[str, Any]: ...
    def calibrate(self, images: list[str], split: str | None, count: int, events: _Events) -> dict[str, Any]: ...
    def embed_files(self, images: list[str], split: str | None, events: _Events) -> dict[str, Any]: ...
    def embed_arrays(self, images: list[NDArray[np.uint8]], events: _Events) -> dict[str, Any]: ...

def check_models(gallery: str, queries: str, metric_name: str) -> None: ...
def check_one_set(labels: list[str], protocol: str | None) -> str | None: ...
def embeddings_report(
    name: str,
    queries: _Part,
    query_paths: list[str] | None,
    gallery: _Part | None,
    gallery_paths: list[str] | None,
    images: str | None,
    options: str,
) -> str: ...
def evaluate(queries: _Part, gallery: _Part | None, options: str) -> str: ...
def load(path: str) -> dict[str, Any]: ...
def losses() -> str: ...
def map(
    embeddings: _F32, method: str, perplexity: float, steps: int, events: _Events
) -> tuple[_F32, str, list[str]]: ...
def metrics() -> list[str]: ...
def miners() -> str: ...
def protocols() -> str: ...
def resume(directory: str, events: _Events, force_data: bool = False) -> str: ...
def run_report(runs: list[str]) -> str: ...
def save(
    path: str,
    embeddings: _F32,
    labels: list[str] | None,
    paths: list[str] | None,
    cameras: list[str] | None,
    columns: _Columns,
    model: str | None,
    source: str | None,
    given_sources: _Sources,
    run: str | None,
    metric_name: str | None,
    protocol: str | None,
    threshold: str | None,
    precision: str,
) -> None: ...
def search(
    gallery: _F32, queries: _F32 | None, k: int, metric_name: str, exclude_self: bool, admitted: NDArray[np.bool_] | None
) -> tuple[NDArray[np.uint32], _F32]: ...
def threads(count: int) -> int: ...
def train(
    text: str, origin: str, folder: str, settings: list[str], directory: str, events: _Events
) -> str: ...
def version() -> str: ...
def where_rows(
    condition: str,
    count: int,
    labels: list[str] | None,
    paths: list[str] | None,
    cameras: list[str] | None,
    given: _Columns,
) -> NDArray[np.bool_]: ...
def write_text(path: str, text: str) -> None: ...
