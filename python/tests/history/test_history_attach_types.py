"""History attached to layers over all types of a graph: the numbers of ``history(h, block)``, to the last bit."""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from graphs import Graph, hetero_graph, num_nodes, relations
from seeds import seed as seed_of
from torch import Tensor, nn

from freshgo import History, Loader, convert, errors
from freshgo._batch.blocks import levels_of
from freshgo.nn import accelerate

pyg = pytest.importorskip("torch_geometric.nn")

HOPS = [4, 3, 3]
WIDTH = 12
OPTIONS: dict[str, Any] = {"batch_size": 60, "seed": 3, "shuffle": True}
INPUTS = {"paper": "train", "author": np.arange(40)}


@pytest.fixture(scope="module")
def typed() -> Graph:
    return hetero_graph(200)


def reached(graph: Graph) -> list[Any]:
    """The relations that begin at a type at which one ends, so that every layer has rows of it."""
    return [key for key in relations(graph) if key[0] != "none"]


def sage(graph: Graph) -> nn.Module:
    return pyg.HeteroConv({key: pyg.SAGEConv((WIDTH, WIDTH), WIDTH) for key in reached(graph)}, aggr="mean")


def gat(graph: Graph) -> nn.Module:
    convs = {
        key: pyg.GATConv((WIDTH, WIDTH), WIDTH, add_self_loops=False, edge_dim=1 if key[1] == "writes" else None)
        for key in relations(graph)
    }
    return pyg.HeteroConv(convs)


def hgt(graph: Graph) -> nn.Module:
    return pyg.HGTConv(WIDTH, WIDTH, (list(num_nodes(graph)), relations(graph)), heads=2)


class Each(nn.Module):
    """A layer that ``to_hetero`` can make: a row of its own, and the mean over a relation's neighbours."""

    def __init__(self) -> None:
        super().__init__()
        self.own, self.conv = nn.Linear(WIDTH, WIDTH), pyg.SAGEConv((WIDTH, WIDTH), WIDTH, root_weight=False)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return self.own(x) + self.conv(x, edge_index)


def transformed(graph: Graph) -> nn.Module:
    return pyg.to_hetero(Each(), ([t for t in num_nodes(graph) if t != "none"], reached(graph)))


LAYERS: dict[str, Callable[[Graph], nn.Module]] = {
    "HeteroConv of SAGE": sage,
    "HeteroConv of GAT": gat,
    "HGT": hgt,
    "to_hetero": transformed,
}


class Model(nn.Module):
    """Three layers, dropout between them; called with a batch, and by hand with a history."""

    def __init__(self, graph: Graph, layer: Callable[[Graph], nn.Module]) -> None:
        super().__init__()
        torch.manual_seed(seed_of(1))
        self.inputs = nn.ModuleDict(
            {
                t: nn.Linear(graph[t]["x"].shape[1], WIDTH) if "x" in graph[t] else nn.Embedding(count, WIDTH)
                for t, count in num_nodes(graph).items()
            }
        )
        self.layers = nn.ModuleList(layer(graph) for _ in HOPS)

    def rows(self, batch: Any) -> dict[str, Tensor]:
        return {
            t: layer(batch[t].x.float() if isinstance(layer, nn.Linear) else batch[t].n_id)
            for t, layer in self.inputs.items()
        }

    def between(self, h: dict[str, Tensor]) -> dict[str, Tensor]:
        return {t: F.dropout(rows.relu(), 0.3, self.training) for t, rows in h.items()}

    def forward(self, h: dict[str, Tensor], edges: dict[Any, Tensor], more: dict[str, Any]) -> dict[str, Tensor]:
        for layer in self.layers:
            h = self.between(layer(h, edges, **more))
        return h

    def by_hand(self, batch: Any, history: History, attrs: Any) -> dict[str, Tensor]:
        h, keys = self.rows(batch), batch.edge_types
        for layer, block in zip(self.layers, batch.blocks(), strict=True):
            h = history(h, block)
            if type(layer) is pyg.HeteroConv:
                more = attrs({key: block[key].edge for key in keys}) if block.levels else attrs(None)
                h = layer(block.pairs(h), block.edge_index_dict, **more)
            else:
                h = {t: rows[: block.num_dst[t]] for t, rows in layer(h, block.edge_index_dict).items()}
            h = self.between(h)
        return h


def run(
    typed: Graph, name: str, *, attach: bool, call: Any = None, change: Any = None, epochs: int = 2, batches: int = 99
) -> Any:
    model, history = (
        Model(typed, LAYERS[name]),
        History(policy="gradient", t_stale=15, memory="1MiB", lag=0, keep="rows"),
    )
    if attach:
        history.attach(model, layers=model.layers)
    called = model if call is None else call(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    losses, hits = [], 0
    with Loader(typed, HOPS, INPUTS, history=history, **OPTIONS) as loader:
        for _ in range(epochs):
            for i, plain in zip(range(batches), loader, strict=False):
                batch = plain if change is None else change(plain)

                def attrs(edge: Any, batch: Any = batch) -> dict[str, Any]:
                    if "GAT" not in name:
                        return {}
                    key = ("author", "writes", "paper")
                    values = batch[key].weight.float()[:, None]
                    return {"edge_attr_dict": {key: values if edge is None else values[edge[key]]}}

                torch.manual_seed(i)
                optimizer.zero_grad()
                if attach:
                    h = called(model.rows(batch), batch.edge_index_dict, attrs(None))
                else:
                    h = model.by_hand(batch, history, attrs)
                out = torch.cat([h[t][: batch[t].batch_size] for t in INPUTS])
                labels = torch.cat([batch[t].n_id[: batch[t].batch_size] % WIDTH for t in INPUTS])
                loss = F.cross_entropy(out, labels)
                loss.backward()
                optimizer.step()
                history.update()
                losses.append(loss.item())
                levels = levels_of(plain)
                hits += 0 if levels is None else sum(len(at) for at in levels.hit[1:])
    return losses, hits


@pytest.mark.parametrize("name", list(LAYERS))
def test_attached_is_called_by_hand(typed: Graph, name: str) -> None:
    want, got = run(typed, name, attach=False), run(typed, name, attach=True)
    assert got == want
    assert got[1] > 300


@pytest.mark.parametrize("name", ["HeteroConv of SAGE", "HGT"])
def test_a_planned_cache_reads_what_is_left(typed: Graph, name: str, tmp_path: Path) -> None:
    """R-GCN and HGT over a store: the planned cache plans the very rows that batches read, and changes no number."""
    keys = ("author", "paper", ("author", "writes", "paper"), ("paper", "written by", "author"))
    graph: Graph = {key: typed[key] for key in keys}
    convert(graph, tmp_path / "typed", progress=False).close()
    found = []
    for cache in ("none", "belady"):
        model, history = Model(graph, LAYERS[name]), History(levels=1, t_stale=15, memory="1MiB", sample_error=0.0)
        history.attach(model, layers=model.layers)
        losses = []
        with Loader(
            tmp_path / "typed", HOPS, INPUTS, history=history, cache=cache, feature_cache="60kB", **OPTIONS
        ) as loader:
            for _ in range(2):
                for i, batch in enumerate(loader):
                    torch.manual_seed(i)
                    model.zero_grad()
                    h = model(model.rows(batch), batch.edge_index_dict, {})
                    out = torch.cat([h[t][: batch[t].batch_size] for t in INPUTS])
                    labels = torch.cat([batch[t].n_id[: batch[t].batch_size] % WIDTH for t in INPUTS])
                    loss = F.cross_entropy(out, labels)
                    loss.backward()
                    history.update()
                    losses.append(loss.item())
            said = {of["epoch"]: of for of in loader.plan().data.get("history") or []}
        layers = history.stats()["layers"]
        found.append((losses, layers))
    assert found[0] == found[1]
    assert layers[0]["hits"] > 100
    for epoch in range(2):
        assert said[epoch]["planned_rows"] == said[epoch]["read_rows"] < said[epoch]["drawn_rows"]
        assert said[epoch]["unforeseen_rows"] == 0


def test_a_compiled_model_has_the_numbers_of_the_eager_one(typed: Graph) -> None:
    keys = ("author", "paper", ("author", "writes", "paper"), ("paper", "written by", "author"))
    graph: Graph = {key: typed[key] for key in keys}
    options = {"attach": True, "epochs": 1, "batches": 4}
    want = run(graph, "HeteroConv of SAGE", **options)
    torch._dynamo.reset()
    got = run(graph, "HeteroConv of SAGE", call=lambda model: torch.compile(model, backend="eager"), **options)
    assert got == want
    assert got[1] > 20


def test_an_accelerated_model_has_its_numbers(typed: Graph) -> None:
    def fast(model: Any) -> Any:
        assert len(accelerate(model).swapped) == 3 * len(reached(typed))
        return model

    want = run(typed, "HeteroConv of SAGE", attach=True)
    got = run(typed, "HeteroConv of SAGE", attach=True, call=fast)
    np.testing.assert_allclose(got[0], want[0], rtol=1e-4)
    assert got[1] == want[1] > 300


class Copied:
    """A batch whose edges are copies that nobody has marked."""

    def __init__(self, batch: Any) -> None:
        self._batch = batch
        self.edge_index_dict = {key: edges.clone() for key, edges in batch.edge_index_dict.items()}

    def __getitem__(self, key: Any) -> Any:
        return self._batch[key]


@pytest.mark.parametrize("change", [lambda batch: copy.copy(batch).apply(torch.clone), Copied], ids=["moved", "copied"])
def test_edges_that_were_copied_are_recognised(typed: Graph, change: Any) -> None:
    want = run(typed, "HeteroConv of SAGE", attach=True)
    assert run(typed, "HeteroConv of SAGE", attach=True, change=change) == want


def test_plain_batches_stand_aside(typed: Graph) -> None:
    model = Model(typed, sage)
    before = copy.deepcopy(model)
    with Loader(typed, HOPS, INPUTS, **OPTIONS) as plain:
        batches = [(batch, before(before.rows(batch), batch.edge_index_dict, {})) for batch in plain]
    history = History(memory="1MiB", keep="rows")
    history.attach(model, layers=list(model.layers))
    model.eval()
    before.eval()
    with Loader(typed, HOPS, INPUTS, history=history, **OPTIONS) as loader:
        for batch in loader:  # an epoch that begins in evaluation is plain
            assert levels_of(batch) is None
            got = model(model.rows(batch), batch.edge_index_dict, {})
            want = before(before.rows(batch), batch.edge_index_dict, {})
            assert all(torch.equal(got[t], want[t]) for t in want)
        model.train()
        pruned = next(iter(loader))
        assert levels_of(pruned) is not None
        batch, _ = batches[0]
        torch.manual_seed(seed_of(0))
        got = model(model.rows(batch), batch.edge_index_dict, {})  # another loader's, in between
        before.train()
        torch.manual_seed(seed_of(0))
        want = before(before.rows(batch), batch.edge_index_dict, {})
        assert all(torch.equal(got[t], want[t]) for t in want)
        model.eval()
        with pytest.raises(errors.InvalidArgumentError, match="pruned for training, but the history or its model is"):
            model(model.rows(pruned), pruned.edge_index_dict, {})
        model.train()
        saved = copy.deepcopy(model)
        with pytest.raises(errors.InvalidArgumentError, match="copy of the model"):
            saved(model.rows(pruned), pruned.edge_index_dict, {})
        history.detach()
        assert not any(layer._forward_pre_hooks or layer._forward_hooks for layer in model.layers)


def test_what_cannot_work_says_so(typed: Graph) -> None:
    raises = lambda match: pytest.raises(errors.InvalidArgumentError, match=match)  # noqa: E731
    keys, history = relations(typed), History(policy="gradient", memory="1MiB", keep="rows")
    model = Model(typed, sage)
    with Loader(typed, HOPS, INPUTS, history=history, **OPTIONS) as loader:
        batch = next(iter(loader))
        x, edges = model.rows(batch), batch.edge_index_dict

        def attached(*layers: nn.Module) -> nn.Module:
            history.detach()
            history.attach(model, layers=layers)
            return layers[0]

        layer = attached(*model.layers[:2])
        with raises(r"the model has 2 message-passing layers, the loader samples 3 hops"):
            layer(x, edges)
        layer = attached(*model.layers)
        with pytest.raises(errors.DTypeError, match=r"level 0: expected a dict of rows .* got Tensor"):
            layer(x["paper"], edges)
        with raises(r"rows of node type 'term', got none"):
            layer({t: rows for t, rows in x.items() if t != "term"}, edges)
        with raises(r"expected \d+ rows of node type 'paper', got 3"):
            layer({**x, "paper": x["paper"][:3]}, edges)
        with raises(r"the edges of \('paper', 'cites', 'paper'\) are not those of the pruned batch"):
            layer(x, {**edges, ("paper", "cites", "paper"): edges["paper", "cites", "paper"][:, :2]})
        with raises(r"layer 1: edge_attr_dict\[.*\] is \[3\], .* an entry for each of the batch's \d+ edges"):
            layer(x, edges, edge_attr_dict={keys[0]: torch.ones(3)})
        with raises(r"layer 1: size_dict is a tensor of shape \[3\]"):
            layer(x, edges, size_dict=torch.ones(3))
        layer(x, edges)
        with raises(r"layer 1 computes \d+ rows of node type '.*' of this batch, got none"):
            model.layers[1]({}, edges)
        with raises(r"the batch has node types: attach\(model, layers=\[...\]\)"):
            part = pyg.SAGEConv((WIDTH, WIDTH), WIDTH)
            history.detach()
            history.attach(part, layers=[part])
            part((x["author"], x["paper"]), edges["author", "writes", "paper"])
        history.detach()

        class Short(nn.Module):
            def forward(self, x: Any, edges: Any) -> Any:
                return self.out(x)

        wrong: Any = Short()
        attached(wrong, *model.layers[1:])
        for out, match in (
            (lambda x: x["paper"], r"Short returned Tensor, expected a dict of rows by node type"),
            (lambda x: {"paper": x["paper"][:1]}, r"Short returned 1 rows of node type 'paper', expected the \d+ of"),
        ):
            wrong.out = out
            with raises(match):
                wrong(x, edges)
        wrong.gcn = pyg.GCNConv(WIDTH, WIDTH)
        with raises(r"layer 1 has a GCNConv, whose coefficients are not known"):
            wrong(x, edges)
        history.detach()
        with raises(r"did not ask for its rows of layer 1, 2.* call history.attach\(model, layers=\[...\]\)"):
            history.update()
    with raises(r"layer 1, \('paper', 'cites', 'paper'\): GCNConv takes no pairs"):
        history.attach(model, layers=[pyg.HeteroConv({("paper", "cites", "paper"): pyg.GCNConv(4, 4)})])
    with raises(r"ModuleList is not a model of PyG's BasicGNN .* layers=\[model\[0\], model\[1\], model\[2\]\]"):
        history.attach(model.layers)
    with raises(r"a model that to_hetero made has no layers .* let to_hetero make each of its layers, or take Hetero"):
        history.attach(transformed(typed))
    with raises(r"layer 1: ModuleDict must be called with \(rows, edge_index, ...\), over types with"):
        history.attach(model, layers=[nn.ModuleDict()])


def test_edges_that_were_changed(typed: Graph) -> None:
    history, model = History(policy="gradient", p_grad=1.0, memory="1MiB", keep="rows"), Model(typed, sage)
    history.attach(model, layers=model.layers)
    with Loader(typed, HOPS, INPUTS, history=history, **OPTIONS) as loader:
        batches = iter(loader)
        batch = next(batches)
        torch.cat(list(model(model.rows(batch), batch.edge_index_dict, {}).values())).sum().backward()
        history.update()
        for batch in batches:
            levels = levels_of(batch)
            assert levels is not None
            if any(levels.spared[node_type] for node_type in batch.x_dict):
                break
        flipped = {key: edges.flip(1) for key, edges in batch.edge_index_dict.items()}
        with pytest.raises(errors.InvalidArgumentError, match="edges cannot be changed"):
            model(batch.x_dict, flipped, {})


def test_types_are_of_graphs_with_types() -> None:
    edges = torch.randint(50, (2, 300))
    history = History(policy="gradient", memory="1MiB", keep="rows")

    class Layer(nn.Module):
        def forward(self, x: Any, edges: Any) -> Any:
            return x

    layer = Layer()
    history.attach(layer, layers=[layer])
    with Loader({"x": torch.randn(50, 4), "edge_index": edges}, [3, 3], batch_size=10, history=history) as loader:
        batch = next(iter(loader))
        with pytest.raises(
            errors.InvalidArgumentError, match="edges were given as a dict, but the batch is homogeneous"
        ):
            layer({"n": batch.x}, {("n", "to", "n"): batch.edge_index})
