"""examples/recommend.py: on users and items with communities, and in short on a real graph where the data are."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scripts
import torch
from seeds import seed as seed_of

pytest.importorskip("torch_geometric")


@pytest.fixture(scope="module")
def recommend() -> Any:
    return scripts.load("examples/recommend.py")


def communities(users: int, items: int, count: int, each: int) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """Users who mostly take items of their own community; the last fifth of each user's is for the test."""
    rng = np.random.default_rng(seed_of(0))
    train, test = [], []
    for user in range(users):
        own = np.arange(user % count, items, count)
        taken = np.unique(np.where(rng.random(each) < 0.9, rng.choice(own, each), rng.integers(items, size=each)))
        rng.shuffle(taken)
        for i, item in enumerate(taken.tolist()):
            (test if i < len(taken) // 5 else train).append((user, item))
    return np.array(train).T.copy(), np.array(test).T.copy()


def test_communities_are_learned(recommend: Any, tmp_path: Path) -> None:
    for part, edges in zip(("train", "test"), communities(200, 300, 10, 15), strict=True):
        np.save(tmp_path / f"{part}_edges.npy", edges)
    options = ["--epochs", "2", "--batch-size", "128", "--negatives", "64"]
    figures = recommend.main([str(tmp_path), *options])
    # A community has 30 items, some 20 of them not in the training of a user: these as the first 20 have most of what
    # is to be found, 20 drawn among all items a fifteenth.
    assert figures["recall"] > 0.3
    assert figures["visits"] > 0.3
    store = ["--store", str(tmp_path / "graph.freshgo"), "--memory", "16MiB"]
    assert recommend.main([str(tmp_path), *options, *store]) == figures


def test_an_item_that_is_wanted_is_no_neighbour(recommend: Any) -> None:
    """Of two users with items 0 and 1 each, where 0 is wanted the other one is what is left."""
    data = recommend.Interactions(np.array([[0, 0, 1, 1], [0, 1, 0, 1]]), np.zeros((2, 0), np.int64))
    model = recommend.Recommender(data, width=3)
    walk = recommend.RandomWalk(walks=50, length=1, top=50, metapath=[recommend.TAKEN])
    with recommend.Loader(data.graph, [walk], "user", batch_size=2) as loader:
        (batch,) = loader
    with torch.no_grad():
        found = model(batch, "user", torch.tensor([0, 1]))
        users, items = model.users.weight, model.items.weight
        expected = torch.nn.functional.normalize(users + items[[1, 0]])
    torch.testing.assert_close(found, expected)


def test_recall(recommend: Any) -> None:
    """Against what is counted by hand: 2 users, 30 items."""
    data = recommend.Interactions(np.array([[0, 1], [29, 5]]), np.array([[0, 0, 1], [0, 28, 6]]))
    scores = torch.arange(60.0).view(2, 30)  # the highest are the last; 29 is user 0's already
    assert data.recall(lambda first, end: scores[first:end].clone(), users_at_a_time=1) == pytest.approx((0.5 + 0) / 2)
    assert data.recall(lambda first, end: -scores[first:end]) == pytest.approx((0.5 + 1) / 2)


def test_gowalla(recommend: Any, real_graph: Any, tmp_path: Path) -> None:
    """Walks alone are far above the most popular items, whose Recall@20 is 0.0416; from a store as in memory."""
    folder = real_graph("gowalla")
    data = recommend.Interactions(*(np.load(folder / f"{part}_edges.npy") for part in ("train", "test")))
    recall = recommend.recall_of_visits(data, data.graph, 50)
    assert recall > 0.1
    recommend.convert(data.graph, tmp_path / "g", progress=False).close()
    walk = recommend.RandomWalk(walks=20, length=1, top=-1, metapath=recommend.TOGETHER)
    options: dict[str, Any] = {"input_nodes": ("item", torch.arange(2000)), "batch_size": 256}
    with (
        recommend.Loader(data.graph, [walk], **options) as memory,
        recommend.Loader(tmp_path / "g", [walk], neighbor_cache=0, memory="32MiB", **options) as store,
    ):
        for one, other in zip(memory, store, strict=True):
            for name in ("edge_index", "edge_weight"):
                edges = one["item", "metapath_0", "item"][name]
                assert edges.equal(other["item", "metapath_0", "item"][name])
        assert store.stats()["topology_on_disk"]
