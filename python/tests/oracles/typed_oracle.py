"""A graph with types, and an independent reading of what its batches must be, in NumPy."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from seeds import seed as seed_of

Graph = dict[Any, dict[str, Any]]
Fanouts = dict[tuple[str, str, str], list[int]]

NOT_TENSORS = {"num_nodes", "edge_index", "splits"}


def typed_graph(scale: int = 400, seed: int = 0) -> Graph:
    """Skewed relations with repeated edges; types without features, without nodes, and that nothing reaches."""
    rng = np.random.default_rng(seed_of(seed))
    count = {"paper": 3 * scale, "author": 2 * scale, "term": scale // 4, "none": 0, "island": scale // 2}
    graph: Graph = {
        "paper": {
            "x": rng.standard_normal((count["paper"], 24), dtype=np.float32),
            "y": rng.integers(7, size=count["paper"]),
            "train_mask": rng.random(count["paper"]) < 0.3,
        },
        "author": {
            "x": rng.standard_normal((count["author"], 70)).astype(np.float16),
            "age": rng.integers(99, size=(count["author"],)).astype(np.uint8),
            "splits": {"test": rng.permutation(count["author"])[: scale // 2]},
        },
        "term": {"num_nodes": count["term"]},
        "none": {"x": np.zeros((0, 3), np.float32)},
        "island": {"x": rng.random((count["island"], 2))},
    }

    def relate(source: str, relation: str, target: str, edges: int, **tensors: Any) -> None:
        ends = [(count[t] * rng.random(edges) ** 1.7).astype(np.int64) for t in (source, target)]
        graph[source, relation, target] = {"edge_index": np.stack(ends), **tensors}

    relate("author", "writes", "paper", 9 * scale, weight=rng.random(9 * scale, dtype=np.float32))
    relate("paper", "cites", "paper", 12 * scale, time=rng.integers(99, size=12 * scale))
    relate("paper", "written by", "author", 8 * scale)
    relate("term", "in", "paper", 5 * scale, weight=rng.random(5 * scale), attr=rng.random((5 * scale, 3)))
    relate("paper", "has", "term", 6 * scale)
    relate("author", "knows", "author", 0)
    relate("none", "of", "paper", 0, attr=np.zeros((0, 2), np.float32))
    relate("paper", "to", "island", scale)
    return graph


def num_nodes(graph: Graph) -> dict[str, int]:
    """The number of nodes of every type."""
    return {
        key: part["num_nodes"] if "num_nodes" in part else len(part["x"])
        for key, part in graph.items()
        if isinstance(key, str)
    }


def relations(graph: Graph) -> list[tuple[str, str, str]]:
    """The types of edges, in order."""
    return [key for key in graph if isinstance(key, tuple)]


def hetero_data(graph: Graph) -> Any:
    """The same as PyG's HeteroData; splits become masks."""
    from torch_geometric.data import HeteroData

    data = HeteroData()
    counts = num_nodes(graph)
    for key, part in graph.items():
        for name, value in part.items():
            if name == "splits":
                for split, ids in value.items():
                    data[key][f"{split}_mask"] = torch.from_numpy(np.isin(np.arange(counts[key]), ids))
            else:
                data[key][name] = (
                    torch.from_numpy(np.ascontiguousarray(value)) if isinstance(value, np.ndarray) else value
                )
    return data


def check_typed(batch: Any, graph: Graph, fanouts: Fanouts, inputs: dict[str, Any], *, replace: bool = False) -> None:
    """Assert everything about ``batch`` that does not depend on random numbers. ``inputs`` are ids by type."""
    counts = num_nodes(graph)
    assert batch.node_types == list(counts)
    assert batch.edge_types == relations(graph)
    hops = len(next(iter(fanouts.values())))
    n_id, starts = {}, {}
    for node_type, part in ((t, batch[t]) for t in counts):
        ids = n_id[node_type] = part.n_id.numpy()
        per_hop = np.asarray(part.num_sampled_nodes)
        assert part.n_id.dtype == torch.int64
        assert len(per_hop) == hops + 1
        assert per_hop.sum() == len(ids) == part.num_nodes
        starts[node_type] = np.concatenate([[0], per_hop.cumsum()])
        size = per_hop[0]
        if node_type in inputs:
            assert part.batch_size == size
            np.testing.assert_array_equal(ids[:size], inputs[node_type][part.input_id.numpy()])
        else:
            assert size == 0
            assert "batch_size" not in part
            assert "input_id" not in part
        assert ((ids >= 0) & (ids < counts[node_type])).all()
        # Beyond the input nodes every node comes once.
        assert len(np.unique(ids[size:])) == len(ids) - size
        assert not np.isin(ids[size:], ids[:size]).any()
        check_rows(part, graph[node_type], ids)

    found = {node_type: per[1] for node_type, per in starts.items()}  # nodes that are numbered so far
    edges = dict.fromkeys(fanouts, 0)
    for hop in range(hops):
        for edge_type, hops_of in fanouts.items():
            check_hop(batch, graph, edge_type, hop, hops_of[hop], n_id, starts, found, edges, replace=replace)
        for node_type in counts:
            assert found[node_type] == starts[node_type][hop + 2], f"{node_type} hop {hop}"
    for edge_type in fanouts:
        part = batch[edge_type]
        assert edges[edge_type] == len(part.e_id) == part.edge_index.size(1)
        check_rows(part, graph[edge_type], part.e_id.numpy())


def check_hop(
    batch: Any,
    graph: Graph,
    edge_type: tuple[str, str, str],
    hop: int,
    fanout: int,
    n_id: dict[str, Any],
    starts: dict[str, Any],
    found: dict[str, int],
    edges: dict[Any, int],
    *,
    replace: bool,
) -> None:
    """Assert what a hop draws along one relation, and number the nodes that it finds."""
    source, _, target = edge_type
    part, whole = batch[edge_type], graph[edge_type]["edge_index"]
    assert len(part.num_sampled_edges) == batch_hops(starts)
    begin, end = edges[edge_type], edges[edge_type] + part.num_sampled_edges[hop]
    edges[edge_type] = end
    row, col = part.edge_index.numpy()[:, begin:end]
    e_id = part.e_id.numpy()[begin:end]
    # Edges are the user's own, in the user's direction, grouped by their target.
    np.testing.assert_array_equal(whole[0, e_id], n_id[source][row])
    np.testing.assert_array_equal(whole[1, e_id], n_id[target][col])
    assert (np.diff(col) >= 0).all()
    # Targets are the nodes that the hop before found; each has as many neighbours as it must.
    first, last = starts[target][hop], starts[target][hop + 1]
    assert ((col >= first) & (col < last)).all()
    degree = np.bincount(whole[1], minlength=len(n_id[target]) and n_id[target].max() + 1)[n_id[target][first:last]]
    drawn = np.bincount(col - first, minlength=last - first)
    want = degree if fanout == -1 else np.where(degree > 0, fanout, 0) if replace else np.minimum(degree, fanout)
    np.testing.assert_array_equal(drawn, want, err_msg=f"{edge_type} hop {hop}")
    if not replace:
        assert len(np.unique(np.stack([col, e_id]), axis=1).T) == len(e_id)
    # New nodes are numbered in the order of discovery, and a source is always its first appearance.
    appearance = {int(node): local for local, node in reversed(list(enumerate(n_id[source])))}
    for local in row:
        assert appearance[int(n_id[source][local])] == local
        assert local <= found[source]
        found[source] += local == found[source]


def batch_hops(starts: dict[str, Any]) -> int:
    return len(next(iter(starts.values()))) - 2


def check_rows(part: Any, of: dict[str, Any], ids: Any) -> None:
    """Assert that every tensor of a type came along with the right rows."""
    for name, table in of.items():
        if name not in NOT_TENSORS:
            rows = part[name].numpy()
            assert rows.dtype == table.dtype
            np.testing.assert_array_equal(rows, table[ids], err_msg=name)
    known = {"n_id", "num_nodes", "num_sampled_nodes", "batch_size", "input_id"}
    known |= {"edge_index", "e_id", "num_sampled_edges", "edge_weight"}
    known |= {"edge_label_index", "edge_label", "src_index", "dst_pos_index", "dst_neg_index"}
    assert set(part.keys()) - known == set(of) - NOT_TENSORS


Draw = Callable[[int, int, int, int], list[tuple[int, int]]]
"""Of a relation's place, a node, a hop and a fanout: sources with their edge numbers."""


def check_exactly(batch: Any, graph: Graph, fanouts: Fanouts, draw: Draw) -> None:
    """Assert that a batch is what ``draw`` gives, hop after hop, relation after relation."""
    nodes = {t: batch[t].n_id[: batch[t].num_sampled_nodes[0]].tolist() for t in num_nodes(graph)}
    local: dict[str, dict[int, int]] = {t: {} for t in nodes}
    for node_type, ids in nodes.items():
        for i, v in enumerate(ids):
            local[node_type].setdefault(v, i)
    first = dict.fromkeys(nodes, 0)
    expected: dict[Any, tuple[list[int], list[int], list[int]]] = {r: ([], [], []) for r in fanouts}
    for hop in range(len(next(iter(fanouts.values())))):
        end = {t: len(ids) for t, ids in nodes.items()}
        for place, (relation, hops) in enumerate(fanouts.items()):
            source, _, target = relation
            rows, cols, e_ids = expected[relation]
            for col in range(first[target], end[target]):
                for neighbour, edge in draw(place, nodes[target][col], hop, hops[hop]):
                    if neighbour not in local[source]:
                        local[source][neighbour] = len(nodes[source])
                        nodes[source].append(neighbour)
                    rows.append(local[source][neighbour])
                    cols.append(col)
                    e_ids.append(edge)
        first = end
    for node_type, ids in nodes.items():
        assert batch[node_type].n_id.tolist() == ids
    for relation, (rows, cols, e_ids) in expected.items():
        assert batch[relation].edge_index.tolist() == [rows, cols]
        assert batch[relation].e_id.tolist() == e_ids


def typed_digest(batch: Any) -> str:
    """A short name of everything in a batch."""
    sha = hashlib.sha256()
    for key in [*batch.node_types, *batch.edge_types]:
        part = batch[key]
        for name in sorted(part.keys()):
            value = part[name]
            sha.update(f"{key} {name}".encode())
            sha.update(value.contiguous().numpy().tobytes() if hasattr(value, "numpy") else repr(value).encode())
    return sha.hexdigest()
