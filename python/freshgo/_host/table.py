"""A table that the ranks of a host share: the process that serves them has it open, and answers for it."""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from socket import SHUT_RDWR
from typing import Any

import numpy as np
import torch
from torch import Tensor

from freshgo._host import wire
from freshgo.errors import ClosedError, ServerError


@dataclass(frozen=True, kw_only=True)
class StepPart:
    """What a rank adds to a step of an optimiser over the rows of a table."""

    form: Any
    """Of the rows: views of their embeddings and states."""
    rule: Callable[..., None]
    """Changes rows and states in place."""
    options: dict[str, Any]
    step: int
    grad: np.ndarray | None = None
    """The bytes of the gradients; None: there is none."""
    touched: np.ndarray | None = None
    """The rows of the batch that they belong to; None: all."""
    error: Exception | None = None
    """Why no rank may make the step."""
    place: int = 0
    """Of the table among those of the loader."""
    ids: str = ""
    """The tensor with the nodes of the rows."""


class ServedTable:
    """A native table whose methods ask the server and wait for its answer."""

    def __init__(self, server: str, token: str, closing: Callable[[], None]) -> None:
        """Connect. ``token`` names the table, and ``closing`` is called when it is closed.

        Raises:
            ServerError: the server has ended
        """
        self._token, self._closing, self._process = token, closing, os.getpid()
        self._lock, self._num_requests, self.closed = threading.RLock(), 0, False
        self._connection = wire.connected(server)

    @property
    def pointer(self) -> str:
        """What stands for the table in the options of a loader that the server opens."""
        return self._token

    def open(self, path: str | os.PathLike[str]) -> ServedTable:
        """Open the table, on the first rank."""
        self._request("open", str(path))
        return self

    def join(self) -> None:
        """Take part in the table that the first rank has opened."""
        self._request("join")

    def reopened(self, path: str | os.PathLike[str]) -> ServedTable:
        """Open the table that is at the path now."""
        self._request("reopen", str(path))
        return self

    def describe(self) -> dict[str, Any]:
        """Return what a native table does, and ``unsaved``: whether steps have changed rows since the last save."""
        description: dict[str, Any] = self._request("describe")
        return description

    def read(self, rows: Tensor, row_bytes: int) -> Tensor:
        """Return rows as the last step has left them."""
        return torch.from_numpy(self._request("read", rows.numpy(), row_bytes))

    def save(self, description: Mapping[str, Any]) -> str:
        """Write the current rows to the file, publish it, and return the token of this state."""
        token: str = self._request("save", dict(description))
        return token

    def restore(self, token: str) -> None:
        """Go back to the state saved last, or to the one before."""
        self._request("restore", token)

    def close(self) -> None:
        """Leave the table, which the server closes with the last rank. Closing again does nothing."""
        if self.closed or os.getpid() != self._process:
            return
        try:
            with contextlib.suppress(ServerError):
                self._request("leave")
        finally:
            self.closed = True
            with contextlib.suppress(OSError):
                self._connection.shutdown(SHUT_RDWR)
            self._connection.close()
            self._closing()

    def _request(self, what: str, *arguments: Any) -> Any:
        with self._lock:
            if self.closed:
                raise ClosedError("the table is closed")
            self._num_requests += 1
            number = self._num_requests
            try:
                wire.send(self._connection, (number, True, "table", (self._token, what, arguments)))
                while True:
                    message = wire.receive(self._connection)
                    if message is None:
                        raise _ended()
                    replied, succeeded, value = message[0]
                    if replied == number:  # not the answer to a request that Ctrl-C has interrupted
                        break
            except OSError:
                raise _ended() from None
            if not succeeded:
                raise value
            return value

    def __del__(self) -> None:
        with contextlib.suppress(Exception):  # a finalizer has nobody to tell
            self.close()


def _ended() -> ServerError:
    return ServerError(
        "the process that serves the table has ended; the table has the state that was saved last: open it again"
    )
