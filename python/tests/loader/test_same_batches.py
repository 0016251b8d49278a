"""One seed gives the same batches, whatever else differs."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from oracle import assert_equal, digest

from freshgo import Loader
from freshgo.errors import FreshgoError

OPTIONS: dict[str, Any] = {
    "num_neighbors": [6, 4, 3],
    "input_nodes": "train",
    "batch_size": 128,
    "shuffle": True,
    "seed": 11,
}


@pytest.fixture(scope="module")
def expected(store_path: Path) -> list[Any]:
    with Loader(str(store_path), **OPTIONS, num_workers=1, prefetch=0, cache="none") as loader:
        return [*loader, *loader]  # two epochs


@pytest.mark.parametrize(
    "other",
    [
        {"num_workers": 2},
        {"num_workers": 8, "prefetch": 16},
        {"prefetch": 1},
        {"io": "pread"},
        {"io": "buffered"},
        {"io": "io_uring"},
        {"checksums": True},
        {"feature_cache": "64KiB"},
        {"feature_cache": 0, "neighbor_cache": 0},
        {"neighbor_cache": 0, "cache": "none"},
        {"memory": "8MiB"},
    ],
    ids=str,
)
def test_on_disk(store: Any, expected: list[Any], other: dict[str, Any]) -> None:
    try:
        loader = Loader(store, **OPTIONS, **other)
    except FreshgoError as error:
        if other != {"io": "io_uring"}:
            raise
        pytest.skip(f"io_uring is refused here: {error}")
    with loader:
        for one, two in zip([*loader, *loader], expected, strict=True):
            assert_equal(one, two)


@pytest.mark.parametrize("other", [{}, {"num_workers": 8}, {"prefetch": 0}], ids=str)
def test_in_memory(graph: dict[str, Any], expected: list[Any], other: dict[str, Any]) -> None:
    with Loader(graph, **OPTIONS, **other) as loader:
        for one, two in zip([*loader, *loader], expected, strict=True):
            assert_equal(one, two)


ORACLES = str(Path(__file__).parents[1] / "oracles")

RESUME = """
import json, sys
sys.path.insert(0, sys.argv[1])
from oracle import digest
from freshgo import Loader
loader = Loader(sys.argv[2], **json.loads(sys.argv[3]))
loader.load_state_dict(json.loads(sys.argv[4]))
for epoch in range(2):
    for batch in loader:
        print(digest(batch))
"""


@pytest.mark.parametrize("yielded", [0, 3])
def test_resume_in_a_new_process(store_path: Path, expected: list[Any], yielded: int) -> None:
    import json

    with Loader(store_path, **OPTIONS) as loader:
        iterator = iter(loader)
        for _ in range(yielded):
            next(iterator)
        state = json.dumps(loader.state_dict())
    answer = subprocess.run(
        [sys.executable, "-c", RESUME, ORACLES, str(store_path), json.dumps(OPTIONS), state],
        capture_output=True,
        text=True,
        check=True,
    )
    assert answer.stdout.split() == [digest(batch) for batch in expected[yielded:]]
