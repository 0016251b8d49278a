"""In what order an epoch has its input nodes: input_weight, and the samplers of torch.utils.data."""

from __future__ import annotations

import itertools
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from graphs import hetero_graph
from oracle import assert_batches_equal
from sampler_oracle import check_proportional
from seeds import seed as seed_of
from torch.utils.data import (
    BatchSampler,
    DistributedSampler,
    RandomSampler,
    SequentialSampler,
    SubsetRandomSampler,
    WeightedRandomSampler,
)

from freshgo import Labor, LinkLoader, Loader, Ranks, errors

pytestmark = pytest.mark.explore

INVALID, DTYPE = errors.InvalidArgumentError, errors.DTypeError
IDS = torch.arange(100, 160)
WEIGHTS = torch.tensor([0.0, 1.0, 2.0, 5.0] * 15)


def options(**more: Any) -> dict[str, Any]:
    return {"batch_size": 16, "seed": seed_of(2), **more}


def drawn(loader: Any, epochs: int = 1) -> list[int]:
    return [int(place) for _ in range(epochs) for batch in loader for place in batch.input_id]


def test_draws_in_proportion_and_with_replacement(graph: dict[str, Any]) -> None:
    with Loader(graph, [], IDS, input_weight=WEIGHTS, **options()) as loader:
        assert len(loader) == 4
        first, second = drawn(loader), drawn(loader)
        assert len(first) == len(second) == 60
        assert first != second
        assert len(set(first)) < 60
        counts = Counter(first + second + drawn(loader, 400))
    assert not any(counts[place] for place in range(0, 60, 4))
    check_proportional(np.array([counts[place] for place in range(60)]), WEIGHTS.numpy())


@pytest.mark.parametrize("how", [{}, {"disjoint": True}, {"neighbor_sampler": Labor(edge_weight=False)}], ids=str)
def test_caches_memory_and_ranks_change_nothing(store_path: Path, graph: dict[str, Any], how: dict[str, Any]) -> None:
    how = options(input_weight=WEIGHTS.numpy(), **how)
    with Loader(graph, [4, 3], IDS, **how) as loader:
        want = [batch for _ in range(2) for batch in loader]
    for part in want:
        assert torch.equal(part.n_id[: part.batch_size], IDS[part.input_id])
    for more in ({"cache": "belady"}, {"cache": "lru"}, {"cache": "degree", "shuffle": True}):
        with Loader(store_path, [4, 3], IDS, memory="16MiB", **more, **how) as loader:
            got = [batch for _ in range(2) for batch in loader]
        assert_batches_equal(want, got)
    ranks = []
    for rank in range(2):
        with Loader(store_path, [4, 3], IDS, ranks=Ranks(rank=rank, world_size=2), **how) as loader:
            ranks.append(list(loader))
    assert_batches_equal(want[:4], itertools.chain(*zip(*ranks, strict=True)))


def test_resumes(store_path: Path) -> None:
    with Loader(store_path, [3], IDS, input_weight=WEIGHTS, **options()) as loader:
        batches = iter(loader)
        next(batches)
        state = loader.state_dict()
        want = list(batches) + list(loader)
    with Loader(store_path, [3], IDS, input_weight=WEIGHTS, **options()) as loader:
        loader.load_state_dict(state)
        assert_batches_equal(want, list(loader) + list(loader))
    for other in ({}, {"input_weight": WEIGHTS + 1}):
        with (
            Loader(store_path, [3], IDS, **other, **options()) as loader,
            pytest.raises(INVALID, match="the state belongs to a loader with other batches: input_weight was"),
        ):
            loader.load_state_dict(state)


def test_types_of_input_nodes() -> None:
    graph = hetero_graph(150)
    inputs = {"author": [4, 8], "paper": [1, 0, 5]}
    weights = {"paper": [0.0, 1, 0], "author": torch.tensor([0, 3])}
    with Loader(graph, [2], inputs, input_weight=weights, **options()) as loader:
        batches = list(itertools.chain(loader, loader, loader))
    assert {int(i) for batch in batches for i in batch["paper"].input_id} == {1}
    assert {int(i) for batch in batches for i in batch["author"].input_id} == {1}
    with pytest.raises(INVALID, match="expected weights for each type of input_nodes: 'paper', 'author'"):
        Loader(graph, [2], inputs, input_weight={"paper": [1.0, 1, 1]})
    with pytest.raises(INVALID, match=r"input_weight\['author'\] must have a number for each of 2 inputs, got 1"):
        Loader(graph, [2], inputs, input_weight={"paper": [1.0, 1, 1], "author": [1.0]})


def test_links(graph: dict[str, Any]) -> None:
    links = torch.from_numpy(graph["edge_index"][:, :60])
    for weights in (WEIGHTS, WeightedRandomSampler(WEIGHTS, 60)):
        key = "input_weight" if isinstance(weights, torch.Tensor) else "sampler"
        with LinkLoader(graph, [2], links, neg_sampling="binary", **{key: weights}, **options()) as loader:
            assert all(WEIGHTS[place] > 0 for place in drawn(loader))


def test_samplers_of_torch_mean_what_they_are(graph: dict[str, Any]) -> None:
    own: list[tuple[Any, dict[str, Any]]] = [
        (WeightedRandomSampler(WEIGHTS.tolist(), 60), {"input_weight": WEIGHTS}),
        (RandomSampler(IDS), {"shuffle": True}),
        (RandomSampler(IDS, replacement=True), {"input_weight": torch.ones(60)}),
        (SequentialSampler(IDS), {}),
    ]
    for sampler, same in own:
        with Loader(graph, [3], IDS, sampler=sampler, **options()) as loader:
            got = list(loader)
            state = loader.state_dict()
        with Loader(graph, [3], IDS, **same, **options()) as loader:
            loader.load_state_dict(state)  # of the same batches
            loader.set_epoch(0)
            assert_batches_equal(got, loader)


def test_an_imbalanced_sampler_of_pyg(graph: dict[str, Any]) -> None:
    loaders = pytest.importorskip("torch_geometric.loader")
    y = torch.from_numpy(np.where(np.arange(3000) % 10 == 0, 1, 0))
    with Loader({**graph, "y": y}, [], sampler=loaders.ImbalancedSampler(y), batch_size=3000) as loader:
        ones = next(iter(loader)).y.sum().item()
    assert 1300 < ones < 1700  # about half, of a tenth


@pytest.mark.parametrize(
    ("given", "error", "words"),
    [
        ({"input_weight": [1.0, 2.0]}, INVALID, "input_weight must have a number for each of 60 inputs, got 2"),
        ({"input_weight": torch.full((60,), -1.0)}, INVALID, r"input_weight: .*weight 0 is -1"),
        ({"input_weight": torch.full((60,), torch.nan)}, INVALID, "weight 0 is NaN"),
        ({"input_weight": torch.zeros(60)}, INVALID, "60 weights add up to 0"),
        ({"input_weight": torch.ones(60, 1)}, INVALID, "one-dimensional"),
        ({"input_weight": torch.ones(60, dtype=torch.bool)}, DTYPE, "must be numbers, got torch.bool"),
        ({"input_weight": "x"}, DTYPE, "must be numbers"),
        ({"sampler": [1, 2]}, DTYPE, "sampler must be one of torch.utils.data"),
        ({"sampler": SequentialSampler(IDS[:5])}, INVALID, "sampler was made for 5 inputs, the loader has 60"),
        ({"sampler": WeightedRandomSampler(WEIGHTS, 7)}, INVALID, "as there are, 60, but sampler draws 7"),
        ({"sampler": WeightedRandomSampler(WEIGHTS, 60, replacement=False)}, INVALID, "with replacement"),
        ({"sampler": SubsetRandomSampler([1, 2])}, INVALID, r"input_nodes=ids\[indices\], shuffle=True"),
        ({"sampler": DistributedSampler(IDS, 2, 0)}, INVALID, "leave the DistributedSampler out"),
        ({"sampler": BatchSampler(SequentialSampler(IDS), 2, False)}, INVALID, "knows its epochs ahead"),
        ({"sampler": RandomSampler(IDS), "shuffle": True}, INVALID, "sampler and shuffle=True both say"),
        ({"sampler": RandomSampler(IDS), "input_weight": WEIGHTS}, INVALID, "sampler and input_weight both say"),
        ({"sampler": "labor"}, errors.DTypeError, "got 'labor': how neighbours are drawn is neighbor_sampler="),
    ],
    ids=lambda given: " ".join(given) if isinstance(given, dict) else "",
)
def test_wrong_orders(graph: dict[str, Any], given: dict[str, Any], error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        Loader(graph, [3], IDS, **given)
