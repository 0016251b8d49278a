"""Where the result of an inference goes: ``.npy`` files, Parquet files with keys, or a tensor of a store.

A result is computed into ``.npy`` files in a directory beside its target, where it can go on after it was ended. From
there it is published in one step: these files by a rename, what is made of them whole or not at all.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from freshgo._args import checks
from freshgo._args.hints import did_you_mean
from freshgo._args.named import check_name
from freshgo._args.npy_files import read_npy_header
from freshgo._args.parts import GraphParts, NodeParts
from freshgo._args.progress import Progress
from freshgo._args.urls import MANIFEST, check_local, is_url, local_path
from freshgo._infer.columns import ranges
from freshgo._infer.files import RESULT, Rows
from freshgo._infer.remote import Remote
from freshgo._native import convert as native_convert
from freshgo._staging.parquet_rows import MOST_ROWS, check_pyarrow, write_parquet
from freshgo._staging.publishing import publish, recover
from freshgo._staging.workplace import sync, written
from freshgo.errors import OVERWRITE, DTypeError, InvalidArgumentError, StoreExistsError
from freshgo.ids import Ids
from freshgo.store import Store


class Made(NamedTuple):
    """The rows of a node type."""

    path: Path
    """A ``.npy`` file."""
    nodes: Tensor | None
    """int64: the node of each row; None: row i is that of node i."""


class Output:
    """``.npy``: a file, or in a heterogeneous graph a directory with a file for each node type."""

    suffix = ".npy"

    def __init__(self, store: Store, target: Path | str, *, overwrite: bool) -> None:
        self._store, self.target, self._overwrite = store, target, overwrite
        path = Path(target)
        if isinstance(target, str):
            url = hashlib.sha256(target.encode()).hexdigest()[:16]
            path = Path(store.path).with_name(f"{Path(store.path).name}.{url}")
        self.work = path.with_name(f"{path.name}.partial")
        """The directory beside the target, of a URL beside the store, where rows are until then."""
        self._check()

    def _check(self) -> None:
        if isinstance(self.target, str):
            self._remote = Remote(self.target, overwrite=self._overwrite)
        elif self.target.exists():
            if not self._overwrite:
                raise StoreExistsError(17, OVERWRITE, str(self.target))
            self._check_there(self.target)

    def _check_there(self, target: Path) -> None:
        """Refuse to replace what no call can have written at the target."""
        if self._store.node_types and not _is_results(target):
            what = "is no directory of rows by node type, so it is not replaced: name another path"
            raise StoreExistsError(17, what, str(target))
        if not self._store.node_types and target.is_dir():
            raise StoreExistsError(17, "is a directory, and rows are written to a file: name another path", str(target))

    def publish(self, made: Mapping[str, Made], memory: int, report: Progress | None) -> None:
        """Put what was made at the target."""
        whole = self.work / RESULT
        if self._store.node_types:
            whole.mkdir(exist_ok=True)
            for node_type, of in made.items():
                self._write(of, node_type, whole / f"{node_type}{self.suffix}", memory, report)
        else:
            self._write(made[""], "", whole, memory, report)
        if isinstance(self.target, str):
            self._remote.send(whole, report)
        else:
            with written(self.target):
                _replace(whole, self.target)

    def written_bytes(self) -> int:
        """Return the size of what was published."""
        if isinstance(self.target, str):
            return self._remote.sent
        files = self.target.iterdir() if self.target.is_dir() else [self.target]
        return sum(file.stat().st_size for file in files)

    def _write(self, made: Made, node_type: str, path: Path, memory: int, report: Progress | None) -> None:
        with written(path):
            if made.path.exists():  # not if it was moved before this process began
                made.path.replace(path)


class Parquet(Output):
    """Columns ``id``, the keys that nodes had in the tables of the store or else their ids, and ``embedding``."""

    suffix = ".parquet"

    def _check(self) -> None:
        super()._check()
        check_pyarrow()

    def _write(self, made: Made, node_type: str, path: Path, memory: int, report: Progress | None) -> None:
        rows = read_npy_header(made.path)

        with written(path), Rows(made.path, rows.shape, rows.dtype) as source:

            def read(first: int, end: int) -> np.ndarray:
                part = np.empty((end - first, *rows.shape[1:]), rows.dtype)
                source.read(first, part)
                return part

            write_parquet(
                path,
                read,
                rows.shape,
                rows.dtype,
                nodes=made.nodes,
                keys=self._ids(node_type),
                memory=memory,
                report=report,
                stage=f"{node_type or 'rows'} to Parquet",
            )

    def _ids(self, node_type: str) -> Ids | None:
        """The keys of a node type, if the store has any."""
        try:
            return self._store.ids(node_type)
        except InvalidArgumentError:
            return None


class Stored(Output):
    """A tensor of the store that is inferred from, or of one like it beside it."""

    def __init__(self, store: Store, target: Path, name: str, *, types: list[str], overwrite: bool) -> None:
        self._name, self._types = name, types
        self._same = target.exists() and target.samefile(store.path)
        super().__init__(store, target, overwrite=overwrite)
        self.work = target.with_name(f"{target.name}.infer")

    def _check(self) -> None:
        name, store = self._name, self._store
        check_name(name, f"the name {name!r} of out")
        if not store.node_types and name in store.tensors and store.tensors[name].level == "edge":
            raise InvalidArgumentError(
                f"out names {name!r}, which is an edge-level tensor of the store: choose another name"
            )
        if not self._same:
            super()._check()
        elif not self._overwrite:
            for node_type in self._types:
                if name in (store[node_type] if node_type else store).tensors:
                    of = f" of {node_type!r}" if node_type else ""
                    raise StoreExistsError(
                        17,
                        f"the store has the tensor {name!r}{of} already; pass overwrite=True to replace it",
                        str(self.target),
                    )

    def _check_there(self, target: Path) -> None:
        """Leave it to the conversion, which replaces stores alone."""

    def publish(self, made: Mapping[str, Made], memory: int, report: Progress | None) -> None:
        nodes = {}
        for node_type, count in (self._store.num_nodes_dict or {"": self._store.num_nodes}).items():
            tensors: dict[str, Any] = {}
            if node_type in made:
                tensors[self._name] = read_npy_header(self._all_rows(made[node_type], count, memory))
            nodes[node_type] = NodeParts(count, tensors, {})
        native_convert.update(
            self._store._contents.native,
            self.target,
            GraphParts({name: part for name, part in nodes.items() if part.tensors}, {}),
            [],
            memory=memory,
            overwrite=self._overwrite or self._same,
            progress=report,
        )

    def _all_rows(self, made: Made, count: int, memory: int) -> Path:
        """Rows of all nodes: NaN for those that were not asked for."""
        if made.nodes is None:
            return made.path
        rows = read_npy_header(made.path)
        path = made.path.with_name(f"all_{made.path.name}")
        path.unlink(missing_ok=True)
        given, order = torch.sort(made.nodes, stable=True)
        source = np.load(made.path, mmap_mode="r")
        step = max(1, min(MOST_ROWS, memory // 8 // (int(np.prod(rows.shape[1:])) * rows.dtype.itemsize)))
        with Rows(path, (count, *rows.shape[1:]), rows.dtype) as file:
            for first, end in ranges(count, step):
                part = np.full((end - first, *rows.shape[1:]), np.nan, rows.dtype)
                lo, hi = torch.searchsorted(given, torch.tensor([first, end])).tolist()
                part[given[lo:hi].numpy() - first] = source[order[lo:hi].numpy()]
                file.write(first, torch.from_numpy(part))
            file.sync()
        return path


def output_of(out: Any, store: Store, types: list[str], *, overwrite: bool) -> Output:
    """Check what a user gave as ``out``. ``types`` are those whose rows are asked for."""
    if isinstance(out, tuple) and len(out) == 2 and isinstance(out[1], str):
        where = out[0].path if isinstance(out[0], Store) else out[0]
        path = _path(where, out)
        check_local(where)
        return Stored(store, path, out[1], types=types, overwrite=overwrite)
    target = out if isinstance(out, str) and is_url(out) else _path(out, out)
    suffix = PurePosixPath(target).suffix
    if suffix not in _KINDS:
        known = f"expected .npy, .parquet, or none for .npy{did_you_mean(suffix, filter(None, _KINDS))}"
        raise InvalidArgumentError(f"out={str(out)!r} has the suffix {suffix!r}, {known}; {_TENSOR}")
    for node_type in types:
        if "/" in node_type or "\0" in node_type or len(node_type.encode()) > _LONGEST:
            raise InvalidArgumentError(
                f"out={str(out)!r} has a file for each node type, and {checks.shown(node_type)} cannot be the name of "
                f"one; {_TENSOR}"
            )
    if isinstance(target, Path) and (target / MANIFEST).exists():
        raise InvalidArgumentError(f"out={str(out)!r} is a store, which is not replaced by rows of a model; {_TENSOR}")
    return _KINDS[suffix](store, target, overwrite=overwrite)


_KINDS: dict[str, type[Output]] = {"": Output, ".npy": Output, ".parquet": Parquet}
"""What suffixes of paths and URLs mean."""

_LONGEST = 255 - len(Parquet.suffix)
"""Bytes of a node type that a file system takes as the name of a file."""

_TENSOR = "a tensor of a store is written by out=(store, name)"


def _path(where: Any, out: Any) -> Path:
    if not isinstance(where, str | os.PathLike):
        raise DTypeError(
            f"out must be a path, or a store or its path with the name of a tensor, got {checks.shown(out)}"
        )
    return Path(local_path(os.fsdecode(where)))


def _is_results(path: Path) -> bool:
    """Whether a directory holds nothing but rows of node types, which may be replaced."""
    suffixes = (Output.suffix, Parquet.suffix)
    return path.is_dir() and all(entry.is_file() and entry.suffix in suffixes for entry in path.iterdir())


def _replace(made: Path, target: Path) -> None:
    """Put what was made in the place of what may be there, for good. No rename puts a directory in another's place."""
    if made.is_dir():
        recover(target, _is_results)
        publish(made, target)
    else:
        made.replace(target)
        sync(target.parent)
