"""The first layer precomputed: what loaders bring, and models that use it."""

from __future__ import annotations

import copy
import gc
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch_geometric.nn as pyg
from graphs import random_graph
from seeds import seed as seed_of
from torch import Tensor, nn
from torch_geometric.data import Data, HeteroData
from torch_geometric.nn.models import GAT, GCN, GIN, GraphSAGE

import freshgo
from freshgo import Loader, RandomWalk, convert, propagate, relayout
from freshgo._device.row_cache import read_rows
from freshgo.errors import DTypeError, InvalidArgumentError
from freshgo.nn import accelerate, precomputed

QUIET: dict[str, Any] = {"memory": "64MiB", "progress": False}


def graph() -> Data:
    made = random_graph(1500, 9000)
    data = Data(
        x=torch.from_numpy(made["x"]),
        edge_index=torch.from_numpy(made["edge_index"]),
        y=torch.from_numpy(made["y"]),
        edge_weight=torch.from_numpy(made["edge_weight"]),
    )
    data.num_nodes = 1500
    return data


@pytest.fixture(scope="module")
def data() -> Data:
    return graph()


def sources(data: Data, path: Path, reduce: str, weight_attr: str | None = None) -> dict[str, Any]:
    """The graph with its aggregate: in memory, on disk, and relaid out on disk."""
    store = propagate(convert(data, path / "g", **QUIET), "x", reduce=reduce, weight_attr=weight_attr, **QUIET)
    return {
        "memory": propagate(data, "x", reduce=reduce, weight_attr=weight_attr, progress=False),
        "store": store,
        "relaid": relayout(store, path / "r", **QUIET),
    }


@pytest.mark.parametrize("reduce", ["mean", "sum", "gcn"])
def test_batches(data: Data, tmp_path: Path, reduce: str) -> None:
    plain = Loader(data, [4, 3], batch_size=100, shuffle=True)
    name = f"x_{reduce}"
    wanted = propagate(data, "x", reduce=reduce, progress=False)[name]
    for where, source in sources(data, tmp_path, reduce).items():
        small = {} if where == "memory" else {"memory": "16MiB", "feature_cache": "32KiB"}
        for cache in ("auto",) if where == "memory" else ("auto", "lru", "none", "expected"):
            loader = Loader(source, [4, 3], batch_size=100, shuffle=True, first_layer=reduce, cache=cache, **small)
            for batch, other in zip(loader, plain, strict=True):
                assert batch.n_id.equal(other.n_id)
                assert batch.edge_index.equal(other.edge_index)
                assert batch.y.equal(other.y)
                assert ("x" in batch) == (reduce != "gcn")
                if reduce != "gcn":
                    assert batch.x.equal(other.x)
                torch.testing.assert_close(batch[name], wanted[batch.n_id], rtol=1e-6, atol=1e-6)
            plain.set_epoch(0)
            if where != "memory" and cache == "lru":
                assert loader.stats()["misses"] > 0
            loader.close()


def layer(kind: str, weighted: bool) -> tuple[nn.Module, str]:
    torch.manual_seed(seed_of(3))
    made: dict[str, tuple[nn.Module, str]] = {
        "SAGE": (pyg.SAGEConv(24, 7), "mean"),
        "SAGE sum": (pyg.SAGEConv(24, 7, aggr="sum", normalize=True, root_weight=False), "sum"),
        "GraphConv": (pyg.GraphConv(24, 7), "sum"),
        "GraphConv mean": (pyg.GraphConv(24, 7, aggr="mean"), "mean"),
        "GCN": (pyg.GCNConv(24, 7), "gcn"),
        "GCN not normalized": (pyg.GCNConv(24, 7, normalize=False), "sum"),
        "GIN": (pyg.GINConv(nn.Sequential(nn.Linear(24, 9), nn.ReLU(), nn.Linear(9, 7)), train_eps=True), "sum"),
    }
    return made[kind]


KINDS = [
    *(
        (kind, False)
        for kind in ("SAGE", "SAGE sum", "GraphConv", "GraphConv mean", "GCN", "GCN not normalized", "GIN")
    ),
    *((kind, True) for kind in ("GraphConv", "GraphConv mean", "GCN", "GCN not normalized")),
]


@pytest.mark.parametrize("fast", [False, True], ids=["plain", "accelerated"])
@pytest.mark.parametrize(("kind", "weighted"), KINDS, ids=str)
def test_equals_the_layer_over_all_neighbors(data: Data, tmp_path: Path, kind: str, weighted: bool, fast: bool) -> None:
    """Outputs of every node of a batch, and the gradients of all parameters, are those of the whole graph."""
    conv, reduce = layer(kind, weighted)
    reference = copy.deepcopy(conv)
    if fast:
        accelerate(conv)
    report = precomputed(conv)
    assert report.first_layer == reduce
    weight = "edge_weight" if weighted else None
    extra = {"edge_weight": data.edge_weight} if weighted else {}
    whole = reference(data.x, data.edge_index, **extra)
    for source in sources(data, tmp_path, reduce, weight).values():
        batch = next(iter(Loader(source, [3, 2], batch_size=60, first_layer=report.first_layer)))
        extra = {"edge_weight": batch.edge_weight} if weighted else {}
        rows = batch.x if reduce != "gcn" else batch.x_gcn
        out = conv(rows, batch.edge_index, **extra)
        torch.testing.assert_close(out, whole[batch.n_id], rtol=1e-4, atol=1e-5)
        direction = torch.randn(out.shape, generator=torch.Generator().manual_seed(seed_of(5)))
        found = torch.autograd.grad((out * direction).sum(), list(conv.parameters()))
        wanted = torch.autograd.grad(
            (whole[batch.n_id] * direction).sum(), list(reference.parameters()), retain_graph=True
        )
        for one, other in zip(found, wanted, strict=True):
            torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-3)
    extra = {"edge_weight": data.edge_weight} if weighted else {}
    torch.testing.assert_close(conv(data.x, data.edge_index, **extra), whole, rtol=1e-4, atol=1e-5)
    report.undo()
    torch.testing.assert_close(conv(data.x, data.edge_index, **extra), whole, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("trim", [False, True], ids=["whole", "trimmed"])
@pytest.mark.parametrize("fast", [False, True], ids=["plain", "accelerated"])
@pytest.mark.parametrize(("family", "aggr"), [(GraphSAGE, "mean"), (GIN, "add")], ids=str)
def test_models(data: Data, tmp_path: Path, family: Any, aggr: str, fast: bool, trim: bool) -> None:
    """A model of three layers over two hops of all neighbours gives, for the input nodes, what it gives for the whole
    graph; a step of training goes the same way."""
    torch.manual_seed(seed_of(4))
    model = family(24, 16, 3, 5, aggr=aggr)
    reference = copy.deepcopy(model)
    if fast:
        accelerate(model)
    report = precomputed(model)
    source = sources(data, tmp_path, report.first_layer)["store"]
    whole = reference(data.x, data.edge_index)
    batch = next(iter(Loader(source, [-1, -1], batch_size=20, first_layer=report.first_layer)))
    hops = {"num_sampled_nodes_per_hop": batch.num_sampled_nodes, "num_sampled_edges_per_hop": batch.num_sampled_edges}
    out = model(batch.x, batch.edge_index, **(hops if trim else {}))[:20]
    torch.testing.assert_close(out, whole[:20], rtol=1e-4, atol=1e-5)
    found = torch.autograd.grad(out.square().sum(), list(model.parameters()))
    wanted = torch.autograd.grad(whole[:20].square().sum(), list(reference.parameters()))
    for one, other in zip(found, wanted, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-3, atol=1e-3)
    model.eval()
    torch.testing.assert_close(model(data.x, data.edge_index), whole, rtol=1e-4, atol=1e-5)
    again = pickle.loads(pickle.dumps(model))
    torch.testing.assert_close(again(batch.x, batch.edge_index)[:20], whole[:20], rtol=1e-4, atol=1e-5)


def hetero() -> HeteroData:
    rng = np.random.default_rng(seed_of(7))
    data = HeteroData()
    counts = {"paper": 300, "author": 200}
    for node_type, columns in (("paper", 12), ("author", 7)):
        data[node_type].x = torch.from_numpy(rng.standard_normal((counts[node_type], columns), dtype=np.float32))
    for edge_type, edges in (
        (("author", "writes", "paper"), 900),
        (("paper", "cites", "paper"), 1200),
        (("paper", "rev_writes", "author"), 900),
    ):
        ends = [rng.integers(counts[edge_type[end]], size=edges) for end in (0, 2)]
        data[edge_type].edge_index = torch.from_numpy(np.stack(ends))
    return data


class Relational(nn.Module):
    def __init__(self, edge_types: list[Any]) -> None:
        super().__init__()
        self.first = pyg.HeteroConv({edge_type: pyg.SAGEConv((-1, -1), 8) for edge_type in edge_types})
        self.second = pyg.HeteroConv({edge_type: pyg.SAGEConv((-1, -1), 8) for edge_type in edge_types})

    def forward(self, x: Any, edge_index: Any) -> Any:
        h = {key: rows.relu() for key, rows in self.first(x, edge_index).items()}
        return self.second(h, edge_index)["paper"]


class Plain(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = pyg.SAGEConv((-1, -1), 8), pyg.GraphConv((-1, -1), 8)

    def forward(self, x: Any, edge_index: Any) -> Any:
        return self.second(self.first(x, edge_index).relu(), edge_index)


@pytest.mark.parametrize("how", ["HeteroConv", "to_hetero"])
@pytest.mark.parametrize("where", ["memory", "store", "relaid"])
def test_types(tmp_path: Path, how: str, where: str) -> None:
    data = hetero()
    model: Any = Relational(data.edge_types) if how == "HeteroConv" else pyg.to_hetero(Plain(), data.metadata())
    with torch.no_grad():
        model(data.x_dict, data.edge_index_dict)  # makes the lazy parameters
    reference = copy.deepcopy(model)
    report = precomputed(model)
    assert report.first_layer == "mean"
    assert len(report.layers) == 3
    source: Any = propagate(data, "x", progress=False)
    if where != "memory":
        source = propagate(convert(data, tmp_path / "g", **QUIET), "x", **QUIET)
    if where == "relaid":
        source = relayout(source, tmp_path / "r", **QUIET)
    batch = next(iter(Loader(source, [-1], ("paper", torch.arange(40)), batch_size=40, first_layer="mean")))
    assert batch["author", "writes", "paper"].x_mean.shape == (batch["paper"].num_nodes, 7)
    assert "x_mean" not in batch["paper"]
    wanted, found = reference(data.x_dict, data.edge_index_dict), model(batch.x_dict, batch.edge_index_dict)
    if how == "to_hetero":
        wanted, found = wanted["paper"], found["paper"]
    torch.testing.assert_close(found[:40], wanted[:40], rtol=1e-4, atol=1e-5)
    ours = torch.autograd.grad(found[:40].square().sum(), list(model.parameters()), allow_unused=True)
    theirs = torch.autograd.grad(wanted[:40].square().sum(), list(reference.parameters()), allow_unused=True)
    for one, other in zip(ours, theirs, strict=True):
        assert (one is None) == (other is None)
        if one is not None:
            torch.testing.assert_close(one, other, rtol=1e-3, atol=1e-3)
    moved = batch.to("cpu").clone()
    again = model(moved.x_dict, moved.edge_index_dict)
    torch.testing.assert_close((again["paper"] if how == "to_hetero" else again)[:40], found[:40])


def test_narrow_rows_and_copies(data: Data, tmp_path: Path) -> None:
    narrow = copy.copy(data)
    narrow.x = data.x.half()
    conv = pyg.SAGEConv(24, 7)
    wanted = conv(narrow.x.float(), data.edge_index)
    precomputed(conv)
    store = propagate(convert(narrow, tmp_path / "g", **QUIET), "x", **QUIET)
    assert store.tensors["x_mean"].dtype == torch.float16
    batch = next(iter(Loader(store, [3], batch_size=50, first_layer="mean")))
    for one in (batch, batch.clone(), copy.copy(batch)):
        torch.testing.assert_close(conv(one.x.float(), one.edge_index), wanted[one.n_id], rtol=1e-2, atol=1e-2)


def test_rows_that_a_device_would_hold(data: Data, tmp_path: Path) -> None:
    store = propagate(convert(data, tmp_path / "g", **QUIET), "x", **QUIET)
    ids = torch.tensor([3, 700, 1400])
    with Loader(store, [2], first_layer="mean") as loader:
        rows = next(read_rows(loader._engine.source, ids, loader._engine.options))
    assert set(rows) == {"x_mean", "y"}
    assert rows["x_mean"].equal(store["x_mean"][ids])


def test_state_belongs_to_it(data: Data) -> None:
    with_it = Loader(propagate(data, "x", progress=False), [3], first_layer="mean")
    with pytest.raises(InvalidArgumentError, match="first_layer was 'x_mean', is None"):
        Loader(data, [3]).load_state_dict(with_it.state_dict())
    with_it.load_state_dict(with_it.state_dict())


def test_plain_loaders_leave_it_out(data: Data) -> None:
    batch = next(iter(Loader(propagate(data, "x", progress=False), [3])))
    assert "x_mean" not in batch


def test_in_memory_it_goes_stale(data: Data) -> None:
    changing = graph()
    done = propagate(changing, "x", progress=False)
    Loader(done, [2], first_layer="mean").close()
    done.x[3] += 1
    with pytest.raises(InvalidArgumentError, match="computed from another x than the graph has"):
        Loader(done, [2], first_layer="mean")
    done = propagate(done, "x", progress=False)
    done.edge_index = done.edge_index.flip(0)
    with pytest.raises(InvalidArgumentError, match="computed from another edge_index"):
        Loader(done, [2], first_layer="mean")
    assert propagate(data, "x", hops=2, progress=False).x_mean2.shape == (1500, 24)


def test_wrong_loaders(data: Data) -> None:
    done = propagate(propagate(data, "x", progress=False), "x", reduce="gcn", name="other", progress=False)
    for options, error, message in (
        (
            {"first_layer": "sum"},
            InvalidArgumentError,
            "is not an aggregate of the graph: compute it",
        ),
        ({"first_layer": "x"}, InvalidArgumentError, "the graph has 'x_mean' .mean of 'x' over in-neighbours"),
        ({"first_layer": 3}, DTypeError, "first_layer must be the name of a tensor"),
        ({"first_layer": "mean", "time_attr": "y"}, InvalidArgumentError, "cannot be used with time_attr"),
    ):
        with pytest.raises(error, match=message):
            Loader(done, [2], **options)  # type: ignore[arg-type]
    with pytest.raises(InvalidArgumentError, match="cannot be used with a RandomWalk"):
        Loader(done, [RandomWalk(3, 2, 2)], first_layer="mean")
    with pytest.raises(InvalidArgumentError, match="cannot be used with exclude_seed_edges"):
        freshgo.LinkLoader(done, [2], exclude_seed_edges=True, first_layer="mean")
    link = next(iter(freshgo.LinkLoader(done, [2], batch_size=5, first_layer="mean")))
    assert link.x_mean.shape == link.x.shape


@pytest.mark.parametrize(
    ("made", "message"),
    [
        (lambda: GAT(24, 8, 2), "GATConv, cannot be precomputed: its coefficients depend on parameters"),
        (lambda: GraphSAGE(24, 8, 2, aggr="max"), "aggr='max' is not linear in the rows"),
        (lambda: pyg.SAGEConv(24, 8, project=True), "project=True maps rows by parameters"),
        (lambda: pyg.GCNConv(24, 8, add_self_loops=False), "add_self_loops=False"),
        (lambda: pyg.GCNConv(24, 8, improved=True), "improved=True"),
        (lambda: pyg.RGCNConv(24, 8, 3), "make the relations edge types"),
        (lambda: pyg.TAGConv(24, 8), "it is none of SAGEConv"),
        (lambda: pyg.SAGEConv(24, 8, flow="target_to_source"), "flow='target_to_source'"),
        (lambda: nn.Linear(3, 3), "Linear has no message-passing layer"),
    ],
)
def test_layers_that_cannot(made: Any, message: str) -> None:
    with pytest.raises(InvalidArgumentError, match=message):
        precomputed(made())


class Branches(nn.Module):
    """Two first layers, registered behind the last one."""

    def __init__(self, other: Any = None) -> None:
        super().__init__()
        self.last = pyg.SAGEConv(16, 5)
        self.a, self.b = pyg.SAGEConv(24, 8), other or pyg.SAGEConv(24, 8)

    def forward(self, x: Tensor, edge_index: Tensor, scale: float = 0.5) -> Tensor:
        h = torch.cat([self.a(x, edge_index), self.b(x, edge_index)], 1).relu()
        return self.last(h * scale + torch.ones(16), edge_index)


def test_all_layers_that_come_first_in_a_model_written_by_hand(data: Data) -> None:
    model, attributes = Branches(), set(vars(Branches()))
    report = precomputed(model)
    assert list(report.layers) == ["a", "b"] and set(vars(model)) == attributes
    whole = model(data.x, data.edge_index)
    loader = Loader(propagate(data, "x", progress=False), [-1], batch_size=20, first_layer=report.first_layer)
    batch = next(iter(loader))
    torch.testing.assert_close(model(batch.x, batch.edge_index)[:20], whole[:20], rtol=1e-4, atol=1e-5)
    with pytest.raises(InvalidArgumentError, match="the first layer, GATConv, cannot be precomputed"):
        precomputed(Branches(pyg.GATConv(24, 8)))


class Skip(nn.Module):
    """A GCN with what reads its input beside the first layer."""

    def __init__(self, skip: bool) -> None:
        super().__init__()
        self.conv, self.last, self.lin = pyg.GCNConv(24, 8), pyg.GCNConv(8, 5), nn.Linear(24, 8)
        self.skip = skip

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        h = self.conv(x.float(), edge_index)
        h = h + self.lin(x) if self.skip else h.view(x.size(0), -1)
        return self.last(h.relu(), edge_index)


def test_what_else_reads_the_rows_that_a_gcn_gets() -> None:
    assert precomputed(Skip(False)).first_layer == "gcn"
    model = Skip(True)
    with pytest.raises(InvalidArgumentError, match="gets x_gcn in the place of x, and lin of Skip reads x too"):
        precomputed(model)
    assert type(model.conv) is pyg.GCNConv
    with pytest.raises(InvalidArgumentError, match="lin of Skip reads x too"):
        precomputed(model, layers=[model.conv])


def test_wrong_models(data: Data) -> None:
    with pytest.raises(DTypeError, match=r"model must be a torch\.nn\.Module, got int"):
        precomputed(3)  # type: ignore[arg-type]
    mixed = pyg.HeteroConv({("a", "to", "a"): pyg.SAGEConv(4, 4), ("a", "too", "a"): pyg.GraphConv(4, 4)})
    with pytest.raises(InvalidArgumentError, match="need 'mean' and 'sum'"):
        precomputed(mixed)
    done = propagate(data, "x", progress=False)
    batch = next(iter(Loader(done, [3], batch_size=40, first_layer="mean")))

    def call(conv: nn.Module, x: Tensor, edge_index: Tensor, **options: Any) -> None:
        precomputed(conv)
        conv(x, edge_index, **options)

    for conv, x, edge_index, options, message in (
        (
            pyg.SAGEConv(24, 8, aggr="sum"),
            batch.x,
            batch.edge_index,
            {},
            "needs first_layer='sum', the batch has 'x_mean'",
        ),
        (
            pyg.SAGEConv(24, 8),
            batch.x + 1,
            batch.edge_index,
            {},
            "got targets of shape .* that are not the batch's 'x'",
        ),
        (pyg.SAGEConv(24, 8), batch.x, batch.edge_index.clone(), {}, "other edges than its edge_index"),
        (
            pyg.GraphConv(24, 8, aggr="mean"),
            batch.x,
            batch.edge_index,
            {"edge_weight": batch.edge_weight},
            "was computed without weights",
        ),
    ):
        with pytest.raises(InvalidArgumentError, match=message):
            call(conv, x, edge_index, **options)


@pytest.mark.parametrize("family", [GraphSAGE, GCN, GIN, GAT])
def test_a_model_that_does_not_use_it(data: Data, family: Any) -> None:
    """It would train without its outermost hop; other modules, and models that use it, are called as ever."""
    hooks = torch.nn.modules.module._global_forward_pre_hooks
    before = len(hooks)
    done = propagate(propagate(data, "x", progress=False), "x", reduce="gcn", progress=False)
    reduce = "gcn" if family is GCN else "mean"
    loader = Loader(done, [3, 3], batch_size=40, first_layer=reduce)
    batch = next(iter(loader))
    x = batch[f"x_{reduce}"] if family is GCN else batch.x
    model = family(24, 8, 3)
    nn.Linear(24, 8)(x)
    for fast in (False, True):
        if fast:
            accelerate(model)
        with pytest.raises(InvalidArgumentError, match=rf"{reduce}' stands for it.*freshgo.nn.precomputed\(model\)"):
            model(x, batch.edge_index)
    with pytest.raises(InvalidArgumentError, match=f"^{family.__name__} was called over .* stands for it"):
        torch.compile(model, backend="eager")(x, batch.edge_index)
    moved = batch.clone()
    with pytest.raises(InvalidArgumentError, match="stands for it"):
        model(moved[f"x_{reduce}"].double() if family is GCN else moved.x, moved.edge_index)
    assert len(hooks) == before + 1
    whole = family(24, 8, 3)
    whole(data.x, data.edge_index)
    plain = next(iter(Loader(data, [3, 3], batch_size=40)))
    whole(plain.x, plain.edge_index)
    if family in (GCN, GraphSAGE):
        precomputed(model)
        model(x, batch.edge_index)
        assert len(hooks) == before
    del loader, batch, x, moved
    gc.collect()
    assert len(hooks) == before


def test_types_in_a_model_that_does_not_use_it() -> None:
    done = propagate(hetero(), "x", progress=False)
    loader = Loader(done, [3], ("paper", None), batch_size=40, first_layer="mean")
    batch = next(iter(loader))
    conv = pyg.HeteroConv({name: pyg.SAGEConv((-1, -1), 4) for name in batch.edge_types})
    with pytest.raises(InvalidArgumentError, match="SAGEConv was called over a batch whose first layer is precomputed"):
        conv(batch.x_dict, batch.edge_index_dict)
    precomputed(conv)
    conv(batch.x_dict, batch.edge_index_dict)


def test_a_model_may_be_named(data: Data) -> None:
    class Own(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.last, self.first = pyg.SAGEConv(8, 3), pyg.SAGEConv(24, 8)

        def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
            out: Tensor = self.last(self.first(x, edge_index).relu(), edge_index)
            return out

    torch.manual_seed(seed_of(6))
    model = Own()
    wanted = model(data.x, data.edge_index)
    batch = next(iter(Loader(propagate(data, "x", progress=False), [-1], batch_size=40, first_layer="mean")))
    wrong, found = copy.deepcopy(model), copy.deepcopy(model)
    precomputed(wrong, layers=[wrong.last])
    with pytest.raises(InvalidArgumentError, match=r"stands for it.*layers=\[...\] names another"):
        wrong(batch.x, batch.edge_index)
    assert list(precomputed(found).layers) == ["first"]  # although it is registered last
    torch.testing.assert_close(found(batch.x, batch.edge_index)[:40], wanted[:40], rtol=1e-4, atol=1e-5)
    precomputed(model, layers=[model.first])
    torch.testing.assert_close(model(batch.x, batch.edge_index)[:40], wanted[:40], rtol=1e-4, atol=1e-5)
    assert GCN(24, 8, 2) is not None
