"""What one batch on demand is made for: the members of ``fg_ask``, and the request that it is arranged by."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from freshgo._args import checks
from freshgo._args.arrays import as_tensor
from freshgo._args.times import times_of
from freshgo._data.source import Source
from freshgo._loader.link_inputs import edge_label_index
from freshgo._loader.request import Request
from freshgo.errors import DTypeError, InvalidArgumentError

Ask = dict[str, Any]
"""Members of ``fg_ask``."""


def places(index: object) -> Ask:
    """Return the question for these places in a loader's input nodes, or links."""
    try:
        ids = as_tensor(index)
    except (TypeError, ValueError) as error:
        raise DTypeError(f"index must be a list or tensor of integers, got {checks.shown(index)}: {error}") from None
    if ids.dim() == 1 and ids.numel() == 0:
        raise InvalidArgumentError("index is empty, expected at least one position")
    if ids.dtype == torch.bool or ids.is_floating_point() or ids.is_complex():
        raise DTypeError(f"index must hold integers, got {ids.dtype}")
    if ids.dim() != 1:
        hint = f": for one place give [{int(ids)}]" if ids.dim() == 0 else ""
        raise InvalidArgumentError(f"index must be one-dimensional, got shape {list(ids.shape)}{hint}")
    return {"inputs": _owned(ids)}


def are_ends(index: object) -> bool:
    """Whether they are ends of links, ``[2, num_links]``, and not places of links."""
    try:
        return as_tensor(index).dim() == 2
    except (TypeError, ValueError):
        return False


def nodes(request: Request, source: Source, ids: object, time: object) -> tuple[Ask, Request]:
    """Return the question for nodes, which are given as ``input_nodes`` are, and the request of a loader over them."""
    assert request.inputs is not None  # a LinkLoader asks for links
    own = list(request.inputs.config)
    if not request.types.homogeneous and len(own) == 1 and _bare(ids):
        ids = (own[0], ids)
    inputs = request.types.inputs(ids, source.split, source.splits)
    seeds = torch.arange(request.types.total) if inputs.seeds is None else _owned(inputs.seeds)
    ask: Ask = {"seeds": seeds}
    if time is not None:
        ask["times"] = _times(request, inputs.counts, time)
    return ask, dataclasses.replace(request, inputs=inputs)


def links(request: Request, index: object, time: object) -> tuple[Ask, Request]:
    """Return the question for links of the loader's edge type, and the request of a loader over them."""
    assert request.links is not None  # a Loader asks for nodes
    ends = edge_label_index(index)
    if ends is None:
        raise DTypeError("edge_label_index must be integers of shape [2, num_links], got None")
    ask: Ask = {"sources": ends[0], "targets": ends[1], "num_links": ends.size(1)}
    if time is not None:
        _check_timed(request)
        ask["times"] = _at_once("time", time, ends.size(1), "link")
    own = dataclasses.replace(request.links, index=ends, label=None)
    return ask, dataclasses.replace(request, links=own)


def _bare(ids: object) -> bool:
    """Whether they are ids without a node type."""
    if isinstance(ids, Tensor | np.ndarray | range):
        return True
    named = isinstance(ids, tuple) and len(ids) == 2 and isinstance(ids[0], str)
    return isinstance(ids, Sequence) and not isinstance(ids, str) and not named


def _check_timed(request: Request) -> None:
    if request.trees.time_attr is None:
        raise InvalidArgumentError("time needs a loader with time_attr, the name of a tensor of times")


def _times(request: Request, counts: dict[str, int], time: object) -> Tensor:
    """Return a time for each node: one for all, or one for each in the order of the nodes, by type where several."""
    _check_timed(request)
    if not isinstance(time, Mapping):
        return _at_once("time", time, sum(counts.values()), "node")
    by_type: dict[str, Any] = {
        key: _at_once(f"time[{key!r}]", value, counts.get(key, 0), "node") for key, value in time.items()
    }
    trees = dataclasses.replace(request.trees, input_time=None, by_type=by_type).of_inputs(counts)
    assert trees.input_time is not None  # made of those by type
    return trees.input_time


def _at_once(name: str, time: object, count: int, each: str) -> Tensor:
    if isinstance(time, int | np.integer) and not isinstance(time, bool):
        return torch.full((count,), int(time), dtype=torch.int64)
    times = times_of(name, time, each)
    if times.numel() != count:
        raise InvalidArgumentError(f"{name} must have a time for each of {count} {each}s, got {times.numel()}")
    return times


def _owned(ids: Tensor) -> Tensor:
    return ids.detach().to("cpu", torch.int64).contiguous()
