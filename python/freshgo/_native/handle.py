"""What all native objects have in common: a handle that is freed once, and jobs that are waited for.

Everything that takes long runs as a job of the library and is waited for in
steps of at most 50 ms, so that Ctrl-C is answered; an interrupted job is
cancelled and has stopped before ``KeyboardInterrupt`` leaves :func:`run_job`.

The library must not be called in a forked child (its threads do not exist
there): every function raises :class:`~freshgo.errors.ForkError` in one, and
finalizers do nothing.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from freshgo._args.urls import check_local, place_of
from freshgo._native import abi, header
from freshgo.errors import ClosedError, FreshgoError, InvalidArgumentError

if TYPE_CHECKING:
    from freshgo._args.progress import Progress

__all__ = ["POLL_MS", "Handle", "encoded_path", "run_job"]

POLL_MS = 50


def encoded_path(path: Any) -> bytes:
    """Return the path of a store as the library takes it."""
    check_local(path)
    encoded = os.fsencode(path)
    if not encoded:
        raise InvalidArgumentError("the path of a store must name a directory, got ''")
    if b"\0" in encoded:  # where C would end it
        raise InvalidArgumentError(f"the path of a store must not hold a zero character, got {path!r}")
    return os.fsencode(place_of(path))


class Handle:
    """A native handle that is closed once, by ``close``, by ``with`` or by the garbage collector."""

    _closer = ""
    _what = ""

    def __init__(self) -> None:
        self._pointer: int | None = None
        self._lock = threading.Lock()

    @property
    def closed(self) -> bool:
        return self._pointer is None

    def close(self) -> None:
        """Free what the handle holds. Closing again does nothing."""
        pointer = None
        try:
            with self._lock:
                pointer, self._pointer = self._pointer, None
            if pointer is not None:
                self._discard(pointer)
        except BaseException:  # Ctrl-C may strike before the library has freed it, or after
            if pointer is not None:
                with contextlib.suppress(FreshgoError):
                    self._discard(pointer)
            raise

    def _discard(self, pointer: int) -> None:
        abi.call(self._closer, pointer)

    def _handle(self) -> int:
        abi.check_process()
        pointer = self._pointer
        if pointer is None:
            raise ClosedError(f"{self._what} is closed")
        return pointer

    def __del__(self) -> None:
        with contextlib.suppress(Exception):  # a finalizer has nobody to tell
            if self._pointer is not None and not abi.forked():
                self.close()


def run_job(
    starter: str,
    *args: Any,
    discard: Callable[[int], object] | None = None,
    progress: Progress | None = None,
    stop: Callable[[], object] | None = None,
) -> int:
    """Start a job, wait for it and return its result (0 when it has none).

    Ctrl-C may strike between any two steps, also right after the library handed something over: the job is closed
    and a result that is not returned is given to ``discard``. ``stop`` ends the pipes that the job reads, which it
    would wait for.
    """
    job, state = ctypes.c_void_p(), header.Progress()
    try:
        try:
            abi.call(starter, *args, ctypes.byref(job))
            _wait(job, state, progress)
        except BaseException:
            if stop is not None:
                stop()
            raise
        finally:
            # Cancels what still runs and waits for it, so no input is read after this line.
            if job:
                _close_job(job)
        return state.result or 0
    except BaseException:
        if state.result and discard is not None:
            discard(state.result)
        raise


def _wait(job: ctypes.c_void_p, state: Any, progress: Progress | None) -> None:
    shown: tuple[str, int, int] | None = None
    code = header.TIMEOUT
    while code != header.OK:
        code = abi.call("fg_job_wait", job, POLL_MS, ctypes.byref(state))
        if progress is not None:
            now = (state.stage.decode(), int(state.done), int(state.total))
            if now[0] and now != shown:
                shown = now
                progress(*now)


def _close_job(job: ctypes.c_void_p) -> None:
    try:
        abi.call("fg_job_close", job)
    except BaseException:  # Ctrl-C may strike before the library has closed it, or after
        with contextlib.suppress(FreshgoError):
            abi.call("fg_job_close", job)
        raise
