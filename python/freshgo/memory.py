"""A memory budget that several loaders of a process share."""

from __future__ import annotations

import threading
import time
import warnings
import weakref
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from freshgo._args import checks
from freshgo._args.entry import entry
from freshgo._args.size import format_size, parse_size
from freshgo.errors import BudgetError, InvalidArgumentError

__all__ = ["MemoryBudget"]

_ENOUGH = 4
"""The part of what a loader may use, as a divisor, that is enough for not disturbing others in mid-epoch. Arbitrary."""

_HURRIES = 2
"""How often a loader in mid-epoch lends its memory after a few batches before it keeps a part. Once may be all: a
sanity check takes two batches."""

_PATIENCE = 60.0
"""Seconds that a loader waits for another that is beginning an epoch in another thread. Arbitrary."""


class _Counted(Protocol):
    def stats(self) -> dict[str, Any]: ...


Opened = TypeVar("Opened", bound=_Counted)


class Borrower(Protocol):
    """A loader, as its budget sees it."""

    def lending(self) -> Lending:
        """Return what the loader would lose if it lent its memory now."""

    def give_back(self) -> bool:
        """Free everything, to be opened again later, in mid-epoch at the same batch; False where another thread is
        beginning an epoch of the loader, or waits for a batch on demand."""


@dataclass(frozen=True)
class Lending:
    """What a loader with memory of a budget is doing."""

    keeps: bool = False
    """It has a history, which would be lost."""
    underway: bool = False
    """One of its iterators may be continued."""
    continued: bool = False
    """That iterator has been continued since the loader lent its memory in this epoch."""
    hurried: int = 0
    """How often that iterator lent its memory after a few batches."""


@entry
class MemoryBudget:
    """Memory for several loaders of a process, such as those for training, validation and test, as ``memory=`` of each.

        budget = MemoryBudget("8GiB")
        train = Loader(store, [15, 10], "train", memory=budget)
        valid = Loader(store, [15, 10], "valid", memory=budget)

    The loader whose epoch runs may use the whole budget. A loader that lacks memory when it is opened or begins an
    epoch takes it from the others: first from loaders that are not in an epoch, then from loaders in mid-epoch. A
    loader that lends its memory frees everything it holds. It opens again when its next batch is requested, and
    continues an epoch where it was. Opening again reads its topology and fills its caches again; it changes no batch.
    ``stats()["openings"]`` counts how often a loader was opened, and ``"seconds_opening"`` says how long it took.
    Loaders with a ``history`` keep what they hold.

    Loaders that are iterated in turns, as by ``zip(train, valid)``, divide the budget among themselves after a few
    batches, so that they stop taking it from each other. If the budget is too small for both, ``BudgetError`` says what
    they need. To choose the division, give the loaders parts of the budget: ``memory=budget.at_most("6GiB")``. A loader
    in mid-epoch lends nothing while a quarter of what the other one may use is free.

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
        return sum(self._pool.holders().values())

    def at_most(self, size: int | str) -> MemoryBudget:
        """Return the same budget for loaders that take no more of it than ``size``, in bytes or as ``"2GiB"``.

        Raises:
            InvalidArgumentError, DTypeError: ``size`` is not a valid size, or larger than this budget.
        """
        most = _checked("size", size)
        if most > self._most:
            raise InvalidArgumentError(
                f"size must be at most the whole budget, {format_size(self._most)}, got {format_size(most)}"
            )
        part = MemoryBudget(self._most)
        part._pool, part._most = self._pool, most
        return part

    def __repr__(self) -> str:
        part = "" if self._most == self._pool.size else f" of {format_size(self._pool.size)}"
        return f"MemoryBudget({format_size(self._most)}{part}, {format_size(self.lent)} lent)"

    # What its loaders call.

    def _lend(self, to: Borrower, open_with: Callable[[int], Opened]) -> Opened:
        """Open a loader with as much as it may have, once others have given back what it needs."""
        return self._pool.lend(to, self._most, open_with)

    def _returned(self, by: Borrower) -> None:
        """Take note that a loader was closed."""
        self._pool.returned(by, closed=True)


class _Pool:
    """What all parts of a budget share."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.turn = threading.RLock()  # held by who lends: others wait until a loader is open
        self.lock = threading.RLock()  # of the dictionaries
        self.borrowed: weakref.WeakKeyDictionary[Borrower, int] = weakref.WeakKeyDictionary()
        self.smallest: weakref.WeakKeyDictionary[Borrower, int] = weakref.WeakKeyDictionary()
        """The smallest memory that works, of each loader that was opened."""

    def holders(self) -> dict[Borrower, int]:
        with self.lock:
            return dict(self.borrowed)

    def returned(self, by: Borrower, *, closed: bool = False) -> None:
        with self.lock:
            self.borrowed.pop(by, None)
            if closed:
                self.smallest.pop(by, None)

    def lend(self, to: Borrower, most: int, open_with: Callable[[int], Opened]) -> Opened:
        self.returned(to)  # before the turn: nobody waits for the memory of a loader that waits
        with self.turn:
            mine = to.lending()
            if mine.hurried < _HURRIES:  # else an idle loader begins its next epoch within a few batches
                self._reclaim(most, lambda of: not of.underway)
            share = None if self._free() >= most else self._share(to, mine)
            if share is not None:
                return self._open(to, min(most, share), open_with)
            if self._free() >= most // _ENOUGH:
                try:
                    return self._open(to, most, open_with)
                except BudgetError:
                    if self._free() >= most or not self._by_loss():
                        raise
            self._reclaim(most, lambda _: True)
            return self._open(to, most, open_with)

    def _open(self, to: Borrower, most: int, open_with: Callable[[int], Opened]) -> Opened:
        n_bytes = min(most, self._free())
        if n_bytes == 0:
            raise BudgetError(f"nothing is left of the shared memory budget: {self._why()}")
        try:
            opened = open_with(n_bytes)
        except BudgetError as error:
            if n_bytes == most:
                raise
            raise BudgetError(f"{error}; {self._why()}", error.minimum) from None
        with self.lock:
            self.borrowed[to] = n_bytes
            self.smallest[to] = int(opened.stats()["memory_smallest"])
        return opened

    def _free(self) -> int:
        return self.size - sum(self.holders().values())

    def _reclaim(self, most: int, may: Callable[[Lending], bool]) -> None:
        """Take memory back until ``most`` is free."""
        for other, lending in self._by_loss():
            if self._free() < most and may(lending):
                self._take_back(other)

    def _by_loss(self) -> list[tuple[Borrower, Lending]]:
        """Return the loaders that can lend what they hold: idle ones first, then those whose iterator was never
        continued, which may have been left."""
        ready = [(other, other.lending()) for other in self.holders()]
        return sorted(
            ((other, of) for other, of in ready if not of.keeps), key=lambda one: (one[1].underway, one[1].continued)
        )

    def _take_back(self, other: Borrower) -> None:
        """Wait for a loader to give its memory back. A loader that holds memory waits for none, so this ends soon."""
        deadline = time.monotonic() + _PATIENCE
        while other in self.holders() and not other.give_back():
            if time.monotonic() > deadline:
                return
            time.sleep(0.002)
        self.returned(other)

    def _share(self, to: Borrower, mine: Lending) -> int | None:
        """Return the share of a loader that is iterated in turns with others, which keep theirs: what each needs, and
        an equal part of the rest. Return None where there are no others."""
        with self.lock:
            smallest, held = dict(self.smallest), dict(self.borrowed)
        if to not in smallest:
            return None
        others = [(other, of) for other in smallest if other is not to and (of := other.lending()).underway]
        in_turns = [other for other, of in others if mine.underway and mine.continued and of.continued]
        together = in_turns or [other for other, of in others if of.hurried >= _HURRIES]
        if not together:
            return None
        needs = [smallest[one] for one in (to, *together)]
        rest = self.size - sum(needs) - sum(n for other, n in held.items() if other.lending().keeps)
        if rest < 0:
            why = (
                f"{len(needs)} loaders that are iterated in turns need at least "
                f"{' + '.join(map(format_size, needs))} of the shared memory budget of {format_size(self.size)}"
            )
            if in_turns:
                minimum = self.size - rest
                raise BudgetError(f"{why}: give them {format_size(minimum)}, or end one loop before the next", minimum)
            warnings.warn(
                f"{why}, and are opened again and again for a few batches: give them more, or iterate less often",
                UserWarning,
                stacklevel=checks.caller(),
            )
            return None
        for other in together:
            if held.get(other, 0) > smallest[other] + rest // len(needs):
                self._take_back(other)
        share = smallest[to] + rest // len(needs)
        for other, _ in self._by_loss():
            if self._free() < share and other not in together:
                self._take_back(other)
        return share

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
