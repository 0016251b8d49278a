"""``Loader.plan()`` and the options that it explains: any cache, any transfer, any order, the same batches."""

from __future__ import annotations

import dataclasses
import itertools
import json
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pytest
import torch
from oracle import digest

from freshgo import Auto, Belady, Hotness, Loader, Online, Plan
from freshgo._args.choices import Transfer
from freshgo.errors import BudgetError, InvalidArgumentError
from freshgo.policies import NAMES

SAMPLING: dict[str, Any] = {"num_neighbors": [4, 3], "batch_size": 150, "shuffle": True, "seed": 3}
SMALL: dict[str, Any] = {"memory": "24MiB", "feature_cache": "64KiB", "num_workers": 2}
"""Room for about a fifth of the rows of ``x``, so that every policy has something to decide."""


def names(count: int) -> list[dict[str, Any]]:
    """Options of a window with this many ways to read it."""
    return [
        {
            "name": name,
            "requests": 1000 // (i + 1),
            "bytes_read": (i + 1) << 20,
            "bytes_written": i << 19,
            "seconds": 0.2 / (1 + i % 3),
            "fits": i != count - 1,
        }
        for i, name in enumerate(get_args(Transfer)[1 : 1 + count])
    ]


def window(first: int, batches: int, measured: float | None) -> dict[str, Any]:
    return {
        "first": first,
        "batches": batches,
        "ahead": 2,
        "options": names(5),
        "chosen": "scan",
        "forced": False,
        "why": "cheapest",
        "predicted_seconds": 0.1,
        "measured_seconds": measured,
        "measured_bytes_read": 3 << 20,
        "measured_bytes_written": 1 << 20,
        "floor_bytes": 5 << 19,
        "floor_seconds": 0.05,
        "cold_rows": 1234,
    }


DATA: dict[str, Any] = {
    "split": {"feature_cache": 200 << 20, "topology": 3 << 20, "nothing": 0},
    "superbatch": 16,
    "cache": "belady",
    "why": "features <do not> fit",
    "capacity_rows": 400_000,
    "device": {
        "request_seconds": 3e-6,
        "page_seconds": 1.2e-6,
        "read_bytes_per_second": 2e9,
        "write_bytes_per_second": 1e9,
    },
    "windows": [window(0, 1, 0.13), window(1, 2, 0.09), window(3, 4, None)],
    "timeline": {
        "sampling": [[0, 0.0, 0.1], [1, 0.2, 0.4]],
        "planning": [[0, 0.1, 0.15], [1, 0.4, 0.6]],
        "scanning": [],
        "reading": [[0, 0.2, 0.3], [1, 0.7, 0.9], [2, 0.8, 1.0]],
        "waiting": [[0, 0.0, 0.3], [1, 0.5, 0.9]],
    },
}


def test_a_plan_in_words() -> None:
    plan = Plan(DATA)
    text = str(plan)
    assert repr(plan) == text
    for part in (
        "feature cache 200.0 MiB, topology 3.0 MiB",
        "belady, 400,000 rows, superbatches of 16 batches",
        "features <do not> fit",
        "a request 3 µs and 1.2 µs a page, reads 1.9 GiB/s in sequence",
        "batch 0 (knowing 2 more): 1,234 rows to read, scan (cheapest), predicted 100 ms, took 130 ms; floor",
        "floor 2.5 MiB in 50 ms, moved 3.0 MiB read and 1.0 MiB written; with",
        "batches 3 to 6",
        "with what is ahead: scan 66.7 ms, page-once 100 ms, random 200 ms",
        "took 1.10 of what was predicted, of 2",
    ):
        assert part in text, part
    assert "begun during the window before" not in text
    assert "scan (cheapest), begun during the window before" in str(
        Plan({"windows": [{**window(0, 1, 1.0), "early": True}]})
    )
    assert plan.ratios == pytest.approx([1.3, 0.9])
    assert "features &lt;do not&gt; fit" in plan._repr_html_()
    assert "3 rows" not in str(Plan({"cache": "none"}))


def test_a_long_plan_is_cut() -> None:
    plan = Plan({"windows": [window(i, 1, 0.1) for i in range(100)]})
    assert len(plan.windows) == 100
    assert str(plan).count("knowing") == 12
    assert "and 88 more" in str(plan)


def test_a_plan_of_nothing() -> None:
    for data in ({}, {"windows": []}, {"windows": None, "split": None, "device": None}):
        assert str(Plan(data)) == "nothing is planned"
        assert Plan(data)._repr_html_() == "nothing is planned"
        assert Plan(data).ratios == []


def test_parts_that_are_absent_are_left_out() -> None:
    for keys in itertools.combinations(DATA, 3):
        str(Plan({key: DATA[key] for key in keys}))
    whole = DATA["windows"][0]
    for key in whole:
        part = {k: v for k, v in whole.items() if k != key}
        assert str(Plan({"windows": [part]}))
        option = {k: v for k, v in names(1)[0].items() if k != key}
        assert str(Plan({"windows": [{**part, "options": [option]}]}))


def test_the_picture() -> None:
    pytest.importorskip("matplotlib")
    axes = {axes.get_title(): axes for axes in Plan(DATA).plot().axes}
    assert list(axes) == [
        "a window with what is ahead, on average",
        "moves",
        "and makes requests",
        "the memory is divided into",
        "the windows, 3 so far: the median took 1.10 of what was predicted",
    ]
    seconds = axes["a window with what is ahead, on average"]
    assert [label.get_text() for label in seconds.get_yticklabels()][2] == "scan: 3 x"
    for data in ({}, {"windows": [window(0, 1, None)]}, {"windows": [{"options": [{}]}]}, {"split": {"a": 5}}):
        assert Plan(data).plot().axes


def test_the_picture_of_the_timeline() -> None:
    pytest.importorskip("matplotlib")
    (axes,) = Plan(DATA).plot_timeline().axes
    assert axes.get_title() == "1 seconds, 0.7 of them waiting; dotted: the first batch of a window"
    drawn = [len(bars.get_paths()) for bars in axes.collections]
    assert drawn == [2, 2, 0, 0, 3, 2]
    assert [line.get_xdata()[0] for line in axes.lines] == [0.2, 0.7]  # the third window has not begun
    for data in ({}, {"timeline": {}}, {"timeline": {"reading": [[0, 0.0, 1.0]]}, "windows": [{}]}):
        assert Plan(data).plot_timeline().axes


def batches(data: Any, epochs: int = 2, **options: Any) -> list[str]:
    with Loader(data, **SAMPLING, **options) as loader:
        return [digest(batch) for _ in range(epochs) for batch in loader]


@pytest.fixture(scope="module")
def expected(graph: dict[str, Any]) -> list[str]:
    return batches(graph)


POLICIES: list[Any] = [
    *NAMES,
    Belady(superbatch=1),
    Belady(superbatch=7, lookahead=False),
    Belady(superbatch=30, carry_over=False),
    Hotness("presc", k=2),
    Hotness("random", seed=8),
    Online("clock"),
    np.arange(3000),
]


@pytest.mark.parametrize("cache", POLICIES, ids=repr)
def test_every_cache_gives_the_same_batches(store: Any, expected: list[str], cache: Any) -> None:
    assert batches(store, cache=cache, **SMALL) == expected


@pytest.mark.parametrize("scratch", [True, False])
@pytest.mark.parametrize("transfer", get_args(Transfer))
def test_every_transfer_gives_the_same_batches(
    store: Any, expected: list[str], transfer: Transfer, scratch: bool, tmp_path: Path
) -> None:
    place: dict[str, Any] = {"scratch": tmp_path} if scratch else {"scratch_size": 0}
    assert batches(store, cache=Auto(transfer=transfer, **place), **SMALL) == expected
    assert list(tmp_path.iterdir()) == [], "the scratch file is gone"


def test_a_plan_says_what_is_done(store: Any) -> None:
    with Loader(store, **SAMPLING, **SMALL, cache=Belady(superbatch=4, transfer="page-once")) as loader:
        assert loader.plan().data["cache"] == "belady"
        list(loader)
        list(loader)
        plan = loader.plan()
        rows = loader.stats()["rows"]
    json.dumps(plan.data)
    assert plan.data["superbatch"] == 4
    assert sum(n for n in plan.data["split"].values() if isinstance(n, int)) <= 24 << 20
    assert 0 < plan.data["capacity_rows"] < store.num_nodes
    assert plan.windows
    firsts = [w["first"] for w in plan.windows]
    assert firsts == sorted(firsts)
    for w in plan.windows:
        assert w["missed_rows"] >= w["cold_rows"]
        assert w["floor_bytes"] > 0
        assert w["chosen"] == "page-once"
        assert w["forced"]
        assert {"name", "requests", "bytes_read", "bytes_written", "seconds", "fits"} <= w["options"][0].keys()
    assert plan.ratios
    assert all(ratio > 0 for ratio in plan.ratios)
    assert 0 < sum(w["cold_rows"] for w in plan.windows if w["measured_seconds"] is not None) <= rows
    assert "page-once (forced)" in str(plan)
    spans = plan.data["timeline"]
    assert {batch for batch, _, _ in spans["reading"]} == set(range(2 * len(loader)))
    assert {first for first, _, _ in spans["planning"]} >= set(firsts)
    assert plan.plot().axes
    assert plan.plot_timeline().axes


def test_a_plan_of_what_lies_in_memory(graph: dict[str, Any]) -> None:
    with Loader(graph, **SAMPLING) as loader:
        list(loader)
        assert loader.plan().windows == []
        assert str(loader.plan())
        assert loader.plan().plot().axes


def test_what_more_memory_would_move(store: Any) -> None:
    with Loader(store, **SAMPLING, **SMALL) as loader:
        plan = loader.plan()
    offers = plan.data["more_memory"]
    assert offers[0]["memory"] == 24 << 20
    assert [offer["memory"] for offer in offers] == sorted({offer["memory"] for offer in offers})
    assert offers[0]["epoch_bytes"] > 0
    assert "an epoch is predicted to move" in str(plan)
    offers = [{"memory": n << 20, "epoch_bytes": n * moved} for n, moved in ((10, 3 << 20), (11, 2 << 20), (20, 0))]
    assert "to move 30.0 MiB, with 11.0 MiB 22.0 MiB, with 20.0 MiB 0 B" in str(Plan({"more_memory": offers}))
    offers = [{"memory": n << 20, "epoch_bytes": n << 20} for n in (10, 11, 20)]
    assert "to move 10.0 MiB, and no less with up to 20.0 MiB" in str(Plan({"more_memory": offers}))
    with Loader(store, **SAMPLING, **SMALL, cache="lru") as loader:
        assert "more_memory" not in loader.plan().data


def test_the_cache_that_is_chosen(store: Any, graph: dict[str, Any]) -> None:
    with Loader(store, **SAMPLING, **SMALL) as loader:
        assert loader.plan().data["cache"] == "belady"
    with Loader(graph, **SAMPLING) as loader:
        assert loader.plan().data["cache"] == "none"


@pytest.mark.parametrize("policy", ["belady", "oracle", "presc", "expected", "lru", "sieve"])
def test_a_loader_hits_what_its_simulation_hits(store: Any, policy: str) -> None:
    """The executor does what the policy says: rows found and read are those of the laboratory."""
    from freshgo import simulate

    cache = Belady(transfer="random") if policy == "belady" else policy
    with Loader(store, **SAMPLING, **SMALL, cache=cache) as loader:
        capacity = loader.plan().data["capacity_rows"]
        list(loader)
        stats = loader.stats()
        trace = list(loader.trace(0))
    if policy in ("belady", "presc", "expected"):
        bound = simulate(trace, policy="belady", capacity=capacity, num_nodes=store.num_nodes)
        assert stats["misses"] >= bound.reads - bound.fill - capacity
        return
    found = simulate(trace, policy=policy, capacity=capacity, num_nodes=store.num_nodes)
    assert stats["hits"] == found.hits
    assert stats["misses"] == found.reads - found.fill


def test_superbatches_that_do_not_fit(store: Any) -> None:
    options: dict[str, Any] = {**SAMPLING, "memory": "4MiB", "num_workers": 1}
    with pytest.raises(BudgetError, match=r"(?i)superbatch") as caught:
        Loader(store, **options, cache=Belady(superbatch=10**9, trace_memory="64KiB", scratch_size=0))
    assert caught.value.minimum > 4 << 20
    with pytest.raises(BudgetError) as caught:
        Loader(store, **options, cache=Belady(superbatch=2, trace_memory="1KiB", scratch_size=0))
    least = caught.value.minimum
    assert 'trace_memory="1KiB" is too small: superbatches of 2 batches need at least ' in str(caught.value)
    with pytest.raises(BudgetError):
        Loader(store, **options, cache=Belady(superbatch=2, trace_memory=least - 1, scratch_size=0))
    Loader(store, **options, cache=Belady(superbatch=2, trace_memory=least, scratch_size=0)).close()


@pytest.fixture(
    params=[Auto(reorder=True, scratch_size=0), Online("match", reorder=True), Online("lru", reorder=True)], ids=repr
)
def ordered(request: pytest.FixtureRequest) -> dict[str, Any]:
    return {**SAMPLING, **SMALL, "cache": request.param}


def test_an_order_is_a_permutation_that_repeats(store: Any, expected: list[str], ordered: dict[str, Any]) -> None:
    with Loader(store, **ordered) as loader:
        epochs = [[digest(batch) for batch in loader] for _ in range(2)]
        loader.set_epoch(0)
        assert [digest(batch) for batch in loader] == epochs[0]
        assert len(loader) == len(epochs[0])
        state = loader.state_dict()
    assert sorted(epochs[0]) == sorted(expected[: len(epochs[0])])
    assert sorted(epochs[1]) == sorted(expected[len(epochs[0]) :])
    if isinstance(ordered["cache"], Online):  # a planned cache gains nothing from another order here
        assert epochs[0] != expected[: len(epochs[0])]
    assert state["config"]["reorder"]["rows"] > 0
    assert {"block", "rows", "cache"} == state["config"]["reorder"].keys()
    json.dumps(state)


def test_an_order_is_resumed_with_other_memory(store: Any, ordered: dict[str, Any]) -> None:
    with Loader(store, **ordered) as loader:
        iterator = iter(loader)
        for _ in range(5):
            next(iterator)
        state = loader.state_dict()
        rest = [digest(batch) for batch in iterator]
    with Loader(store, **{**ordered, "feature_cache": "16KiB", "memory": "12MiB"}) as other:
        assert other.state_dict()["config"]["reorder"] != state["config"]["reorder"]
        other.load_state_dict(state)
        assert other.state_dict()["config"]["reorder"] == state["config"]["reorder"]
        assert [digest(batch) for batch in other] == rest


def test_an_order_that_is_not_made_where_everything_fits(store: Any, ordered: dict[str, Any]) -> None:
    with (
        Loader(store, **ordered) as loader,
        Loader(store, **{**ordered, "memory": "4GiB", "feature_cache": None}) as large,
    ):
        with pytest.raises(InvalidArgumentError, match="give it less memory"):
            large.load_state_dict(loader.state_dict())
        plain = [digest(batch) for batch in large]
        assert len(plain) == len(large)
        loader.load_state_dict(large.state_dict())  # which needs no order
        large.set_epoch(1)
        assert [digest(batch) for batch in loader] == [digest(batch) for batch in large]


def test_a_state_of_another_order_is_refused(store: Any, ordered: dict[str, Any]) -> None:
    plain, blocks = ({**ordered, "cache": dataclasses.replace(ordered["cache"], reorder=n)} for n in (False, 3))
    with Loader(store, **ordered) as one, Loader(store, **plain) as two, Loader(store, **blocks) as three:
        for loader, state in ((two, one), (one, two), (three, one)):
            with pytest.raises(InvalidArgumentError, match=r"another order of batches: reorder was .*, is "):
                loader.load_state_dict(state.state_dict())
        assert three.state_dict()["config"]["reorder"]["block"] == 3
        one.load_state_dict(three.state_dict())
        assert len(list(one)) == len(one)


def test_a_state_of_the_order_of_another_cache_is_refused(store: Any) -> None:
    caches = [Belady(reorder=8), Online("match", reorder=8), Online("lru", reorder=8)]
    loaders = [Loader(store, **SAMPLING, **SMALL, cache=cache) for cache in caches]
    with loaders[0] as belady, loaders[1] as match, loaders[2] as lru:
        for loader, state in itertools.permutations((belady, match, lru), 2):
            with pytest.raises(InvalidArgumentError, match=r"another order of batches: .*'cache': 'belady|match|lru'"):
                loader.load_state_dict(state.state_dict())
        unnamed = json.loads(json.dumps(belady.state_dict()))
        del unnamed["config"]["reorder"]["cache"]
        belady.load_state_dict(unnamed)


def test_match_in_its_order_reads_fewer_rows(store: Any) -> None:
    """FastGL's Match-Reorder, with room for any batch and one block."""
    read, batches = {}, {}
    for block in (False, 64):
        with Loader(
            store,
            **{**SAMPLING, **SMALL, "batch_size": 30, "feature_cache": "128KiB"},
            cache=Online("match", reorder=block),
        ) as loader:
            drawn = [batch.n_id for batch in loader]
            read[block] = loader.stats()["misses"]
            assert ("reordered within 64 batches" in str(loader.plan())) == bool(block)
        batches[block] = sorted(tuple(ids.tolist()) for ids in drawn)
        before = [torch.tensor([], dtype=torch.int64), *drawn]
        assert read[block] == sum(int((~torch.isin(now, last)).sum()) for last, now in itertools.pairwise(before))
    assert batches[False] == batches[64]
    assert read[64] < read[False]


def test_states_from_before_there_were_orders(store: Any) -> None:
    with Loader(store, **SAMPLING) as loader:
        state = loader.state_dict()
        del state["config"]["reorder"]
        loader.load_state_dict(state)
        assert len(list(loader)) == len(loader)


def test_calibration_is_kept(store_path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    devices = []
    for _ in range(2):
        with Loader(str(store_path), **SAMPLING, **SMALL) as loader:
            devices.append(loader.plan().data["device"])
    assert devices[0] == devices[1]
    (kept,) = (tmp_path / "freshgo").iterdir()
    for damage in (b"", b"{", b"\0" * 100, kept.read_bytes()[:-5]):
        kept.write_bytes(damage)
        with Loader(str(store_path), **SAMPLING, **SMALL) as loader:
            assert loader.plan().data["device"]["request_seconds"] > 0


def test_scores_are_used_where_they_lie(store: Any) -> None:
    scores = torch.zeros(store.num_nodes)
    hot = torch.arange(0, store.num_nodes, 5)
    scores[hot] = 1
    with Loader(store, **SAMPLING, **SMALL, cache=scores) as loader:
        capacity = loader.plan().data["capacity_rows"]
        trace = torch.cat(list(loader.trace(0)))
        list(loader)
        hits = loader.stats()["hits"]
    cached = torch.cat([hot, torch.tensor(sorted(set(range(store.num_nodes)) - set(hot.tolist())))])[:capacity]
    assert hits == int(torch.isin(trace, cached).sum())


def test_tables() -> None:
    """What tables that learn moved; a loader that has made no batch says nothing."""
    tables = {
        "rows": 2000,
        "rows_late": 500,
        "late_share": 0.25,
        "bytes_read": 3 << 20,
        "bytes_written": 2 << 20,
        "bytes_returned": 1 << 20,
        "write_amplification": 2.0,
    }
    text = str(Plan({"tables": tables}))
    assert "3.0 MiB read, 2.0 MiB written, 2.00 bytes for each of the rows that went back" in text
    assert "25% of 2,000 rows put in at the hand-over" in text
    assert "went back" not in str(Plan({"tables": {**tables, "bytes_returned": 0}}))
    assert "tables" not in str(Plan({"tables": {**tables, "rows": 0}}))
