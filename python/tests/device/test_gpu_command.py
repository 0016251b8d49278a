"""bench/gpu: how much of the copies a trace hides, parts that end in time, and what is said about a bad wheelhouse."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import scripts

HERE = scripts.ROOT / "bench" / "gpu"


@pytest.fixture(scope="module")
def command() -> Any:
    """A function that imports a module of the command."""

    def load(name: str) -> Any:
        return scripts.load(f"bench/gpu/{name}.py", register=True)

    before = set(sys.modules)
    yield load
    for name in set(sys.modules) - before:
        if str(getattr(sys.modules[name], "__file__", "")).startswith(str(HERE)):
            del sys.modules[name]


def event(category: str, begin: float, microseconds: float, name: str = "", **args: int) -> dict[str, Any]:
    return {"ph": "X", "cat": category, "ts": begin, "dur": microseconds, "name": name, "args": args}


def test_copies_that_kernels_hide(command: Any) -> None:
    events = [
        event("kernel", 0, 10),
        event("kernel", 5, 15),  # until 20, beside the first
        event("kernel", 40, 10),
        event("gpu_memcpy", 10, 20, "Memcpy HtoD (Pinned -> Device)", bytes=100),  # half of it beside a kernel
        event("gpu_memcpy", 41, 5, "Memcpy HtoD (Pinned -> Device)", bytes=50),
        event("gpu_memcpy", 45, 100, "Memcpy DtoH (Device -> Pinned)", bytes=7),
        event("cpu_op", 0, 1000, "aten::copy_"),
        {"ph": "M", "name": "process_name"},
    ]
    found = command("overlap").copies(events)
    assert (found.count, found.n_bytes) == (2, 150)
    assert found.seconds == pytest.approx(25e-6)
    assert found.hidden == pytest.approx(15 / 25)
    assert command("overlap").copies([]).hidden == 0.0


def runs(process: int) -> bool:
    """Whether a process has not ended."""
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def test_a_part_that_does_not_end_is_stopped_and_what_it_wrote_stays(command: Any, tmp_path: Path) -> None:
    report, runner = command("report"), command("run")
    script = tmp_path / "endless.py"
    script.write_text(
        "import json, os, signal, subprocess, sys, time\n"
        "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        "child = subprocess.Popen([sys.executable, '-c', 'import signal; signal.pause()'])\n"
        "with open(os.environ['FRESHGO_JOURNAL'], 'a') as file:\n"
        "    print(json.dumps({'limit': 'copy', 'gb_s': 7.5, 'child': child.pid}), '{\"half', sep='\\n', file=file)\n"
        "time.sleep(600)\n"
    )
    step = runner.Step("ops", [sys.executable, str(script)], 3)
    result = runner.run(step, "ops", tmp_path, gpu=False)
    assert result["code"] is None
    assert result["at_most"] == 3
    report.write(tmp_path, {"gpu": "", "rehearsal": "no GPU"})
    (record,) = json.loads((tmp_path / "results.json").read_text())["ops"]
    assert (record["limit"], record["gb_s"]) == ("copy", 7.5)
    deadline = time.monotonic() + 60
    while runs(record["child"]):  # it was killed, and ends when it is its turn
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_the_page_says_what_failed(command: Any, tmp_path: Path) -> None:
    report = command("report")
    (tmp_path / "tests.jsonl").write_text(
        json.dumps({"test": "a.py::test_a", "outcome": "passed", "seconds": 1})
        + "\n"
        + json.dumps({"test": "a.py::test_b", "outcome": "failed", "seconds": 1, "why": "1 < 2 & so on"})
        + "\n"
    )
    taken, ratio = {"freshgo": 1.0, "PyG": 4.0}, {"freshgo": 1, "PyG": 4}
    records = [
        {"contest": "sum, both", "graph": "whole", "ms": taken, "ratio": ratio},
        {"goal": "sum: times as fast as PyG", "wanted": ">= 3", "got": 4.0, "met": True},
        {"failed": "GAT on whole", "why": "RuntimeError: no"},
        {"step": "ops", "code": None, "seconds": 9, "at_most": 9},
    ]
    (tmp_path / "ops.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))
    report.write(tmp_path, {"gpu": "A <GPU>", "rehearsal": None})
    page = (tmp_path / "report.html").read_text()
    for text in (
        "A &lt;GPU&gt;",
        "1 &lt; 2 &amp; so on",
        "GAT on whole RuntimeError: no",
        "stopped at its limit",
        "4.0 ms (4 x)",
    ):
        assert text in page
    assert report.summary(tmp_path).splitlines() == [
        "tests: 1 passed, 1 failed",
        "  failed: a.py::test_b",
        "failed: GAT on whole: RuntimeError: no",
        "met  sum: times as fast as PyG: 4.0 (goal >= 3)",
    ]


def test_a_wheelhouse_for_another_python_is_told(command: Any, tmp_path: Path) -> None:
    check = command("wheelhouse").check
    assert "is no wheelhouse: fill it by `make wheelhouse`" in check(tmp_path)
    for name in (
        "freshgo-1-py3-none-linux_x86_64.whl",
        "pip-9-py3-none-any.whl",
        "psutil-7-cp36-abi3-linux_x86_64.whl",
    ):
        (tmp_path / name).touch()
    assert check(tmp_path) is None
    names = [file.name.split("-")[0] for file in command("wheelhouse").missing(tmp_path)]
    assert names in (["freshgo"], ["freshgo", "psutil"])  # psutil is here if PyG is
    (tmp_path / "numpy-2-cp39-cp39-manylinux_2_17_x86_64.whl").touch()
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    assert f"has wheels for cp39, this is Python {version}" in check(tmp_path)
    assert f"`make wheelhouse PYTHON={version}`" in check(tmp_path)


@pytest.mark.parametrize("arguments", [[], ["out", "more"], ["out", "--wheels"], ["--all", "out"]])
@pytest.mark.usefixtures("command")
def test_wrong_arguments(arguments: list[str], tmp_path: Path) -> None:
    answer = subprocess.run(
        ["bash", HERE / "run.sh", *arguments], cwd=tmp_path, capture_output=True, text=True, timeout=60
    )
    assert answer.returncode == 2
    assert "bash bench/gpu/run.sh OUT [--wheels DIR]" in answer.stderr
    assert list(tmp_path.iterdir()) == []
