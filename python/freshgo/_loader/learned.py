"""Tables that learn (:class:`freshgo.nn.Embedding`): what a loader does with them."""

from __future__ import annotations

import contextlib
import dataclasses
import warnings
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Protocol

from torch import Tensor

from freshgo._args.checks import caller
from freshgo._args.size import format_size
from freshgo._args.types import Types
from freshgo._loader.asked import Asked
from freshgo._native.loader import RawBatch
from freshgo._native.options import LoaderOptions
from freshgo.errors import InvalidArgumentError

if TYPE_CHECKING:
    from freshgo._batch.structure import Levels
    from freshgo._host.table import StepPart
    from freshgo._loader.openings import Openings
    from freshgo._loader.position import Position


class _Batches(Protocol):
    def next(self) -> RawBatch | None: ...


class _Leaving:
    """The batches of an epoch. The library takes the rows of a batch back before it hands over the next one."""

    def __init__(self, batches: _Batches, leave: Callable[[], None]) -> None:
        self._batches, self._leave = batches, leave

    def next(self) -> RawBatch | None:
        self._leave()
        return self._batches.next()


class Tables:
    """The tables that a loader trains, in the order of the library, with the places of their node types. A loader of
    tables that another one trains has none."""

    _openings: Openings
    _at: Position
    _options: LoaderOptions

    def __init__(self, asked: Asked, types: Types, distinct: bool) -> None:
        """``distinct``: no node occurs twice in a batch.

        Raises:
            InvalidArgumentError: there are no such nodes, or not as many as rows
        """
        self._distinct = distinct
        self._tables: list[tuple[int, Any]] = []
        self._ids: list[str] = []  # the names of the tensors with their nodes
        self._types: list[str] = []  # and the types of these
        for given, every in asked.embeddings.items():
            from freshgo._args.learned import check_rows, type_of_table  # loaders without tables do not need it

            node_type = type_of_table(given, types)
            place = list(types.num_nodes).index(node_type)
            for rows in every:
                check_rows(rows, node_type, types)
                self._tables.append((place, rows))
                self._ids.append(types.node_name(place, "n_id"))
                self._types.append(node_type)

    def __bool__(self) -> bool:
        return bool(self._tables)

    def check_ranks(self, world_size: int) -> None:
        """Check that the tables are for as many ranks as begin an epoch.

        Raises:
            InvalidArgumentError: they are not
        """
        for _, rows in self._tables:
            if rows.file.shared != (world_size > 1):
                opened = "several ranks" if rows.file.shared else "one rank"
                raise InvalidArgumentError(
                    f"the embedding {rows.file.path} was opened for {opened}, and the epoch has "
                    f"world_size={world_size}: ranks of a host have one table with Embedding(share='host') and "
                    "Ranks(share='host'), both opened after init_process_group"
                )

    def bind(self) -> None:
        """Take the tables for this loader. Where another loader trains one of them, this loader takes none, and its
        batches come without rows."""
        if any(rows.has_loader for _, rows in self._tables):
            for _, rows in self._tables:
                rows.has_readers = True
            self._tables, self._ids, self._types = [], [], []
        for _, rows in self._tables:
            rows.bind(self)

    @contextlib.contextmanager
    def unbound_after_errors(self) -> Iterator[None]:
        """Give the tables back where the loader cannot be opened."""
        try:
            yield
        except BaseException:
            self.unbind()
            raise

    def opened(self, openings: Openings, at: Position, options: LoaderOptions) -> None:
        """Note where the library has the tables, and the options that it is opened with again."""
        if not self._tables:
            return
        self._openings, self._at, self._options = openings, at, options
        try:
            _warn_short_plans(openings.native.plan())
        except BaseException:  # a warning may be an error
            openings.close()
            raise

    def options(self) -> LoaderOptions:
        """Return the options of the library."""
        if not self._tables:
            return {}
        return {"tables": [{"table": rows.file.table.pointer, "node_type": place} for place, rows in self._tables]}

    def batches(self, made: Any) -> Any:
        """Return the batches of an epoch."""
        return _Leaving(made, self.leave) if self._tables else made

    def taken(self, raw: RawBatch) -> list[Any]:
        """Take the rows out of the tensors of a batch, and the nodes that they belong to."""
        names = [f"table/{k}" for k in range(len(self._tables)) if f"table/{k}" in raw.tensors]
        return [(raw.tensors.pop(name), raw.tensors[ids]) for name, ids in zip(names, self._ids, strict=False)]

    def arrive(self, taken: list[Any], levels: Levels | None) -> None:
        """Hand out the rows of a batch that the loop gets; ``levels`` is None where no history has pruned it."""
        unread: dict[str, Tensor] = {}
        if taken and levels is not None:
            from freshgo._batch import tables  # loaders without a history do not need it

            unread = tables.unread(levels)
        for (_, rows), (buffer, ids), node_type in zip(self._tables, taken, self._types, strict=True):
            rows.arrive(buffer, ids, self._distinct, unread.get(node_type))

    def leave(self) -> None:
        """Let go of the rows of the last batch: the library takes them now."""
        for _, rows in self._tables:
            rows.leave()

    def flush(self, *, batch: bool) -> None:
        """Write the current rows of all tables to their files. ``batch``: the loop has one, which stays."""
        from freshgo._native.table import flush, settle  # a loader without tables does not need it

        with self._at.lock:
            if not self._openings.closed and not self._openings.native.closed:
                (flush if batch else settle)(self._openings.native)
            for _, rows in self._tables:
                rows.unwritten = False

    def change(self, what: str, change: Callable[[], None]) -> None:
        """Close the native loader until the next epoch begins, and let ``change`` replace the file of a table.

        Raises:
            InvalidArgumentError: an epoch runs
        """
        with self._at.lock:
            if self._at.busy:
                raise InvalidArgumentError(f"{what} is refused in mid-epoch: leave the loop over the loader first")
            self._at.end()
            self.leave()
            self._openings.give_back()
            change()
            self._options.update(self.options())
            self._openings.keep(**self.options())

    def step(self, rows: Any, part: StepPart) -> int | None:
        """Take part in a step over the rows of a table that ranks share."""
        place = next(place for place, (_, one) in enumerate(self._tables) if one is rows)
        native: Any = self._openings.native  # of all ranks of the host
        step: int | None = native.step(dataclasses.replace(part, place=place, ids=self._ids[place]))
        return step

    def unbind(self) -> None:
        """Give the tables back."""
        for _, rows in self._tables:
            rows.unbind()


def _warn_short_plans(plan: dict[str, Any]) -> None:
    """Warn where the memory has no room for plans that are worth it."""
    if not plan.get("why") or not plan.get("more_memory"):
        return
    now, *more = ((format_size(of["memory"]), of["epoch_bytes"]) for of in plan["more_memory"])
    better = next((of for of in more if of[1] < now[1] / 2), None)
    offer = f"; with {better[0]} it would be {format_size(better[1])}" if better else ""
    warnings.warn(
        f"memory={now[0]} is little for these embeddings: {plan['why']}. An epoch is predicted to move "
        f"{format_size(now[1])}{offer}, and smaller batches need less",
        UserWarning,
        stacklevel=caller(),
    )
