"""A table as the database reads it: its columns and their types, and where in its files a row is."""

from __future__ import annotations

import dataclasses
import re
from typing import Any

from freshgo._args.checks import shown
from freshgo._args.hints import among, did_you_mean
from freshgo._args.progress import Progress
from freshgo._tables.arrow_files import rows_of_files
from freshgo._tables.database import Database
from freshgo._tables.databases import rows_of_databases
from freshgo._tables.exact import converted, date
from freshgo._tables.files import DATABASES, FILE, check_partitions, find, literal, partitions, quoted, scan
from freshgo._tables.json_files import copy_json
from freshgo._tables.objects import rows_of_object
from freshgo._tables.table import Spec, check_format, paths_of
from freshgo._tables.texts import Texts
from freshgo._text.judge import ZONED
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
    kept: str = "true"
    """The condition in SQL of the rows that are not dropped."""
    texts: Texts | None = None
    """What was copied from text files."""

    def type_of(self, column: str) -> str:
        """Return the type of a column for messages."""
        return str(self.types[column])

    def check_typed(self, column: str) -> None:
        """Refuse a column of nulls alone, where they have no type."""
        if self.type_of(column) == '"NULL"':
            raise DTypeError(
                f"{self.spec.label}: the column {column!r} holds only nulls, which do not tell its type: pass "
                f"types={{{column!r}: 'DOUBLE'}}, 'BIGINT' or 'VARCHAR'"
            )

    def count(self, db: Database) -> int:
        """Return how many rows there are."""
        return int(db.rows(self.spec.label, f"SELECT count(*) FROM ({self.sql})")[0][0])

    def numbered(self, rows: str | None = None) -> str:
        """Return a query of the rows, or of some, that numbers them from 0 in their order."""
        return f"SELECT *, row_number() OVER () - 1 AS {quoted(ROW)} FROM ({self.sql if rows is None else rows})"

    def where(self, db: Database, condition: str, value_of: str | None = None) -> str | None:
        """Say which row is the first for which a condition holds, None if there is none. ``value_of`` is a
        column whose value is said too."""
        keys = ", ".join(map(quoted, self.spec.keys))
        value = "NULL" if value_of is None else quoted(value_of)
        files: list[str | None] = [None] if self.files is None else [*self.files]
        for file in files:
            rows = self.sql if file is None else f"SELECT * FROM ({self.sql}) WHERE {quoted(FILE)} = {literal(file)}"
            found = db.rows(
                self.spec.label,
                f"SELECT {quoted(ROW)}, {value}, {keys} FROM ({self.numbered(rows)}) "
                f"WHERE ({condition}) AND {self.kept} ORDER BY {quoted(ROW)} LIMIT 1",
            )
            if found:
                row, value, *values = found[0]
                names = ", ".join(f"{k} {v!r}" for k, v in zip(self.spec.keys, values, strict=True))
                line = "" if file is None or self.texts is None else f", line {self.texts.line(file, row)}"
                said = "" if value_of is None else f": {value!r}"
                return f"row {row}{'' if file is None else f' of {file}'}{line} ({names}){said}"
        return None


def open_source(db: Database, spec: Spec, progress: Progress | None = None) -> Source:
    """Find out what a table is. Text files are copied into the database.

    Raises:
        InvalidArgumentError, DTypeError, StoreNotFoundError: a column or a file is missing, the source is none
    """
    table, paths = spec.table, paths_of(spec.table.source)
    files: list[str] | None = None
    texts: Texts | None = None
    form = ""
    if paths is not None:
        files, form = find(spec, paths)
        if not files:
            expected = "at least the names of columns" if form == "csv" else "an array of objects, or [] without rows"
            raise InvalidArgumentError(f"{spec.label}: all files are empty, expected {expected}")
    if table.table is not None and form not in DATABASES:
        raise InvalidArgumentError(
            f"{spec.label}: table={table.table!r} names a table of a file of SQLite or DuckDB, and the source is "
            f"{form or type(table.source).__name__}"
        )
    if form != "csv":
        check_format(spec, form)
    if files is None:
        base, _ = rows_of_object(db, spec, table.source)
    elif form in DATABASES:
        base = rows_of_databases(db, spec, files, form)
    elif form in ("arrow", "orc"):
        base = rows_of_files(db, spec, files, form)
    elif form == "csv":
        texts = Texts(db, spec, files, progress)
        base = texts.sql
    elif form == "json":
        base = copy_json(db, spec, files)
    else:
        base = _scan_parquet(db, spec, files)
    there = db.types(spec.label, base)
    spec.check_columns(name for name in there if name != FILE)
    for column in table.types:
        if column not in spec.columns:
            raise InvalidArgumentError(
                f"{spec.label}: types names the column {column!r}, which is not used; in use are "
                f"{among(column, spec.columns)}"
            )
    sql, types = _converted(db, spec, base, files, texts)
    if table.split is not None and str(types[table.split].id).lower() not in ("varchar", "enum"):
        raise DTypeError(
            f"{spec.label}: split is the column {table.split!r}, which holds {types[table.split]}, expected strings: "
            "the names of splits"
        )
    empty = not db.rows(spec.label, f"SELECT 1 FROM ({sql}) LIMIT 1")
    return Source(spec, sql, types, files, empty, texts=texts)


def _scan_parquet(db: Database, spec: Spec, files: list[str]) -> str:
    """Return a query of the rows of Parquet files.

    Raises:
        InvalidArgumentError: a file has two columns with one name, or whose names differ in case alone; DuckDB would
            rename the second.
    """
    db.parquet[spec.label] = files
    sql = f"SELECT file_name, list(name), list(num_children) FROM parquet_schema({literal(files)}) GROUP BY file_name"
    for file, groups, children in sorted(db.rows(spec.label, sql)):
        names = _top(groups, children)
        if len({name.lower() for name in names}) < len(names):
            spec.check_twice(names)
            read = list(db.types(spec.label, f"SELECT * FROM read_parquet({literal(file)}, hive_partitioning=false)"))
            for column, name in zip(read, names, strict=True):
                if column != name and {column, name} & set(spec.columns):
                    raise InvalidArgumentError(
                        f"{spec.label}: {file}: another column differs from {name!r} in case alone: rename one, or "
                        "give a pyarrow.dataset"
                    )
        if len(files) > 1:
            spec.check_file(file, [*names, *partitions(file)])
        for name, value in partitions(file).items():
            if name in spec.columns and name in names:  # some writers leave it in the file too
                other = f"CAST({quoted(name)} AS VARCHAR) IS DISTINCT FROM {literal(value) if value else 'NULL'}"
                rows = f"read_parquet({literal(file)}, hive_partitioning=false)"
                if db.rows(spec.label, f"SELECT 1 FROM {rows} WHERE {other} LIMIT 1"):
                    check_partitions(spec, file, [name])
    return f"SELECT * FROM {scan(files)}"


def _top(names: list[str], children: list[int | None]) -> list[str]:
    """Return the columns of a Parquet schema, without the groups and values within them: each group is listed before
    its members, the whole first."""
    columns, open_groups = [], [children[0] or 0]
    for name, inner in zip(names[1:], children[1:], strict=True):
        if len(open_groups) == 1:
            columns.append(name)
        open_groups[-1] -= 1
        open_groups += [inner] if inner else []
        while open_groups and not open_groups[-1]:
            open_groups.pop()
    return columns


def _converted(
    db: Database, spec: Spec, base: str, files: list[str] | None, texts: Texts | None
) -> tuple[str, dict[str, Any]]:
    """Return a query of the columns that are used, those in ``types=`` converted, and its types.

    Raises:
        InvalidArgumentError: a value does not convert exactly.
    """
    table, label = spec.table, spec.label
    file = [] if files is None else [quoted(FILE)]
    plain = f"SELECT {', '.join([*map(quoted, spec.columns), *file])} FROM ({base})"
    given = db.types(label, plain)
    raw = Source(spec, plain, given, files, False, texts=texts)
    columns = {name: quoted(name) for name in spec.columns}
    text = {name for name in spec.columns if str(given[name].id).lower() == "varchar"}
    for name in spec.columns:
        if name in table.types:
            wanted, how = table.types[name], f"types= of the Table asks for {table.types[name]}"
            value, wrong = converted(spec, name, given[name], _type_of(db, spec, name, wanted))
        elif name == table.time and name in text:
            wanted, how = _time_type(db, raw, name), "time= takes dates as 2020-03-31 or 2020-03-31 23:59:59"
            how += "; date_format= of the Table, such as '%d/%m/%Y', says how others are written"
            if table.date_format is not None:
                how = f"date_format= of the Table is {table.date_format!r}"
            value, wrong = date(quoted(name), table.date_format, wanted)
        elif name == table.time and str(given[name].id).lower() == "timestamp_ns":
            how = "time= is in microseconds; a column of whole numbers keeps nanoseconds"
            value, wrong = f"CAST({quoted(name)} AS TIMESTAMP)", f"epoch_ns({quoted(name)}) % 1000 <> 0"
        else:
            continue
        if wrong != "false" and db.rows(label, f"SELECT 1 FROM ({plain}) WHERE {wrong} LIMIT 1"):
            where = raw.where(db, wrong, value_of=name)
            raise InvalidArgumentError(f"{label}, column {name!r}, {where} does not convert exactly: {how}")
        columns[name] = f"{value} AS {quoted(name)}"
    sql = f"SELECT {', '.join([*columns.values(), *file])} FROM ({base})"
    return sql, db.types(label, sql)


def _type_of(db: Database, spec: Spec, name: str, wanted: object) -> Any:
    """Return the type of DuckDB that has a name; several names may have one type."""
    if not isinstance(wanted, str):
        raise DTypeError(f"{spec.label}: types must map columns to DuckDB's names of types, got {shown(wanted)}")
    try:
        return db.types(spec.label, f"SELECT CAST(NULL AS {wanted}) AS value")["value"]
    except InvalidArgumentError:
        known = ("BIGINT", "UBIGINT", "INTEGER", "DOUBLE", "FLOAT", "BOOLEAN", "VARCHAR", "DATE", "TIMESTAMP")
        hint = did_you_mean(wanted, known) or f" (it has {', '.join(known)} and others)"
        raise InvalidArgumentError(
            f"{spec.label}: types= of the column {name!r} is {wanted!r}, which DuckDB does not have{hint}"
        ) from None


def _time_type(db: Database, source: Source, name: str) -> str:
    """Return the type of a column of times that are text: the first one decides whether they have a zone."""
    form = source.spec.table.date_format
    if form is not None:
        return ZONED if "%z" in form else "TIMESTAMP"
    first = db.rows(
        source.spec.label, f"SELECT {quoted(name)} FROM ({source.sql}) WHERE {quoted(name)} IS NOT NULL LIMIT 1"
    )
    return ZONED if first and re.search(r":\d\d.*(Z|[+-]\d\d(:?\d\d)?)$", first[0][0]) else "TIMESTAMP"
