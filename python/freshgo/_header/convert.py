"""``freshgo/convert.h``."""

from __future__ import annotations

from ctypes import POINTER, Structure, c_char_p, c_float, c_int32, c_int64, c_uint32, c_void_p
from typing import Any

from freshgo._header.base import JOB
from freshgo._header.graph import EdgeType, NodeType
from freshgo._header.tensor import Array


class ConvertInput(Structure):
    """fg_convert_input."""

    _fields_ = (
        ("struct_size", c_uint32),
        ("overwrite", c_int32),
        ("num_nodes", c_int64),
        ("memory", c_int64),
        ("edge_index", Array),
        ("node_tensors", POINTER(Array)),
        ("edge_tensors", POINTER(Array)),
        ("splits", POINTER(Array)),
        ("num_node_tensors", c_int32),
        ("num_edge_tensors", c_int32),
        ("num_splits", c_int32),
        ("reserved", c_int32),
        ("relayout", c_char_p),
        ("node_types", POINTER(NodeType)),
        ("edge_types", POINTER(EdgeType)),
        ("num_node_types", c_int32),
        ("num_edge_types", c_int32),
        ("weights", POINTER(c_char_p)),
    )


class RelayoutInput(Structure):
    """fg_relayout_input."""

    _fields_ = (
        ("struct_size", c_uint32),
        ("overwrite", c_int32),
        ("memory", c_int64),
        ("hot_rows", c_int64),
        ("scores", POINTER(c_float)),
        ("num_scores", c_int64),
        ("order", c_char_p),
    )


SIGNATURES: dict[str, tuple[Any, ...]] = {
    "fg_convert_start": (POINTER(ConvertInput), c_char_p, JOB),
    "fg_relayout_start": (c_void_p, POINTER(RelayoutInput), c_char_p, JOB),
}
