"""Checks of what a user gives a loader; every message lists what is allowed."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from freshgo.errors import DTypeError, InvalidArgumentError

CACHES = ("degree", "none")
EDGE_INDEXES = ("tensor", "EdgeIndex")
ENGINES = ("auto", "io_uring", "pread", "buffered")

_MEANINGLESS = {
    "pin_memory": "batches are made in memory of the library",
    "pin_memory_device": "batches are made in memory of the library",
    "persistent_workers": "its threads live as long as the loader",
    "worker_init_fn": "it uses threads, not worker processes",
    "multiprocessing_context": "it uses threads, not worker processes",
    "prefetch_factor": "prefetch= counts the batches made ahead",
    "timeout": "it waits until a batch is ready, and Ctrl-C always works",
    "generator": "seed= and the epoch decide everything random",
    "in_order": "batches always come in order",
    "filter_per_worker": "rows are gathered by its threads",
    "is_sorted": "it sorts the edges itself",
}
_ONLY = {
    "subgraph_type": "directional",
    "directed": True,
    "disjoint": False,
    "temporal_strategy": "uniform",
    "time_attr": None,
    "input_time": None,
    "weight_attr": None,
    "transform_sampler_output": None,
    "neighbor_sampler": None,
    "custom_cls": None,
    "sampler": None,
    "batch_sampler": None,
    "collate_fn": None,
}
_warned: set[str] = set()


def check_pyg_options(options: Mapping[str, Any]) -> None:
    """Warn once of options that mean nothing here, and refuse those that would change the batches."""
    for name, value in options.items():
        if name in _MEANINGLESS:
            if name not in _warned:
                _warned.add(name)
                warnings.warn(f"freshgo ignores {name}: {_MEANINGLESS[name]}", UserWarning, stacklevel=3)
        elif name not in _ONLY:
            raise TypeError(f"Loader() got an unexpected keyword argument {name!r}")
        elif getattr(value, "value", value) != _ONLY[name]:  # PyG also passes enumerations
            raise InvalidArgumentError(f"{name} is only supported as {_ONLY[name]!r}, got {value!r}")


def count(name: str, value: object, minimum: int | None) -> int:
    """Return an int that is at least ``minimum``."""
    if isinstance(value, bool) or not isinstance(value, int | np.integer):
        raise DTypeError(f"{name} must be an int, got {value!r}")
    if minimum is not None and value < minimum:
        raise InvalidArgumentError(f"{name} must be at least {minimum}, got {value}")
    return int(value)


def flag(name: str, value: object) -> bool:
    """Return a bool."""
    if not isinstance(value, bool | np.bool_):
        raise DTypeError(f"{name} must be True or False, got {value!r}")
    return bool(value)


def choice(name: str, value: object, allowed: Sequence[str]) -> str:
    """Return one of ``allowed``."""
    if value not in allowed:
        raise InvalidArgumentError(f"{name} must be one of {', '.join(map(repr, allowed))}, got {value!r}")
    return str(value)


def fanouts(value: object) -> list[int]:
    """Return the neighbours per hop: each at least 1, or -1 for all."""
    if isinstance(value, Mapping):
        raise DTypeError("num_neighbors must be a list of ints: edge types (a dict) are not supported")
    if isinstance(value, str | bytes) or not isinstance(value, Sequence | np.ndarray | Tensor):
        raise DTypeError(f"num_neighbors must be a list of ints such as [15, 10, 5], got {value!r}")
    hops = [count(f"num_neighbors[{hop}]", _item(fanout), None) for hop, fanout in enumerate(value)]
    if not hops:
        raise InvalidArgumentError("num_neighbors must name at least one hop, got an empty list")
    for hop, fanout in enumerate(hops):
        if fanout != -1 and fanout < 1:
            raise InvalidArgumentError(f"num_neighbors[{hop}] must be at least 1, or -1 for all, got {fanout}")
    return hops


def _item(value: object) -> object:
    return value.item() if isinstance(value, Tensor) and value.dim() == 0 else value


def is_mask(value: object) -> bool:
    """Whether input nodes are given as a bool mask."""
    return getattr(value, "dtype", None) in (torch.bool, np.dtype(bool))


def input_nodes(value: object, num_nodes: int, split: Callable[[str], Tensor]) -> Tensor | None:
    """Return node ids as int64, None for every node. Ids are range-checked by the library."""
    if value is None:
        return None
    if isinstance(value, str):
        ids = split(value)
    elif isinstance(value, tuple) and value and isinstance(value[0], str):
        raise DTypeError(
            f"input_nodes as (node type, ids) needs a heterogeneous graph, which is not supported: {value[0]!r}"
        )
    else:
        try:
            ids = value if isinstance(value, Tensor) else torch.as_tensor(np.asarray(value))
        except (TypeError, ValueError) as error:
            raise DTypeError(f"input_nodes must be node ids, a bool mask, a split's name or None: {error}") from None
    if ids.dim() != 1:
        raise InvalidArgumentError(f"input_nodes must be one-dimensional, got shape {list(ids.shape)}")
    if ids.dtype == torch.bool:
        if ids.numel() != num_nodes:
            raise InvalidArgumentError(f"a mask of input_nodes must have {num_nodes} entries, got {ids.numel()}")
        ids = ids.nonzero().view(-1)
    if ids.numel() == 0:
        raise InvalidArgumentError("input_nodes are empty, expected at least one node")
    if ids.dtype.is_floating_point or ids.dtype.is_complex:
        raise DTypeError(f"input_nodes must be integers or a bool mask, got {ids.dtype}")
    return ids.to(device="cpu", dtype=torch.int64)
