"""ogbl-ddi: the short form of examples/links.py."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from freshgo import LinkLoader

pytest.importorskip("torch_geometric")


def test_negatives_and_edges_of_ddi(real_graph: Any) -> None:
    """Of a dense graph (an eighth of all pairs are edges) no negative is an edge, and no link of a batch is drawn."""
    edges = torch.from_numpy(np.load(real_graph("ogbl-ddi") / "edge_index.npy"))
    nodes = int(edges.max()) + 1
    keys = torch.unique(edges[0] * nodes + edges[1])
    links = edges[:, edges[0] < edges[1]]
    with LinkLoader(
        {"num_nodes": nodes, "edge_index": edges},
        [10],
        links,
        neg_sampling=("binary", 2),
        strict_negatives=True,
        exclude_seed_edges="reverse",
        batch_size=4096,
        shuffle=True,
    ) as loader:
        for _, batch in zip(range(5), loader, strict=False):
            ends = batch.n_id[batch.edge_label_index]
            assert ends.size(1) == 3 * 4096
            is_edge = torch.isin(ends[0] * nodes + ends[1], keys)
            assert is_edge.equal(batch.edge_label == 1)
            drawn = batch.n_id[batch.edge_index]
            both = torch.cat([ends[:, :4096], ends[:, :4096].flip(0)], dim=1)
            assert not torch.isin(drawn[0] * nodes + drawn[1], both[0] * nodes + both[1]).any()


def test_the_example_learns(real_graph: Any) -> None:
    folder = real_graph("ogbl-ddi")
    script = next(
        (
            p / "examples" / "links.py"
            for p in Path(__file__).resolve().parents
            if (p / "examples" / "links.py").exists()
        ),
        None,
    )
    if script is None:
        pytest.skip("there is no examples/links.py above the tests")
    spec = importlib.util.spec_from_file_location("links_example", script)
    assert spec is not None and spec.loader is not None
    example = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(example)
    results = example.train(folder, epochs=2, batches=6)
    assert results[1][0] < results[0][0] < 0.8  # of which 0.69 is a guess
