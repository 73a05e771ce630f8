"""Arrays as the native part takes them: C-contiguous, native byte order, f32 or f64, checked with a clear message."""

from __future__ import annotations

import operator
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

_FLOATS = ("float16", "float32", "float64", "bfloat16")


def rows(values: Any, name: str, *, wide: bool = False) -> np.ndarray:
    """A contiguous array of shape ``(n, d)``: f32, or f64 if ``wide`` and the values are f64.

    f16 and bfloat16 (of ``ml_dtypes``) become f32 without loss. f64 becomes f32 by rounding unless ``wide``.
    """
    if is_torch(values):
        values = from_torch(values, name)
    array = np.asarray(values)
    if array.ndim != 2:
        raise ValueError(f"{name}: wanted an array of shape (n, d), got shape {array.shape}")
    if array.dtype.name not in _FLOATS:
        raise ValueError(f"{name}: wanted floating-point numbers ({', '.join(_FLOATS)}), got {array.dtype}")
    dtype = np.float64 if wide and array.dtype == np.float64 else np.float32
    return np.require(array, dtype, ["C_CONTIGUOUS", "ALIGNED"])


def is_torch(values: Any) -> bool:
    """Whether it is a tensor (torch may not be installed)."""
    return hasattr(values, "detach") and hasattr(values, "numpy")


def from_torch(tensor: Any, name: str) -> np.ndarray:
    """The values of a tensor: of a contiguous CPU tensor without a copy; bfloat16 becomes f32."""
    try:
        tensor = tensor.detach().cpu()
        if str(tensor.dtype) == "torch.bfloat16":
            tensor = tensor.float()
        return tensor.numpy()
    except (NotImplementedError, RuntimeError, TypeError) as error:
        kind = f"{getattr(tensor, 'dtype', '')}, {getattr(tensor, 'layout', '')}, on {getattr(tensor, 'device', '')}"
        raise ValueError(f"{name}: this tensor ({kind}) cannot be read: {error}") from None


def numbers(labels: Any, name: str, count: int) -> tuple[np.ndarray, np.ndarray | None]:
    """Integer labels, one each or a set each: the values (i64), and where the labels of each sample end (or None)."""
    if is_torch(labels):
        labels = from_torch(labels, name)
    if isinstance(labels, np.ndarray) and labels.ndim == 1 and labels.dtype != object:
        values = _integers(labels, name)
        ends = None
    else:
        if isinstance(labels, np.ndarray) and labels.ndim != 1:
            raise ValueError(f"{name}: wanted {count} labels, got an array of shape {labels.shape}")
        items = list(labels)
        if any(isinstance(item, Iterable) and not isinstance(item, str) for item in items):
            sets = [sorted(set(_scalar(label, name) for label in item)) for item in items]
            values = np.array([label for labels in sets for label in labels], dtype=np.int64)
            ends = np.cumsum([len(labels) for labels in sets], dtype=np.uint64)
        else:
            values = np.array([_scalar(item, name) for item in items], dtype=np.int64)
            ends = None
    found = len(values) if ends is None else len(ends)
    if found != count:
        raise ValueError(f"{name}: wanted one label a row, that is {count}, got {found}")
    return values, ends


def _integers(array: np.ndarray, name: str) -> np.ndarray:
    if array.dtype.kind not in "iub":
        raise ValueError(
            f"{name}: wanted integers, got {array.dtype}; np.unique(labels, return_inverse=True)[1] numbers other labels"
        )
    if array.dtype == np.uint64 and array.size and array.max() > np.iinfo(np.int64).max:
        raise ValueError(f"{name}: label {array.max()} is above 2^63 - 1")
    return np.ascontiguousarray(array, dtype=np.int64)


def _scalar(label: Any, name: str) -> int:
    try:
        return int(label.__index__())
    except AttributeError:
        raise ValueError(f"{name}: wanted integers, got {label!r}") from None


def names(labels: Any, name: str, count: int) -> list[str]:
    """Labels as strings, one a row; a set of labels is joined by ``|``."""
    if is_torch(labels):
        labels = from_torch(labels, name)
    if isinstance(labels, str) or not isinstance(labels, Iterable):
        raise ValueError(f"{name}: wanted {count} labels, got {labels!r}")
    values = labels.tolist() if isinstance(labels, np.ndarray) else list(labels)
    found = [_name(label) for label in values]
    if len(found) != count:
        raise ValueError(f"{name}: wanted one label a row, that is {count}, got {len(found)}")
    return found


def _name(label: Any) -> str:
    if isinstance(label, (set, frozenset, list, tuple)):
        return "|".join(str(part) for part in sorted(label, key=str))
    return str(label)


def strings(values: Sequence[Any] | None, name: str, count: int) -> list[str] | None:
    """As :func:`names`; None stays None."""
    return None if values is None else names(values, name, count)


def ids(values: Any, name: str) -> np.ndarray:
    """Ids of items (u64)."""
    array = np.asarray(values)
    if array.size == 0:
        return np.zeros(0, dtype=np.uint64)
    if array.ndim != 1 or array.dtype.kind not in "iu":
        raise ValueError(f"{name}: wanted a list of integers, got {array.dtype} of shape {array.shape}")
    if array.min() < 0:
        raise ValueError(f"{name}: {array.min()} is not an id; ids are 0 or more")
    return np.ascontiguousarray(array, dtype=np.uint64)


def integer(value: Any, name: str, least: int = 0) -> int:
    """A whole number from ``least`` to 2^63 - 1."""
    try:
        number = operator.index(value)
    except TypeError:
        raise ValueError(f"{name}: wanted a number of {least} or more, got {value!r}") from None
    if number < least:
        raise ValueError(f"{name}: wanted a number of {least} or more, got {number}")
    if number >= 2**63:
        raise ValueError(f"{name}: wanted a number below 2^63, got {number}")
    return number


def integer_or_none(value: Any, name: str, least: int = 0) -> int | None:
    """As :func:`integer`; None stays None."""
    return None if value is None else integer(value, name, least)
