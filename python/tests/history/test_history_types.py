"""History over graphs with types: what a model computes with it, and what changes nothing."""

from __future__ import annotations

import copy
import math
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from graphs import Graph, hetero_graph, num_nodes, relations
from seeds import seed as seed_of
from torch import Tensor, nn

from freshgo import HeteroBatch, History, Loader, errors
from freshgo._batch.blocks import levels_of

HOPS = [4, 3, 3]
OPTIONS: dict[str, Any] = {"batch_size": 60, "seed": 3, "shuffle": True}
INPUTS = {"paper": "train", "author": np.arange(40)}


@pytest.fixture(scope="module")
def typed() -> Graph:
    return hetero_graph(200)


class RGCN(nn.Module):
    """Means over relations by index_add, so that there is no PyG in it; three layers of 12 columns."""

    def __init__(self, graph: Graph) -> None:
        super().__init__()
        torch.manual_seed(seed_of(1))
        self.types, self.relations = list(num_nodes(graph)), relations(graph)
        self.inputs = nn.ModuleDict(
            {
                t: nn.Linear(graph[t]["x"].shape[1], 12) if "x" in graph[t] else nn.Embedding(num_nodes(graph)[t], 12)
                for t in self.types
            }
        )
        self.own = nn.ModuleList(nn.ModuleDict({t: nn.Linear(12, 12) for t in self.types}) for _ in HOPS)
        self.along = nn.ModuleList(nn.ModuleList(nn.Linear(12, 12) for _ in self.relations) for _ in HOPS)

    def layer(self, at: int, h: dict[str, Tensor], block: Any) -> dict[str, Tensor]:
        out = {t: self.own[at][t](rows) for t, rows in block.targets(h).items()}
        for linear, key in zip(self.along[at], self.relations, strict=True):
            source, _, target = key
            edges = block[key].edge_index
            degree = torch.zeros(block.num_dst[target]).index_add(0, edges[1], torch.ones(edges.size(1))).clamp(min=1)
            total = torch.zeros(block.num_dst[target], 12).index_add(0, edges[1], linear(h[source])[edges[0]])
            out[target] = out[target] + total / degree[:, None]
        return {t: rows.relu() for t, rows in out.items()}

    def forward(self, batch: Any, history: History | None = None, see: Any = None) -> Tensor:
        h = {
            t: layer(batch[t].x.float() if isinstance(layer, nn.Linear) else batch[t].n_id)
            for t, layer in self.inputs.items()
        }
        for at, block in enumerate(batch.blocks()):
            computed = h
            h = h if history is None else history(h, block)
            if see is not None:
                see(block, computed, h)
            h = self.layer(at, h, block)
        return torch.cat([h[t][: batch[t].batch_size] for t in INPUTS])


def train(graph: Any, source: Graph, history: History | None, epochs: int = 2, **options: Any) -> tuple[Any, ...]:
    """Return losses, what batches were, and the model."""
    model = RGCN(source)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    losses, seen = [], []
    with Loader(graph, HOPS, INPUTS, history=history, **{**OPTIONS, **options}) as loader:
        for _ in range(epochs):
            for batch in loader:
                loss = step(model, optimizer, batch, history)
                losses.append(loss)
                levels = levels_of(batch)
                hits = None if levels is None else [at.tolist() for at in levels.hit[1:]]
                seen.append(({t: batch[t].n_id.tolist() for t in model.types}, hits))
        stats = history.stats() if history is not None and history._kept() else None
    return losses, seen, model, stats


def step(model: RGCN, optimizer: Any, batch: Any, history: History | None) -> float:
    optimizer.zero_grad()
    out = model(batch, history)
    labels = torch.cat([batch[t].n_id[: batch[t].batch_size] % 12 for t in INPUTS])
    loss = F.cross_entropy(out, labels)
    loss.backward()
    optimizer.step()
    if history is not None:
        history.update()
    return loss.item()


@pytest.mark.parametrize("hetero", [False, True], ids=["PyG", "without PyG"])
def test_blocks_of_plain_batches_give_the_seeds_what_the_whole_batch_does(
    typed: Graph, hetero: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if hetero:
        monkeypatch.setattr("freshgo.loader.batch_class", lambda types: HeteroBatch)
    else:
        pytest.importorskip("torch_geometric")
    model = RGCN(typed)
    with Loader(typed, HOPS, INPUTS, transpose=True, **OPTIONS) as loader:
        for batch in loader:
            blocks = batch.blocks()
            assert [block.num_dst for block in blocks[:-1]] == [block.num_src for block in blocks[1:]]
            assert blocks[0].num_src == {t: batch[t].num_nodes for t in model.types}
            assert blocks[-1].num_dst == {t: batch[t].get("batch_size", 0) if not hetero else
                                          (batch[t].batch_size if "batch_size" in batch[t] else 0)
                                          for t in model.types}  # fmt: skip
            for block in blocks:
                for key, one in block.relations.items():
                    assert one.ptr.numel() == block.num_dst[key[2]] + 1
                    assert torch.equal(one.ptr.diff(), torch.bincount(one.edge_index[1], minlength=one.num_dst))
                    assert torch.equal(one.e_id, batch[key].e_id[: one.num_edges])
            whole = Whole(batch, blocks)
            torch.testing.assert_close(model(batch), model(whole))
            moved = batch.to("cpu").blocks()
            assert [block.num_src for block in moved] == [block.num_src for block in blocks]


class Whole:
    """A batch whose layers are all computed on all of it."""

    def __init__(self, batch: Any, blocks: Any) -> None:
        nodes = {t: batch[t].num_nodes for t in batch.node_types}
        self._batch, self._blocks = batch, [_Graph(batch, nodes) for _ in blocks]

    def __getitem__(self, key: Any) -> Any:
        return self._batch[key]

    def blocks(self) -> Any:
        return self._blocks


class _Graph:
    def __init__(self, batch: Any, nodes: dict[str, int]) -> None:
        self._batch, self.num_dst = batch, nodes

    def targets(self, h: Any) -> Any:
        return h

    def __getitem__(self, key: Any) -> Any:
        return self._batch[key]


@pytest.mark.parametrize("off", [{"p_grad": 0.0}, {"t_stale": 0}, {"start": 10**6}, "evaluation"], ids=str)
def test_history_that_does_nothing_changes_no_bit(typed: Graph, off: Any) -> None:
    want = train(typed, typed, None)
    history = History(memory="1MiB") if off == "evaluation" else History(memory="1MiB", **off)
    if off == "evaluation":
        history.eval()
    got = train(typed, typed, history)
    assert got[0] == want[0]
    assert [nodes for nodes, _ in got[1]] == [nodes for nodes, _ in want[1]]
    for a, b in zip(got[2].parameters(), want[2].parameters(), strict=True):
        assert torch.equal(a, b)


@pytest.mark.parametrize("policy", ["gradient", "performance", "gas"])
def test_hits_are_the_stored_rows_and_stop_gradients(typed: Graph, policy: str) -> None:
    options: dict[str, Any] = {} if policy == "gas" else {"t_stale": 9}
    history = History(policy=policy, memory="2MiB", lag=0, **options)
    model = RGCN(typed)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    stored: dict[tuple[int, str, int], tuple[int, Tensor]] = {}  # by layer, type and node: when, and what
    found, ages = 0, []
    with Loader(typed, HOPS, INPUTS, history=history, **OPTIONS) as loader:
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
                names = [t for t, n in block.num_src.items() for _ in range(n)]
                keys = [(level, t, int(batch[t].n_id[v])) for t, v in zip(names, nodes.tolist(), strict=True)]
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


def test_fresh_rows_give_what_computing_does(typed: Graph) -> None:
    """With parameters that do not change and all neighbours, what is kept is what would be computed."""
    history = History(p_grad=1.0, t_stale=math.inf, policy="gradient", memory="16MiB", lag=0)
    model = RGCN(typed)
    options = {**OPTIONS, "batch_size": 150}
    with (
        Loader(typed, [-1, -1, -1], INPUTS, history=history, **options) as pruned,
        Loader(typed, [-1, -1, -1], INPUTS, **options) as plain,
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


def test_same_decisions_whatever_runs_it(typed: Graph, tmp_path: Any) -> None:
    from freshgo import convert

    def history() -> History:
        return History(policy="gradient", t_stale=12, memory="1MiB", lag=0)

    want = train(typed, typed, history())
    assert any(hits and any(hits) for _, hits in want[1])
    with convert(typed, tmp_path / "g", progress=False) as store:
        for options in (
            {"num_workers": 4, "prefetch": 3},
            {"prefetch": 0, "cache": "lru", "feature_cache": "100kB"},
            {"cache": "belady", "feature_cache": "200kB"},
            {"memory": "32MiB", "neighbor_cache": 0},
        ):
            got = train(store, typed, history(), **options)
            assert got[:2] == want[:2], options


def test_a_run_goes_on_where_it_was_saved(typed: Graph) -> None:
    def make() -> tuple[Any, ...]:
        history = History(policy="gradient", t_stale=20, memory="1MiB")
        model = RGCN(typed)
        return (
            history,
            model,
            torch.optim.SGD(model.parameters(), 0.1),
            Loader(typed, HOPS, INPUTS, history=history, **OPTIONS),
        )

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


def test_what_cannot_work_says_so(typed: Graph) -> None:
    history = History(policy="gradient", memory="1MiB")
    model = RGCN(typed)
    with Loader(typed, HOPS, INPUTS, history=history, **OPTIONS) as loader:
        batch = next(iter(loader))
        first, second, _ = batch.blocks()
        x = {t: torch.randn(batch[t].num_nodes, 4) for t in model.types}
        with pytest.raises(errors.DTypeError, match=r"level 0: expected a dict of rows .* by node type, got Tensor"):
            history(x["paper"], first)
        with pytest.raises(errors.InvalidArgumentError, match=r"node types 'paper', .*, got rows of 'book'"):
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
        Loader(typed, [4], INPUTS, history=History(), **OPTIONS)


@pytest.mark.parametrize("cache", ["degree", "expected", "belady"])
def test_features_share_the_buffer(typed: Graph, tmp_path: Any, cache: str) -> None:
    """Rows of types of all widths lie at its other end where the cache is a ranking, and change no batch."""
    from freshgo import convert

    runs = []
    with convert(typed, tmp_path / "g", progress=False) as store:
        for features in (True, False):
            history = History(p_grad=1.0, t_stale=2.0, policy="gradient", memory="64KiB", features=features)
            losses, seen, _, stats = train(store, typed, history, cache=cache, feature_cache="10kB")
            shared = features and cache != "belady"
            assert (stats["displaced"] > 0) == shared
            assert stats["embedding_bytes"] + stats["feature_bytes"] <= stats["bytes"] == 64 << 10
            assert sum(layer["hits"] for layer in stats["layers"]) > 0
            runs.append((losses, seen))
    assert runs[0] == runs[1]
