"""The rows that a table takes, as a type."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any, Protocol


class _ArrowStream(Protocol):
    """A table or reader of pyarrow, a frame of polars or of pandas 2.2."""

    def __arrow_c_stream__(self, requested_schema: Any = ...) -> Any: ...


class _ArrowArray(Protocol):
    """A batch of pyarrow."""

    def __arrow_c_array__(self, requested_schema: Any = ...) -> Any: ...


class _ArrowDataset(Protocol):
    @property
    def scanner(self) -> Any: ...


class _PandasFrame(Protocol):
    @property
    def iloc(self) -> Any: ...


class _LazyFrame(Protocol):
    @property
    def collect_schema(self) -> Any: ...


class _DuckDBRelation(Protocol):
    @property
    def project(self) -> Any: ...


TableLike = (
    str
    | os.PathLike[str]
    | Sequence[str | os.PathLike[str]]
    | Mapping[str, Any]
    | _ArrowStream
    | _ArrowArray
    | _ArrowDataset
    | _PandasFrame
    | _LazyFrame
    | _DuckDBRelation
)
"""A path, a pattern or a list of these, columns by name, or rows of pyarrow, DuckDB, pandas or polars."""
