"""PyG's layers over the operators: what ``accelerate`` turns them into. Importing this module needs torch_geometric.

Each is a subclass without state of its own. Where a call is one that the operators do not know, PyG's method runs.
"""

from __future__ import annotations

from typing import Any

import torch
import torch_geometric.nn as pyg
from torch import Tensor, nn
from torch.nn.modules import module as nn_module

from freshgo import ops
from freshgo._native import cuda
from freshgo._nn.adjacency import Adjacency, adjacency, relations
from freshgo._ops import kernels

REDUCTIONS = {"add": "sum", "sum": "sum", "mean": "mean", "max": "max", "min": "min"}

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

# Those of every module in the process, as torch's _has_any_global_hook sees them, which PyTorch 2.4 does not have.
_GLOBAL_HOOKS = (
    nn_module._global_forward_pre_hooks,
    nn_module._global_forward_hooks,
    nn_module._global_backward_pre_hooks,
    nn_module._global_backward_hooks,
)


def _usable(layer: Any, edge_index: Any, *rows: Tensor | None) -> bool:
    """Whether this call can go our way."""
    if not isinstance(edge_index, Tensor) or edge_index.layout != torch.strided or not cuda.usable(edge_index):
        return False  # SparseTensor, torch.sparse, another device
    if edge_index.dim() != 2 or edge_index.size(0) != 2 or edge_index.dtype not in kernels.INDEX_DTYPES:
        return False
    if layer.explain or any(getattr(layer, hooks, None) for hooks in _HOOKS):
        return False
    return all(
        r is None or (r.device == edge_index.device and r.dtype in kernels.DTYPES and r.dim() == 2) for r in rows
    )


def _is_plain(lin: Any, x: Tensor) -> bool:
    """Whether ``lin(x)`` is a product with its weight and nothing else, which nobody watches."""
    return (
        x.device.type in ("cpu", "cuda")  # where the operator is
        and not torch.compiler.is_compiling()  # inductor fuses what follows
        and type(lin) in (pyg.Linear, nn.Linear)
        and not (lin._forward_hooks or lin._forward_pre_hooks or lin._backward_hooks or lin._backward_pre_hooks)
        and not any(_GLOBAL_HOOKS)
        and lin.weight.dtype == x.dtype
        and not torch.is_autocast_enabled(x.device.type)
    )


def _applied(lin: Any, x: Tensor) -> Tensor:
    """``lin(x)``, in memory of earlier results."""
    if not _is_plain(lin, x):
        out: Tensor = lin(x)
        return out
    return ops.linear(x, lin.weight, lin.bias)


def _plus(out: Tensor, more: Tensor | None) -> Tensor:
    """Add to a result that nobody else has: in place, unless that changes its dtype."""
    if more is None:
        return out
    return out.add_(more) if out.dtype == more.dtype else out + more


def _plus_product(out: Tensor, lin: Any, x: Tensor) -> Tensor:
    """``out + lin(x)``, for a result that nobody else has: added within the product where it is nothing else."""
    if _is_plain(lin, x) and lin.bias is None and out.dtype == x.dtype:
        return out.addmm_(x, lin.weight.t())
    return _plus(out, _applied(lin, x))


def _narrows(lin: Any, x: Tensor, width: int) -> bool:
    """Whether to aggregate after a product that makes ``width`` columns of those of ``x``.

    Rows that need no gradient are aggregated first even where that takes twice the columns: there is then no way back.
    """
    return width < x.size(1) if x.requires_grad or not torch.is_grad_enabled() else 2 * width < x.size(1)


def _targets(x: tuple[Tensor, Tensor | None], size: Any) -> int | None:
    if size is not None and size[1] is not None:
        return int(size[1])
    return None if x[1] is None else x[1].size(0)


def _reduced(graph: Adjacency, x: Tensor, reduce: str) -> Tensor:
    transposed = graph.for_gradient(x)
    if reduce != "mean":
        return ops.aggregate(x, graph.index, graph.ptr, reduce=reduce, transposed=transposed)  # type: ignore[arg-type]
    return ops.scaled_sum(x, graph.index, graph.ptr, graph.mean_scale(x.dtype), transposed)


class _Reducing:
    """Layers that aggregate the rows of x as they are."""

    aggr: str

    def propagate(self, edge_index: Any, size: Any = None, **kwargs: Any) -> Tensor:
        x = kwargs.get("x")
        if isinstance(x, tuple) and len(kwargs) == 1 and _usable(self, edge_index, x[0]):
            targets = _targets(x, size)
            if targets is not None:
                return _reduced(adjacency(edge_index, x[0].size(0), targets), x[0], REDUCTIONS[self.aggr])
        out: Tensor = super().propagate(edge_index, size=size, **kwargs)  # type: ignore[misc]
        return out


class SAGEConv(_Reducing, pyg.SAGEConv):  # type: ignore[misc]  # PyG has no type hints
    def forward(self, x: Any, edge_index: Any, size: Any = None) -> Tensor:
        pair = (x, x) if isinstance(x, Tensor) else x
        if not isinstance(pair[0], Tensor) or not _is_plain(self.lin_l, pair[0]):
            out: Tensor = super().forward(x, edge_index, size)
            return out
        if self.project and hasattr(self, "lin"):
            pair = (self.lin(pair[0]).relu(), pair[1])
        source, target = pair
        linear = REDUCTIONS.get(self.aggr) in ("sum", "mean")
        if linear and target is not None and target.size(0) == source.size(0) and self._first(source):
            # as many rows before as after: the product costs the same there
            narrow = ops.linear(source, self.lin_l.weight, None)
            out = _plus(self.propagate(edge_index, x=(narrow, narrow), size=size), self.lin_l.bias)
        else:
            out = ops.linear(self.propagate(edge_index, x=pair, size=size), self.lin_l.weight, self.lin_l.bias)
        if self.root_weight and target is not None:
            out = _plus_product(out, self.lin_r, target)
        return nn.functional.normalize(out, p=2.0, dim=-1) if self.normalize else out

    def _first(self, x: Tensor) -> bool:
        return _narrows(self.lin_l, x, self.lin_l.weight.size(0))


class GINConv(_Reducing, pyg.GINConv):  # type: ignore[misc]
    pass


class GCNConv(pyg.GCNConv):  # type: ignore[misc]
    def forward(self, x: Any, edge_index: Any, edge_weight: Tensor | None = None) -> Tensor:
        weights_fit = edge_weight is None or (edge_weight.dim() == 1 and edge_weight.is_floating_point())
        if not isinstance(x, Tensor) or not weights_fit or not _usable(self, edge_index, x):
            out: Tensor = super().forward(x, edge_index, edge_weight)
            return out
        graph = adjacency(edge_index, x.size(0), x.size(0))
        weight = graph.of_edges(edge_weight)
        if _is_plain(self.lin, x) and not _narrows(self.lin, x, self.lin.weight.size(0)):
            return ops.linear(self._propagated(x, graph, weight), self.lin.weight, self.bias)
        return _plus(self._propagated(_applied(self.lin, x), graph, weight), self.bias)

    def propagate(self, edge_index: Any, size: Any = None, **kwargs: Any) -> Tensor:
        x, weight = kwargs.get("x"), kwargs.get("edge_weight")
        fits = weight is None or (isinstance(weight, Tensor) and weight.dim() == 1 and weight.is_floating_point())
        if isinstance(x, Tensor) and size is None and fits and _usable(self, edge_index, x):
            graph = adjacency(edge_index, x.size(0), x.size(0))
            transposed = graph.for_gradient(x)
            return ops.aggregate(x, graph.index, graph.ptr, graph.of_edges(weight), transposed=transposed)
        out: Tensor = super().propagate(edge_index, size=size, **kwargs)
        return out

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
        rows, real = x.size(0), kernels.real(x.dtype)
        scale = graph.scale(
            ("gcn", real, loops), lambda: ops.gcn_scale(graph.index, graph.ptr, rows, real, loops, 1.0)
        )  # without weights PyG's self-loops weigh 1, improved or not
        return ops.gcn_scaled(x, graph.index, graph.ptr, scale, loops, 1.0, transposed)


class GATConv(pyg.GATConv):  # type: ignore[misc]
    def forward(
        self,
        x: Any,
        edge_index: Any,
        edge_attr: Tensor | None = None,
        size: Any = None,
        return_attention_weights: bool | None = None,
    ) -> Any:
        pair = x if isinstance(x, (tuple, list)) else (x, x)
        lin, lin_dst = (self.lin, self.lin) if self.lin is not None else (self.lin_src, self.lin_dst)
        if (
            edge_attr is not None
            or return_attention_weights is not None
            or size is not None
            or pair[1] is None
            or not _usable(self, edge_index, *pair)
        ):
            return super().forward(x, edge_index, edge_attr, size, return_attention_weights)
        source, target = pair
        src = _applied(lin, source)
        att_src, att_dst = self.att_src.squeeze(0), self.att_dst.squeeze(0)
        shared = target is source and lin_dst is lin
        dst = None
        if not shared and _is_plain(lin_dst, target):  # only logits are needed, which the layer's weights give at once
            dst = target.mm(lin_dst.weight.t().mm(_blocks(att_dst)))
        elif not shared:
            dst = (lin_dst(target).view(-1, self.heads, self.out_channels) * att_dst).sum(-1)
        graph = adjacency(edge_index, source.size(0), target.size(0))
        out = ops.gat(
            src,
            att_src,
            att_dst if shared else None,
            dst,
            graph.index,
            graph.ptr,
            negative_slope=self.negative_slope,
            add_self_loops=self.add_self_loops,
            dropout=self.dropout if self.training else 0.0,
            transposed=graph.for_gradient(src),
        )
        if not self.concat:
            out = out.view(-1, self.heads, self.out_channels).mean(dim=1)
        res = getattr(self, "res", None)
        if res is not None:
            out = _plus(out, res(target))
        return _plus(out, self.bias)


def _blocks(att: Tensor) -> Tensor:
    """``att`` [heads, channels] as a matrix [heads * channels, heads] that is zero outside of each head's block.

    A product with it is ``(x * att).sum(-1)`` in one pass over x and without the product as a tensor.
    """
    heads = att.size(0)
    return (att.unsqueeze(-1) * torch.eye(heads, dtype=att.dtype, device=att.device).unsqueeze(1)).view(-1, heads)


class _Relational:
    """RGCN, one relation after the other: aggregate its edges, then multiply by its weight."""

    def forward(self: Any, x: Any, edge_index: Any, edge_type: Tensor | None = None) -> Tensor:
        source, target = x if isinstance(x, tuple) else (x, x)
        if (
            not isinstance(source, Tensor)
            or not isinstance(target, Tensor)
            or not isinstance(edge_type, Tensor)
            or not source.is_floating_point()
            or torch.compiler.is_compiling()  # how many edges a relation has is not known there
            or not _usable(self, edge_index, source, target)
        ):
            out: Tensor = super().forward(x, edge_index, edge_type)  # type: ignore[misc]
            return out
        weight = self.weight
        if self.num_bases is not None:
            weight = (self.comp @ weight.view(self.num_bases, -1)).view(
                self.num_relations, self.in_channels_l, self.out_channels
            )
        graphs = relations(edge_index, edge_type, self.num_relations, source.size(0), target.size(0))
        out = torch.zeros(target.size(0), self.out_channels, device=target.device)
        for relation, graph in graphs:
            h = _reduced(graph, source, REDUCTIONS[self.aggr])
            if self.num_blocks is not None:
                h = torch.einsum("abc,bcd->abd", h.view(-1, weight.size(1), weight.size(2)), weight[relation])
                out = out + h.reshape(-1, self.out_channels)
            else:
                out = out + h @ weight[relation]
        if self.root is not None:
            out = out + target @ self.root
        return out if self.bias is None else out + self.bias


class RGCNConv(_Relational, pyg.RGCNConv):  # type: ignore[misc]
    pass


class FastRGCNConv(_Relational, pyg.FastRGCNConv):  # type: ignore[misc]
    pass
