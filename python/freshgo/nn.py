"""PyG's layers over the operators of ``freshgo.ops``. Importing this module needs torch_geometric.

    from freshgo.nn import accelerate

    report = accelerate(model)      # in place; report says which layers were replaced and why others were not
    print(report)
    ...
    report.undo()

A replaced layer is the same module with the same parameters, hooks and ``state_dict``. Only the way from ``edge_index``
to the aggregated rows differs: no message is written. It is used for tensors that the operators support, on the CPU,
and on a GPU if the library has the device path; for everything else the layer uses PyG's own code.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import torch_geometric.nn as pyg
from torch import nn
from torch_geometric.nn.conv import MessagePassing

from freshgo._nn import layers
from freshgo._nn.layers import REDUCTIONS
from freshgo.errors import DTypeError

__all__ = ["Report", "accelerate"]

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
