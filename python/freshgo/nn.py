"""PyG's layers over the operators of ``freshgo.ops``. Importing this module needs torch_geometric.

    from freshgo.nn import accelerate

    report = accelerate(model)      # in place; report says which layers were swapped and why others were not
    print(report)
    ...
    report.undo()

A swapped layer is the same module with the same parameters, hooks and ``state_dict``; only the way from ``edge_index``
to the aggregated rows is another one, in which no message is written. It is used for tensors that the operators
know, on the CPU, and on a GPU where the library has the device path; for everything else the layer goes PyG's own way.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import torch
import torch_geometric.nn as pyg
from torch import Tensor, nn
from torch_geometric.nn.conv import MessagePassing

from freshgo import _cuda, _kernels, ops
from freshgo._adjacency import Adjacency, adjacency

__all__ = ["Report", "accelerate"]

_REDUCTIONS = {"add": "sum", "sum": "sum", "mean": "mean", "max": "max", "min": "min"}


@dataclasses.dataclass
class Report:
    """What :func:`accelerate` did to a model."""

    swapped: dict[str, str]
    """Class of each layer that now runs on the operators, by its name in the model."""
    left: dict[str, str]
    """Why a message-passing layer was left alone, by its name in the model."""
    _layers: list[nn.Module] = dataclasses.field(default_factory=list, repr=False)

    def undo(self) -> None:
        """Give the swapped layers their own classes back."""
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
    """Let the SAGEConv, GCNConv, GINConv and GATConv layers of ``model`` aggregate without writing messages.

    In place. Results equal PyG's up to rounding. Layers inside ``HeteroConv``, ``to_hetero`` and PyG's ready-made
    models are found too. Subclasses, whose messages may be others, and options that the operators do not cover are
    left alone and named in the report. Accelerating again changes nothing.
    """
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
    allowed = ("add", "sum") if type(layer) in (pyg.GCNConv, pyg.GATConv) else tuple(_REDUCTIONS)
    if not isinstance(layer.aggr, str) or layer.aggr not in allowed:
        return f"aggr={layer.aggr!r} is not one of {', '.join(allowed)}"
    if layer.decomposed_layers > 1:
        return f"decomposed_layers={layer.decomposed_layers}"
    return None


def _usable(layer: Any, edge_index: Any, *rows: Tensor | None) -> bool:
    """Whether this call can go our way."""
    if not isinstance(edge_index, Tensor) or edge_index.layout != torch.strided or not _cuda.usable(edge_index):
        return False  # SparseTensor, torch.sparse, another device
    if edge_index.dim() != 2 or edge_index.size(0) != 2 or edge_index.dtype not in _kernels.INDEX_DTYPES:
        return False
    if layer.explain or any(getattr(layer, hooks, None) for hooks in _HOOKS):
        return False
    return all(
        r is None or (r.device == edge_index.device and r.dtype in _kernels.DTYPES and r.dim() == 2) for r in rows
    )


_HOOKS = (
    "_propagate_forward_pre_hooks",
    "_propagate_forward_hooks",
    "_message_forward_pre_hooks",
    "_message_forward_hooks",
    "_aggregate_forward_pre_hooks",
    "_aggregate_forward_hooks",
    "_message_and_aggregate_forward_pre_hooks",
    "_message_and_aggregate_forward_hooks",
    "_edge_update_forward_pre_hooks",
    "_edge_update_forward_hooks",
)


def _targets(x: tuple[Tensor, Tensor | None], size: Any) -> int | None:
    if size is not None and size[1] is not None:
        return int(size[1])
    return None if x[1] is None else x[1].size(0)


def _reduced(graph: Adjacency, x: Tensor, reduce: str) -> Tensor:
    transposed = graph.for_gradient(x)
    if reduce != "mean":
        return ops.aggregate(x, graph.index, graph.ptr, reduce=reduce, transposed=transposed)  # type: ignore[arg-type]
    scale = graph.scale(("mean", x.dtype), lambda: ops.mean_scale(graph.ptr, x.dtype))
    return ops.scaled_sum(x, graph.index, graph.ptr, scale, transposed)


class _Sum:
    """SAGEConv and GINConv, which aggregate the rows of x as they are."""

    aggr: str

    def propagate(self, edge_index: Any, size: Any = None, **kwargs: Any) -> Tensor:
        x = kwargs.get("x")
        if isinstance(x, tuple) and len(kwargs) == 1 and _usable(self, edge_index, x[0]):
            targets = _targets(x, size)
            if targets is not None:
                return _reduced(adjacency(edge_index, x[0].size(0), targets), x[0], _REDUCTIONS[self.aggr])
        out: Tensor = super().propagate(edge_index, size=size, **kwargs)  # type: ignore[misc]
        return out


class _SAGEConv(_Sum, pyg.SAGEConv):  # type: ignore[misc]  # PyG has no type hints
    pass


class _GINConv(_Sum, pyg.GINConv):  # type: ignore[misc]
    pass


class _GCNConv(pyg.GCNConv):  # type: ignore[misc]
    def forward(self, x: Any, edge_index: Any, edge_weight: Tensor | None = None) -> Tensor:
        weights_fit = edge_weight is None or (edge_weight.dim() == 1 and edge_weight.is_floating_point())
        if not isinstance(x, Tensor) or not weights_fit or not _usable(self, edge_index, x):
            out: Tensor = super().forward(x, edge_index, edge_weight)
            return out
        graph = adjacency(edge_index, x.size(0), x.size(0))
        out = self._propagated(self.lin(x), graph, graph.of_edges(edge_weight))
        return out if self.bias is None else out + self.bias

    def _propagated(self, x: Tensor, graph: Adjacency, weight: Tensor | None) -> Tensor:
        transposed = graph.for_gradient(x)
        if not self.normalize:
            return ops.aggregate(x, graph.index, graph.ptr, weight, transposed=transposed)
        loops = self.add_self_loops
        if weight is not None:
            return ops.gcn(
                x,
                graph.index,
                graph.ptr,
                weight,
                add_self_loops=loops,
                fill_value=2.0 if self.improved else 1.0,
                transposed=transposed,
            )
        rows, real = x.size(0), _kernels.real(x.dtype)
        scale = graph.scale(
            ("gcn", real, loops), lambda: ops.gcn_scale(graph.index, graph.ptr, rows, real, loops, 1.0)
        )  # without weights PyG's self-loops weigh 1, improved or not
        return ops.gcn_scaled(x, graph.index, graph.ptr, scale, loops, 1.0, transposed)


class _GATConv(pyg.GATConv):  # type: ignore[misc]
    def forward(
        self,
        x: Any,
        edge_index: Any,
        edge_attr: Tensor | None = None,
        size: Any = None,
        return_attention_weights: bool | None = None,
    ) -> Any:
        pair = x if isinstance(x, (tuple, list)) else (x, x)
        if (
            edge_attr is not None
            or return_attention_weights is not None
            or size is not None
            or pair[1] is None
            or not _usable(self, edge_index, *pair)
        ):
            return super().forward(x, edge_index, edge_attr, size, return_attention_weights)
        source, target = pair
        lin, lin_dst = (self.lin, self.lin) if self.lin is not None else (self.lin_src, self.lin_dst)
        src = lin(source)
        if target is source and lin_dst is lin:
            alpha_src, alpha_dst = src.mm(torch.cat([_blocks(self.att_src), _blocks(self.att_dst)], 1)).chunk(2, 1)
        else:  # of the targets only the logits are needed, which the layer's weights give at once
            alpha_src = src.mm(_blocks(self.att_src))
            alpha_dst = target.mm(lin_dst.weight.t().mm(_blocks(self.att_dst)))
        graph = adjacency(edge_index, source.size(0), target.size(0))
        out = ops.attention(
            src.view(-1, self.heads, self.out_channels),
            alpha_src,
            alpha_dst,
            graph.index,
            graph.ptr,
            negative_slope=self.negative_slope,
            add_self_loops=self.add_self_loops,
            dropout=self.dropout,
            training=self.training,
            transposed=graph.for_gradient(src),
        )
        out = out.flatten(1) if self.concat else out.mean(dim=1)
        res = getattr(self, "res", None)
        if res is not None:
            out = out + res(target)
        return out if self.bias is None else out + self.bias


def _blocks(att: Tensor) -> Tensor:
    """``att`` [1, heads, channels] as a matrix [heads * channels, heads] that is zero outside of each head's block.

    A product with it is ``(x * att).sum(-1)`` in one pass over x and without the product as a tensor.
    """
    heads = att.size(1)
    return (att.squeeze(0).unsqueeze(-1) * torch.eye(heads, dtype=att.dtype, device=att.device).unsqueeze(1)).view(
        -1, heads
    )


_SWAPS: dict[type[nn.Module], type[nn.Module]] = {
    pyg.SAGEConv: _SAGEConv,
    pyg.GCNConv: _GCNConv,
    pyg.GINConv: _GINConv,
    pyg.GATConv: _GATConv,
}
_ORIGINALS = {ours: theirs for theirs, ours in _SWAPS.items()}
