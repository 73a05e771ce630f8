"""Arrays as the native part takes them: C-contiguous, native byte order, f32 or f64, checked with a clear message."""

from __future__ import annotations

import operator
import os
from collections.abc import Iterable, Iterator, Mapping
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
        found = type(values).__name__ if array.dtype == object and array.ndim == 0 else f"shape {array.shape}"
        raise ValueError(f"{name}: wanted an array of shape (n, d), got {found}")
    if array.dtype.name not in _FLOATS:
        raise ValueError(f"{name}: wanted floating-point numbers ({', '.join(_FLOATS)}), got {array.dtype}")
    # By name: dtypes of another byte order are not equal.
    dtype = np.float64 if wide and array.dtype.name == "float64" else np.float32
    with np.errstate(over="ignore"):
        found = np.require(array, dtype, ["C_CONTIGUOUS", "ALIGNED"])
    if array.dtype.name == "float64" and not wide:
        lost = np.isinf(found) & np.isfinite(array)
        if lost.any():
            row, column = np.argwhere(lost)[0]
            raise ValueError(f"{name}: row {row} has {array[row, column]}, which is too large for f32, in which it is computed")
    return found


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
        if not isinstance(labels, Iterable):
            raise ValueError(f"{name}: wanted a list of {count} labels, got {labels!r:.60}")
        items = [_unwrapped(item) for item in labels]
        are_sets = [isinstance(item, Iterable) and not isinstance(item, str) for item in items]
        if any(are_sets):
            if not all(are_sets):
                row = are_sets.index(False)
                raise ValueError(
                    f"{name}: row {row} is {items[row]!r:.60}, and other rows are sets of labels\n"
                    "hint: give every row a set; one label is a set, too"
                )
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
        return operator.index(_unwrapped(label))
    except TypeError:
        raise ValueError(f"{name}: wanted integers, got {label!r}") from None


def names(labels: Any, name: str, count: int) -> list[str]:
    """Labels as strings, one a row; a set of labels is joined by ``|``, and an empty set is ``|``."""
    return [_name(label, name, row) for row, label in _items(labels, name, count)]


def names_or_none(labels: Any, name: str, count: int) -> list[str] | None:
    """As :func:`names`; None stays None."""
    return None if labels is None else names(labels, name, count)


def strings(values: Any, name: str, count: int) -> list[str] | None:
    """Paths or cameras as strings, one a row; None stays None."""
    return None if values is None else [str(_single(value, name, row)) for row, value in _items(values, name, count)]


def classes(labels: Any, name: str) -> np.ndarray:
    """The number of each row's class, for labels of one class a row; classes are numbered in the order of their labels."""
    labels = list(labels) if isinstance(labels, Iterator) else labels
    count = len(labels) if hasattr(labels, "__len__") else 0
    found = [_single(label, name, row) for row, label in _items(labels, name, count)]
    return np.unique(np.array(found) if found else np.zeros(0, int), return_inverse=True)[1]


def is_missing(item: Any) -> bool:
    """None, NaN, NA and NaT."""
    # NaN, and NaT of pandas, are not equal to themselves; pandas.NA says so by its type.
    if item is None or type(item).__name__ in ("NAType", "NaTType"):
        return True
    return isinstance(item, (float, np.floating)) and item != item or isinstance(item, np.datetime64) and np.isnat(item)


def plain(values: Any, name: str) -> Any:
    """An array as a list of Python's own values, with None for dates that are missing; other values as they are."""
    if is_torch(values):
        values = from_torch(values, name)
    if not isinstance(values, np.ndarray) and hasattr(values, "to_list"):
        # A column of a frame: its own types have missing values, which NumPy's do not.
        return values.to_list()
    if not isinstance(values, np.ndarray) or values.ndim != 1:
        return values
    if values.dtype.kind == "M":
        return [None if np.isnat(value) else str(value) for value in values]
    return values.tolist()


def alone_or_all(values: Any, name: str) -> list[Any]:
    """The values of a list, or the one value that is given instead of a list."""
    values = plain(_unwrapped(values), name)
    is_alone = isinstance(values, (str, bytes)) or not isinstance(values, Iterable)
    return [values] if is_alone else list(values)


def _items(values: Any, name: str, count: int) -> Iterator[tuple[int, Any]]:
    """The row numbers and values of a list with one value a row."""
    if isinstance(values, (str, bytes, Mapping, set, frozenset)) or not isinstance(values, Iterable):
        raise ValueError(f"{name}: wanted a list of {count} values, got {values!r:.60}")
    shape = getattr(values, "shape", None)
    if isinstance(shape, tuple) and len(shape) != 1:
        hint = "\nhint: labels.argmax(1) makes numbers of one-hot labels" if len(shape) == 2 and "labels" in name else ""
        raise ValueError(f"{name}: wanted {count} values, got an array of shape {shape}{hint}")
    items = list(plain(values, name))
    if len(items) != count:
        what = "label" if "labels" in name else "value"
        raise ValueError(f"{name}: wanted one {what} a row, that is {count}, got {len(items)}")
    return enumerate(items)


def _name(label: Any, name: str, row: int) -> str:
    if not isinstance(label, (set, frozenset, list, tuple)):
        return str(_single(label, name, row))
    parts = [str(_single(part, name, row)) for part in label]
    for part in parts:
        if not part.strip() or part != part.strip() or "|" in part:
            raise ValueError(f"{name}: in row {row}, a label of a set is {part!r}: it must have no `|` and no spaces around it")
    if len(set(parts)) < len(parts):
        raise ValueError(
            f"{name}: row {row} has a label twice: {label!r:.60}\n"
            "hint: a list is a set of labels; for one-hot labels give their numbers"
        )
    # One `|` is the set without labels: an empty text would be a class of its own where no row has several labels.
    return "|".join(sorted(parts)) or "|"


def _single(value: Any, name: str, row: int) -> int | str:
    """One label, path or camera: whole numbers of any type are equal, as in NumPy."""
    if type(value) in (str, int):
        return value
    if isinstance(value, str):
        return str(value)
    value = _unwrapped(value)
    if is_missing(value):
        raise ValueError(f"{name}: row {row} has no value ({value!r})\nhint: leave such rows out, or give them a name")
    if isinstance(value, (bool, np.bool_)):
        return str(bool(value))
    if isinstance(value, os.PathLike):
        value = os.fspath(value)
    if isinstance(value, (float, np.floating)):
        if value != np.floor(value) or np.isinf(value):
            raise ValueError(f"{name}: row {row} is {value!r}, which is not a whole number\nhint: give numbers of classes, or texts")
        return int(value)
    try:
        return operator.index(value)
    except TypeError:
        pass
    # A text of another type, such as a date or an enumeration; not a container, and not the address of an object.
    if isinstance(value, (bytes, bytearray, complex, Iterable)) and not isinstance(value, str) or type(value).__str__ is object.__str__:
        raise ValueError(f"{name}: row {row} is {value!r:.60}; wanted a text or a whole number")
    return str(value)


def _unwrapped(value: Any) -> Any:
    """The number in a tensor or an array without dimensions; other values as they are."""
    if (is_torch(value) or isinstance(value, np.ndarray)) and value.ndim == 0:
        return value.item()
    return value


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
