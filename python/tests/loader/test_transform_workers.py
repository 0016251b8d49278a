"""transform_workers: the same batches in the same order, whatever the threads do."""

from __future__ import annotations

import contextlib
import random
import threading
import time
from collections.abc import Iterator
from typing import Any

import left
import pytest
import torch
from oracle import assert_batches_equal
from seeds import seed as seed_of

from freshgo import History, LinkLoader, Loader
from freshgo.errors import ClosedError, DTypeError, InvalidArgumentError

OPTIONS: dict[str, Any] = {"batch_size": 20, "shuffle": True, "seed": 5}


@pytest.fixture(autouse=True)
def nothing_left() -> Iterator[None]:
    with left.nothing_left():
        threads = threading.active_count()
        yield
    assert threading.active_count() == threads


def noisy(batch: Any) -> Any:
    """A transform that depends on its batch alone, and takes its time."""
    generator = torch.Generator().manual_seed(int(batch.input_id[0]))
    batch.x = batch.x + torch.rand(batch.x.shape, generator=generator)
    time.sleep(random.random() / 200)
    return batch


def plain(store: Any, **more: Any) -> list[Any]:
    with Loader(store, [3, 2], transform=noisy, **{**OPTIONS, **more}) as loader:
        return list(loader)


@pytest.mark.parametrize("workers", [1, 3, 20])
def test_the_batches_are_those_of_one_thread(store: Any, workers: int) -> None:
    random.seed(seed_of(0))
    expected = plain(store)
    with Loader(store, [3, 2], transform=noisy, transform_workers=workers, **OPTIONS) as loader:
        assert_batches_equal(loader, expected)
        assert len(list(loader)) == len(loader)  # the next epoch


def test_transforms_run_at_the_same_time_and_elsewhere(store: Any) -> None:
    together = threading.Barrier(3, timeout=60)
    seen: set[str] = set()

    def meet(batch: Any) -> Any:
        seen.add(threading.current_thread().name)
        if batch.input_id[0] < 60:  # the first three
            together.wait()
        return batch

    with Loader(store, [2], batch_size=20, transform=meet, transform_workers=3) as loader:
        list(loader)
    assert len(seen) == 3
    assert all(name.startswith("freshgo-transform") for name in seen)


def test_a_run_resumes_at_the_batch_that_the_loop_had(store: Any) -> None:
    expected = plain(store)
    with Loader(store, [3, 2], transform=noisy, transform_workers=4, **OPTIONS) as loader:
        iterator = iter(loader)
        for _ in range(3):
            next(iterator)
        state = loader.state_dict()
        assert state["batches"] == 3
    with Loader(store, [3, 2], transform=noisy, transform_workers=2, **OPTIONS) as loader:
        loader.load_state_dict(state)
        assert_batches_equal(loader, expected[3:])


def test_what_a_transform_raises_comes_with_its_batch(store: Any) -> None:
    def third(batch: Any) -> Any:
        if batch.input_id[0] == 40:
            raise KeyError("the third")
        return batch

    with Loader(store, [2], batch_size=20, transform=third, transform_workers=4) as loader:
        iterator = iter(loader)
        assert [int(next(iterator).input_id[0]) for _ in range(2)] == [0, 20]
        with pytest.raises(KeyError, match="the third"):
            next(iterator)
        assert int(next(iterator).input_id[0]) == 60  # who goes on goes on after it


@pytest.mark.parametrize("workers", [0, 2])
def test_a_transform_does_not_end_the_epoch(store: Any, workers: int) -> None:
    others = iter(range(2))
    with Loader(store, [2], batch_size=100, transform=lambda batch: next(others), transform_workers=workers) as loader:
        batches = iter(loader)
        assert [next(batches), next(batches)] == [0, 1]
        with pytest.raises(RuntimeError, match="transform raised StopIteration"):
            next(batches)


def test_an_interrupted_wait_loses_no_batch(store: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from freshgo._loader import transforming

    expected = plain(store)
    result, calls = transforming.Underway.result, [0]

    def interrupted(self: Any) -> Any:
        calls[0] += 1
        if calls[0] == 3:
            raise KeyboardInterrupt
        return result(self)

    monkeypatch.setattr(transforming.Underway, "result", interrupted)
    with Loader(store, [3, 2], transform=noisy, transform_workers=4, **OPTIONS) as loader:
        iterator, got = iter(loader), []
        while len(got) < len(expected):
            with contextlib.suppress(KeyboardInterrupt):
                got.append(next(iterator))
    assert_batches_equal(got, expected)


def test_modes_of_pytorch_are_those_of_the_loop(store: Any) -> None:
    def modes(batch: Any) -> Any:
        return torch.is_grad_enabled(), torch.is_inference_mode_enabled()

    with Loader(store, [2], batch_size=100, transform=modes, transform_workers=2) as loader:
        assert set(loader) == {(True, False)}
        with torch.no_grad():
            assert set(loader) == {(False, False)}
        with torch.inference_mode():
            assert set(loader) == {(False, True)}


def test_leaving_a_loop_forgets_what_was_made_ahead(store: Any) -> None:
    expected = [batch.input_id.tolist() for batch in plain(store)]
    with Loader(store, [3, 2], transform=noisy, transform_workers=4, **OPTIONS) as loader:
        for _ in range(3):
            loader.set_epoch(0)
            for batch in loader:
                assert batch.input_id.tolist() == expected[0]
                break
        iterator = iter(loader)
        next(iterator)
        loader.close()
        with pytest.raises(ClosedError):
            next(iterator)


def test_memory_counts_the_batches_underway(store: Any) -> None:
    with Loader(store, [3, 2], transform=noisy, transform_workers=6, memory="8MiB", **OPTIONS) as loader:
        assert len(list(loader)) == len(loader)
        stats = loader.stats()
    assert stats["memory_peak"] <= stats["memory_limit"]


def test_links_are_transformed_too(store: Any) -> None:
    options: dict[str, Any] = {"batch_size": 200, "neg_sampling": "binary"}
    with LinkLoader(store, [2], **options) as loader:
        expected = list(loader)
    with LinkLoader(store, [2], transform=lambda batch: batch, transform_workers=3, **options) as loader:
        assert_batches_equal(loader, expected)


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"transform_workers": 2}, InvalidArgumentError, "transform="),
        ({"transform_workers": 2, "transform": noisy, "prefetch": 0}, InvalidArgumentError, "prefetch=0"),
        ({"transform_workers": 2, "transform": noisy, "history": History()}, InvalidArgumentError, "history"),
        ({"transform_workers": -1, "transform": noisy}, InvalidArgumentError, "at least 0"),
        ({"transform_workers": 10**6, "transform": noisy}, InvalidArgumentError, "at most 1024"),
        ({"transform_workers": True, "transform": noisy}, DTypeError, "an int"),
    ],
)
def test_wrong_use(store: Any, options: dict[str, Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        Loader(store, [2, 2], **options)
