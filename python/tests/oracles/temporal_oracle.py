"""Trees and draws by time as their documentation says, in plain Python over NumPy arrays."""

from __future__ import annotations

from typing import Any

import numpy as np
from graphs import UNNAMED, EdgeType, Graph, by_type, num_nodes, relations
from oracle import check_rows
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


class Trees:
    """Draws batches of a graph; ``edge_time`` has the times of the edges of those relations that have any."""

    def __init__(self, graph: Graph, edge_time: dict[EdgeType, Any]) -> None:
        self.graph, self.edge_time = graph, {name: np.asarray(of).astype(np.int64) for name, of in edge_time.items()}
        self.types = num_nodes(graph)
        self.edges: dict[EdgeType, list[Any]] = {}
        for relation in relations(graph):
            target = graph[relation]["edge_index"][1]
            order = np.argsort(target, kind="stable")
            counts = np.bincount(target, minlength=self.types[relation[2]])
            self.edges[relation] = np.split(order, np.cumsum(counts)[:-1]) if len(counts) else []

    def check(
        self,
        batch: Any,
        fanouts: dict[EdgeType, list[int]],
        key: tuple[int, int, int],
        *,
        last: bool = False,
        window: int | None = None,
        replace: bool = False,
    ) -> None:
        """Assert that ``batch`` is the one of ``key``."""
        batch = by_type(batch, self.graph)
        nodes: dict[str, list[int]] = {}
        tree: dict[str, list[int]] = {}
        local: dict[str, dict[tuple[int, int], int]] = {}
        times: list[int] = []
        for node_type in self.types:
            part = batch[node_type]
            seeds = part.n_id[: part.batch_size].tolist() if "batch_size" in part else []
            first = sum(map(len, tree.values()))
            nodes[node_type], tree[node_type] = seeds, list(range(first, first + len(seeds)))
            local[node_type] = {(first + i, v): i for i, v in enumerate(seeds)}
            times += part.seed_time.tolist() if "seed_time" in part else []
        assert not self.edge_time or len(times) == sum(map(len, tree.values()))
        expected: dict[EdgeType, tuple[list[int], list[int], list[int]]] = {r: ([], [], []) for r in fanouts}
        per_hop = {t: [len(ids)] for t, ids in nodes.items()}
        begin = dict.fromkeys(nodes, 0)
        for hop in range(len(next(iter(fanouts.values())))):
            end = {t: len(ids) for t, ids in nodes.items()}
            for place, (relation, hops) in enumerate(fanouts.items()):
                source, _, target = relation
                state = key[0] if relation == UNNAMED else Stream(16, place, key[0]).state
                for at in range(begin[target], end[target]):
                    node, of = nodes[target][at], tree[target][at]
                    edges = self.edges[relation][node]
                    if relation in self.edge_time:
                        edges = edges[allowed(self.edge_time[relation][edges], times[of], window)]
                        if last and hops[hop] >= 0:
                            edges = edges[max(0, len(edges) - hops[hop]) :]
                    stream = Stream(1, state, key[1], key[2], hop, node, of)
                    for edge in edges[draw(len(edges), hops[hop], replace, stream)].tolist():
                        word = (of, int(self.graph[relation]["edge_index"][0, edge]))
                        if word not in local[source]:
                            local[source][word] = len(nodes[source])
                            nodes[source].append(word[1])
                            tree[source].append(of)
                        for listed, value in zip(expected[relation], (local[source][word], at, edge), strict=True):
                            listed.append(value)
            for node_type in nodes:
                per_hop[node_type].append(len(nodes[node_type]) - end[node_type])
            begin = end
        for node_type, ids in nodes.items():
            part = batch[node_type]
            assert part.n_id.tolist() == ids
            assert part.batch.tolist() == tree[node_type]
            assert part.num_sampled_nodes == per_hop[node_type]
        for relation, (rows, cols, e_ids) in expected.items():
            assert batch[relation].edge_index.tolist() == [rows, cols]
            assert batch[relation].e_id.tolist() == e_ids


def check_trees(batch: Any, graph: Graph, edge_time: dict[EdgeType, Any], window: int | None = None) -> None:
    """Assert of every edge that it is the graph's, in one tree, and not later than its seed; and of every row."""
    batch = by_type(batch, graph)
    seed_time = [batch[t].seed_time.numpy() for t in num_nodes(graph) if "seed_time" in batch[t]]
    for node_type in num_nodes(graph):
        part = batch[node_type]
        pairs = np.stack([part.batch.numpy(), part.n_id.numpy()])
        assert np.unique(pairs, axis=1).shape == pairs.shape
    for relation in relations(graph):
        part, whole = batch[relation], graph[relation]
        source, target = part.edge_index.numpy()
        e_id = part.e_id.numpy()
        np.testing.assert_array_equal(whole["edge_index"][0, e_id], batch[relation[0]].n_id.numpy()[source])
        np.testing.assert_array_equal(whole["edge_index"][1, e_id], batch[relation[2]].n_id.numpy()[target])
        tree = batch[relation[2]].batch.numpy()[target]
        np.testing.assert_array_equal(batch[relation[0]].batch.numpy()[source], tree)
        if relation in edge_time:
            now, at = np.concatenate(seed_time)[tree], edge_time[relation][e_id]
            assert (at <= now).all()
            assert window is None or (at > now - window).all()
    check_rows(batch, graph)
