"""``freshgo/tensor.h``."""

from __future__ import annotations

from ctypes import POINTER, Structure, c_char_p, c_int32, c_int64, c_uint8, c_uint16, c_void_p
from typing import Any


class DataType(Structure):
    """DLDataType."""

    _fields_ = (("code", c_uint8), ("bits", c_uint8), ("lanes", c_uint16))


class Array(Structure):
    """fg_array."""

    _fields_ = (
        ("name", c_char_p),
        ("data", c_void_p),
        ("path", c_char_p),
        ("offset", c_int64),
        ("dtype", DataType),
        ("ndim", c_int32),
        ("shape", POINTER(c_int64)),
        ("strides", POINTER(c_int64)),
    )


class Tensor(Structure):
    """fg_tensor."""

    _fields_ = (("name", c_char_p), ("managed", c_void_p))


PYTHON_FUNCTIONS = (
    "PyCapsule_New",
    "PyCapsule_IsValid",
    "PyCapsule_GetPointer",
    "PyList_New",
    "PyList_SetItem",
    "Py_DecRef",
)


class PythonAPI(Structure):
    """fg_python_api."""

    _fields_ = tuple((name, c_void_p) for name in PYTHON_FUNCTIONS)


class LockAPI(Structure):
    """fg_lock_api."""

    _fields_ = (
        ("push", c_void_p),
        ("pop", c_void_p),
        ("lock", c_void_p),
        ("unlock", c_void_p),
        ("context", c_void_p),
    )


SIGNATURES: dict[str, tuple[Any, ...]] = {
    "fg_buffers_lock": (POINTER(LockAPI),),
}
