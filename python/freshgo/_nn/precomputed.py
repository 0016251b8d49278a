"""PyG's layers with what they add up computed before: what ``precomputed`` turns a first layer into.

Each class is a subclass without state of its own. Over edges that a loader with ``first_layer`` has made, it applies
the layer's map to the rows that the batch brings; over all other edges it is the layer that it was.
"""

from __future__ import annotations

from typing import Any

import torch
import torch_geometric.nn as pyg
from torch import Tensor, nn

from freshgo._batch.first import First, is_first
from freshgo._batch.structure import recall
from freshgo._nn import layers
from freshgo._nn.calls import first_called
from freshgo._ops.eager import eager
from freshgo.errors import InvalidArgumentError

REDUCTIONS = {"add": "sum", "sum": "sum", "mean": "mean"}


class Precomputed:
    """What the first layers have in common."""

    uses_first = True

    def forward(self: Any, x: Any, edge_index: Any, *args: Any, **kwargs: Any) -> Any:
        first = _first(edge_index)
        if first is None:
            self._check_plain(x)
            return super().forward(x, edge_index, *args, **kwargs)  # type: ignore[misc]  # of the layer beside it
        _check(self, first, args, kwargs)
        _use(first)
        source, target = x if isinstance(x, (tuple, list)) else (x, x)
        own = first.rows if first.reduce == "gcn" and first.own is None else first.own
        _check_rows(self, "targets", target, own, first)
        _check_rows(self, "sources", source, own if source is target else first.source, first)
        like, rows = target if isinstance(target, Tensor) else source, first.rows
        if first.read is not None:  # the rows of a pruned batch that are not read have no part in norms either
            rows = rows.index_select(0, first.read)
            target = target.index_select(0, first.read) if isinstance(target, Tensor) else target
        return self._combine(rows.to(like.dtype), target)

    def _check_plain(self, x: Any) -> None:
        for rows in x if isinstance(x, (tuple, list)) else (x,):
            if isinstance(rows, Tensor) and is_first(rows):
                raise InvalidArgumentError(
                    f"{_name(self)} got the rows of a batch whose first layer is precomputed, but other edges than its "
                    "edge_index, or edges of a type that was not propagated: edges cannot be changed, neither by a "
                    "transform of the loader nor in the model"
                )


@eager
def _first(edge_index: Any) -> First | None:
    """What stands for the first layer over these edges."""
    known = recall(edge_index) if isinstance(edge_index, Tensor) else None
    return None if known is None else known.first


@eager
def _use(first: First) -> None:
    first.use.note()


def needs(layer: Any) -> str:
    """Return the reduction that a layer needs.

    Raises:
        InvalidArgumentError: what the layer adds up cannot be computed before.
    """
    name, why = _name(layer), None
    if type(layer) not in SWAPS and not isinstance(layer, Precomputed):
        why = _REASONS.get(name, f"it is none of {', '.join(dict.fromkeys(kind.__name__ for kind in SWAPS))}")
    elif layer.flow != "source_to_target":
        why = f"flow={layer.flow!r}, expected 'source_to_target'"
    elif not isinstance(layer.aggr, str) or layer.aggr not in REDUCTIONS:
        why = f"aggr={layer.aggr!r} is not linear in the rows: only 'mean' and 'sum' are"
    elif getattr(layer, "project", False):
        why = "project=True maps rows by parameters before they are added up"
    elif layer.decomposed_layers > 1:
        why = f"decomposed_layers={layer.decomposed_layers}"
    elif isinstance(layer, pyg.GCNConv) and layer.normalize and not layer.add_self_loops:
        why = "add_self_loops=False: reduce='gcn' has self-loops"
    elif isinstance(layer, pyg.GCNConv) and layer.improved:
        why = "improved=True: the self-loops of reduce='gcn' weigh 1"
    if why is not None:
        raise InvalidArgumentError(f"the first layer, {name}, cannot be precomputed: {why}")
    reduce: str = REDUCTIONS[layer.aggr]
    return "gcn" if isinstance(layer, pyg.GCNConv) and layer.normalize else reduce


_ATTENTION = "its coefficients depend on parameters"
_REASONS = {
    **dict.fromkeys(("GATConv", "GATv2Conv", "TransformerConv", "HGTConv", "SuperGATConv", "HANConv"), _ATTENTION),
    "EdgeConv": "its messages depend on parameters",
    "PNAConv": "it takes maxima, and maps rows by parameters before",
    "RGCNConv": "it needs a sum for each relation: make the relations edge types and use HeteroConv",
    "FastRGCNConv": "it needs a sum for each relation: make the relations edge types and use HeteroConv",
}


def _check(layer: Any, first: First, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """Refuse an aggregate that is not what the layer adds up."""
    name, reduce = _name(layer), needs(layer)
    if first.reduce != reduce:
        raise InvalidArgumentError(
            f"{name} needs first_layer={reduce!r}, the batch has {first.name!r} (reduce={first.reduce!r})"
        )
    weight = kwargs.get("edge_weight", args[0] if args and isinstance(layer, (pyg.GCNConv, pyg.GraphConv)) else None)
    if (weight is None) != (first.weight_attr is None):
        made = "without weights" if first.weight_attr is None else f"with the weights {first.weight_attr!r}"
        raise InvalidArgumentError(
            f"{name} was called {'without' if weight is None else 'with'} edge_weight, but {first.name!r} was computed "
            f"{made}"
        )


def _check_rows(layer: Any, which: str, x: Any, rows: Tensor | None, first: First) -> None:
    """Refuse rows that are not those that were aggregated."""
    if x is None or rows is None:
        return
    if x.shape == rows.shape and (_same(x, rows) or torch.equal(x.detach(), rows.to(x.dtype))):
        return
    raise InvalidArgumentError(
        f"{_name(layer)} got {which} of shape {list(x.shape)} that are not the batch's {first.tensor!r}: the "
        "precomputed aggregate belongs to those rows, so only their dtype may change before the first layer"
    )


def _same(a: Tensor, b: Tensor) -> bool:
    return a is b or (a.data_ptr() == b.data_ptr() and a.dtype == b.dtype and a.stride() == b.stride())


class _SAGE(Precomputed):
    def _combine(self: Any, rows: Tensor, target: Tensor | None) -> Tensor:
        out: Tensor = self.lin_l(rows)
        if self.root_weight and target is not None:
            out = out + self.lin_r(target)
        return nn.functional.normalize(out, p=2.0, dim=-1) if self.normalize else out


class _Graph(Precomputed):
    def _combine(self: Any, rows: Tensor, target: Tensor | None) -> Tensor:
        out: Tensor = self.lin_rel(rows)
        return out if target is None else out + self.lin_root(target)


class _GIN(Precomputed):
    def _combine(self: Any, rows: Tensor, target: Tensor | None) -> Tensor:
        out: Tensor = self.nn(rows if target is None else rows + (1 + self.eps) * target)
        return out


class _GCN(Precomputed):
    def _combine(self: Any, rows: Tensor, target: Tensor | None) -> Tensor:
        out: Tensor = self.lin(rows)
        return out if self.bias is None else out + self.bias


class PrecomputedSAGEConv(_SAGE, pyg.SAGEConv):  # type: ignore[misc]  # PyG has no type hints
    """SAGEConv over rows that were added up before."""


class PrecomputedGraphConv(_Graph, pyg.GraphConv):  # type: ignore[misc]
    """GraphConv over rows that were added up before."""


class PrecomputedGINConv(_GIN, pyg.GINConv):  # type: ignore[misc]
    """GINConv over rows that were added up before."""


class PrecomputedGCNConv(_GCN, pyg.GCNConv):  # type: ignore[misc]
    """GCNConv over rows that were added up before."""


class AcceleratedSAGEConv(_SAGE, layers.SAGEConv):
    """The same of an accelerated layer."""


class AcceleratedGINConv(_GIN, layers.GINConv):
    """The same of an accelerated layer."""


class AcceleratedGCNConv(_GCN, layers.GCNConv):
    """The same of an accelerated layer."""


SWAPS: dict[type[nn.Module], type[nn.Module]] = {
    pyg.SAGEConv: PrecomputedSAGEConv,
    pyg.GraphConv: PrecomputedGraphConv,
    pyg.GINConv: PrecomputedGINConv,
    pyg.GCNConv: PrecomputedGCNConv,
    layers.SAGEConv: AcceleratedSAGEConv,
    layers.GINConv: AcceleratedGINConv,
    layers.GCNConv: AcceleratedGCNConv,
}


ORIGINALS = {ours: theirs for theirs, ours in SWAPS.items()}


def _name(layer: Any) -> str:
    kind: type = ORIGINALS.get(type(layer), type(layer))
    return kind.__name__


class Untrimmed:
    """Before a model of PyG: of a batch whose first layer is precomputed, its second layer reads all nodes."""

    def __call__(self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        edge_index = args[1] if len(args) > 1 else kwargs.get("edge_index")
        if _first(edge_index) is None:
            return None
        for name in ("num_sampled_nodes_per_hop", "num_sampled_edges_per_hop"):
            if kwargs.get(name) is not None:
                kwargs = {**kwargs, name: [*kwargs[name], 0]}
        return args, kwargs


def first_layers(model: nn.Module) -> list[nn.Module]:
    """The message-passing layers of a model that come first: one for each relation, and all that read the input."""
    basic = any(kind.__name__ == "BasicGNN" for kind in type(model).__mro__)
    if basic:
        convs: Any = model.convs
        return [convs[0]]
    passing = pyg.MessagePassing
    if isinstance(model, torch.fx.GraphModule):  # of to_hetero
        modules = dict(model.named_modules())
        for node in model.graph.nodes:
            if node.op == "call_module" and isinstance(modules.get(str(node.target)), passing):
                around = modules[str(node.target).rpartition(".")[0]]
                return [module for module in around.children() if isinstance(module, passing)]
    found = [model] if isinstance(model, passing) else first_called(model)
    if found:
        return found
    for module in model.modules():
        if isinstance(module, pyg.HeteroConv):
            relations: Any = module.convs
            return list(relations.values())
        if isinstance(module, passing):
            return [module]
    return []
