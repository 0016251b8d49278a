"""The rows of the last layer, put into the order that was asked for."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from freshgo._infer.columns import ranges
from freshgo._infer.files import Rows
from freshgo._infer.order import Order

_COUNTED = 1 << 20
"""Rows that are counted at a time. Arbitrary."""


class Result:
    """A ``.npy`` file of rows that come in the order of their places.

    If that is not the order of the file, they go to another one first, each into the bucket of rows to which it
    belongs, behind those of the bucket that came before. Each bucket is then put into order in memory: rows are written
    and read once more, and in long pieces.
    """

    def __init__(
        self, path: Path, nodes: int, columns: int, dtype: Any, order: Order | None, seeds: Tensor | None, memory: int
    ) -> None:
        """``seeds`` are the nodes of the rows, if these are not all nodes in their order. A quarter of ``memory`` has a
        bucket."""
        self._order = order
        self._wanted: np.ndarray | None = None  # the places of the rows, ascending
        self._at: np.ndarray | None = None  # and where these go
        self.shape, self.dtype = (nodes if seeds is None else seeds.numel(), columns), np.dtype(dtype)
        if seeds is not None:
            places = seeds.numpy() if order is None else order.places()[seeds.numpy()]
            self._at = np.argsort(places, kind="stable")
            self._wanted = places[self._at]
        self.path = path
        self._bucket = max(1, memory // 4 // max(1, columns * self.dtype.itemsize))
        self.buckets = list(ranges(self.shape[0], self._bucket))
        self._filled: np.ndarray | None = None

    @property
    def in_order(self) -> bool:
        """Whether rows come in the order of the file."""
        return self._order is None and self._wanted is None

    @property
    def arrival_path(self) -> Path:
        """The file that rows go to when they come."""
        return self.path if self.in_order else self.path.with_name(f"{self.path.name}.came")

    def has(self, first: int, end: int) -> bool:
        """Whether it has rows of these places."""
        return self._wanted is None or bool(np.diff(np.searchsorted(self._wanted, [first, end]))[0])

    def take(self, file: Rows, first: int, rows: Tensor) -> None:
        """Write the rows of the places from ``first`` on. They come in order, in every process from another place."""
        if self.in_order:
            file.write(first, rows)
            return
        if self._wanted is not None:
            lo, hi = np.searchsorted(self._wanted, [first, first + rows.size(0)])
            rows = rows[torch.from_numpy(self._wanted[lo:hi].astype(np.int64) - first)]
        else:
            lo, hi = first, first + rows.size(0)
        if self._filled is None:
            self._filled = np.zeros(len(self.buckets), np.int64)
            for begin, end in ranges(int(lo), _COUNTED):
                self._filled += np.bincount(self._rows(begin, end) // self._bucket, minlength=len(self.buckets))
        of = self._rows(int(lo), int(hi)) // self._bucket
        rows = rows[torch.from_numpy(np.argsort(of, kind="stable"))]
        counts = np.bincount(of, minlength=len(self.buckets))
        at = 0
        for bucket in np.flatnonzero(counts):
            count = int(counts[bucket])
            file.write(int(bucket) * self._bucket + int(self._filled[bucket]), rows[at : at + count])
            at += count
        self._filled += counts

    def arrange(self, unordered: Rows, file: Rows, done: int) -> Iterator[int]:
        """Put the buckets into order, from one on; yield after each how many are."""
        every = self._rows(0, self.shape[0])
        for bucket in range(done, len(self.buckets)):
            first, end = self.buckets[bucket]
            rows, out = (np.empty((end - first, self.shape[1]), self.dtype) for _ in range(2))
            unordered.read(first, rows)
            out[every[(every >= first) & (every < end)] - first] = rows
            file.write(first, torch.from_numpy(out))
            yield bucket + 1

    def _rows(self, first: int, end: int) -> np.ndarray:
        """Where the rows that come as number ``first`` to before ``end`` go."""
        if self._at is not None:
            return self._at[first:end]
        assert self._order is not None  # else they are in order
        return self._order.nodes(first, end)
