"""How the ranks of a host find each other, and the process that serves them.

They are asked through their process group, which they have anyway: first where each of them is, then, once the first
rank of each host has started a server, for its name, and at last whether all of them have opened the loader. So there
are no names to agree on beforehand and there is nothing in the file system. A rank that dies on the way ends the
waiting of the others as in any collective.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import torch.distributed

from freshgo._data.source import StoreSource
from freshgo._host_loader import wire
from freshgo._host_loader.client import Seat, SharedLoader
from freshgo._loader.batch_makers import BatchMaker
from freshgo._loader.ranks import Share, gathered, group_rank
from freshgo._loader.request import Request
from freshgo._native.loader import Loader as NativeLoader
from freshgo._native.options import LoaderOptions
from freshgo.errors import FreshgoError, InternalError, RankError, ServerError

_COMMAND = (
    "import json, sys; sys.path[:] = json.loads(sys.argv[2]); from freshgo._host_loader.server import main; "
    "main(int(sys.argv[1]))"
)


_OPENING = "opening a loader with share='host'"


@dataclass
class _Served:
    """A server that this process has started. It ends with its last connection. This process keeps one for as
    long as it has a loader there."""

    name: str
    connection: Any
    loaders: int = 0


_served: _Served | None = None
_lock = threading.RLock()  # a loader may be collected while another is opened


def _forget_in_child() -> None:
    """A child that kept the connection would keep the server."""
    global _served, _lock
    if _served is not None:
        _served.connection.close()
    _served, _lock = None, threading.RLock()


os.register_at_fork(after_in_child=_forget_in_child)


def where() -> tuple[str, ...]:
    """Return what processes have in common that can share memory and sockets."""
    boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    return boot, str(os.stat("/proc/self/ns/net").st_ino), str(os.geteuid())  # noqa: PTH116 (not a path in a tree)


def neighbours(places: list[tuple[str, ...]], rank: int) -> range:
    """Return the adjacent ranks around one that are on its host."""
    first, end = rank, rank + 1
    while first > 0 and places[first - 1] == places[rank]:
        first -= 1
    while end < len(places) and places[end] == places[rank]:
        end += 1
    return range(first, end)


class Host:
    """The ranks of this host in the process group that there is now."""

    def __init__(self) -> None:
        self.rank, self.world_size = torch.distributed.get_rank(), torch.distributed.get_world_size()
        self.ranks = neighbours(gathered(_OPENING, where()), self.rank)

    def open(
        self,
        store: str,
        uuid: str,
        options: LoaderOptions,
        described: Mapping[str, Any],
        alone: Callable[[], NativeLoader],
    ) -> SharedLoader | NativeLoader:
        """Open a loader for all ranks of the host, or ``alone`` where it has one. All ranks of the group call this
        together, and ``described`` is the same for all. Each rank is to have ``prefetch`` batches ahead, and has one in
        its loop.

        Raises:
            RankError: this rank describes its loader otherwise than the first one of the host, or another rank could
                not, or has ended
            ServerError: no server can be started
            and what a native loader raises
        """
        count, first = len(self.ranks), self.rank == self.ranks.start
        starts = first and count > 1
        server, token, error = gathered(_OPENING, _named() if starts else ("", "", None))[self.ranks.start]
        opened: SharedLoader | NativeLoader | None = None
        if error is None:
            try:
                if count == 1:
                    opened = alone()
                else:
                    seat = Seat(token, server, self.rank - self.ranks.start, count, self.rank, self.world_size)
                    wider = {**options, "prefetch": options["prefetch"] * count, "holds": options["holds"] * count}
                    opened = SharedLoader(seat, store, uuid, described, wider if first else None)
            except FreshgoError as failed:
                error = failed
            except Exception as failed:  # which others might not be able to read
                error = InternalError(repr(failed))
        errors: list[Exception | None] = []
        try:
            errors = gathered(_OPENING, error)
        except RankError as gone:
            error = error or gone
        failure = error or next(
            (RankError(f"rank {i} could not open the loader: {e}") for i, e in enumerate(errors) if e is not None), None
        )
        if failure is None:
            assert opened is not None
            if starts and isinstance(opened, SharedLoader):
                opened.closing = _leave
            return opened
        if opened is not None:
            opened.close()
        if starts:
            _leave()
        raise failure


class HostBatchMaker(BatchMaker):
    """Takes batches from the process that makes them for all ranks of the host."""

    def __init__(self, source: StoreSource, request: Request) -> None:
        super().__init__(source)
        self._store, self._request = source.store, request
        self._group = group_rank() or (0, 1)  # that it is opened for

    def open(self, options: LoaderOptions) -> NativeLoader:
        if self._group[1] == 1:
            return super().open(options)
        path = os.path.abspath(self._store.path)  # noqa: PTH100 (which resolves no links)
        described = {"graph": self._source.fingerprint(), **self._request.described(options)}
        alone = super().open
        opened = Host().open(path, self._store.uuid, options, described, lambda: alone(options))
        return cast(NativeLoader, opened)  # a SharedLoader has the methods of a native one

    def begin(self, share: Share) -> None:
        if self._group != (share.rank, share.world_size):
            raise RankError(
                "share='host' takes the ranks of the process group when a loader is opened: this one was opened by "
                f"rank {self._group[0]} of {self._group[1]}, and this process is now rank {share.rank} of "
                f"{share.world_size}: open another one"
            )


def _named() -> tuple[str, str, Exception | None]:
    """Return the name of the server that this process has started, and that of another loader."""
    global _served
    with _lock:
        try:
            if _served is None or _served.loaders == 0:
                _served = _started()
            _served.loaders += 1
            return _served.name, os.urandom(8).hex(), None
        except OSError as error:
            return "", "", ServerError(f"no process can be started that serves the ranks of this host: {error}")


def _leave() -> None:
    """Note that a loader of this process has no need of the server any more."""
    global _served
    with _lock:
        if _served is not None and _served.loaders > 0:
            _served.loaders -= 1
            if _served.loaders == 0:
                _served.connection.close()
                _served = None


def _started() -> _Served:
    """Start a server. It inherits the socket, to which this process is connected before it runs."""
    listener, name = wire.listening()
    with listener:
        connection = wire.connected(name)
        command = [sys.executable, "-I", "-c", _COMMAND, str(listener.fileno()), json.dumps(sys.path)]
        environment = {**os.environ, "CUDA_VISIBLE_DEVICES": ""}  # it serves memory of the host alone
        process = subprocess.Popen(
            command, pass_fds=[listener.fileno()], stdin=subprocess.DEVNULL, env=environment, start_new_session=True
        )
    threading.Thread(target=process.wait, daemon=True, name="freshgo-server").start()  # so that it leaves no zombie
    return _Served(name, connection)
