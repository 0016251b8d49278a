"""What a loader yields: a sampled subgraph with its rows."""

from __future__ import annotations

import dataclasses
import importlib.util
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from freshgo._graph import Known, Transposed, recall, remember


@dataclasses.dataclass(frozen=True)
class Block:
    """One layer's message passing, from ``num_src`` nodes to the first ``num_dst`` of them.

    Both ends are numbered as in the batch, so the targets of a block are its first ``num_dst``
    sources, and the sources of the next block are the targets of this one.
    """

    num_src: int
    num_dst: int
    ptr: Tensor
    """int64 ``[num_dst + 1]``: the edges of target ``t`` are ``ptr[t]`` to ``ptr[t + 1]`` (CSC)."""
    edge_index: Tensor
    """int64 ``[2, num_edges]``: row 0 the source, row 1 the target; targets do not decrease."""
    e_id: Tensor | None
    """int64 ``[num_edges]``: the user's edge numbers; None of random walks, whose edges are not the graph's."""
    transposed: Transposed | None = None
    """The batch's edges grouped by source, of which :mod:`freshgo.ops` uses this block's; from ``transpose=True``."""
    edge_weight: Tensor | None = None
    """float32 ``[num_edges]``: what LABOR and random walks say of each edge; None of other samplers."""

    @property
    def index(self) -> Tensor:
        """int64 ``[num_edges]``: the source of each edge, as CSC wants it beside ``ptr``."""
        return self.edge_index[0]

    @property
    def num_edges(self) -> int:
        """The number of edges in this block."""
        return self.edge_index.size(1)


class Blocks:
    """Gives a batch its per-layer view; see :meth:`blocks`."""

    edge_index: Tensor
    num_sampled_nodes: list[int]
    num_sampled_edges: list[int]

    def blocks(self) -> list[Block]:
        """Return one bipartite :class:`Block` per layer, in the order a model applies them.

        The first block leads from all sampled nodes to those that later layers still need, the
        last one ends at the seeds. Computing each layer only on its block gives the seeds the
        same result as computing every layer on the whole batch, for less work::

            h = batch.x
            for conv, block in zip(model.convs, batch.blocks()):
                h = conv((h, h[: block.num_dst]), block.edge_index)
        """
        targets = sum(self.num_sampled_nodes[:-1])
        known = recall(self.edge_index)
        if known is not None and known.ptr is not None:
            ptr = known.ptr
        else:  # Targets do not decrease, so a binary search finds where each one's edges begin.
            ptr = torch.searchsorted(
                self.edge_index[1].contiguous(),
                torch.arange(targets + 1, device=self.edge_index.device),
            )
        e_id, edge_weight = (getattr(self, name, None) for name in ("e_id", "edge_weight"))
        blocks = []
        for hop in reversed(range(len(self.num_sampled_edges))):
            num_dst = sum(self.num_sampled_nodes[: hop + 1])
            num_edges = sum(self.num_sampled_edges[: hop + 1])
            blocks.append(
                Block(
                    num_src=num_dst + self.num_sampled_nodes[hop + 1],
                    num_dst=num_dst,
                    ptr=ptr[: num_dst + 1],
                    edge_index=self.edge_index[:, :num_edges],
                    e_id=None if e_id is None else e_id[:num_edges],
                    edge_weight=None if edge_weight is None else edge_weight[:num_edges],
                    transposed=None if known is None else known.transposed,
                )
            )
        return blocks


class Batch(Blocks):
    """A batch where PyG is not installed: the same attributes, without PyG's methods.

    Attributes are ``n_id``, ``edge_index``, ``e_id``, ``input_id``, ``batch_size``, ``num_nodes``,
    ``num_sampled_nodes``, ``num_sampled_edges`` and every node-level and edge-level tensor of the
    graph. ``batch["x"]`` is ``batch.x``; iterating gives ``(name, value)`` pairs.
    """

    def __init__(self, **values: Any) -> None:
        self.__dict__.update(values)

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(f"the batch has no {name!r}, only {', '.join(self.__dict__)}")

    def __getitem__(self, name: str) -> Any:
        return self.__dict__[name]

    def __contains__(self, name: str) -> bool:
        return name in self.__dict__

    def keys(self) -> list[str]:
        """Return the names of the attributes."""
        return list(self.__dict__)

    def __iter__(self) -> Iterator[tuple[str, Any]]:
        return iter(self.__dict__.items())

    def to(self, device: torch.device | str, *, non_blocking: bool = False) -> Batch:
        """Return a batch whose tensors are on ``device``."""
        return Batch(
            **{
                name: value.to(device, non_blocking=non_blocking) if isinstance(value, Tensor) else value
                for name, value in self
            }
        )

    def __repr__(self) -> str:
        parts = (f"{name}={list(value.shape) if isinstance(value, Tensor) else value}" for name, value in self)
        return f"Batch({', '.join(parts)})"


def batch_class() -> type[Any]:
    """Return what batches are made of: PyG's Data with ``blocks()``, or :class:`Batch`."""
    if importlib.util.find_spec("torch_geometric") is None:
        return Batch
    from freshgo.pyg import Data

    return Data


def make_batch(cls: type[Any], num_seeds: int, tensors: dict[str, Tensor], edge_index: str = "tensor") -> Any:
    """Arrange the tensors of a native batch as PyG does."""
    ptr = tensors.pop("ptr")  # stays beside edge_index, as long as that is the tensor it is now
    by_source = [tensors.pop(name, None) for name in ("source_ptr", "source_target", "source_edge")]
    transposed = None if by_source[0] is None else Transposed(*by_source)  # type: ignore[arg-type]  # all or none
    if edge_index == "EdgeIndex":
        from freshgo.pyg import make_edge_index

        tensors["edge_index"] = make_edge_index(tensors["edge_index"], tensors["n_id"].numel(), ptr, transposed)
    remember(tensors["edge_index"], Known(tensors["edge_index"], ptr, transposed))
    values: dict[str, Any] = dict(tensors)
    for counts in ("num_sampled_nodes", "num_sampled_edges"):
        values[counts] = values[counts].tolist()
    return cls(batch_size=num_seeds, num_nodes=tensors["n_id"].numel(), **values)
