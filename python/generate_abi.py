"""Writes ``freshgo/_native/header.py``, the C API in ctypes, from the headers in ``csrc/include``.

``setup.py`` calls it, so that each build of a wheel, a source distribution or an editable installation has the module.
It reads only the C that these headers use: enums with given values, structs, and functions one after the other.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
INCLUDE = ROOT / "csrc" / "include"
TARGET = ROOT / "python" / "freshgo" / "_native" / "header.py"

SCALARS = {
    "char": "c_char",
    "double": "c_double",
    "float": "c_float",
    "int32_t": "c_int32",
    "int64_t": "c_int64",
    "size_t": "c_size_t",
    "uint16_t": "c_uint16",
    "uint32_t": "c_uint32",
    "uint64_t": "c_uint64",
    "uint8_t": "c_uint8",
    "uintptr_t": "c_size_t",
}
HANDLES = ("fg_store", "fg_table", "fg_graph", "fg_loader", "fg_sampled", "fg_job")
ADDRESSES = ("operators", "cuda")
"""Parts in which arrays are addresses as numbers: they are called often, and ``Tensor.data_ptr()`` needs no cast."""

FIRST = '''"""The C API of ``csrc/include`` in ctypes, as each build writes it (``python/generate_abi.py``).

Names lack ``FG_`` and ``fg_``; a struct has its name in C as docstring. Handles are ``c_void_p``. In structs and
functions of ``operators.h`` and ``cuda.h`` all arrays are ``c_void_p`` too.
"""

from __future__ import annotations

'''


def parts(header: Path = INCLUDE / "freshgo.h") -> list[Path]:
    """The headers that a header includes, each after those that it includes itself."""
    found: dict[Path, None] = {}
    for name in re.findall(r'#include "(.+?)"', header.read_text()):
        included = (header.parent / name).resolve()
        found |= dict.fromkeys([*parts(included), included])
    return list(found)


def code(header: Path) -> str:
    """The declarations of a header, without comments, directives and ``FG_IN``."""
    text = re.sub(r"/\*.*?\*/", "", header.read_text(), flags=re.DOTALL)
    return re.sub(r"^#.*\n", "", text, flags=re.MULTILINE).replace("FG_IN ", "")


def python_name(name: str) -> str:
    """The class of a struct: ``fg_loader_options`` is ``LoaderOptions``, ``DLDataType`` is ``DataType``."""
    if name.startswith("DL"):
        return name.removeprefix("DL")
    return "".join(word.capitalize() for word in name.removeprefix("fg_").split("_"))


class Writer:
    """The file that is written, and the structs that it has by now."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.structs: dict[str, str] = {"DLDataType": "DataType"}
        self.functions: dict[str, list[str]] = {}

    def declared(self, declaration: str, part: str) -> tuple[str, str]:
        """The name of a member or of an argument, and its type."""
        text = " ".join(declaration.split())
        if function := re.fullmatch(r"[\w ]+\*?\(\*(\w+)\)\(.*\)", text):
            return function[1], "c_void_p"
        found = re.fullmatch(r"(\w+) (\**)(\w+)(?:\[(\d+)\])?", text)
        if found is None:
            sys.exit(f"{part}.h: cannot read {text!r}")
        word, stars, name, length = found.groups()
        if word == "void" or word in HANDLES:
            return name, "c_void_p" if stars == "*" else "POINTER(c_void_p)"
        if word == "char" and stars:
            return name, "c_char_p" if stars == "*" else "POINTER(c_char_p)"
        if word in SCALARS and stars and part in ADDRESSES:
            return name, "c_void_p"
        if word not in SCALARS and word not in self.structs:
            sys.exit(f"{part}.h: {text!r} has a type that is declared nowhere before")
        kind = SCALARS.get(word) or self.structs[word]
        if length is not None:
            return name, f"{kind} * {length}"
        return name, f"POINTER({kind})" if stars else kind

    def numbers(self, header: Path) -> None:
        """Write what ``enum`` and ``#define`` name."""
        found = re.findall(r"^#define FG_(\w+) \(?(-?\d+)\)?$", header.read_text(), re.MULTILINE)
        for body in re.findall(r"enum \{(.*?)\};", code(header), re.DOTALL):
            found += re.findall(r"\bFG_(\w+) = (\d+)", body)
        self.lines += [f"{name} = {value}" for name, value in found]

    def struct(self, name: str, body: str, part: str) -> None:
        """Write a struct."""
        members = [self.declared(member, part) for member in body.split(";") if member.strip()]
        self.structs[name] = python_name(name)
        self.lines += ["", "", f"class {python_name(name)}(Structure):", f'    """{name}."""', ""]
        fields = [f'        ("{member}", {kind}),' for member, kind in members]
        self.lines += ["    _fields_ = (", *fields, "    )"]

    def header(self, header: Path) -> None:
        """Write what one header declares."""
        part = header.stem
        for name, body in re.findall(r"typedef struct (\w+) \{(.*?)\} \1;", code(header), re.DOTALL):
            if part != "dlpack" or name == "DLDataType":  # of dlpack.h only elements are passed by us
                self.struct(name, body, part)
        for name, arguments in re.findall(r"int32_t (fg_\w+)\((.*?)\);", code(header), re.DOTALL):
            *own, last = [self.declared(argument, part) for argument in re.split(r",(?![^(]*\))", arguments)]
            if last == ("err", f"POINTER({self.structs['fg_error']})"):
                self.functions[name] = [kind for _, kind in own]


def generate() -> str:
    """The whole file."""
    writer = Writer()
    for header in parts():
        writer.numbers(header)
    for header in parts():
        writer.header(header)
    out = [*writer.lines, "", "", "STRUCTS: dict[str, type[Structure]] = {"]
    out += [f'    "{name}": {kind},' for name, kind in writer.structs.items()]
    out += ["}", '"""By their names in C."""', "", "SIGNATURES: dict[str, tuple[Any, ...]] = {"]
    for name, kinds in writer.functions.items():
        out.append(f'    "{name}": ({", ".join(kinds)}{"," if len(kinds) == 1 else ""}),')
    out += ["}", '"""The arguments of every function that ends in an ``fg_error``, without that one."""', ""]
    text = "\n".join(out)
    names = ["POINTER", "Structure", "c_char_p", "c_void_p", *sorted(set(SCALARS.values()))]
    return f"{FIRST}from ctypes import {', '.join(names)}\nfrom typing import Any\n\n{text}"


def write() -> None:
    """Write the file, unless it is up to date."""
    text = generate()
    if not TARGET.is_file() or TARGET.read_text() != text:
        TARGET.write_text(text)
