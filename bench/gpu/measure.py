"""Time on a device, what the device can do at best, and a journal that keeps every figure as soon as it is there."""

from __future__ import annotations

import json
import os
import statistics
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

Run = Callable[[], Any]


class Journal:
    """One JSON object a line, in the file that $FRESHGO_JOURNAL names; also printed."""

    def __init__(self) -> None:
        self._path = Path(os.environ["FRESHGO_JOURNAL"])
        self._ends = time.monotonic() + float(os.environ.get("FRESHGO_SECONDS", "440"))

    def write(self, **record: Any) -> None:
        with self._path.open("a") as file:
            file.write(json.dumps(record) + "\n")
        print(*(f"{name}: {value}" for name, value in record.items()), sep=", ", flush=True)

    def goal(self, goal: str, wanted: float, got: float, *, most: bool = False) -> None:
        """A goal of the project, at least `wanted`, or at most. A rehearsal meets none and misses none."""
        if not torch.cuda.is_available():
            return
        met = got <= wanted if most else got >= wanted
        self.write(goal=goal, wanted=("<= " if most else ">= ") + str(wanted), got=round(got, 3), met=met)

    def attempt(self, name: str, run: Run, seconds: float = 20) -> Any:
        """Run a part, unless there is no time left for it; what goes wrong is written down, and the next part runs."""
        if time.monotonic() + seconds > self._ends:
            self.write(skipped=name, why="no time left")
            return None
        begin = time.monotonic()
        try:
            return run()
        except Exception as error:  # whatever it is: an hour with a GPU must not end here
            trace = traceback.format_exc()
            self.write(failed=name, why=f"{type(error).__name__}: {error}"[:500], trace=trace[-2000:])
            if torch.cuda.is_available():
                torch.cuda.empty_cache()
            return None
        finally:
            self.write(part=name, seconds=round(time.monotonic() - begin, 1))


class Meter:
    """Times runs on a GPU by its own clock, or a rehearsal on the CPU."""

    def __init__(self) -> None:
        self.real = torch.cuda.is_available()
        self.device = torch.device("cuda", 0) if self.real else torch.device("cpu")

    def finish(self) -> None:
        if self.real:
            torch.cuda.synchronize()

    def seconds(self, run: Run, repeats: int = 1) -> float:
        """Of one run, when `repeats` follow each other."""
        self.finish()
        if not self.real:
            begin = time.perf_counter()
            for _ in range(repeats):
                run()
            return (time.perf_counter() - begin) / repeats
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        begin.record()
        for _ in range(repeats):
            run()
        end.record()
        end.synchronize()
        return float(begin.elapsed_time(end)) / 1e3 / repeats

    def contest(self, runs: dict[str, Run], rounds: int = 7) -> dict[str, float]:
        """The median seconds of each, in interleaved rounds that last 2 ms at least."""
        repeats = {}
        for name, run in runs.items():
            self.seconds(run, 2)  # warm
            repeats[name] = max(1, min(1000, int(2e-3 / max(self.seconds(run), 1e-7)))) if self.real else 1
        taken: dict[str, list[float]] = {name: [] for name in runs}
        for _ in range(rounds if self.real else 2):
            for name, run in runs.items():
                taken[name].append(self.seconds(run, repeats[name]))
        return {name: statistics.median(all_of) for name, all_of in taken.items()}


def limits(meter: Meter, journal: Journal) -> dict[str, float]:
    """Bytes a second: copied on the device (read and written), and over the bus from and to locked memory."""
    n = 1 << 30 if meter.real else 1 << 22
    here, there = (torch.empty(n, dtype=torch.uint8, device=meter.device) for _ in range(2))
    host = torch.empty(n, dtype=torch.uint8, pin_memory=meter.real)
    taken = meter.contest(
        {
            "copy on the device": lambda: there.copy_(here),
            "from locked memory": lambda: there.copy_(host, non_blocking=True),
            "to locked memory": lambda: host.copy_(here, non_blocking=True),
        }
    )
    found = {name: n * (2 if "on" in name.split() else 1) / seconds for name, seconds in taken.items()}
    for name, rate in found.items():
        journal.write(limit=name, gb_s=round(rate / 1e9, 1))
    return found
