"""JSON files: which of the ways to write rows in JSON one is in, and the types of its columns.

DuckDB finds out which columns there are, and which hold numbers; text stays text, though it would take some of it for
dates or UUIDs.
"""

from __future__ import annotations

import json
from typing import Any

from freshgo._tables.database import Database
from freshgo._tables.files import literal, partition_options, quoted
from freshgo._tables.packed import opened, unpacked
from freshgo._tables.table import Spec
from freshgo.errors import DTypeError, InvalidArgumentError

_FIRST_LINE = 1 << 24
"""Bytes of the longest object: DuckDB's own bound."""

_KINDS = {None: "", "NULL": "", "VARCHAR": "strings", "ARRAY": "lists", "OBJECT": "objects", "BOOLEAN": "bools"}
"""What messages call the types of JSON's values, all but those of numbers."""


def scan_json(db: Database, spec: Spec, read: dict[str, str]) -> str:
    """Return a query of the rows of JSON files, with a column ``filename``; ``read`` has the copies that stand for
    files, and gets one for each that DuckDB does not decompress.

    Raises:
        InvalidArgumentError: a file is no JSON, or holds something else than objects; a column holds several kinds.
    """
    for file in read:
        if file.lower().endswith((".bz2", ".xz")):
            read[file] = unpacked(spec, file, db.new_file("unpacked.json"))
    forms = dict.fromkeys(_form(spec, file) for file in read)
    if len(forms) > 1:
        raise InvalidArgumentError(f"{spec.label}: files of {' and of '.join(forms)}: give a Table one of these")
    (form,) = forms
    options: dict[str, Any] = {"filename": True, "format": _FORMATS[form], **partition_options(list(read))}
    files = literal(list(read.values()))
    # All rows decide on the types; an object with many keys is a row with many columns, not a map.
    find = {"union_by_name": True, "sample_size": -1, "maximum_depth": 8, "map_inference_threshold": -1}
    types = db.types(spec.label, f"SELECT * FROM read_json({files}, {_given(options | find)})")
    names = [name for name in types if name != "filename"]
    if not db.rows(spec.label, f"SELECT 1 FROM read_json({files}, {_given(options | find)}) LIMIT 1"):
        empty = ", ".join(f"CAST(NULL AS VARCHAR) AS {quoted(name)}" for name in [*spec.columns, "filename"])
        return f"SELECT {empty} WHERE false"
    if names == ["json"] and "json" not in spec.columns:
        raise InvalidArgumentError(
            f"{spec.label}: {', '.join(read)} holds {types['json']}, expected an array of objects, or an object on "
            f'each line, such as {{"src": 1, "dst": 2}}'
        )
    spec.check_columns(names)
    columns = {name: _type(spec, name, str(types[name])) for name in spec.columns}
    for name in [name for name, kind in columns.items() if "JSON" in kind]:
        columns[name] = "BIGINT"  # of nulls alone
        rows = f"read_json({files}, {_given(options | {'columns': {name: 'JSON'}})})"
        found = db.rows(spec.label, f"SELECT DISTINCT json_type({quoted(name)}) FROM {rows}")
        if kinds := sorted({_KINDS.get(kind, "numbers") for (kind,) in found} - {""}):
            raise DTypeError(
                f"{spec.label}: {', '.join(read)}: the column {name!r} holds {' and '.join(kinds)}, expected one kind: "
                "numbers, strings, or lists of numbers (types= of the Table converts them)"
            )
    return f"SELECT * FROM read_json({files}, {_given(options | {'columns': columns})})"


_FORMATS = {"arrays": "array", "a row on each line": "newline_delimited", "objects": "unstructured"}


def _given(options: dict[str, Any]) -> str:
    return ", ".join(f"{name}={literal(value)}" for name, value in options.items())


def _type(spec: Spec, name: str, found: str) -> str:
    """Return the type in which a column is read."""
    if name in spec.table.types or found in ("DATE", "TIME", "UUID") or found.startswith("TIMESTAMP"):
        return "VARCHAR"
    return found


def _form(spec: Spec, file: str) -> str:
    """Return how a file has its rows: in arrays, or one object after the other."""
    with opened(spec, file) as text:
        line = text.readline(_FIRST_LINE).removeprefix(b"\xef\xbb\xbf")
        while line and not line.strip():
            line = text.readline(_FIRST_LINE)
    if line.lstrip()[:1] == b"[":
        return "arrays"
    try:
        json.loads(line)
    except ValueError:
        return "objects"
    return "a row on each line"
