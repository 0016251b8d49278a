"""Numbering ids in the order in which they first occur."""

from __future__ import annotations

import torch
from torch import Tensor

from freshgo._native import cuda
from freshgo.errors import DTypeError, InvalidArgumentError


def number(ids: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Number ids in the order in which they first occur: as a batch numbers its nodes, the input nodes first.

    On a CUDA device in one pass over a hash table (FastGL's Fused-Map, section 4.3), which waits for nothing; on the
    CPU by sorting.

    Args:
        ids: int64 or int32 ``[n]``, none negative.

    Returns:
        ``node`` ``[n]``, whose first ``count`` elements are each id once (the rest is undefined), ``local`` ``[n]``
        with ``node[local[i]] == ids[i]``, and ``count``, int64 ``[1]``; all on the device of ``ids``.

    Raises:
        DTypeError, InvalidArgumentError: what cannot be numbered; a negative id on the CPU. On a device such an id has
            the number -1, and a later call or :func:`freshgo.ops.check` tells.
    """
    if not isinstance(ids, Tensor) or ids.dtype not in (torch.int64, torch.int32):
        raise DTypeError(f"ids must be an int64 or int32 tensor, got {getattr(ids, 'dtype', type(ids).__name__)}")
    if ids.dim() != 1:
        raise InvalidArgumentError(f"ids has shape {list(ids.shape)}, expected [n]")
    cuda.check_device("ids", ids, ids)
    if cuda.takes(ids):
        return cuda.number(ids)
    values, at = torch.unique(ids, return_inverse=True)
    if values.numel() and values[0] < 0:
        raise InvalidArgumentError(f"ids[{int((ids < 0).nonzero()[0])}] is negative, expected ids that are not")
    places = torch.arange(ids.size(0))
    order = torch.full_like(values, ids.size(0), dtype=torch.int64).scatter_reduce_(0, at, places, "amin").argsort()
    node, local = torch.empty_like(ids), torch.empty_like(order)
    node[: values.numel()] = values[order]
    local[order] = places[: values.numel()]
    return node, local[at].to(ids.dtype), torch.tensor([values.numel()])
