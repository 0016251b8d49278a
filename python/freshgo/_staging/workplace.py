"""The directory beside a store in which arrays wait while it is made."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

from freshgo._args.urls import check_outside
from freshgo.errors import (
    BusyError,
    FreshgoError,
    StoreExistsError,
    StoreNotFoundError,
    StorePermissionError,
    WriteError,
)

FOREIGN = "is in the way and was not made by a conversion: rename or remove it"


@contextlib.contextmanager
def workplace(path: str | os.PathLike[str], suffix: str, *, kept: bool = False) -> Iterator[Path]:
    """Make the directory ``<path><suffix>`` and remove it in the end. What a killed process left there goes first.

    With ``kept`` it stays, and an error leaves the directory to the next call.

    Raises:
        BusyError: another process converts to the same path.
        InvalidArgumentError: the path is inside a store.
        StoreExistsError: something else has this name.
    """
    target = Path(os.path.abspath(path))  # noqa: PTH100 (links stay)
    check_outside(target)
    directory = target.with_name(f"{target.name}{suffix}")
    with written(directory):
        with contextlib.suppress(FileExistsError):
            directory.mkdir()
        names = [entry.name for entry in directory.iterdir()]
        if directory.is_symlink() or (names and "lock" not in names):
            raise StoreExistsError(errno.EEXIST, FOREIGN, str(directory))
        lock = os.open(directory / "lock", os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o644)
    try:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise BusyError(errno.EBUSY, "another process writes to this path", str(path)) from None
        done = not kept
        try:
            if not kept:
                _clear(directory)
            yield directory
            done = True
        finally:
            if done:
                with contextlib.suppress(OSError):
                    remove_but_last(directory, "lock")
    finally:
        os.close(lock)


def _clear(directory: Path, keep: str = "lock") -> None:
    for entry in directory.iterdir():
        if entry.is_dir() and not entry.is_symlink():
            shutil.rmtree(entry)
        elif entry.name != keep:
            entry.unlink()


def remove_but_last(directory: Path, last: str) -> None:
    """Remove a directory, and last of all the file by which a later call knows it for its own."""
    _clear(directory, last)
    (directory / last).unlink()
    directory.rmdir()


def sync(path: Path) -> None:
    """Make a file, or the names in a directory, durable."""
    file = os.open(path, os.O_RDONLY)
    try:
        os.fsync(file)
    finally:
        os.close(file)


@contextlib.contextmanager
def written(path: Path) -> Iterator[None]:
    """Turn what the system says of writing to a path into our errors."""
    try:
        yield
    except FreshgoError:
        raise
    except FileNotFoundError as error:
        parent = str(path.parent)
        raise StoreNotFoundError(error.errno, "no such directory to write in, create it first", parent) from error
    except PermissionError as error:
        raise StorePermissionError(error.errno, error.strerror, str(error.filename or path)) from error
    except OSError as error:
        raise WriteError(error.errno or errno.EIO, error.strerror or str(error), str(error.filename or path)) from error
