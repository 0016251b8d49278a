"""An independent reading of what a batch must be, in NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np

RESERVED = {"num_nodes", "edge_index", "splits"}


def check_batch(
    batch: Any, graph: dict[str, Any], fanouts: list[int], seeds: np.ndarray[Any, Any], *, replace: bool = False
) -> None:
    """Assert everything about ``batch`` that does not depend on random numbers."""
    n_id, e_id = batch.n_id.numpy(), batch.e_id.numpy()
    row, col = batch.edge_index.numpy()
    nodes, edges = np.asarray(batch.num_sampled_nodes), np.asarray(batch.num_sampled_edges)
    size = batch.batch_size

    assert len(nodes) == len(fanouts) + 1
    assert len(edges) == len(fanouts)
    assert nodes[0] == size
    assert nodes.sum() == len(n_id) == batch.num_nodes
    assert edges.sum() == len(e_id) == len(row)
    np.testing.assert_array_equal(n_id[:size], seeds[batch.input_id.numpy()])

    check_rows(batch, graph, n_id, e_id)

    # Edges are the user's own, in the user's direction.
    np.testing.assert_array_equal(graph["edge_index"][:, e_id], n_id[np.stack([row, col])])
    assert (np.diff(col) >= 0).all()

    # Beyond the seeds every node appears once, and a source is always its first appearance.
    assert len(np.unique(n_id[size:])) == len(n_id) - size
    assert not np.isin(n_id[size:], n_id[:size]).any()
    first = {}
    for local, node in enumerate(n_id):
        first.setdefault(node, local)
    np.testing.assert_array_equal(row, [first[node] for node in n_id[row]])

    # Hops: the targets of hop h are the nodes found by hop h - 1, new nodes are numbered in order of discovery.
    starts, edge_starts = np.concatenate([[0], nodes.cumsum()]), np.concatenate([[0], edges.cumsum()])
    for hop in range(len(fanouts)):
        part = slice(edge_starts[hop], edge_starts[hop + 1])
        assert ((col[part] >= starts[hop]) & (col[part] < starts[hop + 1])).all()
        assert (row[part] < starts[hop + 2]).all()
        fresh = row[part][row[part] >= starts[hop + 1]]
        order = fresh[np.sort(np.unique(fresh, return_index=True)[1])]
        np.testing.assert_array_equal(order, np.arange(starts[hop + 1], starts[hop + 2]))

    check_draws(n_id, e_id, col, starts, graph["edge_index"][1], fanouts, replace=replace)


def check_rows(batch: Any, graph: dict[str, Any], n_id: Any, e_id: Any) -> None:
    """Assert that every tensor of the graph came along with the right rows."""
    num_edges = graph["edge_index"].shape[1]
    for name, table in graph.items():
        if name not in RESERVED:
            ids = e_id if len(table) == num_edges else n_id
            rows = batch[name].numpy()
            assert rows.dtype == table.dtype
            np.testing.assert_array_equal(rows, table[ids], err_msg=name)


def check_draws(
    n_id: Any, e_id: Any, col: Any, starts: Any, targets: Any, fanouts: list[int], *, replace: bool
) -> None:
    """Assert that each target has as many neighbours as it must, and none twice without replacement."""
    degree = np.bincount(targets, minlength=n_id.max() + 1)
    drawn = np.bincount(col, minlength=len(n_id))
    for hop, fanout in enumerate(fanouts):
        locals_ = np.arange(starts[hop], starts[hop + 1])
        have = degree[n_id[locals_]]
        want = have if fanout == -1 else np.where(have > 0, fanout, 0) if replace else np.minimum(have, fanout)
        np.testing.assert_array_equal(drawn[locals_], want, err_msg=f"hop {hop}")
    assert drawn[starts[len(fanouts)] :].sum() == 0
    if not replace:
        assert len(np.unique(np.stack([col, e_id]), axis=1).T) == len(e_id)
        # A list that is taken whole keeps the user's order.
        whole = (drawn == degree[n_id])[col]
        same_target = (col[1:] == col[:-1]) & whole[1:]
        assert (np.diff(e_id)[same_target] > 0).all()


def assert_equal(one: Any, other: Any) -> None:
    """Assert that two batches are the same in every value."""
    assert set(one.keys()) == set(other.keys())
    for name in one.keys():  # noqa: SIM118  (a PyG Data is no mapping)
        a, b = one[name], other[name]
        if hasattr(a, "numpy"):
            assert a.dtype == b.dtype, name
            assert a.shape == b.shape, name
            assert a.equal(b) or np.array_equal(a.numpy(), b.numpy(), equal_nan=True), name
        else:
            assert a == b, name


def digest(batch: Any) -> str:
    """A short name of everything in a batch."""
    import hashlib

    sha = hashlib.sha256()
    for name in sorted(batch.keys()):
        value = batch[name]
        sha.update(name.encode())
        sha.update(value.contiguous().numpy().tobytes() if hasattr(value, "numpy") else repr(value).encode())
    return sha.hexdigest()
