"""Figures as loggers of experiments take them: one number for each name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def flat(figures: Mapping[str, Any], prefix: str) -> dict[str, int | float]:
    """Return the numbers of nested figures, named by their path.

    ``{"rows": 3, "memory": {"batch": 5}, "engine": "pread"}`` with ``"loader/"`` becomes ``{"loader/rows": 3,
    "loader/memory/batch": 5}``. Flags are 0 or 1. Text and lists are left out.
    """
    numbers: dict[str, int | float] = {}
    for name, value in figures.items():
        if isinstance(value, Mapping):
            numbers |= flat(value, f"{prefix}{name}/")
        elif isinstance(value, bool):
            numbers[prefix + name] = int(value)
        elif isinstance(value, int | float):
            numbers[prefix + name] = value
    return numbers
