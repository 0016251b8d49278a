"""The tensors of one table while it is read: what a query selects for them, and its rows as arrays."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import Any

import numpy as np

from freshgo._args.arrays import Array
from freshgo._args.progress import Progress
from freshgo._staging.raw import Files
from freshgo._tables.columns import BadValueError, Column, rows_of, tensors_of
from freshgo._tables.database import Database
from freshgo._tables.files import literal, quoted
from freshgo._tables.keys import Keys, write_text
from freshgo._tables.source import Source


class Reading:
    """A table that is being read."""

    def __init__(
        self,
        db: Database,
        files: Files,
        source: Source,
        attachments: dict[str, Array],
        progress: Progress | None,
        keys: Keys | None = None,
    ) -> None:
        """Strings become numbers of categories, whose values are written to ``attachments``. ``keys`` are those of a
        table of nodes."""
        self.source, self.tensors = source, tensors_of(source)
        self._db, self._progress, self._keys = db, progress, keys
        self._columns = [column for tensor in self.tensors for column in tensor.columns]
        self._books = self._sorted_values(files, attachments)
        self.outs = [files.new() for _ in self.tensors]

    def _sorted_values(self, files: Files, attachments: dict[str, Array]) -> dict[str, str]:
        """Sort the values of every column of strings; returns the tables of values by column."""
        books = {}
        spec = self.source.spec
        owner = spec.of if isinstance(spec.of, str) else "__".join(spec.of)
        for column in {column.name: column for column in self._columns if column.text}.values():
            table = books[column.name] = self._db.name("book")
            values = _text(column, "s")
            rows = f"({self.source.sql}) s WHERE {values} IS NOT NULL AND {self.source.kept}"
            found = f"SELECT {values} AS value FROM {rows}"
            if column.fill is not None and self._keys is not None and self._keys.rowless is not None:
                found += f" UNION ALL SELECT {literal(column.fill)} FROM range({min(1, self._keys.rowless.shape[0])})"
            self._db.run(spec.label, f"CREATE TABLE {table} AS SELECT DISTINCT value FROM ({found}) ORDER BY value")
            sql = f"SELECT value FROM {table}"
            write_text(self._db, files, spec.label, sql, f"categories/{owner}/{column.name}", attachments)
        return books

    @property
    def joins(self) -> str:
        """What finds the numbers of the categories of the rows ``s``."""
        columns = {column.name: column for column in self._columns}
        return " ".join(
            f"LEFT JOIN {table} b{i} ON b{i}.value = {_text(columns[name], 's')}"
            for i, (name, table) in enumerate(self._books.items())
        )

    @property
    def selected(self) -> list[str]:
        """What is selected for the columns of all tensors, as ``c0``, ``c1``, ..."""
        places = {name: f"b{i}.rowid" for i, name in enumerate(self._books)}
        return [
            f"{places[c.name] if c.text else c.sql.replace(quoted(c.name), f's.{quoted(c.name)}', 1)} AS c{i}"
            for i, c in enumerate(self._columns)
        ]

    @property
    def ties(self) -> list[str]:
        """By what rows are ordered that have the same place: all that they have, 0.0 after -0.0."""
        ties, at = [], 0
        for tensor in self.tensors:
            for column in tensor.columns:
                ties.append(f"c{at}")
                if tensor.dtype.kind == "f":
                    sign = f"list_transform(c{at}, lambda x: NOT signbit(CAST(x AS DOUBLE)))"
                    ties.append(sign if column.is_list else f"NOT signbit(CAST(c{at} AS DOUBLE))")
                at += 1
        return ties

    def batches(self, stage: str, sql: str, total: int) -> Iterator[Any]:
        """Yield batches of about a thirty-second of the memory, and report how far it is."""
        rows = self._db.memory // 32 // (16 + 8 * self.width)
        rows = min(max(rows // 2048 * 2048, 2048), 1 << 17)
        done = 0
        if self._progress is not None:
            self._progress(f"sorting {stage}", 0, total)
        for batch in self._db.batches(self.source.spec.label, sql, rows):
            count = batch.num_rows
            yield batch
            del batch  # it may be large, and the next one comes
            done += count
            if self._progress is not None:
                self._progress(f"reading {stage}", done, total)

    @functools.cached_property
    def width(self) -> int:
        """How many numbers a row has: as many as the first one."""
        return sum(self._width(column) for column in self._columns)

    def _width(self, column: Column) -> int:
        if not column.is_list:
            return 1
        name = quoted(column.name)
        rows = f"({self.source.sql}) WHERE {name} IS NOT NULL AND {self.source.kept}"
        sql = f"SELECT len({name}) FROM {rows} LIMIT 1"
        found = self._db.rows(self.source.spec.label, sql)
        return int(found[0][0] or 1) if found else 1

    def arrays(self, batch: Any, first: int) -> list[np.ndarray[Any, Any]]:
        """Return the rows of each tensor, of a batch whose columns from ``first`` on were selected for them."""
        at, arrays = first, []
        for tensor in self.tensors:
            blocks = []
            for column in tensor.columns:
                try:
                    blocks.append(rows_of(column, batch.column(at), tensor.dtype))
                except BadValueError as bad:
                    raise self._located(bad) from None
                at += 1
            rows = blocks[0] if len(blocks) == 1 else np.concatenate(blocks, axis=1)
            arrays.append(rows.reshape(-1) if tensor.flat else rows)
        return arrays

    def _located(self, bad: BadValueError) -> Exception:
        label = f"{self.source.spec.label}, column {bad.column!r}"
        return bad.error(f"{label}, {self.source.where(self._db, bad.condition) or 'a row'}")

    def finished(self) -> dict[str, Array]:
        """Return the tensors, once their rows are in ``outs``."""
        arrays: dict[str, Array] = {}
        for tensor, out in zip(self.tensors, self.outs, strict=True):
            row = () if tensor.flat else (sum(column.width or 1 for column in tensor.columns),)
            arrays[tensor.name] = out.finish(tensor.dtype, row)
        return arrays


def _text(column: Column, table: str) -> str:
    value = f"CAST({table}.{quoted(column.name)} AS VARCHAR)"
    return value if column.fill is None else f"coalesce({value}, {literal(column.fill)})"
