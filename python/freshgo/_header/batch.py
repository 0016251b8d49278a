"""``freshgo/batch.h``."""

from __future__ import annotations

from ctypes import POINTER, Structure, c_int32, c_int64, c_void_p
from typing import Any

from freshgo._header.tensor import Tensor


class Batch(Structure):
    """fg_batch."""

    _fields_ = (
        ("tensors", POINTER(Tensor)),
        ("capacity", c_int32),
        ("versioned", c_int32),
        ("num_tensors", c_int32),
        ("reserved", c_int32),
        ("index", c_int64),
        ("num_seeds", c_int64),
    )


SIGNATURES: dict[str, tuple[Any, ...]] = {
    "fg_loader_next": (c_void_p, c_int32, POINTER(Batch)),
}
