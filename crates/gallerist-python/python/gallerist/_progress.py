"""Progress of long calls: a bar of tqdm where it is installed, and the events for a caller's function."""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable
from typing import Any

Callback = Callable[[dict[str, Any]], Any]


class Events:
    """Receives the events of a call from the native part: ``events(kind, data)`` with the data as JSON."""

    def __init__(self, progress: bool, callback: Callback | None = None) -> None:
        self._bars: Any = _tqdm() if progress else None
        self._bar: Any = None
        self._callback = callback

    def __call__(self, kind: str, data: str) -> Any:
        event = {"event": kind, **json.loads(data)}
        self._show(kind, event)
        if kind == "warning":
            warnings.warn(event["message"], RuntimeWarning, stacklevel=2)
        return None if self._callback is None else self._callback(event)

    def _show(self, kind: str, event: dict[str, Any]) -> None:
        if self._bars is None:
            return
        if kind == "started":
            self._open("training", event["steps"])
            self._bar.update(event["step"])
        elif kind == "step":
            self._bar.update(event["step"] - self._bar.n)
            # JSON has no NaN: the loss of a step that is skipped is None.
            loss = event["loss"]
            self._bar.set_postfix(loss="NaN" if loss is None else f"{loss:.4f}", refresh=False)
        elif kind in ("embedding", "map") or (kind == "phase" and event["total"]):
            if self._bar is None or self._bar.desc != event["what"]:
                self._open(event["what"], event["total"])
            self._bar.update(event["done"] - self._bar.n)
        elif kind in ("phase_done", "trained"):
            self.close()

    def _open(self, what: str, total: int) -> None:
        self.close()
        self._bar = self._bars(total=total, desc=what, leave=False)
        # tqdm ends a description with a colon of its own.
        self._bar.desc = what

    def close(self) -> None:
        if self._bar is not None:
            self._bar.close()
            self._bar = None

    def __enter__(self) -> Events:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _tqdm() -> Any:
    try:
        from tqdm.auto import tqdm
    except ImportError:
        return None
    return tqdm
