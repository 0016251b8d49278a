"""What ``convert(dtype=...)`` says: which tensors are stored in fewer bytes, and how."""

from __future__ import annotations

from collections.abc import Mapping

import torch

from freshgo._args.checks import choice, shown
from freshgo._args.choices import Form
from freshgo._args.hints import among
from freshgo._args.parts import GraphParts
from freshgo._args.types import UNNAMED, EdgeType
from freshgo.errors import DTypeError, InvalidArgumentError

Forms = dict[str | EdgeType, dict[str, str]]
"""The form of every tensor that is stored in fewer bytes, by node type or edge type and by name."""


def forms_of(parts: GraphParts, dtype: object) -> Forms:
    """Return the forms that ``dtype`` asks for, for the types and tensors of this graph."""
    if dtype is None:
        return {}
    if not isinstance(dtype, Mapping):
        raise DTypeError(f"dtype must be a mapping from names of tensors to dtypes, got {shown(dtype)}")
    tensors: dict[str | EdgeType, list[str]] = {node: list(of.tensors) for node, of in parts.nodes.items()}
    tensors.update({edge: list(of.tensors) for edge, of in parts.edges.items()})
    forms: Forms = {}
    for key, value in dtype.items():
        if not isinstance(value, Mapping):
            owners = [owner for owner, names in tensors.items() if key in names]
            if not owners:
                known = sorted({name for names in tensors.values() for name in names})
                raise InvalidArgumentError(
                    f"dtype names the tensor {key!r}, which the graph does not have; it has {among(key, known)}"
                )
            for owner in owners:
                forms.setdefault(owner, {})[key] = _form(f"dtype[{key!r}]", value)
            continue
        if key not in tensors or key in ("", UNNAMED):
            known_types = [owner for owner in tensors if owner not in ("", UNNAMED)]
            raise InvalidArgumentError(
                f"dtype names the type {key!r}, which the graph does not have; it has {among(key, known_types)}"
            )
        for name, form in value.items():
            if name not in tensors[key]:
                raise InvalidArgumentError(
                    f"dtype names the tensor {name!r} of {key!r}, which has {among(name, tensors[key])}"
                )
            forms.setdefault(key, {})[name] = _form(f"dtype[{key!r}][{name!r}]", form)
    return forms


def _form(name: str, value: object) -> str:
    if isinstance(value, torch.dtype):
        value = str(value).removeprefix("torch.")
    return str(choice(name, value, Form))
