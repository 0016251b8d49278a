"""A memory budget that several loaders of a process share."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable
from typing import Protocol, TypeVar

from freshgo._args.size import format_size, parse_size
from freshgo.errors import BudgetError, InvalidArgumentError

__all__ = ["MemoryBudget"]

Opened = TypeVar("Opened")


class Borrower(Protocol):
    """A loader, as its budget sees it."""

    def _give_back(self) -> bool:
        """Free everything, to be opened again later; False where an epoch runs or something would be lost."""


class MemoryBudget:
    """Memory for several loaders of a process, such as those for training, validation and test, as ``memory=`` of each.

        budget = MemoryBudget("8GiB")
        train = Loader(store, [15, 10], "train", memory=budget)
        valid = Loader(store, [15, 10], "valid", memory=budget)

    The loader whose epoch runs may use the whole budget. A loader that is not in an epoch lends its memory: if another
    loader is opened or begins an epoch and lacks memory, the idle loader frees everything it holds, and opens again
    when its own next epoch begins. Opening again reads its topology and fills its caches again; it changes no batch.
    ``stats()["openings"]`` counts how often a loader was opened, and ``"seconds_opening"`` says how long it took.
    Loaders with a ``history`` keep what they hold.

    Loaders whose epochs run at the same time share the budget: the second one gets what the first one left. To leave
    something for it, give the loaders parts of the budget: ``memory=budget.at_most("6GiB")``.

    Args:
        size: bytes, or a string such as ``"8GiB"``. Batches that the consumer keeps are not counted.

    Raises:
        InvalidArgumentError, DTypeError: ``size`` is not a valid size.
    """

    def __init__(self, size: int | str) -> None:
        self._pool = _Pool(_checked("size", size))
        self._most = self._pool.size

    @property
    def size(self) -> int:
        """The most bytes that a loader with this budget may use."""
        return self._most

    @property
    def lent(self) -> int:
        """The bytes of the whole budget that loaders hold now."""
        with self._pool.lock:
            return sum(self._pool.held.values())

    def at_most(self, size: int | str) -> MemoryBudget:
        """Return the same budget for loaders that take no more of it than ``size``, in bytes or as ``"2GiB"``.

        Raises:
            InvalidArgumentError, DTypeError: ``size`` is not a valid size, or larger than this budget.
        """
        most = _checked("size", size)
        if most > self._most:
            raise InvalidArgumentError(f"size must be at most that of the budget, {self._most} bytes, got {most}")
        part = MemoryBudget(self._most)
        part._pool, part._most = self._pool, most
        return part

    def __repr__(self) -> str:
        part = "" if self._most == self._pool.size else f" of {format_size(self._pool.size)}"
        return f"MemoryBudget({format_size(self._most)}{part}, {format_size(self.lent)} lent)"

    # What its loaders call.

    def _lend(self, to: Borrower, open_with: Callable[[int], Opened]) -> Opened:
        """Open a loader with as much as it may have, once those that are idle have given back what it needs of that."""
        return self._pool.lend(to, self._most, open_with)

    def _returned(self, by: Borrower) -> None:
        """Take note that a loader was closed."""
        with self._pool.lock:
            self._pool.held.pop(by, None)


class _Pool:
    """What all parts of a budget share."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.lock = threading.RLock()
        self.held: weakref.WeakKeyDictionary[Borrower, int] = weakref.WeakKeyDictionary()

    def lend(self, to: Borrower, most: int, open_with: Callable[[int], Opened]) -> Opened:
        with self.lock:
            self.held.pop(to, None)
            for other in list(self.held):  # the one that was opened first first
                if self._free() >= most:
                    break
                if other._give_back():
                    self.held.pop(other, None)
            n_bytes = min(most, self._free())
            if n_bytes == 0:
                raise BudgetError(f"nothing is left of the shared memory budget: {self._why()}")
            try:
                opened = open_with(n_bytes)
            except BudgetError as error:
                if n_bytes == most:
                    raise
                raise BudgetError(f"{error}; {self._why()}", error.minimum) from None
            self.held[to] = n_bytes
            return opened

    def _free(self) -> int:
        return self.size - sum(self.held.values())

    def _why(self) -> str:
        return (
            f"{format_size(self.size - self._free())} of {format_size(self.size)} are held by loaders in an epoch "
            "or with a history; give loaders that run at the same time parts of it: memory=budget.at_most(...)"
        )


def _checked(name: str, size: int | str) -> int:
    n_bytes = parse_size(name, size)
    if n_bytes == 0:
        raise InvalidArgumentError(f"{name} must be at least 1 byte, got 0")
    return n_bytes
