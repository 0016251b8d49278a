"""History from end to end: batches against the oracle, what models make of them, and what changes nothing."""

from __future__ import annotations

import copy
import io
import itertools
import math
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from history_models import GRAPH, HOPS, MODELS, attach, hidden_rows, loss_of, model_of, run, small_graph, train
from history_oracle import prune, slots_view
from seeds import seed as seed_of

import freshgo
from freshgo import Disk, Loader, errors
from freshgo._batch.structure import recall
from freshgo.history import History

pytestmark = pytest.mark.usefixtures("no_warnings")

OPTIONS: dict[str, Any] = {"batch_size": 40, "seed": 5, "shuffle": True}


def levels_of(batch: Any) -> Any:
    known = recall(batch.edge_index)
    assert known is not None
    return known.levels


class Watched:
    """A model under history, and every decision that is made of its batches."""

    def __init__(self, data: Any = GRAPH, kind: str = "GraphSAGE", hops: Any = HOPS, **options: Any) -> None:
        loader_options = {key: options.pop(key) for key in list(options) if key not in HISTORY}
        self.history = History(**{"keep": "rows", "policy": "gradient", "memory": "1MiB", **options})
        self.model = model_of(kind)
        attach(self.history, self.model)
        self.kind = kind
        self.loader = Loader(data, hops, history=self.history, **{**OPTIONS, **loader_options})
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.05)
        self.seen: list[Any] = []
        self.losses: list[float] = []

    def epoch(self, batches: int | None = None) -> None:
        for batch in itertools.islice(self.loader, batches):
            levels = levels_of(batch)
            hits = [] if levels is None else [(at, *pair) for at in range(1, len(HOPS)) for pair in hits_of(batch, at)]
            self.seen.append((batch.n_id.tolist(), batch.edge_index.tolist(), hits))
            self.optimizer.zero_grad()
            loss = loss_of(run(self.model, batch, self.kind), batch)
            loss.backward()
            self.optimizer.step()
            self.history.update()
            self.losses.append(float(loss.detach()))


HISTORY = {"p_grad", "t_stale", "policy", "start", "features", "lag", "sample_error"}


def hits_of(batch: Any, level: int) -> list[tuple[int, int]]:
    """Node and slot of each hit."""
    levels = levels_of(batch)
    nodes = batch.n_id[levels.nodes[level][levels.hit[level]]]
    return list(zip(nodes.tolist(), levels.slot[level].tolist(), strict=True))


@pytest.mark.parametrize("repeated", [False, True])
@pytest.mark.parametrize("lag", [0, 2])
def test_batches_are_those_of_the_oracle(lag: int, repeated: bool) -> None:
    """Given its hits, everything else about a pruned batch follows from the plain one."""
    seeds = np.random.default_rng(seed_of(1)).integers(300, size=200) if repeated else None
    watched = Watched(input_nodes=seeds, lag=lag, p_grad=0.6, t_stale=9)
    model, history = watched.model, watched.history
    admitted: dict[int, tuple[int, int, int]] = {}  # what a slot holds, and since when
    native = watched.loader._engine.native
    plain = Loader(GRAPH, HOPS, seeds, **OPTIONS)
    iteration = pruned_rows = 0
    for _ in range(4):
        begun = iteration
        for batch, whole in zip(watched.loader, plain, strict=True):
            levels = levels_of(batch)
            assert levels.index == iteration
            found = [{}, *(dict(hits_of(batch, level)) for level in (1, 2))]
            for level in (1, 2):
                for node, slot in found[level].items():
                    *holds, entered = admitted[slot]
                    assert holds == [level, node]
                    assert iteration - entered <= 9
                    assert entered <= max(iteration - 1 - lag, begun - 1)  # before an epoch there is no lag
            expected = prune(whole, lambda level, node, found=found: found[level].get(node, -1))
            check_levels(batch, whole, expected)
            pruned_rows += len(whole.n_id) - levels.loaded
            loss_of(model(batch.x, batch.edge_index), batch).backward()
            nodes = [batch.n_id[levels.nodes[level][levels.computed[level]]].tolist() for level in (1, 2)]
            norms = history._steps.current.observed()[2]  # type: ignore[union-attr]
            kept = watch_update(history, native)
            for level, ((rows, slots), (computed, _)) in enumerate(zip(kept, norms, strict=True), start=1):
                check_admission(level, nodes[level - 1], computed, rows, 0.6)
                for row, slot in zip(rows, slots, strict=True):
                    admitted[slot] = (level, nodes[level - 1][row], iteration)
            iteration += 1
    assert pruned_rows > 1000


def test_rows_enter_and_leave_by_their_gradients() -> None:
    """A row is a hit exactly if it entered, is not too old, and had a small gradient wherever it was read."""
    watched = Watched(lag=0, p_grad=0.7, t_stale=12)
    entries: dict[tuple[int, int], int] = {}
    hits = iteration = evicted = 0
    for _ in range(4):
        for batch in watched.loader:
            levels = levels_of(batch)
            for level in (1, 2):
                needed = batch.n_id[levels.nodes[level]].tolist()
                young = [iteration - entries.get((level, node), -99) <= 12 for node in needed]
                assert levels.hit[level].tolist() == [place for place, found in enumerate(young) if found]
                hits += sum(young)
            loss_of(watched.model(batch.x, batch.edge_index), batch).backward()
            norms = watched.history._steps.current.observed()[2]  # type: ignore[union-attr]
            for level, (computed, read) in enumerate(norms, start=1):
                fresh = batch.n_id[levels.nodes[level][levels.computed[level]]].tolist()
                kept = batch.n_id[levels.nodes[level][levels.hit[level]]].tolist()
                ranked = sorted(zip(computed.tolist(), range(len(fresh)), strict=True))
                count = math.floor(0.7 * len(ranked) + 0.5)
                best = {place for _, place in ranked[:count]}
                threshold = ranked[count - 1][0] if count else -1.0
                for place, node in enumerate(fresh):
                    entries.pop((level, node), None)
                    if place in best:
                        entries[level, node] = iteration
                for norm, node in zip(read.tolist(), kept, strict=True):
                    if norm > threshold and count < len(ranked):
                        entries.pop((level, node), None)
                        evicted += 1
            watched.history.update()
            iteration += 1
    assert hits > 1000
    assert evicted > 100


def watch_update(history: History, native: Any) -> list[tuple[list[int], list[int]]]:
    kept: list[tuple[list[int], list[int]]] = []
    original = native.history_update

    def update(*args: Any) -> Any:
        result = original(*args)
        kept.extend((rows.tolist(), slots.tolist()) for rows, slots in result)
        return result

    native.history_update = update
    try:
        history.update()
    finally:
        del native.history_update
    return kept


def check_admission(level: int, nodes: list[int], norms: Any, rows: list[int], p_grad: float) -> None:
    """The rows with the smallest norms, ties by position, each node once."""
    first = {node: at for at, node in reversed(list(enumerate(nodes)))}
    order = sorted((float(norms[at]), at) for at in first.values())
    wanted = math.floor(p_grad * len(order) + 0.5)
    assert sorted(rows) == sorted(at for _, at in order[:wanted]), level


def check_levels(batch: Any, whole: Any, expected: Any) -> None:
    levels = levels_of(batch)
    nodes, edges = torch.tensor(expected.nodes), torch.tensor(expected.edges, dtype=torch.int64)
    assert batch.n_id.equal(whole.n_id[nodes])
    assert batch.e_id.equal(whole.e_id[edges])
    new = {node: i for i, node in enumerate(expected.nodes)}
    renumbered = [[new[v] for v in row] for row in whole.edge_index[:, edges].tolist()]
    assert batch.edge_index.tolist() == renumbered
    assert batch.num_sampled_nodes == expected.hops
    assert batch.num_sampled_edges == expected.edge_hops
    assert (levels.plain_nodes, levels.plain_edges) == (len(whole.n_id), whole.edge_index.size(1))
    assert levels.edges == batch.edge_index.size(1)
    degree = torch.bincount(whole.edge_index[1], minlength=len(whole.n_id))
    assert levels.degree.equal(degree[nodes])
    own = whole.edge_index[1][whole.edge_index[0] == whole.edge_index[1]]
    loops = torch.bincount(own, minlength=len(whole.n_id))[nodes]
    assert (levels.loops if levels.loops is not None else torch.zeros_like(loops)).equal(loops)
    wanted = sorted({new[row] for row in expected.tables[0]} | set(range(whole.batch_size)))
    assert levels.loaded == len(wanted)
    assert batch.x[wanted].equal(whole.x[nodes][wanted])
    others = torch.ones(len(nodes), dtype=torch.bool)
    others[wanted] = False
    assert not batch.x[others].any()
    assert not batch.y[others].any()
    for level, table in enumerate(expected.tables):
        assert levels.nodes[level].tolist() == [new[row] for row in table]
        if level:
            hit = [p for p, row in enumerate(table) if row in expected.hits[level]]
            assert levels.hit[level].tolist() == hit
            assert levels.computed[level].tolist() == [p for p in range(len(table)) if p not in set(hit)]
        block, place = batch.blocks()[level], {row: p for p, row in enumerate(table)}
        targets = expected.computed[level + 1]
        assert (block.num_src, block.num_dst, block.level) == (len(table), len(targets), level)
        assert block.edge_index.tolist() == [
            [place[int(s)] for t in targets for s in whole.edge_index[0][whole.edge_index[1] == t]],
            [i for i, t in enumerate(targets) for _ in range(int(degree[t]))],
        ]
        assert block.ptr.tolist() == [0, *np.cumsum([int(degree[t]) for t in targets])]
        assert batch.e_id[block.edge].equal(block.e_id)
        assert [new[table[s]] for s in block.edge_index[0]] == batch.edge_index[0][block.edge].tolist()


@pytest.mark.parametrize("fast", [False, True], ids=["pyg", "accelerated"])
@pytest.mark.parametrize("kind", ["GraphSAGE", "GCN", "GCN-loopless", "GAT", "GAT-edges", "GIN", "RGCNConv", "PNA"])
def test_with_rows_of_this_iteration_a_pruned_batch_equals_the_plain_one(kind: str, fast: bool) -> None:
    watched = Watched(kind=kind, lag=0, p_grad=1.0, t_stale=1000)
    model, history, native = watched.model, watched.history, watched.loader._engine.native
    reference = copy.deepcopy(MODELS[kind]())
    reference.load_state_dict(model.state_dict())
    if fast:
        freshgo.nn.accelerate(model)
    hits = 0
    for _ in range(2):
        for batch, whole in zip(watched.loader, Loader(GRAPH, HOPS, **OPTIONS), strict=False):
            if watched.loader.state_dict()["epoch"] == 1:
                break
            hidden = hidden_rows(reference, whole, kind)
            place = {node: row for row, node in reversed(list(enumerate(whole.n_id.tolist())))}
            for level in (1, 2):
                for node, slot in hits_of(batch, level):
                    values = hidden[level - 1][place[node]].detach()
                    slots_view(native, history._entries.buffer().row_bytes)[slot, : values.numel()] = values
                    hits += 1
            out, expected = run(model, batch, kind), run(reference, whole, kind)[: whole.batch_size]
            torch.testing.assert_close(out, expected, rtol=1e-4, atol=1e-5)
            loss_of(out, batch).backward()
            history.update()
    assert hits > 100


def test_hits_are_the_rows_that_were_stored() -> None:
    watched = Watched(lag=1)
    stored: dict[int, Any] = {}
    table: dict[int, Any] = {}
    for at, conv in enumerate(watched.model.convs):  # type: ignore[arg-type, union-attr]
        conv.register_forward_pre_hook(lambda _, args, at=at: table.update({at: args[0][0].detach()}))
    checked = 0
    for _ in range(3):
        for batch in watched.loader:
            loss_of(watched.model(batch.x, batch.edge_index), batch).backward()
            levels = levels_of(batch)
            for level in (1, 2):
                for position, slot in zip(levels.hit[level].tolist(), levels.slot[level].tolist(), strict=True):
                    assert table[level][position].equal(stored[slot])
                    checked += 1
            kept = watch_update(watched.history, watched.loader._engine.native)
            for level, (rows, slots) in enumerate(kept, start=1):
                positions = levels.computed[level].tolist()
                for row, slot in zip(rows, slots, strict=True):
                    stored[slot] = table[level][positions[row]].clone()
    assert checked > 500


@pytest.mark.parametrize("options", [{"p_grad": 0.0}, {"t_stale": 0}, {"start": 10**6}, {"start": math.inf}], ids=str)
@pytest.mark.parametrize("kind", ["GraphSAGE", "GAT"])
def test_what_never_begins_changes_no_bit(options: dict[str, Any], kind: str) -> None:
    watched = Watched(kind=kind, **options)
    theirs = model_of(kind)
    with Loader(GRAPH, HOPS, **OPTIONS) as plain:
        expected = train(theirs, plain, None, 2)
    for _ in range(2):
        watched.epoch()
    assert watched.losses == expected
    assert watched.history.stats()["rows_saved"] == 0
    for mine, other in zip(watched.model.parameters(), theirs.parameters(), strict=True):
        assert mine.equal(other)


def test_start_in_the_middle() -> None:
    watched = Watched(start=1.5)
    for _ in range(3):
        watched.epoch()
    begins = math.floor(1.5 * len(watched.loader) + 0.5)
    with Loader(GRAPH, HOPS, **OPTIONS) as plain:
        whole = [batch.n_id.tolist() for _ in range(3) for batch in plain]
    assert [nodes for nodes, _, _ in watched.seen[:begins]] == whole[:begins]
    assert any(hits for _, _, hits in watched.seen[begins:])


@pytest.fixture(scope="module")
def on_disk(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("history") / "graph.freshgo"
    freshgo.convert(GRAPH, path, progress=False).close()
    return path


@pytest.mark.parametrize("lag", [0, 2])
def test_decisions_depend_on_nothing_but_the_lag(lag: int, on_disk: Path) -> None:
    base: Any = None
    variants: list[dict[str, Any]] = [
        {},
        {"num_workers": 1, "prefetch": 2},
        {"num_workers": 3, "prefetch": 7},
        {"data": on_disk, "memory": "64MiB"},
        {"data": on_disk, "cache": "degree", "feature_cache": "4KiB"},
        {"data": on_disk, "cache": "belady"},
        {"data": on_disk, "cache": "none", "disk": Disk(io="pread"), "neighbor_cache": 0},
        {"transpose": True},
    ]
    for options in variants:
        watched = Watched(lag=lag, t_stale=11, **options)
        for _ in range(3):
            watched.epoch()
        assert watched.history.stats()["lag"] == lag
        result = (watched.seen, watched.losses)
        base = base or result
        assert result == base, options
        watched.loader.close()
    assert sum(len(hits) for _, _, hits in base[0]) > 500


@pytest.mark.parametrize("policy", ["gradient", "performance", "gas"])
@pytest.mark.parametrize("lag", [0, 1])
@pytest.mark.parametrize("batches", [None, 3], ids=["between", "within"])
def test_a_resumed_run_continues_identically(policy: str, lag: int, batches: int | None) -> None:
    options: dict[str, Any] = {"policy": policy, "lag": lag}
    first = Watched(**options)
    first.epoch()
    first.epoch(batches)
    file = io.BytesIO()
    torch.save(
        {
            "model": first.model.state_dict(),
            "loader": first.loader.state_dict(),
            "history": first.history.state_dict(),
        },
        file,
    )
    done = len(first.losses)
    if batches is not None:
        first.loader.load_state_dict(first.loader.state_dict())  # goes on where it is
    first.epoch()
    first.epoch()

    file.seek(0)
    state = torch.load(file, weights_only=True)
    second = Watched(**options)
    second.model.load_state_dict(state["model"])
    second.history.load_state_dict(state["history"])
    second.loader.load_state_dict(state["loader"])
    second.epoch()
    second.epoch()
    assert second.seen == first.seen[done:]
    assert second.losses == first.losses[done:]
    ours, theirs = second.history.stats(), first.history.stats()
    assert ours["saving"] == theirs["saving"]


def test_evaluation_has_plain_batches() -> None:
    watched = Watched()
    watched.epoch()
    before = watched.history.stats()
    watched.model.eval()
    with Loader(GRAPH, HOPS, **OPTIONS) as plain:
        plain.set_epoch(1)
        for batch, same in zip(watched.loader, plain, strict=True):
            assert levels_of(batch) is None
            assert batch.n_id.equal(same.n_id)
            assert batch.x.equal(same.x)
    assert watched.history.stats() == before
    watched.model.train()
    watched.epoch()
    assert watched.seen[-1][2]


@pytest.mark.parametrize("pyg", [True, False])
@pytest.mark.parametrize("how", ["attach", "blocks"])
def test_batches_that_are_copied_stay_pruned(how: str, pyg: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Moving a batch to another device makes such copies."""
    losses = []
    for copied in (False, True):
        watched = Watched()
        if not pyg:
            watched.loader._engine.assembler.batch_class = freshgo.Batch
        if how == "blocks":
            watched.history.detach()
        for _ in range(2):
            for one in watched.loader:
                batch = one
                if copied and pyg:
                    batch = one.clone()
                elif copied:
                    with monkeypatch.context() as patch:
                        patch.setattr(torch.Tensor, "to", lambda x, *_, **__: x.clone())
                        batch = one.to("cpu")
                assert (batch.edge_index is not one.edge_index) == copied
                if how == "attach":
                    out = watched.model(batch.x, batch.edge_index)
                else:
                    out = batch.x
                    for at, (conv, block) in enumerate(zip(watched.model.convs, batch.blocks(), strict=True)):
                        out = watched.history(out, block)
                        out = conv((out, out[: block.num_dst]), block.edge_index)
                        out = out.relu() if at < 2 else out
                loss = loss_of(out, batch)
                loss.backward()
                watched.history.update()
                losses.append(float(loss.detach()))
        assert watched.history.stats()["rows_saved"] > 500
    assert losses[: len(losses) // 2] == losses[len(losses) // 2 :]


def test_updates_that_are_missing_are_noticed_once_and_do_no_harm() -> None:
    watched = Watched(lag=1)
    model, history = watched.model, watched.history
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", UserWarning)
        for epoch in range(3):
            for i, batch in enumerate(watched.loader):
                loss_of(model(batch.x, batch.edge_index), batch).backward()
                if (i + epoch) % 3:
                    history.update()
    assert [one.filename for one in caught if "history.update()" in str(one.message)] == [__file__]
    assert sum(one["hits"] for one in history.stats()["layers"]) > 100


def test_a_closed_loader_leaves_its_figures_and_no_state() -> None:
    watched = Watched(lag=1)
    watched.epoch()
    before = watched.history.stats()
    watched.loader.close()
    assert watched.history.stats() == before
    watched.history.plot()
    with pytest.raises(errors.ClosedError, match="save the state before"):
        watched.history.state_dict()
    loader = Loader(GRAPH, HOPS, batch_size=32, history=watched.history)
    assert watched.history.stats()["saving"] == []
    assert watched.history.stats()["iterations"] == 0
    loader.close()


def test_batches_of_another_loader_are_told() -> None:
    one, other = Watched(lag=0), Watched(lag=0)
    next(iter(one.loader))
    batch = next(iter(other.loader))
    with pytest.raises(errors.InvalidArgumentError, match="another loader"):
        one.model(batch.x, batch.edge_index)


def test_states_whose_rows_do_not_fit_are_refused() -> None:
    watched = Watched(lag=1)
    watched.epoch()
    state = watched.history.state_dict()
    less = {key: value for key, value in state.items() if key != "rows"}
    flipped = state["entries"].clone()
    flipped[0] ^= 1
    for bad in (
        {**state, "rows": state["rows"][:-1]},
        {**state, "width": state["width"] + 1},
        {**state, "dtype": "float64"},
        {**state, "entries": flipped},
        less,
    ):
        with pytest.raises(errors.FormatError):
            watched.history.load_state_dict(bad)
    assert watched.history.state_dict()["entries"].equal(state["entries"])
    batches = iter(watched.loader)
    next(batches)
    watched.history.load_state_dict(state)  # ends the epoch: the next iterator goes on with it
    with pytest.raises(errors.ClosedError):
        next(batches)
    assert watched.loader.state_dict()["batches"] == 1


def test_a_state_that_is_damaged_anywhere_is_refused_and_changes_nothing() -> None:
    watched = Watched(lag=1, policy="gradient", sample_error=0.25)
    watched.epoch()
    state = watched.history.state_dict()
    bad: list[dict[str, Any]] = [{k: v for k, v in state.items() if k != name} for name in state]
    for name in ("rows", "entries", "error"):
        flipped = state[name].clone()
        flipped.view(-1).view(torch.uint8)[3] ^= 4
        bad.append({**state, name: flipped})
    saving = {**state["saving"], "bytes_saved": 1}
    bad += [{**state, "saving": saving}, {**state, "saving": torch.tensor([1, 2])}]
    bad += [{**state, "dtype": "int32"}, {**state, "version": torch.tensor([1, 2])}, {**state, "checksum": None}]
    bad += [{**state, "checksum": torch.tensor([1, 2])}]
    bad += [{**state, "settings": {**state["settings"], "memory": torch.tensor([1, 2])}}]
    for one in bad:
        with pytest.raises((errors.FormatError, errors.InvalidArgumentError)):
            watched.history.load_state_dict(one)
    now = watched.history.state_dict()
    assert now["checksum"] == state["checksum"]
    watched.history.load_state_dict(state)


def test_a_restored_run_that_has_not_gone_on_is_saved_as_it_was() -> None:
    """With what was pruned ahead, also of batches that are left whole to compare."""
    options: dict[str, Any] = {"lag": 3, "prefetch": 4, "sample_error": 0.5}
    first = Watched(**options)
    first.epoch()
    batches = iter(first.loader)
    for _ in range(3):
        batch = next(batches)
        loss_of(run(first.model, batch, first.kind), batch).backward()
        first.history.update()  # which waits until the next three are pruned
    state = first.history.state_dict()
    second = Watched(**options)
    second.history.load_state_dict(state)
    second.loader.load_state_dict(first.loader.state_dict())
    again = second.history.state_dict()
    assert again["entries"].equal(state["entries"])
    assert again["checksum"] == state["checksum"]


def test_a_state_that_waits_for_its_loader_is_refused_each_time() -> None:
    watched, history = Watched(), History(policy="gradient", memory="1MiB", keep="rows")
    watched.epoch()
    history.load_state_dict(watched.history.state_dict())
    with Loader(GRAPH, HOPS[:2], batch_size=40, history=history) as other:
        for _ in range(2):
            with pytest.raises(errors.FormatError):
                next(iter(other))


def test_no_error_where_nothing_changes() -> None:
    """All neighbours and a model that does not learn: what is stored is what would be computed."""
    watched = Watched(hops=[-1, -1, -1], sample_error=0.5, p_grad=1.0)
    for _ in range(3):
        for batch in watched.loader:
            loss_of(watched.model(batch.x, batch.edge_index), batch).backward()
            watched.history.update()
    errors_by_age = watched.history.stats()["error"]
    assert sum(row["rows"] for row in errors_by_age) > 500
    for row in errors_by_age:
        assert row["cosine"] == pytest.approx(1, abs=1e-5)
        assert row["relative"] < 1e-4


def test_errors_grow_with_learning_and_change_nothing_else(tmp_path: Path) -> None:
    results = []
    for _ in range(2):
        watched = Watched(sample_error=0.25, p_grad=1.0)
        for _ in range(3):
            watched.epoch()
        results.append(watched.history.stats()["error"])
    assert results[0] == results[1]
    assert all(row["relative"] > 0.01 for row in results[0])
    pytest.importorskip("matplotlib")
    watched.history.plot().savefig(tmp_path / "history.png")
    assert (tmp_path / "history.png").stat().st_size > 10_000


def test_bad_input() -> None:
    with pytest.raises(errors.DTypeError, match=r"history must be a freshgo.History"):
        Loader(GRAPH, HOPS, history=3)  # type: ignore[arg-type]
    with pytest.raises(errors.InvalidArgumentError, match="at least 2 layers"):
        Loader(GRAPH, [3], history=History())
    watched = Watched()
    with pytest.raises(errors.InvalidArgumentError, match="used by another loader"):
        Loader(GRAPH, HOPS, history=watched.history)
    small = History(policy="gradient", memory="16B", keep="rows")
    model = model_of("GraphSAGE")
    small.attach(model)
    with Loader(GRAPH, HOPS, history=small, **OPTIONS) as loader:
        with pytest.raises(errors.FreshgoError, match=r"buffer of 16 B has no room for one row of 32 B"):
            train(model, loader, small)
    watched.epoch()
    state = watched.history.state_dict()
    other = Watched(small_graph(200))
    with pytest.raises(errors.FreshgoError):
        other.history.load_state_dict(state)
    state["entries"] = state["entries"][:-1]
    with pytest.raises(errors.FormatError):
        watched.history.load_state_dict(state)
    watched.loader.close()
    with pytest.raises(errors.ClosedError):
        watched.history._entries.native  # noqa: B018
