"""JSON files: which of the ways to write rows in JSON one is in, and the types of its columns.

The types of all values decide on the type of a column. DuckDB guesses nothing: it would take text for dates and UUIDs
where it looks so, and keep a whole array in memory.
"""

from __future__ import annotations

import json
from typing import Any

from freshgo._tables.database import Database
from freshgo._tables.files import FILE, check_partitions, literal, partition_options, partitions, quoted
from freshgo._tables.packed import opened, unpacked
from freshgo._tables.table import Spec
from freshgo.errors import DTypeError, InvalidArgumentError

_LONGEST = 1 << 24
"""Bytes of the longest object: DuckDB's own bound."""

_FORMATS = {"arrays": "array", "a row on each line": "newline_delimited", "objects": "unstructured"}

_KINDS = {None: "", "NULL": "", "VARCHAR": "strings", "ARRAY": "lists", "OBJECT": "objects", "BOOLEAN": "bools"}
"""What messages call the types of JSON's values, all but those of numbers."""

_WHOLE = ("BIGINT", "UBIGINT", "HUGEINT")

_KNOWN = 1000
"""Rows whose columns a message names. Arbitrary."""


def copy_json(db: Database, spec: Spec, files: list[str]) -> str:
    """Copy the columns of JSON files that are used into the database, and return a query of the rows, with ``FILE``.

    Raises:
        InvalidArgumentError: a file is no JSON, or holds something else than objects; a column is missing.
        DTypeError: the values of a column are of several kinds.
    """
    read = {file: file for file in files}
    for file in files:
        if file.lower().endswith((".bz2", ".xz")):
            read[file] = unpacked(spec, file, db.new_file("unpacked.json"))
    forms = dict.fromkeys(_form(spec, file) for file in files)
    if len(forms) > 1:
        raise InvalidArgumentError(f"{spec.label}: files of {' and of '.join(forms)}: give a Table one of these")
    rows = _Rows(db, spec, read, _FORMATS[next(iter(forms))])
    table, columns = db.name("json"), {name: rows.type_of(name) for name in rows.columns}
    copies = " ".join(f"WHEN {literal(copy)} THEN {literal(file)}" for file, copy in read.items() if copy != file)
    name = f"CASE {quoted(FILE)} {copies} ELSE {quoted(FILE)} END" if copies else quoted(FILE)
    selected = [*map(quoted, spec.columns), f"{name} AS {quoted(FILE)}"]
    db.run(spec.label, f"CREATE TABLE {table} AS SELECT {', '.join(selected)} FROM {rows.scan(columns)}")
    return f"SELECT * FROM {table}"


class _Rows:
    """The rows of files, before their types are known."""

    def __init__(self, db: Database, spec: Spec, read: dict[str, str], form: str) -> None:
        self._db, self._spec, self._files = db, spec, list(read)
        self._options: dict[str, Any] = {
            "format": form,
            "maximum_object_size": min(_LONGEST, db.memory // 32),  # DuckDB reads twice as many bytes at a time
            **partition_options(self._files),
        }
        self._read = literal(list(read.values()))
        folders = self._options.get("hive_types", {})
        self.columns = [name for name in spec.columns if name not in folders]
        """The columns that are in the files."""
        given = ", ".join(f"{name}={literal(value)}" for name, value in self._options.items())
        self._objects = f"read_json_objects({self._read}, {given})"
        first = db.rows(spec.label, f"SELECT json_type(json), json FROM {self._objects} LIMIT 1")
        self._empty = not first
        if first and first[0][0] != "OBJECT":
            raise InvalidArgumentError(
                f"{spec.label}: {', '.join(self._files)} holds {str(first[0][1])[:60]}, expected an array of objects, "
                'or an object on each line, such as {"src": 1, "dst": 2}'
            )
        for file, copy in read.items():
            for name in set(partitions(file)) & set(spec.columns):
                there = f"json_exists(json, {literal('$.' + json.dumps(name))})"
                objects = f"read_json_objects({literal(copy)}, {given})"
                if db.rows(spec.label, f"SELECT 1 FROM {objects} WHERE {there} LIMIT 1"):
                    check_partitions(spec, file, [name])
        self._large: set[str] = set()
        """The columns with integers beyond int64."""
        self._shapes = self._structures()

    def scan(self, columns: dict[str, str]) -> str:
        """Return the table function that reads these columns."""
        options = {**self._options, "filename": FILE, "columns": columns or {"freshgo nothing": "JSON"}}
        return f"read_json({self._read}, {', '.join(f'{name}={literal(value)}' for name, value in options.items())})"

    def _structures(self) -> dict[str, Any]:
        """Return the types of all values of the columns: a name, of lists a list of one."""
        if not self.columns:
            return {}
        # json_group_structure would do, but its memory grows with the rows.
        kind = "CASE json_type({0}) WHEN 'ARRAY' THEN json_structure({0}) ELSE json_quote(json_type({0})) END"
        large = "coalesce(bool_or(json_type({0}) = 'UBIGINT' AND TRY_CAST({0} AS BIGINT) IS NULL), false)"
        asked = [f"list(DISTINCT {kind})".format(quoted(name)) for name in self.columns]
        asked += [large.format(quoted(name)) for name in self.columns]
        sql = f"SELECT {', '.join(asked)} FROM {self.scan(dict.fromkeys(self.columns, 'JSON'))}"
        found = self._db.rows(self._spec.label, sql)[0]
        self._large = {name for name, large in zip(self.columns, found[len(self.columns) :], strict=True) if large}
        shapes = zip(self.columns, found[: len(self.columns)], strict=True)
        return {name: _merged([json.loads(x) for x in some or [] if x is not None]) for name, some in shapes}

    def type_of(self, name: str) -> str:
        """Return the type in which a column is read."""
        shape, suffix = self._shapes[name], ""
        if shape == "NULL":
            self._check_there(name)
            return "BIGINT"
        if name in self._spec.table.types and not isinstance(shape, list):
            return "VARCHAR"
        while isinstance(shape, list):
            shape, suffix = shape[0], f"{suffix}[]"
        if shape in _WHOLE or (shape == "NULL" and suffix):
            return (
                f"BIGINT{suffix}"
                if suffix or name not in self._large
                else "UBIGINT"
                if shape == "UBIGINT"
                else "HUGEINT"
            )
        if shape in ("DOUBLE", "BOOLEAN", "VARCHAR"):
            return f"{shape}{suffix}"
        inside = f"unnest(CAST({quoted(name)} AS JSON[]))" if suffix else quoted(name)
        rows = self.scan({name: "JSON"})
        found = self._db.rows(self._spec.label, f"SELECT DISTINCT json_type(v) FROM (SELECT {inside} AS v FROM {rows})")
        kinds = sorted({_KINDS.get(kind, "numbers") for (kind,) in found} - {""})
        raise DTypeError(
            f"{self._spec.label}: {', '.join(self._files)}: the column {name!r} holds {'lists of ' * bool(suffix)}"
            f"{' and '.join(kinds)}, expected one kind: numbers, strings, bools, or lists of numbers (types= of the "
            "Table converts them)"
        )

    def _check_there(self, name: str) -> None:
        """Refuse a column without a value that no row has."""
        path = literal("$." + json.dumps(name))
        there = f"SELECT bool_or(json_exists(json, {path})) FROM {self._objects}"
        if not self._empty and not self._db.rows(self._spec.label, there)[0][0]:
            some = f"SELECT json FROM {self._objects} LIMIT {_KNOWN}"
            found = self._db.rows(
                self._spec.label, f"SELECT DISTINCT unnest(json_keys(json)) AS k FROM ({some}) ORDER BY k"
            )
            self._spec.check_columns([n for n in self._spec.columns if n not in self.columns] + [k for (k,) in found])


def _merged(shapes: list[Any]) -> Any:
    """Return the type that holds values of all these types, ``"JSON"`` if none does."""
    found = [shape for shape in shapes if shape != "NULL"]
    lists = [shape[0] for shape in found if isinstance(shape, list)]
    names = {shape for shape in found if isinstance(shape, str)}
    if not found:
        return "NULL"
    if lists:
        return "JSON" if len(lists) < len(found) else [_merged(lists)]
    if len(names) == 1 and all(isinstance(shape, str) for shape in found):
        return names.pop()
    if names <= {*_WHOLE, "DOUBLE"}:
        return "DOUBLE" if "DOUBLE" in names else "HUGEINT"
    return "JSON"


def _form(spec: Spec, file: str) -> str:
    """Return how a file has its rows: in arrays, or one object after the other."""
    with opened(spec, file) as text:
        line = text.readline(_LONGEST).removeprefix(b"\xef\xbb\xbf")
        while line and not line.strip():
            line = text.readline(_LONGEST)
    if line.lstrip()[:1] == b"[":
        return "arrays"
    try:
        json.loads(line)
    except ValueError:
        return "objects"
    return "a row on each line"
