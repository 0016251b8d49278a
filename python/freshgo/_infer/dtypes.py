"""The dtype in which layers are given tensors of edges, and what is said where a layer fails because its rows have
another dtype than its parameters.

Nothing is refused before a layer was called: it may convert its rows, or run under autocast.
"""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Iterator

import torch
from torch import Tensor

from freshgo.errors import DTypeError, FreshgoError

_WORDS = ("dtype", "datatype", "scalar type")
"""One of them is in every error of PyTorch's that is about dtypes which differ."""


def of_edges(rows: Tensor) -> Tensor:
    """Return rows of edges as layers are given them: floats as float32, as what layers add up."""
    return rows.float() if rows.is_floating_point() else rows


@contextlib.contextmanager
def one_dtype(
    taker: str, given: str, tensor: str | None, rows: Collection[torch.dtype], parameters: Collection[torch.dtype]
) -> Iterator[None]:
    """Raise DTypeError where ``taker`` takes ``given``, rows of these dtypes, and PyTorch does not compute them with
    parameters of others. ``tensor`` names the tensor of the store that the rows are, if they are one."""
    try:
        yield
    except FreshgoError:
        raise
    except RuntimeError as error:
        first = str(error).partition("\n")[0]
        others = set(rows) - set(parameters)
        if not others or not parameters or not any(word in first for word in _WORDS):
            raise
        advice = []
        if tensor is not None and others != {torch.float32}:
            advice.append(f"store the tensor as torch.float32 (freshgo.update with tensors={{{tensor!r}: ...}})")
        if set(parameters) != {torch.float32}:
            advice.append("call model.float(), as rows of layers are torch.float32")
        raise DTypeError(
            f"{taker} takes {given} as {_listed(others)}, and the model's parameters are {_listed(parameters)}: "
            f"expected one dtype; {' and '.join(advice)}, or give layers= that convert their rows ({first})"
        ) from error


def _listed(dtypes: Collection[torch.dtype]) -> str:
    return " and ".join(sorted(map(str, dtypes)))
