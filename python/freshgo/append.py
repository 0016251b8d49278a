"""Stores with further nodes and edges, without a conversion of everything."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from freshgo._args import checks
from freshgo._args.arrays import Array
from freshgo._args.entry import entry
from freshgo._args.frames import Frame
from freshgo._args.parts import GraphParts, edge_parts, node_parts
from freshgo._args.progress import Progress, progress_of
from freshgo._args.size import parse_size
from freshgo._args.types import UNNAMED, label_of
from freshgo._native import convert as native_convert
from freshgo.errors import DTypeError, InvalidArgumentError
from freshgo.store import Store, opened, written

__all__ = ["append"]


@entry
def append(
    store: Store | str | os.PathLike[str],
    path: str | os.PathLike[str],
    *,
    nodes: Mapping[str, Any] | None = None,
    edges: Any = None,
    keys: Any = None,
    clip: bool = False,
    memory: int | str = "1GiB",
    overwrite: bool = False,
    progress: bool | Progress = True,
) -> Store:
    """Write a store at ``path`` that is ``store`` with further nodes and edges.

        store = append(
            "papers.freshgo",
            "papers2.freshgo",
            nodes={"x": x, "y": y, "splits": {"test": ids}},
            edges=edge_index,
        )

    The result is what a conversion of everything would have written, with the old nodes and edges first: new nodes have
    the ids from ``store.num_nodes`` on, new edges the numbers from ``store.num_edges`` on, and the neighbours of a node
    are in the order of their edges' numbers, as always. Topology and the tensors of types that grow are read and
    written once, in order; new edges are sorted within ``memory``. What does not grow shares its files with ``store``,
    as after :func:`freshgo.update`.

    What belongs to the graph as a whole (:meth:`Store.attributes`) stays as it is; :func:`freshgo.update` changes it.

    Where the rows of nodes are in the order of their use (:func:`freshgo.relayout`), those of new nodes come last. A
    tensor that :func:`freshgo.propagate` has computed is left out if what it was computed from grows.

    Args:
        store: an open store, or the path of one.
        path: the directory to create; with ``overwrite`` it may be that of ``store``.
        nodes: what belongs to new nodes, as in :func:`freshgo.convert`: every tensor that the nodes of ``store`` have,
            with a row for each new node and of the same dtype and shape; or ``num_nodes``, how many are new, if they
            have no tensors. ``"splits"`` are ids of new and old nodes by name, or masks of the new ones, and are
            appended to those of the store; so are tensors named ``<split>_mask``. Tensors that are stored in fewer
            bytes (``dtype`` of :func:`freshgo.convert`) are given as floats. In a heterogeneous graph by node type:
            ``{"paper": {"x": x}}``.
        edges: the new ``edge_index`` (integers, ``[2, num_edges]``), with ids of old and new nodes; or a mapping with
            ``edge_index`` and every tensor that the edges of ``store`` have. In a heterogeneous graph by edge type;
            edges of a reverse type, ``("item", "rev_buys", "user")``, are given too.
        keys: if nodes have keys (:meth:`freshgo.Store.ids`), the keys of the new nodes, which ascend and come after all
            keys of the store; in a heterogeneous graph by node type. Beside ``memory`` they take eight bytes each, and
            strings their length.
        clip: clip values that overflow the dtype in which they are stored; by default they are an error.
        memory: bytes, or a string such as ``"8GiB"``.
        overwrite: replace a store that is at ``path``; it stays valid until the new one is complete.
        progress: show a bar, then what was written; or a callable, called with ``(stage, done, total)``.

    Returns:
        The new store, opened.

    Raises:
        InvalidArgumentError: a type or a tensor that the store does not have, a tensor that is missing, another shape,
            ids that are no nodes, keys that do not ascend; new rows of a tensor that is stored as
            ``"int8-per-column"``, whose scales depend on all rows.
        DTypeError: another dtype than that of the store, or what is no array.
        StoreExistsError, BudgetError, BusyError, StoreNotFoundError, FormatError, CorruptError, StorePermissionError,
            ReadError, WriteError: as for :func:`freshgo.convert`.
    """
    n_bytes, replace = parse_size("memory", memory), checks.flag("overwrite", overwrite)
    clipped = checks.flag("clip", clip)
    with opened(store) as source:
        parts = _parts(source, nodes, edges)
        attachments = _keys(source, parts, keys)
        with progress_of(progress) as report:
            native_convert.append(
                source._contents.native,
                path,
                parts,
                memory=n_bytes,
                clip=clipped,
                overwrite=replace,
                attachments=attachments,
                progress=report,
            )
            return written(path, report)


def _parts(store: Store, nodes: Any, edges: Any) -> GraphParts:
    """What is new of each type."""
    flat = store._contents.types.homogeneous
    if flat:
        by_node = {} if nodes is None else {"": nodes}
        by_edge = {} if edges is None else {UNNAMED: edges}
    else:
        by_node, by_edge = {} if nodes is None else nodes, {} if edges is None else edges
    for what, given in (("nodes", by_node), ("edges", by_edge)):
        if not isinstance(given, Mapping):
            raise DTypeError(f"{what} must be a mapping from types in a heterogeneous graph, got {checks.shown(given)}")
    parts = GraphParts({}, {})
    for node_type, value in by_node.items():
        if not flat:
            store._contents.nodes_of(node_type)
        if not isinstance(value, Mapping):
            raise DTypeError(f"nodes{'' if flat else [node_type]} must be a mapping, got {checks.shown(value)}")
        parts.nodes[node_type] = node_parts(node_type, value)
        _check_rows(label_of(node_type), parts.nodes[node_type].whole)
        _check_frames(node_type, parts.nodes[node_type].frames, store)
    for edge_type, value in by_edge.items():
        if not flat:
            if not isinstance(edge_type, tuple):
                raise DTypeError(f"the keys of edges must be edge types, got {checks.shown(edge_type)}")
            store._contents.edges_of(edge_type)
        parts.edges[edge_type] = edge_parts(edge_type, value)
        _check_rows(label_of(edge_type), {**parts.edges[edge_type].whole, **parts.edges[edge_type].links})
    return parts


def _check_rows(label: str, others: Mapping[str, Any]) -> None:
    """Refuse what has no row for each new node or edge."""
    for name in others:
        raise InvalidArgumentError(
            f"{label}{name} has no row for each new node or edge, and append() adds these alone: what belongs to the "
            "graph as a whole stays as it is in the store until update(attributes=...) changes it, and labelled links "
            "come with update(links=...)"
        )


def _check_frames(node_type: str, given: dict[str, Frame], store: Store) -> None:
    """Check that TensorFrames have the columns of the store's."""
    known = store._contents.frames().get(node_type, {}) if given else {}
    for name, frame in given.items():
        if frame != known.get(name):
            raise InvalidArgumentError(
                f"{label_of(node_type)}{name} is a TensorFrame with the columns {frame}, expected "
                f"{known.get(name, 'none of this name')} as in the store"
            )


def _keys(store: Store, parts: GraphParts, given: Any) -> dict[str, Array]:
    """The keys of new nodes, as the arrays behind which the store has those of the old ones."""
    by_type = given if not store._contents.types.homogeneous else {} if given is None else {"": given}
    if by_type is None:
        by_type = {}
    if not isinstance(by_type, Mapping):
        raise DTypeError(f"keys must be a mapping from node types, got {checks.shown(given)}")
    for key in by_type:
        if key not in parts.nodes:
            of = f" of type {key!r}" if key else ""
            raise InvalidArgumentError(f"keys are given of new nodes{of}, and nodes gives none{of}")
    attachments: dict[str, Array] = {}
    for key, of_nodes in parts.nodes.items():
        known = [name for name in (f"ids/{key}", f"ids/{key}/ends") if name in store._contents.attachments]
        label = f"keys[{key!r}]" if key else "keys"
        if not known:
            if key in by_type:
                raise InvalidArgumentError(f"{label} is given, but the nodes of the store have no keys")
            continue
        count = of_nodes.num_nodes or 0
        if count == 0 and key not in by_type:
            continue
        if key not in by_type:
            of = f" of type {key!r}" if key else ""
            raise InvalidArgumentError(f"the nodes{of} have keys in the store: give those of the new ones as {label}")
        attachments.update(store.ids(key).further(by_type[key], count, label))
    return attachments
