"""Losses for PyTorch, cross-batch memory, samplers. Needs ``torch``.

>>> from gallerist.torch import losses
>>> loss = losses.RllLoss(margin=0.4)(embeddings, labels)    # doctest: +SKIP
>>> loss.backward()                                          # doctest: +SKIP
"""

from __future__ import annotations

from . import losses
from ._memory import CrossBatchMemory
from .samplers import ClassSampler

__all__ = ["ClassSampler", "CrossBatchMemory", "losses"]
