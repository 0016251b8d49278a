"""Interrupts works at random moments, and looks at what they leave: ``kills.py DIRECTORY COUNT SEED [WORK ...]``.

A process is started for each: a fork of this one, which has imported everything and never uses the library itself.
``make kills`` makes 200 of each kind. Prints a line for each work and kind; the status is 1 if something was wrong.
"""

from __future__ import annotations

import json
import os
import random
import signal
import statistics
import sys
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from kill_works import WORKS, Work, check, digest, place, prepare, strays

INTERRUPTED = 130


def start(function: Callable[[], Any], answer: Path | None = None) -> int:
    """Call a function in a process of its own, which writes what it returns to a file."""
    pid = os.fork()
    if pid:
        return pid
    code = 1
    try:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        result = function()
        if answer is not None:
            answer.write_text(json.dumps(result))
        code = 0
    except KeyboardInterrupt:
        code = INTERRUPTED
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(code)


def ended(pid: int, within: float = 300) -> int:
    """Wait for a process: its exit status, or the negative number of the signal that ended it."""
    limit = time.monotonic() + within
    while time.monotonic() < limit:
        found, status = os.waitpid(pid, os.WNOHANG)
        if found:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.002)
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    raise AssertionError(f"the process hangs: {within} s")


@dataclass
class Report:
    sent: int = 0
    whole: int = 0
    """Works that ended, each with what it ends with undisturbed."""
    latencies: list[float] = field(default_factory=list)
    """Seconds from Ctrl-C to the end of the process."""

    def __str__(self) -> str:
        text = f"{self.sent} sent, {self.whole} works ended as without"
        if self.latencies:
            late = sorted(self.latencies)
            middle = statistics.median(late)
            text += f", to the end {1e3 * middle:.0f} ms (median), {1e3 * late[-1]:.0f} ms (most)"
        return text


class Rig:
    """One work, in a directory that is made anew whenever it has ended."""

    def __init__(self, work: Work, directory: Path, draw: random.Random) -> None:
        self.work, self.draw = work, draw
        self.home, self.inputs, self.answer = directory / "home", directory / "inputs", directory / "answer"
        place(work, self.home, self.inputs)
        begun = time.monotonic()
        self.expected = self.finish(self.begin())
        self.seconds = time.monotonic() - begun

    def begin(self) -> int:
        def run() -> dict[str, str]:
            check(self.work, self.home)
            self.work.run(self.home, self.inputs)
            check(self.work, self.home)
            return digest(self.home)

        self.answer.unlink(missing_ok=True)
        return start(run, self.answer)

    def finish(self, pid: int) -> dict[str, str]:
        status = ended(pid)
        assert status == 0, f"status {status}"
        left = strays(self.home)
        assert not left, f"left after the end: {left}"
        found: dict[str, str] = json.loads(self.answer.read_text())
        return found

    def disturb(self, kind: signal.Signals, count: int) -> Report:
        report = Report()
        while report.sent < count:
            place(self.work, self.home, self.inputs)
            while True:
                pid = self.begin()
                if report.sent >= count or self.draw.random() < 0.15:
                    found = self.finish(pid)
                    assert found == self.expected, f"ended with {found}, expected {self.expected}"
                    report.whole += 1
                    break
                time.sleep(self.draw.random() * self.seconds * 1.1)
                if kind == signal.SIGSTOP:
                    self.halt(pid, report)
                    continue
                os.kill(pid, kind)
                sent = time.monotonic()
                status = ended(pid)
                if status == 0:  # it was quicker
                    continue
                report.sent += 1
                if kind == signal.SIGINT:
                    assert status in (INTERRUPTED, -signal.SIGINT), f"status {status}"
                    report.latencies.append(time.monotonic() - sent)
                    left = [name for name in strays(self.home) if not name.startswith("rows.npy.partial")]
                    left = [name for name in left if name not in ("state.new", "done.new")]  # this module's
                    assert status != INTERRUPTED or not left, f"left after Ctrl-C: {left}"
                else:
                    assert status == -kind, f"status {status}"
        return report

    def halt(self, pid: int, report: Report) -> None:
        """Stop a process for a moment, some times, and let it end."""
        for _ in range(3):
            if os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT):
                break
            os.kill(pid, signal.SIGSTOP)
            time.sleep(0.02)
            os.kill(pid, signal.SIGCONT)
            report.sent += 1
            time.sleep(self.draw.random() * 0.3 * self.seconds)
        assert self.finish(pid) == self.expected
        report.whole += 1
        place(self.work, self.home, self.inputs)


KINDS = (signal.SIGKILL, signal.SIGTERM, signal.SIGINT, signal.SIGSTOP)


def main(directory: str, count: str, seed: str, *names: str) -> int:
    home = Path(directory)
    (home / "inputs").mkdir(parents=True, exist_ok=True)
    os.environ["XDG_CACHE_HOME"] = str(home / "cache")
    torch.set_num_threads(1)
    status = ended(start(lambda: prepare(home / "inputs")))
    assert status == 0, status
    draw, failed = random.Random(int(seed)), 0
    for name in names or WORKS:
        rig = Rig(WORKS[name], home, draw)
        for kind in KINDS:
            few = max(1, int(count) // (1 if kind == signal.SIGKILL else 4))
            try:
                print(f"{name}, {kind.name}: {rig.disturb(kind, few)}", flush=True)
            except AssertionError as wrong:
                failed += 1
                print(f"{name}, {kind.name}: FAILED: {wrong}", flush=True)
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
