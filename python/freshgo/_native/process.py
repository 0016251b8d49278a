"""The native library of this process: which of the two it is, and what it holds."""

from __future__ import annotations

import ctypes

from freshgo._native import abi, header
from freshgo._native.libraries import Library


def counters() -> dict[str, int]:
    """What the library holds: live ``stores``, ``graphs``, ``loaders``, ``jobs`` (handles), ``buffers`` and
    ``buffer_bytes`` (tensor memory in use), ``pooled_bytes`` (kept for the next batch)."""
    raw = header.CountersInfo()
    abi.call("fg_counters", ctypes.byref(raw))
    return {name: int(getattr(raw, name)) for name, _ in raw._fields_}


def library() -> Library:
    """Return which native library this process uses and why; loads it if need be.

    There are two, with and without the device path, and a process loads one: the one with CUDA if it is installed (by
    the wheel ``freshgo-cuda``, or after ``make cuda``) and there are a PyTorch with CUDA and a driver. Prints as one
    line.

    Raises:
        LibraryError: it is missing, does not load, or does not fit this package.
    """
    return abi.library()
