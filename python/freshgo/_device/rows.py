"""The rows of a batch on a device, put together from where they are.

A row is in a cache on the device, or in a tensor on the host. The device itself reads a tensor that is whole in memory
and locked, row by row, by the ids of the nodes (FreshGNN's one-sided loading, section 5): the loader's threads do not
touch it. Of other tensors a batch brings the rows that are not in the cache.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Set

import torch
from torch import Tensor

from freshgo._data.source import Source
from freshgo._native import cuda

PLACE = "place"

Assemble = Callable[[Tensor, Tensor, Tensor | None, Tensor | None], Tensor]


@dataclasses.dataclass(frozen=True)
class Part:
    """Nodes that have the same tensors: all of a graph, or those of one type."""

    prefix: str
    """Of the tensors in a batch of the library: ``"n0/"`` of the first type, else nothing."""
    num_nodes: int
    widths: dict[str, int]
    """Bytes of a row of each node-level tensor, by its name in a batch."""

    @property
    def width(self) -> int:
        """Bytes of a row of all of them."""
        return sum(self.widths.values())


def parts_of(source: Source) -> list[Part]:
    """The parts of a graph, in the order of its nodes' numbers."""
    prefixes = [source.types.node_name(i, "") for i in range(len(source.types.num_nodes))]
    return [
        Part(prefix, count, {name: n for name, n in source.row_bytes.items() if name.startswith(prefix)})
        for prefix, count in zip(prefixes, source.types.num_nodes.values(), strict=True)
    ]


class Rows:
    """Completes the rows of batches, in the current stream of a device."""

    def __init__(
        self,
        parts: list[Part],
        assemble: Assemble,
        device: torch.device,
        *,
        padded: bool = False,
        of_edges: Mapping[str, Set[str]] | None = None,
    ) -> None:
        """``padded``: batches may have nodes without rows, whose id is -1. ``of_edges``: the edge-level tensors by the
        prefixes of their types, of batches that the device draws."""
        self._parts, self._assemble, self._device, self._padded = parts, assemble, device, padded
        self._of_edges = of_edges or {}
        self._cached: Mapping[str, Tensor] | None = None
        self._on_host: Mapping[str, Tensor] = {}
        self._zeros: dict[str, Tensor] = {}  # a row for nodes that pad, by the names of tensors on the host

    @property
    def bytes_on_host(self) -> int:
        """The size of the tensors on the host that the device reads."""
        return sum(table.nbytes for table in self._on_host.values())

    def read(self, tables: Mapping[str, Tensor]) -> None:
        """Take the rows of these tensors, in locked memory, from the host from now on. Whoever unlocks it waits for the
        device first, and then calls this without them."""
        self._on_host = tables

    def hold(self, cached: Mapping[str, Tensor] | None) -> None:
        """Take rows from these tables of a cache on the device from now on."""
        self._cached = cached

    def finish(self, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
        """Complete the rows of all nodes of a batch."""
        for part in self._parts:
            place = tensors.pop(part.prefix + PLACE, None)
            for name in part.widths:
                if name in self._on_host:
                    tensors[name] = self._from_host(name, tensors[part.prefix + "n_id"], place)
                elif self._cached is not None and place is not None:
                    tensors[name] = self._assemble(self._cached[name], tensors[name], place, None)
        for prefix, names in self._of_edges.items():
            for name in names & self._on_host.keys():
                tensors[name] = self._from_host(name, tensors[f"{prefix}e_id"], None)
        return tensors

    def _from_host(self, name: str, ids: Tensor, place: Tensor | None) -> Tensor:
        table = self._on_host[name]
        if self._cached is not None:  # not of edges: a device that draws has no cache
            return self._assemble(self._cached[name], table, place, ids)
        if name not in self._zeros:
            self._zeros[name] = table.new_zeros((int(self._padded), *table.shape[1:]), device=self._device)
        return self._assemble(self._zeros[name], table, place, ids)


def assembler(device: torch.device) -> Assemble:
    """What puts rows together on a device: the kernel of the library, where it has one that runs there."""
    return by_kernel if cuda.obstacle(device) is None else assemble


def by_kernel(table: Tensor, missed: Tensor, place: Tensor | None, index: Tensor | None = None) -> Tensor:
    """Put rows together as :func:`assemble` does, in one pass. ``missed`` may be in locked memory of the host."""
    return cuda.gather(table, missed, *_filled(table, place, index))


def assemble(table: Tensor, missed: Tensor, place: Tensor | None, index: Tensor | None = None) -> Tensor:
    """Put rows together: ``table[place[i]]`` where that is not negative, else ``missed[index[i]]``. Without ``index``
    it is ``~place``. Without ``place``, the one row of ``table``, if it has one, is for negative indices.

    With PyTorch's own operations, on any device and for any dtype; the kernel of the library moves half the bytes.
    """
    place, index = _filled(table, place, index)
    shape = (index.numel(), *table.shape[1:])
    if table.numel() == 0 and missed.numel() == 0:
        return table.new_empty(shape)
    if place is None or table.size(0) == 0:
        rows = _words(missed).index_select(0, index)
    else:
        rows = _words(table).index_select(0, place.clamp(min=0))
        if missed.size(0) > 0:
            others = _words(missed).index_select(0, index.clamp(min=0))
            rows = torch.where((place < 0).unsqueeze(1), others, rows)
    return rows.view(table.dtype).view(shape)


def _filled(table: Tensor, place: Tensor | None, index: Tensor | None) -> tuple[Tensor | None, Tensor]:
    """Return the places, None where no row is in the table, and the indices of :func:`assemble`."""
    if index is None:
        assert place is not None, "one of them says which rows"
        return place, ~place
    if place is None and table.size(0) > 0:
        place = torch.where(index < 0, 0, -1).to(torch.int32)
    return place, index


def _words(rows: Tensor) -> Tensor:
    """Rows as integers, the widest that they consist of: not every dtype can be selected by index."""
    flat = rows.reshape(rows.size(0), -1)
    n_bytes = flat.size(1) * flat.element_size()
    kind = next(k for k in (torch.int64, torch.int32, torch.int16, torch.uint8) if n_bytes % k.itemsize == 0)
    return flat.view(kind)
