"""Ranks of a host that train one table: its rows after any number of steps equal to the bit a training in memory that
sums the gradients of the ranks, and whoever does something else is an error of all of them."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import rank_jobs
import share_jobs
import table_jobs
import torch
from rank_jobs import Ranks, of_rank, open_loader, well
from seeds import seed
from share_jobs import servers, wait_until
from table_jobs import NODES, InMemory, everything, opened

from freshgo import Loader, convert, errors
from freshgo import Ranks as RanksOption


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    rng = np.random.default_rng(seed(5))
    graph = {"num_nodes": NODES, "edge_index": rng.integers(NODES, size=(2, 4000))}
    path = tmp_path_factory.mktemp("share") / "graph"
    convert(graph, path, progress=False).close()
    return path


@pytest.fixture(autouse=True)
def no_server_is_left() -> Iterator[None]:
    yield
    assert wait_until(lambda: not servers(), rank_jobs.PATIENCE)


def epochs_of(path: Path, count: int, **options: Any) -> list[list[Any]]:
    with open_loader(path, **options) as loader:
        return [list(loader) for _ in range(count)]


def trained_in_memory(
    table: Path, name: str, epochs: list[list[Any]], world: int, uneven: str = "pad", **form: Any
) -> tuple[InMemory, list[list[torch.Tensor]]]:
    """Train a table in memory; also the rows of the batches of each rank after their steps."""
    with opened(table, share=None, **form) as emb:
        memory = InMemory(everything(emb), name)
    seen: list[list[torch.Tensor]] = [[] for _ in range(world)]
    for epoch in epochs:
        parts = [of_rank(epoch, rank, world, uneven) for rank in range(world)]
        for step in range(len(parts[0])):
            batches = {rank: part[step] for rank, part in enumerate(parts) if step < len(part)}
            memory.step(batches, step, world)
            for rank, batch in batches.items():
                seen[rank].append(memory.table.weight.detach()[batch.n_id])
    return memory, seen


@pytest.mark.parametrize(
    ("world", "name", "options"),
    [
        (2, "SGD", {}),
        (2, "RowAdagrad", {"uneven": "drop", "feature_cache": 4000, "superbatch": 5}),
        (3, "Adagrad", {"uneven": "join", "batch_size": 21}),
        (3, "SparseAdam", {"uneven": "join", "feature_cache": 0, "prefetch": 0, "batch_size": 26}),
        (2, "SparseAdam", {"feature_cache": 20_000, "superbatch": 3, "batch_size": 13}),
        (2, "Adagrad", {"dtype": torch.bfloat16}),
    ],
)
def test_ranks_train_one_table(
    ranks: Ranks, path: Path, tmp_path: Path, world: int, name: str, options: dict[str, Any]
) -> None:
    uneven = options.get("uneven", "pad")
    size = {"batch_size": options["batch_size"]} if "batch_size" in options else {}
    epochs = epochs_of(path, 2, **size)
    form = {"dtype": options.get("dtype", torch.float32)}
    memory, seen = trained_in_memory(tmp_path / "in-memory", name, epochs, world, uneven, **form)
    found = well(ranks.run(table_jobs.train, world, path, tmp_path / "t.emb", name, 2, options))
    for rank, (mine, rows, figures) in enumerate(found):
        for step, (own, expected) in enumerate(zip(mine, seen[rank], strict=True)):
            assert torch.equal(own, expected), (rank, step)
        assert torch.equal(rows, memory.table.weight)
        for epoch, step, ids, looked_up in figures["looked"]:
            assert torch.equal(looked_up, memory.before[epoch * len(seen[0]) // 2 + step][ids]), (rank, epoch, step)
        assert figures["steps"] == memory.steps
        assert figures["table_rows"] > 0
    with opened(tmp_path / "t.emb", share=None, **form) as emb:
        assert torch.equal(everything(emb), memory.table.weight)


@pytest.mark.parametrize("name", ["SGD", "SparseAdam"])
def test_the_whole_equals_ddp(ranks: Ranks, path: Path, tmp_path: Path, name: str) -> None:
    for rows, ddp, _ in well(ranks.run(table_jobs.beside_ddp, 2, path, tmp_path / "t.emb", name, None)):
        assert torch.equal(rows, ddp)


def test_three_ranks_equal_ddp_up_to_the_order_of_a_sum(ranks: Ranks, path: Path, tmp_path: Path) -> None:
    """Two orders of a sum of three differ by four roundings at most, and a row after the step by two more."""
    rate, half_ulp = table_jobs.OPTIMISERS["SGD"]["lr"], 2.0**-24
    for rows, ddp, sizes in well(ranks.run(table_jobs.beside_ddp, 3, path, tmp_path / "t.emb", "SGD", 1)):
        bound = 4 * half_ulp * rate * sizes + 2 * half_ulp * (ddp.abs() + rate * sizes)
        assert (sizes > 0).any()
        assert ((rows - ddp).abs() <= bound).all()
        assert torch.equal(rows[sizes.sum(1) == 0], ddp[sizes.sum(1) == 0])


def test_batches_that_are_lost_on_their_way(ranks: Ranks, path: Path, tmp_path: Path) -> None:
    memory, _ = trained_in_memory(tmp_path / "in-memory", "Adagrad", epochs_of(path, 2), 2)
    for rows in well(ranks.run(table_jobs.lost, 2, path, tmp_path / "t.emb")):
        assert torch.equal(rows, memory.table.weight)


@pytest.mark.parametrize(
    ("how", "kind", "message"),
    [
        ("leaves", "RankError", r"step\(\) .* needs all ranks that have a batch, and rank 2 has left its loop"),
        ("forgets", "RankError", "rank 2 goes on to its next batch"),
        ("options", "RankError", r"lr=0.01.* on rank 0 and Adagrad\(lr=1.01.* on rank 1"),
        ("not a number", "InvalidArgumentError", "the gradients of rows .* are not numbers"),
    ],
)
def test_a_rank_that_does_something_else(
    ranks: Ranks, path: Path, tmp_path: Path, how: str, kind: str, message: str
) -> None:
    found = well(ranks.run(table_jobs.stumbling, 3, path, tmp_path / "t.emb", how, None))
    for told in found[:2]:
        assert told is not None
        assert told[0] == kind
        with pytest.raises(AssertionError, match=message):
            raise AssertionError(told[1])


def test_a_rank_that_does_not_come_in_time(ranks: Ranks, path: Path, tmp_path: Path) -> None:
    found = well(ranks.run(table_jobs.stumbling, 2, path, tmp_path / "t.emb", "is late", str(tmp_path / "told")))
    assert found[0] is not None
    assert "rank 1 has not come to it within the timeout of the process group" in found[0][1]


def test_a_rank_that_is_killed(path: Path, tmp_path: Path) -> None:
    """The others are told of it, and the table has the state that was saved last."""
    opened(tmp_path / "t.emb", share=None).close()
    pids = [tmp_path / f"pid-{rank}" for rank in range(3)]
    with contextlib.closing(Ranks(3, tmp_path)) as victims:
        arguments = (path, tmp_path / "t.emb", "killed", str(tmp_path / "pid"))
        victims.begin(table_jobs.stumbling, 3, *arguments)
        assert wait_until(lambda: all(pid.exists() and pid.read_text() for pid in pids), rank_jobs.PATIENCE)
        share_jobs.killed(int(pids[2].read_text()))
        for rank in range(2):
            kind, message, _ = victims.found(rank)
            assert kind == "RankError"
            assert "rank 2 (process" in message
    assert wait_until(lambda: not servers(), rank_jobs.PATIENCE)
    with opened(tmp_path / "t.emb", share=None) as emb, opened(tmp_path / "new", share=None) as new:
        assert torch.equal(everything(emb), everything(new))


def test_wrong_use(ranks: Ranks, path: Path, tmp_path: Path) -> None:
    together = "Embedding(share='host') and the loader with ranks=Ranks(share='host')"
    expected = {
        "by hand": "were written by hand",
        "alone": together,
        "apart": together,
        "sizes": "num_embeddings of the table",
        "missing": "give num_embeddings and embedding_dim",
        "state": "refused while a loader trains the table",
    }
    for found in well(ranks.run(table_jobs.uses, 2, path, tmp_path / "t.emb", [*expected, "tokens"])):
        assert found.keys() == expected.keys()
        for case, message in expected.items():
            assert found[case].startswith("InvalidArgumentError"), found[case]
            assert message in found[case]
    for found in well(ranks.run(table_jobs.uses, 2, path, tmp_path / "t.emb", ["differ"])):
        assert found["differ"].startswith("RankError")


def test_one_rank_needs_no_other(path: Path, tmp_path: Path) -> None:
    """Without a process group ``share`` changes nothing."""
    with (
        opened(tmp_path / "t.emb") as emb,
        Loader(path, [3], batch_size=100, embeddings=emb, memory="64MiB", ranks=RanksOption(share="host")) as loader,
    ):
        optimizer = table_jobs.optim.SGD(emb.tables(), lr=0.1)
        for batch in loader:
            emb(batch.n_id).sum().backward()
            optimizer.step()
    with pytest.raises(errors.InvalidArgumentError, match="share must be 'host' or None, got 'job'"):
        opened(tmp_path / "t.emb", share="job")
