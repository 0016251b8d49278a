"""The operators of the installed library over arrays between guard pages; ``make sanitize`` has sanitizers look on."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest
from seeds import seed

import freshgo

CSRC = Path(__file__).resolve().parents[3] / "csrc"

pytestmark = pytest.mark.skipif(not (CSRC / "guarded").exists(), reason="the program is not beside the tests")


@pytest.mark.explore
def test_operators_stay_in_their_arrays(tmp_path: Path) -> None:
    compiler = shutil.which(os.environ.get("CC", "cc"))
    if compiler is None:
        pytest.skip("there is no C compiler")
    library = Path(freshgo.__file__).with_name("libfreshgo.so")
    flags = ["-std=gnu11", "-Wall", "-Wextra", "-Werror", f"-I{CSRC / 'include'}"]
    subprocess.run([compiler, *flags, CSRC / "guarded" / "main.c", library, "-o", tmp_path / "guarded"], check=True)
    done = subprocess.run(
        [tmp_path / "guarded", str(seed(9)), "500"], capture_output=True, text=True, timeout=120, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("3000 calls, ")


@pytest.mark.explore
def test_memory_of_tensors_from_many_threads(tmp_path: Path) -> None:
    """From the sources, and not from the library, which shows none of this."""
    compiler = shutil.which(os.environ.get("CC", "cc"))
    if compiler is None:
        pytest.skip("there is no C compiler")
    flags = ["-std=gnu11", "-O1", "-Wall", "-Wextra", "-Werror", f"-I{CSRC / 'include'}", f"-I{CSRC}"]
    of_tensors = ("arena.c", "buffer.c", "failures.c", "lock.c", "received.c", "results.c", "tensor.c")
    names = ["guarded/buffers.c", *of_tensors]
    subprocess.run(
        [compiler, *flags, *(CSRC / name for name in names), "-lpthread", "-o", tmp_path / "buffers"], check=True
    )
    done = subprocess.run(
        [tmp_path / "buffers", str(seed(9)), "2000", "10"], capture_output=True, text=True, timeout=120, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == "2000 steps of 4 threads, 10 forks: nothing left\n"
