"""What ``forward`` of a model takes, and models that are one layer, which tracing does not look into."""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Mapping
from typing import Any

import torch

Parameters = Mapping[str, inspect.Parameter]


class _Around(torch.nn.Module):
    """A model that calls another module, with whose class name it goes in messages."""

    def __init__(self, module: torch.nn.Module, takes: Parameters) -> None:
        super().__init__()
        self.module, self.takes = module, takes

    def forward(self, **given: Any) -> Any:
        return self.module(**given)


def parameters_of(model: torch.nn.Module) -> Parameters:
    """Return the parameters of ``forward``. The one of PyG's Sequential takes any; its signature has their names."""
    if isinstance(model, _Around):
        return model.takes
    names = getattr(getattr(model, "signature", None), "param_dict", None)
    return _named(names) if isinstance(names, dict) else inspect.signature(model.forward).parameters


def as_model(model: torch.nn.Module, others: Iterable[str]) -> torch.nn.Module:
    """Return a model that calls ``model`` where that is a message-passing layer, a ``HeteroConv``, or has hooks, which
    tracing leaves out; otherwise ``model``. ``others`` are parameters that a ``HeteroConv`` is given beside rows and
    edges."""
    from torch_geometric.nn import HeteroConv, MessagePassing

    hooked = model._forward_hooks or model._forward_pre_hooks
    if not hooked and not isinstance(model, MessagePassing | HeteroConv):
        return model
    hetero = isinstance(model, HeteroConv)
    takes = _named(["x_dict", "edge_index_dict", *others]) if hetero else parameters_of(model)
    around: torch.nn.Module = type(type(model).__name__, (_Around,), {})(model, takes)
    return around.eval()


def _named(names: Iterable[str]) -> Parameters:
    return {name: inspect.Parameter(name, inspect.Parameter.POSITIONAL_OR_KEYWORD) for name in names}
