"""The conventions of torchdata's StatefulDataLoader: one program drives both loaders."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
import torch

from freshgo import Loader

COUNT, SIZE = 100, 10

Make = Callable[[], Any]


def ours() -> Any:
    data = {"num_nodes": COUNT, "edge_index": torch.arange(COUNT).repeat(2, 1)}
    return Loader(data, [1], batch_size=SIZE, transform=lambda batch: batch.n_id[: batch.batch_size].tolist())


def theirs() -> Any:
    stateful = pytest.importorskip("torchdata.stateful_dataloader")
    return stateful.StatefulDataLoader(range(COUNT), batch_size=SIZE, collate_fn=list)


EPOCH = [list(range(first, first + SIZE)) for first in range(0, COUNT, SIZE)]


@pytest.fixture(params=[ours, theirs])
def make(request: pytest.FixtureRequest) -> Make:
    made: Make = request.param
    return made


def saved(loader: Any) -> Any:
    """The state of a loader after a way to the disk."""
    state = loader.state_dict()
    return json.loads(json.dumps(state)) if isinstance(loader, Loader) else state


@pytest.mark.parametrize("after", [1, 3, 9])
def test_a_state_within_an_epoch_continues_with_the_next_batch(make: Make, after: int) -> None:
    first = make()
    iterator = iter(first)
    assert [next(iterator) for _ in range(after)] == EPOCH[:after]
    state = saved(first)
    second = make()
    second.load_state_dict(state)
    assert list(second) == EPOCH[after:]
    assert list(second) == EPOCH  # and then whole epochs
    assert list(iterator) == EPOCH[after:]  # saving changes nothing


def test_a_state_of_a_new_loader_begins_the_epoch(make: Make) -> None:
    second = make()
    second.load_state_dict(saved(make()))
    assert list(second) == EPOCH


def test_a_state_after_an_epoch_begins_the_next_one(make: Make) -> None:
    first = make()
    assert list(first) == EPOCH
    second = make()
    second.load_state_dict(saved(first))
    assert list(second) == EPOCH


def test_states_may_be_saved_after_every_batch(make: Make) -> None:
    first = make()
    states = [(batch, saved(first)) for batch in first]
    for batch, state in states[:-1]:
        second = make()
        second.load_state_dict(state)
        assert next(iter(second)) == EPOCH[EPOCH.index(batch) + 1]


def test_a_state_is_saved_again_from_where_it_was_loaded(make: Make) -> None:
    first = make()
    next(iter(first))
    iterator = iter(first)
    for _ in range(4):
        last = next(iterator)
    second = make()
    second.load_state_dict(saved(first))
    iterator = iter(second)
    assert next(iterator) == EPOCH[EPOCH.index(last) + 1]
    third = make()
    third.load_state_dict(saved(second))
    assert next(iter(third)) == EPOCH[EPOCH.index(last) + 2]


def test_only_the_next_epoch_is_shortened(make: Make) -> None:
    first = make()
    next(iter(first))
    second = make()
    second.load_state_dict(saved(first))
    assert [len(list(second)) for _ in range(3)] == [len(EPOCH) - 1, len(EPOCH), len(EPOCH)]


def test_a_state_of_the_last_batch_ends_its_epoch() -> None:
    """An epoch is unfinished until its iterator was asked once more: the loop that resumes ends at once."""
    for make in (ours, theirs):
        first = make()
        iterator = iter(first)
        for _ in EPOCH:
            next(iterator)
        second = make()
        second.load_state_dict(saved(first))
        assert list(second) == []
        assert list(second) == EPOCH
