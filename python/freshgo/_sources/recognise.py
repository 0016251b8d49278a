"""Which source something is: a table of all that are known, asked in its order."""

from __future__ import annotations

import dataclasses
import errno
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple, cast, get_args

from freshgo._args.checks import shown
from freshgo._args.choices import SourceName
from freshgo._args.hints import did_you_mean
from freshgo._args.npy_files import is_of_types, read_directory, read_types
from freshgo._args.parts import Levelled
from freshgo._args.urls import is_url, local_path
from freshgo._observe.log import LOG
from freshgo._sources import edges
from freshgo._sources.archives import members
from freshgo._sources.graph_files import FORMATS, format_of, read_graph_file, unknown_file
from freshgo._sources.graphbolt import is_graphbolt, read_graphbolt
from freshgo._sources.igb import is_igb, read_igb
from freshgo._sources.mag240m import is_mag240m, read_mag240m
from freshgo._sources.networkx_graphs import is_networkx, read_networkx
from freshgo._sources.ogb_files import is_ogb_directory, read_ogb_directory
from freshgo._sources.ogb_names import KNOWN
from freshgo._sources.ogb_sets import is_ogb_set, read_ogb_set
from freshgo._sources.opening import Graph, Opening
from freshgo._sources.pyg_graphs import is_many, read_many
from freshgo._sources.pyg_sets import is_pyg_set, read_pyg_set
from freshgo._sources.pyg_stores import is_pyg_stores, read_pyg_stores
from freshgo._sources.several import has_several, is_several, with_several
from freshgo._sources.urls import fetched, has_urls, with_arrays
from freshgo.errors import DTypeError, InvalidArgumentError, StoreNotFoundError


class Source(NamedTuple):
    """A kind of source."""

    name: str
    """What ``source=`` calls it; several kinds may have one name, such as a data set and its directory."""
    knows: Callable[[object], bool]
    read: Callable[[Any, Opening], Graph]


def _is_archive(data: object) -> bool:
    return isinstance(data, Path) and data.suffix == ".npz"


def _read_archive(path: Path, opening: Opening) -> Graph:
    found = members(path)
    graph: dict[str, Any] = {}
    for name, member in found.items():
        if name == "edge_index":
            graph[name] = member.file(opening)
        elif member.shape == ():
            graph[name] = member.read()[()] if name == "num_nodes" else member.read()
        elif name.endswith("_idx"):
            graph.setdefault("splits", {})[name.removesuffix("_idx")] = member.array(opening)
        else:
            graph[name] = member.array(opening)
    return Graph(graph, "an archive of arrays")


def _read_npy(path: Path, opening: Opening) -> Graph:
    if path.suffix == ".npy":
        return Graph({"edge_index": path})
    if not path.is_dir():
        if path.exists():
            raise InvalidArgumentError(unknown_file(path))
        raise StoreNotFoundError(errno.ENOENT, "no such file or directory", str(path))
    found = read_types(path) if is_of_types(path) else read_directory(path)
    if not found:
        raise InvalidArgumentError(
            f"{path} is not recognised: it has no .npy files, and is not the directory of a data set of ogb, mag240m, "
            "igb or graphbolt (give that directory, not its parent; with source= the error names the missing file)"
        )
    return Graph(found)


def _graph_file(of: str) -> Source:
    """Return the source of a format of graphs."""
    return Source(of, lambda data: format_of(data) == of, lambda path, opening: read_graph_file(path, of, opening))


def _is_tensors(data: object) -> bool:
    return isinstance(data, Mapping) or any(hasattr(data, name) for name in ("to_dict", "edge_index"))


SOURCES = (
    Source("ogb", is_ogb_set, read_ogb_set),
    Source("ogb", is_ogb_directory, read_ogb_directory),
    Source("mag240m", is_mag240m, read_mag240m),
    Source("igb", is_igb, read_igb),
    Source("graphbolt", is_graphbolt, read_graphbolt),
    Source("npz", _is_archive, _read_archive),
    *map(_graph_file, FORMATS),
    Source("npy", lambda data: isinstance(data, Path), _read_npy),
    Source("pyg", is_pyg_set, read_pyg_set),
    Source("pyg", is_many, read_many),
    Source("pyg", is_pyg_stores, read_pyg_stores),
    Source("networkx", is_networkx, read_networkx),
    Source("matrix", edges.is_matrix, edges.read_matrix),
    Source("edges", edges.is_pairs, edges.read_pairs),
    Source("csr", lambda _: False, edges.read_csr),
    Source("csc", lambda _: False, edges.read_csc),
    Source("coo", lambda _: False, edges.read_coo),
    Source("", edges.is_compressed, edges.read_unnamed),
    Source("tensors", _is_tensors, lambda data, _: Graph(data)),
)
"""All kinds, the most particular first."""

NAMES = get_args(SourceName)
"""What ``source=`` may be: a kind, or a data set of OGB whose directory is not named after it."""


_FORMS = {
    "ogb": "a directory of OGB or a data set of its package",
    "mag240m": "a directory with processed/paper___cites___paper or another relation, the one above it, or a data set",
    "igb": "a directory with processed/paper and processed/paper__cites__paper or another relation",
    "graphbolt": "a directory with metadata.yaml",
    "npz": "a path that ends in .npz",
    "npy": "a path of a directory or of a .npy file",
    "pyg": "a data set of PyG, or its FeatureStore and GraphStore",
    "networkx": "a graph of NetworkX",
    **{of: f"a path of a file in {known.words}" for of, known in FORMATS.items()},
    "matrix": "a sparse matrix of SciPy or torch",
    "edges": "an array [2, E] or [E, 2]",
    "tensors": "PyG's Data or HeteroData, or a mapping of tensors",
}
"""What each ``source=`` expects."""


def graph_of(data: object, opening: Opening, source: str | None = None) -> Graph:
    """Return what ``data`` holds, as the source that it is recognised as, or that ``source`` says that it is.

    Raises:
        InvalidArgumentError: there is no such source, or it is no such thing.
        DTypeError: nothing is known of it.
    """
    if isinstance(data, Levelled):
        graph = graph_of(data.data, opening, source)
        return dataclasses.replace(graph, data=Levelled(graph.data, data.levels))
    if is_url(data):
        data = fetched(str(data), opening)
    elif isinstance(data, str | os.PathLike):
        data = Path(local_path(os.fspath(data)))
    elif is_several(data):
        data = {"edge_index": data}
    elif has_urls(data):
        data = with_arrays(cast(Mapping[Any, Any], data), opening)
    if has_several(data):
        data = with_several(cast(Mapping[Any, Any], data), opening)
    if source is None:
        kind = next((kind for kind in SOURCES if kind.knows(data)), None)
        if kind is None:
            return Graph(data)  # which says what was expected
        graph = kind.read(data, opening)
    else:
        graph = _forced(data, opening, source)
    if graph.words:
        named = data if isinstance(data, Path) else f"a {type(data).__name__}"
        LOG.info("%s: read as %s", named, graph.words)
        opening.report(f"{named}: read as {graph.words}", 0, 0)
    return graph


def in_memory(data: object) -> Any:
    """Return the graph that an object holds, for a loader that reads it from memory."""
    if isinstance(data, Levelled):
        return Levelled(in_memory(data.data), data.levels)
    kind = next((kind for kind in SOURCES if kind.knows(data)), None)
    return data if kind is None else kind.read(data, Opening("")).data


def _forced(data: object, opening: Opening, source: str) -> Graph:
    if not isinstance(source, str):
        raise DTypeError(f"source must be one of {', '.join(NAMES)}, got {shown(source)}")
    if source not in NAMES:
        raise InvalidArgumentError(
            f"source must be one of {', '.join(NAMES)}, got {source!r}{did_you_mean(source, NAMES)}"
        )
    name = source if source in KNOWN else None
    kinds = [kind for kind in SOURCES if kind.name == ("ogb" if name else source)]
    if source in ("csr", "csc", "coo"):
        return kinds[0].read(data, opening)
    if isinstance(data, Path) and source in FORMATS:
        return read_graph_file(data, source, opening)
    if isinstance(data, Path) and kinds[0].name == "ogb":
        return read_ogb_directory(data, opening, name, forced=name is None)
    for kind in kinds:
        if kind.knows(data):
            return kind.read(data, opening)
    named = f"a mapping of {', '.join(map(str, data))}" if isinstance(data, Mapping) else shown(data)
    if isinstance(data, Path):
        named = f"{data}, which {'is not one' if data.exists() else 'does not exist'}"
    raise InvalidArgumentError(f"source={source!r} expects {_FORMS[kinds[0].name]}, got {named}")
