"""The layers that a history can be attached to, and how each is called."""

from __future__ import annotations

import inspect
import re
from typing import Any

from torch import nn

from freshgo.errors import DTypeError, InvalidArgumentError

PAIR, GCN, SQUARE = "pair", "gcn", "square"
"""With (rows of sources, rows of targets); as GCNConv, with its coefficients; with the rows of all sources."""


def origin(module: nn.Module) -> str:
    """The name of the first class of PyG that the module's class comes from: "BasicGNN" for its ready-made models."""
    names = [kind.__name__ for kind in type(module).__mro__ if kind.__module__.startswith("torch_geometric.")]
    return "BasicGNN" if "BasicGNN" in names else next(iter(names), "")


def by_relation(module: nn.Module) -> bool:
    """Whether a layer is a HeteroConv, called as PyG calls it."""
    forward: Any = type(module).forward
    return origin(module) == "HeteroConv" and str(forward.__module__).startswith("torch_geometric.")


def is_precomputed(module: Any) -> bool:
    """Whether a layer takes what a batch brings of it: see ``freshgo.nn.precomputed``; of a ``HeteroConv`` the layer of
    every relation."""
    if by_relation(module):
        return all(is_precomputed(conv) for conv in module.convs.values())
    return any((kind.__module__, kind.__name__) == _PRECOMPUTED for kind in type(module).__mro__)


_PRECOMPUTED = ("freshgo._nn.precomputed", "Precomputed")


def parameters(module: nn.Module) -> list[str]:
    """Return the names of what a layer or a model is called with."""
    if by_relation(module):
        return ["x_dict", "edge_index_dict"]
    return list(inspect.signature(module.forward).parameters)


def passing(model: nn.Module) -> list[str]:
    """The message-passing layers of a model, as its code names them; a HeteroConv for those inside it."""
    found: dict[str, nn.Module] = {}
    for name, module in model.named_modules():
        inside = any(name.startswith(f"{outer}.") for outer in found)
        if name and not inside and (by_relation(module) or callable(getattr(module, "propagate", None))):
            found[name] = module
    return [re.sub(r"\.(\d+)", r"[\1]", f"model.{name}") for name in found]


def form_of(where: str, conv: Any) -> str:
    """Return how a layer is called: PAIR, GCN or SQUARE.

    Raises:
        InvalidArgumentError: it cannot be used with history.
    """
    if not isinstance(conv, nn.Module):
        raise DTypeError(f"{where} must be a torch.nn.Module, got {type(conv).__name__}")
    name, kind = type(conv).__name__, origin(conv)
    if by_relation(conv):
        return _relations(where, conv)
    if getattr(conv, "flow", "source_to_target") != "source_to_target":
        raise InvalidArgumentError(f"{where}: {name} has flow={conv.flow!r}, expected 'source_to_target'")
    parameters = list(inspect.signature(conv.forward).parameters.values())
    if len(parameters) < 2 or parameters[1].kind is not inspect.Parameter.POSITIONAL_OR_KEYWORD:
        raise InvalidArgumentError(
            f"{where}: {name} must be called with (rows, edge_index, ...), over types with (rows by node type, edges "
            "by edge type, ...)"
        )
    if kind in ("GCNConv", "PNAConv"):
        if name.removeprefix("_") != kind and not is_precomputed(conv):
            raise InvalidArgumentError(
                f"{where}: {name} is derived from {kind}, which history calls in its own way: use {kind} itself, "
                "or a layer that takes (rows of sources, rows of targets)"
            )
        return GCN if kind == "GCNConv" else SQUARE
    annotation = parameters[0].annotation
    if annotation not in (inspect.Parameter.empty, Any, "Any") and not _takes_pairs(annotation):
        raise InvalidArgumentError(
            f"{where}: {name} takes {_spoken(annotation)} for its rows, history needs layers that take (rows of "
            "sources, rows of targets), such as SAGEConv, GATConv, GINConv or GraphConv; GCNConv works too"
        )
    return PAIR


def _relations(where: str, hetero: Any) -> str:
    """How the layers of a HeteroConv are called."""
    for edge_type, conv in hetero.convs.items():
        if form_of(f"{where}, {edge_type}", conv) != PAIR:
            raise InvalidArgumentError(
                f"{where}, {edge_type}: {type(conv).__name__} takes no pairs, a HeteroConv with history needs layers "
                "that take (rows of sources, rows of targets), such as SAGEConv, GATConv, GINConv or GraphConv"
            )
    return PAIR


def _takes_pairs(annotation: object) -> bool:
    """Whether a type admits (rows of sources, rows of targets) or rows by node type; it may be a string, or PyG's name
    for such a pair."""
    text = str(annotation).lower()
    return "tuple" in text or "pair" in text or "dict" in text


def _spoken(annotation: object) -> str:
    return annotation.__name__ if isinstance(annotation, type) else str(annotation)
