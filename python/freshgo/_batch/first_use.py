"""Batches whose first layer is precomputed, in a model that was not made to use it.

They lack the outermost hop. A plain convolution takes them all the same, and would train on other sums than it is
evaluated with. So every call of a module is looked at, by PyTorch's hook for all modules, from the first batch of a
loader on until a layer of ``freshgo.nn.precomputed`` has used one of them; then the hook is gone.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from freshgo._batch.first import First, FirstUse
from freshgo._batch.structure import recall
from freshgo.errors import InvalidArgumentError


def await_use(use: FirstUse) -> None:
    """Refuse plain convolutions until a layer has used what such batches bring."""
    use.await_with(_refuse)


def _refuse(module: Any, args: tuple[Any, ...]) -> None:
    """Refuse a plain convolution over the rows and edges of such a batch."""
    if torch.compiler.is_compiling() or len(args) < 2 or not isinstance(args[1], Tensor):
        return
    compiled = getattr(module, "_orig_mod", None)  # whose layers are not called one by one
    known = recall(args[1])
    if known is None or known.first is None or (compiled is None and not hasattr(module, "propagate")):
        return
    layers = [module] if compiled is None else compiled.modules()
    if any(getattr(type(layer), "uses_first", False) for layer in layers) or not _are_those(args[0], known.first):
        return
    name, first = type(module if compiled is None else compiled).__name__, known.first
    raise InvalidArgumentError(
        f"{name} was called over a batch whose first layer is precomputed: {first.name!r} stands for it, and the "
        "outermost hop is neither sampled nor read. Call freshgo.nn.precomputed(model) before training, so that the "
        "model's first layer uses it (layers=[...] names another than the one that was registered first), or make the "
        "loader without first_layer, with a hop for every layer"
    )


def _are_those(x: object, first: First) -> bool:
    """Whether the rows that a layer is called with are those of the batch."""
    given = [rows for rows in (x if isinstance(x, (tuple, list)) else (x,)) if isinstance(rows, Tensor)]
    own = [rows for rows in (first.own, first.source, first.rows) if rows is not None]
    return any(
        rows.shape == of.shape and (rows.data_ptr() == of.data_ptr() or torch.equal(rows.detach(), of.to(rows.dtype)))
        for rows in given
        for of in own
    )
