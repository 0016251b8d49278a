"""From a raw batch of the library to the object that the loop gets: its tensors, arranged as PyG does.

The library numbers types: ``n0/x`` belongs to the first node type, ``e0/e_id`` to the first edge type. A homogeneous
graph has one unnamed node type and one unnamed edge type. Its tensors have no such prefix, and both types keep theirs
in one store, which becomes a ``Data``.
"""

from __future__ import annotations

import importlib.util
from itertools import accumulate, chain
from typing import Any

from torch import Tensor

from freshgo._args.aggregates import Aggregate
from freshgo._args.types import UNNAMED, EdgeType, Inputs, Types
from freshgo._batch import tables
from freshgo._batch.blocks import levels_of
from freshgo._batch.first import First, mark_first
from freshgo._batch.first_use import await_use
from freshgo._batch.levels import take_levels, take_transposed
from freshgo._batch.structure import Known, Levels, remember
from freshgo._data.narrow import Delivered
from freshgo._loader.request import Request
from freshgo._loader.transforming import Underway
from freshgo._native.loader import RawBatch
from freshgo._observe.ranges import stage
from freshgo.batch import Batch
from freshgo.heterobatch import HeteroBatch, TypeBatch

COUNTS = ("num_sampled_nodes", "num_sampled_edges")


class Assembler:
    """Widens the tensors of raw batches, arranges them as batches, and calls the user's transform."""

    def __init__(self, request: Request, narrow: Delivered) -> None:
        self.request, self.narrow = request, narrow
        self.envelope: list[int] | None = None  # as of Padding, known once the library has opened the loader
        self.batch_class = batch_class(request.types)
        self._token = object()  # tells the batches of this loader from others

    def arranged(self, raw: RawBatch, request: Request | None = None) -> Any:
        """Return the batch of a request, by default the loader's own, before its transform."""
        with stage("freshgo.arrange"):
            self.request.tables.taken(raw)  # of a batch on demand, which trains nothing
            self.narrow.apply(raw.tensors)
            return arrange(self.batch_class, self.request if request is None else request, raw, self.envelope)

    def transformed(self, batch: Any) -> Any:
        """Return what the transform makes of a batch."""
        transform = self.request.asked.transform
        if transform is None:
            return batch
        with stage("freshgo.transform"):
            return transform(batch)

    def finished(self, raw: RawBatch) -> Any:
        """Return what the loop gets for a batch of an epoch."""
        if isinstance(raw, Underway):
            return raw.result()
        rows = self.request.tables.taken(raw)
        batch = self.arranged(raw)
        history = self.request.asked.history
        levels = None if history is None else levels_of(batch)
        self.request.tables.arrive(rows, levels)
        if history is not None:
            if levels is not None:
                levels.owner = self._token
            history._steps.hand_over(levels)
        return self.transformed(batch)

    def nodes(self, raw: RawBatch) -> Any:
        """Return what a trace yields for a batch: its nodes."""
        return trace_of(self.request.types, raw.tensors)


def batch_class(types: Types) -> type[Any]:
    """Return what batches are made of: PyG's Data or HeteroData, or our own where PyG is not installed."""
    if importlib.util.find_spec("torch_geometric") is None:
        return Batch if types.homogeneous else HeteroBatch
    from freshgo._batch.pyg_batches import Data, HeteroData

    return Data if types.homogeneous else HeteroData


def arrange(cls: type[Any], request: Request, raw: RawBatch, envelope: list[int] | None) -> Any:
    """Arrange the tensors of a native batch."""
    types = request.drawn
    padded = None
    if envelope is not None:
        names = types.counts(len(types.edge_types))
        padded = envelope == list(chain.from_iterable(raw.tensors[name].tolist() for name in names))
    labels = None if request.links is None else request.links.labels(raw.tensors)
    if request.links is not None and labels is not None:
        raw.tensors[request.links.tensor_name("edge_label")] = labels
    levels = take_levels(raw.tensors, types)
    stores = _stores(types, raw.tensors)
    for node_type in types.node_types:
        _complete_nodes(stores[node_type], node_type, request.inputs)
        for name, frame in request.frames.get(node_type, {}).items():
            stores[node_type][name] = frame.put_together(name, stores[node_type])
    first = _first(stores, request, levels)
    for edge_type in types.edge_types:
        # PyG differentiates an EdgeIndex only if there are as many sources as targets.
        as_edge_index = request.asked.edge_index == "EdgeIndex" and edge_type[0] == edge_type[2]
        _complete_edges(stores[edge_type], stores[edge_type[2]], levels, first.get(edge_type), as_edge_index)
    for owner, values in request.attributes.items():
        if owner in stores:  # the edge types of walks have none
            stores[owner].update({name: value for name, value in values.items() if name not in stores[owner]})
    whole = dict(request.attributes.get(None, {}))
    if padded is not None:
        stores.get("", whole)["padded"] = padded
    return _made(cls, stores, whole)


def _stores(types: Types, tensors: dict[str, Tensor]) -> dict[Any, dict[str, Any]]:
    """The tensors of each type, and the counts of each hop as lists."""
    places: dict[str, dict[str, Any]] = {"": {}}
    for name, tensor in tensors.items():
        place, of = ("", name) if types.homogeneous else name.split("/", 1)
        places.setdefault(place, {})[of] = tensor.tolist() if of in COUNTS else tensor
    if types.homogeneous:
        return {"": places[""], UNNAMED: places[""]}
    nodes = {node_type: places[f"n{i}"] for i, node_type in enumerate(types.node_types)}
    return {**nodes, **{edge_type: places[f"e{i}"] for i, edge_type in enumerate(types.edge_types)}}


def _complete_nodes(part: dict[str, Any], node_type: str, inputs: Inputs | None) -> None:
    """Say how many nodes there are, and which of them are input nodes."""
    part["num_nodes"] = part["n_id"].numel()
    if inputs is None:  # the batch is made for links, which have their tensors where they belong
        return
    ids, seed_time = part.pop("input_id", None), part.pop("seed_time", None)
    if ids is None or node_type not in inputs.config:
        return
    if seed_time is not None:
        part["seed_time"] = seed_time
    size = part["batch_size"] = ids.numel()
    # For a mask PyG gives the nodes themselves.
    part["input_id"] = part["n_id"][:size].clone() if node_type in inputs.masked else ids


def _first(stores: dict[Any, dict[str, Any]], request: Request, levels: Levels | None) -> dict[EdgeType, First]:
    """Take the aggregates, which stand for the first layer, out of what belongs to node types: each part is of an edge
    type."""
    aggregates = request.first
    if not aggregates:
        return {}
    await_use(request.use)
    read: dict[str, Tensor | None] = {}
    if levels is not None:
        levels.first_bytes = {of: _first_bytes(stores[of], info) for of, info in aggregates.items()}
        read = tables.read_of(levels)
    taken = {node_type: _take_own(stores[node_type], aggregate) for node_type, aggregate in aggregates.items()}
    first = {}
    for node_type, aggregate in aggregates.items():
        name, tensor = aggregate.name, aggregate.tensor
        for part in aggregate.parts:
            columns = aggregate.columns(part.edge_type)
            rows = taken[node_type][:, columns.start - aggregate.own : columns.stop - aggregate.own]
            own, source = (stores[part.edge_type[end]].get(tensor) for end in (2, 0))
            mark_first(rows if own is None else own)
            first[part.edge_type] = First(
                name, tensor, aggregate.reduce, part.weight_attr, rows, own, source, request.use, read.get(node_type)
            )
    return first


def _first_bytes(tensors: dict[str, Any], aggregate: Aggregate) -> int:
    """Bytes of a row that the first layer takes of a node type: the aggregate, and the own row where there is one."""
    own = None if aggregate.own else tensors.get(aggregate.tensor)  # else it is in front of the aggregate
    return sum(rows.size(1) * rows.element_size() for rows in (tensors[aggregate.name], own) if rows is not None)


def _take_own(tensors: dict[str, Any], aggregate: Aggregate) -> Tensor:
    """Take an aggregate out of the tensors of a node type. If own rows are in front, they take the place of the tensor
    that was aggregated; both are views of the rows as they were read."""
    rows: Tensor = tensors.pop(aggregate.name)
    if aggregate.own:
        tensors[aggregate.tensor] = rows[:, : aggregate.own]
    return rows[:, aggregate.own :]


def _complete_edges(
    part: dict[str, Any], targets: dict[str, Any], levels: Levels | None, first: First | None, as_edge_index: bool
) -> None:
    """Keep what is known of the edges' order beside edge_index, for as long as that is the tensor it is now."""
    ptr, transposed = part.pop("ptr"), take_transposed(part)
    if as_edge_index:
        from freshgo._batch.pyg_batches import make_edge_index

        num_nodes = targets["num_nodes"]
        part["edge_index"] = make_edge_index(part["edge_index"], (num_nodes, num_nodes), ptr, transposed)
    ends = {part["edge_index"].size(1): ptr.numel() - 1}
    if COUNTS[1] in part:  # its edges are those of hops
        ends = dict(zip(accumulate(part[COUNTS[1]]), accumulate(targets[COUNTS[0]]), strict=False))
    if first is not None:
        part[first.name] = first.rows
    remember(part["edge_index"], Known(part["edge_index"], ptr, transposed, ends, levels, first))
    if "input_id" in part:  # of links; or of the input nodes in the one store of a homogeneous graph
        part["batch_size"] = part["input_id"].numel()


def _made(cls: type[Any], stores: dict[Any, dict[str, Any]], whole: dict[str, Any]) -> Any:
    """A batch of these stores, and of what belongs to a heterogeneous graph as a whole."""
    if "" in stores:
        return cls(**stores[""])
    if cls is HeteroBatch:
        return HeteroBatch({key: TypeBatch(**values) for key, values in stores.items()}, whole)
    batch = cls()
    for key, values in stores.items():
        store = batch.get_node_store(key) if isinstance(key, str) else batch.get_edge_store(*key)
        store.update(values)
    for name, value in whole.items():
        batch[name] = value
    return batch


def trace_of(types: Types, tensors: dict[str, Tensor]) -> Any:
    """Return the nodes of a batch of a trace, by node type where types have names."""
    return types.bare({node_type: tensors[types.node_name(i, "n_id")] for i, node_type in enumerate(types.node_types)})
