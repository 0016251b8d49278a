"""Where a loader is in its epochs."""

from __future__ import annotations

import threading
from typing import Any, Literal

Mode = Literal["train", "trace", "plain"]

FEW = 32
"""Fewer batches than these are not worth opening a loader for. Arbitrary."""


class Position:
    """Which epoch a loader is in, how far, and which of its iterators is served.

    The loader does not know its iterators, only the number of the newest, so that one that is dropped in mid-epoch is
    collected at once, which stops the work.
    """

    def __init__(self) -> None:
        self.epoch, self.done = 0, 0  # what state_dict() saves: batches count over all ranks
        self.begun = False  # whether that epoch was begun: then the next iter() takes the one after it
        self.run = 0  # numbers the iterators; only the newest one is served
        self.running: int | None = None  # the one whose epoch the library runs, or goes on with when it is opened again
        self.since, self.counted = 0, 0  # the batch that was next when the library began, and the one that is next now
        self.continued = False  # whether the library was opened again for this iterator, in the same epoch
        self.hurried = 0  # how often it was closed after a few batches of this iterator
        self.lock = threading.RLock()  # held by who ends an epoch or begins one
        self.whole: list[dict[str, Any]] = []  # what each whole epoch added to the loader's figures

    @property
    def busy(self) -> bool:
        """Whether an iterator that is served has not come to its end."""
        return self.running == self.run

    def interrupted(self) -> None:
        """Note that the library is closed in mid-epoch, to be opened again where the iterator goes on."""
        if self.busy and self.counted - self.since < FEW:
            self.hurried += 1

    def end(self) -> None:
        """Serve the iterators that there are no longer."""
        with self.lock:
            self.run += 1

    def move(self, epoch: int, done: int) -> None:
        """Let the next iterator begin there."""
        self.epoch, self.done, self.begun = epoch, done, False
