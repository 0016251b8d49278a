"""A store as PyG's FeatureStore, GraphStore and BaseSampler: PyG's own loaders read what it holds."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import warm
from graphs import as_types, handed, hetero_graph, num_nodes, pyg_data, random_graph, relations

import freshgo
from freshgo import Loader, convert, errors

pytest.importorskip("torch_geometric")
import torch_geometric.data as pyg_graphs
from torch_geometric.data import HeteroData
from torch_geometric.data.graph_store import EdgeLayout
from torch_geometric.loader import LinkLoader, NeighborLoader, NodeLoader
from torch_geometric.sampler import BaseSampler, EdgeSamplerInput, NegativeSampling, NeighborSampler
from torch_geometric.testing import MyFeatureStore, MyGraphStore

import freshgo.pyg

SMALL: dict[str, Any] = {"memory": "64MiB", "progress": False}

pytestmark = pytest.mark.filterwarnings("ignore:Using 'NeighborSampler' without a 'pyg-lib'")


@pytest.fixture(scope="module", params=["homogeneous", "types"])
def stored(request: Any, tmp_path_factory: Any) -> Iterator[tuple[Any, freshgo.Store]]:
    """A graph and its store. PyG knows the nodes of a type by its edges, so that none is without."""
    graph = as_types(random_graph(400, 2500)) if request.param == "homogeneous" else hetero_graph(60)
    graph.pop("none", None)
    graph = {key: part for key, part in graph.items() if not (isinstance(key, tuple) and "none" in key)}
    with convert(handed(graph), tmp_path_factory.mktemp("stores") / "g", **SMALL) as store:
        yield graph, store


def indices(count: int) -> list[Any]:
    rng = np.random.default_rng(5)
    ids = rng.integers(count, size=40)
    mask = np.zeros(count, bool)
    mask[ids] = True
    given = torch.from_numpy(ids)  # of arrays PyG itself cannot tell whether they are set
    return [given, ids.tolist(), slice(3, count, 7), slice(None), None, torch.from_numpy(mask), given[:0], 3]


def test_rows(stored: tuple[Any, freshgo.Store]) -> None:
    graph, store = stored
    features, _ = freshgo.pyg.stores(store, memory="64MiB")
    for key, count in num_nodes(graph).items():
        for name, rows in graph[key].items():
            if name in ("num_nodes", "splits"):
                continue
            attr = (key or None, name)
            assert features.get_tensor_size((*attr, None)) == rows.shape
            for index in indices(count):
                want = rows if index is None else rows[index] if not isinstance(index, int) else rows[[index]]
                got = features[(*attr, index)]
                np.testing.assert_array_equal(got, want, err_msg=f"{attr} {index}")
    for key in relations(graph):
        for name, rows in graph[key].items():
            if name != "edge_index" and store.edge_types:
                np.testing.assert_array_equal(features[key, name, torch.tensor([2, 0])], rows[[2, 0]])
    got = features.multi_get_tensor(
        [attr_at(attr, torch.tensor([4, 4, 1])) for attr in features.get_all_tensor_attrs()]
    )
    for attr, rows in zip(features.get_all_tensor_attrs(), got, strict=True):
        np.testing.assert_array_equal(rows, graph[attr.group_name or ""][attr.attr_name][[4, 4, 1]])
    features.close()


def attr_at(attr: Any, index: Any) -> Any:
    attr = copy.copy(attr)
    attr.index = index
    return attr


def test_edges(stored: tuple[Any, freshgo.Store]) -> None:
    graph, store = stored
    _, topology = freshgo.pyg.stores(store)
    counts = num_nodes(graph)
    named = {attr.edge_type: attr for attr in topology.get_all_edge_attrs()}
    assert len(named) == len(relations(graph))
    for key in relations(graph):
        edge_type = key if key != ("", "", "") else None
        edges, size = graph[key]["edge_index"], (counts[key[0]], counts[key[2]])
        assert named[edge_type].size == size
        row, col = topology.get_edge_index(edge_type=edge_type, layout="coo")
        np.testing.assert_array_equal(torch.stack([row, col]), edges)
        row, ptr = topology.get_edge_index(edge_type=edge_type, layout="csc")
        order = np.argsort(edges[1], kind="stable")
        np.testing.assert_array_equal(row, edges[0][order])
        np.testing.assert_array_equal(ptr.diff(), np.bincount(edges[1], minlength=size[1]))
    assert EdgeLayout.COO in {attr.layout for attr in named.values()}


def test_pygs_own_sampler_gets_the_same_graph(stored: tuple[Any, freshgo.Store]) -> None:
    """What PyG's NeighborSampler makes of the stores: lists by target, and the numbers that edges have."""
    graph, store = stored
    sampler = NeighborSampler(freshgo.pyg.stores(store), num_neighbors=[3, 3])
    counts = num_nodes(graph)
    for key in relations(graph):
        if "" in graph:
            ptr, row, perm = sampler.colptr, sampler.row, sampler.perm
        else:
            name = "__".join(key)
            ptr, row, perm = sampler.colptr_dict[name], sampler.row_dict[name], sampler.perm[key]
        ends = torch.stack([row, torch.repeat_interleave(torch.arange(counts[key[2]]), ptr.diff())])
        np.testing.assert_array_equal(ends, graph[key]["edge_index"][:, perm])
    assert sampler.num_nodes == (counts[""] if "" in graph else {key: counts[key] for key in sampler.node_types})


def inputs(graph: Any, count: int) -> Any:
    return torch.arange(count) if "" in graph else ("paper", torch.arange(count))


def batches_are_of(graph: Any, loader: Any) -> int:
    """Compare rows and edges of batches with the graph; returns how many there are."""
    seen = 0
    for batch in loader:
        seen += 1
        for key in num_nodes(graph):
            of = batch if "" in graph else batch[key]
            for name, rows in graph[key].items():
                if name not in ("num_nodes", "splits") and "n_id" in of:
                    np.testing.assert_array_equal(of[name], rows[of.n_id], err_msg=f"{key} {name}")
        for key in relations(graph):
            of = batch if "" in graph else batch[key]
            if "e_id" not in of:
                continue
            source, target = (batch, batch) if "" in graph else (batch[key[0]], batch[key[2]])
            ends = torch.stack([source.n_id[of.edge_index[0]], target.n_id[of.edge_index[1]]])
            np.testing.assert_array_equal(ends, graph[key]["edge_index"][:, of.e_id])
    return seen


def test_pygs_own_loader(stored: tuple[Any, freshgo.Store]) -> None:
    """With all neighbours it finds what it finds in memory; with fewer, rows and edges of the graph."""
    graph, store = stored
    both = freshgo.pyg.stores(store, memory="64MiB")
    options: dict[str, Any] = {"batch_size": 25, "input_nodes": inputs(graph, 100)}
    try:
        few = NeighborLoader(both, num_neighbors=[3, 2], **options)
        assert batches_are_of(graph, few) == 4
    except ImportError as error:  # PyG samples types and fan-outs by pyg-lib or torch-sparse
        pytest.skip(str(error))
    remote = NeighborLoader(both, num_neighbors=[-1, -1], **options)
    memory = NeighborLoader(pyg_data(graph), num_neighbors=[-1, -1], **options)
    for one, other in zip(remote, memory, strict=True):
        for key in num_nodes(graph):
            a, b = (one, other) if "" in graph else (one[key], other[key])
            assert a.n_id.sort().values.equal(b.n_id.sort().values)


@pytest.mark.parametrize("options", [{}, {"disjoint": True}, {"replace": True}], ids=str)
def test_the_sampler(stored: tuple[Any, freshgo.Store], options: dict[str, Any]) -> None:
    """Batches of PyG's NodeLoader are those of the same seeds of a loader of freshgo."""
    graph, store = stored
    both = freshgo.pyg.stores(store, memory="64MiB")
    sampler = freshgo.pyg.sampler(both[0], [4, 3], memory="64MiB", **options)
    assert isinstance(sampler, BaseSampler)
    given = inputs(graph, 60)
    loader = NodeLoader(both, sampler, given, batch_size=20)
    assert batches_are_of(graph, loader) == 3
    ids = torch.arange(20)
    with Loader(store, [4, 3], given, memory="64MiB", **options) as own:
        want = own.sample(ids)
    batch = next(iter(loader))
    for key in num_nodes(graph):
        a, b = (batch, want) if "" in graph else (batch[key], want[key])
        assert a.n_id.equal(b.n_id)
        assert options.get("disjoint") is None or a.batch.equal(b.batch)
    for key in relations(graph):
        a, b = (batch, want) if "" in graph else (batch[key], want[key])
        assert a.edge_index.equal(b.edge_index) and a.e_id.equal(b.e_id)
    assert (batch if "" in graph else batch["paper"]).input_id.equal(ids)
    sampler.close()
    both[0].close()


@pytest.mark.parametrize("mode", [None, "binary", "triplet"])
def test_the_sampler_of_links(stored: tuple[Any, freshgo.Store], mode: str | None) -> None:
    graph, store = stored
    key = next(iter(relations(graph))) if "" in graph else ("author", "writes", "paper")
    ends = torch.from_numpy(graph[key]["edge_index"][:, :30].copy())
    both = freshgo.pyg.stores(store)
    sampler = freshgo.pyg.sampler(both[0], [4, 3], memory="64MiB")
    negative = None if mode is None else NegativeSampling(mode, 2)
    if "" in graph:  # PyG's loader wants an edge type of stores
        given = EdgeSamplerInput(None, *ends[:, :10])
        out = sampler.sample_from_edges(given, negative)
        src, dst = out.metadata[1:3] if mode == "triplet" else out.metadata[1][:, :10]
        assert out.node[src].equal(ends[0, :10]) and out.node[dst].equal(ends[1, :10])
        drawn = torch.stack([out.node[out.row], out.node[out.col]])
        np.testing.assert_array_equal(drawn, graph[key]["edge_index"][:, out.edge])
        return
    loader = LinkLoader(both, sampler, (key, ends), batch_size=10, neg_sampling=negative)
    assert batches_are_of(graph, loader) == 3
    batch = next(iter(loader))
    source, target = batch[key[0]], batch[key[2]]
    if mode == "triplet":
        src, dst = source.src_index, target.dst_pos_index
    else:
        src, dst = batch[key].edge_label_index[:, :10]
    assert source.n_id[src].equal(ends[0, :10]) and target.n_id[dst].equal(ends[1, :10])


def test_a_loader_takes_both(stored: tuple[Any, freshgo.Store]) -> None:
    graph, store = stored
    both = freshgo.pyg.stores(store)
    given = inputs(graph, 50)
    with Loader(both, [3, 3], given, batch_size=25) as one, Loader(store, [3, 3], given, batch_size=25) as other:
        for a, b in zip(one, other, strict=True):
            a, b = (a, b) if "" in graph else (a["paper"], b["paper"])
            assert a.n_id.equal(b.n_id) and a.x.equal(b.x)


@pytest.mark.parametrize("feature_store", [MyFeatureStore, HeteroData])
@pytest.mark.parametrize("graph_store", [MyGraphStore, HeteroData])
def test_stores_of_others(feature_store: Any, graph_store: Any) -> None:
    """As PyG's test_custom_neighbor_loader: COO, CSR, CSC and sorted COO beside the same as HeteroData."""
    features, topology, data = feature_store(), graph_store(), HeteroData()
    rng = np.random.default_rng(2)
    for name, x in (("paper", torch.arange(100)), ("author", torch.arange(100, 300))):
        data[name].x = x
        features.put_tensor(x, group_name=name, attr_name="x", index=None)
    for place, (a, b) in enumerate(
        [("paper", "paper"), ("paper", "author"), ("author", "paper"), ("author", "author")]
    ):
        size = (len(data[a].x), len(data[b].x))
        ends = torch.stack([torch.from_numpy(rng.integers(count, size=500)) for count in size])
        if graph_store is HeteroData and place in (1, 2):
            place = 0  # it keeps CSR and CSC in a SparseTensor
        key = [0, 0, 1, 1][place]
        if place:  # by source for CSR, by target for CSC and sorted pairs
            ends = ends[:, ends[0 if place == 1 else 1].argsort(stable=True)]
        data[a, "to", b].edge_index = ends
        ptr = torch.zeros(size[key] + 1, dtype=torch.long)
        ptr[1:] = torch.bincount(ends[key], minlength=size[key]).cumsum(0)
        given = [(ends[0], ends[1]), (ptr, ends[1]), (ends[0], ptr), (ends[0], ends[1])][place]
        layout = ["coo", "csr", "csc", "coo"][place]
        topology.put_edge_index(given, edge_type=(a, "to", b), layout=layout, size=size, is_sorted=place == 3)
    options: dict[str, Any] = {"batch_size": 20, "input_nodes": ("paper", range(100)), "num_neighbors": [-1] * 2}
    with Loader(data, **options) as one, Loader((features, topology), **options) as other:
        assert len(one) == len(other) == 5
        for batch1, batch2 in zip(one, other, strict=True):
            for name in ("paper", "author"):
                assert batch1[name].x.sort().values.equal(batch2[name].x.sort().values)
            for key in data.edge_types:
                assert batch1[key].edge_index.shape == batch2[key].edge_index.shape


def test_wrong_use(stored: tuple[Any, freshgo.Store], tmp_path: Path) -> None:
    graph, store = stored
    features, topology = freshgo.pyg.stores(Path(store.path))
    of = None if "" in graph else "paper"
    count = num_nodes(graph)[of or ""]
    for index, kind, message in (
        (torch.tensor([count]), errors.InvalidArgumentError, f"expected an id in|{count}"),
        (torch.tensor([0.5]), errors.DTypeError, "index must be ids"),
        (torch.zeros(3, dtype=torch.bool), errors.InvalidArgumentError, "a mask must have shape"),
        (object(), errors.DTypeError, "index must be ids"),
    ):
        with pytest.raises(kind, match=message):
            features[of, "x", index]
    with pytest.raises(errors.InvalidArgumentError, match="no tensor 'z'"):
        features[of, "z", None]
    with pytest.raises(errors.InvalidArgumentError, match="no node type 'tree'"):
        features["tree", "x", None]
    with pytest.raises(errors.InvalidArgumentError, match="not written in place"):
        features[of, "x", None] = torch.ones(3)
    with pytest.raises(errors.InvalidArgumentError, match="not written in place"):
        topology.put_edge_index((torch.ones(1), torch.ones(1)), edge_type=("a", "b", "c"), layout="coo")
    with pytest.raises(errors.DTypeError, match="store must be"):
        freshgo.pyg.stores(3)
    with pytest.raises(errors.DTypeError, match=r"those of freshgo\.pyg\.stores"):
        freshgo.pyg.sampler(store, [3])
    again = pickle.loads(pickle.dumps(features))
    assert again[of, "x", [1, 2]].equal(features[of, "x", [1, 2]])
    for one in (again, features):
        one.close()
        one.store.close()


def test_the_module_comes_at_its_first_use(tmp_path: Path) -> None:
    """``freshgo.pyg.stores`` works after ``import freshgo`` alone."""
    convert(random_graph(40, 250), tmp_path / "g", **SMALL).close()
    code = f"import freshgo; print(freshgo.pyg.stores({str(tmp_path / 'g')!r})[0][None, 'x', [3]].size(0))"
    assert warm.run(code) == "1\n"


def test_parts_of_two_stores(tmp_path: Path) -> None:
    """Features of one store beside the edges of another are what they say; half a pair is refused."""
    graphs = [random_graph(40, 250, seed=seed) for seed in (1, 2)]
    one, other = (freshgo.pyg.stores(convert(g, tmp_path / str(i), **SMALL)) for i, g in enumerate(graphs))
    with Loader((one[0], other[1]), [-1], batch_size=40) as loader:
        (batch,) = loader
    assert batch.x.equal(torch.from_numpy(graphs[0]["x"])[batch.n_id])
    found = sorted(map(tuple, batch.n_id[batch.edge_index].T.tolist()))
    assert found == sorted(map(tuple, graphs[1]["edge_index"].T.tolist()))
    for wrong in ((one[0], 3), (one[0],)):
        with pytest.raises(errors.FreshgoError):
            Loader(wrong, [-1])


def test_a_graph_that_is_both_stores_is_a_graph_and_several_are_not() -> None:
    graph = pyg_graphs.Data(x=torch.rand(5, 2), edge_index=torch.tensor([[0, 1], [1, 2]]))
    with Loader((graph, graph), [2]) as loader:
        assert torch.equal(next(iter(loader)).x[:1], graph.x[:1])
    several: list[Any] = [(graph, graph.clone()), [graph, graph], [graph], [HeteroData()] * 3]
    for graphs in several:
        with pytest.raises(errors.DTypeError, match=r"of \d graphs of PyG, expected one .*Batch.from_data_list"):
            Loader(graphs, [2])
    ends, times = graph.edge_index, torch.arange(2)
    events = pyg_graphs.TemporalData(src=ends[0], dst=ends[1], t=times, msg=graph.x[:2])
    with pytest.raises(errors.DTypeError, match=r"TemporalData of PyG, .*: expected Data\(edge_index="):
        Loader(events, [2])
