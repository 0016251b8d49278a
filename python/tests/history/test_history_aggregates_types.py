"""``keep="aggregates"`` over node and edge types: sums by relation of a HeteroConv, of attention what it returns."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from seeds import seed as seed_of
from torch import Tensor, nn

from freshgo import Loader
from freshgo._batch import tables
from freshgo._batch.blocks import levels_of
from freshgo.history import History

pytest.importorskip("torch_geometric")

import torch_geometric.nn as pyg

from freshgo.nn import accelerate

pytestmark = pytest.mark.usefixtures("no_warnings")

COUNT = {"a": 200, "b": 150}
WIDTH = {"a": 6, "b": 5}
RELATIONS = [("a", "to", "b"), ("b", "back", "a"), ("a", "knows", "a")]
WEIGHTED = ("b", "back", "a")
OPTIONS: dict[str, Any] = {"batch_size": 25, "seed": 5, "shuffle": True}
STALE = 9


def typed() -> dict[Any, Any]:
    rng = torch.Generator().manual_seed(seed_of(3))

    def of(source: str, target: str) -> dict[str, Tensor]:
        ends = [torch.randint(COUNT[name], (500,), generator=rng) for name in (source, target)]
        return {"edge_index": torch.stack(ends), "edge_weight": torch.rand(500, generator=rng)}

    nodes = {name: {"x": torch.randn(count, WIDTH[name], generator=rng)} for name, count in COUNT.items()}
    nodes["a"]["y"] = torch.randint(4, (200,), generator=rng)
    return {**nodes, **{key: of(key[0], key[2]) for key in RELATIONS}}


class Net(nn.Module):
    """Three HeteroConvs of layers that add up, one of which has no root, one weights; or of attention."""

    def __init__(self, attention: bool = False) -> None:
        super().__init__()
        torch.manual_seed(seed_of(1))
        widths = [WIDTH, {"a": 8, "b": 8}, {"a": 8, "b": 8}]
        self.convs = nn.ModuleList(self.layer(of, attention) for of in widths)
        self.weighted = not attention

    def layer(self, width: dict[str, int], attention: bool) -> nn.Module:
        a, b = width["a"], width["b"]
        if attention:
            kinds: Any = [lambda *ends: pyg.GATConv(ends, 8, add_self_loops=False)] * 3
            return pyg.HeteroConv({key: kinds[0](width[key[0]], width[key[2]]) for key in RELATIONS})
        parts = [
            pyg.SAGEConv((a, b), 8, root_weight=False),
            pyg.GraphConv((b, a), 8, aggr="mean"),
            pyg.GINConv(nn.Linear(a, 8), train_eps=True),
        ]
        return pyg.HeteroConv(dict(zip(RELATIONS, parts, strict=True)))

    def weights(self, batch: Any, block: Any = None) -> dict[str, Any]:
        """Of the edges of the only relation whose layer takes some."""
        if not self.weighted:
            return {}
        weight = batch[WEIGHTED].edge_weight
        return {"edge_weight_dict": {WEIGHTED: weight if block is None else weight[block[WEIGHTED].edge]}}

    def after(self, level: int, h: dict[str, Tensor]) -> dict[str, Tensor]:
        return {name: rows.relu() for name, rows in h.items()} if level < 2 else h

    def forward(self, batch: Any) -> Tensor:
        h = batch.x_dict
        for level, conv in enumerate(self.convs):
            h = self.after(level, conv(h, batch.edge_index_dict, **self.weights(batch)))
        return h["a"]

    def over_blocks(self, batch: Any, history: History) -> Tensor:
        h = batch.x_dict
        for level, (conv, block) in enumerate(zip(self.convs, batch.blocks(), strict=True)):
            h = self.after(level, history(h, block, conv, **self.weights(batch, block)))
        return h["a"]


class Frozen:
    """Plain training, in which a row of layer 1 uses the sample that it was given last until the history ends it."""

    def __init__(self, net: Net, graph: dict[Any, Any], lag: int) -> None:
        self.net, self.graph, self.lag = net, graph, lag
        self.samples: dict[tuple[str, int], list[tuple[int, dict[Any, tuple[Tensor, Tensor]]]]] = {}
        self.hits = 0

    def first(self, batch: Any, levels: Any, begun: int) -> dict[str, Tensor]:
        """Layer 1 over all rows of its table, those of hits included."""
        block, now = batch.blocks()[0], levels.index
        read, table = (tables.split(levels, level, levels.nodes[level]) for level in (0, 1))
        computed = torch.zeros(levels.nodes[1].numel(), dtype=torch.bool)
        computed[levels.computed[1]] = True
        ends: dict[Any, list[tuple[Tensor, Tensor, Tensor]]] = {key: [] for key in RELATIONS}
        for name, mine in tables.split(levels, 1, computed).items():
            keys = [key for key in RELATIONS if key[2] == name]
            row = 0
            for at, node in enumerate(batch[name].n_id[table[name]].tolist()):
                known = self.samples.setdefault((name, node), [])
                if mine[at]:
                    sample = {}
                    for key in keys:
                        its = block[key].edge_index[1] == row
                        weight = batch[key].edge_weight[block[key].edge][its]
                        sample[key] = batch[key[0]].n_id[read[key[0]]][block[key].edge_index[0][its]], weight
                    known.append((now, sample))
                    row += 1
                latest = now if mine[at] else max(now - 1 - self.lag, begun - 1)
                _, sample = next(one for one in reversed(known) if one[0] <= latest)
                self.hits += not mine[at]
                for key, (sources, weight) in sample.items():
                    ends[key].append((sources, torch.full_like(sources, at), weight))
        joined = {
            key: [torch.cat(part) for part in zip(*of, strict=True)] or [torch.empty(0, dtype=torch.long)] * 2
            for key, of in ends.items()
        }
        x = {
            (s, name, t): (self.graph[s]["x"], self.graph[t]["x"][batch[t].n_id[table[t]]]) for s, name, t in RELATIONS
        }
        edges = {key: torch.stack(of[:2]) for key, of in joined.items()}
        return self.net.convs[0](x, edges, edge_weight_dict={WEIGHTED: joined[WEIGHTED][2]})

    def out(self, batch: Any, begun: int) -> Tensor:
        h = self.net.after(0, self.first(batch, levels_of(batch), begun))
        for level, block in enumerate(batch.blocks()[1:], start=1):
            conv = self.net.convs[level]
            h = conv(block.pairs(h), block.edge_index_dict, **self.net.weights(batch, block))
            h = self.net.after(level, h)
        return h["a"]


@pytest.mark.parametrize("by_hand", [False, True], ids=["attached", "blocks"])
@pytest.mark.parametrize("lag", [0, 2])
def test_level_1_is_plain_training_on_samples_that_stand_until_they_end(lag: int, by_hand: bool) -> None:
    """To the last bit, along relations of several layers, widths and weights."""
    graph, net = typed(), Net()
    frozen = Frozen(copy.deepcopy(net), graph, lag)
    history = History(t_stale=STALE, keep="aggregates", memory="1MiB", lag=lag)
    if not by_hand:
        history.attach(net, layers=net.convs)
    optimizers = [torch.optim.SGD(one.parameters(), lr=0.05) for one in (net, frozen.net)]
    with Loader(graph, [4, 3, 3], "a", history=history, **OPTIONS) as loader:
        begun = iteration = 0
        for _ in range(3):
            begun = iteration
            for batch in loader:
                rows = net.over_blocks(batch, history) if by_hand else net(batch)
                expected = frozen.out(batch, begun)
                assert rows.equal(expected)
                for optimizer, out in zip(optimizers, (rows, expected), strict=True):
                    optimizer.zero_grad()
                    nn.functional.cross_entropy(out[: batch["a"].batch_size], batch["a"].y[:25]).backward()
                for (name, mine), theirs in zip(net.named_parameters(), frozen.net.parameters(), strict=True):
                    assert (mine.grad is None) == (theirs.grad is None), name
                    assert mine.grad is None or mine.grad.equal(theirs.grad), name
                for optimizer in optimizers:
                    optimizer.step()
                history.update()
                iteration += 1
        first, second = history.stats()["layers"]
    assert frozen.hits == first["hits"] > 300
    assert second["hits"] == second["admitted"] == 0


@pytest.mark.parametrize("fast", [False, True], ids=["pyg", "accelerated"])
@pytest.mark.parametrize("attention", [False, True])
def test_of_a_model_that_stands_still_rows_are_those_of_plain_training(attention: bool, fast: bool) -> None:
    """Of attention what the layer returns is kept, and what follows learns from all rows."""
    graph, net = typed(), Net(attention)
    scale = nn.Parameter(torch.ones(2))
    after, net.after = (
        net.after,
        lambda level, h: after(  # type: ignore[method-assign]
            level, {name: rows * scale[level] if level < 2 else rows for name, rows in h.items()}
        ),
    )
    plainly = copy.deepcopy(net)
    plainly.after = net.after  # type: ignore[method-assign]
    if fast:
        accelerate(net)
    named = {"levels": 1, "sample_error": 0.0} if attention else {}
    history = History(t_stale=1000, keep="aggregates", memory="1MiB", **named)
    history.attach(net, layers=net.convs)
    with (
        Loader(graph, [-1] * 3, "a", history=history, **OPTIONS) as loader,
        Loader(graph, [-1] * 3, "a", **OPTIONS) as plain,
    ):
        for _ in range(2):
            for batch, whole in zip(loader, plain, strict=True):
                pairs = [(net(batch)[:25], batch), (plainly(whole)[:25], whole)]
                torch.testing.assert_close(pairs[0][0], pairs[1][0], rtol=1e-4, atol=1e-5)
                gradients = [
                    torch.autograd.grad(nn.functional.cross_entropy(rows, of["a"].y[:25]), scale)[0]
                    for rows, of in pairs
                ]
                torch.testing.assert_close(gradients[0], gradients[1], rtol=1e-3, atol=1e-5)
                history.update()
        assert history.stats()["layers"][0]["hits"] > 200
