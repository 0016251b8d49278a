"""The C API as its headers have it, read from the source tree."""

from __future__ import annotations

import re
from pathlib import Path

INCLUDE = Path(__file__).parents[2] / "csrc" / "include"
PARTS = {path.stem: path for path in sorted((INCLUDE / "freshgo").glob("*.h"))}


def text() -> str:
    """All of it, comments included."""
    return "".join(path.read_text() for path in (INCLUDE / "dlpack.h", INCLUDE / "freshgo.h", *PARTS.values()))


def code(part: str) -> str:
    """The declarations of one part."""
    return re.sub(r"/\*.*?\*/", "", PARTS[part].read_text(), flags=re.DOTALL).replace("FG_IN ", "")


def functions(part: str) -> dict[str, str]:
    """The arguments of the functions of one part that return a code."""
    return dict(re.findall(r"int32_t (fg_\w+)\((.*?)\);", code(part), re.DOTALL))


def structs(part: str) -> dict[str, list[str]]:
    """The members of the structs of one part."""
    found = re.findall(r"typedef struct (\w+) \{(.*?)\} \1;", code(part), re.DOTALL)
    return {name: [" ".join(member.split()) for member in body.split(";") if member.strip()] for name, body in found}


def declared() -> set[str]:
    """The names of all functions."""
    return {name for part in PARTS for name in re.findall(r"\b(fg_\w+)\(", code(part))}
