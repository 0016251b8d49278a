"""sx-mathoverflow: every edge of batches of links, and the short form of examples/temporal_links.py."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scripts
from oracle import assert_equal

import freshgo
from freshgo import LinkLoader


def test_nothing_from_the_future(real_graph: Any, tmp_path: Path) -> None:
    """Every edge of an epoch for 400 events, from memory and from a store with topology on disk."""
    root = real_graph("sx-mathoverflow")
    edges, time = np.load(root / "edge_index.npy"), np.load(root / "time.npy")
    graph = {"num_nodes": int(edges.max()) + 1, "edge_index": edges, "time": time}
    events = np.random.default_rng(1).choice(edges.shape[1], 400, replace=False)
    how: dict[str, Any] = {
        "edge_label_index": edges[:, events],
        "edge_label_time": time[events],
        "time_attr": "time",
        "neg_sampling": ("binary", 2),
        "strict_negatives": True,
        "exclude_seed_edges": True,
        "temporal_strategy": "last",
        "batch_size": 100,
    }
    freshgo.convert(graph, tmp_path / "graph.freshgo", progress=False).close()
    known = np.unique(edges[0] * graph["num_nodes"] + edges[1])
    with (
        LinkLoader(graph, [10, 5], **how) as memory,
        LinkLoader(tmp_path / "graph.freshgo", [10, 5], neighbor_cache=0, **how) as disk,
    ):
        for one, other in zip(memory, disk, strict=True):
            assert_equal(one, other)
            link = one.batch[one.edge_index[1]]
            assert one.batch[one.edge_index[0]].equal(link)
            assert (one.time <= one.edge_label_time[link]).all()
            ends = one.n_id[one.edge_label_index].numpy()
            pairs = ends[0] * graph["num_nodes"] + ends[1]
            np.testing.assert_array_equal(np.isin(pairs, known), one.edge_label.numpy() == 1)
            drawn = one.n_id[one.edge_index].numpy()
            assert not np.isin(drawn[0] * graph["num_nodes"] + drawn[1], pairs[:100]).any()


def test_the_example_learns(real_graph: Any, tmp_path: Path) -> None:
    pytest.importorskip("torch_geometric")
    example = scripts.load("examples/temporal_links.py")
    short = ["--epochs", "1", "--batches", "12", "--batch-size", "256", "--test", "150"]
    options = [str(real_graph("sx-mathoverflow")), *short]
    results = example.main(options)
    assert results["test"]["model"] > results["test"]["popular"] > 0.3  # a guess: 0.17
    stored = example.main([*options, "--store", str(tmp_path / "graph"), "--memory", "64MiB"])
    assert stored == results
