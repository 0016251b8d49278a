"""Files of graphs as other programs write them: SciPy reads MatrixMarket, and NetworkX reads GraphML, GML, GEXF and
Pajek. Both hold the whole graph in memory."""

from __future__ import annotations

import bz2
import dataclasses
import errno
import gzip
import importlib
import math
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from freshgo._args.checks import shortened
from freshgo._args.size import too_small
from freshgo._sources.edges import read_matrix
from freshgo._sources.networkx_graphs import read_networkx
from freshgo._sources.opening import Graph, Opening
from freshgo.errors import (
    BudgetError,
    FormatError,
    FreshgoError,
    LibraryError,
    StoreNotFoundError,
    StorePermissionError,
)

_OPENERS: dict[str, Any] = {".gz": gzip.open, ".bz2": bz2.open}

_PIECE = 1 << 20

_INTEGER = rb"-?[0-9]+"
_EXPONENT = re.compile(rb"[-+.0-9]+[eE]\+?[0-9]{3,}")
_REAL = rb"-?(?:(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][-+]?[0-9]+)?|[iI][nN][fF](?:inity)?|[nN][aA][nN])"
"""Numbers that SciPy reads as a whole."""


class Format(NamedTuple):
    """A format of graphs."""

    suffixes: tuple[str, ...]
    words: str
    library: str
    read: Callable[[Path, Opening], Graph]
    memory: int
    """The most memory that reading took in measurements, as a multiple of the size of the file: of graphs with 2 to 50
    edges a node, with weights and without. ``docs/data.md`` has the figures."""


def _matrix_market(path: Path, opening: Opening) -> Graph:
    """Return the graph of a square sparse matrix. Of a pattern only the edges are kept, its values are all 1."""
    io = importlib.import_module("scipy.io")
    _, _, _, form, field, _ = io.mminfo(path)
    if form != "coordinate":
        raise FormatError(f"{path}: the matrix is dense (array), expected the entries of a sparse one (coordinate)")
    if field == "complex":
        raise FormatError(f"{path}: the entries are complex, expected real numbers, integers or a pattern")
    _check_entries(path, field)
    graph = read_matrix(io.mmread(path), opening)
    if field == "pattern":
        del graph.data["edge_weight"]
    return graph


def _check_entries(path: Path, field: str) -> None:
    """Refuse entries that SciPy reads in part: it takes 1d5 and 1,5 for 1, and 1.5 among integers too."""
    value = b"" if field == "pattern" else rb"[ \t]+(" + (_INTEGER if "integer" in field else _REAL) + rb")"
    wrong = re.compile(rb"^(?![ \t]*[0-9]+[ \t]+[0-9]+" + value + rb"[ \t]*\r?$).*\S.*$", re.MULTILINE)
    with _OPENERS.get(path.suffix.lower(), open)(path, "rb") as file:
        done = next((at for at, line in enumerate(file, 1) if line.strip() and not line.startswith(b"%")), 0)
        while piece := file.read(_PIECE):
            piece += file.readline()
            if found := wrong.search(piece):
                line, text = done + piece.count(b"\n", 0, found.start()) + 1, found[0].decode("latin-1").strip()
                kind = "an integer" if "integer" in field else "a number"
                expected = "a row and a column" if field == "pattern" else f"a row, a column and {kind}"
                raise FormatError(f"{path}, line {line}: {shortened(text)!r}, expected {expected}")
            for found in _EXPONENT.finditer(piece):
                if math.isinf(float(found[0])):
                    line = done + piece.count(b"\n", 0, found.start()) + 1
                    raise FormatError(f"{path}, line {line}: {found[0].decode()} is too large for float64")
            done += piece.count(b"\n")


def _networkx(name: str) -> Callable[[Path, Opening], Graph]:
    def read(path: Path, opening: Opening) -> Graph:
        return read_networkx(getattr(importlib.import_module("networkx"), name)(path), opening)

    return read


def _gml(path: Path, opening: Opening) -> Graph:
    """Return the graph with the labels of its nodes as their names; with their ids where not all have a label of their
    own."""
    networkx = importlib.import_module("networkx")
    try:
        graph = networkx.read_gml(path)
    except networkx.NetworkXError as error:
        if "label" not in str(error):
            raise
        graph = networkx.read_gml(path, label="id")
    return read_networkx(graph, opening)


def _pajek(path: Path, opening: Opening) -> Graph:
    """Refuse what NetworkX reads as something else: it makes one node of vertices with the same label, and takes one
    direction of edges where there are arcs too."""
    marks = [line.split() for line in _lines(path) if line.startswith("*")]
    sections = [mark[0].lower() for mark in marks]
    if "*vertices" not in sections:
        raise FormatError(f"{path}: expected a line *Vertices, as Pajek writes it")
    unknown = set(sections) - {"*network", "*vertices", "*arcs", "*edges", "*matrix"}
    if unknown:
        raise FormatError(f"{path}: NetworkX does not read the section {sorted(unknown)[0]}")
    if {"*arcs", "*edges"} <= set(sections):
        raise FormatError(
            f"{path}: it has *Arcs and *Edges, and NetworkX keeps one direction: write each edge as two arcs"
        )
    graph = importlib.import_module("networkx").read_pajek(path)
    given = next(mark[1] for mark in marks if mark[0].lower() == "*vertices")
    if graph.number_of_nodes() != int(given):
        raise FormatError(
            f"{path}: NetworkX makes {graph.number_of_nodes()} nodes of its {given} vertices: each vertex "
            "needs a line with a label of its own"
        )
    if all({"x", "y"} <= of.keys() for of in graph.nodes.values()):  # coordinates, not features and labels
        for of in graph.nodes.values():
            of["pos"] = [of.pop("x"), of.pop("y")]
    return read_networkx(graph, opening)


def _lines(path: Path) -> Iterator[str]:
    opening = _OPENERS.get(path.suffix.lower(), open)
    with opening(path, "rt", encoding="utf-8") as lines:
        yield from (line.strip() for line in lines)


FORMATS = {
    "mtx": Format((".mtx",), "MatrixMarket", "scipy", _matrix_market, 3),
    "graphml": Format((".graphml",), "GraphML", "networkx", _networkx("read_graphml"), 35),
    "gml": Format((".gml",), "GML", "networkx", _gml, 18),
    "gexf": Format((".gexf",), "GEXF", "networkx", _networkx("read_gexf"), 30),
    "pajek": Format((".net", ".paj", ".pajek"), "Pajek", "networkx", _pajek, 65),
}
"""The formats by what ``source=`` calls them."""

_PACKED = ("", ".gz", ".bz2")

_TABLES = (
    "convert_tables reads tables: freshgo.convert_tables(None, freshgo.Table({path!r}, src=..., dst=...), path, "
    "missing='add'), or freshgo convert --tables SPEC on the command line"
)

_HINTS = {
    r"\.(csv|tsv|txt|edges|edgelist|parquet|pq|jsonl?|ndjson|arrows?|feather|ipc|orc|duckdb|db|sqlite3?)"
    r"(\.(gz|bz2|xz|zst))?": _TABLES,
    r"\.toml": "convert reads a description of tables by its option: freshgo convert --tables {path!r} STORE",
    r"\.(graph|metis)": "METIS has the neighbours of a node, counted from 1, on each line: convert takes offsets and "
    "neighbours as (offsets, targets) with source='csr'",
    r"\.(dot|gv)": "networkx.nx_pydot.read_dot reads it, and convert takes the graph",
    r"\.(g6|s6)": "networkx.read_graph6 or read_sparse6 reads it, and convert takes the graph",
    r"\.(adjlist|multiline_adjlist)": "networkx.read_adjlist reads it, and convert takes the graph",
    r"\.(pt|pth)": "torch.load reads it, and convert takes the Data, HeteroData or tensors",
    r"\.(pkl|pickle|gpickle)": "pickle.load reads it if you trust where it comes from, and convert takes the graph",
    r"\.mat": "scipy.io.loadmat reads it, and convert takes the sparse matrix",
    r"\.(bin|dgl)": "dgl.load_graphs reads it; convert takes edges as (sources, targets) with source='coo'",
    r"\.(h5|hdf5)": "h5py reads it, and convert takes a mapping of arrays",
    r"\.(zip|tar|tgz|tar\.gz)": "unpack it, and give the directory",
}
"""How to read files that convert does not, by their names."""


def format_of(data: object) -> str | None:
    """Return the format that the name of a file says."""
    name = data.name.lower() if isinstance(data, Path) else ""
    return next(
        (
            of
            for of, known in FORMATS.items()
            if name.endswith(tuple(f"{suffix}{packed}" for suffix in known.suffixes for packed in _PACKED))
        ),
        None,
    )


def read_graph_file(path: Path, of: str, opening: Opening) -> Graph:
    """Return the graph in a file.

    Raises:
        LibraryError: SciPy or NetworkX is not installed.
        FormatError: the file is damaged, or holds what a graph cannot be. StoreNotFoundError: it is not there.
    """
    known = FORMATS[of]
    try:
        importlib.import_module(known.library)
    except ImportError as error:
        raise LibraryError(f"{path}: {known.words} needs {known.library}: pip install {known.library}") from error
    try:
        _check_memory(path, known, opening.memory)
        graph = known.read(path, opening)
    except FreshgoError as error:
        if str(path) in str(error):
            raise
        raise type(error)(f"{path}: {error}") from error
    except FileNotFoundError:
        raise StoreNotFoundError(errno.ENOENT, "no such file", str(path)) from None
    except PermissionError as error:
        raise StorePermissionError(error.errno, error.strerror, str(path)) from None
    except MemoryError:
        raise
    except Exception as error:  # the readers have no common class for what damaged files raise
        said = "it ends too early" if isinstance(error, StopIteration) else str(error).partition("\n")[0]
        raise FormatError(f"{path}: not a whole file of {known.words}: {said or type(error).__name__}") from error
    return dataclasses.replace(graph, words=f"{known.words}: {graph.words}")


def _check_memory(path: Path, known: Format, memory: int | None) -> None:
    """Refuse a file that its library would read into more memory than there is."""
    if memory is None:
        return
    size = path.stat().st_size
    if path.suffix.lower() in _OPENERS:
        with _OPENERS[path.suffix.lower()](path, "rb") as content:
            size = sum(len(piece) for piece in iter(lambda: content.read(_PIECE), b""))
    least = known.memory * size
    if least > memory:
        raise BudgetError(
            f"{path}: {too_small(memory, least, f'{known.library} reads {known.words} as a whole, and needs')}, "
            f"{known.memory} times the size of the file; convert_tables reads CSV and Parquet within any memory",
            least,
        )


def unknown_file(path: Path) -> str:
    """Say how a file can be read that convert does not know."""
    name = path.name.lower()
    for pattern, hint in _HINTS.items():
        if re.search(f"{pattern}$", name):
            return f"{path}: {hint.replace('{path!r}', repr(str(path)))}"
    suffixes = ", ".join(suffix for known in FORMATS.values() for suffix in known.suffixes)
    return (
        f"{path}: convert reads .npy, .npz, {suffixes} (these also with .gz or .bz2), and directories; "
        f"{_TABLES.replace('{path!r}', repr(str(path)))}"
    )
