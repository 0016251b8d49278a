"""A table as the database reads it: its columns and their types, and where in its files a row is."""

from __future__ import annotations

import dataclasses
import re
from typing import Any

from freshgo._tables.database import Database
from freshgo._tables.databases import rows_of_databases
from freshgo._tables.files import DATABASES, FILE, find, literal, partitioned, quoted, scan
from freshgo._tables.json_files import scan_json
from freshgo._tables.objects import rows_of_files, rows_of_object
from freshgo._tables.table import Spec, paths_of
from freshgo._tables.wide import narrowed
from freshgo.errors import DTypeError, InvalidArgumentError

ROW = "freshgo row"
"""The column that numbers the rows of a table."""


@dataclasses.dataclass
class Source:
    """A table that is open."""

    spec: Spec
    sql: str
    """A query of all columns that are read, and ``FILE`` if there are files."""
    types: dict[str, Any]
    """DuckDB's types of these columns."""
    files: list[str] | None
    empty: bool
    counted: bool
    """Whether rows are counted without being read."""
    kept: str = "true"
    """The condition in SQL of the rows that are not dropped."""

    def type_of(self, column: str) -> str:
        """Return the type of a column for messages."""
        return str(self.types[column])

    def count(self, db: Database) -> int:
        """Return how many rows there are."""
        return int(db.rows(self.spec.label, f"SELECT count(*) FROM ({self.sql})")[0][0])

    def numbered(self, rows: str | None = None) -> str:
        """Return a query of the rows, or of some, that numbers them from 0 in their order."""
        return f"SELECT *, row_number() OVER () - 1 AS {quoted(ROW)} FROM ({self.sql if rows is None else rows})"

    def where(self, db: Database, condition: str) -> str | None:
        """Say which row is the first for which a condition holds, None if there is none."""
        keys = ", ".join(map(quoted, self.spec.keys))
        files: list[str | None] = [None] if self.files is None else [*self.files]
        for file in files:
            rows = self.sql if file is None else f"SELECT * FROM ({self.sql}) WHERE {quoted(FILE)} = {literal(file)}"
            found = db.rows(
                self.spec.label,
                f"SELECT {quoted(ROW)}, {keys} FROM ({self.numbered(rows)}) "
                f"WHERE ({condition}) AND {self.kept} ORDER BY {quoted(ROW)} LIMIT 1",
            )
            if found:
                row, *values = found[0]
                names = ", ".join(f"{k} {v!r}" for k, v in zip(self.spec.keys, values, strict=True))
                return f"row {row}{'' if file is None else f' of {file}'} ({names})"
        return None


def open_source(db: Database, spec: Spec) -> Source:
    """Find out what a table is.

    Raises:
        InvalidArgumentError, DTypeError, StoreNotFoundError: a column or a file is missing, the source is none
    """
    table, paths = spec.table, paths_of(spec.table.source)
    files: list[str] | None = None
    form = ""
    if paths is not None:
        files, form = find(spec, paths)
        if not files:
            raise InvalidArgumentError(f"{spec.label}: all files are empty, expected at least the names of columns")
    if table.table is not None and form not in DATABASES:
        raise InvalidArgumentError(
            f"{spec.label}: table={table.table!r} names a table of a file of SQLite or DuckDB, and the source is "
            f"{form or type(table.source).__name__}"
        )
    if files is None:
        base, _ = rows_of_object(db, spec, table.source)
    elif form in DATABASES:
        base = rows_of_databases(db, spec, files, form)
    elif form in ("arrow", "orc"):
        base = rows_of_files(db, spec, files, form)
    else:
        read, reading = {file: file for file in files or []}, spec
        if form == "csv":
            if not partitioned(list(read)):  # copies have no directories that are columns
                read = narrowed(spec, list(read), db.new_file)
            if any(copy != file for file, copy in read.items()):
                reading = dataclasses.replace(spec, table=dataclasses.replace(table, encoding="utf-8"))
        base, files = _scanned(db, reading, read, form, None)
        if form == "csv" and not set(spec.columns) <= set(db.types(spec.label, base)):
            named, having = _scanned(db, reading, read, form, True)  # names such as 7, or t, may look like values
            if set(spec.columns) <= set(db.types(spec.label, named)):
                base, files = named, having
    there = db.types(spec.label, base)
    known = [name for name in there if name != FILE]
    unnamed = form == "csv" and all(re.fullmatch(r"column\d+", name) for name in known)
    spec.check_columns(
        known, ": its first line was not taken for their names (has every line as many fields?)" if unnamed else ""
    )
    for column in table.types:
        if column not in spec.columns:
            raise InvalidArgumentError(f"{spec.label}: types names the column {column!r}, which is not used")
    columns = [
        f"CAST({quoted(name)} AS {table.types[name]}) AS {quoted(name)}" if name in table.types else quoted(name)
        for name in spec.columns
    ]
    if files is not None:
        columns.append(quoted(FILE))
    sql = f"SELECT {', '.join(columns)} FROM ({base})"
    types = db.types(spec.label, sql)
    if table.split is not None and str(types[table.split].id).lower() not in ("varchar", "enum"):
        raise DTypeError(
            f"{spec.label}: split is the column {table.split!r}, which holds {types[table.split]}, expected strings: "
            "the names of splits"
        )
    empty = not db.rows(spec.label, f"SELECT 1 FROM ({sql}) LIMIT 1")
    return Source(spec, sql, types, files, empty, form not in ("csv", "json"))


def _scanned(db: Database, spec: Spec, read: dict[str, str], form: str, header: bool | None) -> tuple[str, list[str]]:
    """Return a query of the rows of files, and those that it reads; ``read`` has the copies that stand for them."""
    files = _with_rows(db, spec, read, header) if form == "csv" else list(read)
    if form == "json":
        base = scan_json(db, spec, read)
    else:
        base = f"SELECT * FROM {scan(spec, [read[file] for file in files], form, dict(spec.table.types), header)}"
    return f'SELECT * EXCLUDE ("filename"), {_file_names(read)} AS {quoted(FILE)} FROM ({base})', files


def _with_rows(db: Database, spec: Spec, read: dict[str, str], header: bool | None) -> list[str]:
    """Return the files that have a row, whose types count: of a header alone every column would be of strings."""
    files = list(read)
    if len(files) < 2:
        return files
    found = [
        f for f in files if db.rows(spec.label, f"SELECT 1 FROM {scan(spec, [read[f]], 'csv', {}, header)} LIMIT 1")
    ]
    return found or files[:1]


def _file_names(read: dict[str, str]) -> str:
    """Return the user's name of the file that a row is from."""
    copies = [f"WHEN {literal(copy)} THEN {literal(file)}" for file, copy in read.items() if copy != file]
    return f'CASE "filename" {" ".join(copies)} ELSE "filename" END' if copies else '"filename"'
