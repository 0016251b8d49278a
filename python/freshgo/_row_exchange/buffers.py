"""Memory for rows that are on their way. It is used again once the tensors over it are gone: memory that is new costs
the system several times what the copy into it costs."""

from __future__ import annotations

import weakref
from collections import deque
from typing import Any

import numpy as np
import torch
from torch import Tensor

_SMALL = 64 << 10
"""Bytes below which the allocator does as well."""

_ALIGN = 64

_KEPT = 8
"""Blocks that are kept for nobody at most. They are about as large as the rows of a batch."""


class Buffers:
    """Any number of threads may ask, and tensors may die in any."""

    def __init__(self) -> None:
        self._free: deque[Any] = deque(maxlen=_KEPT)  # the oldest goes where there are too many

    def empty(self, n_bytes: int) -> Tensor:
        """Return ``n_bytes`` uninitialized bytes, uint8."""
        if n_bytes < _SMALL:
            return torch.empty(n_bytes, dtype=torch.uint8)
        block = self._block(n_bytes)
        first = -block.ctypes.data % _ALIGN
        lent = block[first : first + n_bytes]
        weakref.finalize(lent, self._free.append, block).atexit = False
        return torch.from_numpy(lent)  # which holds what is lent for as long as a tensor is over it

    def _block(self, n_bytes: int) -> Any:
        for _ in range(len(self._free)):
            try:
                block = self._free.popleft()
            except IndexError:  # another thread took it
                break
            if n_bytes + _ALIGN <= block.size <= 2 * (n_bytes + _ALIGN):
                return block
            self._free.append(block)
        return np.empty(n_bytes + n_bytes // 8 + _ALIGN, np.uint8)  # for batches that are a little larger

    def clear(self) -> None:
        """Give back to the system what is lent to nobody."""
        self._free.clear()
