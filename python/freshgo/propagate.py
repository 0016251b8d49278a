"""Features aggregated over all in-neighbours, once."""

from __future__ import annotations

import os
from collections.abc import Sequence

from freshgo._args import checks
from freshgo._args.aggregates import REDUCTIONS
from freshgo._args.progress import Progress, progress_of
from freshgo._args.size import parse_size
from freshgo._args.types import EdgeType
from freshgo._native import convert as native_convert
from freshgo.errors import DTypeError, InvalidArgumentError
from freshgo.store import Store


def propagate(
    store: Store | str | os.PathLike[str],
    tensor: str = "x",
    *,
    reduce: str = "mean",
    weight_attr: str | None = None,
    relations: Sequence[EdgeType] | None = None,
    hops: int = 1,
    name: str | None = None,
    memory: int | str = "1GiB",
    overwrite: bool = False,
    progress: bool | Progress = True,
) -> Store:
    """Add to ``store`` what the rows of ``tensor`` of every node's in-neighbours add up to, and open it again.

    The first layer of SAGE, GraphConv, GCN, GIN and R-GCN adds up rows that never change, by coefficients that do not
    depend on parameters. So this layer can be computed once, over all neighbours. It writes the tensor ``x_mean`` (or
    ``x_sum``, ``x_gcn``) of rows for nodes. For ``"mean"`` and ``"sum"`` a row is the node's own row of ``tensor``
    followed by the aggregate, so that one request reads both. ``store["x_mean"]`` reads it like any tensor. Batches do
    not bring it unless they are asked for it.

    A pass works within ``memory``: for one window of targets after the other it reads the rows that they need, in the
    order of the file, and writes the window. If rows that are used together are stored together
    (:func:`freshgo.relayout`), every page is read about once; if they are not, every window reads most of the file.
    Sums are of float64 and in the order of source rows, so the result depends neither on threads nor on ``memory``.

    The store gains all of the tensors or none of them. Whoever has it open goes on reading what it had. A tensor knows
    from which features, edges and weights it was computed; if the store holds others, it is refused. A relayout keeps
    it.

    In a heterogeneous graph, every node type to which edges lead gets one such tensor, with columns for each of its
    edge types.

    Args:
        store: an open store, or the path of one. It must be writable.
        tensor: a node-level tensor of floats, ``[num_nodes, columns]``. In a heterogeneous graph, that of every node
            type that has one of this name.
        reduce: ``"mean"``: the sum, divided by the number of in-edges; 0 for nodes without any. ``"sum"``. ``"gcn"``:
            with self-loops and symmetric normalisation over the whole graph, as PyG's ``gcn_norm``.
        weight_attr: an edge-level tensor of numbers by which rows are multiplied. In ``"mean"`` the sum of the products
            is still divided by the number of edges, as in PyG's ``GraphConv``. Edge types that lack it have weight 1.
        relations: the edge types to use; None is all whose sources have the tensor. ``"gcn"`` can use those within one
            node type only.
        hops: in a homogeneous graph, also write ``x_mean2``, the same of the aggregates, and so on (SGC, SIGN).
        name: of the tensor, instead of ``x_mean``.
        memory: bytes, or a string such as ``"8GiB"``. The pass needs 8 bytes a node, 8 more where rows are in an order
            of their own or for ``"gcn"``, and 4 or 8 bytes an edge for weights that are not stored by target
            (``weight_attr`` of :func:`freshgo.convert`).
        overwrite: replace tensors of this name that were computed.
        progress: show a bar; or a callable that is called with ``(stage, done, total)``, in rows.

    Raises:
        InvalidArgumentError, DTypeError: no such tensor, relation or reduction; rows that are not of floats.
        StoreExistsError: the store has a tensor of the name, and ``overwrite`` is false or the tensor is the user's.
        BudgetError: ``memory`` is too small; ``minimum`` is more than was given, and the smallest that works unless
            very long lists need more.
        BusyError: another process adds tensors to the store.
        StoreNotFoundError, FormatError, CorruptError, StorePermissionError, WriteError, ReadError: as for
            :func:`freshgo.relayout`.
    """
    checks.choice("reduce", reduce, REDUCTIONS)
    for what, value in (("tensor", tensor), ("weight_attr", weight_attr), ("name", name)):
        if not isinstance(value, str) and (value is not None or what == "tensor"):
            raise DTypeError(f"{what} must be the name of a tensor, got {checks.shown(value)}")
    hops, n_bytes = checks.count("hops", hops, 1), parse_size("memory", memory)
    opened = store if isinstance(store, Store) else Store.open(store)
    try:
        with progress_of(progress) as report:
            native_convert.propagate(
                opened._native,
                tensor=tensor,
                reduce=reduce,
                weight_attr=weight_attr,
                relations=_places(opened, relations),
                hops=hops,
                name=f"{tensor}_{reduce}" if name is None else name,
                memory=n_bytes,
                overwrite=checks.flag("overwrite", overwrite),
                progress=report,
            )
    finally:
        if opened is not store:
            opened.close()
    return Store.open(opened.path)


def _places(store: Store, relations: Sequence[EdgeType] | None) -> list[int] | None:
    """Return the places of edge types among those of a store."""
    if relations is None:
        return None
    known = store.edge_types
    if not known:
        raise InvalidArgumentError("relations are of a heterogeneous graph, the store is homogeneous")
    places = []
    for relation in relations:
        if relation not in known:
            names = ", ".join(map(repr, known))
            raise InvalidArgumentError(f"relations has {checks.shown(relation)}, the edge types are {names}")
        places.append(known.index(relation))
    return places
