"""Checks of what a user gives a history, and of a state that it is to take over; every message says what is allowed."""

from __future__ import annotations

import math
import sys
import zlib
from typing import Any

import numpy as np
import torch
from torch import Tensor

from freshgo._history import Span
from freshgo.errors import DTypeError, FormatError, InvalidArgumentError


def checksum(value: object, crc: int = 0) -> int:
    """Return the CRC-32 of a state, but for the checksum in it: of tensors by their bytes, wherever they are."""
    if isinstance(value, Tensor):
        crc = zlib.crc32(f"{value.dtype}{list(value.shape)}".encode(), crc)
        raw = value.detach().cpu().contiguous().flatten().view(torch.uint8)
        return zlib.crc32(raw.numpy().data, crc)
    if isinstance(value, dict):
        value = [(key, value[key]) for key in sorted(value, key=repr) if key != "checksum"]
    if isinstance(value, list | tuple):
        for one in value:
            crc = checksum(one, crc)
        return zlib.crc32(b"%d]" % len(value), crc)
    return zlib.crc32(repr(value).encode(), crc)


def check_rows(state: dict[str, Any]) -> None:
    """Check what the entries and their rows are made of; what the entries say the library checks."""
    if repr(state.get("checksum")) != repr(checksum(state)):
        raise FormatError("history state: it does not match its checksum, so it is damaged or was changed")
    for name in ("entries", "rows"):
        value = state.get(name)
        if name in state and not (isinstance(value, Tensor) and value.dtype == torch.uint8 and value.dim() == 1):
            raise FormatError(f"history state: {name} must be a vector of bytes")
    if "rows" in state:
        dtype, width = getattr(torch, str(state.get("dtype")), None), state.get("width")
        floating = isinstance(dtype, torch.dtype) and dtype.is_floating_point
        if not floating or not isinstance(width, int) or isinstance(width, bool) or width < 1:
            raise FormatError(f"history state: rows of dtype {state.get('dtype')!r} and width {width!r}")


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


def caller() -> int:
    """How many frames up the code outside of freshgo is that is being run."""
    level, frame = 1, sys._getframe(1)
    while frame.f_back is not None and frame.f_globals.get("__name__", "").partition(".")[0] == "freshgo":
        level, frame = level + 1, frame.f_back
    return level
