"""The process that serves the ranks of a host: how their first rank starts it, and keeps it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from dataclasses import dataclass
from typing import Any

from freshgo._host import wire
from freshgo.errors import ServerError

_COMMAND = (
    "import json, sys; sys.path[:] = json.loads(sys.argv[2]); from freshgo._host_loader.server import main; "
    "main(int(sys.argv[1]))"
)


@dataclass
class _Served:
    """A server that this process has started. It ends with its last connection. This process keeps one for as
    long as it has a loader or a table there."""

    name: str
    connection: Any
    users: int = 0


_served: _Served | None = None
_lock = threading.RLock()  # a loader may be collected while another is opened


def _forget_in_child() -> None:
    global _served, _lock
    _served, _lock = None, threading.RLock()


os.register_at_fork(after_in_child=_forget_in_child)


def named() -> tuple[str, str, Exception | None]:
    """Return the name of the server that this process has started, and a name for another loader or table there."""
    global _served
    with _lock:
        try:
            if _served is None or _served.users == 0:
                _served = _started()
            _served.users += 1
            return _served.name, os.urandom(8).hex(), None
        except OSError as error:
            return "", "", ServerError(f"no process can be started that serves the ranks of this host: {error}")


def leave() -> None:
    """Note that a loader or a table of this process has no need of the server any more."""
    global _served
    with _lock:
        if _served is not None and _served.users > 0:
            _served.users -= 1
            if _served.users == 0:
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
