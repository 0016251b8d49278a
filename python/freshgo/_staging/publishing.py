"""Directories that take the place of what is at their path, so that the old or the new one survives a kill."""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Callable
from pathlib import Path

from freshgo._staging.workplace import FOREIGN, remove_but_last, sync, written
from freshgo.errors import StoreExistsError

_REMOVED = "removed"
"""The file in a directory that is being removed, until the end. The library has the same."""


def _aside(target: Path) -> Path:
    """Return where the old directory lies while a new one takes its place."""
    return target.with_name(f"{target.name}.replaced")


def recover(target: Path, ours: Callable[[Path], bool]) -> None:
    """Repair what a process left that was killed in :func:`publish`: put the old directory back, or finish its removal.

    ``ours`` tells whether a directory is one that may be replaced.

    Raises:
        StoreExistsError: something else is where the old directory would lie.
    """
    aside = _aside(target)
    with written(target):
        if not os.path.lexists(aside):
            return
        begun = not aside.is_symlink() and aside.is_dir() and ((aside / _REMOVED).exists() or not any(aside.iterdir()))
        if not begun and (aside.is_symlink() or not ours(aside)):
            raise StoreExistsError(errno.EEXIST, FOREIGN, str(aside))
        if begun or os.path.lexists(target):
            _remove(aside)
        else:
            aside.rename(target)


def publish(there: Path, target: Path) -> None:
    """Put a whole directory at its path, durably, after :func:`recover`. Both have the same parent, or one below it."""
    aside = _aside(target)
    with written(target):
        sync(there)
        try:
            if os.path.lexists(target):
                target.rename(aside)
            there.rename(target)
        except BaseException:  # Ctrl-C too
            with contextlib.suppress(OSError):
                if not os.path.lexists(target):
                    aside.rename(target)
            raise
        sync(target.parent)
        if aside.is_dir():
            _remove(aside)


def _remove(aside: Path) -> None:
    (aside / _REMOVED).touch()
    remove_but_last(aside, _REMOVED)
