"""The C API of ``csrc/include/freshgo.h`` in ctypes: structs, signatures, loading, errors, forks."""

from __future__ import annotations

import ctypes
import errno
import json
import os
import threading
from collections.abc import Callable
from ctypes import (
    POINTER,
    c_char,
    c_char_p,
    c_double,
    c_float,
    c_int32,
    c_int64,
    c_uint8,
    c_uint16,
    c_uint32,
    c_uint64,
    c_void_p,
)
from pathlib import Path
from typing import Any

from freshgo import _library, errors

ABI_VERSION = 3
AUTO = -1

OK, TIMEOUT, END = 0, 1, 2

_BUDGET = 20

_EXCEPTIONS: dict[int, type[errors.FreshgoError]] = {
    10: errors.InvalidArgumentError,
    11: errors.DTypeError,
    12: errors.StoreNotFoundError,
    13: errors.StoreExistsError,
    14: errors.StorePermissionError,
    15: errors.ReadError,
    16: errors.WriteError,
    17: errors.FormatError,
    18: errors.VersionError,
    19: errors.CorruptError,
    _BUDGET: errors.BudgetError,
    21: errors.ClosedError,
    22: errors.BusyError,
    23: errors.CancelledError,
    24: errors.InternalError,
    25: errors.CudaError,
}
"""The one table from codes of the library to exceptions."""

_DEFAULT_ERRNO: dict[type[errors.FreshgoError], int] = {
    errors.StoreNotFoundError: errno.ENOENT,
    errors.StoreExistsError: errno.EEXIST,
    errors.StorePermissionError: errno.EACCES,
    errors.BusyError: errno.EBUSY,
}
"""For errors that no system call is behind; others have EIO."""


class Error(ctypes.Structure):
    """fg_error."""

    _fields_ = (
        ("code", c_int32),
        ("sys_errno", c_int32),
        ("minimum", c_int64),
        ("message", c_char * 1024),
        ("path", c_char * 4096),
    )


class VersionInfo(ctypes.Structure):
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


class Counters(ctypes.Structure):
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


class DataType(ctypes.Structure):
    """DLDataType."""

    _fields_ = (("code", c_uint8), ("bits", c_uint8), ("lanes", c_uint16))


class Array(ctypes.Structure):
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


class Tensor(ctypes.Structure):
    """fg_tensor."""

    _fields_ = (("name", c_char_p), ("managed", c_void_p))


class Progress(ctypes.Structure):
    """fg_progress."""

    _fields_ = (("done", c_int64), ("total", c_int64), ("result", c_void_p), ("stage", c_char * 32))


class NodeType(ctypes.Structure):
    """fg_node_type."""

    _fields_ = (
        ("name", c_char_p),
        ("num_nodes", c_int64),
        ("tensors", POINTER(Array)),
        ("splits", POINTER(Array)),
        ("num_tensors", c_int32),
        ("num_splits", c_int32),
    )


class EdgeType(ctypes.Structure):
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


class GraphInput(ctypes.Structure):
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


class ConvertInput(ctypes.Structure):
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


class RelayoutInput(ctypes.Structure):
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


class HistoryOptions(ctypes.Structure):
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
        ("features", c_int32),
        ("probe_every", c_int64),
    )


class Walk(ctypes.Structure):
    """fg_walk."""

    _fields_ = (("walks", c_int64), ("length", c_int64), ("restart", c_double))


class Metapath(ctypes.Structure):
    """fg_metapath."""

    _fields_ = (("path", POINTER(c_int64)), ("length", c_int64))


class Links(ctypes.Structure):
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


class LoaderOptions(ctypes.Structure):
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


class LoaderDetails(ctypes.Structure):
    """fg_loader_details."""

    _fields_ = (("num_batches", c_int64), ("max_tensors", c_int32), ("reserved", c_int32))


class Batch(ctypes.Structure):
    """fg_batch."""

    _fields_ = (
        ("tensors", POINTER(Tensor)),
        ("capacity", c_int32),
        ("versioned", c_int32),
        ("num_tensors", c_int32),
        ("reserved", c_int32),
        ("index", c_int64),
        ("num_seeds", c_int64),
    )


class HistoryLayer(ctypes.Structure):
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


class Simulation(ctypes.Structure):
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


_PYTHON_FUNCTIONS = (
    "PyCapsule_New",
    "PyCapsule_IsValid",
    "PyCapsule_GetPointer",
    "PyList_New",
    "PyList_SetItem",
    "Py_DecRef",
)


class PythonAPI(ctypes.Structure):
    """fg_python_api."""

    _fields_ = tuple((name, c_void_p) for name in _PYTHON_FUNCTIONS)


class Aggregation(ctypes.Structure):
    """fg_aggregation."""

    _fields_ = (
        ("struct_size", c_uint32),
        ("kind", c_int32),
        ("threads", c_int32),
        ("index_bytes", c_int32),
        ("dtype", DataType),
        ("skip_self", c_int32),
        ("cut", c_int64),
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


class Attention(ctypes.Structure):
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


class Heads(ctypes.Structure):
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


class Transposition(ctypes.Structure):
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


_STRUCTS: dict[str, type[ctypes.Structure]] = {
    "error": Error,
    "counters": Counters,
    "array": Array,
    "tensor": Tensor,
    "progress": Progress,
    "graph_input": GraphInput,
    "convert_input": ConvertInput,
    "loader_options": LoaderOptions,
    "loader_details": LoaderDetails,
    "batch": Batch,
    "python_api": PythonAPI,
    "simulation": Simulation,
    "relayout_input": RelayoutInput,
    "history_options": HistoryOptions,
    "history_layer": HistoryLayer,
    "node_type": NodeType,
    "edge_type": EdgeType,
}

_JOB = POINTER(c_void_p)

_SIGNATURES: dict[str, tuple[Any, ...]] = {
    "fg_version": (POINTER(VersionInfo),),
    "fg_counters": (POINTER(Counters),),
    "fg_job_wait": (c_void_p, c_int32, POINTER(Progress)),
    "fg_job_cancel": (c_void_p,),
    "fg_job_close": (c_void_p,),
    "fg_store_open": (c_char_p, POINTER(c_void_p)),
    "fg_store_describe": (c_void_p, c_char_p, c_int64, POINTER(c_int64)),
    "fg_store_read": (c_void_p, c_int32, c_char_p, c_int32, _JOB),
    "fg_store_read_type": (c_void_p, c_int32, c_int32, c_char_p, c_int32, _JOB),
    "fg_store_verify": (c_void_p, _JOB),
    "fg_store_close": (c_void_p,),
    "fg_convert_start": (POINTER(ConvertInput), c_char_p, _JOB),
    "fg_relayout_start": (c_void_p, POINTER(RelayoutInput), c_char_p, _JOB),
    "fg_graph_open": (POINTER(GraphInput), _JOB),
    "fg_graph_close": (c_void_p,),
    "fg_loader_open": (c_void_p, c_void_p, POINTER(LoaderOptions), _JOB),
    "fg_loader_info": (c_void_p, POINTER(LoaderDetails)),
    "fg_loader_start": (c_void_p, c_int64, c_int64, c_int32),
    "fg_loader_next": (c_void_p, c_int32, POINTER(Batch)),
    "fg_loader_stop": (c_void_p,),
    "fg_loader_stats": (c_void_p, c_char_p, c_int64, POINTER(c_int64)),
    "fg_loader_plan": (c_void_p, c_char_p, c_int64, POINTER(c_int64)),
    "fg_loader_close": (c_void_p,),
    "fg_history_buffer": (c_void_p, c_int32, POINTER(Tensor)),
    "fg_history_update": (c_void_p, c_int64, c_int64, POINTER(HistoryLayer), c_int32, c_int32),
    "fg_history_stats": (c_void_p, c_char_p, c_int64, POINTER(c_int64)),
    "fg_history_save": (c_void_p, c_int32, POINTER(Tensor)),
    "fg_history_restore": (c_void_p, c_void_p, c_int64),
    "fg_simulate": (POINTER(Simulation), _JOB),
    "fg_hotness": (c_void_p, c_void_p, POINTER(LoaderOptions), POINTER(c_float), c_int64, _JOB),
}
"""Arguments of every function but the last one, which is the error."""

_OPERATORS: dict[str, tuple[Any, ...]] = {
    "fg_aggregate": (POINTER(Aggregation),),
    "fg_attention_forward": (POINTER(Attention),),
    "fg_attention_back": (POINTER(Attention),),
    "fg_heads_run": (POINTER(Heads),),
    "fg_transpose": (POINTER(Transposition),),
    "fg_result": (POINTER(c_int64), c_int32, DataType, c_int32, POINTER(Tensor)),
    "fg_group": (c_void_p, c_int32, c_int64, c_int64, c_void_p, c_void_p, POINTER(c_int32)),
}
"""The same of the operators, which may also be called in a forked child: see :func:`operate`."""

_functions: dict[str, Callable[..., int]] = {}
_loaded: tuple[_library.Library, ctypes.CDLL] | None = None
_new_capsules: Callable[[Any, int, int], list[object]] | None = None
_begun = False  # loading the library, whose threads do not survive a fork
_forked = False
_load_lock = threading.Lock()


def call(name: str, *args: Any) -> int:
    """Call a function of the library, which is loaded first if need be. Returns OK, TIMEOUT or END; raises the rest."""
    check_process()
    if not _functions:
        _load()
    error = Error()
    code = _functions[name](*args, ctypes.byref(error))
    if code > END:
        raise _exception(error)
    return code


def read_json(function: str, handle: int) -> dict[str, Any]:
    """The JSON object that a function writes."""
    capacity = 1 << 14
    while True:
        text = ctypes.create_string_buffer(capacity)
        needed = ctypes.c_int64()
        call(function, handle, text, capacity, ctypes.byref(needed))
        if needed.value <= capacity:
            parsed: dict[str, Any] = json.loads(text.raw[: needed.value])
            return parsed
        capacity = needed.value + 4096


def operate(name: str, *args: Any) -> None:
    """Call an operator of the library, in a forked child too: operators are plain C and start over there."""
    if not _functions:
        _load()
    error = Error()
    if _functions[name](*args, ctypes.byref(error)) != OK:
        raise _exception(error)


def operators_init(team: int | None, isa: int) -> int:
    """Say whose threads run the operators and which instruction set they use; returns the one in use."""
    if not _functions:
        _load()
    return _functions["fg_operators_init"](team, isa)


def library() -> _library.Library:
    """The library of this process, which is loaded if need be."""
    if not _functions:
        _load()
    assert _loaded is not None
    return _loaded[0]


def bind(signatures: dict[str, tuple[Any, ...]]) -> None:
    """Make more functions known to :func:`call`, as the tables here do."""
    path = library().path
    assert _loaded is not None
    try:
        _functions.update(_bound(_loaded[1], signatures))
    except AttributeError as cause:
        raise errors.LibraryError(_explain(path, cause)) from cause


def _bound(library: ctypes.CDLL, signatures: dict[str, tuple[Any, ...]]) -> dict[str, Callable[..., int]]:
    functions: dict[str, Callable[..., int]] = {}
    for name, arguments in signatures.items():
        function = getattr(library, name)
        function.argtypes = (*arguments, POINTER(Error))
        function.restype = c_int32
        functions[name] = function
    return functions


def new_capsules(tensors: ctypes.Array[Tensor], count: int, versioned: bool) -> list[object]:
    """DLPack capsules that own the first ``count`` tensors, whose ``managed`` becomes None in the same step."""
    assert _new_capsules is not None  # the tensors came from the library
    return _new_capsules(tensors, count, int(versioned))


def forked() -> bool:
    """Whether this process is a forked child of one that uses the library."""
    return _forked


def check_process() -> None:
    """Raise ForkError in a forked child of a process that uses the library."""
    if _forked:
        raise errors.ForkError(
            "freshgo was used before this process was forked, and its threads do not exist here; create the loader in "
            "the child, before any use in the parent, or start processes with multiprocessing.get_context('spawn')"
        )


def library_path() -> Path:
    """Where the library without CUDA lies: beside this module."""
    return Path(__file__).with_name("libfreshgo.so")


def _after_fork_in_child() -> None:
    global _forked, _load_lock
    _forked = _begun
    _load_lock = threading.Lock()  # another thread of the parent may have held it


os.register_at_fork(after_in_child=_after_fork_in_child)


def _exception(error: Error) -> errors.FreshgoError:
    message = error.message.decode()
    kind = _EXCEPTIONS.get(error.code, errors.InternalError)
    if kind is errors.BudgetError:
        return errors.BudgetError(message, int(error.minimum))
    if issubclass(kind, OSError):
        number = int(error.sys_errno) or _DEFAULT_ERRNO.get(kind, errno.EIO)
        return kind(number, message, os.fsdecode(error.path)) if error.path else kind(number, message)
    return kind(message)


def _load() -> None:
    global _begun, _new_capsules, _loaded
    with _load_lock:
        if _functions:
            return
        chosen = _library.choose(library_path())
        _begun = True
        chosen, library = _open(chosen)
        path = chosen.path
        try:
            functions = _bound(library, {**_SIGNATURES, **_OPERATORS})
            choose = library.fg_operators_init
            choose.argtypes, choose.restype = (c_void_p, c_int32), c_int32
            functions[choose.__name__] = choose
            capsules = ctypes.PyDLL(str(path))  # the same library; these calls keep the GIL
            init, new = capsules.fg_python_init, capsules.fg_capsules_new
        except (OSError, AttributeError) as cause:
            raise errors.LibraryError(_explain(path, cause)) from cause
        _check_version(path, functions["fg_version"])
        api = PythonAPI(*(ctypes.cast(getattr(ctypes.pythonapi, name), c_void_p) for name in _PYTHON_FUNCTIONS))
        init.argtypes, init.restype = (POINTER(PythonAPI),), None
        init(api)
        new.argtypes, new.restype = (POINTER(Tensor), c_int32, c_int32), ctypes.py_object
        _new_capsules, _loaded = new, (chosen, library)
        _functions.update(functions)


def _open(chosen: _library.Library) -> tuple[_library.Library, ctypes.CDLL]:
    """Load the library that was chosen, or the one without CUDA where that fails, which leaves nothing loaded."""
    try:
        return chosen, ctypes.CDLL(str(chosen.path))  # RTLD_LOCAL
    except OSError as cause:
        if not chosen.cuda:
            raise errors.LibraryError(_explain(chosen.path, cause)) from cause
        return _open(_library.without_cuda(library_path(), f"it cannot be loaded ({cause})"))


def _explain(path: Path, cause: Exception) -> str:
    if not path.exists():
        return (
            f"the native library {path} is missing. Likely causes: freshgo is imported from its source tree "
            "(install it with 'pip install .' and run elsewhere), or an installation was interrupted (repeat it)."
        )
    return (
        f"the native library {path} cannot be loaded: {cause}. Likely causes: it was built for another processor, or "
        "against a newer C library than this system's (install with 'pip install --no-binary freshgo freshgo'); its "
        "directory is mounted noexec; or it is of another version than these Python files (install freshgo again)."
    )


def _check_version(path: Path, version: Callable[..., int]) -> None:
    info, error = VersionInfo(), Error()
    if version(ctypes.byref(info), ctypes.byref(error)) != OK:
        raise _exception(error)
    if info.abi != ABI_VERSION:
        raise errors.LibraryError(
            f"{path} has ABI {info.abi}, this package needs {ABI_VERSION}; "
            "the installation is mixed, install freshgo again"
        )
    for name, struct in _STRUCTS.items():
        if getattr(info, name) != ctypes.sizeof(struct):
            raise errors.LibraryError(
                f"{path} has fg_{name} of {getattr(info, name)} bytes, this package one of {ctypes.sizeof(struct)}; "
                "the installation is mixed, install freshgo again"
            )
