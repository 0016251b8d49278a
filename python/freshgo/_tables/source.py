"""A table as the database reads it: its columns and their types, and where in its files a row is."""

from __future__ import annotations

import dataclasses
import difflib
import re
from typing import Any

from freshgo._args.checks import shown
from freshgo._tables.database import Database
from freshgo._tables.files import find, literal, partitioned, quoted, scan
from freshgo._tables.table import Spec, paths_of
from freshgo._tables.wide import narrowed
from freshgo.errors import DTypeError, InvalidArgumentError

FILE = "freshgo file"
"""The column that says which file a row is from."""

ROW = "freshgo row"
"""The column that numbers the rows of a table."""

_BATCH = 1 << 13
"""Rows that a data set of pyarrow gives at a time. Arbitrary: 4 MiB of rows of 128 floats."""


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
    given, table = spec.table.source, spec.table
    paths = paths_of(given)
    files: list[str] | None = None
    form = ""
    if paths is not None:
        files, form = find(spec, paths)
        if not files:
            raise InvalidArgumentError(f"{spec.label}: all files are empty, expected at least the names of columns")
        if form == "arrow":
            given = _dataset(spec, files)
    if paths is None or form == "arrow":
        base, has_files = _table(db, spec, given)
        files = files if has_files else None
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
    for column in spec.columns:
        if column not in there:
            near = difflib.get_close_matches(column, there, 1)
            hint = f"; did you mean {near[0]!r}?" if near else ""
            known = [name for name in there if name != FILE]
            if form == "csv" and all(re.fullmatch(r"column\d+", name) for name in known):
                hint = ": its first line was not taken for their names (has every line as many fields?)"
            raise InvalidArgumentError(
                f"{spec.label} has no column {column!r}, it has {shown(known)}{hint}",
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


def _dataset(spec: Spec, files: list[str]) -> Any:
    """Return files of Arrow IPC as a data set whose columns have types that hold those of all files."""
    import pyarrow
    from pyarrow import dataset

    try:
        given = dataset.dataset(files, format="ipc", partitioning="hive")
        schemas = [given.schema, *(fragment.physical_schema for fragment in given.get_fragments())]
        schema = pyarrow.unify_schemas(schemas, promote_options="permissive")
        return dataset.dataset(files, schema=schema, format="ipc", partitioning="hive")
    except (pyarrow.ArrowException, OSError, ValueError, TypeError) as error:
        raise InvalidArgumentError(f"{spec.label}: not files of Arrow IPC with equal columns: {error}") from error


def _table(db: Database, spec: Spec, given: Any) -> tuple[str, bool]:
    """Return a query of an object that holds rows, and whether it says of which file these are.

    What is not in memory is copied into the database: it may give its rows only once, and pyarrow would read far ahead.
    """
    import pyarrow
    from pyarrow import dataset

    module = type(given).__module__.partition(".")[0]
    if isinstance(given, dataset.Dataset):
        with_files = isinstance(given, dataset.FileSystemDataset)
        columns = [name for name in given.schema.names if name in spec.columns]
        scanner = given.scanner(
            [*columns, "__filename"] if with_files else columns,
            batch_size=_BATCH,
            batch_readahead=1,
            fragment_readahead=1,
        )
        half, single = pyarrow.float16(), pyarrow.float32()
        fields = [f.with_type(single) if f.type == half else f for f in scanner.projected_schema]  # which DuckDB reads
        schema = pyarrow.schema(fields)
        batches = (batch.cast(schema) for batch in scanner.to_reader())
        rows = _copied(db, spec, pyarrow.RecordBatchReader.from_batches(schema, batches))
        if with_files:
            rows = f'SELECT * EXCLUDE ("__filename"), "__filename" AS {quoted(FILE)} FROM ({rows})'
        return rows, with_files
    if module in ("duckdb", "_duckdb") and hasattr(given, "project"):
        names = [quoted(name) for name in given.columns if name in spec.columns]
        chosen = given.project(", ".join(names)) if names else given
        read = getattr(chosen, "to_arrow_reader", None) or chosen.fetch_record_batch
        return _copied(db, spec, read(_BATCH)), False
    if isinstance(given, pyarrow.RecordBatchReader):
        return _copied(db, spec, given), False
    if module == "polars" and type(given).__name__ == "DataFrame":
        return f"SELECT * FROM {db.register(spec.label, given.to_arrow())}", False
    if isinstance(given, pyarrow.Table) or (module == "pandas" and type(given).__name__ == "DataFrame"):
        if module == "pandas" and not all(isinstance(name, str) for name in given.columns):
            raise DTypeError(f"{spec.label}: the columns of a frame must have strings as names")
        return f"SELECT * FROM {db.register(spec.label, given)}", False
    raise DTypeError(
        f"{spec.label}: source must be a path, a pattern, a list of these, a pyarrow dataset or table, a DuckDB "
        f"relation, or a pandas or polars DataFrame, got {type(given).__name__}"
    )


def _copied(db: Database, spec: Spec, reader: Any) -> str:
    given, table = db.register(spec.label, reader), db.name("copy")
    db.run(spec.label, f"CREATE TABLE {table} AS SELECT * FROM {given}")
    db.unregister(spec.label, given)
    return f"SELECT * FROM {table}"
