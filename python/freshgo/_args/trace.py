"""Traces of a heterogeneous graph as the policy laboratory reads them: one number for a node of any type."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import accumulate
from typing import Any

import torch
from torch import Tensor

from freshgo._args import checks
from freshgo._args.arrays import as_tensor
from freshgo.errors import DTypeError, InvalidArgumentError


def flat_trace(trace: Any, num_nodes: Any) -> tuple[Any, Any]:
    """Return a trace and the number of nodes; those of a homogeneous graph do not change.

    In a heterogeneous graph, batches are dicts of ids by node type. These are numbered one type after the other, in the
    order of ``num_nodes`` or else of the first batch, and the number of nodes is a dict.

    Raises:
        InvalidArgumentError: types that are not among the graph's, ids that are out of range of their type.
        DTypeError: some batches are dicts and others are not.
    """
    if isinstance(trace, str | Mapping) or not isinstance(trace, Iterable):
        return trace, num_nodes
    if hasattr(trace, "trace"):  # a loader, of which the loop would run an epoch
        raise DTypeError(f"trace must be a list of vectors of ids, got a {type(trace).__name__}: give its trace(epoch)")
    batches = list(trace)
    if not any(isinstance(batch, Mapping) for batch in batches):
        if isinstance(num_nodes, Mapping):
            raise DTypeError("num_nodes is a dict by node type, the trace holds vectors of ids")
        return batches, num_nodes
    if num_nodes is not None and not isinstance(num_nodes, Mapping):
        raise DTypeError(f"num_nodes must be a dict by node type, as the batches of the trace are, got {num_nodes!r}")
    for i, batch in enumerate(batches):
        if not isinstance(batch, Mapping):
            raise DTypeError(
                f"trace[{i}] must be a dict of ids by node type, as the others are, got {type(batch).__name__}"
            )
    typed = [
        {name: _ids(f"trace[{i}][{name!r}]", ids) for name, ids in batch.items()} for i, batch in enumerate(batches)
    ]
    counts = _counts(typed, num_nodes)
    firsts = dict(zip(counts, accumulate(counts.values(), initial=0), strict=False))
    flat = []
    for i, batch in enumerate(typed):
        for name, ids in batch.items():
            if name not in counts:
                raise InvalidArgumentError(
                    f"trace[{i}] has the node type {name!r}, expected {', '.join(map(repr, counts))}"
                )
            bad = ((ids < 0) | (ids >= counts[name])).nonzero()
            if bad.numel():
                at = int(bad[0])
                raise InvalidArgumentError(
                    f"trace[{i}][{name!r}][{at}] is {int(ids[at])}, expected an id in [0, {counts[name]}): "
                    "the trace of another graph?"
                )
        flat.append(torch.cat([ids + firsts[name] for name, ids in batch.items()]) if batch else torch.empty(0).long())
    return flat, counts


def _counts(batches: list[dict[str, Tensor]], num_nodes: Mapping[str, int] | None) -> dict[str, int]:
    if num_nodes is not None:
        return {name: checks.count(f"num_nodes[{name!r}]", count, 0) for name, count in num_nodes.items()}
    counts: dict[str, int] = {}
    for batch in batches:
        for name, ids in batch.items():
            counts[name] = max(counts.get(name, 0), 1 + int(ids.max()) if ids.numel() else 0)
    return counts


def _ids(where: str, ids: object) -> Tensor:
    try:
        vector = as_tensor(ids)
    except (TypeError, ValueError) as error:
        raise DTypeError(f"{where} must be a vector of ids: {error}") from None
    if vector.dim() != 1:
        raise InvalidArgumentError(f"{where} must be one-dimensional, got shape {list(vector.shape)}")
    if vector.numel() and (vector.dtype == torch.bool or vector.is_floating_point() or vector.is_complex()):
        raise DTypeError(f"{where} must hold integers, got {vector.dtype}")
    return vector.detach().to(device="cpu", dtype=torch.int64)
