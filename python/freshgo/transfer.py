"""Whole stores from URLs to a local disk, and back."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import shutil
import tempfile
from pathlib import Path
from typing import Any

from freshgo._args.checks import flag
from freshgo._args.entry import entry
from freshgo._args.progress import Progress, finish, progress_of
from freshgo._args.size import format_size
from freshgo._args.urls import MAGIC, MANIFEST, is_store, is_url, place_of
from freshgo._staging.publishing import publish, recover
from freshgo._staging.workplace import sync, workplace, written
from freshgo._urls.place import Entry, Place
from freshgo._urls.reading import Reader, copy
from freshgo._urls.writing import remove, upload
from freshgo.errors import (
    OVERWRITE,
    CorruptError,
    FormatError,
    InvalidArgumentError,
    ReadError,
    StoreExistsError,
    StoreNotFoundError,
)
from freshgo.store import Store

__all__ = ["fetch", "push"]

_SENDING = "push.json"
"""Beside a store that is being pushed: which one it is."""

_SUFFIXES = (".bin", ".crc")
"""Of the files of a store, which the manifest names."""


@entry
def fetch(
    url: str, path: str | os.PathLike[str], *, overwrite: bool = False, progress: bool | Progress = True
) -> Store:
    """Copy a store from a URL to ``path`` and open it.

    ::

        store = freshgo.fetch("s3://bucket/papers.freshgo", "/nvme/papers.freshgo")

    The store appears at ``path`` when all of it is there and matches its checksums. Until then its files are in the
    directory ``<path>.fetch``; after a kill or a lost connection the same call goes on where it was. Reading takes 24
    MiB of memory, whatever the size of the store.

    Args:
        url: the directory of a store, at a URL that ``fsspec`` knows: ``s3://``, ``gs://``, ... Credentials come from
            the environment.
        path: the directory to create.
        overwrite: replace a store that is at ``path``; it stays valid until the new one is complete.
        progress: show a bar; or a callable that is called with ``(stage, done, total)``, in bytes.

    Raises:
        StoreNotFoundError: there is no store, or no bucket.
        StorePermissionError: access is denied, or there are no credentials.
        ReadError: the connection was lost, in six attempts; the message names object and bytes.
        CorruptError: what came does not match its checksums; the file is read again by the next call.
        StoreExistsError: ``path`` exists and ``overwrite`` is false.
        BusyError: another process fetches to the same path.
        LibraryError: the package of the file system is not installed; the message names it.
        InvalidArgumentError, FormatError, VersionError, WriteError: no URL, no store, one of a newer version, a full
            disk.
    """
    place, target = Place(_url_of(url)), place_of(path)
    _check_target(target, flag("overwrite", overwrite))
    files = _files_of(place)
    with progress_of(progress) as report, workplace(target, ".fetch", kept=True) as work:
        recover(target, is_store)
        _check_target(target, overwrite)  # what was put back may be in the way
        there = _resumed(work, place, files)
        total, done = sum(int(entry.size or 0) for entry in files.values()), 0
        for name, entry in files.items():
            begun, start = work / f"{name}.part", done
            if not (there / name).exists():
                done += begun.stat().st_size if begun.exists() else 0

                def came(count: int) -> None:
                    nonlocal done
                    done += count
                    if report is not None:
                        report("fetching", done, total)

                copy(Reader(place, entry), entry.size, begun, came)
                with written(begun):
                    begun.replace(there / name)
            done = start + int(entry.size or 0)
        _verify(there, place, report)
        publish(there, target)
        finish(report, target, format_size(total))
    return Store.open(target)


@entry
def push(
    path: Store | str | os.PathLike[str], url: str, *, overwrite: bool = False, progress: bool | Progress = True
) -> str:
    """Copy a store from ``path`` to a URL, from where :func:`freshgo.fetch` copies it.

    The store is compared with its checksums first. Its manifest is written last, and without one there is no store; so
    no reader takes a part for the whole. After a kill or a lost connection the same call sends only what is missing.

    Args:
        path: an open store, or the path of one.
        url: the directory to create, at a URL that ``fsspec`` knows and can write: ``s3://``, ``gs://``, ...
        overwrite: replace a store that is at ``url``. It is gone while the new one is sent.
        progress: show a bar; or a callable that is called with ``(stage, done, total)``, in bytes.

    Returns:
        The URL, without user, password and query.

    Raises:
        CorruptError: the store does not match its checksums; nothing was sent.
        StoreExistsError: another store, or something else, is at ``url``.
        StoreNotFoundError, StorePermissionError, LibraryError, InvalidArgumentError: as of :func:`freshgo.fetch`.
        WriteError: the connection was lost, in six attempts.
    """
    place, replace = Place(_url_of(url)), flag("overwrite", overwrite)
    directory = Path(path.path) if isinstance(path, Store) else place_of(path)
    with progress_of(progress) as report:
        with Store.open(directory) as store:
            store.verify(progress=report or False)
        manifest = (directory / MANIFEST).read_bytes()
        sizes = {file.name: file.stat().st_size for file in sorted(directory.iterdir()) if _is_file(file.name)}
        if place.scheme == "file":
            with written(directory):
                Path(place.path).mkdir(parents=True, exist_ok=True)
        sent = _begun(place, manifest, sizes, replace)
        total, done = sum(sizes.values()), 0
        for name, size in sizes.items():
            before = done

            def went(count: int, before: int = before) -> None:
                if report is not None:
                    report("pushing", before + count, total)

            if sent.get(name) != size:
                upload(place, directory / name, place.join(name), went)
            done += size
        for name in sent.keys() - sizes.keys():
            if name.endswith(_SUFFIXES):  # of the store that was replaced
                remove(place, place.join(name))
        upload(place, directory / MANIFEST, place.join(MANIFEST), lambda _: None)
        remove(place, place.join(_SENDING))
        finish(report, place.url, format_size(total))
    return place.url


def _url_of(url: object) -> str:
    if isinstance(url, str) and (is_url(url) or url.startswith("file://")):
        return url.rstrip("/")
    raise InvalidArgumentError(
        f"expected the URL of a store, such as 's3://bucket/papers.freshgo', got {url!r}: fetch(url, path) copies from "
        "a URL, push(path, url) to one"
    )


def _is_file(name: str) -> bool:
    """Whether a name is one of the files of a store beside its manifest."""
    return name not in (MANIFEST, "lock", _SENDING) and not name.startswith(".")


def _files_of(place: Place) -> dict[str, Entry]:
    """Return the files of the store at a place, the manifest first."""
    try:
        entries = {entry.path.removeprefix(place.path).lstrip("/"): entry for entry in place.listing()}
    except StoreNotFoundError as error:
        raise StoreNotFoundError(errno.ENOENT, str(error.strerror).replace("object", "store"), place.url) from None
    files = {name: entry for name, entry in sorted(entries.items()) if "/" not in name and _is_file(name)}
    if MANIFEST not in entries:
        said = "a store that was not pushed whole" if _SENDING in entries else f"not a store: it has no {MANIFEST}"
        raise StoreNotFoundError(errno.ENOENT, said, place.url)
    return {MANIFEST: entries[MANIFEST], **files}


def _check_target(target: Path, overwrite: bool) -> None:
    """Refuse a path where something is that is not to be replaced."""
    if not os.path.lexists(target):
        return
    if not overwrite:
        raise StoreExistsError(errno.EEXIST, OVERWRITE, str(target))
    if not is_store(target):
        raise FormatError(f"{target} exists and is not a store, so it is not replaced")


def _resumed(work: Path, place: Place, files: dict[str, Entry]) -> Path:
    """Return the directory of the files that are there already, without what belongs to another store."""
    there, state = work / "store", work / "source.json"
    now = {"url": place.url, "files": {name: [entry.size, entry.mark] for name, entry in files.items()}}
    try:
        before = json.loads(state.read_text())
    except (OSError, ValueError):
        before = None
    with written(work):
        if before != now:
            for entry in work.iterdir():
                if entry.name != "lock":
                    shutil.rmtree(entry) if entry.is_dir() else entry.unlink()
            state.write_text(json.dumps(now))
            sync(state)
        there.mkdir(exist_ok=True)
    return there


def _verify(there: Path, place: Place, report: Progress | None) -> None:
    """Compare a copy with its checksums. What does not match them is removed, so that the next call reads it again."""
    try:
        with Store.open(there) as store:
            store.verify(progress=report or False)
    except (CorruptError, FormatError, ReadError) as error:
        name = Path(str(getattr(error, "filename", None) or MANIFEST)).name
        for damaged in (name, str(Path(name).with_suffix(".crc")), str(Path(name).with_suffix(".bin"))):
            (there / damaged).unlink(missing_ok=True)
        text = str(error).replace(f"{there}/", f"{place.url}/").replace(str(there), place.url)
        error.args = (text, *error.args[1:])
        if isinstance(error, OSError):
            error.errno, error.strerror, error.filename = errno.EIO, f"what came is damaged: {text}", place.join(name)
        raise


def _begun(place: Place, manifest: bytes, sizes: dict[str, int], replace: bool) -> dict[str, int | None]:
    """Mark a place as one that a store is sent to; returns the files that a call before has sent, with their sizes, and
    what is left of another store."""
    mine = {"manifest": hashlib.sha256(manifest).hexdigest()}
    entries = {entry.path.removeprefix(place.path).lstrip("/"): entry for entry in _listing(place)}
    if not entries:
        _mark(place, mine)
        return {}
    if MANIFEST in entries:
        there = _content(place, entries[MANIFEST])
        if there == manifest and all(name in entries and entries[name].size == size for name, size in sizes.items()):
            return {name: entry.size for name, entry in entries.items()}
        if not replace:
            raise StoreExistsError(errno.EEXIST, OVERWRITE, place.url)
        if not there.startswith(MAGIC):
            raise FormatError(f"{place.url} exists and is not a store, so it is not replaced")
        remove(place, place.join(MANIFEST))
        _mark(place, mine)
        return {name: None for name in entries if "/" not in name}
    if _SENDING not in entries:
        raise StoreExistsError(errno.EEXIST, "exists and is not a store, so it is not replaced", place.url)
    if json.loads(_content(place, entries[_SENDING])) == mine:
        return {name: entry.size for name, entry in entries.items()}
    if not replace:
        raise StoreExistsError(
            errno.EEXIST, "holds another store that was not pushed whole; pass overwrite=True to replace it", place.url
        )
    _mark(place, mine)
    return {name: None for name in entries if "/" not in name}


def _listing(place: Place) -> list[Entry]:
    try:
        return place.listing()
    except StoreNotFoundError as error:
        if "bucket" in str(error.strerror):
            raise
        return []


def _content(place: Place, entry: Entry) -> bytes:
    return b"".join(Reader(place, entry).pieces())


def _mark(place: Place, mine: dict[str, Any]) -> None:
    with tempfile.TemporaryDirectory() as directory:
        file = Path(directory) / _SENDING
        file.write_text(json.dumps(mine))
        upload(place, file, place.join(_SENDING), lambda _: None)
