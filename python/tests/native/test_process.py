"""What happens around a process: import, fork, interrupts, exit."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest


def run(code: str, *arguments: object) -> str:
    answer = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code), *map(str, arguments)], capture_output=True, text=True, timeout=120
    )
    assert answer.returncode == 0, answer.stderr
    return answer.stdout


def test_import_loads_nothing_native_and_no_pyg() -> None:
    loaded = run("""
        import sys
        import freshgo
        print("libfreshgo" in open("/proc/self/maps").read(), "torch_geometric" in sys.modules,
              "matplotlib" in sys.modules)
    """)
    assert loaded.split() == ["False", "False", "False"]


def test_import_is_small() -> None:
    """What an import of freshgo loads beside torch, and not how long it takes."""
    new = run("""
        import sys
        import torch
        before = set(sys.modules)
        import freshgo
        print(*{name for name in set(sys.modules) - before if name.partition(".")[0] != "freshgo"})
    """)
    # Small modules of Python, which torch may have loaded or not, and nothing of torch's own.
    assert set(new.split()) <= {"html", "html.entities", "resource", "shlex"}


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


def test_spawned_workers_work(store_path: Path, tmp_path: Path) -> None:
    script = tmp_path / "spawn.py"
    script.write_text(
        textwrap.dedent("""
        import multiprocessing, sys
        from freshgo import Loader, Store

        def work(store):
            with Loader(store, [2], batch_size=1000) as loader:
                return len(list(loader))

        if __name__ == "__main__":
            store = Store.open(sys.argv[1])
            with multiprocessing.get_context("spawn").Pool(1) as pool:
                print(pool.apply(work, [store]))
        """)
    )
    answer = subprocess.run([sys.executable, script, store_path], capture_output=True, text=True, check=True)
    assert answer.stdout.split() == ["3"]


def test_ctrl_c_while_waiting(store_path: Path) -> None:
    """The consumer of a loader that is interrupted gets KeyboardInterrupt, and the loader works on."""
    process = subprocess.Popen(
        [
            sys.executable,
            "-c",
            textwrap.dedent("""
            import signal, sys
            from freshgo import Loader
            signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background job begins without
            loader = Loader(sys.argv[1], [5, 5], batch_size=64)
            try:
                print("ready", flush=True)
                while True:
                    for batch in loader:
                        pass
            except KeyboardInterrupt:
                assert len(list(loader)) == len(loader)
                print("interrupted", flush=True)
            """),
            str(store_path),
        ],
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    time.sleep(0.3)
    process.send_signal(signal.SIGINT)
    assert process.communicate(timeout=60)[0] == "interrupted\n"
    assert process.returncode == 0


def test_a_killed_conversion_leaves_nothing_that_opens(tmp_path: Path) -> None:
    code = textwrap.dedent("""
        import sys
        import numpy as np
        from freshgo import convert
        rng = np.random.default_rng(0)
        n, e = 200_000, 4_000_000
        data = {"edge_index": rng.integers(n, size=(2, e)), "x": np.zeros((n, 200), np.float32)}
        def progress(stage, done, total):
            print(stage, flush=True)
        convert(data, sys.argv[1], memory="32MiB", progress=progress).close()
        print("done", flush=True)
    """)
    target = tmp_path / "g.freshgo"
    process = subprocess.Popen([sys.executable, "-c", code, str(target)], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    process.stdout.readline()
    process.kill()
    process.wait()
    process.stdout.close()
    from freshgo import Store, errors

    if target.exists():  # it was quicker than the signal
        Store.open(target).close()
    else:
        try:
            Store.open(target)
        except errors.StoreNotFoundError:
            pass
        answer = subprocess.run([sys.executable, "-c", code, str(target)], capture_output=True, text=True, check=True)
        assert answer.stdout.endswith("done\n")
    assert [path.name for path in tmp_path.iterdir()] == ["g.freshgo"]


def test_exit_with_everything_open(store_path: Path) -> None:
    assert (
        run(
            """
        import sys
        from freshgo import Loader
        loader = Loader(sys.argv[1], [2, 2], batch_size=10)
        iterator = iter(loader)
        batch = next(iterator)
        print("end")
        """,
            store_path,
        )
        == "end\n"
    )
