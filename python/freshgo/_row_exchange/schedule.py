"""In which order ranks exchange bytes, and in which of two ways: arithmetic alone.

All at once (``all_to_all``), every rank sends to all others at the same time. In rounds (FreshGNN's multi-round
communication), the pairs of a round are disjoint, so that every link carries the bytes of one pair at a time, in both
directions; every pair meets once. A pair hands over a bounded number of bytes at a time. Rounds are what a
1-factorisation of the complete graph gives: n - 1 of n / 2 pairs if the number of ranks n is even, and n of (n - 1) / 2
if it is odd, where a rank rests in each.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

Way = Literal["all_to_all", "rounds"]
WAYS: tuple[Way, ...] = ("all_to_all", "rounds")

ROUND_BYTES = 8 << 20
"""What a pair hands over at a time, in each direction. Arbitrary."""

_TRIALS = 4
"""Exchanges of each way that are measured, after one that is not."""

_MARGIN = 0.9
"""In rounds, if that takes at most this part of the time: the other way waits for fewer messages."""


def rounds(world_size: int) -> list[list[tuple[int, int]]]:
    """Return the pairs of every round, each with its lower rank first."""
    size = world_size + world_size % 2  # with a rank that is not there, whose partner rests
    found = []
    for turn in range(size - 1):
        circle = [size - 1, *((turn + i) % (size - 1) for i in range(size - 1))]
        pairs = [(circle[i], circle[size - 1 - i]) for i in range(size // 2)]
        found.append(sorted((min(pair), max(pair)) for pair in pairs if max(pair) < world_size))
    return found


def partners(world_size: int, rank: int) -> list[int]:
    """Return the ranks that one meets, in the order of the rounds; in a round in which it rests, none."""
    return [a + b - rank for pairs in rounds(world_size) for a, b in pairs if rank in (a, b)]


def pieces(n_bytes: int, bound: int) -> list[tuple[int, int]]:
    """Return the ranges in which the bytes are sent."""
    return [(first, min(first + bound, n_bytes)) for first in range(0, n_bytes, bound)]


@dataclass
class Chooser:
    """Which way an exchange takes. Every rank is told the same of every exchange, and so chooses the same."""

    way: Way
    """The next one."""
    measuring: bool
    _seconds_per_byte: dict[str, list[float]] = field(default_factory=lambda: {"all_to_all": [], "rounds": []})

    @classmethod
    def of(cls, exchange: str) -> Chooser:
        """What an option says: a way, or ``"auto"``."""
        if exchange == "auto":
            return cls("all_to_all", True)
        return cls(next(way for way in WAYS if way == exchange), False)

    def record(self, seconds: float, n_bytes: int, way: Way) -> None:
        """Record an exchange of ``n_bytes`` by all ranks, and the seconds of the slowest."""
        if not self.measuring or n_bytes == 0:
            return
        self._seconds_per_byte[way].append(seconds / n_bytes)
        whole, parts = (self._seconds_per_byte[way] for way in WAYS)
        if len(whole) <= _TRIALS:
            return
        self.way = "rounds"
        if len(parts) > _TRIALS:
            self.measuring = False
            medians = [sorted(of[1 : 1 + _TRIALS])[_TRIALS // 2] for of in (whole, parts)]
            self.way = "rounds" if medians[1] <= _MARGIN * medians[0] else "all_to_all"
