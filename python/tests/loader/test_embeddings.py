"""Tables that learn, through loaders: what a training makes of them equals a training in memory to the bit, whatever
the loader does, and what was saved is never harmed."""

from __future__ import annotations

import copy
import gc
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from graphs import num_nodes
from torch import Tensor

import freshgo
from freshgo import LinkLoader, Loader, MemoryBudget, Ranks, nn, optim
from freshgo._native.process import counters
from freshgo.errors import (
    BusyError,
    ClosedError,
    CorruptError,
    DTypeError,
    InvalidArgumentError,
    StoreExistsError,
    StoreNotFoundError,
)

DIM = 12
OPTIONS: dict[str, Any] = {"batch_size": 100, "shuffle": True, "seed": 3, "memory": "32MiB"}
OPTIMISERS: dict[str, dict[str, Any]] = {
    "SGD": {"lr": 0.1},
    "Adagrad": {"lr": 0.05, "initial_accumulator_value": 0.1},
    "SparseAdam": {"lr": 0.01},
}


@pytest.fixture(autouse=True)
def nothing_left() -> Iterator[None]:
    gc.collect()
    before = counters()
    yield
    gc.collect()
    assert counters() == before


def table(path: Path, rows: int, **more: Any) -> nn.Embedding:
    return nn.Embedding(path, num_embeddings=rows, embedding_dim=DIM, **{"seed": 1, **more})


def everything(emb: nn.Embedding) -> Tensor:
    with torch.no_grad():
        return emb(torch.arange(emb.num_embeddings))


class InMemory(torch.nn.Module):
    """``torch.nn.Embedding`` that sums the gradients of a node that occurs several times in their order."""

    def __init__(self, emb: nn.Embedding) -> None:
        super().__init__()
        weight = everything(emb)
        self.table = torch.nn.Embedding(*weight.shape, sparse=True, _weight=weight)

    def forward(self, ids: Tensor) -> Tensor:
        unique, inverse = ids.unique(return_inverse=True)
        found: Tensor = self.table(unique).index_select(0, inverse)
        return found

    def tables(self) -> list[torch.nn.Parameter]:
        return [self.table.weight]


class Sage(torch.nn.Module):
    """A layer of SAGE in plain PyTorch, in a fixed order."""

    def __init__(self) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(0)
        self.own, self.of = (torch.nn.Parameter(torch.randn(DIM, 7, generator=generator) / 4) for _ in range(2))

    def forward(self, rows: Tensor, edge_index: Tensor) -> Tensor:
        sums = torch.zeros(rows.shape).index_add(0, edge_index[1], rows[edge_index[0]])
        return torch.relu(rows @ self.own + sums @ self.of)


def train(
    lookup: Any, optimizer: Any, batches: Any, sage: Sage, *, steps: Callable[[int], bool] = lambda i: True
) -> None:
    """Train a model and a table over batches of nodes."""
    dense = torch.optim.SGD(sage.parameters(), lr=0.01)
    for i, batch in enumerate(batches):
        optimizer.zero_grad()
        dense.zero_grad()
        if not steps(i):
            continue
        out = sage(lookup(batch.n_id), batch.edge_index)[: batch.batch_size]
        torch.nn.functional.cross_entropy(out, batch.y[: batch.batch_size]).backward()
        optimizer.step()
        dense.step()


def in_memory(emb: nn.Embedding, name: str, batches: list[Any], **more: Any) -> Tensor:
    """Return the rows after the same training in memory."""
    reference = InMemory(emb)
    optimizer = getattr(torch.optim, name)(reference.tables(), **OPTIMISERS[name])
    train(reference, _Coalesced(optimizer, reference), batches, Sage(), **more)
    return reference.table.weight.detach()


class _Coalesced:
    """An optimiser whose gradient is summed before its step, which matters to SGD alone."""

    def __init__(self, optimizer: torch.optim.Optimizer, reference: InMemory) -> None:
        self._optimizer, self._weight = optimizer, reference.table.weight
        self.zero_grad = optimizer.zero_grad

    def step(self) -> None:
        if self._weight.grad is not None:
            self._weight.grad = self._weight.grad.coalesce()
        self._optimizer.step()


def epochs(
    store: Any, count: int, kind: Any = Loader, arguments: tuple[Any, ...] = ([4, 3],), **more: Any
) -> list[Any]:
    """Return the batches of a loader without a table."""
    with kind(store, *arguments, **{**OPTIONS, **more}) as loader:
        return [batch for _ in range(count) for batch in loader]


LOADERS: dict[str, dict[str, Any]] = {
    "as it comes": {},
    "small": {"memory": "6MiB"},
    "one at a time": {"prefetch": 0, "num_workers": 1},
    "far ahead": {"prefetch": 9, "num_workers": 3, "memory": "12MiB"},
    "windows": {"cache": freshgo.Belady(superbatch=4), "feature_cache": 20_000, "neighbor_cache": 0},
    "scans": {"cache": freshgo.Belady(superbatch=7, transfer="scan"), "feature_cache": 50_000},
    "trees": {"disjoint": True, "memory": "16MiB"},
}


@pytest.mark.parametrize("name", OPTIMISERS)
@pytest.mark.parametrize("case", LOADERS)
def test_a_training_equals_that_in_memory(store: Any, tmp_path: Path, case: str, name: str) -> None:
    options = LOADERS[case]
    batches = epochs(store, 2, disjoint=options.get("disjoint", False))
    with table(tmp_path / "t.emb", 3000) as emb:
        expected = in_memory(emb, name, batches)
        with Loader(store, [4, 3], embeddings=emb, **{**OPTIONS, **options}) as loader:
            optimizer = getattr(optim, name)(emb.tables(), **OPTIMISERS[name])
            sage = Sage()
            seen: list[Any] = []
            for _ in range(2):
                optimiser_dense = torch.optim.SGD(sage.parameters(), lr=0.01)
                for batch in loader:
                    seen.append(batch)
                    assert "table/0" not in batch
                    optimizer.zero_grad()
                    optimiser_dense.zero_grad()
                    out = sage(emb(batch.n_id), batch.edge_index)[: batch.batch_size]
                    torch.nn.functional.cross_entropy(out, batch.y[: batch.batch_size]).backward()
                    optimizer.step()
                    optimiser_dense.step()
            assert all(torch.equal(one.n_id, other.n_id) for one, other in zip(seen, batches, strict=True))
            assert torch.equal(everything(emb), expected)
        assert torch.equal(everything(emb), expected), "the loader has written them when it is closed"
        emb.save()
    with nn.Embedding(tmp_path / "t.emb") as emb:
        assert torch.equal(everything(emb), expected)


@pytest.mark.parametrize("order", ["weights", "a list", "a history"])
def test_input_nodes_that_repeat_are_trained_once(store: Any, tmp_path: Path, order: str) -> None:
    nodes = torch.randint(900, (1500,))
    given: dict[str, Any] = {"input_nodes": nodes, "memory": "16MiB"}
    if order == "weights":
        given.update(input_nodes=torch.arange(900), input_weight=torch.rand(900) ** 4)
    batches = epochs(store, 2, **given)
    assert sum(batch.num_nodes - batch.n_id.unique().numel() for batch in batches) > 50
    with table(tmp_path / "t.emb", 3000) as emb:
        expected = in_memory(emb, "Adagrad", batches)
        if order == "a history":
            given["history"] = freshgo.History(keep="rows", start=10**6)  # leaves batches whole
        with Loader(store, [4, 3], embeddings=emb, **{**OPTIONS, **given}) as loader:
            optimizer, sage = optim.Adagrad(emb.tables(), **OPTIMISERS["Adagrad"]), Sage()
            for _ in range(2):
                train(emb, optimizer, loader, sage)
        assert torch.equal(everything(emb), expected)


def test_batches_without_a_step_leave_rows_as_they_are(store: Any, tmp_path: Path) -> None:
    batches = epochs(store, 1)
    with table(tmp_path / "t.emb", 3000) as emb:
        before, expected = everything(emb), in_memory(emb, "SGD", batches, steps=lambda i: i % 3 == 1)
        with Loader(store, [4, 3], embeddings=emb, **OPTIONS) as loader:
            for batch in loader:
                assert torch.equal(emb(batch.n_id), before[batch.n_id])
            assert torch.equal(everything(emb), before)
            assert emb.state_dict() == {"_extra_state": {"token": emb._rows.file.table.describe()["token"]}}
            loader.set_epoch(0)
            train(emb, optim.SGD(emb.tables(), lr=0.1), loader, Sage(), steps=lambda i: i % 3 == 1)
            assert torch.equal(everything(emb), expected)


def test_two_types_and_two_tables_of_one(typed_path: Path, typed: Any, tmp_path: Path) -> None:
    papers, authors = (num_nodes(typed)[name] for name in ("paper", "author"))
    paths = [tmp_path / name for name in ("p.emb", "q.emb", "a.emb")]
    batches = []
    with Loader(typed_path, [4, 3], "paper", **OPTIONS) as loader:
        batches = list(loader) + list(loader)

    def run(lookups: list[Any], optimizer: Any, of: Any) -> None:
        for batch in of:
            optimizer.zero_grad()
            p, a = batch["paper"].n_id, batch["author"].n_id
            edges = batch["author", "writes", "paper"].edge_index
            rows = lookups[0](p) * lookups[1](p)
            rows = rows.index_add(0, edges[1], lookups[2](a)[edges[0]])
            rows.pow(2).mean().backward()
            optimizer.step()

    with table(paths[0], papers) as p, table(paths[1], papers, seed=2) as q, table(paths[2], authors, seed=3) as a:
        references = [InMemory(emb) for emb in (p, q, a)]
        weights = [weight for one in references for weight in one.tables()]
        run(references, torch.optim.SparseAdam(weights, lr=0.01), batches)
        tables = [weight for emb in (p, q, a) for weight in emb.tables()]
        with Loader(typed_path, [4, 3], "paper", embeddings={"paper": [p, q], "author": a}, **OPTIONS) as loader:
            optimizer = optim.SparseAdam(tables, lr=0.01)
            run([p, q, a], optimizer, loader)
            run([p, q, a], optimizer, loader)
            for emb, reference in zip((p, q, a), references, strict=True):
                assert torch.equal(everything(emb), reference.table.weight)
        with pytest.raises(InvalidArgumentError, match=r"dict by node type, of 'paper', .*got an Embedding"):
            Loader(typed_path, [2], "paper", embeddings=p)
        with pytest.raises(
            InvalidArgumentError, match=rf"p\.emb has {papers} rows, .* {authors} nodes of type 'author'"
        ):
            Loader(typed_path, [2], "paper", embeddings={"author": p})


@pytest.mark.parametrize("disjoint", [False, True])
def test_links_with_negatives(store: Any, tmp_path: Path, disjoint: bool) -> None:
    links = torch.randint(2500, (2, 700))
    options = {**OPTIONS, "neg_sampling": ("binary", 2.0), "disjoint": disjoint, "memory": "64MiB"}

    def run(lookup: Any, optimizer: Any, of: Any) -> None:
        for batch in of:
            optimizer.zero_grad()
            rows = lookup(batch.n_id)
            rows = rows.index_add(0, batch.edge_index[1], rows[batch.edge_index[0]])
            ends = rows[batch.edge_label_index]
            score = (ends[0] * ends[1]).sum(1) / 10
            torch.nn.functional.binary_cross_entropy_with_logits(score, batch.edge_label.float()).backward()
            optimizer.step()

    with LinkLoader(store, [3, 2], links, **options) as loader:
        batches = list(loader) + list(loader)
    with table(tmp_path / "t.emb", 3000) as emb:
        reference = InMemory(emb)
        run(reference, _Coalesced(torch.optim.Adagrad(reference.tables(), lr=0.1), reference), batches)
        with LinkLoader(store, [3, 2], links, embeddings=emb, **options) as loader:
            optimizer = optim.Adagrad(emb.tables(), lr=0.1)
            run(emb, optimizer, loader)
            run(emb, optimizer, loader)
        assert torch.equal(everything(emb), reference.table.weight)


def test_rows_are_read_between_steps(store: Any, tmp_path: Path) -> None:
    with table(tmp_path / "t.emb", 3000) as emb, Loader(store, [4, 3], embeddings=emb, **OPTIONS) as loader:
        reference = InMemory(emb)
        optimizer, other = optim.SparseAdam(emb.tables()), torch.optim.SparseAdam(reference.tables())
        kept = None
        for i, batch in enumerate(loader):
            for lookup, by in ((emb, optimizer), (reference, other)):
                by.zero_grad()
                lookup(batch.n_id[:: 1 + i % 2]).pow(2).sum().backward()
                by.step()
            if i % 4 == 1:
                assert torch.equal(everything(emb), reference.table.weight)
                emb.eval()
                ids = torch.randint(3000, (5, 2))
                assert torch.equal(emb(ids), reference.table.weight[ids]) and not emb(ids).requires_grad
                emb.train()
            with torch.no_grad():
                assert torch.equal(emb(batch.n_id), reference.table.weight[batch.n_id])
            if kept is not None:
                gone = kept[~torch.isin(kept, batch.n_id)]
                with pytest.raises(InvalidArgumentError, match=f"id {int(gone[0])} is not in the current batch"):
                    emb(kept)
            kept = batch.n_id
        for wrong in (3000, -1):
            with pytest.raises(InvalidArgumentError, match=rf"must be in \[0, 3000\), .*got {wrong}"), torch.no_grad():
                emb(torch.tensor([5, wrong]))
        with pytest.raises(InvalidArgumentError, match="id 5 is not in the current batch"):
            emb(torch.tensor([5]))
        with pytest.raises(DTypeError, match="int64"):
            emb(torch.tensor([0.5]))
        assert torch.equal(everything(emb), reference.table.weight)


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
@pytest.mark.parametrize("shared", [False, True])
def test_a_second_loader_reads_the_rows_as_they_are(store: Any, tmp_path: Path, mode: Any, shared: bool) -> None:
    memory = MemoryBudget("48MiB") if shared else "32MiB"
    given: dict[str, Any] = {**OPTIONS, "memory": memory}
    with table(tmp_path / "t.emb", 3000) as emb, table(tmp_path / "u.emb", 3000, seed=2) as other:
        reference = InMemory(emb)
        optimizer, by = optim.Adagrad(emb.tables()), torch.optim.Adagrad(reference.tables())
        plain = Loader(store, [2, 2], batch_size=500, seed=4)
        with (
            Loader(store, [4, 3], embeddings=emb, **given) as loader,
            Loader(store, [2, 2], batch_size=500, seed=4, memory=memory, embeddings=[emb, other]) as validation,
            plain,
        ):
            for i, batch in enumerate(loader):
                for lookup, one in ((emb, optimizer), (reference, by)):
                    one.zero_grad()
                    lookup(batch.n_id).pow(2).sum().backward()
                    one.step()
                if i in (0, 7, 29):
                    emb.train(i == 7)
                    validation.set_epoch(0)
                    plain.set_epoch(0)
                    for made, expected in zip(validation, plain, strict=True):
                        assert torch.equal(made.n_id, expected.n_id) and torch.equal(made.x, expected.x)
                        with mode():
                            assert torch.equal(emb(made.n_id), reference.table.weight[made.n_id])
                    emb.train()
                with torch.no_grad():
                    assert torch.equal(emb(batch.n_id), reference.table.weight[batch.n_id])
            assert torch.equal(everything(emb), reference.table.weight)
            with pytest.raises(InvalidArgumentError, match="loader opened first with embeddings=, which trains"):
                emb(next(iter(validation)).n_id)
            with pytest.raises(InvalidArgumentError, match="id 0 is not in the current batch"):
                other(torch.arange(3))
            loader.close()
            with Loader(store, [4, 3], embeddings=emb, **given) as again:
                assert emb(next(iter(again)).n_id).requires_grad


def test_a_step_after_the_loop_is_refused(store: Any, tmp_path: Path) -> None:
    with table(tmp_path / "t.emb", 3000) as emb, Loader(store, [4, 3], embeddings=emb, **OPTIONS) as loader:
        optimizer, before = optim.SGD(emb.tables()), everything(emb)
        for batch in loader:
            emb(batch.n_id).sum().backward()
            break
        with pytest.raises(InvalidArgumentError, match=r"neither applied by step\(\)"):
            optimizer.step()
        optimizer.zero_grad()
        optimizer.step()
        assert torch.equal(everything(emb), before)
        iterator = iter(loader)
        emb(next(iterator).n_id).sum().backward()
        loader.close()
        with pytest.raises(InvalidArgumentError, match=r"neither applied by step\(\)"):
            optimizer.step()
        assert torch.equal(everything(emb), before)


@pytest.mark.parametrize("how", ["read", "save"])
def test_a_step_after_the_rows_have_gone_to_disk_is_refused(store: Any, tmp_path: Path, how: str) -> None:
    with table(tmp_path / "t.emb", 3000) as emb, Loader(store, [4, 3], embeddings=emb, **OPTIONS) as loader:
        optimizer, expected = optim.SGD(emb.tables(), lr=1), everything(emb)
        for i, batch in enumerate(loader):
            optimizer.zero_grad()
            if i == 2:
                emb.save() if how == "save" else everything(emb)
            emb(batch.n_id).sum().backward()
            if i == 2:
                with pytest.raises(InvalidArgumentError, match=r"t\.emb, by save\(\) .* call step\(\) first"):
                    optimizer.step()
                optimizer.zero_grad()
                optimizer.step()
                continue
            optimizer.step()
            expected[batch.n_id] -= 1
        assert torch.equal(everything(emb), expected)


def test_a_loader_that_lends_its_memory_keeps_the_rows(store: Any, tmp_path: Path) -> None:
    batches = epochs(store, 1)
    with table(tmp_path / "t.emb", 3000) as emb:
        expected, memory = in_memory(emb, "SparseAdam", batches), MemoryBudget("32MiB")
        with (
            Loader(store, [4, 3], embeddings=emb, **{**OPTIONS, "memory": memory}) as loader,
            Loader(store, [4], batch_size=500, memory=memory) as validation,
        ):
            optimizer, sage = optim.SparseAdam(emb.tables(), lr=0.01), Sage()

            def validated() -> Iterator[Any]:
                for i, batch in enumerate(loader):
                    yield batch
                    if i in (3, 4, 20):
                        for other in validation:
                            with torch.no_grad():
                                emb(other.n_id)

            train(emb, optimizer, validated(), sage)
            assert loader.stats()["openings"] > 1
            assert torch.equal(everything(emb), expected)


def test_a_training_goes_on_from_what_was_saved(store: Any, tmp_path: Path) -> None:
    batches = epochs(store, 2)
    with table(tmp_path / "t.emb", 3000) as emb:
        expected = in_memory(emb, "SparseAdam", batches)
        with Loader(store, [4, 3], embeddings=emb, **OPTIONS) as loader:
            optimizer, sage = optim.SparseAdam(emb.tables(), lr=0.01), Sage()

            def first() -> Iterator[Any]:
                for i, batch in enumerate(loader):
                    yield batch
                    if i == 6:
                        return

            train(emb, optimizer, first(), sage)
            token = emb.save()
            state = copy.deepcopy([emb.state_dict(), optimizer.state_dict(), sage.state_dict(), loader.state_dict()])
            assert state[0] == {"_extra_state": {"token": token}}
            train(emb, optimizer, loader, sage)  # what comes to nothing
            with pytest.raises(InvalidArgumentError, match=r"call save\(\) before state_dict\(\)"):
                emb.state_dict()
    with nn.Embedding(tmp_path / "t.emb") as emb, Loader(store, [4, 3], embeddings=emb, **OPTIONS) as loader:
        optimizer, sage = optim.SparseAdam(emb.tables(), lr=0.5), Sage()
        for target, saved in zip((emb, optimizer, sage, loader), state, strict=True):
            target.load_state_dict(saved)
        train(emb, optimizer, loader, sage)
        train(emb, optimizer, loader, sage)
        assert torch.equal(everything(emb), expected)


def test_a_state_is_that_of_its_table(store: Any, tmp_path: Path) -> None:
    with table(tmp_path / "t.emb", 3000) as emb, Loader(store, [4, 3], embeddings=emb, **OPTIONS) as loader:
        optimizer, states, rows = optim.SparseAdam(emb.tables()), [], []
        for _ in range(3):
            train(emb, optimizer, loader, Sage())
            emb.save()
            states.append(emb.state_dict())
            rows.append(everything(emb))
        train(emb, optimizer, loader, Sage())
        for _ in loader:
            with pytest.raises(InvalidArgumentError, match="in mid-epoch"):
                emb.load_state_dict(states[2])
            break
        emb.load_state_dict(states[2])
        assert torch.equal(everything(emb), rows[2]) and optimizer.state_dict()["state"][0]["step"] == 3 * 30
        with pytest.raises(InvalidArgumentError, match=r"last saved as .*, and before that as"):
            emb.load_state_dict(states[0])
        emb.load_state_dict(states[1])
        assert torch.equal(everything(emb), rows[1]) and optimizer.state_dict()["state"][0]["step"] == 2 * 30
        assert emb.state_dict() == states[1]
        with pytest.raises(InvalidArgumentError, match="last saved as"):
            emb.load_state_dict(states[2])
        loader.set_epoch(2)
        train(emb, optimizer, loader, Sage())
        assert torch.equal(everything(emb), rows[2]), "the training goes on from there as it did"
        with (
            table(tmp_path / "other.emb", 3000) as other,
            pytest.raises(InvalidArgumentError, match=r"other\.emb was last"),
        ):
            other.load_state_dict(states[2])


CHILD = """
import os, signal, sys
import numpy as np, torch
from freshgo import Loader, nn, optim
path, store, out, when = sys.argv[1:]
emb = nn.Embedding(path)
loader = Loader(store, [4, 3], batch_size=100, memory="6MiB", embeddings=emb)
optimizer = optim.Adagrad(emb.tables())
for i, batch in enumerate(loader):
    optimizer.zero_grad()
    emb(batch.n_id).pow(2).sum().backward()
    optimizer.step()
    if i == 10:
        emb.export(out)
        emb.save()
    if i == 20:
        with torch.no_grad():
            emb(torch.arange(10))  # the file has rows that were not saved
        if when == "read":
            os.kill(os.getpid(), signal.SIGKILL)
os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.parametrize("when", ["read", "end"])
def test_a_kill_leaves_the_state_saved_last(store_path: Path, tmp_path: Path, when: str) -> None:
    table(tmp_path / "t.emb", 3000).close()
    arguments = [sys.executable, "-c", CHILD, tmp_path / "t.emb", store_path, tmp_path / "saved.npy", when]
    assert subprocess.run(arguments).returncode == -signal.SIGKILL
    with nn.Embedding(tmp_path / "t.emb") as emb:
        assert np.array_equal(everything(emb).numpy(), np.load(tmp_path / "saved.npy"))
        optimizer = optim.Adagrad(emb.tables())
        assert optimizer.state_dict()["state"][0]["step"] == 11


def test_a_table_has_one_writer(store: Any, store_path: Path, tmp_path: Path) -> None:
    with table(tmp_path / "t.emb", 3000) as emb:
        code = f"from freshgo import nn; nn.Embedding({str(tmp_path / 't.emb')!r})"
        failed = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
        assert "freshgo.errors.BusyError" in failed.stderr
        with pytest.raises(BusyError):
            nn.Embedding(tmp_path / "t.emb")
        with Loader(store, [4, 3], embeddings=emb, **OPTIONS):
            with pytest.raises(InvalidArgumentError, match="close the loader first"):
                emb.close()
        Loader(store, [2], embeddings=emb).close()


def test_what_does_not_go_together_is_refused(store: Any, graph: Any, tmp_path: Path) -> None:
    with table(tmp_path / "t.emb", 3000) as emb, table(tmp_path / "u.emb", 2999) as short:
        cases: list[tuple[str, dict[str, Any]]] = [
            ("pin_memory", {"pin_memory": True}),
            ("transform_workers", {"transform_workers": 1, "transform": lambda batch: batch}),
            ("one rank", {"ranks": Ranks(rank=0, world_size=2)}),
            ("cache='auto' or 'belady', got 'lru'", {"cache": "lru"}),
            ("got 'none'", {"cache": None}),
            ("has 2999 rows, expected one for each of 3000 nodes", {"embeddings": short}),
            ("got a dict with 'paper'", {"embeddings": {"paper": emb}}),
            ("the same Embedding twice", {"embeddings": [emb, emb]}),
        ]
        for message, options in cases:
            with pytest.raises(InvalidArgumentError) as refused:
                Loader(store, [4, 3], **{"embeddings": emb, **options})
            assert message in str(refused.value)
        with pytest.raises(InvalidArgumentError, match="store"):
            Loader(graph, [4, 3], embeddings=emb)
        for wrong in ("t.emb", torch.nn.Embedding(3000, 4), [], {"": []}):
            with pytest.raises(DTypeError, match=r"freshgo\.nn\.Embedding"):
                Loader(store, [4, 3], embeddings=wrong)  # type: ignore[arg-type]
        with Loader(store, [4, 3], embeddings=emb, **OPTIONS) as loader:
            for _ in loader:
                with pytest.raises(InvalidArgumentError, match="new state of its optimiser is refused in mid-epoch"):
                    optim.Adagrad(emb.tables())
                break
            optim.Adagrad(emb.tables())
            assert len(list(loader)) == 30, "the loader opens again, for wider rows"
            assert loader.stats()["openings"] == 2


def test_tables_are_opened_as_they_are(tmp_path: Path) -> None:
    path = tmp_path / "t.emb"
    for sizes in ({}, {"num_embeddings": 5}, {"embedding_dim": 5}):
        with pytest.raises(InvalidArgumentError, match=r"there is no table at .*give num_embeddings and embedding_dim"):
            nn.Embedding(path, **sizes)
    for wrong in ({"dtype": torch.float16}, {"init": "orthogonal"}, {"seed": 0.5}, {"num_embeddings": 0}):
        with pytest.raises((InvalidArgumentError, DTypeError), match=next(iter(wrong))):
            nn.Embedding(path, **{"num_embeddings": 10, "embedding_dim": 3, **wrong})  # type: ignore[arg-type]
    (tmp_path / "file").touch()
    for place, kind, words in (
        (tmp_path / "file", StoreExistsError, "file: is a file, and a table is a directory"),
        (tmp_path / "nowhere" / "t.emb", StoreNotFoundError, "nowhere: no such directory to make a table in"),
    ):
        with pytest.raises(kind, match=words):
            nn.Embedding(place, num_embeddings=10, embedding_dim=3)
        with pytest.raises(kind, match=words):
            nn.Embedding.from_array(place, torch.ones(10, 3))
    with nn.Embedding(path, num_embeddings=10, embedding_dim=3, dtype=torch.bfloat16) as emb:
        assert (emb.num_embeddings, emb.embedding_dim, emb.dtype) == (10, 3, torch.bfloat16)
        assert repr(emb) == f"Embedding(10, 3, {path}, torch.bfloat16)"
        assert emb.eval()(torch.arange(0)).shape == (0, 3)
        for copier in (copy.copy, copy.deepcopy):
            with pytest.raises(DTypeError, match="cannot be copied"):
                copier(emb)
    with pytest.raises(ClosedError):
        emb.save()
    with nn.Embedding(path) as emb:
        assert emb.dtype == torch.bfloat16
    for name, wrong_size in (("num_embeddings", 11), ("embedding_dim", 4)):
        with pytest.raises(InvalidArgumentError, match=f"{name} of the table .* got {wrong_size}"):
            nn.Embedding(path, **{name: wrong_size})
    with (path / "rows").open("r+b") as file:
        file.seek(3)
        file.write(b"\x55")
    with nn.Embedding(path) as emb, pytest.raises(CorruptError), torch.no_grad():
        emb(torch.arange(10))


def test_the_first_rows_depend_on_the_seed_alone(tmp_path: Path) -> None:
    def first(name: str, **more: Any) -> Tensor:
        sizes = {"num_embeddings": 5000, "embedding_dim": 6}
        with nn.Embedding(tmp_path / name, **{**sizes, **more}) as emb:  # type: ignore[arg-type]
            assert emb._rows.file.table.describe()["changed"] is False
            return everything(emb)

    normal = first("a")
    torch.manual_seed(99)
    assert torch.equal(first("b"), normal)
    assert torch.equal(first("c", num_embeddings=9001)[:5000], normal)
    assert not set(map(tuple, first("d", seed=1).tolist())) & set(map(tuple, normal.tolist()))
    assert abs(normal.mean()) < 0.03 and abs(normal.std() - 1) < 0.03
    assert normal.unique(dim=0).size(0) == 5000, "no two blocks are the same"
    for i, (init, kind) in enumerate(
        (
            *(("uniform", torch.nn.init.uniform_), ("xavier_uniform", torch.nn.init.xavier_uniform_)),
            *(("kaiming_uniform", torch.nn.init.kaiming_uniform_), ("xavier_normal", torch.nn.init.xavier_normal_)),
            *(
                ("kaiming_normal", torch.nn.init.kaiming_normal_),
                ("zeros", torch.nn.init.zeros_),
                ("ones", torch.nn.init.ones_),
            ),
        )
    ):
        rows, expected = first(f"e{i}", init=init), kind(torch.empty(5000, 6))
        assert torch.allclose(rows.std(), expected.std(), rtol=0.03) and rows.std() <= expected.std() * 1.03
        assert abs(rows.mean() - expected.mean()) < 0.03 * (expected.std() + 1e-9)
        if "normal" not in init:
            assert abs(rows.abs().max() - expected.abs().max()) <= 0.01 * expected.abs().max()


def test_rows_come_from_arrays_and_go_into_them(tmp_path: Path) -> None:
    rows = torch.randn(5000, 7)
    np.save(tmp_path / "rows.npy", rows.numpy())
    for i, given in enumerate((rows, rows.numpy(), np.load(tmp_path / "rows.npy", mmap_mode="r"))):
        with nn.Embedding.from_array(tmp_path / f"{i}.emb", given) as emb:
            assert torch.equal(everything(emb), rows)
            emb.export(tmp_path / "out.npy", overwrite=i > 0)
            assert (tmp_path / "out.npy").read_bytes() == (tmp_path / "rows.npy").read_bytes()
    with pytest.raises(StoreExistsError):
        nn.Embedding.from_array(tmp_path / "0.emb", rows)
    with nn.Embedding.from_array(tmp_path / "b.emb", rows.bfloat16()) as emb:
        assert torch.equal(everything(emb), rows.bfloat16())
        emb.export(tmp_path / "out.npy", overwrite=True)
        assert np.array_equal(np.load(tmp_path / "out.npy"), rows.bfloat16().float().numpy())
        with pytest.raises(OSError, match="nowhere"):
            emb.export(tmp_path / "nowhere" / "out.npy")
    with pytest.raises(DTypeError, match="float64"):
        nn.Embedding.from_array(tmp_path / "c.emb", rows.double())
    with pytest.raises(InvalidArgumentError, match="num_embeddings, embedding_dim"):
        nn.Embedding.from_array(tmp_path / "c.emb", rows[0])
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "0.emb",
        "1.emb",
        "2.emb",
        "b.emb",
        "out.npy",
        "rows.npy",
    ]


@pytest.mark.parametrize("moment", ["written", "aside"])
def test_a_table_that_was_being_widened_is_one_or_the_other(tmp_path: Path, moment: str) -> None:
    path = tmp_path / "t.emb"
    with table(path, 100) as emb:
        before = everything(emb)
    with table(tmp_path / ".t.emb.wider", 100, seed=7) as emb:
        after = everything(emb)
    if moment == "aside":
        path.rename(tmp_path / ".t.emb.before")
    with nn.Embedding(path) as emb:
        assert torch.equal(everything(emb), before if moment == "written" else after)
    assert [one.name for one in tmp_path.iterdir()] == ["t.emb"]
