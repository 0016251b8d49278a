"""Columns that become another type on request: no value is rounded, and none is guessed."""

from __future__ import annotations

import re
from typing import Any

from freshgo._tables.files import literal, quoted
from freshgo._tables.table import Spec
from freshgo._text.judge import ZONED

_WHOLE = frozenset(
    [
        "TINYINT",
        "SMALLINT",
        "SHORT",
        "INTEGER",
        "INT",
        "BIGINT",
        "LONG",
        "HUGEINT",
        "INT1",
        "INT2",
        "INT4",
        "INT8",
        "UTINYINT",
        "USMALLINT",
        "UINTEGER",
        "UBIGINT",
        "UHUGEINT",
    ]
)
_REAL = frozenset({"FLOAT", "REAL", "DOUBLE", "FLOAT4", "FLOAT8"})
_TEXT = frozenset({"VARCHAR", "TEXT", "STRING", "CHAR", "BPCHAR"})
_DATES = frozenset({"DATE", "DATETIME", "TIMESTAMPTZ", ZONED, *(f"TIMESTAMP{end}" for end in ("", "_S", "_MS", "_NS"))})

_INTEGER = r"[-+]?[0-9]+(\.0*)?"
_NUMBER = r"[-+]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][-+]?[0-9]+)?"
_DIGITS = r"[-+]?([0-9]+\.?[0-9]*|\.[0-9]+)"
_SPECIAL = r"[-+]?([iI][nN][fF]([iI][nN][iI][tT][yY])?|[nN][aA][nN])"
_DAY = r"[0-9]{4}-[0-9]{2}-[0-9]{2}"
_CLOCK = r"[ T][0-9]{2}:[0-9]{2}(:[0-9]{2}(\.[0-9]+)?)?"
_ZONE = r"(Z|[+-][0-9]{2}(:?[0-9]{2})?)"


def converted(spec: Spec, column: str, given: Any, wanted: str) -> tuple[str, str]:
    """Return a column as a type of DuckDB, and a condition that holds for values that do not convert exactly.

    Args:
        spec: the table of the column.
        column: its name.
        given: DuckDB's type of the column as it is.
        wanted: the name of the type.
    """
    name, word = quoted(column), wanted.strip().upper()
    if word.partition("(")[0] in _TEXT:
        return f"CAST({name} AS {wanted})", "false"
    value, wrong = f"TRY_CAST({name} AS {wanted})", ""
    if str(given.id).lower() != "varchar":
        back = f"TRY_CAST({value} AS {given})"
    elif word in _WHOLE:
        digits = f"regexp_replace({name}, '[.]0*$', '')"
        value = f"TRY_CAST({digits} AS {wanted})"
        return value, f"{name} IS NOT NULL AND ({_unlike(name, _INTEGER)} OR {value} IS NULL)"
    elif word in _REAL:
        number = _dotted(name, spec.table.decimal)
        value = f"TRY_CAST({number} AS {wanted})"
        exact = f"TRY_CAST({value} AS HUGEINT) IS NOT DISTINCT FROM TRY_CAST({name} AS HUGEINT)"
        wrong = f"{_unlike(number, f'{_NUMBER}|{_SPECIAL}')} OR ({_like(name, '[-+]?[0-9]+')} AND NOT {exact})"
        return value, f"{name} IS NOT NULL AND ({wrong} OR {value} IS NULL)"
    elif word.startswith(("DECIMAL", "NUMERIC")):
        number = _dotted(name, spec.table.decimal)
        value = f"TRY_CAST({number} AS {wanted})"
        sizes = re.findall(r"\d+", word)
        scale = int(sizes[1]) if len(sizes) > 1 else 0 if sizes else 3
        digits = f"length(regexp_extract({number}, '[.]([0-9]*?)0*$', 1)) > {scale}"
        wrong = f"{_unlike(number, _DIGITS)} OR {digits}"
        return value, f"{name} IS NOT NULL AND ({wrong} OR {value} IS NULL)"
    elif word in _DATES:
        return date(name, spec.table.date_format, wanted)
    else:
        return value, f"{name} IS NOT NULL AND {value} IS NULL"
    return value, f"{name} IS NOT NULL AND ({value} IS NULL OR {back} IS DISTINCT FROM {name})"


def date(name: str, form: str | None, wanted: str) -> tuple[str, str]:
    """Return text as a date or a time, and a condition that holds for text that is none."""
    if form is not None:
        parsed = f"try_strptime({name}, {literal(form)})"
        value = f"TRY_CAST({parsed} AS {wanted})"
        return value, f"{name} IS NOT NULL AND ({value} IS NULL OR {value} IS DISTINCT FROM {parsed})"
    pattern = {"DATE": _DAY, "TIMESTAMPTZ": _DAY + _CLOCK + _ZONE, ZONED: _DAY + _CLOCK + _ZONE}
    value = f"TRY_CAST({name} AS {wanted})"
    wrong = _unlike(name, pattern.get(wanted.upper(), f"{_DAY}({_CLOCK})?"))
    return value, f"{name} IS NOT NULL AND ({wrong} OR {value} IS NULL)"


def _like(name: str, pattern: str) -> str:
    return f"regexp_full_match({name}, {literal(pattern)})"


def _unlike(name: str, pattern: str) -> str:
    return f"NOT {_like(name, pattern)}"


def _dotted(name: str, decimal: str) -> str:
    return name if decimal == "." else f"replace(replace({name}, '.', '?'), {literal(decimal)}, '.')"
