"""Batch norms of a model that a history is attached to: a single row has no variance.

A pruned batch may leave a layer one row to compute. In training it is normalized as in evaluation then, by the running
statistics, and does not change them, as PyG's ``BatchNorm(allow_single_element=True)`` does it.
"""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from freshgo._history.steps import Steps
from freshgo._ops.eager import eager

__all__ = ["hook_batch_norms"]


def hook_batch_norms(history: Steps, model: nn.Module) -> list[Any]:
    """Return the handles of hooks around every batch norm of ``model`` that has running statistics."""
    handles = []
    for norm in model.modules():
        if isinstance(norm, _BatchNorm) and norm.track_running_stats:
            before = _Before(history)
            handles.append(norm.register_forward_pre_hook(before, with_kwargs=True))
            handles.append(norm.register_forward_hook(_After(before), always_call=True))
    return handles


class _Before:
    def __init__(self, history: Steps | None) -> None:
        self.history = history
        self.evaluates = False

    def __getstate__(self) -> dict[str, Any]:
        return {"history": None, "evaluates": False}  # a copy of the model refuses pruned batches

    @eager
    def __call__(self, norm: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        step = None if self.history is None else self.history.current
        rows = args[0] if args else kwargs.get("input")
        one = isinstance(rows, Tensor) and rows.dim() == 2 and rows.size(0) == 1
        if norm.training and one and step is not None and not step.done:
            self.evaluates = True
            norm.eval()


class _After:
    def __init__(self, before: _Before) -> None:
        self._before = before

    @eager
    def __call__(self, norm: nn.Module, _: Any, __: Any) -> None:
        if self._before.evaluates:
            self._before.evaluates = False
            norm.train()
