"""Models that people write themselves, graphs for them, and their forward over a whole graph."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from graphs import random_graph
from seeds import seed as seed_of
from torch import Tensor, nn
from torch.nn import functional as F

tg = pytest.importorskip("torch_geometric.nn")

NODES, EDGES = 400, 3000
HOW: dict[str, Any] = {"memory": "64MiB", "batch_size": 60, "progress": False}
TYPES = [("author", "writes", "paper"), ("paper", "cites", "paper"), ("paper", "by", "author")]


class Sage(nn.Module):
    """A list of layers, as in most tutorials."""

    def __init__(self, sizes: tuple[int, ...] = (24, 16, 16, 5), conv: Any = tg.SAGEConv, p: float = 0.5) -> None:
        super().__init__()
        self.convs = nn.ModuleList(conv(a, b) for a, b in itertools.pairwise(sizes))
        self.p = p

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        for i, conv in enumerate(self.convs):
            x = conv(x, edge_index)
            if i < len(self.convs) - 1:
                x = F.dropout(x.relu_(), p=self.p, training=self.training)
        return x


class Residual(nn.Module):
    """Of the input, too, by a map of its own."""

    def __init__(self, conv: Any) -> None:
        super().__init__()
        self.start, self.convs = nn.Linear(24, 16), nn.ModuleList(conv(16) for _ in range(3))
        self.norms = nn.ModuleList(nn.LayerNorm(16) for _ in range(3))
        self.end = nn.Sequential(nn.Linear(16, 16), nn.ELU(), nn.Dropout(0.3), nn.Linear(16, 5))

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        first = x = self.start(x)
        for conv, norm in zip(self.convs, self.norms, strict=True):
            x = x + F.gelu(conv(norm(x), edge_index))
        return self.end(x + 0.1 * first)


class Jumping(nn.Module):
    """All layers side by side, some by hand and some by PyG's module."""

    def __init__(self, mode: str, conv: Any) -> None:
        super().__init__()
        self.convs = nn.ModuleList([conv(24, 16), conv(16, 16), conv(16, 16)])
        self.jump = tg.JumpingKnowledge(mode, 16, 3) if mode != "dense" else None
        self.lin = nn.Linear({"cat": 48, "dense": 72}.get(mode, 16), 5)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        xs = []
        h = x
        for conv in self.convs:
            h = torch.tanh(conv(h, edge_index))
            xs.append(h)
        return self.lin(torch.cat([x, *xs], dim=-1) if self.jump is None else self.jump(xs))


class Gat(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = tg.GATConv(24, 8, heads=4), tg.GATv2Conv(32, 5, heads=3, concat=False)
        self.skip = nn.Linear(24, 32, bias=False)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        h = F.elu(self.first(x, edge_index) + self.skip(x))
        heads = h.view(h.size(0), 4, 8)
        h = (heads * heads.mean(dim=1, keepdim=True)).reshape(x.shape[0], -1)
        return F.log_softmax(self.second(h, edge_index), dim=1)


class Gin(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        mlp = [nn.Sequential(nn.Linear(a, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, 16)) for a in (24, 16)]
        self.convs = nn.ModuleList(tg.GINConv(of, train_eps=True) for of in mlp)
        self.norm, self.lin = nn.BatchNorm1d(16), nn.Linear(32, 5)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        h1 = self.convs[0](x, edge_index).relu()
        h2 = self.norm(self.convs[1](h1, edge_index)).relu()
        return self.lin(torch.hstack([h1, h2])).sigmoid()


class Gcn(nn.Module):
    """Weights of edges, some as they are and some computed."""

    def __init__(self, computed: bool = False) -> None:
        super().__init__()
        self.conv1, self.conv2 = tg.GCNConv(24, 16), tg.GCNConv(16, 5, add_self_loops=not computed)
        self.computed = computed

    def forward(self, x: Tensor, edge_index: Tensor, edge_weight: Tensor | None = None) -> Tensor:
        if self.computed:
            assert edge_weight is not None
            edge_weight = edge_weight.sqrt().clamp(min=0.2)
        h = self.conv1(x, edge_index, edge_weight).relu()
        return self.conv2(h, edge_index, edge_weight=edge_weight)


class TwoInputs(nn.Module):
    """GCN2, whose layers read the first rows too, and a pair of other rows for sources and targets."""

    def __init__(self) -> None:
        super().__init__()
        self.start = nn.Linear(24, 16)
        self.convs = nn.ModuleList(tg.GCN2Conv(16, alpha=0.2, theta=0.5, layer=i + 1) for i in range(2))
        self.pair = tg.SAGEConv((16, 24), 5)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        h = first = self.start(x).relu()
        for conv in self.convs:
            h = conv(h, first, edge_index).relu()
        return self.pair((h, x), edge_index)


class Shared(nn.Module):
    """One layer, called three times, and weights that belong to no module."""

    def __init__(self, conv: Any) -> None:
        super().__init__()
        self.start, self.conv = nn.Linear(24, 16), conv(16, 16)
        self.weights = nn.Parameter(torch.randn(4))
        self.register_buffer("shift", torch.randn(16))

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        x = self.start(x)
        layers = [x]
        for _ in range(3):
            layers.append(self.conv(layers[-1], edge_index).relu() + self.shift)
        return (torch.stack(layers) * self.weights.softmax(0).view(-1, 1, 1)).sum(0)[:, 2:9]


class Branches(nn.Module):
    """Layers side by side on the same rows, and one on what both give."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b, self.c = tg.SAGEConv(24, 8), tg.GraphConv(24, 8, aggr="mean"), tg.SAGEConv(40, 5)

    def forward(self, x: Tensor, edge_index: Tensor) -> Any:
        a, b = self.a(x, edge_index), self.b(x, edge_index)
        gate = torch.sigmoid(a - b)
        h = torch.where(gate > 0.5, a, b)
        return {"out": self.c(torch.cat([x, h, gate], 1), edge_index), "hidden": (h, gate)}


class Relations(nn.Module):
    """R-GCN, with edge types as a tensor of the edges, and attributes of edges."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = tg.RGCNConv(24, 16, 3), tg.GATConv(16, 5, edge_dim=2)
        self.edges = nn.Linear(1, 2)

    def forward(self, x: Tensor, edge_index: Tensor, edge_type: Tensor, edge_attr: Tensor) -> Tensor:
        h = self.first(x, edge_index, edge_type).relu()
        return self.second(h, edge_index, edge_attr=self.edges(edge_attr.view(-1, 1)))


class Own(tg.MessagePassing):
    """A layer of one's own."""

    def __init__(self, size: int = 16) -> None:
        super().__init__(aggr="max")
        self.lin = nn.Linear(2 * size, size)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        out: Tensor = self.propagate(edge_index, x=x)
        return out + x

    def message(self, x_i: Tensor, x_j: Tensor) -> Tensor:
        return self.lin(torch.cat([x_i, x_j - x_i], 1))


class Decoder(nn.Module):
    """A model within a model, and another that decodes its rows to a number each."""

    def __init__(self) -> None:
        super().__init__()
        self.encoder, self.head = tg.GraphSAGE(24, 16, 2, 16, norm="BatchNorm"), tg.MLP([16, 8, 1], norm=None)

    def forward(self, x: Tensor, edge_index: Tensor) -> tuple[Tensor, Tensor]:
        z = self.encoder(x, edge_index)
        return self.head(z).squeeze(), F.normalize(z)


def sage_max(a: int = 16, b: int = 16) -> Any:
    return tg.SAGEConv(a, b, aggr="max")


class Mixed(nn.Module):
    """A layer, and something behind it that is given the model, its rows and its edges."""

    def __init__(self, behind: Callable[..., Any], conv: Any = None, **parts: nn.Module) -> None:
        super().__init__()
        self.conv, self.last = conv or tg.SAGEConv(24, 16), tg.SAGEConv(16, 5)
        self.parts, self.behind = nn.ModuleDict(parts), behind

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return self.last(self.behind(self, self.conv(x, edge_index), edge_index), edge_index)


class ByType(nn.Module):
    """HeteroConv, a map for each type, residuals, and rows of all types."""

    def __init__(self, aggr: str = "sum", one: str | None = None) -> None:
        super().__init__()
        self.start = tg.HeteroDictLinear({"paper": 12, "author": 6}, 16)
        kinds = [lambda: tg.SAGEConv((16, 16), 16), lambda: tg.GATConv((16, 16), 16, add_self_loops=False)]
        self.convs = nn.ModuleList(
            tg.HeteroConv({of: kinds[(i + j) % 2]() for i, of in enumerate(TYPES)}, aggr=aggr) for j in range(2)
        )
        self.norms = nn.ModuleDict({of: nn.LayerNorm(16) for of in ("paper", "author")})
        self.head, self.one = nn.Linear(16, 4), one

    def forward(self, x_dict: dict[str, Tensor], edge_index_dict: dict[Any, Tensor]) -> Any:
        x_dict = self.start(x_dict)
        for conv in self.convs:
            new = conv(x_dict, edge_index_dict)
            x_dict = {of: self.norms[of](new[of].relu() + x_dict[of]) for of in new}
        return self.head(x_dict[self.one]) if self.one else {of: self.head(x) for of, x in x_dict.items()}


class Hgt(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.start = nn.ModuleDict({"paper": nn.Linear(12, 16), "author": nn.Linear(6, 16)})
        self.convs = nn.ModuleList(tg.HGTConv(16, 16, (["paper", "author"], TYPES), heads=2) for _ in range(2))

    def forward(self, x_dict: dict[str, Tensor], edge_index_dict: dict[Any, Tensor]) -> Any:
        h = {of: self.start[of](x).relu_() for of, x in x_dict.items()}
        for conv in self.convs:
            h = conv(h, edge_index_dict)
        return h


class RelationSums(nn.Module):
    """R-GCN with a sum along each relation by hand; GCN where a relation joins nodes of one type."""

    def __init__(self) -> None:
        super().__init__()
        self.own = nn.ModuleDict({"paper": nn.Linear(12, 8), "author": nn.Linear(6, 8)})
        self.writes, self.by = tg.SimpleConv(aggr="sum"), tg.SimpleConv(aggr="mean")
        self.cites, self.lins = tg.GCNConv(12, 8), nn.ModuleList([nn.Linear(6, 8), nn.Linear(8, 8)])

    def forward(self, x: dict[str, Tensor], edge_index: dict[Any, Tensor]) -> Any:
        writes = self.writes((x["author"], x["paper"]), edge_index["author", "writes", "paper"])
        paper = self.own["paper"](x["paper"]) + self.lins[0](writes)
        paper = paper + self.cites(x["paper"], edge_index["paper", "cites", "paper"])
        by = self.by((paper.relu(), x["author"]), edge_index["paper", "by", "author"])
        return {"paper": paper, "author": self.own["author"](x["author"]) + self.lins[1](by)}


def to_hetero(model: Any) -> Any:
    """A model for one type, made one for several, with its parameters."""
    made = tg.to_hetero(model.eval(), (["paper", "author"], TYPES), aggr="mean")
    x, edges = {"paper": torch.randn(3, 12), "author": torch.randn(2, 6)}, torch.zeros((2, 1), dtype=torch.long)
    with torch.no_grad():
        made(x, dict.fromkeys(TYPES, edges))
    return made


def made(model: Callable[[], Any]) -> Any:
    torch.manual_seed(7)
    result = model().eval()
    for norm in result.modules():
        if isinstance(norm, nn.BatchNorm1d) and norm.running_mean is not None:
            norm.running_mean.normal_()
            norm.running_var.uniform_(0.5, 2)
            if norm.weight is not None:
                norm.weight.data.normal_()
    return result


def looped_graph(nodes: int, edges: int) -> dict[str, Any]:
    """A random graph with self-loops, some of them twice, and weights of edges."""
    graph = random_graph(nodes, edges, seed=3)
    loops = np.arange(0, nodes, 9)
    ends = np.concatenate([graph["edge_index"], np.stack([loops, loops]), np.stack([loops[:9], loops[:9]])], 1)
    weight = np.random.default_rng(seed_of(1)).random(ends.shape[1]).astype(np.float32)
    return {"num_nodes": nodes, "x": graph["x"], "y": graph["y"], "edge_index": ends, "edge_weight": weight}


def forward(model: Any, graph: dict[str, Any], how: dict[str, Any] | None = None) -> Any:
    """The rows of the whole graph."""
    how = how or {}
    named = {name: how[name] for name in ("edge_weight", "edge_attr") if name in how}
    more = {name: torch.from_numpy(graph[of]) for name, of in {**named, **how.get("inputs", {})}.items()}
    ends = [torch.from_numpy(graph[name]) for name in ("x", "edge_index") if name not in how.get("inputs", {}).values()]
    with torch.no_grad():
        out = model(*ends, **more)
    return out[how["output"]] if "output" in how else out


def assert_near(found: Any, want: Tensor) -> None:
    rows = torch.from_numpy(np.load(found))
    assert rows.dtype == torch.float32
    torch.testing.assert_close(rows, want, rtol=1e-4, atol=1e-4 * want.abs().max().item())
