"""infer of models that people write themselves, against their forward over the whole graph; and what it refuses."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from graphs import random_graph
from infer_jobs import StopError
from seeds import seed as seed_of
from torch import Tensor, nn
from torch.nn import functional as F

from freshgo import convert, errors, infer

tg = pytest.importorskip("torch_geometric.nn")
pytestmark = pytest.mark.explore

INVALID = errors.InvalidArgumentError
NODES, EDGES = 400, 3000
HOW: dict[str, Any] = {"memory": "64MiB", "batch_size": 60, "progress": False}


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


MODELS: dict[str, tuple[Callable[[], nn.Module], dict[str, Any]]] = {
    "sage": (Sage, {}),
    "sage, max": (lambda: Sage(conv=lambda a, b: tg.SAGEConv(a, b, aggr="max")), {}),
    "residual": (lambda: Residual(lambda size: tg.SAGEConv(size, size)), {}),
    "residual, own layer": (lambda: Residual(Own), {}),
    "dense": (lambda: Jumping("dense", tg.SAGEConv), {}),
    "dense, gat": (lambda: Jumping("dense", tg.GATConv), {}),
    "jumping, cat": (lambda: Jumping("cat", tg.GCNConv), {}),
    "jumping, max": (lambda: Jumping("max", tg.GraphConv), {}),
    "jumping, lstm": (lambda: Jumping("lstm", tg.SAGEConv), {}),
    "jumping, lstm, max": (lambda: Jumping("lstm", sage_max), {}),
    "gat": (Gat, {}),
    "gin": (Gin, {}),
    "gcn": (Gcn, {}),
    "gcn, weights": (Gcn, {"edge_weight": "w"}),
    "gcn, computed weights": (lambda: Gcn(computed=True), {"edge_weight": "w"}),
    "two inputs": (TwoInputs, {}),
    "shared": (lambda: Shared(tg.SAGEConv), {}),
    "shared, max": (lambda: Shared(sage_max), {}),
    "branches": (Branches, {"output": "out"}),
    "relations": (Relations, {"inputs": {"edge_type": "kind"}, "edge_attr": "w"}),
    "numbers": (Decoder, {"output": 0}),
    "embeddings": (Decoder, {"output": 1}),
    **{
        f"basic, jk={jk}": (lambda jk=jk: tg.GraphSAGE(24, 16, 2, 5, jk=jk, norm="BatchNorm"), {})  # type: ignore[misc]
        for jk in ("cat", "lstm")
    },
    "basic, pna": (
        lambda: tg.PNA(
            24, 15, 2, 5, aggregators=["mean", "std"], scalers=["amplification"], deg=torch.tensor([1, 4, 9])
        ),
        {},
    ),
}


@pytest.fixture(scope="module")
def flat() -> dict[str, Any]:
    graph = random_graph(NODES, EDGES, seed=4)
    edges = np.concatenate([graph["edge_index"], np.arange(0, NODES, 7)[None].repeat(2, 0)], 1)
    rng = np.random.default_rng(seed_of(3))
    weight = rng.random(edges.shape[1]).astype(np.float32) + 0.1
    kind = rng.integers(0, 3, edges.shape[1])
    return {"num_nodes": NODES, "x": graph["x"], "edge_index": edges, "w": weight, "kind": kind}


@pytest.fixture(scope="module", params=["plain", "relaid"])
def path(request: pytest.FixtureRequest, flat: dict[str, Any], tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("models") / "graph"
    how = {"relayout": "community"} if request.param == "relaid" else {}
    convert(flat, path, progress=False, **how).close()
    return path


def made(model: Callable[[], Any]) -> Any:
    torch.manual_seed(7)
    result = model().eval()
    for norm in result.modules():
        if isinstance(norm, nn.BatchNorm1d) and norm.running_mean is not None:
            norm.running_mean.normal_()
            norm.running_var.uniform_(0.5, 2)
    return result


def forward(model: Any, graph: dict[str, Any], how: dict[str, Any]) -> Any:
    """The rows of the whole graph."""
    named = {name: how[name] for name in ("edge_weight", "edge_attr") if name in how}
    more = {name: torch.from_numpy(graph[of]) for name, of in {**named, **how.get("inputs", {})}.items()}
    with torch.no_grad():
        out = model(torch.from_numpy(graph["x"]), torch.from_numpy(graph["edge_index"]), **more)
    return out[how["output"]] if "output" in how else out


def assert_near(found: Any, want: Tensor) -> None:
    rows = torch.from_numpy(np.load(found))
    assert rows.dtype == torch.float32
    torch.testing.assert_close(rows, want, rtol=1e-4, atol=1e-4 * want.abs().max().item())


@pytest.mark.parametrize("kind", MODELS)
def test_equals_the_forward_over_the_whole_graph(path: Path, flat: dict[str, Any], tmp_path: Path, kind: str) -> None:
    model, how = made(MODELS[kind][0]), MODELS[kind][1]
    before = {key: value.clone() for key, value in model.state_dict().items()}
    attributes = set(vars(model))
    assert_near(infer(model, path, tmp_path / "out.npy", **HOW, **how), want := forward(model, flat, how))
    assert set(vars(model)) == attributes
    assert all(torch.equal(value, before[key]) for key, value in model.state_dict().items())
    nodes = torch.tensor([399, 7, 7, 100, 101, 3])
    assert_near(infer(model, path, tmp_path / "some.npy", nodes=nodes, **HOW, **how), want[nodes])


@pytest.mark.parametrize("kind", ["dense", "shared, max"])
def test_goes_on_wherever_it_was_ended(path: Path, flat: dict[str, Any], tmp_path: Path, kind: str) -> None:
    model, out = made(MODELS[kind][0]), tmp_path / "out.npy"
    said, ended, stages = 0, 0, []

    def stop(stage: str, done: int, total: int) -> None:
        nonlocal said
        said += 1
        stages.extend([stage] if stage.startswith("layer") else [])
        if said % 2 == 0:
            raise StopError

    while not out.exists():
        with contextlib.suppress(StopError):
            infer(model, path, out, **{**HOW, "progress": stop})
            ended -= 1
        ended += 1
    assert ended > 1
    assert stages == sorted(stages)  # never back
    assert_near(out, forward(model, flat, {}))


def test_values_live_as_long_as_something_reads_them(path: Path, tmp_path: Path) -> None:
    """On disk, where the first of four is read by the last layer alone, and the second by the third."""
    for model, names in ((Shared(tg.SAGEConv), "beside"), (Shared(sage_max), "value")):
        seen: dict[str, set[str]] = {}

        def look(stage: str, done: int, total: int, names: str = names, seen: Any = seen) -> None:
            there = {file.name for file in (tmp_path / "out.npy.partial").iterdir() if file.name.startswith(names)}
            seen.setdefault(stage, set()).update(there)

        infer(model.eval(), path, tmp_path / "out.npy", overwrite=True, **{**HOW, "progress": look})
        layers = {stage: files for stage, files in seen.items() if stage.startswith("layer")}
        assert len(layers["layer 3 of 3"]) == 3
        assert len(layers["layer 1 of 3"]) <= 2


def test_float16_and_values_that_are_no_floats(path: Path, flat: dict[str, Any], tmp_path: Path) -> None:
    class Masks(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b = sage_max(24, 16), sage_max(16, 16)

        def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
            h = self.a(x, edge_index)
            mask, place = h > 0, h.argmax(dim=1)
            return self.b(h, edge_index).masked_fill(mask, 0.5) + F.one_hot(place, 16)

    model = made(Masks)
    want = forward(model, flat, {})
    assert_near(infer(model, path, tmp_path / "out.npy", **HOW), want)
    half = np.load(infer(model, path, tmp_path / "half.npy", dtype=torch.float16, **HOW))
    assert half.dtype == np.float16
    np.testing.assert_allclose(half.astype(np.float32), want.numpy(), atol=0.02 * want.abs().max().item())


def test_layers_that_keep_a_graph(path: Path, flat: dict[str, Any], tmp_path: Path) -> None:
    """Of which the model neither uses nor loses anything."""
    for conv, name in ((tg.GCNConv, "_cached_edge_index"), (tg.SGConv, "_cached_x")):
        model = made(lambda conv=conv: Mixed(lambda m, h, e: h, conv(24, 16, cached=True)))
        want = forward(model, flat, {})
        kept = getattr(model.conv, name)
        assert kept is not None
        if conv is tg.GCNConv:
            assert_near(infer(model, path, tmp_path / "out.npy", **HOW), want)
        else:
            with pytest.raises(INVALID, match="SGConv gives other rows"):
                infer(model, path, tmp_path / "sg.npy", **HOW)
        assert getattr(model.conv, name) is kept and model.conv.cached


def test_numbers_of_nodes(path: Path, flat: dict[str, Any], tmp_path: Path) -> None:
    """Also far behind the rows that were counted."""

    class Counted(Sage):
        def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
            count, columns = x.shape
            assert columns == 24 and x.dim() == 2 and x.dtype == torch.float32 and isinstance(x, Tensor)
            out = super().forward(x, edge_index)
            return (out.view(count * 1, 5) + x.new_ones(count, 1)).reshape(-1, out.size(1))

    for conv in (tg.SAGEConv, sage_max):
        model = made(lambda conv=conv: Counted(conv=conv))
        assert_near(infer(model, path, tmp_path / "out.npy", overwrite=True, **HOW), forward(model, flat, {}))


def test_rows_of_integers(flat: dict[str, Any], tmp_path: Path) -> None:
    """That an embedding table turns into rows."""

    class Embedded(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.table, self.conv = nn.Embedding(9, 8), tg.SAGEConv(16, 5)

        def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
            return self.conv(self.table(x).flatten(1), edge_index)

    graph = {**flat, "x": np.random.default_rng(seed_of(5)).integers(0, 9, (NODES, 2))}
    convert(graph, tmp_path / "graph", progress=False).close()
    model = made(Embedded)
    assert_near(infer(model, tmp_path / "graph", tmp_path / "out.npy", **HOW), forward(model, graph, {}))


# Heterogeneous graphs.

TYPES = [("author", "writes", "paper"), ("paper", "cites", "paper"), ("paper", "by", "author")]


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


HETERO: dict[str, Callable[[], Any]] = {
    "by type": ByType,
    "by type, max, papers": lambda: ByType("max", "paper"),
    "hgt": Hgt,
    "relation sums": RelationSums,
    "to_hetero, sage": lambda: to_hetero(Sage((-1, 16, 4), conv=lambda a, b: tg.SAGEConv((-1, -1), b))),
    "to_hetero, basic": lambda: to_hetero(tg.GraphSAGE((-1, -1), 8, 2, 4, jk="cat")),
}


@pytest.fixture(scope="module")
def typed(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Tensor], dict[Any, Tensor]]:
    rng = np.random.default_rng(seed_of(6))
    counts = {"paper": 150, "author": 90}
    graph: dict[Any, Any] = {
        of: {"num_nodes": counts[of], "x": rng.standard_normal((counts[of], width)).astype(np.float32)}
        for of, width in (("paper", 12), ("author", 6))
    }
    for source, name, target in TYPES:
        ends = np.stack([rng.integers(0, counts[source], 500), rng.integers(0, counts[target], 500)])
        graph[source, name, target] = {"edge_index": ends}
    path = tmp_path_factory.mktemp("types") / "graph"
    convert(graph, path, progress=False).close()
    x = {of: torch.from_numpy(graph[of]["x"]) for of in counts}
    return path, x, {of: torch.from_numpy(graph[of]["edge_index"]) for of in TYPES}


@pytest.mark.filterwarnings("ignore:Found function")
@pytest.mark.parametrize("kind", HETERO)
def test_types_of_nodes(typed: Any, tmp_path: Path, kind: str) -> None:
    path, x, edges = typed
    model = made(HETERO[kind])
    with torch.no_grad():
        want = model(x, edges)
    want = want if isinstance(want, dict) else {"paper": want}
    out = infer(model, path, tmp_path / "out", **HOW)
    assert sorted(file.stem for file in out.iterdir()) == sorted(want)
    for of in want:
        assert_near(out / f"{of}.npy", want[of])
    ids = {"paper": [5, 149, 5]}
    some = infer(model, path, tmp_path / "some", nodes=ids, **HOW)
    assert_near(some / "paper.npy", want["paper"][ids["paper"]])


# What is refused.


class Mixed(nn.Module):
    """A layer, and something behind it that is given the model, its rows and its edges."""

    def __init__(self, behind: Callable[..., Any], conv: Any = None, **parts: nn.Module) -> None:
        super().__init__()
        self.conv, self.last = conv or tg.SAGEConv(24, 16), tg.SAGEConv(16, 5)
        self.parts, self.behind = nn.ModuleDict(parts), behind

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return self.last(self.behind(self, self.conv(x, edge_index), edge_index), edge_index)


def branched(model: Any, h: Tensor, edges: Tensor) -> Tensor:
    if h.sum() > 0:
        return h
    return -h


REFUSED: dict[str, tuple[Callable[[], Any], str]] = {
    "mean": (lambda: Mixed(lambda m, h, e: h - h.mean(0)), r"`.*`\): mean mixes rows"),
    "mean, kept": (lambda: Mixed(lambda m, h, e: h - h.mean(dim=0, keepdim=True)), "mean mixes rows"),
    "max": (lambda: Mixed(lambda m, h, e: h / h.max()), "max mixes rows"),
    "softmax": (lambda: Mixed(lambda m, h, e: h.softmax(0)), "softmax mixes rows: a row depends on the others"),
    "sort": (lambda: Mixed(lambda m, h, e: h.sort(0)[0]), "sort"),
    "product": (lambda: Mixed(lambda m, h, e: h @ (h.t() @ h)), "matmul mixes rows"),
    "count": (lambda: Mixed(lambda m, h, e: h / h.size(0)), "mixes rows: a row depends on the others"),
    "cut": (lambda: Mixed(lambda m, h, e: torch.cat([h[:3], h[3:]])), "getitem mixes rows"),
    "pool": (lambda: Mixed(lambda m, h, e: h + tg.global_mean_pool(h, None)), "mean mixes rows"),
    "norm": (lambda: Mixed(lambda m, h, e: m.parts["n"](h), n=tg.GraphNorm(16)), "GraphNorm normalises over all nodes"),
    "pair norm": (lambda: Mixed(lambda m, h, e: m.parts["n"](h), n=tg.PairNorm()), "PairNorm normalises over all"),
    "batch norm": (
        lambda: Mixed(lambda m, h, e: m.parts["n"](h), n=nn.BatchNorm1d(16, track_running_stats=False)),
        "BatchNorm1d without running statistics normalises over all nodes",
    ),
    "dropout": (lambda: Mixed(lambda m, h, e: F.dropout(h, 0.5)), "dropout is random.*training=self.training"),
    "noise": (lambda: Mixed(lambda m, h, e: h + torch.randn_like(h)), "randn_like is not among the operations"),
    "in place": (lambda: Mixed(lambda m, h, e: h.relu_() + h), "changes a tensor in place that it reads later"),
    "attention": (
        lambda: Mixed(
            lambda m, h, e: m.parts["a"](h[None], h[None], h[None])[0][0],
            a=nn.MultiheadAttention(16, 2, batch_first=True),
        ),
        "MultiheadAttention mixes rows: a row depends on the others",
    ),
    "constant noise": (lambda: Mixed(lambda m, h, e: h + torch.randn(16)), "the model returns other rows"),
    "degree": (lambda: Mixed(lambda m, h, e: h * e[1].float().mean()), "getitem reads edge_index"),
    "data": (lambda: Mixed(branched), r"test_infer_models\.py:\d+ \(`if h\.sum\(\) > 0:`\): sum mixes rows"),
    "hops": (
        lambda: Mixed(lambda m, h, e: h, tg.TAGConv(24, 16, K=2)),
        "TAGConv gives other rows .* one hop",
    ),
    "table": (
        lambda: Mixed(lambda m, h, e: m.conv(m.parts["t"].weight, e), t=nn.Embedding(NODES, 24)),
        "rows that come from no tensor of the store",
    ),
    "numbers": (lambda: Mixed(lambda m, h, e: torch.from_numpy(h.numpy())), "cannot be traced|numpy"),
}


@pytest.mark.parametrize("kind", REFUSED)
def test_what_is_refused(path: Path, tmp_path: Path, kind: str) -> None:
    with pytest.raises(INVALID, match=REFUSED[kind][1]) as error:
        infer(made(REFUSED[kind][0]), path, tmp_path / "out.npy", **HOW)
    assert "layers=" in str(error.value) and 'fallback="batches"' in str(error.value)
    if kind not in ("constant noise", "in place"):
        assert "test_infer_models.py:" in str(error.value)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("model", "how", "words"),
    [
        (Branches, {}, r"Branches returns a dict with the entries 'out', 'hidden': choose one by output='out'"),
        (Decoder, {"output": 2}, r"output=2 is no entry of what Decoder returns: its entries are 0, 1"),
        (Sage, {"output": 0}, "it returns a tensor: omit output="),
        (Sage, {"edge_weight": "w"}, r"Sage takes no edge_weight: its forward\(\) takes x, edge_index"),
        (Relations, {"edge_attr": "w"}, r"forward\(\) of Relations takes 'edge_type'.* as inputs=\{'edge_type': "),
        (Relations, {"inputs": {"edge_type": "kind"}}, "takes 'edge_attr': name its tensor, as edge_attr='edge_attr'"),
        (Sage, {"inputs": {"z": "w"}}, r"inputs has 'z', but forward\(\) of Sage takes x, edge_index"),
        (Relations, {"inputs": {"edge_type": "z"}, "edge_attr": "w"}, "no tensor of the name 'z'"),
        (ByType, {}, r"takes 'x_dict', and the store is homogeneous"),
        (lambda: Sage((23, 8, 5)), {}, r"test_infer_models\.py:\d+ \(`x = conv\(x, edge_index\)`\): the model fails"),
        (lambda: Sage(conv=lambda a, b: tg.SAGEConv((-1, -1), b)), {}, "has no shape yet: call the model once"),
        (Sage, {"fallback": "whole"}, "fallback must be one of 'batches'"),
        (Sage, {"depth": 0}, "depth must be at least 1"),
    ],
)
def test_bad_input(path: Path, tmp_path: Path, model: Any, how: dict[str, Any], words: str) -> None:
    with pytest.raises(INVALID, match=words):
        infer(made(model), path, tmp_path / "out.npy", **HOW, **how)
    assert list(tmp_path.iterdir()) == []


def test_a_part_that_trains(path: Path, tmp_path: Path) -> None:
    model = made(Gin)
    model.norm.train()
    with pytest.raises(INVALID, match=r"norm \(BatchNorm1d\) of the model is in the mode train\(\)"):
        infer(model, path, tmp_path / "out.npy", **HOW)


class Deep(nn.Module):
    """That cannot be traced: it reads the edges by itself. GCN reads the degrees of neighbours, one hop further."""

    def __init__(self, conv: Any = tg.GCNConv) -> None:
        super().__init__()
        self.convs = nn.ModuleList([conv(24, 16), conv(16, 5)])

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        if edge_index.size(1) == 0:
            return x.new_zeros(x.size(0), 5)
        return self.convs[1](self.convs[0](x, edge_index).relu(), edge_index)


def test_batches_with_all_neighbours(path: Path, flat: dict[str, Any], tmp_path: Path, typed: Any) -> None:
    model, out = made(Deep), tmp_path / "out.npy"
    how = {**HOW, "fallback": "batches"}
    with pytest.raises(INVALID, match=r"test_infer_models\.py:\d+ .*size reads edge_index"):
        infer(model, path, out, **HOW)
    with pytest.raises(INVALID, match='fallback="batches" needs depth='):
        infer(model, path, out, **how)
    with pytest.raises(INVALID, match=r"depth=2 is too small for Deep: .* depth=3 gives"):
        infer(model, path, out, depth=2, **how)
    assert_near(infer(model, path, out, depth=3, **how), forward(model, flat, {}))
    pooled = made(lambda: Mixed(lambda m, h, e: h - h.mean(0)))
    with pytest.raises(INVALID, match="Mixed gives other rows from neighbours up to any depth"):
        infer(pooled, path, tmp_path / "pooled.npy", depth=2, **how)
    tags = made(lambda: Mixed(lambda m, h, e: h, tg.SGConv(24, 16, K=2, add_self_loops=False)))
    nodes = [7, 399, 7]
    some = infer(tags, path, tmp_path / "tags.npy", depth=4, nodes=nodes, **how)
    assert_near(some, forward(tags, flat, {})[nodes])


def test_batches_of_types(typed: Any, tmp_path: Path) -> None:
    class Typed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv = tg.SAGEConv((6, 12), 5)

        def forward(self, x_dict: Any, edge_index_dict: Any) -> Any:
            ends = edge_index_dict["author", "writes", "paper"]
            return {"paper": self.conv((x_dict["author"], x_dict["paper"]), ends[:, ends[0] >= 0])}

    path, x, edges = typed
    model = made(Typed)
    out = infer(model, path, tmp_path / "out", fallback="batches", depth=1, **HOW)
    with torch.no_grad():
        assert_near(out / "paper.npy", model(x, edges)["paper"])
