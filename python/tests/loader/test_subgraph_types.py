"""subgraph_type: bidirectional and induced batches against an oracle in NumPy and against PyG's own loader."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from conftest import random_graph
from oracle import assert_equal, check_rows

import freshgo
from freshgo import Labor, Loader, RandomWalk, errors

OPTIONS: dict[str, Any] = {"batch_size": 64, "shuffle": True, "seed": 7}


@pytest.fixture(scope="module")
def plain() -> dict[str, Any]:
    graph = random_graph(num_nodes=500, num_edges=4000, seed=5)
    del graph["splits"], graph["train_mask"]
    return graph


def induced(graph: dict[str, Any], n_id: np.ndarray[Any, Any]) -> tuple[Any, Any]:
    """All edges among the nodes, by target and then in the user's order."""
    source, target = graph["edge_index"]
    first: dict[int, int] = {}
    for local, node in enumerate(n_id.tolist()):
        first.setdefault(node, local)
    edges = [
        (first[source[e]], local, e)
        for local, node in enumerate(n_id.tolist())
        for e in np.flatnonzero(target == node).tolist()
        if source[e] in first
    ]
    row, col, e_id = np.asarray(edges, dtype=np.int64).reshape(-1, 3).T
    return np.stack([row, col]), e_id


def bidirectional(edge_index: np.ndarray[Any, Any], e_id: np.ndarray[Any, Any]) -> tuple[Any, Any]:
    """The drawn edges and those against them, of each pair the drawn one that comes first, else the first of these."""
    found: dict[tuple[int, int], int] = {}
    for ends in (edge_index.T, edge_index[::-1].T):
        for (row, col), edge in zip(ends.tolist(), e_id.tolist(), strict=True):
            found.setdefault((col, row), edge)
    order = sorted(found)
    return np.asarray([(row, col) for col, row in order]).reshape(-1, 2).T, np.asarray([found[pair] for pair in order])


@pytest.mark.parametrize("sampler", [{}, {"replace": True}, {"weight_attr": "edge_weight"}, {"sampler": "labor"}])
@pytest.mark.parametrize("kind", ["bidirectional", "induced"])
def test_equals_the_oracle(plain: dict[str, Any], kind: str, sampler: dict[str, Any]) -> None:
    if "sampler" in sampler:
        sampler = {"sampler": Labor(edge_weight=False)}
    with (
        Loader(plain, [4, 3], **sampler, **OPTIONS) as drawn,
        Loader(plain, [4, 3], subgraph_type=kind, **sampler, **OPTIONS) as loader,
    ):
        for one, batch in zip(drawn, loader, strict=True):
            assert batch.n_id.equal(one.n_id)
            if kind == "induced":
                edge_index, e_id = induced(plain, one.n_id.numpy())
            else:
                edge_index, e_id = bidirectional(one.edge_index.numpy(), one.e_id.numpy())
            np.testing.assert_array_equal(batch.edge_index.numpy(), edge_index)
            np.testing.assert_array_equal(batch.e_id.numpy(), e_id)
            check_rows(batch, plain, batch.n_id.numpy(), e_id)
            assert "num_sampled_nodes" not in batch
            assert "num_sampled_edges" not in batch
            assert batch.input_id.equal(one.input_id)


def test_repeated_seeds(plain: dict[str, Any]) -> None:
    seeds = torch.tensor([3, 1, 3, 4])
    with Loader(plain, [5], seeds, batch_size=4, subgraph_type="induced") as loader:
        (batch,) = loader
    edge_index, e_id = induced(plain, batch.n_id.numpy())
    assert batch.n_id[:4].equal(seeds)
    np.testing.assert_array_equal(batch.edge_index.numpy(), edge_index)
    np.testing.assert_array_equal(batch.e_id.numpy(), e_id)
    assert (batch.edge_index[1] == 2).any()
    assert not (batch.edge_index[0] == 2).any()


@pytest.mark.parametrize("kind", ["bidirectional", "induced"])
@pytest.mark.parametrize(
    "place",
    [
        {"num_workers": 8},
        {"neighbor_cache": 0, "cache": "belady", "feature_cache": 30_000, "memory": "64MiB"},
        {"neighbor_cache": 30_000, "cache": "presc", "feature_cache": 20_000},
        {"neighbor_cache": 0, "cache": "belady", "reorder": 4, "trace_memory": "1MiB", "feature_cache": 20_000},
    ],
)
def test_place_changes_nothing(plain: dict[str, Any], tmp_path: Path, kind: str, place: dict[str, Any]) -> None:
    freshgo.convert(plain, tmp_path / "graph.freshgo", progress=False).close()
    options = {**OPTIONS, "subgraph_type": kind, "transpose": True}
    with (
        Loader(plain, [3, 2], num_workers=1, **options) as memory,
        Loader(tmp_path / "graph.freshgo", [3, 2], **options, **place) as disk,
    ):
        for _ in range(2):
            expected = {int(batch.input_id[0]): batch for batch in memory}
            for batch in disk:
                assert_equal(expected.pop(int(batch.input_id[0])), batch)
            assert not expected


@pytest.mark.parametrize("kind", ["bidirectional", "induced"])
def test_trace_state_and_smallest_memory(plain: dict[str, Any], tmp_path: Path, kind: str) -> None:
    freshgo.convert(plain, tmp_path / "graph.freshgo", progress=False).close()
    options: dict[str, Any] = {**OPTIONS, "subgraph_type": kind}
    with pytest.raises(errors.BudgetError) as small:
        Loader(tmp_path / "graph.freshgo", [3, 2], memory=1, **options)
    with Loader(tmp_path / "graph.freshgo", [3, 2], memory=small.value.minimum, **options) as loader:
        batches = list(loader)
        for ids, batch in zip(loader.trace(0), batches, strict=True):
            assert ids.equal(batch.n_id)
        loader.set_epoch(0)
        iterator = iter(loader)
        next(iterator)
        state = loader.state_dict()
    with Loader(tmp_path / "graph.freshgo", [3, 2], **OPTIONS) as other:
        with pytest.raises(errors.InvalidArgumentError, match="subgraph_type was"):
            other.load_state_dict(state)
    with Loader(tmp_path / "graph.freshgo", [3, 2], **options) as again:
        again.load_state_dict(state)
        for batch, expected in zip(again, batches[1:], strict=True):
            assert_equal(batch, expected)


def test_refused(plain: dict[str, Any]) -> None:
    with Loader(plain, [3, 2], subgraph_type="induced", **OPTIONS) as loader:
        batch = next(iter(loader))
        with pytest.raises(errors.InvalidArgumentError, match="subgraph_type='directional'"):
            batch.blocks()
    for options, match in (
        ({"num_neighbors": [RandomWalk()]}, "RandomWalk"),
        ({"sampler": "labor"}, r"Labor\(edge_weight=False\)"),
        ({"history": freshgo.History(0.5, 10)}, "history prunes"),
        ({"subgraph_type": "both"}, "subgraph_type must be one of"),
    ):
        with pytest.raises(errors.InvalidArgumentError, match=match):
            Loader(plain, **{"num_neighbors": [2, 2], "subgraph_type": "bidirectional", **options})  # type: ignore[arg-type]


class TestPyG:
    """PyG's own loader, with torch-sparse."""

    @pytest.fixture(scope="class")
    def data(self, plain: dict[str, Any]) -> Any:
        pytest.importorskip("torch_geometric")
        pytest.importorskip("torch_sparse")
        from torch_geometric.data import Data

        tensors = {name: torch.from_numpy(value) for name, value in plain.items() if isinstance(value, np.ndarray)}
        order = tensors["edge_index"][1].argsort(stable=True)  # which PyG's own sort is not
        tensors["edge_index"] = tensors["edge_index"][:, order].contiguous()
        return Data(num_nodes=plain["num_nodes"], **tensors)

    def batches(self, data: Any, fanouts: list[int], kind: str) -> list[Any]:
        from torch_geometric.loader import NeighborLoader

        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return list(NeighborLoader(data, fanouts, batch_size=8, subgraph_type=kind, is_sorted=True))

    @pytest.mark.parametrize("kind", ["bidirectional", "induced"])
    def test_all_neighbours(self, data: Any, kind: str) -> None:
        from torch_geometric.sampler.base import SubgraphType

        with Loader(data, [-1, -1], batch_size=8, subgraph_type=SubgraphType(kind)) as loader:  # type: ignore[arg-type]
            for mine, theirs in zip(loader, self.batches(data, [-1, -1], kind), strict=True):
                assert mine.n_id.equal(theirs.n_id)
                assert mine.edge_index.equal(theirs.edge_index)
                assert mine.x.equal(theirs.x)
                assert set(mine.keys()) == set(theirs.keys())
                if kind == "induced":
                    assert mine.e_id.equal(theirs.e_id)
                    assert mine.edge_weight.equal(theirs.edge_weight)
                for batch in (mine, theirs):  # of equal pairs either takes the number of one
                    ends, edge = batch.n_id[batch.edge_index], data.edge_index[:, batch.e_id]
                    assert ((ends == edge).all(0) | (ends == edge.flip(0)).all(0)).all()

    @pytest.mark.parametrize("kind", ["bidirectional", "induced"])
    def test_fanouts(self, data: Any, kind: str) -> None:
        """The draws are others; what follows from the nodes, and from the drawn edges, is the same."""
        with Loader(data, [3, 2], batch_size=8, subgraph_type=kind) as loader:
            everything = list(loader)
        edges = [0, 0]
        for side, batches in enumerate((everything, self.batches(data, [3, 2], kind))):
            for batch in batches:
                edges[side] += batch.edge_index.size(1)
                pairs = set(map(tuple, batch.edge_index.T.tolist()))
                if kind == "induced":
                    expected, _ = induced({"edge_index": data.edge_index.numpy()}, batch.n_id.numpy())
                    np.testing.assert_array_equal(batch.edge_index.numpy(), expected)
                else:
                    assert len(pairs) == batch.edge_index.size(1)
                    assert pairs == {(col, row) for row, col in pairs}
                    assert (torch.diff(batch.edge_index[1]) >= 0).all()
        assert 0.9 < edges[0] / edges[1] < 1.1  # as many, but for chance

    def test_layers(self, data: Any) -> None:
        """Message passing over a whole batch is that of its edges, also where it is accelerated."""
        from torch_geometric.nn import SAGEConv

        layer, faster = SAGEConv(24, 5), SAGEConv(24, 5)
        faster.load_state_dict(layer.state_dict())
        freshgo.nn.accelerate(faster)
        with (
            Loader(data, [3, 2], batch_size=8, subgraph_type="bidirectional", transpose=True) as loader,
            Loader(data, [3, 2], batch_size=8, subgraph_type="bidirectional", edge_index="EdgeIndex") as other,
        ):
            for batch, same in zip(loader, other, strict=True):
                expected = layer(batch.x, batch.edge_index.clone())
                torch.testing.assert_close(layer(same.x, same.edge_index), expected)
                torch.testing.assert_close(faster(batch.x, batch.edge_index), expected)
