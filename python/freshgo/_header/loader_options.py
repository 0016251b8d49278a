"""``freshgo/loader_options.h``."""

from __future__ import annotations

from ctypes import POINTER, Structure, c_char_p, c_double, c_float, c_int32, c_int64, c_uint32, c_uint64

from freshgo._header.history import HistoryOptions


class Walk(Structure):
    """fg_walk."""

    _fields_ = (("walks", c_int64), ("length", c_int64), ("restart", c_double))


class Metapath(Structure):
    """fg_metapath."""

    _fields_ = (("path", POINTER(c_int64)), ("length", c_int64))


class Links(Structure):
    """fg_links."""

    _fields_ = (
        ("sources", POINTER(c_int64)),
        ("targets", POINTER(c_int64)),
        ("num_links", c_int64),
        ("src_weight", POINTER(c_double)),
        ("num_src_weight", c_int64),
        ("dst_weight", POINTER(c_double)),
        ("num_dst_weight", c_int64),
        ("negatives", c_double),
        ("triplets", c_int32),
        ("strict", c_int32),
        ("exclude", c_int32),
        ("reserved", c_int32),
    )


class LoaderOptions(Structure):
    """fg_loader_options."""

    _fields_ = (
        ("struct_size", c_uint32),
        ("num_hops", c_int32),
        ("fanouts", POINTER(c_int64)),
        ("seeds", POINTER(c_int64)),
        ("num_seeds", c_int64),
        ("batch_size", c_int64),
        ("seed", c_uint64),
        ("all_nodes", c_int32),
        ("replace", c_int32),
        ("shuffle", c_int32),
        ("drop_last", c_int32),
        ("checksums", c_int32),
        ("workers", c_int32),
        ("prefetch", c_int32),
        ("transpose", c_int32),
        ("memory", c_int64),
        ("feature_cache", c_int64),
        ("neighbor_cache", c_int64),
        ("cache", c_char_p),
        ("io", c_char_p),
        ("superbatch", c_int64),
        ("carry_over", c_int32),
        ("lookahead", c_int32),
        ("hotness", POINTER(c_float)),
        ("num_hotness", c_int64),
        ("hotness_seed", c_uint64),
        ("presc_epochs", c_int32),
        ("reserved2", c_int32),
        ("reorder", c_int64),
        ("reorder_rows", c_int64),
        ("transfer", c_char_p),
        ("trace_memory", c_int64),
        ("buffer_memory", c_int64),
        ("scratch", c_char_p),
        ("scratch_bytes", c_int64),
        ("calibration", c_char_p),
        ("history", POINTER(HistoryOptions)),
        ("held", POINTER(c_int32)),
        ("num_held", c_int64),
        ("holds", c_int32),
        ("reserved3", c_int32),
        ("weight_attr", c_char_p),
        ("labor", c_int32),
        ("layer_dependency", c_int32),
        ("batch_dependency", c_int64),
        ("walks", POINTER(Walk)),
        ("subgraph_type", c_int32),
        ("reserved4", c_int32),
        ("links", POINTER(Links)),
        ("relation_fanouts", POINTER(c_int64)),
        ("num_relations", c_int64),
        ("time_attr", c_char_p),
        ("input_time", POINTER(c_int64)),
        ("num_input_time", c_int64),
        ("time_window", c_int64),
        ("temporal_last", c_int32),
        ("disjoint", c_int32),
        ("link_relation", c_int32),
        ("link_reverse", c_int32),
        ("metapaths", POINTER(Metapath)),
        ("num_metapaths", c_int64),
    )
