"""Features aggregated over all in-neighbours, once."""

from __future__ import annotations

import copy
import os
from collections.abc import Mapping, Sequence
from typing import Any

from torch import Tensor

from freshgo._args import checks
from freshgo._args.aggregates import check_hops, no_tensor
from freshgo._args.choices import Reduction
from freshgo._args.entry import entry
from freshgo._args.hints import among, no_weights
from freshgo._args.named import check_name
from freshgo._args.progress import Progress, progress_of
from freshgo._args.size import parse_size
from freshgo._args.types import EdgeType
from freshgo._native import convert as native_convert
from freshgo.errors import DTypeError, InvalidArgumentError
from freshgo.store import Store, written


@entry
def propagate(
    data: Any,
    tensor: str = "x",
    *,
    reduce: Reduction = "mean",
    weight_attr: str | None = None,
    relations: Sequence[EdgeType] | None = None,
    hops: int = 1,
    name: str | None = None,
    memory: int | str = "1GiB",
    overwrite: bool = False,
    progress: bool | Progress = True,
) -> Any:
    """Aggregate ``tensor`` over all in-neighbours of every node, add the result to the store, and open it again.

    The first layer of SAGE, GraphConv, GCN and GIN adds up rows that never change, with coefficients that do not depend
    on parameters. So this layer can be computed once, over all neighbours. The result is the node-level tensor
    ``x_mean`` (or ``x_sum``, ``x_gcn``). For ``"mean"`` and ``"sum"`` each of its rows is the node's own row of
    ``tensor`` followed by the aggregate, so that one request reads both. ``store["x_mean"]`` reads it like any tensor.
    Batches bring it only if ``first_layer=`` of :class:`freshgo.Loader` asks for it.

        store = propagate("papers.freshgo", "x", reduce="mean")
        loader = Loader(store, [15, 10], "train", batch_size=1024, shuffle=True, first_layer="mean")
        freshgo.nn.precomputed(model)  # of three layers

    A pass works within ``memory``. If that holds the features, as float32 at least, everything is read and written
    once. With less memory one slice of their columns is in memory at a time. Neighbour lists and features are read once
    for each slice; where there are many slices, features go through a temporary file by columns instead. The aggregates
    but for the last slice are written to such a file and read once more. Where the rows of nodes are in an order of
    their own (:func:`freshgo.relayout`), all aggregates are, unless they fit into the memory beside the features. Sums
    are float64, in the order of the neighbour lists, so the result depends neither on threads nor on ``memory``.

    The store gains all of the tensors or none of them. A process that has the store open continues to read the old
    contents. The store records from which features, edges and weights a tensor was computed; loaders refuse it if the
    store holds others now. :func:`freshgo.relayout` keeps the tensor.

    In a heterogeneous graph, every node type to which edges lead gets one such tensor, with columns for each of its
    edge types.

    For a graph in memory, the result is a shallow copy with the new tensors, which have no columns for the node's own
    row. They are computed in float64 as well, in a few times the memory of the graph itself; ``memory``, ``overwrite``
    and ``progress`` have no effect. If the tensor that was aggregated is replaced or written to, loaders refuse the
    aggregate.

    Args:
        data: an open store, or the path of one, which must be writable; or a graph in memory as :class:`freshgo.Loader`
            takes it: a PyG ``Data`` or ``HeteroData``, or a mapping of tensors.
        tensor: a node-level tensor of floats, ``[num_nodes, columns]``. In a heterogeneous graph, that of every node
            type that has one of this name.
        reduce: ``"mean"``: the sum, divided by the number of in-edges; 0 for nodes without any. ``"sum"``. ``"gcn"``:
            with self-loops and symmetric normalisation over the whole graph, as PyG's ``gcn_norm``.
        weight_attr: an edge-level tensor of numbers by which rows are multiplied. In ``"mean"`` the sum of the products
            is still divided by the number of edges, as in PyG's ``GraphConv``. Edge types that lack it have weight 1.
        relations: the edge types to use; None is all whose sources have the tensor. ``"gcn"`` can use those within one
            node type only.
        hops: how often to aggregate. 2 also writes ``x_mean2``, the aggregate of the aggregates, and so on (SGC, SIGN).
            More than 1 needs a homogeneous graph.
        name: the name of the new tensor; None is ``x_mean`` and so on, after ``tensor`` and ``reduce``.
        memory: bytes, or a string such as ``"8GiB"``. The pass needs 8 bytes a node, 8 more where rows are in an order
            of their own or for ``"gcn"``, and 4 or 8 bytes an edge for weights that are not stored by target
            (``weight_attr`` of :func:`freshgo.convert`).
        overwrite: replace tensors of this name that were computed.
        progress: show a bar, then what was written; or a callable, called with ``(stage, done, total)``, in rows.

    Raises:
        InvalidArgumentError, DTypeError: no such tensor, relation or reduction; rows that are not floats.
        StoreExistsError: the store has a tensor of the name, and ``overwrite`` is false or the tensor is the user's.
        BudgetError: ``memory`` is too small; ``minimum`` is more than was given, and the smallest that works unless
            very long lists need more.
        BusyError: another process adds tensors to the store.
        StoreNotFoundError, FormatError, CorruptError, StorePermissionError, WriteError, ReadError: as for
            :func:`freshgo.relayout`.
    """
    checks.choice("reduce", reduce, Reduction)
    for what, value in (("tensor", tensor), ("weight_attr", weight_attr), ("name", name)):
        if not isinstance(value, str) and (value is not None or what == "tensor"):
            raise DTypeError(f"{what} must be the name of a tensor, got {checks.shown(value)}")
    hops, n_bytes = checks.count("hops", hops, 1), parse_size("memory", memory)
    called = f"{tensor}_{reduce}" if name is None else name
    check_name(called, f"the name {called!r}")
    if not isinstance(data, Store | str | os.PathLike):
        from freshgo._data.propagation import propagated

        made = propagated(
            data,
            tensor,
            reduce=reduce,
            weight_attr=weight_attr,
            relations=relations,
            hops=hops,
            name=called,
        )
        return _with(data, made)
    opened = data if isinstance(data, Store) else Store.open(data)
    try:
        places = _places(opened, relations)
        _check_names(opened, tensor, weight_attr, hops)
        with progress_of(progress) as report:
            native_convert.propagate(
                opened._contents.native,
                tensor=tensor,
                reduce=reduce,
                weight_attr=weight_attr,
                relations=places,
                hops=hops,
                name=called,
                memory=n_bytes,
                overwrite=checks.flag("overwrite", overwrite),
                progress=report,
            )
            return written(opened.path, report)
    finally:
        if opened is not data:
            opened.close()


def _with(data: Any, made: dict[str, dict[str, Tensor]]) -> Any:
    """Return a graph in memory with further tensors of nodes."""
    if isinstance(data, Mapping):
        if "" in made:
            return {**data, **made[""]}
        return {**data, **{node_type: {**data[node_type], **tensors} for node_type, tensors in made.items()}}
    result = copy.copy(data)
    for node_type, tensors in made.items():
        part = result[node_type] if node_type else result
        for name, rows in tensors.items():
            part[name] = rows
    return result


def _check_names(store: Store, tensor: str, weight_attr: str | None, hops: int) -> None:
    """Check what the library would refuse without the names that a user may mean."""
    known = {name for source, _, _ in store._contents.edges for name in store._contents.nodes[source].tensors}
    if tensor not in known:
        raise no_tensor(tensor, known)
    weights = {name for edges in store._contents.edges.values() for name in edges.tensors}
    if weight_attr is not None and weight_attr not in weights:
        raise no_weights(weight_attr, weights)
    check_hops(hops, store._contents.types.homogeneous)


def _places(store: Store, relations: Sequence[EdgeType] | None) -> list[int] | None:
    """Return the places of edge types among those of a store."""
    if relations is None:
        return None
    known = store.edge_types
    if not known:
        raise InvalidArgumentError("relations needs a heterogeneous graph, this one is homogeneous")
    places = []
    for relation in relations:
        if relation not in known:
            names = among(relation, known)
            raise InvalidArgumentError(
                f"relations names {checks.shown(relation)}, which is not an edge type of the store; it has {names}"
            )
        places.append(known.index(relation))
    return places
