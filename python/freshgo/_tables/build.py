"""From tables to arrays in files: nodes in the order of their keys, edges in that of their ends and all they have."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import numpy as np

from freshgo._args.arrays import Array, NpyFile
from freshgo._args.parts import EdgeParts, GraphParts, NodeParts
from freshgo._args.progress import Progress
from freshgo._args.types import UNNAMED, EdgeType, reverse_names
from freshgo._spool.raw import Files
from freshgo._tables.columns import BadValueError, Column, Tensor, rows_of, tensors_of
from freshgo._tables.database import Database
from freshgo._tables.files import literal, quoted
from freshgo._tables.keys import Keys, key_type, write_keys, write_text
from freshgo._tables.source import Source, open_source
from freshgo._tables.table import Spec
from freshgo.errors import InvalidArgumentError

_MAX_SPLITS = 64
"""Splits of a type: a column with more values is hardly one of splits. Arbitrary."""


@dataclasses.dataclass
class Built:
    """A graph whose arrays lie in files."""

    parts: GraphParts
    attachments: dict[str, Array]


class Builder:
    """Makes the arrays of a graph, one table after the other."""

    def __init__(self, db: Database, files: Files, progress: Progress | None) -> None:
        self._db, self._files, self._progress = db, files, progress
        self._built = Built(GraphParts({}, {}), {})

    def build(self, nodes: Mapping[str, Spec | None], edges: Mapping[EdgeType, Spec], missing: str) -> Built:
        """Read all tables. A node type without a table has the nodes that edges name."""
        specs: dict[Any, Spec | None] = {**nodes, **edges}
        sources = {of: open_source(self._db, spec) for of, spec in specs.items() if spec is not None}
        keys = {of: self._keys(of, sources, edges, missing) for of in nodes}
        for of in nodes:
            self._nodes(of, sources.get(of), keys[of])
        for edge_type in edges:
            self._edges(sources[edge_type], keys[edge_type[0]], keys[edge_type[2]])
        return self._built

    def _keys(
        self, of: str, sources: Mapping[str | EdgeType, Source], edges: Mapping[EdgeType, Spec], missing: str
    ) -> Keys:
        """Sort the keys of a node type."""
        named = [(sources[of], str(sources[of].spec.table.id))] if of in sources else []
        for edge_type, spec in edges.items():
            ends = ((edge_type[0], spec.table.src), (edge_type[2], spec.table.dst))
            named += [(sources[edge_type], str(column)) for end, column in ends if end == of]
        keys = Keys(of, key_type(named), self._db.name("keys"), of in sources, missing == "add")
        return write_keys(
            self._db, self._files, keys, named if missing == "add" else named[:1], self._built.attachments
        )

    def _nodes(self, of: str, source: Source | None, keys: Keys) -> None:
        parts = NodeParts(keys.count, {}, {})
        self._built.parts.nodes[of] = parts
        if source is None:
            return
        tensors, split = tensors_of(source), source.spec.table.split
        books = self._books(source, tensors)
        columns = [f"{sql} AS c{i}" for i, sql in enumerate(self._selected(tensors, books))]
        if split is not None:
            columns.append(f"CAST(s.{quoted(split)} AS VARCHAR) AS split")
        if not columns:
            return
        key = keys.cast(f"s.{quoted(str(source.spec.table.id))}")
        rows, order = f"({source.sql}) s", key
        if keys.added:
            rows, order = f"{keys.table} k LEFT JOIN ({source.sql}) s ON {key} = k.key", "k.key"
        sql = f"SELECT {', '.join(columns)} FROM {rows} {self._joins(tensors, books)} ORDER BY {order}"
        outs = [self._files.new() for _ in tensors]
        splits: dict[str, Any] = {}
        done = 0
        for batch in self._read(source, f"nodes {of}".strip(), sql, tensors, keys.count):
            self._append(source, tensors, outs, batch, keys)
            if split is not None:
                self._split(source, batch.column(batch.num_columns - 1), done, splits)
            done += batch.num_rows
        parts.tensors = self._finished(tensors, outs)
        parts.splits = {name: file.finish(np.int64) for name, file in sorted(splits.items())}

    def _split(self, source: Source, values: Any, first: int, splits: dict[str, Any]) -> None:
        encoded = values.dictionary_encode()
        codes = encoded.indices.fill_null(-1).to_numpy(zero_copy_only=False)
        for code, name in enumerate(encoded.dictionary.to_pylist()):
            if name not in splits:
                if len(splits) == _MAX_SPLITS or not name:
                    raise InvalidArgumentError(
                        f"{source.spec.label}: the column {source.spec.table.split!r} must hold names of splits, at "
                        f"most {_MAX_SPLITS} of them, got {name!r} beside {sorted(splits)[:3]}"
                    )
                splits[name] = self._files.new()
            splits[name].append(np.flatnonzero(codes == code).astype(np.int64) + first)

    def _edges(self, source: Source, sources: Keys, targets: Keys) -> None:
        spec, table = source.spec, source.spec.table
        tensors = tensors_of(source)
        books = self._books(source, tensors)
        from_key, to_key = (
            keys.cast(f"s.{quoted(str(c))}") for keys, c in ((sources, table.src), (targets, table.dst))
        )
        columns = [f"{sql} AS c{i}" for i, sql in enumerate(self._selected(tensors, books))]
        ends = [f"{sources.node(from_key, 'ks')} AS src", f"{targets.node(to_key, 'kd')} AS dst"]
        every = not source.counted
        joined = [sources.join(from_key, "ks", all_rows=every), targets.join(to_key, "kd", all_rows=every)]
        joins = f"{' '.join(joined)} {self._joins(tensors, books)}"
        sql = f"SELECT {', '.join([*ends, *columns])} FROM ({source.sql}) s {joins}"
        both = table.reverse and spec.of == UNNAMED
        if both:
            names = "".join(f", c{i}" for i in range(len(columns)))
            sql = f"WITH e AS ({sql}) SELECT * FROM e UNION ALL SELECT dst AS src, src AS dst{names} FROM e"
        sql = f"SELECT * FROM ({sql}) ORDER BY {', '.join(['dst', 'src', *_ties(tensors)])}"
        ends_out, outs = [self._files.new(), self._files.new()], [self._files.new() for _ in tensors]
        done = 0
        for batch in self._read(source, f"edges {' '.join(spec.of)}".strip(), sql, tensors, 0):
            pairs = np.empty((batch.num_rows, 2), np.int64)
            for at in range(2):
                if batch.column(at).null_count:
                    raise self._dangling(source, sources, targets)
                pairs[:, at] = batch.column(at).to_numpy()
            done += len(pairs)
            ends_out[0].append(pairs)
            if table.reverse and not both:
                ends_out[1].append(pairs[:, ::-1])
            self._append(source, tensors, outs, batch, None, first=2)
        if not every and done != source.count(self._db) * (1 + both):
            raise self._dangling(source, sources, targets)
        arrays = self._finished(tensors, outs)
        edge_type: Any = spec.of
        self._built.parts.edges[edge_type] = EdgeParts(_edge_list(ends_out[0].finish(np.int64, (2,))), arrays)
        if table.reverse and not both:
            name = (edge_type[2], reverse_names(edge_type[1])[0], edge_type[0])
            back = _edge_list(ends_out[1].finish(np.int64, (2,)))
            self._built.parts.edges[name] = EdgeParts(back, dict(arrays))

    def _dangling(self, source: Source, sources: Keys, targets: Keys) -> InvalidArgumentError:
        """Say which end of an edge is no node."""
        label, table = source.spec.label, source.spec.table
        for keys, column in ((sources, str(table.src)), (targets, str(table.dst))):
            name, of = quoted(column), f" of {keys.of!r}" if keys.of else ""
            where = source.where(self._db, f"{name} IS NULL")
            if where is not None:
                return InvalidArgumentError(f"{label}, column {column!r}, {where}: null, expected the key of a node")
            where = source.where(self._db, f"{keys.cast(name)} NOT IN (SELECT key FROM {keys.table})")
            if where is not None:
                return InvalidArgumentError(
                    f"{label}, column {column!r}, {where}: no node{of} has this key (missing='add' adds such nodes)"
                )
        return InvalidArgumentError(f"{label} changed while it was being read")

    def _books(self, source: Source, tensors: list[Tensor]) -> dict[str, str]:
        """Sort the values of every column of strings; returns the tables of values by column."""
        books = {}
        owner = source.spec.of if isinstance(source.spec.of, str) else "__".join(source.spec.of)
        for column in {c.name: c for t in tensors for c in t.columns if c.text}.values():
            table = books[column.name] = self._db.name("book")
            values = _text(column, "s")
            self._db.run(
                source.spec.label,
                f"CREATE TABLE {table} AS SELECT DISTINCT {values} AS value FROM ({source.sql}) s "
                f"WHERE {values} IS NOT NULL ORDER BY value",
            )
            write_text(
                self._db,
                self._files,
                source.spec.label,
                f"SELECT value FROM {table} ORDER BY rowid",
                f"categories/{owner}/{column.name}",
                self._built.attachments,
            )
        return books

    @staticmethod
    def _joins(tensors: list[Tensor], books: Mapping[str, str]) -> str:
        columns = {c.name: c for t in tensors for c in t.columns if c.text}
        return " ".join(
            f"LEFT JOIN {table} b{i} ON b{i}.value = {_text(columns[name], 's')}"
            for i, (name, table) in enumerate(books.items())
        )

    @staticmethod
    def _selected(tensors: list[Tensor], books: Mapping[str, str]) -> list[str]:
        places = {name: f"b{i}.rowid" for i, name in enumerate(books)}
        return [
            places[c.name] if c.text else c.sql.replace(quoted(c.name), f"s.{quoted(c.name)}", 1)
            for t in tensors
            for c in t.columns
        ]

    def _read(self, source: Source, stage: str, sql: str, tensors: list[Tensor], total: int) -> Any:
        """Yield batches of about a thirty-second of the memory, and report how far it is."""
        widths = [self._width(source, column) for t in tensors for column in t.columns]
        rows = self._db.memory // 32 // (16 + 8 * sum(widths))
        rows = min(max(rows // 2048 * 2048, 2048), 1 << 17)
        done = 0
        if self._progress is not None:
            self._progress(f"sorting {stage}", 0, total)
        for batch in self._db.batches(source.spec.label, sql, rows):
            yield batch
            done += batch.num_rows
            if self._progress is not None:
                self._progress(f"reading {stage}", done, total)

    def _width(self, source: Source, column: Column) -> int:
        if not column.is_list:
            return 1
        found = self._db.rows(source.spec.label, f"SELECT len({quoted(column.name)}) FROM ({source.sql}) LIMIT 1")
        return int(found[0][0] or 1) if found else 1

    def _append(
        self, source: Source, tensors: list[Tensor], outs: list[Any], batch: Any, keys: Keys | None, first: int = 0
    ) -> None:
        at = first
        for tensor, out in zip(tensors, outs, strict=True):
            blocks = []
            for column in tensor.columns:
                try:
                    blocks.append(rows_of(column, batch.column(at), tensor.dtype))
                except BadValueError as bad:
                    raise self._located(source, bad, keys) from None
                at += 1
            rows = blocks[0] if len(blocks) == 1 else np.concatenate(blocks, axis=1)
            out.append(rows.reshape(-1) if tensor.flat else rows)

    def _located(self, source: Source, bad: BadValueError, keys: Keys | None) -> Exception:
        label = f"{source.spec.label}, column {bad.column!r}"
        where = source.where(self._db, bad.condition)
        if where is None and keys is not None and keys.added:
            return InvalidArgumentError(
                f"{label}: nodes that only edges name have no value (nulls= of the Table says what it becomes)"
            )
        return bad.error(f"{label}, {where or 'a row'}")

    @staticmethod
    def _finished(tensors: list[Tensor], outs: list[Any]) -> dict[str, Array]:
        arrays: dict[str, Array] = {}
        for tensor, out in zip(tensors, outs, strict=True):
            row = () if tensor.flat else (sum(column.width or 1 for column in tensor.columns),)
            arrays[tensor.name] = out.finish(tensor.dtype, row)
        return arrays


def _edge_list(pairs: NpyFile) -> NpyFile:
    """Return pairs of ends ``[edges, 2]`` as an edge list ``[2, edges]`` over the same file."""
    return dataclasses.replace(pairs, shape=pairs.shape[::-1], fortran=True)


def _text(column: Column, table: str) -> str:
    value = f"CAST({table}.{quoted(column.name)} AS VARCHAR)"
    return value if column.fill is None else f"coalesce({value}, {literal(column.fill)})"


def _ties(tensors: list[Tensor]) -> list[str]:
    """By what edges with equal ends are ordered: all that they have, 0.0 after -0.0."""
    ties, at = [], 0
    for tensor in tensors:
        for column in tensor.columns:
            ties.append(f"c{at}")
            if tensor.dtype.kind == "f":
                sign = f"list_transform(c{at}, lambda x: NOT signbit(CAST(x AS DOUBLE)))"
                ties.append(sign if column.is_list else f"NOT signbit(CAST(c{at} AS DOUBLE))")
            at += 1
    return ties
