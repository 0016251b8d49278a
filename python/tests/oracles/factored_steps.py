"""What executors train in tests, and the plain loop that computes the same."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import torch
from torch import nn

from freshgo._factored.executor import drawn


class Net(nn.Module):
    """Two linear layers around a mean of neighbours, with random numbers and running statistics."""

    def __init__(self, width: int = 128) -> None:
        super().__init__()
        self.first, self.norm, self.last = nn.Linear(width, 16), nn.BatchNorm1d(16), nn.Linear(16, 3)
        self.unused = nn.Linear(2, 2)

    def forward(self, x: torch.Tensor, edge_index: torch.Tensor) -> torch.Tensor:
        h = torch.nn.functional.dropout(self.norm(self.first(x)).relu(), 0.3)
        source, target = edge_index
        return self.last(h.index_add(0, target, h[source]))


def loss(model: nn.Module, batch: Any) -> torch.Tensor:
    out = model(batch.x, batch.edge_index)[: batch.batch_size]
    return torch.nn.functional.cross_entropy(out, batch.t[: batch.batch_size] % 3)


def loss_of_links(model: nn.Module, batch: Any) -> torch.Tensor:
    source, target = model(batch.x, batch.edge_index)[batch.edge_label_index]
    return nn.functional.binary_cross_entropy_with_logits((source * target).sum(-1), batch.edge_label)


PAUSE = 60
"""Seconds that an executor sleeps after it has killed another."""


def killing(marker: Path, after: int, model: nn.Module, batch: Any) -> torch.Tensor:
    """As above; once the marker names a process, the step so many after kills it, and says when."""
    victim = marker.read_text() if marker.exists() else ""
    if victim:
        killing.calls = getattr(killing, "calls", 0) + 1  # type: ignore[attr-defined]
        if killing.calls > after:  # type: ignore[attr-defined]
            marker.with_suffix(".killed").write_text(str(time.monotonic()))
            os.kill(int(victim), signal.SIGKILL)
            time.sleep(PAUSE)  # what is left of the epoch waits for this
    return loss(model, batch)


class Clock(nn.Module):
    """With steps of SGD of length 1 it counts the updates, and how often each input node has come."""

    def __init__(self, nodes: int) -> None:
        super().__init__()
        self.updates, self.seen = nn.Parameter(torch.zeros(())), nn.Parameter(torch.zeros(nodes))


def tick(clock: Clock, batch: Any) -> torch.Tensor:
    time.sleep(0.005)  # so that others take batches meanwhile
    return -clock.updates - clock.seen[batch.input_id].sum()


def typed_loss(model: nn.Module, batch: Any) -> torch.Tensor:
    """Of a heterogeneous batch that has been transformed; it fails once the model says so."""
    if model.bias.abs().sum() > 100:
        raise LookupError("as it was told")
    return model(batch["sums"]).sum()


def summed(batch: Any) -> dict[str, torch.Tensor]:
    """The features of each node type, summed, and the edges of each edge type, counted."""
    sums = [batch[name].x.double().sum() for name in batch.node_types if "x" in batch[name]]
    counts = [sums[0].new_tensor(float(batch[name].edge_index.size(1))) for name in batch.edge_types]
    return {"sums": torch.stack([torch.stack(sums).sum(), torch.stack(counts).sum()]).float() / 1000}


def plain(
    step: Callable[[Any, Any], torch.Tensor],
    batches: Iterable[Any],
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    seed: int,
    epoch: int,
) -> list[float]:
    """An epoch in a loop."""
    losses = []
    for number, batch in enumerate(batches):
        torch.manual_seed(drawn(seed, epoch, number))
        optimizer.zero_grad()
        found = step(model, batch)
        found.backward()
        optimizer.step()
        losses.append(found.item())
    return losses
