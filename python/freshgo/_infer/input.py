"""The rows that the first layer reads, of all nodes in the order in which they lie."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import torch
from torch import Tensor

from freshgo._args.size import too_small
from freshgo._infer.columns import ranges
from freshgo._infer.division import FLOAT
from freshgo._infer.files import Moved
from freshgo._infer.order import order_of
from freshgo.errors import BudgetError
from freshgo.loader import Loader
from freshgo.options import Disk
from freshgo.store import Store

_NODES = 1 << 18
"""Nodes whose numbers are in memory at a time where rows lie in an order of their own, at least, 2 MiB. Arbitrary:
reading them takes longer than opening a loader."""

_OPENINGS = 8
"""The most loaders that read such rows, one after the other. Each reads the offsets of all nodes, so that these are
read as often, 64 bytes a node, and has the numbers of an eighth of the nodes twice in memory, 2 bytes a node."""


class Input:
    """A tensor of nodes of a homogeneous store."""

    def __init__(
        self,
        store: Store,
        tensor: str,
        device: str | torch.device | None,
        memory: int,
        moved: Moved,
        dtype: torch.dtype = torch.float32,
    ) -> None:
        """``memory`` is that of the whole inference; rows come in the given dtype."""
        self._dtype = dtype
        self._store, self._tensor, self._device = store, tensor, device
        self._memory, self._moved = memory, moved
        self._width = int(store.tensors[tensor].shape[1])
        self._order = order_of(store, moved)
        topology = {array["name"]: array for array in store._contents.info["topology"]}
        self._offsets = int(topology["indptr"]["n_bytes"])

    def least(self) -> int:
        """The smallest memory in which rows are read."""
        nodes = None if self._order is None else self._nodes(0, min(self._some(), self._store.num_nodes))
        try:
            self._open(nodes, 1, 1).close()
        except BudgetError as error:
            return error.minimum + (0 if nodes is None else nodes.nbytes)
        return 1

    def rows(self, first: int, memory: int) -> Iterator[tuple[int, Tensor]]:
        """The rows of all nodes from one place on: the place of the first of some, and these.

        Raises:
            BudgetError: the memory is too small; ``minimum`` is what the whole inference takes.
        """
        count = self._store.num_nodes
        if self._order is None and first < count:
            yield from self._read(None, 0, first, memory)
        if self._order is None:
            return
        for lo, hi in ranges(count - first, self._some()):
            yield from self._read(self._nodes(first + lo, first + hi), first + lo, first + lo, memory)

    def _some(self) -> int:
        """Nodes that one loader reads where rows lie in an order of their own."""
        return max(_NODES, -(-self._store.num_nodes // _OPENINGS))

    def _read(self, nodes: Tensor | None, begin: int, first: int, memory: int) -> Iterator[tuple[int, Tensor]]:
        """The rows from the place ``first`` on of some nodes or of all, which lie from ``begin`` on."""
        batch_size = max(1, min(1 << 14, memory // 16 // (FLOAT * max(1, self._width))))
        kept = 0 if nodes is None else nodes.nbytes
        with self._loader(nodes, memory - kept, batch_size) as loader:
            done = (first - begin) // loader.batch_size
            loader.load_state_dict({**loader.state_dict(), "batches": done})
            at = begin + done * loader.batch_size
            for made in loader:
                rows = made[self._tensor].to(self._dtype)
                end = at + rows.size(0)
                yield max(at, first), rows[max(0, first - at) :]
                at = end
            self._moved.read += loader.stats()["bytes_read"] + self._offsets

    def _nodes(self, first: int, end: int) -> Tensor:
        """The nodes whose rows lie at these places."""
        assert self._order is not None  # else a loader reads all nodes
        return torch.from_numpy(self._order.nodes(first, end).astype(np.int64))

    def _loader(self, nodes: Tensor | None, memory: int, batch_size: int) -> Loader:
        """Yield the rows of some nodes, in batches of ``batch_size`` or the most that fit."""
        try:
            return self._open(nodes, memory, batch_size)
        except BudgetError as error:
            if batch_size > 1:
                return self._loader(nodes, memory, batch_size // 2)
            least = error.minimum + self._memory - memory
            raise BudgetError(too_small(self._memory, least), least) from None

    def _open(self, nodes: Tensor | None, memory: int, batch_size: int) -> Loader:
        return Loader(
            self._store,
            [],
            nodes,
            batch_size=batch_size,
            memory=memory,
            disk=Disk(checksums=True),
            cache=None,
            device=self._device,
            device_cache=None,
            progress=False,
        )
