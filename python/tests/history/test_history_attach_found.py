"""attach(model) on models that people write: the layers it finds, and what it says of models that have none to find."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from graphs import hetero_graph, num_nodes, relations
from history_models import GRAPH, mlp, small_graph
from torch import Tensor, nn

from freshgo import History, Loader, convert, errors
from freshgo.nn import accelerate, precomputed

pyg = pytest.importorskip("torch_geometric.nn")

HOPS = [4, 3, 3]
HOW: dict[str, Any] = {"batch_size": 40, "seed": 5, "shuffle": True}


class Layers(nn.Module):
    """A map first, then layers with norms and dropout between them, then a head."""

    def __init__(self, make: Callable[[int, int], Any], named: str | None = None) -> None:
        super().__init__()
        self.start, self.head = nn.Linear(12, 8), nn.Sequential(nn.Linear(8, 8), nn.ELU(), nn.Linear(8, 5))
        self.convs = nn.ModuleDict({f"conv{i}": make(8, 8) for i in range(3)})
        self.norms = nn.ModuleList([nn.BatchNorm1d(8), nn.LayerNorm(8)])
        self.named = named

    def forward(self, x: Tensor, edge_index: Tensor, edge_attr: Tensor | None = None) -> Tensor:
        more = {} if self.named is None else {self.named: edge_attr}
        x = self.start(x).tanh()
        for i, conv in enumerate(self.convs.values()):
            x = conv(x, edge_index, **more)
            if i < 2:
                x = F.dropout(F.relu(self.norms[i](x)), 0.2, self.training)
        return self.head(x)


class Typed(nn.Module):
    def __init__(self, make: Callable[[], Any]) -> None:
        super().__init__()
        self.start = nn.ModuleDict({name: nn.Linear(TYPED[name]["x"].shape[1], 8) for name in WITH_X})
        self.others = nn.ModuleDict({name: nn.Embedding(num_nodes(TYPED)[name], 8) for name in WITHOUT})
        self.convs, self.head = nn.ModuleList(make() for _ in HOPS), nn.Linear(8, 3)

    def forward(self, x_dict: dict[str, Tensor], n_id_dict: dict[str, Tensor], edge_index_dict: Any) -> Tensor:
        h = {name: lin(x_dict[name].float()).relu() for name, lin in self.start.items()}
        h |= {name: table(n_id_dict[name]) for name, table in self.others.items()}
        edges = {key: edge_index_dict[key] for key in KEYS}
        for conv in self.convs:
            h = {name: rows.relu() for name, rows in conv(h, edges).items()}
        return self.head(h["paper"])


class Each(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.own, self.conv = nn.Linear(8, 8), pyg.SAGEConv((8, 8), 8, root_weight=False)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return self.own(x) + self.conv(x, edge_index)


TYPED: Any = hetero_graph(200)
REACHED = sorted({key[2] for key in relations(TYPED)})
KEYS = [key for key in relations(TYPED) if key[0] in REACHED]
WITH_X = [name for name in REACHED if "x" in TYPED[name]]
WITHOUT = [name for name in REACHED if name not in WITH_X]

FLAT: dict[str, Callable[[], Layers]] = {
    "sage": lambda: Layers(pyg.SAGEConv),
    "gcn": lambda: Layers(pyg.GCNConv),
    "gin": lambda: Layers(lambda a, b: pyg.GINConv(mlp(a, b))),
    "gat": lambda: Layers(lambda a, b: pyg.GATv2Conv(a, b, edge_dim=4), "edge_attr"),
    "gine": lambda: Layers(lambda a, b: pyg.GINEConv(mlp(a, b), edge_dim=4), "edge_attr"),
}


def trained(model: nn.Module, call: Any, graph: Any, inputs: Any, attach: Any, **options: Any) -> list[Any]:
    """Losses, gradients and figures of an epoch with a history."""
    keep = options.get("keep", "rows")
    levels = 1 if keep == "aggregates" else None  # learned rows: nothing is kept unless a level is named
    history = History(t_stale=6, **{"keep": keep, "levels": levels, **options})
    with Loader(graph, HOPS, inputs, history=history, **HOW) as loader:
        before = {name: value.clone() for name, value in model.state_dict().items()}
        attach(history, model)
        assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
        assert all(module.training for module in model.modules())
        torch.manual_seed(2)
        seen: list[Any] = []
        for batch in loader:
            model.zero_grad()
            loss = call(model, batch).square().mean()
            loss.backward()
            history.update()
            seen += [loss.item(), *(of.grad.clone() for of in model.parameters() if of.grad is not None)]
        stats = history.stats()
        seen.append([(of["hits"], of["admitted"]) for of in stats["layers"]])
        history.detach()
    assert any(hits for hits, _ in seen[-1])
    return seen


def flat_rows(model: Any, batch: Any) -> Any:
    more = {} if model.named is None else {model.named: batch[model.named]}
    return model(batch.x, batch.edge_index, **more)[: batch.batch_size]


def typed_rows(model: Any, batch: Any) -> Any:
    return model(batch.x_dict, batch.n_id_dict, batch.edge_index_dict)[: batch["paper"].batch_size]


def assert_same(found: list[Any], want: list[Any]) -> None:
    assert len(found) == len(want)
    for a, b in zip(found, want, strict=True):
        assert torch.equal(a, b) if isinstance(a, Tensor) else a == b


@pytest.mark.parametrize(("kind", "keep"), [*((kind, "rows") for kind in FLAT), ("sage", "aggregates")])
def test_finds_the_layers_that_one_would_name(kind: str, keep: Any) -> None:
    models = []
    for _ in range(2):
        torch.manual_seed(1)
        models.append(FLAT[kind]())
    found = trained(models[0], flat_rows, GRAPH, None, lambda h, m: h.attach(m), keep=keep)
    named = trained(models[1], flat_rows, GRAPH, None, lambda h, m: h.attach(m, m.convs.values()), keep=keep)
    assert_same(found, named)


@pytest.mark.parametrize("kind", ["sage", "hgt", "to_hetero"])
def test_finds_layers_over_all_types(kind: str, tmp_path: Any) -> None:
    make = {
        "sage": lambda: pyg.HeteroConv({key: pyg.SAGEConv((8, 8), 8) for key in KEYS}),
        "hgt": lambda: pyg.HGTConv(8, 8, (REACHED, KEYS), heads=2),
        "to_hetero": lambda: pyg.to_hetero(Each(), (REACHED, KEYS)),
    }[kind]
    with convert(TYPED, tmp_path / "graph", progress=False) as store:
        seen = []
        for attach in (lambda h, m: h.attach(m), lambda h, m: h.attach(m, m.convs)):
            torch.manual_seed(1)
            seen.append(trained(Typed(make), typed_rows, store, ("paper", np.arange(150)), attach))
    assert_same(*seen)


class Shared(nn.Module):
    """One layer that is called three times."""

    def __init__(self) -> None:
        super().__init__()
        self.start, self.conv, self.head, self.named = nn.Linear(12, 8), pyg.SAGEConv(8, 8), nn.Linear(8, 5), None

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        x = self.start(x)
        for _ in range(3):
            x = self.conv(x, edge_index).relu()
        return self.head(x)


@pytest.mark.parametrize("keep", ["rows", "aggregates"])
def test_a_layer_that_is_called_again_is_a_layer_for_each_call(keep: Any) -> None:
    histories: list[History] = []

    def by_hand(model: Any, batch: Any) -> Any:
        h = model.start(batch.x)
        for block in batch.blocks():
            h = histories[-1](h, block, model.conv).relu()
        return model.head(h)[: batch.batch_size]

    seen = []
    for call, attach in ((flat_rows, lambda h, m: h.attach(m)), (by_hand, lambda h, _: histories.append(h))):
        torch.manual_seed(1)
        seen.append(trained(Shared(), call, GRAPH, None, attach, keep=keep))
    assert_same(*seen)
    model, history = Shared(), History()
    with Loader(GRAPH, HOPS, history=history, **HOW) as loader:
        history.attach(model)
        batch = next(iter(loader))
        with pytest.raises(RuntimeError):
            model(batch.x[:, 1:], batch.edge_index)  # it does not come to the layers
        assert model(batch.x, batch.edge_index).shape == (40, 5)
        model.conv(torch.randn(batch.num_nodes, 8), torch.randint(3, (2, 9)))
        assert model(batch.x, batch.edge_index).shape == (40, 5)


def test_accelerated_and_precomputed_models_are_taken() -> None:
    accelerated, first = FLAT["sage"](), Plain()
    accelerate(accelerated)
    report = precomputed(first)
    for model in (accelerated, first):
        history = History()
        with Loader(GRAPH, HOPS, history=history, **HOW):
            history.attach(model)
            history.detach()
    report.undo()


# What cannot be attached.


class Plain(nn.Module):
    """Two layers; ``change`` computes the rows from the model, the features and the edges."""

    def __init__(self, change: Callable[..., Any] | None = None, conv: Any = None, **parts: nn.Module) -> None:
        super().__init__()
        self.a, self.b, self.c = conv or pyg.SAGEConv(12, 12), pyg.SAGEConv(12, 12), pyg.SAGEConv(12, 12)
        self.parts, self.change = nn.ModuleDict(parts), change

    def forward(self, x: Tensor, edge_index: Tensor) -> Any:
        if self.change is None:
            return self.b(self.a(x, edge_index).relu(), edge_index)
        return self.change(self, x, edge_index)


class Others(nn.Module):
    def __init__(self, *names: str) -> None:
        super().__init__()
        self.conv = pyg.SAGEConv(12, 5)
        self.forward = {"data": self._data, "z": self._z}[names[0]]

    def _data(self, data: Any) -> Any:
        return self.conv(data.x, data.edge_index)

    def _z(self, x: Tensor, edge_index: Tensor, z: Tensor) -> Any:
        return self.conv(x, edge_index) + z


def jumping(m: Any, x: Tensor, e: Tensor) -> Any:
    one = m.a(x, e)
    two = m.b(one, e)
    return m.parts["jump"]([one, two, m.c(two, e)])


CANNOT: dict[str, tuple[Callable[[], Any], str]] = {
    "residual": (
        lambda: Plain(lambda m, x, e: m.b(m.a(x, e) + x, e)),
        r"`.*`\): add takes rows made of the features and what layer 1 computes, .*: call h = history\(h, block\)",
    ),
    "first rows": (
        lambda: Plain(lambda m, x, e: m.b(m.a(x, e), e) + x),
        "rows made of the features and what layer 2 computes, .* no history can serve this model",
    ),
    "jumping": (
        lambda: Plain(jumping, jump=pyg.JumpingKnowledge("cat")),
        "cat takes rows made of what layer 1 computes and what layer 2 computes and what layer 3 computes",
    ),
    "branches": (
        lambda: Plain(lambda m, x, e: m.a(x, e) + m.b(x, e)),
        r"layer 2, b \(SAGEConv\), reads rows made of the features, expected what layer 1 computes",
    ),
    "two inputs": (
        lambda: Plain(lambda m, x, e: m.parts["g"](m.a(x, e), x, e), g=pyg.GCN2Conv(12, 0.1)),
        r"layer 2, parts.g \(GCN2Conv\), is not called as layer\(h, edge_index",
    ),
    "pairs": (lambda: Plain(lambda m, x, e: m.a((x, x), e)), "is given rows of sources and of targets"),
    "no last": (
        lambda: Plain(lambda m, x, e: (m.a(x, e), m.b(m.a(x, e), e))),
        "what forward\\(\\) returns is made of what layer 1 computes|expected what layer",
    ),
    "no layer": (lambda: Plain(lambda m, x, e: m.a.lin_l(x)), "it calls no message-passing layer"),
}
NOT_FOUND: dict[str, tuple[Callable[[], Any], str]] = {
    "mean": (lambda: Plain(lambda m, x, e: m.b(m.a(x, e) - x.mean(0), e)), "mean mixes rows"),
    "softmax": (lambda: Plain(lambda m, x, e: m.b(m.a(x, e).softmax(0), e)), "softmax mixes rows"),
    "branch": (lambda: Plain(lambda m, x, e: m.a(x, e) if x.sum() > 0 else m.b(x, e)), "sum mixes rows"),
    "edges": (lambda: Plain(lambda m, x, e: m.a(x, e[:, ::2])), "getitem reads edge_index"),
    "lazy": (lambda: Plain(None, pyg.SAGEConv(-1, 12)), "is uninitialized: call the model once before"),
    "batch": (
        lambda: Others("data"),
        r"forward\(\) takes 'data', expected edge_index, the name of a tensor .*edge_attr",
    ),
    "other": (lambda: Others("z"), r"forward\(\) takes 'z'"),
}


@pytest.mark.parametrize("kind", [*CANNOT, *NOT_FOUND])
def test_says_why_a_model_has_no_layers_to_attach_to(kind: str) -> None:
    make, words = {**CANNOT, **NOT_FOUND}[kind]
    history, model = History(), make()
    with Loader(GRAPH, HOPS, history=history, **HOW):
        with pytest.raises(errors.InvalidArgumentError, match=words) as error:
            history.attach(model)
        assert ("attach(model, layers=[model." in str(error.value)) == (kind in NOT_FOUND)
        if kind not in ("no layer", "lazy", "batch", "other", "no last"):
            assert "test_history_attach_found.py:" in str(error.value)
        assert kind == "lazy" or not any(module._forward_pre_hooks for module in model.modules())
        history.attach(pyg.GraphSAGE(12, 8, 3, 5))  # nothing is left attached


def test_layers_of_one_node_type() -> None:
    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv = pyg.SAGEConv((-1, -1), 8)

        def forward(self, x_dict: dict[str, Tensor], edge_index_dict: Any) -> Any:
            key = next(key for key in edge_index_dict if key[0] in x_dict and key[2] in x_dict and key[0] == key[2])
            return self.conv(x_dict[key[0]].float(), edge_index_dict[key])

    model, history = Model(), History()
    key = next(key for key in KEYS if key[0] == key[2] and "x" in TYPED[key[0]])
    model.conv(torch.randn(3, TYPED[key[0]]["x"].shape[1]), torch.zeros(2, 1, dtype=torch.long))
    with Loader(TYPED, HOPS, ("paper", np.arange(20)), history=history, **HOW):
        with pytest.raises(errors.InvalidArgumentError, match=r"is called with the rows of one node type, '\w+': "):
            history.attach(model)


def test_the_loader_comes_first() -> None:
    model, history = Plain(), History()
    with pytest.raises(
        errors.InvalidArgumentError, match=r"make the loader first, .* attach\(model, layers=\[model\.a, model\.b, "
    ):
        history.attach(model)
    with Loader(small_graph(), [3, 3], history=history, **HOW):
        history.attach(model)
