"""Batches that a device draws: the library sends their seeds, and the keys of their draws.

Kernels draw the batch that the sampler of the library draws by these keys, hop by hop, and number its nodes in the
order of discovery: along every edge type, and then the sources of each node type, edge type after edge type.

A batch is drawn into the memory that it takes (``hops.py``). Without padding each hop waits for the device twice, in
the thread that sends batches ahead: for the numbers of edges and of nodes. A padded batch has the sizes of the
envelope, and nothing waits.

The neighbour lists are copied to the device, or it reads them in locked memory of the host, where the library holds
them, as it reads rows there (``rows.py``). Where they begin is on the device.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence, Set
from typing import Literal

import torch
from torch import Tensor

from freshgo._args.size import format_size
from freshgo._args.types import EdgeType, Types
from freshgo._data.source import Source
from freshgo._device.hops import Envelope, Hops, PaddedHops
from freshgo._device.packed import Unpacking
from freshgo._native import cuda
from freshgo._native.header import LIST_POSITIVE, LIST_PTR
from freshgo._native.loader import Loader as NativeLoader
from freshgo._native.loader import lock_lists, read_list, stored_lists
from freshgo._native.options import LoaderOptions
from freshgo._observe.log import LOG
from freshgo.errors import InvalidArgumentError

KEY = "fg/key"
_Stored = dict[str, tuple[Tensor, int]]  # as of stored_lists
_MOST = 2**31 - 1
_PIECE = 1 << 22
"""Elements of a list that are copied at a time. Arbitrary: 32 MiB."""
_SHARE = 4
"""Lists are copied to the device that take at most a quarter of what it has free when the loader opens. Arbitrary: the
model has not allocated what a step needs."""


class Drawing:
    """Draws batches in the current stream of a device."""

    def __init__(
        self,
        device: torch.device,
        types: Types,
        fanouts: Sequence[Sequence[int]],
        num_edges: Callable[[EdgeType], int],
        group: Unpacking,
        *,
        replace: bool,
        numbered: Sequence[bool],
        keep: int,
        place: Literal["auto", "device", "host"],
        free: Callable[[], int],
    ) -> None:
        """``fanouts``: of each edge type by hop. ``num_edges``: of an edge type of the graph. ``group``: what groups
        edges by source. ``numbered``: which edge types have edge numbers in batches. ``keep``: as of
        :class:`cuda.Layerwise`; 0: edges are not drawn layer by layer. ``place``: where the lists are. ``free``: the
        bytes that the device has free."""
        self._device, self._types, self._fanouts, self._group = device, types, fanouts, group
        self._num_edges, self._replace, self._numbered, self._keep = num_edges, replace, numbered, keep
        self._place, self._free = place, free
        places = {node_type: i for i, node_type in enumerate(types.node_types)}
        self._ends = [(places[source], places[target]) for source, _, target in types.edge_types]
        self._lists: list[cuda.Lists] = []
        self._envelope: Envelope | None = None  # of padded batches
        self.n_bytes = 0
        """The memory of the device that the lists take."""
        self.bytes_on_host = 0
        """The locked memory of the host in which the device reads them."""

    def load(self, native: NativeLoader) -> None:
        """Learn the sizes of padded batches, and take the neighbour lists: once, if they are copied to the device.

        Raises:
            InvalidArgumentError: the graph is too large for the kernels, the lists are too large for the memory of the
                device, or the system does not lock them
        """
        sizes, hops = native.stats().get("envelope"), len(self._fanouts[0])
        self._envelope = None if sizes is None else Envelope(len(self._types.num_nodes), self._ends, hops, sizes)
        if self._lists and not self.bytes_on_host:  # the graph does not change, whoever opens it again
            return
        nodes = list(self._types.num_nodes.values())
        if max(nodes) > _MOST:
            raise InvalidArgumentError(f"sample_on='device' is for up to {_MOST} nodes of a type, got {max(nodes)}")
        stored = [stored_lists(native, i) for i in range(len(self._ends))]
        n_bytes = sum(memory.nbytes for of in stored for memory, _ in of.values())
        free = self._free()
        if self._place == "auto":
            self._place = "device" if n_bytes <= free // _SHARE else "host"
        try:
            self._take(native, stored, nodes, n_bytes)
        except torch.cuda.OutOfMemoryError as error:
            what = "" if self._place == "device" else "the offsets of "
            instead = "lists_on='host' or " if self._place == "device" else ""
            raise InvalidArgumentError(
                f"{what}the neighbour lists, of {format_size(n_bytes)}, do not fit into the free memory of "
                f"{self._device}: use {instead}sample_on='cpu' ({error})"
            ) from error
        where = {"device": "its memory", "host": "locked memory of the host"}[self._place]
        LOG.info(
            "the device draws from neighbour lists of %s in %s; it has %s free, and lists_on='auto' takes a quarter",
            *(format_size(n_bytes), where, format_size(free)),
        )

    def _take(self, native: NativeLoader, stored: Sequence[_Stored], nodes: Sequence[int], n_bytes: int) -> None:
        """Copy the lists, of ``n_bytes``, to the device, or lock them on the host."""
        on_host = self._place == "host"
        if on_host and not lock_lists(native):
            raise InvalidArgumentError(
                "sample_on='device' reads neighbour lists in memory of the host that the system does not lock: use "
                "lists_on='device' or sample_on='cpu'"
            )
        lists = []
        for i, (of, (_, target)) in enumerate(zip(stored, self._ends, strict=True)):
            if not on_host:
                of = {name: (memory.to(self._device, copy=True), bits) for name, (memory, bits) in of.items()}
            ptr = self._copied(native, i, LIST_PTR, nodes[target] + 1, torch.int64)
            assert ptr is not None, "only numbers and weights may be missing"
            weight, sums = of.get("weight"), of.get("sum")
            lists.append(
                cuda.Lists(
                    ptr,
                    self._num_edges(self._types.edge_types[i]),
                    cuda.Ids(*of["source"]),
                    cuda.Ids(*of["edge"]) if "edge" in of else None,
                    None if weight is None else weight[0].view(torch.float32 if weight[1] == 32 else torch.float64),
                    None if sums is None else sums[0].view(torch.float64),
                    self._copied(native, i, LIST_POSITIVE, nodes[target], torch.int32),
                )
            )
        self._lists = lists
        self.n_bytes = sum(of.nbytes for one in lists for of in (one.ptr, one.positive) if of is not None)
        self.n_bytes += 0 if on_host else n_bytes
        self.bytes_on_host = n_bytes if on_host else 0

    def leave(self) -> None:
        """Leave the memory of the native loader alone, which is about to be closed."""
        if self.bytes_on_host:
            self._lists, self.bytes_on_host = [], 0

    def _copied(self, native: NativeLoader, relation: int, which: int, size: int, dtype: torch.dtype) -> Tensor | None:
        out = torch.empty(size, dtype=dtype, device=self._device)
        for first in range(0, size, _PIECE):
            piece = torch.empty(min(_PIECE, size - first), dtype=torch.int64)
            if not read_list(native, relation, which, first, piece):
                return None
            out[first : first + piece.numel()].copy_(piece)
        return out

    def __call__(self, tensors: dict[str, Tensor], keys: Sequence[int], *, pad: bool) -> dict[str, Tensor]:
        """Return the nodes and edges of a batch, whose ``n_id`` are its seeds. The counts by hop are on the host.

        With ``pad``, batches of a loader that pads have ``FITS``. If it is false, the other tensors mean nothing, and
        the batch is to be drawn without ``pad``. A batch whose seeds have no room comes without padding at once."""
        types = self._types
        seeds = [tensors[types.node_name(t, "n_id")] for t in range(len(types.num_nodes))]
        padded = pad and self._envelope is not None and self._envelope.takes(seeds)
        of = PaddedHops(seeds, self._envelope, self._group.counting) if padded and self._envelope else Hops(seeds)
        none = seeds[0].new_empty(0)
        ptr, sources, edge_ids = ([[none] for _ in self._ends] for _ in range(3))
        weights = [[none.float()] for _ in self._ends]
        *keys, batch = keys
        weighs = types.edge_name(0, "edge_weight") in tensors
        layerwise = cuda.Layerwise(self._keep, batch, weighs) if self._keep else None
        of_nodes, of_edges = [[ids.numel()] for ids in of.nodes], [list[int]() for _ in self._ends]
        for hop in range(len(self._fanouts[0])):
            drawn = [
                cuda.draw(
                    self._lists[i],
                    of.found[target],
                    self._fanouts[i][hop],
                    keys[i * len(self._fanouts[0]) + hop],
                    replace=self._replace,
                    numbered=self._numbered[i],
                    layerwise=layerwise,
                    room=of.room(i, hop),
                )
                for i, (_, target) in enumerate(self._ends)
            ]
            for i, (_, target) in enumerate(self._ends):
                ptr[i].append(of.ptr(drawn[i], target) + sum(of_edges[i]))
                if (edge_id := drawn[i].edge_id) is not None:
                    edge_ids[i].append(edge_id)
                if (weight := drawn[i].weight) is not None:
                    weights[i].append(weight)
                of_edges[i].append(drawn[i].neighbor.numel())
            numbered = [
                of.number(t, hop, [drawn[i] for i, (source, _) in enumerate(self._ends) if source == t])
                for t in range(len(seeds))
            ]
            for i, (source, _) in enumerate(self._ends):
                sources[i].append(numbered[source].pop(0))
            for t, ids in enumerate(of.found):
                of_nodes[t].append(ids.numel())
        out = of.fits()
        for t, counts in enumerate(of_nodes):
            out[types.node_name(t, "n_id")] = of.nodes[t].clone()
            out[types.node_name(t, "num_sampled_nodes")] = torch.tensor(counts)
        for i, counts in enumerate(of_edges):
            ends = torch.cat([*ptr[i], none.new_full((1,), sum(counts))])
            out[types.edge_name(i, "ptr")] = ends
            out[types.edge_name(i, "edge_index")] = self._group.edge_index(torch.cat(sources[i]), ends)
            out[types.edge_name(i, "num_sampled_edges")] = torch.tensor(counts, dtype=torch.int64)
            if weighs:
                out[types.edge_name(i, "edge_weight")] = torch.cat(weights[i])
            if self._numbered[i]:
                out[types.edge_name(i, "e_id")] = torch.cat(edge_ids[i])
        return out | self._group(out, [])


def edge_tensors_of(source: Source, types: Types) -> dict[str, Set[str]]:
    """Return the names in a batch of the edge-level tensors of each edge type, by the prefix of the type."""
    known = source.layout().edges
    return {
        types.edge_name(i, ""): {types.edge_name(i, name) for of, name in known if of == edge_type}
        for i, edge_type in enumerate(types.edge_types)
    }


def drawing_of(
    device: torch.device,
    source: Source,
    types: Types,
    options: LoaderOptions,
    group: Unpacking,
    place: Literal["auto", "device", "host"],
    free: Callable[[], int],
) -> Drawing:
    """Return what draws the batches of a loader with these options, which have the types ``types``. ``place`` and
    ``free`` are as of :class:`Drawing`."""
    hops, layerwise = options["num_hops"], json.loads(options.get("sampler_options") or "{}")
    return Drawing(
        device,
        types,
        [options["fanouts"][i * hops : (i + 1) * hops] for i in range(len(types.edge_types))],
        source.num_edges,
        group,
        replace=options["replace"],
        numbered=[not options["no_edge_ids"] or bool(names) for names in edge_tensors_of(source, types).values()],
        keep=layerwise["batch_dependency"] if options.get("sampler") == "labor" else 0,
        place=place,
        free=free,
    )
