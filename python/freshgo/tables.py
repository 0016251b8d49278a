"""Graphs in tables: Parquet, CSV, JSON, Arrow, frames; and the keys that their nodes have."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping
from typing import Any

from freshgo._args.checks import choice, flag, shown
from freshgo._args.choices import Missing, Order
from freshgo._args.entry import entry
from freshgo._args.hints import did_you_mean
from freshgo._args.progress import Progress, progress_of
from freshgo._args.size import parse_size
from freshgo._args.types import UNNAMED, EdgeType
from freshgo._args.urls import check_local
from freshgo._staging.raw import Files
from freshgo._staging.workplace import workplace
from freshgo._tables.build import Builder
from freshgo._tables.database import Database, duckdb
from freshgo._tables.table import Spec, Table, spec_of
from freshgo._tables.urls import Remote
from freshgo.convert import write_parts
from freshgo.errors import OVERWRITE, DTypeError, InvalidArgumentError, StoreExistsError
from freshgo.relayout import Relayout
from freshgo.store import Store

__all__ = ["Table", "convert_tables"]

ANY = "*"
"""Stands for the relation in the edge type of a table whose column names the relations."""


@entry
def convert_tables(
    nodes: Table | Mapping[str, Table | None] | None,
    edges: Table | Mapping[EdgeType, Table],
    path: str | os.PathLike[str],
    *,
    missing: Missing = "error",
    memory: int | str = "1GiB",
    relayout: Order | Mapping[str, Any] | None = None,
    weight_attr: str | Mapping[EdgeType, str] | None = None,
    dtype: Mapping[Any, Any] | None = None,
    clip: bool = False,
    overwrite: bool = False,
    progress: bool | Progress = True,
) -> Store:
    """Write a graph whose nodes and edges are in tables as a store at ``path`` and open it.

    ::

        store = convert_tables(
            nodes={"user": Table("users/*.parquet", id="uid", features=["age", "embedding"], label="y", split="split"),
                   "item": Table("items.csv", id="sku", features=["price"])},
            edges={("user", "buys", "item"): Table("purchases/", src="uid", dst="sku", time="at", reverse=True)},
            path="shop.freshgo", memory="8GiB")
        store.ids("user").keys(batch["user"].n_id)

    The nodes of a type are numbered in the order of their keys; edges are in the order of their targets, then sources,
    then of all other columns that are used. So the order of rows and of files never changes the result. The store keeps
    the keys (:meth:`Store.ids`) and the values of categories (:meth:`Store.categories`).

    DuckDB sorts keys and joins the tables in the directory ``<path>.tables``, within ``memory``; it needs there about
    two times the size of the arrays and is removed in the end. Files at URLs are copied there first, each once. The
    store appears whole or not at all.

    Args:
        nodes: the :class:`Table` of each node type, or of a homogeneous graph its only one. A node type that has no
            table (left out, or None) needs ``missing="add"``.
        edges: the :class:`Table` of each edge type, or of a homogeneous graph its only one. A Table with ``relation=``
            holds many edge types: ``("author", "*", "paper")`` has it, or it is the only one, between nodes of the type
            in ``nodes`` (``"entity"`` where that is a Table or None).
        path: the directory to create.
        missing: what becomes of an edge with an end that no node has as its key: ``"error"``; ``"add"``: the key
            becomes a node, whose columns are nulls; ``"drop"``: the edge is left out, also where an end is null. How
            many were left out of each table is in ``store.history`` and in the log (``freshgo``).
        memory: bytes, or a string such as ``"8GiB"``; at least ``"128MiB"``.
        relayout: as of :func:`freshgo.convert`.
        weight_attr: as of :func:`freshgo.convert`: ``"edge_weight"`` for the column ``weight``.
        dtype: as of :func:`freshgo.convert`.
        clip: as of :func:`freshgo.convert`.
        overwrite: replace a store that is at ``path``; it stays valid until the new one is complete.
        progress: show a bar, then what was written; or a callable, called with ``(stage, done, total)``.

    Raises:
        InvalidArgumentError: a column is missing; a key is null, occurs twice, or no node has it; a null, a list of
            another length, a number too large for float32; more than 2^32 nodes of a type. The message names table,
            column, file, row (counted from 0, headers are none) and key.
        DTypeError: a column has a type that cannot be used where it is; keys of several kinds.
        LibraryError: duckdb and pyarrow are not installed (``pip install 'freshgo[tables]'``), or the package that a
            URL needs.
        StoreNotFoundError: there is no such file.
        StoreExistsError, BudgetError, BusyError, StorePermissionError, WriteError, ReadError: as of
            :func:`freshgo.convert`.
    """
    n_bytes, overwrite, clip = parse_size("memory", memory), flag("overwrite", overwrite), flag("clip", clip)
    check_local(path)
    wanted = None if relayout is None else Relayout.of(relayout)
    rule = choice("missing", missing, Missing)
    node_specs, edge_specs = _specs(nodes, edges, rule)
    duckdb()
    if os.path.lexists(path) and not overwrite:
        raise StoreExistsError(17, OVERWRITE, str(path))
    with progress_of(progress) as report, workplace(path, ".tables") as directory:
        with contextlib.closing(Files(directory)) as files:
            remote = Remote(directory, report)
            with remote.named(), contextlib.closing(Database(directory, n_bytes)) as db:
                node_specs, edge_specs = remote.copied(node_specs), remote.copied(edge_specs)
                built = Builder(db, files, report).build(node_specs, edge_specs, rule)
            remote.remove()
            (directory / "tables.duckdb").unlink(missing_ok=True)  # room for the store
            with files.unnamed():
                return write_parts(
                    built.parts,
                    path,
                    memory=n_bytes,
                    relayout=wanted,
                    weight_attr=weight_attr,
                    dtype=dtype,
                    clip=clip,
                    overwrite=overwrite,
                    progress=report,
                    attachments=built.attachments,
                    details="; ".join(built.dropped),
                )


def _specs(nodes: object, edges: object, missing: str) -> tuple[dict[str, Spec | None], dict[EdgeType, Spec]]:
    """Check tables and types."""
    given: dict[Any, Any]
    by_type: dict[Any, Any]
    if isinstance(edges, Table) and edges.relation is not None:
        given = dict(nodes) if isinstance(nodes, Mapping) else {"entity": nodes}
        if len(given) != 1:
            raise InvalidArgumentError(
                f"nodes has the types {', '.join(map(repr, given)) or 'of no table'}, and edges is one Table with "
                "relation=: say between which types it leads, as in edges={('author', '*', 'paper'): Table(...)}"
            )
        (end,) = given
        by_type = {(end, ANY, end): edges}
    elif isinstance(edges, Table):
        if not (nodes is None or isinstance(nodes, Table)):
            raise DTypeError(f"nodes must be a Table, as edges are one, got {shown(nodes)}")
        given, by_type = {"": nodes}, {UNNAMED: edges}
    elif isinstance(nodes, Mapping | None) and isinstance(edges, Mapping) and edges:
        given, by_type = dict(nodes or {}), dict(edges)
    else:
        raise DTypeError(
            "nodes and edges must both be a Table, or mappings from node types and edge types to Tables, got "
            f"{type(nodes).__name__} and {shown(edges)}"
        )
    for key in (*given, *by_type):
        names = key if isinstance(key, tuple) else (key,)
        named = by_type.keys() != {UNNAMED}
        if len(names) != (3 if key in by_type else 1) or not all(
            isinstance(name, str) and (not named or (name and name.isprintable())) for name in names
        ):
            raise InvalidArgumentError(
                f"the types must be named as 'user' and ('user', 'buys', 'item') in printable characters, got {key!r}"
            )
    for of, table in by_type.items():
        if isinstance(table, Table) and (of[1] == ANY) != (table.relation is not None):
            any_of = (of[0], ANY, of[2])
            raise InvalidArgumentError(
                f"edges[{of!r}] is a Table without relation=, the column with the names of the relations"
                if table.relation is None
                else f"edges[{of!r}] is a Table with relation={table.relation!r}: give it as edges[{any_of!r}]"
            )
    for end in (end for edge_type in by_type for end in (edge_type[0], edge_type[2])):
        given.setdefault(end, None)
    node_specs = {of: None if table is None else spec_of(of, table) for of, table in given.items()}
    edge_specs = {of: spec_of(of, table) for of, table in by_type.items()}
    ends = {end for of in edge_specs for end in (of[0], of[2])}
    for of, spec in node_specs.items():
        if spec is None and of not in ends:
            raise InvalidArgumentError(f"the node type {of!r} has neither a table nor edges")
        if spec is None and missing != "add":
            what = f"the node type {of!r} has no table" if of else "there is no table of nodes"
            near = did_you_mean(of, [name for name, one in node_specs.items() if one is not None])
            raise InvalidArgumentError(
                f"{what}: give one in nodes, or missing='add' to make nodes of the keys that edges have{near}"
            )
    _check_names(node_specs, edge_specs)
    return node_specs, edge_specs


def _check_names(nodes: Mapping[str, Spec | None], edges: Mapping[EdgeType, Spec]) -> None:
    """Refuse a tensor of nodes and one of edges with the same name where a batch has both, and types twice."""
    if UNNAMED in edges and nodes.get("") is not None:
        both = set(nodes[""].tensors) & set(edges[UNNAMED].tensors)  # type: ignore[union-attr]
        if both:
            raise InvalidArgumentError(
                f"nodes and edges both have a tensor {sorted(both)[0]!r}: in a homogeneous graph a batch has one of a "
                "name, give one of them another by tensors="
            )
    for of, spec in edges.items():
        back = (of[2], f"rev_{of[1]}", of[0])
        if spec.table.reverse and of != UNNAMED and back in edges:
            raise InvalidArgumentError(f"edges[{of!r}] has reverse=True, but {back} has a table of its own")
