"""``keep="aggregates"``: at level 1 plain training over neighbours that are sampled again when an entry ends."""

from __future__ import annotations

import copy
import io
import itertools
from typing import Any

import numpy as np
import pytest
import torch
from history_models import GRAPH, HOPS, loss_of, mlp, model_of, run, small_graph
from seeds import seed as seed_of
from torch import Tensor, nn

from freshgo import Loader, errors
from freshgo._batch.structure import recall
from freshgo._history.layer_call import gcn_coefficients
from freshgo.history import History

pytest.importorskip("torch_geometric")

import torch_geometric.nn as pyg

from freshgo.nn import accelerate

pytestmark = pytest.mark.usefixtures("no_warnings")

OPTIONS: dict[str, Any] = {"batch_size": 40, "seed": 5, "shuffle": True}
STALE = 9


def aggregates(**options: Any) -> History:
    age = {} if options.get("policy") == "gas" else {"t_stale": STALE}
    return History(**{**age, "keep": "aggregates", "memory": "1MiB", **options})


def levels_of(batch: Any) -> Any:
    known = recall(batch.edge_index)
    assert known is not None
    return known.levels


class Net(nn.Module):
    """Three layers with batch norms and dropout between them."""

    def __init__(self, make: Any, weighted: bool = False) -> None:
        super().__init__()
        self.convs = nn.ModuleList([make(12, 8), make(8, 8), make(8, 5)])
        self.norms = nn.ModuleList([nn.BatchNorm1d(8), nn.BatchNorm1d(8)])
        self.weighted = weighted

    def between(self, level: int, h: Tensor) -> Tensor:
        return nn.functional.dropout(self.norms[level](h).relu(), 0.3, self.training)

    def forward(self, x: Tensor, edge_index: Tensor, weight: Tensor | None = None) -> Tensor:
        more = () if weight is None else (weight,)
        for level, conv in enumerate(self.convs):
            x = conv(x, edge_index, *more)
            x = self.between(level, x) if level < 2 else x
        return x


NETS: dict[str, Any] = {
    "SAGE-mean": lambda: Net(pyg.SAGEConv),
    "SAGE-sum": lambda: Net(lambda a, b: pyg.SAGEConv(a, b, aggr="sum", normalize=True)),
    "SAGE-rootless": lambda: Net(lambda a, b: pyg.SAGEConv(a, b, root_weight=False)),
    "GraphConv": lambda: Net(lambda a, b: pyg.GraphConv(a, b, aggr="mean"), weighted=True),
    "GIN": lambda: Net(lambda a, b: pyg.GINConv(mlp(a, b), train_eps=True)),
    "GCN": lambda: Net(pyg.GCNConv),
    "GCN-given": lambda: Net(lambda a, b: pyg.GCNConv(a, b, normalize=False), weighted=True),
}


class Frozen:
    """Plain training, in which a row of layer 1 uses the sample that it was given last until ``history`` ends it."""

    def __init__(self, net: Net, x: Tensor, lag: int) -> None:
        self.net, self.x, self.lag = net, x, lag
        self.samples: dict[int, list[tuple[int, Tensor, Tensor]]] = {}  # by node: iteration, sources, weights
        self.ages: list[int] = []

    def first(self, batch: Any, levels: Any, begun: int) -> Tensor:
        """Layer 1 over all rows of its table, those of hits included."""
        conv, block = self.net.convs[0], batch.blocks()[0]
        edges, weight = block.edge_index, None
        if self.net.weighted:
            weight = batch.edge_weight[block.edge]
        if isinstance(conv, pyg.GCNConv) and conv.normalize:
            edges, weight = gcn_coefficients(levels, 0, torch.float32, True)
        weight = torch.ones(edges.size(1)) if weight is None else weight
        source = batch.n_id[levels.nodes[0]][edges[0]]
        nodes = batch.n_id[levels.nodes[1]]
        now = levels.index
        for row, at in enumerate(levels.computed[1].tolist()):
            its = edges[1] == row
            self.samples.setdefault(int(nodes[at]), []).append((now, source[its], weight[its]))
        hits = set(levels.hit[1].tolist())
        sources, targets, weights = [], [], []
        for at, node in enumerate(nodes.tolist()):
            known = now if at not in hits else max(now - 1 - self.lag, begun - 1)
            made, some, its = next(s for s in reversed(self.samples[node]) if s[0] <= known)
            if at in hits:
                self.ages.append(now - made)
            sources.append(some)
            weights.append(its)
            targets.append(torch.full_like(some, at))
        index, weight = torch.stack([torch.cat(sources), torch.cat(targets)]), torch.cat(weights)
        own = self.x[nodes]
        if isinstance(conv, pyg.GCNConv):
            count = self.x.size(0)
            below = torch.cat([self.x, own])
            index = torch.stack([index[0], index[1] + count])
            return conv.lin(conv.propagate(index, x=below, edge_weight=weight)[count:]) + conv.bias
        return conv((self.x, own), index, weight) if self.net.weighted else conv((self.x, own), index)

    def out(self, batch: Any, begun: int) -> Tensor:
        levels = levels_of(batch)
        h = self.net.between(0, self.first(batch, levels, begun))
        for level, block in enumerate(batch.blocks()[1:], start=1):
            conv = self.net.convs[level]
            if isinstance(conv, pyg.GCNConv):
                weight = batch.edge_weight[block.edge] if self.net.weighted else None
                edges = block.edge_index
                if conv.normalize:
                    edges, weight = gcn_coefficients(levels, level, torch.float32, True)
                out = (conv.propagate(edges, x=conv.lin(h), edge_weight=weight) + conv.bias)[: block.num_dst]
            else:
                more = (batch.edge_weight[block.edge],) if self.net.weighted else ()
                out = conv((h, h[: block.num_dst]), block.edge_index, *more)
            h = self.net.between(level, out) if level < 2 else out
        return h


@pytest.mark.parametrize("lag", [0, 2])
@pytest.mark.parametrize("kind", NETS)
def test_level_1_is_plain_training_on_samples_that_stand_until_they_end(kind: str, lag: int) -> None:
    """To the last bit: losses, gradients of every parameter, parameters after each step."""
    torch.manual_seed(seed_of(1))
    net = NETS[kind]()
    frozen = Frozen(copy.deepcopy(net), torch.from_numpy(GRAPH["x"]), lag)
    history = aggregates(lag=lag)
    history.attach(net, layers=net.convs)
    optimizers = [torch.optim.SGD(one.parameters(), lr=0.05) for one in (net, frozen.net)]
    less = 0
    with Loader(GRAPH, HOPS, history=history, **OPTIONS) as loader:
        begun = iteration = 0
        for _ in range(4):
            begun = iteration
            for batch in loader:
                weights = (batch.edge_weight,) if net.weighted else ()
                torch.manual_seed(iteration)
                out = net(batch.x, batch.edge_index, *weights)
                torch.manual_seed(iteration)
                expected = frozen.out(batch, begun)
                assert out.equal(expected)
                for optimizer, rows in zip(optimizers, (out, expected), strict=True):
                    optimizer.zero_grad()
                    loss_of(rows, batch).backward()
                for (name, mine), theirs in zip(net.named_parameters(), frozen.net.parameters(), strict=True):
                    assert mine.grad is not None
                    assert theirs.grad is not None
                    assert mine.grad.equal(theirs.grad), name
                for optimizer in optimizers:
                    optimizer.step()
                history.update()
                less += levels_of(batch).plain_nodes - levels_of(batch).loaded
                iteration += 1
        stats = history.stats()
    assert max(frozen.ages) == STALE
    assert min(frozen.ages) == 1
    assert len(frozen.ages) == stats["layers"][0]["hits"] > 500
    assert stats["layers"][1]["hits"] == stats["layers"][1]["admitted"] == 0
    assert less > 500


@pytest.mark.parametrize("fast", [False, True], ids=["pyg", "accelerated"])
@pytest.mark.parametrize("kind", ["GraphSAGE", "GIN", "GraphConv"])
def test_with_all_neighbours_training_is_plain_training(kind: str, fast: bool) -> None:
    """Then the sample never changes, so it does not matter how long an entry stands."""
    graph = small_graph(num_nodes=400, num_edges=1600)
    model = model_of(kind)
    reference = copy.deepcopy(model)
    if fast:
        accelerate(model)
    history = aggregates(t_stale=1000)
    history.attach(model, layers=model.convs)
    optimizers = [torch.optim.SGD(one.parameters(), lr=0.05) for one in (model, reference)]
    options = {**OPTIONS, "batch_size": 25}
    with (
        Loader(graph, [-1, -1, -1], history=history, **options) as loader,
        Loader(graph, [-1, -1, -1], **options) as plain,
    ):
        for _ in range(3):
            for batch, whole in zip(loader, plain, strict=True):
                for one, of, optimizer in zip((model, reference), (batch, whole), optimizers, strict=True):
                    optimizer.zero_grad()
                    loss_of(run(one, of, kind), of).backward()
                    optimizer.step()
                history.update()
        assert history.stats()["rows_saved"] > 1000
    for (name, mine), theirs in zip(model.named_parameters(), reference.parameters(), strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-3, atol=1e-5, msg=name)


@pytest.mark.parametrize("levels", [1, [1, 2], [2]])
@pytest.mark.parametrize("kind", ["GAT", "GATv2", "PNA", "EdgeCNN", "GraphSAGE-max-project", "GraphSAGE"])
def test_of_a_model_that_stands_still_every_kept_row_is_the_computed_one(kind: str, levels: Any) -> None:
    """Of layers that do not add up, what they return is kept: what follows sees all rows."""
    graph = small_graph(num_nodes=400, num_edges=1600)
    model = model_of(kind)
    for module in model.modules():
        if isinstance(module, nn.BatchNorm1d):
            module.eval()  # with the statistics that it has
            module.train = lambda mode=True: None  # type: ignore[method-assign, assignment]
    history = aggregates(t_stale=1000, levels=levels)
    history.attach(model)
    options = {**OPTIONS, "batch_size": 25}
    with (
        Loader(graph, [-1, -1, -1], history=history, **options) as loader,
        Loader(graph, [-1, -1, -1], **options) as plain,
    ):
        for _ in range(2):
            for batch, whole in zip(loader, plain, strict=True):
                out = run(model, batch, kind)
                with torch.no_grad():
                    expected = run(copy.deepcopy(model), whole, kind)
                torch.testing.assert_close(out, expected[: out.size(0)], rtol=1e-4, atol=1e-5)
                history.update()
        hits = [layer["hits"] for layer in history.stats()["layers"]]
    kept = [levels] if isinstance(levels, int) else levels
    assert [count > 500 for count in hits] == [1 in kept, 2 in kept]


class Trained:
    """A training under history, and all that was decided."""

    def __init__(self, **options: Any) -> None:
        torch.manual_seed(seed_of(1))
        self.history = aggregates(**options.pop("history", {}))
        self.model = pyg.GraphSAGE(12, 8, 3, 5)
        self.history.attach(self.model)
        self.loader = Loader(GRAPH, HOPS, history=self.history, **{**OPTIONS, **options})
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.05)
        self.seen: list[Any] = []

    def epoch(self, batches: int | None = None) -> None:
        for batch in itertools.islice(self.loader, batches):
            levels = levels_of(batch)
            self.optimizer.zero_grad()
            loss = loss_of(self.model(batch.x, batch.edge_index), batch)
            loss.backward()
            self.optimizer.step()
            self.history.update()
            self.seen.append((batch.n_id.tolist(), levels.slot[1].tolist(), float(loss.detach())))


def test_decisions_do_not_depend_on_threads_or_prefetching() -> None:
    runs = []
    for options in ({}, {"num_workers": 1, "prefetch": 2}, {"num_workers": 3, "prefetch": 7}):
        trained = Trained(**options)
        for _ in range(3):
            trained.epoch()
        runs.append(trained.seen)
        trained.loader.close()
    assert runs[0] == runs[1] == runs[2]
    assert sum(len(slots) for _, slots, _ in runs[0]) > 200


@pytest.mark.parametrize("policy", ["performance", "gas"])
def test_a_small_buffer_is_kept_to(policy: str) -> None:
    row = 2 * 12 * 4
    trained = Trained(history={"memory": 20 * row, "policy": policy})
    for _ in range(3):
        trained.epoch()
    stats = trained.history.stats()
    assert stats["embedding_bytes"] <= 20 * row
    assert 0 < stats["layers"][0]["live"] <= 20
    assert max(slot for _, slots, _ in trained.seen for slot in slots) < 20
    trained.loader.close()


@pytest.mark.parametrize("batches", [None, 3], ids=["between", "within"])
def test_a_resumed_run_continues_identically(batches: int | None) -> None:
    first = Trained()
    first.epoch()
    first.epoch(batches)
    file = io.BytesIO()
    parts = {"model": first.model, "loader": first.loader, "history": first.history}
    torch.save({name: part.state_dict() for name, part in parts.items()}, file)
    done = len(first.seen)
    if batches is not None:
        first.loader.load_state_dict(first.loader.state_dict())  # goes on where it is
    first.epoch()
    file.seek(0)
    state = torch.load(file, weights_only=True)
    second = Trained()
    for part, name in ((second.model, "model"), (second.history, "history"), (second.loader, "loader")):
        part.load_state_dict(state[name])
    second.epoch()
    assert second.seen == first.seen[done:]
    rows = History(p_grad=1.0, t_stale=STALE, memory="1MiB", keep="rows")
    with pytest.raises(errors.InvalidArgumentError, match="keep was 'aggregates', is 'rows'"):
        rows.load_state_dict(first.history.state_dict())
    old = {**rows.state_dict(), "version": 2}
    with pytest.raises(errors.InvalidArgumentError, match="has version 2, expected 3: it needs the freshgo"):
        rows.load_state_dict(old)


def test_a_compiled_model_has_the_numbers_of_the_eager_one() -> None:
    losses = []
    for backend in (None, "aot_eager"):
        model, history = model_of("GraphSAGE"), aggregates()
        history.attach(model)
        called = model if backend is None else torch.compile(model, backend=backend)
        with Loader(GRAPH, HOPS, history=history, **OPTIONS) as loader:
            some = []
            for batch in loader:
                loss = loss_of(called(batch.x, batch.edge_index), batch)
                loss.backward()
                history.update()
                some.append(float(loss.detach()))
            assert history.stats()["layers"][0]["hits"] > 50
        losses.append(some)
    np.testing.assert_allclose(losses[0], losses[1], rtol=1e-5)


def test_of_rows_too_some_levels_may_be_kept() -> None:
    model, history = model_of("GraphSAGE"), History(t_stale=STALE, levels=2, memory="1MiB", keep="rows")
    history.attach(model)
    with Loader(GRAPH, HOPS, history=history, **OPTIONS) as loader:
        for batch in loader:
            loss_of(model(batch.x, batch.edge_index), batch).backward()
            history.update()
        first, second = history.stats()["layers"]
    assert first["hits"] == first["admitted"] == 0
    assert second["hits"] > 50


@pytest.mark.parametrize(
    ("options", "error", "match"),
    [
        ({"keep": "aggregate"}, errors.InvalidArgumentError, "keep.*'aggregates'"),
        ({"keep": None}, errors.InvalidArgumentError, "keep"),
        ({"keep": "aggregates", "p_grad": 0.9}, errors.InvalidArgumentError, "p_grad=0.9"),
        ({"keep": "aggregates", "policy": "gradient"}, errors.InvalidArgumentError, "policy='gradient'"),
        ({"levels": 0}, errors.InvalidArgumentError, "hidden levels 1, 2, .*got 0"),
        ({"levels": []}, errors.InvalidArgumentError, r"got \[\]"),
        ({"levels": [1, 1]}, errors.InvalidArgumentError, "each once"),
        ({"levels": "1"}, errors.DTypeError, "got '1'"),
        ({"levels": 1.0}, errors.DTypeError, "got 1.0"),
        ({"levels": [True]}, errors.DTypeError, "integers, got True"),
        ({"levels": [1, "2"]}, errors.DTypeError, "integers, got '2'"),
    ],
)
def test_bad_options(options: dict[str, Any], error: type[Exception], match: str) -> None:
    with pytest.raises(error, match=match):
        History(**options)


def test_levels_that_a_model_or_a_loader_does_not_have() -> None:
    history = aggregates(levels=[1, 3])
    with pytest.raises(errors.InvalidArgumentError, match=r"levels=\(1, 3\), but the model has 3 message-passing"):
        history.attach(model_of("GraphSAGE"))
    with pytest.raises(errors.InvalidArgumentError, match=r"the loader samples 3 hops.*hidden levels are 1 to 2"):
        Loader(GRAPH, HOPS, history=history, **OPTIONS)


def test_without_its_layers_it_is_refused() -> None:
    with Loader(GRAPH, HOPS, history=(history := aggregates()), **OPTIONS) as loader:
        batch = next(iter(loader))
        with pytest.raises(errors.InvalidArgumentError, match=r"call h = history\(h, block, conv\)"):
            history(batch.x, batch.blocks()[0])
        with pytest.raises(errors.InvalidArgumentError, match=r"layer 1: the coefficients of GCNConv.*attach"):
            history(batch.x, batch.blocks()[0], pyg.GCNConv(12, 8))
        with pytest.raises(errors.DTypeError, match=r"layer 1 must be a torch\.nn\.Module, got int"):
            history(batch.x, batch.blocks()[0], 3)  # type: ignore[arg-type]
        with pytest.raises(errors.InvalidArgumentError, match="did not ask for its rows of layer 1"):
            history.update()


class ByHand(nn.Module):
    """A model's layers, called over blocks."""

    def __init__(self, model: Any, history: History | None) -> None:
        super().__init__()
        self.model, self.history = model, history

    def forward(self, batch: Any) -> Tensor:
        h = batch.x
        for level, (conv, block) in enumerate(zip(self.model.convs, batch.blocks(), strict=True)):
            extra = self.model.extra
            edge = slice(None, block.num_edges) if block.edge is None else block.edge
            more = () if extra is None else (batch[extra][edge],)
            assert self.history is not None
            h = self.history(h, block, conv, *more)
            h = self.model.norms[level](h).relu() if level < 2 else h
        return h


@pytest.mark.parametrize("levels", [1, [1, 2]])
@pytest.mark.parametrize("keep", ["rows", "aggregates"])
@pytest.mark.parametrize("kind", ["SAGEConv", "GraphConv", "GCNConv-given", "TransformerConv"])
def test_layers_called_over_blocks_have_the_numbers_of_an_attached_model(kind: str, keep: str, levels: Any) -> None:
    """With edge weights and attributes, in training and in evaluation."""
    found = []
    for attached in (True, False):
        model = model_of(kind)
        history = History(t_stale=STALE, keep=keep, levels=levels, memory="1MiB")
        by_hand = ByHand(model, history)
        if attached:
            history.attach(model, layers=model.convs)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
        losses = []
        with Loader(GRAPH, HOPS, history=history, **OPTIONS) as loader:
            for epoch in range(3):
                model.train(epoch < 2)
                history.train(epoch < 2)
                for batch in loader:
                    out = run(model, batch, kind) if attached else by_hand(batch)
                    loss = loss_of(out, batch)
                    optimizer.zero_grad()
                    loss.backward()
                    if epoch < 2:
                        optimizer.step()
                        history.update()
                    losses.append(float(loss.detach()))
            hits = [layer["hits"] for layer in history.stats()["layers"]]
        assert hits[0] > 200
        found.append((losses, hits))
    if kind == "TransformerConv" or levels == 1:
        assert found[0][1] == found[1][1]
    np.testing.assert_allclose(found[0][0], found[1][0], rtol=1e-5)
