"""The line of a model's code at which something happens."""

from __future__ import annotations

import linecache
import sys
from collections.abc import Iterator
from pathlib import Path
from types import FrameType, TracebackType
from typing import NamedTuple

_OURS = ("torch", "freshgo", "typing_extensions")
"""Packages whose frames are no lines of a model."""

_MODELS = ((*_OURS, "torch_geometric"), _OURS)
"""What is looked for, in this order: PyG's frames are lines of a model where there are no others, as it has models."""


class Line(NamedTuple):
    """A line of code."""

    file: str
    number: int

    def __str__(self) -> str:
        code = linecache.getline(self.file, self.number).strip()
        return f"{Path(self.file).name}:{self.number}" + (f" (`{code}`)" if code else "")


def line_here(until: str) -> Line | None:
    """The innermost line of a model among the callers, up to the function of ours with the name ``until``."""

    def frames() -> Iterator[tuple[FrameType, int]]:
        frame: FrameType | None = sys._getframe(2)
        while frame is not None and not (frame.f_code.co_name == until and _package(frame) == "freshgo"):
            yield frame, frame.f_lineno
            frame = frame.f_back

    return _line(list(frames()))


def line_of(error: BaseException, until: str, *, of_pyg: bool = False) -> Line | None:
    """The innermost line of a model at which an error was raised; ``of_pyg``: or of PyG, even if a model called it."""
    found: list[tuple[FrameType, int]] = []
    at: TracebackType | None = error.__traceback__
    while at is not None:
        if at.tb_frame.f_code.co_name == until and _package(at.tb_frame) == "freshgo":
            found.clear()
        else:
            found.append((at.tb_frame, at.tb_lineno))
        at = at.tb_next
    return _line(found[::-1], (_OURS,) if of_pyg else _MODELS)


def _package(frame: FrameType) -> str:
    return str(frame.f_globals.get("__name__", "")).partition(".")[0]


def _line(frames: list[tuple[FrameType, int]], skip: tuple[tuple[str, ...], ...] = _MODELS) -> Line | None:
    for skipped in skip:
        for frame, number in frames:
            if _package(frame) not in skipped:
                return Line(frame.f_code.co_filename, number)
    return None
