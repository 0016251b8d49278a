"""OGB's directories as they are downloaded, read without the package and piece by piece: CSV files or archives."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from freshgo._args.arrays import NpyFile
from freshgo._args.levels import ROWS
from freshgo._sources.archives import Member, members
from freshgo._sources.csv_files import read_counts, read_csv, read_header, read_words
from freshgo._sources.ogb_names import KNOWN, name_of, tensor_name
from freshgo._sources.opening import Graph, Opening, links_attached
from freshgo.errors import FormatError, InvalidArgumentError, StoreNotFoundError

_CSV, _ARCHIVE = "edge.csv.gz", "data.npz"
_CSV_TYPES, _ARCHIVE_TYPES = "triplet-type-list.csv.gz", "edge_index_dict.npz"

_COUNTS = {"num_nodes_list", "num_edges_list"}
_TYPE_COUNTS = {"num_nodes_dict.npz", "num_edges_dict.npz", "edge_index_dict.npz"}

_CHUNK = 1 << 17
"""Edges that get their other direction at a time. Arbitrary: 2 MiB."""


def is_ogb_directory(data: object) -> bool:
    """Whether a path is a directory of OGB, or its ``raw``."""
    return isinstance(data, Path) and any(
        (directory / name).is_file()
        for directory in (data, data / "raw")
        for name in (_CSV, _ARCHIVE, _CSV_TYPES, _ARCHIVE_TYPES)
    )


def read_ogb_directory(path: Path, opening: Opening, name: str | None = None, forced: bool = False) -> Graph:
    """Return the graph of a directory with its labels and splits.

    Args:
        path: the directory of a data set.
        opening: where arrays go.
        name: the data set; by default that after which the directory is named.
        forced: the directory is one of OGB's form, but of no data set that is known: its edges are all in the files.

    Raises:
        InvalidArgumentError: what is in the files depends on the data set, which is not known; a pickle.
        FormatError, CorruptError, DTypeError, StoreNotFoundError: files that are not as OGB writes them.
    """
    if not path.is_dir():
        raise StoreNotFoundError(2, "no such directory", str(path))
    root = path.parent if path.name == "raw" else path
    raw = root / "raw" if (root / "raw").is_dir() else root
    name = name or name_of(root.resolve().name)
    if (raw / _ARCHIVE_TYPES).is_file():
        typed, words = _archives_of_types(raw, opening), "archives by type"
    elif (raw / _CSV_TYPES).is_file():
        typed, words = _csv_of_types(raw, opening), "CSV files by type"
    elif (raw / _ARCHIVE).is_file():
        typed, words = _archive(raw, opening), "an archive"
    elif (raw / _CSV).is_file():
        if name is None and not forced:
            raise InvalidArgumentError(
                f"{root} is a directory of OGB, but not named after one of its data sets, and whether each edge stands "
                "for both directions is not in the files: name the data set, as source='ogbn-products', or give "
                "source='ogb' if it does not"
            )
        inverse = name is not None and KNOWN[name].inverse
        typed, words = _csv(raw, opening, inverse), "CSV files" + (", both directions of each edge" if inverse else "")
    else:
        raise StoreNotFoundError(2, f"no {_CSV}, {_ARCHIVE}, {_CSV_TYPES} or {_ARCHIVE_TYPES}", str(raw))
    links = _add_splits(root / "split", name, typed, opening)
    words = f"the OGB data set {name} ({words})" if name else f"a directory of OGB ({words})"
    return Graph(typed, words, links, ROWS)


def _one(counts: Any, path: Path) -> int:
    if len(counts) != 1:
        raise FormatError(f"{path}: {len(counts)} graphs, expected one")
    return int(counts[0])


def _archive(raw: Path, opening: Opening) -> dict[Any, Any]:
    found = members(raw / _ARCHIVE)
    lacking = {"edge_index", *_COUNTS} - found.keys()
    if lacking:
        raise FormatError(f"{raw / _ARCHIVE}: no member {sorted(lacking)[0]!r}, only {sorted(found)}")
    nodes: dict[str, Any] = {"num_nodes": _one(found["num_nodes_list"].read(), raw / _ARCHIVE)}
    edges: dict[str, Any] = {"edge_index": found["edge_index"].file(opening)}
    for name, member in found.items():
        if name not in {"edge_index", *_COUNTS}:
            (edges if name.startswith("edge_") else nodes)[tensor_name(name)] = member.array(opening)
    labels = raw / "node-label.npz"
    if labels.is_file():
        nodes["y"] = _only(members(labels), "node_label", labels).array(opening)
    return {"": nodes, ("", "", ""): edges}


def _only(found: dict[str, Member], name: str, path: Path) -> Member:
    if name not in found:
        raise FormatError(f"{path}: no member {name!r}, only {sorted(found)}")
    return found[name]


def _archives_of_types(raw: Path, opening: Opening) -> dict[Any, Any]:
    nodes: dict[Any, dict[str, Any]] = {
        name: {"num_nodes": _one(member.read(), raw / "num_nodes_dict.npz")}
        for name, member in sorted(members(raw / "num_nodes_dict.npz").items())
    }
    edges: dict[Any, dict[str, Any]] = {
        tuple(name.split("___")): {"edge_index": member.file(opening)}
        for name, member in sorted(members(raw / _ARCHIVE_TYPES).items())
    }
    for path in sorted(raw.glob("*.npz")):
        if path.name in _TYPE_COUNTS:
            continue
        of = edges if path.name.startswith("edge_") else nodes
        name = tensor_name(path.stem.removesuffix("_dict").replace("-", "_"))
        for key, member in members(path).items():
            owner = tuple(key.split("___")) if of is edges else key
            if owner not in of:
                raise FormatError(f"{path}: the member {key!r} is of no type of the graph, which are {sorted(of)}")
            of[owner][name] = member.array(opening)
    return {**nodes, **edges}


def _csv(raw: Path, opening: Opening, inverse: bool) -> dict[Any, Any]:
    counts = raw / "num-node-list.csv.gz"
    nodes: dict[str, Any] = {"num_nodes": _one(read_counts(counts), counts)}
    edges = _csv_edges(raw, opening, inverse)
    _csv_tensors(raw, nodes, edges, opening, inverse)
    return {"": nodes, ("", "", ""): edges}


def _csv_edges(directory: Path, opening: Opening, inverse: bool) -> dict[str, Any]:
    pairs = read_csv(directory / _CSV, opening, columns=2, integers=True)
    counts = directory / "num-edge-list.csv.gz"
    count = _one(read_counts(counts), counts)
    if pairs.shape[0] != count:
        raise FormatError(f"{directory / _CSV}: {pairs.shape[0]} edges, expected {count} as {counts.name} has")
    if inverse:
        pairs = opening.keep_rows(_CSV, _both_ways(pairs), np.int64, (2,))
    return {"edge_index": dataclasses.replace(pairs, shape=pairs.shape[::-1], fortran=True)}


def _mapped(array: NpyFile) -> np.ndarray[Any, Any]:
    if 0 in array.shape:
        return np.empty(array.shape, array.dtype)
    return np.memmap(array.path, array.dtype, "r", array.offset, array.shape)


def _both_ways(pairs: NpyFile) -> Iterator[np.ndarray[Any, Any]]:
    """Yield each edge and then its other direction, as OGB numbers them."""
    for first in range(0, pairs.shape[0], _CHUNK):
        chunk = _mapped(pairs)[first : first + _CHUNK]  # mapped anew, so that no more than a chunk stays in memory
        yield np.stack([chunk, chunk[:, ::-1]], axis=1).reshape(-1, 2)


def _twice(rows: NpyFile) -> Iterator[np.ndarray[Any, Any]]:
    for first in range(0, rows.shape[0], _CHUNK):
        yield np.repeat(_mapped(rows)[first : first + _CHUNK], 2, axis=0)


def _csv_tensors(
    directory: Path, nodes: dict[str, Any], edges: dict[str, Any] | None, opening: Opening, inverse: bool = False
) -> None:
    """Add the tensors of nodes and edges whose files are in a directory."""
    for path in sorted(directory.glob("*.csv.gz")):
        name = path.name.removesuffix(".csv.gz").replace("-", "_")
        name = "node_species" if name == "species" else name  # as ogbn-proteins has it, until ogb renames the file
        if name.startswith("node_"):
            nodes[tensor_name(name)] = read_csv(path, opening)
        elif edges is not None and name.startswith("edge_"):
            rows = read_csv(path, opening)
            edges[tensor_name(name)] = (
                opening.keep_rows(path.name, _twice(rows), rows.dtype, rows.shape[1:]) if inverse else rows
            )


def _csv_of_types(raw: Path, opening: Opening) -> dict[Any, Any]:
    counts = raw / "num-node-dict.csv.gz"
    nodes: dict[Any, dict[str, Any]] = {}
    for node_type, column in sorted(read_header(counts).items()):
        try:
            nodes[node_type] = {"num_nodes": _one([int(float(count)) for count in column], counts)}
        except (ValueError, OverflowError) as error:
            raise FormatError(f"{counts}: expected counts: {error}") from None
        _csv_tensors(raw / "node-feat" / node_type, nodes[node_type], None, opening)
    edges: dict[Any, dict[str, Any]] = {}
    for row in sorted(read_words(raw / _CSV_TYPES)):
        if len(row) != 3:
            raise FormatError(f"{raw / _CSV_TYPES}: expected rows of source, relation and target, got {row}")
        directory = raw / "relations" / "___".join(row)
        edges[tuple(row)] = _csv_edges(directory, opening, False)
        _csv_tensors(directory, {}, edges[tuple(row)], opening)
    labelled = raw / "nodetype-has-label.csv.gz"
    if labelled.is_file():
        for node_type in _named(labelled, nodes):
            nodes[node_type]["y"] = read_csv(raw / "node-label" / node_type / "node-label.csv.gz", opening)
    return {**nodes, **edges}


def _named(path: Path, nodes: dict[Any, Any]) -> list[str]:
    """Return the node types that a file says to have something."""
    found = [name for name, column in read_header(path).items() if column[:1] == ["True"]]
    unknown = set(found) - set(nodes)
    if unknown:
        raise FormatError(f"{path}: the node type {sorted(unknown)[0]!r} is none of {list(nodes)}")
    return found


def _add_splits(split: Path, name: str | None, typed: dict[Any, Any], opening: Opening) -> dict[str, Any]:
    """Add splits of nodes to their types; returns those of links as attachments."""
    choices = sorted(path for path in split.iterdir() if path.is_dir()) if split.is_dir() else []
    usual = split / KNOWN[name].split if name else None
    if not choices:
        return {}
    if usual not in choices and len(choices) > 1:
        raise InvalidArgumentError(f"{split} has several splits, {[path.name for path in choices]}: leave one there")
    directory = usual if usual is not None and usual in choices else choices[0]
    nodes = {key: part for key, part in typed.items() if isinstance(key, str)}
    types = directory / "nodetype-has-split.csv.gz"
    owners = {node_type: directory / node_type for node_type in _named(types, nodes)} if types.is_file() else {}
    if "" in nodes and list(directory.glob("*.csv.gz")):
        owners = {"": directory}
    if owners:
        for node_type, files in owners.items():
            nodes[node_type]["splits"] = {
                path.name.removesuffix(".csv.gz"): _ids(read_csv(path, opening, columns=1, integers=True))
                for path in sorted(files.glob("*.csv.gz"))
            }
        return {}
    return _unpickled_splits(directory, nodes, opening)


def _ids(column: NpyFile) -> NpyFile:
    return dataclasses.replace(column, shape=column.shape[:1])


def _unpickled_splits(directory: Path, nodes: dict[str, Any], opening: Opening) -> dict[str, Any]:
    whole = directory / "split_dict.pt"
    files = {path.stem: path for path in sorted(directory.glob("*.pt"))}
    if whole.is_file():
        splits = opening.unpickled(whole)
    else:
        splits = {split: opening.unpickled(path) for split, path in files.items()}
    splits = {split: value for split, value in (splits or {}).items() if value is not None}
    links = {}
    for split, value in splits.items():
        if not isinstance(value, dict):
            nodes[""].setdefault("splits", {})[split] = value
        elif value and set(value) <= set(nodes):
            for node_type, ids in value.items():
                nodes[node_type].setdefault("splits", {})[split] = ids
        else:
            links[split] = value
    return links_attached(links, list(nodes))
