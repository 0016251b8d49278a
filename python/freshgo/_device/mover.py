"""Batches on their way to a device, overlapped with what the consumer computes there.

    side stream:        copy 1 | copy 2 |        | copy 3 | ...
    consumer's stream:          train 1          | train 2         | ...

The copies of a batch are queued on a stream of their own as soon as it is made, while the consumer works at the batch
before: by a thread that waits for batches, so that a consumer slower than the loader sees no copy. When a batch is
handed over, the consumer's stream is made to wait for the end of its copies, and its memory is marked as used there, so
that the allocator gives it to no later copy before the consumer's work is done. The host waits for nothing, but for
copies when it is two batches ahead of them, and when the loader is closed.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections import deque
from collections.abc import Callable, Iterator, Set
from dataclasses import dataclass

import torch
from torch import Tensor

from freshgo._args.types import Types
from freshgo._device.drawing import KEY, Drawing
from freshgo._device.hops import FITS
from freshgo._device.packed import LAYOUT, PACKED, Unpacking, kept, parts_of
from freshgo._device.streams import Event, Streams, Tensors
from freshgo._native.loader import Loader as NativeLoader
from freshgo._native.loader import RawBatch
from freshgo._observe.ranges import stage

ON_HOST = frozenset({"num_sampled_nodes", "num_sampled_edges", "history_counts"})
"""Tensors of a batch that become numbers and stay."""

HELD = 2
"""Batches whose memory on the host is in use at a time, at most."""


def on_host(types: Types, num_edge_types: int) -> set[str]:
    """ON_HOST for batches of a graph: ``num_edge_types`` counts the edge types that a batch has."""
    return {"history_counts", KEY, *types.counts(num_edge_types)}


@dataclass(frozen=True)
class Moving:
    """A batch whose copies are queued: its tensors, not to be read before ``event``."""

    tensors: Tensors
    event: Event
    padded: Padded | None = None


@dataclass(frozen=True)
class Padded:
    """How a padded batch is drawn again if it does not fit."""

    fits: Tensor
    """Whether it fits, on the host; not to be read before ``event``."""
    event: Event
    seeds: Tensors
    """What it is drawn from, on the device."""
    beside: Tensors
    """Tensors that stay on the host."""
    keys: list[int]


class Mover:
    """Sends batches to a device and receives them there, in the same order."""

    def __init__(
        self,
        streams: Streams,
        finish: Callable[[Tensors], Tensors] | None = None,
        stay: Set[str] = ON_HOST,
        unpack: Unpacking | None = None,
        draw: Drawing | None = None,
    ) -> None:
        """``finish``, which may change, is called in the side stream with what was copied and returns what the consumer
        gets. Tensors named in ``stay`` stay on the host. ``unpack`` is for packed batches, ``draw`` for those that are
        seeds and a key."""
        self._streams = streams
        self.finish = finish
        self._stay = stay
        self._unpack = unpack
        self._draw = draw
        self.padded = 0  # batches received that the device has drawn and padded
        self.beside = ""  # what else takes the memory of the device, as a sentence for where it ends
        self._sent: deque[tuple[Event, list[Tensor]]] = deque()  # memory of the host that copies may still read

    def again(self) -> Mover:
        """Another one for the same device, that knows nothing of what this one has sent."""
        other = Mover(self._streams, self.finish, self._stay, self._unpack, self._draw)
        other.beside = self.beside
        return other

    def whole(self, raw: RawBatch) -> RawBatch:
        """Send a batch and wait until the device has it."""
        tensors = self.receive(self.send(raw.tensors))
        self.close()
        return dataclasses.replace(raw, tensors=tensors)

    def send(self, tensors: Tensors) -> Moving:
        """Queue the copies of a batch."""
        stay, parts = {name: tensors[name] for name in self._stay if name in tensors}, []
        if self._unpack is not None and LAYOUT in tensors:
            parts = parts_of(tensors[LAYOUT])
            stay |= kept(tensors[PACKED], parts, self._stay)
        with stage("freshgo.move"), self._streams.side(), _naming(self.beside):
            try:
                copies = {
                    name: self._streams.copy(tensor)
                    for name, tensor in tensors.items()
                    if name not in stay and name != LAYOUT
                }
            finally:  # also where the device has no room, or Ctrl-C strikes: some copies may be queued
                event = self._streams.record()
                self._sent.append((event, list(tensors.values())))
            computes = self._unpack is not None and (parts or self._unpack.grouped)
            if self._unpack is not None and computes:
                made = self._streams.unpack(self._unpack, copies, parts)
                copies.pop(PACKED, None)
                copies = made | copies
            if self._draw is not None and KEY in stay:
                copies.pop(KEY, None)
                moving = self._drawn(copies, stay, stay.pop(KEY).tolist(), pad=True)
                self._sent[-1] = (moving.event, self._sent[-1][1])
                return moving
            if self.finish is not None:
                copies = self.finish(copies)
            if computes or self.finish is not None:
                event = self._streams.record()
            if self.finish is not None:  # which may read memory of the host too
                self._sent[-1] = (event, self._sent[-1][1])
        return Moving(copies | stay, event)

    def _drawn(self, seeds: Tensors, stay: Tensors, keys: list[int], *, pad: bool) -> Moving:
        """Draw a batch in the side stream."""
        assert self._draw is not None, "batches are seeds"
        copies, beside, padded = dict(seeds), dict(stay), None
        drawn = self._streams.draw(self._draw, copies, keys, pad=pad)
        if FITS in drawn:
            padded = Padded(self._streams.fetch(drawn.pop(FITS)), self._streams.record(), seeds, stay, keys)
        beside |= {name: drawn.pop(name) for name in self._stay & drawn.keys()}
        copies |= drawn
        if self.finish is not None:
            copies = self.finish(copies)
        return Moving(copies | beside, self._streams.record(), padded)

    def load(self, native: NativeLoader) -> None:
        """Copy to the device what batches are drawn from, if they are drawn there."""
        if self._draw is not None:
            with self._streams.side():
                self._draw.load(native)

    def begin_thread(self) -> None:
        """Let this thread send batches, whatever other threads do meanwhile."""
        self._streams.begin_thread()

    def receive(self, moving: Moving) -> Tensors:
        """Return the tensors of a batch for use in the consumer's current stream."""
        if (padded := moving.padded) is not None:
            if not padded.event.query():
                padded.event.synchronize()
            if padded.fits.item():
                self.padded += 1
            else:
                with self._streams.side(), _naming(self.beside):
                    moving = self._drawn(padded.seeds, padded.beside, padded.keys, pad=False)
                self._sent.append((moving.event, []))  # it may read memory of the host
        self._streams.wait(moving.event)
        for name, tensor in moving.tensors.items():
            if name not in self._stay:
                self._streams.use(tensor)
        return moving.tensors

    def make_room(self, *, wait: bool) -> bool:
        """Let go of memory whose copies are done. Returns whether with another batch at most HELD are in use; always
        so with ``wait``."""
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


@contextlib.contextmanager
def _naming(beside: str) -> Iterator[None]:
    """Say where the device has no memory left what else takes it."""
    try:
        yield
    except torch.cuda.OutOfMemoryError as error:
        if not beside:
            raise
        raise torch.cuda.OutOfMemoryError(f"{error} {beside}") from error
