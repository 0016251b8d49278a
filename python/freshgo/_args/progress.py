"""Progress of what takes long: a bar, a callable, or nothing."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator
from typing import Any

from freshgo.errors import DTypeError

Progress = Callable[[str, int, int], None]
"""Called as ``progress(stage, done, total)``, now and then."""


class _Bars:
    """One bar per stage, as long as it can be written: whatever becomes of the terminal, the work goes on."""

    def __init__(self) -> None:
        self._bar: Any = None
        self._stage = ""
        self._seen = sys.stderr is not None

    def __call__(self, stage: str, done: int, total: int) -> None:
        if self._seen:
            with self._while_seen():
                self._show(stage, done, total)

    def _show(self, stage: str, done: int, total: int) -> None:
        if self._bar is None or stage != self._stage:
            if self._bar is not None:
                self._bar.close()
            self._stage = stage
            from tqdm.auto import tqdm  # slow to import

            self._bar = tqdm(desc=stage, total=total or None, unit="", unit_scale=True, leave=False)
        self._bar.total = total or None
        self._bar.update(done - self._bar.n)

    def close(self) -> None:
        if self._bar is not None:
            with self._while_seen():
                self._bar.close()

    @contextlib.contextmanager
    def _while_seen(self) -> Iterator[None]:
        try:
            yield
        except (OSError, ValueError):  # a pipe that nobody reads, a full disk; a file that is closed
            self._seen = False


@contextlib.contextmanager
def progress_of(progress: bool | Progress) -> Iterator[Progress | None]:
    """Yield what to report to: ``progress`` itself, a bar for ``True``, None for ``False``."""
    if callable(progress):
        yield progress
    elif not isinstance(progress, bool):
        raise DTypeError(f"progress must be True, False or a callable, got {progress!r}")
    elif progress:
        bars = _Bars()
        try:
            yield bars
        finally:
            bars.close()
    else:
        yield None
