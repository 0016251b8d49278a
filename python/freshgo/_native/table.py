"""A native table: rows on disk that a training changes, opened by one process at a time."""

from __future__ import annotations

import ctypes
import json
import os
from collections.abc import Mapping
from typing import Any

import torch

from freshgo._native import abi, header
from freshgo._native.handle import Handle, encoded_path, run_job
from freshgo._native.options import filled, pointer_to


class Table(Handle):
    """A table on disk. Its rows are bytes, and its description is JSON that the library keeps as it is."""

    _closer = "fg_table_close"
    _what = "table"

    def __init__(self, path: str | os.PathLike[str]) -> None:
        """Open the state that was saved last.

        Raises:
            StoreNotFoundError: there is no table, or one that was never saved
            BusyError: another process has the table
            FormatError, VersionError, CorruptError, ReadError, StorePermissionError
        """
        super().__init__()
        self._take("fg_table_open", encoded_path(path))

    @classmethod
    def create(
        cls, path: str | os.PathLike[str], num_rows: int, row_bytes: int, description: Mapping[str, Any]
    ) -> Table:
        """Create a table of zeros, which nobody else sees before the first :meth:`save`.

        Raises:
            StoreExistsError: there is a table
            WriteError, StorePermissionError, BusyError
        """
        self = cls.__new__(cls)
        Handle.__init__(self)
        members = {"num_rows": num_rows, "row_bytes": row_bytes, "description": json.dumps(description)}
        options = filled(header.TableOptions, members)
        self._take("fg_table_create", encoded_path(path), ctypes.byref(options))
        return self

    def _take(self, function: str, *arguments: Any) -> None:
        out = ctypes.c_void_p()
        try:
            abi.call(function, *arguments, ctypes.byref(out))
        finally:
            self._pointer = out.value

    @property
    def pointer(self) -> int:
        """The handle, for the options of a loader."""
        return self._handle()

    def reopened(self, path: str | os.PathLike[str]) -> Table:
        """Close the table, and open the one that is at the path now."""
        self.close()
        return Table(path)

    def describe(self) -> dict[str, Any]:
        """Return ``path``, ``num_rows``, ``row_bytes``, ``token`` of the last save, ``previous``, ``changed`` and
        ``description``."""
        info = abi.read_json("fg_table_describe", self._handle())
        return {**info, "description": json.loads(info["description"])}

    def write(self, first: int, rows: torch.Tensor) -> None:
        """Write consecutive rows (uint8 ``[count, row_bytes]``). A table that a loader has refuses."""
        rows = rows.contiguous()
        abi.call("fg_table_write", self._handle(), first, rows.size(0), rows.data_ptr())

    def read(self, rows: torch.Tensor, row_bytes: int) -> torch.Tensor:
        """Return rows of the file (uint8 ``[count, row_bytes]``), checksums verified."""
        rows = rows.contiguous()
        out = torch.empty(rows.numel(), row_bytes, dtype=torch.uint8, device="cpu")
        abi.call("fg_table_read", self._handle(), pointer_to(rows, ctypes.c_int64), rows.numel(), out.data_ptr())
        return out

    def save(self, description: Mapping[str, Any]) -> str:
        """Publish the state of the file, whole or not at all, and return its token."""
        token = ctypes.create_string_buffer(33)
        abi.call("fg_table_save", self._handle(), json.dumps(description).encode(), token)
        return token.value.decode()

    def restore(self, token: str) -> None:
        """Go back to the state saved last, or to the one before. A table that a loader has refuses."""
        abi.call("fg_table_restore", self._handle(), token.encode())


def put(loader: Handle, place: int, rows: torch.Tensor, records: torch.Tensor) -> None:
    """Write rows (int64, ascending) of the batches of a step, in a loader of several ranks. ``records`` are
    as wide as in a batch (uint8 ``[count, width]``)."""
    rows, records = rows.contiguous(), records.contiguous()
    pointer = pointer_to(rows, ctypes.c_int64)
    abi.call("fg_loader_put", loader._handle(), place, pointer, rows.numel(), records.data_ptr(), records.numel())


def settle(loader: Handle) -> None:
    """Write the current rows of all tables of a loader to their files, and end its epoch."""
    run_job("fg_loader_settle", loader._handle())


def flush(loader: Handle) -> None:
    """Write the current rows of all tables of a loader to their files. Its epoch and its batch stay."""
    run_job("fg_loader_flush", loader._handle())
