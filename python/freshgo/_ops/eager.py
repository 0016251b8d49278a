"""Code that ``torch.compile`` leaves to Python."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar

import torch

_P = ParamSpec("_P")
_R = TypeVar("_R")


def eager(function: Callable[_P, _R]) -> Callable[_P, _R]:
    """Do what ``torch.compiler.disable`` does, from the first call on.

    That one imports the whole compiler where it decorates, so that ``import freshgo`` would take seconds.
    """
    disabled: Any = None

    @functools.wraps(function)
    def call(*args: _P.args, **kwargs: _P.kwargs) -> _R:
        nonlocal disabled
        if disabled is None:
            disabled = torch.compiler.disable(function)  # type: ignore[no-untyped-call]
        result: _R = disabled(*args, **kwargs)
        return result

    return call
