"""IGB's directories of ``.npy`` files. In the large ones features and labels have no header."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from freshgo._args.arrays import NpyFile, Stream
from freshgo._args.levels import ROWS
from freshgo._args.npy_files import TYPE_SEPARATOR, read_npy_header
from freshgo._sources.opening import Graph, Opening
from freshgo.errors import FormatError, StoreNotFoundError

_COLUMNS = 1024
"""Features of a node, all of them float32."""

_LABELLED = {227130858: "node_label_19", 157675969: "node_label_2K"}
_FULL = 269346174
"""Papers of the full graph, and the number of the first ones that have labels, which the files do not give."""

_CHUNK = 1 << 17


def is_igb(data: object) -> bool:
    """Whether a path is a directory of IGB: one that has ``processed/paper__cites__paper``."""
    return isinstance(data, Path) and bool(_relations(data)) and (data / "processed" / "paper").is_dir()


def read_igb(path: Path, opening: Opening) -> Graph:
    """Return the graph of a directory such as ``.../tiny`` with IGB's splits of papers by their position: the first
    60 % are ``train``, the next 20 % ``val``, the rest ``test``.

    The labels of 19 classes are ``y``. Edges are those in the files; IGB's own loader adds loops to ``cites``.
    """
    relations = _relations(path)
    if not relations:
        raise StoreNotFoundError(
            2, "expected directories of edges such as paper__cites__paper, found none", str(path / "processed")
        )
    edges: dict[Any, Any] = {}
    nodes: dict[str, dict[str, Any]] = {}
    for directory in relations:
        edge_type = tuple(directory.name.split(TYPE_SEPARATOR))
        edges[edge_type] = read_npy_header(directory / "edge_index.npy")
        for node_type in (edge_type[0], edge_type[2]):
            nodes.setdefault(node_type, {})
    for node_type, of in nodes.items():
        for file in sorted((path / "processed" / node_type).glob("node_*.npy")):
            name = {"node_feat": "x", "node_label_19": "y"}.get(file.stem, file.stem)
            of[name] = _array(file, (_COLUMNS,) if file.stem == "node_feat" else ())
    papers = nodes["paper"]
    rows = next((array.shape[0] for name, array in papers.items() if name == "x"), None)
    if rows is not None:
        papers["splits"] = _splits(rows)
    if len(nodes) == 1:
        typed: dict[Any, Any] = {"": papers, ("", "", ""): {"edge_index": next(iter(edges.values()))}}
    else:
        typed = {**dict(sorted(nodes.items())), **edges}
    return Graph(typed, "a directory of IGB, split by position into train, val and test", levels=ROWS)


def _relations(path: Path) -> list[Path]:
    found = sorted((path / "processed").glob("*__*__*"))
    return [at for at in found if "___" not in at.name and (at / "edge_index.npy").is_file()]


def _array(path: Path, row: tuple[int, ...]) -> NpyFile:
    with path.open("rb") as file:
        begins = file.read(6)
    if begins == b"\x93NUMPY":
        return read_npy_header(path)
    size, item = path.stat().st_size, np.dtype(np.float32).itemsize * int(np.prod(row))
    if size % item:
        raise FormatError(f"{path}: {size} bytes, neither a .npy file nor rows of {item} bytes of float32 as IGB's")
    return NpyFile(str(path), 0, np.dtype(np.float32), (size // item, *row))


def _splits(count: int) -> dict[str, Stream]:
    labelled = max(_LABELLED) if count == _FULL else count
    train, val = int(labelled * 0.6), int(labelled * 0.2)
    bounds = {"train": (0, train), "val": (train, train + val), "test": (train + val, labelled)}
    return {name: _range(name, *ends) for name, ends in bounds.items()}


def _range(name: str, first: int, end: int) -> Stream:
    def pieces() -> Iterator[memoryview]:
        for at in range(first, end, _CHUNK):
            yield np.arange(at, min(at + _CHUNK, end)).data.cast("B")

    return Stream(f"split {name}", np.dtype(np.int64), (end - first,), pieces)
