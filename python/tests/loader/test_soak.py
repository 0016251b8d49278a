"""Loaders that run for long hold what they held at first: memory, descriptors, threads, and the library's counters.

``make soak BATCHES=100000`` lets each make so many batches.
"""

from __future__ import annotations

import gc
import os
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from graphs import WRITES, hetero_graph
from seeds import seed as seed_of

import freshgo
from freshgo import Belady, History, LinkLoader, Loader
from freshgo._native.process import counters

pyg = pytest.importorskip("torch_geometric.nn")

BATCHES = int(os.environ.get("FRESHGO_TEST_SOAK", "200"))
"""Of each kind."""
GROWTH = 24 << 20
"""Of a process whose allocators have not filled their pools yet; in 10,000 batches a list kept of each is more."""


def footprint() -> tuple[int, int, int]:
    """Resident bytes, open files, threads."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    files, threads = (len(list(Path("/proc/self", of).iterdir())) for of in ("fd", "task"))
    return pages * os.sysconf("SC_PAGE_SIZE"), files, threads


@pytest.fixture(scope="module")
def homogeneous(tmp_path_factory: pytest.TempPathFactory) -> Path:
    nodes, edges = 4000, 40_000
    rng = np.random.default_rng(seed_of(0))
    path = tmp_path_factory.mktemp("soak") / "g"
    freshgo.convert(
        {
            "num_nodes": nodes,
            "edge_index": (nodes * rng.random((2, edges)) ** 1.5).astype(np.int64),
            "x": rng.standard_normal((nodes, 32), dtype=np.float32),
            "y": rng.integers(5, size=nodes),
            "born": rng.integers(1000, size=nodes),
        },
        path,
        progress=False,
    ).close()
    return path


@pytest.fixture(scope="module")
def heterogeneous(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("soak") / "typed"
    freshgo.convert(hetero_graph(), path, progress=False).close()
    return path


PLANNED: dict[str, Any] = {
    "cache": Belady(buffer_memory=0, transfer="pack"), "feature_cache": "256KiB", "shuffle": True
}  # fmt: skip


def history(path: Path) -> Iterator[Any]:
    """Opened anew every three epochs, as are the others."""
    model, kept = pyg.GraphSAGE(32, 8, 2, 5), History(t_stale=50, keep="rows")
    kept.attach(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    with Loader(path, [3, 2], batch_size=16, history=kept, **PLANNED) as loader:
        for _ in range(3):
            for batch in loader:
                optimizer.zero_grad()
                model(batch.x, batch.edge_index).square().mean().backward()
                optimizer.step()
                kept.update()
                yield batch


def links(path: Path) -> Iterator[Any]:
    options: dict[str, Any] = {"neg_sampling": "binary", "strict_negatives": True, "exclude_seed_edges": True}
    with LinkLoader(path, [3, 2], batch_size=16, **options, **PLANNED) as loader:
        yield from loader


def temporal(path: Path) -> Iterator[Any]:
    with Loader(path, [3, 2], batch_size=16, time_attr="born", temporal_strategy="last", **PLANNED) as loader:
        for _ in range(3):
            yield from loader


def types(path: Path) -> Iterator[Any]:
    with Loader(path, [3, 2], WRITES[2], batch_size=16, **PLANNED) as loader:
        for _ in range(3):
            yield from loader


@pytest.mark.parametrize("kind", [history, links, temporal, types])
def test_soak(
    kind: Callable[[Path], Iterator[Any]], homogeneous: Path, heterogeneous: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = heterogeneous if kind is types else homogeneous
    gc.collect()
    before = counters()
    made, held = 0, [footprint()]
    while made < BATCHES or len(held) < 5:
        made += sum(1 for _ in islice(kind(path), BATCHES // 4))
        gc.collect()
        held.append(footprint())
    now = counters()
    assert {name: now[name] for name in now if name != "pooled_bytes"} == {
        name: before[name] for name in before if name != "pooled_bytes"
    }
    half = 1 + (len(held) - 1) // 2
    warm, after = held[1:half], held[half:]
    growth = [max(row[i] for row in after) - max(row[i] for row in warm) for i in range(3)]
    with capsys.disabled():
        if BATCHES > 1000:
            sizes = f"{warm[-1][0] >> 20} MiB, then {after[-1][0] >> 20} MiB"
            print(f"\n{kind.__name__}: {made} batches, resident {sizes}; descriptors and threads {growth[1:]}")
    assert growth[0] < GROWTH, f"{growth[0] >> 20} MiB more than in the first half of {made} batches"
    assert growth[1] <= 0, f"{growth[1]} descriptors more"
    assert growth[2] <= 2, f"{growth[2]} threads more"  # the scheduler of Go may start one whenever one is blocked
