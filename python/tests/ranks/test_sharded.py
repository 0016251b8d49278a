"""Ranks whose rows are divided: the batches of the whole store, whatever way rows come, and errors where none can."""

from __future__ import annotations

import contextlib
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import rank_jobs
import sharded_jobs
import torch
from rank_jobs import NODES, Ranks, digest, drawn_graph, of_rank, open_loader, well
from seeds import seed

from freshgo import History, MemoryBudget, convert, errors, factored, shard

SEEDS, BATCHES = 22, 19
WIDTH = 128 * 4 + 9 * 2 + 8 + 20 + 20 + 11
"""Bytes of a node's rows that are divided."""


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two graphs, ``nodes`` and ``typed``, each whole and as 2 and 3 parts."""
    rng = np.random.default_rng(seed(5))
    place = tmp_path_factory.mktemp("sharded")
    graph = {
        **drawn_graph(rng, skewed=True),
        "y": rng.integers(7, size=NODES),
        "half": torch.from_numpy(rng.standard_normal((NODES, 9))).bfloat16(),
        "rows": rng.standard_normal((NODES, 20), dtype=np.float32),
        "columns": rng.standard_normal((NODES, 20), dtype=np.float32),
        "bits": rng.random((NODES, 11)) < 0.5,
    }
    dtype = {"rows": "int8-per-row", "columns": "int8-per-column"}
    convert(graph, place / "nodes", dtype=dtype, progress=False).close()

    def edges(source: int, target: int) -> np.ndarray[Any, Any]:
        return np.stack([rng.integers(source, size=2500), rng.integers(target, size=2500)])

    typed = {
        "user": {"x": rng.standard_normal((300, 5), dtype=np.float32), "age": rng.integers(99, size=300)},
        "item": {"x": rng.standard_normal((200, 17)), "z": rng.integers(9, size=(200, 3))},
        "tag": {"num_nodes": 4},
        ("user", "rates", "item"): edges(300, 200),
        ("item", "rated", "user"): edges(200, 300),
        ("tag", "of", "item"): edges(4, 200),
    }
    convert(typed, place / "typed", progress=False).close()
    for kind in ("nodes", "typed"):
        for parts in (2, 3):
            shard(place / kind, place / f"{kind}-{parts}", parts=parts, progress=False)
    return place


SMALL = {"memory": "8MiB", "feature_cache": 1_100_000, "batch_size": SEEDS}
"""Room for the rows of batches on their way, and for some of the hottest."""


def many_cases() -> list[tuple[str, str, dict[str, Any]]]:
    """Loaders of whole stores, each of which is compared with that of parts."""
    ways = ({"exchange": "all_to_all"}, {"exchange": "rounds"}, {})
    uneven = ({"uneven": "join"}, {"uneven": "drop"}, {})
    nodes = [("nodes", "nodes", {**SMALL, **way, **how}) for way, how in zip(ways, uneven, strict=True)]
    scores = torch.rand(NODES)
    more = [
        ("nodes", "nodes", {**SMALL, "cache": "none", "feature_dtype": "stored", "uneven": "join"}),
        ("nodes", "nodes", {**SMALL, "cache": scores, "disjoint": True}),
        ("nodes", "nodes", {**SMALL, "cache": "degree", "batch_size": 150, "uneven": "join"}),  # no batch for some
        ("links", "nodes", {"memory": "64MiB"}),
        ("typed", "typed", {"memory": "64MiB", "exchange": "rounds"}),
        ("typed", "typed", {"memory": "64MiB", "cache": "none", "uneven": "join", "prefetch": 0}),
    ]
    return nodes + more


@pytest.mark.parametrize("world", [2, 3])
def test_batches_are_those_of_the_whole_store(ranks: Ranks, place: Path, world: int) -> None:
    """With more parts than ranks, as many, and fewer."""
    of = many_cases()
    alone = []
    for kind, store, options in of:
        whole = {name: value for name, value in options.items() if name not in ("exchange", "uneven", "feature_cache")}
        with sharded_jobs.KINDS[kind](place / store, **{**whole, "memory": "64MiB"}) as loader:
            alone.append([(digest(batch), rows_of(batch)) for batch in loader])
    divided = [
        (kind, place / f"{store}-{2 + i % 2}", {**options, "features": "sharded"})
        for i, (kind, store, options) in enumerate(of)
    ]
    found = well(ranks.run(sharded_jobs.cases, world, divided, 1000))
    for i, (_, _, options) in enumerate(of):
        for rank in range(world):
            batches, took = found[rank][i]
            expected = of_rank(alone[i], rank, world, options.get("uneven", "pad"))
            assert batches == [one for one, _ in expected]
            if "disjoint" not in options:
                wanted = sum(rows for _, rows in expected) + took["hot_rows"]
                assert took["rows_held"] + took["rows_own"] + took["rows_remote"] == wanted
            assert took["hot_rows"] == 0 or options.get("cache") != "none"
            assert took["exchange"] == options.get("exchange", took["exchange"])
        each = [of_this[i][1] for of_this in found]
        assert sum(took["rows_served"] for took in each) == sum(took["rows_remote"] for took in each) > 0
        assert sum(took["bytes_sent"] for took in each) == sum(took["bytes_received"] for took in each)


def rows_of(batch: Any) -> int:
    """The divided rows of a batch."""
    if hasattr(batch, "node_types"):
        return sum(batch[node_type].num_nodes for node_type in ("user", "item"))
    return int(batch.num_nodes)


def test_the_hottest_rows_stay(ranks: Ranks, place: Path) -> None:
    """Of the highest scores as many as have room, whatever part they are of; they come once."""
    scores = torch.randperm(NODES).float()
    with open_loader(place / "nodes", batch_size=SEEDS) as loader:
        batches = [batch.n_id for batch in loader]
    room = 100_000
    options = {**SMALL, "cache": scores, "features": "sharded"}
    options["feature_cache"] = 8 * WIDTH * max(n_id.numel() for n_id in batches[:2]) + room
    for rank, found in enumerate(
        well(ranks.run(sharded_jobs.cases, 2, [("nodes", place / "nodes-2", options)], 1 << 20))
    ):
        took = found[0][1]
        least = room // (WIDTH + 8)  # with the number of its node
        assert least <= took["hot_rows"] < NODES
        if batches[rank].numel() >= batches[1 - rank].numel():
            assert took["hot_rows"] == least
        hot = scores.argsort(descending=True)[: took["hot_rows"]]
        held = sum(int(torch.isin(n_id, hot).sum()) for n_id in of_rank(batches, rank, 2))
        assert took["rows_held"] == held


def test_a_state_goes_on_with_other_ranks_and_whole_rows(ranks: Ranks, place: Path) -> None:
    options: dict[str, Any] = {"batch_size": SEEDS, "memory": "64MiB"}
    divided = {**options, "features": "sharded"}
    with open_loader(place / "nodes", **options) as loader:
        alone = [digest(batch) for batch in loader]
    begun = well(ranks.run(rank_jobs.go_on, 2, place / "nodes-3", divided, None, 3))
    assert [batches for batches, _ in begun] == [alone[0:6:2], alone[1:6:2]]
    state = begun[0][1]
    for rank, (batches, _) in enumerate(well(ranks.run(rank_jobs.go_on, 3, place / "nodes-2", divided, state, -1))):
        assert batches == [alone[(6 + i) % BATCHES] for i in range(rank, 15, 3)]
    with open_loader(place / "nodes", **options) as loader:
        loader.load_state_dict(state)
        assert [digest(batch) for batch in loader] == alone[6:]


@pytest.mark.parametrize("pause", [0.0, 0.5])
def test_epochs_that_are_left_early(ranks: Ranks, place: Path, pause: float) -> None:
    """Each rank elsewhere: those that have left answer the others, also others that are epochs behind."""
    options = {"batch_size": SEEDS, "memory": "64MiB", "features": "sharded", "cache": "none"}
    with open_loader(place / "nodes", batch_size=SEEDS) as loader:
        alone = [[digest(batch) for batch in loader] for _ in range(4)]
    for rank, found in enumerate(well(ranks.run(sharded_jobs.left_early, 2, place / "nodes-2", options, pause))):
        whole = [of_rank(epoch, rank, 2) for epoch in alone]
        assert found == [whole[0][: 2 + rank], whole[1][:1], whole[2], whole[3]]


def test_a_process_that_has_all_parts(place: Path) -> None:
    with open_loader(place / "typed-3", input_nodes="user", features="sharded", memory="64MiB") as divided:
        with open_loader(place / "typed", input_nodes="user") as whole:
            for _ in range(2):
                assert [digest(batch) for batch in divided] == [digest(batch) for batch in whole]
            assert digest(divided.sample([7, 3])) == digest(whole.sample([7, 3]))
            assert [t["user"].tolist() for t in divided.trace(1)] == [t["user"].tolist() for t in whole.trace(1)]
            assert divided.state_dict() == whole.state_dict()


@pytest.mark.parametrize(
    ("data", "options", "words"),
    [
        (["nodes-2", "nodes-3"], [{}, {}], "features is 'sharded, parts "),
        (["nodes-2", "nodes"], [{}, {"features": None}], "'whole' on rank 1"),
        (["nodes-2", "typed-2"], [{}, {"input_nodes": "user"}], "graph is "),
        (["nodes-2", "nodes-2"], [{}, {"exchange": "rounds"}], "exchange is 'auto' on rank 0, 'rounds' on rank 1"),
        (["nodes-2", "mixed"], [{}, {}], "what its parts lack is None on rank 0, 'part 1 belongs to other parts: "),
        (["nodes-2", "missing"], [{}, {}], "what its parts lack is None on rank 0, "),
    ],
)
def test_parts_that_do_not_belong_together(
    ranks: Ranks, place: Path, data: list[str], options: list[dict[str, Any]], words: str
) -> None:
    """The same error on every rank, before the first batch."""
    if not (place / "mixed").exists():
        for name in ("mixed", "missing"):
            shutil.copytree(place / "nodes-2", place / name)
            shutil.rmtree(place / name / "part-1")
        shutil.copytree(place / "nodes-3" / "part-1", place / "mixed" / "part-1")
    given = [{"memory": "64MiB", "features": "sharded", **own} for own in options]
    found = ranks.run(sharded_jobs.refused, 2, [place / name for name in data], given)
    assert {type(error) for error in found} == {errors.RankError}, found
    assert len({str(error) for error in found}) == 1
    assert words in str(found[0])


def test_rows_that_cannot_be_read(ranks: Ranks, place: Path) -> None:
    """The rank that has them raises what reading them raises; the others that it did, and are not left waiting."""
    broken = place / "broken"
    shutil.copytree(place / "nodes-3", broken)
    part = next(path for path in (broken / "part-1").glob("*x*.bin"))
    data = bytearray(part.read_bytes())
    data[4096] ^= 1
    part.write_bytes(data)
    options = {"batch_size": SEEDS, "memory": "64MiB", "features": "sharded", "cache": "none", "checksums": True}
    found = well(ranks.run(sharded_jobs.damaged, 3, broken, options))
    for rank, said in enumerate(found):
        assert len(said) == 2 and said[0] == said[1], said
        if rank == 1:
            assert said[0].startswith("CorruptError: ") and "part-1" in said[0]
        else:
            assert said[0].startswith("RankError: rank 1 could not ")


def test_wrong_use(place: Path, tmp_path: Path) -> None:
    parts = place / "nodes-2"
    for options, words in [
        ({"history": History()}, "history"),
        ({"reorder": True}, "reorder"),
        ({"first_layer": "mean"}, "first_layer"),
        ({"memory": MemoryBudget("64MiB")}, "a MemoryBudget"),
        ({"rank": 0, "world_size": 1}, "rank and world_size"),
        ({"share": "host"}, "share"),
        ({"cache": "lru"}, "cache must be 'auto', 'none', a hotness or scores, got 'lru'"),
        ({"exchange": "twice"}, "'twice'"),
        ({"memory": "1MiB", "feature_cache": "1MiB"}, "feature_cache is a part of memory"),
    ]:
        with pytest.raises(errors.InvalidArgumentError, match=words):
            open_loader(parts, **{"features": "sharded", **options})
    with pytest.raises(errors.InvalidArgumentError, match="'sharded'"):
        open_loader(parts, features="divided")
    with pytest.raises(errors.InvalidArgumentError, match="exchange is for features='sharded'"):
        open_loader(place / "nodes", exchange="rounds")
    with pytest.raises(errors.DTypeError, match="expected the path"):
        open_loader({"edge_index": torch.zeros(2, 1, dtype=torch.long)}, features="sharded")
    with pytest.raises(errors.StoreNotFoundError, match=r"parts\.json"):
        open_loader(place / "nodes", features="sharded")
    with open_loader(parts, features="sharded", memory="64MiB") as loader:
        model = torch.nn.Linear(1, 1)
        with pytest.raises(errors.InvalidArgumentError, match="a loader with features"):
            factored.train(
                lambda *_: torch.zeros(()), loader, model, torch.optim.SGD(model.parameters(), 1), executors=1
            )
    with pytest.raises(errors.BudgetError) as small:
        open_loader(parts, features="sharded", memory="200KiB", feature_cache=100_000)
    with open_loader(parts, features="sharded", memory=small.value.minimum, feature_cache=100_000) as loader:
        assert sum(1 for _ in loader) == 18
    damaged = shutil.copytree(parts, tmp_path / "damaged")
    for text, words in [
        ("{", "not a description of parts"),
        ("[]", "not a description of parts"),
        ('{"version": 2, "digest": ""}', "version 2"),
        ((parts / "parts.json").read_text().replace('"y"', '"z"').replace("400", "401"), "damaged"),
    ]:
        (damaged / "parts.json").write_text(text)
        with pytest.raises(errors.FormatError, match=words):
            open_loader(damaged, features="sharded")
    (damaged / "parts.json").write_text((place / "nodes-3" / "parts.json").read_text())
    with pytest.raises(errors.FormatError, match="belongs to other parts"):
        open_loader(damaged, features="sharded")


def test_a_rank_that_is_killed_is_an_error_of_the_others(ranks: Ranks, place: Path) -> None:
    options = {"batch_size": SEEDS, "memory": "64MiB", "features": "sharded", "cache": "none"}
    ranks.begin(sharded_jobs.dies, 3, place / "nodes-3", options)
    for rank in range(2):
        error = ranks.found(rank)
        assert isinstance(error, errors.RankError), error
        assert "a rank has ended" in str(error)
    with pytest.raises(EOFError):
        ranks.found(2)


@pytest.mark.long
def test_fifty_kills(place: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """At any moment: an error on the others, how soon is printed, and the right batches after a resume."""
    rng, late = random.Random(seed(8)), []
    options = {"batch_size": SEEDS, "memory": "64MiB", "features": "sharded", "cache": "none", "uneven": "join"}
    for number in range(50):
        directory, dead = tmp_path / str(number), rng.randrange(3)
        directory.mkdir()
        pids = [directory / f"pid-{rank}" for rank in range(3)]
        with contextlib.closing(Ranks(3, directory)) as victims:
            victims.begin(sharded_jobs.victim, 3, place / "nodes-3", options, str(directory / "pid"))
            until = time.monotonic() + rank_jobs.PATIENCE
            while not all(pid.exists() and pid.read_text() for pid in pids):
                assert time.monotonic() < until
                time.sleep(0.05)
            time.sleep(2 * rng.random())
            killed = time.time()
            os.kill(int(pids[dead].read_text()), signal.SIGKILL)
            late.append(0.0)
            for rank in set(range(3)) - {dead}:
                ended, kind, message, state = victims.found(rank)
                assert kind is errors.RankError and "a rank has ended" in message
                late[-1] = max(late[-1], ended - killed)
            with open_loader(place / "nodes", batch_size=SEEDS) as loader:
                loader.load_state_dict(state)
                rest = [digest(batch) for batch in loader]
            for rank, (batches, _) in enumerate(
                well(victims.run(rank_jobs.go_on, 3, place / "nodes-2", options, state, -1))
            ):
                assert batches == rest[rank::3]
    rank_jobs.report(capsys, late)


def run(*command: str) -> None:
    subprocess.run(command, check=True, capture_output=True)


@pytest.fixture(params=[2, pytest.param(3, marks=pytest.mark.long)])
def hosts(request: pytest.FixtureRequest) -> Iterator[list[str]]:
    """Network namespaces, of which the first forwards between the others."""
    names = [f"fg{os.getpid()}h{i}" for i in range(request.param)]
    made: list[str] = []
    try:
        try:
            for name in names:
                run("ip", "netns", "add", name)
                made.append(name)
                run("ip", "-n", name, "link", "set", "lo", "up")
            for i, name in enumerate(names[1:], 1):
                run("ip", "-n", names[0], "link", "add", f"p{i}", "type", "veth", "peer", "name", "p1", "netns", name)
                run("ip", "-n", names[0], "addr", "add", f"10.77.{i}.1/24", "dev", f"p{i}")
                run("ip", "-n", name, "addr", "add", f"10.77.{i}.2/24", "dev", "p1")
                run("ip", "-n", names[0], "link", "set", f"p{i}", "up")
                run("ip", "-n", name, "link", "set", "p1", "up")
                run("ip", "-n", name, "route", "add", "default", "via", f"10.77.{i}.1")
            run("ip", "netns", "exec", names[0], "sysctl", "-w", "net.ipv4.ip_forward=1")
        except (OSError, subprocess.CalledProcessError) as error:
            pytest.skip(f"network namespaces with veth pairs cannot be made here: {error}")
        yield names
    finally:
        for name in made:
            subprocess.run(["ip", "netns", "del", name], capture_output=True)


def test_hosts_with_a_link_that_is_lost(hosts: list[str], place: Path, tmp_path: Path) -> None:
    """Hosts, each with the graph and its own part alone: an epoch as of one process, and an error on all of them
    within the timeout of the process group once one has lost its link."""
    with open_loader(place / "nodes") as loader:
        alone = [digest(batch) for batch in loader]
    processes, world = [], len(hosts)
    script = Path(sharded_jobs.__file__)
    for rank, name in enumerate(hosts):
        own = tmp_path / name
        shutil.copytree(
            place / f"nodes-{world}",
            own,
            ignore=lambda _, names, k=rank: {one for one in names if one.startswith("part-") and one != f"part-{k}"},
        )
        command = ["ip", "netns", "exec", name, sys.executable, "-I", str(script)]
        arguments = [str(rank), str(world), "29731", str(own), str(tmp_path)]
        environment = {**os.environ, "GLOO_SOCKET_IFNAME": "p1"}
        processes.append(subprocess.Popen([*command, *arguments], env=environment, stderr=subprocess.PIPE, text=True))
    try:
        wait_for(lambda: all((tmp_path / f"again-{rank}").exists() for rank in range(world)), processes)
        for rank in range(world):
            assert (tmp_path / f"epoch-{rank}").read_text().split() == of_rank(alone, rank, world, "join")
        run("ip", "-n", hosts[0], "link", "set", f"p{world - 1}", "down")
        wait_for(lambda: all((tmp_path / f"error-{rank}").exists() for rank in range(world)), processes)
        for rank in range(world):
            assert (tmp_path / f"error-{rank}").read_text().startswith("RankError: rank "), rank
    finally:
        for process in processes:
            process.kill()
            process.communicate()


def wait_for(condition: Any, processes: list[subprocess.Popen[str]]) -> None:
    until = time.monotonic() + rank_jobs.PATIENCE
    while not condition():
        failed = [process for process in processes if process.poll() not in (None, 0)]
        assert not failed, failed[0].communicate()[1]
        assert time.monotonic() < until, "the hosts hang"
        time.sleep(0.1)


def test_a_link_in_the_place_of_parts(place: Path, tmp_path: Path) -> None:
    """The parts behind the link were left without their description, and the new ones were not written."""
    link, target = tmp_path / "link", tmp_path / "disk"
    link.symlink_to(target)
    for count in (2, 3):
        assert shard(place / "nodes", link, parts=count, overwrite=True, progress=False) == target
        assert link.is_symlink() and len(list(target.glob("part-*"))) == count
        assert sorted(path.name for path in tmp_path.iterdir()) == ["disk", "link"]
