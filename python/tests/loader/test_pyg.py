"""Batches against PyG: its layers, its trim_to_layer, and its own NeighborLoader where its sampler is installed."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from oracle import check_batch
from seeds import seed as seed_of

from freshgo import Loader

pytest.importorskip("torch_geometric")

from torch_geometric.data import Data
from torch_geometric.loader import NeighborLoader
from torch_geometric.nn import GraphSAGE, SAGEConv
from torch_geometric.typing import WITH_PYG_LIB, WITH_TORCH_SPARSE
from torch_geometric.utils import trim_to_layer


@pytest.fixture(scope="module")
def data(graph: dict[str, Any]) -> Data:
    return Data(**{k: torch.from_numpy(v) for k, v in graph.items() if isinstance(v, np.ndarray)})


def test_a_batch_is_a_data(data: Data) -> None:
    with Loader(data, [4, 3], data.train_mask, batch_size=50) as loader:
        batch = next(iter(loader))
    assert isinstance(batch, Data)
    assert batch.validate()
    assert batch.num_nodes == batch.n_id.numel()
    assert batch.is_node_attr("x")
    assert batch.is_edge_attr("edge_weight")


def test_trim_to_layer(data: Data) -> None:
    torch.manual_seed(seed_of(0))
    convs = [SAGEConv(24, 16), SAGEConv(16, 16), SAGEConv(16, 7)]
    with Loader(data, [4, 3, 2], data.train_mask, batch_size=50) as loader:
        batch = next(iter(loader))
    h, edge_index, whole = batch.x, batch.edge_index, batch.x
    for layer, conv in enumerate(convs):
        h, edge_index, _ = trim_to_layer(layer, batch.num_sampled_nodes, batch.num_sampled_edges, h, edge_index)
        h = conv(h, edge_index)
        whole = conv(whole, batch.edge_index)
    torch.testing.assert_close(h[:50], whole[:50])

    blocks = batch.x
    for conv, block in zip(convs, batch.blocks(), strict=True):
        blocks = conv((blocks, blocks[: block.num_dst]), block.edge_index)
    torch.testing.assert_close(blocks, whole[:50])


def test_models_of_pyg_take_a_batch(data: Data) -> None:
    model = GraphSAGE(24, 16, num_layers=2, out_channels=7)
    with Loader(data, [4, 3], data.train_mask, batch_size=50) as loader:
        batch = next(iter(loader))
    out = model(
        batch.x,
        batch.edge_index,
        num_sampled_nodes_per_hop=batch.num_sampled_nodes,
        num_sampled_edges_per_hop=batch.num_sampled_edges,
    )
    torch.testing.assert_close(out[:50], model(batch.x, batch.edge_index)[:50])


@pytest.mark.skipif(not (WITH_PYG_LIB or WITH_TORCH_SPARSE), reason="PyG has no sampler: no pyg-lib, no torch-sparse")
@pytest.mark.filterwarnings("ignore:Using 'NeighborSampler' without a 'pyg-lib'")
@pytest.mark.parametrize("fanouts", [[-1], [-1, -1], [3, 2], [100, 1]], ids=str)
@pytest.mark.parametrize("masked", [False, True])
def test_structure_equals_that_of_neighbor_loader(
    data: Data, graph: dict[str, Any], fanouts: list[int], masked: bool
) -> None:
    """Everything that random draws leave alone is equal, and where nothing is drawn everything."""
    input_nodes = data.train_mask if masked else data.train_mask.nonzero().view(-1)
    options = {"num_neighbors": fanouts, "input_nodes": input_nodes, "batch_size": 64}
    with Loader(data, **options) as loader:
        theirs = NeighborLoader(data, **options)
        assert len(loader) == len(theirs)
        for ours, pyg in zip(loader, theirs, strict=True):
            assert set(pyg.keys()) <= set(ours.keys())
            for key in pyg.keys():  # noqa: SIM118
                if isinstance(pyg[key], torch.Tensor):
                    assert ours[key].dtype == pyg[key].dtype, key
                    assert ours[key].dim() == pyg[key].dim(), key
            assert ours.batch_size == pyg.batch_size
            assert ours.input_id.equal(pyg.input_id)
            assert ours.n_id[:64].equal(pyg.n_id[:64])
            if set(fanouts) == {-1}:
                assert sorted(ours.n_id.tolist()) == sorted(pyg.n_id.tolist())
                assert sorted(ours.e_id.tolist()) == sorted(pyg.e_id.tolist())
                if "num_sampled_nodes" in pyg:  # torch-sparse does not tell
                    assert list(ours.num_sampled_nodes) == list(pyg.num_sampled_nodes)
                    assert list(ours.num_sampled_edges) == list(pyg.num_sampled_edges)
            seeds = np.arange(graph["num_nodes"]) if masked else input_nodes.numpy()
            check_batch(ours, graph, fanouts, seeds)
