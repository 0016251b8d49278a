"""No module of freshgo imports itself by way of others, and its rooms depend on each other in one direction; so do the
files of ``csrc``.

A room is a private sub-package, or a public module. Imports within functions count, and those under ``TYPE_CHECKING``.
"""

from __future__ import annotations

import ast
import graphlib
import importlib
import inspect
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import freshgo

PACKAGE = Path(__file__).resolve().parents[2] / "freshgo"

CSRC = PACKAGE.parents[1] / "csrc"

LEAVES = {"_args", "errors"}

ALLOWED: dict[str, set[str]] = {
    "errors": set(),
    "_args": {"errors"},
    "_observe": {"_args"},
    "_batch": LEAVES,
    "_native": {*LEAVES, "_observe"},
    "_plots": LEAVES,
    "memory": LEAVES,
    "options": {*LEAVES, "history", "memory", "nn", "policies", "samplers"},
    "policies": LEAVES,
    "samplers": LEAVES,
    "plan": {"_args", "_plots"},
    "batch": {"_args", "_batch"},
    "levels": {"_args"},
    "heterobatch": {"_args", "_batch"},
    "_remote": {*LEAVES, "loader", "store"},
    "pyg": {*LEAVES, "_batch", "_remote", "options", "store"},
    "ids": {*LEAVES, "_native"},
    "_store": {*LEAVES, "_native", "ids"},
    "store": {*LEAVES, "_native", "_store", "ids"},
    "_data": {*LEAVES, "_native", "_sources", "ops", "store"},
    "_ops": {"_batch", "_native", "errors"},
    "_traced": LEAVES,
    "_history": {*LEAVES, "_batch", "_native", "_ops", "_traced"},
    "history": {*LEAVES, "_batch", "_history", "_native", "_observe", "_ops", "_plots"},
    "ops": {"_args", "_batch", "_native", "_ops", "errors"},
    "_nn": {*LEAVES, "_batch", "_host", "_native", "_ops", "_staging", "_traced", "ops", "store", "update"},
    "nn": {"_nn"},
    "optim": {*LEAVES, "_host", "_nn"},
    "_device": {*LEAVES, "_data", "_native", "_observe", "policies"},
    "_loader": {
        *LEAVES,
        "_batch",
        "_data",
        "_device",
        "_host",
        "_native",
        "_observe",
        "_plots",
        "batch",
        "heterobatch",
        "memory",
        "options",
        "plan",
        "policies",
        "samplers",
    },
    "_host": {"errors"},
    "_host_loader": {"_args", "_data", "_host", "_loader", "_native", "errors"},
    "_row_exchange": {*LEAVES, "_data", "_host", "_device", "_loader", "_native", "policies", "store"},
    "loader": {
        *("_args", "_batch", "_data", "_loader", "_native", "_host_loader", "_row_exchange"),
        *("history", "memory", "options", "policies", "samplers"),
    },
    "_factored": {*LEAVES, "_data", "_device", "_host", "_loader", "_native", "_observe", "_host_loader"},
    "factored": {*LEAVES, "_data", "_device", "_factored", "_loader", "_plots", "loader", "memory"},
    "distributed": {*LEAVES, "_host", "_loader", "loader"},
    "lightning": {*LEAVES, "_data", "_loader", "links", "loader", "memory", "options", "store"},
    "links": {*LEAVES, "_data", "_loader", "loader", "options", "samplers"},
    "lab": {*LEAVES, "_data", "_loader", "_native", "_plots", "policies", "samplers"},
    "relayout": {*LEAVES, "_native", "lab", "policies", "store"},
    "propagate": {*LEAVES, "_data", "_native", "store"},
    "_infer": {*LEAVES, "_staging", "_traced", "_urls", "_data", "_native", "ids", "loader", "ops", "options", "store"},
    "infer": {*LEAVES, "_infer", "_traced", "nn", "store"},
    "shard": {
        *LEAVES,
        *("_native", "_row_exchange", "_sources", "_staging"),
        *("convert", "policies", "relayout", "store", "update"),
    },
    "update": {*LEAVES, "_data", "_native", "store"},
    "append": {*LEAVES, "_native", "store"},
    "_staging": LEAVES,
    "_urls": {*LEAVES, "_staging"},
    "_sources": {*LEAVES, "_observe", "_staging", "_urls"},
    "convert": {*LEAVES, "_data", "_native", "_sources", "relayout", "store"},
    "_text": LEAVES,
    "_tables": {*LEAVES, "_observe", "_staging", "_text", "_urls"},
    "tables": {*LEAVES, "_staging", "_tables", "convert", "relayout", "store"},
    "transfer": {*LEAVES, "_staging", "_urls", "store"},
    "demo": {*LEAVES, "_plots", "convert", "loader", "plan"},
    "_cli": {
        *("_args", "_native", "_tables", "append", "convert", "demo", "freshgo", "infer"),
        *("propagate", "relayout", "shard", "store", "tables", "transfer", "update"),
    },
    "cli": {"_cli", "errors"},
    "__main__": {"cli"},
}
"""What each room may import. The package itself, ``freshgo``, may import every public module."""


def module_name(path: Path) -> str:
    parts = ("freshgo", *path.relative_to(PACKAGE).with_suffix("").parts)
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = {module_name(path): path for path in sorted(PACKAGE.rglob("*.py"))}


def imports(name: str) -> Iterator[str]:
    """The modules of freshgo that a module imports, wherever it does."""
    for node in ast.walk(ast.parse(MODULES[name].read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name in MODULES)
        elif isinstance(node, ast.ImportFrom):
            assert not node.level, f"{name} imports relatively"
            for alias in node.names:
                inner = f"{node.module}.{alias.name}"
                found = inner if inner in MODULES else node.module
                if found in MODULES and found != name:
                    yield found


GRAPH = {name: set(imports(name)) for name in MODULES}


def room(module: str) -> str:
    return module.split(".")[1] if "." in module else module


def test_the_imports_are_found() -> None:
    assert "freshgo._native.loader" in GRAPH["freshgo._loader.batch_makers"]
    assert "freshgo._batch.pyg_batches" in GRAPH["freshgo._loader.arrange"]  # within a function
    assert "freshgo.policies" in GRAPH["freshgo.lab"]
    assert len(MODULES) > 80


def test_no_module_imports_itself_by_way_of_others() -> None:
    list(graphlib.TopologicalSorter(GRAPH).static_order())  # a CycleError names the circle


@pytest.mark.parametrize("name", [name for name in MODULES if name != "freshgo"])
def test_rooms_import_what_they_may(name: str) -> None:
    found = {room(other) for other in GRAPH[name]} - {room(name)}
    assert found <= ALLOWED[room(name)], f"{name} imports {sorted(found - ALLOWED[room(name)])}"


def test_the_table_is_of_the_rooms_and_has_one_direction() -> None:
    rooms: dict[str, set[str]] = {}
    for name, others in GRAPH.items():
        rooms.setdefault(room(name), set()).update(room(other) for other in others)
    rooms = {name: others - {name} for name, others in rooms.items() if name != "freshgo"}
    assert rooms == ALLOWED
    list(graphlib.TopologicalSorter(ALLOWED).static_order())


def test_a_room_exports_nothing_itself() -> None:
    for path in PACKAGE.glob("_*/__init__.py"):
        body = ast.parse(path.read_text()).body
        assert len(body) == 1, f"{path} has more than its docstring"


def test_only_public_modules_lie_flat() -> None:
    flat = {path.stem for path in PACKAGE.glob("_*.py")}
    assert flat == {"__init__", "__main__"}


def test_names_that_are_imported_later_are_those_of_type_checkers() -> None:
    tree = ast.parse(MODULES["freshgo"].read_text())
    (guarded,) = (node.body for node in tree.body if isinstance(node, ast.If) and isinstance(node.test, ast.Name))
    for_checkers = {
        alias.name: node.module for node in guarded if isinstance(node, ast.ImportFrom) for alias in node.names
    }
    later = {name: f"freshgo.{module}" for module, names in freshgo._LATER.items() for name in names}
    modules = dict.fromkeys(freshgo._MODULES, "freshgo")
    assert for_checkers == later | modules
    for name in set(later) & set(freshgo._LATER):  # Python puts the module in the place of the function
        importlib.import_module(f"freshgo.{name}")
        assert inspect.isfunction(getattr(freshgo, name)), name
    assert set(freshgo.__all__) <= set(dir(freshgo))
    for name in freshgo.__all__:
        assert getattr(freshgo, name) is getattr(freshgo, name) is not None
    with pytest.raises(AttributeError, match="module 'freshgo' has no attribute 'Loadr'"):
        freshgo.Loadr  # noqa: B018


def classes_of(name: str) -> Iterator[ast.ClassDef]:
    """The classes of a module, those within classes and functions included."""
    return (node for node in ast.walk(ast.parse(MODULES[name].read_text())) if isinstance(node, ast.ClassDef))


CLASSES = {(name, node.name): node for name in MODULES for node in classes_of(name)}

IMPORTED = {
    (name, alias.name): (node.module, alias.name)
    for name, path in MODULES.items()
    for node in ast.walk(ast.parse(path.read_text()))
    if isinstance(node, ast.ImportFrom)
    for alias in node.names
}


def methods_of(module: str, name: str) -> set[str]:
    """The methods of a class, and those that it inherits from classes of freshgo."""
    node = CLASSES[module, name]
    methods = {member.name for member in node.body if isinstance(member, ast.FunctionDef | ast.AsyncFunctionDef)}
    for base in node.bases:
        base = base.value if isinstance(base, ast.Subscript) else base
        if isinstance(base, ast.Name):
            here = (module, base.id)
            there = here if here in CLASSES else IMPORTED.get(here)
            if there in CLASSES:
                methods |= methods_of(*there)
    return methods


def test_inherited_methods_count() -> None:
    assert {"state_dict", "sample", "num_neighbors"} <= methods_of("freshgo.links", "LinkLoader")


def test_classes_have_at_most_25_methods_unless_all_are_public() -> None:
    large = {key: methods for key in CLASSES if len(methods := methods_of(*key)) > 25}
    private = {key: [name for name in large[key] if re.match("_(?!_)", name)] for key in large}
    assert not {key: (len(large[key]), names) for key, names in private.items() if names}


def test_files_have_at_most_400_lines() -> None:
    lines = {name: len(path.read_text().splitlines()) for name, path in MODULES.items()}
    lines.pop("freshgo._native.header", None)  # each build generates it from the header of C
    assert not {name: count for name, count in lines.items() if count > 400}


def test_no_c_file_calls_itself_by_way_of_others() -> None:
    texts = {path.name: re.sub(r"/\*.*?\*/", "", path.read_text(), flags=re.DOTALL) for path in CSRC.glob("*.c")}
    begins = re.compile(r"^[a-z_][\w *]*?\b(fgi?_\w+)\([^;{}]*\)\s*\{", re.MULTILINE)
    owner = {name: file for file, text in texts.items() for name in begins.findall(text)}
    assert owner["fgi_buffer_acquire"] == "buffer.c"
    calls = {
        file: {owner[name] for name in re.findall(r"\bfgi?_\w+", text) if name in owner} - {file}
        for file, text in texts.items()
    }
    list(graphlib.TopologicalSorter(calls).static_order())  # a CycleError names the circle
