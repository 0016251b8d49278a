"""Copies of objects beside a store, for readers that read files, and more than once."""

from __future__ import annotations

import hashlib
import urllib.parse
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from freshgo._args.progress import Progress
from freshgo._staging.workplace import written
from freshgo._urls.place import Entry, Place
from freshgo._urls.reading import Reader, copy
from freshgo.errors import FreshgoError, InvalidArgumentError

_LONGEST = 255
"""Bytes of a file's name."""


class Copies:
    """Files of a directory that stand for objects, and are removed with it."""

    def __init__(self, directory: Path, report: Progress | None) -> None:
        self._directory, self._report = directory, report
        self._origins: dict[str, str] = {}
        self._places = 0

    def take(
        self,
        place: Place,
        entries: Sequence[Entry],
        copied: Callable[[Reader, Entry, Path, Callable[[int], None]], None],
    ) -> list[Path]:
        """Copy objects of a place, in their order, and return the files. Their paths end like the ones of the objects,
        with directories such as ``year=2020``. ``copied`` copies one of them.

        Raises:
            ReadError: a connection was lost in every attempt, or an object has changed. WriteError: the disk is full.
        """
        root, total, done = self._directory / str(self._places), sum(entry.size or 0 for entry in entries), 0
        self._places += 1
        files = []
        for entry in entries:
            file = root.joinpath(*_names(entry.path))
            if any("=" in part for part in file.relative_to(root).parts[:-1]) and "=" in str(root):
                raise InvalidArgumentError(
                    f"directories of {place.url} are columns: give the store a path without '=', got {root.parent}"
                )
            with written(file):
                file.parent.mkdir(parents=True, exist_ok=True)

            def report(count: int) -> None:
                nonlocal done
                done += count
                if self._report is not None:
                    self._report(f"copying {place.url}", done, max(total, done))

            self._origins[str(file)] = entry.url
            copied(Reader(place, entry), entry, file, report)
            files.append(file)
        return files

    def name_origins(self, error: FreshgoError) -> None:
        """Let an error name an object in the place of its copy."""
        error.args = tuple(self._renamed(one) for one in error.args)
        if isinstance(error, OSError):  # which shows these and not its arguments
            error.strerror, error.filename = self._renamed(error.strerror), self._renamed(error.filename)

    def _renamed(self, text: Any) -> Any:
        if isinstance(text, str):
            for file, url in self._origins.items():
                text = text.replace(file, url)
        return text


def whole(reader: Reader, entry: Entry, file: Path, report: Callable[[int], None]) -> None:
    """Copy all of an object."""
    copy(reader, entry.size, file, report)


def _names(path: str) -> list[str]:
    """Return the names of the directories of a copy and its own, of an object's path."""
    if "://" in path:  # of HTTP
        path = urllib.parse.unquote(urllib.parse.urlsplit(path).path)
    names = []
    for part in path.split("/"):
        name = part.replace("\0", "_")
        if name in ("", ".", ".."):
            continue
        if len(name.encode()) > _LONGEST:
            name = f"{hashlib.sha256(name.encode()).hexdigest()[:16]}_{name[-50:]}"
        names.append(name)
    return names or ["object"]
