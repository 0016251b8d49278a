"""What tests of the device path run on: a GPU where there is one, else the emulator of its kernels.

The same test runs on both: it makes its tensors on ``machine.device`` and computes in ``machine.run``.
"""

from __future__ import annotations

import ctypes
import json
import os
import shutil
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch
from device_fakes import LateStreams

from freshgo._device import delivery, rows, streams
from freshgo._native import abi, cuda

SOURCES = Path(__file__).resolve().parents[3] / "csrc" / "cuda" / "emulator"


class Gpu:
    """The first GPU."""

    real = True
    device = torch.device("cuda", 0)

    def run(self, compute: Callable[[], Any]) -> Any:
        """Compute, and wait for it."""
        result = compute()
        torch.cuda.synchronize()
        return result

    @contextmanager
    def loading(self) -> Iterator[str]:
        """What Loader(device=...) is given within."""
        yield "cuda"


class Emulator:
    """The kernels over memory of the host, below a driver of CUDA that runs them there."""

    real = False
    device = torch.device("cpu")
    running = threading.RLock()  # threads of several loaders run kernels

    def run(self, compute: Callable[[], Any]) -> Any:
        with self.running:
            kept = cuda.takes, cuda._stream, cuda._status
            cuda.takes, cuda._stream = lambda tensor: True, lambda device: 0
            cuda._status = {0: torch.zeros(1, dtype=torch.int64)}
            try:
                return compute()
            finally:
                cuda.takes, cuda._stream, cuda._status = kept

    @contextmanager
    def loading(self) -> Iterator[str]:
        """With streams that copy as late as CUDA may."""
        kept = delivery.resolve, streams.CudaStreams, rows.assembler

        class Streams(LateStreams):
            def put_together(late, *given: Any) -> torch.Tensor:  # noqa: N805
                return self.run(lambda: rows.by_kernel(*given))

            def compute(late, work: Callable[[], Any]) -> Any:  # noqa: N805
                return self.run(work)

        delivery.resolve = lambda device: None if device is None else self.device
        streams.CudaStreams = Streams  # type: ignore[misc, assignment]
        rows.assembler = lambda device: Streams.last.assemble
        try:
            yield "cuda"
        finally:
            delivery.resolve, streams.CudaStreams, rows.assembler = kept  # type: ignore[misc]


def emulated_driver(folder: Path) -> Path | None:
    """libcuda.so.1 over the emulator: the one that $FRESHGO_EMULATED_DRIVER names, else compiled into ``folder``. None
    where there is no compiler."""
    given = os.environ.get("FRESHGO_EMULATED_DRIVER")
    if given:
        return Path(given)
    compiler = os.environ.get("CXX") or shutil.which("c++") or shutil.which("g++")
    if compiler is None:
        return None
    driver = folder / "libcuda.so.1"
    options = ["-std=c++17", "-O1", "-ffp-contract=off", "-fPIC", "-shared", "-Wl,-soname,libcuda.so.1"]
    options += [f"-I{SOURCES.parents[1] / 'include'}", "-o", str(driver)]
    subprocess.run([*compiler.split(), *options, SOURCES / "driver.cc", SOURCES / "emulator.cc"], check=True)
    return driver


def find(folder: Path) -> Gpu | Emulator | str:
    """What there is to run on, or why there is nothing.

    ``$FRESHGO_TEST_GPU=emulator`` asks for the emulator, which needs a process that has not loaded the library.
    """
    if torch.cuda.is_available():
        return Gpu() if abi.library().cuda else f"there is a GPU, and the library is {abi.library()}"
    if os.environ.get("FRESHGO_TEST_GPU") != "emulator":
        return "no GPU; test_device_emulated.py runs these tests on the emulator, in a process of their own"
    if not abi.library_path().with_name("libfreshgo_cuda.so").exists():
        return "this package has no libfreshgo_cuda.so: `make cuda` builds it"
    driver = emulated_driver(folder)
    if driver is None:
        return "no C++ compiler for the emulator"
    loaded = ctypes.CDLL(str(driver), ctypes.RTLD_GLOBAL)  # the library finds it by its name from now on
    loaded.cuInit(0)  # as PyTorch does before a loader is made
    if torch.version.cuda is None:
        torch.version.cuda = "emulated"
    return Emulator() if abi.library().cuda else f"the library is {abi.library()}"


@pytest.fixture(scope="session")
def machine(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A GPU or the emulator; skips where neither can be had, and fails where $FRESHGO_TEST_GPU asks for one."""
    found = find(tmp_path_factory.mktemp("driver"))
    if isinstance(found, str) and os.environ.get("FRESHGO_TEST_GPU"):
        pytest.fail(found)
    if isinstance(found, str):
        pytest.skip(found)
    return found


@pytest.fixture
def gpu(machine: Any) -> Any:
    """A GPU, for what no emulator has: streams, graphs, memory that ends."""
    if not machine.real:
        pytest.skip("needs a GPU")
    return machine


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Write each result at once to $FRESHGO_TEST_JOURNAL, so that a run that is stopped leaves those it had."""
    journal = os.environ.get("FRESHGO_TEST_JOURNAL")
    if journal and (report.when == "call" or report.outcome != "passed"):
        line = {"test": report.nodeid, "outcome": report.outcome, "seconds": round(report.duration, 3)}
        if report.outcome != "passed":
            line["why"] = str(report.longrepr)[-2000:]
        with Path(journal).open("a") as file:
            file.write(json.dumps(line) + "\n")
