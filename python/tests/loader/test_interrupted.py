"""Batches are yielded once each, whatever interrupts the consumer and however many threads share an iterator."""

from __future__ import annotations

import gc
import signal
import threading
from pathlib import Path
from typing import Any

import pytest
import torch
from seeds import seed as seed_of

from freshgo import History, Loader, Store, convert, errors
from freshgo._native import abi
from freshgo._native.process import counters


def open_loader(path: Path, **options: Any) -> Loader:
    return Loader(path, [3, 2], batch_size=100, shuffle=True, **options)


def ids(loader: Loader) -> list[list[int]]:
    return [batch.n_id.tolist() for batch in loader]


def interrupted_after(call: Any, *when: int) -> Any:
    """A function that is interrupted in its n-th calls, after it has done its work."""
    calls = iter(range(1 << 30))

    def interrupted(*args: Any, **kwargs: Any) -> Any:
        result = call(*args, **kwargs)
        if next(calls) in when:
            raise KeyboardInterrupt
        return result

    return interrupted


@pytest.mark.parametrize("prefetch", [0, 3])
def test_a_batch_that_an_interrupt_took_comes_again(store_path: Path, prefetch: int) -> None:
    with open_loader(store_path) as loader:
        expected = [ids(loader), ids(loader)]
    with open_loader(store_path, prefetch=prefetch) as loader:
        native = loader._engine.native
        native.next = interrupted_after(native.next, 0, 5, 29, 31, 32)  # type: ignore[method-assign]
        found: list[list[int]] = []
        interrupts = 0
        iterator = iter(loader)
        while True:
            try:
                found.extend(batch.n_id.tolist() for batch in iterator)
                break
            except KeyboardInterrupt:
                interrupts += 1
                assert loader.state_dict()["batches"] == len(found)
        assert found == expected[0]
        assert interrupts >= 4
        assert ids(loader) == expected[1]


def test_an_interrupt_in_the_end_of_a_turn_counts_no_batch(store_path: Path) -> None:
    """The batch was made and counted, and never reached the consumer."""

    class Turn:
        def __init__(self) -> None:
            self.left = 0

        def __enter__(self) -> None:
            pass

        def __exit__(self, *_: object) -> None:
            self.left += 1
            if self.left == 4:
                raise KeyboardInterrupt

    with open_loader(store_path) as loader:
        expected = ids(loader)
        loader.set_epoch(0)
        iterator: Any = iter(loader)
        iterator._turn = Turn()
        found = [next(iterator).n_id.tolist() for _ in range(3)]
        with pytest.raises(KeyboardInterrupt):
            next(iterator)
        assert loader.state_dict()["batches"] == 3
        found.extend(batch.n_id.tolist() for batch in iterator)
        assert found == expected


def test_an_interrupt_while_an_epoch_begins_skips_none(store_path: Path) -> None:
    with open_loader(store_path) as loader:
        expected = [ids(loader) for _ in range(3)]
        state = loader.state_dict() | {"epoch": 1, "batches": 7}
        loader.load_state_dict(state)
        native = loader._engine.native
        native.start = interrupted_after(native.start, 0, 3)  # type: ignore[method-assign]
        with pytest.raises(KeyboardInterrupt):
            next(iter(loader))
        assert loader.state_dict() == state
        assert ids(loader) == expected[1][7:]
        assert ids(loader) == expected[2]
        loader.set_epoch(1)
        iterator = iter(loader)
        with pytest.raises(KeyboardInterrupt):
            next(iterator)
        assert [batch.n_id.tolist() for batch in iterator] == expected[1]


def test_a_trace_and_a_transform_that_are_interrupted_go_on(store_path: Path) -> None:
    with open_loader(store_path) as loader:
        expected = ids(loader)
        native, take = loader._engine.native, loader._engine.native.next
        native.next = interrupted_after(take, 2, 4)  # type: ignore[method-assign]
        trace, found = loader.trace(0), []
        for _ in range(3):
            try:
                found.extend(n_id.tolist() for n_id in trace)
            except KeyboardInterrupt:  # noqa: PERF203
                continue
        assert found == expected
    with open_loader(store_path, transform=interrupted_after(lambda batch: batch, 2)) as loader:
        iterator, found = iter(loader), []
        for _ in range(2):
            try:
                found.extend(batch.n_id.tolist() for batch in iterator)
            except KeyboardInterrupt:  # noqa: PERF203
                continue
        assert found == expected


def test_who_goes_on_after_an_error_of_a_transform_goes_on_after_its_batch(store_path: Path) -> None:
    """Or a loop that skips what cannot be transformed would never end."""

    def transform(batch: Any) -> Any:
        if batch.n_id.tolist() == expected[3]:
            raise ArithmeticError
        return batch

    with open_loader(store_path) as loader:
        expected = ids(loader)
    with open_loader(store_path, transform=transform) as loader:
        iterator = iter(loader)
        assert [next(iterator).n_id.tolist() for _ in range(3)] == expected[:3]
        with pytest.raises(ArithmeticError):
            next(iterator)
        assert loader.state_dict()["batches"] == 3  # which a run that is restored begins with
        assert [batch.n_id.tolist() for batch in iterator] == expected[4:]


def test_interrupts_by_a_timer_lose_nothing(store_path: Path) -> None:
    """Wherever they strike: a hundred of them."""
    armed = False

    def handler(*_: object) -> None:
        if armed:
            raise KeyboardInterrupt

    with open_loader(store_path) as loader:
        expected = [ids(loader) for _ in range(3)]
    delays = torch.rand(100, generator=torch.Generator().manual_seed(seed_of(0))).mul(4e-3).add(2e-5).tolist()
    gc.collect()
    gc.disable()  # Python tells nobody of an interrupt in a finalizer, and those of other tests' objects would run here
    before = signal.signal(signal.SIGALRM, handler)
    try:
        with open_loader(store_path) as loader:
            batches: list[Any] = []
            iterator = iter(loader)
            ended: list[Any] = []  # kept, so that no interrupt strikes in their finalizers
            for delay in delays:
                signal.setitimer(signal.ITIMER_REAL, delay)
                try:
                    armed = True
                    for batch in iterator:
                        batches.append(batch)  # noqa: PERF402  # an interrupted extend() would lose what it holds
                    ended.append(iterator)
                    iterator = iter(loader)
                    armed = False
                except KeyboardInterrupt:
                    armed = False
                    state = loader.state_dict()
                    assert state["epoch"] * len(loader) + state["batches"] == len(batches)
                if len(batches) >= 3 * len(loader):
                    break
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
        gc.enable()
    found = [batch.n_id.tolist() for batch in batches]
    flat = [batch for epoch in expected for batch in epoch]
    assert found[: len(flat)] == flat[: len(found)]


@pytest.mark.parametrize("prefetch", [0, 4])
def test_threads_that_share_an_iterator_get_each_batch_once(store_path: Path, prefetch: int) -> None:
    with open_loader(store_path) as loader:
        expected = ids(loader)
    for _ in range(5):
        with open_loader(store_path, prefetch=prefetch) as loader:
            iterator, found, failed = iter(loader), [], []

            def work(iterator: Any = iterator, found: list[Any] = found, failed: list[Any] = failed) -> None:
                try:
                    found.extend([batch.n_id.tolist() for batch in iterator])
                except errors.FreshgoError as error:
                    failed.append(error)

            threads = [threading.Thread(target=work) for _ in range(6)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            assert not failed
            assert sorted(found) == sorted(expected)
            state = loader.state_dict()
            assert (state["epoch"], state["batches"]) == (1, 0)


def test_threads_with_iterators_of_their_own_get_an_error_or_a_whole_epoch(store_path: Path) -> None:
    """The newest iterator takes over: it misses nothing, the others say so."""
    with open_loader(store_path) as loader:
        expected = [ids(loader) for _ in range(24)]
        loader.set_epoch(0)
        whole, messages = [], []

        def work() -> None:
            for _ in range(4):
                try:
                    whole.append(ids(loader))
                except errors.ClosedError as error:  # noqa: PERF203
                    messages.append(str(error))

        threads = [threading.Thread(target=work) for _ in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert whole
        assert all(epoch in expected for epoch in whole)
        assert len(whole) + len(messages) == 24
        assert set(messages) <= {
            "this iterator has ended: its loader was closed, repositioned, or iterated anew; loops that run at the "
            "same time need a loader each"
        }


def test_rows_of_an_interrupted_update_are_written_before_they_are_read(store_path: Path) -> None:
    """Embeddings that are a function of the node alone show whether a slot holds those of the node it says."""
    history = History(t_stale=50, keep="rows")
    embeddings = torch.randn(3000, 16, generator=torch.Generator().manual_seed(seed_of(0)))
    interrupts = hits = 0
    with open_loader(store_path, history=history) as loader:
        native = loader._engine.native
        native.history_update = interrupted_after(native.history_update, 0, 3, 4, 12, 20)  # type: ignore[method-assign]
        for _ in range(2):
            for batch in loader:
                first, second = batch.blocks()
                history(batch.x, first)
                levels = first.levels
                nodes = batch.n_id[levels.nodes[1]]
                computed = embeddings[nodes[levels.computed[1]]].requires_grad_()
                h = history(computed, second)
                assert torch.equal(h.detach(), embeddings[nodes])
                hits += levels.hit[1].numel()
                h.sum().backward()
                try:
                    history.update()
                except KeyboardInterrupt:
                    interrupts += 1
                    if interrupts == 1:
                        history.load_state_dict(history.state_dict())  # whose rows are as wide as its entries say
                        break
    assert interrupts == 5
    assert hits > 100


@pytest.mark.parametrize("when", [1, 2])
def test_an_interrupted_restoration_leaves_entries_with_their_rows(store_path: Path, when: int) -> None:
    """Of the calls of the library, whichever it strikes after."""
    embeddings = torch.randn(3000, 16, generator=torch.Generator().manual_seed(seed_of(0)))

    def epoch(loader: Loader, history: History, scale: float) -> int:
        hits = 0
        for batch in loader:
            first, second = batch.blocks()
            history(batch.x, first)
            levels = first.levels
            nodes = batch.n_id[levels.nodes[1]]
            h = history((scale * embeddings)[nodes[levels.computed[1]]].requires_grad_(), second)
            assert torch.equal(h.detach(), (scale * embeddings)[nodes])
            hits += levels.hit[1].numel()
            h.sum().backward()
            history.update()
        return hits

    saved, history = History(t_stale=50, keep="rows"), History(t_stale=50, keep="rows")
    with open_loader(store_path, history=saved) as loader:
        epoch(loader, saved, 2.0)
        state = saved.state_dict()
    with open_loader(store_path, history=history) as loader:
        epoch(loader, history, 1.0)
        native = loader._engine.native
        name = {1: "history_restore", 2: "history_stats"}[when]
        setattr(native, name, interrupted_after(getattr(native, name), 0))
        with pytest.raises(KeyboardInterrupt):
            history.load_state_dict(state)
        assert epoch(loader, history, 2.0) > 100


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("function", ["fg_job_close", "fg_store_close"])
def test_an_interrupt_while_something_is_closed_leaves_nothing_open(
    store_path: Path, graph: dict[str, Any], tmp_path: Path, function: str, after: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And what a job had made by then is freed: a tensor, and a store that was not yet to appear."""
    call, armed = abi.call, False

    def interrupted(name: str, *args: Any) -> int:
        nonlocal armed
        if name != function or not armed:
            return call(name, *args)
        armed = False
        if after:
            call(name, *args)
        raise KeyboardInterrupt

    def read() -> None:
        with Store(store_path) as store:
            store["x"]

    def write() -> None:
        convert(graph, tmp_path / "g", relayout="hot", memory="64MiB", progress=False).close()

    monkeypatch.setattr(abi, "call", interrupted)
    gc.collect()
    before = counters()
    for work in (read, write):
        armed = True
        with pytest.raises(KeyboardInterrupt):
            work()
        assert not armed
        gc.collect()
        now = counters()
        assert {key: n for key, n in now.items() if key != "pooled_bytes"} == {
            key: before[key] for key in now if key != "pooled_bytes"
        }
    assert [path.name for path in tmp_path.iterdir()] in ([], ["g"])
