"""PyG's FeatureStore over a store."""

from __future__ import annotations

import weakref
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch_geometric.data import FeatureStore, TensorAttr

from freshgo._args.checks import shown
from freshgo._args.hints import only
from freshgo._remote.reader import Reader
from freshgo.errors import DTypeError, InvalidArgumentError
from freshgo.store import Store


class StoreFeatures(FeatureStore):  # type: ignore[misc]  # PyG has no type hints
    """The tensors of a store: rows of nodes are read by a loader without hops, within its memory.

    ``features["paper", "x", ids]`` reads rows, of a homogeneous graph ``features[None, "x", ids]``. An index is a
    tensor or a list of ids, a slice, a bool mask, or None for all rows. Tensors of edges are read whole.
    """

    def __init__(self, store: Store, options: dict[str, Any]) -> None:
        super().__init__()
        self.store, self._options = store, options
        self._reader = Reader(store, [], options)
        self._sampled: dict[int, tuple[Any, Any]] = {}

    def get_all_tensor_attrs(self) -> list[Any]:
        """The tensors of nodes, which are those that PyG's loaders ask for."""
        return [
            TensorAttr(node_type or None, name)
            for node_type, of in self.store._contents.nodes.items()
            for name in of.tensors
        ]

    def close(self) -> None:
        """Close what reads rows; the store stays open."""
        self._reader.close()

    def keep(self, nodes: Tensor, rows: Any) -> None:
        """Remember the rows that came with sampled nodes, for as long as the tensor of nodes lives."""
        key = id(nodes)
        self._sampled[key] = (weakref.ref(nodes, lambda _: self._sampled.pop(key, None)), rows)

    def _multi_get_tensor(self, attrs: list[Any]) -> list[Any]:
        batches: dict[tuple[str, int], Any] = {}
        return [self._rows(attr, batches) for attr in attrs]

    def _get_tensor(self, attr: Any) -> Tensor:
        return self._rows(attr, {})

    def _rows(self, attr: Any, batches: dict[tuple[str, int], Any]) -> Tensor:
        """Return rows. Those of one index are read together for all tensors of a type."""
        of, name, index = attr.group_name, attr.attr_name, attr.index
        if isinstance(of, tuple):
            rows: Tensor = self.store[of][name]
            return rows if index is None else rows[index]
        nodes = self._nodes(of)
        if name not in nodes.tensors:
            raise InvalidArgumentError(f"there is no tensor {name!r} of {of!r}{only(name, sorted(nodes.tensors))}")
        if index is None or (isinstance(index, slice) and index == slice(None)):
            whole: Tensor = nodes[name]
            return whole
        kept = self._sampled.get(id(index))
        if kept is not None and kept[0]() is index:
            found: Tensor = kept[1][name]
            return found
        key = (of or "", id(index))
        if key not in batches:
            batches[key] = self._read(of or "", _ids(index, nodes.num_nodes))
        got: Tensor = batches[key][name]
        return got

    def _nodes(self, of: str | None) -> Any:
        if (of or "") not in self.store._contents.nodes:
            raise InvalidArgumentError(f"there is no node type {of!r}, only {list(self.store._contents.nodes)}")
        return self.store._contents.nodes[of or ""]

    def _read(self, of: str, ids: Tensor) -> Any:
        if not ids.numel():
            nodes = self._nodes(of)
            return {name: torch.empty((0, *info.shape[1:]), dtype=info.dtype) for name, info in nodes.tensors.items()}
        if not self.store.node_types:
            return self._reader.sample(ids)
        return self._reader.sample({of: ids})[of]

    def _get_tensor_size(self, attr: Any) -> tuple[int, ...] | None:
        owner = self.store[attr.group_name] if isinstance(attr.group_name, tuple) else self._nodes(attr.group_name)
        info = owner.tensors.get(attr.attr_name)
        return None if info is None else tuple(info.shape)

    def _put_tensor(self, tensor: Any, attr: Any) -> bool:
        raise InvalidArgumentError("a store is not written in place: freshgo.update makes one with other tensors")

    def _remove_tensor(self, attr: Any) -> bool:
        raise InvalidArgumentError("a store is not written in place: freshgo.update makes one without a tensor")

    def __reduce__(self) -> Any:
        return StoreFeatures, (self.store, self._options)


def _ids(index: Any, count: int) -> Tensor:
    """Return the ids that an index names; negative ones count from the end in slices alone."""
    if isinstance(index, slice):
        return torch.arange(count)[index]
    if isinstance(index, int | np.integer) and not isinstance(index, bool):
        return torch.tensor([int(index)])
    try:
        ids = torch.as_tensor(index)
    except (TypeError, ValueError, RuntimeError):
        raise DTypeError(f"index must be ids, a slice or a mask, got {shown(index)}") from None
    if ids.dtype == torch.bool:
        if ids.shape != (count,):
            raise InvalidArgumentError(f"a mask must have shape [{count}], got {list(ids.shape)}")
        return ids.nonzero().flatten()
    if ids.dim() != 1 or (ids.numel() and (ids.is_floating_point() or ids.is_complex())):
        raise DTypeError(f"index must be ids in one dimension, a slice or a mask, got {shown(index)}")
    return ids.long()
