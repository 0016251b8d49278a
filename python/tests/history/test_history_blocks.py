"""History by blocks, over graphs of every form: what a model computes with it, and what changes nothing."""

from __future__ import annotations

import copy
import math
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from graphs import Form, form_of, forms, hetero_graph, num_nodes, random_graph
from seeds import seed as seed_of
from torch import Tensor, nn

from freshgo import Batch, HeteroBatch, History, Loader, errors
from freshgo._batch.blocks import levels_of

HOPS = [4, 3, 3]
OPTIONS: dict[str, Any] = {"batch_size": 60, "seed": 3, "shuffle": True}
form = forms(lambda: random_graph(1000, 9000), lambda: hetero_graph(200))


@pytest.fixture(scope="module")
def typed(tmp_path_factory: pytest.TempPathFactory) -> Form:
    return form_of("several types", random_graph, lambda: hetero_graph(200), tmp_path_factory.mktemp("typed"))


def inputs(form: Form) -> dict[str, Any]:
    """The input nodes of each node type that has any."""
    more = {"author": np.arange(40)} if form.several else {}
    return {form.node_type: "train", **more}


def loader_of(form: Form, hops: list[int] = HOPS, graph: Any = None, **options: Any) -> Loader[Any]:
    return Loader(form.data if graph is None else graph, hops, form.bare(inputs(form)), **{**OPTIONS, **options})


class OfBlock:
    """A block by type, whatever the form of its graph."""

    def __init__(self, block: Any, form: Form) -> None:
        self.num_src, self.num_dst = form.of_nodes(block.num_src), form.of_nodes(block.num_dst)
        self.relations = block.relations if form.node_type else {form.within: block}
        self._block, self._form = block, form

    def __getitem__(self, key: Any) -> Any:
        return self.relations[key]

    def targets(self, h: dict[str, Tensor]) -> dict[str, Tensor]:
        return {t: rows[: self.num_dst[t]] for t, rows in h.items()}


class RGCN(nn.Module):
    """Means over relations by index_add, so that there is no PyG in it; three layers of 12 columns."""

    def __init__(self, form: Form) -> None:
        super().__init__()
        torch.manual_seed(seed_of(1))
        graph = form.graph
        self.form, self.types, self.relations = form, list(num_nodes(graph)), form.relations
        self.inputs = nn.ModuleList(
            nn.Linear(graph[t]["x"].shape[1], 12) if "x" in graph[t] else nn.Embedding(num_nodes(graph)[t], 12)
            for t in self.types
        )
        self.own = nn.ModuleList(nn.ModuleList(nn.Linear(12, 12) for _ in self.types) for _ in HOPS)
        self.along = nn.ModuleList(nn.ModuleList(nn.Linear(12, 12) for _ in self.relations) for _ in HOPS)

    def layer(self, at: int, h: dict[str, Tensor], block: Any) -> dict[str, Tensor]:
        own = dict(zip(self.types, self.own[at], strict=True))
        out = {t: own[t](rows) for t, rows in block.targets(h).items()}
        for linear, key in zip(self.along[at], self.relations, strict=True):
            source, _, target = key
            edges = block[key].edge_index
            degree = torch.zeros(block.num_dst[target]).index_add(0, edges[1], torch.ones(edges.size(1))).clamp(min=1)
            total = torch.zeros(block.num_dst[target], 12).index_add(0, edges[1], linear(h[source])[edges[0]])
            out[target] = out[target] + total / degree[:, None]
        return {t: rows.relu() for t, rows in out.items()}

    def forward(self, batch: Any, history: History | None = None, see: Any = None) -> Tensor:
        form, parts = self.form, self.form.by_type(batch)
        h = {
            t: layer(parts[t].x.float() if isinstance(layer, nn.Linear) else parts[t].n_id)
            for t, layer in zip(self.types, self.inputs, strict=True)
        }
        for at, block in enumerate(batch.blocks()):
            computed = h
            h = h if history is None else form.of_nodes(history(form.bare(h), block))
            if see is not None:
                see(block, computed, h)
            h = self.layer(at, h, block if isinstance(block, Whole) else OfBlock(block, form))
        return torch.cat([h[t][: parts[t].batch_size] for t in inputs(form)])


def train(form: Form, history: History | None, epochs: int = 2, **options: Any) -> tuple[Any, ...]:
    """Return losses, what batches were, and the model."""
    model = RGCN(form)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    losses, seen = [], []
    with loader_of(form, history=history, **options) as loader:
        for _ in range(epochs):
            for batch in loader:
                loss = step(model, optimizer, batch, history)
                losses.append(loss)
                levels = levels_of(batch)
                hits = None if levels is None else [at.tolist() for at in levels.hit[1:]]
                parts = form.by_type(batch)
                seen.append(({t: parts[t].n_id.tolist() for t in model.types}, hits))
        stats = history.stats() if history is not None and history._entries.active else None
    return losses, seen, model, stats


def step(model: RGCN, optimizer: Any, batch: Any, history: History | None) -> float:
    optimizer.zero_grad()
    out = model(batch, history)
    parts = model.form.by_type(batch)
    labels = torch.cat([parts[t].n_id[: parts[t].batch_size] % 12 for t in inputs(model.form)])
    loss = F.cross_entropy(out, labels)
    loss.backward()
    optimizer.step()
    if history is not None:
        history.update()
    return loss.item()


@pytest.mark.parametrize("without", [False, True], ids=["PyG", "without PyG"])
def test_blocks_of_plain_batches_give_the_seeds_what_the_whole_batch_does(
    form: Form, without: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if without:
        monkeypatch.setattr(
            "freshgo._loader.arrange.batch_class", lambda types: Batch if types.homogeneous else HeteroBatch
        )
    else:
        pytest.importorskip("torch_geometric")
    model = RGCN(form)
    with loader_of(form, transpose=True) as loader:
        for batch in loader:
            parts = form.by_type(batch)
            blocks = [OfBlock(block, form) for block in batch.blocks()]
            assert [block.num_dst for block in blocks[:-1]] == [block.num_src for block in blocks[1:]]
            assert blocks[0].num_src == {t: len(parts[t].n_id) for t in model.types}
            seeds = {t: parts[t].batch_size if "batch_size" in parts[t] else 0 for t in model.types}
            assert blocks[-1].num_dst == seeds
            for block in blocks:
                for key, one in block.relations.items():
                    assert one.ptr.numel() == block.num_dst[key[2]] + 1
                    assert torch.equal(one.ptr.diff(), torch.bincount(one.edge_index[1], minlength=one.num_dst))
                    assert torch.equal(one.e_id, parts[key].e_id[: one.num_edges])
            whole = OnTheWhole(batch, form)
            torch.testing.assert_close(model(batch), model(whole))
            moved = [OfBlock(block, form) for block in batch.to("cpu").blocks()]
            assert [block.num_src for block in moved] == [block.num_src for block in blocks]


class OnTheWhole:
    """A batch whose layers are all computed on all of it."""

    def __init__(self, batch: Any, form: Form) -> None:
        self.parts = form.by_type(batch)
        self.node_types = self.parts.node_types

    def __getitem__(self, key: Any) -> Any:
        return self.parts[key]

    def blocks(self) -> Any:
        return [Whole(self.parts) for _ in HOPS]


class Whole:
    """All that a batch has, as a block."""

    def __init__(self, parts: Any) -> None:
        self._parts, self.num_dst = parts, {t: len(parts[t].n_id) for t in parts.node_types}

    def targets(self, h: Any) -> Any:
        return h

    def __getitem__(self, key: Any) -> Any:
        return self._parts[key]


@pytest.mark.parametrize("off", [{"p_grad": 0.0}, {"t_stale": 0}, {"start": 10**6}, "evaluation"], ids=str)
def test_history_that_does_nothing_changes_no_bit(form: Form, off: Any) -> None:
    want = train(form, None)
    history = History(memory="1MiB", keep="rows") if off == "evaluation" else History(memory="1MiB", keep="rows", **off)
    if off == "evaluation":
        history.eval()
    got = train(form, history)
    assert got[0] == want[0]
    assert [nodes for nodes, _ in got[1]] == [nodes for nodes, _ in want[1]]
    for a, b in zip(got[2].parameters(), want[2].parameters(), strict=True):
        assert torch.equal(a, b)


@pytest.mark.parametrize("policy", ["gradient", "performance", "gas"])
def test_hits_are_the_stored_rows_and_stop_gradients(form: Form, policy: str) -> None:
    options: dict[str, Any] = {} if policy == "gas" else {"t_stale": 9}
    history = History(policy=policy, memory="2MiB", lag=0, keep="rows", **options)
    model = RGCN(form)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    stored: dict[tuple[int, str, int], tuple[int, Tensor]] = {}  # by layer, type and node: when, and what
    found, ages = 0, []
    with loader_of(form, history=history) as loader:
        for iteration, batch in enumerate(b for _ in range(3) for b in loader):
            computed_now: list[Any] = []

            def see(  # what the batch at hand is, is bound here
                block: Any, computed: Any, h: Any, *, batch: Any = batch, now: Any = computed_now, i: int = iteration
            ) -> None:
                nonlocal found
                levels, level = block.levels, block.level
                if level == 0:
                    return
                rows, nodes = torch.cat(list(h.values())), levels.nodes[level]
                parts = form.by_type(batch)
                names = [t for t, n in form.of_nodes(block.num_src).items() for _ in range(n)]
                keys = [(level, t, int(parts[t].n_id[v])) for t, v in zip(names, nodes.tolist(), strict=True)]
                for at in levels.hit[level].tolist():
                    when, row = stored[keys[at]]
                    assert torch.equal(rows[at], row)
                    ages.append(i - when)
                    found += 1
                flat = torch.cat(list(computed.values()))
                assert torch.equal(rows[levels.computed[level]], flat)
                now.extend((keys[at], row.detach().clone()) for at, row in
                           zip(levels.computed[level].tolist(), flat, strict=True))  # fmt: skip
                if levels.hit[level].numel() and flat.requires_grad:
                    parts = [part for part in computed.values() if part.size(0)]
                    for gradient in torch.autograd.grad(rows[levels.hit[level]].sum(), parts, retain_graph=True):
                        assert not gradient.any()

            optimizer.zero_grad()
            out = model(batch, history, see)
            F.cross_entropy(out, torch.arange(len(out)) % 12).backward()
            optimizer.step()
            history.update()
            for key, row in computed_now:
                stored[key] = (iteration, row)
    assert found > 100
    assert min(ages) >= 1
    assert policy == "gas" or max(ages) <= 9


def test_fresh_rows_give_what_computing_does(form: Form) -> None:
    """With parameters that do not change and all neighbours, what is kept is what would be computed."""
    history = History(p_grad=1.0, t_stale=math.inf, policy="gradient", memory="16MiB", lag=0, keep="rows")
    model = RGCN(form)
    with (
        loader_of(form, [-1, -1, -1], history=history, batch_size=150) as pruned,
        loader_of(form, [-1, -1, -1], batch_size=150) as plain,
    ):
        for _ in range(2):
            for batch, whole in zip(pruned, plain, strict=True):
                out = model(batch, history)
                torch.testing.assert_close(out, model(whole), rtol=1e-4, atol=1e-5)
                out.sum().backward()
                history.update()
        stats = history.stats()
    assert sum(layer["hits"] for layer in stats["layers"]) > 1000
    assert stats["rows_saved"] > 0
    assert stats["edges_saved"] > 0
    assert stats["bytes_saved"] > 0


def test_same_decisions_whatever_runs_it(form: Form) -> None:
    def history() -> History:
        return History(policy="gradient", t_stale=12, memory="1MiB", lag=0, keep="rows")

    want = train(form, history())
    assert any(hits and any(hits) for _, hits in want[1])
    for options in (
        {"num_workers": 4, "prefetch": 3},
        {"prefetch": 0, "cache": "lru", "feature_cache": "60kB"},
        {"cache": "belady", "feature_cache": "60kB"},
        {"memory": "32MiB", "neighbor_cache": 0},
    ):
        got = train(form, history(), graph=form.path, **options)
        assert got[:2] == want[:2], options


def test_a_run_goes_on_where_it_was_saved(form: Form) -> None:
    def make() -> tuple[Any, ...]:
        history = History(policy="gradient", t_stale=20, memory="1MiB", keep="rows")
        model = RGCN(form)
        return history, model, torch.optim.SGD(model.parameters(), 0.1), loader_of(form, history=history)

    history, model, optimizer, loader = make()
    for batch in loader:
        step(model, optimizer, batch, history)
    epoch = iter(loader)
    for _ in range(2):
        step(model, optimizer, next(epoch), history)
    states = copy.deepcopy([history.state_dict(), model.state_dict(), loader.state_dict()])
    want = [step(model, optimizer, batch, history) for batch in epoch]
    loader.close()
    history, model, optimizer, loader = make()
    for of, state in zip((history, model, loader), states, strict=True):
        of.load_state_dict(state)
    assert [step(model, optimizer, batch, history) for batch in loader] == want
    assert history.stats()["layers"][0]["hits"] > 0
    loader.close()


def test_rows_of_types_that_do_not_fit(typed: Form) -> None:
    history = History(policy="gradient", memory="1MiB", keep="rows")
    model = RGCN(typed)
    with loader_of(typed, history=history) as loader:
        batch = next(iter(loader))
        first, second, _ = batch.blocks()
        x = {t: torch.randn(batch[t].num_nodes, 4) for t in model.types}
        with pytest.raises(errors.DTypeError, match=r"level 0: expected a dict of rows .* by node type, got Tensor"):
            history(x["paper"], first)
        with pytest.raises(
            errors.InvalidArgumentError, match=r"got rows of 'book', the graph has the node types 'paper', "
        ):
            history({"book": x["paper"]}, first)
        with pytest.raises(errors.InvalidArgumentError, match=r"expected \d+ rows of node type 'paper', got 3"):
            history({"paper": x["paper"][:3]}, first)
        with pytest.raises(errors.InvalidArgumentError, match=r"the batch has node types: attach"):
            history(x["paper"], first["paper", "cites", "paper"])
        h = history(x, first)
        with pytest.raises(errors.InvalidArgumentError, match=r"rows of node type 'author', got none"):
            first.pairs({"paper": h["paper"]})
        computed = {t: torch.randn(n, 4) for t, n in first.num_dst.items()}
        with pytest.raises(
            errors.InvalidArgumentError, match=r"layer 1 computes \d+ rows of node type 'paper' .*got none"
        ):
            history({t: rows for t, rows in computed.items() if t != "paper"}, second)
        with pytest.raises(errors.InvalidArgumentError, match=r"one width in a hidden layer .*'paper': 5"):
            history({**computed, "paper": torch.randn(first.num_dst["paper"], 5)}, second)
        with pytest.raises(errors.DTypeError, match=r"one dtype in a hidden layer"):
            history({**computed, "paper": computed["paper"].double()}, second)
        with pytest.raises(errors.InvalidArgumentError, match=r"did not ask for its rows of layer 1, 2"):
            history.update()
    with pytest.raises(errors.InvalidArgumentError, match=r"at least 2 layers"):
        loader_of(typed, [4], history=History())
