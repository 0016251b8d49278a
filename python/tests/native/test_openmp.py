"""While a loader reads, PyTorch's OpenMP threads share the processors with those of the library."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import textwrap
import threading
import weakref
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from freshgo import Loader, MemoryBudget, Store
from freshgo._native import openmp

pytestmark = pytest.mark.skipif(openmp.parallel() is None, reason="PyTorch has another OpenMP than GNU's")


@pytest.fixture(autouse=True)
def undecided(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """No variable says how threads wait, and no loader of another test is left."""
    for name in openmp._CHOSEN:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(openmp, "_holders", weakref.WeakSet())
    monkeypatch.setattr(openmp, "_leave", None)
    yield


def waiting() -> list[threading.Thread]:
    """The threads that have begun a team and wait."""
    return [t for t in threading.enumerate() if t.name == "freshgo-openmp"]


def run(code: str) -> None:
    """Run code in a process of its own, in which no variable says how threads wait."""
    environment = {key: value for key, value in os.environ.items() if key not in openmp._CHOSEN}
    subprocess.run([sys.executable, "-c", textwrap.dedent(code)], check=True, timeout=120, env=environment)


def out_of_core(store: Store, **options: Any) -> Loader:
    return Loader(store, [3, 3], batch_size=4, cache="belady", feature_cache="4KiB", memory="64MiB", **options)


def ended(threads: list[threading.Thread]) -> bool:
    for thread in threads:
        thread.join(10)
    return not any(thread.is_alive() for thread in threads)


def test_one_thread_waits_for_all_loaders_that_read(store: Store) -> None:
    before = waiting()
    with out_of_core(store) as first:
        mine = [t for t in waiting() if t not in before]
        assert len(mine) == 1
        with out_of_core(store) as second:
            assert [t for t in waiting() if t not in before] == mine
            first.close()
            list(second)
            assert mine[0].is_alive()
    assert ended(mine)
    dropped = out_of_core(store)
    mine = [t for t in waiting() if t not in before]
    assert len(mine) == 1
    del dropped
    assert ended(mine)


def test_the_team_of_the_thread_ends_with_it() -> None:
    run("""
        import os, threading, time
        from freshgo._native import openmp

        def tasks():
            return len(os.listdir("/proc/self/task"))

        before = tasks()
        shared, other = openmp.Shared(), openmp.Shared()
        assert tasks() == before + 2, (before, tasks())  # it, and the other thread of its team
        for one in (shared, shared, other):
            assert tasks() == before + 2
            one.release()
        until = time.monotonic() + 10
        while tasks() > before and time.monotonic() < until:
            time.sleep(0.01)
        assert tasks() == before, (before, tasks())
    """)


def test_a_loader_whose_rows_are_in_memory_leaves_openmp_alone(store: Store) -> None:
    before = waiting()
    with Loader(store, [3, 3], batch_size=4) as loader:
        list(loader)
        assert waiting() == before


def test_a_loader_that_lends_its_memory_lets_go(store: Store) -> None:
    before = waiting()
    budget = MemoryBudget("64MiB")
    options: dict[str, Any] = {"batch_size": 4, "cache": "belady", "feature_cache": "4KiB", "memory": budget}
    options["input_nodes"] = range(400)
    with Loader(store, [3, 3], **options) as one, Loader(store, [3, 3], **options) as other:
        list(one)
        list(other)
        list(one)
        mine = [t for t in waiting() if t not in before]
        assert mine
    assert ended(mine)


@pytest.mark.parametrize("name", openmp._CHOSEN)
def test_what_the_user_has_decided_stays(store: Store, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setenv(name, "ACTIVE" if name == "OMP_WAIT_POLICY" else "1000")
    before = waiting()
    with out_of_core(store):
        assert waiting() == before


def test_a_forked_child_has_no_thread_and_starts_its_own() -> None:
    run("""
        import os
        from freshgo._native import openmp

        held = openmp.Shared()
        child = os.fork()
        if child == 0:
            held.release()
            del held
            assert not openmp._holders and openmp._leave is None
            again = openmp.Shared()
            assert openmp._leave is not None
            again.release()
            os._exit(0)
        assert os.waitpid(child, 0)[1] == 0
        assert len(openmp._holders) == 1
        held.release()
        assert not openmp._holders
    """)


def test_an_interrupted_start_leaves_no_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    before = waiting()

    class Interrupted(threading.Event):
        """Ctrl-C arrives while somebody waits for the thread to begin."""

        def wait(self, timeout: float | None = None) -> bool:
            if threading.current_thread() is threading.main_thread():
                raise KeyboardInterrupt
            return super().wait(timeout)

    with monkeypatch.context() as patched, contextlib.suppress(KeyboardInterrupt):
        patched.setattr(openmp, "threading", SimpleNamespace(Event=Interrupted, Thread=threading.Thread))
        openmp.Shared()
        pytest.fail("it was interrupted")
    assert ended([t for t in waiting() if t not in before])
    assert not openmp._holders and openmp._leave is None


def test_the_thread_may_collect_garbage_that_holds_processors(monkeypatch: pytest.MonkeyPatch) -> None:
    """A finalizer runs in whatever thread collects, also in the one that is being started."""
    before, garbage = waiting(), [openmp.Shared()]
    threads = [thread for thread in waiting() if thread not in before]
    garbage[0].release()
    assert ended(threads)
    begin = openmp._TEAM

    def collecting(team: int) -> Any:
        garbage.clear()
        return begin(team)

    monkeypatch.setattr(openmp, "_TEAM", collecting)
    made: list[openmp.Shared] = []
    starting = threading.Thread(target=lambda: made.append(openmp.Shared()), daemon=True)
    starting.start()
    starting.join(20)
    assert made, "the thread and the one that starts it wait for each other"
    made.pop().release()
    assert ended([thread for thread in waiting() if thread not in before])
