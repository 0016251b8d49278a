"""A graph on disk."""

from __future__ import annotations

import os
from typing import Any, NamedTuple

import torch
from torch import Tensor

from freshgo import _native
from freshgo._progress import Progress, progress_of
from freshgo._size import format_size
from freshgo.errors import InvalidArgumentError


class TensorInfo(NamedTuple):
    """A tensor in a store, without its data."""

    dtype: torch.dtype
    shape: tuple[int, ...]
    level: str
    """``"node"`` or ``"edge"``: what the rows belong to."""


class Store:
    """A graph on disk, opened for reading.

    ``store["x"]`` reads a whole tensor into memory, ``store.split("train")`` the node ids of a split; a
    :class:`~freshgo.Loader` reads batches. Opening checks the header, sizes and version, :meth:`verify` every byte.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._adopt(_native.Store(path))

    def _adopt(self, native: _native.Store) -> None:
        self._native = native
        self._info = self._native.describe()
        self._tensors = {
            tensor["name"]: TensorInfo(getattr(torch, tensor["dtype"]), tuple(tensor["shape"]), level)
            for level, key in (("node", "tensors"), ("edge", "edge_tensors"))
            for tensor in self._info[key]
        }

    @classmethod
    def _of(cls, native: _native.Store) -> Store:
        """A store over a native one that is open."""
        self = cls.__new__(cls)
        self._adopt(native)
        return self

    @classmethod
    def open(cls, path: str | os.PathLike[str]) -> Store:
        """Open the store at ``path``.

        Raises:
            StoreNotFoundError: there is nothing at ``path``.
            FormatError: it is not a store. VersionError: it was written by a newer freshgo.
            CorruptError: a file is truncated or the header does not match its checksum.
            StorePermissionError, ReadError: the operating system said no.
        """
        return cls(path)

    @property
    def path(self) -> str:
        """Where the store is."""
        return str(self._info["path"])

    @property
    def uuid(self) -> str:
        """Identifies the content: every conversion makes a new one."""
        return str(self._info["uuid"])

    @property
    def num_nodes(self) -> int:
        """The number of nodes."""
        return int(self._info["num_nodes"])

    @property
    def num_edges(self) -> int:
        """The number of edges."""
        return int(self._info["num_edges"])

    @property
    def reordered(self) -> bool:
        """Whether rows of node tensors are stored in an order of their own (:func:`freshgo.relayout`). Ids, batches and
        what is read do not change by it."""
        return self._info["order"] is not None

    @property
    def tensors(self) -> dict[str, TensorInfo]:
        """Name, dtype and shape of every tensor that comes with a batch."""
        return dict(self._tensors)

    @property
    def splits(self) -> dict[str, int]:
        """The number of nodes of every split, by name."""
        return dict(self._info["splits"])

    def split(self, name: str) -> Tensor:
        """Read the node ids of a split: int64 ``[size]``."""
        if name not in self._info["splits"]:
            raise InvalidArgumentError(f"the store has no split {name!r}, only {_names(self.splits)}")
        return self._native.read(name, kind="split")

    def __getitem__(self, name: str) -> Tensor:
        if name not in self._tensors:
            raise InvalidArgumentError(f"the store has no tensor {name!r}, only {_names(self._tensors)}")
        return self._native.read(name, kind="node" if self._tensors[name].level == "node" else "edge")

    def verify(self, *, progress: bool | Progress = False) -> None:
        """Read every block and compare it with its checksum.

        Raises:
            CorruptError: names the first damaged file and the offset in it.
        """
        with progress_of(progress) as report:
            self._native.verify(report)

    def inspect(self) -> str:
        """Describe the store in a few lines."""
        lines = [
            f"{self.path}",
            f"  uuid     {self.uuid}",
            f"  nodes    {self.num_nodes:,}",
            f"  edges    {self.num_edges:,}",
        ]
        if self.reordered:
            lines.append("  order    rows of node tensors are stored in the order of their use")
        for name, tensor in self._tensors.items():
            dtype = str(tensor.dtype).removeprefix("torch.")
            size = format_size(torch.Size(tensor.shape).numel() * tensor.dtype.itemsize)
            lines.append(f"  {tensor.level:8} {name}: {dtype} {list(tensor.shape)}, {size}")
        lines += [f"  split    {name}: {count:,} nodes" for name, count in self.splits.items()]
        return "\n".join(lines)

    def close(self) -> None:
        """Close the store; every later use raises ClosedError. Closing again does nothing."""
        self._native.close()

    @property
    def closed(self) -> bool:
        """Whether :meth:`close` was called."""
        return self._native.closed

    def __enter__(self) -> Store:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __reduce__(self) -> Any:
        # Another process opens the store itself.
        return Store, (self.path,)

    def __repr__(self) -> str:
        state = ", closed" if self.closed else ""
        return f"Store({self.path!r}, num_nodes={self.num_nodes}, num_edges={self.num_edges}{state})"


def _names(names: dict[str, Any]) -> str:
    return ", ".join(map(repr, names)) or "none at all"
