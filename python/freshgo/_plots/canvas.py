"""An empty figure of matplotlib, which is optional."""

from __future__ import annotations

from typing import Any

from freshgo.errors import LibraryError


def new_figure(**options: Any) -> Any:
    """Return ``Figure(**options)``. It is not pyplot's: there is no global state and no display.

    Raises:
        LibraryError: matplotlib is not installed.
    """
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise LibraryError(f"pictures need matplotlib ({error}): pip install 'freshgo[plot]'") from None
    return Figure(layout="constrained", **options)
