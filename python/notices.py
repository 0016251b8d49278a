"""Writes THIRD-PARTY-NOTICES: the licences of the Go modules, and of Go's runtime, that the native libraries link.

    python python/notices.py

The wheels have the file beside their licence, and a test compares it with the modules: those of the packages that ``go
list -deps`` names for ``capi``, without the tag ``cuda`` and with it.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

from build_backend import ROOT, find_go, go_env

TARGET = ROOT / "THIRD-PARTY-NOTICES"
TEXTS = re.compile(r"(LICEN[SC]E|COPYING|NOTICE|PATENTS)(\.md|\.txt)?", re.IGNORECASE)
RULE = "-" * 80
FIRST = """The native libraries of freshgo are linked with the software below, under the terms that follow each name.
This file is made by python/notices.py.
"""


class Module(NamedTuple):
    """Software that is linked."""

    name: str
    """Its path and version."""
    folder: Path
    cuda: bool
    """Whether only the library with CUDA links it."""


def go(*arguments: str) -> str:
    """Return the output of a command of Go."""
    found = find_go()
    if found is None:
        sys.exit("Go is needed: see CONTRIBUTING.md")
    command = [found, *arguments]
    return subprocess.run(
        command, cwd=ROOT, env=dict(go_env(), CGO_ENABLED="1"), check=True, stdout=-1, text=True
    ).stdout


def modules() -> list[Module]:
    """Return Go's runtime, and the modules that the libraries link, by name."""
    found: dict[str, Module] = {}
    for cuda in (False, True):
        listed = go("list", "-e", "-deps", "-json=Module", *(["-tags", "cuda"] if cuda else []), "./capi")
        for package in objects(listed):
            module = package.get("Module", {})
            if "Version" in module:
                name = f"{module['Path']} {module['Version']}"
                found.setdefault(name, Module(name, Path(module["Dir"]), cuda))
    runtime = Module("Go, its runtime and standard library", Path(go("env", "GOROOT").strip()), False)
    return [runtime, *(found[name] for name in sorted(found))]


def objects(text: str) -> list[Any]:
    """Return the JSON objects that stand one after the other."""
    found, place, decoder = [], 0, json.JSONDecoder()
    while place < len(text.rstrip()):
        value, place = decoder.raw_decode(text, place)
        found.append(value)
        place += len(text[place:]) - len(text[place:].lstrip())
    return found


def generate() -> str:
    """Return the whole file."""
    return "\n".join([FIRST, *map(section, modules())])


def section(module: Module) -> str:
    """Return the name and the texts of a module."""
    texts = sorted(file for file in module.folder.iterdir() if TEXTS.fullmatch(file.name))
    if not texts:
        sys.exit(f"{module.name} has no licence in {module.folder}")
    only = " (in the library with CUDA only)" if module.cuda else ""
    head = f"{RULE}\n{module.name}{only}\n{RULE}\n"
    return "\n".join([head, *(file.read_text(encoding="utf-8").strip("\n") + "\n" for file in texts)])


if __name__ == "__main__":
    TARGET.write_text(generate(), encoding="utf-8")
