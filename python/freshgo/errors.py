"""Errors that freshgo raises.

Every error is a :class:`FreshgoError` and also the built-in exception that a
caller would catch without knowing freshgo: a missing store is a
``FileNotFoundError``, a read that failed an ``OSError`` with ``errno`` and
``filename``, a budget that is too small a ``MemoryError``.
"""

from __future__ import annotations

__all__ = [
    "BudgetError",
    "BusyError",
    "CancelledError",
    "ClosedError",
    "CorruptError",
    "CudaError",
    "DTypeError",
    "ForkError",
    "FormatError",
    "FreshgoError",
    "InternalError",
    "InvalidArgumentError",
    "LibraryError",
    "ReadError",
    "StoreExistsError",
    "StoreNotFoundError",
    "StorePermissionError",
    "VersionError",
    "WriteError",
]


class FreshgoError(Exception):
    """Base of everything that freshgo raises."""


class InvalidArgumentError(FreshgoError, ValueError):
    """An argument has a value that cannot work; the message names it, its value and what was expected."""


class DTypeError(FreshgoError, TypeError):
    """A tensor or array has a dtype or a type that cannot be used here."""


class StoreNotFoundError(FreshgoError, FileNotFoundError):
    """There is no store, or no input file, at the path (``filename``)."""


class StoreExistsError(FreshgoError, FileExistsError):
    """The path of a new store (``filename``) is taken and ``overwrite`` was not asked for."""


class StorePermissionError(FreshgoError, PermissionError):
    """The operating system refused access to ``filename``."""


class ReadError(FreshgoError, OSError):
    """A read failed; carries ``errno`` and ``filename``, the message also the offset."""


class WriteError(FreshgoError, OSError):
    """A write failed, for instance because the disk is full; carries ``errno`` and ``filename``."""


class FormatError(FreshgoError, ValueError):
    """The directory or file is not one of ours, or is not laid out as its header says."""


class VersionError(FormatError):
    """The store was written by a newer version of freshgo."""


class CorruptError(FreshgoError, OSError):
    """The data do not match their checksum or their recorded size; the message names file and offset."""


class BudgetError(FreshgoError, MemoryError):
    """The memory budget is too small. ``minimum`` is the smallest budget in bytes that works, 0 if unknown."""

    def __init__(self, message: str = "", minimum: int = 0) -> None:
        super().__init__(message)
        self.minimum = minimum

    def __reduce__(self) -> tuple[type[BudgetError], tuple[str, int]]:
        return type(self), (str(self), self.minimum)


class ClosedError(FreshgoError, ValueError):
    """The store, graph or loader was closed, or has no running epoch; like Python's closed files a ``ValueError``."""


class BusyError(FreshgoError, OSError):
    """Somebody else is working on it: another conversion is writing to the same path."""


class CancelledError(FreshgoError, RuntimeError):
    """The operation was cancelled from another thread."""


class CudaError(FreshgoError, RuntimeError):
    """CUDA is not there or not in the loaded library, or a call of its driver failed; the message says which."""


class ForkError(FreshgoError, RuntimeError):
    """freshgo was used before a fork and is called in the child; start processes with the spawn method instead."""


class LibraryError(FreshgoError, ImportError):
    """The native library is missing, does not load, or does not fit this Python package."""


class InternalError(FreshgoError, RuntimeError):
    """A defect in freshgo. The process lives on, but every later call of the native library raises this error."""
