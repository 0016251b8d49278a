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
from freshgo._ops import conv, kernels, registry

REDUCTIONS = {"add": "sum", "sum": "sum", "mean": "mean", "max": "max", "min": "min"}

_LINEAR_REDUCTIONS = ("mean", "sum", "add")
_LINEAR = (pyg.Linear, nn.Linear)
_PLAIN = (Tensor, nn.Parameter)
_NOT_GROUPED = (None, None, None)

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
    own = layer.__dict__
    if layer.explain or any(map(own.get, _HOOKS)) or registry.carries_tangents():
        return False
    device = edge_index.device
    for r in rows:
        if r is not None and (r.device != device or r.dtype not in kernels.DTYPES or r.dim() != 2):
            return False
    return True


def _is_plain(lin: Any, x: Tensor) -> bool:
    """Whether ``lin(x)`` is a product with its weight and nothing else, which nobody watches."""
    return _plain_product(lin, x) is not None


def _plain_product(lin: Any, x: Tensor) -> tuple[Tensor, Tensor | None] | None:
    """The weight and the bias of ``lin`` where it is a product with them and nothing else, which nobody watches."""
    # the operator is on these devices; inductor fuses what follows
    if not (x.is_cpu or x.is_cuda) or torch.compiler.is_compiling() or not _is_unwatched(x):
        return None
    return _product(lin, x.dtype)


def _is_unwatched(x: Tensor) -> bool:
    """Whether no hooks of all modules are called, and products have the dtype of ``x``."""
    return not any(_GLOBAL_HOOKS) and not torch.is_autocast_enabled("cuda" if x.is_cuda else "cpu")


def _product(lin: Any, dtype: torch.dtype) -> tuple[Tensor, Tensor | None] | None:
    """The weight and the bias of a layer that multiplies rows of ``dtype`` and has no hooks; None of any other."""
    if type(lin) not in _LINEAR:
        return None
    own = lin.__dict__  # nn.Module looks parameters up more slowly
    if own["_forward_hooks"] or own["_forward_pre_hooks"] or own["_backward_hooks"] or own["_backward_pre_hooks"]:
        return None
    parameters = own["_parameters"]
    weight = parameters.get("weight")
    if weight is None or type(weight) not in _PLAIN or weight.dtype != dtype or "bias" not in parameters:
        return None
    return weight, parameters["bias"]


def _applied(lin: Any, x: Tensor) -> Tensor:
    """``lin(x)``, in memory of earlier results."""
    product = _plain_product(lin, x)
    if product is None:
        out: Tensor = lin(x)
        return out
    return ops.linear(x, *product)


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


def _narrows(x: Tensor, width: int) -> bool:
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
    return ops.aggregate(x, graph.index, graph.ptr, reduce=reduce, transposed=transposed)  # type: ignore[arg-type]


def _at_once(layer: Any, edge_index: Any, source: Any, target: Any) -> bool:
    """Whether a layer whose products are plain may run in one step: nobody sees what is between them."""
    return (
        type(source) in _PLAIN
        and (target is source or (type(target) in _PLAIN and source.dtype == target.dtype))
        and "propagate" not in layer.__dict__
        and not registry.transformed()
        and _is_unwatched(source)
        and _usable(layer, edge_index, source, None if target is source else target)
    )


class _Reducing:
    """Layers that aggregate the rows of x as they are."""

    aggr: str

    def _set_jittable_templates(self, raise_on_error: bool = False) -> None:
        """Leave ``propagate`` alone: where a layer is copied or unpickled, PyG's puts its own into the class."""

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
        if not isinstance(pair[0], Tensor):
            out: Tensor = super().forward(x, edge_index, size)
            return out
        if size is None and self.aggr in _LINEAR_REDUCTIONS and not self.project:
            made = self._in_one_step(edge_index, *pair)
            if made is not None:
                return nn.functional.normalize(made, p=2.0, dim=-1) if self.normalize else made
        if not _is_plain(self.lin_l, pair[0]):
            return super().forward(x, edge_index, size)  # type: ignore[no-any-return]
        return self._in_parts(edge_index, pair, size)

    def _in_one_step(self, edge_index: Any, source: Tensor, target: Tensor | None) -> Tensor | None:
        parts, dtype = self.__dict__["_modules"], source.dtype
        product = _product(parts["lin_l"], dtype)
        root = _product(parts.get("lin_r"), dtype) if self.root_weight else None  # DirGNNConv clears it beside lin_r
        if product is None or root is None or root[1] is not None or not _at_once(self, edge_index, source, target):
            return None
        assert target is not None
        weight, bias = product
        graph = adjacency(edge_index, source.size(0), target.size(0))
        # A layer of a trimmed model has fewer targets with edges than sources: the product costs less after the sums.
        narrow = graph.ends.size(0) - 1 == source.size(0) and _narrows(source, weight.size(0))
        by_source = graph.for_gradient(source) if source.requires_grad else None
        edges = conv.Edges(graph.index, graph.ends, by_source or _NOT_GROUPED, graph.cut, self.aggr == "mean")
        own = None if target is source else target
        return conv.Conv.apply(source, own, weight, root[0], bias, edges, graph.targets, narrow)  # type: ignore[no-any-return]

    def _in_parts(self, edge_index: Any, pair: tuple[Tensor, Tensor | None], size: Any) -> Tensor:
        if self.project and hasattr(self, "lin"):
            pair = (self.lin(pair[0]).relu(), pair[1])
        source, target = pair
        lin = self.lin_l
        if (
            REDUCTIONS.get(self.aggr) in ("sum", "mean")
            and target is not None
            and target.size(0) == source.size(0)  # the product costs the same before and after
            and _narrows(source, lin.weight.size(0))
        ):
            narrow = ops.linear(source, lin.weight, None)
            out = _plus(self.propagate(edge_index, x=(narrow, narrow), size=size), lin.bias)
        else:
            out = ops.linear(self.propagate(edge_index, x=pair, size=size), lin.weight, lin.bias)
        if self.root_weight and target is not None:
            out = _plus_product(out, self.lin_r, target)
        return nn.functional.normalize(out, p=2.0, dim=-1) if self.normalize else out


class GINConv(_Reducing, pyg.GINConv):  # type: ignore[misc]
    def forward(self, x: Any, edge_index: Any, size: Any = None) -> Tensor:
        summed = self._in_one_step(x, edge_index) if size is None and self.aggr in ("add", "sum") else None
        out: Tensor = super().forward(x, edge_index, size) if summed is None else self.nn(summed)
        return out

    def _in_one_step(self, x: Any, edge_index: Any) -> Tensor | None:
        """The sums with the rows of the targets themselves."""
        eps = self.eps
        known = not eps.requires_grad and eps.dtype in (torch.float32, torch.float64)
        if not known or not _at_once(self, edge_index, x, x) or x.dtype != eps.dtype:
            return None
        graph = adjacency(edge_index, x.size(0), x.size(0))
        by_source = graph.for_gradient(x) or _NOT_GROUPED
        own = (1 + eps).expand(graph.targets, 1).contiguous()
        edges = conv.Edges(graph.index, graph.ptr, by_source, graph.cut, False, None, own, replaces=False)
        return conv.Conv.apply(x, None, None, None, None, edges, graph.targets, True)  # type: ignore[no-any-return]


class GCNConv(pyg.GCNConv):  # type: ignore[misc]
    def forward(self, x: Any, edge_index: Any, edge_weight: Tensor | None = None) -> Tensor:
        if edge_weight is None and isinstance(x, Tensor):
            made = self._in_one_step(x, edge_index)
            if made is not None:
                return made
        weights_fit = edge_weight is None or (edge_weight.dim() == 1 and edge_weight.is_floating_point())
        if not isinstance(x, Tensor) or not weights_fit or not _usable(self, edge_index, x):
            out: Tensor = super().forward(x, edge_index, edge_weight)
            return out
        graph = adjacency(edge_index, x.size(0), x.size(0))
        weight = graph.of_edges(edge_weight)
        if _is_plain(self.lin, x) and not _narrows(x, self.lin.weight.size(0)):
            return ops.linear(self._propagated(x, graph, weight), self.lin.weight, self.bias)
        return _plus(self._propagated(_applied(self.lin, x), graph, weight), self.bias)

    def _in_one_step(self, x: Tensor, edge_index: Tensor) -> Tensor | None:
        product = _product(self.__dict__["_modules"]["lin"], x.dtype)
        if product is None or product[1] is not None or not _at_once(self, edge_index, x, x):
            return None
        weight = product[0]
        graph = adjacency(edge_index, x.size(0), x.size(0))
        by_source = graph.for_gradient(x) if x.requires_grad else None
        scale = graph.gcn_scale(x.size(0), kernels.real(x.dtype), self.add_self_loops) if self.normalize else None
        own = None if scale is None or not self.add_self_loops else ops.gcn_self_weight(scale, graph.targets, 1.0)
        edges = conv.Edges(graph.index, graph.ptr, by_source or _NOT_GROUPED, graph.cut, False, scale, own)
        narrow = _narrows(x, weight.size(0))
        return conv.Conv.apply(x, None, weight, None, self.bias, edges, graph.targets, narrow)  # type: ignore[no-any-return]

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
        # without weights PyG's self-loops weigh 1, improved or not
        scale = graph.gcn_scale(x.size(0), kernels.real(x.dtype), loops)
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
        shared = target is source and lin_dst is lin
        dst = None
        if not shared and _is_plain(lin_dst, target):  # only logits are needed, which the layer's weights give at once
            dst = target.mm(lin_dst.weight.t().mm(_blocks(self.att_dst.squeeze(0))))
        elif not shared:
            dst = (lin_dst(target).view(-1, self.heads, self.out_channels) * self.att_dst).sum(-1)
        graph = adjacency(edge_index, source.size(0), target.size(0))
        out = ops.gat(
            src,
            self.att_src,
            self.att_dst if shared else None,
            dst,
            graph.index,
            graph.ptr,
            negative_slope=self.negative_slope,
            add_self_loops=self.add_self_loops,
            dropout=self.dropout if self.training else 0.0,
            transposed=graph.for_gradient(src),
            cut=graph.cut,
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
