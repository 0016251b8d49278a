"""A column of an edge table that names the relation of each edge: one sort puts the edges of a relation together."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np

from freshgo._args.arrays import NpyFile
from freshgo._tables.columns import TEXT, WHOLE, kind_of
from freshgo._tables.database import Database
from freshgo._tables.files import literal, quoted
from freshgo._tables.source import Source
from freshgo.errors import DTypeError, InvalidArgumentError

MOST = 1 << 14
"""Edge types of a store (core/store, maxTypes)."""


class Relations:
    """The relations of an edge table, in the order of their values: text by its UTF-8 bytes, integers by size."""

    def __init__(self, db: Database, source: Source) -> None:
        """Find the values of the rows that are kept.

        Raises:
            DTypeError: the column holds neither strings nor integers.
            InvalidArgumentError: a value is null or no name of a type, or there are too many.
        """
        table, label = source.spec.table, source.spec.label
        column = self._column = str(table.relation)
        name = quoted(column)
        if kind_of(source, column) not in (TEXT | WHOLE) - {"boolean"}:
            raise DTypeError(
                f"{label}: relation is the column {column!r}, which holds {source.type_of(column)}, expected strings "
                "or integers: the names of relations"
            )
        most = MOST // (1 + table.reverse)
        found = db.rows(label, f"SELECT DISTINCT {name} FROM ({source.sql}) WHERE {source.kept} LIMIT {most + 1}")
        if len(found) > most:
            raise InvalidArgumentError(
                f"{label}: the column {column!r} has more than {most} different values, expected the name of each "
                "edge's relation; a store has at most 16384 edge types"
            )
        ordered = f"SELECT DISTINCT {name} AS value FROM ({source.sql}) WHERE {source.kept} ORDER BY value"
        self._table = db.name("relations")
        numbers = "CAST(row_number() OVER (ORDER BY value NULLS FIRST) - 1 AS USMALLINT)"
        db.run(label, f"CREATE TABLE {self._table} AS SELECT value, {numbers} AS number FROM ({ordered})")
        rows = db.rows(label, f"SELECT CAST(value AS VARCHAR) FROM {self._table} ORDER BY number")
        self.names: list[str] = [row[0] for row in rows]
        for value in self.names:
            if not value or not value.isprintable():
                where = source.where(db, f"{name} IS NULL" if value is None else f"{name} = {literal(value)}")
                came = "null" if value is None else repr(value)
                raise InvalidArgumentError(
                    f"{label}, column {column!r}, {where}: {came}, expected the name of a relation: printable "
                    "characters, at least one"
                )
        self._counts = np.zeros(len(self.names), np.int64)

    @property
    def join(self) -> str:
        """What finds the relation of the rows ``s``."""
        return f"JOIN {self._table} r ON r.value = s.{quoted(self._column)}"

    def count(self, numbers: Any) -> None:
        """Take the relations of some edges, as pyarrow's array."""
        self._counts += np.bincount(numbers.to_numpy(), minlength=len(self.names))

    def parts(self, array: NpyFile) -> list[NpyFile]:
        """Return the rows of each relation, of an array with those of one relation after the other."""
        row = array.dtype.itemsize * int(np.prod(array.shape[1:]))
        firsts = np.cumsum(self._counts) - self._counts
        return [
            dataclasses.replace(array, offset=array.offset + int(first) * row, shape=(int(count), *array.shape[1:]))
            for first, count in zip(firsts, self._counts, strict=True)
        ]
