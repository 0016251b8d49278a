"""Which of the two libraries a process loads: exactly one, with one line that says why."""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest
import torch
import warm

import freshgo
import freshgo._native.process
from freshgo._native import abi, header, libraries


def run(code: str, *arguments: object) -> tuple[str, str]:
    """Run code in a process that has loaded nothing yet, and return what it printed and what it said of errors."""
    prologue = """
        import pathlib, sys, warnings
        import torch, freshgo
        from freshgo._native import abi, header, libraries
        warnings.simplefilter("always")
        abi.library_path = lambda: pathlib.Path(sys.argv[1], "libfreshgo.so")
        def mapped():
            lines = pathlib.Path("/proc/self/maps").read_text().splitlines()
            names = {pathlib.Path(line.split()[-1]).name for line in lines if "freshgo" in line}
            return sorted(name for name in names if name.startswith("libfreshgo"))
    """
    process = warm.start(textwrap.dedent(prologue) + textwrap.dedent(code), *arguments)
    printed, said = process.communicate()
    assert process.returncode == 0, said
    return printed, said


@pytest.fixture
def package(tmp_path: Path) -> Path:
    """A directory with a library without CUDA, as an installation has."""
    (tmp_path / "libfreshgo.so").write_bytes(abi.library_path().read_bytes())
    return tmp_path


USE = """
    for _ in range(3):
        library = freshgo.library()
    freshgo._native.process.counters()
    print(library.cuda, library.path.name, mapped(), library, sep="|")
"""


def test_importing_loads_nothing_and_leaves_cuda_alone(package: Path) -> None:
    (package / "libfreshgo_cuda.so").write_bytes(b"")
    printed, said = run("print(mapped(), torch.cuda.is_initialized())", package)
    assert printed == "[] False\n"
    assert said == ""


def test_without_the_other_library_nothing_is_said(package: Path) -> None:
    printed, said = run(USE, package)
    cuda, name, mapped, line = printed.strip().split("|")
    assert (cuda, name, mapped) == ("False", "libfreshgo.so", "['libfreshgo.so']")
    assert "libfreshgo_cuda.so is not in this installation" in line
    assert said == ""


DRIVER = "libraries.DRIVER = 'libc.so.6'; torch.version.cuda = '1'"  # as if there were one


@pytest.mark.parametrize("torch_has_cuda", ["'1'", "None"])
def test_a_machine_without_a_driver_is_told_when_it_asks(package: Path, torch_has_cuda: str) -> None:
    (package / "libfreshgo_cuda.so").write_bytes(b"not a library")
    before = f"libraries.DRIVER = 'libno-such-driver.so.1'; torch.version.cuda = {torch_has_cuda}"
    printed, said = run(before + textwrap.dedent(USE), package)
    cuda, name, mapped, line = printed.strip().split("|")
    assert (cuda, name, mapped) == ("False", "libfreshgo.so", "['libfreshgo.so']")
    assert "libfreshgo_cuda.so is not used: there is no NVIDIA driver (libno-such-driver.so.1: " in line
    assert len(line.splitlines()) == 1
    assert said == ""


@pytest.mark.parametrize(
    ("before", "match"),
    [
        (f"{DRIVER}; torch.version.cuda = None", "this PyTorch is built without CUDA"),
        (DRIVER, "it cannot be loaded ("),
    ],
)
def test_one_that_cannot_be_used_is_warned_of_once(package: Path, before: str, match: str) -> None:
    (package / "libfreshgo_cuda.so").write_bytes(b"not a library")
    printed, said = run(before + textwrap.dedent(USE), package)
    cuda, name, mapped, line = printed.strip().split("|")
    assert (cuda, name, mapped) == ("False", "libfreshgo.so", "['libfreshgo.so']")
    assert match in line
    assert len(line.splitlines()) == 1
    assert said.count("UserWarning: freshgo runs on the CPU alone, libfreshgo_cuda.so is not used: ") == 1
    assert match in said


def test_one_that_can_be_used_is_the_only_one(package: Path) -> None:
    (package / "libfreshgo_cuda.so").write_bytes((package / "libfreshgo.so").read_bytes())
    printed, said = run(DRIVER + textwrap.dedent(USE), package)
    assert printed == "True|libfreshgo_cuda.so|['libfreshgo_cuda.so']|libfreshgo_cuda.so: the CPU and CUDA\n"
    assert said == ""


def test_a_library_that_lacks_functions_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(header.SIGNATURES, "fg_no_such", ())
    monkeypatch.setattr(abi, "_functions", {})
    with pytest.raises(abi.errors.LibraryError, match=r"fg_no_such.*of another version"):
        abi.load(cuda=True)
    assert not libraries.Library(Path("a/b.so"), False, "because").cuda


def test_the_library_of_the_other_wheel_is_found_where_it_fits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """freshgo-cuda as pip installs it: of this version, of another, without a PyTorch or a driver that can use it."""
    cpu, site = tmp_path / "freshgo" / "libfreshgo.so", tmp_path / "site"
    (site / "freshgo_cuda").mkdir(parents=True)
    (site / "freshgo_cuda" / "__init__.py").touch()
    monkeypatch.syspath_prepend(str(site))
    monkeypatch.setattr(libraries, "DRIVER", "libc.so.6")
    monkeypatch.setattr(torch.version, "cuda", "13.0")

    def installed(version: str) -> None:
        info = site / "freshgo_cuda-0.dist-info"
        info.mkdir(exist_ok=True)
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: freshgo-cuda\nVersion: {version}\n")

    ours = freshgo.__version__
    installed(ours)
    assert libraries.choose(cpu) == libraries.Library(
        site / "freshgo_cuda" / libraries.CUDA_NAME, True, "the CPU and CUDA"
    )
    installed("0.0.1")
    what = f"freshgo is {ours} and freshgo-cuda 0.0.1: install freshgo-cuda=={ours}"
    with pytest.warns(UserWarning, match=what):
        assert libraries.choose(cpu).path == cpu
    installed(ours)
    monkeypatch.setattr(torch.version, "cuda", None)
    with pytest.warns(UserWarning, match="this PyTorch is built without CUDA: install a build with CUDA"):
        assert libraries.choose(cpu).path == cpu
    monkeypatch.setattr(libraries, "DRIVER", "libno-such-driver.so.1")
    assert "there is no NVIDIA driver" in libraries.choose(cpu).why
