"""Trees and draws by time as their documentation says, in plain Python over NumPy arrays."""

from __future__ import annotations

from typing import Any

import numpy as np
from sampler_oracle import Stream


def allowed(times: Any, t: int, window: int | None) -> Any:
    """Places of the times that a seed of time ``t`` sees, in ascending order of times, equal ones by place."""
    seen = times <= t
    if window is not None:
        seen &= times > t - window
    places = np.flatnonzero(seen)
    return places[np.argsort(times[places], kind="stable")]


def draw(count: int, k: int, replace: bool, stream: Stream) -> list[int]:
    """Uniform draws from so many: all, independent ones, or a subset by Floyd's method."""
    if k == -1 or (not replace and count <= k):
        return list(range(count))
    if count == 0:
        return []
    if replace:
        return [stream.below(count) for _ in range(k)]
    drawn: list[int] = []
    for j in range(count - k, count):
        t = stream.below(j + 1)
        drawn.append(j if t in drawn else t)
    return drawn


class Oracle:
    """Draws batches of a graph; ``edge_time`` is None where nothing has a time."""

    def __init__(self, graph: dict[str, Any], edge_time: Any = None) -> None:
        source, target = np.asarray(graph["edge_index"])
        order = np.argsort(target, kind="stable")
        counts = np.bincount(target, minlength=graph["num_nodes"])
        self.edges = np.split(order, np.cumsum(counts)[:-1])
        self.source, self.time = source, None if edge_time is None else np.asarray(edge_time).astype(np.int64)

    def check(
        self,
        batch: Any,
        fanouts: list[int],
        key: tuple[int, int, int],
        *,
        last: bool = False,
        window: int | None = None,
        replace: bool = False,
    ) -> None:
        """Assert that ``batch`` is the one of ``key``."""
        n_id = batch.n_id[: batch.batch_size].tolist()
        tree = list(range(batch.batch_size))
        seed_time = None if self.time is None else batch.seed_time.tolist()
        local = {(i, v): i for i, v in enumerate(n_id)}
        rows, cols, e_id, per_hop, first = [], [], [], [len(n_id)], 0
        for hop, k in enumerate(fanouts):
            end = len(n_id)
            for target in range(first, end):
                edges = self.edges[n_id[target]]
                if seed_time is not None:
                    assert self.time is not None
                    edges = edges[allowed(self.time[edges], seed_time[tree[target]], window)]
                    if last and k >= 0:
                        edges = edges[max(0, len(edges) - k) :]
                stream = Stream(1, *key, hop, n_id[target], tree[target])
                for edge in edges[draw(len(edges), k, replace, stream)].tolist():
                    at = (tree[target], int(self.source[edge]))
                    if at not in local:
                        local[at] = len(n_id)
                        n_id.append(at[1])
                        tree.append(at[0])
                    rows.append(local[at])
                    cols.append(target)
                    e_id.append(edge)
            per_hop.append(len(n_id) - end)
            first = end
        assert batch.n_id.tolist() == n_id
        assert batch.batch.tolist() == tree
        assert batch.edge_index.tolist() == [rows, cols]
        assert batch.e_id.tolist() == e_id
        assert batch.num_sampled_nodes == per_hop


def no_future(batch: Any, edge_time: Any, window: int | None = None) -> None:
    """Assert of every edge that it is in one tree, and not later than the seed of it."""
    source, target = batch.edge_index.numpy()
    tree = batch.batch.numpy()
    np.testing.assert_array_equal(tree[source], tree[target])
    seed_time, at = batch.seed_time.numpy()[tree[target]], np.asarray(edge_time)[batch.e_id.numpy()]
    assert (at <= seed_time).all()
    if window is not None:
        assert (at > seed_time - window).all()
