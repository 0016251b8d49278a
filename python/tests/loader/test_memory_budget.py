"""Loaders that share a memory budget: the one that is iterated has it, and no batch differs."""

from __future__ import annotations

import concurrent.futures
import gc
import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from seeds import seed as seed_of
from warm import run

from freshgo import Belady, History, Loader, MemoryBudget, convert, errors
from freshgo._native import process

NODES, WIDTH = 20_000, 128


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    rng = np.random.default_rng(seed_of(1))
    graph = {
        "num_nodes": NODES,
        "edge_index": rng.integers(NODES, size=(2, 100_000)),
        "x": rng.standard_normal((NODES, WIDTH), dtype=np.float32),
    }
    path = tmp_path_factory.mktemp("budget") / "graph"
    convert(graph, path, progress=False).close()
    return path


def opened(path: Path, memory: Any, **options: Any) -> Loader:
    """A loader of 40 batches."""
    few = {"batch_size": 100, "shuffle": True, "num_workers": 1, "prefetch": 1}
    return Loader(path, [2, 2], range(4000), memory=memory, **few, **options)


def ids(batches: Iterator[Any] | Loader) -> list[list[int]]:
    return [[*batch.input_id.tolist(), *batch.n_id.tolist()] for batch in batches]


def held(*loaders: Loader) -> int:
    return sum(loader.stats()["memory_used"] for loader in loaders)


@pytest.fixture(scope="module")
def expected(path: Path) -> list[list[list[int]]]:
    with opened(path, "64MiB") as loader:
        return [ids(loader) for _ in range(3)]


def test_the_loader_that_runs_has_all_of_it(path: Path, expected: list[list[list[int]]]) -> None:
    budget = MemoryBudget("16MiB")
    with opened(path, budget, cache="belady") as train, opened(path, budget, cache="lru", seed=1) as valid:
        assert (train.stats()["openings"], valid.stats()["openings"]) == (1, 1)
        assert train.stats()["memory_used"] == 0  # lent to the second one
        assert (len(train), len(valid)) == (40, 40)
        for epoch in range(3):
            seen = []
            for batch in train:
                seen.append([*batch.input_id.tolist(), *batch.n_id.tolist()])
                assert held(train, valid) <= budget.size
            assert seen == expected[epoch]
            assert train.stats()["memory_limit"] == budget.size
            for _ in valid:
                assert held(train, valid) <= budget.size
            assert valid.stats()["memory_limit"] == budget.size
        assert (train.stats()["openings"], valid.stats()["openings"]) == (4, 4)
        assert train.stats()["batches"] == valid.stats()["batches"] == 120
        assert [epoch["batches"] for epoch in train.stats()["epochs"]] == [40, 40, 40]
        assert sum(epoch["bytes_read"] for epoch in train.stats()["epochs"]) < train.stats()["bytes_read"]
        assert train.state_dict()["epoch"] == 3
        assert "40 batches" in repr(train) and "Plan" in repr(type(train.plan()))
        assert budget.lent == budget.size
    assert budget.lent == 0


def test_a_loader_that_is_not_disturbed_stays_open(path: Path) -> None:
    budget = MemoryBudget("16MiB")
    with opened(path, budget) as train:
        for _ in range(3):
            list(train)
        assert train.stats()["openings"] == 1
        parts = budget.at_most("8MiB")
    with opened(path, parts) as train, opened(path, parts) as valid:
        for _ in range(2):
            assert sum(1 for _ in zip(train, valid, strict=True)) == 40
        assert (train.stats()["openings"], valid.stats()["openings"]) == (1, 1)
        assert train.stats()["memory_limit"] == valid.stats()["memory_limit"] == 8 << 20
        assert budget.lent == 16 << 20


def test_a_loader_in_mid_epoch_lends_and_goes_on(path: Path, expected: list[list[list[int]]]) -> None:
    budget = MemoryBudget("16MiB")
    with opened(path, budget) as train, opened(path, budget) as valid:
        iterator = iter(train)
        seen = ids(itertools.islice(iterator, 5))
        state = train.state_dict()
        assert ids(valid) == expected[0]
        assert train.state_dict() == state  # nothing of it is lost
        assert held(train) == 0
        assert seen + ids(iterator) == expected[0]
        assert train.stats()["epochs"][0]["batches"] == 40
        left = iter(valid)  # a loop that was left early, as by a sanity check
        next(left)
        assert ids(train) == expected[1]
        assert ids(valid) == expected[2]
        with pytest.raises(errors.ClosedError):
            next(left)
        trace = train.trace(2)
        first = next(trace)
        assert len(ids(valid)) == 40
        assert [first.tolist(), *(nodes.tolist() for nodes in trace)] == [of[100:] for of in expected[2]]
        assert train.state_dict()["epoch"] == 2


def test_a_loop_that_is_dropped_gives_its_memory_back(path: Path) -> None:
    budget = MemoryBudget("16MiB")
    with opened(path, budget, history=History(memory="100kiB", keep="rows")) as train:
        left = iter(train)
        next(left)
        with pytest.raises(errors.BudgetError, match="or with a history"):
            opened(path, budget)
    with opened(path, budget) as train, opened(path, budget) as valid:
        left = iter(train)
        next(left)
        del left
        gc.collect()
        assert not train._engine.lending().underway
        state = valid.state_dict() | {"batches": 7}
        valid.load_state_dict(state)
        assert len(ids(valid)) == 33


@pytest.mark.parametrize("count", [2, 3])
def test_loaders_that_are_iterated_in_turns_divide_the_budget(
    path: Path, expected: list[list[list[int]]], count: int
) -> None:
    budget = MemoryBudget("32MiB")
    loaders = [opened(path, budget) for _ in range(count)]
    for epoch in range(2):
        for i, batches in enumerate(zip(*loaders, strict=True)):
            for batch in batches:
                assert [*batch.input_id.tolist(), *batch.n_id.tolist()] == expected[epoch][i]
            assert held(*loaders) <= budget.size
    openings = [loader.stats()["openings"] for loader in loaders]
    assert max(openings) <= 3 + count
    limits = [loader.stats()["memory_limit"] for loader in loaders]
    assert sum(limits) <= budget.size
    assert min(limits) > budget.size // count * 0.9
    for loader in loaders:
        loader.close()


def test_a_budget_too_small_for_loaders_in_turns_says_what_they_need(path: Path) -> None:
    with opened(path, "16MiB") as alone:
        smallest = alone.stats()["memory_smallest"]
    budget = MemoryBudget(int(smallest * 1.5))
    with opened(path, budget) as train, opened(path, budget) as valid:
        with pytest.raises(errors.BudgetError, match=r"2 loaders that are iterated in turns need at least") as caught:
            list(zip(train, valid, strict=True))
        assert max(loader.stats()["openings"] for loader in (train, valid)) <= 4
        assert len(ids(train)) == len(ids(valid)) == 40  # one after the other they work
    budget = MemoryBudget(caught.value.minimum)
    with opened(path, budget) as train, opened(path, budget) as valid:
        assert sum(1 for _ in zip(train, valid, strict=True)) == 40
    budget = MemoryBudget(int(smallest * 1.5))
    with opened(path, budget) as train, opened(path, budget) as valid:
        with pytest.warns(UserWarning, match="opened again and again"):
            for _ in itertools.islice(train, 4):
                next(iter(valid))


def test_epochs_within_an_epoch_open_few_loaders(path: Path, expected: list[list[list[int]]]) -> None:
    """Also where each of them is left early, and where a budget has parts."""
    budget = MemoryBudget("16MiB")
    for parts in (budget, budget.at_most("10MiB")):
        with opened(path, budget) as train, opened(path, parts) as valid:
            seen = []
            for batch in train:
                seen.append([*batch.input_id.tolist(), *batch.n_id.tolist()])
                assert ids(itertools.islice(valid, 2)) == expected[0][:2]
                valid.set_epoch(0)
            assert seen == expected[0]
            assert train.stats()["openings"] + valid.stats()["openings"] <= 10


def test_threads_share_a_budget(path: Path, expected: list[list[list[int]]]) -> None:
    budget = MemoryBudget("32MiB")
    loaders = [opened(path, budget) for _ in range(3)]
    with concurrent.futures.ThreadPoolExecutor(3) as pool:
        for epoch in range(2):
            assert list(pool.map(ids, loaders, timeout=120)) == [expected[epoch]] * 3
    for loader in loaders:
        loader.close()
    assert budget.lent == 0


@pytest.mark.parametrize("options", [{"transform": lambda batch: batch, "transform_workers": 2}, {"cache": "belady"}])
def test_what_is_prepared_ahead_comes_once(
    path: Path, expected: list[list[list[int]]], options: dict[str, Any]
) -> None:
    budget = MemoryBudget("24MiB")
    with opened(path, budget, **options) as train, opened(path, budget) as valid:
        iterator, seen = iter(train), []
        for _ in range(4):
            seen += ids(itertools.islice(iterator, 10))
            assert len(ids(valid)) == 40
        assert seen + ids(iterator) == expected[0]


def test_a_loop_that_counts_its_batches_lends_after_the_last(path: Path, expected: list[list[list[int]]]) -> None:
    """It may never ask for the one after it: Lightning does not."""
    budget = MemoryBudget("16MiB")
    with opened(path, budget) as train, opened(path, budget) as valid:
        iterator = iter(train)
        assert ids(itertools.islice(iterator, len(train))) == expected[0]
        state = train.state_dict()
        assert (state["epoch"], state["batches"]) == (0, 40)
        assert ids(valid) == expected[0]
        assert next(iterator, None) is None
        assert ids(train) == expected[1]


def test_an_order_that_depends_on_memory_stays(path: Path) -> None:
    budget = MemoryBudget("9MiB")
    options = {"cache": Belady(reorder=True, scratch_size=0)}
    with opened(path, budget, **options) as train:
        order, first = train.state_dict()["config"]["reorder"], ids(train)
        assert order is not None
        with opened(path, budget) as valid:
            list(valid)
        train.set_epoch(0)
        assert ids(train) == first
        assert train.stats()["openings"] == 2
        assert train.state_dict()["config"]["reorder"] == order


def test_a_history_is_kept(path: Path) -> None:
    budget = MemoryBudget("32MiB")
    with opened(path, budget.at_most("16MiB"), history=History(memory="100kiB", keep="rows")) as train:
        with opened(path, budget) as valid:
            list(train)
            list(valid)
            assert valid.stats()["memory_limit"] == 16 << 20
            assert train.stats()["openings"] == 1
        with pytest.raises(errors.BudgetError, match="or with a history"):
            opened(path, budget, feature_cache="30MiB")


def test_what_is_closed_or_forgotten_is_free(path: Path) -> None:
    budget = MemoryBudget("16MiB")
    train = opened(path, budget)
    assert budget.lent == 16 << 20
    gc.disable()  # no cycle may keep the memory of a loader that is dropped
    try:
        del train
        assert budget.lent == 0
    finally:
        gc.enable()
    with pytest.raises(errors.BudgetError) as caught:
        opened(path, budget.at_most(1000))
    assert caught.value.minimum > 1000
    assert budget.lent == 0
    train = opened(path, budget)
    train.close()
    assert budget.lent == 0
    for use in (lambda: list(train), train.stats, train.plan):
        with pytest.raises(errors.ClosedError):
            use()


@pytest.mark.parametrize("shared", [False, True])
def test_a_loader_that_is_dropped_is_closed_at_once(path: Path, shared: bool) -> None:
    counters = process.counters
    before = counters()["loaders"]
    gc.disable()
    try:
        train = opened(path, MemoryBudget("16MiB") if shared else "16MiB")
        next(iter(train))
        assert counters()["loaders"] == before + 1
        del train
        assert counters()["loaders"] == before
    finally:
        gc.enable()


@pytest.mark.parametrize("size", [0, "0", -1, "much", 1.5, None, True])
def test_sizes_that_are_none(size: Any) -> None:
    with pytest.raises((errors.InvalidArgumentError, errors.DTypeError), match="size"):
        MemoryBudget(size)
    with pytest.raises((errors.InvalidArgumentError, errors.DTypeError), match="size"):
        MemoryBudget("1GiB").at_most(size)


def test_a_part_is_no_larger_than_the_whole() -> None:
    budget = MemoryBudget("1GiB")
    assert repr(budget) == "MemoryBudget(1.0 GiB, 0 B lent)"
    assert repr(budget.at_most("256MiB")) == "MemoryBudget(256.0 MiB of 1.0 GiB, 0 B lent)"
    with pytest.raises(errors.InvalidArgumentError, match=r"at most the whole budget, 256\.0 MiB"):
        budget.at_most("256MiB").at_most("512MiB")


RESIDENT = """
import gc, sys
from pathlib import Path
from freshgo import Loader, MemoryBudget

def resident():
    gc.collect()
    status = Path("/proc/self/status").read_text()
    return int(status.split("VmRSS:")[1].split()[0]) >> 10

path, shared = sys.argv[1], sys.argv[2] == "shared"
memory = MemoryBudget("48MiB") if shared else "48MiB"
options = dict(batch_size=500, shuffle=True, cache="degree", num_workers=1, prefetch=1)
with Loader(path, [2], range(1000), memory="48MiB", **options) as loader:  # imports what a batch needs
    list(loader)
before, most = resident(), 0
loaders = [Loader(path, [2], memory=memory, seed=seed, **options) for seed in range(3)]
for _ in range(2):
    for loader in loaders:
        for batch in loader:
            pass
        most = max(most, resident() - before)
print(most)
"""


def test_the_process_keeps_to_the_budget(tmp_path: Path) -> None:
    """By what is resident: three loaders take no more than one, where they took three times as much."""
    rng = np.random.default_rng(seed_of(2))
    nodes = 80_000  # 82 MB of features
    edges = rng.integers(nodes, size=(2, 100_000))
    x = np.zeros((nodes, 256), dtype=np.float32)
    x[:] = np.arange(nodes, dtype=np.float32)[:, None]
    convert({"edge_index": edges, "x": x}, tmp_path / "graph", progress=False).close()

    def most(kind: str) -> int:
        return int(run(RESIDENT, tmp_path / "graph", kind, timeout=300))

    shared, apart = most("shared"), most("apart")
    assert 30 < shared < 48 + 48  # MiB, with the library and what Go has not returned yet
    assert apart > 2 * 48
