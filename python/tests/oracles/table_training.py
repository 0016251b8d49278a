"""A training of tables that learn over batches of nodes, and the same in memory with PyTorch's optimisers."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from freshgo import Loader, nn

DIM = 12
OPTIONS: dict[str, Any] = {"batch_size": 100, "shuffle": True, "seed": 3, "memory": "32MiB"}
OPTIMISERS: dict[str, dict[str, Any]] = {
    "SGD": {"lr": 0.1},
    "Adagrad": {"lr": 0.05, "initial_accumulator_value": 0.1},
    "SparseAdam": {"lr": 0.01},
}


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
    train(reference, Coalesced(optimizer, reference), batches, Sage(), **more)
    return reference.table.weight.detach()


class Coalesced:
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
