"""What ``_header`` says in ctypes is what the C compiler says of the headers."""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
from pathlib import Path

import capi_header
import pytest

from freshgo._native import abi, header

OTHERS = {"fg_operators_init", "fg_python_init", "fg_capsules_new"}
"""Functions without an error, whose arguments ``_abi`` declares."""


def test_ctypes_knows_every_struct_and_every_function() -> None:
    assert set(header.STRUCTS) == {*capi_header.structs(), "DLDataType"}
    assert {*header.SIGNATURES, *OTHERS} == capi_header.declared()


def test_layouts_are_those_of_the_compiler(tmp_path: Path) -> None:
    compiler = shutil.which(os.environ.get("CC", "cc"))
    assert compiler is not None, "needs the C compiler that built the library"
    lines, expected = [], []
    for name, struct in header.STRUCTS.items():
        lines.append(f'printf("{name} %zu\\n", sizeof({name}));')
        expected.append(f"{name} {ctypes.sizeof(struct)}")
        for member, _ in struct._fields_:
            lines.append(
                f'printf("{name}.{member} %zu %zu\\n", offsetof({name}, {member}), sizeof((({name} *)0)->{member}));'
            )
            place = getattr(struct, member)
            expected.append(f"{name}.{member} {place.offset} {place.size}")
    source, program = tmp_path / "layout.c", tmp_path / "layout"
    source.write_text("#include <stdio.h>\n#include <freshgo.h>\nint main(void) {\n" + "\n".join(lines) + "\n}\n")
    command = [compiler, "-std=c11", "-pedantic-errors", "-Wall", f"-I{capi_header.INCLUDE}", source, "-o", program]
    subprocess.run(command, check=True)
    printed = subprocess.run([program], capture_output=True, text=True, check=True).stdout
    assert printed.splitlines() == expected


@pytest.mark.parametrize("name", header.SIGNATURES)
def test_arguments_are_those_of_the_header(name: str) -> None:
    *arguments, last = capi_header.functions()[name]
    assert last == "fg_error *err"
    kinds = header.SIGNATURES[name]
    assert len(kinds) == len(arguments)
    scalars = {"int32_t": ctypes.c_int32, "int64_t": ctypes.c_int64, "DLDataType": header.DataType}
    for kind, argument in zip(kinds, arguments, strict=True):
        if "*" not in argument:
            assert kind is scalars[argument.split()[0]], argument
        elif argument.startswith("char *"):
            assert kind is ctypes.c_char_p, argument
        elif (word := argument.split()[0]) in header.STRUCTS:
            assert kind is ctypes.POINTER(header.STRUCTS[word]), argument
        elif "**" in argument:
            assert kind is ctypes.POINTER(ctypes.c_void_p), argument
        else:  # a handle, or an array
            assert kind is ctypes.c_void_p or hasattr(kind, "contents"), argument


def test_the_numbers_are_those_of_the_header() -> None:
    base = capi_header.PARTS["base"].read_text()
    assert f"#define FG_ABI_VERSION {header.ABI_VERSION}\n" in base
    assert f"#define FG_AUTO ({header.AUTO})\n" in base
    assert set(abi._PYTHON) == {member for member, _ in header.PythonApi._fields_}
