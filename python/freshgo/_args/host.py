"""What a process may take of its host: memory and threads, beside the other ranks of its job."""

from __future__ import annotations

import contextlib
import math
import os
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

from freshgo.errors import InvalidArgumentError

_CGROUPS, _MINE = Path("/sys/fs/cgroup"), Path("/proc/self/cgroup")


def local_ranks() -> int:
    """Return how many processes of the job are on this host: ``LOCAL_WORLD_SIZE``, which torchrun sets, else one.

    Raises:
        InvalidArgumentError: it is no number of processes
    """
    given = os.environ.get("LOCAL_WORLD_SIZE", "").strip()
    if given and not (given.isascii() and given.isdigit() and int(given) > 0):
        raise InvalidArgumentError(f"LOCAL_WORLD_SIZE must be the number of processes on this host, got {given!r}")
    return int(given or 1)


def threads(ranks: int | None = None) -> int:
    """Return how many threads this process may keep busy: its part of the cores that its affinity and the quotas of
    its control groups leave it, at least one. All local ranks, or ``ranks`` of them, are taken to have equal cores."""
    return max(1, math.floor(cores() / (local_ranks() if ranks is None else ranks)))


def cores() -> float:
    """Return how many cores this process may use."""
    return min([float(len(os.sched_getaffinity(0))), *_quotas()])


def _quotas() -> Iterator[float]:
    """The cores that each control group of this process may use, where it is limited."""
    for group, version in control_groups("cpu"):
        with contextlib.suppress(OSError, ValueError):  # "max" is no limit, as -1 is
            if version == 2:
                quota, period = map(int, (group / "cpu.max").read_text().split())
            else:
                quota, period = (int((group / f"cpu.cfs_{name}_us").read_text()) for name in ("quota", "period"))
            if quota > 0 and period > 0:
                yield quota / period


def control_groups(controller: str) -> Iterator[tuple[Path, int]]:
    """The directories of the control groups that this process lies in, innermost first, and their version."""
    try:
        lines = _MINE.read_text().splitlines()
    except OSError:
        return
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if controllers == "":
            root, version = _CGROUPS, 2
        elif controller in controllers.split(","):
            root, version = _CGROUPS / controller, 1
        else:
            continue
        relative = PurePosixPath(path).relative_to("/")
        for group in (relative, *relative.parents):
            yield root / group, version
