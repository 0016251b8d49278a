"""``freshgo/loader.h``."""

from __future__ import annotations

from ctypes import POINTER, Structure, c_char_p, c_int32, c_int64, c_void_p
from typing import Any

from freshgo._header.base import JOB
from freshgo._header.loader_options import LoaderOptions


class LoaderDetails(Structure):
    """fg_loader_details."""

    _fields_ = (("num_batches", c_int64), ("max_tensors", c_int32), ("reserved", c_int32))


SIGNATURES: dict[str, tuple[Any, ...]] = {
    "fg_loader_open": (c_void_p, c_void_p, POINTER(LoaderOptions), JOB),
    "fg_loader_info": (c_void_p, POINTER(LoaderDetails)),
    "fg_loader_start": (c_void_p, c_int64, c_int64, c_int32),
    "fg_loader_stop": (c_void_p,),
    "fg_loader_stats": (c_void_p, c_char_p, c_int64, POINTER(c_int64)),
    "fg_loader_plan": (c_void_p, c_char_p, c_int64, POINTER(c_int64)),
    "fg_loader_close": (c_void_p,),
}
