"""Batches as PyG objects. Importing this module needs torch_geometric."""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable
from typing import Any

import torch
import torch_geometric.data
from torch import Tensor

from freshgo._args import checks
from freshgo._batch.blocks import Blocks, HeteroBlocks, carry_edges, edges_of
from freshgo._batch.structure import Transposed
from freshgo.errors import LibraryError

OLDEST, UNKNOWN = (2, 5), (2, 9)
"""The first version of PyG that this runs with, and the first that it was not tested with (pyproject.toml)."""

_ADVICE = f"pip install 'torch_geometric>={OLDEST[0]}.{OLDEST[1]},<{UNKNOWN[0]}.{UNKNOWN[1]}'"


def check_version(version: str) -> None:
    """Refuse a PyG that is too old, and warn of one that is newer than those that were tested.

    Raises:
        LibraryError: it is too old.
    """
    found = tuple(int(part) for part in re.findall(r"\d+", version)[:2])
    if found < OLDEST:
        raise LibraryError(f"freshgo needs PyG {OLDEST[0]}.{OLDEST[1]} or newer, found {version}: {_ADVICE}")
    if found >= UNKNOWN:
        warnings.warn(
            f"freshgo was not tested with PyG {version}, whose layers may have changed; a version that was: {_ADVICE}",
            UserWarning,
            stacklevel=checks.caller(),
        )


check_version(torch_geometric.__version__)


class _Carried:
    """Over PyG's data classes: a batch that is moved or copied stays known."""

    def apply(self, func: Callable[..., Any], *args: str) -> Any:
        """As PyG's, which moves and copies batches with it. The structure of the batch stays known."""
        before = edges_of(self)
        result = super().apply(func, *args)  # type: ignore[misc]  # of the class beside it
        carry_edges(before, self)
        return result


class Data(_Carried, Blocks, torch_geometric.data.Data):  # type: ignore[misc]  # PyG has no type hints
    """PyG's Data, with :meth:`~freshgo.batch.Blocks.blocks`."""


class HeteroData(_Carried, HeteroBlocks, torch_geometric.data.HeteroData):  # type: ignore[misc]
    """PyG's HeteroData, with ``blocks()`` as that of :class:`freshgo.HeteroBatch`."""


def make_edge_index(edge_index: Tensor, size: tuple[int, int], ptr: Tensor, transposed: Transposed | None) -> Any:
    """Return PyG's EdgeIndex over the edges of a batch, from ``size[0]`` sources to ``size[1]`` targets.

    It is filled with what the sampler knows and PyG would otherwise compute at the first product: the pointers of the
    targets and, for the derivative, the permutation by source with its pointers.
    """
    from torch_geometric import EdgeIndex  # not in versions that check_version refuses

    result = EdgeIndex(edge_index, sparse_size=size, sort_order="col")
    edges = edge_index.size(1)
    result._indptr = torch.cat([ptr, ptr.new_full((size[1] + 1 - ptr.numel(),), edges)])
    if transposed is not None:
        sources = torch.repeat_interleave(transposed.ptr.diff(), output_size=edges)
        result._T_perm = transposed.edge.to(torch.int64)
        result._T_index = (sources, transposed.target.to(torch.int64))
        result._T_indptr = transposed.ptr
    return result
