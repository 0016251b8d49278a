"""What happens around a process: import, fork, interrupts, exit."""

from __future__ import annotations

import multiprocessing
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from warm import run, start

from freshgo import Loader, Store

IMPORT = """
import sys, torch
before = set(sys.modules)
import freshgo
imported = set(sys.modules)
print("libfreshgo" in open("/proc/self/maps").read(), "torch_geometric" in imported, "matplotlib" in imported)
print(*imported - before)
from freshgo import Loader, Store, convert
print(*set(sys.modules) - imported)
loader = Loader(sys.argv[1], [2, 2], batch_size=10)
iterator = iter(loader)
batch = next(iterator)
print("end")
"""

SELDOM = (
    "history",
    "_device.mover",
    "_device.packed",
    "_device.row_cache",
    "_device.streams",
    "_ops",
    "_plots.plan",
    "_plots.timeline",
    "_host_loader",
    "_sources.recognise",
)
"""Rooms and modules of freshgo that few programs need."""


def test_import_loads_nothing_native_and_little_else_and_the_exit_is_quiet(store_path: Path) -> None:
    """What an import of freshgo loads beside torch, and not how long it takes; and an end with everything open."""
    command = [sys.executable, "-W", "ignore", "-c", IMPORT, store_path]
    said = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    assert said.stderr == ""
    loaded, first, then, end = said.stdout.splitlines()
    assert end == "end"
    assert loaded.split() == ["False"] * 3
    new = first.split()
    own, with_loader = ([name for name in some if name.startswith("freshgo")] for some in (new, [*new, *then.split()]))
    # Small modules of Python, which torch may have loaded or not, and nothing of torch's own.
    assert {*new, *then.split()} - set(with_loader) <= {"resource", "shlex"}
    assert "freshgo.loader" not in own and "freshgo.loader" in with_loader
    assert len(own) <= 55 and len(with_loader) <= 95  # dataclasses and structs take most of the time
    assert not [name for name in with_loader if name.removeprefix("freshgo.").startswith(SELDOM)]


@pytest.mark.parametrize(("limit", "room"), [("RLIMIT_AS", 600), ("RLIMIT_AS", 1300), ("RLIMIT_DATA", 100)])
def test_a_tight_limit_is_an_error(limit: str, room: int) -> None:
    """Go's runtime would end the interpreter."""
    said = run(
        """
        import resource, sys
        import freshgo
        from freshgo._args.size import available_memory
        name, room = sys.argv[1], int(sys.argv[2]) << 20
        kind = {"RLIMIT_AS": "VmSize", "RLIMIT_DATA": "VmData"}[name]
        used = next(int(line.split()[1]) << 10 for line in open("/proc/self/status") if line.startswith(kind))
        resource.setrlimit(getattr(resource, name), (used + room, resource.getrlimit(getattr(resource, name))[1]))
        assert available_memory() <= room
        for _ in range(2):
            try:
                freshgo.library()
            except freshgo.errors.LibraryError as error:
                print(error)
        """,
        limit,
        room,
    )
    first, second = said.splitlines()
    assert re.search(rf"needs [\d.]+ [GM]iB of .*{limit}.* leaves [\d.]+ [GM]iB: raise it by", first)
    assert re.search(limit, second)


def test_a_loader_works_in_the_least_room(store_path: Path) -> None:
    """With what the check asks for, and the default memory, which follows from the limit."""
    out = run(
        """
        import resource, sys
        import freshgo
        from freshgo._native import abi
        fixed, each = abi._ROOM["RLIMIT_AS"]
        need = fixed + each * len(__import__("os").sched_getaffinity(0))
        used = next(int(line.split()[1]) << 10 for line in open("/proc/self/status") if line.startswith("VmSize"))
        resource.setrlimit(resource.RLIMIT_AS, (used + need + (8 << 20), resource.getrlimit(resource.RLIMIT_AS)[1]))
        with freshgo.Loader(sys.argv[1], [5, 5], batch_size=500, prefetch=4) as loader:
            print(sum(batch.x.shape[0] > 0 for batch in loader), len(loader), loader.stats()["memory_limit"] < need)
        """,
        store_path,
    )
    assert out.split() == ["6", "6", "True"]


def test_a_forked_child_gets_an_error(store_path: Path) -> None:
    out = run(
        """
        import os, sys, warnings
        warnings.simplefilter("ignore")
        from freshgo import Loader, Store, errors
        loader = Loader(sys.argv[1], [2], batch_size=10)
        iterator = iter(loader)
        batch = next(iterator)
        if os.fork() == 0:
            for action in (lambda: next(iterator), lambda: iter(loader), lambda: Store.open(sys.argv[1]), loader.stats):
                try:
                    action()
                except errors.ForkError:
                    print("ForkError", batch.x.shape[1], flush=True)
            os._exit(0)
        assert os.wait()[1] == 0
        print("parent", len(list(iterator)) + 1 == len(loader))
        """,
        store_path,
    )
    assert out.split() == ["ForkError", "24"] * 4 + ["parent", "True"]


def test_a_forked_pool_gets_an_error_for_a_store(store_path: Path) -> None:
    """And waits for nothing: a worker whose arguments cannot be unpickled ends, and Pool waits for ever."""
    out = run(
        """
        import multiprocessing, sys, warnings
        warnings.simplefilter("ignore")
        from freshgo import Loader, Store, errors

        def work(store):
            found = [store.num_nodes == nodes]
            for action in (lambda: store["y"], store.verify, lambda: Loader(store, [2], batch_size=10)):
                try:
                    action()
                except errors.ForkError:
                    found.append("ForkError")
            return found

        store = Store(sys.argv[1])
        nodes = store.num_nodes
        with multiprocessing.get_context("fork").Pool(1) as pool:
            print(*pool.apply_async(work, (store,)).get(60))
        """,
        store_path,
    )
    assert out.split() == ["True"] + ["ForkError"] * 3


def batches_of(store: Store) -> tuple[int, int]:
    with Loader(store, [2], batch_size=1000) as loader:
        return os.getpid(), len(list(loader))


def test_spawned_workers_work(store_path: Path) -> None:
    with Store.open(store_path) as store, multiprocessing.get_context("spawn").Pool(1) as pool:
        worker, batches = pool.apply(batches_of, [store])
    assert worker != os.getpid()
    assert batches == 3


def test_ctrl_c_while_waiting(store_path: Path) -> None:
    """The consumer of a loader that is interrupted gets KeyboardInterrupt, and the loader works on."""
    process = start(
        """
        import sys
        from freshgo import Loader
        loader = Loader(sys.argv[1], [5, 5], batch_size=64)
        try:
            print("ready", flush=True)
            while True:
                for batch in loader:
                    pass
        except KeyboardInterrupt:
            assert len(list(loader)) == len(loader)
            print("interrupted", flush=True)
        """,
        store_path,
    )
    assert process.stdout.readline() == "ready\n"
    time.sleep(0.3)
    os.kill(process.pid, signal.SIGINT)
    assert process.communicate(timeout=60)[0] == "interrupted\n"
    assert process.returncode == 0
