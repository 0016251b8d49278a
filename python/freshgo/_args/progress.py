"""Progress of what takes long: a bar, a callable, or nothing."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

from freshgo.errors import DTypeError

Progress = Callable[[str, int, int], None]
"""Called as ``progress(stage, done, total)``, now and then."""


def _interval() -> float:
    """Return the seconds after which a bar is drawn again: a file keeps every line."""
    seen = getattr(sys.stderr, "isatty", bool)() or "ipykernel" in sys.modules
    return 0.1 if seen else 10.0


class Bar:
    """One bar, which names the stage, and at the end a line about the result. It appears after ``delay`` seconds.

    Whatever becomes of the terminal, the work goes on.
    """

    def __init__(self, delay: float = 0) -> None:
        self._bar: Any = None
        self._delay = delay
        self._shown = 0.0  # when it was drawn last
        self._stage = ""
        self._result = ""
        self._begun = time.monotonic()
        self._seen = sys.stderr is not None

    def __call__(self, stage: str, done: int, total: int) -> None:
        if self._seen and time.monotonic() - self._begun >= self._delay:
            with self._while_seen():
                self._show(stage, done, total)

    def _show(self, stage: str, done: int, total: int) -> None:
        if self._bar is None:
            from tqdm.auto import tqdm  # slow to import

            self._bar = tqdm(
                desc=stage, total=total or None, unit="", unit_scale=True, leave=False, mininterval=_interval()
            )
            self._shown = time.monotonic()
        elif stage != self._stage:
            self._bar.set_description_str(stage, refresh=False)  # the other adds a colon to that of the bar
            self._bar.reset(total or None)
        self._stage = stage
        self._bar.total = total or None
        now = time.monotonic()
        if done != self._bar.n:
            self._bar.update(done - self._bar.n)
        elif now - self._shown >= max(1.0, self._bar.mininterval):
            self._bar.refresh()  # the time goes on
        else:
            return
        self._shown = now

    def finish(self, result: str) -> None:
        """Say what was written. The last call counts, where one call works for another."""
        self._result = result

    def close(self) -> None:
        if not self._seen:
            return
        with self._while_seen():
            if self._bar is not None:
                self._bar.close()
            if self._result:
                seconds = time.monotonic() - self._begun
                print(f"wrote {self._result} in {seconds:,.1f} s", file=sys.stderr, flush=True)

    @contextlib.contextmanager
    def _while_seen(self) -> Iterator[None]:
        try:
            yield
        except (OSError, ValueError):  # a pipe that nobody reads, a full disk; a file that is closed
            self._seen = False


def checked(progress: object) -> bool | Progress:
    """Return ``progress``, or raise DTypeError."""
    if not callable(progress) and not isinstance(progress, bool):
        raise DTypeError(f"progress must be True, False or a callable, got {progress!r}")
    return progress


@contextlib.contextmanager
def progress_of(progress: bool | Progress, delay: float = 0) -> Iterator[Progress | None]:
    """Yield what to report to: ``progress`` itself, for ``True`` a bar that appears after ``delay`` seconds, None for
    ``False``."""
    checked(progress)
    if callable(progress):
        yield progress
    elif progress:
        bar = Bar(delay)
        try:
            yield bar
        finally:
            bar.close()
    else:
        yield None


def finish(report: Progress | None, path: object, summary: str) -> None:
    """Let a bar end with a line about what was written, and where."""
    if isinstance(report, Bar):
        report.finish(f"{path}: {summary}")
