"""How memory is divided: more of it never reads more, and the smallest that an error names works."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from seeds import seed

import freshgo
from freshgo import Loader, convert, errors

NODES = 30_000


def web(width: int) -> dict[str, Any]:
    """A graph in which the neighbours of most nodes have numbers near their own, and few are those of all."""
    rng = np.random.default_rng(seed(width))
    nodes = 10 * NODES
    targets = rng.integers(nodes, size=8 * nodes)
    near = (targets + rng.geometric(0.05, size=len(targets))) % nodes
    sources = np.where(rng.random(len(targets)) < 0.8, near, (nodes * rng.random(len(targets)) ** 8).astype(np.int64))
    x = rng.standard_normal((nodes, width), dtype=np.float32)
    return {"edge_index": np.stack([sources, targets]), "x": x, "y": rng.integers(9, size=nodes)}


def graph(width: int, types: int) -> dict[str, Any]:
    """A graph in which few nodes are the neighbours of many, of one type or of several."""
    rng = np.random.default_rng(seed(width))

    def edges(sources: int, targets: int) -> np.ndarray:
        return np.stack(
            [(sources * rng.random(8 * targets) ** 2).astype(np.int64), rng.integers(targets, size=8 * targets)]
        )

    def rows(count: int, of: int) -> np.ndarray:
        return rng.standard_normal((count, of), dtype=np.float32)

    if types == 1:
        return {"edge_index": edges(NODES, NODES), "x": rows(NODES, width), "y": rng.integers(9, size=NODES)}
    paper, author = {"x": rows(NODES, width)}, {"x": rows(NODES // 2, 4 * width)}
    return {
        "paper": paper,
        "author": author,
        ("author", "writes", "paper"): {"edge_index": edges(NODES // 2, NODES)},
        ("paper", "rev_writes", "author"): {"edge_index": edges(NODES, NODES // 2)},
    }


def epochs(path: Path, memory: int, batch_size: int, inputs: Any) -> list[int]:
    """The bytes that the first two epochs read."""
    with Loader(path, [5, 5], inputs, batch_size=batch_size, shuffle=True, memory=memory, num_workers=2) as loader:
        for _ in range(2):
            for _ in loader:
                pass
        return [epoch["bytes_read"] for epoch in loader.stats()["epochs"]]


def read_over_budgets(path: Path, batch_size: int, inputs: Any) -> None:
    """Read two epochs with growing memory, until all is held, and compare what they read."""
    with pytest.raises(errors.BudgetError) as caught:
        epochs(path, 1000, batch_size, inputs)
    memory, least = caught.value.minimum, [2**62, 2**62]
    while least[1] > 0:
        read = epochs(path, memory, batch_size, inputs)
        for now, before in zip(read, least, strict=True):
            assert now <= 1.15 * before, f"memory={memory}"
        least = [min(*pair) for pair in zip(read, least, strict=True)]
        memory += memory // 6


@pytest.mark.parametrize(("batch_size", "count", "width"), [(500, 5000, 256), (1000, 20_000, 64)])
def test_more_memory_reads_hardly_more_where_few_rows_are_read(
    tmp_path: Path, batch_size: int, count: int, width: int
) -> None:
    convert(web(width), tmp_path / "graph", progress=False).close()
    read_over_budgets(tmp_path / "graph", batch_size, range(count))


@pytest.mark.parametrize(
    ("batch_size", "count", "width", "types"),
    [
        (1000, 10_000, 64, 1),
        (100, 4000, 64, 1),
        pytest.param(20, 2000, 64, 1, marks=pytest.mark.long),
        pytest.param(1000, 10_000, 8, 1, marks=pytest.mark.long),
        pytest.param(100, 4000, 600, 1, marks=pytest.mark.long),
        pytest.param(1000, 10_000, 32, 2, marks=pytest.mark.long),
    ],
)
def test_more_memory_reads_hardly_more(tmp_path: Path, batch_size: int, count: int, width: int, types: int) -> None:
    convert(graph(width, types), tmp_path / "graph", progress=False).close()
    inputs: Any = range(count) if types == 1 else ("paper", range(count))
    read_over_budgets(tmp_path / "graph", batch_size, inputs)


@pytest.mark.parametrize("memory", ["1MiB", 1000, "1.5MB"])
def test_what_an_error_states_works(tmp_path: Path, memory: int | str) -> None:
    convert(graph(16, 1), tmp_path / "graph", progress=False).close()
    options: dict[str, Any] = {"input_nodes": range(1000), "batch_size": 100, "num_workers": 1, "prefetch": 1}
    spelled = {"1MiB": '"1MiB"', 1000: "1000", "1.5MB": "1500000"}[memory]
    pattern = re.escape(f"memory={spelled} is too small: these options need at least ") + r"(\d+) ([KM])iB$"
    with pytest.raises(errors.BudgetError, match=pattern) as caught:
        Loader(tmp_path / "graph", [5, 5], memory=memory, **options)
    minimum = caught.value.minimum
    stated = re.search(pattern, str(caught.value))
    assert stated is not None
    for works in (minimum, f"{stated[1]}{stated[2]}iB"):
        with Loader(tmp_path / "graph", [5, 5], memory=works, **options) as loader:
            assert sum(batch.batch_size for batch in loader) == 1000
            assert loader.stats()["memory_smallest"] == minimum
            assert loader.stats()["memory_peak"] <= loader.stats()["memory_limit"]
    with pytest.raises(errors.BudgetError) as again:
        Loader(tmp_path / "graph", [5, 5], memory=minimum - 1, **options)
    assert again.value.minimum == minimum


@pytest.mark.parametrize(
    ("columns", "dtype"),
    [
        (768, "float16"),
        (700, "float32"),
        pytest.param(300, "float32", marks=pytest.mark.long),
        pytest.param(1000, "float32", marks=pytest.mark.long),
    ],
)
def test_auto_reads_no_more_than_the_best_named_cache(tmp_path: Path, columns: int, dtype: str) -> None:
    """Rows of 1.5 and 2.8 KB straddle pages, rows of 1.2 and 4 KB do not. "auto" takes a cache that is predicted to
    move at most 1.1 times the bytes of the best; it predicts from a few batches, which may cost as much again. What a
    plan moves depends on the disk too, so planned caches are counted with a request for each row."""
    rng, nodes = np.random.default_rng(0), 20_000  # constant: how well a few batches predict is not bounded
    names = rng.permutation(nodes)
    sources = names[(nodes * rng.random(10 * nodes) ** 3).astype(np.int64)]
    edges = np.stack([sources, rng.integers(nodes, size=10 * nodes)])
    x = np.ones((nodes, columns), dtype)
    convert({"edge_index": edges, "x": x}, tmp_path / "graph", progress=False).close()
    given: dict[str, Any] = {"batch_size": 32, "shuffle": True, "return_edge_id": False, "num_workers": 1}
    seeds = rng.permutation(nodes)[:1600]

    def read(cache: Any, memory: int) -> tuple[int, str]:
        with Loader(tmp_path / "graph", [5, 5], seeds, cache=cache, memory=memory, **given) as loader:
            for _ in range(2):
                for _ in loader:
                    pass
            return loader.stats()["epochs"][1]["bytes_read"], loader.stats()["cache"]

    for share in (0.1, 0.3):
        memory = int(share * x.nbytes) + (10 << 20)
        named = {"belady": freshgo.Belady(transfer="random"), "degree": "degree", "expected": "expected"}
        found = {name: read(cache, memory)[0] for name, cache in named.items()}
        bytes_read, kind = read("auto", memory)
        chosen = found["belady"] if kind == "belady" else bytes_read
        assert chosen <= 1.1**2 * min(found.values()), (share, kind, chosen, found)
