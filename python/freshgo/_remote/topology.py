"""PyG's GraphStore over a store."""

from __future__ import annotations

import errno
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch_geometric.data import EdgeAttr, GraphStore
from torch_geometric.data.graph_store import EdgeLayout

from freshgo._args.arrays import read_uint40, stored_dtype
from freshgo._args.types import UNNAMED
from freshgo.errors import CorruptError, InvalidArgumentError
from freshgo.store import Store


class StoreTopology(GraphStore):  # type: ignore[misc]  # PyG has no type hints
    """The edges of a store, in memory from when they are asked for.

    They are in the order in which they were converted (COO), so that positions are the edge numbers of ``e_id`` and of
    tensors of edges; those that were converted with ``edge_ids=False`` are sorted by target, as all are as CSC.
    """

    def __init__(self, store: Store) -> None:
        super().__init__()
        self.store = store
        self._verified = False

    def get_all_edge_attrs(self) -> list[Any]:
        """The edge types, each as COO."""
        return [
            EdgeAttr(None if edge_type == UNNAMED else edge_type, EdgeLayout.COO, size=self._size(edge_type))
            for edge_type in self._types()
        ]

    def _types(self) -> list[tuple[str, str, str]]:
        return self.store.edge_types or [UNNAMED]

    def _size(self, edge_type: tuple[str, str, str]) -> tuple[int, int]:
        nodes = self.store._contents.nodes
        return nodes[edge_type[0]].num_nodes, nodes[edge_type[2]].num_nodes

    def _get_edge_index(self, edge_attr: Any) -> tuple[Tensor, Tensor] | None:
        edge_type = edge_attr.edge_type or UNNAMED
        if edge_type not in self._types() or edge_attr.layout == EdgeLayout.CSR:
            return None  # PyG converts CSR itself
        if not self._verified:
            self.store._contents.native.verify_topology()
            self._verified = True
        of = self.store._contents.edges[edge_type]._info if self.store.edge_types else self.store._contents.info
        arrays = {array["name"]: array for array in of["topology"]}
        ptr, sources = self._read(arrays["indptr"]), self._read(arrays["indices"])
        if edge_attr.layout == EdgeLayout.CSC:
            return sources, ptr
        targets = torch.repeat_interleave(torch.arange(ptr.numel() - 1), ptr.diff(), output_size=sources.numel())
        if "edge_ids" not in arrays:
            return sources, targets
        numbers = self._read(arrays["edge_ids"])
        back = torch.empty_like(numbers)
        back[numbers] = torch.arange(numbers.numel())
        return sources[back], targets[back]

    def _read(self, array: dict[str, Any]) -> Tensor:
        """Read an array of numbers."""
        count, dtype = int(array["shape"][0]), stored_dtype(array["dtype"])
        path = Path(self.store.path) / array["file"]
        if dtype.kind == "V":
            with path.open("rb") as file:
                return torch.from_numpy(read_uint40(lambda into, _: file.readinto(into), 0, count))
        values = np.fromfile(path, dtype, count)
        if len(values) != count:
            raise CorruptError(errno.EIO, f"{len(values)} rows, expected {count}", str(path))
        return torch.from_numpy(values.astype(np.int64, copy=False))

    def _put_edge_index(self, edge_index: Any, edge_attr: Any) -> bool:
        raise InvalidArgumentError("a store is not written in place: convert a graph with other edges")

    def _remove_edge_index(self, edge_attr: Any) -> bool:
        raise InvalidArgumentError("a store is not written in place: convert a graph with other edges")

    def __reduce__(self) -> Any:
        return StoreTopology, (self.store,)
