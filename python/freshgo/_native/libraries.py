"""Which of the two native libraries a process loads, and why: the one with CUDA only where it can be used.

Both have the same C API, and a process loads exactly one of them, since each brings a Go runtime. So the choice is
made before anything is loaded, by what can be seen without initialising CUDA, which would not survive a fork.
"""

from __future__ import annotations

import ctypes
import warnings
from dataclasses import dataclass
from pathlib import Path

import torch

from freshgo._observe.log import LOG

CUDA_NAME = "libfreshgo_cuda.so"
DRIVER = "libcuda.so.1"


@dataclass(frozen=True)
class Library:
    """The native library of this process. Prints as one line."""

    path: Path
    cuda: bool
    """Whether it has the device path."""
    why: str
    """Why this one and not the other."""

    def __str__(self) -> str:
        return f"{self.path.name}: {self.why}"


def choose(cpu: Path) -> Library:
    """Return the library to load, given where the one without CUDA lies.

    Warns where there is a driver and the library with CUDA cannot be used all the same.
    """
    cuda = cpu.with_name(CUDA_NAME)
    if not cuda.exists():
        return Library(cpu, False, f"the CPU alone, {CUDA_NAME} is not in this installation ('make cuda' builds it)")
    try:
        ctypes.CDLL(DRIVER)  # finding the driver initialises nothing
    except OSError as error:  # an ordinary machine without a GPU
        return Library(cpu, False, _without(f"there is no NVIDIA driver ({error})"))
    if torch.version.cuda is None:
        return without_cuda(cpu, "this PyTorch is built without CUDA: install a build with CUDA to use the GPU")
    return Library(cuda, True, "the CPU and CUDA")


def without_cuda(cpu: Path, obstacle: str) -> Library:
    """Return the library without CUDA in place of the other one, and warn."""
    why = _without(obstacle)
    warnings.warn(f"freshgo runs on {why}", UserWarning, stacklevel=2)
    LOG.warning("freshgo runs on %s", why)
    return Library(cpu, False, why)


def _without(obstacle: str) -> str:
    return f"the CPU alone, {CUDA_NAME} is not used: {obstacle}"
