"""The file of a table that the ranks of a host share. One process has it open for all of them, and the first rank
changes it, once all ranks have come to do the same."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch.distributed

from freshgo._host import process
from freshgo._host.ranks import gathered, where
from freshgo._host.table import ServedTable
from freshgo._nn.table_file import Form, TableFile, Trained, mended
from freshgo.errors import FreshgoError, InternalError, InvalidArgumentError, StoreNotFoundError


def several_ranks() -> bool:
    """Whether this process is one of several ranks."""
    distributed = torch.distributed
    return distributed.is_available() and distributed.is_initialized() and distributed.get_world_size() > 1


class SharedFile(TableFile):
    """A table that all ranks have. They call what changes it together."""

    shared = True

    def __init__(self, path: Path, table: ServedTable, *, first: bool) -> None:
        super().__init__(path, table)
        self._first = first

    @property
    def unsaved(self) -> bool:
        return bool(self.table.describe()["unsaved"])

    def save(self) -> str:
        self._together("saving", super().save)
        return str(self.table.describe()["token"])

    def restore(self, token: str) -> None:
        self._together("restoring", lambda: super(SharedFile, self).restore(token))

    def rebuild(self, form: Form, fill: float, trained: Trained) -> None:
        self._together("rebuilding", lambda: super(SharedFile, self).rebuild(form, fill, trained))

    def _together(self, what: str, act: Callable[[], object]) -> None:
        """Let the first rank act while no rank is in a step, and take the description of the table as it is then."""
        together(f"{what} the table {self.path}", act if self._first else None)
        self._describe()


def opened_together(path: Path, make: Callable[[], None]) -> SharedFile:
    """Open a table on all ranks. Where there is none, the first rank calls ``make``.

    Raises:
        InvalidArgumentError: the ranks are on several hosts
        RankError: another rank does something else, or has ended
        ServerError: no process can be started that serves the table
        and what opening a table raises, on all ranks
    """
    what = f"opening the table {path} with share='host'"
    hosts = set(gathered(what, where()))
    if len(hosts) > 1:
        raise InvalidArgumentError(
            f"share='host' is for ranks of one host, which have one table: the ranks that open {path} are on "
            f"{len(hosts)} hosts"
        )
    first = torch.distributed.get_rank() == 0
    server, token, error = gathered(what, process.named() if first else ("", "", None))[0]
    if error is not None:
        raise error
    table: ServedTable | None = None

    def begin() -> None:
        nonlocal table
        table = ServedTable(server, token, process.leave)
        try:
            mended(path, table.open)
        except StoreNotFoundError:
            make()
            mended(path, table.open)

    try:
        together(what, begin if first else None)
        if table is None:
            table = ServedTable(server, token, lambda: None)
            table.join()
        gathered(what, None)  # so that none leaves before all have it
        return SharedFile(path, table, first=first)
    except BaseException:
        if table is not None:
            table.close()
        elif first:
            process.leave()
        raise


def together(what: str, act: Callable[[], object] | None) -> None:
    """Let the first rank, which alone has ``act``, act once all ranks have come, and wait for it.

    Raises:
        RankError: another rank does something else, or has ended
        and what ``act`` raises, on all ranks
    """
    gathered(what, None)
    error: Any = None
    if act is not None:
        try:
            act()
        except FreshgoError as failed:
            error = failed
        except Exception as failed:  # which others might not be able to read
            error = InternalError(repr(failed))
    error = gathered(what, error)[0]
    if error is not None:
        raise error
