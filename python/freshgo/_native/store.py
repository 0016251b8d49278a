"""A native store: a graph on disk, opened for reading."""

from __future__ import annotations

import ctypes
import os
from typing import TYPE_CHECKING, Any, Literal

from freshgo._args.progress import Progress
from freshgo._native import abi, header
from freshgo._native.handle import Handle, encoded_path, run_job
from freshgo.errors import InvalidArgumentError

if TYPE_CHECKING:
    import torch


class Store(Handle):
    """A store on disk, opened for reading."""

    _closer = "fg_store_close"
    _what = "store"

    def __init__(self, path: str | os.PathLike[str]) -> None:
        """Open and validate the store at ``path`` (header, sizes, version; not every byte: see :meth:`verify`).

        Raises:
            StoreNotFoundError, StorePermissionError, FormatError, VersionError, CorruptError, ReadError
        """
        super().__init__()
        out = ctypes.c_void_p()
        encoded = encoded_path(path)
        self._path: str | None = os.fsdecode(encoded)
        try:
            abi.call("fg_store_open", encoded, ctypes.byref(out))
        finally:
            self._pointer = out.value

    @classmethod
    def _adopt(cls, pointer: int | None) -> Store:
        """The store of a handle that the library gave out; of None one that is closed."""
        self = cls.__new__(cls)
        Handle.__init__(self)
        self._pointer, self._path = pointer, None
        return self

    def describe(self) -> dict[str, Any]:
        """What the store holds: ``path``, ``uuid``, ``num_nodes``, ``num_edges``, ``tensors``, ``edge_tensors``,
        ``splits`` (name to number of ids) and so on; of a heterogeneous store in ``node_types`` and ``edge_types``."""
        info = abi.read_json("fg_store_describe", self._handle())
        # JSON is UTF-8, and has neither the bytes of every path nor the encoding of file names.
        info["path"] = self._path or os.fsdecode(info["path"].encode())
        for level in (info, *info["node_types"]):
            level["splits"] = {split["name"]: split["shape"][0] for split in level["splits"]}
        return info

    def read(self, name: str, *, kind: Literal["split", "node", "edge"], place: int = 0) -> torch.Tensor:
        """Read one whole split (int64 ids) or tensor (all rows) into memory, checksums verified. ``place`` is that of
        the type in what :meth:`describe` lists, 0 in a homogeneous store."""
        kinds = {"split": header.SPLIT, "node": header.NODE_TENSOR, "edge": header.EDGE_TENSOR}
        if kind not in kinds:
            raise InvalidArgumentError(f"kind must be one of {sorted(kinds)}, got {kind!r}")
        return self._tensor("fg_store_read", kinds[kind], place, name.encode())

    def read_rows(self, name: str, first: int, count: int) -> torch.Tensor:
        """Read rows of an attachment into memory, checksums of their pages verified."""
        return self._tensor("fg_store_read_rows", name.encode(), first, count)

    def _tensor(self, starter: str, *arguments: Any) -> torch.Tensor:
        """Run a job whose result is a tensor."""
        from freshgo._native import dlpack  # imports torch, which describing a store does not need

        versioned = dlpack.use_versioned()

        def free(managed: int) -> None:
            dlpack.discard((header.Tensor * 1)(header.Tensor(managed=managed)), 1, versioned)

        slots = (header.Tensor * 1)()
        result = run_job(starter, self._handle(), *arguments, int(versioned), discard=free)
        try:
            slots[0].managed = result
            return dlpack.to_torch(slots, 1, versioned)[""]
        except BaseException:  # Ctrl-C may strike right after the library handed it over
            dlpack.discard(slots, 1, versioned)
            raise

    def verify(self, progress: Progress | None = None) -> None:
        """Read everything and compare it with its checksums; the first damaged block raises CorruptError.

        ``progress(stage, done, total)`` is called from this thread, in bytes.
        """
        run_job("fg_store_verify", self._handle(), progress=progress)

    def verify_topology(self) -> None:
        """:meth:`verify` of the files that say which edges there are and in which order rows lie."""
        run_job("fg_store_verify_topology", self._handle())
