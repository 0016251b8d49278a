"""A column of names of splits, as the nodes of each."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from freshgo._args.arrays import Array
from freshgo._staging.placed import read_rows
from freshgo._staging.raw import Files
from freshgo._tables.files import quoted
from freshgo._tables.source import Source
from freshgo.errors import InvalidArgumentError

MOST = 64
"""Splits of a type: a column with more values is hardly one of splits. Arbitrary."""

_ROWS = 1 << 20
"""Nodes that pass through memory at a time. Arbitrary."""


class Splits:
    """The splits of a node type."""

    def __init__(self, files: Files, source: Source) -> None:
        self._files, self._source = files, source
        self._names: dict[str, int] = {}
        self.out = files.new()
        """Where the numbers of the splits of all nodes go, in the order of the nodes."""

    @property
    def selected(self) -> str:
        """What is selected for the splits."""
        return f"CAST(s.{quoted(str(self._source.spec.table.split))} AS VARCHAR) AS split"

    def codes(self, column: Any) -> np.ndarray[Any, Any]:
        """Return the numbers of the splits of some nodes, 0 for none.

        Raises:
            InvalidArgumentError: a name is empty, or there are too many
        """
        encoded = column.dictionary_encode()
        numbers = [0]
        for name in encoded.dictionary.to_pylist():
            if name not in self._names:
                if len(self._names) == MOST or not name:
                    raise InvalidArgumentError(
                        f"{self._source.spec.label}: the column {self._source.spec.table.split!r} must hold names of "
                        f"splits, at most {MOST} of them, got {name!r} beside {sorted(self._names)[:3]}"
                    )
                self._names[name] = len(self._names) + 1
            numbers.append(self._names[name])
        places = encoded.indices.fill_null(-1).to_numpy(zero_copy_only=False)
        codes: np.ndarray[Any, Any] = np.array(numbers, np.uint8)[places + 1]
        return codes

    def finished(self) -> dict[str, Array]:
        """Return the nodes of each split, once their numbers are in ``out``."""
        codes = self.out.finish(np.uint8)
        outs = {name: self._files.new() for name in sorted(self._names)}
        with Path(codes.path).open("rb", buffering=0) as file:
            for first in range(0, codes.shape[0], _ROWS):
                part = read_rows(codes, first, min(first + _ROWS, codes.shape[0]), file)
                for name, out in outs.items():
                    out.append(np.flatnonzero(part == self._names[name]).astype(np.int64) + first)
        return {name: out.finish(np.int64) for name, out in outs.items()}
