"""What benchmarks keep of their figures, and when a comparison says that something got slower."""

from __future__ import annotations

import functools
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import scripts

RESULTS = scripts.ROOT / "bench" / "results.py"

pytestmark = pytest.mark.skipif(not RESULTS.exists(), reason="the benchmarks are not beside the tests")


def gathered(directory: Path, *measured: tuple[str, str, list[float], bool]) -> Path:
    """The results.json of these contestants: contest, name, values, whether more is better."""
    directory.mkdir()
    lines = directory / "lines"
    lines.write_text(
        "".join(
            json.dumps({"bench": "b", "case": case, "name": name, "values": values, "unit": "s", "more": more}) + "\n"
            for case, name, values, more in measured
        )
    )
    program().gather(lines, directory)
    return directory / "results.json"


def compared(base: Path, new: Path) -> list[str]:
    slower: list[str] = program().compare(*(json.loads(path.read_text()) for path in (base, new)), 0.05)
    return slower


@functools.cache
def program() -> Any:
    return scripts.load("bench/results.py")


def test_figures_are_kept_with_machine_and_commit_and_drawn(tmp_path: Path) -> None:
    results = gathered(tmp_path / "a", ("In memory", "freshgo", [1, 3, 2], False), ("In memory", "PyG", [8], False))
    found: dict[str, Any] = json.loads(results.read_text())
    assert {"date", "commit", "machine"} <= found.keys()
    assert [one["values"] for one in found["measured"]] == [[1, 3, 2], [8]]
    drawn = (tmp_path / "a" / "b-in-memory.svg").read_text()
    assert "In memory" in drawn and ">2 s<" in drawn and ">8 s<" in drawn


@pytest.mark.parametrize(
    ("ours", "theirs", "slower"),
    [
        ([2, 2.1, 2.2], [8, 8, 8], True),
        ([2, 2.1, 2.2], [16, 16, 16], False),  # the machine is half as fast today
        ([1, 1.1, 1.2], [4, 4, 4], True),  # twice as fast, and ours is not
        ([1.01, 1.3, 1.5], [8, 8, 8], False),  # within what the rounds differ
        ([1.03, 1.03, 1.03], [8, 8, 8], False),  # a little
        ([0.5, 0.5, 0.5], [8, 8, 8], False),
    ],
)
@pytest.mark.parametrize("more", [False, True])
def test_slower_is_said_of_what_is(
    tmp_path: Path, ours: list[float], theirs: list[float], slower: bool, more: bool
) -> None:
    def kind(values: list[float]) -> list[float]:
        return [1 / value for value in values] if more else values

    base = gathered(tmp_path / "a", ("c", "freshgo", kind([1, 1.01, 1.02]), more), ("c", "PyG", kind([8]), more))
    new = gathered(tmp_path / "b", ("c", "freshgo", kind(ours), more), ("c", "PyG", kind(theirs), more))
    assert bool(compared(base, new)) == slower


def test_contests_that_are_new_are_not_compared(tmp_path: Path) -> None:
    base = gathered(tmp_path / "a", ("c", "freshgo", [1], False))
    new = gathered(tmp_path / "b", ("c", "freshgo", [1], False), ("d", "freshgo", [9], False))
    assert compared(base, new) == []
    ran = subprocess.run([sys.executable, RESULTS, "compare", base, new], capture_output=True, text=True, check=True)
    assert "1.00  b: c, freshgo" in ran.stdout
