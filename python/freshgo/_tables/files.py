"""The files of a table, their format, and the way DuckDB reads them."""

from __future__ import annotations

import glob
import gzip
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any
from urllib.parse import unquote

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

_LISTS = frozenset({".txt", ".edgelist", ".edges", ".el", ".tab", ".dat"})
"""Suffixes of text where the file is named, rather than found in a directory."""

_GRAPHS = {
    ".mtx": "MatrixMarket",
    ".graphml": "GraphML",
    ".gml": "GML",
    ".gexf": "GEXF",
    **dict.fromkeys((".net", ".paj"), "Pajek"),
}

_NO_VALUE = "__HIVE_DEFAULT_PARTITION__"
"""The name of a directory whose rows have null in the column."""

_INTEGER = re.compile(r"-?[0-9]{1,19}", re.ASCII)
_DATE = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}", re.ASCII)


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
            raise StoreNotFoundError(2, f"no such file or directory; it is the source of {spec.label}", str(path))
        files.update(dict.fromkeys(str(file) for file in sorted(found) if file.is_file()))
    formats = {file: spec.table.format or _format(Path(file)) or _text_format(spec, file) for file in files}
    if len(set(formats.values())) != 1:
        raise InvalidArgumentError(f"{spec.label}: files of several formats: {sorted(map(str, set(formats.values())))}")
    form = str(next(iter(formats.values())))
    if form in ("csv", "json"):  # which are empty without a header too
        return [file for file in files if not _empty(file)], form
    return list(files), form


def _text_format(spec: Spec, file: str) -> str:
    """Return the format of a file whose name does not say it: lists of edges are text, and so is what has options of
    text."""
    suffix = next((end for end in Path(file.lower()).suffixes[::-1] if end not in _PACKED), "")
    if suffix in _GRAPHS:
        raise InvalidArgumentError(
            f"{spec.label}: {file} is a graph, not a table: freshgo.convert({file!r}, path) reads {_GRAPHS[suffix]}"
        )
    dialect = spec.dialect
    if suffix in _LISTS or dialect.delimiter or dialect.names or dialect.comment or dialect.header is not None:
        return "csv"
    known = ", ".join(suffix for suffix in _SUFFIXES if not suffix.endswith(_PACKED[1:]))
    raise InvalidArgumentError(
        f"{spec.label}: the name of {file} does not say its format: expected {known}, of text also with "
        f"{', '.join(_PACKED[1:])}; format= says it for another name, and a frame of pandas or polars takes the place "
        "of a file that they alone read"
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


def partitions(file: str) -> dict[str, str | None]:
    """Return the columns that directories are, ``year=2020``, and their values as text."""
    pairs = (part.split("=", 1) for part in Path(file).parts[:-1] if "=" in part)
    return {unquote(name): None if value == _NO_VALUE else unquote(value) for name, value in pairs}


def check_partitions(spec: Spec, file: str, names: Iterable[str]) -> None:
    """Refuse a file that has a column which a directory is: nothing says which of the two is meant."""
    folders = partitions(file)
    for name in {*names} & {*folders} & {*spec.columns}:
        raise InvalidArgumentError(
            f"{spec.label}: {file} has a column {name!r}, and so has its directory {name}={folders[name]}: rename one"
        )


def partition_types(files: list[str]) -> dict[str, str]:
    """Return the types of the columns that directories are: what all values are, and text as it stands."""
    values: dict[str, set[str | None]] = {}
    for file in files:
        for name, value in partitions(file).items():
            values.setdefault(name, set()).add(value)
    types = {}
    for name, texts in values.items():
        found = {text for text in texts if text is not None}
        kinds = ["BIGINT"] * all(map(_is_plain, found)) + ["DATE"] * all(map(_DATE.fullmatch, found))
        types[name] = kinds[0] if found and kinds else "VARCHAR"
    return types


def _is_plain(text: str) -> bool:
    """Whether text is an integer of 64 bits as it is printed."""
    return bool(_INTEGER.fullmatch(text)) and str(int(text)) == text and -(1 << 63) <= int(text) < 1 << 63


def partition_options(files: list[str]) -> dict[str, Any]:
    """Return the options with which DuckDB reads the columns that directories are."""
    types = partition_types(files)
    return {"hive_partitioning": True, "hive_types_autocast": False, "hive_types": types} if types else {}


def scan(files: list[str]) -> str:
    """Return the table function that reads Parquet files, with a column ``filename``."""
    options: dict[str, Any] = {"union_by_name": True, "filename": True, **partition_options(files)}
    given = ", ".join(f"{name}={literal(value)}" for name, value in options.items())
    return f"read_parquet({literal(files)}, {given})"


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
