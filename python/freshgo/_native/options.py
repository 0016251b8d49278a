"""Options of the library: Python values by the names of the C members, and the structs that they fill."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import torch

from freshgo._native import header
from freshgo._native.dlpack import c_string
from freshgo.errors import InvalidArgumentError

Struct = TypeVar("Struct", bound=ctypes.Structure)

LoaderOptions = dict[str, Any]
"""Members of ``fg_loader_options``, as :func:`filled` takes them. The lengths of arrays are left out."""

_CHOSEN: LoaderOptions = {
    **dict.fromkeys(("feature_cache", "neighbor_cache", "trace_memory", "buffer_memory", "scratch_size")),
    **dict.fromkeys(("superbatch", "reorder_rows")),
    **dict.fromkeys(("carry_over", "lookahead"), True),
}


def loader_options(**given: Any) -> LoaderOptions:
    """Options of a loader. Options that are not given are chosen by the library, or zero."""
    return {**_CHOSEN, **given}


def filled(kind: type[Struct], members: Mapping[str, Any]) -> Struct:
    """A struct with these members; all others are zero. It keeps alive what it points to.

    ``None`` is ``FG_AUTO`` of an integer and NULL of a pointer. For a pointer to numbers the value is a contiguous
    tensor, which is used in place, or a sequence; for a pointer to structs it is a mapping of its members, or a
    sequence of mappings or tuples. Where the struct has a member ``num_NAME``, it becomes the length of ``NAME``.
    """
    raw: Any = kind()
    types = {name: of for name, of, *_ in kind._fields_}
    alive: list[Any] = []
    if "struct_size" in types:
        members = {"struct_size": ctypes.sizeof(kind), **members}
    for name, value in members.items():
        if name not in types:
            raise TypeError(f"{kind.__doc__} has no member {name!r}")
        converted = _converted(types[name], value)
        setattr(raw, name, converted)
        alive += [value, converted]
        if value is not None and f"num_{name}" in types:
            setattr(raw, f"num_{name}", len(value))
    raw._alive = alive
    return raw  # type: ignore[no-any-return]


def _converted(kind: Any, value: Any) -> Any:
    """A value as a member of this type takes it."""
    element = kind._type_ if issubclass(kind, ctypes._Pointer) else None
    if value is None:
        return header.AUTO if kind in (ctypes.c_int32, ctypes.c_int64) else None
    if kind is ctypes.c_char_p:
        return os.fsencode(value) if isinstance(value, os.PathLike) else c_string(value)
    if element is None:
        return value
    if isinstance(value, torch.Tensor):
        if value.dtype != _DTYPES[element] or not value.is_contiguous():
            raise TypeError(f"expected a contiguous tensor of {_DTYPES[element]}, got one of {value.dtype}")
        return pointer_to(value, element)
    if isinstance(value, Mapping):
        return ctypes.pointer(filled(element, value))
    if isinstance(value, ctypes.Array):
        return value
    return (element * len(value))(*(_element(element, one) for one in value))


def _element(kind: Any, value: Any) -> Any:
    if isinstance(value, Mapping):
        return filled(kind, value)
    return kind(*value) if isinstance(value, tuple) else value


_DTYPES = {
    ctypes.c_int32: torch.int32,
    ctypes.c_int64: torch.int64,
    ctypes.c_float: torch.float32,
    ctypes.c_double: torch.float64,
}


def pointer_to(tensor: torch.Tensor, kind: Any) -> Any:
    """A pointer to the first element of a tensor, which the caller keeps alive."""
    return ctypes.cast(ctypes.c_void_p(tensor.data_ptr()), ctypes.POINTER(kind))  # 0, of an empty one, is NULL


def relations(fanouts: Sequence[Sequence[int]]) -> LoaderOptions:
    """Return the options for the neighbours per hop of each relation."""
    return {
        "num_hops": len(fanouts[0]) if fanouts else 0,
        "num_relations": len(fanouts),
        "fanouts": [fanout for hops in fanouts for fanout in hops],
    }


def raw_options(options: LoaderOptions) -> header.LoaderOptions:
    """The struct of a loader's options. It has a copy of the seeds: the library reads them in every epoch, and the
    caller may change the tensor."""
    seeds = options.get("seeds")
    if seeds is not None:
        if seeds.dtype != torch.int64 or seeds.dim() != 1:
            raise InvalidArgumentError(
                f"seeds must be a one-dimensional int64 tensor, got {seeds.dtype} of shape {tuple(seeds.shape)}"
            )
        seeds = seeds.detach().to("cpu", copy=True).contiguous()
    return filled(header.LoaderOptions, {**options, "seeds": seeds, "all_nodes": seeds is None})


@dataclass(frozen=True)
class Span:
    """A number of iterations, or of epochs; ``math.inf`` for ever."""

    count: float
    epochs: bool


@dataclass(frozen=True, kw_only=True)
class Settings:
    """A history's options as the loader that it is bound to takes them: ``history._entries.settings``."""

    policy: str
    """"performance", "gradient" or "all": every computed row, for ever, in a slot of its own."""
    p_grad: float
    t_stale: Span
    start: Span
    memory: int | None
    """Bytes of the buffer; None lets the loader choose."""
    device: torch.device | None
    """Where the buffer is; None is the CPU, where the loader allocates it."""
    lag: int
    aggregates: bool
    """Whether entries hold what a layer adds up."""
    levels: int
    """The kept hidden levels, level l at bit l - 1; 0: all."""
    probe_every: int
    """Every ``probe_every``-th iteration is not pruned and brings probes; 0: none."""

    @property
    def outside(self) -> bool:
        """Whether the buffer is no part of the loader's memory."""
        return self.device is not None and self.device.type != "cpu"

    def members(self) -> dict[str, Any]:
        """The members of ``fg_history_options``."""
        return {
            "lag": self.lag,
            "p_grad": self.p_grad,
            "t_stale": self.t_stale.count,
            "t_stale_epochs": self.t_stale.epochs,
            "start": self.start.count,
            "start_epochs": self.start.epochs,
            "policy": self.policy,
            "memory": self.memory,
            "outside": self.outside,
            "aggregates": self.aggregates,
            "levels": self.levels,
            "probe_every": self.probe_every,
        }
