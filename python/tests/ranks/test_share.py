"""Ranks of a host that share one loader: the batches of loaders of their own, whatever dies, and nothing left."""

from __future__ import annotations

import contextlib
import random
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import rank_jobs
import share_jobs
import torch
import warm
from rank_jobs import NODES, Ranks, digest, drawn_graph, of_rank, open_loader, well
from seeds import seed
from share_jobs import KINDS, servers, wait_until

from freshgo import History, MemoryBudget, convert, errors, policies, shard

BATCHES = 18


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    rng = np.random.default_rng(seed(5))
    graph = {
        **drawn_graph(rng),
        "t": rng.integers(100, size=NODES),
        "w": rng.random(4000, dtype=np.float32),
    }
    path = tmp_path_factory.mktemp("share") / "graph"
    convert(graph, path, progress=False).close()
    ends = {"user": 300, "item": 200}
    typed = {
        **{name: {"x": rng.standard_normal((count, 8), dtype=np.float32)} for name, count in ends.items()},
        **{
            (source, "to", target): {
                "edge_index": np.stack([rng.integers(ends[source], size=2500), rng.integers(ends[target], size=2500)])
            }
            for source, target in (("user", "item"), ("item", "user"))
        },
    }
    convert(typed, path.with_name("typed"), progress=False).close()
    return path


@pytest.fixture(scope="module")
def ranks(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ranks]:
    before = set(Path("/dev/shm").iterdir())
    workers = Ranks(5, tmp_path_factory.mktemp("groups"))
    yield workers
    workers.close()
    assert wait_until(lambda: not servers(), rank_jobs.PATIENCE)
    assert wait_until(lambda: "freshgo-" not in Path("/proc/net/unix").read_text())
    assert wait_until(lambda: set(Path("/dev/shm").iterdir()) <= before)  # others' come and go


@pytest.fixture(autouse=True)
def no_server_of_another_test() -> None:
    """Servers end by themselves, soon after their last rank."""
    assert wait_until(lambda: not servers(), rank_jobs.PATIENCE)


def epochs_of(path: Path, count: int, **options: Any) -> list[list[str]]:
    with open_loader(path, **options) as loader:
        return [[digest(batch) for batch in loader] for _ in range(count)]


@pytest.fixture(scope="module")
def alone(path: Path) -> list[list[str]]:
    return epochs_of(path, 4)


@pytest.mark.parametrize(
    ("world", "names"), [(2, ["planned", "links"]), (3, list(KINDS)), (4, ["lru"]), (5, ["times"])]
)
def test_ranks_make_the_batches_of_one_process(ranks: Ranks, path: Path, world: int, names: list[str]) -> None:
    expected = {}
    for name in names:
        with KINDS[name](path) as loader:
            expected[name] = [[digest(batch) for batch in loader] for _ in range(2)]
    for rank, found in enumerate(well(ranks.run(share_jobs.kinds, world, path, names))):
        for name, (count, epochs) in zip(names, found, strict=True):
            assert epochs == [of_rank(epoch, rank, world) for epoch in expected[name]], name
            assert count == len(epochs[0])


def test_loaders_of_a_host_have_one_process(ranks: Ranks, path: Path, alone: list[list[str]]) -> None:
    """Two of them, also with epochs at the same time; a batch outlives it."""
    other = epochs_of(path, 2, seed=4)
    found = well(ranks.run(share_jobs.several, 3, path))
    for rank, (served, epochs, both, stats, (kept, alive)) in enumerate(found):
        assert len(served) == 1
        assert epochs[0::2] == [of_rank(epoch, rank, 3) for epoch in alone[:2]]
        assert epochs[1] == of_rank(other[0], rank, 3, "join")
        pairs = zip(of_rank(alone[2], rank, 3), of_rank(other[1], rank, 3), strict=False)
        assert both == [list(pair) for pair in pairs]
        assert stats["batches"] == 3 * BATCHES  # of all ranks together
        assert kept == alone[3][rank]
        assert alive  # for nobody any more


@pytest.mark.parametrize("uneven", ["pad", "drop", "join"])
def test_training_ends_together(ranks: Ranks, path: Path, uneven: str) -> None:
    options = {"uneven": uneven, "batch_size": 19, "share": "host"}  # 22 batches
    found = well(ranks.run(rank_jobs.train, 4, path, options))
    assert [count for count, _ in found] == {"pad": [12] * 4, "drop": [10] * 4, "join": [12, 12, 10, 10]}[uneven]
    assert all(weights == pytest.approx(found[0][1]) for _, weights in found)


def test_evaluation_counts_every_seed_once(ranks: Ranks, path: Path) -> None:
    for first, second, _ in well(ranks.run(rank_jobs.evaluation, 4, path, {"share": "host"})):
        for sums in (first, second):
            assert sums["seeds"] == NODES
            assert sums["each"].tolist() == [1] * NODES


def test_a_state_goes_on_with_other_ranks_and_without_sharing(ranks: Ranks, path: Path, alone: list[list[str]]) -> None:
    rng = random.Random(seed(4))
    state, left = None, list(alone[0])
    for world in (3, 2, 5, 2):
        steps, shared = rng.randrange(1, 3), {"share": rng.choice(["host", None])}
        found = well(ranks.run(rank_jobs.go_on, world, path, {"uneven": "join", **shared}, state, steps))
        for rank, (batches, _) in enumerate(found):
            assert batches == left[rank::world][:steps]
        state, left = found[0][1], left[world * steps :]
        assert state["batches"] == BATCHES - len(left)


def test_epochs_that_are_left_early(ranks: Ranks, path: Path, alone: list[list[str]]) -> None:
    with open_loader(path) as loader:
        samples = [digest(loader.sample([5, rank])) for rank in range(2)]
        trace = [n_id.tolist() for n_id in loader.trace(0)]
    for rank, (found, own, mine) in enumerate(well(ranks.run(share_jobs.early, 2, path))):
        first, second = (of_rank(epoch, rank, 2) for epoch in alone[:2])
        assert found == [first[:2], first[2:3], second, first[3:]]
        assert own == samples[rank]
        assert mine == trace[rank::2]


def test_batches_that_are_lost_on_their_way_come_again(ranks: Ranks, path: Path) -> None:
    """As Ctrl-C may lose them, between any two steps."""
    epochs = epochs_of(path, 5)
    for rank, found in enumerate(well(ranks.run(share_jobs.interrupted, 3, path))):
        assert found == [of_rank(epoch, rank, 3) for epoch in epochs]


@pytest.mark.parametrize("batches", [600, pytest.param(2000, marks=pytest.mark.long)])
def test_many_epochs_take_no_more_memory(ranks: Ranks, path: Path, batches: int) -> None:
    for early, late in well(ranks.run(share_jobs.growth, 3, path, batches)):
        assert late < early + (2 << 20)


@pytest.mark.long
def test_a_host_takes_what_its_budget_says(ranks: Ranks, tmp_path: Path) -> None:
    """All processes together, by PSS: with 12 MiB more, as much more. Their code is not counted so."""
    rng = np.random.default_rng(seed(5))
    nodes = 20_000
    graph = {"edge_index": rng.integers(nodes, size=(2, 60_000)), "x": rng.random((nodes, 256), dtype=np.float32)}
    convert(graph, tmp_path / "graph", progress=False).close()
    shard(tmp_path / "graph", tmp_path / "parts", parts=2, progress=False)
    small, large, inputs = "8MiB", "20MiB", torch.arange(3000)
    cases = [
        ("graph", {"share": "host"}, 1),
        ("parts", {"features": "sharded"}, 2),  # each rank has a budget
        ("graph", {"cache": "degree"}, 2),
    ]
    for name, options, budgets in cases:
        given = [{**options, "input_nodes": inputs, "memory": memory} for memory in (large, small, large)]
        of_ranks = well(ranks.run(share_jobs.budget, 2, tmp_path / name, given))
        _, less, more = (sum(of_rank[i] for of_rank in of_ranks) for i in range(3))
        assert 0 < more - less < budgets * (12 << 20) + (4 << 20), name


def kill(path: Path, directory: Path, who: str, after: int, pause: float, *, resume: bool) -> float:
    """Let three ranks run, kill one of them or the server, and look at what the others say of it, and how many seconds
    after. A rank that is to die may sleep after some batches, so that the others wait for it. In the end three ranks
    may go on where one was."""
    dead = {"server": None, "first rank": 0, "last rank": 2}[who]
    pids = [directory / f"pid-{rank}" for rank in range(3)]
    last = 0.0
    with contextlib.closing(Ranks(3, directory)) as victims:
        victims.begin(share_jobs.victim, 3, path, str(directory / "pid"), dead, after)
        assert wait_until(lambda: all(pid.exists() and pid.read_text() for pid in pids), rank_jobs.PATIENCE)
        time.sleep(pause)
        (server,) = servers()
        killed = share_jobs.killed(server if dead is None else int(pids[dead].read_text()))
        for rank in range(3):
            if rank != dead:
                ended, kind, message, state = victims.found(rank)
                last = max(last, ended - killed)
                assert kind is (errors.ServerError if dead is None else errors.RankError)
                assert dead is None or f"rank {dead} (process" in message
                assert 0 <= state["batches"] <= BATCHES
        assert wait_until(lambda: not servers(), rank_jobs.PATIENCE)
        if resume:
            with open_loader(path) as loader:
                loader.load_state_dict(state)
                rest = [digest(batch) for batch in loader]
            options = {"share": "host", "uneven": "join"}
            for rank, (batches, _) in enumerate(well(victims.run(rank_jobs.go_on, 3, path, options, state, -1))):
                assert batches == rest[rank::3]
    assert wait_until(lambda: not servers(), rank_jobs.PATIENCE)
    return last


@pytest.mark.parametrize("who", ["server", "first rank", "last rank"])
def test_whatever_is_killed_is_an_error_of_the_others(path: Path, tmp_path: Path, who: str) -> None:
    rng = random.Random(seed(7))
    kill(path, tmp_path, who, rng.choice([0, 4]), rng.random(), resume=who == "server")


@pytest.mark.long
def test_fifty_kills(path: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """None hangs: each rank answers within the patience of a test, and soon by what this prints."""
    rng, late = random.Random(seed(8)), []
    for number in range(50):
        directory = tmp_path / str(number)
        directory.mkdir()
        who = rng.choice(["server", "first rank", "last rank"])
        late.append(kill(path, directory, who, rng.randrange(8), 2 * rng.random(), resume=True))
    rank_jobs.report(capsys, late)


CHURN = """
import os, select, socket, time
from freshgo._host import wire
from freshgo._host_loader import server

listener, name = wire.listening()
serving = server.Server(listener)
first = wire.connected(name)

class Watch:
    def __init__(self):
        self.turn = 0

    def register(self, *args):
        pass

    def unregister(self, *args):
        pass

    def poll(self, timeout):
        self.turn += 1
        if self.turn == 1:
            return [(listener.fileno(), select.POLLIN)]
        if self.turn == 2:  # it ends, another one comes, and both are told of at a time
            (self.old,) = serving._connections
            others = [os.open(os.devnull, os.O_RDONLY)]
            while others[-1] < self.old:
                others.append(os.open(os.devnull, os.O_RDONLY))
            self.second = wire.connected(name)
            first.shutdown(socket.SHUT_RDWR)
            while serving._connections:
                time.sleep(0.01)
            return [(listener.fileno(), select.POLLIN), (self.old, select.POLLHUP)]
        ((fd, connection),) = serving._connections.items()
        assert fd == self.old
        os._exit(connection.ended)

serving._watch = Watch()
serving.serve()
"""


def test_a_rank_that_comes_is_not_taken_for_one_that_has_ended() -> None:
    """Though it has the same descriptor."""
    warm.run(CHURN)


CHILD = """
import os
from freshgo._host import wire

listener, name = wire.listening()
connection = wire.connected(name)
child = os.fork()
if child == 0:
    os._exit(connection.fileno() != -1)
assert os.waitpid(child, 0)[1] == 0, "the child has the connection"
assert connection.fileno() != -1
"""


def test_a_forked_child_has_no_connection() -> None:
    """It would keep the server alive after its parent."""
    warm.run(CHILD)


def test_wrong_use(ranks: Ranks, path: Path) -> None:
    refused: list[tuple[dict[str, Any], str]] = [
        ({"share": "job"}, "share must be 'host' or None, got 'job'"),
        ({"history": History()}, "share='host' and history"),
        ({"reorder": 4}, "share='host' and reorder"),
        ({"memory": MemoryBudget("1GiB")}, "share='host' and a MemoryBudget"),
        ({"rank": 0, "world_size": 2}, "share='host' and rank and world_size"),
    ]
    for options, message in refused:
        with pytest.raises(errors.InvalidArgumentError, match=message):
            open_loader(path, **{"share": "host", **options})
    with pytest.raises(errors.InvalidArgumentError, match="share='host' needs a store"):
        open_loader({"edge_index": np.zeros((2, 3), np.int64), "x": np.zeros((4, 2))}, share="host")
    small = ranks.run(share_jobs.refused, 2, path, {"memory": 1000}, True)
    assert {type(error) for error in small} == {errors.BudgetError}
    assert min(error.minimum for error in small) > 1000
    assert len({str(error) for error in small}) == 1
    found = ranks.run(share_jobs.refused, 3, path, {"memory": "1GiB", "seed": 9}, False)
    assert {type(error) for error in found} == {errors.RankError}
    found = ranks.run(rank_jobs.differ, 2, [path] * 2, [{"share": "host"}, {"share": "host", "seed": 9}])
    assert {type(error) for error in found} == {errors.RankError}


def test_options_that_differ(ranks: Ranks, path: Path) -> None:
    """The rank that differs says in what, the others which rank it is; the server goes on."""
    scores = [np.arange(NODES) + 0.0, np.arange(NODES) + 1.0]
    cases: list[tuple[dict[str, Any], dict[str, Any], str]] = [
        ({"memory": "64MiB"}, {"memory": "96MiB"}, f"memory is {96 << 20} here and {64 << 20} in the server"),
        ({}, {"memory": "96MiB"}, f"memory is {96 << 20} here and None in the server"),
        ({"num_workers": 2}, {}, "num_workers is 0 here and 2 in the server"),
        ({"prefetch": 2}, {"prefetch": 3}, "prefetch is 3 here and 2 in the server"),
        ({"feature_cache": "1MiB"}, {}, f"feature_cache is None here and {1 << 20} in the server"),
        ({"cache": "lru"}, {"cache": "none"}, "cache is 'none' here and 'lru' in the server"),
        ({"cache": scores[0]}, {"cache": scores[1]}, "scores of cache is "),
        (
            {"cache": policies.Belady(superbatch=3)},
            {"cache": policies.Belady()},
            "superbatch of cache is None here and 3",
        ),
        ({"transfer": "random"}, {"transfer": "scan"}, "transfer of cache is 'scan' here and 'random' in the server"),
        ({"io": "buffered"}, {}, "io of disk is 'auto' here and 'buffered' in the server"),
        ({"checksums": True}, {}, "checksums of disk is False here and True in the server"),
        ({"transpose": True}, {}, "transpose is False here and True in the server"),
        ({"return_edge_id": False}, {}, "return_edge_id is True here and False in the server"),
        (
            {"scratch": path},
            {"scratch": path.parent},
            f"scratch of cache is '{path.parent}' here and '{path}' in the server",
        ),
        (
            {"seed": 1},
            {"seed": 2, "batch_size": 9},
            "batch_size is 9 here and 23 in the server; seed is 2 here",
        ),
        ({"time_attr": "t"}, {}, "time_attr is None here and 't' in the server"),
        ({"input_nodes": [1, 2]}, {"input_nodes": [2, 1]}, "input_nodes is "),
    ]
    given = [(first, first, other) for first, other, _ in cases]
    found = well(ranks.run(share_jobs.differing, 3, path, given))
    for (first, other, words), *said in zip(cases, *found, strict=True):
        assert "which rank 0 (process " in said[2], (first, other, said)
        assert words in said[2], (first, other, said)
        for of in said[:2]:
            assert of.startswith(f"rank 2 could not open the loader: {said[2]}")


def test_options_that_may_differ(ranks: Ranks, path: Path) -> None:
    """What a rank does with its batches is its own."""
    alone = {"transform": len, "transform_workers": 2}
    options = [alone, {"edge_index": "EdgeIndex"}, {"device": "cpu", "memory": None}]
    (opened,) = {tuple(told) for told in well(ranks.run(share_jobs.differing, 3, path, [options]))}
    assert opened == (f"opened {BATCHES // 3}",)


def test_one_rank_needs_no_other_process(ranks: Ranks, path: Path, alone: list[list[str]]) -> None:
    with open_loader(path, share="host") as loader:
        assert [digest(batch) for batch in loader] == alone[0]
        assert not servers()
    assert [found[1] for found in well(ranks.run(rank_jobs.epochs, 1, path, {"share": "host"}))] == [alone[:2]]
    for error in ranks.run(share_jobs.before_the_group, 2, path):
        assert isinstance(error, errors.RankError)
        assert "opened by rank 0 of 1" in str(error)
