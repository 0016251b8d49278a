"""How much of the time of copies to a device its kernels were running, from a trace of PyTorch's profiler."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Copies:
    """Copies from the host to the device."""

    count: int
    n_bytes: int
    seconds: float
    hidden: float
    """The share of these seconds in which a kernel ran."""


def copies(events: Iterable[Mapping[str, Any]]) -> Copies:
    """Of the events of a trace, whose times are in microseconds."""
    moved, busy, n_bytes = [], [], 0
    for event in events:
        if event.get("ph") != "X":
            continue
        span = float(event["ts"]), float(event["ts"]) + float(event["dur"])
        if event.get("cat") == "kernel":
            busy.append(span)
        elif event.get("cat") == "gpu_memcpy" and "HtoD" in event.get("name", ""):
            moved.append(span)
            n_bytes += int(event.get("args", {}).get("bytes", 0))
    joined = _joined(busy)
    total = sum(end - begin for begin, end in moved)
    covered = sum(max(0.0, min(end, last) - max(begin, first)) for begin, end in moved for first, last in
                  _near(joined, begin, end))  # fmt: skip
    return Copies(len(moved), n_bytes, total / 1e6, covered / total if total > 0 else 0.0)


def _joined(spans: list[tuple[float, float]]) -> list[tuple[float, float]]:
    """The same times in spans that are apart, ascending."""
    found: list[tuple[float, float]] = []
    for begin, end in sorted(spans):
        if found and begin <= found[-1][1]:
            found[-1] = found[-1][0], max(end, found[-1][1])
        else:
            found.append((begin, end))
    return found


def _near(spans: list[tuple[float, float]], begin: float, end: float) -> Iterable[tuple[float, float]]:
    """Those that meet the time from begin to end."""
    lo, hi = 0, len(spans)
    while lo < hi:
        middle = (lo + hi) // 2
        lo, hi = (middle + 1, hi) if spans[middle][1] <= begin else (lo, middle)
    while lo < len(spans) and spans[lo][0] < end:
        yield spans[lo]
        lo += 1
