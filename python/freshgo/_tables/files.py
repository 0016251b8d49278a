"""The files of a table: which they are, of which format, and how DuckDB reads them."""

from __future__ import annotations

import glob
import gzip
from pathlib import Path
from typing import Any

from freshgo._tables.table import Spec
from freshgo.errors import InvalidArgumentError, StoreNotFoundError

FILE = "freshgo file"
"""The column that says which file a row is from."""

DATABASES = ("sqlite", "duckdb")
"""Formats of files that hold several tables."""

_PACKED = ("", ".gz", ".bz2", ".xz", ".zst")

_SUFFIXES = {
    **dict.fromkeys((".parquet", ".pq"), "parquet"),
    **{f"{suffix}{packed}": "csv" for suffix in (".csv", ".tsv") for packed in _PACKED},
    **{f"{suffix}{packed}": "json" for suffix in (".json", ".jsonl", ".ndjson") for packed in _PACKED},
    **dict.fromkeys((".arrow", ".arrows", ".feather", ".ipc"), "arrow"),
    ".orc": "orc",
    **dict.fromkeys((".sqlite", ".sqlite3", ".db3"), "sqlite"),
    **dict.fromkeys((".duckdb", ".ddb"), "duckdb"),
}

_MAGIC = {"sqlite": (0, b"SQLite format 3\x00"), "duckdb": (8, b"DUCK")}
"""Where in a file named .db what says whose it is."""


def find(spec: Spec, paths: list[Path]) -> tuple[list[str], str]:
    """Return all files of a table, sorted, and their format.

    Raises:
        StoreNotFoundError: there are none.
        InvalidArgumentError: the format is not known, or there are several.
    """
    files: dict[str, None] = {}
    for path in paths:
        if path.is_dir():
            found = [file for file in path.rglob("*") if file.is_file() and not _hidden(file.relative_to(path))]
            if spec.table.format is None:
                found = [file for file in found if _format(file)]
        else:
            found = [path] if path.is_file() else _matching(path)
        if not found:
            raise StoreNotFoundError(2, f"{spec.label}: no file of a table is there", str(path))
        files.update(dict.fromkeys(str(file) for file in sorted(found) if file.is_file()))
    formats = {file: spec.table.format or _format(Path(file)) for file in files}
    for file, form in formats.items():
        if form is None:
            raise InvalidArgumentError(f"{spec.label}: {_unknown(file)}")
    if len(set(formats.values())) != 1:
        raise InvalidArgumentError(f"{spec.label}: files of several formats: {sorted(map(str, set(formats.values())))}")
    form = str(next(iter(formats.values())))
    if form in ("csv", "json"):  # which are empty without a header too
        return [file for file in files if not _empty(file)], form
    return list(files), form


def _unknown(file: str) -> str:
    """Say what is known of files, where the format of one is not."""
    known = ", ".join(suffix for suffix in _SUFFIXES if not suffix.endswith(_PACKED[1:]))
    return (
        f"the name of {file} does not say its format: expected {known}, of text also with {', '.join(_PACKED[1:])}; "
        "format= says it for another name, and a frame of pandas or polars takes the place of a file that they alone "
        "read"
    )


def _matching(path: Path) -> list[Path]:
    return [Path(name) for name in glob.glob(str(path), recursive=True)]  # noqa: PTH207 (absolute ones too)


def _hidden(path: Path) -> bool:
    """Whether a file is one of those that writers leave beside the data: _SUCCESS, .crc files."""
    return any(part.startswith(("_", ".")) for part in path.parts)


def _format(path: Path) -> str | None:
    name = path.name.lower()
    if name.endswith(".db"):
        with path.open("rb") as opened:
            head = opened.read(16)
        return next((form for form, (at, magic) in _MAGIC.items() if head[at:].startswith(magic)), None)
    return next((form for suffix, form in _SUFFIXES.items() if name.endswith(suffix)), None)


def _empty(file: str) -> bool:
    if Path(file).stat().st_size == 0:
        return True
    if not file.lower().endswith(".gz"):
        return False
    with gzip.open(file) as opened:
        return not opened.read(1)


def partitioned(files: list[str]) -> bool:
    """Whether directories are columns: ``year=2020``."""
    return any("=" in part for file in files for part in Path(file).parts[:-1])


def scan(spec: Spec, files: list[str], form: str, types: dict[str, str], header: bool | None = None) -> str:
    """Return the table function that reads files, with a column ``filename``. ``header``: CSV has names in its first
    line; None: DuckDB finds out."""
    options: dict[str, Any] = {"union_by_name": True, "filename": True, "hive_partitioning": partitioned(files)}
    if form == "csv":
        # All rows decide on the types, so that their order does not.
        options |= {"sample_size": -1, "encoding": spec.table.encoding, "types": types or None, "header": header}
    elif form == "json":
        # An object with many keys is a row with many columns, not a map.
        options |= {"sample_size": -1, "maximum_depth": 8, "format": "newline_delimited", "map_inference_threshold": -1}
    given = ", ".join(f"{name}={literal(value)}" for name, value in options.items() if value is not None)
    return f"read_{form}({literal(files)}, {given})"


def literal(value: Any) -> str:
    """Return a value in SQL."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return "'" + value.replace("'", "''") + "'"
    if isinstance(value, list):
        return "[" + ", ".join(map(literal, value)) + "]"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{literal(k)}: {literal(v)}" for k, v in value.items()) + "}"
    if isinstance(value, float):
        return f"'{value!r}'::DOUBLE"
    return str(value)


def quoted(name: str) -> str:
    """Return the name of a column in SQL."""
    return '"' + name.replace('"', '""') + '"'
