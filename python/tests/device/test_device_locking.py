"""Buffers locked in place for a device, with a driver of the tests."""

from __future__ import annotations

import ctypes
import gc
import os
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from seeds import seed as seed_of

from freshgo import Loader, ops
from freshgo._device import delivery, pinned_memory
from freshgo._native import abi, libraries
from freshgo._native.process import counters
from freshgo.errors import DTypeError

CONTEXT = 0x1234


class Driver:
    """What the library calls of CUDA, and what of it is in force."""

    def __init__(self) -> None:
        self.locked: dict[int, int] = {}
        self.calls = 0
        self.depth = 0  # contexts pushed
        self.broken = False
        self.failure: list[str] = []
        push = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p)(self.push)
        pop = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.POINTER(ctypes.c_void_p))(self.pop)
        lock = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_uint)(self.lock)
        unlock = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p)(self.unlock)
        self.entries = push, pop, lock, unlock
        pointers = [ctypes.cast(entry, ctypes.c_void_p) for entry in self.entries]
        self.api = pinned_memory.LockApi(*pointers, CONTEXT)

    def check(self, good: bool, what: str) -> None:
        if not good:
            self.failure.append(what)

    def push(self, context: int) -> int:
        self.check(context == CONTEXT, "the context")
        self.depth += 1
        return 0

    def pop(self, context: Any) -> int:
        self.depth -= 1
        return 0

    def lock(self, data: int, n_bytes: int, flags: int) -> int:
        self.calls += 1
        self.check(self.depth > 0, "locked without a context")
        self.check(flags == 3, "not for every device to read")
        self.check(data % 4096 == 0 and n_bytes % 4096 == 0, "pages that others share")
        self.check(n_bytes >= 64 << 10, "too small")
        for start, size in self.locked.items():
            self.check(data + n_bytes <= start or data >= start + size, "locked twice")
        if self.broken:
            return 712
        self.locked[data] = n_bytes
        return 0

    def unlock(self, data: int) -> int:
        self.check(self.depth > 0, "unlocked without a context")
        self.check(self.locked.pop(data, 0) > 0, "unlocked what is not locked")
        return 0


@pytest.fixture
def driver(monkeypatch: pytest.MonkeyPatch) -> Iterator[Driver]:
    driver = Driver()
    monkeypatch.setattr(pinned_memory, "_driver", lambda device: driver.api)
    monkeypatch.setattr(pinned_memory, "_locking", False)
    yield driver
    abi.call("fg_buffers_lock", None)
    gc.collect()
    assert counters()["buffers"] == 0
    assert driver.locked == {}
    assert driver.failure == []
    assert driver.depth == 0
    # Entries of the driver stay callable for as long as the process: the library may hold on to them.
    KEPT.append(driver)


KEPT: list[Driver] = []


@pytest.fixture
def sending(monkeypatch: pytest.MonkeyPatch) -> None:
    """Loaders ask for the memory that those with a device ask for."""
    monkeypatch.setattr(delivery.OnHost, "adapt", lambda self, options: {**options, "lock_memory": True})


def data() -> dict[str, Any]:
    generator = torch.Generator().manual_seed(seed_of(1))
    edges = torch.randint(0, 4000, (2, 60_000), generator=generator)
    return {
        "num_nodes": 4000,
        "edge_index": edges,
        "x": torch.randn(4000, 150, generator=generator),
        "small": edges[0, :4000],
    }


@pytest.mark.usefixtures("sending")
def test_large_buffers_are_locked_while_they_are_mapped(driver: Driver) -> None:
    assert pinned_memory.lock_buffers(0)
    assert pinned_memory.lock_buffers(0)
    with Loader(data(), [5, 5], batch_size=512) as loader:
        batches = list(loader)
        for batch in batches:
            for name in ("x", "edge_index", "n_id", "small"):
                tensor = getattr(batch, name)
                n_bytes = tensor.numel() * tensor.element_size()
                assert (tensor.data_ptr() in driver.locked) == (n_bytes > 57_344), name  # else it is of a smaller class
        del batches, batch
        calls = driver.calls
        for _ in loader:  # out of the pool
            pass
        assert driver.calls - calls < len(loader)
        assert driver.locked


def test_only_loaders_that_send_their_batches_have_locked_memory(driver: Driver) -> None:
    """From locked memory a consumer's copy is queued, and nothing keeps the memory until it has run."""
    assert pinned_memory.lock_buffers(0)
    with Loader(data(), [5, 5], batch_size=512) as loader:
        assert len(list(loader)) == len(loader)
    x = torch.ones(4000, 150)
    assert ops.aggregate(x, torch.arange(4000), torch.arange(4001)).equal(x)
    assert driver.calls == 0


class Pinning:
    """PyTorch's pinned memory, and its question whether memory is: what the driver of the tests has locked is."""

    def __init__(self, driver: Driver) -> None:
        self.driver = driver
        self.copies: dict[int, torch.Tensor] = {}

    def is_pinned(self, tensor: torch.Tensor) -> bool:
        return tensor.data_ptr() in self.driver.locked or tensor.data_ptr() in self.copies

    def pin_memory(self, tensor: torch.Tensor) -> torch.Tensor:
        copy = tensor.clone()
        self.copies[copy.data_ptr()] = copy
        return copy


@pytest.fixture
def pinning(driver: Driver, monkeypatch: pytest.MonkeyPatch) -> Pinning:
    pinning = Pinning(driver)
    monkeypatch.setattr(torch.Tensor, "is_pinned", lambda tensor: pinning.is_pinned(tensor))
    monkeypatch.setattr(torch.Tensor, "pin_memory", lambda tensor: pinning.pin_memory(tensor))
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    return pinning


@pytest.mark.parametrize("workers", [0, 2])
def test_pinned_batches_are_in_memory_of_pytorch(driver: Driver, pinning: Pinning, workers: int) -> None:
    """Which knows the streams that copy from it, also while the library locks the memory of other loaders."""
    assert pinned_memory.lock_buffers(0)
    options: dict[str, Any] = {"batch_size": 512, "seed": 3}
    with Loader(data(), [5, 5], **options) as loader:
        expected = list(loader)
    more: dict[str, Any] = {"transform": lambda batch: batch, "transform_workers": workers} if workers else {}
    with Loader(data(), [5, 5], pin_memory=True, **options, **more) as loader:
        for batch, want in zip(loader, expected, strict=True):
            for name in ("x", "edge_index", "n_id", "small", "input_id"):
                tensor = getattr(batch, name)
                assert tensor.is_pinned()
                assert torch.equal(tensor, getattr(want, name))
                assert tensor.data_ptr() in pinning.copies, name
        assert loader.sample([1, 2, 3]).x.is_pinned()
        del batch, tensor


def test_without_cuda_pinning_warns_and_batches_come_as_usual(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.warns(UserWarning, match="PyTorch finds none"), Loader(data(), [5], pin_memory=True) as loader:
        assert not next(iter(loader)).x.is_pinned()
    with pytest.raises(DTypeError, match="True or False"):
        Loader(data(), [5], pin_memory=1)  # type: ignore[arg-type]


@pytest.mark.usefixtures("sending")
def test_what_cannot_be_locked_is_used_as_it_is(driver: Driver) -> None:
    driver.broken = True
    assert pinned_memory.lock_buffers(0)
    with Loader(data(), [5, 5], batch_size=512) as loader:
        assert len(list(loader)) == len(loader)
    assert driver.calls > 0


def test_without_a_driver_nothing_is_locked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pinned_memory, "_locking", False)
    monkeypatch.setattr(libraries, "DRIVER", "libno-such-driver.so.1")
    assert not pinned_memory.lock_buffers(0)
    monkeypatch.setattr(libraries, "DRIVER", "libc.so.6")  # no driver either
    assert not pinned_memory.lock_buffers(0)


@pytest.mark.usefixtures("sending")
def test_a_forked_child_leaves_the_driver_alone(driver: Driver) -> None:
    assert pinned_memory.lock_buffers(0)
    with Loader(data(), [5, 5], batch_size=512) as loader:
        batch = next(iter(loader))
    assert driver.locked
    before = dict(driver.locked)
    child = os.fork()
    if child == 0:
        del batch
        os._exit(0 if driver.locked == before and driver.depth == 0 else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    del batch
