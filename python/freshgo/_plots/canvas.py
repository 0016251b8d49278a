"""An empty figure of matplotlib, which is optional, and the frame of its axes."""

from __future__ import annotations

from typing import Any

from freshgo.errors import LibraryError


def new_figure(**options: Any) -> Any:
    """Return a figure that notebooks show. It is not pyplot's: there is no global state.

    Raises:
        LibraryError: matplotlib is not installed.
    """
    try:
        from freshgo._plots.figures import Shown

        return Shown(layout="constrained", **options)
    except ImportError as error:
        raise LibraryError(f"pictures need matplotlib ({error}): pip install 'freshgo[plot]'") from None


def open_frame(axes: Any) -> None:
    """Leave the upper and the right side of the frame away."""
    axes.spines[["top", "right"]].set_visible(False)
