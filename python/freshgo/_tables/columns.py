"""How columns become numbers: which types may be where, and rows of pyarrow as arrays of NumPy."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import numpy as np

from freshgo._tables.files import quoted
from freshgo._tables.source import Source
from freshgo.errors import DTypeError, FreshgoError, InvalidArgumentError

WHOLE = frozenset(
    {
        *("tinyint", "smallint", "integer", "bigint", "hugeint"),
        *("utinyint", "usmallint", "uinteger", "ubigint", "uhugeint", "boolean"),
    }
)
REAL = frozenset({"float", "double", "decimal"})
TEXT = frozenset({"varchar", "enum", "uuid"})
TIMES = frozenset({"date", "timestamp", "timestamp_s", "timestamp_ms", "timestamp_ns", "timestamp with time zone"})
LISTS = frozenset({"list", "array"})

_POLICY = "(nulls= of the Table says what it becomes)"

_LARGEST = "3.4028235677973366e38"
"""The least number that float32 rounds to infinity."""


class BadValueError(Exception):
    """A value that cannot be: the column, a condition in SQL that holds for its row, and what is wrong."""

    def __init__(self, column: str, condition: str, what: str) -> None:
        super().__init__(what)
        self.column, self.condition, self.what = column, condition, what

    def error(self, where: str) -> FreshgoError:
        """Return what the user sees."""
        return InvalidArgumentError(f"{where}: {self.what}")


def kind_of(source: Source, column: str) -> str:
    """Return DuckDB's name of the type of a column: ``"integer"``, ``"list"``, ..."""
    return str(source.types[column].id).lower()


def element_of(source: Source, column: str) -> str:
    """Return what a column of numbers holds: of lists the type of their elements."""
    kind = kind_of(source, column)
    if kind in LISTS:
        return str(source.types[column].children[0][1].id).lower()
    return kind


@dataclasses.dataclass
class Column:
    """A column of a tensor."""

    name: str
    sql: str
    """What it is selected as; nulls are left."""
    is_list: bool
    text: bool
    """Whether strings become their places in a list."""
    fill: float | int | None
    width: int | None = None
    """Columns of the tensor; of lists what the first row says."""


@dataclasses.dataclass
class Tensor:
    """A tensor that columns become."""

    name: str
    columns: list[Column]
    dtype: np.dtype[Any]
    flat: bool
    """Whether it has one dimension: the only column is no list, and it is no ``features``."""


def tensors_of(source: Source) -> list[Tensor]:
    """Return what becomes of the columns of a table.

    Raises:
        DTypeError: a column has a type that its place does not take.
        InvalidArgumentError: what stands for nulls is not of the column's kind.
    """
    return [_tensor(source, name, columns) for name, columns in source.spec.tensors.items()]


def _tensor(source: Source, name: str, names: list[str]) -> Tensor:
    table = source.spec.table
    features = name == ("x" if isinstance(source.spec.of, str) else "edge_attr") and bool(table.features)
    floats = features or (name == "edge_weight" and table.weight is not None)
    as_time = name == "time" and table.time is not None
    if as_time:
        allowed, words = WHOLE - {"boolean"} | TIMES, "whole numbers, dates or timestamps"
    elif floats:
        allowed, words = WHOLE | REAL, "numbers, or lists of numbers"
    else:
        allowed, words = WHOLE | REAL | TEXT, "numbers, lists of numbers, or strings"
    elements_of = {column: element_of(source, column) for column in names}
    if source.empty and (floats or as_time):  # a header alone does not say that its columns hold numbers
        elements_of = {name: "bigint" if of in TEXT else of for name, of in elements_of.items()}
    elements = set(elements_of.values())
    floats = floats or bool(elements & REAL)
    columns = []
    for column in names:
        kind, element = kind_of(source, column), elements_of[column]
        lists = kind in LISTS
        if element not in allowed or (lists and (as_time or name == "edge_weight" or element in TEXT)):
            source.check_typed(column)
            hint = ""
            if floats and element in TEXT:
                hint = ": tensors= stores strings as numbers of categories"
            elif element in TIMES:
                hint = ": time= takes it"
            raise DTypeError(
                f"{source.spec.label}: the column {column!r} holds {source.type_of(column)}, expected {words} for the "
                f"tensor {name!r}{hint}"
            )
        columns.append(
            Column(column, _sql(column, element, lists, floats), lists, element in TEXT, _fill(source, column, element))
        )
    if floats:
        dtype: np.dtype[Any] = np.dtype(np.float32)
    elif elements == {"boolean"} and name != "y":
        dtype = np.dtype(bool)
    else:
        dtype = np.dtype(np.int64)
    for made in columns:
        if made.fill is not None and not made.text and not _holds(dtype, made.fill):
            expected = {"f": "a number of float32", "b": "0 or 1"}.get(dtype.kind, "a whole number of int64")
            raise InvalidArgumentError(
                f"{source.spec.label}: nulls of the column {made.name!r} are {made.fill!r}, expected {expected}"
            )
    flat = len(columns) == 1 and not columns[0].is_list and not features
    return Tensor(name, columns, dtype, flat)


def _sql(column: str, element: str, lists: bool, floats: bool) -> str:
    name = quoted(column)
    if element in TIMES:
        return f"epoch_us({name if 'zone' in element else f'CAST({name} AS TIMESTAMP)'})"
    suffix = "[]" if lists else ""
    if element == "decimal" or (floats and element in ("hugeint", "uhugeint")):
        return f"CAST({name} AS DOUBLE{suffix})"
    if floats and element == "ubigint":
        return f"CAST({name} AS FLOAT{suffix})"
    return f"CAST({name} AS BIGINT{suffix})" if element in ("ubigint", "hugeint", "uhugeint") else name


def _fill(source: Source, column: str, element: str) -> Any:
    """Return what stands for nulls of a column of numbers; strings are filled before they are counted."""
    value = source.spec.fill(column)
    if value is not None and (element in TEXT) != isinstance(value, str):
        expected = "a string" if element in TEXT else "a number"
        raise DTypeError(f"{source.spec.label}: nulls of the column {column!r} are {value!r}, expected {expected}")
    return value


def _holds(dtype: np.dtype[Any], fill: float) -> bool:
    """Whether a tensor of a dtype can hold what stands for nulls."""
    if dtype.kind == "f":
        return not float(_LARGEST) <= abs(fill) < math.inf
    return isinstance(fill, int) and (fill in (0, 1) if dtype.kind == "b" else -(1 << 63) <= fill < 1 << 63)


def rows_of(column: Column, array: Any, dtype: np.dtype[Any]) -> np.ndarray[Any, Any]:
    """Return the rows of a column as an array ``[rows, width]`` of a dtype.

    Raises:
        BadValueError: a null, a list of another length, a number that the dtype does not hold
    """
    import pyarrow as pa

    name = quoted(column.name)
    if column.is_list:
        values, there = _elements(column, array, name)
    else:
        values, there = array, None
        if array.null_count and (column.fill is None or column.text):
            raise BadValueError(column.name, f"({column.sql}) IS NULL", f"null, expected a value {_POLICY}")
    missing = None
    if values.null_count:
        if column.fill is None:
            condition = f"list_count({name}) <> len({name})"
            raise BadValueError(column.name, condition, f"a null in the list, expected values {_POLICY}")
        missing = values.is_null().to_numpy(zero_copy_only=False)
        values = values.fill_null(pa.scalar(0).cast(values.type))
    given = values.to_numpy(zero_copy_only=False)
    if given.dtype.kind == "f" and (nan := np.isnan(given)).any():  # pandas does not tell NaN from null
        if column.fill is None:
            raise _nan(column, name)
        missing = nan if missing is None else missing | nan
    numbers = _converted(column, given, dtype, name)
    if missing is not None:
        numbers = np.where(missing, dtype.type(column.fill), numbers)
    if there is None or there.all():
        return numbers.reshape(len(array), column.width or 1)
    rows = np.full((len(array), column.width or 1), column.fill, dtype)
    rows[there] = numbers.reshape(-1, column.width or 1)
    return rows


def _nan(column: Column, name: str) -> BadValueError:
    # DuckDB takes isnan() of a Parquet column for false where the column's bounds do not have NaN.
    found = f"CAST({name} AS VARCHAR) IN ('nan', '-nan')"
    where = f"len(list_filter({name}, lambda x: isnan(x))) > 0" if column.is_list else found
    return BadValueError(column.name, where, f"NaN, expected a value {_POLICY}")


def _elements(column: Column, array: Any, name: str) -> tuple[Any, np.ndarray[Any, Any]]:
    """Return the elements of all lists that are not null, one after the other, and which those are."""
    import pyarrow.compute as pc

    there = np.asarray(array.is_valid().to_numpy(zero_copy_only=False))
    if array.null_count and column.fill is None:
        raise BadValueError(column.name, f"{name} IS NULL", f"null, expected a list {_POLICY}")
    lengths = pc.list_value_length(array).drop_null().to_numpy(zero_copy_only=False)
    if column.width is None and len(lengths):
        column.width = int(lengths[0])
    wrong = np.flatnonzero(lengths != column.width)
    if wrong.size:
        raise BadValueError(
            column.name,
            f"len({name}) <> {column.width}",
            f"a list of length {lengths[wrong[0]]}, expected {column.width} as in other rows",
        )
    if column.width is None and len(array):
        raise BadValueError(column.name, f"{name} IS NULL", "null, and no list before it tells how long one is")
    if column.width == 0:
        raise BadValueError(column.name, f"len({name}) = 0", "an empty list, expected at least one element")
    return (array.drop_null() if array.null_count else array).flatten(), there


def _converted(column: Column, values: np.ndarray[Any, Any], dtype: np.dtype[Any], name: str) -> np.ndarray[Any, Any]:
    with np.errstate(over="ignore", invalid="ignore"):
        numbers = values.astype(dtype, copy=False)
    if dtype.kind == "f" and values.dtype.itemsize > 4 and values.dtype.kind == "f":
        bad = np.flatnonzero(np.isinf(numbers) & np.isfinite(values))
        if bad.size:
            large = f"abs(x) >= {_LARGEST} AND isfinite(CAST(x AS DOUBLE))"
            lists = f"len(list_filter({name}, lambda x: {large})) > 0"
            condition = lists if column.is_list else large.replace("(x", f"({name}")
            raise BadValueError(column.name, condition, f"{float(values[bad[0]])!r} is too large for float32")
    return numbers
