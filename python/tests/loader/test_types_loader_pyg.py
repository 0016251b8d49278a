"""Batches with types against PyG: its own NeighborLoader, trim_to_layer, and models of its that train unchanged."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from graphs import hetero_graph, num_nodes, pyg_data, relations
from oracle import check_batch
from real_types import read_types
from seeds import seed as seed_of
from torch import Tensor, nn

from freshgo import Loader, convert, errors

pytest.importorskip("torch_geometric")

from torch_geometric.data import HeteroData
from torch_geometric.loader import NeighborLoader
from torch_geometric.nn import HeteroConv, HGTConv, Linear, RGCNConv, SAGEConv, to_hetero
from torch_geometric.typing import WITH_PYG_LIB, WITH_TORCH_SPARSE
from torch_geometric.utils import trim_to_layer

with_sampler = pytest.mark.skipif(
    not (WITH_PYG_LIB or WITH_TORCH_SPARSE), reason="PyG has no sampler: no pyg-lib, no torch-sparse"
)


@pytest.fixture(scope="module")
def graph() -> Any:
    return hetero_graph(scale=200)


@pytest.fixture(scope="module")
def data(graph: Any) -> HeteroData:
    return pyg_data(graph)


def compare(data: HeteroData, graph: Any, fanouts: Any, inputs: Any, batch_size: int, limit: int) -> None:
    """Everything that random draws leave alone is equal, and where nothing is drawn everything."""
    options = {"num_neighbors": fanouts, "input_nodes": inputs, "batch_size": batch_size}
    per_type = fanouts if isinstance(fanouts, dict) else dict.fromkeys(relations(graph), fanouts)
    everything = all(k == -1 for hops in per_type.values() for k in hops)
    node_type, nodes = inputs
    with Loader(data, **options) as loader:
        theirs = NeighborLoader(data, **options)
        assert len(loader) == len(theirs)
        for number, (ours, pyg) in enumerate(zip(loader, theirs, strict=True)):
            if number == limit:
                break
            assert isinstance(ours, type(pyg))
            assert ours.metadata() == pyg.metadata()
            for store in pyg.stores[1:]:  # the first is of the batch as a whole
                mine = ours[store._key]
                assert set(store.keys()) <= set(mine.keys()), store._key
                for name, value in store.items():
                    if isinstance(value, Tensor):
                        assert mine[name].dtype == value.dtype, name
                        assert mine[name].shape[1:] == value.shape[1:] or name == "edge_index", name
            assert ours[node_type].batch_size == pyg[node_type].batch_size
            assert ours[node_type].input_id.equal(pyg[node_type].input_id)
            size = ours[node_type].batch_size
            assert ours[node_type].n_id[:size].equal(pyg[node_type].n_id[:size])
            if everything:
                for name in ours.node_types:
                    assert sorted(ours[name].n_id.tolist()) == sorted(pyg[name].n_id.tolist()), name
                for name in ours.edge_types:
                    assert sorted(ours[name].e_id.tolist()) == sorted(pyg[name].e_id.tolist()), name
                if WITH_PYG_LIB:  # torch-sparse does not tell
                    assert ours.num_sampled_nodes_dict == pyg.num_sampled_nodes_dict
                    assert ours.num_sampled_edges_dict == pyg.num_sampled_edges_dict
            given = np.arange(num_nodes(graph)[node_type]) if nodes is None else np.asarray(nodes)
            if given.dtype == bool:
                given = np.arange(len(given))
            check_batch(ours, graph, per_type, {node_type: given})


def plain(graph: Any) -> Any:
    """The graph as HeteroData has it: splits are masks."""
    counts = num_nodes(graph)
    return {
        key: {
            **{name: value for name, value in part.items() if name != "splits"},
            **{f"{name}_mask": np.isin(np.arange(counts[key]), ids) for name, ids in part.get("splits", {}).items()},
        }
        for key, part in graph.items()
    }


@with_sampler
@pytest.mark.filterwarnings("ignore:Using 'NeighborSampler' without a 'pyg-lib'")
@pytest.mark.parametrize("fanouts", [[-1], [-1, -1], [3, 2], [100, 1]], ids=str)
@pytest.mark.parametrize("inputs", ["mask", "ids", "all"])
def test_structure_equals_that_of_neighbor_loader(data: HeteroData, graph: Any, fanouts: Any, inputs: str) -> None:
    nodes = {"mask": data["paper"].train_mask, "ids": torch.tensor([5, 3, 17, 9]), "all": None}[inputs]
    compare(data, plain(graph), fanouts, ("paper", nodes), 64, 3)


@with_sampler
@pytest.mark.filterwarnings("ignore:Using 'NeighborSampler' without a 'pyg-lib'")
@pytest.mark.parametrize("name", ["hetero-dblp", "hetero-acm"])
@pytest.mark.parametrize("fanouts", [[-1, -1], [8, 4], "several"], ids=str)
def test_real_graphs(real_graph: Any, name: str, fanouts: Any) -> None:
    graph = read_types(real_graph(name))
    if fanouts == "several":
        fanouts = {relation: [-1, 1 + i] for i, relation in enumerate(relations(graph))}
    node_type = "author" if name == "hetero-dblp" else "paper"
    train = torch.from_numpy(graph[node_type]["splits"]["train_60"])
    for name, count in num_nodes(graph).items():
        graph[name]["x"] = np.arange(count)  # the structure is what is compared
    whole = plain(graph)
    compare(pyg_data(whole), whole, fanouts, (node_type, train), 32, 2)


def of_dblp_kind(graph: Any) -> tuple[Any, Any]:
    """Float features for all types that have nodes, and only the types that reach papers."""
    graph = {key: part for key, part in graph.items() if "none" not in key and "island" not in key}
    for name, part in graph.items():
        if isinstance(name, str):
            part = graph[name] = {**part}
            part["x"] = np.asarray(part.get("x", np.eye(num_nodes(graph)[name], 8)), np.float32)
    return graph, {name: part["x"].shape[1] for name, part in graph.items() if isinstance(name, str)}


class RGCN(nn.Module):
    """A convolution for each relation, summed: R-GCN's first equation, as HeteroConv writes it."""

    def __init__(self, metadata: Any, width: int, classes: int) -> None:
        super().__init__()
        self.lin = nn.ModuleDict({name: Linear(-1, width) for name in metadata[0]})
        self.convs = nn.ModuleList(
            HeteroConv({relation: SAGEConv((-1, -1), width) for relation in metadata[1]}) for _ in range(2)
        )
        self.out = Linear(width, classes)

    def forward(self, x: Any, edge_index: Any, batch: Any = None) -> Tensor:
        x = {name: F.relu(self.lin[name](rows)) for name, rows in x.items()}
        for layer, conv in enumerate(self.convs):
            if batch is not None:
                counts = batch.num_sampled_nodes_dict, batch.num_sampled_edges_dict
                x, edge_index, _ = trim_to_layer(layer, *counts, x, edge_index)
            x = {name: F.relu(rows) for name, rows in conv(x, edge_index).items()}
        return self.out(x["paper"])


class HGT(nn.Module):
    def __init__(self, metadata: Any, widths: dict[str, int], classes: int) -> None:
        super().__init__()
        self.convs = nn.ModuleList([HGTConv(widths, 16, metadata, heads=2), HGTConv(16, 16, metadata, heads=2)])
        self.out = Linear(16, classes)

    def forward(self, x: Any, edge_index: Any) -> Tensor:
        for conv in self.convs:
            x = {name: F.relu(rows) for name, rows in conv(x, edge_index).items() if rows is not None}
        return self.out(x["paper"])


class SAGE(nn.Module):
    def __init__(self, width: int, classes: int) -> None:
        super().__init__()
        self.first, self.second = SAGEConv((-1, -1), width), SAGEConv((-1, -1), classes)

    def forward(self, x: Any, edge_index: Any) -> Any:
        return self.second(F.relu(self.first(x, edge_index)), edge_index)


@pytest.mark.parametrize("model", ["R-GCN", "HGT", "to_hetero"])
@pytest.mark.parametrize("where", ["memory", "store"])
def test_models_train_unchanged(graph: Any, tmp_path: Any, model: str, where: str) -> None:
    graph, widths = of_dblp_kind(graph)
    source = graph if where == "memory" else convert(graph, tmp_path / "g", memory="64MiB", progress=False)
    metadata = pyg_data(graph).metadata()
    torch.manual_seed(seed_of(0))
    made: Any = RGCN(metadata, 16, 7) if model == "R-GCN" else HGT(metadata, widths, 7) if model == "HGT" else None
    if made is None:
        made = to_hetero(SAGE(16, 7), metadata)
    losses = []
    with Loader(source, [5, 3], ("paper", "train"), batch_size=64, shuffle=True, transform=teach) as loader:
        first = next(iter(loader))
        made(first.x_dict, first.edge_index_dict)  # makes the lazy parameters
        optimizer = torch.optim.Adam(made.parameters(), lr=0.01)
        for _ in range(4):
            for batch in loader:
                optimizer.zero_grad()
                out = made(batch.x_dict, batch.edge_index_dict)
                out = out["paper"] if isinstance(out, dict) else out
                size = batch["paper"].batch_size
                loss = F.cross_entropy(out[:size], batch["paper"].y[:size])
                loss.backward()
                optimizer.step()
                losses.append(loss.item())
    assert np.mean(losses[-3:]) < np.mean(losses[:3])


def teach(batch: HeteroData) -> HeteroData:
    """Labels that features tell."""
    batch["paper"].y = batch["paper"].x[:, :7].argmax(1)
    return batch


def test_rgcn_takes_the_batch_as_one_graph(graph: Any) -> None:
    graph, _ = of_dblp_kind(graph)
    for part in graph.values():
        if "x" in part:
            part["x"] = np.ascontiguousarray(part["x"][:, :8])
    with Loader(graph, [5, 3], ("paper", "train"), batch_size=64) as loader:
        batch = next(iter(loader))
    whole = batch.to_homogeneous(node_attrs=["x"], edge_attrs=[])
    out = RGCNConv(8, 7, num_relations=len(batch.edge_types))(whole.x, whole.edge_index, whole.edge_type)
    assert out.shape == (sum(batch.num_nodes_dict.values()), 7)


def test_trim_to_layer(graph: Any) -> None:
    graph, _ = of_dblp_kind(graph)
    torch.manual_seed(seed_of(0))
    model = RGCN(pyg_data(graph).metadata(), 8, 3).double()
    with Loader(graph, [4, 3], {"paper": "train"}, batch_size=50) as loader:
        batch = next(iter(loader))
    x = {name: rows.double() for name, rows in batch.x_dict.items()}
    whole = model(x, batch.edge_index_dict)
    trimmed = model(x, batch.edge_index_dict, batch)
    size = batch["paper"].batch_size
    torch.testing.assert_close(trimmed[:size], whole[:size])
    assert len(trimmed) < len(whole)


def test_accelerated_layers_use_what_a_batch_knows(graph: Any) -> None:
    from freshgo.nn import accelerate

    graph, _ = of_dblp_kind(graph)
    torch.manual_seed(seed_of(0))
    model = RGCN(pyg_data(graph).metadata(), 8, 3)
    for transpose in (False, True):
        with Loader(graph, [4, 3], ("paper", "train"), batch_size=50, transpose=transpose) as loader:
            batch = next(iter(loader))
        x, edges = batch.x_dict, batch.edge_index_dict
        if not transpose:
            model(x, edges)  # makes the lazy parameters
            fast = copy.deepcopy(model)
            assert accelerate(fast).swapped
        expected = model(x, {name: e.clone() for name, e in edges.items()}, batch)
        out = fast(x, edges, batch)
        torch.testing.assert_close(out, expected, rtol=1e-4, atol=1e-5)
        wanted, got = (torch.autograd.grad(y.square().sum(), m.out.weight) for y, m in ((expected, model), (out, fast)))
        torch.testing.assert_close(got, wanted, rtol=1e-3, atol=1e-4)


def test_a_batch_is_valid(data: HeteroData) -> None:
    with Loader(data, [4, 3], ("paper", data["paper"].train_mask), batch_size=50) as loader:
        batch = next(iter(loader))
    assert isinstance(batch, HeteroData)
    assert batch.validate()
    assert batch.num_nodes_dict == {name: batch[name].n_id.numel() for name in batch.node_types}
    assert [block.num_dst["paper"] for block in batch.blocks()][-1] == batch["paper"].batch_size
    assert batch["author", "writes", "paper"].is_edge_attr("weight")
    assert batch.to("cpu")["paper"].x.equal(batch["paper"].x)


def both_ways(graph: Any) -> HeteroData:
    """A graph whose relations have reverses of every kind: named, within a type, the only one back, and none."""
    edges = {r: graph[r]["edge_index"] for r in relations(graph)}
    writes, cites, has = (
        edges[r] for r in [("author", "writes", "paper"), ("paper", "cites", "paper"), ("paper", "has", "term")]
    )
    data = HeteroData()
    for node_type, count in num_nodes(graph).items():
        data[node_type].num_nodes = count
    for relation, edge_index in {
        ("author", "writes", "paper"): writes,
        ("paper", "rev_writes", "author"): edges["paper", "written by", "author"],
        ("paper", "cites", "paper"): cites,
        ("paper", "has", "term"): has,
        ("term", "in", "paper"): edges["term", "in", "paper"],
        ("paper", "to", "island"): edges["paper", "to", "island"],
    }.items():
        data[relation].edge_index = torch.from_numpy(edge_index)
    return data


@with_sampler
@pytest.mark.filterwarnings("ignore:Using 'NeighborSampler' without a 'pyg-lib'")
@pytest.mark.filterwarnings("ignore:.*reverse edge type")
@pytest.mark.parametrize("kind", ["bidirectional", "induced"])
@pytest.mark.parametrize("hops", [[-1], [-1, -1]], ids=str)
def test_subgraph_types_equal_those_of_neighbor_loader(graph: Any, kind: str, hops: list[int]) -> None:
    data = both_ways(graph)
    options = {"num_neighbors": hops, "input_nodes": ("paper", torch.tensor([5, 3, 17, 9])), "batch_size": 3}
    with Loader(data, **options, subgraph_type=kind) as loader:
        for ours, pyg in zip(loader, NeighborLoader(data, **options, subgraph_type=kind), strict=True):
            for node_type in data.node_types:
                assert sorted(ours[node_type].n_id.tolist()) == sorted(pyg[node_type].n_id.tolist())

            def ends(batch: Any, relation: Any) -> list[tuple[int, int]]:
                source, target = batch[relation].edge_index
                ids = batch[relation[0]].n_id[source].tolist(), batch[relation[2]].n_id[target].tolist()
                return sorted(zip(*ids, strict=True))

            for relation in data.edge_types:
                if kind == "bidirectional" and relation == ("paper", "to", "island"):
                    continue  # PyG leaves what has no reverse, repeated edges included
                assert ends(ours, relation) == ends(pyg, relation), relation
                if kind == "induced":
                    assert sorted(ours[relation].e_id.tolist()) == sorted(pyg[relation].e_id.tolist())


def test_edges_whose_node_types_are_not_given_say_how_to_give_them() -> None:
    data = HeteroData()
    data["a", "to", "b"].edge_index = torch.tensor([[0, 1], [1, 0]])
    with pytest.raises(errors.InvalidArgumentError, match=r"give one without tensors as data\['a'\]\.num_nodes = "):
        Loader(data, [2], "a")
    data["a"].num_nodes = data["b"].num_nodes = 2
    with Loader(data, [2], "b") as loader:
        assert len(loader) == 2
