"""``freshgo/store.h``."""

from __future__ import annotations

from ctypes import POINTER, c_char_p, c_int32, c_int64, c_void_p
from typing import Any

from freshgo._header.base import JOB

SIGNATURES: dict[str, tuple[Any, ...]] = {
    "fg_store_open": (c_char_p, POINTER(c_void_p)),
    "fg_store_describe": (c_void_p, c_char_p, c_int64, POINTER(c_int64)),
    "fg_store_read": (c_void_p, c_int32, c_char_p, c_int32, JOB),
    "fg_store_read_type": (c_void_p, c_int32, c_int32, c_char_p, c_int32, JOB),
    "fg_store_verify": (c_void_p, JOB),
    "fg_store_close": (c_void_p,),
}
