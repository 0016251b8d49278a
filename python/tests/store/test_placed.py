"""Rows that come in any order are stored by their places, in memory or through files."""

from __future__ import annotations

import tracemalloc
from pathlib import Path

import numpy as np
import pytest
from seeds import seed as seed_of

from freshgo._staging.placed import Placed, read_rows
from freshgo._staging.raw import Files

pytestmark = pytest.mark.explore


@pytest.mark.parametrize("memory", [1, 60, 1000, 1 << 20])
def test_rows_by_their_places(tmp_path: Path, memory: int) -> None:
    """Arrays of several dtypes and widths, in calls of any number of rows; the memory is from one row to all."""
    rng = np.random.default_rng(seed_of(memory))
    count = int(rng.integers(1, 300))
    arrays = [
        rng.random((count, int(rng.integers(1, 9))), dtype=np.float32),
        rng.integers(1 << 40, size=count),
        rng.integers(2, size=(count, 3)).astype(bool),
    ]
    files = Files(tmp_path)
    placed, order, at = Placed(files, count, memory), rng.permutation(count), 0
    while at < count:
        some = order[at : at + int(rng.integers(0, 40))]
        placed.put(some, [rows[some] for rows in arrays])
        at += len(some)
    assert placed.num_placed == count
    outs = [files.new() for _ in arrays]
    placed.finish(outs)
    for rows, out in zip(arrays, outs, strict=True):
        made = out.finish(rows.dtype)
        assert (made.shape, made.dtype) == (rows.shape, rows.dtype)
        with Path(made.path).open("rb") as file:
            assert (read_rows(made, 0, count, file) == rows).all()
    assert len(list(tmp_path.iterdir())) == len(arrays)  # what was in between is gone


def test_calls_and_ranges_take_no_memory_together(tmp_path: Path) -> None:
    """Where the ranges of each call begin waits on disk: of 1,000 calls and 2,500 ranges it is 20 MB."""
    files, calls = Files(tmp_path), 1000
    placed = Placed(files, calls * 5, 16)
    rows = np.arange(5)
    tracemalloc.start()
    for call in range(calls):
        placed.put(rows * calls + call, [rows])
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    files.close()
    assert peak < 8 << 20


def test_no_rows_at_all(tmp_path: Path) -> None:
    files = Files(tmp_path)
    placed, out = Placed(files, 0, 100), files.new()
    placed.finish([out])
    assert out.finish(np.float32, (7,)).shape == (0, 7)
