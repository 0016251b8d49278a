"""``freshgo/history.h``."""

from __future__ import annotations

from ctypes import POINTER, Structure, c_char_p, c_double, c_float, c_int32, c_int64, c_uint32, c_void_p
from typing import Any

from freshgo._header.tensor import Tensor


class HistoryOptions(Structure):
    """fg_history_options."""

    _fields_ = (
        ("struct_size", c_uint32),
        ("lag", c_int32),
        ("p_grad", c_double),
        ("t_stale", c_double),
        ("start", c_double),
        ("t_stale_epochs", c_int32),
        ("start_epochs", c_int32),
        ("policy", c_char_p),
        ("memory", c_int64),
        ("outside", c_int32),
        ("features", c_int32),
        ("probe_every", c_int64),
    )


class HistoryLayer(Structure):
    """fg_history_layer."""

    _fields_ = (
        ("computed", POINTER(c_float)),
        ("hits", POINTER(c_float)),
        ("num_computed", c_int64),
        ("num_hits", c_int64),
        ("rows", POINTER(c_int64)),
        ("slots", POINTER(c_int64)),
        ("num_admitted", c_int64),
    )


SIGNATURES: dict[str, tuple[Any, ...]] = {
    "fg_history_buffer": (c_void_p, c_int32, POINTER(Tensor)),
    "fg_history_update": (c_void_p, c_int64, c_int64, POINTER(HistoryLayer), c_int32, c_int32),
    "fg_history_stats": (c_void_p, c_char_p, c_int64, POINTER(c_int64)),
    "fg_history_save": (c_void_p, c_int32, POINTER(Tensor)),
    "fg_history_restore": (c_void_p, c_void_p, c_int64),
}
