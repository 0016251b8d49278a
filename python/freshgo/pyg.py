"""Batches as PyG objects. Importing this module needs torch_geometric."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch_geometric.data
from torch import Tensor
from torch_geometric import EdgeIndex

from freshgo._batch.blocks import Blocks
from freshgo._batch.hetero_blocks import HeteroBlocks, carry_edges, edges_of
from freshgo._batch.structure import Transposed, carry, first_in


class Data(Blocks, torch_geometric.data.Data):  # type: ignore[misc]  # PyG has no type hints
    """PyG's Data, with :meth:`~freshgo.batch.Blocks.blocks`."""

    def apply(self, func: Callable[..., Any], *args: str) -> Any:
        """As PyG's, which moves and copies batches with it. The structure of the batch stays known."""
        before = self._store.get("edge_index")
        result = super().apply(func, *args)
        if before is not None:
            store = self._store
            carry([(before, store["edge_index"], first_in(before, store, store, store))])
        return result


class HeteroData(HeteroBlocks, torch_geometric.data.HeteroData):  # type: ignore[misc]
    """PyG's HeteroData, with :meth:`~freshgo._batch.hetero_blocks.HeteroBlocks.blocks`."""

    def apply(self, func: Callable[..., Any], *args: str) -> Any:
        """As PyG's, which moves and copies batches with it. The structure of the batch stays known."""
        before = edges_of(self)
        result = super().apply(func, *args)
        carry_edges(before, self)
        return result


def make_edge_index(edge_index: Tensor, size: tuple[int, int], ptr: Tensor, transposed: Transposed | None) -> Any:
    """Return PyG's EdgeIndex over the edges of a batch, from ``size[0]`` sources to ``size[1]`` targets.

    It is filled with what the sampler knows and PyG would otherwise compute at the first product: the pointers of the
    targets and, for the derivative, the permutation by source with its pointers.
    """
    result = EdgeIndex(edge_index, sparse_size=size, sort_order="col")
    edges = edge_index.size(1)
    result._indptr = torch.cat([ptr, ptr.new_full((size[1] + 1 - ptr.numel(),), edges)])
    if transposed is not None:
        sources = torch.repeat_interleave(transposed.ptr.diff(), output_size=edges)
        result._T_perm = transposed.edge.to(torch.int64)
        result._T_index = (sources, transposed.target.to(torch.int64))
        result._T_indptr = transposed.ptr
    return result
