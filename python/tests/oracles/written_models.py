"""Models that people write themselves, as papers and forums have them: 24 columns in, 5 out."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

tg = pytest.importorskip("torch_geometric.nn")
dropout_edge = pytest.importorskip("torch_geometric.utils").dropout_edge


class GatedResidual(nn.Module):
    """A gate computed from old and new rows chooses between them (GGNN's manner, and a highway)."""

    def __init__(self) -> None:
        super().__init__()
        self.start, self.end = nn.Linear(24, 16), nn.Linear(16, 5)
        self.convs = nn.ModuleList(tg.SAGEConv(16, 16) for _ in range(3))
        self.gates = nn.ModuleList(nn.Linear(32, 16) for _ in range(3))

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        h = F.relu(self.start(x))
        for conv, gate in zip(self.convs, self.gates, strict=True):
            new = conv(h, edge_index)
            z = torch.sigmoid(gate(torch.cat((h, new), dim=-1)))
            h = z * new + (1 - z) * h
            h = F.dropout(h, p=0.2, training=self.training)
        return self.end(h)


class EdgeGat(nn.Module):
    """GATv2 with features of edges, that an MLP maps first."""

    def __init__(self) -> None:
        super().__init__()
        self.edge = nn.Sequential(nn.Linear(1, 8), nn.ReLU(), nn.Linear(8, 3))
        self.one = tg.GATv2Conv(24, 8, heads=2, edge_dim=3, dropout=0.1)
        self.two = tg.GATv2Conv(16, 5, heads=1, edge_dim=3, concat=False)
        self.norm = tg.BatchNorm(16)

    def forward(self, x: Tensor, edge_index: Tensor, edge_attr: Tensor) -> Tensor:
        if edge_attr.dim() == 1:
            edge_attr = edge_attr.unsqueeze(-1)
        e = self.edge(edge_attr)
        h = F.elu(self.norm(self.one(x, edge_index, e)))
        return self.two(h, edge_index, edge_attr=e).log_softmax(dim=-1)


class Gine(nn.Module):
    """GINE whose MLPs have norms, a sum of the scores of all layers (as in the paper), no skips between."""

    def __init__(self) -> None:
        super().__init__()
        self.encoder = nn.Linear(24, 16)
        self.convs, self.scores = nn.ModuleList(), nn.ModuleList([nn.Linear(16, 5)])
        for _ in range(2):
            mlp = nn.Sequential(nn.Linear(16, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Linear(32, 16))
            self.convs.append(tg.GINEConv(mlp, train_eps=True, edge_dim=1))
            self.scores.append(nn.Linear(16, 5))

    def forward(self, x: Tensor, edge_index: Tensor, edge_attr: Tensor) -> Tensor:
        h = self.encoder(x)
        out = self.scores[0](h)
        for conv, score in zip(self.convs, self.scores[1:], strict=True):
            h = F.relu(conv(h, edge_index, edge_attr.reshape(-1, 1)))
            out = out + score(h)
        return out


class Appnp(nn.Module):
    """Personalised PageRank over the scores of an MLP, as a loop over a layer without parameters."""

    def __init__(self, steps: int = 4) -> None:
        super().__init__()
        self.mlp = nn.Sequential(nn.Dropout(0.5), nn.Linear(24, 16), nn.ReLU(), nn.Dropout(0.5), nn.Linear(16, 5))
        self.step, self.steps, self.alpha = tg.SimpleConv(aggr="mean"), steps, 0.1

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        h = z = self.mlp(x)
        for _ in range(self.steps):
            z = (1 - self.alpha) * self.step(z, edge_index) + self.alpha * h
        return z


class DeeperGcn(nn.Module):
    """Pre-activation: norm, activation, dropout, then the layer, and a sum (res+); softmax aggregation."""

    def __init__(self) -> None:
        super().__init__()
        self.node, self.out = nn.Linear(24, 16), nn.Linear(16, 5)
        self.layers = nn.ModuleList(
            tg.DeepGCNLayer(
                tg.GENConv(16, 16, aggr="softmax", t=1.0, learn_t=True, num_layers=2, norm="batch"),
                nn.LayerNorm(16),
                nn.ReLU(),
                block="res+",
                dropout=0.1,
            )
            for _ in range(3)
        )

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        x = self.layers[0].conv(self.node(x), edge_index)
        for layer in self.layers[1:]:
            x = layer(x, edge_index)
        return self.out(F.dropout(self.layers[0].act(self.layers[0].norm(x)), 0.1, self.training))


class JumpingLstm(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.convs = nn.ModuleDict({"near": tg.GraphConv(24, 16), "far": tg.GraphConv(16, 16)})
        self.jump, self.lin = tg.JumpingKnowledge("lstm", channels=16, num_layers=2), tg.Linear(16, 5)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        kept = []
        for name in ("near", "far"):
            x = self.convs[name](x, edge_index).relu()
            kept += [x]
        return self.lin(self.jump(kept))


class Buffers(nn.Module):
    """Rows are standardised by buffers; constants are made in forward; a scalar parameter scales; layers in a dict."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("mean", torch.randn(24))
        self.register_buffer("std", torch.rand(24) + 0.5)
        self.scale = nn.Parameter(torch.tensor(0.7))
        self.convs = nn.ModuleDict({"a": tg.SAGEConv(24, 16, normalize=True), "b": tg.SAGEConv(16, 5)})
        self.table = torch.linspace(-1, 1, 16)  # a plain attribute

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        x = (x - self.mean) / self.std
        x = torch.nan_to_num(x).clamp(-3, 3)
        h = self.convs["a"](x, edge_index) * self.scale
        h = h + self.table.to(h.device) + torch.arange(16, device=h.device, dtype=h.dtype) / 16
        return self.convs["b"](F.dropout(F.leaky_relu(h, 0.1), training=self.training), edge_index)


class Twice(nn.Module):
    """One layer called twice, with other maps between; its second result beside the first."""

    def __init__(self) -> None:
        super().__init__()
        self.start, self.conv, self.mid, self.out = nn.Linear(24, 16), tg.GCNConv(16, 16), nn.Linear(16, 16), None
        self.head = nn.Linear(32, 5)

    def forward(self, x: Tensor, edge_index: Tensor, edge_weight: Tensor | None = None) -> Tensor:
        one = self.conv(self.start(x), edge_index, edge_weight).relu()
        two = self.conv(self.mid(one), edge_index, edge_weight).relu()
        return self.head(torch.cat([one, two], -1))


class Plain(nn.Module):
    """Sequential of PyG, within a module that names what it returns."""

    def __init__(self) -> None:
        super().__init__()
        self.net = tg.Sequential(
            "x, edge_index",
            [
                (tg.GCNConv(24, 16), "x, edge_index -> x"),
                nn.ReLU(inplace=True),
                (tg.GCNConv(16, 16), "x, edge_index -> y"),
                nn.PReLU(),
                (lambda x, y: x + y, "x, y -> x"),
                nn.Linear(16, 5),
            ],
        )

    def forward(self, x: Tensor, edge_index: Tensor) -> dict[str, Tensor]:
        return {"logits": self.net(x, edge_index)}


class Transformers(nn.Module):
    """TransformerConv with a gate, then a map of heads, a softmax over columns, and einsum."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = tg.TransformerConv(24, 8, heads=2, beta=True)
        self.weight, self.last = nn.Parameter(torch.randn(2, 8, 8)), tg.SAGEConv(16, 5, aggr="max")

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        h = self.conv(x, edge_index).view(-1, 2, 8)
        h = torch.einsum("nhd,hde->nhe", h.softmax(dim=-1), self.weight)
        return self.last(h.flatten(start_dim=1), edge_index)


class Relations(nn.Module):
    """R-GCN layers with a basis and a self map of its own, on kinds of edges."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = tg.RGCNConv(24, 16, 3, num_bases=2), tg.FastRGCNConv(16, 5, 3)
        self.skip = nn.Linear(24, 16)

    def forward(self, x: Tensor, edge_index: Tensor, edge_type: Tensor) -> Tensor:
        return self.b((self.a(x, edge_index, edge_type) + self.skip(x)).tanh(), edge_index, edge_type)


class Blocks(nn.Module):
    """Modules of one's own around layers, with flags, defaults and lists, some of them None."""

    class Block(nn.Module):
        def __init__(self, wide: int, norm: bool) -> None:
            super().__init__()
            self.conv, self.norm = tg.SAGEConv(wide, 16), nn.LayerNorm(16) if norm else None
            self.skip = nn.Identity() if wide == 16 else nn.Linear(wide, 16)

        def forward(self, x: Tensor, edge_index: Tensor, *, scale: float = 0.5) -> tuple[Tensor, Tensor]:
            new = self.conv(x, edge_index)
            if self.norm is not None:
                new = self.norm(new)
            if new.shape[-1] != 16 or not isinstance(new, Tensor):
                raise ValueError("wrong width")
            return new + scale * self.skip(x), new.abs().amax(dim=1, keepdim=True)

    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleList([self.Block(24, False), self.Block(16, True)])
        self.out = nn.Linear(18, 5)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        peaks = []
        for i, block in enumerate(self.blocks):
            x, peak = block(x, edge_index, scale=1.0 / (i + 1))
            peaks.append(peak)
        return self.out(torch.cat([x, *peaks], dim=1))


class Recurrent(nn.Module):
    """A GRU updates rows by what comes from neighbours, as in gated graph networks."""

    def __init__(self) -> None:
        super().__init__()
        self.start, self.conv, self.end = nn.Linear(24, 16), tg.SAGEConv(16, 16), nn.Linear(16, 5)
        self.cell, self.long = nn.GRUCell(16, 16), nn.LSTMCell(16, 16)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        h = self.start(x)
        h = self.cell(self.conv(h, edge_index), h)
        h, _ = self.long(self.conv(h, edge_index), (h, torch.zeros_like(h)))
        return self.end(h)


class DropEdge(nn.Module):
    """Edges are dropped in training, and asserted to be edges; in evaluation nothing comes of that."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = tg.SAGEConv(24, 16), tg.SAGEConv(16, 5)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        assert edge_index.dim() == 2 and edge_index.size(0) == 2, edge_index.shape
        edge_index, kept = dropout_edge(edge_index.long().contiguous(), p=0.2, training=self.training)
        _, col = edge_index
        _ = kept.sum(), col.unique()
        return self.b(self.a(x, edge_index).relu(), edge_index)


class Parametrized(nn.Module):
    """Matrices with spectral and weight norms, and one for each kind of node."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.kinds = tg.SAGEConv(24, 16), tg.HeteroLinear(16, 16, 3)
        self.one = nn.utils.parametrizations.spectral_norm(nn.Linear(16, 16))
        self.two = nn.utils.parametrizations.weight_norm(nn.Linear(16, 5))

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        h = self.conv(x, edge_index)
        h = self.kinds(h, (h[:, 0] > 0).long() + (h[:, 1] > 0).long())
        return self.two(self.one(h).relu())


MODELS: dict[str, tuple[Any, dict[str, Any]]] = {
    "gated residual": (GatedResidual, {}),
    "edge gat": (EdgeGat, {"edge_attr": "w"}),
    "gine": (Gine, {"edge_attr": "w"}),
    "appnp": (Appnp, {}),
    "deeper gcn": (DeeperGcn, {}),
    "jumping lstm": (JumpingLstm, {}),
    "buffers": (Buffers, {}),
    "twice": (Twice, {}),
    "twice, weights": (Twice, {"edge_weight": "w"}),
    "sequential": (Plain, {"output": "logits"}),
    "transformers": (Transformers, {}),
    "relations": (Relations, {"inputs": {"edge_type": "kind"}}),
    "blocks": (Blocks, {}),
    "recurrent": (Recurrent, {}),
    "drop edge": (DropEdge, {}),
    "parametrized": (Parametrized, {}),
}
