"""``freshgo/graph.h``."""

from __future__ import annotations

from ctypes import POINTER, Structure, c_char_p, c_int32, c_int64, c_uint32, c_void_p
from typing import Any

from freshgo._header.base import JOB
from freshgo._header.tensor import Array


class NodeType(Structure):
    """fg_node_type."""

    _fields_ = (
        ("name", c_char_p),
        ("num_nodes", c_int64),
        ("tensors", POINTER(Array)),
        ("splits", POINTER(Array)),
        ("num_tensors", c_int32),
        ("num_splits", c_int32),
    )


class EdgeType(Structure):
    """fg_edge_type."""

    _fields_ = (
        ("source", c_char_p),
        ("relation", c_char_p),
        ("target", c_char_p),
        ("edge_index", Array),
        ("tensors", POINTER(Array)),
        ("num_tensors", c_int32),
        ("reserved", c_int32),
    )


class GraphInput(Structure):
    """fg_graph_input."""

    _fields_ = (
        ("struct_size", c_uint32),
        ("num_node_tensors", c_int32),
        ("num_nodes", c_int64),
        ("edge_index", Array),
        ("node_tensors", POINTER(Array)),
        ("edge_tensors", POINTER(Array)),
        ("num_edge_tensors", c_int32),
        ("reserved", c_int32),
        ("node_types", POINTER(NodeType)),
        ("edge_types", POINTER(EdgeType)),
        ("num_node_types", c_int32),
        ("num_edge_types", c_int32),
    )


SIGNATURES: dict[str, tuple[Any, ...]] = {
    "fg_graph_open": (POINTER(GraphInput), JOB),
    "fg_graph_close": (c_void_p,),
}
