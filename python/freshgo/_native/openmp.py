"""The OpenMP runtime whose threads PyTorch computes with.

GNU's OpenMP, which PyTorch's Linux packages bring, lets a thread without work spin for some milliseconds before it
sleeps, and only briefly where there are more of its threads than processors. It does not know other threads. Beside a
loader that reads, plans and copies on the same processors, PyTorch's threads then spin while those that they wait for
have no processor (docs/decisions/loader.md has figures).
"""

from __future__ import annotations

import ctypes
import os
import threading
import weakref
from pathlib import Path

import torch

_TEAM = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_uint, ctypes.c_uint)

_CHOSEN = ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT")
"""Variables by which a user has decided how threads wait."""


def parallel() -> int | None:
    """The address of GOMP_parallel in the runtime that PyTorch uses; None if that is another one."""
    path = Path(torch.__file__).parent / "lib" / "libtorch_cpu.so"
    try:
        loaded = ctypes.CDLL(str(path), mode=os.RTLD_NOLOAD | os.RTLD_LAZY)
        return ctypes.cast(loaded.GOMP_parallel, ctypes.c_void_p).value
    except (OSError, AttributeError):  # another build of torch, with another runtime
        return None


class Shared:
    """While there is one, OpenMP takes the processors for shared: PyTorch's threads sleep where they would spin.

    A thread that begins a team of two and then waits makes OpenMP count one thread more than PyTorch's. Where PyTorch
    uses fewer threads than there are processors, that changes nothing. ``OMP_WAIT_POLICY`` and ``GOMP_SPINCOUNT`` are
    the user's decision, which OpenMP reads when PyTorch is imported: with either of them nothing is done.
    """

    def __init__(self) -> None:
        _holders.add(self)
        _settle()

    def release(self) -> None:
        """Let OpenMP count its own threads again. Calls after the first, and in a forked child, do nothing."""
        _holders.discard(self)
        _settle()

    def __del__(self) -> None:
        self.release()


# A signal may raise between any two steps. So nobody counts: who is left says whether a thread should wait, and what
# ends the thread is known before there is one.

_lock = threading.RLock()  # a finalizer may run in a thread that holds it
_holders: weakref.WeakSet[Shared] = weakref.WeakSet()
_leave: threading.Event | None = None  # of the thread that waits


def _settle() -> None:
    """Start the thread that waits, or end it."""
    global _leave
    begin = None
    with _lock:
        if _holders and _leave is None:
            _leave = begin = threading.Event()
        elif not _holders and _leave is not None:
            _leave.set()
            _leave = None
    if begin is not None:  # without the lock: the new thread may collect what releases another one
        _begin(begin)


def _begin(leave: threading.Event) -> None:
    """Start a thread that waits for this."""
    team = parallel()
    if team is None or any(name in os.environ for name in _CHOSEN):
        return
    begun = threading.Event()

    def wait() -> None:
        nothing = ctypes.cast(ctypes.CDLL(None).free, ctypes.c_void_p)  # free(NULL), in both threads of the team
        _TEAM(team)(nothing, None, 2, 0)
        begun.set()
        leave.wait()

    threading.Thread(target=wait, name="freshgo-openmp", daemon=True).start()
    begun.wait()


def _after_fork_in_child() -> None:
    global _lock, _holders, _leave
    _lock, _holders, _leave = threading.RLock(), weakref.WeakSet(), None  # the thread does not exist here


os.register_at_fork(after_in_child=_after_fork_in_child)
