"""Arrays at URLs: ``.npy`` objects are streamed into the store, archives and what is read twice are copied first."""

from __future__ import annotations

import dataclasses
import io
import posixpath
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from freshgo._args.arrays import Array, Stream
from freshgo._args.npy_files import TYPE_SEPARATOR, read_header
from freshgo._args.urls import is_url
from freshgo._sources.graph_files import format_of
from freshgo._sources.opening import Opening
from freshgo._urls.copies import whole
from freshgo._urls.place import Entry, Place
from freshgo._urls.reading import Reader
from freshgo.errors import FormatError, InvalidArgumentError

_HEADER = 1 << 16
"""Bytes that hold any header of a ``.npy`` file of numbers."""


def has_urls(data: object) -> bool:
    """Whether a mapping of tensors, or of types, names URLs."""
    return isinstance(data, Mapping) and any(is_url(value) or has_urls(value) for value in data.values())


def with_arrays(data: Mapping[Any, Any], opening: Opening, places: list[Place] | None = None) -> dict[Any, Any]:
    """Return a mapping of tensors, or of types, with arrays in the place of URLs.

    Raises:
        FormatError, DTypeError: an object is no ``.npy`` file of numbers, or a truncated one.
        StoreNotFoundError, StorePermissionError, ReadError, LibraryError: it cannot be read.
    """
    given: dict[Any, Any] = {}
    places = [] if places is None else places  # so far, for their file systems
    for key, value in data.items():
        if isinstance(value, Mapping):
            given[key] = with_arrays(value, opening, places)
        elif is_url(value):
            place = Place(value, places[-1] if places else None)
            places.append(place)
            entry = place.entry()
            if entry is None or not entry.path.endswith(".npy"):
                raise InvalidArgumentError(f"{key!r} is {place.url!r}, expected the URL of a .npy file")
            given[key] = _array(place, entry, opening, edges=key == "edge_index" or isinstance(key, tuple))
        else:
            given[key] = value
    return given


def fetched(url: str, opening: Opening) -> Any:
    """Return what is at a URL as what :func:`freshgo.convert` takes: the path of a copied archive, or a mapping of
    arrays.

    Raises:
        InvalidArgumentError: it is neither an archive nor ``.npy`` files.
        FormatError, DTypeError, StoreNotFoundError, StorePermissionError, ReadError, LibraryError: as of
            :func:`with_arrays`.
    """
    place = Place(url)
    entry = place.entry()
    if entry is None:
        return _directory(place, opening)
    if entry.path.endswith(".npy"):
        return {"edge_index": _array(place, entry, opening, edges=True)}
    if not entry.path.endswith(".npz") and format_of(Path(entry.path)) is None:
        raise InvalidArgumentError(
            f"{place.url!r} is no .npy, .npz or graph file: tables are for convert_tables, other graphs have to be "
            "copied to a local disk first"
        )
    return opening.copies().take(place, [entry], whole)[0]


def _directory(place: Place, opening: Opening) -> dict[Any, Any]:
    """Return the ``.npy`` files of a directory, or of a directory for each type."""
    graph: dict[Any, Any] = {}
    for entry in place.listing():
        *types, name = posixpath.relpath(entry.path, place.path).split("/")
        if len(types) > 1 or not name.endswith(".npy") or any(part.startswith((".", "_")) for part in types):
            continue
        of, name = graph, name.removesuffix(".npy")
        if types:
            names = tuple(types[0].split(TYPE_SEPARATOR))
            if len(names) not in (1, 3):
                raise InvalidArgumentError(
                    f"{place.url}/{types[0]} must be named as a node type or as source{TYPE_SEPARATOR}relation"
                    f"{TYPE_SEPARATOR}target"
                )
            of = graph.setdefault(names if len(names) == 3 else types[0], {})
        if name.endswith("_idx"):
            of, name = of.setdefault("splits", {}), name.removesuffix("_idx")
        of[name] = _array(place, entry, opening, edges=name == "edge_index")
    if not graph:
        raise InvalidArgumentError(
            f"{place.url} has no .npy files: other graphs, such as directories of OGB, have to be copied to a local "
            "disk first"
        )
    return graph


def _array(place: Place, entry: Entry, opening: Opening, *, edges: bool) -> Array:
    """Return an array as a stream; edges, which are read in any order, and arrays in Fortran order in a file."""
    begin = b""
    pieces = Reader(place, entry).pieces()
    for piece in pieces:
        begin += piece
        if len(begin) >= min(_HEADER, entry.size or _HEADER):
            break
    pieces.close()
    header = read_header(io.BytesIO(begin), entry.url)
    if entry.size is not None and entry.size - header.size < header.n_bytes:
        raise FormatError(
            f"{entry.url}: truncated: the header promises {header.n_bytes} bytes of data, the file has "
            f"{entry.size - header.size}"
        )
    readers: list[Reader] = []

    def data() -> Iterator[bytes]:
        readers[:] = [Reader(place, entry)]
        left = header.n_bytes
        for piece in readers[0].pieces(header.size):
            yield piece[:left]
            left -= len(piece[:left])
        if left:
            raise FormatError(f"{entry.url}: truncated: {left} bytes are missing")

    def stop() -> None:
        for reader in readers:
            reader.stop()

    stream = Stream(entry.url, header.dtype, header.shape, data, stop)
    if edges or (header.fortran and len(header.shape) > 1):
        return dataclasses.replace(opening.keep(stream), fortran=header.fortran)
    return stream
