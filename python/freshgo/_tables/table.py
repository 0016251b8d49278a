"""What a user says of a table, checked as far as it can be without reading it."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from freshgo._args import fields
from freshgo._args.checks import choice, flag, shown
from freshgo._args.choices import TableFormat
from freshgo._args.entry import entry
from freshgo._args.hints import among, did_you_mean
from freshgo._args.named import check_name
from freshgo._args.types import UNNAMED, EdgeType
from freshgo._args.urls import is_url, local_path
from freshgo._text.dialect import Dialect
from freshgo.errors import DTypeError, InvalidArgumentError

if TYPE_CHECKING:
    from freshgo._tables.like import TableLike


@entry
@dataclasses.dataclass(frozen=True, repr=False)
class Table:
    """A table of nodes or of edges, for :func:`freshgo.convert_tables`.

    A table of nodes needs ``id``, one of edges ``src`` and ``dst``. Columns that nothing names are not read.

    Args:
        source: a path, a pattern such as ``"users/*.parquet"``, or a list of these, which have no file twice; a
            directory stands for all files below it, and directories named ``key=value`` are columns (as Spark and
            DuckDB write them). Each may be a URL that ``fsspec`` knows, such as ``"s3://bucket/users"`` (``pip install
            'freshgo[remote]'``). Or a mapping from names to columns (lists, arrays, tensors), a ``pyarrow.dataset``, a
            pyarrow table or reader, a DuckDB relation, a pandas or polars frame (a LazyFrame too), or another object
            with ``__arrow_c_stream__``.
        id: the column with the key of each node: integers, strings or UUIDs, each once.
        src: the column with the keys of the nodes where edges begin.
        dst: the column with the keys of the nodes where edges end.
        relation: the column with the name of each edge's relation, strings or integers: every value becomes an edge
            type, in the order of the values. ``edges`` of :func:`freshgo.convert_tables` is then one Table, or maps
            ``("author", "*", "paper")`` to it.
        features: columns that become the tensor ``x`` of nodes or ``edge_attr`` of edges, float32, side by side in this
            order. Columns of numbers are one column of the tensor, lists of equal length and arrays as many as they
            have elements.
        label: the column that becomes ``y`` of nodes: whole numbers and bools become int64, other numbers float32,
            strings int64, see ``tensors``.
        split: a column of strings: each value is the name of a split of its nodes, null means none.
        time: the column that becomes ``time``, int64. Whole numbers stay as they are; dates and timestamps become
            microseconds since 1970, UTC if they have no zone; a fraction of a microsecond is an error.
        weight: the column that becomes ``edge_weight`` of edges, float32.
        tensors: further tensors, by name: a column or a list of columns. They are bool if all columns are, int64 if
            all hold whole numbers, bools or strings, else float32. Strings become their places in the sorted list of
            all values, ``store.categories(column)``.
        reverse: also add the edges in the other direction, with the same tensors: as the edge type ``("item",
            "rev_buys", "user")``, or in a homogeneous graph as further edges.
        nulls: what stands for missing values: ``"error"``, a number, or a mapping from columns to these (for columns of
            strings a string). In a list it stands for each element. A null list needs a number too. Keys are never
            null. A NaN among numbers is a missing value, wherever it comes from; ``float("nan")`` keeps it.
        types: DuckDB's names of the types of columns, as ``{"uid": "VARCHAR"}``, where those that were found are not
            meant. A value that does not convert exactly is an error.
        format: ``"parquet"``, ``"csv"`` (any text with delimiters), ``"json"`` (an array of objects, or an object on
            each line), ``"arrow"`` (files and streams of Arrow IPC), ``"orc"``, ``"sqlite"`` or ``"duckdb"`` where the
            names of the files do not tell.
        table: the table or view in a file of SQLite or DuckDB, where it holds several; of another schema of DuckDB
            ``"schema.table"``.
        header: whether the first row of text files has the names of the columns. None: it has, and all columns that are
            used must be among them. False needs ``names``.
        names: the names of the columns of text files from left to right. They need ``header``: False where the first
            row is data, True where it has names that these replace.
        delimiter: the character between fields of text files; ``" "`` is any run of spaces, ``"whitespace"`` any run of
            spaces and tabs. None: the one of ``, ; |`` and tab that separates the names in the first row.
        quote: the character around fields that hold delimiters, quotes or line ends; inside, it is written twice. None:
            quotes are text.
        escape: the character before a character that is text, such as ``"\\"``. None: there is none.
        comment: the beginning of lines to leave out, such as ``"#"``. None: every line counts.
        decimal: the character before the fraction of a number in text files, ``"."`` or ``","``.
        null: a text, or a list of texts, that stands for a missing value in text files, as an empty field does, in all
            columns but keys and ``relation``; or a mapping from columns, which may be keys, to these. ``nulls`` says
            how to fill missing values.
        date_format: the format of dates that are text, as for ``strptime``: ``"%d/%m/%Y"``. It counts for ``time`` and
            for dates in ``types``. None: ISO 8601, ``2020-03-31`` or ``2020-03-31 23:59:59``.
        encoding: the encoding of text files, as Python names it: ``"utf-8"``, ``"utf-16"``, ``"latin-1"``.
    """

    source: TableLike
    id: str | None = None
    src: str | None = None
    dst: str | None = None
    relation: str | None = None
    features: Sequence[str] = ()
    label: str | None = None
    split: str | None = None
    time: str | None = None
    weight: str | None = None
    tensors: Mapping[str, str | Sequence[str]] = dataclasses.field(default_factory=dict)
    reverse: bool = False
    nulls: Literal["error"] | float | Mapping[str, str | float] = "error"
    types: Mapping[str, str] = dataclasses.field(default_factory=dict)
    format: TableFormat | None = None
    table: str | None = None
    header: bool | None = None
    names: Sequence[str] | None = None
    delimiter: str | None = None
    quote: str | None = '"'
    escape: str | None = None
    comment: str | None = None
    decimal: Literal[".", ","] = "."
    null: str | Sequence[str] | Mapping[str, str | Sequence[str]] = ()
    date_format: str | None = None
    encoding: str = "utf-8"

    def __repr__(self) -> str:
        return fields.shown(self, source=_source_shown(self.source))


_OF_TEXT = frozenset({"header", "names", "delimiter", "quote", "escape", "comment", "decimal", "null", "encoding"})


@dataclasses.dataclass(frozen=True)
class Spec:
    """One table of a graph: a :class:`Table` and what it belongs to."""

    of: str | EdgeType
    table: Table
    label: str
    """What messages call it."""
    tensors: dict[str, list[str]]
    """The columns of every tensor."""
    dialect: Dialect
    """How text files are written."""

    @property
    def keys(self) -> list[str]:
        """The columns of keys."""
        return [name for name in (self.table.id, self.table.src, self.table.dst) if name is not None]

    @property
    def columns(self) -> list[str]:
        """All columns that are read, each once."""
        others = [name for name in (self.table.relation, self.table.split) if name is not None]
        return list(dict.fromkeys([*self.keys, *(c for columns in self.tensors.values() for c in columns), *others]))

    @property
    def unfilled(self) -> list[str]:
        """The columns of tensors whose nulls are errors."""
        return list(dict.fromkeys(c for columns in self.tensors.values() for c in columns if self.fill(c) is None))

    def check_columns(self, there: Iterable[str], hint: str = "") -> None:
        """Refuse a table that lacks a column; ``hint`` ends the message where no name is near."""
        known = list(there)
        self.check_twice(known)
        for column in self.columns:
            if column not in known:
                hint = did_you_mean(column, known) or hint
                raise InvalidArgumentError(f"{self.label} has no column {column!r}, it has {shown(known)}{hint}")

    def check_file(self, file: str, there: Iterable[str]) -> None:
        """Refuse one of several files that lacks a column where a null is an error, or an end of an edge."""
        known = list(there)
        filled = {c for columns in self.tensors.values() for c in columns} - {*self.unfilled, *self.keys}
        for column in self.columns:
            if column not in known and column not in filled and column != self.table.split:
                hint = did_you_mean(column, known)
                raise InvalidArgumentError(
                    f"{self.label}: {file} has no column {column!r}, it has {shown(known)}{hint}"
                )

    def check_twice(self, there: Sequence[str]) -> None:
        """Refuse a table that has a column twice."""
        for column in self.columns:
            if (count := there.count(column)) > 1:
                raise InvalidArgumentError(f"{self.label} has {count} columns {column!r}, expected one")

    def fill(self, column: str) -> Any:
        """Return what stands for a null in a column, None if it is an error."""
        nulls = self.table.nulls
        value = nulls.get(column, "error") if isinstance(nulls, Mapping) else nulls
        return None if isinstance(value, str) and value == "error" else value

    def null_texts(self, column: str) -> tuple[str, ...]:
        """Return the texts that stand for null in a column of a text file."""
        null = self.table.null
        if isinstance(null, Mapping):
            null = null.get(column, ())
        elif column in self.keys or column == self.table.relation:
            return ()
        return (null,) if isinstance(null, str) else tuple(null)


def spec_of(of: str | EdgeType, table: object) -> Spec:
    """Check a table and give its tensors their names.

    Raises:
        InvalidArgumentError, DTypeError: what a table of this kind cannot have, or must have
    """
    nodes = isinstance(of, str)
    label = ("nodes" if nodes else "edges") + ("" if of in ("", UNNAMED) else f"[{of!r}]")
    if not isinstance(table, Table):
        raise DTypeError(f"{label} must be a freshgo.Table, got {shown(table)}")
    needed, others = (
        (("id",), ("src", "dst", "relation", "weight")) if nodes else (("src", "dst"), ("id", "label", "split"))
    )
    for name in needed:
        if getattr(table, name) is None:
            raise InvalidArgumentError(f"{label} needs {name}=, the column with the keys of its nodes")
    for name in others:
        if getattr(table, name) is not None:
            raise InvalidArgumentError(f"{label} is a table of {'nodes' if nodes else 'edges'}: {name}= is not for it")
    if flag(f"{label}: reverse", table.reverse) and nodes:
        raise InvalidArgumentError(f"{label} is a table of nodes: reverse= is for edges")
    for name in (*needed, "relation", "table", "label", "split", "time", "weight"):
        value = getattr(table, name)
        if value is not None and not isinstance(value, str):
            raise DTypeError(f"{label}: {name} must be the name of a column, got {shown(value)}")
    if table.format is not None:
        choice(f"{label}: format", table.format, TableFormat)
    if not isinstance(table.types, Mapping):
        raise DTypeError(f"{label}: types must be a mapping from columns to DuckDB's types, got {shown(table.types)}")
    tensors: dict[str, list[str]] = {}
    given = {
        "x" if nodes else "edge_attr": _names(f"{label}: features", table.features),
        "y": [table.label] if table.label else [],
        "time": [table.time] if table.time else [],
        "edge_weight": [table.weight] if table.weight else [],
    }
    if not isinstance(table.tensors, Mapping):
        raise DTypeError(f"{label}: tensors must be a mapping from names to columns, got {shown(table.tensors)}")
    tensors.update({name: columns for name, columns in given.items() if columns})
    for name, columns in table.tensors.items():
        if not isinstance(name, str):
            raise DTypeError(f"{label}: the names in tensors must be strings, got {shown(name)}")
        if name in tensors:
            raise InvalidArgumentError(f"{label}: the name {name!r} in tensors is taken, choose another")
        check_name(name, f"{label}: the name {name!r} in tensors")
        tensors[name] = _names(f"{label}: tensors[{name!r}]", columns)
        if not tensors[name]:
            raise InvalidArgumentError(f"{label}: tensors[{name!r}] has no columns")
    marks = {name: getattr(table, name) for name in ("header", "names", "delimiter", "quote", "escape", "comment")}
    spec = Spec(of, table, label, tensors, Dialect(label, **marks, encoding=table.encoding))
    _check_nulls(spec)
    _check_text(spec)
    return spec


def _names(name: str, value: object) -> list[str]:
    names = [value] if isinstance(value, str) else list(value) if isinstance(value, Sequence) else None
    if names is None or not all(isinstance(one, str) for one in names):
        raise DTypeError(f"{name} must be the name of a column or a list of these, got {shown(value)}")
    if len(set(names)) < len(names):
        raise InvalidArgumentError(f"{name} names a column twice: {names}")
    return names


def _check_nulls(spec: Spec) -> None:
    nulls = spec.table.nulls
    values = nulls if isinstance(nulls, Mapping) else {"": nulls}
    for column, value in values.items():
        if column and column not in spec.columns:
            raise InvalidArgumentError(
                f"{spec.label}: nulls names the column {column!r}, which is not used: in use are "
                f"{among(column, spec.columns)}"
            )
        if isinstance(value, bool) or not isinstance(value, int | float | str):
            raise DTypeError(f"{spec.label}: nulls must be 'error', a number or a string, got {shown(value)}")
    if isinstance(nulls, str) and nulls != "error":
        raise InvalidArgumentError(f"{spec.label}: nulls must be 'error', a number or a mapping, got {nulls!r}")


def _check_text(spec: Spec) -> None:
    """Check the options of text files that :class:`Dialect` does not have."""
    table, label = spec.table, spec.label
    choice(f"{label}: decimal", table.decimal, (".", ","))
    if table.decimal == table.delimiter:
        raise InvalidArgumentError(f"{label}: delimiter and decimal are both {table.decimal!r}")
    if table.date_format is not None and not isinstance(table.date_format, str):
        raise DTypeError(f"{label}: date_format must be a string such as '%d/%m/%Y', got {shown(table.date_format)}")
    for column, texts in (table.null if isinstance(table.null, Mapping) else {"": table.null}).items():
        if column and column not in spec.columns:
            raise InvalidArgumentError(f"{label}: null names the column {column!r}, which is not used")
        if not isinstance(texts, str) and not (
            isinstance(texts, Sequence) and all(isinstance(text, str) for text in texts)
        ):
            raise DTypeError(f"{label}: null must be a string, a list of strings or a mapping, got {shown(texts)}")


def check_format(spec: Spec, form: str) -> None:
    """Refuse options of text files for a source of another format, or for an object that holds rows."""
    for field in dataclasses.fields(Table):
        if field.name in _OF_TEXT and getattr(spec.table, field.name) != field.default:
            raise InvalidArgumentError(
                f"{spec.label}: {field.name}= is for text files such as CSV, but the source is "
                f"{form or type(spec.table.source).__name__} (format='csv' reads a file as text)"
            )


def paths_of(source: object) -> list[Any] | None:
    """Return the paths and patterns that a source is, URLs as strings; None if it is an object that holds rows."""
    if isinstance(source, str | os.PathLike):
        source = [source]
    if isinstance(source, list | tuple) and source and all(isinstance(one, str | os.PathLike) for one in source):
        return [one if is_url(one) else Path(local_path(os.fspath(one))) for one in source]
    return None


def _source_shown(source: object) -> str:
    """Say which table it is: its path, or its kind and size, and none of its rows."""
    if isinstance(source, str | os.PathLike):
        return repr(os.fspath(source))
    if isinstance(source, list | tuple) and source:
        more = f" and {len(source) - 1} more" if len(source) > 1 else ""
        return f"<{_source_shown(source[0])}{more}>" if more else f"[{_source_shown(source[0])}]"
    if isinstance(source, Mapping):
        return f"<columns {', '.join(map(repr, source))}>"
    kind = type(source)
    named = f"{kind.__module__.partition('.')[0]}.{kind.__name__}"
    size = (
        getattr(source, "shape", None) if kind.__name__ in ("DataFrame", "Table") else None
    )  # others would compute it
    return f"<{named}>" if size is None else f"<{named} of {size[0]:,} rows and {size[1]:,} columns>"
