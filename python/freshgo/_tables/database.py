"""The database in which tables are sorted and joined: DuckDB in a directory beside the store, within a memory limit."""

from __future__ import annotations

import contextlib
import errno
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from freshgo._args.host import threads
from freshgo._args.size import format_size, too_small
from freshgo._tables.files import literal
from freshgo.errors import BudgetError, FreshgoError, InvalidArgumentError, LibraryError, ReadError, WriteError

MEMORY = 128 << 20
"""The least memory in which tables are converted: below it DuckDB sorts hardly anything."""

_PER_THREAD = 96 << 20
"""Memory for each thread of DuckDB: its documentation asks for 125 MB."""


def duckdb() -> Any:
    """Import DuckDB, and pyarrow through which rows come from it."""
    try:
        import duckdb
        import pyarrow  # noqa: F401 (DuckDB needs it)
    except ImportError as error:
        raise LibraryError(f"tables need duckdb and pyarrow: pip install 'freshgo[tables]' ({error})") from error
    return duckdb


class Database:
    """DuckDB on a file of its own."""

    def __init__(self, directory: Path, memory: int) -> None:
        if memory < MEMORY:
            raise BudgetError(too_small(memory, MEMORY, "tables need"), MEMORY)
        self.memory, self._directory = memory, directory
        self._module = duckdb()
        limit = memory * 5 // 8  # the rest is for batches of rows, and for what DuckDB does not count
        config = {
            "memory_limit": f"{limit // 1024}KiB",
            "threads": max(1, min(threads(), limit // _PER_THREAD)),
            "temp_directory": str(directory / "spill"),
            "preserve_insertion_order": True,
            "autoinstall_known_extensions": False,
            "autoload_known_extensions": False,
        }
        with self._named("DuckDB"):
            self._connection = self._module.connect(str(directory / "tables.duckdb"), config=config)
        self._names = 0
        self.parquet: dict[str, list[str]] = {}
        """The Parquet files of each table, by its label: errors of DuckDB's reader may name none."""
        self._reader: Any = None
        # In Jupyter without ipywidgets the bar is off, and setting it is an error.
        if self.rows("DuckDB", "SELECT current_setting('enable_progress_bar')")[0][0]:
            self.run("DuckDB", "SET enable_progress_bar = false")
        # All rows decide on the types of a frame's objects.
        self.run("DuckDB", f"SET GLOBAL pandas_analyze_sample = {(1 << 31) - 1}")

    def close(self) -> None:
        """Close the database."""
        self._connection.close()

    def name(self, word: str) -> str:
        """Return a name that nothing in the database has."""
        self._names += 1
        return f"freshgo_{word}_{self._names}"

    def new_file(self, word: str) -> Path:
        """Return the path of a file that is not there, beside the database."""
        return self._directory / self.name(word)

    def register(self, label: str, rows: object) -> str:
        """Make an object that holds rows a table; returns its name."""
        name = self.name("given")
        with self._named(label):
            self._connection.register(name, rows)
        return name

    def unregister(self, label: str, name: str) -> None:
        """Forget an object."""
        with self._named(label):
            self._connection.unregister(name)

    def run(self, label: str, sql: str) -> None:
        """Execute a statement."""
        with self._named(label):
            self._connection.execute(sql)

    def rows(self, label: str, sql: str) -> list[tuple[Any, ...]]:
        """Return the few rows of a query."""
        if self._reader is not None:  # a connection gives one result at a time
            self._reader.close()
        with self._named(label):
            found: list[tuple[Any, ...]] = self._connection.execute(sql).fetchall()
            return found

    def types(self, label: str, sql: str) -> dict[str, Any]:
        """Return the columns of a query and their types."""
        with self._named(label):
            relation = self._connection.sql(sql)
            return dict(zip(relation.columns, relation.types, strict=True))

    def batches(self, label: str, sql: str, rows: int) -> Iterator[Any]:
        """Yield the rows of a query as pyarrow's record batches of ``rows`` rows."""
        with self._named(label):
            relation = self._connection.sql(sql)
            if relation is None:
                return
            read = getattr(relation, "to_arrow_reader", None) or relation.fetch_record_batch
            reader = self._reader = read(rows)
        try:
            while True:
                with self._named(label):
                    try:
                        batch = reader.read_next_batch()
                    except StopIteration:
                        return
                yield batch
                del batch  # it may be large, and the next one comes
        finally:
            reader.close()
            self._reader = None

    @contextlib.contextmanager
    def _named(self, label: str) -> Iterator[None]:
        """Turn DuckDB's errors into ours, which name the table."""
        try:
            yield
        except (FreshgoError, KeyboardInterrupt, StopIteration):
            raise
        except self._module.OutOfMemoryException as error:
            if "No space left" in str(error) or "max_temp_directory_size" in str(error):
                raise WriteError(errno.ENOSPC, f"{label}: {_first(error)}", str(self._directory)) from error
            raise BudgetError(
                f"{label}: memory of {format_size(self.memory)} is too small for the rows of this table: try twice "
                f"as much: {_first(error)}",
                2 * self.memory,
            ) from error
        except (self._module.IOException, OSError) as error:
            if "No space left" in str(error):
                raise WriteError(errno.ENOSPC, f"{label}: {_first(error)}", str(self._directory)) from error
            if str(self._directory) in str(error):
                raise WriteError(errno.EIO, f"{label}: {_first(error)}", str(self._directory)) from error
            if "Could not read enough bytes" in str(error):  # the file ends there, and the disk has read it
                raise InvalidArgumentError(f"{label}: a truncated file: {_first(error)}") from error
            raise ReadError(errno.EIO, f"{label}: {_first(error)}") from error
        except (self._module.Error, RuntimeError, ValueError, TypeError) as error:
            if "INTERRUPT" in str(error).upper():
                raise KeyboardInterrupt from error
            if long := _LONG.search(str(error)):
                raise InvalidArgumentError(
                    f"{label}: {long[2]}: an object of more than {format_size(int(long[1]))}, which memory= does not "
                    "hold"
                ) from error
            large = _LARGE.search(str(error))
            if large:
                raise InvalidArgumentError(
                    f"{label}, column {large[3]!r}: {large[1]} does not fit {large[2]}, the type of these values "
                    f"(types={{{large[3]!r}: 'VARCHAR'}} of the Table reads them as text)"
                ) from error
            if type(error) is self._module.Error and (file := self._damaged(label)):
                raise InvalidArgumentError(f"{label}: {file} is damaged: {_first(error)}") from error
            raise InvalidArgumentError(f"{label}: {_first(error)}") from error

    def _damaged(self, label: str) -> str | None:
        """Return the first Parquet file of a table that cannot be read."""
        with self._named(label), contextlib.closing(self._connection.cursor()) as cursor:
            return next((file for file in self.parquet.get(label, []) if not self._readable(cursor, file)), None)

    def _readable(self, cursor: Any, file: str) -> bool:
        try:
            cursor.execute(f"SELECT max(hash(COLUMNS(*))) FROM read_parquet({literal(file)})")
        except self._module.InterruptException:
            raise
        except self._module.Error as error:
            return isinstance(error, self._module.OutOfMemoryException)
        return True


_LARGE = re.compile(r"with value (\S+) can't be cast because .* destination type (\w+) when casting .* column (\w+)")
_LONG = re.compile(r'"maximum_object_size" of (\d+) bytes exceeded while reading file "(.*?)"')
_GIVEN = re.compile(r"the stream registered as 'freshgo_given_\d+'")
_CLASS = re.compile(r"^(?:[A-Z]\w+ )+(?:Error|Exception): ")
"""How DuckDB's messages begin: ``Invalid Input Error: ``."""


def _first(error: Exception) -> str:
    """What DuckDB says, in a line, without its advice, and the file if it names one."""
    lines = [_CLASS.sub("", line.strip()) for line in str(error).splitlines()]
    said = []
    for line in lines:
        if line.startswith(("Possible", "LINE ", "Candidate", "Try setting")):
            break
        line, of_python, _ = _GIVEN.sub("the source", line).partition("Detail: Python exception: ")
        said.append(line.strip())
        if of_python:
            break
    said += [line for line in lines[len(said) :] if line.startswith("file = ")]
    text = "; ".join(line for line in said if line)[:600]
    return "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)  # damaged files put any byte there
