"""The tests of the device path (python/tests/gpu) over an emulated driver, in a process of their own.

Needs the library with CUDA (`make cuda` before the package is built) and a C++ compiler; skips where one is missing.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import machines
import pytest

import freshgo

TESTS = Path(__file__).parents[1] / "gpu"


def test_every_test_of_the_device_path_passes_on_the_emulator(tmp_path: Path) -> None:
    if not Path(freshgo.__file__).with_name("libfreshgo_cuda.so").exists():
        pytest.skip("this package has no libfreshgo_cuda.so")
    driver = machines.emulated_driver(tmp_path)
    if driver is None:
        pytest.skip("no C++ compiler")
    journal = tmp_path / "journal"
    answer = subprocess.run(
        [sys.executable, "-I", "-m", "pytest", "-q", "-p", "no:cacheprovider", TESTS],
        env={
            **os.environ,
            "CUDA_VISIBLE_DEVICES": "",
            "FRESHGO_TEST_GPU": "emulator",
            "FRESHGO_EMULATED_DRIVER": str(driver),
            "FRESHGO_TEST_JOURNAL": str(journal),
            "FRESHGO_TEST_PART": "1",  # all of them are counted below
        },
        capture_output=True,
        text=True,
        timeout=900,
    )
    assert answer.returncode == 0, answer.stdout[-6000:]
    results = [json.loads(line) for line in journal.read_text().splitlines()]
    reasons = {result["why"] for result in results if result["outcome"] == "skipped"}
    assert all("needs a GPU" in reason for reason in reasons), reasons
    assert sum(result["outcome"] == "passed" for result in results) > 250
