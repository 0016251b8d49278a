"""``freshgo/cuda.h``."""

from __future__ import annotations

from ctypes import POINTER, Structure, c_int32, c_int64, c_size_t, c_uint32, c_void_p
from typing import Any

from freshgo._header.operators import Aggregation, Attention, Transposition


class Queue(Structure):
    """fg_cuda_queue."""

    _fields_ = (("struct_size", c_uint32), ("device", c_int32), ("stream", c_size_t), ("status", c_void_p))


class Mapping(Structure):
    """fg_mapping."""

    _fields_ = (
        ("struct_size", c_uint32),
        ("index_bytes", c_int32),
        ("id", c_void_p),
        ("n", c_int64),
        ("node", c_void_p),
        ("local", c_void_p),
        ("count", c_void_p),
    )


class Gathering(Structure):
    """fg_gathering."""

    _fields_ = (
        ("struct_size", c_uint32),
        ("index_bytes", c_int32),
        ("n", c_int64),
        ("row_bytes", c_int64),
        ("index", c_void_p),
        ("table", c_void_p),
        ("table_rows", c_int64),
        ("table_stride", c_int64),
        ("slot", c_void_p),
        ("cache", c_void_p),
        ("cache_rows", c_int64),
        ("cache_stride", c_int64),
        ("out", c_void_p),
    )


SIGNATURES: dict[str, tuple[Any, ...]] = {
    "fg_cuda_probe": (POINTER(c_int32), POINTER(c_int32)),
    "fg_cuda_memory": (c_int32, POINTER(c_int64), POINTER(c_int64)),
    "fg_cuda_register_host": (c_int32, c_void_p, c_int64, POINTER(c_void_p)),
    "fg_cuda_unregister_host": (c_int32, c_void_p),
    "fg_cuda_aggregate": (POINTER(Aggregation), POINTER(Queue)),
    "fg_cuda_attention_forward": (POINTER(Attention), POINTER(Queue)),
    "fg_cuda_attention_back": (POINTER(Attention), POINTER(Queue)),
    "fg_cuda_transpose": (POINTER(Transposition), c_void_p, POINTER(c_int64), POINTER(Queue)),
    "fg_cuda_map": (POINTER(Mapping), c_void_p, POINTER(c_int64), POINTER(Queue)),
    "fg_cuda_gather": (POINTER(Gathering), POINTER(Queue)),
}
