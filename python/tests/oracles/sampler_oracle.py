"""Samplers as their documentation says, in plain Python: edge after edge, with the same keyed random numbers."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np

MASK = 2**64 - 1
GOLDEN = 0x9E3779B97F4A7C15

Edge = tuple[int, int | None, float | None]
"""Source, edge number, weight."""
Neighbors = Callable[[int, int, int, tuple[int, int, int]], list[Edge]]
"""Of a node, in a hop, with a fanout, under (seed, epoch, batch)."""


class Stream:
    """splitmix64, keyed by words."""

    def __init__(self, *words: int) -> None:
        self.state = 0
        for word in words:
            self.state ^= word & MASK
            self.state = self.next()

    def next(self) -> int:
        self.state = (self.state + GOLDEN) & MASK
        z = self.state
        z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9 & MASK
        z = (z ^ z >> 27) * 0x94D049BB133111EB & MASK
        return z ^ z >> 31

    def unit(self) -> float:
        return (self.next() >> 11) / 2**53

    def below(self, n: int) -> int:
        while True:
            product = self.next() * n
            if product & MASK >= 2**64 % n:
                return product >> 64


class Graph:
    """In-edges by target, each list in the user's order."""

    def __init__(self, graph: dict[str, Any], weights: Any = None) -> None:
        source, target = graph["edge_index"]
        order = np.argsort(target, kind="stable")
        self.edges: list[list[int]] = [[] for _ in range(graph["num_nodes"])]
        for edge in order.tolist():
            self.edges[target[edge]].append(edge)
        self.source = source.tolist()
        self.weights = None if weights is None else np.asarray(weights, dtype=np.float64).tolist()

    def weighted(self, node: int, hop: int, k: int, key: tuple[int, int, int]) -> list[Edge]:
        """Sequential draws in proportion to what is left; lists of up to 64 edges, as most are."""
        edges = self.edges[node]
        assert len(edges) <= 64
        left = [self.weights[e] for e in edges]
        positive = [i for i, w in enumerate(left) if w > 0]
        if k == -1 or len(positive) <= k:
            return [(self.source[edges[i]], edges[i], None) for i in positive]
        stream = Stream(1, *key, hop, node)
        drawn: list[int] = []
        units: list[int] = []
        while len(drawn) < k:
            if sum(units) < 2**52:  # measured anew: the largest that is left has 2^56 units or more
                exponent = math.frexp(max(left))[1]
                units = [int(math.ldexp(w, 57 - exponent)) for w in left]
            point = stream.next() * sum(units) >> 64
            at = next(i for i in range(len(units)) if sum(units[: i + 1]) > point)
            drawn.append(at)
            left[at], units[at] = 0.0, 0
        return [(self.source[edges[i]], edges[i], None) for i in drawn]

    def labor(self, node: int, hop: int, k: int, key: tuple[int, int, int]) -> list[Edge]:
        """The smallest variates, by one of each source in a hop."""
        seed, epoch, batch = key
        edges = self.edges[node]
        variate = {e: Stream(3, seed, epoch, hop, batch, self.source[e]).state for e in edges}
        kept = sorted(sorted(edges, key=lambda e: variate[e])[: len(edges) if k == -1 else k], key=edges.index)
        return [(self.source[e], e, 1 / len(kept)) for e in kept]

    def walks(self, walks: int, length: int, restart: float) -> Neighbors:
        """The nodes most often visited."""

        def neighbors(node: int, hop: int, k: int, key: tuple[int, int, int]) -> list[Edge]:
            if not self.edges[node]:
                return []
            visits: Counter[int] = Counter()
            for walk in range(walks):
                stream, at = Stream(1, *key, hop, node, walk), node
                for step in range(length):
                    if (step > 0 and stream.unit() < restart) or not self.edges[at]:
                        at = node
                    at = self.source[self.edges[at][stream.below(len(self.edges[at]))]]
                    visits[at] += 1
            ranked = sorted(visits.items(), key=lambda item: (-item[1], item[0]))
            return [(v, None, float(n)) for v, n in (ranked if k == -1 else ranked[:k])]

        return neighbors


def check_sampled(batch: Any, neighbors: Neighbors, fanouts: list[int], key: tuple[int, int, int]) -> None:
    """Assert that a batch is what ``neighbors`` gives, hop after hop."""
    n_id = batch.n_id[: batch.batch_size].tolist()
    local = {}
    for i, v in enumerate(n_id):
        local.setdefault(v, i)
    rows, cols, e_id, weights, first = [], [], [], [], 0
    for hop, k in enumerate(fanouts):
        end = len(n_id)
        for target in range(first, end):
            for source, edge, weight in neighbors(n_id[target], hop, k, key):
                if source not in local:
                    local[source] = len(n_id)
                    n_id.append(source)
                rows.append(local[source])
                cols.append(target)
                e_id.append(edge)
                weights.append(weight)
        first = end
    assert batch.n_id.tolist() == n_id
    assert batch.edge_index.tolist() == [rows, cols]
    if "e_id" in batch:
        assert batch.e_id.tolist() == e_id
    else:
        assert set(e_id) <= {None}
    if rows and weights[0] is not None:
        np.testing.assert_allclose(batch.edge_weight.numpy(), weights, rtol=1e-6)
        assert not math.isnan(float(batch.edge_weight.sum()))


def check_proportional(counts: Any, weights: Any) -> None:
    """How often each was drawn against what it was drawn in proportion to: chi-square, six deviations, zeros exact."""
    expected = weights / weights.sum() * counts.sum()
    assert counts[expected == 0].sum() == 0
    some = expected > 5
    chi, freedom = ((counts - expected)[some] ** 2 / expected[some]).sum(), some.sum() - 1
    assert chi < freedom + 6 * np.sqrt(2 * freedom)
