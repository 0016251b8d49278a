"""The process that makes the batches of all ranks of a host. It ends with the last connection.

The main thread accepts connections and watches for those that end; each connection has a thread that answers it. What
a rank was sent stays here until the rank has no tensor of it any more, which the tensors themselves note in the shared
memory, or until the rank has ended.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import socket
import threading
from collections.abc import Callable, Mapping
from typing import Any

from freshgo._args.checks import shown
from freshgo._host import wire
from freshgo._host.table import StepPart
from freshgo._host.wire import Sent
from freshgo._host_loader.job import GoneError, Job, Run
from freshgo._host_loader.tables import SharedTables
from freshgo._native.loader import Loader as NativeLoader
from freshgo._native.loader import RawBatch
from freshgo._native.options import LoaderOptions
from freshgo._native.shared import Lent, Place, SharedBatches
from freshgo._native.store import Store as NativeStore
from freshgo.errors import FreshgoError, InternalError, InvalidArgumentError, RankError

SPACE = 1 << 40
"""Bytes of address space for batches; memory is taken as it is used."""

_PATIENCE = 60.0
"""Seconds for a rank to come, after which a process that serves nobody ends."""


class _Opening:
    """A job that its first rank opens, and that others wait for."""

    def __init__(self) -> None:
        self.ready = threading.Event()
        self.job: Job | None = None
        self.error: Exception | None = None
        self.who, self.described = "", dict[str, Any]()  # the first rank, and what it asks for


class _Connection:
    """A rank, and what it was sent."""

    def __init__(self, server: Server, peer: socket.socket) -> None:
        self._server, self.peer = server, peer
        self.ended = False  # seen by the main thread, while this one may wait for something else
        self._job: Job | None = None
        self._token, self._local, self._who = "", 0, ""
        self._tables: list[str] = []  # that it has open
        self._sent = Lent(server.memory)
        self._last: list[Place] = []
        self._answers: dict[str, Callable[..., Any]] = {
            "open": self._open,
            "join": self._join,
            "start": self._start,
            "next": self._next,
            "sample": self._sample,
            "stats": self._stats,
            "plan": self._plan,
            "step": self._step,
            "table": self._table,
        }

    def run(self) -> None:
        """Answer until the other end is gone."""
        lost: str | None = "a rank of this host has ended"
        try:
            while (message := wire.receive(self.peer)) is not None:
                number, received, what, arguments = message[0]
                if what == "bye":
                    lost = None
                    break
                if what == "stop":
                    if self._job is not None:
                        self._job.stop(self._local)
                    continue
                self._settle(received)
                with contextlib.suppress(GoneError):  # what it has sent meanwhile is still to be read
                    self._answer(number, what, arguments)
                lost = f"{self._who} has ended without closing its loader"
        except OSError:
            pass
        finally:
            if self._job is not None and self._job.left(self._local, lost=lost):
                self._server.closed(self._token, self._job)
            for token in self._tables:
                self._server.tables.leave(token)
            self._server.gone(self, self._sent if lost is None else None)

    def _answer(self, number: int, what: str, arguments: tuple[Any, ...]) -> None:
        fd = None
        try:
            value = self._answers[what](*arguments)
            answer = number, True, value
            if what in ("open", "join"):
                fd = self._server.memory.fd
        except GoneError:
            raise
        except FreshgoError as error:
            answer = number, False, error
        except Exception as error:
            answer = number, False, InternalError(f"the process that serves this loader failed: {error!r}")
        wire.send(self.peer, answer, fd)

    def _alive(self) -> bool:
        return not self.ended

    def _settle(self, received: bool) -> None:
        """Take back what the rank has no more; also the last answer, where it did not receive it."""
        self._sent.settle(() if received else self._last)
        self._last = []

    def _send(self, raw: RawBatch) -> Sent:
        self._last = self._sent.send(raw.tensors)
        return raw.num_seeds, list(map(tuple, self._last))  # which pickle in a fraction of the time

    # The answers.

    def _open(
        self,
        token: str,
        who: str,
        local: int,
        described: dict[str, Any],
        count: int,
        store: str,
        uuid: str,
        options: LoaderOptions,
    ) -> int:
        opening = self._server.opening(token)
        opening.who, opening.described = who, described
        try:
            tables = [self._server.tables.of(one["table"]) for one in options.get("tables", [])]
            if tables:
                given = zip(options["tables"], tables, strict=True)
                options = {**options, "tables": [{**one, "table": table.native.pointer} for one, table in given]}
            opening.job = Job(open_native(store, uuid, options), count, tables)
            self._server.tables.own(opening.job, tables)
        except Exception as error:
            opening.error = error
            raise
        finally:
            opening.ready.set()
        return self._joined(token, who, local, opening.job)

    def _join(self, token: str, who: str, local: int, described: dict[str, Any]) -> int:
        opening = self._server.opening(token)
        while not opening.ready.wait(0.05):
            if self.ended:
                raise GoneError
        if opening.job is None:
            raise opening.error or InternalError("a job without an error was not opened")
        batches = self._joined(token, who, local, opening.job)  # which it leaves again where the next line raises
        check_described(described, opening.described, opening.who)
        return batches

    def _joined(self, token: str, who: str, local: int, job: Job) -> int:
        self._token, self._who, self._local, self._job = token, who, local, job
        return job.native.num_batches

    def _start(self, run: Run) -> int:
        assert self._job is not None
        return self._job.start(self._local, run, self._alive)

    def _next(self, number: int, wait: bool) -> Sent | bool | None:
        assert self._job is not None
        raw = self._job.next(self._local, number, wait, self._alive)
        return self._send(raw) if isinstance(raw, RawBatch) else raw

    def _sample(self, ask: Any) -> Sent:
        assert self._job is not None
        return self._send(self._job.native.sample(ask))

    def _stats(self) -> dict[str, Any]:
        assert self._job is not None
        return self._job.native.stats()

    def _plan(self) -> dict[str, Any]:
        assert self._job is not None
        return self._job.native.plan()

    def _step(self, number: int, part: StepPart, seconds: float | None) -> int | None:
        assert self._job is not None
        return self._job.step(self._local, number, part, seconds, self._alive)

    def _table(self, token: str, what: str, arguments: tuple[Any, ...]) -> Any:
        tables = self._server.tables
        if what == "leave":
            if token in self._tables:  # else it could not be opened
                self._tables.remove(token)
                tables.leave(token)
        elif what in ("open", "join"):
            (tables.open if what == "open" else tables.join)(token, *arguments)
            self._tables.append(token)
        else:
            return tables.of(token).answer(what, arguments)
        return None


class Server:
    """All connections and jobs."""

    def __init__(self, listener: socket.socket) -> None:
        self.memory = SharedBatches(SPACE)
        self._listener = listener
        self._lock = threading.Lock()
        self._openings: dict[str, _Opening] = {}
        self._connections: dict[int, _Connection] = {}
        self.tables = SharedTables()
        self._left = Lent(self.memory)  # to ranks that have closed their loaders and keep tensors
        self._watch = select.poll()

    def serve(self) -> None:
        """Serve until there is no connection any more."""
        self._watch.register(self._listener, select.POLLIN)
        served = False
        while True:
            events = self._watch.poll(250 if served else 1000 * _PATIENCE)
            # Before any is accepted, which might be given the descriptor of one that has been closed since.
            for fd in {fd for fd, _ in events} - {self._listener.fileno()}:
                with self._lock:
                    with contextlib.suppress(KeyError):
                        self._watch.unregister(fd)
                    connection = self._connections.get(fd)
                if connection is not None:
                    connection.ended = True
            if any(fd == self._listener.fileno() for fd, _ in events):
                self._accept()
                served = True
            with self._lock:
                self._left.settle()
                if not self._connections and not events:
                    return

    def opening(self, token: str) -> _Opening:
        """Return what is known of a job."""
        with self._lock:
            return self._openings.setdefault(token, _Opening())

    def closed(self, token: str, job: Job) -> None:
        """Free a job that has no rank any more."""
        job.close()
        self.tables.disown(job, job.tables)
        with self._lock:
            self._openings.pop(token, None)

    def gone(self, connection: _Connection, left: Lent | None) -> None:
        """Forget a connection that has ended, and keep what its rank still has."""
        with self._lock:
            self._connections.pop(connection.peer.fileno(), None)
            if left is not None:
                self._left.take_over(left)
            with contextlib.suppress(KeyError):
                self._watch.unregister(connection.peer)
            connection.peer.close()

    def _accept(self) -> None:
        peer, _ = self._listener.accept()
        if not wire.ours(peer):
            peer.close()
            return
        connection = _Connection(self, peer)
        with self._lock:
            self._connections[peer.fileno()] = connection
        self._watch.register(peer, select.POLLRDHUP | select.POLLHUP)
        threading.Thread(target=connection.run, daemon=True).start()


def check_described(mine: Mapping[str, Any], served: Mapping[str, Any], who: str) -> None:
    """Raise where a rank asks for another loader than the one that is served, which ``who`` has opened."""

    def value(of: Mapping[str, Any], name: str) -> str:
        return shown(of[name]) if name in of else "missing"

    different = [
        f"{name} is {value(mine, name)} here and {value(served, name)} in the server"
        for name in dict.fromkeys([*served, *mine])
        if (name in mine) != (name in served) or mine.get(name) != served.get(name)
    ]
    if different:
        raise RankError(
            f"with share='host' all ranks of a host have one loader, which {who} has opened with other options: "
            f"{'; '.join(different)}; give all of them the same ones"
        )


def open_native(store: str, uuid: str, options: LoaderOptions) -> NativeLoader:
    """Open a loader of a store in a process that makes batches for others."""
    source = NativeStore(store)
    if source.describe()["uuid"] != uuid:
        raise InvalidArgumentError(f"the store at {store} was replaced: open it again")
    return NativeLoader(source, options)


def main(listener: int) -> None:
    """Serve on a socket that was inherited."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the ranks answer it, and this ends with them
    server = Server(socket.socket(fileno=listener))
    server.serve()
    os._exit(0)  # and free nothing: tensors that ranks have kept lie in memory that they still map
