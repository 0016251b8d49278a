"""Traces as the policy laboratory reads them: vectors of numbers that run over the nodes of all node types."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import accumulate
from typing import Any

import torch
from torch import Tensor

from freshgo._args import checks
from freshgo._args.arrays import as_tensor
from freshgo.errors import DTypeError, InvalidArgumentError


def flat_trace(trace: Any, num_nodes: Any) -> tuple[list[Tensor], dict[str, int] | None]:
    """Return the batches as int32 or int64 vectors, and the number of nodes of each node type.

    The batches of a heterogeneous graph are dicts of ids by node type. They are numbered one type after the other, in
    the order of ``num_nodes`` or else in that of their first appearance. A homogeneous graph has one unnamed node
    type, whose ids do not change; how many nodes it has is only known if it is given.

    Raises:
        InvalidArgumentError: no batch, an unknown node type, an id that is out of range of its type.
        DTypeError: batches that are no vectors of integers, or only some of them dicts.
    """
    if isinstance(trace, str | Mapping) or not isinstance(trace, Iterable):
        raise DTypeError(f"trace must be a list of vectors of ids, one per batch, got {type(trace).__name__}")
    if hasattr(trace, "trace"):  # a loader: iterating it would run an epoch
        raise DTypeError(f"trace must be a list of vectors of ids, got a {type(trace).__name__}: give its trace(epoch)")
    batches = list(trace)
    if not batches:
        raise InvalidArgumentError("trace must hold at least one batch, got none")
    named = any(isinstance(batch, Mapping) for batch in batches)
    if named and num_nodes is not None and not isinstance(num_nodes, Mapping):
        raise DTypeError(f"num_nodes must be a dict by node type, as the batches of the trace are, got {num_nodes!r}")
    if not named:
        if isinstance(num_nodes, Mapping):
            raise DTypeError("num_nodes must be an int, as the trace holds vectors of ids, got a dict")
        counts = None if num_nodes is None else {"": checks.count("num_nodes", num_nodes, 1)}
        return [_ids(f"trace[{i}]", ids) for i, ids in enumerate(batches)], counts
    by_type = [_by_type(i, batch) for i, batch in enumerate(batches)]
    counts = _counts(by_type, num_nodes)
    firsts = dict(zip(counts, accumulate(counts.values(), initial=0), strict=False))
    flat = []
    for i, batch in enumerate(by_type):
        _check_range(i, batch, counts)
        flat.append(torch.cat([ids + firsts[name] for name, ids in batch.items()]) if batch else torch.empty(0).long())
    return flat, counts


def _by_type(i: int, batch: Any) -> dict[str, Tensor]:
    if not isinstance(batch, Mapping):
        raise DTypeError(
            f"trace[{i}] must be a dict of ids by node type, as the others are, got {type(batch).__name__}"
        )
    return {name: _ids(f"trace[{i}][{name!r}]", ids).long() for name, ids in batch.items()}


def _counts(batches: list[dict[str, Tensor]], num_nodes: Mapping[str, int] | None) -> dict[str, int]:
    if num_nodes is not None:
        return {name: checks.count(f"num_nodes[{name!r}]", count, 0) for name, count in num_nodes.items()}
    counts: dict[str, int] = {}
    for batch in batches:
        for name, ids in batch.items():
            counts[name] = max(counts.get(name, 0), 1 + int(ids.max()) if ids.numel() else 0)
    return counts


def _check_range(i: int, batch: dict[str, Tensor], counts: dict[str, int]) -> None:
    """Check the ids of each type; the library only sees numbers over all types."""
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


def _ids(where: str, ids: object) -> Tensor:
    """Return a vector that the library reads in place."""
    try:
        vector = as_tensor(ids)
    except (TypeError, ValueError) as error:
        raise DTypeError(f"{where} must be a vector of ids: {error}") from None
    if vector.numel() == 0 and vector.dim() == 1:
        return torch.empty(0, dtype=torch.int64)
    if vector.dtype == torch.bool or vector.is_floating_point() or vector.is_complex():
        raise DTypeError(f"{where} must hold integers, got {vector.dtype}")
    if vector.dim() != 1:
        raise InvalidArgumentError(f"{where} must be one-dimensional, got shape {list(vector.shape)}")
    kept = vector.dtype if vector.dtype == torch.int32 else torch.int64
    return vector.detach().to(device="cpu", dtype=kept).contiguous()
