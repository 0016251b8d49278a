"""Wheels for a machine without a network, a compiler or Go: freshgo with CUDA, and what its tests and benchmarks need.

    python bench/gpu/wheelhouse.py --python 3.12 OUT     fills OUT; `make wheelhouse PYTHON=3.12` calls this
    python bench/gpu/wheelhouse.py --check DIR           whether this Python can use what is there
    python bench/gpu/wheelhouse.py --missing DIR         the wheels of it that this Python lacks, and freshgo's

What this Python has of a package is kept, whatever its version: it is what PyTorch was installed with.

PyTorch of 2.4 or newer, with what it depends on, must be there already. pip is among the wheels, and is run from there.
With a C++ compiler OUT also gets the driver that emulates a GPU (libcuda.so.1), for a machine that turns out to have none.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ["torch_geometric", "pytest", "numpy", "tqdm", "pip"]
PLATFORMS = ["manylinux_2_28_x86_64", "manylinux_2_27_x86_64", "manylinux_2_17_x86_64", "manylinux2014_x86_64",
             "manylinux1_x86_64"]  # fmt: skip
MOST = 50 << 20
LIBRARY = "freshgo/libfreshgo_cuda.so"


def fill(out: Path, python: str) -> None:
    ours = sorted((ROOT / "dist").glob("freshgo-*.whl"))
    if len(ours) != 1 or LIBRARY not in zipfile.ZipFile(ours[0]).namelist():
        sys.exit(f"dist/ has no wheel of freshgo with {LIBRARY}: `make wheelhouse` builds it")
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir(parents=True)
    shutil.copy(ours[0], out)
    platforms = [word for platform in PLATFORMS for word in ("--platform", platform)]
    subprocess.run(
        [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--only-binary=:all:",
         "--implementation", "cp", "--python-version", python, *platforms, "--dest", out, *PACKAGES],
        check=True,
    )  # fmt: skip
    compiler = shutil.which("g++") or shutil.which("c++")
    if compiler is not None:
        emulator = ROOT / "csrc" / "cuda" / "emulator"
        options = ["-std=c++17", "-O1", "-fPIC", "-shared", "-static-libstdc++", "-static-libgcc", "-s"]
        options += ["-Wl,-soname,libcuda.so.1", f"-I{ROOT / 'csrc' / 'include'}", "-o", str(out / "libcuda.so.1")]
        subprocess.run([compiler, *options, emulator / "driver.cc", emulator / "emulator.cc"], check=True)
    files = sorted(out.iterdir(), key=lambda file: -file.stat().st_size)
    for file in files:
        print(f"{file.stat().st_size / 1e6:8.2f} MB  {file.name}")
    total = sum(file.stat().st_size for file in files)
    print(f"{total / 1e6:8.2f} MB  {out} for Python {python}")
    if total > MOST:
        sys.exit(f"{out} has {total} bytes, more than {MOST}")


def check(folder: Path) -> str | None:
    """What is wrong, in one sentence that says what to do."""
    if len(list(folder.glob("freshgo-*.whl"))) != 1 or len(list(folder.glob("pip-*.whl"))) != 1:
        return f"{folder} is no wheelhouse: fill it by `make wheelhouse` on a machine with a network"
    here = f"cp{sys.version_info.major}{sys.version_info.minor}"
    bound = {
        tag for file in folder.glob("*.whl") for tag in file.stem.split("-")[-3].split(".") if tag.startswith("cp")
    }
    exact = {tag for tag in bound if any(f"-{tag}-{tag}-" in file.name for file in folder.glob("*.whl"))}
    if exact - {here}:
        wanted = ", ".join(sorted(exact - {here}))
        version = f"{sys.version_info.major}.{sys.version_info.minor}"
        return (
            f"{folder} has wheels for {wanted}, this is Python {version}: fill it by `make wheelhouse PYTHON={version}`"
        )
    try:
        import torch
    except ImportError as error:
        return f"{sys.executable} has no PyTorch ({error}): name a Python that has one, PYTHON=/path/to/python"
    version = tuple(int(part) for part in torch.__version__.split(".")[:2])
    if version < (2, 4):
        return f"PyTorch is {torch.__version__}, freshgo needs 2.4 or newer"
    return None


def missing(folder: Path) -> list[Path]:
    """The wheels of what is not installed, and that of freshgo."""
    installed = {normal(found.name) for found in importlib.metadata.distributions() if found.name}
    names = {file: normal(file.name.split("-")[0]) for file in sorted(folder.glob("*.whl"))}
    return [file for file, name in names.items() if name == "freshgo" or name not in {*installed, "pip"}]


def normal(name: str) -> str:
    return name.lower().replace("-", "_").replace(".", "_")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--python", default=f"{sys.version_info.major}.{sys.version_info.minor}")
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--missing", action="store_true")
    args = parser.parse_args()
    if args.missing:
        print(*missing(args.folder), sep="\n")
        return
    if args.check:
        sys.exit(check(args.folder))
    fill(args.folder, args.python)


if __name__ == "__main__":
    main()
