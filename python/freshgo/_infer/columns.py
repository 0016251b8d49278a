"""Rows in files of some columns each, so that these can be read without the others."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from freshgo._infer.files import Moved, Rows


def bounds(columns: int, slices: int) -> list[int]:
    """The columns at which slices begin, and the number of columns behind."""
    return [columns * s // slices for s in range(slices + 1)]


class Columns:
    """``rows`` rows of some columns, in a file for each slice of the columns."""

    def __init__(self, path: Path, rows: int, columns: int, slices: int, dtype: Any, moved: Moved) -> None:
        """Create the files ``path`` with a number behind, or go on with those that are there."""
        self.at, self.rows, self.dtype = bounds(columns, slices), rows, np.dtype(dtype)
        self.paths = [path.with_name(f"{path.name}_{s}.npy") for s in range(slices)]
        self.files: list[Rows] = []
        try:
            for s, of in enumerate(self.paths):
                self.files.append(Rows(of, (rows, self.at[s + 1] - self.at[s]), dtype, moved))
        except BaseException:
            self.close()
            raise

    def write(self, first: int, rows: Tensor, since: int = 0) -> None:
        """Write rows from the one of this number on, in the slices from ``since`` on."""
        for s, file in enumerate(self.files[since:], since):
            file.write(first, rows[:, self.at[s] : self.at[s + 1]])

    def read(self, first: int, end: int, last: Tensor | None = None) -> Tensor:
        """Rows from the one of a number to before another, as float32; if ``last`` is given it has their columns of the
        last slice."""
        out = torch.empty(end - first, self.at[-1], dtype=torch.float32)
        for s in range(len(self.files)):
            rows = last if s == len(self.files) - 1 else None
            out[:, self.at[s] : self.at[s + 1]] = self.slice(s, first, end) if rows is None else rows
        return out

    def slice(self, s: int, first: int, end: int) -> Tensor:
        """The columns of a slice, as float32."""
        rows = np.empty((end - first, self.at[s + 1] - self.at[s]), self.dtype)
        self.files[s].read(first, rows)
        return torch.from_numpy(rows.astype(np.float32, copy=False))

    def load(self, s: int, step: int) -> Tensor:
        """A slice, a step of rows at a time, so that narrow rows are not in memory twice."""
        out = table(self.rows, self.at[s + 1] - self.at[s])
        for first in range(0, self.rows, step):
            end = min(first + step, self.rows)
            out[first:end] = self.slice(s, first, end)
        return out

    def sync(self) -> None:
        """Make what was written durable."""
        for file in self.files:
            file.sync()

    def close(self) -> None:
        """Close the files."""
        for file in self.files:
            file.close()

    def remove(self) -> None:
        """Close and remove the files."""
        self.close()
        for path in self.paths:
            path.unlink(missing_ok=True)


def table(rows: int, columns: int) -> Tensor:
    """Room for rows that are read in any order, float32: in huge pages where the system has them, which NumPy asks for
    and PyTorch does not. Adding up 8 million rows of 355 MB takes 0.21 s of processor in place of 0.29."""
    return torch.from_numpy(np.empty((rows, columns), np.float32))


def ranges(rows: int, step: int) -> Iterator[tuple[int, int]]:
    """Ranges of a step of rows each, but for the last."""
    for first in range(0, rows, step):
        yield first, min(first + step, rows)
