"""lastfm-hetero: the short form of examples/links_hetero.py."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import scripts
import torch

from freshgo import LinkLoader, convert

pytest.importorskip("torch_geometric")


@pytest.fixture(scope="module")
def example() -> Any:
    return scripts.load("examples/links_hetero.py")


def test_memory_and_store_learn_alike(example: Any, real_graph: Any, tmp_path: Path) -> None:
    graph, links = example.arrays(real_graph("lastfm-hetero"))
    links = {**links, "val": links["val"][:, :500], "test": links["test"][:, :500]}
    with convert(graph, tmp_path / "g", progress=False) as store:
        runs = [
            example.train(data, graph, links, weight_attr="count", memory=memory, epochs=1, batches=6)
            for data, memory in ((graph, None), (store, "32MiB"))
        ]
    assert runs[0] == runs[1]
    losses, (auc, _) = runs[0]
    assert losses[-1] < losses[0] < 0.75  # of which 0.69 is a guess
    assert auc > 0.6


def test_negatives_and_edges(example: Any, real_graph: Any) -> None:
    """No negative is a link, and no link of a batch is among its edges, in either direction."""
    graph, links = example.arrays(real_graph("lastfm-hetero"))
    of, back = example.LISTENS, ("artist", "rev_listens", "user")
    artists = graph["artist"]["num_nodes"]
    keys = links["train"][0] * artists + links["train"][1]
    with LinkLoader(
        graph,
        [10, 5],
        (of, links["train"]),
        neg_sampling=("binary", 2),
        strict_negatives=True,
        exclude_seed_edges="reverse",
        weight_attr="count",
        batch_size=1024,
        shuffle=True,
    ) as loader:
        for _, batch in zip(range(4), loader, strict=False):
            user, artist = batch[of].edge_label_index
            ends = batch["user"].n_id[user] * artists + batch["artist"].n_id[artist]
            assert torch.isin(ends, keys).equal(batch[of].edge_label == 1)
            for relation, (u, a) in ((of, (0, 1)), (back, (1, 0))):
                drawn = batch[relation].edge_index
                drawn = batch["user"].n_id[drawn[u]] * artists + batch["artist"].n_id[drawn[a]]
                assert not torch.isin(drawn, ends[:1024]).any()
                assert drawn.numel()
