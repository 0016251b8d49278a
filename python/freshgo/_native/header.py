"""The C API of ``csrc/include`` in ctypes: written by ``make generate``, not to be edited.

Names lack ``FG_`` and ``fg_``; a struct has its name in C as docstring. Handles are ``c_void_p``. In structs and
functions of ``operators.h`` and ``cuda.h`` all arrays are ``c_void_p`` too.
"""

from __future__ import annotations

from ctypes import (
    POINTER,
    Structure,
    c_char,
    c_char_p,
    c_double,
    c_float,
    c_int32,
    c_int64,
    c_size_t,
    c_uint8,
    c_uint16,
    c_uint32,
    c_uint64,
    c_void_p,
)
from typing import Any

ABI_VERSION = 5
AUTO = -1
OK = 0
TIMEOUT = 1
END = 2
INVALID = 10
DTYPE = 11
NOT_FOUND = 12
EXISTS = 13
PERMISSION = 14
READ = 15
WRITE = 16
FORMAT = 17
VERSION = 18
CORRUPT = 19
BUDGET = 20
CLOSED = 21
BUSY = 22
CANCELLED = 23
INTERNAL = 24
CUDA = 25
SPLIT = 0
NODE_TENSOR = 1
EDGE_TENSOR = 2
ATTACHMENT = 3
TRAIN = 0
TRACE = 1
PLAIN = 2
ISA_PORTABLE = 0
ISA_AVX2 = 1
ISA_AVX512 = 2
SUM = 0
MAX = 1
MIN = 2
EXTREME_BACK = 3
DOT = 4
ROW_DOT = 0
SPREAD = 1
TOTAL = 2
BAD_INDEX = 1
BAD_EDGE = 2
BAD_PTR = 3
BAD_SLOT = 4


class DataType(Structure):
    """DLDataType."""

    _fields_ = (
        ("code", c_uint8),
        ("bits", c_uint8),
        ("lanes", c_uint16),
    )


class Error(Structure):
    """fg_error."""

    _fields_ = (
        ("code", c_int32),
        ("sys_errno", c_int32),
        ("minimum", c_int64),
        ("message", c_char * 1024),
        ("path", c_char * 4096),
    )


class VersionInfo(Structure):
    """fg_version_info."""

    _fields_ = (
        ("abi", c_uint32),
        ("size_error", c_uint32),
        ("size_counters_info", c_uint32),
        ("size_array", c_uint32),
        ("size_tensor", c_uint32),
        ("size_progress", c_uint32),
        ("size_graph_input", c_uint32),
        ("size_convert_input", c_uint32),
        ("size_loader_options", c_uint32),
        ("size_loader_details", c_uint32),
        ("size_batch", c_uint32),
        ("size_python_api", c_uint32),
        ("size_simulation", c_uint32),
        ("size_relayout_input", c_uint32),
        ("size_history_options", c_uint32),
        ("size_history_layer", c_uint32),
        ("size_node_type", c_uint32),
        ("size_edge_type", c_uint32),
    )


class CountersInfo(Structure):
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


class Progress(Structure):
    """fg_progress."""

    _fields_ = (
        ("done", c_int64),
        ("total", c_int64),
        ("result", c_void_p),
        ("stage", c_char * 32),
    )


class Array(Structure):
    """fg_array."""

    _fields_ = (
        ("name", c_char_p),
        ("data", c_void_p),
        ("path", c_char_p),
        ("offset", c_int64),
        ("dtype", DataType),
        ("ndim", c_int32),
        ("pipe", c_int32),
        ("shape", POINTER(c_int64)),
        ("strides", POINTER(c_int64)),
        ("stored", c_char_p),
    )


class Tensor(Structure):
    """fg_tensor."""

    _fields_ = (
        ("name", c_char_p),
        ("managed", c_void_p),
    )


class PythonApi(Structure):
    """fg_python_api."""

    _fields_ = (
        ("capsule_new", c_void_p),
        ("capsule_is_valid", c_void_p),
        ("capsule_get_pointer", c_void_p),
        ("list_new", c_void_p),
        ("list_set_item", c_void_p),
        ("decref", c_void_p),
    )


class LockApi(Structure):
    """fg_lock_api."""

    _fields_ = (
        ("push", c_void_p),
        ("pop", c_void_p),
        ("lock", c_void_p),
        ("unlock", c_void_p),
        ("context", c_void_p),
    )


class Shared(Structure):
    """fg_shared."""

    _fields_ = (
        ("n_bytes", c_int64),
        ("fd", c_int32),
        ("reserved", c_int32),
        ("data", c_void_p),
    )


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
        ("weights", c_char_p),
    )


class GraphInput(Structure):
    """fg_graph_input."""

    _fields_ = (
        ("struct_size", c_uint32),
        ("reserved", c_int32),
        ("node_types", POINTER(NodeType)),
        ("edge_types", POINTER(EdgeType)),
        ("num_node_types", c_int32),
        ("num_edge_types", c_int32),
        ("memory", c_int64),
    )


class ConvertInput(Structure):
    """fg_convert_input."""

    _fields_ = (
        ("struct_size", c_uint32),
        ("overwrite", c_int32),
        ("memory", c_int64),
        ("node_types", POINTER(NodeType)),
        ("edge_types", POINTER(EdgeType)),
        ("num_node_types", c_int32),
        ("num_edge_types", c_int32),
        ("relayout", c_char_p),
        ("clip", c_int32),
        ("num_attachments", c_int32),
        ("attachments", POINTER(Array)),
        ("details", c_char_p),
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


class Drop(Structure):
    """fg_drop."""

    _fields_ = (
        ("kind", c_int32),
        ("type", c_int32),
        ("name", c_char_p),
    )


class UpdateInput(Structure):
    """fg_update_input."""

    _fields_ = (
        ("struct_size", c_uint32),
        ("overwrite", c_int32),
        ("memory", c_int64),
        ("node_types", POINTER(NodeType)),
        ("edge_types", POINTER(EdgeType)),
        ("drops", POINTER(Drop)),
        ("num_node_types", c_int32),
        ("num_edge_types", c_int32),
        ("num_drops", c_int32),
        ("clip", c_int32),
        ("attachments", POINTER(Array)),
        ("num_attachments", c_int32),
        ("reserved", c_int32),
    )


class PropagateInput(Structure):
    """fg_propagate_input."""

    _fields_ = (
        ("struct_size", c_uint32),
        ("overwrite", c_int32),
        ("memory", c_int64),
        ("hops", c_int64),
        ("tensor", c_char_p),
        ("reduce", c_char_p),
        ("weight_attr", c_char_p),
        ("name", c_char_p),
        ("relations", POINTER(c_int64)),
        ("num_relations", c_int64),
    )


class HistoryOptions(Structure):
    """fg_history_options."""

    _fields_ = (
        ("struct_size", c_uint32),
        ("lag", c_int32),
        ("p_grad", c_double),
        ("t_stale", c_double),
        ("start", c_double),
        ("t_stale_epochs", c_int32),
        ("start_epochs", c_int32),
        ("policy", c_char_p),
        ("memory", c_int64),
        ("outside", c_int32),
        ("levels", c_int64),
        ("probe_every", c_int64),
    )


class HistoryLayer(Structure):
    """fg_history_layer."""

    _fields_ = (
        ("computed", POINTER(c_float)),
        ("hits", POINTER(c_float)),
        ("num_computed", c_int64),
        ("num_hits", c_int64),
        ("rows", POINTER(c_int64)),
        ("slots", POINTER(c_int64)),
        ("num_admitted", c_int64),
    )


class Walk(Structure):
    """fg_walk."""

    _fields_ = (
        ("walks", c_int64),
        ("length", c_int64),
        ("restart", c_double),
    )


class Name(Structure):
    """fg_name."""

    _fields_ = (("name", c_char_p),)


class Metapath(Structure):
    """fg_metapath."""

    _fields_ = (
        ("edge_types", POINTER(c_int64)),
        ("num_edge_types", c_int64),
    )


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
        ("relation", c_int32),
        ("reverse", c_int32),
        ("reserved", c_int32),
    )


class LoaderOptions(Structure):
    """fg_loader_options."""

    _fields_ = (
        ("struct_size", c_uint32),
        ("num_hops", c_int32),
        ("num_relations", c_int64),
        ("fanouts", POINTER(c_int64)),
        ("walks", POINTER(Walk)),
        ("metapaths", POINTER(Metapath)),
        ("weight_attr", c_char_p),
        ("weight_attrs", POINTER(Name)),
        ("seed", c_uint64),
        ("sampler", c_char_p),
        ("sampler_options", c_char_p),
        ("replace", c_int32),
        ("subgraph_type", c_int32),
        ("seeds", POINTER(c_int64)),
        ("num_seeds", c_int64),
        ("batch_size", c_int64),
        ("all_nodes", c_int32),
        ("input_weight", POINTER(c_double)),
        ("num_input_weight", c_int64),
        ("shuffle", c_int32),
        ("drop_last", c_int32),
        ("transpose", c_int32),
        ("no_edge_ids", c_int32),
        ("no_edge_weight", c_int32),
        ("num_workers", c_int32),
        ("prefetch", c_int32),
        ("memory", c_int64),
        ("feature_cache", c_int64),
        ("neighbor_cache", c_int64),
        ("trace_memory", c_int64),
        ("buffer_memory", c_int64),
        ("spare", c_int32),
        ("reserved", c_int32),
        ("cache", c_char_p),
        ("transfer", c_char_p),
        ("superbatch", c_int64),
        ("carry_over", c_int32),
        ("lookahead", c_int32),
        ("presc_epochs", c_int64),
        ("hotness", POINTER(c_float)),
        ("num_hotness", c_int64),
        ("hotness_seed", c_uint64),
        ("reorder", c_int64),
        ("reorder_rows", c_int64),
        ("io", c_char_p),
        ("scratch", c_char_p),
        ("scratch_size", c_int64),
        ("calibration", c_char_p),
        ("checksums", c_int32),
        ("lock_memory", c_int32),
        ("aggregate", c_char_p),
        ("feature_dtype", c_char_p),
        ("history", POINTER(HistoryOptions)),
        ("links", POINTER(Links)),
        ("time_attr", c_char_p),
        ("input_time", POINTER(c_int64)),
        ("num_input_time", c_int64),
        ("time_window", c_int64),
        ("temporal_last", c_int32),
        ("disjoint", c_int32),
        ("held", POINTER(c_int32)),
        ("num_held", c_int64),
        ("holds", c_int64),
    )


class LoaderDetails(Structure):
    """fg_loader_details."""

    _fields_ = (
        ("num_batches", c_int64),
        ("max_tensors", c_int32),
        ("reserved", c_int32),
    )


class Share(Structure):
    """fg_share."""

    _fields_ = (
        ("rank", c_int64),
        ("world_size", c_int64),
        ("uneven", c_int32),
        ("adjacent", c_int32),
    )


class Ask(Structure):
    """fg_ask."""

    _fields_ = (
        ("inputs", POINTER(c_int64)),
        ("num_inputs", c_int64),
        ("seeds", POINTER(c_int64)),
        ("num_seeds", c_int64),
        ("sources", POINTER(c_int64)),
        ("targets", POINTER(c_int64)),
        ("num_links", c_int64),
        ("times", POINTER(c_int64)),
        ("num_times", c_int64),
    )


class Batch(Structure):
    """fg_batch."""

    _fields_ = (
        ("tensors", POINTER(Tensor)),
        ("capacity", c_int32),
        ("versioned", c_int32),
        ("num_tensors", c_int64),
        ("index", c_int64),
        ("num_seeds", c_int64),
    )


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


class Aggregation(Structure):
    """fg_aggregation."""

    _fields_ = (
        ("struct_size", c_uint32),
        ("kind", c_int32),
        ("threads", c_int32),
        ("index_bytes", c_int32),
        ("dtype", DataType),
        ("skip_self", c_int32),
        ("cut", c_int64),
        ("cut_at", c_void_p),
        ("columns", c_int64),
        ("heads", c_int64),
        ("x", c_void_p),
        ("x_rows", c_int64),
        ("x_stride", c_int64),
        ("y", c_void_p),
        ("own", c_void_p),
        ("own_stride", c_int64),
        ("ptr", c_void_p),
        ("rows", c_int64),
        ("index", c_void_p),
        ("num_index", c_int64),
        ("edge", c_void_p),
        ("weight", c_void_p),
        ("num_weights", c_int64),
        ("row_scale", c_void_p),
        ("col_scale", c_void_p),
        ("self_weight", c_void_p),
        ("self_rows", c_int64),
        ("self_heads", c_int64),
        ("out", c_void_p),
        ("count", c_void_p),
        ("dot", c_void_p),
    )


class Attention(Structure):
    """fg_attention."""

    _fields_ = (
        ("struct_size", c_uint32),
        ("threads", c_int32),
        ("index_bytes", c_int32),
        ("is_double", c_int32),
        ("heads", c_int64),
        ("src", c_void_p),
        ("src_rows", c_int64),
        ("dst", c_void_p),
        ("edge", c_void_p),
        ("ptr", c_void_p),
        ("rows", c_int64),
        ("index", c_void_p),
        ("num_index", c_int64),
        ("self_rows", c_int64),
        ("slope", c_double),
        ("alpha", c_void_p),
        ("alpha_self", c_void_p),
        ("grad", c_void_p),
        ("grad_self", c_void_p),
        ("grad_edge", c_void_p),
        ("grad_edge_self", c_void_p),
        ("grad_dst", c_void_p),
    )


class Heads(Structure):
    """fg_heads."""

    _fields_ = (
        ("struct_size", c_uint32),
        ("kind", c_int32),
        ("threads", c_int32),
        ("reserved", c_int32),
        ("dtype", DataType),
        ("reserved2", c_int32),
        ("rows", c_int64),
        ("columns", c_int64),
        ("heads", c_int64),
        ("x", c_void_p),
        ("x_stride", c_int64),
        ("y", c_void_p),
        ("y_stride", c_int64),
        ("d", c_void_p),
        ("out", c_void_p),
    )


class Transposition(Structure):
    """fg_transposition."""

    _fields_ = (
        ("struct_size", c_uint32),
        ("threads", c_int32),
        ("index_bytes", c_int32),
        ("reserved", c_int32),
        ("ptr", c_void_p),
        ("rows", c_int64),
        ("index", c_void_p),
        ("num_index", c_int64),
        ("sources", c_int64),
        ("source_ptr", c_void_p),
        ("target", c_void_p),
        ("edge", c_void_p),
    )


class CudaQueue(Structure):
    """fg_cuda_queue."""

    _fields_ = (
        ("struct_size", c_uint32),
        ("device", c_int32),
        ("stream", c_size_t),
        ("status", c_void_p),
    )


class Mapping(Structure):
    """fg_mapping."""

    _fields_ = (
        ("struct_size", c_uint32),
        ("index_bytes", c_int32),
        ("id", c_void_p),
        ("n", c_int64),
        ("node", c_void_p),
        ("local", c_void_p),
        ("count", c_void_p),
    )


class Gathering(Structure):
    """fg_gathering."""

    _fields_ = (
        ("struct_size", c_uint32),
        ("index_bytes", c_int32),
        ("n", c_int64),
        ("row_bytes", c_int64),
        ("index", c_void_p),
        ("table", c_void_p),
        ("table_rows", c_int64),
        ("table_stride", c_int64),
        ("slot", c_void_p),
        ("cache", c_void_p),
        ("cache_rows", c_int64),
        ("cache_stride", c_int64),
        ("out", c_void_p),
    )


STRUCTS: dict[str, type[Structure]] = {
    "DLDataType": DataType,
    "fg_error": Error,
    "fg_version_info": VersionInfo,
    "fg_counters_info": CountersInfo,
    "fg_progress": Progress,
    "fg_array": Array,
    "fg_tensor": Tensor,
    "fg_python_api": PythonApi,
    "fg_lock_api": LockApi,
    "fg_shared": Shared,
    "fg_node_type": NodeType,
    "fg_edge_type": EdgeType,
    "fg_graph_input": GraphInput,
    "fg_convert_input": ConvertInput,
    "fg_relayout_input": RelayoutInput,
    "fg_drop": Drop,
    "fg_update_input": UpdateInput,
    "fg_propagate_input": PropagateInput,
    "fg_history_options": HistoryOptions,
    "fg_history_layer": HistoryLayer,
    "fg_walk": Walk,
    "fg_name": Name,
    "fg_metapath": Metapath,
    "fg_links": Links,
    "fg_loader_options": LoaderOptions,
    "fg_loader_details": LoaderDetails,
    "fg_share": Share,
    "fg_ask": Ask,
    "fg_batch": Batch,
    "fg_simulation": Simulation,
    "fg_aggregation": Aggregation,
    "fg_attention": Attention,
    "fg_heads": Heads,
    "fg_transposition": Transposition,
    "fg_cuda_queue": CudaQueue,
    "fg_mapping": Mapping,
    "fg_gathering": Gathering,
}
"""By their names in C."""

SIGNATURES: dict[str, tuple[Any, ...]] = {
    "fg_version": (POINTER(VersionInfo),),
    "fg_counters": (POINTER(CountersInfo),),
    "fg_job_wait": (c_void_p, c_int32, POINTER(Progress)),
    "fg_job_cancel": (c_void_p,),
    "fg_job_close": (c_void_p,),
    "fg_buffers_lock": (POINTER(LockApi),),
    "fg_batches_share": (POINTER(Shared),),
    "fg_shared_map": (c_int32, POINTER(c_void_p)),
    "fg_shared_tensors": (c_void_p, POINTER(Array), c_int32, c_int32, POINTER(Tensor)),
    "fg_shared_unmap": (c_void_p,),
    "fg_store_open": (c_char_p, POINTER(c_void_p)),
    "fg_store_describe": (c_void_p, c_char_p, c_int64, POINTER(c_int64)),
    "fg_store_read": (c_void_p, c_int32, c_int32, c_char_p, c_int32, POINTER(c_void_p)),
    "fg_store_read_rows": (c_void_p, c_char_p, c_int64, c_int64, c_int32, POINTER(c_void_p)),
    "fg_store_verify": (c_void_p, POINTER(c_void_p)),
    "fg_store_verify_topology": (c_void_p, POINTER(c_void_p)),
    "fg_store_close": (c_void_p,),
    "fg_graph_open": (POINTER(GraphInput), POINTER(c_void_p)),
    "fg_graph_close": (c_void_p,),
    "fg_convert_start": (POINTER(ConvertInput), c_char_p, POINTER(c_void_p)),
    "fg_relayout_start": (c_void_p, POINTER(RelayoutInput), c_char_p, POINTER(c_void_p)),
    "fg_update_start": (c_void_p, POINTER(UpdateInput), c_char_p, POINTER(c_void_p)),
    "fg_append_start": (c_void_p, POINTER(ConvertInput), c_char_p, POINTER(c_void_p)),
    "fg_propagate_start": (c_void_p, POINTER(PropagateInput), POINTER(c_void_p)),
    "fg_history_buffer": (c_void_p, c_int32, POINTER(Tensor)),
    "fg_history_update": (c_void_p, c_int64, c_int64, POINTER(HistoryLayer), c_int32, c_int32),
    "fg_history_stats": (c_void_p, c_char_p, c_int64, POINTER(c_int64)),
    "fg_history_forecast": (c_void_p, c_int64, c_int64, c_int32, c_int32, POINTER(c_int64)),
    "fg_history_save": (c_void_p, c_int32, POINTER(Tensor)),
    "fg_history_restore": (c_void_p, c_void_p, c_int64),
    "fg_loader_open": (c_void_p, c_void_p, POINTER(LoaderOptions), POINTER(c_void_p)),
    "fg_loader_info": (c_void_p, POINTER(LoaderDetails)),
    "fg_share_count": (POINTER(Share), c_int64, c_int64, POINTER(c_int64)),
    "fg_loader_take": (c_void_p, POINTER(Share)),
    "fg_loader_start": (c_void_p, c_int64, c_int64, c_int32),
    "fg_loader_stop": (c_void_p,),
    "fg_loader_stats": (c_void_p, c_char_p, c_int64, POINTER(c_int64)),
    "fg_loader_plan": (c_void_p, c_char_p, c_int64, POINTER(c_int64)),
    "fg_loader_sample": (c_void_p, POINTER(Ask), POINTER(c_void_p)),
    "fg_loader_close": (c_void_p,),
    "fg_loader_next": (c_void_p, c_int32, POINTER(Batch)),
    "fg_sampled_take": (c_void_p, POINTER(Batch)),
    "fg_simulate": (POINTER(Simulation), POINTER(c_void_p)),
    "fg_hotness": (c_void_p, c_void_p, POINTER(LoaderOptions), POINTER(c_float), c_int64, POINTER(c_void_p)),
    "fg_aggregate": (POINTER(Aggregation),),
    "fg_attention_forward": (POINTER(Attention),),
    "fg_attention_back": (POINTER(Attention),),
    "fg_heads_run": (POINTER(Heads),),
    "fg_transpose": (POINTER(Transposition),),
    "fg_group": (c_void_p, c_int32, c_int64, c_int64, c_void_p, c_void_p, c_void_p),
    "fg_result": (c_void_p, c_int32, DataType, c_int32, POINTER(Tensor)),
    "fg_cuda_probe": (c_void_p, c_void_p),
    "fg_cuda_memory": (c_int32, c_void_p, c_void_p),
    "fg_cuda_register_host": (c_int32, c_void_p, c_int64, POINTER(c_void_p)),
    "fg_cuda_unregister_host": (c_int32, c_void_p),
    "fg_cuda_aggregate": (POINTER(Aggregation), c_void_p, c_void_p, POINTER(CudaQueue)),
    "fg_cuda_attention_forward": (POINTER(Attention), POINTER(CudaQueue)),
    "fg_cuda_attention_back": (POINTER(Attention), POINTER(CudaQueue)),
    "fg_cuda_transpose": (POINTER(Transposition), c_void_p, c_void_p, POINTER(CudaQueue)),
    "fg_cuda_map": (POINTER(Mapping), c_void_p, c_void_p, POINTER(CudaQueue)),
    "fg_cuda_gather": (POINTER(Gathering), POINTER(CudaQueue)),
}
"""The arguments of every function that ends in an ``fg_error``, without that one."""
