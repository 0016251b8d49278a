"""Batches of a loader with ``features="sharded"``: the ranks exchange their rows."""

from __future__ import annotations

import dataclasses
import functools
import weakref
from typing import Any

import torch
import torch.distributed
from torch import Tensor

from freshgo._args.choices import METRICS
from freshgo._args.size import format_size
from freshgo._device.row_cache import hottest_bytes
from freshgo._device.rows import Part as Ranked
from freshgo._loader.batch_makers import BatchMaker
from freshgo._loader.ranks import Share
from freshgo._native import loader as native_loader
from freshgo._native.loader import Loader as NativeLoader
from freshgo._native.loader import RawBatch
from freshgo._native.options import LoaderOptions
from freshgo._row_exchange.division import parts_of_rank
from freshgo._row_exchange.exchange import Exchange
from freshgo._row_exchange.feed import Feed
from freshgo._row_exchange.rows import HotRows, LocalParts
from freshgo._row_exchange.schedule import Chooser
from freshgo._row_exchange.service import Frame, Service
from freshgo._row_exchange.source import ShardedSource
from freshgo._row_exchange.wire import Wire
from freshgo.errors import BudgetError, FreshgoError, InvalidArgumentError
from freshgo.policies import Resolved

_BATCHES = 8
"""How often the rows of a batch are in memory at most while they are on their way: in the loop, made, read for others,
packed, received and put together. The rest of the memory holds the hottest rows."""


class ExchangeBatchMaker(BatchMaker):
    """Makes batches in this process, without the divided rows, which it requests from the ranks that have them."""

    def __init__(self, source: ShardedSource, policy: Resolved, options: LoaderOptions, exchange: str) -> None:
        super().__init__(source)
        self._parts, self._options, self._way = source, options, exchange
        self._frame = Frame(source.division.nodes, source.prefixes)
        memory, asked = int(options["memory"]), options["feature_cache"]
        self._bytes = memory // 2 if asked is None else int(asked)
        if self._bytes >= memory:
            raise InvalidArgumentError(
                f"feature_cache is a part of memory, which also holds the topology: got {format_size(self._bytes)} of "
                f"{format_size(memory)}"
            )
        self._scores = self._ranked(policy, options)
        self._local: LocalParts | None = None
        self._service: Service | None = None
        self._error: FreshgoError | None = None
        self._opened_for: tuple[int, int] | None = None
        self._group: weakref.ref[Any] | None = None

    def adapt(self, options: LoaderOptions) -> LoaderOptions:
        """The options of the native loader, which has no divided rows."""
        memory = int(options["memory"]) - self._bytes
        sent = {"feature_dtype": "stored", "packed": False, "rows_by_id": False}
        return {**options, **sent, "memory": memory, "feature_cache": None}

    def open(self, options: LoaderOptions) -> NativeLoader:
        try:
            return super().open(options)
        except BudgetError as error:
            given = self._options["feature_cache"]
            minimum = error.minimum * 2 if given is None else error.minimum + self._bytes
            raise BudgetError(
                f"{error}; beside it, {format_size(self._bytes)} of memory are for rows of the parts", minimum
            ) from None

    def described(self) -> dict[str, Any]:
        """What must be the same on all ranks."""
        return {
            "features": f"sharded, parts {self._parts.division.digest()}",
            "exchange": self._way,
            "what its parts lack": None if self._error is None else str(self._error),
        }

    def prepare(self, share: Share) -> None:
        """Open the parts of this rank. An error is kept until the ranks have told each other: see :meth:`join`."""
        group = torch.distributed.group.WORLD if share.world_size > 1 else None
        before = None if self._group is None else self._group()
        if self._opened_for == (share.rank, share.world_size) and before is group:
            return
        self.close()
        division = self._parts.division
        self._opened_for = share.rank, share.world_size
        self._group = None if group is None else weakref.ref(group)
        self._error = None
        try:
            parts = parts_of_rank(len(division.parts), share.rank, share.world_size)
            self._local = LocalParts(self._parts.path, division, parts, self._options)
        except FreshgoError as error:
            self._error = error

    def join(self) -> None:
        """Begin to exchange rows with the other ranks, which call this together once they agree.

        Raises:
            what opening the parts has raised
        """
        if self._error is not None:
            self._opened_for = None
            raise self._error
        if self._service is not None:
            return
        assert self._local is not None and self._opened_for is not None  # opened without an error
        wire = Wire() if self._opened_for[1] > 1 else None
        nodes, local = self._parts.division.nodes, self._local
        nothing = HotRows(nodes, {of.node_type: torch.empty(0, dtype=torch.int64) for of in nodes})
        exchange = Exchange(self._parts.division, local, nothing, wire, Chooser.of(self._way))

        def closing() -> None:
            local.close()
            if wire is not None:
                wire.close()

        choose = functools.partial(hottest, self._parts, self._scores, self._bytes)
        self._service = Service(exchange, self._frame, choose, closing)
        weakref.finalize(self, self._service.close)

    def begin(self, share: Share) -> None:
        self.stop()

    def batches(self, native: NativeLoader, count: int) -> Feed:
        """The next batches of the library, with all rows."""
        assert self._service is not None  # since join()
        return self._service.begin(native, count)

    def one(self, raw: RawBatch, share: Share) -> RawBatch:
        """A batch of no epoch with its rows, which this process must have itself."""
        if share.world_size > 1:
            raise InvalidArgumentError(
                "with features='sharded', rows come from other ranks within an epoch only: a batch on demand needs a "
                "process without a group that has all parts, or a loader of the store that was divided"
            )
        self.prepare(share)
        self.join()
        assert self._local is not None
        requested = self._frame.ids(raw.tensors)
        rows = {of.node_type: self._local.rows(of, requested[of.node_type]) for of in self._parts.division.nodes}
        return dataclasses.replace(raw, tensors=self._frame.filled(raw.tensors, rows))

    def stop(self) -> None:
        """Fetch no more rows for this rank."""
        if self._service is not None:
            self._service.stop()

    def stats(self) -> dict[str, Any]:
        """What belongs into ``Loader.stats()``."""
        service = self._service
        if service is None or self._local is None:
            return {"sharded": {}}
        exchange = service.exchange
        counts = dataclasses.asdict(exchange.counts)
        seconds = counts.pop("seconds")
        return {
            "sharded": {
                **counts,
                "seconds_exchanging": seconds,
                "exchange": exchange.chooser.way,
                "hot_rows": exchange.hot.count(),
                **self._local.stats(),
            }
        }

    def close(self) -> None:
        """Leave the other ranks, once they have what they want."""
        if self._service is not None:
            self._service.close()
        elif self._local is not None:
            self._local.close()
        self._service = self._local = None
        self._opened_for = None

    def _ranked(self, policy: Resolved, options: LoaderOptions) -> Tensor | None:
        """A score for every node by which rows stay in memory; None: none do."""
        if policy.name == "none" or not self._parts.division.nodes:
            return None
        if policy.scores is not None:
            return policy.scores
        metric = policy.name if policy.name in METRICS else "expected"
        ranking = {**options, "cache": metric, "memory": max(int(options["memory"]), _RANKING_BYTES)}
        return native_loader.hotness(self._parts.native, self._parts.types.total, ranking)


def hottest(source: ShardedSource, scores: Tensor | None, n_bytes: int, batch_bytes: int) -> HotRows:
    """Room for the rows with the highest scores, beside those of batches that are on their way."""
    nodes, counts = source.division.nodes, source.types.num_nodes
    found = {of.node_type: torch.empty(0, dtype=torch.int64) for of in nodes}
    room = n_bytes - _BATCHES * batch_bytes
    if scores is None or room <= 0:
        return HotRows(nodes, found)
    widths = {of.node_type: {"rows": of.n_bytes + _ID_BYTES} for of in nodes}
    ids = hottest_bytes(scores, [Ranked("", count, widths.get(t, {})) for t, count in counts.items()], room)
    first = 0
    for node_type, count in counts.items():
        if node_type in found:
            found[node_type] = ids[(ids >= first) & (ids < first + count)] - first
        first += count
    return HotRows(nodes, found)


_RANKING_BYTES = 32 << 20
"""What the ranking of nodes may take where the memory of the loader is less: before anything else is in it."""

_ID_BYTES = 8
"""What a row that stays in memory takes beside its numbers."""
