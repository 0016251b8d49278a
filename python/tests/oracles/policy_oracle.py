"""Caches as their definitions say, in NumPy and slowly: what ``freshgo.simulate`` is compared with."""

from __future__ import annotations

import itertools
from collections import OrderedDict
from typing import Any

import numpy as np

Ids = np.ndarray[Any, Any]


def belady(trace: list[Ids], capacity: int) -> list[int]:
    """Hits of every batch under Belady's MIN: of what was cached or gathered, what is needed soonest stays."""
    uses: dict[int, list[int]] = {}
    for i, batch in enumerate(trace):
        for row in batch.tolist():
            uses.setdefault(row, []).append(i)
    cached: set[int] = set()
    hits = []
    for i, batch in enumerate(trace):
        rows = set(batch.tolist())
        hits.append(len(rows & cached))
        following = {row: next((u for u in uses[row] if u > i), len(trace)) for row in rows | cached}
        cached = set(sorted(following, key=lambda row: (following[row], row not in cached, row))[:capacity])
    return hits


def best(trace: list[Ids], capacity: int) -> int:
    """The fewest reads that any policy can do with, by trying every state. For traces of a few ids."""
    costs: dict[frozenset[int], int] = {frozenset(): 0}
    for batch in trace:
        rows = frozenset(batch.tolist())
        after: dict[frozenset[int], int] = {}
        for cached, cost in costs.items():
            known = sorted(cached | rows)
            now = cost + len(rows - cached)
            for kept in itertools.combinations(known, min(capacity, len(known))):
                state = frozenset(kept)
                after[state] = min(now, after.get(state, now))
        costs = after
    return min(costs.values())


def lru(trace: list[Ids], capacity: int) -> tuple[list[int], list[int]]:
    """Hits of every batch, and rows that left after it, of LRU with one access after the other in a batch."""
    cached: OrderedDict[int, None] = OrderedDict()
    hits, swaps = [], []
    for batch in trace:
        before = set(cached)
        rows = batch.tolist()
        hits.append(sum(row in before for row in rows))
        for row in rows if capacity else ():
            if row in cached:
                cached.move_to_end(row)
                continue
            if len(cached) == capacity:
                cached.popitem(last=False)
            cached[row] = None
        swaps.append(len(before - set(cached)))
    return hits, swaps


def match(trace: list[Ids], capacity: int) -> list[int]:
    """Hits of every batch where the cache is the batch before, for capacities that hold any of them."""
    assert capacity >= max(map(len, trace))
    return [0, *(len(np.intersect1d(a, b)) for a, b in itertools.pairwise(trace))]


def static(trace: list[Ids], scores: Ids, capacity: int) -> tuple[list[int], int]:
    """Hits of every batch of the rows with the highest scores, lowest id first, and how many they are."""
    top = np.argsort(-scores, kind="stable")[:capacity]
    return [int(np.isin(batch, top).sum()) for batch in trace], len(top)
