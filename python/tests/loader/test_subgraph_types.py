"""subgraph_type: bidirectional and induced batches against an oracle in NumPy and against PyG's own loader."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest
import torch
from graphs import EdgeType, Form, Graph, as_types, forms, hetero_graph, pyg_data, random_graph, relations
from oracle import assert_batches_equal, assert_equal, check_rows

import freshgo
from freshgo import Belady, Disk, Labor, Loader, RandomWalk, errors

pytestmark = [
    pytest.mark.explore,
    pytest.mark.filterwarnings("ignore:subgraph_type='bidirectional' adds nothing:UserWarning"),
]

OPTIONS: dict[str, Any] = {"batch_size": 64, "shuffle": True, "seed": 7}
KINDS = ("bidirectional", "induced")


def homogeneous() -> dict[str, Any]:
    graph = random_graph(num_nodes=500, num_edges=4000, seed=5)
    del graph["splits"], graph["train_mask"]
    return graph


@pytest.fixture(scope="module")
def plain() -> dict[str, Any]:
    return homogeneous()


form = forms(homogeneous, lambda: hetero_graph(scale=60, seed=3))


def inputs_of(form: Form) -> Any:
    return {"author": [0, 4, 9, 4], "paper": list(range(150))} if form.several else form.inputs()


def induced(edges: Any, sources: Any, targets: Any) -> tuple[Any, Any]:
    """All edges from some nodes to others, by target and then in the user's order."""
    source, target = edges
    first: dict[int, int] = {}
    for local, node in enumerate(sources.tolist()):
        first.setdefault(node, local)
    found = [
        (first[source[e]], local, e)
        for local, node in enumerate(targets.tolist())
        for e in np.flatnonzero(target == node).tolist()
        if source[e] in first
    ]
    row, col, e_id = np.asarray(found, dtype=np.int64).reshape(-1, 3).T
    return np.stack([row, col]), e_id


def bidirectional(edge_index: np.ndarray[Any, Any], e_id: np.ndarray[Any, Any]) -> tuple[Any, Any]:
    """The drawn edges and those against them, of each pair the drawn one that comes first, else the first of these."""
    found: dict[tuple[int, int], int] = {}
    for ends in (edge_index.T, edge_index[::-1].T):
        for (row, col), edge in zip(ends.tolist(), e_id.tolist(), strict=True):
            found.setdefault((col, row), edge)
    order = sorted(found)
    return np.asarray([(row, col) for col, row in order]).reshape(-1, 2).T, np.asarray([found[pair] for pair in order])


def both_ways(graph: Graph) -> dict[EdgeType, EdgeType | None]:
    """The relation against each, of which these graphs have one at most."""

    def back(relation: EdgeType) -> EdgeType | None:
        return next((other for other in relations(graph) if other[::2] == relation[2::-2]), None)

    return {relation: relation if relation[0] == relation[2] else back(relation) for relation in relations(graph)}


def pairs(part: Any) -> set[tuple[int, int]]:
    return set(zip(*part.edge_index.tolist(), strict=True))


def check_edges(kind: str, part: Any, drawn: Any, relation: EdgeType, back: EdgeType | None, whole: Any) -> None:
    """Assert what the edges of a relation are, beside those that were drawn."""
    if kind == "induced":
        edge_index, e_id = induced(
            whole["edge_index"], drawn[relation[0]].n_id.numpy(), drawn[relation[2]].n_id.numpy()
        )
    elif back == relation:
        edge_index, e_id = bidirectional(drawn[relation].edge_index.numpy(), drawn[relation].e_id.numpy())
    else:  # the reverse edges have numbers of another relation
        against = set() if back is None else {(v, u) for u, v in pairs(drawn[back])}
        assert pairs(part) == pairs(drawn[relation]) | against
        listed = list(zip(*part.edge_index.tolist()[::-1], strict=True))
        assert listed == sorted(set(listed))
        assert ("e_id" in part) == (back is None)
        assert all((name in part) == (back is None) for name in set(whole) - {"edge_index"})
        return
    np.testing.assert_array_equal(part.edge_index.numpy(), edge_index)
    np.testing.assert_array_equal(part.e_id.numpy(), e_id)


@pytest.mark.parametrize(
    "sampler", [{}, {"replace": True}, {"weight_attr": "weight"}, {"neighbor_sampler": "labor"}], ids=str
)
@pytest.mark.parametrize("kind", KINDS)
def test_equals_the_oracle(form: Form, kind: str, sampler: dict[str, Any]) -> None:
    if "neighbor_sampler" in sampler:
        sampler = {"neighbor_sampler": Labor(edge_weight=False)}
    if "weight_attr" in sampler and not form.several:
        sampler = {"weight_attr": "edge_weight"}
    options = {"num_neighbors": [4, 3], "input_nodes": inputs_of(form), "transpose": True, **sampler, **OPTIONS}
    reverse = both_ways(form.graph)
    with Loader(form.data, **options) as drawn, Loader(form.data, subgraph_type=kind, **options) as loader:
        for one, batch in zip(form.batches(drawn), form.batches(loader), strict=True):
            for node_type in batch.node_types:
                assert batch[node_type].n_id.equal(one[node_type].n_id)
                assert "num_sampled_nodes" not in batch[node_type]
                if "input_id" in one[node_type]:
                    assert batch[node_type].input_id.equal(one[node_type].input_id)
            for relation, back in reverse.items():
                assert "num_sampled_edges" not in batch[relation]
                check_edges(kind, batch[relation], one, relation, back, form.graph[relation])
            check_rows(batch, form.graph)


def test_a_relation_without_a_reverse_is_told() -> None:
    graph = hetero_graph(scale=20)
    one_way = [relation for relation, back in both_ways(graph).items() if back is None]
    with pytest.warns(UserWarning, match="no reverse edge type") as told:
        Loader(graph, [3, 2], "paper", subgraph_type="bidirectional").close()
    assert len(told) == len(one_way) > 0


def test_bidirectional_trees(form: Form) -> None:
    options = {"input_nodes": inputs_of(form), "disjoint": True, "subgraph_type": "bidirectional", **OPTIONS}
    with Loader(form.data, [3, 2], **options) as loader:
        for batch in form.batches(loader):
            for relation in form.relations:
                source, target = batch[relation].edge_index
                assert batch[relation[0]].batch[source].equal(batch[relation[2]].batch[target])


def test_repeated_seeds(plain: dict[str, Any]) -> None:
    seeds = torch.tensor([3, 1, 3, 4])
    with Loader(plain, [5], seeds, batch_size=4, subgraph_type="induced") as loader:
        (batch,) = loader
    edge_index, e_id = induced(plain["edge_index"], batch.n_id.numpy(), batch.n_id.numpy())
    assert batch.n_id[:4].equal(seeds)
    np.testing.assert_array_equal(batch.edge_index.numpy(), edge_index)
    np.testing.assert_array_equal(batch.e_id.numpy(), e_id)
    assert (batch.edge_index[1] == 2).any()
    assert not (batch.edge_index[0] == 2).any()


PLACES: list[dict[str, Any]] = [
    {"num_workers": 8},
    {"neighbor_cache": 0, "cache": "belady", "feature_cache": 30_000, "memory": "64MiB"},
    {"neighbor_cache": 30_000, "cache": "presc", "feature_cache": 20_000},
    {"neighbor_cache": 0, "cache": "lru", "feature_cache": 8_000, "disk": Disk(checksums=True)},
]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("place", PLACES, ids=str)
def test_place_changes_nothing(form: Form, kind: str, place: dict[str, Any]) -> None:
    options = {"input_nodes": inputs_of(form), "subgraph_type": kind, "transpose": True, **OPTIONS}
    with (
        Loader(form.data, [3, 2], num_workers=1, **options) as memory,
        Loader(form.path, [3, 2], **options, **place) as disk,
    ):
        for _ in range(2):
            assert_batches_equal(memory, disk)


@pytest.mark.parametrize("kind", KINDS)
def test_reordered_batches_are_the_same(form: Form, kind: str) -> None:
    options = {"num_neighbors": [3, 2], "subgraph_type": kind, "transpose": True, **OPTIONS}
    reorder = {"neighbor_cache": 0, "cache": Belady(reorder=4, trace_memory="1MiB"), "feature_cache": 20_000}
    inputs = form.inputs()
    with Loader(form.data, input_nodes=inputs, **options) as memory:
        with Loader(form.path, input_nodes=inputs, **options, **reorder) as disk:
            for _ in range(2):
                first = {int(form.by_type(batch)[form.node_type].input_id[0]): batch for batch in memory}
                for batch in disk:
                    assert_equal(first.pop(int(form.by_type(batch)[form.node_type].input_id[0])), batch)
                assert not first


@pytest.mark.parametrize("kind", KINDS)
def test_trace_state_and_smallest_memory(form: Form, kind: str) -> None:
    options: dict[str, Any] = {"input_nodes": inputs_of(form), **OPTIONS, "subgraph_type": kind}
    with pytest.raises(errors.BudgetError) as small:
        Loader(form.path, [3, 2], memory=1, **options)
    with Loader(form.path, [3, 2], memory=small.value.minimum, **options) as loader:
        batches = list(loader)
        for nodes, batch in zip(loader.trace(0), form.batches(batches), strict=True):
            by_type = nodes if isinstance(nodes, dict) else {form.node_type: nodes}
            assert all(ids.equal(batch[node_type].n_id) for node_type, ids in by_type.items())
        loader.set_epoch(0)
        iterator = iter(loader)
        next(iterator)
        state = loader.state_dict()
    with Loader(form.path, [3, 2], **{**options, "subgraph_type": "directional"}) as other:
        with pytest.raises(errors.InvalidArgumentError, match="subgraph_type was"):
            other.load_state_dict(state)
    with Loader(form.path, [3, 2], **options) as again:
        again.load_state_dict(state)
        assert_batches_equal(again, batches[1:])


def test_refused(plain: dict[str, Any]) -> None:
    with Loader(plain, [3, 2], subgraph_type="induced", **OPTIONS) as loader:
        batch = next(iter(loader))
        with pytest.raises(errors.InvalidArgumentError, match="subgraph_type='directional'"):
            batch.blocks()
    for options, match in (
        ({"num_neighbors": [RandomWalk()]}, "random walks"),
        ({"neighbor_sampler": "labor"}, "edge_weight=False"),
        ({"history": freshgo.History(0.5, 10, keep="rows")}, "history prunes"),
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
        data = pyg_data(as_types(plain))
        order = data.edge_index[1].argsort(stable=True)  # which PyG's own sort is not
        data.edge_index = data.edge_index[:, order].contiguous()
        return data

    def batches(self, data: Any, fanouts: list[int], kind: str) -> list[Any]:
        from torch_geometric.loader import NeighborLoader

        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return list(NeighborLoader(data, fanouts, batch_size=8, subgraph_type=kind, is_sorted=True))

    @pytest.mark.parametrize("kind", KINDS)
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

    @pytest.mark.parametrize("kind", KINDS)
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
                    expected, _ = induced(data.edge_index.numpy(), batch.n_id.numpy(), batch.n_id.numpy())
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
