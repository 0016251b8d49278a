"""The C API as its headers have it, read from the source tree."""

from __future__ import annotations

import re
from pathlib import Path

INCLUDE = Path(__file__).parents[3] / "csrc" / "include"
PARTS = {path.stem: path for path in sorted((INCLUDE / "freshgo").glob("*.h"))}


def text() -> str:
    """All of it, comments included."""
    return "".join(path.read_text() for path in (INCLUDE / "dlpack.h", INCLUDE / "freshgo.h", *PARTS.values()))


def code() -> str:
    """The declarations of all parts."""
    return re.sub(r"/\*.*?\*/", "", text(), flags=re.DOTALL).replace("FG_IN ", "")


def functions() -> dict[str, list[str]]:
    """The arguments of the functions that return a code."""
    found = re.findall(r"int32_t (fg_\w+)\((.*?)\);", code(), re.DOTALL)
    return {name: [" ".join(argument.split()) for argument in arguments.split(",")] for name, arguments in found}


def structs() -> set[str]:
    """The names of all structs that have members."""
    return set(re.findall(r"typedef struct (fg_\w+) \{", code()))


def declared() -> set[str]:
    """The names of all functions."""
    return set(re.findall(r"\b(fg_\w+)\(", code()))
