"""The library of the C API loaded, checked and called; codes as exceptions; forks.

Its structs, numbers and signatures are in ``header``.
"""

from __future__ import annotations

import ctypes
import errno
import json
import os
import threading
from collections.abc import Callable
from ctypes import POINTER, c_int32, c_void_p
from pathlib import Path
from typing import Any

from freshgo import errors
from freshgo._args.size import format_size, process_room
from freshgo._native import header, libraries, messages
from freshgo._native.header import END, OK, Error
from freshgo._observe.log import LOG

_EXCEPTIONS: dict[int, type[errors.FreshgoError]] = {
    header.INVALID: errors.InvalidArgumentError,
    header.DTYPE: errors.DTypeError,
    header.NOT_FOUND: errors.StoreNotFoundError,
    header.EXISTS: errors.StoreExistsError,
    header.PERMISSION: errors.StorePermissionError,
    header.READ: errors.ReadError,
    header.WRITE: errors.WriteError,
    header.FORMAT: errors.FormatError,
    header.VERSION: errors.VersionError,
    header.CORRUPT: errors.CorruptError,
    header.BUDGET: errors.BudgetError,
    header.CLOSED: errors.ClosedError,
    header.BUSY: errors.BusyError,
    header.CANCELLED: errors.CancelledError,
    header.INTERNAL: errors.InternalError,
    header.CUDA: errors.CudaError,
}
"""The one table from codes of the library to exceptions."""

_DEFAULT_ERRNO: dict[type[errors.FreshgoError], int] = {
    errors.StoreNotFoundError: errno.ENOENT,
    errors.StoreExistsError: errno.EEXIST,
    errors.StorePermissionError: errno.EACCES,
    errors.BusyError: errno.EBUSY,
}
"""For errors that no system call is behind; others have EIO."""

_PYTHON = {
    "capsule_new": "PyCapsule_New",
    "capsule_is_valid": "PyCapsule_IsValid",
    "capsule_get_pointer": "PyCapsule_GetPointer",
    "list_new": "PyList_New",
    "list_set_item": "PyList_SetItem",
    "decref": "Py_DecRef",
}
"""The members of ``fg_python_api``, and what they are in Python."""

_functions: dict[str, Callable[..., int]] = {}
_loaded: tuple[libraries.Library, ctypes.CDLL] | None = None
_new_capsules: Callable[[Any, int, int], list[object]] | None = None
_begun = False  # loading the library, whose threads do not survive a fork
_forked = False
_load_lock = threading.Lock()


def call(name: str, *args: Any) -> int:
    """Call a function of the library, which is loaded first if need be. Returns OK, TIMEOUT or END; raises the rest."""
    check_process()
    if not _functions:
        load(cuda=True)
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
        load(cuda=True)
    error = Error()
    if _functions[name](*args, ctypes.byref(error)) != OK:
        raise _exception(error)


def operators_init(team: int | None, isa: int) -> int:
    """Say whose threads run the operators and which instruction set they use; returns the one in use."""
    if not _functions:
        load(cuda=True)
    return _functions["fg_operators_init"](team, isa)


def library() -> libraries.Library:
    """The library of this process, which is loaded if need be."""
    if not _functions:
        load(cuda=True)
    assert _loaded is not None
    return _loaded[0]


def _bound(library: ctypes.CDLL) -> dict[str, Callable[..., int]]:
    functions: dict[str, Callable[..., int]] = {}
    for name, arguments in header.SIGNATURES.items():
        function = getattr(library, name)
        function.argtypes = (*arguments, POINTER(Error))
        function.restype = c_int32
        functions[name] = function
    return functions


def new_capsules(tensors: ctypes.Array[header.Tensor], count: int, versioned: bool) -> list[object]:
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
    """Where the library without CUDA lies: in the package."""
    return Path(__file__).parents[1] / "libfreshgo.so"


def _after_fork_in_child() -> None:
    global _forked, _load_lock
    _forked = _begun
    _load_lock = threading.Lock()  # another thread of the parent may have held it


os.register_at_fork(after_in_child=_after_fork_in_child)


def _exception(error: Error) -> errors.FreshgoError:
    kind, given = _EXCEPTIONS.get(error.code, errors.InternalError), error.message.decode()
    if kind is errors.BudgetError:
        return errors.BudgetError(messages.of_budget(given), int(error.minimum))
    message = given if kind is errors.InternalError else messages.spoken(given)
    if issubclass(kind, OSError):
        number = int(error.sys_errno) or _DEFAULT_ERRNO.get(kind, errno.EIO)
        return kind(number, message, os.fsdecode(error.path)) if error.path else kind(number, message)
    return kind(message)


def load(*, cuda: bool) -> None:
    """Load a library, unless one is loaded.

    Without ``cuda`` load the library without CUDA, whatever is installed: choosing between two imports torch.
    """
    global _begun, _new_capsules, _loaded
    with _load_lock:
        if _functions:
            return
        _check_room()
        path = library_path()
        chosen = (
            libraries.choose(path)
            if cuda
            else libraries.Library(path, False, "the CPU alone, as this command needs no CUDA")
        )
        _begun = True
        chosen, library = _open(chosen)
        path = chosen.path
        try:
            functions = _bound(library)
            choose = library.fg_operators_init
            choose.argtypes, choose.restype = (c_void_p, c_int32), c_int32
            functions[choose.__name__] = choose
            capsules = ctypes.PyDLL(str(path))  # the same library; these calls keep the GIL
            init, new = capsules.fg_python_init, capsules.fg_capsules_new
        except (OSError, AttributeError) as cause:
            raise errors.LibraryError(_explain(path, cause)) from cause
        _check_version(path, functions["fg_version"])
        entries = {name: ctypes.cast(getattr(ctypes.pythonapi, of), c_void_p) for name, of in _PYTHON.items()}
        api = header.PythonApi(**entries)
        init.argtypes, init.restype = (POINTER(header.PythonApi),), None
        init(api)
        new.argtypes, new.restype = (POINTER(header.Tensor), c_int32, c_int32), ctypes.py_object
        _new_capsules, _loaded = new, (chosen, library)
        LOG.info("native library %s", chosen)
        _functions.update(functions)


def _open(chosen: libraries.Library) -> tuple[libraries.Library, ctypes.CDLL]:
    """Load the library that was chosen, or the one without CUDA where that fails, which leaves nothing loaded."""
    try:
        return chosen, ctypes.CDLL(str(chosen.path))  # RTLD_LOCAL
    except OSError as cause:
        if not chosen.cuda:
            raise errors.LibraryError(_explain(chosen.path, cause)) from cause
        return _open(libraries.without_cuda(library_path(), f"it cannot be loaded ({cause})"))


_ROOM = {"RLIMIT_AS": (2 << 30, 80 << 20), "RLIMIT_DATA": (256 << 20, 16 << 20)}
"""What a process must still be allowed to map before the library is loaded: bytes, and more for each processor.

Where Go's runtime cannot map what it needs it ends the process. On two processors it reserves 1.6 GB of address space
when it is loaded, most of it for tables of a heap of 2^48 bytes, the same on amd64 and arm64, and 110 MB of that are
data; an epoch with eight threads took 0.3 GB and 70 MB more. The share of a processor is a thread's stack and the
arena that the C library gives it.
"""


def _check_room() -> None:
    for limit, room in process_room().items():
        fixed, each = _ROOM[limit]
        need = fixed + each * len(os.sched_getaffinity(0))
        if room < need:
            what, option = ("address space", "-v") if limit == "RLIMIT_AS" else ("data", "-d")
            raise errors.LibraryError(
                f"the native library needs {format_size(need)} of {what} to be loaded, the limit of this process "
                f"({limit}, 'ulimit {option}') leaves {format_size(room)}: raise it by {format_size(need - room)} or "
                "more, or limit memory by a control group"
            )


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
    info, error = header.VersionInfo(), Error()
    if version(ctypes.byref(info), ctypes.byref(error)) != OK:
        raise _exception(error)
    if info.abi != header.ABI_VERSION:
        raise errors.LibraryError(
            f"{path} has ABI {info.abi}, this package needs {header.ABI_VERSION}; "
            "the installation is mixed, install freshgo again"
        )
    for member, _ in info._fields_[1:]:
        name = f"fg_{member.removeprefix('size_')}"
        n_bytes = ctypes.sizeof(header.STRUCTS[name])
        if getattr(info, member) != n_bytes:
            raise errors.LibraryError(
                f"{path} has {name} of {getattr(info, member)} bytes, this package one of {n_bytes}; "
                "the installation is mixed, install freshgo again"
            )
