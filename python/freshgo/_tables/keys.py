"""The keys of nodes: one type for all columns that hold them, sorted, each once; and strings in files."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np

from freshgo._args.arrays import Array, NpyFile
from freshgo._staging.placed import Placed
from freshgo._staging.raw import Files
from freshgo._tables.columns import LISTS, TEXT, WHOLE, kind_of
from freshgo._tables.database import Database
from freshgo._tables.files import quoted
from freshgo._tables.source import Source
from freshgo.errors import DTypeError, InvalidArgumentError

_ROWS = 1 << 14
"""Keys that pass through memory at a time. Arbitrary."""


@dataclasses.dataclass
class Keys:
    """The keys of a node type, in a table ``(key, node)`` of the database in their order; without ``node`` where that
    can be computed."""

    of: str
    type: str
    """``BIGINT``, ``UBIGINT`` or ``VARCHAR``."""
    table: str
    has_table: bool
    missing: str
    """What becomes of edges whose ends have no node: ``"error"``, ``"add"`` or ``"drop"``."""
    count: int = 0
    first: int | None = None
    """Where keys are successive integers: the first."""
    by_row: NpyFile | None = None
    """Where they are not: the node of each row of the table of nodes, int64."""
    rowless: NpyFile | None = None
    """The nodes that have no row there, int64, where there may be such nodes."""

    @property
    def added(self) -> bool:
        """Whether there may be nodes without a row in the table of nodes."""
        return self.missing == "add" and self.has_table

    def cast(self, value: str) -> str:
        """Return a column as a key."""
        return f"CAST({value} AS {self.type})"

    def end(self, value: str) -> str:
        """Return a column of ends as a key. Where edges are dropped, a value that cannot be a key is null."""
        return f"TRY_{self.cast(value)}" if self.missing == "drop" else self.cast(value)

    def known(self, value: str) -> str:
        """Return the condition that a column of ends holds a node."""
        if self.first is None:
            return f"coalesce({self.end(value)} IN (SELECT key FROM {self.table}), false)"
        return f"({self.node(self.end(value), '')} IS NOT NULL)"

    def join(self, key: str, alias: str, *, all_rows: bool) -> str:
        """Return what finds the node of a key; nothing where it can be computed. Rows whose key no node has stay with
        ``all_rows``; without, DuckDB takes less than half of the time, for it may choose how to join."""
        if self.first is not None:
            return ""
        return f"{'LEFT ' if all_rows else ''}JOIN {self.table} {alias} ON {alias}.key = {key}"

    def node(self, key: str, alias: str) -> str:
        """Return the node of a key, null if there is none."""
        if self.first is None:
            return f"{alias}.node"
        last = self.first + self.count - 1
        return f"CASE WHEN {key} BETWEEN {self.first} AND {last} THEN CAST({key} - {self.first} AS BIGINT) END"


def key_type(named: list[tuple[Source, str]]) -> str:
    """Return the type of the keys of a node type, which all columns that hold them share: text where one is text.

    Raises:
        DTypeError: a column holds neither integers nor strings nor UUIDs.
    """
    text, unsigned, big = False, True, False
    for source, column in named:
        kind = kind_of(source, column)
        if source.empty:
            continue
        if kind not in (WHOLE | TEXT) - {"boolean"}:
            source.check_typed(column)
            hint = f"(types={{{column!r}: 'VARCHAR'}} of the Table makes it text, 'BIGINT' takes whole numbers)"
            if kind in LISTS:
                hint = "one in each row"
            raise DTypeError(
                f"{source.spec.label}, column {column!r}, holds {source.type_of(column)}, expected integers, strings "
                f"or UUIDs as keys{',' * (kind in LISTS)} {hint}"
            )
        text = text or kind in TEXT
        unsigned, big = unsigned and kind.startswith("u"), big or kind == "ubigint"
    if text:
        return "VARCHAR"
    return "UBIGINT" if unsigned and big else "BIGINT"


def write_keys(
    db: Database,
    files: Files,
    keys: Keys,
    columns: list[tuple[Source, str]],
    attachments: dict[str, Array],
    *,
    rows: bool,
) -> Keys:
    """Sort the keys of columns; the first is the column of the table of nodes, if there is one. ``rows``: the
    rows of that table will be read.

    Raises:
        InvalidArgumentError: a key is null or occurs twice in the table of nodes.
    """
    label = columns[0][0].spec.label
    selects = [f"SELECT {keys.cast(quoted(column))} AS key FROM ({source.sql})" for source, column in columns]
    all_keys, row, no_row = selects[0], "", ""
    if rows:
        row, no_row = ", row", ", NULL AS row"
        all_keys = f"SELECT key, row_number() OVER () - 1 AS row FROM ({selects[0]})"
    if keys.missing == "add":
        others = " UNION ALL ".join(selects[1:] if keys.has_table else selects)
        if others:
            others = f"SELECT DISTINCT key{no_row} FROM ({others}) WHERE key IS NOT NULL"
            inside = f" UNION ALL {others} AND key NOT IN (SELECT key FROM ({selects[0]}) WHERE key IS NOT NULL)"
            all_keys = f"{all_keys}{inside}" if keys.has_table else others
    db.run(label, f"CREATE TABLE {keys.table} AS SELECT key{row} FROM ({all_keys}) ORDER BY key NULLS FIRST")
    name = f"ids/{keys.of}"
    sql = f"SELECT key FROM {keys.table}"  # a table gives its rows in the order in which they went into it
    source, column = columns[0]
    try:
        if keys.type == "VARCHAR":
            keys.count = write_text(db, files, label, sql, name, attachments)
        else:
            first, last = _write_numbers(db, files, keys, label, sql, attachments)
            if keys.count and last - first == keys.count - 1:
                keys.first = first
        if rows and (keys.first is None or keys.added):
            _write_rows(db, files, keys, label)
        if keys.first is None:
            _number(db, keys, label)
    except _NullKeyError:
        where = source.where(db, f"{quoted(column)} IS NULL")
        raise InvalidArgumentError(f"{label}, column {column!r}, {where}: null, expected the key of a node") from None
    except _TwiceError as twice:
        same = f"{keys.cast(quoted(column))} = {keys.cast(_sql(twice.key))}"
        where = source.where(db, same)
        again = db.rows(label, f"SELECT count(*) FROM ({source.sql}) WHERE {same}")[0][0]
        raise InvalidArgumentError(
            f"{label}, column {column!r}, {where}: the key {twice.key!r} occurs {again} times, expected each key once"
        ) from None
    return keys


def _number(db: Database, keys: Keys, label: str) -> None:
    """Store the node of each key beside it: DuckDB sorts a column whose values it knows the range of in two thirds of
    the time that row numbers take."""
    numbered = db.name("keys")
    db.run(label, f"CREATE TABLE {numbered} AS SELECT key, rowid AS node FROM {keys.table}")
    db.run(label, f"DROP TABLE {keys.table}")
    keys.table = numbered


def _write_rows(db: Database, files: Files, keys: Keys, label: str) -> None:
    """Write the node of each row of the table of nodes, and the nodes that have no row."""
    count = int(db.rows(label, f"SELECT count(row) FROM {keys.table}")[0][0])
    placed, rowless, out, first = Placed(files, count, db.memory // 8), files.new(), files.new(), 0
    for batch in db.batches(label, f"SELECT row FROM {keys.table}", _ROWS):
        column = batch.column(0)
        there = column.is_valid().to_numpy(zero_copy_only=False)
        nodes = np.arange(first, first + len(column))
        placed.put(column.drop_null().to_numpy(), [nodes[there]])
        rowless.append(nodes[~there])
        first += len(column)
    placed.finish([out])
    keys.by_row = out.finish(np.int64)
    keys.rowless = rowless.finish(np.int64) if keys.added else None


class _NullKeyError(Exception):
    """A key is null."""


class _TwiceError(Exception):
    """Two nodes have the same key."""

    def __init__(self, key: Any) -> None:
        super().__init__(key)
        self.key = key


def _sql(key: Any) -> str:
    return str(key) if isinstance(key, int) else "'" + key.replace("'", "''") + "'"


def _write_numbers(
    db: Database, files: Files, keys: Keys, label: str, sql: str, attachments: dict[str, Array]
) -> tuple[int, int]:
    """Write keys that are integers; returns the first and the last."""
    out, bounds = files.new(), (0, -1)
    dtype = np.dtype(np.uint64 if keys.type == "UBIGINT" else np.int64)
    for batch in db.batches(label, sql, _ROWS):
        column = batch.column(0)
        if column.null_count:
            raise _NullKeyError
        rows = column.to_numpy().astype(dtype, copy=False)
        if not len(rows):
            continue
        before = ~rows[:1] if not keys.count else np.array([bounds[1]], dtype)
        assert (rows[1:] >= rows[:-1]).all() and (not keys.count or rows[0] >= before[0])
        twice = np.flatnonzero(rows == np.concatenate([before, rows[:-1]]))
        if twice.size:
            raise _TwiceError(int(rows[twice[0]]))
        bounds = (bounds[0] if keys.count else int(rows[0]), int(rows[-1]))
        keys.count += len(rows)
        out.append(rows)
    attachments[f"ids/{keys.of}"] = out.finish(dtype)
    return bounds


def write_text(db: Database, files: Files, label: str, sql: str, name: str, attachments: dict[str, Array]) -> int:
    """Write strings that ascend as their bytes, one after the other, and where each ends; returns how many."""
    ends, text = files.new(), files.new()
    count = total = 0
    last: bytes | None = None
    for batch in db.batches(label, sql, _ROWS):
        column = batch.column(0)
        if column.null_count:
            raise _NullKeyError
        strings = [string.encode() for string in column.to_pylist()]
        for string in strings:
            if string == last:
                raise _TwiceError(string.decode())
            assert last is None or string > last
            last = string
        lengths = np.fromiter(map(len, strings), np.int64, len(strings))
        places = np.cumsum(lengths) + total
        ends.append(places)
        text.append(np.frombuffer(b"".join(strings), np.uint8))
        count, total = count + len(strings), int(places[-1]) if len(strings) else total
    attachments[f"{name}/ends"], attachments[f"{name}/text"] = ends.finish(np.int64), text.finish(np.uint8)
    return count
