"""Cross-batch memory."""

from __future__ import annotations

from typing import Any

import torch

from .. import _arrays
from ._module import Loss


class CrossBatchMemory(torch.nn.Module):
    """A loss whose ranked lists also contain the embeddings of the last batches (Wang et al., CVPR 2020).

    The batch is in the list once: it is stored after its loss is computed. Embeddings in the memory get no gradient.

    >>> loss = CrossBatchMemory(losses.ContrastiveLoss(), size=8192, start_step=1000)    # doctest: +SKIP
    >>> loss(embeddings, labels).backward()                                              # doctest: +SKIP
    """

    embeddings: torch.Tensor | None
    """The embeddings in the memory, the latest last."""

    labels: torch.Tensor | None
    """Their labels."""

    step: torch.Tensor
    """Batches seen."""

    def __init__(self, loss: Loss, size: int = 8192, start_step: int = 1000) -> None:
        """
        :param loss: a loss that compares pairs.
        :param size: embeddings kept, the latest ones.
        :param start_step: batches before the first one that is kept: embeddings drift too fast early in training.
        """
        super().__init__()
        size, start_step = _arrays.integer(size, "size", 1), _arrays.integer(start_step, "start_step")
        self.loss = loss
        self.size = size
        self.start_step = start_step
        self.register_buffer("embeddings", None)
        self.register_buffer("labels", None)
        self.register_buffer("step", torch.zeros((), dtype=torch.int64))

    def forward(self, embeddings: torch.Tensor, labels: torch.Tensor, **options: Any) -> torch.Tensor:
        """The loss of the batch against itself and the memory; see :meth:`Loss.forward`.

        :param labels: tensor of ``n`` integers.
        """
        labels = torch.as_tensor(labels)
        value = self.loss(embeddings, labels, memory=self.embeddings, memory_labels=self.labels, **options)
        if int(self.step) >= self.start_step:
            self._store(embeddings.detach(), labels.detach().cpu())
        self.step += 1
        return value

    def _store(self, embeddings: torch.Tensor, labels: torch.Tensor) -> None:
        if self.embeddings is not None and self.labels is not None:
            embeddings = torch.cat([self.embeddings, embeddings])
            labels = torch.cat([self.labels, labels])
        self.embeddings, self.labels = embeddings[-self.size :].clone(), labels[-self.size :].clone()

    def __len__(self) -> int:
        return 0 if self.embeddings is None else len(self.embeddings)
