"""Batches on their way to a device: what waits for what, and which memory is in use until when."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from device_fakes import LateStreams, until

from freshgo import errors
from freshgo._device.ahead import Ahead
from freshgo._device.mover import HELD, ON_HOST, Mover
from freshgo._native.loader import RawBatch


class Recorder:
    """Streams that only write down what they are asked, with events that end when told."""

    class Event:
        def __init__(self, log: list[str], number: int) -> None:
            self.log, self.number, self.done = log, number, False

        def query(self) -> bool:
            return self.done

        def synchronize(self) -> None:
            self.log.append(f"host waits {self.number}")
            self.done = True

    def __init__(self) -> None:
        self.log: list[str] = []
        self.events: list[Recorder.Event] = []

    @contextlib.contextmanager
    def side(self) -> Iterator[None]:
        self.log.append("side")
        yield
        self.log.append("back")

    def begin_thread(self) -> None:
        pass

    def copy(self, tensor: torch.Tensor) -> torch.Tensor:
        self.log.append(f"copy {int(tensor[0])}")
        return tensor + 100

    def record(self) -> Event:
        self.log.append(f"record {len(self.events)}")
        self.events.append(self.Event(self.log, len(self.events)))
        return self.events[-1]

    def wait(self, event: Event) -> None:
        self.log.append(f"wait {event.number}")

    def use(self, tensor: torch.Tensor) -> None:
        self.log.append(f"use {int(tensor[0])}")


def tensors(*numbers: int) -> dict[str, torch.Tensor]:
    return {f"t{number}": torch.tensor([number]) for number in numbers}


def test_the_order_of_a_batch() -> None:
    streams = Recorder()
    mover = Mover(streams)
    moving = mover.send({**tensors(1, 2), "num_sampled_nodes": torch.tensor([7])})
    assert streams.log == ["side", "copy 1", "copy 2", "record 0", "back"]
    streams.log.clear()
    received = mover.receive(moving)
    assert streams.log == ["wait 0", "use 101", "use 102"]
    assert {name: int(tensor) for name, tensor in received.items()} == {"t1": 101, "t2": 102, "num_sampled_nodes": 7}


def test_what_is_put_together_is_behind_the_copies_and_before_the_event() -> None:
    streams = Recorder()

    def finish(copies: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        streams.log.append("finish")
        return {"whole": copies["t1"] + copies["t2"]}

    mover = Mover(streams, finish)
    received = mover.receive(mover.send(tensors(1, 2)))
    assert streams.log == [*("side", "copy 1", "copy 2", "record 0", "finish", "record 1", "back"), "wait 1", "use 203"]
    assert list(received) == ["whole"]


def test_memory_of_the_host_is_kept_until_its_copies_are_done() -> None:
    streams = Recorder()
    mover = Mover(streams)
    for number in range(HELD):
        assert mover.make_room(wait=False)
        mover.send(tensors(number))
    assert not mover.make_room(wait=False)
    assert "host waits 0" not in streams.log
    streams.events[0].done = True
    assert mover.make_room(wait=False)
    assert len(mover._sent) == HELD - 1
    mover.send(tensors(5))
    assert mover.make_room(wait=True)  # two batches ahead of the copies
    assert streams.log[-1] == "host waits 1"
    mover.close()
    assert streams.log[-1] == "host waits 2"
    mover.close()
    assert streams.log[-1] == "host waits 2"


def test_a_copy_that_fails_keeps_those_before_it_alive() -> None:
    streams = Recorder()
    mover = Mover(streams)

    def copy(tensor: torch.Tensor) -> torch.Tensor:
        if int(tensor[0]) == 2:
            raise torch.OutOfMemoryError("no room")
        return tensor

    streams.copy = copy  # type: ignore[method-assign]
    with pytest.raises(torch.OutOfMemoryError):
        mover.send(tensors(1, 2))
    assert [int(tensor) for tensor in mover._sent[0][1]] == [1, 2]
    mover.close()
    assert streams.log[-1] == "host waits 0"


class Source:
    """Batches that become ready when told."""

    def __init__(self, count: int, fails_at: int | None = None) -> None:
        self.count, self.fails_at, self.made, self.given = count, fails_at, count, 0
        self.asked: list[bool] = []

    def next(self, *, wait: bool = True, timeout_ms: int = 0) -> RawBatch | None:
        self.asked.append(wait)
        if self.given == self.fails_at:
            raise errors.ReadError(5, "the disk failed")
        if self.given == self.count or (not wait and self.given >= self.made):
            return None
        self.given += 1
        return RawBatch(self.given - 1, 1, tensors(self.given - 1))


def test_a_loop_slower_than_the_loader_sees_no_copy() -> None:
    streams, source = Recorder(), Source(4)
    ahead = Ahead(source, Mover(streams), 4, look=True)
    got = ahead.next()
    assert got is not None
    assert (got.index, got.num_seeds, list(got.tensors)) == (0, 1, ["t0"])
    for number in (1, 2, 3):
        until(lambda number=number: f"copy {number}" in streams.log and streams.log[-1] == "back")
        until(lambda: not ahead._sending)
        streams.log.clear()
        got = ahead.next()
        assert got is not None
        assert got.index == number
        assert streams.log[:2] == [f"wait {number}", f"use {100 + number}"]
    assert ahead.next() is None
    assert source.asked == [True, *[False] * 3, True], "the thread asks for no batch after the last"
    until(lambda: not ahead._thread.is_alive())


def test_a_batch_that_is_not_made_yet_is_sent_when_it_is() -> None:
    streams, source = Recorder(), Source(3)
    source.made = 1
    ahead = Ahead(source, Mover(streams), 3, look=True)
    assert ahead.next() is not None
    until(lambda: len(source.asked) > 3)
    assert source.given == 1
    assert not any(source.asked[1:])
    source.made = 2
    until(lambda: "copy 1" in streams.log)
    source.made = 3
    assert [got.index for got in iter(ahead.next, None)] == [1, 2]


def test_no_batch_is_sent_ahead_of_one_that_waits_for_the_loop() -> None:
    source = Source(5)
    ahead = Ahead(source, Mover(Recorder()), 5, look=True)
    assert ahead.next() is not None
    until(lambda: source.given == 2)
    time.sleep(0.05)
    assert source.given == 2


def test_without_a_look_ahead() -> None:
    source = Source(3)
    ahead = Ahead(source, Mover(Recorder()), 3, look=False)
    assert [got.index for got in iter(ahead.next, None)] == [0, 1, 2]
    assert source.asked == [True] * 4
    assert ahead._thread.ident is None


def test_an_error_of_the_next_batch_comes_with_the_next_batch() -> None:
    source = Source(3, fails_at=1)
    ahead = Ahead(source, Mover(Recorder()), 3, look=True)
    got = ahead.next()
    assert got is not None
    assert got.index == 0
    until(lambda: ahead._failed)
    time.sleep(0.05)
    assert source.asked == [True, False], "the thread asks once"
    with pytest.raises(errors.ReadError):
        ahead.next()


def test_a_device_without_room_loses_no_batch() -> None:
    streams = Recorder()
    ahead = Ahead(Source(3), Mover(streams), 3, look=True)
    copy = streams.copy

    def full(tensor: torch.Tensor) -> torch.Tensor:
        if int(tensor[0]) == 1:
            raise torch.cuda.OutOfMemoryError("no room")
        return copy(tensor)

    streams.copy = full  # type: ignore[method-assign]
    got = ahead.next()
    assert got is not None
    assert got.index == 0
    until(lambda: ahead._failed)
    with pytest.raises(torch.cuda.OutOfMemoryError):
        ahead.next()
    streams.copy = copy  # type: ignore[method-assign]
    assert [got.index for got in iter(ahead.next, None)] == [1, 2]


def test_an_interrupt_loses_no_batch() -> None:
    streams = Recorder()
    ahead = Ahead(Source(3), Mover(streams), 3, look=True)
    use = streams.use

    def interrupted(tensor: torch.Tensor) -> None:
        streams.use = use  # type: ignore[method-assign]
        raise KeyboardInterrupt

    streams.use = interrupted  # type: ignore[method-assign]
    with pytest.raises(KeyboardInterrupt):
        ahead.next()
    assert [got.index for got in iter(ahead.next, None)] == [0, 1, 2]


def test_the_thread_ends_with_the_epoch_and_with_its_batches() -> None:
    source = Source(9)
    ahead = Ahead(source, Mover(Recorder()), 9, look=True)
    assert ahead.next() is not None
    ahead.end()
    assert not ahead._thread.is_alive()
    asked = len(source.asked)
    assert ahead.next() is not None, "whoever asks still gets what is there"
    assert len(source.asked) <= asked + 1
    ahead = Ahead(Source(9), Mover(Recorder()), 9, look=True)
    assert ahead.next() is not None
    thread, moving = ahead._thread, ahead._moving
    until(lambda: len(moving) == 1)
    del ahead
    thread.join(20)
    assert not thread.is_alive()


def test_the_fake_copies_late() -> None:
    """What the other tests rely on: without a wait there is nothing there."""
    streams: Any = LateStreams(torch.device("cpu"))
    mover = Mover(streams)
    moving = mover.send({"x": torch.ones(3)})
    assert not moving.tensors["x"].equal(torch.ones(3))
    assert mover.receive(moving)["x"].equal(torch.ones(3))
    assert not ON_HOST & {"x"}
