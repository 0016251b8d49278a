"""Stores and scratch files in all kinds of places: file systems, sandboxes, beside other processes."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import textwrap
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch
import warm
from flat_options import grouped

import freshgo
from freshgo import Loader, Store, errors

PLANNED: dict[str, Any] = {
    "batch_size": 50, "shuffle": True, "seed": 4, "cache": "belady", "feature_cache": "128KiB",
    "trace_memory": "256KiB", "buffer_memory": 0, "transfer": "pack", "prefetch": 2,
}  # fmt: skip
"""So little memory that traces and packs are in the scratch file."""


@pytest.fixture(scope="module")
def expected(graph: dict[str, Any]) -> list[Any]:
    with Loader(graph, [4, 3], batch_size=50, shuffle=True, seed=4) as loader:
        return [(batch.n_id, batch.x) for _ in range(2) for batch in loader]


def require_epochs(store: Path, expected: list[Any], between: Callable[[], None] = lambda: None, **options: Any) -> Any:
    """Two epochs that bring what they bring in memory; ``between`` is called in the first. Returns the statistics."""
    with Loader(store, [4, 3], **grouped(**{**PLANNED, **options})) as loader:
        count = 0
        for _ in range(2):
            for batch in loader:
                nodes, rows = expected[count]
                assert torch.equal(batch.n_id, nodes)
                assert torch.equal(batch.x, rows)
                count += 1
                if count == 5:
                    between()
        assert count == len(expected)
        return loader.stats()


@contextmanager
def mounted(*arguments: object) -> Iterator[None]:
    """A file system that is mounted for a while; skips where that is not allowed."""
    where = str(arguments[-1])
    try:
        done = subprocess.run(["mount", *map(str, arguments)], capture_output=True, text=True)
    except FileNotFoundError:
        pytest.skip("no mount")
    if done.returncode:
        pytest.skip(f"nothing can be mounted here: {done.stderr.strip()}")
    try:
        yield
    finally:
        subprocess.run(["umount", "--lazy", where], check=True)


@contextmanager
def tmpfs(place: Path, size: str = "64m") -> Iterator[Path]:
    place.mkdir()
    with mounted("-t", "tmpfs", "-o", f"size={size}", "freshgo", place):
        yield place


@contextmanager
def overlay(place: Path) -> Iterator[Path]:
    """What was in ``lower`` is seen and can be replaced; what is written goes to ``upper``."""
    for name in ("lower", "upper", "work", "seen"):
        (place / name).mkdir(parents=True)
    options = ",".join(f"{kind}={place / name}" for kind, name in
                       (("lowerdir", "lower"), ("upperdir", "upper"), ("workdir", "work")))  # fmt: skip
    with mounted("-t", "overlay", "overlay", "-o", options, place / "seen"):
        yield place / "seen"


@contextmanager
def fuse(place: Path) -> Iterator[Path]:
    """A directory through a process of the user's: bindfs."""
    if shutil.which("bindfs") is None or not Path("/dev/fuse").exists():
        pytest.skip("no bindfs, or no /dev/fuse: there is no file system in user space to try")
    for name in ("there", "seen"):
        (place / name).mkdir(parents=True)
    done = subprocess.run(["bindfs", place / "there", place / "seen"], capture_output=True, text=True)
    if done.returncode:
        pytest.skip(f"bindfs mounts nothing here: {done.stderr.strip()}")
    try:
        yield place / "seen"
    finally:
        subprocess.run(["umount", "--lazy", place / "seen"], check=True)


@pytest.mark.parametrize("kind", [tmpfs, overlay, fuse])
def test_file_systems(kind: Any, tmp_path: Path, graph: dict[str, Any], expected: list[Any]) -> None:
    """Written, read, trained on with a scratch file, changed and replaced."""
    with kind(tmp_path / "place") as place:
        store = place / "g"
        freshgo.convert(graph, store, memory="16MiB", progress=False).close()
        require_epochs(store, expected, scratch=place, scratch_size="16MiB")
        freshgo.relayout(store, store, order="hot", hotness="in-degree", overwrite=True, progress=False).close()
        freshgo.update(store, store, tensors={"z": graph["y"]}, overwrite=True, progress=False).close()
        freshgo.propagate(store, progress=False).close()
        with Store.open(store) as opened:
            opened.verify()
            assert torch.equal(torch.as_tensor(opened["z"]), torch.as_tensor(graph["y"]))
        require_epochs(store, expected, scratch=place, scratch_size="16MiB")
        assert [path.name for path in place.iterdir()] == ["g"]


def test_a_store_below_an_overlay(tmp_path: Path, store_path: Path, graph: dict[str, Any], expected: list[Any]) -> None:
    """As in the image of a container: it is read and added to. An overlay lets nothing take its place in one step."""
    with overlay(tmp_path / "place") as place:
        below = tmp_path / "place" / "lower" / "g"
        shutil.copytree(store_path, below)
        before = {path.name: path.read_bytes() for path in below.iterdir()}
        subprocess.run(["mount", "-o", "remount", place], check=True)  # it looks again at what is below
        require_epochs(place / "g", expected, scratch=place)
        freshgo.propagate(place / "g", progress=False).close()
        with pytest.raises(errors.WriteError) as caught:
            freshgo.convert(graph, place / "g", overwrite=True, progress=False)
        assert caught.value.errno == 18  # EXDEV
        freshgo.convert(graph, place / "h", progress=False).close()
        for name in ("g", "h"):
            require_epochs(place / name, expected)
        assert sorted(path.name for path in place.iterdir()) == ["g", "h"]
        assert {path.name: path.read_bytes() for path in below.iterdir()} == before


def nowhere() -> str:
    raise FileNotFoundError(2, "No usable temporary directory found")


def test_a_read_only_store(
    tmp_path: Path,
    store_path: Path,
    graph: dict[str, Any],
    expected: list[Any],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    place = tmp_path / "place"
    place.mkdir()
    shutil.copytree(store_path, tmp_path / "there" / "g")
    with mounted("--bind", tmp_path / "there", place):
        subprocess.run(["mount", "-o", "remount,ro,bind", place], check=True)
        require_epochs(place / "g", expected)
        require_epochs(place / "g", expected, scratch=tmp_path)
        with monkeypatch.context() as patched:  # as in a container whose file systems are all read-only
            patched.setattr(tempfile, "gettempdir", nowhere)
            require_epochs(place / "g", expected, trace_memory=None, memory="64MiB")
        wrong: dict[str, Callable[[], Any]] = {
            "convert": lambda: freshgo.convert(graph, place / "h", progress=False),
            "convert over it": lambda: freshgo.convert(graph, place / "g", overwrite=True, progress=False),
            "update": lambda: freshgo.update(place / "g", place / "g", drop=["y"], overwrite=True, progress=False),
            "propagate": lambda: freshgo.propagate(place / "g", progress=False),
        }
        for name, call in wrong.items():
            with pytest.raises((errors.StorePermissionError, errors.WriteError), match=str(place)) as caught:
                call()
            assert caught.value.errno == 30, name  # EROFS
        with Store.open(place / "g") as store:
            store.verify()


def test_a_full_scratch_directory(tmp_path: Path, store_path: Path, expected: list[Any]) -> None:
    """Somebody else fills it in the middle of an epoch, and later makes room again."""
    with tmpfs(tmp_path / "scratch", "3m") as scratch:

        def fill() -> None:
            try:
                (scratch / "other").write_bytes(bytes(16 << 20))
            except OSError:
                pass
            assert os.statvfs(scratch).f_bavail == 0

        stats = require_epochs(store_path, expected, fill, scratch=scratch, scratch_size="2500KiB")
        assert stats["batches"] == len(expected)


def test_a_scratch_directory_that_is_removed(tmp_path: Path, store_path: Path, expected: list[Any]) -> None:
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    require_epochs(store_path, expected, scratch.rmdir, scratch=scratch)
    assert not scratch.exists()


FORBID_RINGS = """
import ctypes, errno, struct
libc = ctypes.CDLL(None, use_errno=True)
SETUP, ALLOW, REFUSE = 425, 0x7FFF0000, 0x00050000 | errno.EPERM
code = [(0x20, 0, 0, 0), (0x15, 0, 1, SETUP), (0x06, 0, 0, REFUSE), (0x06, 0, 0, ALLOW)]  # BPF: load, compare, return
program = b"".join(struct.pack("HBBI", *line) for line in code)
filter = ctypes.create_string_buffer(program)
class Program(ctypes.Structure):
    _fields_ = [("length", ctypes.c_ushort), ("filter", ctypes.c_void_p)]
held = Program(len(code), ctypes.addressof(filter))
assert libc.prctl(38, 1, 0, 0, 0) == 0  # no new privileges
if libc.prctl(22, 2, ctypes.byref(held), 0, 0) != 0:
    print("skip")
    raise SystemExit
"""


def run(code: str, *arguments: object) -> str:
    process = warm.start(code, *arguments)
    printed, said = process.communicate()
    assert process.returncode == 0, said
    return printed


def test_a_sandbox_without_io_uring(store_path: Path) -> None:
    said = run(
        FORBID_RINGS
        + textwrap.dedent("""
        import sys
        from freshgo import Disk, Loader, errors
        options = dict(batch_size=50, cache="belady", feature_cache="128KiB")
        for io in ("auto", "io_uring"):
            try:
                with Loader(sys.argv[1], [4, 3], disk=Disk(io=io), **options) as loader:
                    print(len(list(loader)) == len(loader), loader.stats()["engine"])
            except errors.FreshgoError as error:
                print(type(error).__name__, error)
        """),
        store_path,
    )
    if said == "skip\n":
        pytest.skip("no filter of system calls may be set here")
    auto, forced = said.splitlines()
    assert auto.startswith("True")
    assert "io_uring" not in auto
    assert "io_uring" in forced
    assert "not permitted" in forced


EPOCHS = """
import hashlib, sys
from freshgo import Belady, Loader
plan = Belady(trace_memory="256KiB", buffer_memory=0, transfer="pack", scratch=sys.argv[2])
options = dict(batch_size=50, shuffle=True, seed=4, cache=plan, feature_cache="128KiB")
print("ready", flush=True)
sys.stdin.readline()
with Loader(sys.argv[1], [4, 3], **options) as loader:
    print("open", flush=True)
    sys.stdin.readline()
    sum = hashlib.sha256()
    for _ in range(2):
        for batch in loader:
            sum.update(batch.n_id.numpy().tobytes() + batch.x.numpy().tobytes())
print(sum.hexdigest())
"""


@pytest.mark.parametrize("replaced", [False, True])
def test_two_processes_on_one_store(
    tmp_path: Path, store_path: Path, graph: dict[str, Any], expected: list[Any], replaced: bool
) -> None:
    """With one directory for their scratch files; and a third process puts another store there meanwhile."""
    store = tmp_path / "g"
    shutil.copytree(store_path, store)
    (tmp_path / "scratch").mkdir()
    command = [sys.executable, "-c", EPOCHS, store, tmp_path / "scratch"]
    pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    processes = [subprocess.Popen(command, **pipes) for _ in range(2)]

    def step(said: str) -> None:
        for process in processes:
            assert process.stdout.readline() == said
            process.stdin.write("\n")
            process.stdin.flush()

    step("ready\n")
    if replaced:
        for process in processes:
            assert process.stdout.readline() == "open\n"
        other = {**graph, "x": graph["x"] + 1}
        freshgo.convert(other, store, overwrite=True, progress=False).close()
        for process in processes:
            process.stdin.write("\n")
            process.stdin.flush()
    else:
        step("open\n")
    sums = [process.communicate(timeout=300)[0].strip() for process in processes]
    assert [process.returncode for process in processes] == [0, 0]
    alone = hashlib.sha256()
    for nodes, rows in expected:
        alone.update(nodes.numpy().tobytes() + rows.numpy().tobytes())
    assert sums == [alone.hexdigest()] * 2
    assert sorted(path.name for path in tmp_path.iterdir()) == ["g", "scratch"]
    assert not list((tmp_path / "scratch").iterdir())
