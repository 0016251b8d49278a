"""Training with and without ``accelerate`` on real graphs: the same losses. Skipped where the data are absent."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from seeds import seed as seed_of
from torch import Tensor, nn

from freshgo import Loader

pytest.importorskip("torch_geometric")

import torch_geometric.nn as pyg

from freshgo.nn import accelerate

EPOCHS, BATCHES = 4, 6

MODELS: dict[str, dict[str, Any]] = {
    "GraphSAGE": {},
    "GCN": {},
    "GIN": {"norm": "batch_norm"},  # its sums over neighbourhoods overflow the softmax otherwise
    "GAT": {"heads": 4, "dropout": 0.3},  # of features and, in the layers, of attention: PyG's random numbers
}

# The operators add the same terms as PyG, in another order and with fused multiply-add. Two orders of n terms differ by
# at most about n * 2^-24 of the sum of their magnitudes, 1e-6 for the fanouts here, and typically by the square root of
# that. 24 steps of gradient descent carry such a difference on as they do any other.
# In double precision all that is 2^29 times smaller: a wrong term would not be.
TOLERANCE = {torch.float32: 1e-3, torch.float64: 1e-9}


def without_loops(edge_index: Tensor) -> Tensor:
    """PyG draws no number for the attention of a loop that it replaces, the operators draw one and ignore it."""
    return edge_index[:, edge_index[0] != edge_index[1]]


def graph_of(directory: Path, features: str) -> dict[str, Any]:
    edge_index, x, y = (torch.from_numpy(np.load(directory / f"{n}.npy")) for n in ("edge_index", features, "y"))
    train = torch.from_numpy(np.load(directory / "train_idx.npy"))
    return {"edge_index": without_loops(edge_index), "x": x.float(), "y": y.long().view(-1), "train": train}


def losses(model: nn.Module, graph: dict[str, Any], dtype: torch.dtype) -> list[float]:
    torch.manual_seed(seed_of(1))
    optimizer, found = torch.optim.SGD(model.parameters(), 0.05), []
    data = {name: graph[name] for name in ("edge_index", "x", "y")}
    seeds = graph["train"][: 512 * BATCHES]
    options = {"batch_size": len(seeds) // BATCHES, "drop_last": True, "shuffle": True, "seed": 1, "transpose": True}
    with Loader(data, [10, 5, 5], seeds, **options) as loader:
        for epoch in range(EPOCHS):
            loader.set_epoch(epoch)
            for batch in loader:
                out = model(
                    batch.x.to(dtype),
                    batch.edge_index,
                    num_sampled_nodes_per_hop=batch.num_sampled_nodes,
                    num_sampled_edges_per_hop=batch.num_sampled_edges,
                )
                loss = F.cross_entropy(out[: batch.batch_size], batch.y[: batch.batch_size])
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                found.append(loss.item())
    return found


def check(graph: dict[str, Any], kind: str, dtype: torch.dtype) -> None:
    torch.manual_seed(seed_of(0))
    classes = int(graph["y"].max()) + 1
    theirs = getattr(pyg, kind)(graph["x"].size(1), 32, num_layers=3, out_channels=classes, **MODELS[kind]).to(dtype)
    ours = copy.deepcopy(theirs)
    assert len(accelerate(ours).swapped) == 3
    curves = [losses(model, graph, dtype) for model in (theirs, ours)]
    np.testing.assert_allclose(curves[1], curves[0], rtol=TOLERANCE[dtype])
    assert len(curves[1]) == EPOCHS * BATCHES
    assert np.mean(curves[1][-BATCHES:]) < np.mean(curves[1][:BATCHES])


@pytest.mark.long  # most of it for features of the structure
@pytest.mark.parametrize("kind", MODELS)
def test_ogbn_arxiv(arxiv: Path, kind: str) -> None:
    check(graph_of(arxiv, "x_struct"), kind, torch.float32)


@pytest.mark.parametrize(
    "dtype",
    [pytest.param(torch.float32, id="float32"), pytest.param(torch.float64, id="float64", marks=pytest.mark.long)],
)
@pytest.mark.parametrize("kind", MODELS)
def test_amazon_computers(real_graph: Any, kind: str, dtype: torch.dtype) -> None:
    check(graph_of(real_graph("amazon-computers"), "x"), kind, dtype)
