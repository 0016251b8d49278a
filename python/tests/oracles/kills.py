"""Interrupts works at random moments, and looks at what they leave: ``kills.py DIRECTORY COUNT SEED [WORK ...]``.

A process is started for each: a fork of this one, which has imported everything and never uses the library itself.
Each work is killed COUNT times, and ended, interrupted and stopped a quarter as often, in a random order; ``make
kills`` kills 200 times. Prints a line for each work; the status is 1 if something was wrong.
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
KINDS = (signal.SIGKILL, signal.SIGTERM, signal.SIGINT, signal.SIGSTOP)


def start(function: Callable[[], Any], answer: Path | None = None) -> int:
    """Call a function in a process of its own, which writes to a file what it returns, or when it was interrupted."""
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})  # until the child is ready for it
    pid = os.fork()
    if pid:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
        return pid
    code = 1
    try:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
        result = function()
        if answer is not None:
            answer.write_text(json.dumps(result))
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        code = 0
    except KeyboardInterrupt:
        code = INTERRUPTED
        if answer is not None:
            answer.write_text(json.dumps(time.monotonic()))
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
    sent: dict[signal.Signals, int] = field(default_factory=lambda: dict.fromkeys(KINDS, 0))
    whole: int = 0
    """Works that ended, each with what it ends with undisturbed."""
    latencies: list[float] = field(default_factory=list)
    """Seconds from Ctrl-C until the call has raised ``KeyboardInterrupt``."""

    def __str__(self) -> str:
        text = ", ".join(f"{count} {kind.name}" for kind, count in self.sent.items())
        text += f" sent, {self.whole} works ended as without"
        if self.latencies:
            late = sorted(self.latencies)
            middle = statistics.median(late)
            text += f"; Ctrl-C took {1e3 * middle:.0f} ms (median), {1e3 * late[-1]:.0f} ms (most)"
        return text


class Rig:
    """One work, in a directory that is made anew whenever it has ended."""

    def __init__(self, work: Work, directory: Path, draw: random.Random) -> None:
        self.work, self.draw, self.report = work, draw, Report()
        self.home, self.inputs, self.answer = directory / "home", directory / "inputs", directory / "answer"
        place(work, self.home, self.inputs)
        begun = time.monotonic()
        self.expected = self.outcome(ended(self.begin()))
        self.seconds = time.monotonic() - begun

    def begin(self) -> int:
        def run() -> dict[str, str]:
            check(self.work, self.home)
            self.work.run(self.home, self.inputs)
            check(self.work, self.home)
            return digest(self.home)

        self.answer.unlink(missing_ok=True)
        self.before = set(strays(self.home))
        return start(run, self.answer)

    def outcome(self, status: int) -> dict[str, str]:
        """What a process has left that came to its end by itself."""
        assert status == 0, f"status {status}"
        earlier = self.before if self.work.once else set()  # of a process that was killed when its work was done
        left = set(strays(self.home)) - earlier
        assert not left, f"left after the end: {left}"
        found: dict[str, str] = json.loads(self.answer.read_text())
        return {name: content for name, content in found.items() if name.split("/")[0] not in earlier}

    def disturb(self, kinds: list[signal.Signals]) -> None:
        """Send these signals, the last first. At times the work is left alone until it ends, and in the end."""
        while kinds:
            place(self.work, self.home, self.inputs)
            while not self.ends(self.begin(), kinds if self.draw.random() < 0.9 else []):
                pass

    def ends(self, pid: int, kinds: list[signal.Signals]) -> bool:
        """Send a process the signals that are left, until one ends it; whether it came to its end by itself."""
        status = None
        while kinds and status is None:
            time.sleep(self.draw.random() * self.seconds * 1.1)
            if os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT):
                break
            kind = kinds[-1]
            os.kill(pid, kind)
            sent = time.monotonic()
            if kind == signal.SIGSTOP:  # and it goes on
                time.sleep(0.02)
                os.kill(pid, signal.SIGCONT)
            else:
                status = ended(pid)
                if status == 0:  # it was quicker
                    break
                assert status == (INTERRUPTED if kind == signal.SIGINT else -kind), f"status {status}"
            if kind == signal.SIGINT:
                self.report.latencies.append(json.loads(self.answer.read_text()) - sent)
                own = {"state.new", "done.new"}  # of the works themselves
                left = {name for name in strays(self.home) if not name.startswith("rows.npy.partial")}
                left -= own | self.before  # by one that was killed
                assert not left, f"left after Ctrl-C: {left}"
            self.report.sent[kinds.pop()] += 1
        if status:
            return False
        found = self.outcome(ended(pid) if status is None else status)
        assert found == self.expected, f"ended with {found}, expected {self.expected}"
        self.report.whole += 1
        return True


def main(directory: str, count: str, seed: str, *names: str) -> int:
    home = Path(directory)
    (home / "inputs").mkdir(parents=True, exist_ok=True)
    os.environ["XDG_CACHE_HOME"] = str(home / "cache")
    torch.set_num_threads(1)
    status = ended(start(lambda: prepare(home / "inputs")))
    assert status == 0, status
    draw, failed = random.Random(int(seed)), 0
    few = max(1, int(count) // 4)
    for name in names or WORKS:
        rig = Rig(WORKS[name], home, draw)
        kinds = [kind for kind in KINDS for _ in range(int(count) if kind == signal.SIGKILL else few)]
        draw.shuffle(kinds)
        try:
            rig.disturb(kinds)
        except AssertionError as wrong:
            failed += 1
            print(f"{name}: FAILED: {wrong}", flush=True)
        print(f"{name}: {rig.report}", flush=True)
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
