"""Tensors that a store holds in fewer bytes: their rows as they are stored, and as float32."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from typing import Any

import torch
from torch import Tensor

from freshgo.errors import InvalidArgumentError

_PREFIX = 8
"""Bytes before the numbers of an int8 row with a scale of its own: its scale and its offset, float32."""


class Narrow:
    """How one tensor is stored: float16, bfloat16, or int8 with a scale and an offset for each row or column."""

    def __init__(self, described: Mapping[str, Any]) -> None:
        self.form: str = described["stored"]
        self.row_shape: tuple[int, ...] = tuple(described["shape"][1:])
        self._columns: tuple[Tensor, Tensor] | None = None
        if self.form == "int8-per-column":
            scale, offset = (
                torch.tensor(described[key], dtype=torch.float32).view(self.row_shape) for key in ("scales", "offsets")
            )
            self._columns = (scale, offset)

    def parts(self, rows: Tensor) -> tuple[Tensor, Tensor | None, Tensor | None]:
        """Return the stored numbers of rows, ``[n, *row_shape]``, with their scale and offset, which broadcast with
        them: ``scale * numbers + offset`` is what they stand for. Both are None for floats."""
        if self._columns is not None:
            if self._columns[0].device != rows.device:
                self._columns = (self._columns[0].to(rows.device), self._columns[1].to(rows.device))
            return rows, *self._columns
        if self.form != "int8-per-row":
            return rows, None, None
        scales = rows[:, :_PREFIX].contiguous().view(torch.float32)
        numbers = rows[:, _PREFIX : _PREFIX + math.prod(self.row_shape)].reshape(-1, *self.row_shape)
        shape = (-1, *(1,) * len(self.row_shape))
        return numbers, scales[:, 0].reshape(shape), scales[:, 1].reshape(shape)

    def widen(self, rows: Tensor) -> Tensor:
        """Return rows as float32: the same bits on every device, and as the library widens them."""
        numbers, scale, offset = self.parts(rows)
        wide = numbers.to(torch.float32)
        # In two steps: a fused multiplication and addition would round otherwise.
        return wide if scale is None or offset is None else wide.mul_(scale).add_(offset)


class Delivered:
    """What becomes of tensors that the library delivers as they are stored."""

    def __init__(self, narrow: Mapping[str, Narrow], feature_dtype: str, delivered: str) -> None:
        """``feature_dtype`` is what the user asked for, ``delivered`` what the library was asked for."""
        self._narrow = narrow if delivered == "stored" else {}
        self._widen = feature_dtype != "stored"

    def apply(self, tensors: dict[str, Tensor]) -> None:
        """Widen these tensors of a batch, or add their scales to it."""
        for name, narrow in self._narrow.items():
            if name not in tensors:
                continue
            if self._widen:
                tensors[name] = narrow.widen(tensors[name])
                continue
            tensors[name], scale, offset = narrow.parts(tensors[name])
            if scale is not None and offset is not None:
                tensors[f"{name}_scale"], tensors[f"{name}_offset"] = scale, offset


def check_names(narrow: Mapping[str, Narrow], tensors: Collection[str]) -> None:
    """Check that the names of scales, which batches get with the stored numbers, are free."""
    for name, how in narrow.items():
        for taken in (f"{name}_scale", f"{name}_offset"):
            if how.form.startswith("int8") and taken in tensors:
                raise InvalidArgumentError(
                    f"feature_dtype='stored' gives batches a {taken!r} for {name!r}, but the graph has a tensor of "
                    "this name"
                )
