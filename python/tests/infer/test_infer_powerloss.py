"""The power is taken away while an inference saves how far it is: it goes on from there, to the same rows."""

from __future__ import annotations

import fcntl
import gc
import os
import random
import shutil
import struct
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from graphs import random_graph
from seeds import seed as seed_of

import freshgo
from freshgo._infer import run

tg = pytest.importorskip("torch_geometric.nn")
pytestmark = pytest.mark.explore

ALL = os.environ.get("FRESHGO_TEST_POWERLOSS") == "all"
STEPS = ("open", "pwrite", "fsync", "replace", "rename", "mkdir", "unlink", "rmdir")
"""What an inference asks the system for, beside what the library does."""
SHUTDOWN = 0x8004587D
"""Of ext4 and xfs: the disk takes nothing any more, with (1) or without (2) what the journal has by then."""
MAKING = {"ext4": (64 << 20, ["mkfs.ext4", "-q", "-F"]), "xfs": (320 << 20, ["mkfs.xfs", "-q", "-f", "-K"])}


@contextmanager
def mounted(image: Path, place: Path) -> Iterator[None]:
    """The file system while it is in use. Afterwards it is gone from the kernel too.

    What keeps it there is a process with a mount namespace of its own, which began while it was mounted, or a ring that
    the kernel has not let go of yet. To mount the image again would then give the one that has lost its power.
    """
    subprocess.run(["mount", "-o", "loop", image, place], check=True)
    try:
        yield
    finally:
        gc.collect()
        subprocess.run(["umount", place], check=True)
        until = time.monotonic() + 60
        while any(backing(device) == str(image) for device in Path("/sys/block").glob("loop*")):
            assert time.monotonic() < until, f"{image} is still mounted by another process"
            time.sleep(0.001)


def backing(device: Path) -> str | None:
    """The file that a loop device has, if it has one."""
    try:
        return (device / "loop" / "backing_file").read_text().strip()
    except OSError:
        return None


def disk(kind: str, home: Path) -> tuple[Path, Path]:
    """The image of a file system, and where it can be mounted."""
    size, command = MAKING[kind]
    image, place = home / f"{kind}.image", home / kind
    place.mkdir()
    with image.open("wb") as file:
        file.truncate(size)
    if os.geteuid() != 0 or shutil.which(command[0]) is None or subprocess.run([*command, image]).returncode:
        pytest.skip(f"no file system of {kind} can be made here")
    if subprocess.run(["mount", "-o", "loop", image, place], capture_output=True).returncode:
        pytest.skip("nothing can be mounted here")
    subprocess.run(["umount", place], check=True)
    return image, place


class Steps:
    """Counts the calls to the system, and takes the power away before one of them."""

    def __init__(self, patch: pytest.MonkeyPatch, at: int, lose: Callable[[], None]) -> None:
        self.made, self._at, self._lose = 0, at, lose
        for name in STEPS:
            patch.setattr(os, name, self._counted(getattr(os, name)))

    def _counted(self, call: Any) -> Any:
        def counted(*arguments: Any, **more: Any) -> Any:
            self.made += 1
            if self.made == self._at:
                self._lose()
            return call(*arguments, **more)

        return counted


@pytest.mark.parametrize("kind", MAKING)
def test_power_loss(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    graph = random_graph(300, 2000)
    freshgo.convert({name: graph[name] for name in ("x", "edge_index")}, tmp_path / "g", progress=False).close()
    torch.manual_seed(5)
    model = tg.GraphSAGE(24, 8, 2, 5).eval()
    image, place = disk(kind, tmp_path)
    out, draw = place / "rows.npy", random.Random(seed_of(0))
    monkeypatch.setattr(run, "SAVED_EVERY", 0.0)

    def infer() -> None:
        freshgo.infer(model, tmp_path / "g", out, batch_size=100, memory="32MiB", overwrite=True, progress=False)

    with mounted(image, place):
        with monkeypatch.context() as patch:
            steps = Steps(patch, 0, lambda: None)
            infer()
        expected = np.load(out)
    old, losses = np.zeros((2, 2), np.float32), {"none": 0, "old": 0, "new": 0}
    cases = [(at, how, replaces) for at in range(1, steps.made + 1) for how in (1, 2) for replaces in (False, True)]
    for at, how, replaces in cases if ALL else draw.sample(cases, 3):
        with mounted(image, place):
            out.unlink(missing_ok=True)
            if replaces:
                np.save(out, old)
            os.sync()

            def lose(how: int = how) -> None:
                root = os.open(place, os.O_RDONLY)
                fcntl.ioctl(root, SHUTDOWN, struct.pack("I", how))
                os.close(root)

            failed = False
            with monkeypatch.context() as patch:
                Steps(patch, at, lose)
                try:
                    infer()
                except OSError:  # of the library's errors these are of files
                    failed = True
        with mounted(image, place):
            found = np.load(out) if out.exists() else None
            state = "none" if found is None else "old" if found.shape == old.shape else "new"
            losses[state] += 1
            assert state == "none" or np.array_equal(found, old if state == "old" else expected), (at, how, replaces)
            assert state != "none" or not replaces, (at, how)
            assert state == "new" or failed, (at, how, replaces)
            infer()
            assert np.array_equal(np.load(out), expected), (at, how, replaces)
            assert {path.name for path in place.iterdir()} <= {"rows.npy", "lost+found"}
    if ALL:
        with capsys.disabled():
            print(f"\n{kind}: {len(cases)} losses at {steps.made} calls: {losses}")
