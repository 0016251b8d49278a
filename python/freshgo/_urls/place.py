"""A URL, the file system that knows it, and what is there."""

from __future__ import annotations

import datetime
import errno
import threading
from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

from freshgo._args.urls import shown_url
from freshgo._urls.failures import failure, reason, scrubbed
from freshgo.errors import InvalidArgumentError, LibraryError, ReadError, StoreNotFoundError

PAUSES = (0.25, 0.5, 1.0, 2.0, 4.0)
"""Seconds before a request is sent again. Arbitrary: a server that is back within eight seconds is not noticed."""

_TIMEOUT = 30
"""Seconds without a byte after which a connection is lost. Arbitrary."""

_MARKS = ("ETag", "etag", "generation", "md5Hash", "Last-Modified", "LastModified", "mtime", "updated", "created")
"""What tells an object from another one that takes its place, as file systems name it."""

T = TypeVar("T")


class Entry(NamedTuple):
    """An object of a file system."""

    path: str
    """As the file system names it."""
    url: str
    """As messages show it."""
    size: int | None
    """In bytes; None where the server does not tell."""
    mark: str
    """Changes when another object takes its place; empty where nothing tells."""


class Place:
    """A URL and the file system that knows it."""

    def __init__(self, url: str, like: Place | None = None) -> None:
        """Find the file system: the one of another place, if it is as good for this URL.

        Raises:
            LibraryError: fsspec, or the package of the file system, is not installed; the message names it.
            InvalidArgumentError: nothing knows such URLs.
        """
        self.url = shown_url(url)
        self.scheme = url.rpartition("::")[2].partition("://")[0].lower()
        if like is not None and like.scheme == self.scheme and "::" not in url:
            self.fs: Any = like.fs
            self.path: str = self.fs._strip_protocol(url)
            if not self.fs._get_kwargs_from_urls(url):  # such as a host
                return
        try:
            from fsspec.core import url_to_fs

            # A file system of our own: with the credentials of today, and listings that no cache keeps.
            options = {"skip_instance_cache": True, "use_listings_cache": False, **_options(self.scheme)}
            self.fs, self.path = url_to_fs(url, **options)
        except ImportError as error:
            raise LibraryError(f"{self.url!r} needs a package: {_package(self.scheme)} ({error})") from None
        except ValueError as error:
            raise InvalidArgumentError(
                f"{self.url!r} is no URL that fsspec knows, such as s3://, gs:// or https:// ({scrubbed(str(error))})"
            ) from None
        if self.scheme in ("s3", "s3a"):
            self.fs.retries = 1  # beside ours

    def calling(
        self,
        call: Callable[[], T],
        url: str | None = None,
        what: str = "the request",
        stopped: threading.Event | None = None,
    ) -> T:
        """Call what asks the file system, and again after a pause where the connection fails. ``stopped`` ends the
        pauses.

        Raises:
            StoreNotFoundError, StorePermissionError, InvalidArgumentError: an answer that is worth no other attempt.
            ReadError: the last attempt failed like the ones before.
        """
        stopped = threading.Event() if stopped is None else stopped
        for pause in (*PAUSES, None):
            try:
                return call()
            except Exception as error:  # of any file system
                found = failure(error, url or self.url)
                if found is None and pause is None:
                    said = f"{what} failed {len(PAUSES) + 1} times: {reason(error)}"
                    found = ReadError(errno.EIO, said, url or self.url)
            if found is not None:
                raise found from None  # whose cause may show a signature
            if stopped.wait(pause):
                raise ReadError(errno.EINTR, f"{what} was interrupted", url or self.url)
        raise AssertionError("the last attempt returns or raises")

    def shown(self, path: str) -> str:
        """Return a path of the file system as messages show it."""
        return shown_url(str(self.fs.unstrip_protocol(path)))

    def join(self, name: str) -> str:
        """Return the path of an object below."""
        return f"{self.path.rstrip('/')}/{name}"

    def entry(self, path: str | None = None) -> Entry | None:
        """Return the object at a path, None for a directory.

        Raises:
            StoreNotFoundError, StorePermissionError, ReadError
        """
        path = self.path if path is None else path
        info = self.calling(lambda: self.fs.info(path), self.shown(path))
        return None if info["type"] == "directory" else self._entry(path, info)

    def listing(self) -> list[Entry]:
        """Return all objects below the path, in the order of their names.

        Raises:
            StoreNotFoundError, StorePermissionError, ReadError
        """
        found = self.calling(lambda: self.fs.find(self.path, detail=True))
        if not found:  # as a bucket that is missing, to some file systems
            self.entry()
        return [self._entry(path, info) for path, info in sorted(found.items()) if info["type"] == "file"]

    def matches(self) -> tuple[list[Entry], bool]:
        """Return the objects that the path stands for: itself, all that match the pattern, or all below it; and whether
        they are the ones below it.

        Raises:
            StoreNotFoundError, StorePermissionError, ReadError: there are none, or they cannot be listed.
        """
        below = False
        try:
            entry = self.entry()
        except StoreNotFoundError:
            if not any(mark in self.path for mark in ("*[" if self.scheme in ("http", "https") else "*?[")):
                raise
            found = self.calling(lambda: self.fs.glob(self.path, detail=True))
            entries = [self._entry(path, info) for path, info in sorted(found.items()) if info["type"] == "file"]
        else:
            below = entry is None
            entries = self.listing() if entry is None else [entry]
        if not entries:
            raise StoreNotFoundError(errno.ENOENT, "no object matches", self.url)
        return entries, below

    def _entry(self, path: str, info: dict[str, Any]) -> Entry:
        size = info.get("size")
        name = next((name for name in _MARKS if info.get(name)), "")
        value = info.get(name, "")  # a time is a number in some listings
        mark = f"{name}={value.timestamp() if isinstance(value, datetime.datetime) else value}"
        return Entry(path, self.shown(path), None if size is None else int(size), mark)


def _options(scheme: str) -> dict[str, Any]:
    """Return what bounds the time of a request."""
    if scheme in ("http", "https"):
        import aiohttp

        timeout = aiohttp.ClientTimeout(total=None, sock_connect=_TIMEOUT, sock_read=_TIMEOUT)
        return {"client_kwargs": {"timeout": timeout}}
    if scheme in ("s3", "s3a"):
        from fsspec.config import conf

        own = {"connect_timeout": _TIMEOUT, "read_timeout": _TIMEOUT, "retries": {"total_max_attempts": 1}}
        return {"config_kwargs": {**own, **conf.get(scheme, {}).get("config_kwargs", {})}}
    return {}


def _package(scheme: str) -> str:
    """Return how to install what a scheme needs."""
    if scheme in ("s3", "s3a", "http", "https"):
        return "pip install 'freshgo[remote]'"
    try:
        from fsspec.registry import known_implementations
    except ImportError:
        return "pip install 'freshgo[remote]'"
    known = known_implementations.get(scheme, {})
    package = known.get("class", "").partition(".")[0]
    return f"pip install {package}" if package and package != "fsspec" else known.get("err", "see fsspec's list")
