"""Which of the two native libraries a process loads, and why: the one with CUDA only where it can be used.

Both have the same C API, and a process loads exactly one of them, since each brings a Go runtime. So the choice is
made before anything is loaded, by what can be seen without initialising CUDA, which would not survive a fork.
"""

from __future__ import annotations

import ctypes
import importlib.util
import warnings
from dataclasses import dataclass
from pathlib import Path

from freshgo._observe.log import LOG

CUDA_NAME = "libfreshgo_cuda.so"
CUDA_PACKAGE = "freshgo_cuda"
"""What the wheel freshgo-cuda installs: the library with CUDA and nothing else."""
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
    cuda, other = _find_cuda(cpu)
    if cuda is None:
        how = "the wheel freshgo-cuda has it, 'make cuda' builds it"
        return Library(cpu, False, f"the CPU alone, {CUDA_NAME} is not in this installation ({how})")
    try:
        ctypes.CDLL(DRIVER)  # finding the driver initialises nothing
    except OSError as error:  # an ordinary machine without a GPU
        return Library(cpu, False, _without(f"there is no NVIDIA driver ({error})"))
    import torch

    if torch.version.cuda is None:
        return without_cuda(cpu, "this PyTorch is built without CUDA: install a build with CUDA to use the GPU")
    if other is not None:
        return without_cuda(cpu, other)
    return Library(cuda, True, "the CPU and CUDA")


def _find_cuda(cpu: Path) -> tuple[Path | None, str | None]:
    """Return the library with CUDA, or None, and what is wrong with its version.

    After 'make cuda' it lies beside the one without; the wheel freshgo-cuda brings it in a package of its own.
    """
    beside = cpu.with_name(CUDA_NAME)
    if beside.exists():
        return beside, None
    found = importlib.util.find_spec(CUDA_PACKAGE)
    if found is None or not found.submodule_search_locations:
        return None, None
    from importlib import metadata  # slow to import

    try:
        versions = [metadata.version(name) for name in ("freshgo", "freshgo-cuda")]
    except metadata.PackageNotFoundError:  # copied there by hand; loading compares the versions of the C API
        versions = ["", ""]
    other = None
    if versions[0] != versions[1]:
        other = f"freshgo is {versions[0]} and freshgo-cuda {versions[1]}: install freshgo-cuda=={versions[0]}"
    return Path(found.submodule_search_locations[0], CUDA_NAME), other


def without_cuda(cpu: Path, obstacle: str) -> Library:
    """Return the library without CUDA in place of the other one, and warn."""
    why = _without(obstacle)
    warnings.warn(f"freshgo runs on {why}", UserWarning, stacklevel=2)
    LOG.warning("freshgo runs on %s", why)
    return Library(cpu, False, why)


def _without(obstacle: str) -> str:
    return f"the CPU alone, {CUDA_NAME} is not used: {obstacle}"
