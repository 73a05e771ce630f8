"""Further columns of rows: prices, dates, shops, tags."""

from __future__ import annotations

import datetime
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from . import _arrays

_LARGEST = 2**53


def given(columns: Any, count: int) -> list[tuple[str, Any]] | None:
    """Columns as the native part takes them, from a mapping of names to values, or a frame of pandas or polars."""
    if columns is None:
        return None
    if not isinstance(columns, Mapping):
        names = getattr(columns, "columns", None)
        if names is None or not hasattr(columns, "__getitem__"):
            raise ValueError(f"columns: wanted a dictionary or a frame of pandas or polars, got {type(columns).__name__}")
        columns = {name: columns[name] for name in names}
    return [(_name(name), _values(name, values, count)) for name, values in columns.items()]


def _name(name: Any) -> str:
    if not isinstance(name, str):
        raise ValueError(f"columns: a name must be text, got {name!r}")
    return name


def _values(name: str, values: Any, count: int) -> Any:
    """Numbers as f64 with NaN where one is missing, or (whether they are tags, texts)."""
    if isinstance(values, (str, bytes)) or not isinstance(values, Iterable):
        raise ValueError(f"column {name!r}: wanted {count} values, got {values!r}")
    are_numbers = _has_numbers(values)
    values = _arrays.plain(values, f"column {name!r}")
    if isinstance(values, np.ndarray):
        raise ValueError(f"column {name!r}: wanted {count} values, got an array of shape {values.shape}")
    items = list(values)
    if len(items) != count:
        raise ValueError(f"column {name!r}: wanted one value a row, that is {count}, got {len(items)}")
    present = [item for item in items if not _arrays.is_missing(item)]
    # Without any value, the type decides: NaN is a number, None is not.
    are_numbers = bool(present) or are_numbers or any(isinstance(item, (float, np.floating)) for item in items)
    if are_numbers and all(isinstance(item, (int, float, np.integer, np.floating)) for item in present):
        if any(isinstance(item, (int, np.integer)) and abs(int(item)) >= _LARGEST for item in present):
            raise ValueError(f"column {name!r}: integers of 2^53 and more lose digits; give them as text")
        return np.array([np.nan if _arrays.is_missing(item) else item for item in items], dtype=np.float64)
    if any(isinstance(item, (set, frozenset, list, tuple)) for item in present):
        return True, [None if _arrays.is_missing(item) else "|".join(_tags(name, item)) for item in items]
    return False, [None if _arrays.is_missing(item) else _text(name, item) for item in items]


def _tags(name: str, item: Any) -> list[str]:
    tags = [item] if isinstance(item, str) else list(item)
    for tag in tags:
        if not isinstance(tag, str) or "|" in tag:
            raise ValueError(f"column {name!r}: a tag must be text without `|`, got {tag!r}")
    return sorted(tags)


def _text(name: str, item: Any) -> str:
    if isinstance(item, str):
        return item
    if isinstance(item, (datetime.date, datetime.datetime)):
        return item.isoformat()
    raise ValueError(f"column {name!r}: wanted numbers, texts, dates or sets of texts, got {item!r}")


def _has_numbers(values: Any) -> bool:
    """Whether the type of an array or of a frame's column is numeric: it is then numeric without any value, too."""
    dtype = getattr(values, "dtype", None)
    is_numeric = getattr(dtype, "is_numeric", None)
    if callable(is_numeric):
        # polars
        return bool(is_numeric())
    return getattr(dtype, "kind", None) in ("i", "u", "f") or _arrays.is_torch(values)


def frame(columns: Mapping[str, Any], library: str) -> Any:
    """A frame of pandas or polars."""
    if library == "pandas":
        import pandas

        return pandas.DataFrame(dict(columns))
    if library == "polars":
        import polars

        return polars.DataFrame(dict(columns), strict=False)
    raise ValueError(f"library: wanted pandas or polars, got {library!r}")
