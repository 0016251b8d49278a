"""Keywords that a loader has not: PyG's, those of the objects that options are grouped in, and misspelled ones."""

from __future__ import annotations

import dataclasses
import enum
import functools
import inspect
import warnings
from collections.abc import Mapping
from typing import Annotated, Any, get_args, get_origin, get_type_hints

from freshgo._args.checks import caller, flag, shown
from freshgo._args.choices import Subgraph
from freshgo._args.hints import nearest
from freshgo.errors import DTypeError, InvalidArgumentError
from freshgo.options import Disk, PyGOptions, Ranks
from freshgo.policies import Auto

_GROUPS = {"cache": Auto, "disk": Disk, "ranks": Ranks}
"""The objects of options, by the keyword that takes them."""

_warned: set[str] = set()


@functools.cache
def _of_pyg() -> tuple[dict[str, str], dict[str, Any]]:
    """Return why options of PyG are ignored, and the only values of the other ones."""
    ignored: dict[str, str] = {}
    only: dict[str, Any] = {}
    for name, kind in get_type_hints(PyGOptions, include_extras=True).items():
        if get_origin(kind) is Annotated:
            ignored[name] = kind.__metadata__[0]
        elif name != "directed":  # a type with one value
            only[name] = next(iter(get_args(kind)), None)
    return ignored, only


def check_pyg_options(options: Mapping[str, object], loader: type) -> None:
    """Warn once of options that mean nothing here, and refuse those that would change the batches and those that this
    class of loaders does not have."""
    ignored, only = _of_pyg() if options else ({}, {})
    for name, value in options.items():
        if name in ignored:
            if name not in _warned:
                _warned.add(name)
                warnings.warn(f"freshgo ignores {name}: {ignored[name]}", UserWarning, stacklevel=caller())
        elif name == "directed":
            continue  # see directed()
        elif name not in only:
            raise DTypeError(f"{loader.__name__}() got an unexpected keyword argument {name!r}{_hint(name, loader)}")
        elif getattr(value, "value", value) != only[name]:  # PyG also passes enumerations
            raise InvalidArgumentError(f"{name} is only supported as {only[name]!r}, got {shown(value)}")


def directed(options: Mapping[str, Any], subgraph_type: Subgraph | enum.Enum) -> Subgraph | enum.Enum:
    """Return the subgraph_type that PyG means by ``directed=``, with PyG's warning where that is another."""
    if flag("directed", options.get("directed", True)):
        return subgraph_type
    warnings.warn(
        "directed=False is deprecated, as in PyG: use subgraph_type='induced'", UserWarning, stacklevel=caller()
    )
    return "induced"


def _hint(name: str, loader: type) -> str:
    """Say which option is meant, and where it is."""
    grouped = {
        field.name: f"{keyword}={kind.__name__}({field.name}=...)"
        for keyword, kind in _GROUPS.items()
        for field in dataclasses.fields(kind)
    }
    grouped["reorder"] += " or cache=Online(name, reorder=...)"
    if name in grouped:
        return f": give {grouped[name]}"
    near = nearest(name, [*_names_of(loader), *grouped])
    return "" if near is None else f"; did you mean {grouped.get(near, repr(near))}?"


def _names_of(loader: type) -> list[str]:
    """The options of a class of loaders, and those of PyG that it takes."""
    made = [inspect.signature(vars(kind)["__init__"]) for kind in loader.__mro__[:-1] if "__init__" in vars(kind)]
    own = [
        option.name for by in made for option in list(by.parameters.values())[1:] if option.kind != option.VAR_KEYWORD
    ]
    return [*own, *get_type_hints(PyGOptions)]
