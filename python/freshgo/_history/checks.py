"""Checks of what a user gives a history; every message says what is allowed."""

from __future__ import annotations

import math
from collections.abc import Iterable

import numpy as np
import torch

from freshgo._args import checks
from freshgo._native.options import Span
from freshgo.errors import DTypeError, InvalidArgumentError


def span(name: str, value: object) -> Span:
    """Return a number of iterations (int) or epochs (float), not negative."""
    number = checks.number(name, value)
    if not number >= 0:
        raise InvalidArgumentError(
            f"{name} must be at least 0, as iterations (int) or epochs (float; math.inf for ever), got {value!r}"
        )
    return Span(number, isinstance(value, float | np.floating) and not math.isinf(number))


def spoken(length: Span) -> str:
    """Name a span for people, and for states."""
    if math.isinf(length.count):
        return "for ever"
    return f"{length.count:g} epochs" if length.epochs else f"{length.count:.0f} iterations"


def levels(value: object) -> tuple[int, ...] | None:
    """Return the hidden levels that are kept, ascending; None: all."""
    if value is None:
        return None
    given = [value] if isinstance(value, int | np.integer) else value
    if isinstance(given, str) or not isinstance(given, Iterable):
        raise DTypeError(f"levels must be a level, several or None, got {value!r}")
    found = list(given)
    for level in found:
        if isinstance(level, bool | np.bool_) or not isinstance(level, int | np.integer):
            raise DTypeError(f"levels must be integers, got {level!r}")
    found.sort()
    if not found or found[0] < 1 or len(set(found)) < len(found):
        raise InvalidArgumentError(
            f"levels must be one or more of the hidden levels 1, 2, ..., each once, or None for all, got {value!r}"
        )
    return tuple(int(level) for level in found)


def levels_of_model(levels: tuple[int, ...] | None, num_layers: int, what: str) -> None:
    """Raise an error unless levels are hidden levels of a model with ``num_layers`` layers."""
    if levels is not None and num_layers > 1 and levels[-1] >= num_layers:
        raise InvalidArgumentError(f"levels={levels}, but {what}: its hidden levels are 1 to {num_layers - 1}")


def device(value: object) -> torch.device | None:
    """Return a device that torch has; None is the CPU."""
    if value is None:
        return None
    try:
        found = torch.empty(0, device=value).device  # type: ignore[call-overload]  # whatever it is, torch knows
    except (RuntimeError, TypeError, AssertionError) as error:
        raise InvalidArgumentError(f"device must be one that torch has, got {value!r}: {error}") from None
    if found.type == "meta":
        raise InvalidArgumentError("device must hold data, got 'meta'")
    return None if found.type == "cpu" else found
