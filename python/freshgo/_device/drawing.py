"""Batches that a device draws: the library sends their seeds, and the key of their draws.

Kernels draw the batch that the sampler of the library draws by this key, hop by hop, and number its nodes in the order
of discovery. Each hop waits for the device twice, in the thread that sends batches ahead: how many edges there are, and
how many nodes, says how much memory the next step takes.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from freshgo._args.size import format_size
from freshgo._device.packed import Unpacking
from freshgo._native import cuda
from freshgo._native.header import LIST_EDGE, LIST_PTR, LIST_SOURCE
from freshgo._native.loader import Loader as NativeLoader
from freshgo._native.loader import read_list
from freshgo.errors import InvalidArgumentError

KEY = "fg/key"

_MOST = 2**31 - 1
_PIECE = 1 << 22
"""Elements of a list that are copied at a time. Arbitrary: 32 MiB."""


class Drawing:
    """Draws batches of a homogeneous graph in the current stream of a device."""

    def __init__(
        self,
        device: torch.device,
        sizes: tuple[int, int],
        fanouts: Sequence[int],
        group: Unpacking,
        *,
        replace: bool,
        numbered: bool,
    ) -> None:
        """``sizes``: the nodes and edges of the graph. ``group``: what groups edges by source. ``numbered``: batches
        have edge numbers."""
        self._device, self._sizes, self._fanouts, self._group = device, sizes, fanouts, group
        self._replace, self._numbered = replace, numbered
        self._lists: cuda.Lists | None = None
        self._numbers: Tensor | None = None  # of edges, by their positions; None: they are the positions

    @property
    def n_bytes(self) -> int:
        """The memory of the device that the neighbour lists take."""
        of = (*(() if self._lists is None else (self._lists.ptr, self._lists.source)), self._numbers)
        return sum(tensor.nbytes for tensor in of if tensor is not None)

    def load(self, native: NativeLoader) -> None:
        """Copy the neighbour lists to the device, once.

        Raises:
            InvalidArgumentError: the graph is too large for the kernels, or for the memory of the device
        """
        if self._lists is not None:  # the graph does not change, whoever opens it again
            return
        nodes, edges = self._sizes
        if nodes > _MOST:
            raise InvalidArgumentError(f"sample_on='device' is for up to {_MOST} nodes, got {nodes}")
        try:
            ptr = self._copied(native, LIST_PTR, nodes + 1, torch.int64)
            source = self._copied(native, LIST_SOURCE, edges, torch.int32)
            numbers = self._copied(native, LIST_EDGE, edges, _narrow(edges)) if self._numbered else None
        except torch.cuda.OutOfMemoryError as error:
            n_bytes = format_size(8 * (nodes + 1) + edges * (4 + self._numbered * _narrow(edges).itemsize))
            raise InvalidArgumentError(
                f"the neighbour lists, of up to {n_bytes}, do not fit into the free memory of {self._device}: use "
                f"sample_on='cpu' ({error})"
            ) from error
        assert ptr is not None, "only numbers may be missing"
        assert source is not None, "only numbers may be missing"
        self._lists, self._numbers = cuda.Lists(ptr, source), numbers

    def _copied(self, native: NativeLoader, which: int, size: int, dtype: torch.dtype) -> Tensor | None:
        out = torch.empty(size, dtype=dtype, device=self._device)
        for first in range(0, size, _PIECE):
            piece = torch.empty(min(_PIECE, size - first), dtype=torch.int64)
            if not read_list(native, which, first, piece):
                return None
            out[first : first + piece.numel()].copy_(piece)
        return out

    def __call__(self, tensors: dict[str, Tensor], key: int) -> dict[str, Tensor]:
        """Return the nodes and edges of a batch, whose ``n_id`` are its seeds. The counts by hop are on the host."""
        lists = self._lists
        assert lists is not None, "the loader is open"
        nodes, begin = tensors["n_id"], 0
        of_nodes, of_edges = [nodes.numel()], list[int]()
        ptr, sources, positions = [], [nodes[:0]], [nodes[:0]]
        for hop, fanout in enumerate(self._fanouts):
            first, position, neighbor = cuda.draw(lists, nodes[begin:], fanout, key, hop, replace=self._replace)
            begin = nodes.numel()
            node, local, count = cuda.number(torch.cat([nodes, neighbor]), kept=begin)
            ptr.append(first + sum(of_edges))
            sources.append(local[begin:])
            positions.append(position)
            nodes = node[: int(count)]
            of_nodes.append(nodes.numel() - begin)
            of_edges.append(position.numel())
        ptr.append(torch.full((1,), sum(of_edges), dtype=torch.int64, device=nodes.device))
        drawn = {"n_id": nodes.clone(), "ptr": torch.cat(ptr)}
        drawn["edge_index"] = self._group.edge_index(torch.cat(sources), drawn["ptr"])
        if self._numbered:
            at = torch.cat(positions)
            drawn["e_id"] = at if self._numbers is None else self._numbers.index_select(0, at).to(torch.int64)
        drawn |= self._group(drawn, [])
        return drawn | {"num_sampled_nodes": torch.tensor(of_nodes), "num_sampled_edges": torch.tensor(of_edges)}


def _narrow(count: int) -> torch.dtype:
    """Return the narrowest dtype for numbers below ``count``."""
    return torch.int32 if count <= _MOST else torch.int64
