"""How rows are divided, and in which order ranks exchange them: arithmetic."""

from __future__ import annotations

import itertools
import random

import pytest
import torch
from seeds import seed

from freshgo._row_exchange.buffers import Buffers
from freshgo._row_exchange.division import holders, parts_of_rank, ranges
from freshgo._row_exchange.schedule import Chooser, partners, pieces, rounds


@pytest.mark.parametrize("world", range(1, 18))
def test_every_pair_meets_once_in_rounds_of_disjoint_pairs(world: int) -> None:
    found = rounds(world)
    assert sorted(itertools.chain(*found)) == list(itertools.combinations(range(world), 2))
    assert len(found) == max(1, world - 1 + world % 2)
    for pairs in found:
        assert len(set(itertools.chain(*pairs))) == 2 * len(pairs) == world - world % 2


@pytest.mark.parametrize("world", [2, 3, 4, 7, 8])
def test_nobody_waits_for_ever(world: int) -> None:
    """Each rank goes through its partners in their order, and goes on once the partner has come."""
    left = [partners(world, rank) for rank in range(world)]
    while any(left):
        met = [rank for rank, others in enumerate(left) if others and left[others[0]][:1] == [rank]]
        assert met
        for rank in met:
            left[rank].pop(0)


def test_a_pair_hands_over_a_bounded_number_of_bytes() -> None:
    for n_bytes in (0, 1, 9, 10, 11, 100):
        found = pieces(n_bytes, 10)
        assert [i for first, end in found for i in range(first, end)] == list(range(n_bytes))
        assert all(0 < end - first <= 10 for first, end in found)


@pytest.mark.parametrize(("factor", "way"), [(0.5, "rounds"), (0.97, "all_to_all"), (1.5, "all_to_all")])
def test_the_faster_way_is_taken(factor: float, way: str) -> None:
    """By what both took for a byte; the first exchange of each does not count."""
    rng = random.Random(seed(1))
    chooser, ways = Chooser.of("auto"), []
    for _ in range(20):
        ways.append(chooser.way)
        chooser.record(1.0, 0, chooser.way)  # nobody asked
        n_bytes = rng.randrange(1000, 10_000)
        first = 50 if ways.count(chooser.way) == 1 else 1
        chooser.record(n_bytes * (factor if chooser.way == "rounds" else 1.0) * first, n_bytes, chooser.way)
    assert ways == ["all_to_all"] * 5 + ["rounds"] * 5 + [way] * 10
    forced = Chooser.of("rounds")
    forced.record(1e9, 1, "rounds")
    assert forced.way == "rounds"


def test_parts_have_at_most_twice_their_share() -> None:
    rng = random.Random(seed(2))
    for _ in range(200):
        count, parts = rng.randrange(1, 300), rng.randrange(1, 9)
        visits = torch.rand(count) ** rng.choice([0, 1, 8])
        if rng.random() < 0.3:
            visits = visits.sort(descending=rng.random() < 0.5).values
        if rng.random() < 0.1:
            visits = torch.zeros(count)
        bounds = ranges(visits, parts)
        assert bounds[0] == 0 and bounds[-1] == count and len(bounds) == parts + 1
        assert list(bounds) == sorted(bounds)
        if count >= parts:
            assert len(set(bounds)) == parts + 1
        for first, end in itertools.pairwise(bounds):
            assert end - first <= 2 * count / parts + 1
            among = visits[first:end]
            most = float(among.max()) if end > first else 0.0  # a row is of one part
            assert float(among.sum()) - most <= 2 * float(visits.sum()) / parts * 1.0001


def test_every_part_is_read_and_every_rank_finds_it() -> None:
    for parts, world in itertools.product(range(1, 9), range(1, 9)):
        of = [parts_of_rank(parts, rank, world) for rank in range(world)]
        assert set(itertools.chain(*of)) == set(range(parts))
        for rank in range(world):
            found = holders(parts, rank, world)
            assert found == sorted(found)
            assert all(part in of[holder] for part, holder in enumerate(found))
            assert all(found[part] == rank for part in of[rank])


def test_memory_is_used_again_once_nobody_has_it() -> None:
    buffers = Buffers()
    first = buffers.empty(100_000)
    first.fill_(1)
    second = buffers.empty(100_000)
    second.fill_(2)
    part = first.view(100, 1000)[3:7]
    where = first.data_ptr()
    assert where % 64 == second.data_ptr() % 64 == 0
    del first
    third = buffers.empty(100_000).fill_(3)
    assert part.eq(1).all()  # which is over it still
    del part
    again = buffers.empty(101_000)  # a little more than before
    assert again.data_ptr() == where
    assert second.eq(2).all()
    assert third.eq(3).all()
    assert buffers.empty(1 << 20).numel() == 1 << 20  # none is large enough
    del again
    small = buffers.empty(70_000)
    assert small.data_ptr() == where
    del small
    buffers.clear()
    assert not buffers._free
    assert buffers.empty(0).numel() == 0
