"""From tables to arrays in files: nodes in the order of their keys, edges in that of their ends and all they have."""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

import numpy as np

from freshgo._args.arrays import Array, NpyFile
from freshgo._args.parts import EdgeParts, GraphParts, NodeParts
from freshgo._args.progress import Progress
from freshgo._args.types import UNNAMED, EdgeType, reverse_names
from freshgo._observe.log import LOG
from freshgo._staging.placed import Placed, read_rows
from freshgo._staging.raw import Files
from freshgo._tables.database import Database
from freshgo._tables.files import quoted
from freshgo._tables.keys import Keys, key_type, write_keys
from freshgo._tables.reading import Reading
from freshgo._tables.relations import Relations
from freshgo._tables.source import ROW, Source, open_source
from freshgo._tables.splits import Splits
from freshgo._tables.table import Spec
from freshgo.errors import InvalidArgumentError

ROWLESS = 1 << 14
"""Nodes without a row that are made at a time. Arbitrary."""

MOST_NODES = 1 << 32
"""Nodes of a type, so that both ends of an edge are one number of 64 bits, which DuckDB sorts faster than two."""


WIDE = 4
"""Numbers of an edge, more than which are put at their places and not sorted with the edge. Rows of one number take as
long either way; of 8 half as long where they are put at their places, and their memory does not depend on how many."""


@dataclasses.dataclass
class Built:
    """A graph whose arrays lie in files."""

    parts: GraphParts
    attachments: dict[str, Array]
    dropped: list[str] = dataclasses.field(default_factory=list)
    """Of every edge table with ``missing="drop"`` how many rows were dropped, in words."""


class Builder:
    """Makes the arrays of a graph, one table after the other."""

    def __init__(self, db: Database, files: Files, progress: Progress | None) -> None:
        self._db, self._files, self._progress = db, files, progress
        self._built = Built(GraphParts({}, {}), {})

    def build(self, nodes: Mapping[str, Spec | None], edges: Mapping[EdgeType, Spec], missing: str) -> Built:
        """Read all tables. A node type without a table has the nodes that edges name."""
        specs: dict[Any, Spec | None] = {**nodes, **edges}
        sources = {of: open_source(self._db, spec, self._progress) for of, spec in specs.items() if spec is not None}
        keys = {of: self._keys(of, sources, edges, missing) for of in nodes}
        for of in nodes:
            self._nodes(of, sources.get(of), keys[of])
        for edge_type in edges:
            self._edges(sources[edge_type], keys[edge_type[0]], keys[edge_type[2]], nodes)
        if not self._built.parts.edges:
            raise InvalidArgumentError(
                "the edge tables name no relation: they have no rows, or missing='drop' dropped all of them"
            )
        return self._built

    def _reading(self, source: Source, keys: Keys | None = None) -> Reading:
        return Reading(self._db, self._files, source, self._built.attachments, self._progress, keys)

    def _keys(
        self, of: str, sources: Mapping[str | EdgeType, Source], edges: Mapping[EdgeType, Spec], missing: str
    ) -> Keys:
        """Sort the keys of a node type."""
        named = [(sources[of], str(sources[of].spec.table.id))] if of in sources else []
        rows = of in sources and bool(sources[of].spec.tensors or sources[of].spec.table.split)
        for edge_type, spec in edges.items():
            ends = ((edge_type[0], spec.table.src), (edge_type[2], spec.table.dst))
            named += [(sources[edge_type], str(column)) for end, column in ends if end == of]
        keys = Keys(of, key_type(named), self._db.name("keys"), of in sources, missing)
        columns = named if missing == "add" else named[:1]
        write_keys(self._db, self._files, keys, columns, self._built.attachments, rows=rows)
        if keys.count > MOST_NODES:
            raise InvalidArgumentError(
                f"{named[0][0].spec.label}: {keys.count} nodes, expected at most {MOST_NODES} of a type"
            )
        return keys

    def _nodes(self, of: str, source: Source | None, keys: Keys) -> None:
        """Read the rows of a table of nodes in the order in which they lie: the keys are sorted, so that the place of
        each row is known. No row is sorted, however wide it is."""
        parts = NodeParts(keys.count, {}, {})
        self._built.parts.nodes[of] = parts
        if source is None:
            return
        self._check_added(source, keys)
        reading, split = self._reading(source, keys), source.spec.table.split
        if not reading.tensors and split is None:
            return
        splits = None if split is None else Splits(self._files, source)
        columns = reading.selected if splits is None else [*reading.selected, splits.selected]
        key, rows = keys.cast(f"s.{quoted(str(source.spec.table.id))}"), f"({source.sql}) s"
        place = keys.node(key, "s")
        if keys.first is None:
            place, rows = f"s.{quoted(ROW)}", f"({source.numbered()}) s"
        placed = Placed(self._files, keys.count, self._db.memory // 8)

        def put(places: np.ndarray[Any, Any], batch: Any, count: int) -> None:
            arrays = reading.arrays(batch, 1)
            arrays += [] if splits is None else [splits.codes(batch.column(batch.num_columns - 1))]
            placed.put(places, [rows if len(rows) == count else rows.repeat(count, 0) for rows in arrays])

        sql = f"SELECT {', '.join([f'{place} AS place', *columns])} FROM "
        for batch in reading.batches(f"nodes {of}".strip(), f"{sql} {rows} {reading.joins}", keys.count):
            put(self._places(source, keys, batch.column(0)), batch, batch.num_rows)
            del batch  # it may be large, and the next one comes
        if keys.rowless is not None and keys.rowless.shape[0]:
            nothing = f"{sql} (SELECT 1) LEFT JOIN {rows} ON false {reading.joins}"
            with Path(keys.rowless.path).open("rb", buffering=0) as file:
                for batch in self._db.batches(source.spec.label, nothing, 1):
                    for first in range(0, keys.rowless.shape[0], ROWLESS):
                        nodes = read_rows(keys.rowless, first, min(first + ROWLESS, keys.rowless.shape[0]), file)
                        put(nodes, batch, len(nodes))
        if placed.num_placed != keys.count:
            raise _changed(source)
        placed.finish(reading.outs if splits is None else [*reading.outs, splits.out])
        parts.tensors = reading.finished()
        parts.splits = {} if splits is None else splits.finished()

    def _places(self, source: Source, keys: Keys, column: Any) -> np.ndarray[Any, Any]:
        """Return the nodes of some rows, of these or of their numbers."""
        if column.null_count:
            raise _changed(source)
        places: np.ndarray[Any, Any] = column.to_numpy()
        if keys.by_row is None or not len(places):
            return places
        if places.max() >= keys.by_row.shape[0]:
            raise _changed(source)
        by_row = np.memmap(keys.by_row.path, np.int64, "r")  # rows come in their order, or nearly
        return np.asarray(by_row[places])

    def _check_added(self, source: Source, keys: Keys) -> None:
        """Refuse nodes that only edges name where nothing says what their columns are."""
        spec, added = source.spec, keys.rowless.shape[0] if keys.rowless is not None else 0
        if not added or not spec.unfilled:
            return
        has_row = f"SELECT {keys.cast(quoted(str(spec.table.id)))} FROM ({source.sql})"
        first = self._db.rows(spec.label, f"SELECT min(key) FROM {keys.table} WHERE key NOT IN ({has_row})")[0][0]
        raise InvalidArgumentError(
            f"{spec.label}: {added} node{'s' * (added != 1)} of edges without a row here, the first is {first!r}: "
            f"missing='add' needs {_nulls(spec)} in this Table, for the columns of such nodes"
        )

    def _edges(self, source: Source, sources: Keys, targets: Keys, nodes: Mapping[str, Spec | None]) -> None:
        """Read the rows of a table of edges by their ends. Rows that are wide are not sorted: their numbers are, and
        the rows are read again and put at their places. Rows that are dropped come, with null in the place of their
        ends."""
        spec, drop = source.spec, sources.missing == "drop"
        if drop:
            source.kept = (
                f"{sources.known(quoted(str(spec.table.src)))} AND {targets.known(quoted(str(spec.table.dst)))}"
            )
        reading = self._reading(source)
        relations = None if spec.table.relation is None else Relations(self._db, source)
        wide, back = reading.width > WIDE, spec.table.reverse
        both = back and spec.of == UNNAMED  # edges that lead back are edges of the same type
        given = source.count(self._db)
        order = Placed(self._files, given * (1 + both), self._db.memory // 8)
        ends, ends_back = self._files.new(), self._files.new()
        stage, done, dropped = f"edges {' '.join(spec.of)}".strip(), 0, 0
        query = _edge_query(source, reading, sources, targets, relations, wide=wide, both=both)
        for batch in reading.batches(stage, query, 0):
            if batch.column(0).null_count:
                if not drop:
                    raise self._dangling(source, sources, targets, nodes)
                lost = batch.filter(batch.column(0).is_null())
                batch = batch.filter(batch.column(0).is_valid())
                if wide:
                    order.put(_numbers(source, lost.column(2), given), [np.full(lost.num_rows, -1)])
                dropped += lost.num_rows
            pairs = np.empty((batch.num_rows, 2), np.int64)
            pairs[:, 1], pairs[:, 0] = np.divmod(batch.column(0).to_numpy(), np.uint64(max(1, sources.count)))
            ends.append(pairs)
            if back and not both:
                ends_back.append(pairs[:, ::-1])
            if relations is not None:
                relations.count(batch.column(batch.num_columns - 1))
            if wide:
                order.put(_numbers(source, batch.column(2), given), [np.arange(done, done + len(pairs))])
            else:
                for out, rows in zip(reading.outs, reading.arrays(batch, 1), strict=True):
                    out.append(rows)
            done += len(pairs)
        if done + dropped != given * (1 + both):
            raise _changed(source) if drop else self._dangling(source, sources, targets, nodes)
        if drop:
            self._note_dropped(source, dropped // (1 + both), (done + dropped) // (1 + both))
        if wide and done:
            self._put_rows(stage, source, reading, order, given, done)
        found = [ends.finish(np.int64, (2,)), ends_back.finish(np.int64, (2,))]
        self._add_edges(spec, relations, found, reading.finished())

    def _note_dropped(self, source: Source, dropped: int, count: int) -> None:
        """Say how many edges of a table were dropped, and why: in the log and in the history of the store."""
        said = f"{source.spec.label}: dropped {dropped} of {count} edges"
        if dropped:
            table = source.spec.table
            null = f"{quoted(str(table.src))} IS NULL OR {quoted(str(table.dst))} IS NULL"
            sql = f"SELECT count(*) FROM ({source.sql}) WHERE {null}"
            nulls = int(self._db.rows(source.spec.label, sql)[0][0])
            said += f" ({nulls} with a null end, {dropped - nulls} with an end that is no node)"
        LOG.log(logging.WARNING if dropped else logging.INFO, "%s", said)
        self._built.dropped.append(said)

    def _add_edges(
        self, spec: Spec, relations: Relations | None, ends: list[NpyFile], arrays: dict[str, Array]
    ) -> None:
        """Add the edge types of a table: its own, or one for each of its relations; ``ends`` are the pairs of ends, and
        the pairs that lead back."""
        of = cast(EdgeType, spec.of)
        if relations is None:
            self._add_type(spec, of, ends, arrays)
            return
        parts = {name: relations.parts(cast(NpyFile, array)) for name, array in arrays.items()}
        pairs = [relations.parts(array) if array.shape[0] else None for array in ends]
        for place, name in enumerate(relations.names):
            found = [ends[0] if part is None else part[place] for part in pairs]
            self._add_type(spec, (of[0], name, of[2]), found, {n: part[place] for n, part in parts.items()})

    def _add_type(self, spec: Spec, of: EdgeType, ends: list[NpyFile], arrays: dict[str, Array]) -> None:
        """Add an edge type, and the one that leads back if the table asks for it."""
        made = [(of, ends[0])]
        if spec.table.reverse and of != UNNAMED:
            made.append(((of[2], reverse_names(of[1])[0], of[0]), ends[1]))
        for edge_type, pairs in made:
            if edge_type in self._built.parts.edges:
                raise InvalidArgumentError(f"{spec.label}: the edge type {edge_type} is there twice")
            self._built.parts.edges[edge_type] = EdgeParts(_edge_list(pairs), dict(arrays))

    def _put_rows(self, stage: str, source: Source, reading: Reading, order: Placed, count: int, edges: int) -> None:
        """Read the rows of a table of edges in the order in which they lie. ``order`` has the place of each, -1 of a
        row that is dropped, and behind these the places of the edges that lead back. ``edges`` have a place."""
        out = self._files.new()
        order.finish([out])
        by_row = np.memmap(out.finish(np.int64).path, np.int64, "r")  # rows come in their order, or nearly
        placed = Placed(self._files, edges, self._db.memory // 8)
        columns = [f"s.{quoted(ROW)} AS number", *reading.selected]
        sql = f"SELECT {', '.join(columns)} FROM ({source.numbered()}) s {reading.joins}"
        for batch in reading.batches(stage, sql, count):
            numbers = batch.column(0).to_numpy()
            if len(numbers) and numbers.max() >= count:
                raise _changed(source)
            kept = np.asarray(by_row[numbers]) >= 0
            if not kept.all():
                numbers, batch = numbers[kept], batch.take(np.flatnonzero(kept))
            arrays = reading.arrays(batch, 1)
            for first in range(0, order.count, count):
                placed.put(np.asarray(by_row[numbers + first]), arrays)
            del batch, arrays  # they may be large, and the next ones come
        if placed.num_placed != edges:
            raise _changed(source)
        placed.finish(reading.outs)

    def _dangling(
        self, source: Source, sources: Keys, targets: Keys, nodes: Mapping[str, Spec | None]
    ) -> InvalidArgumentError:
        """Say which end of an edge is no node."""
        label, table = source.spec.label, source.spec.table
        for keys, column in ((sources, str(table.src)), (targets, str(table.dst))):
            name, of = quoted(column), f" of {keys.of!r}" if keys.of else ""
            where = source.where(self._db, f"{name} IS NULL")
            if where is not None:
                return InvalidArgumentError(
                    f"{label}, column {column!r}, {where}: null, expected the key of a node (missing='drop' leaves "
                    "such edges out)"
                )
            where = source.where(self._db, f"{keys.cast(name)} NOT IN (SELECT key FROM {keys.table})")
            if where is not None:
                spec = nodes.get(keys.of)
                needs = f", with {_nulls(spec)} in {spec.label}" if spec is not None and spec.unfilled else ""
                return InvalidArgumentError(
                    f"{label}, column {column!r}, {where}: no node{of} has this key (missing='drop' leaves such edges "
                    f"out, missing='add' adds such nodes{needs})"
                )
        return _changed(source)


def _nulls(spec: Spec) -> str:
    """Return the option that says what stands for nulls of all columns that have nothing yet."""
    given = spec.table.nulls if isinstance(spec.table.nulls, Mapping) else {}
    shown = [*(f"{name!r}: {value!r}" for name, value in given.items()), *(f"{name!r}: ..." for name in spec.unfilled)]
    return f"nulls={{{', '.join(shown)}}}"


def _changed(source: Source) -> InvalidArgumentError:
    return InvalidArgumentError(f"{source.spec.label} changed while it was being read")


def _edge_query(
    source: Source,
    reading: Reading,
    sources: Keys,
    targets: Keys,
    relations: Relations | None,
    *,
    wide: bool,
    both: bool,
) -> str:
    """Return the query for the edges of a table, sorted: both ends as a number, and what is read of each. Of ``wide``
    edges that is a hash of what they have and the number of their row, below zero where the edge leads back: of
    ``both`` directions. With relations the last column is the number of the edge's relation, and they come one after
    the other."""
    table, drop = source.spec.table, sources.missing == "drop"
    from_key = sources.end(f"s.{quoted(str(table.src))}")
    to_key = targets.end(f"s.{quoted(str(table.dst))}")
    joins = f"{sources.join(from_key, 'ks', all_rows=drop)} {targets.join(to_key, 'kd', all_rows=drop)}"
    columns = [f"{sources.node(from_key, 'ks')} AS src", f"{targets.node(to_key, 'kd')} AS dst", *reading.selected]
    last = []
    if relations is not None:
        joins += f" {'LEFT ' if drop else ''}{relations.join}"
        columns, last = [*columns, "r.number AS relation"], ["relation"]
    if wide:
        columns += [f"s.{quoted(ROW)} AS number"]
        rows = f"SELECT {', '.join(columns)} FROM ({source.numbered()}) s {joins} {reading.joins}"
        tie = f"hash({', '.join(reading.ties)}) AS tie"
        edges = f"SELECT {', '.join(['src', 'dst', tie, 'number', *last])} FROM ({rows})"
        names, turned, ties = ["tie", "number"], ["tie", "-1 - number"], ["tie", "number"]
    else:
        edges = f"SELECT {', '.join(columns)} FROM ({source.sql}) s {joins} {reading.joins}"
        names = turned = [f"c{i}" for i in range(len(reading.selected))]
        ties = reading.ties
    count = max(1, sources.count)
    found = f"SELECT {', '.join([_pair('dst', count, 'src'), *names, *last])} FROM e"
    if both:
        found += f" UNION ALL SELECT {', '.join([_pair('src', count, 'dst'), *turned])} FROM e"
    return f"WITH e AS ({edges}) SELECT * FROM ({found}) ORDER BY {', '.join([*last, 'pair', *ties])}"


def _numbers(source: Source, column: Any, given: int) -> np.ndarray[Any, Any]:
    """Return the numbers of some edges: the rows that they come from, up to ``given``, and behind these the edges that
    lead back, which come as -1, -2 and so on."""
    numbers: np.ndarray[Any, Any] = column.to_numpy()
    if len(numbers) and numbers.max() >= given:
        raise _changed(source)
    return np.where(numbers < 0, given - 1 - numbers, numbers)


def _pair(first: str, count: int, second: str) -> str:
    """Return two nodes as a number; the second has ``count`` values."""
    return f"{first}::UBIGINT * {count}::UBIGINT + {second}::UBIGINT AS pair"


def _edge_list(pairs: NpyFile) -> NpyFile:
    """Return pairs of ends ``[edges, 2]`` as an edge list ``[2, edges]`` over the same file."""
    return dataclasses.replace(pairs, shape=pairs.shape[::-1], fortran=True)
