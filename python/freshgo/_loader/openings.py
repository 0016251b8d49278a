"""The native loader of a loader, which may be opened more than once: for another order of batches, and after it has
lent its memory to another loader."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable
from typing import Any, Protocol

from freshgo._args.size import format_size, too_small
from freshgo._native import openmp
from freshgo._native.loader import Loader as NativeLoader
from freshgo._native.options import LoaderOptions
from freshgo._observe import log
from freshgo.errors import BudgetError, ClosedError
from freshgo.memory import Borrower, MemoryBudget

_GROW = (
    *("batches", "padded", "rows", "hits", "packed", "misses", "held", "filled", "edges"),
    *("bytes_read", "requests", "retries"),
    *("neighbor_hits", "neighbor_misses", "resampled", "pack_errors", "scratch_written", "scratch_read"),
    *("table_rows", "table_rows_late", "table_bytes_read", "table_bytes_written", "table_bytes_returned"),
    *("seconds_opening", "seconds_sampling", "seconds_reading", "seconds_gathering", "seconds_waiting"),
    "seconds_planning",
)
"""The figures that add up over openings; others are those of the last one."""


class Reader(Protocol):
    """What reads the memory of a native loader, beside its batches."""

    def opened(self, native: NativeLoader) -> None:
        """Read the memory of this one from now on."""

    def closing(self) -> None:
        """Leave it alone, when this returns."""

    def fit(self) -> dict[str, Any]:
        """Choose, while no native loader is open, which rows stay on a device; return options of the next one."""

    def unfit(self) -> dict[str, Any]:
        """Hold no rows that were chosen so, and return options of the next native loader."""


class Openings:
    """A native loader, with memory of its own or lent by a budget.

    Who opens or closes it holds the lock of the loader's position."""

    def __init__(
        self,
        make: Callable[[LoaderOptions], NativeLoader],
        options: LoaderOptions,
        budget: MemoryBudget | None,
        owner: Borrower,
        reader: Reader,
        beside: int = 0,
    ) -> None:
        """``beside``: bytes of its memory that are taken already."""
        self._make, self._options, self._budget, self._beside = make, options, budget, beside
        self._reader = reader
        self._owner = weakref.ref(owner)  # which holds this: a cycle would keep the memory of a loader that is dropped
        self._lock = threading.RLock()
        self._before: dict[str, Any] = {}  # the figures of earlier openings
        self._plan: dict[str, Any] = {}  # of the last opening, while there is none
        self._count = 0
        self._processors: openmp.Shared | None = None  # while the native loader works on them beside the model
        self.closed = False
        self.native = self._open()
        self.num_batches = self.native.num_batches

    def _open(self) -> NativeLoader:
        if self._budget is None:
            opened = self._with(int(self._options["memory"]))
        else:
            owner = self._owner()
            assert owner is not None, "a loader that is gone opens nothing"
            opened = self._budget._lend(owner, self._with)
        try:
            self._reader.opened(opened)
        except BaseException:
            self._reader.closing()
            opened.close()
            raise
        self._count += 1
        stats = opened.stats()
        log.opened(stats)
        if stats["cache"] != "none" or stats["topology_on_disk"]:
            self._processors = openmp.Shared()
        return opened

    def _with(self, n_bytes: int) -> NativeLoader:
        try:
            return self._make({**self._options, "memory": max(1, n_bytes - self._beside)})
        except BudgetError as error:
            if not self._beside:
                raise
            least = error.minimum and error.minimum + self._beside
            what = too_small(n_bytes, least) if least else str(error)
            attributes = f"attributes of the graph as a whole take {format_size(self._beside)} of it"
            raise BudgetError(f"{what}; {attributes}", least) from None

    def check(self) -> None:
        """Raise ClosedError after :meth:`close`."""
        if self.closed:
            raise ClosedError("loader is closed")
        if not self.native.closed:
            self.native.check_open()

    def ready(self) -> NativeLoader:
        """Return the native loader, opened again if it has given its memory back."""
        self.check()
        with self._lock:
            if self.native.closed:
                self.native = self._open()
            return self.native

    def change(self, **options: object) -> NativeLoader:
        """Return the native loader with these options, opened again: two of them may not fit into the memory."""
        with self._lock:
            self.give_back()
            self.keep(**options)
            return self.ready()

    def keep(self, **options: object) -> None:
        """Take these options when it is opened again."""
        self._options = {**self._options, **options}

    def refit(self) -> None:
        """Let the reader choose the rows that stay on a device, and open the native loader again without them."""
        with self._lock:
            self.give_back()  # the memory in which rows are ranked and read
            self.keep(**self._reader.unfit())
            self.keep(**self._reader.fit())
            try:
                self.ready()
            except BudgetError as error:  # to say where rows are takes memory too
                log.LOG.info("no device_cache: %s", error)
                self.keep(**self._reader.unfit())

    def stop(self) -> None:
        """End the running epoch, if there is one."""
        with self._lock:
            if self.closed or not self.native.closed:
                self.native.stop()

    def give_back(self) -> None:
        """Close the native loader until :meth:`ready`."""
        with self._lock:
            if not self.native.closed:
                self._before, self._plan = self.stats(), self.native.plan()
                self._end()

    def _end(self) -> None:
        self._reader.closing()
        self.native.close()
        if self._processors is not None:
            self._processors.release()

    def close(self) -> None:
        """Close it for good."""
        self.closed = True
        self._end()
        owner = self._owner()
        if self._budget is not None and owner is not None:
            self._budget._returned(owner)

    def stats(self) -> dict[str, Any]:
        """Return the figures of all openings."""
        with self._lock:
            if self.native.closed and not self.closed:
                return self._before | {"memory_used": 0, "memory": {}}
            now = self.native.stats()
            sums = {name: self._before.get(name, 0) + now[name] for name in _GROW}
            return {**now, **sums, "openings": self._count}

    def plan(self) -> dict[str, Any]:
        """Return the plan of the last opening."""
        with self._lock:
            return self._plan if self.native.closed and not self.closed else self.native.plan()
