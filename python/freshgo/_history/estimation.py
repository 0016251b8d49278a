"""What a history saves over time, and how far its entries are from what the model would compute now."""

from __future__ import annotations

from collections import deque
from typing import Any

import torch
from torch import Tensor

from freshgo._batch.structure import Levels
from freshgo._history.crossing import Fetched
from freshgo.errors import FormatError

_POINTS = 1024
"""Points of a trail; when there are more, neighbours are added up. Twice what a wide figure can show."""


_GROWTH = 1.1
"""How much larger the relative error of entries may be than that of the youngest ones, which two samples differ by.
What grows with age is independent of it: its length is then 0.46 of it. FreshGNN's setting lost accuracy where the
factor was 1.27, and nothing at 1.06 (docs/papers.md, amazon-computers)."""

_ENOUGH = 256
"""Rows of an age that are enough to judge it: the mean error is known to a few percent."""


class Trail:
    """Rows and edges, loaded and plain, over iterations: sums over spans that double when they become too many."""

    _FIELDS = ("iteration", "batches", "loaded", "plain_rows", "edges", "plain_edges", "hits", "computed")

    def __init__(self) -> None:
        self._span = 1
        self._points: list[list[int]] = []
        self.bytes_saved = 0  # of the features that the first layer reads

    def add(self, levels: Levels) -> None:
        """Add the counts of a batch."""
        hits = sum(hit.numel() for hit in levels.hit if hit is not None)
        computed = sum(rows.numel() for rows in levels.computed if rows is not None)
        rows, edges = [levels.loaded, levels.plain_nodes], [levels.edges, levels.plain_edges]
        point = [levels.index, 1, *rows, *edges, hits, computed]
        if self._points and self._points[-1][1] < self._span:
            self._sum(self._points[-1], point)
            return
        self._points.append(point)
        if len(self._points) >= 2 * _POINTS:
            for first, second in zip(self._points[::2], self._points[1::2], strict=True):
                self._sum(first, second)
            self._points = self._points[::2]
            self._span *= 2

    @staticmethod
    def _sum(point: list[int], other: list[int]) -> None:
        point[1:] = [a + b for a, b in zip(point[1:], other[1:], strict=True)]

    def total(self, field: str) -> int:
        """The sum of a field over all iterations."""
        at = self._FIELDS.index(field)
        return sum(point[at] for point in self._points)

    def rows(self) -> list[dict[str, int]]:
        """The points by name."""
        return [dict(zip(self._FIELDS, point, strict=True)) for point in self._points]

    def save(self) -> dict[str, Any]:
        """A state of plain numbers."""
        points = [list(point) for point in self._points]
        return {"span": self._span, "points": points, "bytes_saved": self.bytes_saved}

    def load(self, state: Any) -> None:
        """Go on from a saved state."""
        try:
            self._span, self.bytes_saved = int(state["span"]), int(state["bytes_saved"])
            self._points = [[int(value) for value in point] for point in state["points"]]
        except (KeyError, TypeError, ValueError) as error:
            raise FormatError(f"history state: 'saving' is damaged: {error!r}") from None
        if self._span < 1 or any(len(point) != len(self._FIELDS) for point in self._points):
            raise FormatError("history state: 'saving' holds impossible counts")


class Estimation:
    """Cosine and relative error of entries against freshly computed rows, by age in powers of two."""

    _BINS = 63

    def __init__(self) -> None:
        self._sums = torch.zeros(self._BINS, 4, dtype=torch.float64)  # rows, cosine, compared in length, relative error
        self._coming: deque[Fetched] = deque()  # what is not in the sums yet

    def add(self, level: int, exact: Tensor, stored: Tensor, age: Tensor) -> None:
        """Compare rows ``[n, width]`` of ages ``[n]``, in iterations."""
        exact, stored = exact.double(), stored.double()
        length, other = exact.norm(dim=1), stored.norm(dim=1)
        both = length * other
        # Two rows of zeros are equal; against one of them no direction is right.
        cosine = torch.where(both > 0, (exact * stored).sum(1) / both, (length == other).double())
        known = (length > 0).double()  # else there is no relative error
        relative = torch.where(length > 0, (stored - exact).norm(dim=1) / length, 0.0)
        self._coming.append(Fetched(torch.stack([torch.ones_like(cosine), cosine, known, relative, age.double()], 1)))
        self._take(wait=False)

    def _take(self, *, wait: bool) -> Tensor:
        """Add up what has arrived, with ``wait`` all of it, and return the sums."""
        while self._coming and (wait or self._coming[0].arrived()):
            values, age = torch.split(self._coming[0].wait(), [4, 1], 1)
            self._coming.popleft()
            finite = values.isfinite().all(1)
            bins = age[:, 0].clamp(min=1).log2().floor().long()
            self._sums.index_add_(0, bins[finite], values[finite])
        return self._sums

    def rows(self) -> list[dict[str, float]]:
        """For every age that was met: its bounds, the number of rows, and the means."""
        result = []
        for power, (rows, cosine, known, relative) in enumerate(self._take(wait=True).tolist()):
            if rows:
                result.append(
                    {
                        "age": 1 << power,
                        "to": (2 << power) - 1,
                        "rows": int(rows),
                        "cosine": cosine / rows,
                        "relative": relative / known if known else 0.0,
                    }
                )
        return result

    def stable(self) -> tuple[int, float] | None:
        """Return the age up to which the relative error is within ``_GROWTH`` of that of the youngest entries, and how
        many times that error the next older ones have; None: at no age that was met it is more."""
        youngest = 0.0
        for power, (_, _, known, relative) in enumerate(self._take(wait=True).tolist()):
            if known < _ENOUGH:
                continue
            error = relative / known
            if not youngest:
                youngest = error
            elif error > _GROWTH * youngest:
                return (1 << power) - 1, error / youngest
        return None

    def save(self) -> Tensor:
        """A state."""
        return self._take(wait=True).clone()

    def load(self, state: Any) -> None:
        """Go on from a saved state."""
        if not isinstance(state, Tensor) or state.shape != self._sums.shape or state.dtype != self._sums.dtype:
            raise FormatError("history state: 'error' must be sums by age")
        self._sums = state.clone()
        self._coming.clear()
