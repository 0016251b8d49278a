"""What is in a batch, against the NumPy oracle."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from oracle import check_batch
from torch import nn

from freshgo import Batch, Loader


@pytest.mark.parametrize("replace", [False, True])
@pytest.mark.parametrize("fanouts", [[1], [5], [-1], [10, 10], [15, 10, 5], [2, -1, 1]])
@pytest.mark.parametrize("where", ["disk", "memory"])
def test_every_batch(graph: dict[str, Any], store: Any, where: str, fanouts: list[int], replace: bool) -> None:
    seeds = np.random.default_rng(1).permutation(graph["num_nodes"])[:333]
    data = store if where == "disk" else graph
    with Loader(data, fanouts, torch.from_numpy(seeds), batch_size=64, shuffle=True, replace=replace, seed=3) as loader:
        batches = list(loader)
    assert [batch.batch_size for batch in batches] == [64] * 5 + [13]
    for batch in batches:
        check_batch(batch, graph, fanouts, seeds, replace=replace)
    np.testing.assert_array_equal(np.sort(np.concatenate([b.input_id.numpy() for b in batches])), np.arange(333))


def test_duplicate_seeds_have_rows_of_their_own_and_equal_draws(graph: dict[str, Any], store: Any) -> None:
    seeds = np.array([5, 9, 5, 5, 200, 9])
    with Loader(store, [4, 3], seeds, batch_size=6) as loader:
        (batch,) = loader
    check_batch(batch, graph, [4, 3], seeds)
    row, col = batch.edge_index
    for twin, original in ((2, 0), (3, 0), (5, 1)):
        assert row[col == twin].equal(row[col == original])
        assert batch.e_id[col == twin].equal(batch.e_id[col == original])


def test_isolated_seeds_have_no_edges(graph: dict[str, Any], store: Any) -> None:
    seeds = np.arange(graph["num_nodes"] - 10, graph["num_nodes"])
    with Loader(store, [4, 3], seeds, batch_size=10) as loader:
        (batch,) = loader
    check_batch(batch, graph, [4, 3], seeds)
    assert batch.edge_index.shape == (2, 0)
    assert batch.num_sampled_nodes == [10, 0, 0]


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        ("none", lambda g: np.arange(g["num_nodes"])),
        ("split", lambda g: np.flatnonzero(g["train_mask"])),
        ("mask", lambda g: np.flatnonzero(g["train_mask"])),
        ("list", lambda g: np.array([7, 3, 2990])),
        ("int32", lambda g: np.array([1, 2, 3])),
    ],
)
@pytest.mark.parametrize("where", ["disk", "memory"])
def test_input_nodes(graph: dict[str, Any], store: Any, where: str, kind: str, expected: Any) -> None:
    given = {
        "none": None,
        "split": "train",
        "mask": torch.from_numpy(graph["train_mask"]),
        "list": [7, 3, 2990],
        "int32": torch.tensor([1, 2, 3], dtype=torch.int32),
    }
    with Loader(store if where == "disk" else graph, [2], given[kind], batch_size=500) as loader:
        seeds = torch.cat([batch.n_id[: batch.batch_size] for batch in loader])
    np.testing.assert_array_equal(seeds, expected(graph))


def test_draws_differ_between_epochs_batches_and_seeds(store: Any) -> None:
    def edges(seed: int, epoch: int) -> list[Any]:
        with Loader(store, [3], [0, 1, 2, 3] * 8, batch_size=4, seed=seed) as loader:
            loader.set_epoch(epoch)
            return [tuple(batch.e_id.tolist()) for batch in loader]

    first = edges(0, 0)
    assert len(set(first)) == len(first)
    assert first == edges(0, 0)
    assert first != edges(0, 1)
    assert first != edges(1, 0)


def test_tensors_are_writable_and_outlive_the_loader(graph: dict[str, Any], store: Any) -> None:
    with Loader(store, [5], batch_size=100) as loader:
        batch = next(iter(loader))
    expected = graph["x"][batch.n_id.numpy()]
    np.testing.assert_array_equal(batch.x, expected)
    batch.x += 1
    np.testing.assert_array_equal(batch.x, expected + 1)


def test_without_pyg(graph: dict[str, Any], store: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    seeds = np.arange(50)
    with Loader(store, [4, 2], seeds, batch_size=50) as loader:
        (batch,) = loader
    assert type(batch) is Batch
    check_batch(batch, graph, [4, 2], seeds)
    assert "x" in batch
    assert dict(batch)["x"] is batch.x
    assert batch.to("cpu").x.equal(batch.x)
    assert f"x={list(batch.x.shape)}" in repr(batch)
    assert len(batch.blocks()) == 2
    with pytest.raises(AttributeError, match="n_id"):
        _ = batch.nonsense


class Mean(nn.Module):
    """Adds a node to the mean of its neighbours; takes a bipartite graph as PyG's layers do."""

    def forward(self, h: tuple[torch.Tensor, torch.Tensor], edge_index: torch.Tensor) -> torch.Tensor:
        source, target = h
        row, col = edge_index
        total = torch.zeros(target.size(0), source.size(1), dtype=source.dtype).index_add_(0, col, source[row])
        degree = torch.bincount(col, minlength=target.size(0)).clamp(min=1)
        return target + total / degree.unsqueeze(1)


@pytest.mark.parametrize("fanouts", [[4], [5, 3], [4, 3, 2]])
def test_blocks_give_the_seeds_what_the_whole_batch_gives(store: Any, fanouts: list[int]) -> None:
    with Loader(store, fanouts, batch_size=40) as loader:
        batch = next(iter(loader))
    layer = Mean()
    whole = batch.x.double()
    for _ in fanouts:
        whole = layer((whole, whole), batch.edge_index)
    h = batch.x.double()
    for block in batch.blocks():
        assert h.size(0) == block.num_src
        h = layer((h, h[: block.num_dst]), block.edge_index)
    assert h.size(0) == batch.batch_size
    torch.testing.assert_close(h, whole[: batch.batch_size])


def test_blocks_are_csc(store: Any) -> None:
    with Loader(store, [4, 3, 2], batch_size=40) as loader:
        batch = next(iter(loader))
    blocks = batch.blocks()
    assert [block.num_dst for block in blocks] == [*np.cumsum(batch.num_sampled_nodes)[-2::-1]]
    assert blocks[-1].num_dst == batch.batch_size
    assert blocks[0].num_src == batch.num_nodes
    for block in blocks:
        assert block.ptr[0] == 0
        assert block.ptr[-1] == block.num_edges == block.e_id.numel()
        degree = block.ptr.diff()
        assert torch.arange(block.num_dst).repeat_interleave(degree).equal(block.edge_index[1])
        assert block.index.equal(block.edge_index[0])
        assert int(block.index.max()) < block.num_src
