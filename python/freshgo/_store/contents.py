"""What a store holds, as its manifest says and as it is read from disk."""

from __future__ import annotations

from typing import Any, Literal, NamedTuple, cast

import torch
from torch import Tensor

from freshgo._args import checks, frames, labelled, whole
from freshgo._args.aggregates import Aggregate
from freshgo._args.entry import entry
from freshgo._args.frames import Frames
from freshgo._args.hints import listed, only
from freshgo._args.types import UNNAMED, EdgeType, Types
from freshgo._args.whole import Attributes
from freshgo._native.store import Store as NativeStore
from freshgo.errors import InvalidArgumentError
from freshgo.ids import Ids


class TensorInfo(NamedTuple):
    """A tensor in a store, without its data."""

    dtype: torch.dtype
    shape: tuple[int, ...]
    level: str
    """``"node"`` or ``"edge"``: what the rows belong to."""
    aggregate: Aggregate | None = None
    """How it was computed from others by :func:`freshgo.propagate`; None for the user's own tensors."""
    stored: str | None = None
    """How the numbers are stored, if that is not as ``dtype``: ``"float16"``, ``"int8-per-row"``, ... (``dtype=`` of
    :func:`freshgo.convert`)."""


@entry
class _Stored:
    """What is stored of one type: its tensors."""

    _level: Literal["node", "edge"]

    def __init__(self, native: NativeStore, info: dict[str, Any], place: int, owner: str) -> None:
        self._native, self._info, self._place = native, info, place
        self._owner = owner  # what messages call the type
        self.tensors = _tensors(info["tensors"], self._level)
        """Name, dtype and shape of every tensor."""

    def _described(self, name: str) -> dict[str, Any]:
        """Return what the manifest says of a tensor."""
        for tensor in self._info["tensors"]:
            if tensor["name"] == name:
                return cast(dict[str, Any], tensor)
        raise InvalidArgumentError(f"{self._owner} has no tensor {name!r}{only(name, self.tensors)}")

    def __getitem__(self, name: str) -> Tensor:
        self._described(name)
        return self._native.read(name, kind=self._level, place=self._place)


@entry
class StoredNodes(_Stored):
    """The nodes of one type of a store: ``store["paper"]``. ``store["paper"]["x"]`` reads a tensor."""

    _level = "node"

    def __init__(self, native: NativeStore, info: dict[str, Any], place: int) -> None:
        super().__init__(native, info, place, f"node type {info['name']!r}" if info["name"] else "the store")
        self.splits: dict[str, int] = dict(info["splits"])
        """The number of nodes of every split, by name."""

    @property
    def num_nodes(self) -> int:
        """The number of nodes."""
        return int(self._info["num_nodes"])

    def split(self, name: str) -> Tensor:
        """Read the node ids of a split: int64 ``[size]``."""
        if name not in self.splits:
            raise checks.no_split(self._owner, name, self.splits, self.tensors, checks.NO_STORED_MASK)
        return self._native.read(name, kind="split", place=self._place)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._info['name']!r}, num_nodes={self.num_nodes}, {_listed(self.tensors)})"


@entry
class StoredEdges(_Stored):
    """The edges of one type of a store: ``store["author", "writes", "paper"]``. Indexing it reads a tensor, with its
    rows in the order of the edges that were converted."""

    _level = "edge"

    def __init__(self, native: NativeStore, info: dict[str, Any], place: int) -> None:
        super().__init__(native, info, place, f"edge type {(info['source'], info['relation'], info['target'])}")

    @property
    def edge_type(self) -> EdgeType:
        """The edge type: source, relation, target."""
        return (self._info["source"], self._info["relation"], self._info["target"])

    @property
    def num_edges(self) -> int:
        """The number of edges."""
        return int(self._info["num_edges"])

    @property
    def weight_attr(self) -> str | None:
        """The tensor that is also stored by target, for weighted draws (``weight_attr`` of :func:`freshgo.convert`)."""
        return self._info["weights_of"] or None

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.edge_type}, num_edges={self.num_edges}, {_listed(self.tensors)})"


class Contents:
    """The types of an opened store with their tensors, and the tensors that are attached to the graph as a whole.

    A homogeneous graph has the unnamed node type and edge type.
    """

    def __init__(self, native: NativeStore, info: dict[str, Any]) -> None:
        """``info`` is what ``native`` described when it was opened."""
        self.native, self.info = native, info
        node_types = info["node_types"] or [{**info, "name": UNNAMED[0]}]
        unnamed = dict(zip(("source", "relation", "target"), UNNAMED, strict=True))
        edge_types = info["edge_types"] or [{**info, **unnamed, "tensors": info["edge_tensors"]}]
        nodes = [StoredNodes(native, described, place) for place, described in enumerate(node_types)]
        edges = [StoredEdges(native, described, place) for place, described in enumerate(edge_types)]
        self.nodes = {of._info["name"]: of for of in nodes}
        self.edges = {of.edge_type: of for of in edges}
        self.attachments = {array["name"]: array for array in info["attachments"]}
        self.types = Types({name: of.num_nodes for name, of in self.nodes.items()}, list(self.edges))

    def nodes_of(self, node_type: str) -> StoredNodes:
        """Return the nodes of a type of a heterogeneous graph."""
        if self.types.homogeneous:
            raise InvalidArgumentError(f"the store is homogeneous, got the node type {node_type!r}")
        if node_type not in self.nodes:
            raise InvalidArgumentError(f"the store has no node type {node_type!r}{only(node_type, self.nodes)}")
        return self.nodes[node_type]

    def edges_of(self, edge_type: EdgeType) -> StoredEdges:
        """Return the edges of a type of a heterogeneous graph."""
        if self.types.homogeneous:
            raise InvalidArgumentError(f"the store is homogeneous, got the edge type {edge_type!r}")
        if edge_type not in self.edges:
            raise InvalidArgumentError(f"the store has no edge type {edge_type!r}{only(edge_type, self.edges)}")
        return self.edges[edge_type]

    def of_type(self, of: str | EdgeType) -> StoredNodes | StoredEdges:
        """Return the nodes or the edges of a type of a heterogeneous graph."""
        return self.edges_of(of) if isinstance(of, tuple) else self.nodes_of(of)

    def tensors(self) -> dict[str, TensorInfo]:
        """Return the tensors of a homogeneous graph; none of a heterogeneous one."""
        return {**self.nodes[""].tensors, **self.edges[UNNAMED].tensors} if self.types.homogeneous else {}

    def owner(self, name: str, of: str | EdgeType | None) -> StoredNodes | StoredEdges:
        """Return the nodes or edges that have a tensor: of the type ``of``, or in a homogeneous graph of either."""
        if of is not None:
            return self.of_type(of)
        if not self.types.homogeneous:
            raise InvalidArgumentError(
                f"the tensor {name!r} needs its node type or edge type, one of {listed(self.nodes)}, "
                f"{listed(self.edges)}"
            )
        tensors = self.tensors()
        if name not in tensors:
            raise InvalidArgumentError(f"the store has no tensor {name!r}{only(name, tensors)}")
        return self.nodes[""] if tensors[name].level == "node" else self.edges[UNNAMED]

    def attached(self, name: str) -> Tensor:
        """Read an attached tensor into memory."""
        return self.native.read_rows(name, 0, self.attachments[name]["shape"][0])

    def attributes(self) -> Attributes:
        """Read the attributes of the graph, and of its types, as a whole, by owner."""
        if whole.ATTACHMENT not in self.attachments:
            return {}
        return whole.read(self.attached(whole.ATTACHMENT), self.attached)

    def frames(self) -> Frames:
        """Read the TensorFrames of nodes, by node type and name."""
        return frames.read(self.attached(frames.ATTACHMENT)) if frames.ATTACHMENT in self.attachments else {}

    def keys(self, name: str, lack: str) -> Ids:
        """Open the attached keys with a name. Without them, raise an error with the message ``lack``."""
        if name not in self.attachments and f"{name}/ends" not in self.attachments:
            raise InvalidArgumentError(lack)
        return Ids(self.native, name, self.attachments)

    def link_arrays(self, split: str) -> dict[str, str]:
        """Return the attachments of a split of links, by the names without it."""
        prefix = f"{labelled.PREFIX}{split}/"
        return {name.removeprefix(prefix): name for name in self.attachments if name.startswith(prefix)}

    def link_types(self, split: str) -> list[EdgeType]:
        """Return the edge types that a split has links of."""
        arrays = self.link_arrays(split)
        return [edge_type for edge_type in self.edges if labelled.of_type(arrays, edge_type)]


def _tensors(described: list[dict[str, Any]], level: str) -> dict[str, TensorInfo]:
    return {
        t["name"]: TensorInfo(
            getattr(torch, t["dtype"]),
            tuple(t["shape"]),
            level,
            Aggregate.of(t["name"], t.get("aggregate")),
            t["stored"] if t["error"] is not None else None,
        )
        for t in described
    }


def _listed(tensors: dict[str, TensorInfo]) -> str:
    return f"tensors=[{', '.join(tensors)}]"
