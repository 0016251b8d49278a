"""Servers on the loopback: S3 as moto implements it, and one of HTTP that cuts connections where a test says."""

from __future__ import annotations

import contextlib
import http.server
import logging
import re
import threading
import urllib.parse
from collections.abc import Callable, Iterator
from typing import Any

import pytest

CREDENTIALS = {
    "AWS_ACCESS_KEY_ID": "AKIAFRESHGOTESTS",
    "AWS_SECRET_ACCESS_KEY": "a-secret-of-the-tests",
    "AWS_DEFAULT_REGION": "us-east-1",
    "AWS_EC2_METADATA_DISABLED": "true",
    "AWS_CONFIG_FILE": "/dev/null",
    "AWS_SHARED_CREDENTIALS_FILE": "/dev/null",
}


@contextlib.contextmanager
def s3_server() -> Iterator[str]:
    """A server of S3 on a port that is free; yields its URL."""
    from moto.server import ThreadedMotoServer

    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    try:
        host, port = server.get_host_and_port()
        yield f"http://{host}:{port}"
    finally:
        server.stop()


class Files:
    """What an HTTP server has, and what it does wrong."""

    def __init__(self) -> None:
        self.objects: dict[str, bytes] = {}
        self.requests: list[tuple[str, str, tuple[int, int]]] = []
        """Method, path and range of each request so far; the range of the whole where none was asked for."""
        self.cuts: Callable[[str, int, int], int | None] = lambda path, start, end: None
        """Called with the range of a request; returns the offset before which its connection is cut."""
        self.status: Callable[[str], int | None] = lambda path: None
        """A status to answer with, in the place of the object."""
        self.ranges = True
        self.url = ""


class _Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.0"  # a client repeats requests on connections that were kept and are closed
    files: Files

    def log_message(self, *_: Any) -> None:
        pass

    def do_HEAD(self) -> None:
        self._answer(body=False)

    def do_GET(self) -> None:
        self._answer(body=True)

    def _answer(self, body: bool) -> None:
        path = urllib.parse.unquote(self.path.partition("?")[0].lstrip("/"))
        status = self.files.status(path)
        if status is not None or path not in self.files.objects:
            self.send_response(status or 404)
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        data = self.files.objects[path]
        start, end = 0, len(data)
        asked = re.fullmatch(r"bytes=(\d+)-(\d+)", self.headers.get("Range", ""))
        partial = asked is not None and self.files.ranges
        if asked is not None and partial:
            start, end = int(asked[1]), min(len(data), int(asked[2]) + 1)
        self.files.requests.append((self.command, path, (start, end)))
        if start >= len(data) and partial:
            self.send_response(416)
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        self.send_response(206 if partial else 200)
        self.send_header("Content-Length", str(end - start))
        if self.files.ranges:
            self.send_header("Accept-Ranges", "bytes")
        if partial:
            self.send_header("Content-Range", f"bytes {start}-{end - 1}/{len(data)}")
        self.end_headers()
        if not body:
            return
        cut = self.files.cuts(path, start, end)
        self.wfile.write(data[start : end if cut is None else max(start, min(end, cut))])
        if cut is not None:
            self.wfile.flush()
            self.close_connection = True


@contextlib.contextmanager
def http_server() -> Iterator[Files]:
    """A server of HTTP on a port that is free."""
    files = Files()
    handler = type("Handler", (_Handler,), {"files": files})
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
    thread.start()
    files.url = f"http://127.0.0.1:{server.server_address[1]}"
    try:
        yield files
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


@pytest.fixture(scope="session")
def s3_endpoint() -> Iterator[str]:
    with s3_server() as url:
        yield url


@pytest.fixture
def s3(s3_endpoint: str, monkeypatch: pytest.MonkeyPatch) -> Any:
    """An empty bucket "bucket", with credentials in the environment: s3fs, by which a test puts objects there."""
    for name, value in {**CREDENTIALS, "AWS_ENDPOINT_URL": s3_endpoint}.items():
        monkeypatch.setenv(name, value)
    import s3fs

    fs = s3fs.S3FileSystem(use_listings_cache=False, skip_instance_cache=True)
    if fs.exists("bucket"):
        fs.rm("bucket", recursive=True)
    fs.mkdir("bucket")
    return fs


@pytest.fixture
def web() -> Iterator[Files]:
    with http_server() as files:
        yield files


@pytest.fixture
def no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    """Requests are sent again at once."""
    monkeypatch.setattr("freshgo._urls.place.PAUSES", (0.0,) * 5)
