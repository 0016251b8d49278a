"""The layers of a model, each by itself: those of PyG's BasicGNN, or functions."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from freshgo._args import checks
from freshgo.errors import DTypeError, InvalidArgumentError

_NODEWISE = ("Identity", "BatchNorm", "BatchNorm1d", "LayerNorm", "MessageNorm")
"""Norms of a node's own row, in the mode eval()."""

_OF_PAIRS = ("SAGEConv", "GINConv")
"""Convolutions that give the same rows from sources and targets apart, and so compute none for the neighbours."""


@dataclasses.dataclass(frozen=True)
class Norm:
    """GCN's coefficients: what they depend on beside the edges."""

    edge_weight: str | None
    loops: bool
    fill: float

    def loops_of(self, batch: Any) -> tuple[Tensor, Tensor, Tensor]:
        """Return the edges of a batch of one hop that are no self-loops, their weights, and the weight of each target's
        own loop: that of its last one in the graph, if it has any."""
        edges, targets = batch.edge_index, batch.batch_size
        weight = batch[self.edge_weight] if self.edge_weight else torch.ones(edges.size(1), device=edges.device)
        weight = weight.view(-1).float()
        if not self.loops:
            return edges, weight, weight.new_zeros(targets)
        loop = edges[0] == edges[1]
        own = weight.new_full((targets,), self.fill)
        own[edges[1, loop]] = weight[loop]
        return edges[:, ~loop], weight[~loop], own

    def degrees(self, batch: Any) -> Tensor:
        """Return the degree of each target: the weights of its edges and of its loop."""
        edges, weight, own = self.loops_of(batch)
        return own.index_add(0, edges[1], weight)

    def normalised(self, batch: Any, degrees: Tensor) -> tuple[Tensor, Tensor]:
        """Return the edges of a batch, with a loop for each target, and their coefficients. ``degrees`` are those of
        all nodes of the graph."""
        edges, weight, own = self.loops_of(batch)
        scale = degrees[batch.n_id.cpu()].to(weight.device).pow(-0.5)
        scale.masked_fill_(scale == torch.inf, 0)
        if self.loops:
            targets = torch.arange(own.numel(), device=edges.device)
            edges = torch.cat([edges, targets.expand(2, -1)], 1)
            weight = torch.cat([weight, own])
        return edges, scale[edges[0]] * weight * scale[edges[1]]


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

    def describe(self) -> str:
        """What its rows depend on beside the parameters of the model."""
        return f"{self.norm} {self.edge_tensors} {getattr(self.compute, 'name', '')}"


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
    for norm in model.norms:
        whole = getattr(norm, "mode", "node") != "node" or type(norm).__name__ not in _NODEWISE
        if whole:
            raise InvalidArgumentError(
                f"model has a {type(norm).__name__} over all nodes at once, which no layer has by itself: give layers="
            )
    made = []
    for i, conv in enumerate(model.convs):
        norm = _norm_of(conv, edge_weight)
        compute = _Convolution(model, i, norm, edge_weight, edge_attr)
        made.append(Layer(compute, norm, True, tuple(filter(None, (edge_weight, edge_attr)))))
    return made


def _norm_of(conv: Any, edge_weight: str | None) -> Norm | None:
    """What a GCNConv normalises by."""
    if not hasattr(conv, "normalize") or not hasattr(conv, "add_self_loops") or not hasattr(conv, "improved"):
        return None
    if not conv.normalize:
        return None
    return Norm(edge_weight, bool(conv.add_self_loops), 2.0 if conv.improved and edge_weight else 1.0)


@dataclasses.dataclass(frozen=True)
class _Convolution:
    """A layer of a BasicGNN with what follows it."""

    model: Any
    place: int
    norm: Norm | None
    edge_weight: str | None
    edge_attr: str | None

    def __call__(self, h: Tensor, batch: Any, degrees: Tensor | None) -> Tensor:
        model, i = self.model, self.place
        h = self._convolved(h, batch, degrees)[: batch.batch_size]
        if i == model.num_layers - 1 and model.jk_mode is None:
            return h
        if model.act is not None and model.act_first:
            h = model.act(h)
        h = model.norms[i](h)
        if model.act is not None and not model.act_first:
            h = model.act(h)
        if i == model.num_layers - 1 and hasattr(model, "lin"):
            h = model.lin(h)
        return h

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
