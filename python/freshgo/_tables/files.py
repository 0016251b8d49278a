"""The files of a table, their format, and the way DuckDB reads them."""

from __future__ import annotations

import glob
import os
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from freshgo._tables.packed import opened
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

_BEGINNINGS = {
    b"\x1f\x8b": ("gzip", "name it *.gz"),
    b"BZh": ("bzip2", "name it *.bz2"),
    b"\xfd7zXZ\0": ("xz", "name it *.xz"),
    b"\x28\xb5\x2f\xfd": ("Zstandard", "name it *.zst"),
    b"PK\x03\x04": ("a ZIP archive, as Excel's files too", "unpack it, or read it with pandas"),
    b"\xd0\xcf\x11\xe0": ("an old Excel file", "read it with pandas"),
    b"PAR1": ("Parquet", "format='parquet' reads it"),
    b"ARROW1": ("Arrow IPC", "format='arrow' reads it"),
    b"FEA1": ("the first version of Feather", "pyarrow.feather.read_table reads it"),
    b"ORC": ("ORC", "format='orc' reads it"),
    b"SQLite format 3\0": ("SQLite", "format='sqlite' reads it"),
    b"DUCK": ("DuckDB", "format='duckdb' reads it"),
    b"\x89HDF": ("HDF5", "read it with h5py or pandas"),
    b"\x93NUMPY": ("a .npy array", "freshgo.convert reads it"),
    b"Obj\x01": ("Avro", "read it with polars"),
}
"""How files of a format begin, what messages call the format, and how it is read."""

_LISTS = frozenset({".txt", ".edgelist", ".edges", ".el", ".tab", ".dat"})
"""Suffixes of text where the file is named, rather than found in a directory."""

_GRAPHS = {
    ".mtx": "MatrixMarket",
    ".graphml": "GraphML",
    ".gml": "GML",
    ".gexf": "GEXF",
    **dict.fromkeys((".net", ".paj"), "Pajek"),
}

_FRAMES = "; read other formats with pandas or polars and give the frame"

_NO_VALUE = "__HIVE_DEFAULT_PARTITION__"
"""The name of a directory whose rows have null in the column."""

_INTEGER = re.compile(r"-?[0-9]{1,19}", re.ASCII)
_DATE = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}", re.ASCII)


def find(spec: Spec, paths: list[Path]) -> tuple[list[str], str]:
    """Return all files of a table, sorted, and their format.

    Raises:
        StoreNotFoundError: there are none.
        InvalidArgumentError: the format is not known, or there are several; a table in a directory has a name that
            does not say its format, so that it would be left out; a file is there twice, or may be meant or not.
    """
    names: dict[str, str] = {}
    for path in paths:
        found = _in(spec, path) if path.is_dir() else [path] if path.is_file() else _matching(spec, path)
        if not found:
            missing = "no table in this directory" if path.is_dir() else "no such file or directory"
            raise StoreNotFoundError(2, f"{missing}; it is the source of {spec.label}", str(path))
        for file in sorted(found):
            name, known = str(file), names.get(real := os.path.realpath(file))
            if known is not None:
                other = "" if known == name else f", once as {known}"
                raise InvalidArgumentError(f"{spec.label}: the source has the file {name} twice{other}: leave one out")
            names[real] = name
    files = list(names.values())
    formats = {file: spec.table.format or _format(Path(file)) or _text_format(spec, file) for file in files}
    if len(set(formats.values())) != 1:
        raise InvalidArgumentError(f"{spec.label}: files of several formats: {sorted(map(str, set(formats.values())))}")
    form = str(next(iter(formats.values())))
    if form in ("csv", "json"):  # which are empty without a header too
        full = [file for file in files if not _empty(spec, file)]
        without_header = form == "csv" and spec.dialect.header is False  # an empty file is a table without rows
        return full or files[: int(without_header)], form
    return files, form


def _in(spec: Spec, directory: Path) -> list[Path]:
    """Return the tables below a directory."""
    found = [file for file in directory.rglob("*") if file.is_file() and not _hidden(file.relative_to(directory))]
    return found if spec.table.format is not None else _tables(spec, found)


def _tables(spec: Spec, found: list[Path]) -> list[Path]:
    """Return the tables among the files of a directory, by their names."""
    tables = [file for file in found if _format(file)]
    for file in sorted({*found} - {*tables}):
        begins = begins_as(str(file))
        if "format=" in begins:
            raise InvalidArgumentError(f"{spec.label}: the name of {file} does not say its format{begins}")
    return tables


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
        f"{', '.join(_PACKED[1:])}; pass format= where the name is another{begins_as(file) or _FRAMES}"
    )


def _matching(spec: Spec, path: Path) -> list[Path]:
    """Return the files that a pattern matches or, where these are directories alone, the tables below them."""
    found = [Path(name) for name in sorted(glob.glob(str(path), recursive=True))]  # noqa: PTH207 (absolute ones too)
    files = [match for match in found if match.is_file()]
    below = dict.fromkeys(file for match in found if match.is_dir() for file in _in(spec, match))
    left = next((file for file in below if file not in files), None)
    if files and left is not None:
        raise InvalidArgumentError(
            f"{spec.label}: {path} matches files, and the directory of {left}: name what is meant in a list"
        )
    return files or [*below]


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


def begins_as(file: str, form: str = "") -> str:
    """Return the end of a message about a file that is not of its format: what it is by its first bytes, and how to
    read it; nothing where they do not say it, or say its format."""
    with Path(file).open("rb") as content:
        head = content.read(16)
    if head[8:12] == b"DUCK":
        head = b"DUCK" + head
    found = next((known for magic, known in _BEGINNINGS.items() if head.startswith(magic)), None)
    if found is None or f"'{form}'" in found[1] or not any(byte < 9 or byte > 126 for byte in head):
        return ""
    return f", but it begins as {found[0]}: {found[1]}"


def _empty(spec: Spec, file: str) -> bool:
    if Path(file).stat().st_size == 0:
        return True
    if not file.lower().endswith(_PACKED[1:]):
        return False
    with opened(spec, file) as content:
        return not content.read(1)


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
    """Return the table function that reads Parquet files, with ``FILE``."""
    options: dict[str, Any] = {"union_by_name": True, "filename": FILE, **partition_options(files)}
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
