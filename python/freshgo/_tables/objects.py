"""Tables that are objects: frames, pyarrow's tables and readers, mappings of columns."""

from __future__ import annotations

import contextlib
import datetime
import decimal
import errno
import importlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np

from freshgo._args.checks import shown
from freshgo._tables.database import Database
from freshgo._tables.files import FILE, literal, quoted
from freshgo._tables.table import Spec
from freshgo.errors import DTypeError, InvalidArgumentError, ReadError, StoreNotFoundError, WriteError

_BATCH = 1 << 13
"""Rows that pass through memory at a time. Arbitrary: 4 MiB of rows of 128 floats."""

_VALUES = (list, tuple, dict, np.ndarray, np.generic, bool, int, float, str, bytes, decimal.Decimal, datetime.date)
"""What DuckDB reads in a pandas column of objects, beside what pandas recognises."""


def rows_of_object(db: Database, spec: Spec, given: Any) -> tuple[str, bool]:
    """Return a query of an object that holds rows, and whether its rows name their files.

    What is not in memory is copied into the database: it may give its rows only once, and pyarrow would read far ahead.

    Raises:
        DTypeError: it is no object that holds rows. InvalidArgumentError: its columns do not fit together.
    """
    import pyarrow
    from pyarrow import dataset

    module, kind = type(given).__module__.partition(".")[0], type(given).__name__
    if isinstance(given, dataset.Dataset):
        with_files = isinstance(given, dataset.FileSystemDataset)
        return of_dataset(db, spec, given), with_files
    if module in ("duckdb", "_duckdb") and hasattr(given, "project"):
        spec.check_columns(given.columns)
        chosen = given.project(", ".join(map(quoted, spec.columns)))
        read = getattr(chosen, "to_arrow_reader", None) or chosen.fetch_record_batch
        return copied(db, spec, read(_BATCH)), False
    if module == "pandas" and kind == "DataFrame":
        for name in given.columns:
            if not isinstance(name, str):
                raise DTypeError(
                    f"{spec.label}: the columns of a frame must have strings as names, got {shown(name)}: give others, "
                    "such as frame.columns = ['src', 'dst']"
                )
        of_index = [name for name in given.index.names if name in spec.columns and name not in given.columns]
        spec.check_columns(given.columns, f"; {of_index[0]!r} is of its index: frame.reset_index()" if of_index else "")
        _check_objects(spec, given)
        if any("halffloat" in str(of) for of in given.dtypes):
            given = pyarrow.Table.from_pandas(given[spec.columns], preserve_index=False)
        else:
            if len(spec.columns) < len(given.columns):  # the others may have types that DuckDB does not know
                frame = importlib.import_module("pandas").DataFrame
                given = frame({name: given[name] for name in spec.columns}, copy=False)
            with _typed(db, spec, lambda name: (given[[name]].head(1), given[name].dtype)):
                return _rows(db, spec, given), False
    if module == "polars" and kind == "LazyFrame":
        return _of_lazy_frame(db, spec, given), False
    if module == "polars" and kind == "DataFrame":
        spec.check_columns(given.columns)
        given = _arrow_of_polars(spec, given)
    elif isinstance(given, Mapping):
        given = _of_columns(spec, given)
    elif isinstance(given, pyarrow.RecordBatch):
        given = pyarrow.Table.from_batches([given])
    if isinstance(given, pyarrow.Table):
        spec.check_columns(given.column_names)
        given = given.select(spec.columns)
        if _widened(given.schema) == given.schema:
            with _typed(db, spec, lambda name: (given.select([name]).slice(0, 1), given.schema.field(name).type)):
                return _rows(db, spec, given), False
        given = given.to_reader(_BATCH)
    if hasattr(given, "__arrow_c_stream__") and not isinstance(given, pyarrow.RecordBatchReader):
        try:
            given = pyarrow.RecordBatchReader.from_stream(given)
        except pyarrow.ArrowException as error:
            raise DTypeError(f"{spec.label}: source is {shown(given)}, which holds no rows: {error}") from error
    if isinstance(given, pyarrow.RecordBatchReader):
        return copied(db, spec, given), False
    raise DTypeError(
        f"{spec.label}: source must be a path, a pattern, a list of these, a mapping from names to columns, a pyarrow "
        f"dataset, table or reader, a DuckDB relation, or a pandas or polars frame, got {shown(given)}"
    )


def _arrow_of_polars(spec: Spec, frame: Any) -> Any:
    """Return the columns of a polars frame that are used as a table of pyarrow."""
    import pyarrow

    try:
        return frame.select(spec.columns).to_arrow()
    except (pyarrow.ArrowException, NotImplementedError) as error:
        held = ", ".join(f"{name!r} of {frame[name].dtype}" for name in spec.columns)
        raise DTypeError(
            f"{spec.label}: pyarrow does not have the type of one of the columns {held}: cast it, such as "
            "frame.cast({...: polars.Int64})"
        ) from error


def _rows(db: Database, spec: Spec, given: Any) -> str:
    """Return a query of an object that DuckDB reads in place."""
    sql = f"SELECT * FROM {db.register(spec.label, given)}"
    db.types(spec.label, sql)
    return sql


@contextlib.contextmanager
def _typed(db: Database, spec: Spec, column: Callable[[str], tuple[Any, Any]]) -> Iterator[None]:
    """Name the column whose type DuckDB does not know. ``column`` returns a table of a column alone, and its type."""
    try:
        yield
    except InvalidArgumentError:
        for name in spec.columns:
            alone, of = column(name)
            try:
                _rows(db, spec, alone)
            except InvalidArgumentError as error:
                raise DTypeError(
                    f"{spec.label}: the column {name!r} holds {of}, which DuckDB does not read: convert it to numbers, "
                    "strings or dates"
                ) from error
        raise


def _check_objects(spec: Spec, given: Any) -> None:
    """Refuse columns of a pandas frame that hold text beside numbers, or objects: DuckDB would make text of them."""
    infer_dtype = importlib.import_module("pandas").api.types.infer_dtype

    for name in spec.columns:
        kind = infer_dtype(given[name], skipna=True) if given[name].dtype == object else ""
        if kind == "mixed-integer" or (kind == "mixed" and name in spec.keys):
            raise DTypeError(
                f"{spec.label}, column {name!r}, holds values of several kinds, expected one (such as "
                f"frame[{name!r}].astype(str) makes text of all)"
            )
        if kind == "mixed":
            others = [value for value in given[name] if not isinstance(value, _VALUES) and value is not None]
            if others:
                raise DTypeError(
                    f"{spec.label}, column {name!r}, holds objects such as {shown(others[0])}, expected numbers, "
                    "strings, dates, or lists and NumPy arrays of numbers"
                )


def of_dataset(db: Database, spec: Spec, given: Any) -> str:
    from pyarrow import dataset

    with_files = isinstance(given, dataset.FileSystemDataset)
    spec.check_columns(given.schema.names)
    columns = spec.columns
    scanner = given.scanner(
        [*columns, "__filename"] if with_files else columns,
        batch_size=_BATCH,
        batch_readahead=1,
        fragment_readahead=1,
    )
    rows = copied(db, spec, scanner.to_reader())
    return f'SELECT * EXCLUDE ("__filename"), "__filename" AS {quoted(FILE)} FROM ({rows})' if with_files else rows


def _of_lazy_frame(db: Database, spec: Spec, given: Any) -> str:
    """Let polars compute the columns that are used, into a file."""
    import polars

    file = db.new_file("lazy.parquet")
    try:
        schema = given.collect_schema()
        spec.check_columns(schema.names())
        for name in spec.columns:  # Parquet would have whole numbers
            if "Duration" in str(schema[name]):
                raise DTypeError(
                    f"{spec.label}: the column {name!r} holds {schema[name]}, expected numbers, strings or dates, or "
                    "lists of numbers"
                )
        given.select(spec.columns).sink_parquet(file)
    except FileNotFoundError as error:
        raise StoreNotFoundError(error.errno or errno.ENOENT, f"{spec.label}: polars: {error}") from error
    except (OSError, polars.exceptions.PolarsError) as error:
        if "No space left" in str(error):  # for the file that it writes
            raise WriteError(errno.ENOSPC, f"{spec.label}: polars: {error}", str(file)) from error
        if isinstance(error, OSError):
            raise ReadError(error.errno or errno.EIO, f"{spec.label}: polars: {error}") from error
        raise InvalidArgumentError(f"{spec.label}: polars: {error}") from error
    return f"SELECT * FROM read_parquet({literal(str(file))})"


def _of_columns(spec: Spec, given: Mapping[Any, Any]) -> Any:
    """Return a mapping from names to columns as a table: lists, arrays, tensors; the rows of a matrix are lists."""
    import pyarrow as pa

    arrays = {}
    if all(isinstance(name, str) for name in given):
        spec.check_columns(given)
    for name, column in given.items():
        if not isinstance(name, str):
            raise DTypeError(f"{spec.label}: the columns of a mapping must have strings as names, got {shown(name)}")
        if name not in spec.columns:
            continue
        label = f"{spec.label}, column {name!r}"
        try:
            values = _numpy_of(column) if hasattr(column, "detach") else column
            if isinstance(values, np.ndarray) and values.ndim == 2:
                flat = pa.array(np.ascontiguousarray(values).reshape(-1))
                arrays[name] = pa.FixedSizeListArray.from_arrays(flat, values.shape[1])
            else:
                arrays[name] = pa.array(values)
        except (pa.ArrowException, TypeError, ValueError, OverflowError, RuntimeError) as error:
            if "Unsupported numpy type" in str(error):
                raise DTypeError(
                    f"{label}: expected numbers of up to 64 bits, strings or dates, got {values.dtype}"
                ) from error
            raise DTypeError(
                f"{label}: expected a list or an array of numbers, strings or lists, got {shown(column)}: "
                f"{str(error).splitlines()[0]}"
            ) from error
    lengths = {name: len(array) for name, array in arrays.items()}
    if len(set(lengths.values())) > 1:
        raise InvalidArgumentError(f"{spec.label}: the columns differ in length: {lengths}")
    return pa.table(arrays)


def _numpy_of(tensor: Any) -> Any:
    """Return a tensor as an array. Floats narrower than float32, some unknown to NumPy, become float32 exactly."""
    tensor = tensor.detach().cpu()
    return (tensor.float() if tensor.is_floating_point() and tensor.itemsize < 4 else tensor).numpy()


def _widened(schema: Any) -> Any:
    """Return a schema with float32 in the place of float16, which DuckDB does not take from Arrow."""
    import pyarrow as pa

    def wide(of: Any) -> Any:
        if of == pa.float16():
            return pa.float32()
        if pa.types.is_fixed_size_list(of):
            return pa.list_(wide(of.value_type), of.list_size)
        if pa.types.is_large_list(of):
            return pa.large_list(wide(of.value_type))
        if pa.types.is_dictionary(of) and of.value_type == pa.float16():
            return pa.float32()
        return pa.list_(wide(of.value_type)) if pa.types.is_list(of) else of

    return pa.schema([field.with_type(wide(field.type)) for field in schema])


def copied(db: Database, spec: Spec, reader: Any) -> str:
    """Copy the columns of a reader that are used into the database."""
    import pyarrow

    spec.check_columns(reader.schema.names)
    used = [field for field in reader.schema if field.name in (*spec.columns, FILE, "__filename")]
    schema = _widened(pyarrow.schema(used))
    if schema != reader.schema:
        narrow = (batch.select(schema.names) for batch in reader)
        pieces = (batch.slice(at, _BATCH) for batch in narrow for at in range(0, batch.num_rows, _BATCH))
        reader = pyarrow.RecordBatchReader.from_batches(schema, (piece.cast(schema) for piece in pieces))
    table = db.name("copy")
    types = {field.name: field.type for field in schema}
    with _typed(db, spec, lambda name: (pyarrow.table([pyarrow.nulls(1, types[name])], [name]), types[name])):
        given = db.register(spec.label, reader)
        db.run(spec.label, f"CREATE TABLE {table} AS SELECT * FROM {given}")
    db.unregister(spec.label, given)
    return f"SELECT * FROM {table}"
