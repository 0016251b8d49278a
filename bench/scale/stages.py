"""Stages in processes whose memory the kernel limits: what each took, beside its floor at the disk's rates."""

from __future__ import annotations

import json
import math
import os
import re
import resource
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "loader"))
import limited

from freshgo import Store

BESIDE = 900 << 20
"""Bytes that the kernel allows beside ``memory``: the interpreter, PyTorch, and pages that it caches for a moment."""
SLACK = 96 << 20
"""Bytes beside what a map is left: the interpreter's own growth, page tables, stacks."""
PAGE = 4096
GROUP = "FRESHGO_BENCH_GROUP"
"""The control group of a stage, for a stage that changes its limit."""
TABLE = {
    "seconds": ("seconds", 1, 1),
    "floor s": ("floor_seconds", 1, 1),
    "read GB": ("read_bytes", 1e9, 1),
    "written GB": ("write_bytes", 1e9, 1),
    "floor GB": ("floor_bytes", 1e9, 1),
    "requests": ("requests", 1, 0),
    "peak MB": ("peak", 1e6, 0),
    "processor s": ("processor", 1, 1),
}
"""Columns beside the stage: the figure, its unit and decimals."""


def io() -> dict[str, int]:
    """Bytes that devices read and wrote for this process, as the kernel counts them."""
    text = Path("/proc/self/io").read_text()
    return {key: int(re.findall(rf"^{key}: (\d+)", text, re.M)[0]) for key in ("read_bytes", "write_bytes")}


def random_reads(rows: int, row_bytes: int) -> dict[str, float]:
    """Return the floor of a request for each row, with the pages on which rows lie that straddle pages, back to back."""
    beyond = (row_bytes - math.gcd(row_bytes, PAGE)) / PAGE if PAGE % row_bytes else 0
    return {"random": rows, "read": round(rows * PAGE * beyond)}


def floor_bytes(floor: dict[str, float]) -> float:
    return floor.get("read", 0) + floor.get("written", 0) + PAGE * floor.get("random", 0)


class Stages:
    """Prints a line of JSON for each stage."""

    def begin(self) -> None:
        Path("/proc/self/clear_refs").write_text("5")  # the peak begins anew
        self.io, self.processor, self.began = io(), self.used(), time.perf_counter()

    @staticmethod
    def used() -> float:
        used = resource.getrusage(resource.RUSAGE_SELF)
        return used.ru_utime + used.ru_stime

    def end(self, stage: str, floor: dict[str, float], **more: Any) -> None:
        moved = {key: n - self.io[key] for key, n in io().items()}
        peak = int(re.findall(r"VmHWM:\s+(\d+)", Path("/proc/self/status").read_text())[0]) << 10
        line = {"stage": stage, "seconds": time.perf_counter() - self.began, **moved, "peak": peak}
        print(json.dumps(line | {"processor": self.used() - self.processor, "floor": floor, **more}), flush=True)


def drop(folder: Path) -> None:
    for path in folder.rglob("*"):
        if path.is_file():
            with path.open("rb") as file:
                os.fsync(file.fileno())
                os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def size(path: Path) -> int:
    return sum(f.stat().st_size for f in path.rglob("*") if f.is_file()) if path.is_dir() else path.stat().st_size


def stored_rows(store: Store, name: str, owner: str | None = None) -> np.ndarray:
    """Map the rows of a tensor of float16 in its file, where rows lie in the order of the nodes and back to back."""
    nodes = store._contents.nodes[owner or ""]
    shape, file = nodes.tensors[name].shape, Path(store.path) / nodes._described(name)["file"]
    assert 0 <= file.stat().st_size - 2 * shape[0] * shape[1] < PAGE, "rows are not back to back"
    return np.memmap(file, np.float16, mode="c", shape=shape)


class Runner:
    """Runs stages in processes with limited memory, and tabulates them."""

    def __init__(self, folder: Path, script: str, arguments: list[str]) -> None:
        self.folder, self.script, self.arguments = folder, script, arguments
        self.lines: list[dict[str, Any]] = []
        self.failed: list[str] = []
        root, program = Path(__file__).resolve().parents[2], folder / "rivals"
        subprocess.run(["go", "build", "-o", program, "./bench/rivals"], cwd=root, check=True)
        self.program, self.rates = program, dict[str, float]()

    def run(self, part: str, limit: int | None) -> None:
        """Run a part in a process of its own from a cold cache, with ``limit`` bytes."""
        drop(self.folder)
        group = limited.make(f"freshgo-bench-{os.getpid()}-{len(self.lines)}")
        environment = {
            **os.environ,
            "XDG_CACHE_HOME": str(self.folder / "cache"),  # calibrations of this run
            GROUP: json.dumps(group.names),
        }
        command = [sys.executable, self.script, *self.arguments, "--part", part]
        try:
            if limit is not None:
                group.limit(limit)
            child = subprocess.Popen(
                command, stdout=subprocess.PIPE, text=True, env=environment, preexec_fn=group.enter
            )
            assert child.stdout
            for text in child.stdout:
                self.lines.append(json.loads(text))
                if self.rates:
                    self.show(self.lines[-1])
            if child.wait():
                self.failed.append(f"{part} ended with {child.returncode}")
                print(self.failed[-1], flush=True)
        finally:
            group.remove()

    def measure(self, store: Path) -> None:
        answer = subprocess.run([self.program, f"-store={store}", "-limits"], stdout=subprocess.PIPE, check=True)
        self.rates = json.loads(answer.stdout)
        print("the disk:", {key: value for key, value in self.rates.items() if key != "engine"})
        print(*(f"{name:>12}" for name in ("stage", *TABLE)), flush=True)

    def show(self, line: dict[str, Any]) -> None:
        if "stage" not in line:
            print(line, flush=True)
            return
        floor = line["floor"]
        line["floor_seconds"] = sum(
            floor.get(key, 0) / self.rates[rate]
            for key, rate in (("read", "sequential"), ("written", "written"), ("random", "random_iops"))
        )
        line["floor_bytes"] = floor_bytes(floor)
        figures = (
            f"{line[name] / unit:12,.{decimals}f}" if name in line else " " * 12
            for name, unit, decimals in TABLE.values()
        )
        print(f"{line['stage']:>12}", *figures, flush=True)
