"""What the epochs of these benchmarks have in common: the graph, the models, and the steps over batches.

Three layers of 256, batches of 1024, [15, 10, 5], 128 float32 features, a million nodes. Without a GPU everything is small.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
import torch_geometric.nn as pyg
from measure import Journal, Meter
from torch_geometric.data import Data

from freshgo.nn import record

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import skewed

journal, meter = Journal(), Meter()
NODES, EDGES, BATCHES, BATCH = (1_000_000, 15_000_000, 60, 1024) if meter.real else (2000, 12_000, 3, 64)
COLUMNS, CLASSES = 128, 40
ROW = COLUMNS * 4
WIDTH = 256 if meter.real else 16
MODELS: dict[str, Callable[..., torch.nn.Module]] = {
    "SAGE": lambda columns=COLUMNS: pyg.GraphSAGE(columns, WIDTH, num_layers=3, out_channels=CLASSES),
    "GCN": lambda columns=COLUMNS: pyg.GCN(columns, WIDTH, num_layers=3, out_channels=CLASSES),
    "GAT": lambda columns=COLUMNS: pyg.GAT(columns, WIDTH, num_layers=3, out_channels=CLASSES, heads=4),
}
Step = Callable[[Any], Any]


def make() -> Data:
    generator = torch.Generator().manual_seed(0)
    return Data(
        x=torch.randn(NODES, COLUMNS, generator=generator),
        y=torch.randint(CLASSES, (NODES,), generator=generator),
        edge_index=skewed.edges(NODES, EDGES, generator),
    )


def options() -> dict[str, Any]:
    seeds = torch.randperm(NODES, generator=torch.Generator().manual_seed(1))[: BATCHES * BATCH]
    return {"num_neighbors": [15, 10, 5], "input_nodes": seeds, "batch_size": BATCH, "shuffle": True}


def device() -> dict[str, str]:
    return {"device": "cuda"} if meter.real else {}


def loss(model: torch.nn.Module, batch: Any) -> torch.Tensor:
    """Cross-entropy of the seeds, by layers that are trimmed where a batch counts its hops."""
    hops = {}
    if "num_sampled_nodes" in batch:
        hops = {
            "num_sampled_nodes_per_hop": batch.num_sampled_nodes,
            "num_sampled_edges_per_hop": batch.num_sampled_edges,
        }
    out = model(batch.x.float(), batch.edge_index, **hops)[: batch.batch_size]
    return F.cross_entropy(out, batch.y[: batch.batch_size])


def stepper(model: torch.nn.Module, recorded: bool = False) -> Step:
    """A step of training with Adam. A rehearsal records nothing."""
    if recorded and meter.real:
        return record(model, loss, torch.optim.Adam(model.parameters(), 1e-3, capturable=True))
    optimizer = torch.optim.Adam(model.parameters(), 1e-3)

    def step(batch: Any) -> None:
        optimizer.zero_grad(set_to_none=True)
        loss(model, batch).backward()
        optimizer.step()

    return step


def epoch(step: Step, batches: Iterable[Any]) -> float:
    """Seconds of a step over each batch."""
    meter.finish()
    begin = time.perf_counter()
    for batch in batches:
        step(batch)
    meter.finish()
    return time.perf_counter() - begin


def in_turns(runs: dict[str, tuple[Step, Iterable[Any]]], rounds: int = 2) -> dict[str, float]:
    """Median seconds of an epoch of each contestant, a step and its batches. They take turns, once to warm up."""
    seconds: dict[str, list[float]] = {contestant: [] for contestant in runs}
    for _ in range(1 + rounds):
        for contestant, (step, batches) in runs.items():
            seconds[contestant].append(epoch(step, batches))
    return {contestant: statistics.median(times[1:]) for contestant, times in seconds.items()}
