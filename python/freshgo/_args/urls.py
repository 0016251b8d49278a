"""Paths that are URLs: how they are told from files, and how messages show them; and paths of stores, which are not."""

from __future__ import annotations

import contextlib
import os
import re
import urllib.parse
from pathlib import Path
from typing import Any

from freshgo.errors import DTypeError, InvalidArgumentError

MANIFEST, MAGIC = "manifest.pb", b"FRESHGO\0"
"""The file that makes a directory a store, which is written last, and its first bytes."""

_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.:-]*://")
_COLLAPSED = re.compile(r"(s3a?|gs|gcs|https?|abfss?|az|hdfs|memory|file):/[^/]")
"""What pathlib makes of a URL: it joins slashes."""

_QUERY = re.compile(r"\?[^\s'\"]*=[^\s'\"]*")
_LOGIN = re.compile(r"(://)[^\s'\"/]*@")


def is_url(path: object) -> bool:
    """Whether a path is a URL. One of a local file is not: :func:`local_path` returns the path."""
    if isinstance(path, os.PathLike):
        path = os.fspath(path)
        if isinstance(path, str) and _COLLAPSED.match(path) and not os.path.lexists(path):
            raise InvalidArgumentError(
                f"Path({shown_url(path)!r}) is a URL that lost a slash in pathlib: pass the URL as a string"
            )
    return isinstance(path, str) and _URL.match(path) is not None and not path.startswith("file://")


def local_path(path: str) -> str:
    """Return the path of a ``file://`` URL, and any other path as it is."""
    if not path.startswith("file://"):
        return path
    rest = path.removeprefix("file://").removeprefix("localhost")
    if not rest.startswith("/"):
        raise InvalidArgumentError(f"{path!r} must have an absolute path: file:///data/x.parquet")
    return urllib.parse.unquote(rest)


def shown_url(text: str) -> str:
    """Return a URL, or a text with URLs, without what may be secret: user, password and query."""
    return _QUERY.sub("?...", _LOGIN.sub(r"\1", text))


def check_local(path: object) -> None:
    """Refuse anything but a local path where the path of a store is expected.

    Raises:
        DTypeError: it is no path. InvalidArgumentError: it is a URL.
    """
    if not isinstance(path, str | bytes | os.PathLike):
        raise DTypeError(f"the path of a store must be a string or an os.PathLike, got {type(path).__name__}")
    if is_url(path) or (isinstance(path, str) and path.startswith("file://")):
        url = shown_url(str(path))
        raise InvalidArgumentError(
            f"{url!r} is a URL, and stores are used on a local disk: freshgo.fetch(url, path) copies one from there, "
            "freshgo.push(path, url) to it"
        )


def place_of(path: str | bytes | os.PathLike[Any]) -> Path:
    """Return the path of a store: absolute, as the process may change its directory while the store is open, and with a
    link at its end followed, so that a store that is written there lies where the link leads.

    Raises:
        DTypeError, InvalidArgumentError: as :func:`check_local`.
    """
    check_local(path)
    place = Path(os.fsdecode(path))
    if os.path.islink(place):  # noqa: PTH114  (Path.is_symlink raises for names that are too long)
        place = Path(os.path.realpath(place))
    with contextlib.suppress(FileNotFoundError):  # the directory of the process is gone
        place = place.absolute()
    return place


def is_store(path: Path) -> bool:
    """Whether a store is at a path, damaged perhaps."""
    try:
        with (path / MANIFEST).open("rb") as file:
            return file.read(len(MAGIC)) == MAGIC
    except OSError:
        return False


def check_outside(path: Path) -> None:
    """Refuse to write at an absolute path inside the directory of a store: it goes when that store is replaced.

    Raises:
        InvalidArgumentError: the path is inside a store, which the message names, or holds a zero character.
    """
    if "\0" in str(path):  # Python's error would be of no class of ours
        raise InvalidArgumentError(f"a path must not hold a zero character, got {str(path)!r}")
    for above in path.parents:
        if is_store(above):
            raise InvalidArgumentError(f"{path} is inside the store {above}: write it elsewhere")
