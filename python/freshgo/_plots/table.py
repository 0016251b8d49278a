"""Figures in rows: sorted for people, as HTML for notebooks."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any


def by_size(split: Any) -> list[tuple[str, int]]:
    """Return the parts of the memory that have a size, largest first."""
    parts = ((name.replace("_", " "), n) for name, n in (split or {}).items() if isinstance(n, int) and n > 0)
    return sorted(parts, key=lambda part: -part[1])


def html_table(rows: Iterable[tuple[str, str]]) -> str:
    """Return pairs of a name and a value as HTML."""
    from html import escape  # slow to import

    body = "".join(
        f"<tr><th style='text-align:left'>{escape(name)}</th><td style='text-align:left'>{escape(value)}</td></tr>"
        for name, value in rows
    )
    return f"<table>{body}</table>"


def html_title(title: str) -> str:
    """Return a line of bold text as HTML."""
    from html import escape

    return f"<b>{escape(title)}</b>"
