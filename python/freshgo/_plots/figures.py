"""A figure of matplotlib that notebooks show. Importing this module imports matplotlib."""

from __future__ import annotations

import io

from matplotlib.figure import Figure


class Shown(Figure):
    """A figure that a notebook shows where it is the value of a cell.

    It does not belong to pyplot, whose inline backend shows its own figures at the end of a cell. So it is shown once,
    with that backend or without. A notebook where the backend is active draws figures of matplotlib itself, and does
    not call :meth:`_repr_png_`.
    """

    def _repr_png_(self) -> bytes:
        picture = io.BytesIO()
        self.savefig(picture, format="png")
        return picture.getvalue()
