"""Progress of what takes long: a bar, a callable, or nothing."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

from freshgo.errors import DTypeError

Progress = Callable[[str, int, int], None]
"""Called as ``progress(stage, done, total)``, now and then."""


class _Bars:
    """One bar per stage."""

    def __init__(self) -> None:
        self._bar: Any = None
        self._stage = ""

    def __call__(self, stage: str, done: int, total: int) -> None:
        if self._bar is None or stage != self._stage:
            self.close()
            self._stage = stage
            from tqdm.auto import tqdm  # slow to import

            self._bar = tqdm(desc=stage, total=total or None, unit="", unit_scale=True, leave=False)
        self._bar.total = total or None
        self._bar.update(done - self._bar.n)

    def close(self) -> None:
        if self._bar is not None:
            self._bar.close()


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
