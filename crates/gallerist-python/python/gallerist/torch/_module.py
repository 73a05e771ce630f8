"""The module that every loss of :mod:`gallerist.torch.losses` derives from."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import torch
from torch.autograd.function import once_differentiable

from .. import _arrays
from .._loss import Queries, native


class Loss(torch.nn.Module):
    """A loss in the call form of pytorch-metric-learning: ``loss(embeddings, labels)``.

    The value and all gradients are computed in the forward pass, on the processor: tensors on a GPU are copied there
    and back. f16 and bfloat16 are computed in f32, f64 in f64. The losses' own parameters (proxies, class weights) are
    ``torch.nn.Parameter`` of the module. There is no second derivative.
    """

    name: str
    """The name in run files and on the command line."""

    queries: Queries | None
    """Diagnostics of the last batch, one entry for each query."""

    def __init__(
        self,
        *,
        classes: int | None = None,
        dimensions: int | None = None,
        seed: int = 1,
        normalize: bool | None = None,
        **parameters: Any,
    ) -> None:
        super().__init__()
        self._native = native(self.name, classes, dimensions, seed, parameters)
        self._normalize = normalize
        self._names = []
        for name, values in self._native.parameters().items():
            # A parameter of a module has no dot in its name.
            attribute = name.replace(".", "_")
            self.register_parameter(attribute, torch.nn.Parameter(torch.from_numpy(values)))
            self._names.append((name, attribute))
        self.queries = None

    def forward(
        self,
        embeddings: torch.Tensor,
        labels: Any,
        *,
        memory: torch.Tensor | None = None,
        memory_labels: Any = None,
        step: int = 0,
        steps: int = 1,
    ) -> torch.Tensor:
        """The loss of a batch: a scalar on the device and of the dtype of ``embeddings``.

        :param embeddings: tensor of shape ``(n, d)``.
        :param labels: tensor of ``n`` integers, or a list of ``n`` sets of integers: samples that share a label are
            positives of each other.
        :param memory: embeddings of earlier batches, shape ``(m, d)``; they lengthen every ranked list and get no
            gradient. :class:`~gallerist.torch.CrossBatchMemory` keeps them.
        :param memory_labels: the labels of the memory.
        :param step: training steps done, for losses with a schedule.
        :param steps: training steps in all.
        :raises ValueError: for tensors of another shape or dtype, numbers that are not finite, labels that do not fit.
        """
        if not isinstance(embeddings, torch.Tensor):
            raise ValueError(
                f"embeddings: wanted a tensor, got {type(embeddings).__name__}; gallerist.losses takes NumPy arrays"
            )
        parameters = [getattr(self, attribute) for _, attribute in self._names]
        return _Function.apply(self, (labels, memory, memory_labels, step, steps), embeddings, *parameters)

    def extra_repr(self) -> str:
        settings = json.loads(self._native.settings())
        return ", ".join(f"{key}={value!r}" for key, value in settings.items() if key != "name")


class _Function(torch.autograd.Function):
    """The gradients are computed together with the value and scaled in the backward pass."""

    @staticmethod
    def forward(ctx: Any, module: Loss, batch: tuple, embeddings: torch.Tensor, *parameters: torch.Tensor) -> torch.Tensor:
        labels, memory, memory_labels, step, steps = batch
        rows = _arrays.rows(embeddings, "embeddings", wide=True)
        values, ends = _arrays.numbers(labels, "labels", len(rows))
        of_memory = memory_values = memory_ends = None
        if memory is not None and len(memory):
            of_memory = _arrays.rows(memory, "memory", wide=True).astype(rows.dtype, copy=False)
            memory_values, memory_ends = _arrays.numbers(memory_labels, "memory_labels", len(of_memory))
        own = {
            name: parameter.detach().cpu().float().contiguous().numpy()
            for (name, _), parameter in zip(module._names, parameters)
        }
        wanted = any(ctx.needs_input_grad[2:])
        found = module._native.compute(
            rows, values, ends, of_memory, memory_values, memory_ends, own or None, module._normalize, wanted, step, steps
        )
        module.queries = Queries(**found["queries"])
        if wanted:
            gradients = [_like(found["gradient"], embeddings)]
            for (name, _), parameter in zip(module._names, parameters):
                gradient = found["parameters"].get(name)
                gradients.append(torch.zeros_like(parameter) if gradient is None else _like(gradient, parameter))
            ctx.save_for_backward(*gradients)
        return torch.tensor(found["value"], dtype=embeddings.dtype, device=embeddings.device)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, scale: torch.Tensor) -> tuple:
        gradients = ctx.saved_tensors
        # On a GPU, the comparison would wait for it.
        if scale.device.type != "cpu" or scale.item() != 1.0:
            gradients = [gradient * scale.to(gradient.dtype) for gradient in gradients]
        return (None, None, *gradients)


def _like(gradient: np.ndarray, tensor: torch.Tensor) -> torch.Tensor:
    """The gradient on the device and in the dtype of a tensor."""
    return torch.from_numpy(gradient).to(device=tensor.device, dtype=tensor.dtype)
