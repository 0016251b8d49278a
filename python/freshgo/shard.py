"""Dividing the rows of a store among hosts."""

from __future__ import annotations

import contextlib
import errno
import functools
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from freshgo._args import checks
from freshgo._args.arrays import Array, Stream
from freshgo._args.choices import Metric
from freshgo._args.entry import entry
from freshgo._args.parts import EdgeParts, GraphParts, NodeParts
from freshgo._args.progress import Progress, finish, progress_of
from freshgo._args.size import parse_size
from freshgo._args.types import UNNAMED, EdgeType
from freshgo._args.urls import place_of
from freshgo._native.loader import stored_rows
from freshgo._row_exchange.division import NAME, DividedNodes, Division, Rows, ranges
from freshgo._row_exchange.rows import as_bytes
from freshgo._sources.opening import Opening
from freshgo._staging.publishing import publish, recover
from freshgo._staging.workplace import workplace, written
from freshgo.convert import write_parts
from freshgo.errors import OVERWRITE, InvalidArgumentError, StoreExistsError
from freshgo.policies import Hotness
from freshgo.relayout import Relayout
from freshgo.store import Store, opened
from freshgo.update import update

if TYPE_CHECKING:
    from freshgo.relayout import Scores

__all__ = ["shard"]

_WHOLE_BYTES = 8
"""The largest rows, in bytes, of tensors that stay whole: labels and times, no larger than an edge."""

_CHUNK_BYTES, _CHUNK_NODES = 4 << 20, 1 << 22
"""What is read from the store at a time, and the nodes that one loader is given. Arbitrary."""


@entry
def shard(
    store: Store | str | os.PathLike[str],
    path: str | os.PathLike[str],
    *,
    parts: int,
    hotness: Metric | Hotness | Scores | Mapping[str, Scores] | None = None,
    num_neighbors: Sequence[int] | Mapping[EdgeType, Sequence[int]] | None = None,
    input_nodes: Any = None,
    batch_size: int = 1024,
    memory: int | str = "1GiB",
    overwrite: bool = False,
    progress: bool | Progress = True,
) -> Path:
    """Divide the rows of a store's node tensors among ``parts``, for
    ``Loader(path, ..., ranks=Ranks(features="sharded"))``.

    The directory ``path`` gets a store ``graph`` with everything but these tensors, a store ``part-0``, ``part-1``, ...
    for each part, and ``parts.json``, which says that they belong together. A host needs ``graph``, ``parts.json`` and
    the parts that its ranks read. The files of ``graph`` are shared with ``store`` where the file system can do so.

    A part has a range of the nodes of every type. Of the visits and of the rows it has at most twice its share: a range
    ends where the sum of both shares is even. Divided are all tensors of nodes whose rows take more than 8 bytes as
    they are stored. Labels and times stay whole, so that nobody waits for them. What :func:`freshgo.propagate` has
    computed from divided tensors is left out.

    Args:
        store: an open store, or the path of one. It stays as it is.
        path: the directory to create.
        parts: how many, such as the number of hosts.
        hotness: how often a node is visited, as for :func:`freshgo.relayout`: scores, or a metric. None is
            ``"expected"`` if ``num_neighbors`` is given, else ``"degree"``.
        num_neighbors, input_nodes, batch_size: for ``"expected"`` and ``"presc"``, as for the loader that will be used.
        memory: bytes, or a string such as ``"8GiB"``. Scores need 4 bytes a node beside it, and ranges 24 bytes for
            each node of the largest type.
        overwrite: replace parts that are at ``path``; they stay until the new ones are complete.
        progress: show a bar, then what was written; or a callable, called with ``(stage, done, total)``.

    Returns:
        The path of the directory.

    Raises:
        InvalidArgumentError, DTypeError: more parts than nodes, no tensor to divide, an invalid metric or scores.
        StoreExistsError: ``path`` exists, and ``overwrite`` is false or these are no parts.
        StoreNotFoundError, FormatError, CorruptError, ReadError: ``store`` is missing or damaged.
        BudgetError, BusyError, StorePermissionError, WriteError: as for :func:`freshgo.convert`.
    """
    wanted = Relayout.of(
        {"hotness": hotness, "num_neighbors": num_neighbors, "input_nodes": input_nodes, "batch_size": batch_size}
    )
    count, n_bytes, target = checks.count("parts", parts, 1, 1 << 16), parse_size("memory", memory), place_of(path)
    replace = checks.flag("overwrite", overwrite)
    with opened(store) as source, progress_of(progress) as report:
        tensors = _divided(source)
        scores = wanted.scores(source, n_bytes)
        nodes = tuple(
            DividedNodes(node_type, ranges(of_type, count), tensors[node_type])
            for node_type, of_type in _by_type(source, scores)
            if tensors[node_type]
        )
        _check_parts(nodes, count)
        with _directory(target, replace) as directory:
            _write(source, directory, nodes, count, n_bytes, report)
        finish(report, target, f"{count} parts and the graph")
    return target


def _write(
    source: Store, target: Path, nodes: tuple[DividedNodes, ...], count: int, memory: int, report: Progress | None
) -> None:
    drop = {of.node_type: [rows.name for rows in of.tensors] for of in nodes}
    dropped = next(iter(drop.values())) if source._contents.types.homogeneous else drop
    show: bool | Progress = report or False
    with update(source, target / "graph", drop=dropped, memory=memory, progress=show) as graph:
        uuid = graph.uuid
    parts = []
    for part in range(count):
        place = target / f"part-{part}"
        with Opening(place, None, False, report) as opening:
            graph_parts = _part(source, nodes, part)
            parts.append(_part_store(graph_parts, place, memory, report, opening))
    with written(target):
        Division(source.uuid, uuid, tuple(parts), nodes).write(target)


def _part_store(parts: GraphParts, place: Path, memory: int, report: Progress | None, opening: Opening) -> str:
    with write_parts(
        parts,
        place,
        memory=memory,
        relayout=None,
        weight_attr=None,
        dtype=None,
        clip=False,
        overwrite=False,
        progress=report,
        opening=opening,
    ) as store:
        return store.uuid


def _divided(store: Store) -> dict[str, tuple[Rows, ...]]:
    """The tensors of each node type whose rows are divided, as the store holds them."""
    found: dict[str, tuple[Rows, ...]] = {}
    for place, (node_type, of) in enumerate(store._contents.nodes.items()):
        first = next(_batches(store, node_type, 0, 1, 1)) if of.num_nodes else {}  # rows as they are stored
        rows = []
        for name, info in of.tensors.items():
            row = first.get(store._contents.types.node_name(place, name))
            if row is None or info.aggregate is not None:
                continue
            described = of._described(name)
            stored = None if described["error"] is None else described
            one = Rows(name, row.dtype, tuple(row.shape[1:]), stored)
            if one.n_bytes > _WHOLE_BYTES:
                rows.append(one)
        found[node_type] = tuple(rows)
    if not any(found.values()):
        raise InvalidArgumentError(
            f"{store.path} has nothing to divide: no tensor of nodes takes more than {_WHOLE_BYTES} bytes a row"
        )
    return found


def _batches(store: Store, node_type: str, first: int, end: int, rows: int) -> Iterator[dict[str, torch.Tensor]]:
    """Yield the stored rows of a range of nodes, in pieces."""
    counts = store._contents.types.num_nodes
    before = sum(list(counts.values())[: list(counts).index(node_type)])
    for begin in range(first, end, _CHUNK_NODES):
        seeds = torch.arange(before + begin, before + min(end, begin + _CHUNK_NODES))
        yield from stored_rows(store._contents.native, seeds, rows, checksums=True)


def _by_type(store: Store, scores: torch.Tensor) -> Iterator[tuple[str, torch.Tensor]]:
    counts = store._contents.types.num_nodes
    return zip(counts, torch.split(scores, list(counts.values())), strict=True)


def _check_parts(nodes: tuple[DividedNodes, ...], count: int) -> None:
    most = max(of.bounds[-1] for of in nodes)
    if count > most:
        raise InvalidArgumentError(f"parts must be at most {most}, as many as there are nodes with rows, got {count}")


def _part(store: Store, nodes: tuple[DividedNodes, ...], part: int) -> GraphParts:
    """One part, as a graph without edges."""
    found: dict[str, NodeParts] = {}
    for of in nodes:
        tensors: dict[str, Array] = {rows.name: _stream(store, of, rows, part) for rows in of.tensors}
        found[of.node_type] = NodeParts(of.count(part), tensors, {})
    first = nodes[0].node_type
    edge_type = UNNAMED if store._contents.types.homogeneous else (first, "none", first)
    return GraphParts(found, {edge_type: EdgeParts(torch.empty((2, 0), dtype=torch.int64), {})})


def _stream(store: Store, of: DividedNodes, rows: Rows, part: int) -> Stream:
    """The rows of a part: as numbers where NumPy has such, else as bytes."""
    try:
        dtype, shape = torch.empty(0, dtype=rows.dtype).numpy().dtype, rows.shape
    except TypeError:  # bfloat16
        dtype, shape = np.dtype(np.uint8), (rows.n_bytes,)
    return Stream(
        f"{rows.name} of part {part}",
        dtype,
        (of.count(part), *shape),
        functools.partial(_pieces, store, of, rows, part),
    )


def _pieces(store: Store, of: DividedNodes, rows: Rows, part: int) -> Iterator[Any]:
    name = store._contents.types.node_name(list(store._contents.nodes).index(of.node_type), rows.name)
    at_a_time = max(1, _CHUNK_BYTES // of.n_bytes)
    for tensors in _batches(store, of.node_type, of.bounds[part], of.bounds[part + 1], at_a_time):
        yield as_bytes(tensors[name]).numpy().data


@contextlib.contextmanager
def _directory(target: Path, overwrite: bool) -> Iterator[Path]:
    """Give a directory that takes its place when it is whole. What an earlier call left there is removed."""
    with workplace(target, ".shard") as work:
        recover(target, _is_parts)
        if os.path.lexists(target):
            if not overwrite:
                raise StoreExistsError(errno.EEXIST, OVERWRITE, str(target))
            if not _is_parts(target):
                raise StoreExistsError(errno.EEXIST, f"exists and has no {NAME}, so it is not replaced", str(target))
        there = work / "parts"
        with written(there):
            there.mkdir()
        yield there
        publish(there, target)


def _is_parts(path: Path) -> bool:
    return (path / NAME).is_file()
