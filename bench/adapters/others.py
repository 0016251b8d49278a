"""Other loaders for a benchmark, each in a process of the Python that has it.

    --with graphbolt=/path/to/python     GraphBolt in another Python; --with none leaves all of them out

Without `--with` those take part that this Python has.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

HERE = Path(__file__).resolve().parent
NAMES = ("graphbolt", "agnes", "diskgnn")


@dataclass
class Turn:
    """An epoch of another loader."""

    seconds: float
    processor: float
    """Seconds of processors, which say more than those of the clock beside other work."""
    rows: int
    batches: int
    read_bytes: int
    """From devices, as the kernel counts them for the process, and written to them."""
    write_bytes: int


class Other:
    """A process that makes epochs of a loader, and what it said when it was ready."""

    def __init__(self, python: str, program: Path, folder: Path) -> None:
        self._process = subprocess.Popen(
            [python, program, folder], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1
        )
        ready = self._answer()
        self.name, self.preparation = ready["name"], ready["seconds"]

    def epoch(self) -> Turn:
        """Make an epoch, whose rows are compared with the graph's."""
        assert self._process.stdin is not None
        self._process.stdin.write("epoch\n")
        return Turn(**self._answer())

    def close(self) -> None:
        """End the process."""
        self._process.communicate(timeout=60)

    def _answer(self) -> Any:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"{self._process.args[1]} ended: {self._process.wait()}")
        return json.loads(line)


def add_option(parser: argparse.ArgumentParser) -> None:
    """Add --with to a benchmark."""
    parser.add_argument("--with", dest="others", action="append", metavar="NAME=PYTHON", help=f"of {', '.join(NAMES)}")


def installed(asked: list[str] | None, names: tuple[str, ...] = NAMES) -> dict[str, str]:
    """Return the Python of each loader that takes part, by name; print why others do not."""
    pythons = dict(one.partition("=")[::2] for one in asked or ())
    if unknown := set(pythons) - {*NAMES, "none"}:
        sys.exit(f"--with {unknown.pop()}: expected one of {', '.join(NAMES)}")
    found = {}
    for name in names if not pythons else [name for name in names if name in pythons]:
        python = pythons.get(name) or sys.executable
        check = subprocess.run([python, HERE / f"{name}.py", "--check"], capture_output=True, text=True)
        if check.returncode == 0:
            found[name] = python
        else:
            print(f"without {name}: {(check.stderr.strip().splitlines() or ['?'])[-1]}")
    return found


def write(
    folder: Path,
    edge_index: torch.Tensor,
    x: torch.Tensor | Path,
    check: torch.Tensor,
    seeds: torch.Tensor,
    num_neighbors: list[int],
    batch_size: int,
    cache: int | None = None,
    types: dict[str, Any] | None = None,
    edge_types: torch.Tensor | None = None,
) -> None:
    """Write a graph for the adapters; with `cache` bytes of features in memory, the others are on disk.

    ``x`` is the features or a file of them, which gets a second name. ``types`` and ``edge_types`` are as serve.Graph has them, with
    edges in the order of their types.
    """
    folder.mkdir(parents=True, exist_ok=True)
    source, target = edge_index
    order = torch.argsort(target, stable=True)
    counts = torch.bincount(target, minlength=sum(types["nodes"].values()) if types else len(check))
    arrays = {
        "indptr": torch.cat([counts.new_zeros(1), counts.cumsum(0)]),
        "indices": source[order],
        "check": check,
        "seeds": seeds,
    }
    if edge_types is not None:
        arrays["edge_types"] = edge_types[order]
    for name, array in arrays.items():
        np.save(folder / f"{name}.npy", array.numpy())
    features = folder / "x.npy"
    features.unlink(missing_ok=True)
    if isinstance(x, Path):
        features.hardlink_to(x)
    else:
        np.save(features, x.numpy())
    asked = {
        "num_neighbors": num_neighbors,
        "batch_size": batch_size,
        "on_disk": cache is not None,
        "cache": cache or 0,
        "types": types,
    }
    (folder / "asked.json").write_text(json.dumps(asked))


def open_other(name: str, python: str, folder: Path) -> Other:
    """Open a loader over a graph that `write` wrote."""
    return Other(python, HERE / f"{name}.py", folder)
