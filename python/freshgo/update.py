"""Stores with some tensors replaced, added or left out, without a copy of the rest."""

from __future__ import annotations

import os
import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import torch

from freshgo._args import checks, whole
from freshgo._args.arrays import Array, NpyFile
from freshgo._args.entry import entry
from freshgo._args.hints import among
from freshgo._args.named import as_array, check_name, named_arrays, named_splits
from freshgo._args.parts import EdgeParts, GraphParts, NodeParts
from freshgo._args.progress import Progress, progress_of
from freshgo._args.size import parse_size
from freshgo._args.types import UNNAMED, EdgeType, label_of
from freshgo._data import link_splits
from freshgo._native import convert as native_convert
from freshgo.errors import DTypeError, InvalidArgumentError
from freshgo.store import Store, StoredEdges, StoredNodes, opened, written

__all__ = ["update"]


@entry
def update(
    store: Store | str | os.PathLike[str],
    path: str | os.PathLike[str],
    *,
    tensors: Mapping[Any, Any] | None = None,
    splits: Mapping[str, Any] | None = None,
    links: Mapping[str, Any] | None = None,
    attributes: Mapping[Any, Any] | None = None,
    drop: Sequence[str] | Mapping[Any, Sequence[str]] = (),
    memory: int | str = "1GiB",
    overwrite: bool = False,
    progress: bool | Progress = True,
) -> Store:
    """Write a store at ``path`` that is ``store`` with some tensors and splits replaced, added or left out.

        store = update("papers.freshgo", "papers2.freshgo", tensors={"emb": "embeddings.npy"}, drop=["x"])

    What stays is not written again. On file systems that can do so, its files share their blocks with those of
    ``store`` (reflinks), otherwise they are second names of them (hard links), and where neither is possible, as on
    another disk, they are copied. No file of a store is ever written again once it is complete, so either store can be
    changed or removed without the other. Nodes and edges are added by :func:`freshgo.append`, and removed by a
    conversion only. New rows are stored in the order in which :func:`freshgo.relayout` has put those of the store.

    A tensor that :func:`freshgo.propagate` has computed is left out if what it was computed from changes.

    Args:
        store: an open store, or the path of one.
        path: the directory to create; with ``overwrite`` it may be that of ``store``.
        tensors: arrays, or paths of ``.npy`` files, by name, with a row for each node or edge: ``{"x": x}``. A name
            that the store has stays with nodes or edges, another is sorted as in :func:`freshgo.convert`. In a
            heterogeneous graph by type: ``{"paper": {"x": x}, ("author", "writes", "paper"): {"time": time}}``.
        splits: node ids or bool masks by name; in a heterogeneous graph by node type.
        links: graphs by name, such as ``{"val": val_data, "test": test_data}`` of PyG's ``RandomLinkSplit``, from which
            the labelled links alone are taken: ``store.links("val")``. The edges of the store stay its own. Or, by
            name, a mapping with ``edge_label_index``, ``edge_label`` and ``edge_label_time``, in a heterogeneous graph
            by edge type. None leaves out a split of links.
        attributes: what belongs to the graph as a whole, by name (:meth:`Store.attributes`): numbers, strings, tensors
            of any shape, and lists, tuples and dicts of these: ``{"class_weights": weights}``. In a heterogeneous graph
            the attributes of a type are given as ``{"paper": {"mean": mean}}``. None leaves one out.
        drop: names of tensors, splits and attributes to leave out; in a heterogeneous graph by type.
        memory: bytes, or a string such as ``"8GiB"``. Where rows are in an order of their own, 4 bytes a node are
            needed while tensors of nodes are written.
        overwrite: replace a store that is at ``path``; it stays valid until the new one is complete.
        progress: show a bar, then what was written; or a callable, called with ``(stage, done, total)``.

    Returns:
        The new store, opened.

    Raises:
        InvalidArgumentError: rows that do not fit, a type or a name to drop that the store does not have, a name that
            is both given and dropped, or is both a tensor and an attribute, the tensor that ``weight_attr`` of
            :func:`freshgo.convert` stored by target too.
        DTypeError: dtypes that cannot be used.
        StoreExistsError, BudgetError, BusyError, StoreNotFoundError, FormatError, CorruptError, StorePermissionError,
            ReadError, WriteError: as for :func:`freshgo.convert`.
    """
    n_bytes, replace = parse_size("memory", memory), checks.flag("overwrite", overwrite)
    with opened(store) as source:
        changes = _Changes(source)
        changes.add_tensors({} if tensors is None else tensors)
        changes.add_splits({} if splits is None else splits)
        changes.add_links({} if links is None else links)
        changes.add_attributes({} if attributes is None else attributes)
        changes.add_drops(drop)
        changes.attach_attributes()
        with progress_of(progress) as report:
            native_convert.update(
                source._contents.native,
                path,
                changes.parts,
                changes.drops,
                memory=n_bytes,
                overwrite=replace,
                attachments=changes.attachments,
                progress=report,
            )
            return written(path, report)


class _Changes:
    """What is given, by type."""

    def __init__(self, store: Store) -> None:
        self._store, self._contents = store, store._contents
        self._flat = store._contents.types.homogeneous
        self.parts = GraphParts({}, {})
        self.drops: list[tuple[str, int, str]] = []
        """Kind, place among the types of ``parts``, and name."""
        self.attachments: dict[str, Array] = {}
        self._kept = self._contents.attributes()
        self._changed = False  # of these

    def add_tensors(self, given: Any) -> None:
        for key, items in self._by_type("tensors", given):
            label = label_of(key)
            for name in items:
                if not isinstance(name, str):
                    raise DTypeError(f"the keys of {label}tensors must be names, got {checks.shown(name)}")
                check_name(name, f"the name {label + name!r}")
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # of what is no array: that is an error here
                arrays = named_arrays(dict(items), label)
            for name in items:
                if name not in arrays:
                    raise DTypeError(f"{label}{name} must be an array with rows or a path to a .npy file")
            for name, array in arrays.items():
                owner = self._owner(key, name, array)
                self._check_frames(owner, name, array)
                part = self._nodes(owner) if isinstance(owner, str) else self._edges(owner)
                part.tensors[name] = array

    def _check_frames(self, owner: str | EdgeType, name: str, array: Array) -> None:
        """Check that columns of a TensorFrame stay as many as they are."""
        for frame_name, frame in self._contents.frames().get(owner if isinstance(owner, str) else "", {}).items():
            width = frame.widths(frame_name).get(name)
            if isinstance(owner, str) and width is not None and (len(array.shape) < 2 or array.shape[1] != width):
                raise InvalidArgumentError(
                    f"{label_of(owner)}{name} has shape {list(array.shape)}, but is part of the TensorFrame "
                    f"{frame_name!r}: expected rows of {width}"
                )

    def add_splits(self, given: Any) -> None:
        for key, items in self._by_type("splits", given):
            if isinstance(key, tuple) and not self._flat:
                raise InvalidArgumentError(f"splits are of nodes, got the edge type {key!r}")
            node_type = key if isinstance(key, str) else ""
            self._nodes(node_type).splits.update(named_splits(items, label_of(node_type)))

    def add_links(self, given: Any) -> None:
        if not isinstance(given, Mapping):
            raise DTypeError(f"links must be a mapping from names to graphs, got {checks.shown(given)}")
        kept = {name: value for name, value in given.items() if value is not None}
        self.attachments.update(
            link_splits.further(kept, self._contents.types.num_nodes, self._contents.types.edge_types)
        )
        for name in given:
            if name not in kept and name not in self._store.link_splits:
                known = among(name, self._store.link_splits)
                raise InvalidArgumentError(
                    f"links={{{name!r}: None}} drops a split of links that the store does not have; it has {known}"
                )
            gone = [full for full in self._contents.link_arrays(name).values() if full not in self.attachments]
            self.drops += [("attachment", 0, full) for full in gone]

    def add_attributes(self, given: Any) -> None:
        if not isinstance(given, Mapping):
            raise DTypeError(f"attributes must be a mapping from names to values, got {checks.shown(given)}")
        for key, value in given.items():
            if self._flat:
                self._change("", key, value)
            elif isinstance(key, tuple) or key in self._contents.nodes:
                self._contents.of_type(key)
                if not isinstance(value, Mapping):
                    raise DTypeError(f"attributes[{key!r}] must be a mapping, got {checks.shown(value)}")
                for name, own in value.items():
                    self._change(key, name, own)
            else:
                self._change(None, key, value)

    def _change(self, owner: whole.Owner, name: Any, value: Any) -> None:
        """Replace, add or leave out one attribute."""
        label = "" if owner is None else label_of(owner)
        if not isinstance(name, str):
            raise DTypeError(f"the names in attributes must be strings, got {checks.shown(name)}")
        check_name(name, f"the name {label + name!r}")
        of, self._changed = self._kept.setdefault(owner, {}), True
        if value is None:
            if name not in of:
                raise InvalidArgumentError(
                    f"attributes={{{label + name!r}: None}} drops an attribute that the store does not have; it has "
                    f"{among(name, of)}"
                )
            del of[name]
            return
        array = as_array(f"{label}{name}", value)
        of[name] = array if isinstance(array, NpyFile) else value
        if not whole.is_plain(of[name]):
            raise DTypeError(
                f"{label}{name} must be a number, a string, a tensor, or a list, tuple or dict of these, got "
                f"{checks.shown(value)}"
            )

    def attach_attributes(self) -> None:
        """Write all attributes again if one has changed; they are small."""
        for owner, of in self._kept.items():
            for name in of:
                if name in self._tensors_after(owner):
                    label = "" if owner is None else label_of(owner)
                    raise InvalidArgumentError(
                        f"{label + name!r} is both a tensor and an attribute: drop one of them, by drop= or by "
                        f"attributes={{{name!r}: None}}"
                    )
        if not self._changed:
            return
        self.attachments.update(whole.written(self._kept))
        gone = [name for name in self._contents.attachments if whole.is_attached(name) and name not in self.attachments]
        self.drops += [("attachment", 0, name) for name in gone]

    def _tensors_after(self, owner: whole.Owner) -> set[str]:
        """The names of the tensors of a type after the update."""
        if owner is None:
            return set()
        names: set[str] = set()
        types = ("", UNNAMED) if self._flat else (owner,)
        for of in types:
            stored = self._contents.nodes[of] if isinstance(of, str) else self._contents.edges[of]
            parts: Any = self.parts.nodes.get(of) if isinstance(of, str) else self.parts.edges.get(of)
            names |= set(stored.tensors) | set(parts.tensors if parts else ())
        return names - {name for kind, _, name in self.drops if kind in ("node", "edge")}

    def add_drops(self, given: Any) -> None:
        if isinstance(given, str):
            raise DTypeError(f"drop must be a list of names, got {given!r}")
        for key, names in self._by_type("drop", given, Sequence):
            for name in names:
                self._drop(key, name)

    def _by_type(self, what: str, given: Any, kind: type = Mapping) -> list[tuple[Any, Any]]:
        """What is given of each type, whose names are checked."""
        if self._flat:
            if not isinstance(given, kind):
                raise DTypeError(f"{what} must be a {kind.__name__.lower()}, got {checks.shown(given)}")
            return [("", given)]
        if not isinstance(given, Mapping):
            if isinstance(given, Sequence) and not given:
                return []
            raise DTypeError(f"{what} must be a mapping from types in a heterogeneous graph, got {checks.shown(given)}")
        for key, items in given.items():
            self._contents.of_type(key)
            if not isinstance(items, kind):
                raise DTypeError(f"{what}[{key!r}] must be a {kind.__name__.lower()}, got {checks.shown(items)}")
        return list(given.items())

    def _owner(self, key: Any, name: str, array: Array) -> str | EdgeType:
        """The type that a tensor belongs to: in a homogeneous graph what its name or its rows tell."""
        if not self._flat:
            owner: str | EdgeType = key
            return owner
        if name in self._store.tensors:
            return "" if self._store.tensors[name].level == "node" else UNNAMED
        rows, num_nodes, num_edges = int(array.shape[0]), self._store.num_nodes, self._store.num_edges
        if rows not in (num_nodes, num_edges):
            raise InvalidArgumentError(
                f"{name!r} has shape {list(array.shape)}, but the store has {num_nodes} nodes and {num_edges} edges: "
                f"expected one row per node or one per edge, or attributes={{{name!r}: ...}} for the graph as a whole"
            )
        return UNNAMED if rows == num_edges and (rows != num_nodes or "edge" in name) else ""

    def _drop(self, key: Any, name: str) -> None:
        stored: list[StoredNodes | StoredEdges] = (
            [self._contents.nodes[""], self._contents.edges[UNNAMED]] if self._flat else [self._contents.of_type(key)]
        )
        owner: whole.Owner = "" if self._flat else key
        for of in stored:
            if isinstance(of, StoredNodes) and (name in of.tensors or name in of.splits):
                self._nodes(of._info["name"])
                place = list(self.parts.nodes).index(of._info["name"])
                self.drops += [("node", place, name)] if name in of.tensors else []
                self.drops += [("split", place, name)] if name in of.splits else []
                return
            if isinstance(of, StoredEdges) and name in of.tensors:
                edge_type = UNNAMED if self._flat else of.edge_type
                self._edges(edge_type)
                self.drops.append(("edge", list(self.parts.edges).index(edge_type), name))
                return
        if name in self._kept.get(owner, {}):
            del self._kept[owner][name]
            self._changed = True
            return
        names = [one for of in stored for one in (*of.tensors, *getattr(of, "splits", ()))]
        known = among(name, [*names, *self._kept.get(owner, {})])
        raise InvalidArgumentError(f"drop names {checks.shown(name)}, which the store does not have; it has {known}")

    def _nodes(self, node_type: str) -> NodeParts:
        count = self._contents.nodes[node_type].num_nodes
        return self.parts.nodes.setdefault(node_type, NodeParts(count, {}, {}))

    def _edges(self, edge_type: EdgeType) -> EdgeParts:
        return self.parts.edges.setdefault(edge_type, EdgeParts(torch.empty((2, 0), dtype=torch.long), {}))
