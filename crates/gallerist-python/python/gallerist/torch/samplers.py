"""Batches of classes and images."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import torch

from .. import _arrays


class ClassSampler(torch.utils.data.Sampler[list[int]]):
    """Batches of ``classes`` classes with ``images`` images each, for ``DataLoader(batch_sampler=...)``.

    Classes are drawn without replacement in a batch; the images of a class are taken in a random order, and again
    from the start when all were taken. A class with fewer images than ``images`` repeats them.
    """

    def __init__(self, labels: Sequence[Any], classes: int, images: int, *, batches: int | None = None, seed: int = 1) -> None:
        """
        :param labels: the label of every sample of the data set, one each.
        :param classes: classes in a batch.
        :param images: images of each class in a batch, 2 or more for losses that need positives.
        :param batches: batches of an epoch; by default as many as hold each sample once.
        :param seed: seed of the batches; :meth:`set_epoch` changes them.
        """
        numbers = _arrays.classes(labels, "labels")
        self._members = [np.flatnonzero(numbers == label) for label in range(numbers.max(initial=-1) + 1)]
        classes, images = _arrays.integer(classes, "classes", 1), _arrays.integer(images, "images", 1)
        if not 1 <= classes <= len(self._members):
            raise ValueError(f"classes: wanted 1 to {len(self._members)}, the classes of the labels, got {classes}")
        self.classes, self.images, self.epoch = classes, images, 0
        self.seed = _arrays.integer(seed, "seed")
        batches = _arrays.integer_or_none(batches, "batches", 1)
        self.batches = max(1, len(numbers) // (classes * images)) if batches is None else batches

    def set_epoch(self, epoch: int) -> None:
        """Chooses other batches, the same ones for the same epoch."""
        self.epoch = epoch

    def __len__(self) -> int:
        return self.batches

    def __iter__(self) -> Iterator[list[int]]:
        random = np.random.default_rng([self.seed, self.epoch])
        waiting: list[list[int]] = [[] for _ in self._members]
        for _ in range(self.batches):
            batch: list[int] = []
            for label in random.choice(len(self._members), self.classes, replace=False):
                queue = waiting[label]
                while len(queue) < self.images:
                    # Those that wait are in this batch: again only after all others.
                    order = random.permutation(self._members[label]).tolist()
                    waits = set(queue)
                    queue += [i for i in order if i not in waits] + [i for i in order if i in waits]
                batch += queue[: self.images]
                del queue[: self.images]
            yield batch
