"""What the ranks of a host do that train one table, and the same in memory."""

from __future__ import annotations

import contextlib
import itertools
import os
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any
from unittest import mock

import torch
import torch.distributed as dist
from rank_jobs import group, open_loader
from share_jobs import losing, until_there, wait_until
from torch import Tensor
from torch.nn.parallel import DistributedDataParallel

from freshgo import errors, nn, optim
from freshgo._host_loader import client

NODES, DIM = 400, 12
OPTIMISERS: dict[str, dict[str, Any]] = {
    "SGD": {"lr": 0.1},
    "Adagrad": {"lr": 0.05, "lr_decay": 0.1, "initial_accumulator_value": 0.1},
    "RowAdagrad": {"lr": 0.05},
    "SparseAdam": {"lr": 0.01},
}
BY = torch.randn(DIM, 5, generator=torch.Generator().manual_seed(4))


def opened(path: Any, **more: Any) -> nn.Embedding:
    return nn.Embedding(path, **{"num_embeddings": NODES, "embedding_dim": DIM, "seed": 1, "share": "host", **more})


def loader_of(data: Any, emb: Any, **options: Any) -> Any:
    return open_loader(data, **{"share": "host", "memory": "64MiB", "embeddings": emb, **options})


def everything(emb: nn.Embedding) -> Tensor:
    with torch.no_grad():
        return emb(torch.arange(emb.num_embeddings))


def loss_of(lookup: Callable[[Tensor], Tensor], batch: Any, turn: int) -> Tensor | None:
    """The loss of a batch: of all its nodes, of its seeds, which are looked up twice, or of none."""
    if turn % 5 == 3:
        return None
    if turn % 5 == 1:
        found = lookup(batch.n_id[: batch.batch_size].repeat(2))
    else:
        found = lookup(batch.n_id)
        found = found.index_add(0, batch.edge_index[1], found[batch.edge_index[0]])
    return torch.relu(found.float() @ BY).pow(2).sum()


def train(
    file: str, rank: int, world: int, data: Any, path: Any, name: str, epochs: int, options: dict[str, Any]
) -> tuple[list[Tensor], Tensor, dict[str, Any]]:
    """Train a table; the rows of each batch after its step, and all rows in the end. Before some steps, ranks look up
    rows of others."""
    seen, looked, generator = [], [], torch.Generator().manual_seed(rank)
    form = {"dtype": options.pop("dtype", torch.float32)}
    with group(file, rank, world), opened(path, **form) as emb:
        optimizer = getattr(optim, name)(emb.tables(), **OPTIMISERS[name])
        with loader_of(data, emb, **options) as loader:
            for epoch in range(epochs):
                for step, batch in enumerate(loader):
                    optimizer.zero_grad()
                    loss = loss_of(emb, batch, step * world + rank)
                    if loss is not None:
                        loss.backward()
                    if step % 3 == rank % 2:
                        ids = torch.randint(NODES, (30,), generator=generator)
                        with torch.no_grad():
                            looked.append((epoch, step, ids, emb(ids)))
                    optimizer.step()
                    with torch.no_grad():
                        seen.append(emb(batch.n_id))
                    if step == 2:
                        emb.save()
            stats = loader.stats()
        emb.save()
        steps = optimizer.state_dict()["state"][0]["step"]
        rows = everything(emb)
        dist.barrier()
    return seen, rows, {**stats, "steps": steps, "looked": looked}


class InMemory:
    """A table in memory, and an optimiser of PyTorch, or row-wise Adagrad by the formula."""

    def __init__(self, weight: Tensor, name: str) -> None:
        self.table = torch.nn.Embedding(*weight.shape, sparse=True, _weight=weight)
        self.exact = torch.nn.Parameter(weight.float())  # in which a step is computed
        self.options = OPTIMISERS[name]
        self.sums = torch.zeros(len(weight))
        self.steps, self.before = 0, list[Tensor]()  # each step
        self.optimizer = None if name == "RowAdagrad" else getattr(torch.optim, name)([self.exact], **self.options)

    def lookup(self, ids: Tensor) -> Tensor:
        unique, inverse = ids.unique(return_inverse=True)
        found: Tensor = self.table(unique).index_select(0, inverse)
        return found

    def step(self, batches: Mapping[int, Any], step: int, world: int) -> None:
        """Make a step over the batches of some ranks, whose gradients are summed in their order."""
        weight = self.table.weight
        self.before.append(weight.detach().clone())
        total, touched = torch.zeros(weight.shape), torch.zeros(len(weight), dtype=torch.bool)
        for rank, batch in batches.items():
            loss = loss_of(self.lookup, batch, step * world + rank)
            if loss is None:
                continue
            loss.backward()
            assert weight.grad is not None
            grad, weight.grad = weight.grad.coalesce(), None
            for row, values in zip(grad.indices()[0], grad.values(), strict=True):
                total[row] += values.float() / world
                touched[row] = True
        if not touched.any():
            return
        self.steps += 1
        rows = touched.nonzero().squeeze(1)
        with torch.no_grad():
            self.exact.copy_(weight)
            if self.optimizer is not None:
                self.exact.grad = torch.sparse_coo_tensor(rows[None], total[rows], weight.shape, is_coalesced=True)
                self.optimizer.step()
            else:
                for row in rows:
                    self.sums[row] += total[row].pow(2).mean()
                    self.exact[row] += total[row] * (-self.options["lr"] / (self.sums[row].sqrt() + 1e-10))
            weight.copy_(self.exact)


def beside_ddp(
    file: str, rank: int, world: int, data: Any, path: Any, name: str, steps: int | None
) -> tuple[Tensor, Tensor, Tensor]:
    """Train a layer under DDP and the table, and both with ``torch.nn.Embedding`` within DDP; the rows of both, and
    the sum of the absolute gradients of all ranks in the last step of the latter."""

    class Model(torch.nn.Module):
        def __init__(self, lookup: Any) -> None:
            super().__init__()
            self.lookup, self.layer = lookup, torch.nn.Linear(DIM, 7)

        def forward(self, batch: Any) -> Tensor:
            found = self.lookup(batch.n_id)
            sums = torch.zeros_like(found).index_add(0, batch.edge_index[1], found[batch.edge_index[0]])
            out: Tensor = torch.relu(self.layer(sums))[: batch.batch_size]
            return out.pow(2).mean()

    def run(model: Any, batches: Any, sparse: Any) -> None:
        dense = torch.optim.SGD([p for n, p in model.named_parameters() if "lookup" not in n], lr=0.1)
        for batch in itertools.islice(batches, steps):
            for one in (sparse, dense):
                one.zero_grad()
            if model is both:
                own = torch.autograd.grad(model.module(batch), table.weight)[0].to_dense().abs() / world
                dist.all_reduce(own)
                sizes.copy_(own)
            model(batch).backward()
            for one in (sparse, dense):
                one.step()

    with group(file, rank, world), opened(path) as emb:
        weight = everything(emb)
        sizes = torch.zeros(weight.shape)
        torch.manual_seed(0)
        table = torch.nn.Embedding(*weight.shape, sparse=True, _weight=weight)
        both = DistributedDataParallel(Model(table))
        with open_loader(data, share="host") as loader:
            run(both, loader, getattr(torch.optim, name)(table.parameters(), **OPTIMISERS[name]))
        torch.manual_seed(0)
        model = DistributedDataParallel(Model(emb))
        optimizer = getattr(optim, name)(emb.tables(), **OPTIMISERS[name])
        with loader_of(data, emb) as loader:
            run(model, loader, optimizer)
        emb.save()
        rows = everything(emb)
        dist.barrier()
        return rows, table.weight.detach(), sizes


def stumbling(
    file: str, rank: int, world: int, data: Any, path: Any, how: str, told: str | None
) -> tuple[str, str, float] | None:
    """Train until the last rank does something else; what the others are told, and when."""
    with group(file, rank, world), contextlib.ExitStack() as stack:
        emb = stack.enter_context(opened(path))
        optimizer = optim.Adagrad(emb.tables(), lr=0.01 + (how == "options") * rank, check_nan=True)
        loader = stack.enter_context(loader_of(data, emb))
        try:
            for step, batch in enumerate(loader):
                if told is not None and step == 1:
                    Path(f"{told}-{rank}").write_text(str(os.getpid()))
                optimizer.zero_grad()
                emb(batch.n_id).pow(2).sum().backward()
                if step == 2 and how == "is late":  # the timeout of the group, after all have begun
                    stack.enter_context(mock.patch.object(client, "timeout_of_world", lambda: timedelta(seconds=1)))
                if step == 2 and rank == world - 1:
                    if how == "leaves":
                        break
                    if how == "forgets":
                        continue
                    if how == "killed":
                        time.sleep(60)
                    if how == "is late":
                        assert wait_until(Path(f"{told}-over").exists, 60)
                    if how == "not a number":
                        emb(batch.n_id[:1]).mul(float("nan")).sum().backward()
                optimizer.step()
        except (errors.RankError, errors.InvalidArgumentError) as error:
            if how == "is late":
                Path(f"{told}-over").touch()
            return type(error).__name__, str(error), time.time()
        time.sleep(1)  # so that its end is not what the others are told of
        return None


def lost(file: str, rank: int, world: int, data: Any, path: Any) -> Tensor:
    """Train while batches are lost on their way, as Ctrl-C may lose them; all rows in the end."""
    with group(file, rank, world), opened(path) as emb:
        optimizer = optim.Adagrad(emb.tables(), **OPTIMISERS["Adagrad"])
        with loader_of(data, emb, superbatch=4) as loader:
            for after in (False, True):
                iterator, step = iter(loader), 0
                with losing("_batch", [2, 3, 5] if rank == 0 else [4], after=after):
                    while (batch := until_there(iterator)) is not None:
                        optimizer.zero_grad()
                        loss = loss_of(emb, batch, step * world + rank)
                        if loss is not None:
                            loss.backward()
                        optimizer.step()
                        step += 1
        emb.save()
        rows = everything(emb)
        dist.barrier()
        return rows


def uses(file: str, rank: int, world: int, data: Any, path: Any, cases: Sequence[str]) -> dict[str, str]:
    """What uses of a shared table raise, by their names."""
    found = {}
    with group(file, rank, world):
        for case in cases:
            try:
                USES[case](data, path, rank)
            except errors.FreshgoError as error:
                found[case] = f"{type(error).__name__}: {error}"
            dist.barrier()
    return found


def _one_step(emb: nn.Embedding, optimizer: Any, loader: Any) -> Any:
    """Return the iterator, which has handed out one batch."""
    iterator = iter(loader)
    emb(next(iterator).n_id).sum().backward()
    optimizer.step()
    return iterator


def _tokens(data: Any, path: Any, rank: int) -> None:
    with opened(path) as emb:
        optimizer = optim.SGD(emb.tables())
        first, before = emb.save(), everything(emb)
        state = emb.state_dict()
        with loader_of(data, emb) as loader:
            iterator = _one_step(emb, optimizer, loader)
            try:
                emb.state_dict()
            except errors.InvalidArgumentError as error:
                assert "call save() before" in str(error)
            else:
                raise AssertionError
            assert emb.save() != first
            assert next(iterator) is not None
            assert not torch.equal(before, everything(emb))
            assert optimizer.state_dict()["state"][0]["step"] == 1
            try:
                emb.load_state_dict(state)
            except errors.InvalidArgumentError as error:
                assert "refused while a loader trains" in str(error)
            else:
                raise AssertionError
        emb.load_state_dict(state)
        assert torch.equal(before, everything(emb))


def _by_hand(data: Any, path: Any, rank: int) -> None:
    with opened(path) as emb, loader_of(data, emb) as loader:
        iterator = iter(loader)
        next(iterator)
        with torch.no_grad():
            next(emb.tables()).zero_()
        next(iterator)


def _alone(data: Any, path: Any, rank: int) -> None:
    with opened(f"{path}-{rank}", share=None) as emb, loader_of(data, emb):
        pass


def _apart(data: Any, path: Any, rank: int) -> None:
    with opened(path) as emb, loader_of(data, emb, share=None):
        pass


def _sizes(data: Any, path: Any, rank: int) -> None:
    opened(path, num_embeddings=3).close()


def _missing(data: Any, path: Any, rank: int) -> None:
    nn.Embedding(f"{path}-missing", share="host").close()


def _state(data: Any, path: Any, rank: int) -> None:
    with opened(path) as emb, loader_of(data, emb):
        optim.SparseAdam(emb.tables())


def _differ(data: Any, path: Any, rank: int) -> None:
    with opened(f"{path}-a") as first, opened(f"{path}-b") as other, loader_of(data, other if rank else first):
        pass


USES: dict[str, Callable[[Any, Any, int], None]] = {
    "tokens": _tokens,
    "by hand": _by_hand,
    "alone": _alone,
    "apart": _apart,
    "sizes": _sizes,
    "missing": _missing,
    "state": _state,
    "differ": _differ,
}
