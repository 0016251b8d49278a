"""A description of tables in a file, for the command line."""

from __future__ import annotations

import dataclasses
import importlib
import json
from pathlib import Path
from typing import Any

from freshgo._args.hints import did_you_mean
from freshgo._args.npy_files import TYPE_SEPARATOR
from freshgo._args.urls import is_url
from freshgo._tables.table import Table, paths_of
from freshgo.errors import FormatError, InvalidArgumentError, ReadError, StoreNotFoundError

_OPTIONS = {field.name for field in dataclasses.fields(Table)}
_EXPECTED = {"nodes", "edges", "missing"}


def read_spec(path: Path) -> dict[str, Any]:
    """Read a JSON or TOML file with ``nodes``, ``edges`` and perhaps ``missing``, as ``convert_tables`` takes them.

    An edge type is written ``"user__buys__item"``. Paths are relative to the file. ``nodes`` and ``edges`` of a
    homogeneous graph are one table each: an object with ``source``.

    Raises:
        StoreNotFoundError, ReadError: the file cannot be read.
        FormatError: it is neither JSON nor TOML. InvalidArgumentError: it holds something else.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError as error:
        raise StoreNotFoundError(error.errno, "no such description of tables", str(path)) from None
    except OSError as error:
        raise ReadError(error.errno, error.strerror, str(path)) from error
    except UnicodeDecodeError as error:
        raise FormatError(f"{path}: not UTF-8: {error}") from error
    given = _parsed(path, text)
    if not isinstance(given, dict):
        raise InvalidArgumentError(f"{path}: expected nodes, edges and perhaps missing, got {type(given).__name__}")
    _check_keys(path, "", given, _EXPECTED)
    if "edges" not in given:
        raise InvalidArgumentError(f"{path}: expected nodes, edges and perhaps missing, got {sorted(given)}")
    tables = {name: _tables(path, name, given[name]) for name in ("nodes", "edges") if name in given}
    return {"nodes": None, **given, **tables}


def _parsed(path: Path, text: str) -> Any:
    if path.suffix.lower() == ".toml":
        try:
            tomllib = importlib.import_module("tomllib")
        except ImportError as error:
            raise FormatError(f"{path}: TOML needs Python 3.11, give a JSON file") from error
        read: Any = tomllib.loads
    else:
        read = json.loads
    try:
        return read(text)
    except ValueError as error:
        raise FormatError(f"{path}: expected JSON, or TOML in a file named *.toml: {error}") from error


def _tables(path: Path, name: str, given: Any) -> Any:
    if not isinstance(given, dict):
        raise InvalidArgumentError(f"{path}: {name} must be a table or tables by type, got {given!r}")
    if isinstance(given.get("source"), str | list):
        return _table(path, name, given)
    tables = {}
    for key, of in given.items():
        parts = tuple(key.split(TYPE_SEPARATOR))
        if len(parts) != (1 if name == "nodes" else 3):
            expected = "user" if name == "nodes" else TYPE_SEPARATOR.join(("user", "buys", "item"))
            raise InvalidArgumentError(f"{path}: {name} has the type {key!r}, expected a name such as {expected!r}")
        tables[key if name == "nodes" else parts] = _table(path, f"{name}[{key!r}]", of)
    return tables


def _table(path: Path, label: str, given: Any) -> Table:
    if not isinstance(given, dict):
        raise InvalidArgumentError(f"{path}: {label} must be a table with source, got {given!r}")
    _check_keys(path, f"{label}: ", given, _OPTIONS)
    if "source" not in given:
        raise InvalidArgumentError(f"{path}: {label} needs source, a path or a list of paths, got {sorted(given)}")
    paths = paths_of(given["source"])
    if paths is None:
        raise InvalidArgumentError(f"{path}: the source of {label} must be a path or a list of paths")
    return Table(**{**given, "source": [one if is_url(one) else path.parent / one for one in paths]})


def _check_keys(path: Path, label: str, given: dict[str, Any], known: set[str]) -> None:
    """Refuse a key that is misspelled."""
    for key in given:
        if key not in known:
            hint = did_you_mean(key, known) or f"; expected one of {', '.join(sorted(known))}"
            raise InvalidArgumentError(f"{path}: {label}unknown key {key!r}{hint}")
