"""What is in a batch, against the NumPy oracle."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from graphs import CITES, HAS, WRITES, Form, num_nodes
from oracle import check_batch
from seeds import seed as seed_of
from torch import nn

from freshgo import Batch, HeteroBatch, Loader
from freshgo._batch.structure import recall
from freshgo.errors import LibraryError

pytestmark = pytest.mark.explore

HOPS: list[Any] = [[0], [1], [5], [-1], [2, 0, 3], [10, 10], [3, 2], [15, 10, 5], [2, -1, 1], "several"]


def fanouts_of(form: Form, hops: Any) -> Any:
    """The neighbours along each relation: the same along all, or others along some, with 0 and all among them."""
    if hops != "several":
        return form.fanouts(hops)
    others = {CITES: [-1, 1], WRITES: [2, 0], HAS: [0, 4]}
    return {relation: others.get(relation, [3, 2]) for relation in form.relations}


@pytest.mark.parametrize("replace", [False, True])
@pytest.mark.parametrize("hops", HOPS, ids=str)
@pytest.mark.parametrize("where", ["disk", "memory"])
def test_every_batch(form: Form, where: str, hops: Any, replace: bool) -> None:
    seeds = np.random.default_rng(seed_of(1)).permutation(num_nodes(form.graph)[form.node_type])[:333]
    data, fanouts = form.path if where == "disk" else form.data, fanouts_of(form, hops)
    asked = form.bare(fanouts) if hops == "several" else hops
    options: dict[str, Any] = {"batch_size": 64, "shuffle": True, "replace": replace, "seed": 3}
    with Loader(data, asked, form.inputs(torch.from_numpy(seeds)), **options) as loader:
        batches = form.batches(loader)
    assert [batch[form.node_type].batch_size for batch in batches] == [64] * 5 + [13]
    for batch in batches:
        check_batch(batch, form.graph, fanouts, {form.node_type: seeds}, replace=replace)
    found = np.concatenate([batch[form.node_type].input_id.numpy() for batch in batches])
    np.testing.assert_array_equal(np.sort(found), np.arange(333))


def test_duplicate_seeds_have_rows_of_their_own_and_equal_draws(form: Form) -> None:
    seeds = np.array([5, 9, 5, 5, 200, 9])
    with Loader(form.path, [4, 3], form.inputs(seeds), batch_size=6) as loader:
        (batch,) = form.batches(loader)
    check_batch(batch, form.graph, form.fanouts([4, 3]), {form.node_type: seeds})
    for relation in form.relations:
        if relation[2] != form.node_type:
            continue
        row, col = batch[relation].edge_index
        for twin, original in ((2, 0), (3, 0), (5, 1)):
            assert row[col == twin].equal(row[col == original])
            assert batch[relation].e_id[col == twin].equal(batch[relation].e_id[col == original])


def test_isolated_seeds_have_no_edges(graph: dict[str, Any], store: Any) -> None:
    seeds = np.arange(graph["num_nodes"] - 10, graph["num_nodes"])
    with Loader(store, [4, 3], seeds, batch_size=10) as loader:
        (batch,) = loader
    check_batch(batch, graph, [4, 3], seeds)
    assert batch.edge_index.shape == (2, 0)
    assert batch.num_sampled_nodes == [10, 0, 0]


@pytest.mark.parametrize("kind", ["none", "split", "mask", "list", "int32"])
@pytest.mark.parametrize("where", ["disk", "memory"])
def test_input_nodes(form: Form, where: str, kind: str) -> None:
    part, last = form.graph[form.node_type], num_nodes(form.graph)[form.node_type] - 10
    given, want = {
        "none": (None, np.arange(last + 10)),
        "split": ("train", np.flatnonzero(part["train_mask"])),
        "mask": (torch.from_numpy(part["train_mask"]), np.flatnonzero(part["train_mask"])),
        "list": ([7, 3, last], np.array([7, 3, last])),
        "int32": (torch.tensor([1, 2, 3], dtype=torch.int32), np.array([1, 2, 3])),
    }[kind]
    with Loader(form.path if where == "disk" else form.data, [2], form.inputs(given), batch_size=500) as loader:
        batches = [batch[form.node_type] for batch in form.batches(loader)]
    np.testing.assert_array_equal(torch.cat([part.n_id[: part.batch_size] for part in batches]), want)
    ids = torch.cat([part.input_id for part in batches])
    np.testing.assert_array_equal(ids, want if kind == "mask" else np.arange(len(want)))


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


def test_without_pyg(form: Form, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    seeds = np.arange(50)
    with Loader(form.path, [4, 2], form.inputs(seeds), batch_size=50) as loader:
        (batch,) = loader
    assert type(batch) is (HeteroBatch if form.node_type else Batch)
    check_batch(batch, form.graph, form.fanouts([4, 2]), {form.node_type: seeds})
    assert len(batch.blocks()) == 2
    part = form.by_type(batch)[form.node_type]
    assert form.by_type(batch.to("cpu"))[form.node_type].x.equal(part.x)
    assert f"x={list(part.x.shape)}" in repr(batch)
    if form.node_type:
        with_x = [key for key, tensors in form.graph.items() if "x" in tensors]
        assert set(batch.x_dict) == set(with_x)
        assert set(batch.edge_index_dict) == set(form.relations)
    else:
        assert "x" in batch
        assert dict(batch)["x"] is batch.x
    with pytest.raises(AttributeError, match="nonsense"):
        _ = batch.nonsense
    with pytest.raises(LibraryError, match="needs PyTorch Geometric"):
        Loader(form.path, [4, 2], form.inputs(), edge_index="EdgeIndex")


def test_transpose_groups_by_source(form: Form) -> None:
    with Loader(form.data, [3, 2], form.inputs(), transpose=True, batch_size=64, shuffle=True) as loader:
        batch = form.by_type(next(iter(loader)))
    assert not [name for e in batch.edge_types for name in batch[e].keys() if name.startswith("source_")]  # noqa: SIM118
    for edge_type in batch.edge_types:
        row, col = batch[edge_type].edge_index
        known = recall(batch[edge_type].edge_index)
        assert known is not None
        assert known.transposed is not None
        by_source = torch.repeat_interleave(known.transposed.ptr.diff())
        edge = known.transposed.edge.long()
        assert row[edge].equal(by_source)
        assert col[edge].equal(known.transposed.target.long())
        assert edge.sort().values.equal(torch.arange(len(row)))
        assert known.ptr is not None
        assert known.ptr.diff().equal(torch.bincount(col, minlength=known.ptr.numel() - 1))


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
