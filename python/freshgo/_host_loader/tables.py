"""Tables that the ranks of a host share, in the process that serves them."""

from __future__ import annotations

import threading
from typing import Any, Protocol

import numpy as np
import torch

from freshgo._native.table import Table
from freshgo.errors import ClosedError

_PATIENCE = 10.0
"""Seconds until loaders that all ranks have closed let go of a table. Closing one takes milliseconds."""


class Owner(Protocol):
    """A job whose loader trains tables."""

    def flush(self) -> bool:
        """Write the current rows to the files. Return False where it is being closed, which writes them."""


class SharedTable:
    """An open table, the ranks that have it, and the jobs whose loaders do."""

    def __init__(self, path: str, changed: threading.Condition) -> None:
        self.path, self.native = path, Table(path)
        self.ranks = 0
        self.owners: list[Owner] = []
        self.unsaved = False  # whether a step has changed rows since the last save
        self._unwritten = False  # whether the file may lack what steps have changed
        self._flushing = threading.Lock()
        self._changed = changed

    def answer(self, what: str, arguments: tuple[Any, ...]) -> Any:
        """Do what a rank asks for."""
        if what == "describe":
            return {**self.native.describe(), "unsaved": self.unsaved}
        if what == "read":
            return self._read(*arguments)
        if what == "save":
            self._flush()
            token, self.unsaved = self.native.save(arguments[0]), False
            return token
        self._await_loaders()
        if what == "restore":
            self.native.restore(arguments[0])
            self.unsaved = self._unwritten = False
        else:
            assert what == "reopen"
            self.native = self.native.reopened(arguments[0])
        return None

    def changed(self) -> None:
        """Note that a step has changed rows."""
        self.unsaved = self._unwritten = True

    def _flush(self) -> None:
        """Write the current rows to the file."""
        with self._flushing:
            if not self._unwritten:
                return
            self._unwritten = False  # before: a step that comes meanwhile sets it again
            if not all(owner.flush() for owner in list(self.owners)):
                self._await_loaders()

    def _read(self, rows: np.ndarray, row_bytes: int) -> np.ndarray:
        self._flush()
        return self.native.read(torch.from_numpy(rows), row_bytes).numpy()

    def _await_loaders(self) -> None:
        with self._changed:
            self._changed.wait_for(lambda: not self.owners, _PATIENCE)

    def close(self) -> None:
        """Close the file, once no loader has it."""
        self._await_loaders()
        self.native.close()


class SharedTables:
    """All tables of a server."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._tables: dict[str, SharedTable] = {}

    def open(self, token: str, path: str) -> SharedTable:
        """Open a table for the first rank."""
        table = SharedTable(path, self._changed)
        with self._changed:
            self._tables[token] = table
        return self.join(token)

    def join(self, token: str) -> SharedTable:
        """Return a table for one more rank."""
        with self._changed:
            table = self.of(token)
            table.ranks += 1
            return table

    def of(self, token: str) -> SharedTable:
        """Return an open table."""
        if token not in self._tables:
            raise ClosedError("the table was closed by the ranks that share it")
        return self._tables[token]

    def leave(self, token: str) -> None:
        """Go on without a rank. The last one closes the table."""
        with self._changed:
            table = self._tables[token]
            table.ranks -= 1
            if table.ranks == 0:
                del self._tables[token]
        if table.ranks == 0:
            table.close()

    def own(self, owner: Owner, tables: list[SharedTable]) -> None:
        """Note that a job trains tables."""
        with self._changed:
            for table in tables:
                table.owners.append(owner)

    def disown(self, owner: Owner, tables: list[SharedTable]) -> None:
        """Note that its loader is closed, which has written all rows."""
        with self._changed:
            for table in tables:
                if owner in table.owners:
                    table.owners.remove(owner)
            self._changed.notify_all()
