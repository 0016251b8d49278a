"""What the adapters of other loaders share: a process that makes epochs for a benchmark, in a Python of its own.

An adapter is a program of this directory. `python ADAPTER --check` exits with a sentence if its loader is not installed.
`python ADAPTER DIR` opens the graph of DIR (bench/adapters/others.py writes it), says that it is ready in a line of
JSON, and then makes an epoch for every line that it reads, with a line of JSON in answer. It needs NumPy and what its
loader needs; freshgo need not be there.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np


@dataclass
class Graph:
    """A graph by target, its features on disk, and what is asked for."""

    folder: Path
    indptr: np.ndarray
    """int64 [nodes + 1]: where the in-edges of each node begin."""
    indices: np.ndarray
    """int64 [edges]: the source of each."""
    x: np.ndarray
    """float32 [nodes, columns], mapped."""
    check: np.ndarray
    """float32 [nodes]: the first column, in memory."""
    seeds: np.ndarray
    """int64: the input nodes."""
    num_neighbors: list[int]
    """Of each hop, that of the input nodes first."""
    batch_size: int
    on_disk: bool
    """Whether features are to be read from disk, with `cache` bytes of them in memory."""
    cache: int
    types: dict[str, Any] | None = None
    """Of a graph of several types: ``nodes``, the count of each; ``edges``, their names; and the ``owner`` of x and seeds.

    Ids of ``indptr`` and ``indices`` count through the node types, and rows and seeds are the owner's.
    """
    edge_types: np.ndarray | None = None
    """uint8 [edges]: the place of the type in ``types["edges"]``, which grows within the edges of a target."""

    @classmethod
    def read(cls, folder: Path) -> Graph:
        """Open what `others.write` wrote."""
        asked = json.loads((folder / "asked.json").read_text())
        names = ["indptr", "indices", "check", "seeds", *(["edge_types"] if asked["types"] else [])]
        arrays = {name: np.load(folder / f"{name}.npy") for name in names}
        return cls(folder=folder, x=np.load(folder / "x.npy", mmap_mode="r"), **arrays, **asked)


Batch = tuple[Any, Any]
"""The nodes of a batch, [n], and their features, [n, columns]."""


def moved() -> dict[str, int]:
    """Return the bytes that devices read and wrote for this process, as the kernel counts them."""
    lines = dict(line.split(": ") for line in Path("/proc/self/io").read_text().splitlines())
    return {key: int(lines[key]) for key in ("read_bytes", "write_bytes")}


def serve(
    name: str, obstacle: Callable[[], str | None], make: Callable[[Graph], Callable[[], Iterator[Batch]]]
) -> None:
    """Answer on standard output; what the loader prints goes to standard error."""
    if sys.argv[1:] == ["--check"]:
        sys.exit(obstacle())
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    graph = Graph.read(Path(sys.argv[1]))
    began = time.perf_counter()
    epoch = make(graph)
    answers.write(json.dumps({"name": name, "seconds": time.perf_counter() - began}) + "\n")
    for _line in sys.stdin:
        began, before, rows, batches = (time.perf_counter(), time.process_time()), moved(), 0, 0
        for n_id, x in epoch():
            rows, batches = rows + len(n_id), batches + 1
            if float(x[-1][0]) != float(graph.check[int(n_id[-1])]):
                sys.exit(f"{name} gave another row than that of node {int(n_id[-1])}")
        took = {"seconds": time.perf_counter() - began[0], "processor": time.process_time() - began[1]}
        took |= {key: n_bytes - before[key] for key, n_bytes in moved().items()}
        answers.write(json.dumps({**took, "rows": rows, "batches": batches}) + "\n")
