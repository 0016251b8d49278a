"""Tables at URLs: their files are copied beside the store, of Parquet the columns that are used.

A table is read several times: for its types, keys, rows and places. So each file is copied once, and everything else
reads the copies.
"""

from __future__ import annotations

import contextlib
import dataclasses
import posixpath
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar

from freshgo._args.progress import Progress
from freshgo._args.urls import is_url
from freshgo._tables.files import _format, _hidden
from freshgo._tables.table import Spec, paths_of
from freshgo._urls.copies import Copies, whole
from freshgo._urls.place import Place
from freshgo.errors import FreshgoError, StoreNotFoundError

Key = TypeVar("Key")
Of = TypeVar("Of", Spec, Spec | None)


class Remote:
    """The tables of a conversion that are at URLs."""

    def __init__(self, directory: Path, report: Progress | None) -> None:
        self._directory = directory / "urls"
        self._place: Place | None = None
        self._copies = Copies(self._directory, report)

    @contextlib.contextmanager
    def named(self) -> Iterator[None]:
        """Let errors name a URL in the place of the copy."""
        try:
            yield
        except FreshgoError as error:
            self._copies.name_origins(error)
            raise

    def remove(self) -> None:
        """Make room on the disk: nothing reads the copies any more."""
        shutil.rmtree(self._directory, ignore_errors=True)

    def copied(self, specs: Mapping[Key, Of]) -> dict[Key, Of]:
        """Copy the files of tables that are at URLs; returns the tables, with the copies as their sources.

        Raises:
            StoreNotFoundError, StorePermissionError, ReadError, WriteError, LibraryError
        """
        return {of: self._copied(spec) for of, spec in specs.items()}

    def _copied(self, spec: Of) -> Of:
        paths = None if spec is None else paths_of(spec.table.source)
        if spec is None or paths is None or not any(map(is_url, paths)):
            return spec
        files: list[Any] = []
        for path in paths:
            files += self._files(spec, path) if isinstance(path, str) else [path]
        return dataclasses.replace(spec, table=dataclasses.replace(spec.table, source=files))

    def _files(self, spec: Spec, url: str) -> list[Path]:
        place = self._place = Place(url, self._place)
        found, below = place.matches()
        if below:  # as of directories on a disk
            found = [entry for entry in found if _counts(spec, Path(posixpath.relpath(entry.path, place.path)))]
        if not found:
            raise StoreNotFoundError(2, f"no such object; it is the source of {spec.label}", place.url)
        return self._copies.take(place, found, whole)


def _counts(spec: Spec, path: Path) -> bool:
    """Whether a file of a directory is one of the table."""
    return not _hidden(path) and (spec.table.format is not None or _format(path) is not None)
