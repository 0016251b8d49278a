"""What a store must hold of the graph that it was made from, as freshgo reads it and as docs/format.md says."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from graphs import NOT_TENSORS, as_types, num_nodes

from freshgo import Store


def check_equal(one: Store, other: Store) -> None:
    """Compare everything that two stores hold, whatever the order of their tensors."""
    assert one.metadata() == other.metadata()
    for key in [*one.node_types, *one.edge_types] or [None]:
        mine, theirs = (one, other) if key is None else (one[key], other[key])
        assert mine.tensors == theirs.tensors
        for name in mine.tensors:
            assert mine[name].equal(theirs[name]), (key, name)
        splits = getattr(mine, "splits", {})
        assert splits == getattr(theirs, "splits", {})
        for name in splits:
            of = () if key is None else (key,)
            assert one.split(name, *of).equal(other.split(name, *of))


def check_store(store: Store, graph: dict[Any, Any]) -> None:
    """Compare a store with a graph of any form; counts are given where tensors do not tell them."""
    graph = as_types(graph)
    counts, named = num_nodes(graph), "" not in graph
    assert store.node_types == [key for key in graph if isinstance(key, str) and named]
    assert store.edge_types == [key for key in graph if isinstance(key, tuple) and named]
    assert store.metadata() == (store.node_types, store.edge_types)
    assert store.num_nodes_dict == (counts if named else {})
    assert store.num_nodes == sum(counts.values())
    assert not store.reordered
    assert not named or store.tensors == {}
    files, num_edges = reader()(store.path), 0
    for key, part in graph.items():
        stored, plain = (store[key], files[key]) if named else (store, files)
        arrays = {name: rows for name, rows in part.items() if name not in NOT_TENSORS}
        level, of = "node" if isinstance(key, str) else "edge", (key,) if named else ()
        assert [name for name, info in stored.tensors.items() if info.level == level] == list(arrays)
        for name, expected in arrays.items():
            np.testing.assert_array_equal(stored[name], expected, err_msg=f"{key} {name}")
            np.testing.assert_array_equal(store.read(name, *of), expected)
            np.testing.assert_array_equal(plain[name], expected)
            assert stored.tensors[name][:3] == (stored[name].dtype, expected.shape, level)
        if isinstance(key, str):
            masks = {name.removesuffix("_mask"): rows for name, rows in arrays.items() if name.endswith("_mask")}
            splits = {name: np.flatnonzero(rows) for name, rows in masks.items() if rows.ndim == 1}
            for name, rows in masks.items():
                if rows.ndim == 2 and rows.dtype == bool:
                    splits |= {f"{name}:{i}": np.flatnonzero(rows[:, i]) for i in range(rows.shape[1])}
            splits |= part.get("splits", {})
            assert stored.splits == {name: len(ids) for name, ids in splits.items()}
            for name, ids in splits.items():
                np.testing.assert_array_equal(stored.split(name), ids)
                np.testing.assert_array_equal(store.split(name, *of), ids)
                np.testing.assert_array_equal(plain[name], ids)
            assert stored.num_nodes == plain["num_nodes"] == counts[key]
            continue
        source, target = part["edge_index"]
        order = np.argsort(target, kind="stable")
        ends = np.searchsorted(target[order], np.arange(counts[key[2]]), side="right")
        np.testing.assert_array_equal(plain["indptr"], np.concatenate([[0], ends]))
        np.testing.assert_array_equal(plain["indices"], source[order])
        np.testing.assert_array_equal(plain.get("edge_ids", np.arange(len(order))), order)
        num_edges += len(order)
        assert stored.num_edges == len(order)
        assert not named or stored.edge_type == key
        assert not named or store.num_edges_dict[key] == len(order)
    assert store.num_edges == num_edges
    if named:
        assert store.splits == {key: store[key].splits for key in store.node_types if store[key].splits}


def reader() -> Any:
    """The reader that docs/format.md prints."""
    docs = Path(__file__).parents[3] / "docs" / "format.md"
    if not docs.exists():
        pytest.skip("the documentation is not beside the tests")
    code = re.search(r"```python\n(.*?)```", docs.read_text(encoding="utf-8"), re.DOTALL)
    assert code
    scope: dict[str, Any] = {}
    exec(code[1], scope)
    return scope["graph"]
