"""Rows of nodes as a Parquet file: the keys that nodes had in the tables of a store, and a list of fixed size."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

from freshgo._args.progress import Progress
from freshgo.errors import LibraryError

MOST_ROWS = 1 << 16
"""Rows of a row group, and of what is copied at a time, where memory has room for more. Arbitrary: a group is what a
reader of the file takes at once."""

_KEY = 256
"""Bytes of memory for the key of a row: a string of Python and its place in a column."""


class Keys(Protocol):
    """The keys of nodes, such as :class:`freshgo.Ids`."""

    @property
    def dtype(self) -> torch.dtype | None: ...

    def keys(self, ids: object) -> Tensor | list[str]: ...


def check_pyarrow() -> None:
    """Raise LibraryError where pyarrow is not installed."""
    try:
        import pyarrow.parquet  # noqa: F401
    except ImportError as error:
        raise LibraryError(f"a Parquet file needs pyarrow: pip install 'freshgo[tables]' ({error})") from error


def write_parquet(
    path: Path,
    read: Callable[[int, int], np.ndarray],
    shape: tuple[int, ...],
    dtype: np.dtype[Any],
    *,
    nodes: Tensor | None,
    keys: Keys | None,
    memory: int,
    report: Progress | None = None,
    stage: str = "rows to Parquet",
) -> None:
    """Write the columns ``id`` and ``embedding``.

    Args:
        read: returns the rows ``[first, end)``, of this dtype.
        shape: of all rows.
        nodes: int64: the node of each row; None: row i is of node i.
        keys: of the nodes; None: their numbers.
    """
    import pyarrow as pa
    from pyarrow import parquet

    count, row_bytes = shape[0], int(np.prod(shape[1:], dtype=np.int64)) * dtype.itemsize
    kinds = {torch.int64: pa.int64(), torch.uint64: pa.uint64(), None: pa.string()}
    fields = [pa.field("id", kinds[torch.int64 if keys is None else keys.dtype], nullable=False)]
    value: Any = pa.from_numpy_dtype(dtype)
    for size in reversed(shape[1:]):
        value = pa.list_(value, size)
    fields.append(pa.field("embedding", value, nullable=False))
    step = max(1, min(MOST_ROWS, memory // 4 // (3 * row_bytes + _KEY)))
    with path.open("wb") as file:
        how = {"use_dictionary": False, "write_statistics": ["id"]}
        with parquet.ParquetWriter(file, pa.schema(fields), **how) as writer:
            for first in range(0, count, step):
                end = min(first + step, count)
                of = torch.arange(first, end) if nodes is None else nodes[first:end]
                named: Any = of if keys is None else keys.keys(of)
                values: Any = pa.array(read(first, end).reshape(-1))
                for size in reversed(shape[1:]):
                    values = pa.FixedSizeListArray.from_arrays(values, size)
                ids = pa.array(named.numpy() if isinstance(named, Tensor) else named, fields[0].type)
                writer.write_table(pa.table([ids, values], schema=pa.schema(fields)), row_group_size=step)
                if report is not None:
                    report(stage, end, count)
        file.flush()
        os.fsync(file.fileno())
