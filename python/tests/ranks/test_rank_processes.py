"""Ranks that are processes, joined by torch.distributed over gloo."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import rank_jobs
import torch
from rank_jobs import NODES, Ranks, digest, drawn_graph, of_rank, open_loader
from seeds import seed

from freshgo import convert, distributed, errors

BATCHES = 18


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    graph = drawn_graph(np.random.default_rng(seed(5)))
    path = tmp_path_factory.mktemp("ranks") / "graph"
    convert(graph, path, progress=False).close()
    return path


@pytest.fixture(scope="module")
def alone(path: Path) -> list[list[str]]:
    with open_loader(path) as loader:
        return [[digest(batch) for batch in loader] for _ in range(4)]


@pytest.mark.parametrize("world", [2, 3, 4])
def test_every_rank_makes_its_batches(ranks: Ranks, path: Path, alone: list[list[str]], world: int) -> None:
    options = {"cache": "belady", "feature_cache": 100_000}
    for rank, (count, epochs) in enumerate(ranks.run(rank_jobs.epochs, world, path, options)):
        assert epochs == [of_rank(epoch, rank, world) for epoch in alone[:2]]
        assert count == len(epochs[0])


def test_ranks_of_another_kind_may_be_given(ranks: Ranks, path: Path, alone: list[list[str]]) -> None:
    """They are not those of the process group, and nobody is asked about them."""
    for _, epochs in ranks.run(rank_jobs.epochs, 2, path, {"rank": 0, "world_size": 1}):
        assert epochs == alone[:2]


def test_a_loader_becomes_that_of_a_rank(ranks: Ranks, path: Path, alone: list[list[str]]) -> None:
    for rank, found in enumerate(ranks.run(rank_jobs.before_and_after, 2, path)):
        assert not isinstance(found, Exception)
        assert found["alone"] == (BATCHES, alone[0])
        assert found["ranks"] == (BATCHES // 2, of_rank(alone[1], rank, 2))
        assert found["begun"] == of_rank(alone[2], rank, 2)[:2]
        assert isinstance(found["error"], errors.RankError)
        assert "rank 0 of 1" in str(found["error"]) and f"rank {rank} of 2" in str(found["error"])
        assert found["state"][0] == found["state"][1]
        assert found["left"] == alone[2][4:]
        assert found["after"] == (BATCHES, alone[3])


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ([{}, {"seed": 7}, {}], "seed is 3 on ranks 0, 2, 7 on rank 1"),
        ([{"batch_size": 5}, {"batch_size": 5}, {}], "batch_size is 5 on ranks 0, 1, 23 on rank 2"),
        ([{}, {"input_nodes": range(9)}, {}], "input_nodes is 'all' on ranks 0, 2"),
        ([{"uneven": "join"}, {}, {}], "uneven is 'join' on rank 0, 'pad' on ranks 1, 2"),
        ([{"at": 1}, {"at": 1}, {"at": 2}], "the number of batches before is 1 on ranks 0, 1, 2 on"),
        ([{"neighbor_sampler": "labor"}, {}, {}], "labor is [False, 1] on rank 0, None on ranks 1, 2"),
    ],
)
def test_options_that_differ_are_named_on_every_rank(
    ranks: Ranks, path: Path, options: list[dict[str, Any]], words: str
) -> None:
    found = ranks.run(rank_jobs.differ, 3, [path] * 3, options)
    assert {type(error) for error in found} == {errors.RankError}
    assert len({str(error) for error in found}) == 1
    assert words in str(found[0])


def test_graphs_that_differ_are_named_on_every_rank(ranks: Ranks, path: Path, tmp_path: Path) -> None:
    graph = {"num_nodes": NODES, "edge_index": torch.zeros(2, 1, dtype=torch.long), "x": torch.zeros(NODES, 6)}
    convert(graph, tmp_path / "other", progress=False).close()
    found = ranks.run(rank_jobs.differ, 2, [path, tmp_path / "other"], [{}, {}])
    assert {type(error) for error in found} == {errors.RankError}
    assert len({str(error) for error in found}) == 1
    assert str(found[0]).count("graph is 'store ") == 1 and "on rank 1" in str(found[0])


@pytest.mark.parametrize("options", [{}, {"share": "host"}])
def test_a_rank_that_never_comes_is_an_error_of_the_others(ranks: Ranks, path: Path, options: dict[str, Any]) -> None:
    *others, last = ranks.run(rank_jobs.without_the_last, 3, path, options)
    assert last == 0
    assert {type(error) for error in others} == {errors.RankError}
    assert all("another one has ended" in str(error) for error in others)


def test_loaders_of_two_kinds_are_named_on_every_rank(ranks: Ranks, path: Path) -> None:
    found = ranks.run(rank_jobs.differ, 3, [path] * 3, [{"share": "host"}, {}, {"share": "host"}])
    assert {type(error) for error in found} == {errors.RankError}
    assert len({str(error) for error in found}) == 1
    assert "opening a loader with share='host' on ranks 0, 2, beginning an epoch on rank 1" in str(found[0])


def test_the_order_of_batches_is_that_of_rank_0(ranks: Ranks, path: Path) -> None:
    options = {"cache": "belady", "reorder": 6, "feature_cache": 100_000}
    with rank_jobs.judged_with(open_loader(path, **options), 150) as loader:
        order, expected = loader.state_dict()["config"]["reorder"], [digest(batch) for batch in loader]
    found = ranks.run(rank_jobs.reordered, 2, path, options, [150, 40])
    assert (found[0][0], found[1][0]) == (order, {"block": 6, "rows": 40, "cache": "belady"})
    for rank, (_, mine, batches) in enumerate(found):
        assert mine == order
        assert batches == of_rank(expected, rank, 2)


def test_a_state_goes_on_with_another_number_of_ranks(ranks: Ranks, path: Path, alone: list[list[str]]) -> None:
    rng = random.Random(seed(4))
    for _ in range(6):
        state, at, left = None, 0, list(alone[0])
        while left:
            world, steps = rng.randrange(2, 5), rng.randrange(1, 4)
            found = ranks.run(rank_jobs.go_on, world, path, {"uneven": "join"}, state, steps)
            for rank, (batches, _) in enumerate(found):
                assert batches == left[rank::world][:steps]
            state = found[0][1]
            made = min(world * steps, len(left))
            at, left = at + made, left[made:]
            if left:
                assert (state["epoch"], state["batches"]) == (0, at)


@pytest.mark.parametrize("uneven", ["pad", "drop", "join"])
@pytest.mark.parametrize("world", [2, 4])
def test_training_ends_together(ranks: Ranks, path: Path, uneven: str, world: int) -> None:
    """With batches that do not come out even, of DDP that waits for every rank in every step."""
    found = ranks.run(rank_jobs.train, world, path, {"uneven": uneven, "batch_size": 19})  # 22 of them
    steps = {"pad": [12] * 4, "drop": [10] * 4, "join": [12, 12, 10, 10]}
    assert [count for count, _ in found] == (steps[uneven] if world == 4 else [22] * 2)
    assert all(weights == pytest.approx(found[0][1]) for _, weights in found)


@pytest.mark.parametrize("options", [{"uneven": "pad"}, {"uneven": "drop"}, {"batch_size": 150}])
def test_evaluation_counts_every_seed_once(ranks: Ranks, path: Path, options: dict[str, Any]) -> None:
    for world in (2, 4):
        for first, second, epoch in ranks.run(rank_jobs.evaluation, world, path, options):
            for sums in (first, second):
                assert {name: value.tolist() for name, value in sums.items()} == {
                    "seeds": NODES,
                    "ids": NODES * (NODES - 1) // 2,
                    "each": [1] * NODES,
                }
            assert epoch == 3


@pytest.mark.parametrize("batches", [700, pytest.param(2000, marks=pytest.mark.long)])
def test_many_epochs_take_no_more_memory(ranks: Ranks, path: Path, batches: int) -> None:
    options = {"batch_size": 6, "cache": "belady", "feature_cache": 100_000, "memory": "8MiB"}
    for early, late in ranks.run(rank_jobs.soak, 3, path, options, batches):
        assert (late - early) * 4096 < 8 << 20


def test_evaluation_by_one_process(path: Path) -> None:
    with open_loader(path, rank=1, world_size=2) as loader:
        sums = distributed.evaluate(lambda batch: {"seeds": batch.batch_size, "mean": 0.5}, loader)
        assert sums["seeds"] == sum(batch.batch_size for batch in loader)
        assert sums["mean"] == 0.5 * len(loader)
    with open_loader(path, input_nodes=[0], rank=1, world_size=2, uneven="drop") as loader:
        assert distributed.evaluate(lambda batch: {"seeds": batch.batch_size}, loader) == {}
    with open_loader(path) as loader:
        wrong: list[Any] = [lambda batch: 1, lambda batch: {"loss": "low"}]
        for step in wrong:
            with pytest.raises(errors.DTypeError, match="step must return"):
                distributed.evaluate(step, loader)
    with pytest.raises(errors.DTypeError, match=r"freshgo\.Loader, got list"):
        distributed.evaluate(lambda batch: {}, [])  # type: ignore[arg-type]
