"""What the library does to a process: symbols, signals, forks, exit, and its own defects."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import time
from pathlib import Path

import capi_header
import pytest
from warm import run, start

from freshgo._native import abi


def test_only_the_c_api_is_exported() -> None:
    nm = shutil.which("nm")
    assert nm is not None, "nm comes with the C compiler that built the library"
    listing = subprocess.run(
        [nm, "-D", "--defined-only", abi.library_path()], capture_output=True, text=True, check=True
    )
    exported = {line.split()[-1] for line in listing.stdout.splitlines()}
    assert exported == capi_header.declared()


def test_every_function_is_documented() -> None:
    pattern = r"(/\*(?:(?!\*/).)*\*/)\s*(?:int32_t|void) \*?(fg_\w+)\("
    found = re.findall(pattern, capi_header.text(), re.DOTALL)
    assert {name for _, name in found} == capi_header.declared()
    for comment, name in found:
        for word in ("Blocks:", "Threads:", "Ownership:", "Returns:"):
            assert word in comment, f"{name} says nothing about {word}"


def test_a_panic_is_an_error_and_the_last_one(store_path: Path) -> None:
    """A caller in C that lies about the length of an array brings one about: what is said then, and ever after."""
    out = run(
        """
        import ctypes, sys
        from freshgo import errors
        from freshgo._native import abi
        from freshgo._native.graph import source_handles
        from freshgo._native.loader import Loader as NativeLoader
        from freshgo._native.options import loader_options, raw_options, relations
        from freshgo._native.process import counters
        from freshgo._native.store import Store as NativeStore
        store = NativeStore(sys.argv[1])
        loader = NativeLoader(store, loader_options(batch_size=10, prefetch=4, **relations([[2]])))
        loader.start(0, 0)
        batch = loader.next()
        wrong = raw_options(loader_options(batch_size=10, **relations([[2]])))
        seed = ctypes.c_int64(0)
        wrong.all_nodes, wrong.seeds, wrong.num_seeds = 0, ctypes.pointer(seed), 1 << 62
        messages = set()
        def attempt(action):
            try:
                action()
            except errors.InternalError as error:
                messages.add(str(error))
                print("InternalError")
        job = ctypes.c_void_p()
        attempt(lambda: abi.call("fg_loader_open", *source_handles(store), ctypes.byref(wrong), ctypes.byref(job)))
        for action in (loader.next, loader.stats, lambda: NativeStore(sys.argv[1]), loader.close, counters):
            attempt(action)
        assert len(messages) == 1, messages
        message = messages.pop()
        assert "len out of range" in message and "options.go" in message, message
        print(int(batch.tensors["n_id"].sum()) > 0)
        """,
        store_path,
    )
    assert out.split() == ["InternalError"] * 6 + ["True"]


def test_a_forked_child_never_calls_the_library(store_path: Path) -> None:
    """Every call raises there, finalizers do nothing, and tensors of the parent are used and freed."""
    out = run(
        """
        import gc, os, sys, warnings
        warnings.simplefilter("ignore")
        from freshgo import errors
        from freshgo._native import abi
        from freshgo._native.loader import Loader as NativeLoader
        from freshgo._native.options import loader_options, relations
        from freshgo._native.process import counters
        from freshgo._native.store import Store as NativeStore
        store = NativeStore(sys.argv[1])
        loader = NativeLoader(store, loader_options(batch_size=10, prefetch=4, **relations([[2]])))
        loader.start(0, 0)
        batch = loader.next()
        pid = os.fork()
        if pid == 0:
            for action in (loader.next, loader.stop, loader.close, loader.stats, store.describe, counters,
                           lambda: NativeStore(sys.argv[1])):
                try:
                    action()
                except errors.ForkError as error:
                    assert isinstance(error, RuntimeError)
                    print("ForkError", flush=True)
            print(batch.tensors["x"].shape[1], flush=True)
            del batch, loader, store
            gc.collect()
            sys.exit(0)  # an ordinary exit, finalizers included
        assert os.waitpid(pid, 0)[1] == 0
        rest = len(list(iter(loader.next, None)))
        print(rest + 1 == loader.num_batches)
        loader.close()
        """,
        store_path,
    )
    assert out.split() == ["ForkError"] * 7 + ["24", "True"]


def test_a_child_forked_before_the_first_use_works(store_path: Path) -> None:
    out = run(
        """
        import os, sys
        from freshgo._native.loader import Loader as NativeLoader
        from freshgo._native.options import loader_options, relations
        from freshgo._native.process import counters
        from freshgo._native.store import Store as NativeStore
        if os.fork() == 0:
            print(NativeStore(sys.argv[1]).describe()["num_nodes"], flush=True)
            sys.exit(0)
        assert os.wait()[1] == 0
        print(NativeStore(sys.argv[1]).describe()["num_nodes"])
        """,
        store_path,
    )
    assert out.split() == ["3000", "3000"]


def test_tensors_are_deleted_in_a_child_while_the_parent_uses_the_pool(store_path: Path) -> None:
    """The pool's lock is never left locked in a child."""
    run(
        """
        import os, sys, threading, warnings
        warnings.simplefilter("ignore")
        from freshgo._native.loader import Loader as NativeLoader
        from freshgo._native.options import loader_options, relations
        from freshgo._native.process import counters
        from freshgo._native.store import Store as NativeStore
        loader = NativeLoader(NativeStore(sys.argv[1]), loader_options(batch_size=10, prefetch=4, **relations([[2]])))
        stop = threading.Event()
        def work():
            epoch = 0
            while not stop.is_set():
                loader.start(epoch, 0)
                while not stop.is_set() and loader.next() is not None:
                    pass
                epoch += 1
        loader.start(0, 0)
        kept = [loader.next() for _ in range(50)]
        thread = threading.Thread(target=work)
        thread.start()
        for _ in range(20):
            pid = os.fork()
            if pid == 0:
                kept.clear()
                os._exit(0)
            assert os.waitpid(pid, 0)[1] == 0
        stop.set()
        thread.join()
        """,
        store_path,
    )


@pytest.mark.parametrize("how", ["pass", "sys.exit(0)", "os._exit(0)", "loader.close()", "del loader, store"])
def test_exit_with_everything_alive(store_path: Path, how: str) -> None:
    """Batches are prepared, tensors alive, one capsule unused: the process ends quietly."""
    run(
        f"""
        import os, sys
        from freshgo._native import abi, dlpack
        from freshgo._native.loader import Loader as NativeLoader
        from freshgo._native.options import loader_options, relations
        from freshgo._native.process import counters
        from freshgo._native.store import Store as NativeStore
        store = NativeStore(sys.argv[1])
        loader = NativeLoader(store, loader_options(batch_size=10, prefetch=4, **relations([[5, 5]])))
        loader.start(0, 0)
        batch = loader.next()
        import builtins, torch
        builtins.kept_to_the_very_end = (batch, torch.nn.Parameter(batch.tensors["x"]))
        dlpack.to_torch = abi.new_capsules
        builtins.capsules = loader.next()
        {how}
        """,
        store_path,
    )


def test_exit_in_mid_epoch_ends_the_work_first(store_path: Path) -> None:
    """A handler that is called last, before modules are torn down, finds no loader open."""
    out = run(
        """
        import atexit, sys
        atexit.register(lambda: print(sys.modules["freshgo._native.process"].counters()["loaders"]))
        from freshgo._native.loader import Loader as NativeLoader
        from freshgo._native.options import loader_options, relations
        from freshgo._native.process import counters
        from freshgo._native.store import Store as NativeStore
        store = NativeStore(sys.argv[1])
        loader = NativeLoader(store, loader_options(batch_size=10, prefetch=4, **relations([[5, 5]])))
        loader.start(0, 0)
        loader.next()
        print(counters()["loaders"])
        """,
        store_path,
    )
    assert out.split() == ["1", "0"]


@pytest.mark.parametrize(
    "wait",
    [
        "loader.next()",
        "native_handle.run_job('fg_store_verify', store._handle())",
    ],
)
def test_ctrl_c_interrupts_within_200_ms(store_path: Path, wait: str) -> None:
    """While the library waits for something that does not come."""
    code = """
        import sys, time
        from freshgo._native import abi, handle as native_handle, header
        from freshgo._native.loader import Loader as NativeLoader
        from freshgo._native.options import loader_options, relations
        from freshgo._native.process import counters
        from freshgo._native.store import Store as NativeStore
        store = NativeStore(sys.argv[1])
        loader = NativeLoader(store, loader_options(batch_size=10, prefetch=4, **relations([[2]])))
        call, waits = abi.call, []
        def slow(name, *args):
            # Stands for a device that does not answer: the library waits its 50 ms each time.
            if name in ("fg_loader_next", "fg_job_wait"):
                assert args[1] <= 50
                if not waits:
                    print("waits", flush=True)
                waits.append(name)
                time.sleep(args[1] / 1000)
                return header.TIMEOUT
            return call(name, *args)
        abi.call = slow
        try:
            WAIT
        except KeyboardInterrupt:
            print(counters()["jobs"], flush=True)
        """
    process = start(code.replace("WAIT", wait), store_path)
    assert process.stdout.readline() == "waits\n"
    time.sleep(0.2)
    os.kill(process.pid, signal.SIGINT)
    assert process.communicate(timeout=60)[0] == "0\n"
    assert process.returncode == 0
