"""``freshgo/base.h``."""

from __future__ import annotations

from ctypes import POINTER, Structure, c_char, c_int32, c_int64, c_void_p

ABI_VERSION = 3
AUTO = -1

OK, TIMEOUT, END = 0, 1, 2

JOB = POINTER(c_void_p)
"""Where a function puts a job that it starts."""


class Error(Structure):
    """fg_error."""

    _fields_ = (
        ("code", c_int32),
        ("sys_errno", c_int32),
        ("minimum", c_int64),
        ("message", c_char * 1024),
        ("path", c_char * 4096),
    )
