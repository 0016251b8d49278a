"""Files of text on their way into the database: which column is where, and what the columns hold."""

from __future__ import annotations

import codecs
import contextlib
import functools
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from freshgo._args.checks import shown
from freshgo._args.progress import Progress
from freshgo._tables.database import Database
from freshgo._tables.files import FILE, begins_as, check_partitions, literal, partitions, quoted
from freshgo._tables.packed import opened
from freshgo._tables.table import Spec
from freshgo._text.dialect import GUESSED, Dialect
from freshgo._text.judge import BadTextError, Column, Role
from freshgo._text.lines import Piece, Row, Rows, walk
from freshgo.errors import InvalidArgumentError


class Layout:
    """Where the columns of a file are."""

    def __init__(self, spec: Spec, path: str, rows: Rows) -> None:
        """Read the first row; it is left out of ``rows`` if it is a header.

        Raises:
            InvalidArgumentError: the delimiter is not known, or a column is there twice
        """
        self._spec, self._path = spec, path
        self.fixed = {k: v for k, v in partitions(path).items() if k in spec.columns}
        dialect = spec.dialect
        given = dialect.delimiter is not None
        suffix = "\t" if ".tsv" in Path(path).name.lower() else ","
        marks = [str(dialect.delimiter)] if given else [suffix, *(mark for mark in GUESSED if mark != suffix)]
        found: dict[str, Row] = {}
        wrong: list[Exception] = []
        for mark in marks:
            row = self._first(rows, dialect.split_by(mark), wrong)
            if row is not None:
                found[mark] = row
        self.names: list[str] = []
        if len(wrong) == len(marks):
            raise wrong[0]
        if not found:
            return
        mark = self._by_count(found, given) if dialect.names is not None else self._by_names(found)
        rows.dialect = dialect.split_by(mark)
        self.names = found[mark].fields if dialect.names is None else list(dialect.names)
        spec.check_twice(self.names)
        check_partitions(spec, path, self.names)
        if dialect.header is not False:
            rows.skip(found[mark])

    def _first(self, rows: Rows, dialect: Dialect, wrong: list[Exception]) -> Any:
        """Return the first row, None if there is none or it is ``wrong``, as quotes may be with a delimiter."""
        try:
            return rows.first(dialect)
        except InvalidArgumentError as error:
            wrong.append(error)
            return None

    def _by_names(self, found: dict[str, Any]) -> str:
        """Return the delimiter with which most columns that are used are in the first row."""
        wanted = set(self._spec.columns)
        return max(found, key=lambda mark: (len(wanted & set(found[mark].fields)), len(found[mark].fields)))

    def _by_count(self, found: dict[str, Any], given: bool) -> str:
        """Return the delimiter with which the first row has as many fields as there are names."""
        dialect = self._spec.dialect
        names = dialect.names or ()
        fits = [mark for mark, row in found.items() if len(row.fields) == len(names)]
        if len(fits) == 1 or (fits and len(names) == 1):
            return fits[0]
        if given or not fits:
            row = found[next(iter(found))] if given else max(found.values(), key=lambda row: len(row.fields))
            hint = _hint(dialect, row.fields) or begins_as(self._path)
            hint = hint or ("" if given else " (delimiter= of the Table says what separates them)")
            raise InvalidArgumentError(
                f"{self._spec.label}: {self._path}, line {row.line}: {_fields(len(row.fields))}, but names= has "
                f"{len(names)}: {shown(row.fields)}{hint}"
            )
        raise InvalidArgumentError(
            f"{self._spec.label}: {self._path}: {' or '.join(map(repr, fits))} may separate its fields, say which by "
            "delimiter="
        )


class Texts:
    """Files of text, copied into a table of the database."""

    def __init__(self, db: Database, spec: Spec, files: list[str], progress: Progress | None) -> None:
        """Copy the columns that are used.

        Raises:
            InvalidArgumentError: a row has another number of fields, a value cannot be, a column is missing; the
                message names file, line and column
        """
        self._db, self._spec, self._progress = db, spec, progress
        self._table, self._made, self._done, self._held = db.name("text"), False, 0, 0
        self._columns = [_column(spec, name) for name in spec.columns]
        self._types = ["BIGINT"] * len(self._columns)  # of the table
        self._known: dict[str, None] = {}  # columns of all files
        self.files = files
        db.run(spec.label, "BEGIN")
        for number, path in enumerate(files):
            self._copy(number, path)
        self._check_names()
        if not self._made:
            self._insert(0, [strings_of(0, None) for _ in self._columns], lambda place: "")
        for place, column in enumerate(self._columns):
            kind = column.decided(spec.fill(column.name))
            if kind != self._types[place]:
                self._change(place, kind)
        db.run(spec.label, "COMMIT")

    @property
    def sql(self) -> str:
        """A query of all rows, with ``FILE``."""
        names = [f"c{place} AS {quoted(column.name)}" for place, column in enumerate(self._columns)]
        file = literal(self.files[0]) if len(self.files) == 1 else f"{literal(self.files)}[file + 1]"
        return f"SELECT {', '.join([*names, f'{file} AS {quoted(FILE)}'])} FROM {self._table}"

    def line(self, path: str, row: int) -> int:
        """Return the line on which a row of a file begins, counted from 1."""
        with self._rows(path) as (rows, layout):
            for piece in rows:
                count = parsed(piece, rows.dialect, len(layout.names), [0]).num_rows
                if row < count:
                    return next(r.line for i, r in enumerate(self._walk(path, rows, piece)) if i == row)
                row -= count
        raise InvalidArgumentError(f"{self._spec.label}: {path} changed while it was being read")

    @contextlib.contextmanager
    def _rows(self, path: str) -> Iterator[tuple[Rows, Layout]]:
        with opened(self._spec, path) as file:
            rows = Rows(f"{self._spec.label}: {path}", file, self._spec.dialect, self._db.memory // 8)
            yield rows, Layout(self._spec, path, rows)

    def _walk(self, path: str, rows: Rows, piece: Piece) -> Iterator[Row]:
        return walk(f"{self._spec.label}: {path}", rows.dialect, piece.raw, piece.line)

    def _copy(self, number: int, path: str) -> None:
        with self._rows(path) as (rows, layout):
            if not layout.names:
                return
            self._known.update(dict.fromkeys([*layout.names, *layout.fixed]))
            there = {name: layout.names.index(name) for name in self._spec.columns if name in layout.names}
            if len(self.files) == 1:
                self._check_names()
            else:
                self._spec.check_file(path, [*layout.names, *layout.fixed])
            for piece in rows:
                try:
                    if not piece.data.isascii():
                        piece.data.decode()
                    table = parsed(piece, rows.dialect, len(layout.names), list(there.values()))
                except ValueError as error:
                    raise self._unreadable(path, rows, layout, piece, error) from None
                arrays = [
                    strings_of(table.num_rows, layout.fixed[column.name])
                    if column.name in layout.fixed
                    else table[f"f{there[column.name]}"].combine_chunks()
                    if column.name in there
                    else strings_of(table.num_rows, None)
                    for column in self._columns
                ]
                self._insert(number, arrays, functools.partial(self._where, path, rows, piece))
                self._done += table.num_rows
                if self._progress is not None:
                    self._progress(f"reading {self._spec.label}", self._done, 0)

    def _where(self, path: str, rows: Rows, piece: Piece, place: int) -> str:
        line = next(row.line for at, row in enumerate(self._walk(path, rows, piece)) if at == place)
        return f"line {line} of {path}"

    def _insert(self, number: int, strings: list[Any], where: Callable[[int], str]) -> None:
        """Append rows to the table, whose columns get the types that all values have."""
        import pyarrow as pa

        arrays = []
        for place, (column, values) in enumerate(zip(self._columns, strings, strict=True)):
            label = f"{self._spec.label}, column {column.name!r}"
            try:
                arrays.append(column.convert(values, functools.partial(_said, label, where)))
            except BadTextError as bad:
                raise InvalidArgumentError(f"{label}, {where(bad.place)}: {bad.what}") from None
            if self._made and column.type and column.type != self._types[place]:
                self._change(place, column.type)
            self._types[place] = column.type or self._types[place]
        names = [f"c{place}" for place in range(len(arrays))]
        if len(self.files) > 1:
            arrays.append(pa.array(np.full(len(strings[0]), number, np.int32)))
            names.append("file")
        rows = pa.table(arrays, names)
        given = self._db.register(self._spec.label, rows)
        make = f"INSERT INTO {self._table}" if self._made else f"CREATE TABLE {self._table} AS"
        self._db.run(self._spec.label, f"{make} SELECT * FROM {given}")
        self._db.unregister(self._spec.label, given)
        self._made = True
        self._held += rows.nbytes
        if self._held > self._db.memory // 16:  # DuckDB keeps what was registered until its transaction ends
            self._db.run(self._spec.label, "COMMIT")
            self._db.run(self._spec.label, "BEGIN")
            self._held = 0

    def _change(self, place: int, kind: str) -> None:
        """Give a column of the table another type."""
        label, name = self._spec.label, f"c{place}"
        value = name
        if kind == "DOUBLE" and self._types[place] == "VARCHAR" and self._columns[place].decimal != ".":
            value = f"replace({name}, {literal(self._columns[place].decimal)}, '.')"
        self._db.run(label, "COMMIT")
        self._db.run(label, f"ALTER TABLE {self._table} ALTER {name} TYPE {kind} USING CAST({value} AS {kind})")
        self._db.run(label, "BEGIN")
        self._types[place] = kind

    def _check_names(self) -> None:
        """Refuse columns that no file has."""
        dialect = self._spec.dialect
        known = list(self._known) or list(dialect.names or () if dialect.header is False else ())
        if not known:
            raise InvalidArgumentError(
                f"{self._spec.label}: {self.files[0]} is empty, expected the names of columns in its first row"
            )
        hint = ": is it JSON? format='json' reads it" if known[0].lstrip()[:1] in ("[", "{") else ""
        hint = hint or begins_as(self.files[0])
        if dialect.names is None and not hint:
            hint = " in its first row (if that is data, pass header=False and names="
            if known[0][:1] in ("#", "%") and dialect.comment is None:
                hint += f"; if it is a comment, pass comment={known[0][:1]!r}"
            elif len(known) == 1 and " " in known[0].strip():
                hint += "; if spaces separate its fields, pass delimiter=' '"
            else:
                hint += "; if it is split wrongly, pass delimiter="
            hint += ")"
        self._spec.check_columns(known, hint)

    def _unreadable(
        self, path: str, rows: Rows, layout: Layout, piece: Piece, error: Exception
    ) -> InvalidArgumentError:
        """Say which row of a piece pyarrow does not take."""
        label, width = self._spec.label, len(layout.names)
        for row in self._walk(path, rows, piece):
            if len(row.fields) != width:
                given = "names=" if self._spec.dialect.names is not None else "its first row"
                return InvalidArgumentError(
                    f"{label}: {path}, line {row.line}: {_fields(len(row.fields))}, expected {width} as in {given}: "
                    f"{shown(row.fields)}{_hint(rows.dialect, row.fields)}"
                )
        if isinstance(error, UnicodeDecodeError):
            line = piece.line + next(at for at, text in enumerate(piece.raw.splitlines(), 1) if not _is_utf8(text))
            return InvalidArgumentError(
                f"{label}: {path}, line {line}: not utf-8: {error.reason}"
                f"{begins_as(path) or ' (pass encoding= if it is in another, such as latin-1 or utf-16)'}"
            )
        return InvalidArgumentError(f"{label}: {path}, behind line {piece.line}: {error}")


def _is_utf8(text: bytes) -> bool:
    try:
        text.decode()
    except UnicodeDecodeError:
        return False
    return True


def _fields(count: int) -> str:
    return f"{count} field{'s' * (count != 1)}"


def _hint(dialect: Dialect, fields: list[str]) -> str:
    if dialect.comment is None and fields[0][:1] in ("#", "%"):
        return f" (comment={fields[0][:1]!r} leaves such lines out)"
    return ""


def _column(spec: Spec, name: str) -> Column:
    """Return the column with what it is used for."""
    table = spec.table
    features = "x" if isinstance(spec.of, str) else "edge_attr"
    floats = [*(spec.tensors[features] if table.features else []), table.weight]
    role: Role = "any"
    if name in table.types or name == table.split:
        role = "text"
    elif name in spec.keys or name == table.relation:
        role = "key"
    elif name in floats:
        role = "number"
    elif name == table.time:
        role = "time" if table.date_format is None else "text"
    return Column(name, role, table.decimal, spec.null_texts(name))


def _said(label: str, where: Callable[[int], str], place: int) -> str:
    return f"{label}, {where(place)}"


def strings_of(count: int, text: str | None) -> Any:
    """Return an array of a text, again and again."""
    import pyarrow as pa

    return pa.repeat(pa.scalar(text, pa.string()), count)


def parsed(piece: Piece, dialect: Dialect, width: int, places: list[int]) -> Any:
    """Return some columns of rows as strings, ``f0``, ``f1``, ...; an empty field without quotes is null.

    Raises:
        ValueError: a row does not have ``width`` fields, or is not UTF-8.
    """
    import pyarrow as pa
    from pyarrow import csv

    names = [f"f{place}" for place in places or [0]]
    data = piece.data
    if data.startswith(codecs.BOM_UTF8):
        data = codecs.BOM_UTF8 + data  # pyarrow leaves one out
    if not data.strip(b"\r\n"):
        return pa.table([strings_of(0, None) for _ in names], names)
    return csv.read_csv(
        pa.py_buffer(data),
        read_options=csv.ReadOptions(
            use_threads=False, block_size=len(data) + 1, column_names=[f"f{place}" for place in range(width)]
        ),
        parse_options=csv.ParseOptions(
            delimiter=" " if dialect.spaces else dialect.delimiter,
            quote_char=dialect.quote or False,
            escape_char=dialect.escape or False,
            newlines_in_values=True,
        ),
        convert_options=csv.ConvertOptions(
            include_columns=names,
            column_types=dict.fromkeys(names, pa.string()),
            strings_can_be_null=True,
            quoted_strings_can_be_null=False,
            null_values=[""],
        ),
    )
