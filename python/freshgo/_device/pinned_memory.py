"""Locking the library's buffers in place, so that a device copies batches from where they were made.

The library has no driver of its own to ask: it is given the driver's entries, and the primary context of the device,
which is PyTorch's, for as long as the process lives.
"""

from __future__ import annotations

import contextlib
import ctypes
import threading
from ctypes import c_int, c_void_p

from freshgo._native import abi, libraries
from freshgo._native.header import LockApi

_ENTRIES = ("cuCtxPushCurrent_v2", "cuCtxPopCurrent_v2", "cuMemHostRegister_v2", "cuMemHostUnregister")
_READS_HOST = 91
"""CU_DEVICE_ATTRIBUTE_CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM."""

_lock = threading.Lock()
_locking = False


def lock_buffers(device: int) -> bool:
    """Let the library lock its buffers for all devices from now on, by the context of one that PyTorch has initialised.

    Returns whether it does. Where the driver refuses, batches are copied through PyTorch's pinned memory.
    """
    global _locking
    with _lock:
        if not _locking:
            api = _driver(device)
            if api is None:
                return False
            abi.call("fg_buffers_lock", ctypes.byref(api))
            _locking = True
        return True


def reads_host(device: int) -> bool:
    """Whether kernels on the device read locked memory of the host by its own address."""
    value, number = c_int(), c_int()
    with contextlib.suppress(OSError, AttributeError):
        driver = ctypes.CDLL(libraries.DRIVER)
        if driver.cuDeviceGet(ctypes.byref(number), device) == 0:
            driver.cuDeviceGetAttribute(ctypes.byref(value), _READS_HOST, number)
    return value.value != 0


def _driver(device: int) -> LockApi | None:
    try:
        driver = ctypes.CDLL(libraries.DRIVER)
        entries = [ctypes.cast(getattr(driver, name), c_void_p) for name in _ENTRIES]
        number, context = c_int(), c_void_p()
        if driver.cuDeviceGet(ctypes.byref(number), device) != 0:
            return None
        if driver.cuDevicePrimaryCtxRetain(ctypes.byref(context), number) != 0:
            return None
    except (OSError, AttributeError):
        return None
    return LockApi(*entries, context)
