"""Checks of what a user gives a history; every message says what is allowed."""

from __future__ import annotations

import math

import numpy as np
import torch

from freshgo._native.options import Span
from freshgo.errors import DTypeError, InvalidArgumentError


def _number(name: str, value: object) -> float:
    if isinstance(value, bool | np.bool_) or not isinstance(value, int | float | np.integer | np.floating):
        raise DTypeError(f"{name} must be a number, got {value!r}")
    return float(value)


def fraction(name: str, value: object) -> float:
    """Return a number within [0, 1]."""
    number = _number(name, value)
    if not 0 <= number <= 1:  # nor NaN
        raise InvalidArgumentError(f"{name} must be within [0, 1], got {value!r}")
    return number


def span(name: str, value: object) -> Span:
    """Return a number of iterations (int) or epochs (float), not negative."""
    number = _number(name, value)
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
