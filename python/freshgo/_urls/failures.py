"""What file systems raise, as errors of ours: without tokens, keys and signatures in their text."""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Iterator

from freshgo._args.urls import shown_url
from freshgo.errors import (
    FreshgoError,
    InvalidArgumentError,
    ReadError,
    StoreNotFoundError,
    StorePermissionError,
)

_LATER = frozenset({408, 425, 429})
"""Statuses from 400 to 499 after which the same request may succeed."""

_LOST = re.compile(
    "Connect|Timeout|Payload|Incomplete|Stream|Disconnect|HTTPClient|Protocol|SSL|Transport|Retry|Socket"
)
"""Names of errors of connections, in whatever package."""

_SECRETS = ("AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_ACCESS_KEY_ID", "AZURE_STORAGE_KEY")
_SIGNED = re.compile(
    r"((?:X-Amz-\w+|X-Goog-\w+|AWSAccessKeyId|Signature|sig|token|Authorization)\s*[=:]\s*)[^\s&,'\"]+", re.IGNORECASE
)


def scrubbed(text: str) -> str:
    """Return a text without URLs' queries and logins, signatures, and the credentials of the environment."""
    for name in _SECRETS:
        if len(os.environ.get(name, "")) > 3:
            text = text.replace(os.environ[name], "...")
    return _SIGNED.sub(r"\1...", shown_url(text))


def reason(error: BaseException) -> str:
    """Return what the first error of a chain says, in a line."""
    first = list(_chain(error))[-1]
    said = " ".join(scrubbed(str(first)).split())
    return f"{type(first).__name__}: {said[:200]}" if said else type(first).__name__


def failure(error: BaseException, url: str) -> FreshgoError | None:
    """Return an error as ours; None where trying again may help."""
    if isinstance(error, FreshgoError):
        return error
    status, code = _status(error)
    names = " ".join(type(one).__name__ for one in _chain(error))
    if "Credential" in names or "NoAuthToken" in names:
        said = "no credentials: set them in the environment (such as AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY)"
        if url.startswith("s3"):
            said += ", or FSSPEC_S3_ANON=true for a public bucket"
        return StorePermissionError(errno.EACCES, said, url)
    if code == "NoSuchBucket" or "bucket does not exist" in str(error):
        return StoreNotFoundError(errno.ENOENT, "no such bucket", url)
    if status in (401, 403) or isinstance(error, PermissionError):
        return StorePermissionError(errno.EACCES, f"access denied ({code or status or reason(error)})", url)
    if status in (412, 416) or "FileExpired" in names:
        return changed(url)
    if status in (404, 410) or (status is None and isinstance(error, FileNotFoundError) and not _lost(error)):
        return StoreNotFoundError(errno.ENOENT, "no such object", url)
    if status is not None and 400 <= status < 500 and status not in _LATER:
        return ReadError(errno.EIO, f"the server refused the request with status {status} ({code or 'no code'})", url)
    if _lost(error) or (status is not None and status >= 500) or status in _LATER:
        return None
    if isinstance(error, IsADirectoryError):
        return InvalidArgumentError(f"{url} is a directory, expected a file")
    if isinstance(error, OSError) and not isinstance(error, FileExistsError):
        return None
    return InvalidArgumentError(f"{url}: {reason(error)}")


def changed(url: str) -> ReadError:
    """Return the error of an object that another one replaced."""
    return ReadError(errno.ESTALE, "the object changed while it was being read", url)


def _chain(error: BaseException) -> Iterator[BaseException]:
    """Yield an error and its causes."""
    seen: set[int] = set()
    one: BaseException | None = error
    while one is not None and id(one) not in seen:
        seen.add(id(one))
        yield one
        one = one.__cause__ or (None if one.__suppress_context__ else one.__context__)


def _status(error: BaseException) -> tuple[int | None, str]:
    """Return the status of HTTP and the code of the service that an error is about."""
    for one in _chain(error):
        response = getattr(one, "response", None)
        if isinstance(response, dict):
            status = response.get("ResponseMetadata", {}).get("HTTPStatusCode")
            return status, str(response.get("Error", {}).get("Code", ""))
        status = getattr(one, "status", None)
        if status is None and not type(one).__module__.startswith("aiohttp"):  # whose codes are of broken answers
            status = getattr(one, "code", None)
        if isinstance(status, str) and status.isdecimal():  # gcsfs
            status = int(status)
        if isinstance(status, int) and 100 <= status < 600:
            return status, ""
    return None, ""


def _lost(error: BaseException) -> bool:
    """Whether the connection failed, whatever class the file system made of it."""
    return any(
        isinstance(one, ConnectionError | TimeoutError) or _LOST.search(type(one).__name__)
        for one in _chain(error)
        if _status(one)[0] is None
    )
