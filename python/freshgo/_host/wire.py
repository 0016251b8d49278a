"""Messages between the ranks of a host and the process that serves them.

A message is a pickled value over a Unix socket that keeps messages apart (``SOCK_SEQPACKET``), so that none is ever
read in part. A large one goes as a file in memory, whose descriptor is sent. The sockets have no names in the file
system, and therefore nothing is left of them. Both ends belong to one user, which each checks before it reads.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import socket
import struct
import weakref
from typing import Any

from freshgo.errors import ServerError

_INLINE = 32 << 10  # fits into a socket's buffer on every system
_FD = struct.calcsize("i")
Message = tuple[Any, int | None]
"""A value, and a descriptor that came with it."""

Sent = tuple[int, list[tuple[Any, ...]]]
"""A batch as it is sent: the number of its seeds, and the members of a place in shared memory for each tensor."""


_connections: weakref.WeakSet[socket.socket] = weakref.WeakSet()


def _close_in_child() -> None:
    """A child that kept the connections would keep its parent alive for the server, and the server for its parent."""
    for connection in list(_connections):
        connection.close()


os.register_at_fork(after_in_child=_close_in_child)


def listening() -> tuple[socket.socket, str]:
    """Return a socket that accepts connections, and its name, which nobody can guess."""
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    name = f"freshgo-{os.urandom(16).hex()}"
    listener.bind(f"\0{name}")
    listener.listen(1024)
    return listener, name


def connected(name: str) -> socket.socket:
    """Return a connection to the socket of this name. Forked children do not have it.

    Raises:
        ServerError: there is none, or it belongs to somebody else.
    """
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    try:
        connection.connect(f"\0{name}")
    except OSError as error:
        connection.close()
        raise ServerError(f"there is no process that serves this loader: {error}") from None
    if not ours(connection):
        connection.close()
        raise ServerError("the process that serves this loader belongs to another user")
    _connections.add(connection)
    return connection


def ours(connection: socket.socket) -> bool:
    """Whether the other end belongs to the user of this process."""
    peer = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
    _, uid, _ = struct.unpack("3i", peer)
    return bool(uid == os.geteuid())


def send(connection: socket.socket, value: Any, fd: int | None = None) -> None:
    """Send a value, with a descriptor that the other end gets a copy of. A large value has none.

    Raises:
        OSError: the other end is gone.
    """
    data = pickle.dumps(value, protocol=pickle.HIGHEST_PROTOCOL)
    if len(data) <= _INLINE:
        if fd is None:
            connection.send(b"v" + data, socket.MSG_NOSIGNAL)
        else:
            socket.send_fds(connection, [b"v" + data], [fd], socket.MSG_NOSIGNAL)
        return
    assert fd is None
    file = os.memfd_create("freshgo-message", os.MFD_CLOEXEC)
    try:
        view = memoryview(data)
        while view:
            view = view[os.write(file, view) :]
        socket.send_fds(connection, [b"f"], [file], socket.MSG_NOSIGNAL)
    finally:
        os.close(file)


def receive(connection: socket.socket) -> Message | None:
    """Wait for a message and return it, None if the other end is gone.

    Raises:
        OSError: the connection is broken.
    """
    data, fds, _, _ = socket.recv_fds(connection, 1 + _INLINE, 1, socket.MSG_CMSG_CLOEXEC)
    if not data:
        return None
    if data[:1] == b"v":
        return pickle.loads(data[1:]), fds[0] if fds else None
    with contextlib.closing(os.fdopen(fds[0], "rb")) as file:
        file.seek(0)
        return pickle.load(file), None
