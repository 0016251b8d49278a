"""Sizes in bytes: reading them from users, printing them, and what the machine has."""

from __future__ import annotations

import math
import re
import resource
from numbers import Integral
from pathlib import Path

from freshgo._args.host import control_groups, local_ranks
from freshgo.errors import DTypeError, InvalidArgumentError

_UNITS = {
    "": 1,
    "b": 1,
    **{f"{letter}b": 1000 ** (i + 1) for i, letter in enumerate("kmgt")},
    **{f"{letter}ib": 1024 ** (i + 1) for i, letter in enumerate("kmgt")},
}
_SIZE = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([a-z]*)\s*", re.IGNORECASE)


def parse_size(name: str, size: int | str) -> int:
    """Return ``size`` in bytes: an int, or a string such as ``"200MiB"`` or ``"1.5GB"``."""
    if isinstance(size, bool) or not isinstance(size, Integral | str):
        raise DTypeError(f"{name} must be a number of bytes or a string such as '200MiB', got {size!r}")
    if not isinstance(size, str):
        if size < 0:
            raise InvalidArgumentError(f"{name} must be at least 0 bytes, got {size}")
        return _bounded(name, int(size))
    match = _SIZE.fullmatch(size)
    unit = _UNITS.get(match[2].lower()) if match else None
    if match is None or unit is None:
        raise InvalidArgumentError(
            f"{name} must be a number of bytes or a string such as '200MiB' or '1.5GB' "
            f"(units B, kB, MB, GB, TB, KiB, MiB, GiB, TiB), got {size!r}"
        )
    return _bounded(name, int(min(float(match[1]) * unit, 2.0**61)))


def _bounded(name: str, n_bytes: int) -> int:
    if n_bytes > 1 << 60:  # an exbibyte: sums of a few still fit into 64 bits
        raise InvalidArgumentError(f"{name} must be at most 1 EiB (2**60 bytes), got {n_bytes}")
    return n_bytes


def format_size(n_bytes: float) -> str:
    """Return ``n_bytes`` for people, in binary units."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if abs(n_bytes) < 1024:
            return f"{n_bytes:.0f} {unit}" if unit == "B" else f"{n_bytes:.1f} {unit}"
        n_bytes /= 1024
    return f"{n_bytes:.1f} TiB"


def least_size(n_bytes: int) -> str:
    """Return a size for people that is not smaller than ``n_bytes``: ``29 MiB`` for 30,404,475 bytes."""
    unit, amount = "B", float(n_bytes)
    for larger in ("KiB", "MiB", "GiB", "TiB"):
        if amount < 1024:
            break
        unit, amount = larger, amount / 1024
    if unit == "B" or amount >= 10:
        return f"{math.ceil(amount)} {unit}"
    return f"{math.ceil(amount * 10) / 10:g} {unit}"


def as_option(n_bytes: int) -> str:
    """Return a number of bytes as a user writes it: ``"24MiB"`` with its quotes, or the number."""
    for power, unit in ((40, "TiB"), (30, "GiB"), (20, "MiB"), (10, "KiB")):
        if n_bytes and n_bytes % (1 << power) == 0:
            return f'"{n_bytes >> power}{unit}"'
    return str(n_bytes)


def too_small(memory: int, least: int, needing: str = "these options need") -> str:
    """Return the message of a budget of ``memory`` bytes where ``least`` are needed."""
    return f"memory={as_option(memory)} is too small: {needing} at least {least_size(least)}"


def available_memory() -> int:
    """Return the bytes this process may still use: its part, among the ranks of this host, of what the machine and its
    cgroup have, or what its own limits leave it, the smallest."""
    return min([min([_machine_room(), *_cgroup_room()]) // local_ranks(), *process_room().values()])


def _machine_room() -> int:
    for line in Path("/proc/meminfo").read_text().splitlines():
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) * 1024
    return 0


_LIMITS = {"RLIMIT_AS": "VmSize", "RLIMIT_DATA": "VmData"}
"""Limits of a process on its memory, and what of /proc/self/status counts against each."""


def process_room() -> dict[str, int]:
    """Return how much more address space and data this process may map, by the name of the limit, where it has one."""
    limits = {name: resource.getrlimit(getattr(resource, name))[0] for name in _LIMITS}
    limits = {name: limit for name, limit in limits.items() if limit != resource.RLIM_INFINITY}
    if not limits:
        return {}
    status = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    return {name: max(0, limit - int(status[_LIMITS[name]].split()[0]) * 1024) for name, limit in limits.items()}


def _cgroup_room() -> list[int]:
    """Return limit minus use of every cgroup that this process lies in and that has a limit."""
    room = []
    for group, version in control_groups("memory"):
        names = ("memory.max", "memory.current") if version == 2 else ("memory.limit_in_bytes", "memory.usage_in_bytes")
        found = _room(group, *names)
        if found is not None:
            room.append(found)
    return room


def _room(group: Path, limit: str, usage: str) -> int | None:
    try:
        allowed = int((group / limit).read_text())  # "max" means no limit: ValueError
        used = int((group / usage).read_text())
        stat = dict(line.split() for line in (group / "memory.stat").read_text().splitlines())
    except (OSError, ValueError):
        return None
    # Page cache counts as used but is given up on demand, as in the machine's MemAvailable. Version 1 has the sums with
    # the groups below under other names, version 2 has no others.
    cached = (int(stat.get(f"total_{of}", stat.get(of, 0))) for of in ("inactive_file", "active_file"))
    return max(0, allowed - used + sum(cached))
