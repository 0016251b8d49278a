"""Models, a graph and the steps of training that the tests of History share."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from seeds import seed as seed_of
from torch import Tensor, nn

from freshgo import Loader
from freshgo.history import History

pytest.importorskip("torch_geometric")
import torch_geometric.nn as pyg

HOPS = [4, 3, 3]


def small_graph(num_nodes: int = 300, num_edges: int = 2400, seed: int = 3) -> dict[str, Any]:
    rng = np.random.default_rng(seed_of(seed))
    source = (num_nodes * rng.random(num_edges) ** 2).astype(np.int64)
    target = (num_nodes * rng.random(num_edges) ** 1.5).astype(np.int64)
    target[:100] = source[:100]  # self-loops
    return {
        "num_nodes": num_nodes,
        "edge_index": np.stack([source, target]),
        "x": rng.standard_normal((num_nodes, 12), dtype=np.float32),
        "y": rng.integers(5, size=num_nodes),
        "edge_type": rng.integers(3, size=num_edges),
        "edge_attr": rng.standard_normal((num_edges, 4), dtype=np.float32),
        "edge_weight": rng.random(num_edges, dtype=np.float32),
    }


GRAPH = small_graph()


def plain_loader(**options: Any) -> Loader:
    return Loader(GRAPH, HOPS, **{"batch_size": 40, "seed": 5, **options})


class Compose(nn.Module):
    """Layers called in order with the batch's edges; ``extra`` names a tensor of edges."""

    def __init__(self, convs: list[Any], extra: str | None = None) -> None:
        super().__init__()
        self.convs = nn.ModuleList(convs)
        self.norms = nn.ModuleList([nn.LayerNorm(8) for _ in convs[1:]])
        self.extra = extra

    def forward(self, x: Tensor, edge_index: Tensor, extra: Tensor | None = None) -> Tensor:
        for i, conv in enumerate(self.convs):
            x = conv(x, edge_index) if extra is None else conv(x, edge_index, extra)
            if i < len(self.convs) - 1:
                x = self.norms[i](x).relu()
        return x


def compose(make: Callable[..., Any], extra: str | None = None) -> Callable[[], nn.Module]:
    return lambda: Compose([make(12, 8), make(8, 8), make(8, 5)], extra)


def mlp(a: int, b: int) -> nn.Module:
    return nn.Sequential(nn.Linear(a, b), nn.ReLU(), nn.Linear(b, b))


def pna(**options: Any) -> nn.Module:
    degrees = torch.tensor([1, 2, 8, 5, 3])
    return pyg.PNA(
        12, 8, 3, 5, aggregators=["mean", "max"], scalers=["identity", "amplification"], deg=degrees, **options
    )


MODELS: dict[str, Callable[[], nn.Module]] = {
    "GraphSAGE": lambda: pyg.GraphSAGE(12, 8, 3, 5),
    "GraphSAGE-max-project": lambda: pyg.GraphSAGE(12, 8, 3, 5, aggr="max", project=True, norm="batch_norm"),
    "GraphSAGE-lstm": lambda: pyg.GraphSAGE(12, 8, 3, 5, aggr="lstm"),
    "GraphSAGE-last": lambda: pyg.GraphSAGE(12, 8, 3, 5, jk="last", norm="layer_norm", norm_kwargs={"mode": "node"}),
    "GCN": lambda: pyg.GCN(12, 8, 3, 5),
    "GCN-loopless": lambda: pyg.GCN(12, 8, 3, 5, add_self_loops=False),
    "GCN-improved": lambda: pyg.GCN(12, 8, 3, 5, improved=True, cached=False),
    "GAT": lambda: pyg.GAT(12, 8, 3, 5, heads=2),
    "GATv2": lambda: pyg.GAT(12, 8, 3, 5, heads=2, v2=True),
    "GIN": lambda: pyg.GIN(12, 8, 3, 5, norm="layer_norm", norm_kwargs={"mode": "node"}),
    "EdgeCNN": lambda: pyg.EdgeCNN(12, 8, 3, 5),
    "PNA": pna,
    "GAT-edges": lambda: pyg.GAT(12, 8, 3, 5, heads=2, edge_dim=4),
    "SAGEConv": compose(pyg.SAGEConv),
    "TransformerConv": compose(lambda a, b: pyg.TransformerConv(a, b, edge_dim=4), "edge_attr"),
    "RGCNConv": compose(lambda a, b: pyg.RGCNConv(a, b, 3), "edge_type"),
    "GraphConv": compose(pyg.GraphConv, "edge_weight"),
    "GCNConv-given": compose(lambda a, b: pyg.GCNConv(a, b, normalize=False), "edge_weight"),
    "GINEConv": compose(lambda a, b: pyg.GINEConv(mlp(a, b), edge_dim=4), "edge_attr"),
    "ResGatedGraphConv": compose(pyg.ResGatedGraphConv),
}


def model_of(kind: str) -> nn.Module:
    torch.manual_seed(seed_of(1))
    return MODELS[kind]()


def attach(history: History, model: nn.Module) -> None:
    history.attach(model, layers=None if isinstance(model, pyg.models.basic_gnn.BasicGNN) else model.convs)


def run(model: Any, batch: Any, kind: str) -> Tensor:
    extra = {"GAT-edges": "edge_attr"}.get(kind, getattr(model, "extra", None))
    if extra is None:
        return model(batch.x, batch.edge_index)
    if kind == "GAT-edges":
        return model(batch.x, batch.edge_index, edge_attr=batch[extra])
    return model(batch.x, batch.edge_index, batch[extra])


def loss_of(out: Tensor, batch: Any) -> Tensor:
    return F.cross_entropy(out[: batch.batch_size].float(), batch.y[: batch.batch_size])


def train(model: Any, loader: Any, history: History | None, epochs: int = 1, kind: str = "") -> list[float]:
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    losses = []
    for _ in range(epochs):
        for batch in loader:
            optimizer.zero_grad()
            loss = loss_of(run(model, batch, kind), batch)
            loss.backward()
            optimizer.step()
            if history is not None:
                history.update()
            losses.append(float(loss.detach()))
    return losses


def hidden_rows(model: Any, batch: Any, kind: str) -> list[Tensor]:
    """What each layer but the first of a model without history reads of a plain batch."""
    seen: list[Tensor] = []
    hooks = [conv.register_forward_pre_hook(lambda _, args: seen.append(args[0])) for conv in model.convs]
    run(model, batch, kind)
    for hook in hooks:
        hook.remove()
    return seen[1:]


def levels_norms(gradient: Tensor, levels: Any, level: int) -> tuple[Tensor, Tensor]:
    norms = gradient.double().square().sum(1).sqrt().float()
    return norms[levels.computed[level]], norms[levels.hit[level]]


def observed(history: History, level: int) -> tuple[Tensor, Tensor]:
    assert history._steps.current is not None
    return history._steps.current.observed()[2][level - 1]
