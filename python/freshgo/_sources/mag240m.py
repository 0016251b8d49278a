"""OGB-LSC's MAG240M, and other directories of its form: ``.npy`` files of types, named with three underscores."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from freshgo._args.levels import ROWS
from freshgo._args.npy_files import read_npy_header
from freshgo._sources.ogb_names import tensor_name
from freshgo._sources.opening import Graph, Opening
from freshgo.errors import StoreNotFoundError

_DIRECTORY = "mag240m_kddcup2021"
_EDGES = "edge_index.npy"


def is_mag240m(data: object) -> bool:
    """Whether a path is the directory of MAG240M, or the one that it lies in."""
    return isinstance(data, Path) and any(map(_has_edges, _relations(_root(data))))


def read_mag240m(
    path: Path, opening: Opening, meta: Mapping[str, int] | None = None, splits: Mapping[str, Any] | None = None
) -> Graph:
    """Return the graph of a directory with its splits of papers.

    How many nodes the types without features have, and the splits, are in the pickles ``meta.pt`` and
    ``split_dict.pt``; without them a type has as many nodes as edges name.

    Raises:
        StoreNotFoundError: there is no relation, or one whose directory lacks the file of its edges.
    """
    root = _root(path)
    relations = _relations(root)
    if not relations:
        raise StoreNotFoundError(
            2, "expected directories of edges such as author___writes___paper, found none", str(root / "processed")
        )
    lacking = next((directory for directory in relations if not _has_edges(directory)), None)
    if lacking is not None:
        raise StoreNotFoundError(
            2,
            f"the relation {lacking.name} has no {_EDGES}, expected one in its directory; remove the directory to go "
            "without the relation",
            str(lacking / _EDGES),
        )
    if meta is None and (root / "meta.pt").is_file():
        meta = opening.unpickled(root / "meta.pt")
    if splits is None and (root / "split_dict.pt").is_file():
        splits = opening.unpickled(root / "split_dict.pt")
    edges: dict[Any, dict[str, Any]] = {}
    nodes: dict[str, dict[str, Any]] = {}
    for directory in relations:
        edge_type = tuple(directory.name.split("___"))
        edges[edge_type] = _arrays(directory)
        for node_type in (edge_type[0], edge_type[2]):
            nodes.setdefault(node_type, {"num_nodes": int(meta[node_type])} if meta and node_type in meta else {})
    for node_type, of in nodes.items():
        of.update(_arrays(root / "processed" / node_type))
    if splits:
        owner = "paper" if "paper" in nodes else next(iter(nodes))
        nodes[owner]["splits"] = {name: ids for name, ids in splits.items() if np.ndim(ids) == 1}
    without = "" if splits else ", without splits"
    return Graph({**dict(sorted(nodes.items())), **edges}, f"a directory of OGB-LSC's MAG240M{without}", levels=ROWS)


def _root(path: Path) -> Path:
    return path / _DIRECTORY if (path / _DIRECTORY).is_dir() else path


def _relations(root: Path) -> list[Path]:
    """The directories of relations, whatever is in them."""
    return [path for path in sorted((root / "processed").glob("*___*___*")) if path.is_dir()]


def _has_edges(relation: Path) -> bool:
    return (relation / _EDGES).is_file()


def _arrays(directory: Path) -> dict[str, Any]:
    return {tensor_name(path.stem): read_npy_header(path) for path in sorted(directory.glob("*.npy"))}
