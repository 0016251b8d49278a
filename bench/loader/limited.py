"""Processes that the kernel limits, by control groups: their memory, what is cached for them included, and what a disk does for them."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import NamedTuple

MEMORY = {"cgroup2": ("memory.max", "anon "), "cgroup": ("memory.limit_in_bytes", "total_rss ")}
CONTROLLERS = {"cgroup2": ("memory", "io"), "cgroup": ("memory", "blkio")}


class Rates(NamedTuple):
    """What a disk does in a second."""

    requests: int
    n_bytes: int


def rates(text: str) -> Rates:
    """Read ``REQUESTS,MB``, as the option ``--disk`` has it."""
    requests, megabytes = map(int, text.split(","))
    return Rates(requests, megabytes * 10**6)


class Group:
    """A control group below that of this process; with version 1 of the interface, one in each hierarchy."""

    def __init__(self, version: str, memory: str, disk: str | None) -> None:
        self.version, self.memory, self.disk = version, Path(memory), Path(disk) if disk else None

    @property
    def paths(self) -> set[Path]:
        return {self.memory, self.disk or self.memory}

    @property
    def names(self) -> list[str | None]:
        """What another process makes this object from."""
        return [self.version, str(self.memory), str(self.disk) if self.disk else None]

    def enter(self) -> None:
        """Move the calling process into the group."""
        for path in self.paths:
            (path / "cgroup.procs").write_text(str(os.getpid()))

    def limit(self, n_bytes: int) -> None:
        """Limit memory. What is cached beyond the limit is dropped."""
        (self.memory / MEMORY[self.version][0]).write_text(str(n_bytes))

    def held(self) -> int:
        """Return the bytes that the processes hold and that cannot be dropped."""
        lines = (self.memory / "memory.stat").read_text().splitlines()
        return next(int(line.split()[1]) for line in lines if line.startswith(MEMORY[self.version][1]))

    def slow(self, folder: Path, rates: Rates) -> None:
        """Limit requests and bytes a second, of reads and of writes, on the disk of a folder."""
        if self.disk is None:
            raise OSError("no control group with disks")
        number = folder.stat().st_dev
        block = Path(f"/sys/dev/block/{os.major(number)}:{os.minor(number)}").resolve()
        disk = (block.parent if (block / "partition").exists() else block) / "dev"
        device = disk.read_text().strip()
        if self.version == "cgroup2":
            requests, n_bytes = rates
            limits = f"riops={requests} wiops={requests} rbps={n_bytes} wbps={n_bytes}"
            (self.disk / "io.max").write_text(f"{device} {limits}")
            return
        for way in ("read", "write"):
            (self.disk / f"blkio.throttle.{way}_iops_device").write_text(f"{device} {rates.requests}")
            (self.disk / f"blkio.throttle.{way}_bps_device").write_text(f"{device} {rates.n_bytes}")

    def remove(self) -> None:
        for path in self.paths:
            with contextlib.suppress(OSError):  # the last pages may take a moment to go
                path.rmdir()


def make(name: str) -> Group:
    """Make a group; OSError where that is not allowed or nothing controls memory."""
    own: dict[str, str] = {}  # the group of this process, by controller
    for line in Path("/proc/self/cgroup").read_text().splitlines():
        hierarchy, controllers, inside = line.split(":", 2)
        own |= dict.fromkeys(controllers.split(",") if hierarchy != "0" else CONTROLLERS["cgroup2"], inside.lstrip("/"))
    for version in CONTROLLERS:
        found: dict[str, Path] = {}
        for line in Path("/proc/self/mounts").read_text().splitlines():
            _, mount, kind, options, *_ = line.split()
            for controller in CONTROLLERS[version]:
                if kind == version and (version == "cgroup2" or controller in options.split(",")) and controller in own:
                    parent = Path(mount, own[controller])
                    if version == "cgroup" or _delegated(parent, controller):
                        found[controller] = parent / name
        for path in set(found.values()):
            path.mkdir()
        memory, disk = (str(found[c]) if c in found else None for c in CONTROLLERS[version])
        if memory:
            return Group(version, memory, disk)
    raise OSError("no control group with memory")


def _delegated(parent: Path, controller: str) -> bool:
    """Let the groups below parent have a controller, which a group may only if no process is in itself."""
    if controller not in (parent / "cgroup.controllers").read_text().split():
        return False
    if controller not in (parent / "cgroup.subtree_control").read_text().split():
        leaf = parent / "freshgo-bench-main"
        leaf.mkdir(exist_ok=True)
        (leaf / "cgroup.procs").write_text(str(os.getpid()))
        (parent / "cgroup.subtree_control").write_text(f"+{controller}")
    return True
