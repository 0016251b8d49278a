"""PyG's layers replaced by those over the operators, and first layers that are precomputed."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from typing import Any

import torch_geometric.nn as pyg
from torch import nn
from torch_geometric.nn.conv import MessagePassing

from freshgo._args.entry import entry
from freshgo._batch import pyg_batches as _tested  # noqa: F401  (refuses a PyG that is too old)
from freshgo._nn import layers
from freshgo._nn import precomputed as first
from freshgo._nn.calls import other_reader
from freshgo._nn.layers import REDUCTIONS
from freshgo.errors import DTypeError, InvalidArgumentError

__all__ = ["Precomputation", "Report", "accelerate", "precomputed"]

_SWAPS: dict[type[nn.Module], type[nn.Module]] = {
    pyg.SAGEConv: layers.SAGEConv,
    pyg.GCNConv: layers.GCNConv,
    pyg.GINConv: layers.GINConv,
    pyg.GATConv: layers.GATConv,
    pyg.RGCNConv: layers.RGCNConv,
    pyg.FastRGCNConv: layers.FastRGCNConv,
}
_ORIGINALS = {ours: theirs for theirs, ours in _SWAPS.items()}
_SUMS = ("add", "sum")
_ALLOWED: dict[type[nn.Module], tuple[str, ...]] = {
    pyg.GCNConv: _SUMS,
    pyg.GATConv: _SUMS,
    pyg.FastRGCNConv: (*_SUMS, "mean"),
}


@dataclasses.dataclass
class Report:
    """What :func:`accelerate` did to a model."""

    swapped: dict[str, str]
    """The class of each layer that now runs on the operators, by its name in the model."""
    left: dict[str, str]
    """Why a message-passing layer was left alone, by its name in the model."""
    _layers: list[nn.Module] = dataclasses.field(default_factory=list, repr=False)

    def undo(self) -> None:
        """Restore the original classes of the replaced layers."""
        for layer in self._layers:
            if type(layer) in _ORIGINALS:
                layer.__class__ = _ORIGINALS[type(layer)]
        self._layers.clear()

    def __str__(self) -> str:
        lines = [f"swapped {len(self.swapped)} of {len(self.swapped) + len(self.left)} message-passing layers"]
        lines += [f"  {name or '(model)'}: {what}" for name, what in self.swapped.items()]
        lines += [f"  {name or '(model)'}: left alone, {why}" for name, why in self.left.items()]
        return "\n".join(lines)


@entry
def accelerate(model: nn.Module) -> Report:
    """Make the SAGEConv, GCNConv, GINConv, GATConv and RGCNConv layers of ``model`` aggregate without writing messages.

    The model is changed in place. Results equal PyG's up to rounding. Layers inside ``HeteroConv``, ``to_hetero`` and
    PyG's ready-made models are found too. Subclasses, whose messages may differ, and options that the operators do not
    cover are left alone and named in the report. Accelerating again changes nothing.

    Raises:
        DTypeError: ``model`` is not a :class:`torch.nn.Module`.
    """
    if not isinstance(model, nn.Module):
        raise DTypeError(f"model must be a torch.nn.Module, got {type(model).__name__}")
    report = Report({}, {})
    for name, layer in model.named_modules():
        if not isinstance(layer, MessagePassing):
            continue
        if type(layer) in _ORIGINALS:
            report.swapped[name] = _ORIGINALS[type(layer)].__name__
            report._layers.append(layer)
            continue
        why = _obstacle(layer)
        if why is None:
            report.swapped[name] = type(layer).__name__
            layer.__class__ = _SWAPS[type(layer)]
            report._layers.append(layer)
        else:
            report.left[name] = why
    return report


def _obstacle(layer: Any) -> str | None:
    if isinstance(layer, first.Precomputed):
        return "what it adds up is precomputed"
    if type(layer) not in _SWAPS:
        return f"{type(layer).__name__} is not one of {', '.join(kind.__name__ for kind in _SWAPS)}"
    if layer.flow != "source_to_target":
        return f"flow={layer.flow!r}"
    allowed = _ALLOWED.get(type(layer), tuple(REDUCTIONS))
    if not isinstance(layer.aggr, str) or layer.aggr not in allowed:
        return f"aggr={layer.aggr!r} is not one of {', '.join(allowed)}"
    if layer.decomposed_layers > 1:
        return f"decomposed_layers={layer.decomposed_layers}"
    return None


@dataclasses.dataclass
class Precomputation:
    """What :func:`precomputed` did to a model."""

    first_layer: str
    """What the layers need: ``reduce`` of :func:`freshgo.propagate`, ``first_layer`` of :class:`freshgo.Loader`."""
    layers: dict[str, str]
    """The class of each layer that now uses the precomputed aggregate, by its name in the model."""
    _layers: list[nn.Module] = dataclasses.field(default_factory=list, repr=False)
    _handles: list[Any] = dataclasses.field(default_factory=list, repr=False)

    def undo(self) -> None:
        """Restore the original classes of the layers."""
        for layer in self._layers:
            layer.__class__ = first.ORIGINALS.get(type(layer), type(layer))
        for handle in self._handles:
            handle.remove()
        self._layers.clear()
        self._handles.clear()


@entry
def precomputed(model: nn.Module, layers: Iterable[nn.Module] | None = None) -> Precomputation:
    """Make the first layer of ``model`` use the aggregates that :func:`freshgo.propagate` has computed.

        report = precomputed(model)  # SAGEConv, GraphConv, GCNConv or GINConv come first
        store = freshgo.propagate(store, "x", reduce=report.first_layer)
        loader = freshgo.Loader(store, [15, 10], "train", first_layer=report.first_layer)  # two hops for three layers
        for batch in loader:
            out = model(batch.x, batch.edge_index)[: batch.batch_size]  # batch.x_gcn for a GCN

    Over the edges of such a batch, the first layer applies its map to the rows and aggregates that the batch brings,
    for every node of the batch. Output and gradients of its parameters are those of the layer over all neighbours of
    the whole graph, up to rounding. Over any other edges the model is what it was, so that it may be evaluated with
    plain loaders, or on the whole graph. Parameters, hooks and ``state_dict`` stay. Layers that ``accelerate`` has
    replaced work too; accelerate first. PyG's ready-made models may be called with ``num_sampled_nodes_per_hop``.

    Args:
        model: changed in place. The first layer must get the rows of the batch as they are, or in another dtype.
        layers: the layers that are called first, one for each relation. None finds them: ``convs[0]`` of PyG's
            ready-made models, the relations of the first ``HeteroConv``, those that ``to_hetero`` calls first; of other
            models all that read nothing which another layer has computed, as :mod:`torch.fx` records it, or where it
            cannot the message-passing layer that was registered first.

    Raises:
        DTypeError: ``model`` is not a :class:`torch.nn.Module`.
        InvalidArgumentError: a layer's aggregation is not linear with fixed coefficients (attention, max, ...), the
            layers need different reductions, or there are none; the message gives the reason. When the model is called:
            the batch has another aggregate than the layer needs, or other rows, edges or weights were given.
    """
    if not isinstance(model, nn.Module):
        raise DTypeError(f"model must be a torch.nn.Module, got {type(model).__name__}")
    model = getattr(model, "_orig_mod", model)  # of torch.compile
    found = list(first.first_layers(model) if layers is None else layers)
    if not found:
        raise InvalidArgumentError(
            f"{type(model).__name__} has no message-passing layer: name the first as layers=[...]"
        )
    needed = list(dict.fromkeys(first.needs(layer) for layer in found))
    if len(needed) > 1:
        raise InvalidArgumentError(f"the first layers need {' and '.join(map(repr, needed))}, expected one reduction")
    other = other_reader(model, found) if needed == ["gcn"] else None
    if other is not None:
        raise InvalidArgumentError(
            f"the first layer gets x_gcn in the place of x, and {other} of {type(model).__name__} reads x too, which "
            "batches with first_layer='gcn' do not have: only the first layer may read it"
        )
    names = {id(module): name for name, module in model.named_modules()}
    report = Precomputation(needed[0], {})
    for layer in found:
        kind = type(layer)
        report.layers[names.get(id(layer), "")] = first.ORIGINALS.get(kind, kind).__name__
        if kind in first.SWAPS:
            layer.__class__ = first.SWAPS[kind]
        report._layers.append(layer)
    report._handles.append(model.register_forward_pre_hook(first.Untrimmed(), with_kwargs=True))
    return report
