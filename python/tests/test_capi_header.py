"""What ``_header`` says in ctypes is what the headers say in C, member by member and argument by argument."""

from __future__ import annotations

import ctypes
import importlib
import re
from types import ModuleType
from typing import Any

import capi_header
import pytest

from freshgo import _abi, _locking

SCALARS = {
    "char": ctypes.c_char,
    "double": ctypes.c_double,
    "float": ctypes.c_float,
    "int32_t": ctypes.c_int32,
    "int64_t": ctypes.c_int64,
    "uint32_t": ctypes.c_uint32,
    "uint64_t": ctypes.c_uint64,
    "uintptr_t": ctypes.c_size_t,
}
HANDLES = ("fg_store", "fg_graph", "fg_loader", "fg_job")
WITHOUT_CODE = {"fg_python_init", "fg_capsules_new"}
INSTRUCTION_SET = "fg_operators_init"


def module(part: str) -> ModuleType:
    return importlib.import_module(f"freshgo._header.{part}")


def structures(part: str) -> dict[str, type[ctypes.Structure]]:
    """The structs that a module declares, by their names in C."""
    own = [kind for kind in vars(module(part)).values() if getattr(kind, "__module__", "") == module(part).__name__]
    return {(kind.__doc__ or "").rstrip("."): kind for kind in own if issubclass(kind, ctypes.Structure)}


STRUCTS = {name: kind for part in capi_header.PARTS for name, kind in structures(part).items()}
FUNCTIONS = {name: part for part in capi_header.PARTS for name in getattr(module(part), "SIGNATURES", {})}


def kind_of(declaration: str, addresses: bool) -> tuple[str, Any]:
    """The name of a member or an argument and its type; arrays are addresses or pointers."""
    if function := re.fullmatch(r"[\w ]+\*?\(\*(\w+)\)\(.*\)", declaration):
        return function[1], ctypes.c_void_p
    found = re.fullmatch(r"(\w+)\s+(\**)(\w+)(?:\[(\d+)\])?", declaration)
    assert found is not None, declaration
    word, stars, name, length = found.groups()
    if word == "void" or word in HANDLES:
        return name, ctypes.c_void_p if stars == "*" else ctypes.POINTER(ctypes.c_void_p)
    kind = SCALARS[word] if word in SCALARS else STRUCTS[word]
    if length is not None:
        return name, kind * int(length)
    if not stars:
        return name, kind
    if addresses:
        return name, ctypes.c_void_p
    if word == "char":
        return name, ctypes.c_char_p if stars == "*" else ctypes.POINTER(ctypes.c_char_p)
    return name, ctypes.POINTER(kind)


@pytest.mark.parametrize("part", capi_header.PARTS)
def test_every_part_has_a_module_of_its_name(part: str) -> None:
    assert set(structures(part)) - {"DLDataType"} == set(capi_header.structs(part))
    special = {INSTRUCTION_SET} if part == "operators" else set()
    assert set(getattr(module(part), "SIGNATURES", {})) == set(capi_header.functions(part)) - special


def test_ctypes_knows_every_function() -> None:
    assert {*FUNCTIONS, *WITHOUT_CODE, INSTRUCTION_SET} == capi_header.declared()
    assert {*_abi._SIGNATURES, *_abi._OPERATORS, *module("cuda").SIGNATURES} == set(FUNCTIONS)
    assert sum(len(capi_header.functions(part)) for part in capi_header.PARTS) == len(FUNCTIONS) + 1


@pytest.mark.parametrize("name", sorted(STRUCTS.keys() - {"DLDataType"}))
def test_structs_are_those_of_the_header(name: str) -> None:
    part = STRUCTS[name].__module__.rsplit(".", 1)[1]
    members = [kind_of(member, part in ("operators", "cuda")) for member in capi_header.structs(part)[name]]
    if name == "fg_python_api":  # named after what Python calls the functions
        assert [kind for _, kind in members] == [kind for _, kind in STRUCTS[name]._fields_]
        return
    if name == "fg_version_info":
        members = [(member.removeprefix("size_"), kind) for member, kind in members]
    assert members == list(STRUCTS[name]._fields_)


def test_an_element_is_that_of_dlpack() -> None:
    fields = [("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16)]
    assert list(_abi.DataType._fields_) == fields
    body = r"typedef struct DLDataType \{\s*uint8_t code;\s*uint8_t bits;\s*uint16_t lanes;\s*\} DLDataType;"
    assert re.search(body, capi_header.text())


@pytest.mark.parametrize("name", FUNCTIONS)
def test_prototypes_are_those_of_the_header(name: str) -> None:
    *arguments, last = [" ".join(part.split()) for part in capi_header.functions(FUNCTIONS[name])[name].split(",")]
    assert last == "fg_error *err"
    have = module(FUNCTIONS[name]).SIGNATURES[name]
    if name == "fg_group":  # one of its pointers is an address, as `ptr` is in the structs beside it
        arguments[4] = arguments[4].replace("int64_t", "void")
    assert [kind_of(argument, addresses=False)[1] for argument in arguments] == list(have)


def test_the_numbers_are_those_of_the_header() -> None:
    base = capi_header.PARTS["base"].read_text()
    assert f"#define FG_ABI_VERSION {_abi.ABI_VERSION}\n" in base
    assert f"#define FG_AUTO ({_abi.AUTO})\n" in base
    assert _locking.LockAPI is STRUCTS["fg_lock_api"]
