"""Cross-batch memory."""

from __future__ import annotations

import functools
import json
from typing import Any

import torch

from .. import _arrays, _native
from ._module import Loss


@functools.cache
def _takes_memory() -> dict[str, bool]:
    """Whether each loss takes a memory, by its name."""
    return {loss["name"]: loss["takes_memory"] for loss in json.loads(_native.losses())}


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
        :param loss: a loss that compares pairs. A loss over proxies or class weights takes no memory.
        :param size: embeddings kept, the latest ones.
        :param start_step: batches before the first one that is kept: embeddings drift too fast early in training.
        """
        super().__init__()
        if isinstance(loss, Loss) and not _takes_memory()[loss.name]:
            known = ", ".join(name for name, takes in _takes_memory().items() if takes)
            raise ValueError(f"the loss `{loss.name}` takes no memory\nhint: losses that take one: {known}")
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
        :param options: ``step`` and ``steps``. Without ``step``, random choices depend on the number of batches seen, which
            is in the ``state_dict``.
        """
        labels = torch.as_tensor(labels)
        seen = int(self.step)
        if isinstance(self.loss, Loss):
            options.setdefault("step", self.loss._step(seen))
        value = self.loss(embeddings, labels, memory=self.embeddings, memory_labels=self.labels, **options)
        if seen >= self.start_step:
            self._store(embeddings.detach(), labels.detach().to(embeddings.device))
        self.step += 1
        return value

    def _store(self, embeddings: torch.Tensor, labels: torch.Tensor) -> None:
        if self.embeddings is not None and self.labels is not None:
            embeddings = torch.cat([self.embeddings.to(embeddings), embeddings])
            labels = torch.cat([self.labels.to(labels.device), labels])
        self.embeddings, self.labels = embeddings[-self.size :].clone(), labels[-self.size :].clone()

    def _load_from_state_dict(
        self,
        state_dict: dict[str, Any],
        prefix: str,
        local_metadata: dict[str, Any],
        strict: bool,
        missing_keys: list[str],
        unexpected_keys: list[str],
        error_msgs: list[str],
    ) -> None:
        # The memory has as many rows as were stored, and none at first: it takes the size of what is loaded.
        stored = {name: state_dict.get(prefix + name) for name in ("embeddings", "labels")}
        for name, values in stored.items():
            setattr(self, name, None if values is None else torch.empty_like(values, device=self.step.device))
            if values is None and any(other is not None for other in stored.values()):
                missing_keys.append(prefix + name)
        super()._load_from_state_dict(
            state_dict, prefix, local_metadata, strict, missing_keys, unexpected_keys, error_msgs
        )

    def __len__(self) -> int:
        return 0 if self.embeddings is None else len(self.embeddings)
