"""LinkLoader gives what PyG's LinkNeighborLoader gives, where nothing is drawn at random."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from graphs import (
    BACK,
    CITES,
    HAS,
    IN,
    UNNAMED,
    WRITES,
    Graph,
    as_types,
    hetero_graph,
    num_nodes,
    pyg_data,
    random_graph,
    relations,
)
from link_oracle import links_of

from freshgo import LinkLoader


@pytest.fixture(scope="module")
def hetero() -> Graph:
    return hetero_graph(200)


class TestHeterogeneous:
    """Structure, labels and shapes of LinkNeighborLoader, where nothing is drawn at random."""

    @pytest.mark.filterwarnings("ignore:Using 'NeighborSampler' without a 'pyg-lib'")
    @pytest.mark.parametrize("of", [WRITES, BACK, CITES, IN, ("paper", "term")], ids=" ".join)
    @pytest.mark.parametrize("mode", [None, "binary", "triplet"])
    def test_equals_link_neighbor_loader(self, hetero: Graph, of: Any, mode: str | None) -> None:
        pytest.importorskip("torch_geometric")
        graph = {key: {k: v for k, v in part.items() if k != "splits"} for key, part in hetero.items()}
        compare_with_pyg(graph, of, links_of(hetero, HAS if len(of) == 2 else of), mode)

    @pytest.mark.filterwarnings("ignore:Using 'NeighborSampler' without a 'pyg-lib'")
    @pytest.mark.parametrize("seed", range(4))
    def test_random_graphs(self, seed: int) -> None:
        pytest.importorskip("torch_geometric")
        rng = np.random.default_rng(seed)
        counts = dict(zip("abcd", rng.integers(1, 40, size=4).tolist(), strict=True))
        graph: Graph = {name: {"num_nodes": count} for name, count in counts.items()}
        for i in range(6):
            ends = [str(end) for end in rng.choice(list("abc"), 2)]
            size = int(rng.integers(0, 90)) if i else 50
            graph[(ends[0], f"r{i}", ends[1])] = {
                "edge_index": np.stack([rng.integers(counts[end], size=size) for end in ends])
            }
        for of in relations(graph):
            links = np.stack([rng.integers(counts[of[end]], size=33) for end in (0, 2)])
            for mode in (None, "binary", "triplet"):
                compare_with_pyg(graph, of, torch.from_numpy(links), mode)

    @pytest.mark.filterwarnings("ignore:Using 'NeighborSampler' without a 'pyg-lib'")
    def test_dblp(self, real_graph: Any) -> None:
        pytest.importorskip("torch_geometric")
        from real_types import read_types

        graph = read_types(real_graph("hetero-dblp"))
        for name, count in num_nodes(graph).items():
            graph[name] = {"num_nodes": count}  # the structure is what is compared
        of = relations(graph)[0]
        compare_with_pyg(graph, of, links_of(graph, of, 40), "binary", hops=[-1])


def compare_with_pyg(graph: Graph, of: Any, links: torch.Tensor, mode: str | None, hops: Any = (-1, -1)) -> None:
    from torch_geometric.loader import LinkNeighborLoader
    from torch_geometric.sampler import NegativeSampling
    from torch_geometric.typing import WITH_PYG_LIB, WITH_TORCH_SPARSE

    if not (WITH_PYG_LIB or WITH_TORCH_SPARSE):
        pytest.skip("PyG has no sampler: no pyg-lib, no torch-sparse")
    data, counts = pyg_data(graph), num_nodes(graph)
    source, target = of[0], of[-1]
    weights = [torch.zeros(counts[name]) for name in (source, target)]
    for weight in weights:
        weight[len(weight) // 2] = 1  # every negative is these nodes: then nothing is random
    label = torch.arange(links.size(1)) % 4
    for amount, labels in ((1, None), (2, None), (1, label)) if mode else ((0, None), (0, label)):
        if mode == "triplet" and labels is not None:
            continue
        neg = NegativeSampling(mode, amount, weights[0] if mode == "binary" else None, weights[1]) if mode else None
        what = {"edge_label_index": (of, links), "edge_label": labels, "neg_sampling": neg, "batch_size": 50}
        theirs = LinkNeighborLoader(data, list(hops), **what)
        with LinkLoader(data, list(hops), **what) as loader:
            assert len(loader) == len(theirs)
            for ours, pyg in zip(loader, theirs, strict=True):
                assert isinstance(ours, type(pyg))
                assert ours.metadata() == pyg.metadata()
                for store in pyg.stores[1:]:
                    mine = ours[store._key]
                    assert set(store.keys()) <= set(mine.keys()) | {"edge_label", "edge_label_time", "seed_time"}, store
                    for name in (
                        "edge_label_index",
                        "edge_label",
                        "input_id",
                        "src_index",
                        "dst_pos_index",
                        "dst_neg_index",
                    ):
                        if store.get(name) is None:
                            assert name not in mine, (store._key, name)
                        else:
                            assert mine[name].dtype == store[name].dtype, name
                            assert mine[name].equal(store[name]), name
                for name in ours.node_types:
                    seeds = ours[name].num_sampled_nodes[0]
                    assert ours[name].n_id[:seeds].equal(pyg[name].n_id[:seeds])
                    assert sorted(ours[name].n_id.tolist()) == sorted(pyg[name].n_id.tolist()), name
                for name in ours.edge_types:
                    assert sorted(ours[name].e_id.tolist()) == sorted(pyg[name].e_id.tolist()), name
                    mine, other = ours[name].edge_index, pyg[name].edge_index
                    mine = torch.stack([ours[name[0]].n_id[mine[0]], ours[name[2]].n_id[mine[1]]])
                    other = torch.stack([pyg[name[0]].n_id[other[0]], pyg[name[2]].n_id[other[1]]])
                    order, others = ours[name].e_id.argsort(), pyg[name].e_id.argsort()
                    assert mine[:, order].equal(other[:, others]), name


class TestHomogeneous:
    """Structure, labels and shapes of LinkNeighborLoader, where nothing is drawn at random."""

    @pytest.mark.filterwarnings("ignore:Using 'NeighborSampler' without a 'pyg-lib'")
    @pytest.mark.parametrize("label", [None, "ints", "floats"])
    @pytest.mark.parametrize("mode", [None, "binary", "triplet"])
    def test_equals_link_neighbor_loader(self, mode: str | None, label: str | None) -> None:
        pytest.importorskip("torch_geometric")
        from torch_geometric.loader import LinkNeighborLoader
        from torch_geometric.sampler import NegativeSampling
        from torch_geometric.typing import WITH_PYG_LIB, WITH_TORCH_SPARSE

        if not (WITH_PYG_LIB or WITH_TORCH_SPARSE):
            pytest.skip("PyG has no sampler: no pyg-lib, no torch-sparse")
        if mode == "triplet" and label is not None:
            pytest.skip("triplets have no labels")
        graph = as_types(random_graph(900, 6000, seed=4))
        data, links = pyg_data(graph), links_of(graph, UNNAMED)
        weight = torch.zeros(900)
        weight[17] = 1  # every negative is this node: then nothing is random
        n = links.size(1)
        labels = {None: None, "ints": torch.arange(n) % 4, "floats": torch.rand(n, 2)}[label]
        for amount in (1, 2) if mode else (0,):
            neg = NegativeSampling(mode, amount, weight if mode == "binary" else None, weight) if mode else None
            what = {"edge_label_index": links, "edge_label": labels, "neg_sampling": neg, "batch_size": 50}
            theirs = LinkNeighborLoader(data, [-1, -1], **what)
            with LinkLoader(data, [-1, -1], **what) as loader:
                assert len(loader) == len(theirs)
                for ours, pyg in zip(loader, theirs, strict=True):
                    assert set(pyg.keys()) <= set(ours.keys())
                    seeds = ours.num_sampled_nodes[0]
                    assert ours.n_id[:seeds].equal(pyg.n_id[:seeds])
                    assert sorted(ours.n_id.tolist()) == sorted(pyg.n_id.tolist())
                    assert sorted(ours.e_id.tolist()) == sorted(pyg.e_id.tolist())
                    for name in (
                        "edge_label_index",
                        "edge_label",
                        "src_index",
                        "dst_pos_index",
                        "dst_neg_index",
                        "input_id",
                    ):
                        assert (name in ours) == (name in pyg), name
                        if name in pyg:
                            assert ours[name].dtype == pyg[name].dtype, name
                            assert ours[name].equal(pyg[name]), name
