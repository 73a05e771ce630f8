"""Training from a run file or a dictionary."""

from __future__ import annotations

import json
import os
import pathlib
from collections.abc import Mapping
from typing import Any

from . import _native
from ._loss import toml
from ._progress import Callback, Events


def train(
    config: Mapping[str, Any] | str | os.PathLike[str],
    out: str | os.PathLike[str],
    *,
    settings: Mapping[str, Any] | None = None,
    callback: Callback | None = None,
    progress: bool = True,
) -> dict[str, Any]:
    """Trains a network, measures the test images, and writes the run directory, as ``gallerist train`` does.

    >>> run = train({"data": {"train": ["photos"]}, "train": {"steps": 500}}, "runs/photos")    # doctest: +SKIP
    >>> run["metrics"]["metrics"]["recall@1"]                                                   # doctest: +SKIP

    Ctrl-C writes a checkpoint and raises ``KeyboardInterrupt``; :func:`resume` continues the run.

    :param config: the content of a run file as nested dictionaries, or the path of a run file. ``gallerist config
        --print-defaults`` lists all keys.
    :param out: the run directory, which must not exist or be empty.
    :param settings: values that replace those of ``config``, by their dotted names: ``{"train.steps": 500}``.
    :param callback: called with each event, a dictionary: ``event["event"]`` is ``started``, ``step`` (with the values
        of ``log.jsonl``: ``step``, ``loss``, ``gradient_norm``, ...; a number that is not finite is None),
        ``validation`` (``step``, ``metrics``, ``best``), ``phase``, ``phase_done``, ``embedding``, ``note``, ``warning`` or
        ``trained``. When it returns False, the run writes a checkpoint and ends; an exception does the same and is raised.
    :param progress: shows a progress bar if tqdm is installed.
    :returns: ``directory``, ``end`` (``finished`` or ``interrupted``), ``steps``, ``metrics`` (as in ``metrics.json``;
        None for an interrupted run and without test images), ``report`` (its path), ``broken_images``,
        ``skipped_steps``, ``timing`` (as in ``timing.json``).
    :raises ValueError: for a run file with errors, and images that cannot be used.
    """
    if isinstance(config, Mapping):
        text = "\n".join(f"{_key(key)} = {toml(value)}" for key, value in _plain(config).items())
        origin, folder = "the dictionary", ""
    else:
        path = pathlib.Path(config)
        try:
            text = path.read_text(encoding="utf-8")
        except (FileNotFoundError, IsADirectoryError) as error:
            what = "a folder" if isinstance(error, IsADirectoryError) else "no such file"
            raise ValueError(f"`{path}`: {what}\nhint: a run file or a dictionary is wanted") from None
        origin, folder = f"`{path}`", os.fspath(path.parent)
    changes = [f"{key}={toml(value)}" for key, value in _plain(settings or {}).items()]
    with Events(progress, callback) as events:
        return json.loads(_native.train(text, origin, folder, changes, os.fspath(out), events))


def resume(
    run: str | os.PathLike[str],
    *,
    callback: Callback | None = None,
    progress: bool = True,
    force_data: bool = False,
) -> dict[str, Any]:
    """Continues a run from its last checkpoint. On the CPU, the result is bit-identical to that of an uninterrupted run.

    ``callback``, ``progress`` and the result are those of :func:`train`; ``end`` is ``was finished`` for a run that was complete.
    A run whose images or labels have changed is refused; with ``force_data`` it continues with the images as they are now.
    """
    with Events(progress, callback) as events:
        return json.loads(_native.resume(os.fspath(run), events, force_data))


def _plain(value: Any) -> Any:
    """Paths become text, values that are None are left out."""
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items() if item is not None}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    return os.fspath(value) if isinstance(value, os.PathLike) else value


def _key(key: str) -> str:
    return key if key.replace("_", "").replace(".", "").isalnum() else json.dumps(key)
