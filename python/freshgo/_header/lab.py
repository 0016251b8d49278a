"""``freshgo/lab.h``."""

from __future__ import annotations

from ctypes import POINTER, Structure, c_char_p, c_float, c_int32, c_int64, c_uint32, c_uint64, c_void_p
from typing import Any

from freshgo._header.base import JOB
from freshgo._header.loader_options import LoaderOptions
from freshgo._header.tensor import Array


class Simulation(Structure):
    """fg_simulation."""

    _fields_ = (
        ("struct_size", c_uint32),
        ("carry_over", c_int32),
        ("lookahead", c_int32),
        ("reserved", c_int32),
        ("policy", c_char_p),
        ("superbatch", c_int64),
        ("hotness", POINTER(c_float)),
        ("num_hotness", c_int64),
        ("hotness_seed", c_uint64),
        ("num_nodes", c_int64),
        ("capacity", c_int64),
        ("trace", POINTER(Array)),
        ("num_batches", c_int64),
        ("reads", POINTER(c_int64)),
        ("hits", POINTER(c_int64)),
        ("swaps", POINTER(c_int64)),
        ("fill", POINTER(c_int64)),
    )


SIGNATURES: dict[str, tuple[Any, ...]] = {
    "fg_simulate": (POINTER(Simulation), JOB),
    "fg_hotness": (c_void_p, c_void_p, POINTER(LoaderOptions), POINTER(c_float), c_int64, JOB),
}
