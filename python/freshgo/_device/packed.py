"""Batches that cross to a device in one copy: their small tensors in one buffer, with integers in few bytes.

The library narrows them (``core/batch/pack.go``) and leaves out what the device can compute: the target of each edge,
and the edges grouped by source. The device makes the tensors of a batch from them.
"""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Mapping, Set

import torch
from torch import Tensor

from freshgo._args.named import TRANSPOSED
from freshgo._args.types import Types

PACKED, LAYOUT = "fg/packed", "fg/layout"


@dataclasses.dataclass(frozen=True)
class Part:
    """A tensor within a packed one."""

    name: str
    stored: torch.dtype
    dtype: torch.dtype
    begin: int
    shape: list[int]

    @property
    def is_edges(self) -> bool:
        """Whether it is the sources of edges: those of a batch, or of a level of one that history has pruned."""
        return self.name.rpartition("/")[2].removeprefix("history_").startswith("edge_index")

    def of(self, packed: Tensor) -> Tensor:
        """Return the tensor as it is stored, a view."""
        n_bytes = math.prod(self.shape) * self.stored.itemsize
        return packed[self.begin : self.begin + n_bytes].view(self.stored).view(self.shape)


def parts_of(layout: Tensor) -> list[Part]:
    """Read what is in a packed tensor."""
    described = json.loads(layout.numpy().tobytes())
    return [
        Part(name, getattr(torch, stored), getattr(torch, dtype), begin, shape)
        for name, stored, dtype, begin, shape in described
    ]


def kept(packed: Tensor, parts: list[Part], stay: Set[str]) -> dict[str, Tensor]:
    """Return copies of the tensors that stay on the host."""
    return {part.name: part.of(packed).to(part.dtype, copy=True) for part in parts if part.name in stay}


class Unpacking:
    """Makes the tensors of batches on a device, in its current stream, with PyTorch's operators.

    Every tensor that was narrowed becomes a new one, so that a tensor that the loop keeps does not keep the batch.
    """

    def __init__(self, grouped: Mapping[str, str]) -> None:
        """``grouped`` has the edges that are to be grouped by source: the prefixes of their names, with the prefixes of
        the types of their sources."""
        self.grouped = grouped
        self._counted: dict[torch.dtype, Tensor] = {}  # 0, 1, 2, ...

    def __call__(self, copies: dict[str, Tensor], parts: list[Part]) -> dict[str, Tensor]:
        """Return the tensors that are packed in ``copies``, if any, and the edges of a batch grouped by source."""
        found: dict[str, Tensor] = {}
        sources: dict[str, Tensor] = {}
        for part in parts:
            stored = part.of(copies[PACKED])
            if part.is_edges:
                sources[part.name] = stored
            else:
                found[part.name] = stored.to(part.dtype)
        for name, stored in sources.items():
            found[name] = self.edge_index(stored, found[name.replace("edge_index", "ptr")])
        batch = copies | found
        for prefix, nodes in self.grouped.items():
            stored, targets = batch[f"{prefix}edge_index"]
            stored = sources.get(f"{prefix}edge_index", stored)
            if stored.numel() < 2**31:
                found |= self._by_source(prefix, stored, targets, batch[f"{nodes}n_id"].numel())
        return found

    def edge_index(self, sources: Tensor, ptr: Tensor) -> Tensor:
        """Edges that are grouped by target, from their sources and from where the edges of each target begin."""
        out = torch.empty((2, sources.numel()), dtype=torch.int64, device=sources.device)
        out[0].copy_(sources)
        torch.searchsorted(ptr[1:], self.counting(sources.numel(), ptr), right=True, out=out[1])
        return out

    def _by_source(self, prefix: str, sources: Tensor, targets: Tensor, num_sources: int) -> dict[str, Tensor]:
        """Edges grouped by source, as the library groups them: a stable sort."""
        keys = sources if sources.dtype == torch.int64 else sources.to(torch.int32)
        in_order, edge = torch.sort(keys, stable=True)
        ptr = torch.searchsorted(in_order, self.counting(num_sources + 1, keys))
        grouped = ptr, targets.index_select(0, edge).to(torch.int32), edge.to(torch.int32)
        return {f"{prefix}{name}": tensor for name, tensor in zip(TRANSPOSED, grouped, strict=True)}

    def counting(self, count: int, like: Tensor) -> Tensor:
        """Return 0, 1, 2, ... below ``count``, which nobody changes."""
        known = self._counted.get(like.dtype)
        if known is None or known.numel() < count:
            known = self._counted[like.dtype] = torch.arange(2 * count, dtype=like.dtype, device=like.device)
        return known[:count]


def grouped_by(types: Types) -> dict[str, str]:
    """Return what :class:`Unpacking` groups of batches whose edges are to be grouped by source."""
    places = {node_type: i for i, node_type in enumerate(types.node_types)}
    return {
        types.edge_name(i, ""): types.node_name(places[edge_type[0]], "")
        for i, edge_type in enumerate(types.edge_types)
    }
