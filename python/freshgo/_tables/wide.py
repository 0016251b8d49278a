"""CSV files with very many columns, of which a table uses a few.

DuckDB holds 32 KiB for each column of a CSV file, used or not. So the columns that are used are copied first.
"""

from __future__ import annotations

import csv
import gzip
from collections.abc import Callable
from pathlib import Path
from typing import Any, TextIO, cast

from freshgo._args.checks import shown
from freshgo._tables.table import Spec
from freshgo.errors import InvalidArgumentError

WIDE = 500
"""Columns from which on a file is copied: DuckDB would hold 16 MiB for them. Arbitrary."""

_LEAST_BLOCK = 1 << 20


def narrowed(spec: Spec, files: list[str], new_file: Callable[[str], Path]) -> dict[str, str]:
    """Return the file to read for each file: itself, or copies in UTF-8 of the columns that are used, of all files if
    one of them has very many.

    Raises:
        InvalidArgumentError: a file cannot be read as CSV in its encoding, or lacks a column.
    """
    headers = {file: _header(spec, file) for file in files}
    if all(len(names) < WIDE for _, names, _ in headers.values()):
        return {file: file for file in files}
    read = {}
    for file, (delimiter, names, width) in headers.items():
        read[file] = str(new_file("narrow.csv"))
        _copy(spec, file, read[file], delimiter, names, width)
    return read


def _header(spec: Spec, file: str) -> tuple[str, list[str], int]:
    """Return delimiter and names of the columns, and how many characters they take."""
    if file.lower().endswith(".zst"):
        return ",", [], 0
    try:
        with _opened(spec, file) as text:
            line = text.readline()
            if '"' in line:  # a name may hold the end of a line
                text.seek(0)
            counts = {mark: line.count(mark) for mark in ",\t;|"}
            delimiter = max(counts, key=lambda mark: counts[mark])
            csv.field_size_limit(1 << 30)
            return delimiter, next(csv.reader([line] if '"' not in line else text, delimiter=delimiter)), len(line)
    except (UnicodeError, LookupError, csv.Error):
        return ",", [], 0  # DuckDB says what is wrong


def _opened(spec: Spec, file: str) -> TextIO:
    encoding = spec.table.encoding or "utf-8"
    if file.lower().endswith(".gz"):
        return cast(TextIO, gzip.open(file, "rt", encoding=encoding, newline=""))
    return Path(file).open(encoding=encoding, newline="")


def _copy(spec: Spec, file: str, to: str, delimiter: str, names: list[str], width: int) -> None:
    """Copy the columns that are used as strings: what types they have all rows decide later."""
    import pyarrow
    from pyarrow import csv as arrow

    for column in spec.columns:
        if column not in names:
            raise InvalidArgumentError(f"{spec.label} has no column {column!r}, {file} has {shown(names)}")
    wanted = list(dict.fromkeys(spec.columns))
    options: dict[str, Any] = {
        "read_options": arrow.ReadOptions(
            use_threads=False, block_size=max(_LEAST_BLOCK, 4 * width), encoding=spec.table.encoding or "utf-8"
        ),
        "parse_options": arrow.ParseOptions(delimiter=delimiter, newlines_in_values=True),
        "convert_options": arrow.ConvertOptions(
            include_columns=wanted,
            column_types=dict.fromkeys(wanted, pyarrow.string()),
            strings_can_be_null=True,
            quoted_strings_can_be_null=False,
            null_values=[""],
        ),
    }
    try:
        with arrow.open_csv(file, **options) as rows, arrow.CSVWriter(to, rows.schema) as out:
            for batch in rows:
                out.write_batch(batch)
    except (pyarrow.ArrowException, OSError, UnicodeError) as error:
        raise InvalidArgumentError(f"{spec.label}: {file}: {str(error).splitlines()[0]}") from error
