"""The layers of a model, each by itself: those of PyG's BasicGNN, or functions."""

from __future__ import annotations

import dataclasses
import functools
import sys
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from freshgo._args import checks
from freshgo._infer.linear import Linear, linear
from freshgo._infer.norm import Norm
from freshgo.errors import DTypeError, InvalidArgumentError

_NODEWISE = ("Identity", "BatchNorm", "BatchNorm1d", "LayerNorm", "MessageNorm")
"""Norms of a node's own row, in the mode eval()."""

_OF_NUMBERS = (torch.nn.ReLU, torch.nn.ELU, torch.nn.LeakyReLU, torch.nn.GELU, torch.nn.SiLU, torch.nn.Tanh)
"""Activations of one number at a time. A subclass may be something else."""

_OF_PAIRS = ("SAGEConv", "GINConv")
"""Convolutions that give the same rows from sources and targets apart, and so compute none for the neighbours."""


@dataclasses.dataclass(frozen=True)
class Layer:
    """A layer of a model."""

    compute: Callable[[Any, Any, Tensor | None], Any]
    """Called with rows of the layer before, a batch of one hop, and the degrees of all nodes where ``norm`` asks for
    them; returns the rows of the batch's input nodes."""
    norm: Norm | None = None
    basic: bool = False
    """Whether it is one of a BasicGNN."""
    edge_tensors: tuple[str, ...] = ()
    """What it takes beside the edges."""
    linear: Linear | None = None
    """Its parts, if it adds up rows with coefficients that do not depend on them."""
    after: Callable[[Tensor], Tensor] | None = None
    """What follows the convolution, of a BasicGNN."""
    after_columns: Callable[[Tensor, slice], Tensor] | None = None
    """The same for some columns by themselves; None where it needs whole rows."""

    def describe(self) -> str:
        """What its rows depend on beside the parameters of the model."""
        return f"{self.norm} {self.edge_tensors} {getattr(self.compute, 'name', '')}"


def dtypes_of(model: torch.nn.Module | None, layers: Sequence[Layer]) -> set[torch.dtype]:
    """The dtypes of the parameters of a model, or of layers that are modules, as far as they are floats."""
    functions = [layer.compute.layer for layer in layers if isinstance(layer.compute, _Function)]
    modules = [each for each in (model, *functions) if isinstance(each, torch.nn.Module)]
    return {of.dtype for module in modules for of in module.parameters() if of.is_floating_point()}


def layers_of(model: Any, layers: Any, edge_weight: str | None, edge_attr: str | None) -> list[Layer]:
    """Check a model, or its layers as functions, and return them one by one."""
    if model is not None and not isinstance(model, torch.nn.Module):
        raise DTypeError(f"model must be a torch.nn.Module or None, got {type(model).__name__}")
    if model is not None and model.training:
        raise InvalidArgumentError("model is in the mode train(), where dropout is random: call model.eval()")
    if layers is not None:
        if edge_weight is not None or edge_attr is not None:
            raise InvalidArgumentError("edge_weight and edge_attr are for a BasicGNN: layers find them in the batch")
        return _functions(layers)
    if model is None:
        raise InvalidArgumentError("infer needs a model of PyG's BasicGNN, or layers")
    basic = sys.modules.get("torch_geometric.nn.models.basic_gnn")
    if basic is None or not isinstance(model, basic.BasicGNN):
        raise InvalidArgumentError(
            f"model is no BasicGNN of PyG but a {type(model).__name__}: give its layers, as functions, by layers="
        )
    return _of_basic(model, edge_weight, edge_attr)


def _functions(layers: Sequence[Any]) -> list[Layer]:
    if isinstance(layers, str) or not isinstance(layers, Sequence) or not layers:
        raise DTypeError(f"layers must be a list of functions, got {checks.shown(layers)}")
    for i, layer in enumerate(layers):
        if not callable(layer):
            raise DTypeError(f"layers[{i}] must be callable, got {checks.shown(layer)}")
    return [Layer(_Function(layer, getattr(layer, "__qualname__", type(layer).__qualname__))) for layer in layers]


@dataclasses.dataclass(frozen=True)
class _Function:
    """A layer that a user gives."""

    layer: Callable[[Any, Any], Any]
    name: str

    def __call__(self, h: Any, batch: Any, _: Tensor | None) -> Any:
        return self.layer(h, batch)


def _of_basic(model: Any, edge_weight: str | None, edge_attr: str | None) -> list[Layer]:
    """The layers of a BasicGNN, as its own ``inference`` takes them apart."""
    if model.jk_mode not in (None, "last"):
        raise InvalidArgumentError(
            f"model has jumping knowledge jk={model.jk_mode!r}, which needs all layers at once: give jk=None or "
            "'last', or layers="
        )
    for name, given in (("edge_weight", edge_weight), ("edge_attr", edge_attr)):
        if given is not None and not getattr(model, f"supports_{name}"):
            raise InvalidArgumentError(f"{type(model).__name__} takes no {name}")
    within = (part for part in model.convs.modules() if type(part).__module__.startswith("torch_geometric.nn.norm."))
    for norm in (*model.norms, *within):  # the MLP of a GINConv has norms, too
        whole = getattr(norm, "mode", "node") != "node" or type(norm).__name__ not in _NODEWISE
        if whole:
            raise InvalidArgumentError(
                f"model has a {type(norm).__name__} over all nodes at once, which no layer has by itself: give layers="
            )
    made = []
    for i, conv in enumerate(model.convs):
        norm = _norm_of(conv, edge_weight)
        compute = _Convolution(model, i, norm, edge_weight, edge_attr)
        parts = None if edge_attr is not None else linear(conv, norm, edge_weight)
        columns = compute.after_columns if compute.takes_columns() else None
        tensors = tuple(filter(None, (edge_weight, edge_attr)))
        made.append(Layer(compute, norm, True, tensors, parts, compute.after, columns))
    return made


def _norm_of(conv: Any, edge_weight: str | None) -> Norm | None:
    """What a GCNConv normalises by."""
    if not hasattr(conv, "normalize") or not hasattr(conv, "add_self_loops") or not hasattr(conv, "improved"):
        return None
    if not conv.normalize:
        return None
    return Norm(edge_weight, bool(conv.add_self_loops), 2.0 if conv.improved and edge_weight else 1.0)


def _normed(norm: Any, columns: slice, h: Tensor) -> Tensor:
    """Some columns, normalised by themselves."""
    if type(norm) is torch.nn.Identity:
        return h
    weight, bias = (None if each is None else each[columns] for each in (norm.weight, norm.bias))
    mean, variance = norm.running_mean[columns], norm.running_var[columns]
    return torch.nn.functional.batch_norm(h, mean, variance, weight, bias, training=False, eps=norm.eps)


def _hooked(*modules: Any) -> bool:
    return any(each is not None and (each._forward_hooks or each._forward_pre_hooks) for each in modules)


@dataclasses.dataclass(frozen=True)
class _Convolution:
    """A layer of a BasicGNN with what follows it."""

    model: Any
    place: int
    norm: Norm | None
    edge_weight: str | None
    edge_attr: str | None

    def __call__(self, h: Tensor, batch: Any, degrees: Tensor | None) -> Tensor:
        return self.after(self._convolved(h, batch, degrees)[: batch.batch_size])

    def after(self, h: Tensor) -> Tensor:
        """What follows the convolution: activation, norm, and the last product."""
        model, i = self.model, self.place
        if i == model.num_layers - 1 and model.jk_mode is None:
            return h
        h = self._activated(h, model.norms[i])
        if i == model.num_layers - 1 and hasattr(model, "lin"):
            h = model.lin(h)
        return h

    def _activated(self, h: Tensor, norm: Callable[[Tensor], Tensor]) -> Tensor:
        act, first = self.model.act, self.model.act_first
        if act is not None and first:
            h = act(h)
        h = norm(h)
        return act(h) if act is not None and not first else h

    def takes_columns(self) -> bool:
        """Whether ``after_columns`` may be called."""
        norm, act = self._norm(), self.model.act
        batch = type(norm) is torch.nn.BatchNorm1d and norm.running_mean is not None
        plain = (batch or type(norm) is torch.nn.Identity) and (act is None or type(act) in _OF_NUMBERS)
        return plain and self.place < self.model.num_layers - 1 and not _hooked(norm, act)

    def after_columns(self, h: Tensor, columns: slice) -> Tensor:
        """Some columns of what ``after`` returns, of the same columns."""
        return self._activated(h, functools.partial(_normed, self._norm(), columns))

    def _norm(self) -> Any:
        norm = self.model.norms[self.place]
        return norm.module if type(norm).__name__ == "BatchNorm" else norm

    def _convolved(self, h: Tensor, batch: Any, degrees: Tensor | None) -> Tensor:
        conv = self.model.convs[self.place]
        given = {"edge_weight": self.edge_weight, "edge_attr": self.edge_attr}
        named = {name: batch[of] for name, of in given.items() if of is not None}
        if self.norm is None or degrees is None:
            pair = type(conv).__name__ in _OF_PAIRS
            out: Tensor = conv((h, h[: batch.batch_size]) if pair else h, batch.edge_index, **named)
            return out
        edges, weight = self.norm.normalised(batch, degrees)
        conv.normalize = False
        try:
            out = conv(h, edges, **{**named, "edge_weight": weight.to(h.dtype)})
        finally:
            conv.normalize = True
        return out
