"""The order in which the rows of a store lie, where that is not the order of the nodes."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from freshgo._infer.columns import ranges
from freshgo._infer.files import Moved, file_of, read_at
from freshgo.errors import CorruptError
from freshgo.store import Store

_NODES = 1 << 20
"""Nodes whose places are set at a time. Arbitrary: 12 MiB."""

_NOWHERE = np.uint32(0xFFFFFFFF)
"""The place of no node."""


class Order:
    """The node at each place of a homogeneous store."""

    def __init__(self, path: Path, nodes: int, moved: Moved) -> None:
        self._path, self._count, self._moved = path, nodes, moved

    def nodes(self, first: int, end: int) -> np.ndarray:
        """The nodes at the places from ``first`` to before ``end``, uint32."""
        out = np.empty(end - first, np.uint32)
        with file_of(self._path) as file:
            read_at(file, memoryview(out.view(np.uint8).data), 4 * first, self._moved)
        return out

    def places(self) -> np.ndarray:
        """The place of each node, uint32 ``[nodes]``.

        Raises:
            CorruptError: the order does not have every node once.
        """
        out = np.full(self._count, _NOWHERE)
        for first, end in ranges(self._count, _NODES):
            nodes = self.nodes(first, end)
            if nodes.max() >= self._count:
                raise CorruptError(
                    5, f"holds node {nodes.max()}, expected nodes in [0, {self._count})", str(self._path)
                )
            out[nodes] = np.arange(first, end, dtype=np.uint32)
        if self._count and out.max() == _NOWHERE:
            raise CorruptError(5, f"lacks node {out.argmax()}, expected every node once", str(self._path))
        return out


def order_of(store: Store, moved: Moved) -> Order | None:
    """The order of a store that has one."""
    order = store._contents.info["order"]
    return None if order is None else Order(Path(store.path) / order["file"], store.num_nodes, moved)
