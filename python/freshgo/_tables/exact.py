"""Columns that become another type on request: no value is rounded, and none is guessed."""

from __future__ import annotations

from typing import Any

from freshgo._tables.files import literal, quoted
from freshgo._tables.table import Spec
from freshgo._text.judge import ZONED

_WHOLE = frozenset(
    f"{sign}{size}" for sign in ("", "u") for size in ("tinyint", "smallint", "integer", "bigint", "hugeint")
)
_REAL = frozenset({"float", "double"})
_FRACTION = {"timestamp": 6, "timestamp_ms": 3, "timestamp_s": 0, "timestamp_ns": 6, ZONED.lower(): 6}
"""Digits of a second that a type holds; of a nanosecond those that a time in microseconds keeps."""

_INTEGER = r"[-+]?[0-9]+(\.0*)?"
_NUMBER = r"[-+]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][-+]?[0-9]+)?"
_DIGITS = r"[-+]?([0-9]+\.?[0-9]*|\.[0-9]+)"
_SPECIAL = r"[-+]?([iI][nN][fF]([iI][nN][iI][tT][yY])?|[nN][aA][nN])"
_DAY = r"[0-9]{4}-[0-9]{2}-[0-9]{2}"
_CLOCK = r"[ T][0-9]{2}:[0-9]{2}(:[0-9]{2}(\.[0-9]{0,%d}0*)?)?"
_ZONE = r"(Z|[+-][0-9]{2}(:?[0-9]{2})?)"


def converted(spec: Spec, column: str, given: Any, wanted: Any) -> tuple[str, str]:
    """Return a column as a type of DuckDB, and a condition that holds for values that do not convert exactly.

    Args:
        spec: the table of the column.
        column: its name.
        given: DuckDB's type of the column as it is.
        wanted: DuckDB's type of the column as it shall be.
    """
    name, kind = quoted(column), str(wanted.id).lower()
    if kind == "varchar":
        return f"CAST({name} AS {wanted})", "false"
    value = f"TRY_CAST({name} AS {wanted})"
    if str(given.id).lower() != "varchar":
        back = f"TRY_CAST({value} AS {given})"
        there = f"{name} IS NOT NULL"
        if str(given.id).lower() in _REAL and kind not in _REAL:  # NaN becomes null: it is a missing value
            there = f"({there} AND NOT isnan({name}))"
        return value, f"{there} AND ({value} IS NULL OR {back} IS DISTINCT FROM {name})"
    wrong = "false"
    if kind in _WHOLE:
        value = f"TRY_CAST(regexp_replace({name}, '[.]0*$', '') AS {wanted})"
        wrong = _unlike(name, _INTEGER)
    elif kind in _REAL:
        number = _dotted(name, spec.table.decimal)
        value = f"TRY_CAST({number} AS {wanted})"
        digits = f"TRY_CAST(regexp_replace({number}, '[.]0*$', '') AS HUGEINT)"
        exact = f"TRY_CAST({value} AS HUGEINT) IS NOT DISTINCT FROM {digits}"
        wrong = (
            f"{_unlike(number, f'{_NUMBER}|{_SPECIAL}')} OR ({_like(number, _INTEGER)} AND NOT {exact}) "
            f"OR (isinf({value}) AND {_unlike(number, _SPECIAL)})"
        )
    elif kind == "decimal":
        number = _dotted(name, spec.table.decimal)
        value = f"TRY_CAST({number} AS {wanted})"
        digits = f"length(regexp_extract({number}, '[.]([0-9]*?)0*$', 1)) > {dict(wanted.children)['scale']}"
        wrong = f"{_unlike(number, _DIGITS)} OR {digits}"
    elif kind == "date" or kind in _FRACTION:
        return date(name, spec.table.date_format, wanted)
    return value, f"{name} IS NOT NULL AND ({wrong} OR {value} IS NULL)"


def date(name: str, form: str | None, wanted: Any) -> tuple[str, str]:
    """Return text as a date or a time, and a condition that holds for text that is none."""
    if form is not None:
        parsed = f"try_strptime({name}, {literal(form)})"
        value = f"TRY_CAST({parsed} AS {wanted})"
        return value, f"{name} IS NOT NULL AND ({value} IS NULL OR {value} IS DISTINCT FROM {parsed})"
    value, kind = f"TRY_CAST({name} AS {wanted})", str(wanted).lower()
    clock = _CLOCK % _FRACTION.get(kind, 0)
    pattern = {"date": _DAY, ZONED.lower(): _DAY + clock + _ZONE}.get(kind, f"{_DAY}({clock})?")
    return value, f"{name} IS NOT NULL AND ({_unlike(name, pattern)} OR {value} IS NULL)"


def _like(name: str, pattern: str) -> str:
    return f"regexp_full_match({name}, {literal(pattern)})"


def _unlike(name: str, pattern: str) -> str:
    return f"NOT {_like(name, pattern)}"


def _dotted(name: str, decimal: str) -> str:
    return name if decimal == "." else f"replace(replace({name}, '.', '?'), {literal(decimal)}, '.')"
