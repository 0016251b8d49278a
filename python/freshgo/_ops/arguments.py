"""The arguments of operators: checked, and brought to the few forms that the operators take."""

from __future__ import annotations

import torch
from torch import Tensor

from freshgo._batch.structure import Transposed
from freshgo._native import cuda
from freshgo._ops import kernels
from freshgo.errors import DTypeError, InvalidArgumentError

MOST_ROWS = 2**48
"""As many nodes as a graph can have."""


def for_derivative(transposed: Transposed | None, *of: Tensor | None) -> tuple[Tensor | None, ...]:
    """Return what an operator keeps for its derivative: nothing if there will be none."""
    if transposed is None or not torch.is_grad_enabled() or not any(t is not None and t.requires_grad for t in of):
        return None, None, None
    return tuple(transposed)


def flat(x: Tensor) -> Tensor:
    """Return rows as a matrix."""
    return x if x.dim() == 2 else x.unsqueeze(1) if x.dim() == 1 else x.flatten(1)


def shaped(out: Tensor, x: Tensor) -> Tensor:
    """Return rows of a result in the shape of the rows of ``x``."""
    return out if x.dim() == 2 else out.view(-1, *x.shape[1:])


def promoted(x: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
    """Convert as if ``x`` and ``weight`` were multiplied: rows to the dtype that both promote to, weights to that of
    its sums."""
    dtype = torch.promote_types(x.dtype, weight.dtype)
    if dtype not in kernels.DTYPES:
        raise DTypeError(f"weight has dtype {weight.dtype}, expected a floating one like that of x, {x.dtype}")
    return x.to(dtype), weight.to(kernels.real(dtype))


def heads_of(x: Tensor, weight: Tensor, index: Tensor) -> int:
    """Return the number of weights of an edge, after a check that they fit the rows."""
    if weight.dim() not in (1, 2) or weight.size(0) != index.size(0):
        raise InvalidArgumentError(
            f"weight has shape {shape(weight)}, expected [{index.size(0)}] or [{index.size(0)}, heads]: "
            f"index has shape {shape(index)}"
        )
    heads = weight.size(1) if weight.dim() == 2 else 1
    if heads != 1 and (x.dim() != 3 or x.size(1) != heads):
        raise InvalidArgumentError(
            f"weight has shape {shape(weight)}, {heads} for each edge, so x must have shape "
            f"[rows, {heads}, channels], got {shape(x)}"
        )
    return heads


def check_graph(index: Tensor, ptr: Tensor, x: Tensor | None = None, transposed: Transposed | None = None) -> Tensor:
    """Check the tensors themselves and not their values, which the kernels check. Returns ptr as int64."""
    for name, tensor in (("index", index), ("x", x), ("ptr", ptr)):
        if not isinstance(tensor, Tensor):
            if name == "x" and tensor is None:
                continue
            raise DTypeError(f"{name} must be a tensor, got {type(tensor).__name__}")
        cuda.check_device(name, tensor, index)
    if index.dtype not in kernels.INDEX_DTYPES:
        raise DTypeError(f"index has dtype {index.dtype}, expected int64 or int32")
    if ptr.dtype not in kernels.INDEX_DTYPES:
        raise DTypeError(f"ptr has dtype {ptr.dtype}, expected int64")
    if index.dim() != 1:
        raise InvalidArgumentError(f"index has shape {shape(index)}, expected [edges]")
    if ptr.dim() != 1 or ptr.size(0) == 0:
        raise InvalidArgumentError(f"ptr has shape {shape(ptr)}, expected [targets + 1]")
    if x is not None:
        if x.dtype not in kernels.DTYPES:
            names = ", ".join(str(dtype).removeprefix("torch.") for dtype in kernels.DTYPES)
            raise DTypeError(f"x has dtype {x.dtype}, expected one of {names}")
        if x.dim() == 0:
            raise InvalidArgumentError("x has shape [], expected [rows, ...]")
    if transposed is not None:
        _check_transposed(transposed, index, x)
    return ptr.to(torch.int64)


def check_count(name: str, value: int | torch.SymInt) -> None:
    """Check a number of rows, which while a model is compiled may be a symbol."""
    if isinstance(value, bool) or not isinstance(value, (int, torch.SymInt)):  # PyTorch 2.4 compiles no union
        raise DTypeError(f"{name} must be an int, got {type(value).__name__}")
    if not 0 <= value <= MOST_ROWS:
        raise InvalidArgumentError(f"{name} must be 0 to {MOST_ROWS}, got {value}")


def _check_transposed(transposed: Transposed, index: Tensor, x: Tensor | None) -> None:
    if len(transposed) != 3 or not all(isinstance(t, Tensor) and t.dim() == 1 for t in transposed):
        raise DTypeError(f"transposed must be what freshgo.ops.transpose returned, got {type(transposed).__name__}")
    ptr, target, edge = transposed
    if (
        ptr.dtype != torch.int64
        or target.dtype != edge.dtype
        or target.dtype not in kernels.INDEX_DTYPES
        or target.size(0) != edge.size(0)
        or target.size(0) < index.size(0)
        or (x is not None and ptr.size(0) <= x.size(0))
    ):
        raise InvalidArgumentError(
            f"transposed has shapes {shape(ptr)}, {shape(target)}, {shape(edge)}: it belongs to another graph than "
            f"index of shape {shape(index)}" + ("" if x is None else f" over x of shape {shape(x)}")
        )


def shape(tensor: Tensor) -> list[int]:
    """Return a shape as messages show it."""
    return list(tensor.shape)
