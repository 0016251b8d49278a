"""Batches on their way to a device, overlapped with what the consumer computes there.

    side stream:        copy 1 | copy 2 |        | copy 3 | ...
    consumer's stream:          train 1          | train 2         | ...

The copies of a batch are queued on a stream of their own while the consumer works at the batch before. When a batch is
handed over, the consumer's stream is made to wait for the end of its copies, and its memory is marked as used there, so
that the allocator gives it to no later copy before the consumer's work is done. The host waits for nothing, but for
copies when it is two batches ahead of them, and when the loader is closed.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections import deque
from collections.abc import Callable, Set
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor

from freshgo._args.types import Types
from freshgo._native.loader import RawBatch
from freshgo._observe.ranges import stage
from freshgo.errors import FreshgoError

ON_HOST = frozenset({"num_sampled_nodes", "num_sampled_edges", "history_counts"})
"""Tensors of a batch that become numbers and stay."""

HELD = 2
"""Batches whose memory on the host is in use at a time, at most."""

Tensors = dict[str, Tensor]


def on_host(types: Types, num_edge_types: int) -> set[str]:
    """ON_HOST for batches of a graph: ``num_edge_types`` counts the edge types that a batch has."""
    return {
        "history_counts",
        *(types.node_name(i, "num_sampled_nodes") for i in range(len(types.num_nodes))),
        *(types.edge_name(i, "num_sampled_edges") for i in range(num_edge_types)),
    }


class Event(Protocol):
    """A point in a stream."""

    def query(self) -> bool:
        """Whether everything before it is done."""

    def synchronize(self) -> None:
        """Wait on the host until it is."""


class Streams(Protocol):
    """What moving takes of CUDA: a side stream, and the one that the consumer works on."""

    def side(self) -> contextlib.AbstractContextManager[Any]:
        """What is queued within goes to the side stream."""

    def copy(self, tensor: Tensor) -> Tensor:
        """Queue a copy to the device. ``tensor`` must live and stay as it is until that is done."""

    def record(self) -> Event:
        """The point that the side stream has been filled to."""

    def wait(self, event: Event) -> None:
        """Let the consumer's stream wait for a point of the side stream."""

    def use(self, tensor: Tensor) -> None:
        """Tell the allocator that the consumer's stream uses a tensor made in the side stream."""


class Batches(Protocol):
    """Where the batches of an epoch come from: a native loader, or what has this face."""

    def next(self, *, wait: bool = True) -> RawBatch | None:
        """The next batch; ``None`` after the last one, and without ``wait`` where it is not made yet."""


@dataclass(frozen=True)
class Moving:
    """A batch whose copies are queued: its tensors, not to be read before ``event``."""

    tensors: Tensors
    event: Event


class Mover:
    """Sends batches to a device and receives them there, in the same order."""

    def __init__(
        self,
        streams: Streams,
        finish: Callable[[Tensors], Tensors] | None = None,
        stay: Set[str] = ON_HOST,
    ) -> None:
        """``finish`` is called in the side stream with what was copied and returns what the consumer gets. Tensors
        named in ``stay`` stay on the host."""
        self._streams = streams
        self._finish = finish
        self._stay = stay
        self._sent: deque[tuple[Event, list[Tensor]]] = deque()  # memory of the host that copies may still read

    def again(self) -> Mover:
        """Another one for the same device, that knows nothing of what this one has sent."""
        return Mover(self._streams, self._finish, self._stay)

    def whole(self, raw: RawBatch) -> RawBatch:
        """Send a batch and wait until the device has it."""
        tensors = self.receive(self.send(raw.tensors))
        self.close()
        return dataclasses.replace(raw, tensors=tensors)

    def send(self, tensors: Tensors) -> Moving:
        """Queue the copies of a batch."""
        with stage("freshgo.move"), self._streams.side():
            try:
                copies = {
                    name: tensor if name in self._stay else self._streams.copy(tensor)
                    for name, tensor in tensors.items()
                }
            finally:  # also where the device has no room, or Ctrl-C strikes: some copies may be queued
                event = self._streams.record()
                self._sent.append((event, list(tensors.values())))
            if self._finish is not None:
                copies = self._finish(copies)
                event = self._streams.record()
        return Moving(copies, event)

    def receive(self, moving: Moving) -> Tensors:
        """Return the tensors of a batch for use in the consumer's current stream."""
        self._streams.wait(moving.event)
        for name, tensor in moving.tensors.items():
            if name not in self._stay:
                self._streams.use(tensor)
        return moving.tensors

    def make_room(self, *, wait: bool) -> bool:
        """Let go of memory whose copies are done. Returns whether with another batch at most HELD are in use."""
        while self._sent and (self._sent[0][0].query() or (wait and len(self._sent) >= HELD)):
            self._sent[0][0].synchronize()
            self._sent.popleft()
        return len(self._sent) < HELD

    def close(self) -> None:
        """Wait for the copies that are queued, whose memory on the host goes back after this."""
        while self._sent:
            self._sent[0][0].synchronize()
            self._sent.popleft()

    def __del__(self) -> None:
        with contextlib.suppress(Exception):  # a finalizer has nobody to tell
            self.close()


class Ahead:
    """The batches of an epoch on the device, with the next one on its way where it is made already."""

    def __init__(self, source: Batches, mover: Mover, *, look: bool) -> None:
        self._source = source
        self._mover = mover
        self._look = look
        self._moving: deque[tuple[RawBatch, Moving]] = deque()
        self._taken: RawBatch | None = None  # from the source, and not on its way: the device had no room

    def next(self) -> RawBatch | None:
        """The next batch, ``None`` after the last one. Waits for it in steps, so Ctrl-C works."""
        if not self._moving and not self._fetch(wait=True):
            return None
        if self._look and len(self._moving) == 1:
            # What goes wrong is about the batch after this one, and is raised again when that is asked for.
            with contextlib.suppress(FreshgoError, torch.cuda.OutOfMemoryError):
                self._fetch(wait=False)
        raw, moving = self._moving[0]
        tensors = self._mover.receive(moving)
        self._moving.popleft()
        return dataclasses.replace(raw, tensors=tensors)

    def _fetch(self, *, wait: bool) -> bool:
        if not self._mover.make_room(wait=wait):
            return False
        if self._taken is None:
            self._taken = self._source.next(wait=wait)
        raw = self._taken
        if raw is None:
            return False
        self._moving.append((raw, self._mover.send(raw.tensors)))
        self._taken = None
        raw.tensors.clear()  # the mover knows how long they are needed
        return True


class CudaStreams:
    """The real :class:`Streams` of a CUDA device."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._side: Any = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]

    def side(self) -> contextlib.AbstractContextManager[Any]:
        return torch.cuda.stream(self._side)

    def copy(self, tensor: Tensor) -> Tensor:
        # From pageable memory the host would wait. The library locks its buffers (see pinned_memory), except small ones
        # and those that it may not lock: these go through PyTorch's pinned memory, which is reused after the copy.
        pinned = tensor if tensor.is_pinned() else tensor.pin_memory()
        return pinned.to(self._device, non_blocking=True)

    def record(self) -> Event:
        event: Event = self._side.record_event()
        return event

    def wait(self, event: Any) -> None:
        torch.cuda.current_stream(self._device).wait_event(event)

    def use(self, tensor: Tensor) -> None:
        tensor.record_stream(torch.cuda.current_stream(self._device))
