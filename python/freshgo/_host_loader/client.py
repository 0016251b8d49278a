"""The loader of a rank whose batches another process makes, with the face of a native loader."""

from __future__ import annotations

import atexit
import contextlib
import os
import threading
import time
import weakref
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from socket import SHUT_RDWR, socket
from typing import Any, Literal

from torch import Tensor

from freshgo._host import wire
from freshgo._host.ranks import timeout_of_world
from freshgo._host.table import StepPart
from freshgo._host.wire import Sent
from freshgo._host_loader.job import Run
from freshgo._native import abi
from freshgo._native.loader import RawBatch, share_count
from freshgo._native.options import LoaderOptions
from freshgo._native.shared import SharedMapping
from freshgo.errors import ClosedError, ServerError


@dataclass(frozen=True)
class Seat:
    """The place of a rank among those of its host, and where they are served."""

    token: str
    """Names the loader."""
    server: str
    """The name of the socket."""
    local: int
    """Counted from the first rank of the host."""
    count: int
    """How many ranks the host has."""
    rank: int
    world_size: int


_loaders: weakref.WeakSet[SharedLoader] = weakref.WeakSet()


@atexit.register
def _close_loaders() -> None:
    """Tell the other ranks, when the interpreter exits, that this one needs no batches any more."""
    for loader in list(_loaders):
        with contextlib.suppress(Exception):  # nobody is told any more
            if not abi.forked():
                loader.close()


class SharedLoader:
    """Batches of one rank, made by the process that serves all ranks of the host.

    A call sends a message and waits for its answer. Messages are numbered, so that the answer to one that Ctrl-C has
    interrupted is told from that to the next, and each says whether the last batch has come: the server takes back one
    that has not."""

    closing: Callable[[], None] | None = None
    """Called when it is closed."""

    def __init__(
        self, seat: Seat, store: str, uuid: str, described: Mapping[str, Any], options: LoaderOptions | None
    ) -> None:
        """Connect. One rank has the ``options`` and opens the loader, the others wait until it has. All of them say
        what they ask for.

        Raises:
            RankError: this rank asks for something else than the one that opened the loader
            ServerError: the server has ended
            and what a native loader raises
        """
        self._seat = seat
        self._lock = threading.RLock()
        self._closed = False
        self._num_requests = 0
        self._received = True
        self._mapping: SharedMapping | None = None
        self._share: Mapping[str, int] = {}
        self._next = self._base = 0  # the batch that comes next, by the number of those before, and the rank's own
        self._waited = 0.0
        who = f"rank {seat.rank} (process {os.getpid()})"
        self._connection: socket = wire.connected(seat.server)
        _loaders.add(self)
        try:
            if options is None:
                self.num_batches: int = self._request("join", seat.token, who, seat.local, described)
            else:
                self.num_batches = self._request(
                    "open", seat.token, who, seat.local, described, seat.count, store, uuid, options
                )
        except BaseException:
            self.close()
            raise

    @property
    def closed(self) -> bool:
        """Whether it was closed."""
        return self._closed

    def check_open(self) -> None:
        """Raise ClosedError after :meth:`close`."""
        abi.check_process()
        if self._closed:
            raise ClosedError("loader is closed")

    def tables(self) -> dict[str, Tensor]:
        """Return no tables: batches of another process bring all their rows."""
        return {}

    def take(self, share: Mapping[str, int]) -> None:
        """Make the epochs that start from now on those of a share, of the rank and number of ranks of its seat."""
        self._share = share

    def start(self, epoch: int, first_batch: int, mode: Literal["train", "trace", "plain"] = "train") -> None:
        """Begin ``epoch`` where ``first_batch`` batches of it have been made, by whatever ranks, once all ranks of the
        host do so. A rank that has lost a batch on its way begins there alone."""
        count = share_count(self._share, self.num_batches, 0)
        base = count - share_count(self._share, self.num_batches, first_batch)
        run = Run(
            epoch, first_batch, mode, self._seat.rank - self._seat.local, self._seat.world_size, self._share["uneven"]
        )
        with self._lock:
            self._next = self._request("start", run)
            self._base = base - self._next

    def next(self, *, wait: bool = True, timeout_ms: int = 0) -> RawBatch | None:
        """The next batch of the epoch, ``None`` after the last one, and without ``wait`` where it is not made yet."""
        with self._lock:
            began = time.monotonic()
            answer = self._request("next", self._next, wait)
            if not answer:
                return None
            batch = self._batch(self._base + self._next, answer)
            self._next += 1
            self._waited += time.monotonic() - began
            return batch

    def sample(self, ask: Mapping[str, Any]) -> RawBatch:
        """The batch for what is asked for, the members of ``fg_ask``, apart from all epochs."""
        with self._lock:
            return self._batch(0, self._request("sample", dict(ask)))

    def step(self, part: StepPart) -> int | None:
        """Take part in a step over the rows of a table, with all ranks that have a batch. Return the number of the
        step, None where no rank has a gradient.

        Raises:
            RankError: another rank does something else, has ended, or has not come within the timeout of the group
        """
        waits = timeout_of_world()
        step: int | None = self._request("step", self._next - 1, part, None if waits is None else waits.total_seconds())
        return step

    def stop(self) -> None:
        """Leave the running epoch. The other ranks go on. It may be called by a finalizer within another call."""
        self.check_open()
        self._send("stop")

    def stats(self) -> dict[str, Any]:
        """Counters of the server's loader since it was opened, and the seconds that this rank has waited."""
        stats: dict[str, Any] = self._request("stats")
        return stats | {"seconds_waiting": self._waited}

    def plan(self) -> dict[str, Any]:
        """The plan of the server's loader."""
        plan: dict[str, Any] = self._request("plan")
        return plan

    def close(self) -> None:
        """Leave the server. Tensors of batches stay. Closing again does nothing."""
        closed, self._closed = self._closed, True
        if closed:
            return
        with contextlib.suppress(ServerError, ClosedError):
            self._send("bye")
        with contextlib.suppress(OSError):
            self._connection.shutdown(SHUT_RDWR)  # wakes a thread that waits for an answer
        with self._lock:
            self._connection.close()
            if self._mapping is not None:
                self._mapping.close()
        if self.closing is not None:
            self.closing()

    def _batch(self, index: int, answer: Sent) -> RawBatch:
        assert self._mapping is not None
        num_seeds, places = answer
        # From here on the tensors give themselves back, and nobody else may: their memory might be lent anew by then.
        self._received = True
        return RawBatch(index, num_seeds, self._mapping.tensors(places))

    def _send(self, what: str, *arguments: Any, number: int = 0, received: bool = True) -> None:
        try:
            wire.send(self._connection, (number, received, what, arguments))
        except OSError:
            raise self._end_error() from None

    def _request(self, what: str, *arguments: Any) -> Any:
        with self._lock:
            self.check_open()
            received, self._received = self._received, what not in ("next", "sample")
            self._num_requests += 1
            number = self._num_requests
            self._send(what, *arguments, number=number, received=received)
            while True:
                replied, succeeded, value = self._answer()
                if replied == number:
                    break
            if not succeeded:
                self._received = True
                raise value
            if value is None or value is False:
                self._received = True
            return value

    def _answer(self) -> tuple[int, bool, Any]:
        try:
            message = wire.receive(self._connection)
        except OSError:
            message = None
        if message is None:
            raise self._end_error()
        answer, fd = message
        if fd is not None:
            try:
                self._mapping = SharedMapping(fd)
            finally:
                os.close(fd)
        return answer  # type: ignore[no-any-return]

    def _end_error(self) -> Exception:
        if self._closed:
            return ClosedError("loader is closed")
        return ServerError(
            "the process that serves this loader has ended; tensors that it has made stay, open another loader to go on"
        )

    def __del__(self) -> None:
        with contextlib.suppress(Exception):  # a finalizer has nobody to tell
            if not abi.forked():
                self.close()
