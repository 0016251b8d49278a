"""What belongs to a graph as a whole, or to a type as a whole: every batch has it as it is, as in PyG.

A store keeps the tensors as attachments, and one description that says whose they are and holds everything else:
numbers, strings, and lists, tuples and dicts of these and of tensors.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from freshgo._args.arrays import Array, NpyFile, Stream
from freshgo._args.types import EdgeType, label_of
from freshgo.errors import FormatError

ATTACHMENT = "attributes"
"""What a store calls the description; the names of its tensors begin with it."""

Owner = str | EdgeType | None
"""A node type or edge type; None: the whole of a heterogeneous graph."""

Attributes = dict[Owner, dict[str, Any]]
"""By owner and name."""


def is_plain(value: object) -> bool:
    """Whether a store can keep a value: a number, a string, an array of numbers; a list, tuple or dict of these."""
    if value is None or isinstance(value, bool | int | float | str | NpyFile | Stream):
        return True
    if isinstance(value, Tensor):
        return value.layout == torch.strided and not value.is_meta
    if isinstance(value, np.ndarray | np.generic):
        return value.dtype.kind in "biufc"
    if isinstance(value, Mapping):
        return type(value) is dict and all(is_plain(part) for pair in value.items() for part in pair)
    return isinstance(value, list | tuple) and type(value) in (list, tuple) and all(is_plain(part) for part in value)


def written(attributes: Mapping[Owner, Mapping[str, Any]]) -> dict[str, Array]:
    """Return attributes as the attachments of a store; none where there are none."""
    attached: dict[str, Array] = {}
    described = []
    for owner, values in attributes.items():
        for name, value in values.items():
            label = f"{ATTACHMENT}/{'' if owner is None else label_of(owner)}{name}"
            described.append([owner, name, _Writer(label, attached).described(value)])
    if described:
        attached[ATTACHMENT] = np.frombuffer(json.dumps(described).encode(), np.uint8)
    return attached


@dataclasses.dataclass
class _Writer:
    """Describes one attribute. A list of one element is a value of its own kind, so that a reader can tell them."""

    label: str
    attached: dict[str, Array]

    def described(self, value: Any) -> Any:
        if isinstance(value, Tensor | np.ndarray | np.generic | NpyFile | Stream):
            return self._tensor(value)
        if isinstance(value, list | tuple):
            return {type(value).__name__: [self.described(part) for part in value]}
        if isinstance(value, dict):
            return {"dict": [[self.described(key), self.described(part)] for key, part in value.items()]}
        return value

    def _tensor(self, value: Any) -> Any:
        kind = "array" if isinstance(value, np.ndarray | np.generic) else "tensor"
        array = np.asarray(value) if isinstance(value, np.generic) else value
        shape, dtype = list(array.shape), str(array.dtype).removeprefix("torch.")
        name = self.label
        while name in self.attached or name == ATTACHMENT:
            name += "'"
        if 0 not in shape:
            self.attached[name] = _flat(array)
        return {kind: {"in": name, "shape": shape, "dtype": dtype}}


def _flat(array: Any) -> Array:
    """Return the numbers of an array in C order, as a row each; a complex number is a row of two."""
    if isinstance(array, Stream):
        return dataclasses.replace(array, shape=(int(np.prod(array.shape, dtype=object)),))
    if isinstance(array, NpyFile):
        array = np.memmap(array.path, array.dtype, "r", array.offset, array.shape, "F" if array.fortran else "C")
    if isinstance(array, np.ndarray):
        flat = np.ascontiguousarray(array).reshape(-1)
        return flat.view(flat.real.dtype) if flat.dtype.kind == "c" else flat
    flat_tensor = array.detach().as_subclass(Tensor).resolve_neg().resolve_conj().contiguous().view(-1)
    return torch.view_as_real(flat_tensor).view(-1) if flat_tensor.is_complex() else flat_tensor


def read(described: Tensor, load: Callable[[str], Tensor]) -> Attributes:
    """Return the attributes that bytes describe; ``load`` reads an attachment.

    Raises:
        FormatError: they describe none.
    """
    found: Attributes = {}
    try:
        for owner, name, value in json.loads(described.numpy().tobytes()):
            found.setdefault(tuple(owner) if isinstance(owner, list) else owner, {})[str(name)] = _value(value, load)
    except (ValueError, KeyError, TypeError, AttributeError, RuntimeError) as error:
        raise FormatError(f"the description of the store's attributes is not valid: {error}") from None
    return found


def _value(described: Any, load: Callable[[str], Tensor]) -> Any:
    if not isinstance(described, dict):
        return described
    ((kind, of),) = described.items()
    if kind == "list":
        return [_value(part, load) for part in of]
    if kind == "tuple":
        return tuple(_value(part, load) for part in of)
    if kind == "dict":
        return {_value(key, load): _value(part, load) for key, part in of}
    if kind not in ("tensor", "array"):
        raise ValueError(f"there is no kind {kind!r}")
    dtype = getattr(torch, of["dtype"])
    shape = torch.Size(of["shape"])
    flat = load(of["in"]) if shape.numel() else torch.empty(0, dtype=dtype)
    if dtype.is_complex and shape.numel():
        flat = torch.view_as_complex(flat.view(-1, 2))
    tensor = flat.view(shape)
    return tensor.numpy() if kind == "array" else tensor


def mapped(value: Any, function: Callable[[Tensor], Tensor]) -> Any:
    """Return a value with ``function`` applied to its tensors; the same object where it has none."""
    if isinstance(value, Tensor):
        return function(value)
    if isinstance(value, list | tuple):
        parts = [mapped(part, function) for part in value]
        return value if all(a is b for a, b in zip(parts, value, strict=True)) else type(value)(parts)
    if isinstance(value, dict):
        return {key: mapped(part, function) for key, part in value.items()}
    return value


def is_attached(name: str) -> bool:
    """Whether an attachment of a store is the description of attributes or one of their tensors."""
    return name == ATTACHMENT or name.startswith(f"{ATTACHMENT}/")


def n_bytes(attachments: Mapping[str, Mapping[str, Any]]) -> int:
    """Return the bytes of attributes among the attachments of a store."""
    of = [array for name, array in attachments.items() if is_attached(name)]
    return sum(torch.Size(array["shape"]).numel() * getattr(torch, array["dtype"]).itemsize for array in of)
