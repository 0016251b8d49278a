"""Errors that freshgo raises.

Every error is a :class:`FreshgoError` and also the built-in exception that a caller would catch without knowing
freshgo: a missing store is a ``FileNotFoundError``, a failed read is an ``OSError`` with ``errno`` and ``filename``,
and a budget that is too small is a ``MemoryError``.

The traceback of an error has at most four frames of freshgo: the call, and the place that found the mistake. The
environment variable ``FRESHGO_TRACEBACK=full`` keeps all of them, for reports.
"""

from __future__ import annotations

import os

__all__ = [
    "BudgetError",
    "BusyError",
    "CancelledError",
    "ClosedError",
    "CorruptError",
    "CudaError",
    "DTypeError",
    "ExecutorError",
    "ForkError",
    "FormatError",
    "FreshgoError",
    "InternalError",
    "InvalidArgumentError",
    "LibraryError",
    "RankError",
    "ReadError",
    "ServerError",
    "StoreExistsError",
    "StoreNotFoundError",
    "StorePermissionError",
    "VersionError",
    "WriteError",
]


_PREDICATES = ("already exists", "exists", "is in the way")
"""How messages begin whose subject is the path."""


class FreshgoError(Exception):
    """The base class of everything that freshgo raises."""

    def __str__(self) -> str:
        """Return the message; of an ``OSError`` with its file, and without the number that ``errno`` has."""
        if not isinstance(self, OSError) or self.strerror is None:
            return super().__str__()
        name = None if self.filename is None else os.fsdecode(self.filename)
        if name is None or name in self.strerror:
            return self.strerror
        return f"{name}{' ' if self.strerror.startswith(_PREDICATES) else ': '}{self.strerror}"


class InvalidArgumentError(FreshgoError, ValueError):
    """An argument has an invalid value; the message names the argument, its value and what was expected."""


class DTypeError(FreshgoError, TypeError):
    """A tensor or an array has a dtype that cannot be used here, or an argument has the wrong type."""


OVERWRITE = "already exists; pass overwrite=True to replace it"
"""The message of a :class:`StoreExistsError`, behind the path."""


class StoreNotFoundError(FreshgoError, FileNotFoundError):
    """There is no store, or no input file, at the path (``filename``)."""


class StoreExistsError(FreshgoError, FileExistsError):
    """The path of a new store (``filename``) exists and ``overwrite`` was not requested."""


class StorePermissionError(FreshgoError, PermissionError):
    """The operating system refused access to ``filename``."""


class ReadError(FreshgoError, OSError):
    """A read failed; the error has ``errno`` and ``filename``, and the message also gives the offset."""


class WriteError(FreshgoError, OSError):
    """A write failed, for instance because the disk is full; the error has ``errno`` and ``filename``."""


class FormatError(FreshgoError, ValueError):
    """The directory or file was not written by freshgo, or is not laid out as its header says."""


class VersionError(FormatError):
    """The store was written by a newer version of freshgo."""


class CorruptError(FreshgoError, OSError):
    """The data do not match their checksum or their recorded size; the message names the file and the offset."""


class BudgetError(FreshgoError, MemoryError):
    """The memory budget is too small. ``minimum`` is the smallest budget in bytes that works, 0 if unknown."""

    def __init__(self, message: str = "", minimum: int = 0) -> None:
        super().__init__(message)
        self.minimum = minimum

    def __reduce__(self) -> tuple[type[BudgetError], tuple[str, int]]:
        return type(self), (str(self), self.minimum)


class ClosedError(FreshgoError, ValueError):
    """The store, graph or loader was closed, or has no running epoch; a ``ValueError``, like Python's closed files."""


class BusyError(FreshgoError, OSError):
    """The path is in use: another conversion is writing to it."""


class CancelledError(FreshgoError, RuntimeError):
    """The operation was cancelled from another thread."""


class CudaError(FreshgoError, RuntimeError):
    """CUDA is missing, the loaded library has no device path, or a call of the driver failed; the message says
    which."""


class RankError(FreshgoError, RuntimeError):
    """The ranks of a distributed job do not make the batches of one epoch, or their number has changed within one; the
    message names the difference."""


class ServerError(FreshgoError, ConnectionError):
    """The process that serves loaders with ``share="host"`` has ended, or cannot be reached."""


class ExecutorError(FreshgoError, ChildProcessError):
    """A process that samples or trains in :func:`freshgo.factored.train` has ended, or failed; the message names it."""


class ForkError(FreshgoError, RuntimeError):
    """freshgo was used before a fork and is called in the child; start processes with the spawn method instead."""


class LibraryError(FreshgoError, ImportError):
    """The native library is missing, cannot be loaded, or does not match this Python package; PyG is too old; or an
    optional package, which is named, is not installed."""


class InternalError(FreshgoError, RuntimeError):
    """A defect in freshgo. The process continues, but every later call of the native library raises this error."""
