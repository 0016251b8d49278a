"""Native loaders, and the policy laboratory over the same options.

Nothing here loads the native library at import; the first object or call does.
"""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import weakref
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol

import torch

from freshgo._args.progress import Progress, progress_of
from freshgo._native import abi, dlpack, header
from freshgo._native.graph import Graph, source_handles
from freshgo._native.handle import POLL_MS, Handle, run_job
from freshgo._native.history import HistoryCalls
from freshgo._native.options import LoaderOptions, filled, loader_options, pointer_to, raw_options
from freshgo._native.store import Store
from freshgo.errors import FreshgoError

__all__ = ["Loader", "RawBatch", "hotness", "lock_lists", "read_list", "share_count", "simulate", "stored_lists"]


@dataclass(frozen=True)
class RawBatch:
    """One batch: its position in the epoch, its number of seeds, and its tensors by name, which own their memory."""

    index: int
    num_seeds: int
    tensors: dict[str, torch.Tensor]


_living: weakref.WeakSet[Loader] = weakref.WeakSet()


@atexit.register
def _close_living() -> None:
    """Close what is still open when the interpreter exits: threads of the library would prepare batches until the
    modules are gone, for nobody, and take the processor from what ends them."""
    for loader in list(_living):
        with contextlib.suppress(Exception):  # nobody is told any more
            if not loader.closed and not abi.forked():
                loader.close()


_PATIENCE = 5.0
"""Seconds of waiting after which a bar appears."""

_MODES = {"train": header.TRAIN, "trace": header.TRACE, "plain": header.PLAIN}


class Batches(Protocol):
    """Where the batches of an epoch come from: a native loader, or what has this face."""

    def next(self, *, wait: bool = True, timeout_ms: int = 0) -> RawBatch | None:
        """The next batch; ``None`` after the last one, and without ``wait`` where it is not made within
        ``timeout_ms``."""


class Loader(Handle, HistoryCalls):
    """Batches of a store or a graph, prepared ahead in threads of the library."""

    _closer = "fg_loader_close"
    _what = "loader"

    def __init__(self, source: Store | Graph, options: LoaderOptions, progress: bool | Progress = False) -> None:
        """Load the topology, fill the caches and check the options against the source, which is kept open until
        this loader is closed. ``progress`` is shown while this, or a batch, takes long.

        Raises:
            InvalidArgumentError: an option or a seed that cannot work
            BudgetError: ``memory`` is too small; its ``minimum`` works
            ReadError, CorruptError: the store cannot be read
        """
        super().__init__()
        self._source = source
        self._options = raw_options(options)  # keeps alive what the library reads where it lies
        arguments = (*source_handles(source), ctypes.byref(self._options))
        self._progress = progress
        with progress_of(progress, _PATIENCE) as report:
            self._pointer = run_job("fg_loader_open", *arguments, discard=self._discard, progress=report)
        info = header.LoaderDetails()
        abi.call("fg_loader_info", self._pointer, ctypes.byref(info))
        self.num_batches = int(info.num_batches)
        self._tensor_slots = header.Tensor * int(info.max_tensors)
        self._versioned = dlpack.use_versioned()
        _living.add(self)

    def check_open(self) -> None:
        """Raise ClosedError after :meth:`close`."""
        self._handle()

    def tables(self) -> dict[str, torch.Tensor]:
        """The node tensors whose rows batches leave out with ``rows_by_id``, by the names of batches. They are over the
        loader's memory: nothing reads them once it is closed."""
        _, tables = self._received("fg_loader_tables", self._handle())
        assert tables is not None, "the library gives an error or tensors"
        return tables.tensors

    def take(self, share: Mapping[str, int]) -> None:
        """Make the epochs that start from now on those of a share. Another than the one so far ends what runs."""
        abi.call("fg_loader_take", self._handle(), ctypes.byref(filled(header.Share, share)))

    def start(self, epoch: int, first_batch: int, mode: Literal["train", "trace", "plain"] = "train") -> None:
        """Stop what runs and begin ``epoch`` where ``first_batch`` batches of it have been made, by whatever ranks. A
        trace produces only ids, a plain epoch uses no history."""
        abi.call("fg_loader_start", self._handle(), epoch, first_batch, _MODES[mode])

    def next(self, *, wait: bool = True, timeout_ms: int = 0) -> RawBatch | None:
        """The next batch of the epoch, ``None`` after the last one, and without ``wait`` where it is not made within
        ``timeout_ms``. Waits in steps, so Ctrl-C works."""
        code, batch = self._received("fg_loader_next", self._handle(), POLL_MS if wait else timeout_ms)
        if code != header.TIMEOUT or not wait:
            return batch
        with progress_of(self._progress, _PATIENCE) as report:
            while code == header.TIMEOUT:
                if report is not None:
                    _report_stage(self._handle(), report)
                code, batch = self._received("fg_loader_next", self._handle(), POLL_MS)
        return batch

    def sample(self, ask: Mapping[str, Any]) -> RawBatch:
        """The batch for what is asked for, the members of ``fg_ask``, apart from all epochs. Any number of threads may
        ask at a time."""

        def drop(sampled: int) -> None:
            """Free a batch that nobody took, if there is one."""
            with contextlib.suppress(FreshgoError):
                self._received("fg_sampled_take", sampled)

        raw = filled(header.Ask, ask)
        sampled = run_job("fg_loader_sample", self._handle(), ctypes.byref(raw), discard=drop)
        try:
            _, batch = self._received("fg_sampled_take", sampled)
        except BaseException:  # Ctrl-C may strike before the library has handed it over
            drop(sampled)
            raise
        assert batch is not None, "the library gives an error or a batch"
        return batch

    def _received(self, function: str, *args: Any) -> tuple[int, RawBatch | None]:
        """What the library says, and the batch that it hands over."""
        slots = self._tensor_slots()
        raw = header.Batch(versioned=int(self._versioned), capacity=len(slots), tensors=slots)
        try:
            code = abi.call(function, *args, ctypes.byref(raw))
            if code != header.OK:
                return code, None
            tensors = dlpack.to_torch(slots, raw.num_tensors, self._versioned)
            return code, RawBatch(int(raw.index), int(raw.num_seeds), tensors)
        except BaseException:  # Ctrl-C may strike right after the library handed the batch over
            dlpack.discard(slots, raw.num_tensors, self._versioned)
            raise

    def stop(self) -> None:
        """End the running epoch and free what was prepared; the loader can be started again."""
        abi.call("fg_loader_stop", self._handle())

    def stats(self) -> dict[str, Any]:
        """Counters of the loader since it was opened."""
        return abi.read_json("fg_loader_stats", self._handle())

    def plan(self) -> dict[str, Any]:
        """How the memory is divided, what the transfer of every window would take, and what it took."""
        return abi.read_json("fg_loader_plan", self._handle())


def _report_stage(loader: int, report: Progress) -> None:
    """Report what the batch that the loop waits for waits for itself."""
    state = header.Progress()
    abi.call("fg_loader_progress", loader, ctypes.byref(state))
    report(state.stage.decode() or "preparing a batch", int(state.done), int(state.total))


def read_list(loader: Loader, relation: int, number: int, first: int, out: torch.Tensor) -> bool:
    """Copy a part of LIST_PTR or LIST_POSITIVE of a relation to ``out`` (int64 on the CPU), of a loader with
    ``seeds_only``. Return False where there is no such list."""
    to = pointer_to(out, ctypes.c_int64)
    return abi.call("fg_loader_list", loader._handle(), relation, number, first, out.numel(), to) == header.OK


def stored_lists(loader: Loader, relation: int) -> dict[str, tuple[torch.Tensor, int]]:
    """Return the stored lists that a relation has, by their names in ``fg_stored_lists``: uint8 over the memory of the
    loader, which nothing reads once it is closed, and the bits of an element."""
    raw = header.StoredLists()
    abi.call("fg_loader_stored_lists", loader._handle(), relation, ctypes.byref(raw))
    found = ((name, getattr(raw, name)) for name, _ in raw._fields_)
    return {name: (_bytes_at(of.data, of.n_bytes), int(of.bits)) for name, of in found if of.bits}


def _bytes_at(address: int | None, n_bytes: int) -> torch.Tensor:
    if address is None:
        return torch.empty(0, dtype=torch.uint8)
    return torch.frombuffer((ctypes.c_uint8 * n_bytes).from_address(address), dtype=torch.uint8)


def lock_lists(loader: Loader) -> bool:
    """Lock the memory of :func:`stored_lists` for the device until the loader is closed. Return False where the system
    refuses."""
    return abi.call("fg_loader_lock_lists", loader._handle()) == header.OK


def share_count(share: Mapping[str, int], num_batches: int, first_batch: int) -> int:
    """How many batches are in a share, the members of ``fg_share``, of an epoch of ``num_batches``, once
    ``first_batch`` of them have been made by whatever ranks."""
    count = ctypes.c_int64()
    of = filled(header.Share, share)
    abi.call("fg_share_count", ctypes.byref(of), num_batches, first_batch, ctypes.byref(count))
    return count.value


def hotness(source: Store | Graph, num_nodes: int, options: LoaderOptions) -> torch.Tensor:
    """The scores (float32, one per node) by which a loader of these options fills its cache: ``cache`` names
    the metric.

    Raises:
        InvalidArgumentError, BudgetError, ReadError, CorruptError: as :class:`Loader`
    """
    out = torch.empty(num_nodes, dtype=torch.float32, device="cpu")
    raw = raw_options(options)
    run_job("fg_hotness", *source_handles(source), ctypes.byref(raw), pointer_to(out, ctypes.c_float), num_nodes)
    return out


def stored_rows(
    source: Store | Graph, ids: torch.Tensor, rows: int, **options: Any
) -> Iterator[dict[str, torch.Tensor]]:
    """Yield the rows of nodes as they are stored, in the order of ``ids``, ``rows`` at a time, and keep none."""
    alone = {"prefetch": 2, "cache": "none", "feature_cache": 0, "neighbor_cache": 0, "feature_dtype": "stored"}
    with contextlib.closing(Loader(source, loader_options(seeds=ids, batch_size=rows, **alone, **options))) as loader:
        loader.start(0, 0)
        while (batch := loader.next()) is not None:
            yield batch.tensors


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
    reads, hits, swaps = (torch.empty(len(trace), dtype=torch.int64, device="cpu") for _ in range(3))
    fill = torch.zeros(1, dtype=torch.int64, device="cpu")
    arrays = dlpack.ArrayList()
    batches = (header.Array * len(trace))(*(arrays.one(f"trace[{i}]", ids) for i, ids in enumerate(trace)))
    raw = filled(
        header.Simulation,
        {
            "policy": policy,
            "capacity": capacity,
            "num_nodes": num_nodes,
            "superbatch": superbatch or 0,
            "carry_over": carry_over,
            "lookahead": lookahead,
            "hotness": hotness,
            "hotness_seed": hotness_seed,
            "trace": batches,
            "num_batches": len(batches),
            "reads": reads,
            "hits": hits,
            "swaps": swaps,
            "fill": fill,
        },
    )
    run_job("fg_simulate", ctypes.byref(raw))
    return reads, hits, swaps, int(fill)
