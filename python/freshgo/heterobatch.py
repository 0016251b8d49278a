"""What a loader over a heterogeneous graph yields if PyG is not installed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from freshgo._args.entry import entry
from freshgo._args.types import EdgeType
from freshgo._args.whole import mapped
from freshgo._batch.blocks import Attributes, HeteroBlocks, carry_edges, edges_of


@entry
class TypeBatch(Attributes):
    """What a batch holds for one type: ``batch["paper"].x``, ``batch["author", "writes", "paper"].edge_index``.

    ``part["x"]`` is ``part.x``; iterating gives ``(name, value)`` pairs.
    """

    _of = " of this type"

    def __setitem__(self, name: str, value: Any) -> None:
        self.__dict__[name] = value


@entry
class HeteroBatch(HeteroBlocks):
    """A batch of a heterogeneous graph, with the names of PyG's ``HeteroData`` and without its methods.

    ``batch["paper"]`` and ``batch["author", "writes", "paper"]`` are its parts; ``batch.x_dict`` holds ``x`` of every
    type that has it. The same is true of ``edge_index_dict``, ``num_sampled_nodes_dict`` and every other name that ends
    in ``_dict``.

    The part of a node type has ``n_id`` (int64, the user's numbers in this type: the input nodes first, then the other
    nodes in the order of discovery), ``num_nodes``, ``num_sampled_nodes`` (input nodes, then the new nodes of each hop)
    and the rows of every tensor; if the type has input nodes, also ``input_id`` and ``batch_size``. The part of an edge
    type has ``edge_index`` (row 0 the source, row 1 the target, numbered within their types), ``e_id``,
    ``num_sampled_edges`` and the rows of every tensor. Types that the batch did not reach are present and empty.
    """

    def __init__(self, parts: dict[str | EdgeType, TypeBatch], whole: dict[str, Any] | None = None) -> None:
        self._parts, self._whole = parts, whole or {}

    @property
    def node_types(self) -> list[str]:
        """The node types."""
        return [key for key in self._parts if isinstance(key, str)]

    @property
    def edge_types(self) -> list[EdgeType]:
        """The edge types."""
        return [key for key in self._parts if isinstance(key, tuple)]

    def metadata(self) -> tuple[list[str], list[EdgeType]]:
        """Return node types and edge types, as PyG's models take them."""
        return self.node_types, self.edge_types

    def __getitem__(self, key: str | EdgeType) -> TypeBatch:
        return self._parts[key]

    def __contains__(self, key: object) -> bool:
        return key in self._parts

    def __getattr__(self, name: str) -> Any:
        if name in self.__dict__.get("_whole", ()):
            return self._whole[name]
        parts = self.__dict__.get("_parts", {})  # absent while it is being unpickled
        of = name.removesuffix("_dict")
        found = {key: part[of] for key, part in parts.items() if of in part} if of != name else {}
        if not found:
            names = dict.fromkeys(f"{attribute}_dict" for part in parts.values() for attribute in part.keys())  # noqa: SIM118
            raise AttributeError(
                f"the batch has no {name!r}, only its types {', '.join(map(repr, parts))} and {', '.join(names)}"
            )
        return found

    def apply(self, function: Callable[[Tensor], Tensor]) -> HeteroBatch:
        """Return a batch with ``function`` applied to every tensor."""
        made = HeteroBatch(
            {
                key: TypeBatch(
                    **{name: function(value) if isinstance(value, Tensor) else value for name, value in part}
                )
                for key, part in self._parts.items()
            },
            {name: mapped(value, function) for name, value in self._whole.items()},
        )
        carry_edges(edges_of(self), made)
        return made

    def to(self, device: torch.device | str, *, non_blocking: bool = False) -> HeteroBatch:
        """Return a batch whose tensors are on ``device``."""
        return self.apply(lambda tensor: tensor.to(device, non_blocking=non_blocking))

    def pin_memory(self) -> HeteroBatch:
        """Return a batch whose tensors are in pinned memory."""
        return self.apply(Tensor.pin_memory)

    def __repr__(self) -> str:
        parts = (f"  {key!r}: {part!r}" for key, part in self._parts.items())
        return "HeteroBatch(\n" + ",\n".join(parts) + "\n)"
