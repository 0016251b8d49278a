"""A graph on disk."""

from __future__ import annotations

import math
import os
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor

from freshgo._args import labelled
from freshgo._args.entry import entry
from freshgo._args.hints import listed, only
from freshgo._args.progress import Progress, finish, progress_of
from freshgo._args.types import UNNAMED, EdgeType, counts_shown
from freshgo._native import abi
from freshgo._native.store import Store as NativeStore
from freshgo._store.contents import Contents, StoredEdges, StoredNodes, TensorInfo
from freshgo.errors import DTypeError, InvalidArgumentError
from freshgo.ids import Ids

if TYPE_CHECKING:
    from freshgo._args.versions import StoreVersion

__all__ = ["QuantizationError", "Store", "StoredEdges", "StoredNodes", "TensorInfo", "quantization_error"]


class QuantizationError(NamedTuple):
    """How much storing a tensor in fewer bytes changed its finite numbers."""

    max: float
    """The largest difference from the number that was converted."""
    rmse: float
    """The root of the mean square difference."""
    relative: float
    """``rmse`` as a share of the root of the mean square number; 0 if nothing differs."""


@entry
def quantization_error(store: Store, name: str, of: str | EdgeType | None = None) -> QuantizationError:
    """Return how much :func:`freshgo.convert` changed a tensor by storing it in fewer bytes (its ``dtype``).

    Args:
        store: a store.
        name: a tensor of floats. A tensor that is stored unchanged has an error of 0.
        of: in a heterogeneous graph, the node type or edge type of the tensor.

    Raises:
        InvalidArgumentError: there is no such tensor.
        DTypeError: the tensor does not hold floats, or ``store`` is not a store.
    """
    if not isinstance(store, Store):
        raise DTypeError(f"store must be a freshgo.Store, got {type(store).__name__}")
    described = store._contents.owner(name, of)._described(name)
    if not getattr(torch, described["dtype"]).is_floating_point:
        raise DTypeError(f"the tensor {name!r} holds {described['dtype']}, expected floats")
    error = described["error"]
    if error is None:
        return QuantizationError(0.0, 0.0, 0.0)
    count = max(1, torch.Size(described["shape"]).numel())
    square, values = error["sum_square_error"], error["sum_square_values"]
    return QuantizationError(error["max"], math.sqrt(square / count), math.sqrt(square / values) if square else 0.0)


@entry
class Store:
    """A graph on disk, opened for reading.

    ``store["x"]`` reads a whole tensor into memory, ``store.split("train")`` the node ids of a split; a
    :class:`~freshgo.Loader` reads batches. Opening checks the header, the sizes and the version; :meth:`verify` checks
    every byte.

    In a heterogeneous graph (:attr:`node_types`, :attr:`edge_types`), ``store["paper"]`` is everything stored for a
    node type and ``store["author", "writes", "paper"]`` for an edge type. ``store["paper"]["x"]`` and ``store.read("x",
    "paper")`` read a tensor, ``store.split("train", "paper")`` a split.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        native = NativeStore(path)
        self._contents = Contents(native, native.describe())

    @classmethod
    def open(cls, path: str | os.PathLike[str]) -> Store:
        """Open the store at ``path``.

        Raises:
            StoreNotFoundError: there is nothing at ``path``.
            FormatError: it is not a store. VersionError: it was written by a newer freshgo.
            CorruptError: a file is truncated or the header does not match its checksum.
            StorePermissionError, ReadError: the operating system refused.
        """
        return cls(path)

    @property
    def path(self) -> str:
        """The absolute path of the store; where a symbolic link led to it, the path behind the link."""
        return str(self._contents.info["path"])

    @property
    def uuid(self) -> str:
        """Identifies the content: every conversion, relayout, update and append makes a new one."""
        return str(self._contents.info["uuid"])

    @property
    def version(self) -> int:
        """How often the store was written: 1 as it was converted, and one more for each relayout, update, append and
        propagation since. :attr:`history` says what they were."""
        return len(self._contents.info["history"])

    @property
    def history(self) -> list[StoreVersion]:
        """How the versions of the store came about, the conversion first. It says nothing of stores with which files
        are shared, and is no part of what checksums are compared with."""
        from freshgo._args.versions import StoreVersion

        return StoreVersion.of(self._contents.info["history"])

    @property
    def num_nodes(self) -> int:
        """The number of nodes, of all node types together."""
        return int(self._contents.info["num_nodes"])

    @property
    def num_edges(self) -> int:
        """The number of edges, of all edge types together."""
        return int(self._contents.info["num_edges"])

    @property
    def node_types(self) -> list[str]:
        """The node types; empty for a homogeneous graph."""
        return [] if self._contents.types.homogeneous else self._contents.types.node_types

    @property
    def edge_types(self) -> list[EdgeType]:
        """The edge types (source, relation, target); empty for a homogeneous graph."""
        return [] if self._contents.types.homogeneous else list(self._contents.edges)

    def metadata(self) -> tuple[list[str], list[EdgeType]]:
        """Return node types and edge types, as PyG's models take them."""
        return self.node_types, self.edge_types

    @property
    def num_nodes_dict(self) -> dict[str, int]:
        """The number of nodes of every type; empty for a homogeneous graph."""
        return {name: self._contents.nodes[name].num_nodes for name in self.node_types}

    @property
    def num_edges_dict(self) -> dict[EdgeType, int]:
        """The number of edges of every type; empty for a homogeneous graph."""
        return {name: self._contents.edges[name].num_edges for name in self.edge_types}

    @property
    def reordered(self) -> bool:
        """Whether rows of node tensors are stored in an order of their own (:func:`freshgo.relayout`). This does not
        change ids, batches, or what is read."""
        return any(nodes._info["order"] is not None for nodes in self._contents.nodes.values())

    @property
    def weight_attr(self) -> str | None:
        """The edge tensor that is also stored by target, for weighted draws (``weight_attr`` of
        :func:`freshgo.convert`). In a heterogeneous graph it is None: see ``store["author", "writes",
        "paper"].weight_attr``."""
        return self._contents.info["weights_of"] or None

    @property
    def tensors(self) -> dict[str, TensorInfo]:
        """Name, dtype and shape of every tensor. Batches bring all of them except those that
        :func:`freshgo.propagate` has computed. In a heterogeneous graph it is empty: see ``store["paper"].tensors``."""
        return self._contents.tensors()

    @property
    def splits(self) -> dict[str, Any]:
        """The number of nodes of every split, by name: ``{"train": 90}``. In a heterogeneous graph, these by the node
        types that have splits: ``{"paper": {"train": 90}}``."""
        if self._contents.types.homogeneous:
            return dict(self._contents.nodes[""].splits)
        return {node_type: dict(nodes.splits) for node_type, nodes in self._contents.nodes.items() if nodes.splits}

    def attributes(self, of: str | EdgeType | None = None) -> dict[str, Any]:
        """Read what belongs to the graph as a whole, by name: tensors such as ``class_weights``, numbers, strings, and
        lists, tuples and dicts of them. Every batch has these. In a heterogeneous graph, a type may have such
        attributes, too: ``store.attributes("paper")``.

        Raises:
            InvalidArgumentError: there is no such type.
            CorruptError, ReadError: the store is damaged or cannot be read.
        """
        if of is not None:
            self._contents.of_type(of)
        return self._contents.attributes().get("" if self._contents.types.homogeneous and of is None else of, {})

    def split(self, name: str, node_type: str | None = None) -> Tensor:
        """Read the node ids of a split: int64 ``[size]``. A heterogeneous graph needs the ``node_type``."""
        if node_type is None and not self._contents.types.homogeneous:
            raise InvalidArgumentError(f"the split {name!r} needs its node type, one of {listed(self._contents.nodes)}")
        return (self._contents.nodes[""] if node_type is None else self._contents.nodes_of(node_type)).split(name)

    def ids(self, node_type: str = "") -> Ids:
        """Return the keys that the nodes of a type had in the tables that :func:`freshgo.convert_tables` read: of
        nodes as keys, ``store.ids("user").keys(batch["user"].n_id)``, and of keys as nodes, ``store.ids("user")
        .lookup(keys)``. A homogeneous graph needs no ``node_type``.

        Raises:
            InvalidArgumentError: the store has no such type, or no keys: it was not converted from tables.
        """
        nodes = (
            self._contents.nodes[""]
            if self._contents.types.homogeneous and not node_type
            else self._contents.nodes_of(node_type)
        )
        return self._contents.keys(f"ids/{node_type}", f"{nodes._owner} has no keys: it was not converted from tables")

    def categories(self, column: str, of: str | EdgeType = "") -> list[str]:
        """Return the values of a column of strings, which :func:`freshgo.convert_tables` stored as their places in this
        list. ``of`` is the type of the table: a node type, or an edge type; of a homogeneous graph the column of nodes
        or, if they have none of this name, of edges.

        Raises:
            InvalidArgumentError: there is no such column of strings.
        """
        owners: list[str | EdgeType] = ["", UNNAMED] if self._contents.types.homogeneous and not of else [of]
        if isinstance(of, tuple) and len(of) == 3:
            owners.append((of[0], "*", of[2]))  # relations of one table share its categories
        names = [f"categories/{owner if isinstance(owner, str) else '__'.join(owner)}/{column}" for owner in owners]
        name = next((name for name in names if f"{name}/ends" in self._contents.attachments), names[0])
        what = f"the store has no column of strings {column!r}{f' of {of!r}' if of else ''}"
        if f"{name}/ends" not in self._contents.attachments:
            parts = [one.split("/") for one in self._contents.attachments if one.startswith("categories/")]
            prefixes = [one.split("/")[1] for one in names]
            what += only(column, dict.fromkeys(part[2] for part in parts if part[1] in prefixes))
        book = self._contents.keys(name, what)
        keys = book.keys(range(len(book)))
        assert isinstance(keys, list)
        return keys

    @property
    def link_splits(self) -> list[str]:
        """The splits of links: the labelled links of graphs (``links=`` of :func:`freshgo.convert`), and those that a
        source had, such as OGB's data sets for link prediction."""
        names = (name.split("/") for name in self._contents.attachments)
        return list(dict.fromkeys(parts[1] for parts in names if parts[0] == "links"))

    def links(self, split: str, edge_type: EdgeType | None = None) -> dict[str, Tensor]:
        """Read the arrays of a split of links into memory, under the names that their source gave them.

        Of labelled links these are PyG's: ``edge_label_index`` (``[2, links]``), ``edge_label`` and
        ``edge_label_time`` (a row for each), or ``pos_edge_label_index`` and so on. Of OGB they are ``edge`` and
        ``edge_neg`` (int64 ``[links, 2]``), ``source_node``, ``head``, ..., as ``get_edge_split`` has them; strings
        that name node types are their places in ``node_types``. ``LinkLoader(store, ..., edge_label_index="train")``
        takes the split by name.

        Args:
            split: one of :attr:`link_splits`.
            edge_type: in a heterogeneous graph, only the links of this type, under these names. None returns the links
                of every type, with the type in the names: ``"user:rates:item/edge_label_index"``.

        Raises:
            InvalidArgumentError: there is no such split, or no such edge type.
            CorruptError, ReadError: the store is damaged or cannot be read.
        """
        if split not in self.link_splits:
            raise InvalidArgumentError(f"the store has no split of links {split!r}{only(split, self.link_splits)}")
        names = self._contents.link_arrays(split)
        if edge_type is not None:
            names = labelled.of_type(
                names, self._contents.edges_of(edge_type).edge_type if self.edge_types else UNNAMED
            )
        return {name: labelled.loaded(name, self._contents.attached(full)) for name, full in names.items()}

    def read(self, name: str, of: str | EdgeType | None = None) -> Tensor:
        """Read a whole tensor: all rows, in the user's order. In a heterogeneous graph, that of the type ``of``."""
        return self._contents.owner(name, of)[name]

    def __getitem__(self, key: str | EdgeType) -> Any:
        if self._contents.types.homogeneous and not isinstance(key, tuple):
            return self.read(key)
        return self._contents.of_type(key)

    def verify(self, *, progress: bool | Progress = False) -> None:
        """Read every block and compare it with its checksum.

        Raises:
            CorruptError: names the first damaged file and the offset in it.
        """
        with progress_of(progress) as report:
            self._contents.native.verify(report)

    def inspect(self) -> str:
        """Describe the store in a few lines."""
        from freshgo._args.described import describe

        return describe(self._contents.info)

    def close(self) -> None:
        """Close the store; every later use raises ClosedError. Closing again does nothing."""
        self._contents.native.close()

    @property
    def closed(self) -> bool:
        """Whether :meth:`close` was called."""
        return self._contents.native.closed

    def __enter__(self) -> Store:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __reduce__(self) -> Any:
        return _arrived, (self.path, self._contents.info)

    def __repr__(self) -> str:
        state = ", closed" if self.closed else ""
        counts = counts_shown(self._contents.types, lambda edge_type: self._contents.edges[edge_type].num_edges)
        return f"Store({self.path!r}, {counts}{state})"


def written(path: str | os.PathLike[str], report: Progress | None) -> Store:
    """Open a store that was just written, and let the bar end with a line about it."""
    from freshgo._args.described import summarise

    store = Store.open(path)
    finish(report, store.path, summarise(store._contents.info))
    return store


def opened(store: Store | str | os.PathLike[str]) -> AbstractContextManager[Store]:
    """Give a store as it is, or the one at a path, which is closed in the end."""
    return nullcontext(store) if isinstance(store, Store) else Store.open(store)


def store_over(native: NativeStore, info: dict[str, Any]) -> Store:
    """Return a store over a native one that is open, described by ``info``."""
    store = Store.__new__(Store)
    store._contents = Contents(native, info)
    return store


def _arrived(path: str, info: dict[str, Any]) -> Store:
    """Open a pickled store in the process that received it.

    A forked child cannot, and learns so when it first uses the store: if this raised, a worker of
    ``multiprocessing.Pool`` would end without any message.
    """
    return store_over(NativeStore._adopt(None), info) if abi.forked() else Store(path)
