"""How the ranks of a host find each other, and the process that serves them.

They are asked through their process group, which they have anyway: first where each of them is, then, once the first
rank of each host has started a server, for its name, and at last whether all of them have opened the loader. So there
are no names to agree on beforehand and there is nothing in the file system. A rank that dies on the way ends the
waiting of the others as in any collective.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import Any, cast

import torch.distributed

from freshgo._data.source import StoreSource
from freshgo._host import process
from freshgo._host.ranks import gathered, neighbours, where
from freshgo._host_loader.client import Seat, SharedLoader
from freshgo._loader.batch_makers import BatchMaker
from freshgo._loader.ranks import Share, group_rank
from freshgo._loader.request import Request
from freshgo._native.loader import Loader as NativeLoader
from freshgo._native.options import LoaderOptions
from freshgo.errors import FreshgoError, InternalError, RankError

_OPENING = "opening a loader with share='host'"


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
        together, and ``described`` is the same for all. Each rank is to have ``prefetch`` batches ahead, or four, and
        has one in its loop.

        Raises:
            RankError: this rank describes its loader otherwise than the first one of the host, or another rank could
                not, or has ended
            ServerError: no server can be started
            and what a native loader raises
        """
        count, first = len(self.ranks), self.rank == self.ranks.start
        starts = first and count > 1
        server, token, error = gathered(_OPENING, process.named() if starts else ("", "", None))[self.ranks.start]
        opened: SharedLoader | NativeLoader | None = None
        if error is None:
            try:
                if count == 1:
                    opened = alone()
                else:
                    seat = Seat(token, server, self.rank - self.ranks.start, count, self.rank, self.world_size)
                    ahead = 4 if options["prefetch"] is None else options["prefetch"]
                    wider = {**options, "prefetch": ahead * count, "holds": options["holds"] * count}
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
                opened.closing = process.leave
            return opened
        if opened is not None:
            opened.close()
        if starts:
            process.leave()
        raise failure


class HostBatchMaker(BatchMaker):
    """Takes batches from the process that makes them for all ranks of the host."""

    def __init__(self, source: StoreSource, request: Request) -> None:
        super().__init__(source)
        self._store, self._request = source.store, request
        self._group = group_rank() or (0, 1)  # that it is opened for

    def adapt(self, options: LoaderOptions) -> LoaderOptions:
        by_id = options.get("rows_by_id", False)  # of memory that is another process's
        return {**options, "rows_by_id": False} if by_id else options

    def open(self, options: LoaderOptions) -> NativeLoader:
        if self._group[1] == 1:
            return super().open(options)
        path = os.path.abspath(self._store.path)  # noqa: PTH100 (which resolves no links)
        described = {"graph": self._source.fingerprint(), **self._request.described(options)}
        if options.get("tables"):
            described["embeddings"] = options["tables"]
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
