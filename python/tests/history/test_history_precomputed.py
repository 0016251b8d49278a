"""A history over a precomputed first layer: the layers above it are the history's, and see no row that is not read."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from history_models import GRAPH, loss_of
from seeds import seed as seed_of
from torch import Tensor, nn

from freshgo import Loader, convert, errors, propagate
from freshgo._batch.blocks import levels_of
from freshgo.history import History

pytest.importorskip("torch_geometric")

import torch_geometric.nn as pyg

from freshgo.nn import accelerate, precomputed

pytestmark = pytest.mark.usefixtures("no_warnings")

OPTIONS: dict[str, Any] = {"batch_size": 40, "seed": 5, "shuffle": True}
PARTS = {name: torch.as_tensor(GRAPH[name]) for name in ("edge_index", "x", "y")}
REDUCE = {"sage": "mean", "gcn": "gcn"}


def model_of(kind: str, dropout: float = 0.3) -> Any:
    torch.manual_seed(seed_of(3))
    return {"sage": pyg.GraphSAGE, "gcn": pyg.GCN}[kind](12, 8, 3, 5, dropout=dropout, norm="BatchNorm")


class Reference(nn.Module):
    """The model, its first layer by hand over rows of features that hold what was added up, for the nodes that are
    read; the others are zeros."""

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.model = model

    def first(self, h: Tensor) -> Tensor:
        conv = self.model.convs[0]
        if isinstance(conv, pyg.GCNConv):
            return conv.lin(h) + conv.bias  # type: ignore[no-any-return]
        own, mean = h.tensor_split(2, dim=1)
        return conv.lin_l(mean) + conv.lin_r(own)  # type: ignore[no-any-return]

    def between(self, level: int, h: Tensor) -> Tensor:
        return self.model.dropout(self.model.norms[level](h).relu())  # type: ignore[no-any-return]

    def forward(self, x: Tensor, edge_index: Tensor, levels: Any) -> Tensor:
        read = slice(None) if levels is None else levels.nodes[0]
        below = self.between(0, self.first(x[read]))
        h = torch.zeros(x.size(0), 8).index_put((torch.arange(x.size(0))[read],), below)
        h = self.between(1, self.model.convs[1](h, edge_index))
        return self.model.convs[2](h, edge_index)  # type: ignore[no-any-return]


def train(model: nn.Module, loader: Any, history: History, call: Any) -> list[float]:
    torch.manual_seed(seed_of(7))
    optimizer = torch.optim.Adam(model.parameters(), 0.01)
    losses = []
    for _ in range(3):
        for batch in loader:
            targets = batch["a"] if hasattr(batch, "node_types") else batch
            loss = loss_of(call(batch), targets)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            history.update()
            losses.append(float(loss.detach()))
    return losses


@pytest.mark.parametrize("kind", ["sage", "gcn"])
@pytest.mark.parametrize("keep", ["aggregates", "rows"])
@pytest.mark.parametrize("where", ["memory", "store"])
def test_equals_the_layers_above_it(tmp_path: Path, kind: str, keep: str, where: str) -> None:
    """To the last bit, with norms and dropout between the layers, for the same rows read and kept."""
    graph: Any = propagate(PARTS, "x", reduce=REDUCE[kind], progress=False)
    made = graph[f"x_{REDUCE[kind]}"]
    wide = made.clone() if kind == "gcn" else torch.cat([PARTS["x"], made], 1)
    if where == "store":
        stored = convert(PARTS, tmp_path / "g", memory="64MiB", progress=False)
        graph = propagate(stored, "x", reduce=REDUCE[kind], memory="64MiB", progress=False)
        with Loader(graph, [1], batch_size=300, first_layer=REDUCE[kind]) as whole:  # its sums round differently
            batch = next(iter(whole))
            rows = batch.x_gcn if kind == "gcn" else torch.cat([batch.x, batch.x_mean], 1)
            wide = torch.empty_like(wide).index_copy_(0, batch.n_id, rows)
    dropout = 0.3 if keep == "aggregates" else 0.0  # rows of a model of PyG are kept before dropout
    options: dict[str, Any] = {"t_stale": 9, "keep": keep, "memory": "1MiB"}
    ours, history = model_of(kind, dropout), History(**options)
    assert precomputed(ours).first_layer == REDUCE[kind]
    loader = Loader(graph, [3, 3], history=history, first_layer=REDUCE[kind], **OPTIONS)
    history.attach(ours)
    found = train(ours, loader, history, lambda b: ours(b.x if "x" in b else b.x_gcn, b.edge_index))

    if keep == "aggregates":  # whose level must be named, as the layer below it is one of the model
        options |= {"levels": 1, "sample_error": 0.0}
    theirs, other = Reference(model_of(kind, dropout)), History(**options)
    plain = Loader({**PARTS, "x": wide}, [3, 3], history=other, **OPTIONS)
    other.attach(theirs, layers=list(theirs.model.convs)[1:])
    wanted = train(theirs, plain, other, lambda b: theirs(b.x, b.edge_index, levels_of(b)))
    assert found == wanted
    mine, its = history.stats(), other.stats()
    for key in ("layers", "rows_saved", "edges_saved"):
        assert mine[key] == its[key]
    assert mine["layers"][0]["hits"] > 100
    assert mine["bytes_saved"] == mine["rows_saved"] * wide.size(1) * 4
    if kind == "gcn":  # sampled, the degrees of the outermost nodes are others
        return
    ours.eval()  # and plain batches, without a history
    with Loader(graph, [-1, -1], batch_size=40, first_layer=REDUCE[kind]) as plain_batches, torch.no_grad():
        batch = next(iter(plain_batches))
        out = ours(batch.x if "x" in batch else batch.x_gcn, batch.edge_index)[:40]
        whole_graph = ours(PARTS["x"], PARTS["edge_index"])[batch.n_id[:40]]
    torch.testing.assert_close(out, whole_graph, rtol=1e-4, atol=1e-5)


def typed() -> dict[Any, Any]:
    rng = torch.Generator().manual_seed(seed_of(4))
    nodes: dict[Any, Any] = {
        "a": {"x": torch.randn(200, 6, generator=rng)},
        "b": {"x": torch.randn(150, 5, generator=rng)},
    }
    nodes["a"]["y"] = torch.randint(5, (200,), generator=rng)
    for source, name, target in (("a", "to", "b"), ("b", "back", "a"), ("a", "knows", "a")):
        ends = [torch.randint(len(nodes[of]["x"]), (500,), generator=rng) for of in (source, target)]
        nodes[source, name, target] = {"edge_index": torch.stack(ends)}
    return nodes


class Relational(nn.Module):
    def __init__(self, edge_types: list[Any]) -> None:
        super().__init__()
        torch.manual_seed(seed_of(1))
        widths = [{"a": 6, "b": 5}, {"a": 8, "b": 8}, {"a": 8, "b": 8}]
        self.convs = nn.ModuleList(
            pyg.HeteroConv({key: pyg.SAGEConv((of[key[0]], of[key[2]]), 8) for key in edge_types}) for of in widths
        )

    def forward(self, batch: Any, history: History | None = None) -> Tensor:
        h = self.convs[0](batch.x_dict, batch.edge_index_dict)
        for conv, block in zip(list(self.convs)[1:], batch.blocks(), strict=True):
            h = {of: rows.relu() for of, rows in h.items()}
            h = conv(h, batch.edge_index_dict) if history is None else history(h, block, conv)
        return h["a"][: batch["a"].batch_size]


@pytest.mark.parametrize("fast", [False, True], ids=["plain", "accelerated"])
def test_types(fast: bool) -> None:
    """Attached with all layers, with those above the first, and by hand: one training."""
    graph, losses, saved = propagate(typed(), "x", progress=False), [], []
    for way in ("all", "above", "by hand"):
        model = Relational([key for key in typed() if isinstance(key, tuple)])
        if fast:
            accelerate(model)
        precomputed(model, layers=list(model.convs[0].convs.values()))  # type: ignore[union-attr,operator]
        history = History(t_stale=9, keep="aggregates", memory="1MiB")
        loader = Loader(graph, [3, 3], ("a", None), history=history, first_layer="mean", **OPTIONS)
        if way != "by hand":
            history.attach(model, layers=list(model.convs)[0 if way == "all" else 1 :])
        given = history if way == "by hand" else None
        torch.manual_seed(seed_of(7))
        losses.append(train(model, loader, history, lambda batch: model(batch, given)))  # noqa: B023
        saved.append(history.stats()["bytes_saved"])
        assert history.stats()["layers"][0]["hits"] > 100
    assert losses[0] == losses[1] == losses[2]
    assert saved[0] == saved[1] == saved[2] > 0


def test_models_that_do_not_fit() -> None:
    graph = propagate(PARTS, "x", progress=False)
    for layers, hops, message in (
        (3, [3, 3], "SAGEConv was called over a batch whose first layer is precomputed: 'x_mean' stands for it"),
        (4, [3, 3], "4 message-passing layers, the loader samples 2 hops .num_neighbors. and has first_layer="),
    ):
        history = History(t_stale=9, keep="aggregates", memory="1MiB")
        loader = Loader(graph, hops, history=history, first_layer="mean", **OPTIONS)
        model = pyg.GraphSAGE(12, 8, layers, 5)
        if layers == 4:
            precomputed(model)
        history.attach(model)
        batch = next(iter(loader))
        with pytest.raises(errors.InvalidArgumentError, match=message):
            model(batch.x, batch.edge_index)
    with pytest.raises(errors.InvalidArgumentError, match="the loader samples 2 hops"):
        Loader(graph, [3, 3], history=History(keep="aggregates", levels=2), first_layer="mean")
