"""An independent reading of what a batch must be, in NumPy."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np
import torch
from graphs import NOT_TENSORS, EdgeType, Graph, as_types, by_type, num_nodes, relations

Fanouts = dict[EdgeType, list[int]]
OF_BATCHES = {"n_id", "num_nodes", "num_sampled_nodes", "batch_size", "input_id", "batch", "seed_time"}
OF_BATCHES |= {"edge_index", "e_id", "num_sampled_edges", "edge_weight"}
OF_BATCHES |= {"edge_label_index", "edge_label", "edge_label_time", "src_index", "dst_pos_index", "dst_neg_index"}
"""What a batch has besides the graph's tensors."""


def check_batch(
    batch: Any, graph: dict[Any, Any], fanouts: list[int] | Fanouts, inputs: Any, *, replace: bool = False
) -> None:
    """Assert everything about ``batch`` that does not depend on random numbers.

    ``inputs`` are the input nodes by node type, or those of the first.
    """
    graph = as_types(graph)
    batch = by_type(batch, graph)
    counts = num_nodes(graph)
    per_type = fanouts if isinstance(fanouts, dict) else dict.fromkeys(relations(graph), fanouts)
    seeds = inputs if isinstance(inputs, dict) else {next(iter(counts)): inputs}
    hops = len(next(iter(per_type.values())))
    assert list(batch.node_types) == list(counts)
    assert list(batch.edge_types) == relations(graph)
    starts, first = {}, {}
    for node_type, count in counts.items():
        starts[node_type] = check_nodes(batch[node_type], count, hops, seeds.get(node_type))
        ids = batch[node_type].n_id.numpy()
        first[node_type] = np.full(count, -1)
        first[node_type][ids[::-1]] = np.arange(len(ids))[::-1]
    found = {node_type: start[1] for node_type, start in starts.items()}  # nodes that are numbered so far
    edges = dict.fromkeys(per_type, 0)
    for hop in range(hops):
        for edge_type, of_hops in per_type.items():
            part, count = batch[edge_type], batch[edge_type].num_sampled_edges[hop]
            assert len(part.num_sampled_edges) == hops
            drawn = slice(edges[edge_type], edges[edge_type] + count)
            edges[edge_type] += count
            row, col = part.edge_index.numpy()[:, drawn]
            source, _, target = edge_type
            n_id = batch[source].n_id.numpy(), batch[target].n_id.numpy()
            check_draws(
                (row, col, part.e_id.numpy()[drawn]),
                n_id,
                graph[edge_type]["edge_index"],
                range(*starts[target][hop : hop + 2]),
                of_hops[hop],
                replace=replace,
                what=f"{edge_type} hop {hop}",
            )
            # A source is its first appearance, and new nodes are numbered in the order of discovery.
            np.testing.assert_array_equal(row, first[source][n_id[0][row]])
            fresh = row[row >= found[source]]
            order = fresh[np.sort(np.unique(fresh, return_index=True)[1])]
            np.testing.assert_array_equal(order, np.arange(found[source], found[source] + len(order)))
            found[source] += len(order)
        for node_type in counts:
            assert found[node_type] == starts[node_type][hop + 2], f"{node_type} hop {hop}"
    for edge_type in per_type:
        assert edges[edge_type] == len(batch[edge_type].e_id) == batch[edge_type].edge_index.size(1)
    check_rows(batch, graph)


def check_nodes(part: Any, count: int, hops: int, seeds: Any) -> Any:
    """Assert what holds of the nodes of a type, and return where each hop begins."""
    ids, per_hop = part.n_id.numpy(), np.asarray(part.num_sampled_nodes)
    assert part.n_id.dtype == torch.int64
    assert len(per_hop) == hops + 1
    assert per_hop.sum() == len(ids) == part.num_nodes
    size = per_hop[0]
    if seeds is None:
        assert size == 0
        assert "batch_size" not in part
        assert "input_id" not in part
    else:
        assert part.batch_size == size
        np.testing.assert_array_equal(ids[:size], np.asarray(seeds)[part.input_id.numpy()])
    assert ((ids >= 0) & (ids < count)).all()
    # Beyond the input nodes every node comes once.
    assert len(np.unique(ids[size:])) == len(ids) - size
    assert not np.isin(ids[size:], ids[:size]).any()
    return np.concatenate([[0], per_hop.cumsum()])


def check_draws(
    drawn: tuple[Any, Any, Any],
    n_id: tuple[Any, Any],
    whole: Any,
    targets: range,
    fanout: int,
    *,
    replace: bool,
    what: str,
) -> None:
    """Assert that the edges of a hop are the user's, and that each target has as many as it must."""
    row, col, e_id = drawn
    np.testing.assert_array_equal(whole[0, e_id], n_id[0][row])
    np.testing.assert_array_equal(whole[1, e_id], n_id[1][col])
    assert (np.diff(col) >= 0).all(), what
    assert ((col >= targets.start) & (col < targets.stop)).all(), what
    nodes = n_id[1][targets.start : targets.stop]
    degree = np.bincount(whole[1], minlength=1 + nodes.max(initial=0))[nodes]
    count = np.bincount(col - targets.start, minlength=len(targets))
    want = degree if fanout == -1 else np.where(degree > 0, fanout, 0) if replace else np.minimum(degree, fanout)
    np.testing.assert_array_equal(count, want, err_msg=what)
    if not replace:
        assert len(np.unique(np.stack([col, e_id]), axis=1).T) == len(e_id), what
        # A list that is taken whole keeps the user's order.
        taken_whole = (count == degree)[col - targets.start]
        same_target = (col[1:] == col[:-1]) & taken_whole[1:]
        assert (np.diff(e_id)[same_target] > 0).all(), what


def check_rows(batch: Any, graph: dict[Any, Any]) -> None:
    """Assert that every tensor of the graph came along with the right rows, and nothing else did."""
    graph = as_types(graph)
    batch = by_type(batch, graph)
    for key, tables in graph.items():
        part = batch[key]
        name_of_ids = "n_id" if isinstance(key, str) else "e_id"
        if name_of_ids not in part:  # edges that were added by their reverse
            continue
        for name in set(tables) - NOT_TENSORS:
            rows = part[name].numpy()
            assert rows.dtype == tables[name].dtype, name
            np.testing.assert_array_equal(rows, tables[name][part[name_of_ids].numpy()], err_msg=name)
        assert set(part.keys()) - OF_BATCHES == set(tables) - NOT_TENSORS - OF_BATCHES


Draw = Callable[[int, int, int, int], list[tuple[int, int]]]
"""Of a relation's place, a node, a hop and a fanout: sources with their edge numbers."""


def check_exactly(batch: Any, graph: Graph, fanouts: Fanouts, draw: Draw) -> None:
    """Assert that a batch is what ``draw`` gives, hop after hop, relation after relation."""
    batch = by_type(batch, graph)
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


def stores(batch: Any) -> Iterator[tuple[str, Any]]:
    """The parts of a batch: its types, or itself."""
    if hasattr(batch, "node_types"):
        yield from ((f"{key} ", batch[key]) for key in [*batch.node_types, *batch.edge_types])
    else:
        yield "", batch


def assert_equal(one: Any, other: Any) -> None:
    """Assert that two batches are the same in every value."""
    for (key, mine), (of, theirs) in zip(stores(one), stores(other), strict=True):
        assert key == of
        assert set(mine.keys()) == set(theirs.keys()), key
        for name in mine.keys():  # noqa: SIM118  (a PyG Data is no mapping)
            a, b = mine[name], theirs[name]
            if hasattr(a, "numpy"):
                assert a.dtype == b.dtype, (key, name)
                assert a.shape == b.shape, (key, name)
                assert a.equal(b) or np.array_equal(a.numpy(), b.numpy(), equal_nan=True), (key, name)
            else:
                assert a == b, (key, name)


def assert_batches_equal(some: Iterable[Any], others: Iterable[Any]) -> None:
    """Assert that batches are the same in number, order and every value."""
    for one, other in zip(some, others, strict=True):
        assert_equal(one, other)


def digest(batch: Any) -> str:
    """A short name of everything in a batch."""
    sha = hashlib.sha256()
    for key, part in stores(batch):
        for name in sorted(part.keys()):
            value = part[name]
            sha.update(f"{key}{name}".encode())
            sha.update(value.contiguous().numpy().tobytes() if hasattr(value, "numpy") else repr(value).encode())
    return sha.hexdigest()
