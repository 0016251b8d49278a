"""ogbl-ddi: the short form of examples/links.py."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scripts
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


@pytest.fixture(scope="module")
def example() -> Any:
    return scripts.load("examples/links.py")


def test_the_example_learns(example: Any, real_graph: Any) -> None:
    results = example.train(real_graph("ogbl-ddi"), epochs=2, batches=3)
    assert results[1][0] < results[0][0] < 0.8  # of which 0.69 is a guess


def test_the_example_goes_on_where_it_was_stopped(
    example: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Stopped in the third of four epochs, its figures are those of a run that was not: batches, dropout and rates."""
    rng = np.random.default_rng(0)
    ends = rng.integers(200, size=(2, 3000))
    ends = ends[:, ends[0] < ends[1]]
    np.save(tmp_path / "edge_index.npy", np.concatenate([ends, ends[::-1]], 1))
    for name in ("val_edge", "val_edge_neg", "test_edge", "test_edge_neg"):
        np.save(tmp_path / f"{name}.npy", rng.integers(200, size=(50, 2)))
    straight = example.train(tmp_path, epochs=4)
    evaluate, calls = example.hits, iter(range(4))

    def stopped(*args: Any) -> Any:
        if next(calls) == 2:
            raise KeyboardInterrupt
        return evaluate(*args)

    monkeypatch.setattr(example, "hits", stopped)
    with pytest.raises(KeyboardInterrupt):
        example.train(tmp_path, epochs=4, resume=tmp_path / "run.pt")
    monkeypatch.setattr(example, "hits", evaluate)
    assert example.train(tmp_path, epochs=4, resume=tmp_path / "run.pt") == straight


def test_links_go_through_the_model_by_pieces(example: Any) -> None:
    """The gradients equal the gradients of all links at once."""
    torch.manual_seed(0)
    graph = {"num_nodes": 100, "edge_index": torch.randint(100, (2, 2000))}
    links = torch.randint(100, (2, 3000))
    model = example.Model(100, 16, dropout=0.0)
    with LinkLoader(graph, [5, 5], links, neg_sampling="binary", batch_size=3000) as loader:
        (batch,) = loader
    assert len(batch.edge_label) > example.PIECE
    value = model.learn(batch)
    found = [parameter.grad.clone() for parameter in model.parameters()]
    model.zero_grad()
    score = model.links(model(batch), batch.edge_label_index)
    loss = torch.nn.functional.binary_cross_entropy_with_logits(score, batch.edge_label)
    loss.backward()
    assert value == pytest.approx(loss.item(), rel=1e-5)
    for one, parameter in zip(found, model.parameters(), strict=True):
        torch.testing.assert_close(one, parameter.grad)
