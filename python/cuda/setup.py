"""Builds the wheel freshgo-cuda: the library with CUDA alone, after `make cuda`. `make wheels-cuda` calls this."""

from __future__ import annotations

import re
import sys
from pathlib import Path

from setuptools import setup

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "python"))

import library  # noqa: E402

VERSION = re.findall(r'^__version__ = "(.+)"', (ROOT / "python/freshgo/__init__.py").read_text(), re.MULTILINE)[0]


class build_cuda_library(library.build_library):  # noqa: N801  (setuptools names commands so)
    """The library with CUDA, in a package of its own."""

    def libraries(self) -> list[Path]:
        """Return what this wheel has: one library."""
        if not library.CUDA_READY.exists():
            sys.exit("the kernels are not compiled: run `make build/cuda/.ready` in the repository of freshgo first")
        return [Path("freshgo_cuda", library.CUDA_LIBRARY)]


setup(
    version=VERSION,
    install_requires=[f"freshgo=={VERSION}"],
    distclass=library.BinaryDistribution,
    cmdclass={**library.COMMANDS, "build_library": build_cuda_library},
)
