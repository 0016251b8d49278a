"""Native stores, graphs, loaders and conversion: the only module that the public ones call.

Nothing here loads the native library at import; the first object or call does.
Everything that takes long runs as a job of the library and is waited for in
steps of at most 50 ms, so that Ctrl-C is answered; an interrupted job is
cancelled and has stopped before ``KeyboardInterrupt`` leaves these functions.

The library must not be called in a forked child (its threads do not exist
there): every function raises :class:`~freshgo.errors.ForkError` in one, and
finalizers do nothing.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import torch

from freshgo import _abi, _dlpack
from freshgo._dlpack import NpyFile
from freshgo._library import Library
from freshgo._loaderoptions import LoaderOptions, loader_options, own_seeds, pointer_to
from freshgo._nativehistory import HistoryCalls
from freshgo.errors import ClosedError, InvalidArgumentError

if TYPE_CHECKING:
    from freshgo._dlpack import ArrayLike
    from freshgo._typed_inputs import TypedParts

__all__ = [
    "Graph",
    "Loader",
    "LoaderOptions",
    "NpyFile",
    "RawBatch",
    "Store",
    "TypedGraph",
    "convert",
    "convert_types",
    "counters",
    "hotness",
    "library",
    "simulate",
]

Progress = Callable[[str, int, int], None]

_POLL_MS = 50


def counters() -> dict[str, int]:
    """What the library holds: live ``stores``, ``graphs``, ``loaders``, ``jobs`` (handles), ``buffers`` and
    ``buffer_bytes`` (tensor memory in use), ``pooled_bytes`` (kept for the next batch)."""
    raw = _abi.Counters()
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


class _Handle:
    """A native handle that is closed once, by ``close``, by ``with`` or by the garbage collector."""

    _closer = ""
    _what = ""

    def __init__(self) -> None:
        self._pointer: int | None = None
        self._lock = threading.Lock()

    @property
    def closed(self) -> bool:
        return self._pointer is None

    def close(self) -> None:
        """Free what the handle holds. Closing again does nothing."""
        with self._lock:
            pointer, self._pointer = self._pointer, None
        if pointer is not None:
            self._discard(pointer)

    def _discard(self, pointer: int) -> None:
        _abi.call(self._closer, pointer)

    def _handle(self) -> int:
        _abi.check_process()
        pointer = self._pointer
        if pointer is None:
            raise ClosedError(f"{self._what} is closed")
        return pointer

    def __del__(self) -> None:
        with contextlib.suppress(Exception):  # a finalizer has nobody to tell
            if self._pointer is not None and not _abi.forked():
                self.close()


def _run_job(
    starter: str, *args: Any, discard: Callable[[int], object] | None = None, progress: Progress | None = None
) -> int:
    """Start a job, wait for it and return its result (0 when it has none).

    Ctrl-C may strike between any two steps, also right after the library handed something over: the job is closed
    and a result that is not returned is given to ``discard``.
    """
    job, state = ctypes.c_void_p(), _abi.Progress()
    shown: tuple[str, int, int] | None = None
    try:
        _abi.call(starter, *args, ctypes.byref(job))
        while True:
            code = _abi.call("fg_job_wait", job, _POLL_MS, ctypes.byref(state))
            if progress is not None:
                now = (state.stage.decode(), int(state.done), int(state.total))
                if now[0] and now != shown:
                    shown = now
                    progress(*now)
            if code == _abi.OK:
                return state.result or 0
    except BaseException:
        if state.result and discard is not None:
            discard(state.result)
        raise
    finally:
        # Cancels what still runs and waits for it, so no input is read after this line.
        if job:
            _abi.call("fg_job_close", job)


class Store(_Handle):
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
            _abi.call("fg_store_open", os.fsencode(path), ctypes.byref(out))
        finally:
            self._pointer = out.value

    @classmethod
    def _adopt(cls, pointer: int | None) -> Store:
        """The store of a handle that the library gave out; of None one that is closed."""
        self = cls.__new__(cls)
        _Handle.__init__(self)
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
        result = _run_job(function, *arguments, discard=lambda managed: _take(managed, versioned))
        return _take(result, versioned)

    def verify(self, progress: Progress | None = None) -> None:
        """Read everything and compare it with its checksums; the first damaged block raises CorruptError.

        ``progress(stage, done, total)`` is called from this thread, in bytes.
        """
        _run_job("fg_store_verify", self._handle(), progress=progress)


def _take(managed: int, versioned: bool) -> torch.Tensor:
    return _dlpack.to_torch((_abi.Tensor * 1)(_abi.Tensor(managed=managed)), 1, versioned)[""]


class Graph(_Handle):
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
        raw = _abi.GraphInput(struct_size=ctypes.sizeof(_abi.GraphInput), num_nodes=num_nodes)
        raw.edge_index = arrays.one("edge_index", edge_index)
        raw.node_tensors, raw.num_node_tensors = arrays.many(node_tensors)
        raw.edge_tensors, raw.num_edge_tensors = arrays.many(edge_tensors)
        self._pointer = _run_job("fg_graph_open", ctypes.byref(raw), discard=self._discard, progress=progress)
        self._arrays = arrays


@dataclass(frozen=True)
class RawBatch:
    """One batch: its position in the epoch, its number of seeds, and its tensors by name, which own their memory."""

    index: int
    num_seeds: int
    tensors: dict[str, torch.Tensor]


class TypedGraph(_Handle):
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
        nodes, edges = _types(parts, arrays, splits=False)
        raw = _abi.GraphInput(
            struct_size=ctypes.sizeof(_abi.GraphInput),
            num_nodes=-1,
            node_types=nodes,
            edge_types=edges,
            num_node_types=len(nodes),
            num_edge_types=len(edges),
        )
        self._pointer = _run_job("fg_graph_open", ctypes.byref(raw), discard=self._discard, progress=progress)
        self._arrays = arrays


def _types(parts: TypedParts, arrays: _dlpack.ArrayList, *, splits: bool = True) -> tuple[Any, Any]:
    """Describe the types of a graph: an array of nodes and one of edges."""
    nodes, edges = (_abi.NodeType * len(parts.nodes))(), (_abi.EdgeType * len(parts.edges))()
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


class Loader(_Handle, HistoryCalls):
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
        self._pointer = _run_job("fg_loader_open", *arguments, discard=self._discard, progress=progress)
        info = _abi.LoaderDetails()
        _abi.call("fg_loader_info", self._pointer, ctypes.byref(info))
        self.num_batches = int(info.num_batches)
        self._tensor_slots = _abi.Tensor * int(info.max_tensors)
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
        raw = _abi.Batch(versioned=int(self._versioned), capacity=len(slots), tensors=slots)
        try:
            while True:
                code = _abi.call("fg_loader_next", self._handle(), _POLL_MS if wait else 0, ctypes.byref(raw))
                if code == _abi.OK:
                    tensors = _dlpack.to_torch(slots, raw.num_tensors, self._versioned)
                    return RawBatch(int(raw.index), int(raw.num_seeds), tensors)
                if code == _abi.END or not wait:
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
    _run_job("fg_hotness", *_source_handles(source), ctypes.byref(raw), pointer_to(out, ctypes.c_float), num_nodes)
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
    batches = (_abi.Array * len(trace))(*(arrays.one(f"trace[{i}]", ids) for i, ids in enumerate(trace)))
    raw = _abi.Simulation(
        struct_size=ctypes.sizeof(_abi.Simulation),
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
    _run_job("fg_simulate", ctypes.byref(raw))
    return reads, hits, swaps, int(fill)


def _source_handles(source: Store | Graph | TypedGraph) -> tuple[int | None, int | None]:
    """The handle of a store and that of a graph, of which the library takes one."""
    handle = source._handle()
    return (handle, None) if isinstance(source, Store) else (None, handle)


def convert(
    path: str | os.PathLike[str],
    *,
    num_nodes: int | None,
    edge_index: ArrayLike | NpyFile,
    node_tensors: Mapping[str, ArrayLike | NpyFile],
    edge_tensors: Mapping[str, ArrayLike | NpyFile],
    splits: Mapping[str, ArrayLike | NpyFile],
    memory: int,
    overwrite: bool = False,
    relayout: str | None = None,
    weights: str | None = None,
    progress: Progress | None = None,
) -> Store | None:
    """Write a store at ``path`` within ``memory`` bytes. It appears whole or not at all.

    With an order for ``relayout`` it does not appear yet: what is returned can be read, :func:`relayout` finishes it,
    and closing it discards it.

    Inputs are tensors, arrays of any strides, or :class:`NpyFile`. An array that is a shared mapping of a file
    is read from the file, so that none of its pages are mapped in. ``num_nodes=None`` derives it from the data.
    Splits are int64 node ids or bool masks. ``weights`` is the edge tensor that is stored by position too.

    Raises:
        InvalidArgumentError, DTypeError: input that does not fit together; the message says where
        StoreExistsError, StorePermissionError, BusyError: the path cannot be written
        BudgetError: ``memory`` is too small; its ``minimum`` works
        ReadError, WriteError: the disk failed or is full
    """
    arrays = _dlpack.ArrayList(map_files=True)
    raw = _abi.ConvertInput(
        struct_size=ctypes.sizeof(_abi.ConvertInput),
        overwrite=int(overwrite),
        num_nodes=-1 if num_nodes is None else num_nodes,
        memory=memory,
    )
    raw.edge_index = arrays.one("edge_index", edge_index)
    raw.node_tensors, raw.num_node_tensors = arrays.many(node_tensors)
    raw.edge_tensors, raw.num_edge_tensors = arrays.many(edge_tensors)
    raw.splits, raw.num_splits = arrays.many(splits)
    raw.relayout = None if relayout is None else relayout.encode()
    names = _names([weights])
    raw.weights = names
    arguments = (ctypes.byref(raw), os.fsencode(path))
    pointer = _run_job("fg_convert_start", *arguments, discard=_discard_store, progress=progress)
    return Store._adopt(pointer) if pointer else None


def convert_types(
    parts: TypedParts,
    path: str | os.PathLike[str],
    *,
    memory: int,
    overwrite: bool = False,
    weights: Mapping[tuple[str, str, str], str] | None = None,
    progress: Progress | None = None,
) -> None:
    """Write a heterogeneous graph as a store at ``path``: as :func:`convert`, one type after the other.
    ``weights`` names the tensors of edge types that are stored by position too."""
    arrays = _dlpack.ArrayList(map_files=True)
    nodes, edges = _types(parts, arrays)
    names = _names([(weights or {}).get(edge_type) for edge_type in parts.edges])
    raw = _abi.ConvertInput(
        struct_size=ctypes.sizeof(_abi.ConvertInput),
        overwrite=int(overwrite),
        num_nodes=-1,
        memory=memory,
        node_types=nodes,
        edge_types=edges,
        num_node_types=len(nodes),
        num_edge_types=len(edges),
        weights=names,
    )
    _run_job("fg_convert_start", ctypes.byref(raw), os.fsencode(path), progress=progress)


def _names(names: Sequence[str | None]) -> ctypes.Array[ctypes.c_char_p]:
    """Names as the library takes them, NULL for None. It holds their memory."""
    return (ctypes.c_char_p * len(names))(*(None if name is None else name.encode() for name in names))


def _discard_store(pointer: int) -> None:
    _abi.call("fg_store_close", pointer)


def relayout(
    store: Store,
    path: str | os.PathLike[str] | None,
    *,
    order: str,
    scores: torch.Tensor | None,
    hot_rows: int | None,
    memory: int,
    overwrite: bool = False,
    progress: Progress | None = None,
) -> None:
    """Write a store with the rows of the node tensors in another order at ``path``, which is None for a store that
    :func:`convert` did not publish: it is finished in place. ``scores`` is float32, one for each node, contiguous.

    Raises:
        InvalidArgumentError, BudgetError, CorruptError, and the errors of :func:`convert` for the path
    """
    raw = _abi.RelayoutInput(
        struct_size=ctypes.sizeof(_abi.RelayoutInput),
        overwrite=int(overwrite),
        memory=memory,
        hot_rows=_abi.AUTO if hot_rows is None else hot_rows,
        order=order.encode(),
    )
    if scores is not None:
        raw.scores, raw.num_scores = pointer_to(scores, ctypes.c_float), scores.numel()
    target = None if path is None else os.fsencode(path)
    _run_job("fg_relayout_start", store._handle(), ctypes.byref(raw), target, progress=progress)
