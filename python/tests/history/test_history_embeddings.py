"""History beside tables that learn: a training equals that with tables in memory to the bit, whatever is pruned."""

from __future__ import annotations

import copy
import itertools
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from graphs import relations
from seeds import seed as seed_of
from torch import Tensor

import freshgo
from freshgo import History, Loader, nn, optim

pyg = pytest.importorskip("torch_geometric.nn")

pytestmark = pytest.mark.usefixtures("no_warnings")

DIM = 12
HOPS = [4, 3, 3]
OPTIONS: dict[str, Any] = {"batch_size": 60, "shuffle": True, "seed": 3, "memory": "32MiB"}
LOADERS: dict[str, dict[str, Any]] = {
    "as it comes": {},
    "small": {"memory": "14MiB"},
    "one at a time": {"prefetch": 0, "num_workers": 1},
    "far ahead": {"prefetch": 9, "num_workers": 3},
    "windows": {"cache": freshgo.Belady(superbatch=4), "feature_cache": 20_000, "neighbor_cache": 0},
    "packs": {"cache": freshgo.Belady(superbatch=7, transfer="pack+forward"), "feature_cache": 50_000},
    "packs in turn": {"cache": freshgo.Belady(superbatch=7, transfer="forward"), "feature_cache": 1, "prefetch": 1},
}
HISTORIES: dict[str, Callable[[], History]] = {
    "rows": lambda: History(t_stale=30, keep="rows", memory="256KiB"),
    "gradient": lambda: History(0.7, 20, keep="rows", policy="gradient", memory="64KiB", lag=3),
    "gas": lambda: History(keep="rows", policy="gas", memory="256KiB", lag=0),
    "aggregates": lambda: History(t_stale=30, levels=(1, 2), memory="256KiB", sample_error=0),
}
OPTIMISERS: dict[str, dict[str, Any]] = {
    "SGD": {"lr": 0.1},
    "Adagrad": {"lr": 0.05, "initial_accumulator_value": 0.1},
    "SparseAdam": {"lr": 0.01},
}


def table(path: Path, rows: int = 3000, **more: Any) -> nn.Embedding:
    return nn.Embedding(path, num_embeddings=rows, embedding_dim=DIM, **{"seed": 1, **more})


def everything(emb: nn.Embedding) -> Tensor:
    with torch.no_grad():
        return emb(torch.arange(emb.num_embeddings))


def has_rows(batch: Any) -> Tensor:
    """Which nodes have rows: none of the graph's features is zero."""
    read: Tensor = batch.x.any(1)
    return read


class InMemory:
    """``torch.nn.Embedding``, which looks up the nodes of a batch that have rows."""

    def __init__(self, weight: Tensor) -> None:
        self.table = torch.nn.Embedding(*weight.shape, sparse=True, _weight=weight)

    def __call__(self, batch: Any) -> Tensor:
        read = has_rows(batch).nonzero().squeeze(1)
        return torch.zeros(batch.num_nodes, DIM).index_copy(0, read, self.table(batch.n_id[read]))


def sage() -> Any:
    torch.manual_seed(seed_of(1))
    return pyg.GraphSAGE(24 + DIM, 8, 3, 7)


def train(
    lookup: Callable[[Any], Tensor], optimizer: Any, loader: Any, history: History, seen: list[Any]
) -> Iterator[Any]:
    """Train over an epoch, with a look at each batch before and after its step."""
    history_model = history._steps.model
    dense = torch.optim.SGD(history_model.parameters(), lr=0.05)  # type: ignore[union-attr]
    for batch in loader:
        seen.append((batch.n_id, batch.edge_index))
        optimizer.zero_grad()
        dense.zero_grad()
        rows = torch.cat([batch.x, lookup(batch)], 1)
        out = history_model(rows, batch.edge_index)[: batch.batch_size]  # type: ignore[misc]
        F.cross_entropy(out, batch.y[: batch.batch_size]).backward()
        optimizer.step()
        dense.step()
        history.update()
        yield batch


def three_epochs(
    lookup: Callable[[Any], Tensor], optimizer: Any, store: Any, history: History, **options: Any
) -> tuple[list[Any], list[Tensor], dict[str, Any]]:
    """Train two epochs, and one between them that is left; return the batches, the model and the figures."""
    seen: list[Any] = []
    model = sage()
    with Loader(store, HOPS, "train", history=history, **{**OPTIONS, **options}) as loader:
        history.attach(model)
        for batches in (None, 6, None):
            for _ in itertools.islice(train(lookup, optimizer, loader, history, seen), batches):
                pass
        return seen, list(model.parameters()), history.stats()


@pytest.mark.parametrize("kind", HISTORIES)
@pytest.mark.parametrize("case", LOADERS)
def test_a_training_equals_that_in_memory(store: Any, tmp_path: Path, case: str, kind: str) -> None:
    name = list(OPTIMISERS)[(list(LOADERS).index(case) + list(HISTORIES).index(kind)) % 3]
    options = LOADERS[case]
    with table(tmp_path / "t.emb") as emb:
        reference = InMemory(everything(emb))
        other = getattr(torch.optim, name)(reference.table.parameters(), **OPTIMISERS[name])
        optimizer = getattr(optim, name)(emb.tables(), **OPTIMISERS[name])
        history = HISTORIES[kind]()
        seen, parameters, made = three_epochs(
            lambda batch: emb(batch.n_id), optimizer, store, history, embeddings=emb, **options
        )
        # Less memory has room for fewer batches, by which the lag is bounded.
        batches, expected, figures = three_epochs(reference, other, store, HISTORIES[kind](), prefetch=made["lag"])
        assert figures["lag"] == made["lag"]
        for one, by in zip(seen, batches, strict=True):
            assert torch.equal(one[0], by[0])
            assert torch.equal(one[1], by[1])
        assert all(torch.equal(one, by) for one, by in zip(parameters, expected, strict=True))
        assert torch.equal(everything(emb), reference.table.weight)
        assert made["layers"] == figures["layers"]
        assert made["rows_saved"] == figures["rows_saved"] > 0
        emb.save()
    with nn.Embedding(tmp_path / "t.emb") as emb:
        assert torch.equal(everything(emb), reference.table.weight)


class Mirror:
    """A table in memory that is given the gradients of the rows of a batch."""

    def __init__(self, emb: nn.Embedding, **options: Any) -> None:
        self.emb, self.weight = emb, torch.nn.Parameter(everything(emb))
        self.optimizers = [optim.SparseAdam(emb.tables(), **options), torch.optim.SparseAdam([self.weight], **options)]

    def rows(self, n_id: Tensor, read: Tensor) -> Tensor:
        """Return the rows of a batch, those of nodes that have none being zeros."""
        self.n_id, self.read, self.of = n_id, read, self.emb(n_id)
        assert torch.equal(self.of[read], self.weight[n_id[read]])
        assert not self.of[~read].any()
        self.of.retain_grad()
        return self.of

    def step(self) -> None:
        assert self.of.grad is not None
        shape, ids = self.weight.shape, self.n_id[self.read]
        self.weight.grad = torch.sparse_coo_tensor(ids[None], self.of.grad[self.read], shape, check_invariants=True)
        for one in self.optimizers:
            one.step()
            one.zero_grad()
        with torch.no_grad():
            self.of = self.emb._rows.parameter[~self.read]
        assert not self.of.any(), "a step leaves rows that a batch does not have"


@pytest.mark.parametrize("lag", [0, 1])
def test_rows_are_read_and_saved_between_steps(store: Any, tmp_path: Path, lag: int) -> None:
    history, model, missing = History(0.7, 30, keep="rows", memory="256KiB", lag=lag), sage(), 0
    with (
        table(tmp_path / "t.emb") as emb,
        Loader(store, HOPS, "train", history=history, embeddings=emb, **{**OPTIONS, "memory": "12MiB"}) as loader,
    ):
        mirror = Mirror(emb, lr=0.05)
        history.attach(model)
        for i, batch in enumerate(itertools.chain(loader, itertools.islice(loader, 5), loader)):
            read = has_rows(batch)
            missing += int((~read).sum())
            rows = torch.cat([batch.x, mirror.rows(batch.n_id, read)], 1)
            out = model(rows, batch.edge_index)[: batch.batch_size]
            F.cross_entropy(out, batch.y[: batch.batch_size]).backward()
            if i % 2:
                history.update()
            mirror.step()
            if i % 7 in (2, 3):
                emb.save()
                with torch.no_grad():
                    assert torch.equal(emb(batch.n_id), mirror.weight[batch.n_id])
                    assert torch.equal(emb(batch.n_id[~read]), mirror.weight[batch.n_id[~read]])
                    assert torch.equal(emb(batch.n_id[read]), mirror.weight[batch.n_id[read]])
            if i % 7 == 4:
                assert torch.equal(everything(emb), mirror.weight)
            history.update()
        assert missing > 100
        assert torch.equal(everything(emb), mirror.weight)


def test_a_training_goes_on_from_what_was_saved(store: Any, tmp_path: Path) -> None:
    def run(emb: nn.Embedding, stop: int | None, state: list[Any] | None) -> tuple[list[Any], list[Any]]:
        history, model, saved = History(t_stale=30, keep="rows", memory="256KiB"), sage(), []
        with Loader(store, HOPS, "train", history=history, embeddings=emb, **OPTIONS) as loader:
            history.attach(model)
            optimizer, seen = optim.Adagrad(emb.tables(), lr=0.05), []
            parts = [emb, optimizer, model, loader, history]
            for part, of in zip(parts, state or [], strict=state is not None):
                part.load_state_dict(of)
            for i, _ in enumerate(train(lambda batch: emb(batch.n_id), optimizer, loader, history, seen)):
                if i == stop:
                    emb.save()
                    saved = copy.deepcopy([part.state_dict() for part in parts])
                    seen.clear()
            return [*itertools.chain(*seen), *model.parameters(), everything(emb)], saved

    with table(tmp_path / "t.emb") as emb:
        expected, saved = run(emb, 5, None)
    with nn.Embedding(tmp_path / "t.emb") as emb:
        found, _ = run(emb, None, saved)
    assert len(found) > 12
    assert all(torch.equal(one, by) for one, by in zip(found, expected, strict=True))


def test_a_type_with_a_table_beside_one_with_features(typed: Any, typed_path: Path, tmp_path: Path) -> None:
    history = History(0.8, 30, keep="rows", memory="256KiB")
    keys = [("author", "writes", "paper"), ("paper", "written by", "author"), ("paper", "cites", "paper")]
    torch.manual_seed(seed_of(1))
    layers = [
        pyg.HeteroConv({key: pyg.SAGEConv((of[key[0]], of[key[2]]), 8) for key in keys})
        for of in ({"author": DIM, "paper": 24}, {"author": 8, "paper": 8}, {"author": 8, "paper": 8})
    ]
    count, missing = len(typed["author"]["x"]), 0
    fanouts = {key: HOPS if key in keys else [0, 0, 0] for key in relations(typed)}
    with (
        table(tmp_path / "a.emb", count) as emb,
        Loader(
            typed_path, fanouts, "paper", history=history, embeddings={"author": emb}, **{**OPTIONS, "memory": "16MiB"}
        ) as loader,
    ):
        mirror = Mirror(emb, lr=0.05)
        for batch in itertools.chain(loader, itertools.islice(loader, 5), loader):
            read = batch["author"].x.any(1)
            missing += int((~read).sum())
            h = {"author": mirror.rows(batch["author"].n_id, read), "paper": batch["paper"].x}
            for layer, block in zip(layers, batch.blocks(), strict=True):
                h = history(h, block)
                h = layer(block.pairs(h, keys), {key: block[key].edge_index for key in keys})
                h = {name: rows.relu() for name, rows in h.items()}
            size = batch["paper"].batch_size
            F.cross_entropy(h["paper"][:size], batch["paper"].y[:size]).backward()
            mirror.step()
            history.update()
        assert missing > 100
        assert torch.equal(everything(emb), mirror.weight)


def test_sums_of_learned_rows_are_kept_where_their_level_is_named(store: Any, tmp_path: Path) -> None:
    with table(tmp_path / "t.emb") as emb:
        for levels, kept in ((None, False), (1, True)):
            history, model = History(levels=levels, memory="256KiB", sample_error=0), sage()
            with Loader(store, HOPS, "train", history=history, embeddings=emb, **OPTIONS) as loader:
                history.attach(model)
                optimizer = optim.SGD(emb.tables(), lr=0.1)
                batches = train(lambda batch: emb(batch.n_id), optimizer, loader, history, [])
                if kept:
                    assert len(list(batches)) == len(loader)
                else:
                    with pytest.warns(UserWarning, match="rows that layer 1 reads are learned"):
                        assert len(list(batches)) == len(loader)
                assert (history.stats()["rows_saved"] > 0) == kept
                assert (history.stats()["idle"] is None) == kept
