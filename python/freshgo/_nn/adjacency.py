"""The graph behind an ``edge_index``: grouped by target, and by source once a derivative asks for it.

PyG's layers get ``edge_index`` and nothing else. What is known of one is kept as an attribute of the tensor, so that
the layers and steps that share it share the work, and so that a batch can bring it along (``_batch.structure``). A
tensor that has been written to since is another one. Views of the first edges, as blocks and ``trim_to_layer`` make
them, find what their base knows.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
import weakref
from collections.abc import Callable
from typing import Any, TypeVar

import torch
from torch import Tensor

from freshgo import ops
from freshgo._batch.structure import Known, Transposed, recall, remember
from freshgo._ops import kernels
from freshgo.errors import InvalidArgumentError

_Function = TypeVar("_Function", bound=Callable[..., Any])


def _kept(function: _Function) -> _Function:
    """Make tensors that stay beside edge_index outside of ``inference_mode``: autograd saves none that are made in it,
    and a later step may train with them."""

    @functools.wraps(function)
    def call(*args: Any) -> Any:
        if torch.compiler.is_compiling() or not torch.is_inference_mode_enabled():
            return function(*args)
        with torch.inference_mode(False), torch.no_grad():
            return function(*args)

    return call  # type: ignore[return-value]


@dataclasses.dataclass
class Adjacency:
    """Edges grouped by target, as the operators take them."""

    index: Tensor
    ends: Tensor
    """Where the edges of each target end, behind a zero. Targets beyond have none."""
    targets: int
    order: Tensor | None  # where each edge is in edge_index; None: in its place
    transposed: Transposed | None = None
    cut: int = -1
    """How many targets of a larger graph, which ``transposed`` is of, have their edges here; -1: not known."""
    whole: Tensor | None = None
    """Where the edges of that larger graph end."""
    roots: dict[Any, tuple[int, Tensor]] | None = None
    """Scales of GCN, shared with other graphs that end with all edges of a target of that larger graph."""
    made: dict[Any, Tensor] | None = None

    @property
    def ptr(self) -> Tensor:
        """The pointers of all targets."""
        if self.ends.size(0) > self.targets:
            return self.ends
        return self.once("ptr", self._all_targets)

    def _all_targets(self) -> Tensor:
        if self.whole is not None and self.whole.size(0) > self.targets:
            return self.whole[: self.targets + 1].clamp(max=self.index.size(0))
        more = self.targets + 1 - self.ends.size(0)
        return torch.cat([self.ends, self.ends.new_full((more,), self.index.size(0))])

    def of_edges(self, values: Tensor | None) -> Tensor | None:
        """Bring one value for each edge of edge_index into this order."""
        return values if values is None or self.order is None else values.index_select(0, self.order)

    def for_gradient(self, x: Tensor) -> Transposed | None:
        """The graph by source, if the derivative of an operator over ``x`` will ask for it."""
        if not torch.is_grad_enabled() or not x.requires_grad:
            return None
        if self.transposed is None:
            self.transposed = ops.transpose(self.index, self.ends, x.size(0))
            self.cut = self.ends.size(0) - 1
        return self.transposed

    def gcn_scale(self, rows: int, dtype: torch.dtype, loops: bool) -> Tensor:
        """D^-1/2 of each row, made once. Layers of a trimmed model share it: a target that has edges here has all of
        them, and a row without edges has the scale 1."""
        key = "gcn", rows, dtype, loops
        return self.once(key, lambda: self._gcn_scale(rows, dtype, loops))

    def _gcn_scale(self, rows: int, dtype: torch.dtype, loops: bool) -> Tensor:
        roots = self.roots if loops else None
        if roots is None:
            return ops.gcn_scale(self.index, self.ptr, rows, dtype, loops, 1.0)
        if dtype in roots:
            targets, scale = roots[dtype]
            if self.cut <= targets:
                ones = scale[targets : targets + rows - self.cut]
                if ones.size(0) < rows - self.cut:
                    ones = scale.new_ones(rows - self.cut)
                return torch.cat([scale[: self.cut], ones])
        roots[dtype] = self.cut, ops.gcn_scale(self.index, self.ptr, rows, dtype, loops, 1.0)
        return roots[dtype][1]

    @_kept
    def once(self, kind: Any, make: Any) -> Tensor:
        """A vector that depends on the graph alone, made once."""
        if self.made is None:
            self.made = {}
        if kind not in self.made:
            self.made[kind] = make()
        return self.made[kind]


@_kept
def adjacency(edge_index: Tensor, sources: int, targets: int) -> Adjacency:
    """Return the graph of ``edge_index`` between sources and targets."""
    if torch.compiler.is_compiling():  # what is kept beside a tensor does not exist in a graph
        index, ptr, order = ops.group(edge_index, targets)
        return Adjacency(index, ptr, targets, order)
    known = recall(edge_index)
    if known is None:
        base = _base(edge_index)
        whole = None if base is None else recall(base)
        if base is not None and whole is not None and whole.ptr is not None:
            return _prefix(edge_index, base, whole, sources, targets)
        known = Known(edge_index, None, None)
        remember(edge_index, known)
    if known.ptr is not None:
        return _prefix(edge_index, edge_index, known, sources, targets)
    key = (edge_index.size(1), sources, targets)
    if key not in known.made:
        known.made[key] = _group(_plain(edge_index), targets)
    made: Adjacency = known.made[key]
    return made


@_kept
def relations(
    edge_index: Tensor, edge_type: Tensor, num_relations: int, sources: int, targets: int
) -> list[tuple[int, Adjacency]]:
    """The graph of each relation that has edges, by its number; made once for both tensors as they are."""
    known = recall(edge_index)
    if known is None:
        known = Known(edge_index, None, None)
        remember(edge_index, known)
    key = (edge_index.size(1), sources, targets)
    if key not in known.by_type or known.by_type[key].type() is not edge_type or known.by_type[key].stale():
        known.by_type[key] = _Relations(edge_type, _split(_plain(edge_index), edge_type, num_relations, targets))
    made: _Relations = known.by_type[key]
    return made.graphs


class _Relations:
    def __init__(self, edge_type: Tensor, graphs: list[tuple[int, Adjacency]]) -> None:
        self.type = weakref.ref(edge_type)
        self.version = edge_type._version
        self.graphs = graphs

    def stale(self) -> bool:
        edge_type = self.type()
        return edge_type is None or edge_type._version != self.version


def _split(edge_index: Tensor, edge_type: Tensor, num_relations: int, targets: int) -> list[tuple[int, Adjacency]]:
    if edge_type.numel() != edge_index.size(1):
        raise InvalidArgumentError(
            f"edge_type has shape {list(edge_type.shape)} for edge_index of shape {list(edge_index.shape)}"
        )
    ends, order = kernels.group(edge_type.to(edge_index.dtype), num_relations)
    if order is not None:
        edge_index = edge_index.index_select(1, order)
    found = []
    for relation, (first, end) in enumerate(itertools.pairwise(ends.tolist())):
        if first < end:
            found.append((relation, _group(edge_index[:, first:end], targets)))
    return found


def _plain(edge_index: Any) -> Tensor:
    """PyG's EdgeIndex as an ordinary tensor."""
    plain: Tensor = edge_index.as_tensor() if hasattr(edge_index, "as_tensor") else edge_index
    return plain


def _sources(edge_index: Tensor) -> Tensor:
    """Row 0 over the same memory, not as a view: that would keep edge_index alive, which keeps what is made of it."""
    size, stride = edge_index.size(1), edge_index.stride(1)
    return edge_index.new_empty(0).set_(edge_index.untyped_storage(), edge_index.storage_offset(), (size,), (stride,))


def _group(edge_index: Tensor, targets: int) -> Adjacency:
    ptr, order = kernels.group(edge_index[1], targets)
    index = _sources(edge_index) if order is None else edge_index[0].index_select(0, order)
    return Adjacency(index, ptr, targets, order)


def _base(edge_index: Tensor) -> Tensor | None:
    """The tensor whose first columns ``edge_index`` views."""
    base = edge_index._base
    if (
        base is None
        or base.dim() != 2
        or edge_index.data_ptr() != base.data_ptr()
        or edge_index.stride() != base.stride()
        or edge_index.dtype != base.dtype
        or edge_index.size(1) > base.size(1)
    ):
        return None
    return base


def _prefix(edge_index: Tensor, whole: Tensor, known: Known, sources: int, targets: int) -> Adjacency:
    """The first edges of ``whole``, whose targets are sorted."""
    edges = edge_index.size(1)
    key = (edges, sources, targets)
    if key in known.made:
        found: Adjacency = known.made[key]
        return found
    assert known.ptr is not None
    end = known.ends.get(edges)
    if end is None:
        ptr = known.ptr[: targets + 1].clamp(max=edges)
        if int(ptr[-1]) != edges:
            return _group(_plain(edge_index), targets)  # fewer targets than have edges: this says what is wrong
    elif targets < end:
        return _group(_plain(edge_index), targets)
    else:
        ptr = known.ptr if known.ptr.size(0) == end + 1 else known.ptr.narrow(0, 0, end + 1)
    transposed = known.transposed
    # It holds for a graph that ends with all edges of some target, over rows that it knows.
    if transposed is not None and (sources >= transposed.ptr.size(0) or (end is None and not _ends(known.ptr, edges))):
        transposed = None
    if known.index is None:
        known.index = _sources(_plain(whole))
    index = known.index if known.index.size(0) == edges else known.index.narrow(0, 0, edges)
    made = Adjacency(index, ptr, targets, None, transposed)
    if end is not None:
        made.cut, made.whole, made.roots = end, known.ptr, known.roots
    known.made[key] = made
    return made


def _ends(ptr: Tensor, edges: int) -> bool:
    """Return whether the first edges are all edges of some targets."""
    return int(ptr[int(torch.searchsorted(ptr, edges))]) == edges
