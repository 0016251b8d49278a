"""Ranks that do at random what they may do, with each way to have a loader: the batches of one process, and no rank
that waits for ever."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import rank_jobs
from rank_jobs import NODES, Leaving, Ranks, Ways, digest, drawn_graph, of_rank, open_loader, well
from seeds import seed

from freshgo import convert, shard

pytestmark = pytest.mark.explore

ACTIONS = 9


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    rng = np.random.default_rng(seed(5))
    place = tmp_path_factory.mktemp("works")
    graph = {
        **drawn_graph(rng, skewed=True),
        "y": rng.integers(7, size=NODES),
    }
    convert(graph, place / "whole", progress=False).close()
    shard(place / "whole", place / "parts", parts=3, progress=False)
    return place


def drawn(rng: random.Random, place: Path) -> Ways:
    """Loaders of each kind, of options that change no batch."""
    cache = ["none", "expected", "lru", "sieve", "belady"]
    common = {"batch_size": 23, "prefetch": rng.randint(1, 4), "num_workers": rng.randint(1, 3)}
    rows = {"feature_cache": 512 * rng.randrange(1, NODES)}
    return {
        "alone": (place / "whole", {**common, **rows, "cache": rng.choice(cache)}),
        "host": (place / "whole", {**common, **rows, "cache": rng.choice(cache), "share": "host"}),
        "sharded": (
            place / "parts",
            {
                **common,
                "features": "sharded",
                "exchange": rng.choice(["auto", "rounds"]),
                "cache": rng.choice(["none", "degree", "expected"]),
            },
        ),
    }


def actions_of(rng: random.Random, world: int, count: int) -> list[tuple[str, Any]]:
    """What the ranks do, of which each makes so many batches an epoch."""

    def leaving() -> Leaving:
        ends = [rng.choice([1, 2, rng.randint(1, count), count, count + 1]) for _ in range(world)]
        return [(end, rng.choice([0, 0, rng.random() / 2])) for end in ends]

    actions: list[tuple[str, Any]] = []
    left = count  # of the epoch, for each rank
    while len(actions) < ACTIONS:
        action = rng.choice(["epoch", "epoch", "trace", "alone", "host", "sharded"])
        if action == "epoch":
            actions.append((action, leaving()))
            left = count
        elif action == "trace":
            actions.append((action, 0))
        elif left > 1:
            actions.append((action, rng.randrange(1, left)))
            left -= actions[-1][1]
    return actions


@pytest.mark.parametrize("work", range(6))
def test_ranks_do_what_they_like(ranks: Ranks, place: Path, work: int) -> None:
    rng = random.Random(seed(work))
    world, way, uneven = rng.choice([2, 3]), rng.choice(["alone", "host", "sharded"]), "pad"
    ways = drawn(rng, place)
    with open_loader(place / "whole") as loader:
        trace = [n_id.tolist() for n_id in loader.trace(0)]
        alone = [[digest(batch) for batch in loader] for _ in range(ACTIONS + 1)]
    count = -(-len(alone[0]) // world)
    actions = actions_of(rng, world, count)
    print(world, way, ways, actions)
    for rank, found in enumerate(well(ranks.run(rank_jobs.works, world, ways, way, actions))):
        epoch = at = 0
        for (action, of), made in zip(actions, found, strict=True):
            left = of_rank(alone[epoch], rank, world, uneven)[at:]
            if action == "trace":
                assert made == of_rank(trace, rank, world, uneven)
            elif action == "epoch":
                assert made == left[: of[rank][0]]
                epoch, at = epoch + 1, 0
            else:
                assert made == left[:of]
                at += len(made)
