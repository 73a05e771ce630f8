"""The class that every loss of :mod:`gallerist.losses` derives from."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from typing import Any

import numpy as np

from . import _arrays, _native


@dataclasses.dataclass(frozen=True)
class Queries:
    """Diagnostics of a loss, one entry for each query."""

    loss: np.ndarray
    """The loss of each query, before the mean over the batch (f32)."""
    positives: np.ndarray
    """Number of positives of each query, in batch and memory (u32)."""
    negatives: np.ndarray
    """Number of negatives of each query (u32)."""
    mined_positives: np.ndarray
    """Positives that contribute to the gradient (u32)."""
    mined_negatives: np.ndarray
    """Negatives that contribute to the gradient (u32)."""
    terms: np.ndarray
    """Number of terms of each query's loss (u32); empty if the loss cannot have dead terms."""
    dead_terms: np.ndarray
    """Number of dead terms, which have no gradient (u32); empty if the loss cannot have dead terms."""


@dataclasses.dataclass(frozen=True)
class LossOutput:
    """What a loss returns for a batch."""

    value: float
    """The loss of the batch."""
    gradient: np.ndarray | None
    """The gradient with respect to the embeddings, in their shape: f64 for embeddings of f64, else f32. None if it was not asked for."""
    parameter_gradients: dict[str, np.ndarray]
    """The gradients with respect to the loss's own parameters (proxies, class weights), f32."""
    queries: Queries
    """Diagnostics for each query."""
    note: str | None
    """A remark about the batch, such as that no query has a positive."""


def toml(value: Any) -> str:
    """A value as a run file has it."""
    if isinstance(value, Miner):
        value = value.settings()
    if isinstance(value, (bool, np.bool_)):
        return "true" if value else "false"
    if isinstance(value, (int, np.integer)):
        return str(int(value))
    if isinstance(value, (float, np.floating)):
        return repr(float(value))
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False)
    if isinstance(value, Mapping):
        return "{ " + ", ".join(f"{key} = {toml(item)}" for key, item in value.items()) + " }"
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(toml(item) for item in value) + "]"
    raise ValueError(f"wanted a text, a number, a boolean, a list or a dictionary, got {type(value).__name__}: {value!r:.60}")


class Miner:
    """Chooses the pairs of a batch that a loss looks at: ``ContrastiveLoss(miner=miners.HardMiner())``."""

    name: str
    """The name in run files and on the command line."""

    def __init__(self, **parameters: Any) -> None:
        self.parameters = {key: value for key, value in parameters.items() if value is not None}

    def settings(self) -> dict[str, Any]:
        return {"name": self.name, **self.parameters}

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(f'{key}={value!r}' for key, value in self.parameters.items())})"


def native(name: str, classes: int | None, dimensions: int | None, seed: int, parameters: Mapping[str, Any]) -> Any:
    """The native loss with these parameters, in the form of a run file; None is the default."""
    classes = _arrays.integer_or_none(classes, "classes", 1)
    dimensions = _arrays.integer_or_none(dimensions, "dimensions", 1)
    seed = _arrays.integer(seed, "seed")
    settings = []
    for key, value in parameters.items():
        if key == "miner" and isinstance(value, str):
            value = {"name": value}
        if value is not None:
            settings.append(f"{key.rstrip('_')}={toml(value)}")
    return _native.Loss(name, settings, classes, dimensions, seed)


class Loss:
    """A loss on NumPy arrays; see the classes of :mod:`gallerist.losses`.

    Call it with embeddings of shape ``(n, d)`` and ``n`` labels.
    """

    name: str
    """The name in run files and on the command line."""

    def __init__(
        self, *, classes: int | None = None, dimensions: int | None = None, seed: int = 1, **parameters: Any
    ) -> None:
        self._made = (self.name, classes, dimensions, seed, parameters)
        self._native = native(*self._made)
        self.parameters: dict[str, np.ndarray] = self._native.parameters()
        """The loss's own parameters by name (f32); empty for a loss that has none. An optimiser may change them."""

    def __getstate__(self) -> dict[str, Any]:
        return {key: value for key, value in self.__dict__.items() if key != "_native"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._native = native(*self._made)

    @property
    def settings(self) -> dict[str, Any]:
        """All parameters with their values."""
        return json.loads(self._native.settings())

    def __call__(
        self,
        embeddings: Any,
        labels: Any,
        *,
        memory: Any = None,
        memory_labels: Any = None,
        normalize: bool | None = None,
        gradient: bool = True,
        step: int = 0,
        steps: int = 1,
    ) -> LossOutput:
        """The loss of a batch, with its gradient.

        :param embeddings: array of shape ``(n, d)``: f32 or f64 (the computation has the same precision); f16 and
            bfloat16 are computed in f32.
        :param labels: ``n`` integers, or ``n`` sets of integers: samples that share a label are positives of each
            other. For a loss with parameters of its own they are the numbers of the classes, from 0.
        :param memory: embeddings of earlier batches, shape ``(m, d)``; they lengthen every ranked list and get no
            gradient (cross-batch memory, Wang et al., CVPR 2020).
        :param memory_labels: the labels of the memory.
        :param normalize: whether rows are scaled to length 1 first; None: as the loss's paper does. The gradient is with respect
            to the rows as they are given.
        :param gradient: whether the gradient is computed.
        :param step: training steps done. Schedules depend on it, and the random choices of miners and of similarity mixup
            (``simix``): give another number in every step.
        :param steps: training steps in all.
        :raises ValueError: for arrays of another shape or dtype, numbers that are not finite, labels that do not fit.
        """
        batch = _arrays.rows(embeddings, "embeddings", wide=True)
        values, ends = _arrays.numbers(labels, "labels", len(batch))
        of_memory = memory_values = memory_ends = None
        if memory is not None:
            of_memory = _arrays.rows(memory, "memory", wide=batch.dtype == np.float64).astype(batch.dtype, copy=False)
            memory_values, memory_ends = _arrays.numbers(memory_labels, "memory_labels", len(of_memory))
        parameters = {name: np.asarray(value, dtype=np.float32) for name, value in self.parameters.items()}
        step, steps = _arrays.integer(step, "step"), _arrays.integer(steps, "steps", 1)
        place = np.empty_like(batch) if gradient else None
        found = self._native.compute(
            batch, values, ends, of_memory, memory_values, memory_ends, parameters or None, normalize, place, step, steps
        )
        return LossOutput(
            value=found["value"],
            gradient=place,
            parameter_gradients=found["parameters"],
            queries=Queries(**found["queries"]),
            note=found["note"],
        )

    def __repr__(self) -> str:
        shown = {key: value for key, value in self.settings.items() if key != "name"}
        return f"{type(self).__name__}({', '.join(f'{key}={value!r}' for key, value in shown.items())})"
