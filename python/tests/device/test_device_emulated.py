"""The library with CUDA from Python to its kernels, on a driver that runs them on the host.

Needs that library (`make cuda` before the package is built) and a C++ compiler; skips where there is none.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import freshgo

EMULATOR = Path(__file__).parents[3] / "csrc" / "cuda" / "emulator"


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    compiler = os.environ.get("CXX") or shutil.which("c++") or shutil.which("g++")
    if compiler is None:
        pytest.skip("no C++ compiler")
    if not Path(freshgo.__file__).with_name("libfreshgo_cuda.so").exists():
        pytest.skip("this package has no libfreshgo_cuda.so")
    directory = tmp_path_factory.mktemp("driver")
    sources = [EMULATOR / "emulator.cc", EMULATOR / "driver.cc"]
    options = ["-std=c++17", "-O1", "-shared", "-fPIC", f"-I{EMULATOR.parents[1] / 'include'}"]
    subprocess.run([*compiler.split(), *options, "-o", directory / "libcuda.so.1", *sources], check=True)
    answer = subprocess.run(
        [sys.executable, Path(__file__).parents[1] / "oracles" / "emulated_device.py"],
        env={**os.environ, "LD_LIBRARY_PATH": str(directory), "PYTHONPATH": ":".join(sys.path)},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert answer.returncode == 0, answer.stderr
    result: dict[str, Any] = json.loads(answer.stdout)
    return result


def test_the_library_with_cuda_is_the_one(found: dict[str, Any]) -> None:
    assert found["library"] == "libfreshgo_cuda.so: the CPU and CUDA"
    assert found["devices"] == 1


@pytest.mark.parametrize("dtype", ["float32", "float64", "bfloat16", "float16"])
def test_operators_are_those_of_the_cpu(found: dict[str, Any], dtype: str) -> None:
    differences = {name: value for name, value in found.items() if f"torch.{dtype}" in name}
    assert len(differences) == 27
    # Both sum in the order of the edges; fused multiplications and the exponential differ. In roundings, relative to 1.
    assert max(differences.values()) <= 16, differences


def test_tables_are_equal(found: dict[str, Any]) -> None:
    assert found["tables"] == dict.fromkeys(["transpose", "group", "number", "assemble"], True)


def test_a_wrong_index_is_told_by_the_next_call(found: dict[str, Any]) -> None:
    assert found["wrong index"].startswith("an operator that ran on cuda:0 found index[5] out of range")


def test_batches_come_through_the_cache_and_locked_buffers(found: dict[str, Any]) -> None:
    assert found["loader"]["locking"]
    assert found["loader"]["same"]
    assert found["loader"]["held"] > 0
