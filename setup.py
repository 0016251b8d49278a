"""Builds the native library beside the Python files, after `make cuda` both, and the declarations of its C API in
ctypes; everything else is in pyproject.toml.
"""

from __future__ import annotations

import subprocess
from pathlib import Path

from setuptools import setup
from setuptools.command.sdist import sdist

import generate_abi
from build_backend import ROOT, go_env
from library import COMMANDS, BinaryDistribution, go_or_exit


class vendored_sdist(sdist):  # noqa: N801  (setuptools names commands so)
    """A source distribution with the Go modules that it needs, so that it builds without a network."""

    def make_release_tree(self, base_dir: str, files: list[str]) -> None:
        """Gather the sources, then the modules."""
        super().make_release_tree(base_dir, files)
        vendor = [go_or_exit(), "mod", "vendor", "-o", Path(base_dir, "vendor").resolve()]
        subprocess.run(vendor, cwd=ROOT, env=go_env(), check=True)


generate_abi.write()
setup(distclass=BinaryDistribution, cmdclass={**COMMANDS, "sdist": vendored_sdist})
