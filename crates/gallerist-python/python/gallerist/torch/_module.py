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

    The value and all gradients are computed in the forward pass, on the CPU: tensors on a GPU are copied to it and the gradient
    back. f16 and bfloat16 are computed in f32, and so is the value; f64 is computed in f64. The losses' own parameters (proxies, class weights) are
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
        self._made = (self.name, classes, dimensions, seed, parameters)
        self._native = native(*self._made)
        self._normalize = normalize
        self._calls = 0
        self._names = []
        for name, values in self._native.parameters().items():
            # A parameter of a module has no dot in its name.
            attribute = name.replace(".", "_")
            self.register_parameter(attribute, torch.nn.Parameter(torch.from_numpy(values)))
            self._names.append((name, attribute))
        self.queries = None

    def __getstate__(self) -> dict[str, Any]:
        return {key: value for key, value in self.__dict__.items() if key != "_native"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        # Pickles of earlier versions do not count calls.
        super().__setstate__({"_calls": 0, **state})
        self._native = native(*self._made)

    def forward(
        self,
        embeddings: torch.Tensor,
        labels: Any,
        *,
        memory: torch.Tensor | None = None,
        memory_labels: Any = None,
        step: int | None = None,
        steps: int = 1,
    ) -> torch.Tensor:
        """The loss of a batch: a scalar on the device of ``embeddings``, f64 for embeddings of f64, else f32.

        A gradient scale (``torch.amp.GradScaler``) is applied in f32, before the gradient is rounded to f16.

        :param embeddings: tensor of shape ``(n, d)``.
        :param labels: tensor of ``n`` integers, or a list of ``n`` sets of integers: samples that share a label are
            positives of each other.
        :param memory: embeddings of earlier batches, shape ``(m, d)``; they lengthen every ranked list and get no
            gradient. :class:`~gallerist.torch.CrossBatchMemory` keeps them.
        :param memory_labels: the labels of the memory.
        :param step: training steps done. Schedules depend on it, and the random choices of miners and of similarity mixup
            (``simix``). None: a schedule stays at its first step, and random choices depend on the number of earlier calls,
            which is not in the ``state_dict``.
        :param steps: training steps in all.
        :raises ValueError: for tensors of another shape or dtype, numbers that are not finite, labels that do not fit.
        """
        if not isinstance(embeddings, torch.Tensor):
            raise ValueError(
                f"embeddings: wanted a tensor, got {type(embeddings).__name__}; gallerist.losses takes NumPy arrays"
            )
        if step is None:
            step = self._step(self._calls)
        self._calls += 1
        parameters = [getattr(self, attribute) for _, attribute in self._names]
        return _Function.apply(self, (labels, memory, memory_labels, step, steps), embeddings, *parameters)

    def _step(self, batches: int) -> int:
        """The step after so many batches, where none is given: a schedule does not begin on its own."""
        return 0 if self._native.has_schedule() else batches

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
        step, steps = _arrays.integer(step, "step"), _arrays.integer(steps, "steps", 1)
        wanted = any(ctx.needs_input_grad[2:])
        gradient, place = _place(rows) if wanted else (None, None)
        found = module._native.compute(
            rows, values, ends, of_memory, memory_values, memory_ends, own or None, module._normalize, place, step, steps
        )
        module.queries = Queries(**found["queries"])
        ctx.gradients = None
        if gradient is not None:
            ctx.gradients = [gradient.to(embeddings.device)]
            ctx.dtypes = [embeddings.dtype, *(parameter.dtype for parameter in parameters)]
            for (name, _), parameter in zip(module._names, parameters):
                of_parameter = found["parameters"].get(name)
                ctx.gradients.append(
                    torch.zeros_like(parameter, dtype=torch.float32)
                    if of_parameter is None
                    else torch.from_numpy(of_parameter).to(parameter.device)
                )
        # f16 ends at 65,504 and has 11 bits: the value is not rounded to it.
        dtype = torch.float64 if embeddings.dtype == torch.float64 else torch.float32
        return torch.tensor(found["value"], dtype=dtype, device=embeddings.device)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, scale: torch.Tensor) -> tuple:
        gradients = ctx.gradients
        if gradients is None:
            raise RuntimeError(
                "Trying to backward through the graph a second time: the gradients of the loss were handed out; "
                "specify retain_graph=True if you need to backward through the graph a second time"
            )
        if not _keeps_graph():
            # The only reference: what receives a gradient may keep it without a copy.
            ctx.gradients = None
        # On a GPU, the comparison would wait for it.
        if scale.device.type != "cpu" or scale.item() != 1.0:
            # Parameters may be on another device than the embeddings.
            gradients = [gradient * scale.to(gradient) for gradient in gradients]
        # Only now: unscaled gradients are often below the smallest f16.
        return (None, None, *(gradient.to(dtype) for gradient, dtype in zip(gradients, ctx.dtypes)))


# Whether the graph may be used again after this backward pass. Where this PyTorch does not say so: yes.
_keeps_graph = getattr(torch._C._autograd, "_get_current_graph_task_keep_graph", None) or (lambda: True)


def _place(rows: np.ndarray) -> tuple[torch.Tensor, np.ndarray]:
    """A tensor for the gradient, and its memory as an array of the dtype of ``rows``."""
    gradient = torch.empty(rows.shape, dtype=torch.float64 if rows.dtype == np.float64 else torch.float32)
    return gradient, gradient.numpy()
