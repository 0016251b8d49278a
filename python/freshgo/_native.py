"""Native stores, graphs and loaders, and what is asked of them.

Nothing here loads the native library at import; the first object or call does.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import torch

from freshgo import _abi, _dlpack, _header
from freshgo._dlpack import NpyFile
from freshgo._library import Library
from freshgo._loaderoptions import LoaderOptions, loader_options, own_seeds, pointer_to
from freshgo._nativehandle import POLL_MS, Handle, encoded_path, run_job
from freshgo._nativehistory import HistoryCalls
from freshgo.errors import InvalidArgumentError

if TYPE_CHECKING:
    from freshgo._dlpack import ArrayLike
    from freshgo._progress import Progress
    from freshgo._typed_inputs import TypedParts

__all__ = [
    "Graph",
    "Loader",
    "LoaderOptions",
    "NpyFile",
    "RawBatch",
    "Store",
    "TypedGraph",
    "counters",
    "hotness",
    "library",
    "simulate",
]


def counters() -> dict[str, int]:
    """What the library holds: live ``stores``, ``graphs``, ``loaders``, ``jobs`` (handles), ``buffers`` and
    ``buffer_bytes`` (tensor memory in use), ``pooled_bytes`` (kept for the next batch)."""
    raw = _header.CountersInfo()
    _abi.call("fg_counters", ctypes.byref(raw))
    return {name: int(getattr(raw, name)) for name, _ in raw._fields_}


def library() -> Library:
    """Return which native library this process uses and why; loads it if need be.

    There are two, with and without the device path, of which a process loads one: that with CUDA if it is installed and
    there are a PyTorch with CUDA and a driver. Prints as one line.

    Raises:
        LibraryError: it is missing, does not load, or does not fit this package.
    """
    return _abi.library()


class Store(Handle):
    """A store on disk, opened for reading."""

    _closer = "fg_store_close"
    _what = "store"

    def __init__(self, path: str | os.PathLike[str]) -> None:
        """Open and validate the store at ``path`` (header, sizes, version; not every byte: see :meth:`verify`).

        Raises:
            StoreNotFoundError, StorePermissionError, FormatError, VersionError, CorruptError, ReadError
        """
        super().__init__()
        out = ctypes.c_void_p()
        try:
            _abi.call("fg_store_open", encoded_path(path), ctypes.byref(out))
        finally:
            self._pointer = out.value

    @classmethod
    def _adopt(cls, pointer: int | None) -> Store:
        """The store of a handle that the library gave out; of None one that is closed."""
        self = cls.__new__(cls)
        Handle.__init__(self)
        self._pointer = pointer
        return self

    def describe(self) -> dict[str, Any]:
        """What the store holds: ``path``, ``uuid``, ``num_nodes``, ``num_edges``, ``tensors``, ``edge_tensors``,
        ``splits`` (name to number of ids) and so on; of a store with types in ``node_types`` and ``edge_types``."""
        info = _abi.read_json("fg_store_describe", self._handle())
        for level in (info, *info["node_types"]):
            level["splits"] = {split["name"]: split["shape"][0] for split in level["splits"]}
        return info

    def read(self, name: str, *, kind: Literal["split", "node", "edge"], place: int | None = None) -> torch.Tensor:
        """Read one whole split (int64 ids) or tensor (all rows) into memory, checksums verified. ``place`` is that of
        the type in what :meth:`describe` lists, None in a homogeneous store."""
        kinds = {"split": 0, "node": 1, "edge": 2}
        if kind not in kinds:
            raise InvalidArgumentError(f"kind must be one of {sorted(kinds)}, got {kind!r}")
        versioned = _dlpack.use_versioned()
        what = (kinds[kind],) if place is None else (kinds[kind], place)
        function = "fg_store_read" if place is None else "fg_store_read_type"
        arguments = (self._handle(), *what, name.encode(), int(versioned))
        slots = (_header.Tensor * 1)()
        result = run_job(function, *arguments, discard=lambda managed: _free(managed, versioned))
        try:
            slots[0].managed = result
            return _dlpack.to_torch(slots, 1, versioned)[""]
        except BaseException:  # Ctrl-C may strike right after the library handed it over
            _dlpack.discard(slots, 1, versioned)
            raise

    def verify(self, progress: Progress | None = None) -> None:
        """Read everything and compare it with its checksums; the first damaged block raises CorruptError.

        ``progress(stage, done, total)`` is called from this thread, in bytes.
        """
        run_job("fg_store_verify", self._handle(), progress=progress)


def _free(managed: int, versioned: bool) -> None:
    _dlpack.discard((_header.Tensor * 1)(_header.Tensor(managed=managed)), 1, versioned)


class Graph(Handle):
    """A graph in memory. The tensors are used in place and kept alive until :meth:`close`."""

    _closer = "fg_graph_close"
    _what = "graph"

    def __init__(
        self,
        num_nodes: int,
        edge_index: ArrayLike,
        node_tensors: Mapping[str, ArrayLike],
        edge_tensors: Mapping[str, ArrayLike],
        progress: Progress | None = None,
    ) -> None:
        """Index the edges of ``edge_index`` (int64 or int32, shape [2, edges]) by target.

        Raises:
            InvalidArgumentError: ids out of range, shapes that disagree, rows that are not contiguous
            DTypeError: dtypes or types that cannot be used
        """
        super().__init__()
        arrays = _dlpack.ArrayList()
        raw = _header.GraphInput(struct_size=ctypes.sizeof(_header.GraphInput), num_nodes=num_nodes)
        raw.edge_index = arrays.one("edge_index", edge_index)
        raw.node_tensors, raw.num_node_tensors = arrays.many(node_tensors)
        raw.edge_tensors, raw.num_edge_tensors = arrays.many(edge_tensors)
        self._pointer = run_job("fg_graph_open", ctypes.byref(raw), discard=self._discard, progress=progress)
        self._arrays = arrays


@dataclass(frozen=True)
class RawBatch:
    """One batch: its position in the epoch, its number of seeds, and its tensors by name, which own their memory."""

    index: int
    num_seeds: int
    tensors: dict[str, torch.Tensor]


class TypedGraph(Handle):
    """A heterogeneous graph in memory. The tensors are used in place and kept alive until :meth:`close`."""

    _closer = "fg_graph_close"
    _what = "graph"

    def __init__(self, parts: TypedParts, progress: Progress | None = None) -> None:
        """Index the edges of every type by target. Every type has its number of nodes; splits are the caller's.

        Raises:
            InvalidArgumentError: ids out of range, shapes that disagree, rows that are not contiguous
            DTypeError: dtypes or types that cannot be used
        """
        super().__init__()
        arrays = _dlpack.ArrayList()
        nodes, edges = raw_types(parts, arrays, splits=False)
        raw = _header.GraphInput(
            struct_size=ctypes.sizeof(_header.GraphInput),
            num_nodes=-1,
            node_types=nodes,
            edge_types=edges,
            num_node_types=len(nodes),
            num_edge_types=len(edges),
        )
        self._pointer = run_job("fg_graph_open", ctypes.byref(raw), discard=self._discard, progress=progress)
        self._arrays = arrays


def raw_types(parts: TypedParts, arrays: _dlpack.ArrayList, *, splits: bool = True) -> tuple[Any, Any]:
    """Describe the types of a graph: an array of nodes and one of edges."""
    nodes, edges = (_header.NodeType * len(parts.nodes))(), (_header.EdgeType * len(parts.edges))()
    for node, (name, of_nodes) in zip(nodes, parts.nodes.items(), strict=True):
        node.name = name.encode()
        node.num_nodes = -1 if of_nodes.num_nodes is None else of_nodes.num_nodes
        node.tensors, node.num_tensors = arrays.many(of_nodes.tensors)
        if splits:
            node.splits, node.num_splits = arrays.many(of_nodes.splits)
    for edge, (names, of_edges) in zip(edges, parts.edges.items(), strict=True):
        edge.source, edge.relation, edge.target = (name.encode() for name in names)
        edge.edge_index = arrays.one("edge_index", of_edges.edge_index)
        edge.tensors, edge.num_tensors = arrays.many(of_edges.tensors)
    return nodes, edges


_MODES = {"train": 0, "trace": 1, "plain": 2}


class Loader(Handle, HistoryCalls):
    """Batches of a store or a graph, prepared ahead in threads of the library."""

    _closer = "fg_loader_close"
    _what = "loader"

    def __init__(
        self, source: Store | Graph | TypedGraph, options: LoaderOptions, progress: Progress | None = None
    ) -> None:
        """Load the topology, fill the caches and check the options against the source, which is kept open until
        this loader is closed.

        Raises:
            InvalidArgumentError: an option or a seed that cannot work
            BudgetError: ``memory`` is too small; its ``minimum`` works
            ReadError, CorruptError: the store cannot be read
        """
        super().__init__()
        self._source = source
        self._seeds = own_seeds(options.seeds)
        # The library reads them where they lie.
        self._vectors = options.hotness, options.held, options.links, options.input_time
        raw = loader_options(options, self._seeds)
        arguments = (*_source_handles(source), ctypes.byref(raw))
        self._pointer = run_job("fg_loader_open", *arguments, discard=self._discard, progress=progress)
        info = _header.LoaderDetails()
        _abi.call("fg_loader_info", self._pointer, ctypes.byref(info))
        self.num_batches = int(info.num_batches)
        self._tensor_slots = _header.Tensor * int(info.max_tensors)
        self._versioned = _dlpack.use_versioned()

    def check_open(self) -> None:
        """Raise ClosedError after :meth:`close`."""
        self._handle()

    def start(self, epoch: int, first_batch: int, mode: Literal["train", "trace", "plain"] = "train") -> None:
        """Stop what runs and begin ``epoch`` at ``first_batch``. A trace produces only ids, a plain epoch uses no
        history."""
        _abi.call("fg_loader_start", self._handle(), epoch, first_batch, _MODES[mode])

    def next(self, *, wait: bool = True) -> RawBatch | None:
        """The next batch of the epoch, ``None`` after the last one, and without ``wait`` where it is not made yet.
        Waits in steps, so Ctrl-C works."""
        slots = self._tensor_slots()
        raw = _header.Batch(versioned=int(self._versioned), capacity=len(slots), tensors=slots)
        try:
            while True:
                code = _abi.call("fg_loader_next", self._handle(), POLL_MS if wait else 0, ctypes.byref(raw))
                if code == _header.OK:
                    tensors = _dlpack.to_torch(slots, raw.num_tensors, self._versioned)
                    return RawBatch(int(raw.index), int(raw.num_seeds), tensors)
                if code == _header.END or not wait:
                    return None
        except BaseException:  # Ctrl-C may strike right after the library handed the batch over
            _dlpack.discard(slots, raw.num_tensors, self._versioned)
            raise

    def stop(self) -> None:
        """End the running epoch and free what was prepared; the loader can be started again."""
        _abi.call("fg_loader_stop", self._handle())

    def stats(self) -> dict[str, Any]:
        """Counters of the loader since it was opened."""
        return _abi.read_json("fg_loader_stats", self._handle())

    def plan(self) -> dict[str, Any]:
        """How the memory is divided, what the transfer of every window would take, and what it took."""
        return _abi.read_json("fg_loader_plan", self._handle())


def hotness(source: Store | Graph | TypedGraph, num_nodes: int, options: LoaderOptions) -> torch.Tensor:
    """The scores (float32, one per node) by which a loader of these options fills its cache: ``options.cache`` names
    the metric.

    Raises:
        InvalidArgumentError, BudgetError, ReadError, CorruptError: as :class:`Loader`
    """
    out = torch.empty(num_nodes, dtype=torch.float32)
    seeds = own_seeds(options.seeds)
    raw = loader_options(options, seeds)
    run_job("fg_hotness", *_source_handles(source), ctypes.byref(raw), pointer_to(out, ctypes.c_float), num_nodes)
    return out


def simulate(
    trace: Sequence[torch.Tensor],
    *,
    policy: str,
    capacity: int,
    num_nodes: int,
    superbatch: int | None = None,
    carry_over: bool = True,
    lookahead: bool = True,
    hotness: torch.Tensor | None = None,
    hotness_seed: int = 0,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, int]:
    """Reads, hits and swaps of every batch (int64), and the rows read before the first. ``trace`` holds int32 or int64
    vectors without gaps.

    Raises:
        InvalidArgumentError: an id that is out of range or comes twice in a batch, an argument that cannot work
    """
    reads, hits, swaps = (torch.empty(len(trace), dtype=torch.int64) for _ in range(3))
    fill = torch.zeros(1, dtype=torch.int64)
    arrays = _dlpack.ArrayList()
    batches = (_header.Array * len(trace))(*(arrays.one(f"trace[{i}]", ids) for i, ids in enumerate(trace)))
    raw = _header.Simulation(
        struct_size=ctypes.sizeof(_header.Simulation),
        carry_over=int(carry_over),
        lookahead=int(lookahead),
        policy=policy.encode(),
        superbatch=superbatch or 0,
        hotness_seed=hotness_seed & 0xFFFF_FFFF_FFFF_FFFF,
        num_nodes=num_nodes,
        capacity=capacity,
        trace=batches,
        num_batches=len(batches),
        **{
            name: pointer_to(out, ctypes.c_int64)
            for name, out in (("reads", reads), ("hits", hits), ("swaps", swaps), ("fill", fill))
        },
    )
    if hotness is not None:
        raw.hotness, raw.num_hotness = pointer_to(hotness, ctypes.c_float), hotness.numel()
    run_job("fg_simulate", ctypes.byref(raw))
    return reads, hits, swaps, int(fill)


def _source_handles(source: Store | Graph | TypedGraph) -> tuple[int | None, int | None]:
    """The handle of a store and that of a graph, of which the library takes one."""
    handle = source._handle()
    return (handle, None) if isinstance(source, Store) else (None, handle)
