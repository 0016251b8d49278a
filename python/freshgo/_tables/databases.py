"""Files that hold tables: of DuckDB, which it reads itself, and of SQLite, whose rows come through Python's sqlite3, as
DuckDB reads them by an extension that its package lacks."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from freshgo._args.checks import shown
from freshgo._args.hints import among
from freshgo._args.size import too_small
from freshgo._tables.database import Database
from freshgo._tables.files import FILE, literal, quoted
from freshgo._tables.table import Spec
from freshgo.errors import BudgetError, DTypeError, InvalidArgumentError, LibraryError, ReadError

_ROWS = 1 << 13
"""Rows of SQLite that pass through memory at a time, if they are short. Arbitrary."""

_KINDS = {"integer": "integers", "real": "floats", "text": "text", "blob": "blobs"}
"""What SQLite calls the type of a value, and what messages do."""


def rows_of_databases(db: Database, spec: Spec, files: list[str], form: str) -> str:
    """Return a query of a table in one or several files of SQLite or DuckDB.

    Raises:
        InvalidArgumentError: there is no such table, or several and ``table=`` does not say which; a file is none of
            these. DTypeError: a column of SQLite holds numbers and text.
        ReadError: a file cannot be read.
    """
    read = _attached if form == "duckdb" else _from_sqlite
    read_of = {file: read(db, spec, file) for file in files}
    if len(files) > 1:
        for file, sql in read_of.items():
            spec.check_file(file, db.types(spec.label, sql))
    rows = [f"SELECT *, {literal(file)} AS {quoted(FILE)} FROM ({sql})" for file, sql in read_of.items()]
    return " UNION ALL BY NAME ".join(rows)


def _chosen(spec: Spec, file: str, tables: list[str]) -> str:
    """Return the table of a file that is meant."""
    wanted = spec.table.table
    if wanted is None and len(tables) == 1:
        return tables[0]
    if wanted in tables:
        return str(wanted)
    if not tables:
        raise InvalidArgumentError(f"{spec.label}: {file} holds no tables")
    said = "holds several tables" if wanted is None else f"has no table {wanted!r}"
    raise InvalidArgumentError(f"{spec.label}: {file} {said}: table= must be one of {among(wanted, tables)}")


def _attached(db: Database, spec: Spec, file: str) -> str:
    name = db.name("file")
    with Path(file).open("rb") as opened:
        if opened.read(12)[8:] != b"DUCK":
            raise InvalidArgumentError(f"{spec.label}: {file} is not a file of DuckDB")
    db.run(spec.label, f"ATTACH {literal(file)} AS {name} (READ_ONLY)")
    of = f"WHERE database_name = {literal(name)} AND NOT internal"
    found = db.rows(
        spec.label,
        f"SELECT schema_name, table_name AS name FROM duckdb_tables() {of} UNION ALL "
        f"SELECT schema_name, view_name FROM duckdb_views() {of} ORDER BY ALL",
    )
    tables = {table if schema == "main" else f"{schema}.{table}": (schema, table) for schema, table in found}
    schema, table = tables[_chosen(spec, file, list(tables))]
    return f"SELECT * FROM {name}.{quoted(schema)}.{quoted(table)}"


def _from_sqlite(db: Database, spec: Spec, file: str) -> str:
    """Copy the columns that are used into a table of the database."""
    try:
        import sqlite3
    except ImportError as error:
        raise LibraryError(f"{spec.label}: {file} is of SQLite, and this Python lacks sqlite3: {error}") from error
    try:
        with contextlib.closing(
            sqlite3.connect(f"{Path(file).absolute().as_uri()}?mode=ro", uri=True, check_same_thread=False)
        ) as opened:
            found = opened.execute("SELECT name FROM sqlite_master WHERE type IN ('table', 'view') ORDER BY name")
            tables = [name for (name,) in found if not name.startswith("sqlite_")]
            table = _chosen(spec, file, tables)
            return _copied(db, spec, opened, file, table)
    except sqlite3.OperationalError as error:
        raise ReadError(5, f"{spec.label}: SQLite: {error}", file) from error
    except sqlite3.DatabaseError as error:
        raise InvalidArgumentError(f"{spec.label}: {file} is not a whole file of SQLite: {error}") from error


def _copied(db: Database, spec: Spec, opened: Any, file: str, table: str) -> str:
    import pyarrow as pa

    of = f"{file}, table {table!r}"
    names = [row[1] for row in opened.execute(f"PRAGMA table_info({quoted(table)})")]
    spec.check_columns(names)
    types = _types(spec, opened, of, table)
    # With types= of the Table a column of several kinds is text.
    columns = [f"CAST({quoted(n)} AS TEXT)" if n in spec.table.types else quoted(n) for n in types]
    schema = pa.schema(list(types.items()))
    count = _rows_at_a_time(db, spec, opened, of, table, types)

    def batches() -> Iterator[Any]:
        rows = opened.execute(f"SELECT {', '.join(columns)} FROM {quoted(table)}")
        while some := rows.fetchmany(count):
            arrays = [
                pa.array(column, kind) for column, kind in zip(zip(*some, strict=True), types.values(), strict=True)
            ]
            yield pa.record_batch(arrays, schema=schema)

    given, copy = db.register(spec.label, pa.RecordBatchReader.from_batches(schema, batches())), db.name("copy")
    db.run(spec.label, f"CREATE TABLE {copy} AS SELECT * FROM {given}")
    db.unregister(spec.label, given)
    return f"SELECT * FROM {copy}"


def _types(spec: Spec, opened: Any, of: str, table: str) -> dict[str, Any]:
    """Return the types that hold all values of the columns that are used; SQLite has a type for each value."""
    import pyarrow as pa

    asked = [f"max(typeof({quoted(name)}) = '{kind}')" for name in spec.columns for kind in _KINDS]
    found = opened.execute(f"SELECT {', '.join(asked)} FROM {quoted(table)}").fetchone()
    types: dict[str, Any] = {}
    for at, name in enumerate(spec.columns):
        kinds = {kind for kind, any_of in zip(_KINDS, found[at * len(_KINDS) :], strict=False) if any_of}
        if name in spec.table.types or kinds == {"text"}:
            types[name] = pa.string()
        elif kinds <= {"integer", "real"}:
            types[name] = pa.float64() if "real" in kinds else pa.int64()
            if kinds == {"integer", "real"}:
                _check_exact(spec, opened, of, table, name)
        else:
            value = "iif(typeof({0}) IN ('text', 'blob'), substr({0}, 1, 100), {0})".format(quoted(name))
            first = f"SELECT {value} FROM {quoted(table)} WHERE typeof({quoted(name)}) = ? LIMIT 1"
            some = {kind: opened.execute(first, [kind]).fetchone()[0] for kind in sorted(kinds)}
            came = " and ".join(f"{_KINDS[kind]} ({shown(value)})" for kind, value in some.items())
            raise DTypeError(
                f"{spec.label}: {of}: the column {name!r} holds {came}, expected numbers, or text (types= of the Table "
                "converts them)"
            )
    return types


def _rows_at_a_time(db: Database, spec: Spec, opened: Any, of: str, table: str, types: dict[str, Any]) -> int:
    """Return how many rows of SQLite pass through memory at a time: a thirty-second of it, by the longest texts."""
    import pyarrow as pa

    texts = [quoted(name) for name, kind in types.items() if kind == pa.string()]
    if not texts:
        return _ROWS
    lengths = ", ".join(f"coalesce(max(length({name})), 0)" for name in texts)
    row = 4 * sum(opened.execute(f"SELECT {lengths} FROM {quoted(table)}").fetchone())  # a character has up to 4 bytes
    if row > db.memory // 2:
        raise BudgetError(f"{spec.label}: {of}: {too_small(db.memory, 2 * row, 'the longest text needs')}", 2 * row)
    return int(min(_ROWS, max(1, db.memory // 32 // max(1, row))))


def _check_exact(spec: Spec, opened: Any, of: str, table: str, name: str) -> None:
    """Refuse integers that a float64 does not hold in a column that holds floats too."""
    column = quoted(name)
    large = f"typeof({column}) = 'integer' AND ({column} > {1 << 53} OR {column} < -{1 << 53})"
    found = opened.execute(f"SELECT {column} FROM {quoted(table)} WHERE {large} LIMIT 1").fetchone()
    if found is not None:
        raise InvalidArgumentError(
            f"{spec.label}: {of}: the column {name!r} holds floats, and the integer {found[0]}, which may not be one "
            f"exactly (types={{{name!r}: 'VARCHAR'}} of the Table reads text)"
        )
