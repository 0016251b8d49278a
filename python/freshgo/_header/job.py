"""``freshgo/job.h``."""

from __future__ import annotations

from ctypes import POINTER, Structure, c_char, c_int32, c_int64, c_void_p
from typing import Any


class Progress(Structure):
    """fg_progress."""

    _fields_ = (("done", c_int64), ("total", c_int64), ("result", c_void_p), ("stage", c_char * 32))


SIGNATURES: dict[str, tuple[Any, ...]] = {
    "fg_job_wait": (c_void_p, c_int32, POINTER(Progress)),
    "fg_job_cancel": (c_void_p,),
    "fg_job_close": (c_void_p,),
}
