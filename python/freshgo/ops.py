"""Message passing that writes no messages: aggregation over grouped edges as PyTorch operators.

    from freshgo import ops

    for block in batch.blocks():
        h = ops.aggregate(h, block.index, block.ptr, reduce="mean", transposed=block.transposed)

A graph is given by ``index``, the source row of every edge, grouped by target, and ``ptr``: target ``t`` has the edges
``ptr[t]`` to ``ptr[t + 1]``. Partial sums stay in registers and source rows are streamed past them (FastGL, section
4.2), in the forward and the backward pass; no tensor of edges by columns ever exists.

All operators are differentiable and work under ``torch.compile``, ``torch.export``, autocast and fake tensors; second
derivatives, and derivatives by ``torch.func`` or in forward mode, raise an error. Rows are float32, float64, bfloat16
or float16 (the last two are summed in float32); ``index`` is int64 or int32. The operators run on
``torch.get_num_threads()`` threads, and their results do not depend on this number.

Every index is checked as it is used, so no input makes an operator read outside of a tensor:
:class:`~freshgo.errors.InvalidArgumentError` names the argument, the place and the value.
On a CUDA device, which needs the library with the device path (:func:`freshgo.library`), the operators are queued on
PyTorch's current stream and wait for nothing. An invalid index then counts for nothing, and a later call, or
:func:`check`, reports it.
"""

from __future__ import annotations

from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from freshgo._args.checks import choice
from freshgo._args.entry import operator
from freshgo._batch.structure import Transposed
from freshgo._native import cuda as _cuda
from freshgo._ops import arguments as _arguments
from freshgo._ops import attention_operators, gat_operators, linear_operator, torch_library  # noqa: F401  (they fill operators)
from freshgo._ops import kernels as _kernels
from freshgo._ops.numbering import number as _number
from freshgo._ops.registry import operators as _operators
from freshgo.errors import DTypeError, InvalidArgumentError

__all__ = ["Transposed", "aggregate", "attention", "check", "gcn", "group", "number", "transpose"]

_Reduction = Literal["sum", "mean", "max", "min"]


check, number = operator(_cuda.check), operator(_number)


@operator
def transpose(index: Tensor, ptr: Tensor, num_rows: int) -> Transposed:
    """Group a graph by source.

    Derivatives need this grouping and make it if none is given. Made once, it serves every layer and every epoch over
    the same graph; the batches of a :class:`~freshgo.Loader` with ``transpose=True`` bring it along.

    Args:
        index: int64 or int32 ``[edges]``, the source of each edge, grouped by target.
        ptr: int64 ``[targets + 1]``.
        num_rows: the number of sources.

    Raises:
        InvalidArgumentError: an index that is not below ``num_rows``, pointers that decrease, or a ``num_rows`` below 0
            or above 2^48.
        DTypeError: tensors of other dtypes, or a ``num_rows`` that is not an int.
    """
    ptr = _arguments.check_graph(index, ptr)
    _arguments.check_count("num_rows", num_rows)
    return Transposed(*_operators.transpose(index, ptr, num_rows))


@operator
def group(edge_index: Tensor, num_targets: int) -> tuple[Tensor, Tensor, Tensor]:
    """Group the edges of ``edge_index`` (row 0 the source, row 1 the target) by target.

    Returns:
        ``index`` and ``ptr``, as the operators take them, and ``order``: the positions in ``edge_index`` of the edges
        of ``index``, so that ``weight[order]`` belongs to them. Edges of one target keep their order.

    Raises:
        InvalidArgumentError: a target that is not below ``num_targets``, or a ``num_targets`` below 0 or above 2^48.
        DTypeError: ``edge_index`` is not a tensor of int64 or int32, or ``num_targets`` not an int.
    """
    if not isinstance(edge_index, Tensor):
        raise DTypeError(f"edge_index must be a tensor, got {type(edge_index).__name__}")
    _arguments.check_count("num_targets", num_targets)
    if edge_index.dim() != 2 or edge_index.size(0) != 2:
        raise InvalidArgumentError(f"edge_index has shape {_arguments.shape(edge_index)}, expected [2, edges]")
    if edge_index.dtype not in _kernels.INDEX_DTYPES:
        raise DTypeError(f"edge_index has dtype {edge_index.dtype}, expected int64 or int32")
    _cuda.check_device("edge_index", edge_index, edge_index)
    ptr, order = _operators.group(edge_index[1], num_targets)
    return edge_index[0].index_select(0, order), ptr, order


@operator
def aggregate(
    x: Tensor,
    index: Tensor,
    ptr: Tensor,
    weight: Tensor | None = None,
    reduce: _Reduction = "sum",
    *,
    transposed: Transposed | None = None,
) -> Tensor:
    """Reduce, for each target, the rows of ``x`` that ``index`` names.

    Args:
        x: ``[rows, ...]``.
        index: int64 or int32 ``[edges]``, rows of ``x``, grouped by target.
        ptr: int64 ``[targets + 1]``.
        weight: ``[edges]``, or ``[edges, heads]`` for ``x`` of shape ``[rows, heads, channels]``; rows are multiplied
            by it. For "sum", and for "mean", which divides by the number of edges.
        reduce: "sum", "mean", "max" or "min"; the result is 0 for a target without edges. If several rows attain an
            extreme, its gradient is shared evenly among them, as in ``torch.scatter_reduce``.
        transposed: the graph grouped by source; made when needed if it is not given.

    Returns:
        ``[targets, ...]`` of the dtype of ``x`` (with ``weight``, of the dtype that both promote to).

    Raises:
        InvalidArgumentError, DTypeError: arguments do not fit together; the message names them and their shapes.
    """
    choice("reduce", reduce, _Reduction)
    ptr = _arguments.check_graph(index, ptr, x, transposed)
    if reduce in ("max", "min"):
        if weight is not None:
            raise InvalidArgumentError(f"weight goes with reduce='sum' and 'mean', not {reduce!r}")
        counted = torch.is_grad_enabled() and x.requires_grad
        rows = _arguments.flat(x)
        graph = _arguments.for_derivative(transposed, x)
        out = _operators.extreme(rows, index, ptr, reduce == "min", counted, *graph)[0]
        return _arguments.shaped(out, x)
    if weight is not None:
        heads = _arguments.heads_of(x, weight, index)
        x, weight = _arguments.promoted(x, weight)
        weight = weight.reshape(-1, heads)
    if reduce == "mean":
        graph = _arguments.for_derivative(transposed, x, weight)
        out = _operators.mean(_arguments.flat(x), index, ptr, weight, *graph)[0]
        return _arguments.shaped(out, x)
    return _arguments.shaped(_sum(x, index, ptr, weight, transposed=transposed), x)


@operator
def gcn(
    x: Tensor,
    index: Tensor,
    ptr: Tensor,
    weight: Tensor | None = None,
    *,
    add_self_loops: bool = True,
    fill_value: float = 1.0,
    transposed: Transposed | None = None,
) -> Tensor:
    """Sum with the symmetric normalisation of graph convolutions, ``D^-1/2 A D^-1/2 x``.

    Rows and targets share their numbering: targets are the first rows, and rows beyond the last target have no
    in-edges.

    Args:
        x: ``[rows, ...]``.
        index: int64 or int32 ``[edges]``, rows of ``x``, grouped by target.
        ptr: int64 ``[targets + 1]``.
        weight: ``[edges]``; degrees are then sums of weights.
        add_self_loops: every row has one edge to itself, which replaces any in ``index``. As in PyG, it keeps the
            weight of the last one there, and otherwise has ``fill_value``.
        fill_value: the weight of self-loops that are not in ``index``.
        transposed: the graph grouped by source.

    Returns:
        ``[targets, ...]``.
    """
    ptr = _arguments.check_graph(index, ptr, x, transposed)
    rows, targets = x.size(0), ptr.size(0) - 1
    if targets > rows:
        raise InvalidArgumentError(
            f"ptr has shape {_arguments.shape(ptr)} but targets are rows of x, which has shape {_arguments.shape(x)}"
        )
    if weight is not None:
        if weight.dim() != 1:
            raise InvalidArgumentError(f"weight has shape {_arguments.shape(weight)}, expected [{index.numel()}]")
        _arguments.heads_of(x, weight, index)
        return _gcn_weighted(x, index, ptr, weight, add_self_loops, fill_value, transposed)
    scale = gcn_scale(index, ptr, rows, _kernels.real(x.dtype), add_self_loops, fill_value)
    return gcn_scaled(x, index, ptr, scale, add_self_loops, fill_value, transposed)


def gcn_scaled(
    x: Tensor,
    index: Tensor,
    ptr: Tensor,
    scale: Tensor,
    add_self_loops: bool,
    fill: float,
    transposed: Transposed | None,
) -> Tensor:
    """Compute :func:`gcn` without weights when ``scale`` (:func:`gcn_scale`) is known."""
    targets = ptr.size(0) - 1
    self_weight = gcn_self_weight(scale, targets, fill) if add_self_loops else None
    out = _sum(
        x,
        index,
        ptr,
        self_weight=self_weight,
        row_scale=scale[:targets],
        col_scale=scale,
        skip_self=add_self_loops,
        transposed=transposed,
    )
    return _arguments.shaped(out, x)


def gcn_self_weight(scale: Tensor, targets: int, fill: float) -> Tensor:
    """Return the weights of the loops of targets, ``[targets, 1]``."""
    of_targets = scale[:targets].unsqueeze(1)
    weight = of_targets * of_targets
    return weight if fill == 1.0 else weight * fill


def gcn_scale(index: Tensor, ptr: Tensor, rows: int, dtype: torch.dtype, add_self_loops: bool, fill: float) -> Tensor:
    """Return ``D^-1/2`` of every row, without weights."""
    ones = torch.ones(rows, 1, dtype=dtype, device=index.device)
    if add_self_loops and fill == 1.0 and rows == ptr.size(0) - 1:  # no degree is 0
        return _sum(ones, index, ptr, self_weight=ones, skip_self=True).view(-1).rsqrt()
    return _inverse_root(_sum(ones, index, ptr, skip_self=add_self_loops), rows, fill if add_self_loops else 0.0)


def _inverse_root(degree: Tensor, rows: int, fill: float | Tensor) -> Tensor:
    degree = F.pad(degree.view(-1), (0, rows - degree.size(0))) + fill
    root = degree.pow(-0.5)
    return root.masked_fill(root == float("inf"), 0.0)


def _gcn_weighted(
    x: Tensor, index: Tensor, ptr: Tensor, weight: Tensor, loops: bool, fill: float, transposed: Transposed | None
) -> Tensor:
    x, weight = _arguments.promoted(x, weight)
    rows, targets = x.size(0), ptr.size(0) - 1
    target = torch.repeat_interleave(ptr.diff(), output_size=index.size(0))
    ones = weight.new_ones(rows, 1)
    degree = _sum(ones, index, ptr, weight.unsqueeze(1), skip_self=loops, transposed=transposed)
    own = None
    if loops:
        own = weight.new_full((rows,), fill)
        if index.size(0) > 0:
            place = torch.where(index == target, torch.arange(index.size(0), device=index.device), -1)
            last = place.new_full((rows,), -1).scatter_reduce(0, target, place, "amax")
            own = torch.where(last >= 0, weight[last.clamp(min=0)], own)
    root = _inverse_root(degree, rows, 0.0 if own is None else own)
    norm = root.index_select(0, index) * weight * root.index_select(0, target)
    self_weight = None if own is None else (root * root * own)[:targets].unsqueeze(1)
    out = _sum(x, index, ptr, norm.unsqueeze(1), self_weight=self_weight, skip_self=loops, transposed=transposed)
    return _arguments.shaped(out, x)


@operator
def attention(
    x: Tensor,
    alpha_src: Tensor,
    alpha_dst: Tensor | None,
    index: Tensor,
    ptr: Tensor,
    *,
    alpha_edge: Tensor | None = None,
    negative_slope: float = 0.2,
    add_self_loops: bool = False,
    dropout: float = 0.0,
    training: bool = True,
    transposed: Transposed | None = None,
) -> Tensor:
    """Sum rows weighted by attention (GAT): softmax over a target's edges of ``leaky_relu(src + dst + edge)``.

    One number for an edge and head is kept for the way back, none for an edge and column.

    Args:
        x: ``[rows, heads, channels]``.
        alpha_src: ``[rows, heads]``, what a row adds to the logits of its edges.
        alpha_dst: ``[targets, heads]``, what a target adds, or None.
        index: int64 or int32 ``[edges]``, rows of ``x``, grouped by target.
        ptr: int64 ``[targets + 1]``.
        alpha_edge: ``[edges, heads]``, what the edge adds, or None.
        negative_slope: of the leaky ReLU.
        add_self_loops: every target that is also a row has an edge from itself, in place of any in ``index``.
        dropout: probability with which an edge's attention is set to 0 in training (the others grow in proportion).
        training: whether dropout is applied.
        transposed: the graph grouped by source.

    Returns:
        ``[targets, heads, channels]`` of the dtype of ``x``; the softmax is computed in float32, for float64 in that.
    """
    ptr = _arguments.check_graph(index, ptr, x, transposed)
    if x.dim() != 3:
        raise InvalidArgumentError(f"x has shape {_arguments.shape(x)}, expected [rows, heads, channels]")
    rows, heads, targets = x.size(0), x.size(1), ptr.size(0) - 1
    for name, tensor, want in (
        ("alpha_src", alpha_src, rows),
        ("alpha_dst", alpha_dst, targets),
        ("alpha_edge", alpha_edge, index.size(0)),
    ):
        if tensor is not None and tuple(tensor.shape) != (want, heads):
            raise InvalidArgumentError(
                f"{name} has shape {_arguments.shape(tensor)}, expected [{want}, {heads}]: x has shape "
                f"{_arguments.shape(x)}, index {_arguments.shape(index)}, ptr {_arguments.shape(ptr)}"
            )
    real = _kernels.real(x.dtype)
    src = alpha_src.to(real)
    dst = None if alpha_dst is None else alpha_dst.to(real)
    edge = None if alpha_edge is None else alpha_edge.to(real)
    self_rows = min(rows, targets) if add_self_loops else 0
    graph = _arguments.for_derivative(transposed, src, dst, edge)
    alpha, own = _operators.attention(src, dst, edge, index, ptr, self_rows, negative_slope, *graph)
    if training and dropout > 0:
        # the edges and then the targets, in one draw: PyG's order where it adds self-loops
        both = F.dropout(torch.cat([alpha, own]), dropout)
        alpha, own = both[: index.size(0)], both[index.size(0) :]
    self_weight = own if add_self_loops else None
    return _arguments.shaped(_sum(x, index, ptr, alpha, self_weight=self_weight, transposed=transposed), x)


def gat(
    x: Tensor,
    att_src: Tensor,
    att_dst: Tensor | None,
    alpha_dst: Tensor | None,
    index: Tensor,
    ptr: Tensor,
    *,
    negative_slope: float,
    add_self_loops: bool,
    dropout: float,
    transposed: Transposed | None,
    cut: int = -1,
) -> Tensor:
    """Compute :func:`attention` of projected rows ``[rows, heads * channels]``, whose logits are products with
    ``att_src``.

    The logits of the targets are products of the first rows with ``att_dst``, or are given as ``alpha_dst``. ``cut`` is
    the number of targets of a larger graph, which ``transposed`` is of, that have their edges here; -1: not known. The
    caller has checked the tensors.
    """
    heads, targets = att_src.size(-2), ptr.size(0) - 1
    if x.dtype not in (torch.float32, torch.float64) or att_src.dtype != x.dtype:
        by_head = x.view(-1, heads, att_src.size(-1))
        if alpha_dst is None and att_dst is not None:
            alpha_dst = (by_head[:targets] * att_dst).sum(-1)
        out = attention(
            by_head,
            (by_head * att_src).sum(-1),
            alpha_dst,
            index,
            ptr,
            negative_slope=negative_slope,
            add_self_loops=add_self_loops,
            dropout=dropout,
            transposed=transposed,
        )
        return out.flatten(1)
    self_rows = min(x.size(0), targets) if add_self_loops else 0
    keep = None
    if dropout > 0:
        keep = F.dropout(x.new_ones(index.size(0) + self_rows, heads), dropout)  # drawn as by attention
    dst = None if alpha_dst is None else alpha_dst.to(x.dtype)
    graph = _arguments.for_derivative(transposed, x, att_src, att_dst, dst)
    made: tuple[Tensor, ...] = _operators.gat(
        x, att_src, att_dst, dst, keep, index, ptr, self_rows, negative_slope, *graph, cut
    )
    return made[0]


def linear(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """Compute ``torch.nn.functional.linear`` of 2-dimensional rows, a large result in the memory of earlier ones."""
    if not _kernels.reused(x, x.size(0), weight.size(0), x.dtype):
        return F.linear(x, weight, bias)
    out: Tensor = _operators.linear(x, weight, bias)
    return out


def _sum(
    x: Tensor,
    index: Tensor,
    ptr: Tensor,
    weight: Tensor | None = None,
    *,
    self_weight: Tensor | None = None,
    row_scale: Tensor | None = None,
    col_scale: Tensor | None = None,
    skip_self: bool = False,
    transposed: Transposed | None = None,
) -> Tensor:
    graph = _arguments.for_derivative(transposed, x)
    out: Tensor = _operators.sum(
        _arguments.flat(x), index, ptr, weight, self_weight, row_scale, col_scale, skip_self, *graph
    )
    return out
