"""Tables that learn, through loaders: what a training makes of them equals a training in memory to the bit, whatever
the loader does and whenever rows are read."""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import left
import numpy as np
import pytest
import torch
from graphs import num_nodes
from table_training import (
    DIM,
    OPTIMISERS,
    OPTIONS,
    Coalesced,
    InMemory,
    Sage,
    epochs,
    everything,
    in_memory,
    table,
    train,
)

import freshgo
from freshgo import LinkLoader, Loader, MemoryBudget, nn, optim
from freshgo._args.size import parse_size
from freshgo.errors import DTypeError, InvalidArgumentError

LOADERS: dict[str, dict[str, Any]] = {
    "as it comes": {},
    "small": {"memory": "6MiB"},
    "one at a time": {"prefetch": 0, "num_workers": 1},
    "far ahead": {"prefetch": 9, "num_workers": 3, "memory": "12MiB"},
    "windows": {"cache": freshgo.Belady(superbatch=4), "feature_cache": 20_000, "neighbor_cache": 0},
    "scans": {"cache": freshgo.Belady(superbatch=7, transfer="scan"), "feature_cache": 50_000},
    "trees": {"disjoint": True, "memory": "16MiB"},
}


nothing_left = left.fixture()


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


@pytest.mark.parametrize("dtype", ["float32", "float16", "int8-per-row"])
def test_features_beside_a_table_stay_as_stored(tmp_path: Path, dtype: str) -> None:
    """The cache of rows keeps them as they are in the store, whatever the loop does with its tensors."""
    generator = torch.Generator().manual_seed(0)
    graph = {
        "num_nodes": 3000,
        "edge_index": torch.randint(3000, (2, 20_000), generator=generator),
        "x": torch.randn(3000, 256, generator=generator),
    }
    narrow = {} if dtype == "float32" else {"dtype": {"x": dtype}}
    freshgo.convert(graph, tmp_path / "g", progress=False, **narrow).close()
    with Loader(tmp_path / "g", [1], batch_size=3000) as loader:
        stored = next(iter(loader)).x  # of all nodes, in their order
    with table(tmp_path / "t.emb", 3000) as emb:
        options = {**OPTIONS, "memory": "16MiB", "feature_cache": "800KiB"}
        with Loader(tmp_path / "g", [4, 3], embeddings=emb, **options) as loader:
            optimizer = optim.SGD(emb.tables(), lr=0.1)
            for _ in range(2):
                for batch in loader:
                    assert torch.equal(batch.x, stored[batch.n_id])
                    emb(batch.n_id).sum().backward()
                    optimizer.step()
                    optimizer.zero_grad()
                    batch.x.fill_(torch.nan)
            assert loader.stats()["hits"] > 0


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
        run(reference, Coalesced(torch.optim.Adagrad(reference.tables(), lr=0.1), reference), batches)
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


@pytest.mark.parametrize("case", LOADERS)
def test_rows_are_read_before_the_step_of_their_batch(store: Any, tmp_path: Path, case: str) -> None:
    generator, out = torch.Generator().manual_seed(2), tmp_path / "rows.npy"
    with (
        table(tmp_path / "t.emb", 3000) as emb,
        Loader(store, [4, 3], embeddings=emb, **{**OPTIONS, **LOADERS[case]}) as loader,
    ):
        reference = InMemory(emb)
        optimizer, other = optim.Adagrad(emb.tables(), lr=0.1), torch.optim.Adagrad(reference.tables(), lr=0.1)
        for i, batch in enumerate(loader):
            weight = reference.table.weight.detach()
            for lookup, by in ((emb, optimizer), (reference, other)):
                by.zero_grad()
                lookup(batch.n_id[:: 1 + i % 2]).pow(2).sum().backward()
            if i % 3 != 1:
                ids = torch.randint(3000, (40, 2), generator=generator)
                with torch.no_grad():
                    assert torch.equal(emb(ids), weight[ids])
                    assert torch.equal(emb(batch.n_id), weight[batch.n_id])
            if i % 7 == 2:
                emb.export(out, overwrite=True)
                assert np.array_equal(np.load(out), weight.numpy())
            if i % 8 == 5:
                emb.save()
                saved = weight.clone()
            if i % 5 != 4:
                optimizer.step()
                other.step()
            if i % 4 == 0:
                assert torch.equal(everything(emb), reference.table.weight)
        assert torch.equal(everything(emb), reference.table.weight)
    with nn.Embedding(tmp_path / "t.emb") as emb:
        assert torch.equal(everything(emb), saved), "what came after the last save is undone"


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


def test_a_module_is_moved_and_its_rows_are_converted_by_nobody(tmp_path: Path) -> None:
    class Model(torch.nn.Module):
        def __init__(self, emb: nn.Embedding) -> None:
            super().__init__()
            self.emb, self.layer = emb, torch.nn.Linear(DIM, 3)

    with table(tmp_path / "f.emb", 20) as emb, table(tmp_path / "b.emb", 20, dtype=torch.bfloat16) as short:
        before = everything(emb)
        for module in (emb, Model(emb)):
            for convert, name in (
                (module.half, "float16"),
                (module.double, "float64"),
                (module.bfloat16, r"bfloat16\), or make a table with dtype=torch.bfloat16"),
                (lambda module=module: module.to(torch.float16), "float16"),
            ):
                with pytest.raises(DTypeError, match=rf"f\.emb are torch.float32 .*emb\(ids\)\.to\(torch\.{name}"):
                    convert()
            for away in (lambda module=module: module.to("meta"), lambda module=module: module.to_empty(device="meta")):
                with pytest.raises(InvalidArgumentError, match=r"f\.emb cannot go to the device meta"):
                    away()
            assert module.to("cpu") is module and module.float() is module and module.cpu() is module
            assert module.to("cpu", torch.float32) is module
        with pytest.raises(DTypeError, match=r"b\.emb are torch.bfloat16 .*make a table with dtype=torch\.float32"):
            short.float()
        assert short.bfloat16() is short and short.dtype == torch.bfloat16
        assert torch.equal(everything(emb), before)


def test_frozen_rows_have_no_gradient(store: Any, tmp_path: Path) -> None:
    with table(tmp_path / "t.emb", 3000) as emb, Loader(store, [4, 3], embeddings=emb, **OPTIONS) as loader:
        optimizer, before = optim.Adagrad(emb.tables()), everything(emb)
        assert emb.requires_grad_(False) is emb
        for i, batch in enumerate(loader):
            if i == 3:
                emb.requires_grad_()
            rows = emb(batch.n_id)
            assert rows.requires_grad == (i >= 3)
            if i == 3:
                break
            optimizer.step()
            with pytest.raises(RuntimeError, match="does not require grad"):
                rows.sum().backward()
        assert torch.equal(everything(emb), before)


def test_memory_that_is_short_for_plans_is_warned_of(store: Any, tmp_path: Path) -> None:
    with nn.Embedding(tmp_path / "t.emb", num_embeddings=3000, embedding_dim=512) as emb:
        with Loader(store, [4, 3], **OPTIONS, embeddings=emb) as loader:
            assert "no room to plan" not in str(loader.plan())
            smallest = loader.stats()["memory_smallest"]
        little = {**OPTIONS, "embeddings": emb, "memory": smallest}
        with (
            pytest.warns(UserWarning, match="no room to plan 8 batches") as caught,
            Loader(store, [4, 3], **little) as loader,
        ):
            assert "no room to plan 8 batches" in str(loader.plan())
        text = str(caught[0].message)
        found = re.search(r" predicted to move (.*); with (.*) it would be (.*), and", text)
        assert found is not None, text
        now, enough, then = (parse_size("size", part.replace(" ", "")) for part in found.groups())
        assert smallest < enough
        assert then < now / 2
        with warnings.catch_warnings():
            warnings.simplefilter("error", UserWarning)
            Loader(store, [4, 3], **{**little, "memory": 2 * smallest}).close()
            with pytest.raises(UserWarning, match="no room"):
                Loader(store, [4, 3], **little)
            with Loader(store, [4, 3], **{**little, "memory": 2 * smallest}) as loader:  # the table is free again
                assert sum(1 for _ in loader) == len(loader)


def test_a_fiftieth_of_the_table_is_enough(tmp_path: Path) -> None:
    """Batches whose rows are an eighth of the memory train a table of fifty times the memory, exactly. Below the least,
    the error says how much is needed, and that is enough."""
    nodes, dim = 100_000, 512
    generator = torch.Generator().manual_seed(0)
    edges = torch.randint(nodes, (2, 200_000), generator=generator)
    freshgo.convert({"num_nodes": nodes, "edge_index": edges}, tmp_path / "g", progress=False).close()
    options: dict[str, Any] = {"batch_size": 80, "input_nodes": torch.arange(0, nodes, 50), "progress": False}
    with nn.Embedding(tmp_path / "t.emb", num_embeddings=nodes, embedding_dim=dim, init="xavier_uniform") as emb:
        memory = nodes * (4 * dim + 8) // 50
        with pytest.raises(freshgo.errors.BudgetError, match=r"need at least [\d.]+ \w+") as caught:
            Loader(tmp_path / "g", [2], **{**OPTIONS, **options, "memory": "1MiB", "embeddings": emb})
        needed = re.search(r"need at least (\S+ \S+)", str(caught.value))
        assert needed is not None and caught.value.minimum <= parse_size("memory", needed[1].replace(" ", "")) <= memory
        batches = epochs(tmp_path / "g", 1, Loader, ([2],), **{**options, "memory": None})
        assert memory / 10 < max(batch.num_nodes for batch in batches) * 4 * dim < memory / 8
        reference = InMemory(emb)
        optimizer, other = optim.SGD(emb.tables(), lr=0.1), torch.optim.SGD(reference.tables(), lr=0.1)
        for given in (memory, caught.value.minimum):
            with Loader(tmp_path / "g", [2], **{**OPTIONS, **options, "memory": given, "embeddings": emb}) as loader:
                for batch in loader:
                    for lookup, by in ((emb, optimizer), (reference, other)):
                        by.zero_grad()
                        lookup(batch.n_id).pow(2).sum().backward()
                        by.step()
                assert loader.stats()["memory_peak"] <= given
            assert torch.equal(everything(emb), reference.table.weight)


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
