"""Files of Arrow IPC, in its file format and as streams, and of ORC: pyarrow reads them."""

from __future__ import annotations

import contextlib
import importlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from freshgo._args.size import format_size, too_small
from freshgo._tables.database import Database
from freshgo._tables.files import FILE, begins_as, check_partitions, partition_types, partitions
from freshgo._tables.objects import copied, of_dataset
from freshgo._tables.table import Spec
from freshgo.errors import BudgetError, FreshgoError, InvalidArgumentError

_MAGIC = b"ARROW1"
"""How the file format of Arrow IPC begins; a stream begins with the length of its schema."""


def rows_of_files(db: Database, spec: Spec, files: list[str], form: str) -> str:
    """Return a query of the rows of files of Arrow IPC, in its file format or as streams, or of ORC.

    Raises:
        InvalidArgumentError: a file is damaged or of another format, or columns do not fit together.
    """
    with _whole(spec, files, form):
        if form == "arrow" and any(_is_stream(file) for file in files):
            return copied(db, spec, _streamed(spec, files))
        if form == "orc":
            _check_stripes(db, spec, files)
        given = _dataset(files, "ipc" if form == "arrow" else form)
    for fragment in given.get_fragments():
        names = fragment.physical_schema.names
        check_partitions(spec, fragment.path, names)
        if len(files) > 1:
            spec.check_file(fragment.path, [*names, *partitions(fragment.path)])
    spec.check_columns(given.schema.names)
    with _whole(spec, files, form):
        return of_dataset(db, spec, given)


@contextlib.contextmanager
def _whole(spec: Spec, files: list[str], form: str) -> Iterator[None]:
    """Say of errors which file is not of a format."""
    import pyarrow

    wrong, words = (pyarrow.ArrowException, OSError, ValueError, TypeError), "ORC" if form == "orc" else "Arrow IPC"
    try:
        yield
    except FreshgoError:
        raise
    except wrong as error:
        for file in files:
            if (bad := _damage(file, form)) is not None:
                said = begins_as(file, form) or f": {bad}"
                raise InvalidArgumentError(f"{spec.label}: {file} is not a file of {words}{said}") from error
        named = f"{files[0]} is not a whole file" if len(files) == 1 else f"{', '.join(files)} are not whole files"
        equal = " with equal columns" * (len(files) > 1)
        raise InvalidArgumentError(f"{spec.label}: {named} of {words}{equal}: {error}") from error


@contextlib.contextmanager
def _whole_rows(file: str) -> Iterator[None]:
    """Name the file in errors of its rows: they reach the user by way of DuckDB, which keeps the text alone."""
    import pyarrow

    try:
        yield
    except (pyarrow.ArrowException, OSError) as error:
        raise ValueError(f"{file} is not a whole file of Arrow IPC: {error}") from error


def _damage(file: str, form: str) -> str | None:
    """Return why a file cannot be opened, None where it can."""
    import pyarrow

    try:
        if form == "orc":
            importlib.import_module("pyarrow.orc").ORCFile(file)
        else:
            with _open_arrow(file):
                pass
    except (pyarrow.ArrowException, OSError, ValueError, TypeError) as error:
        return str(error)
    return None


def _check_stripes(db: Database, spec: Spec, files: list[str]) -> None:
    """Refuse files of ORC whose stripes pyarrow would read into more memory than there is: twice a stripe, beside what
    DuckDB may use."""
    orc = importlib.import_module("pyarrow.orc")
    for file in files:
        with Path(file).open("rb") as content:
            opened = orc.ORCFile(content)
            stripe = opened.content_length // max(1, opened.nstripes - 1)  # all but the last are of one size
        least = 2 * stripe * 8 // 3
        if least > db.memory:
            raise BudgetError(
                f"{spec.label}: {file}: {too_small(db.memory, least, f'stripes of {format_size(stripe)} need')}; "
                "pyarrow.orc.write_table(stripe_size=) writes smaller ones, and Parquet is read in smaller pieces",
                least,
            )


def _dataset(files: list[str], form: str) -> Any:
    """Return files as a data set whose columns have types that hold those of all files."""
    import pyarrow
    from pyarrow import dataset

    types = {"BIGINT": pyarrow.int64(), "DATE": pyarrow.date32(), "VARCHAR": pyarrow.string()}
    fields = [(name, types[kind]) for name, kind in partition_types(files).items()]
    partitioning = dataset.partitioning(pyarrow.schema(fields), flavor="hive") if fields else None
    given = dataset.dataset(files, format=form, partitioning=partitioning)
    schemas = [given.schema, *(fragment.physical_schema for fragment in given.get_fragments())]
    schema = pyarrow.unify_schemas(schemas, promote_options="permissive")
    return dataset.dataset(files, schema=schema, format=form, partitioning=partitioning)


def _open_arrow(file: str) -> Any:
    """Open a file of Arrow IPC, in its file format or as a stream."""
    import pyarrow as pa

    source = pa.OSFile(file)  # which pyarrow would map by its name
    return pa.ipc.open_stream(source) if _is_stream(file) else pa.ipc.open_file(source)


def _is_stream(file: str) -> bool:
    with Path(file).open("rb") as opened:
        return opened.read(len(_MAGIC)) != _MAGIC


def _streamed(spec: Spec, files: list[str]) -> Any:
    """Return a reader of files, some of them streams, with ``FILE``."""
    import pyarrow as pa

    schemas = []
    for file in files:
        with _open_arrow(file) as reader:
            schemas.append(reader.schema)
        if len(files) > 1:
            spec.check_file(file, schemas[-1].names)
    schema = pa.unify_schemas(schemas, promote_options="permissive")
    spec.check_columns(schema.names)
    schema = pa.schema([schema.field(name) for name in spec.columns])

    def batches() -> Iterator[Any]:
        for file in files:
            with _whole_rows(file), _open_arrow(file) as reader:
                count = getattr(reader, "num_record_batches", None)
                for batch in reader if count is None else map(reader.get_batch, range(count)):
                    arrays = [
                        batch.column(field.name).cast(field.type)
                        if field.name in batch.schema.names
                        else pa.nulls(batch.num_rows, field.type)
                        for field in schema
                    ]
                    arrays.append(pa.repeat(pa.scalar(file), batch.num_rows))
                    yield pa.record_batch(arrays, [*schema.names, FILE])

    return pa.RecordBatchReader.from_batches(schema.append(pa.field(FILE, pa.string())), batches())
