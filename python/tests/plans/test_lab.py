"""The policy laboratory against its oracles, and the laws that policies obey."""

from __future__ import annotations

from typing import Any

import numpy as np
import policy_oracle as oracle
import pytest
import torch
from seeds import seed as seed_of

import freshgo
from freshgo import Belady, Hotness, Loader, Online, plot_policies, simulate
from freshgo.errors import DTypeError, InvalidArgumentError
from freshgo.policies import ONLINE, Auto

NODES = 400


def skewed_trace(seed: int, batches: int = 40, nodes: int = NODES, size: int = 60) -> list[np.ndarray[Any, Any]]:
    """Batches of distinct ids in no order, of sizes that differ, with hot ids."""
    rng = np.random.default_rng(seed_of(seed))
    weights = 1 / np.arange(1, nodes + 1) ** 0.8
    weights = rng.permutation(weights / weights.sum())
    sizes = rng.integers(0 if batches > 5 else 1, size, batches)
    return [rng.choice(nodes, n, replace=False, p=weights) for n in sizes]


def run(trace: Any, policy: Any, capacity: int, **options: Any) -> freshgo.Simulation:
    result = simulate(trace, policy=policy, capacity=capacity, num_nodes=NODES, **options)
    for counts in (result.reads_per_batch, result.hits_per_batch, result.swaps_per_batch):
        assert counts.dtype == torch.int64
        assert counts.shape == (len(trace),)
        assert (counts >= 0).all()
    sizes = torch.tensor([len(batch) for batch in trace])
    assert (result.reads_per_batch + result.hits_per_batch).equal(sizes), "a row is found or fetched"
    assert result.reads == int(result.reads_per_batch.sum()) + result.fill
    assert result.accesses == int(sizes.sum())
    assert (result.swaps_per_batch <= capacity).all()
    return result


@pytest.mark.explore
@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("capacity", [0, 1, 7, 40, 150, NODES])
def test_belady_is_min(seed: int, capacity: int) -> None:
    trace = skewed_trace(seed)
    assert run(trace, "belady", capacity).hits_per_batch.tolist() == oracle.belady(trace, capacity)


@pytest.mark.explore
@pytest.mark.parametrize("seed", range(25))
def test_belady_is_the_optimum(seed: int) -> None:
    trace = skewed_trace(seed, batches=5, nodes=6, size=6)
    for capacity in range(4):
        found = simulate(trace, policy="belady", capacity=capacity, num_nodes=6)
        assert found.reads == oracle.best(trace, capacity)


@pytest.mark.explore
@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("capacity", [0, 1, 7, 40, 150, NODES])
def test_lru(seed: int, capacity: int) -> None:
    trace = skewed_trace(seed)
    found = run(trace, "lru", capacity)
    hits, swaps = oracle.lru(trace, capacity)
    assert found.hits_per_batch.tolist() == hits
    assert found.swaps_per_batch.tolist() == swaps
    assert found.fill == 0


@pytest.mark.explore
@pytest.mark.parametrize("seed", range(3))
def test_match_is_the_batch_before(seed: int) -> None:
    trace = skewed_trace(seed)
    assert run(trace, "match", 60).hits_per_batch.tolist() == oracle.match(trace, 60)
    assert run(trace, "match", NODES).hits_per_batch.tolist() == oracle.match(trace, 60)


@pytest.mark.parametrize("capacity", [0, 1, 13, 200, NODES])
def test_static(capacity: int) -> None:
    trace = skewed_trace(3)
    scores = np.random.default_rng(seed_of(5)).integers(0, 9, NODES).astype(np.float32)  # many ties
    hits, fill = oracle.static(trace, scores, capacity)
    for policy in (scores, torch.from_numpy(scores), Hotness(scores)):
        found = run(trace, policy, capacity)
        assert found.hits_per_batch.tolist() == hits
        assert found.fill == fill
        assert found.swaps == 0


def test_the_oracle_counts_the_trace() -> None:
    trace = skewed_trace(4)
    counts = np.bincount(np.concatenate(trace), minlength=NODES)
    for capacity in (3, 50):
        assert run(trace, "oracle", capacity).hits_per_batch.equal(run(trace, counts, capacity).hits_per_batch)
        assert run(trace, Hotness("oracle"), capacity).hits >= run(trace, "random", capacity).hits


def test_random_depends_on_its_seed_alone() -> None:
    trace = skewed_trace(4)
    by_seed = [run(trace, Hotness("random", seed=seed), 100).hits_per_batch.tolist() for seed in (0, 1, 0)]
    assert by_seed[0] == by_seed[2] != by_seed[1]
    assert run(trace, "random", 100).hits_per_batch.tolist() == by_seed[0]


def test_none_reads_everything() -> None:
    trace = skewed_trace(1)
    assert run(trace, "none", 100).hits == run(trace, None, 100).hits == 0
    assert run(trace, "none", 100).hit_rate == 0
    assert run(trace, "none", 100).read_rate == 1


@pytest.mark.explore
@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("capacity", [5, 60, 200])
def test_nothing_beats_belady(seed: int, capacity: int) -> None:
    trace = skewed_trace(seed)
    belady = run(trace, "belady", capacity)
    for policy in (*ONLINE, "oracle", "random", "none", Belady(superbatch=5), Belady(superbatch=5, carry_over=False)):
        assert belady.reads <= run(trace, policy, capacity).reads, policy


@pytest.mark.explore
@pytest.mark.parametrize("seed", range(5))
def test_more_room_never_costs_reads(seed: int) -> None:
    trace = skewed_trace(seed)
    for policy in ("belady", "lru"):
        hits = [run(trace, policy, capacity).hits for capacity in range(0, 300, 10)]
        assert hits == sorted(hits), policy


@pytest.mark.explore
@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("superbatch", [1, 3, 8, 40, 1000])
def test_what_is_carried_over_is_not_read_again(seed: int, superbatch: int) -> None:
    trace = skewed_trace(seed)
    for lookahead in (False, True):
        options: dict[str, Any] = {"superbatch": superbatch, "lookahead": lookahead}
        carried = run(trace, Belady(**options), 50)
        rebuilt = run(trace, Belady(carry_over=False, **options), 50)
        assert carried.reads <= rebuilt.reads
        assert carried.hits_per_batch.equal(run(trace, Auto(**options), 50).hits_per_batch)


def test_a_superbatch_of_everything_is_the_whole_trace() -> None:
    trace = skewed_trace(2)
    whole = run(trace, "belady", 70)
    for superbatch in (len(trace), len(trace) + 1, 10**6):
        assert run(trace, Belady(superbatch), 70).hits_per_batch.equal(whole.hits_per_batch)
    assert run(trace, "auto", 70).hits_per_batch.equal(whole.hits_per_batch)


def test_enough_room_reads_every_row_once() -> None:
    trace = skewed_trace(6)
    unique = len(np.unique(np.concatenate(trace)))
    for policy in ("belady", "lru", "clock", "sieve", "s3fifo"):
        assert run(trace, policy, NODES).reads == unique, policy
        assert run(trace, policy, 10**12).reads == unique, policy


def test_a_trace_comes_in_any_form(store: Any) -> None:
    with Loader(store, [4, 3], batch_size=300, shuffle=True) as loader:
        trace = list(loader.trace(2))
        nodes = store.num_nodes
        want = simulate(trace, policy="belady", capacity=200, num_nodes=nodes)
        assert simulate(loader.trace(2), policy="belady", capacity=200, num_nodes=nodes).reads == want.reads
    forms: list[Any] = [
        [ids.numpy() for ids in trace],
        [ids.to(torch.int32) for ids in trace],
        [ids.numpy().astype(np.uint16) for ids in trace],
        [ids.tolist() for ids in trace],
        tuple(torch.stack([ids, ids]).T[:, 0] for ids in trace),
    ]
    for form in forms:
        assert simulate(form, policy="belady", capacity=200, num_nodes=nodes).reads == want.reads
        assert simulate(form, policy="belady", capacity=200).reads == want.reads


def test_a_simulation_says_what_it_found() -> None:
    found = simulate([[0, 1], [1, 2]], policy="lru", capacity=2)
    assert repr(found) == "Simulation(lru, 2 rows: 4 accesses, 1 hits (25.0%), 3 reads, 1 swaps)"
    found = simulate([[0, 1], [1, 2]], policy=np.ones(3), capacity=2)
    assert repr(found) == (
        "Simulation(vector, 2 rows: 4 accesses, 3 hits (75.0%), 3 reads, 2 of them to fill it, 0 swaps)"
    )


@pytest.mark.parametrize(
    ("arguments", "error", "match"),
    [
        ({"trace": [[0], [1, 2, 1]]}, InvalidArgumentError, r"trace\[1\] has the id 1 twice"),
        ({"trace": [[0], [1, 10]]}, InvalidArgumentError, r"trace\[1\]\[1\] is 10.*\[0, 10\).*another graph"),
        ({"trace": [[0, -1]]}, InvalidArgumentError, r"trace\[0\]\[1\] is -1"),
        ({"trace": []}, InvalidArgumentError, r"at least one batch"),
        ({"trace": [[[0]]]}, InvalidArgumentError, r"trace\[0\] must be one-dimensional.*\[1, 1\]"),
        ({"trace": [[0.5]]}, DTypeError, r"trace\[0\] must hold integers, got torch.float64"),
        ({"trace": [[True]]}, DTypeError, r"trace\[0\] must hold integers, got torch.bool"),
        ({"trace": [["a"]]}, DTypeError, r"trace\[0\] must be a vector of ids"),
        ({"trace": 3}, DTypeError, r"trace must be a list.*int"),
        ({"trace": "abc"}, DTypeError, r"trace must be a list.*str"),
        ({"trace": [3]}, InvalidArgumentError, r"trace\[0\] must be one-dimensional"),
        ({"capacity": -1}, InvalidArgumentError, r"capacity must be at least 0, got -1"),
        ({"capacity": True}, DTypeError, r"capacity must be an int"),
        ({"capacity": 0.5}, DTypeError, r"capacity must be an int, got 0.5"),
        ({"num_nodes": 0}, InvalidArgumentError, r"num_nodes must be at least 1"),
        ({"num_nodes": 2**40}, InvalidArgumentError, r"num_nodes must be at most"),
        ({"policy": "beladi"}, InvalidArgumentError, r"policy must be one of.*'sieve'.*did you mean 'belady'"),
        ({"policy": "expected"}, InvalidArgumentError, r"freshgo.hotness\(store, 'expected'"),
        ({"policy": Hotness("presc")}, InvalidArgumentError, r"freshgo.hotness\(store, 'presc'"),
        ({"policy": torch.ones(9)}, InvalidArgumentError, r"each of the 10 nodes, got 9"),
        ({"policy": 3}, DTypeError, r"policy must be a name"),
    ],
)
def test_what_cannot_be_simulated(arguments: dict[str, Any], error: type[Exception], match: str) -> None:
    options: dict[str, Any] = {"policy": "belady", "capacity": 3, "num_nodes": 10, **arguments}
    with pytest.raises(error, match=match):
        simulate(options.pop("trace", [[0, 1]]), **options)


def test_the_picture_of_policies() -> None:
    pytest.importorskip("matplotlib")
    trace = skewed_trace(0)
    hits, reads = plot_policies(trace, num_nodes=NODES).axes
    assert next(text.get_text() for text in reads.get_legend().get_texts()) == "belady"
    assert len(hits.lines) == 7
    belady = dict(zip((line.get_label() for line in hits.lines), hits.lines, strict=True))["belady"]
    expected = [100 * run(trace, "belady", round(NODES * share)).hit_rate for share in freshgo.lab.FRACTIONS]
    np.testing.assert_allclose(belady.get_ydata(), expected)
    assert reads.get_ylabel() == "% of accesses"

    own = plot_policies(
        trace, policies={"mine": np.arange(NODES), "LRU": Online("lru")}, num_nodes=NODES, fractions=[0.5]
    )
    assert {text.get_text() for text in own.axes[1].get_legend().get_texts()} == {"mine", "LRU"}
    labels = [line.get_label() for line in plot_policies(trace, policies=["lru", np.ones(NODES)]).axes[0].lines]
    assert labels == ["lru", "by scores"]


@pytest.mark.parametrize(
    ("options", "error", "match"),
    [
        ({"fractions": []}, InvalidArgumentError, "must not be empty"),
        ({"policies": {}}, InvalidArgumentError, "must not be empty"),
        ({"fractions": [0.1, 1.5]}, InvalidArgumentError, r"fractions\[1\] must be within \[0, 1\], got 1.5"),
        ({"fractions": ["a"]}, DTypeError, r"fractions\[0\]"),
        ({"policies": ["lruu"]}, InvalidArgumentError, "did you mean 'lru'"),
        ({"num_nodes": 1}, InvalidArgumentError, "another graph"),
    ],
)
def test_pictures_that_cannot_be_drawn(options: dict[str, Any], error: type[Exception], match: str) -> None:
    pytest.importorskip("matplotlib")
    with pytest.raises(error, match=match):
        plot_policies(skewed_trace(0), **options)
