"""``freshgo/library.h``."""

from __future__ import annotations

from ctypes import POINTER, Structure, c_int64, c_uint32
from typing import Any


class VersionInfo(Structure):
    """fg_version_info."""

    _fields_ = (
        ("abi", c_uint32),
        ("error", c_uint32),
        ("counters", c_uint32),
        ("array", c_uint32),
        ("tensor", c_uint32),
        ("progress", c_uint32),
        ("graph_input", c_uint32),
        ("convert_input", c_uint32),
        ("loader_options", c_uint32),
        ("loader_details", c_uint32),
        ("batch", c_uint32),
        ("python_api", c_uint32),
        ("simulation", c_uint32),
        ("relayout_input", c_uint32),
        ("history_options", c_uint32),
        ("history_layer", c_uint32),
        ("node_type", c_uint32),
        ("edge_type", c_uint32),
    )


class Counters(Structure):
    """fg_counters_info."""

    _fields_ = (
        ("stores", c_int64),
        ("graphs", c_int64),
        ("loaders", c_int64),
        ("jobs", c_int64),
        ("buffers", c_int64),
        ("buffer_bytes", c_int64),
        ("pooled_bytes", c_int64),
    )


SIGNATURES: dict[str, tuple[Any, ...]] = {
    "fg_version": (POINTER(VersionInfo),),
    "fg_counters": (POINTER(Counters),),
}
