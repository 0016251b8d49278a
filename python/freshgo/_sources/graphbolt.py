"""Directories of DGL's ``graphbolt.OnDiskDataset``: ``metadata.yaml`` and the files that it names, without DGL."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, TypeVar

import numpy as np

from freshgo._args.arrays import Array, NpyFile, as_tensor
from freshgo._args.levels import ROWS
from freshgo._args.npy_files import read_npy_header
from freshgo._sources.csv_files import read_csv
from freshgo._sources.opening import Graph, Opening, links_attached
from freshgo.errors import FormatError, InvalidArgumentError, LibraryError, StoreNotFoundError

_T = TypeVar("_T")

_METADATA = "metadata.yaml"
_SETS = {"train_set": "train", "validation_set": "validation", "test_set": "test"}
_NAMES = {"feat": "x"}
"""What PyG calls a tensor of GraphBolt."""

_SEEDS = ("seeds", "seed_nodes", "node_pairs")
"""What a set calls its nodes or links: of DGL 2.2 and later, of nodes before, of links before."""


def is_graphbolt(data: object) -> bool:
    """Whether a path is a directory of an ``OnDiskDataset``."""
    return isinstance(data, Path) and (data / _METADATA).is_file()


def read_graphbolt(path: Path, opening: Opening) -> Graph:
    """Return the graph of a directory. Sets of nodes become splits and their labels ``y``, which is -1 (of floats NaN)
    for nodes of no set; sets of links become ``store.links("train")``. All of a second task begin with its name.

    Raises:
        LibraryError: PyYAML is not installed.
        FormatError: metadata that are not as DGL has them.
        InvalidArgumentError: an array in a pickle of torch, or a directory that DGL made of another.
    """
    metadata = _metadata(path / _METADATA)
    if "graph_topology" in metadata:
        raise InvalidArgumentError(
            f"{path} is what DGL preprocessed, whose edges are in a pickle: expected the directory of the data set, "
            f"with the metadata.yaml that names the edges: {path.parent}"
        )
    graph = _mapping(metadata.get("graph"), path, "graph")
    nodes: dict[str, dict[str, Any]] = {}
    for entry in _list(graph.get("nodes"), path, "graph.nodes"):
        _add(path, nodes, entry.get("type") or "", {"num_nodes": _given(path, entry, "num", int, "graph.nodes")})
    edges: dict[Any, dict[str, Any]] = {}
    for entry in _list(graph.get("edges"), path, "graph.edges"):
        _add(path, edges, _edge_type(entry.get("type"), path), {"edge_index": _edges(path, entry, opening)})
    for entry in _list(metadata.get("feature_data"), path, "feature_data"):
        array = _array(path, entry, opening)
        if array is not None:
            of = entry.get("type")
            domain = entry.get("domain")
            owners: dict[Any, dict[str, Any]] = nodes if domain == "node" else edges if domain == "edge" else {}
            owner = (of or "") if domain == "node" else _edge_type(of, path)
            if owner not in owners:
                raise FormatError(f"{path / _METADATA}: a feature is of {domain} type {of!r}, which the graph lacks")
            name = _given(path, entry, "name", str, "feature_data")
            _add(path, owners[owner], _NAMES.get(name, name), array)
    links: dict[str, dict[str, Any]] = {}
    for place, task in enumerate(_list(metadata.get("tasks"), path, "tasks")):
        _Task(path, opening, nodes, links, "" if place == 0 else f"{task.get('name') or place}_").add(task)
    attached = links_attached(links, list(nodes))
    return Graph({**nodes, **edges}, f"a GraphBolt data set {metadata.get('dataset_name', '')}".strip(), attached, ROWS)


def _metadata(path: Path) -> Mapping[str, Any]:
    try:
        import yaml
    except ImportError as error:
        raise LibraryError(f"{path} needs PyYAML: pip install pyyaml ({error})") from None
    try:
        found = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise FormatError(f"{path}: not valid YAML: {error}") from None
    return _mapping(found, path.parent, "the file")


def _add(path: Path, to: dict[Any, Any], key: object, value: object) -> None:
    """Add what may be there once."""
    if key in to:
        raise FormatError(f"{path / _METADATA}: there are two entries for {key!r}, expected one (feat is called x)")
    to[key] = value


def _mapping(value: object, path: Path, name: str) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise FormatError(f"{path / _METADATA}: {name} must be a mapping, got {type(value).__name__}")
    return value


def _list(value: object, path: Path, name: str) -> list[Mapping[str, Any]]:
    if not isinstance(value, list | None) or not all(isinstance(entry, Mapping) for entry in value or []):
        raise FormatError(f"{path / _METADATA}: {name} must be a list of mappings")
    return list(value or [])


def _given(path: Path, entry: Mapping[str, Any], key: str, kind: type[_T], name: str) -> _T:
    """What an entry must have."""
    value = entry.get(key)
    if not isinstance(value, kind):
        raise FormatError(
            f"{path / _METADATA}: an entry of {name} must have {key!r}, {kind.__name__}, got {dict(entry)}"
        )
    return value


def _edge_type(text: str | None, path: Path) -> tuple[str, ...]:
    names = tuple(text.split(":")) if text else ("", "", "")
    if len(names) != 3:
        raise FormatError(f"{path / _METADATA}: the edge type {text!r} is not of the form source:relation:target")
    return names


def _edges(path: Path, entry: Mapping[str, Any], opening: Opening) -> Array:
    if entry.get("format", "csv") == "csv":
        pairs = read_csv(_file(path, entry), opening, columns=2, integers=True)
        return dataclasses.replace(pairs, shape=pairs.shape[::-1], fortran=True)
    array = _array(path, entry, opening)
    if array is None:
        raise InvalidArgumentError(f"{_file(path, entry)} has the edges: allow_pickle=False leaves nothing to convert")
    return array


def _file(path: Path, entry: Mapping[str, Any]) -> Path:
    if not isinstance(entry.get("path"), str):
        raise FormatError(f"{path / _METADATA}: an entry has no path: {dict(entry)}")
    file: Path = path / entry["path"]
    if not file.resolve().is_relative_to(path.resolve()):
        raise FormatError(f"{path / _METADATA}: {entry['path']!r} leads out of the directory")
    if not file.is_file():
        raise StoreNotFoundError(2, "no such file, which metadata.yaml names", str(file))
    return file


def _array(path: Path, entry: Mapping[str, Any], opening: Opening) -> Array | None:
    """Return an array that metadata name; None for one in a pickle that is left out."""
    file, form = _file(path, entry), entry.get("format")
    if form == "numpy":
        return read_npy_header(file)
    if form == "torch":
        value = opening.unpickled(file)
        return None if value is None else as_tensor(value)
    raise FormatError(f"{path / _METADATA}: {entry['path']}: format {form!r}, expected 'numpy' or 'torch'")


class _Task:
    """The sets of a task on their way into splits, labels and links."""

    def __init__(self, path: Path, opening: Opening, nodes: dict[str, Any], links: dict[str, Any], prefix: str) -> None:
        self._path, self._opening, self._nodes, self._links, self._prefix = path, opening, nodes, links, prefix
        self._labels: dict[str, list[tuple[Any, Any]]] = {}

    def add(self, task: Mapping[str, Any]) -> None:
        """Add all sets of a task."""
        for key, split in _SETS.items():
            for entry in _list(task.get(key), self._path, f"tasks.{key}"):
                self._add_set(split, entry)
        for node_type, labelled in self._labels.items():
            self._nodes[node_type][f"{self._prefix}y"] = self._label_rows(node_type, labelled)

    def _add_set(self, split: str, entry: Mapping[str, Any]) -> None:
        of = entry.get("type") or ""
        arrays: dict[str, Any] = {}
        for place, data in enumerate(_list(entry.get("data"), self._path, "data of a set")):
            array = _array(self._path, data, self._opening)
            if array is not None:
                arrays[str(data.get("name") or ("seeds", "labels")[min(place, 1)])] = array
        if not arrays:
            return
        seeds = next((arrays.pop(name) for name in _SEEDS if name in arrays), None)
        if seeds is None:
            raise FormatError(f"{self._path / _METADATA}: a set of {split} has no seeds, only {sorted(arrays)}")
        if len(seeds.shape) == 1 and ":" not in of:
            if of not in self._nodes:
                raise FormatError(f"{self._path / _METADATA}: a set is of the node type {of!r}, which the graph lacks")
            self._nodes[of].setdefault("splits", {})[f"{self._prefix}{split}"] = seeds
            if "labels" in arrays:
                self._labels.setdefault(of, []).append((seeds, arrays["labels"]))
            return
        under = self._links.setdefault(f"{self._prefix}{split}", {})
        prefix = f"{of}/" if of else ""
        under.update({f"{prefix}{name}": array for name, array in {"seeds": seeds, **arrays}.items()})

    def _label_rows(self, node_type: str, labelled: list[tuple[Any, Any]]) -> NpyFile:
        """Write labels of seeds into rows of all nodes."""
        count = int(self._nodes[node_type]["num_nodes"])
        common = np.result_type(*(_values(labels).dtype for _, labels in labelled))
        none: Any = np.nan if common.kind == "f" else -1
        dtype = common if common.kind == "f" else np.dtype(np.int64)
        row = np.full((1, *_values(labelled[0][1]).shape[1:]), none, dtype)
        step = max(1, (1 << 20) // max(row.nbytes, 1))
        blanks = (np.repeat(row, min(step, count - at), axis=0) for at in range(0, count, step))
        file = self._opening.keep_rows("labels", blanks, dtype, row.shape[1:])
        if count:
            rows = np.memmap(file.path, dtype, "r+", 0, file.shape)
            for seeds, labels in labelled:
                ids, values = _values(seeds), _values(labels)
                bad = np.flatnonzero((ids < 0) | (ids >= count))
                if bad.size:
                    raise self._bad_set(node_type, f"seed {bad[0]} is {ids[bad[0]]}, of {count} nodes")
                if len(ids) != len(values):
                    raise self._bad_set(node_type, f"{len(values)} labels for {len(ids)} seeds")
                if values.shape[1:] != row.shape[1:]:
                    shapes = f"{[*row.shape[1:]]} in one set and {[*values.shape[1:]]} in another"
                    raise self._bad_set(node_type, f"labels have the shape {shapes}")
                rows[ids] = values
            for seeds, labels in labelled:  # whose seeds may occur in several sets, or several times in one
                for at in range(0, seeds.shape[0], step):
                    ids, values = (_values(array)[at : at + step] for array in (seeds, labels))
                    other = (rows[ids] != values) & (values == values)  # NaN is no label
                    if other.any():
                        node = ids[np.flatnonzero(other.reshape(len(ids), -1).any(1))[0]]
                        raise self._bad_set(node_type, f"node {node} has two labels")
            rows.flush()
        return file

    def _bad_set(self, node_type: str, said: str) -> FormatError:
        of = f" of type {node_type!r}" if node_type else ""
        return FormatError(f"{self._path / _METADATA}: a set of nodes{of}: {said}")


def _values(array: Any) -> np.ndarray[Any, Any]:
    if isinstance(array, NpyFile):
        if 0 in array.shape:
            return np.empty(array.shape, array.dtype)
        order: Literal["F", "C"] = "F" if array.fortran else "C"
        return np.memmap(array.path, array.dtype, "r", array.offset, array.shape, order)
    return np.asarray(array)
