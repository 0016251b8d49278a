"""Rows that come in any order and are stored by their places, in memory that depends on neither count nor width."""

from __future__ import annotations

import itertools
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from freshgo._args.arrays import NpyFile
from freshgo._staging.raw import Files, RawFile
from freshgo._staging.workplace import written

Rows = np.ndarray[Any, Any]

_RANGES = 64
"""Ranges whose starts are read at a time, half a KiB for each call. Arbitrary."""


class Placed:
    """``count`` places; each gets a row of one or several arrays.

    Rows that all fit into memory wait there. Others go to files as they come, those of a call by ranges of places; in
    the end one range after the other, which fits into memory, is put in order. So files are written in sequence and
    read in pieces, and no row is written by itself.
    """

    def __init__(self, files: Files, count: int, memory: int) -> None:
        self.count = count
        self.num_placed = 0
        """Rows so far."""
        self._files, self._memory = files, memory
        self._range = 0
        """Places whose rows fit into memory."""
        self._whole: list[Rows] = []
        self._spills: list[RawFile] = []
        """Places and rows of each array, in the order in which they came."""
        self._starts: RawFile | None = None
        """Where in these each range begins and the last one ends, for each call: too many for memory."""

    def put(self, places: Rows, arrays: Sequence[Rows]) -> None:
        """Take the rows of some places (int64), some of each array."""
        if not self._range:
            self._begin(arrays)
        if self._whole:
            for whole, rows in zip(self._whole, arrays, strict=True):
                whole[places] = rows
        else:
            ranges = places // self._range
            order = np.argsort(ranges, kind="stable")
            assert self._starts is not None  # as there are spills
            bounds = np.arange(self._num_ranges() + 1)
            self._starts.append((self.num_placed + np.searchsorted(ranges[order], bounds))[None])
            for spill, rows in zip(self._spills, (places, *arrays), strict=True):
                spill.append(rows[order])
        self.num_placed += len(places)

    def _begin(self, arrays: Sequence[Rows]) -> None:
        row = sum(rows.itemsize * int(np.prod(rows.shape[1:])) for rows in arrays)
        self._range = max(1, self._memory // row)
        if self.count <= self._range:
            self._whole = [np.zeros((self.count, *rows.shape[1:]), rows.dtype) for rows in arrays]
        else:
            self._spills, self._starts = [self._files.new() for _ in (None, *arrays)], self._files.new()

    def _num_ranges(self) -> int:
        return -(-self.count // self._range)

    def finish(self, outs: Sequence[RawFile]) -> None:
        """Write each array in the order of its places. Nothing is written if no rows came."""
        for out, whole in zip(outs, self._whole, strict=False):
            out.append(whole)
        if self._starts is None:
            return
        starts = self._starts.finish(np.int64)
        places, *spills = [spill.finish(np.int64) for spill in self._spills]
        for out, spill in zip(outs, spills, strict=True):
            for first in range(0, self._num_ranges(), _RANGES):
                of_calls = _columns(starts, first, first + _RANGES + 1)
                for number, bounds in enumerate(itertools.pairwise(of_calls.T), first):
                    out.append(self._ordered(number, bounds, places, spill))
            Path(spill.path).unlink()  # room for what comes
        for of in (places, starts):
            Path(of.path).unlink()

    def _ordered(self, number: int, bounds: tuple[Rows, Rows], places: NpyFile, spill: NpyFile) -> Rows:
        """Return the rows of a range in the order of their places; they lie between the bounds of each call."""
        first = number * self._range
        rows = np.empty((min(self._range, self.count - first), *spill.shape[1:]), spill.dtype)
        with Path(places.path).open("rb", buffering=0) as of, Path(spill.path).open("rb", buffering=0) as file:
            for lo, hi in zip(*(ends.tolist() for ends in bounds), strict=True):
                rows[read_rows(places, lo, hi, of) - first] = read_rows(spill, lo, hi, file)
        return rows


def _columns(table: NpyFile, first: int, end: int) -> Rows:
    """Read some columns of a file of two dimensions."""
    count, width = table.shape
    flat = NpyFile(table.path, table.offset, table.dtype, (count * width,))
    with Path(table.path).open("rb", buffering=0) as file:
        at = range(0, count * width, width)
        return np.stack([read_rows(flat, row + first, row + min(end, width), file) for row in at])


def read_rows(array: NpyFile, first: int, end: int, file: Any) -> Rows:
    """Read rows from one to before another, of a file that is open and that no one else has changed."""
    rows = np.empty((end - first, *array.shape[1:]), array.dtype)
    into, at = memoryview(rows.reshape(-1).view(np.uint8).data), array.offset + first * rows[:1].nbytes
    with written(Path(array.path)):
        while len(into):
            n = os.preadv(file.fileno(), [into], at)
            if n == 0:
                raise OSError(5, "ends early", array.path)
            into, at = into[n:], at + n
    return rows
