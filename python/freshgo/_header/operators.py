"""``freshgo/operators.h``."""

from __future__ import annotations

from ctypes import POINTER, Structure, c_double, c_int32, c_int64, c_uint32, c_void_p
from typing import Any

from freshgo._header.tensor import DataType, Tensor


class Aggregation(Structure):
    """fg_aggregation."""

    _fields_ = (
        ("struct_size", c_uint32),
        ("kind", c_int32),
        ("threads", c_int32),
        ("index_bytes", c_int32),
        ("dtype", DataType),
        ("skip_self", c_int32),
        ("cut", c_int64),
        ("columns", c_int64),
        ("heads", c_int64),
        ("x", c_void_p),
        ("x_rows", c_int64),
        ("x_stride", c_int64),
        ("y", c_void_p),
        ("own", c_void_p),
        ("own_stride", c_int64),
        ("ptr", c_void_p),
        ("rows", c_int64),
        ("index", c_void_p),
        ("num_index", c_int64),
        ("edge", c_void_p),
        ("weight", c_void_p),
        ("num_weights", c_int64),
        ("row_scale", c_void_p),
        ("col_scale", c_void_p),
        ("self_weight", c_void_p),
        ("self_rows", c_int64),
        ("self_heads", c_int64),
        ("out", c_void_p),
        ("count", c_void_p),
        ("dot", c_void_p),
    )


class Attention(Structure):
    """fg_attention."""

    _fields_ = (
        ("struct_size", c_uint32),
        ("threads", c_int32),
        ("index_bytes", c_int32),
        ("is_double", c_int32),
        ("heads", c_int64),
        ("src", c_void_p),
        ("src_rows", c_int64),
        ("dst", c_void_p),
        ("edge", c_void_p),
        ("ptr", c_void_p),
        ("rows", c_int64),
        ("index", c_void_p),
        ("num_index", c_int64),
        ("self_rows", c_int64),
        ("slope", c_double),
        ("alpha", c_void_p),
        ("alpha_self", c_void_p),
        ("grad", c_void_p),
        ("grad_self", c_void_p),
        ("grad_edge", c_void_p),
        ("grad_edge_self", c_void_p),
        ("grad_dst", c_void_p),
    )


class Heads(Structure):
    """fg_heads."""

    _fields_ = (
        ("struct_size", c_uint32),
        ("kind", c_int32),
        ("threads", c_int32),
        ("reserved", c_int32),
        ("dtype", DataType),
        ("reserved2", c_int32),
        ("rows", c_int64),
        ("columns", c_int64),
        ("heads", c_int64),
        ("x", c_void_p),
        ("x_stride", c_int64),
        ("y", c_void_p),
        ("y_stride", c_int64),
        ("d", c_void_p),
        ("out", c_void_p),
    )


class Transposition(Structure):
    """fg_transposition."""

    _fields_ = (
        ("struct_size", c_uint32),
        ("threads", c_int32),
        ("index_bytes", c_int32),
        ("reserved", c_int32),
        ("ptr", c_void_p),
        ("rows", c_int64),
        ("index", c_void_p),
        ("num_index", c_int64),
        ("sources", c_int64),
        ("source_ptr", c_void_p),
        ("target", c_void_p),
        ("edge", c_void_p),
    )


SIGNATURES: dict[str, tuple[Any, ...]] = {
    "fg_aggregate": (POINTER(Aggregation),),
    "fg_attention_forward": (POINTER(Attention),),
    "fg_attention_back": (POINTER(Attention),),
    "fg_heads_run": (POINTER(Heads),),
    "fg_transpose": (POINTER(Transposition),),
    "fg_group": (c_void_p, c_int32, c_int64, c_int64, c_void_p, c_void_p, POINTER(c_int32)),
    "fg_result": (POINTER(c_int64), c_int32, DataType, c_int32, POINTER(Tensor)),
}
