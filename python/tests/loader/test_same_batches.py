"""One seed gives the same batches, whatever else differs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import warm
from graphs import CITES, WRITES, Form
from oracle import digest

from freshgo import Belady, Disk, Labor, Loader
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


PLACES: list[dict[str, Any]] = [
    {"num_workers": 1, "prefetch": 0},
    {"num_workers": 2},
    {"num_workers": 8, "prefetch": 16},
    {"prefetch": 1},
    {"disk": Disk(io="pread", checksums=True)},
    {"disk": Disk(io="buffered")},
    {"disk": Disk(io="io_uring")},
    {"feature_cache": "64KiB"},
    {"feature_cache": 0, "neighbor_cache": 0},
    {"neighbor_cache": 0, "cache": "none"},
    {"memory": "24MiB"},
    {"cache": "belady", "feature_cache": 40_000, "neighbor_cache": 0, "memory": "64MiB"},
    {"cache": Belady(transfer="scan+forward"), "feature_cache": 20_000, "memory": "64MiB"},
    {"cache": Belady(transfer="pack+forward+ahead"), "feature_cache": 20_000, "memory": "64MiB"},
    {"cache": "degree", "feature_cache": 30_000, "neighbor_cache": 20_000},
    {"cache": "lru", "feature_cache": 30_000},
]
DRAWN: dict[str, dict[str, Any]] = {
    "uniform": {},
    "weighted": {"weight_attr": "weight"},
    "LABOR": {"neighbor_sampler": Labor(edge_weight=False)},
    "replaced": {"replace": True},
    "padded": {"pad": True},
}


@pytest.mark.parametrize("drawn", DRAWN)
def test_place_changes_nothing(form: Form, drawn: str) -> None:
    options = {**OPTIONS, "input_nodes": form.inputs("train"), **DRAWN[drawn]}
    if form.several:
        relations = form.fanouts([3, 2]) | {CITES: [-1, 1], WRITES: [2, 0]}
        options |= {"num_neighbors": relations, "input_nodes": {"paper": None, "author": "test"}}
    if "weight_attr" in options:
        options["weight_attr"] = form.weight
    with Loader(form.data, num_workers=1, **options) as memory:
        want = [[digest(batch) for batch in memory] for _ in range(2)]
    assert len(set(want[0]) | set(want[1])) == 2 * len(want[0])
    for data in (form.data, form.path):
        for place in PLACES if data is form.path else PLACES[:3]:
            try:
                loader = Loader(data, **options, **place)
            except FreshgoError:
                if place.get("disk") != Disk(io="io_uring"):  # which may be refused
                    raise
                continue
            with loader:
                assert [[digest(batch) for batch in loader] for _ in range(2)] == want, place


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
    printed = warm.run(RESUME, ORACLES, store_path, json.dumps(OPTIONS), state)
    assert printed.split() == [digest(batch) for batch in expected[yielded:]]
