"""Loaders of several ranks make together what one makes: the same batches under the same numbers."""

from __future__ import annotations

import hashlib
import itertools
import json
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from flat_options import grouped
from seeds import seed

from freshgo import Belady, History, Labor, LinkLoader, Loader, Online, RandomWalk, Ranks, convert, errors
from freshgo._native.loader import share_count

WORLDS = range(1, 6)
CACHE = 100_000
"""Bytes with room for some fifty of 400 rows."""


def digest(value: Any) -> Any:
    """Everything in a batch, to compare."""
    if isinstance(value, torch.Tensor):
        return str(value.dtype), list(value.shape), hashlib.sha256(value.contiguous().numpy().tobytes()).hexdigest()
    if isinstance(value, dict):
        return {key: digest(one) for key, one in value.items()}
    return value


def contents(batches: Any) -> list[Any]:
    return [digest(batch.to_dict()) for batch in batches]


def timed_graph() -> dict[str, Any]:
    rng = np.random.default_rng(seed(5))
    return {
        "num_nodes": 400,
        "edge_index": rng.integers(400, size=(2, 4000)),
        "x": rng.standard_normal((400, 128), dtype=np.float32),
        "t": rng.integers(100, size=400),
        "weight": rng.random(4000, dtype=np.float32),
    }


def typed_graph() -> dict[Any, Any]:
    rng = np.random.default_rng(seed(6))
    ends = {"user": 300, "item": 200}

    def edges(source: str, target: str) -> dict[str, Any]:
        return {"edge_index": np.stack([rng.integers(ends[source], size=2500), rng.integers(ends[target], size=2500)])}

    return {
        **{name: {"x": rng.standard_normal((count, 5), dtype=np.float32)} for name, count in ends.items()},
        ("user", "rates", "item"): edges("user", "item"),
        ("item", "rated", "user"): edges("item", "user"),
        ("user", "knows", "user"): edges("user", "user"),
    }


@pytest.fixture(scope="module")
def stores(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Path]]:
    directory = tmp_path_factory.mktemp("ranks")
    for name, graph in (("timed", timed_graph()), ("typed", typed_graph())):
        convert(graph, directory / name, progress=False).close()
    yield {name: directory / name for name in ("timed", "typed")}


OPTIONS: dict[str, tuple[str, Callable[..., Loader]]] = {
    "uniform": ("timed", lambda data, **o: Loader(data, [4, 3], **o)),
    "in order": ("timed", lambda data, **o: Loader(data, [4, 3], **{**o, "shuffle": False})),
    "full batches": (
        "timed",
        lambda data, **o: Loader(data, [4, 3], drop_last=True, **{"ranks": Ranks(uneven="pad"), **o}),
    ),
    "replacement": ("timed", lambda data, **o: Loader(data, [4, 3], replace=True, **o)),
    "weighted": ("timed", lambda data, **o: Loader(data, [4, 3], weight_attr="weight", **o)),
    "padded": ("timed", lambda data, **o: Loader(data, [4, 3], pad=True, **o)),
    "labor": ("timed", lambda data, **o: Loader(data, [4, 3], neighbor_sampler=Labor(batch_dependency=3), **o)),
    "walks": ("timed", lambda data, **o: Loader(data, [RandomWalk(6, 2, top=3)] * 2, **o)),
    "induced": ("timed", lambda data, **o: Loader(data, [4, 3], subgraph_type="induced", **o)),
    "times": ("timed", lambda data, **o: Loader(data, [4, 3], time_attr="t", **o)),
    "types": ("typed", lambda data, **o: Loader(data, [4, 3], {"user": None, "item": range(90)}, **o)),
    "links": ("timed", lambda data, **o: LinkLoader(data, [3], _links(), neg_sampling="binary", **o)),
    "links in time": ("timed", lambda data, **o: _timed_links(data, **o)),
    "typed links": ("typed", lambda data, **o: _typed_links(data, **o)),
    "none cached": ("timed", lambda data, **o: Loader(data, [4, 3], cache="none", feature_cache=0, **o)),
    "lru": ("timed", lambda data, **o: Loader(data, [4, 3], cache="lru", feature_cache=CACHE, **o)),
    "planned": ("timed", lambda data, **o: Loader(data, [4, 3], cache="belady", feature_cache=CACHE, **o)),
    "reordered": (
        "timed",
        lambda data, **o: Loader(data, [4, 3], cache=Belady(reorder=5), feature_cache=CACHE, **o),
    ),
    "match reordered": (
        "timed",
        lambda data, **o: Loader(data, [4, 3], cache=Online("match", reorder=5), feature_cache=CACHE, **o),
    ),
}


def _links() -> Any:
    return np.random.default_rng(seed(7)).integers(400, size=(2, 500))


def _timed_links(data: Path, **options: Any) -> Loader:
    times = np.random.default_rng(seed(8)).integers(50, 100, size=500)
    return LinkLoader(data, [3, 2], _links(), edge_label_time=times, time_attr="t", neg_sampling="triplet", **options)


def _typed_links(data: Path, **options: Any) -> Loader:
    return LinkLoader(
        data, [3, 2], ("user", "rates", "item"), neg_sampling="binary", exclude_seed_edges=True, **options
    )


def opened(stores: dict[str, Path], name: str, **options: Any) -> Loader:
    store, make = OPTIONS[name]
    return make(stores[store], **grouped(**{"batch_size": 23, "shuffle": True, "seed": 3, **options}))


def expected(share: tuple[int, int], uneven: str, count: int, first: int = 0) -> list[int]:
    """The numbers of a rank's batches, by hand: what DistributedSampler does with whole batches."""
    rank, world = share
    numbers = list(range(first, count))
    if uneven == "drop":
        numbers = numbers[: len(numbers) // world * world]
    elif uneven == "pad":
        again = itertools.cycle(range(count))
        numbers += [next(again) for _ in range(-len(numbers) % world)]
    return numbers[rank::world]


@pytest.mark.parametrize("name", OPTIONS)
def test_ranks_make_together_what_one_makes(stores: dict[str, Path], name: str) -> None:
    with opened(stores, name) as alone:
        epochs = [contents(alone), contents(alone)]
    count = len(epochs[0])
    for world in WORLDS:
        for rank in range(world):
            uneven = ("pad", "drop", "join")[(world + rank) % 3]
            with opened(stores, name, rank=rank, world_size=world, uneven=uneven) as loader:
                numbers = expected((rank, world), uneven, count)
                assert len(loader) == len(numbers)
                for epoch in epochs:
                    assert contents(loader) == [epoch[number] for number in numbers]


@pytest.mark.parametrize(
    "name", ["uniform", "links in time", "types", "lru", "planned", "reordered", "match reordered"]
)
def test_any_number_of_ranks_goes_on_in_mid_epoch(stores: dict[str, Path], name: str) -> None:
    """With every batch that is left once, and the next epoch whole."""
    rng = random.Random(seed(1))
    with opened(stores, name) as alone:
        epochs = [contents(alone), contents(alone)]
    count = len(epochs[0])
    for world, other in itertools.product(range(1, 5), repeat=2):
        steps = rng.randrange(count // world + 1)
        states, found = [], {}
        for rank in range(world):
            with opened(stores, name, rank=rank, world_size=world, uneven="join") as loader:
                iterator = iter(loader)
                for step in range(steps):
                    found[step * world + rank] = digest(next(iterator).to_dict())
                states.append(json.loads(json.dumps(loader.state_dict())))
        assert all(state == states[0] for state in states)
        assert states[0]["batches"] == steps * world
        for rank in range(other):
            with opened(stores, name, rank=rank, world_size=other, uneven="join") as loader:
                loader.load_state_dict(states[0])
                numbers = expected((rank, other), "join", count, steps * world)
                for number, batch in zip(numbers, contents(loader), strict=True):
                    assert number not in found
                    found[number] = batch
                assert contents(loader) == [epochs[1][number] for number in expected((rank, other), "join", count)]
        assert [found[number] for number in range(count)] == epochs[0]


@pytest.mark.parametrize("uneven", ["pad", "drop", "join"])
def test_a_chain_of_worlds_resumes_exactly(stores: dict[str, Path], uneven: str) -> None:
    """An epoch that several numbers of ranks take turns at, and save."""
    rng = random.Random(seed(2))
    with opened(stores, "planned") as alone:
        epoch = contents(alone)
        state = alone.state_dict() | {"epoch": 0, "batches": 0}
    at = 0
    while at < len(epoch):
        world = rng.randrange(1, 6)
        steps = rng.randrange(1, 4)
        states = []
        for rank in range(world):
            with opened(stores, "planned", rank=rank, world_size=world, uneven=uneven) as loader:
                loader.load_state_dict(state)
                numbers = expected((rank, world), uneven, len(epoch), at)[:steps]
                found = contents(itertools.islice(loader, len(numbers)))  # and not the end of the epoch
                assert found == [epoch[number] for number in numbers]
                states.append(loader.state_dict())
        made = max(len(expected((rank, world), uneven, len(epoch), at)[:steps]) for rank in range(world))
        state, at = states[0], min(at + made * world, len(epoch))
        assert state["batches"] == at
        if made == 0:  # fewer are left than there are ranks, and they are dropped
            break


def test_epochs_that_are_left_early(stores: dict[str, Path]) -> None:
    with opened(stores, "planned") as alone:
        epochs = [contents(alone) for _ in range(4)]
    with opened(stores, "planned", rank=1, world_size=3) as loader:
        numbers = expected((1, 3), "pad", len(epochs[0]))
        assert contents(itertools.islice(loader, 2)) == [epochs[0][number] for number in numbers[:2]]
        assert loader.state_dict()["batches"] == 6
        assert contents(loader) == [epochs[1][number] for number in numbers]
        loader.set_epoch(3)
        assert contents(itertools.islice(loader, 1)) == [epochs[3][1]]
        assert [digest(n_id) for n_id in loader.trace(2)] == [epochs[2][number]["n_id"] for number in numbers]


def test_a_loader_counts_the_batches_of_its_rank(stores: dict[str, Path]) -> None:
    """Its plan has no others: what it samples and reads is its own."""
    with opened(stores, "planned", rank=2, world_size=4, uneven="join") as loader:
        numbers = expected((2, 4), "join", 18)
        rows = sum(batch.num_nodes for batch in loader)
        stats = loader.stats()
        assert (stats["batches"], stats["rows"]) == (len(numbers), rows)
        assert [epoch["batches"] for epoch in stats["epochs"]] == [len(numbers)]


def test_more_ranks_than_batches(stores: dict[str, Path]) -> None:
    with opened(stores, "uniform", batch_size=150) as alone:
        epoch = contents(alone)
    assert len(epoch) == 3
    for rank in range(7):
        for uneven, numbers in (("pad", [rank % 3]), ("drop", []), ("join", [rank] if rank < 3 else [])):
            with opened(stores, "uniform", batch_size=150, rank=rank, world_size=7, uneven=uneven) as loader:
                assert len(loader) == len(numbers)
                assert contents(loader) == [epoch[number] for number in numbers]
                assert loader.state_dict()["epoch"] == 1


def test_drop_last_drops_for_all_ranks_alike(stores: dict[str, Path]) -> None:
    counts = set()
    for rank in range(4):
        with opened(stores, "uniform", drop_last=True, rank=rank, world_size=4) as loader:
            counts.add((len(loader), len(list(loader))))
    assert counts == {(400 // 23 // 4, 400 // 23 // 4)}


def test_history_counts_the_epochs_of_its_rank(stores: dict[str, Path]) -> None:
    """A span of an epoch is that of the rank's epoch, and its state goes back to that rank alone."""

    def run(**ranks: Any) -> tuple[Loader, History]:
        history = History(t_stale=1.0, start=1.0, lag=0, keep="rows")
        return opened(stores, "uniform", history=history, prefetch=0, **ranks), history

    whole, states = {}, {}
    for ranks in ({}, {"rank": 0, "world_size": 2}, {"rank": 1, "world_size": 2}):
        loader, history = run(**ranks)
        with loader:
            list(loader)
            key = (ranks.get("rank"), ranks.get("world_size"))
            whole[key] = history.stats()["start"]
            states[key] = history.state_dict(), loader.state_dict()
    assert whole == {(None, None): 18, (0, 2): 9, (1, 2): 9}
    for rank in range(2):
        loader, history = run(rank=rank, world_size=2)
        with loader:
            loader.load_state_dict(states[rank, 2][1])
            history.load_state_dict(states[rank, 2][0])
            assert len(list(loader)) == 9
            for other in ((None, None), (1 - rank, 2)):
                with pytest.raises(errors.InvalidArgumentError, match="rank"):
                    history.load_state_dict(states[other][0])


@pytest.mark.parametrize("world", WORLDS)
def test_ranks_with_a_history_train_on_the_seeds_of_one(world: int) -> None:
    """Each has embeddings of its own, by which its batches are smaller; their seeds are those of a single process."""
    models = pytest.importorskip("history_models", reason="PyG is not installed")
    epochs = 3

    def seeds(batch: Any) -> list[int]:
        return [int(node) for node in batch.n_id[: batch.batch_size]]

    with models.plain_loader(shuffle=True) as loader:
        one = [[(seeds(batch), int(batch.num_edges)) for batch in loader] for _ in range(epochs)]
    saved = 0
    for rank in range(world):
        history, model = History(p_grad=0.9, t_stale=1000, keep="rows"), models.model_of("SAGEConv")
        ranks = Ranks(rank=rank, world_size=world, uneven="join")
        with models.plain_loader(shuffle=True, history=history, ranks=ranks) as loader:
            models.attach(history, model)
            found: list[tuple[list[int], int]] = []

            def noted(loader: Any = loader, found: Any = found) -> Iterator[Any]:
                for batch in loader:
                    found.append((seeds(batch), int(batch.num_edges)))
                    yield batch

            for epoch in range(epochs):
                models.train(model, noted(), history)
                mine = one[epoch][rank::world]
                assert [of for of, _ in found] == [of for of, _ in mine]
                saved += sum(edges for _, edges in mine) - sum(edges for _, edges in found)
                found.clear()
    assert saved > 0


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"rank": 0}, errors.InvalidArgumentError, "rank and world_size go together"),
        ({"world_size": 2}, errors.InvalidArgumentError, "rank and world_size go together"),
        ({"rank": 2, "world_size": 2}, errors.InvalidArgumentError, "rank must be below world_size=2, got 2"),
        ({"rank": -1, "world_size": 2}, errors.InvalidArgumentError, "rank must be at least 0, got -1"),
        ({"rank": 0, "world_size": 0}, errors.InvalidArgumentError, "world_size must be at least 1, got 0"),
        ({"rank": 0.0, "world_size": 2}, errors.DTypeError, "rank must be an int"),
        ({"rank": 0, "world_size": True}, errors.DTypeError, "world_size must be an int"),
        ({"uneven": "even"}, errors.InvalidArgumentError, "uneven must be one of 'pad', 'drop', 'join', got 'even'"),
    ],
)
def test_wrong_ranks(stores: dict[str, Path], options: dict[str, Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        opened(stores, "uniform", **options)


@pytest.mark.parametrize(
    ("share", "numbers", "message"),
    [
        ((0, 0, 0), (5, 0), "world_size is 0"),
        ((2, 2, 0), (5, 0), "rank must be in"),
        ((0, 2, 3), (5, 0), "uneven is 3"),
        ((0, 2, 0), (5, 6), "within .0, 5., got 6"),
        ((0, 2, 0), (-1, 0), "within .0, -1., got 0"),
    ],
)
def test_the_library_checks_shares(share: tuple[int, int, int], numbers: tuple[int, int], message: str) -> None:
    members = dict(zip(("rank", "world_size", "uneven"), share, strict=True))
    with pytest.raises(errors.InvalidArgumentError, match=message):
        share_count(members, *numbers)


def test_a_state_beyond_the_epoch(stores: dict[str, Path]) -> None:
    with opened(stores, "uniform", rank=1, world_size=4) as loader:
        state = loader.state_dict()
        loader.load_state_dict(state | {"batches": 18})
        assert list(loader) == []
        with pytest.raises(errors.InvalidArgumentError, match="19 batches, but an epoch has 18"):
            loader.load_state_dict(state | {"batches": 19})
