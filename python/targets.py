"""The platforms that wheels are built for: what each needs of Go and of a C compiler.

A wheel for the machine that builds it takes that machine's compiler. A wheel with a manylinux tag takes ``zig cc``, of
the package ziglang, which compiles and links for an older glibc and for other processors than its own.
"""

from __future__ import annotations

import importlib.util
import platform
import shlex
import sys
from dataclasses import dataclass

GLIBC = "2.28"
TAG = f"manylinux_{GLIBC.replace('.', '_')}"


@dataclass(frozen=True)
class Target:
    """A processor architecture, by the names that Python, Go and zig have for it."""

    machine: str
    goarch: str
    triple: str


TARGETS = {
    f"{TAG}_{machine}": Target(machine, goarch, f"{machine}-linux-gnu.{GLIBC}")
    for machine, goarch in (("x86_64", "amd64"), ("aarch64", "arm64"))
}


def obstacle(system: str = sys.platform, machine: str | None = None, libc: str | None = None) -> str | None:
    """Return in a sentence why this machine cannot build and run freshgo, or None."""
    machine = platform.machine() if machine is None else machine
    libc = platform.libc_ver()[0] if libc is None else libc
    if system != "linux":
        return (
            f"freshgo runs on Linux, and this is {system}: use a Linux machine, a container "
            "(docker run -it python:3.12), or WSL 2 on Windows."
        )
    if machine not in {target.machine for target in TARGETS.values()}:
        return f"freshgo runs on x86-64 and ARM64 processors with 64 bits, and this one is {machine}."
    if libc != "glibc":
        return (
            "freshgo needs the GNU C library, as PyTorch does, and this Python was built with another (Alpine has "
            "musl): use a distribution such as Debian, python:3.12-slim in a container."
        )
    return None


def compiler(tag: str) -> dict[str, str]:
    """Return the environment in which Go builds for a platform tag: empty for that of this machine."""
    if tag not in TARGETS:
        return {}
    target = TARGETS[tag]
    if importlib.util.find_spec("ziglang") is None:
        sys.exit(f"a wheel for {tag} is compiled by zig cc: pip install ziglang")
    # The oldest processor of the architecture. What is faster on newer ones is chosen when the library is loaded.
    zig = [sys.executable, "-m", "ziglang", "cc", "-target", target.triple, "-mcpu=baseline", "-fno-sanitize=undefined"]
    return {"GOOS": "linux", "GOARCH": target.goarch, "CC": shlex.join(zig)}
