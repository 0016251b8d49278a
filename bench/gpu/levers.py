"""Where the milliseconds of an epoch go, with each option of the loader alone and with all of them.

    FRESHGO_JOURNAL=FILE python bench/gpu/levers.py

Each line has the milliseconds of a batch: of an epoch; of the loader alone, whose loop computes nothing; and of the same
steps over batches that stay on the device, with the loader closed. What an epoch takes beyond these steps, the loop waits.
"""

from __future__ import annotations

import copy
import itertools
import statistics
from dataclasses import dataclass, field
from typing import Any

import torch
from measure import limits
from torch_geometric.data import Data
from training import BATCHES, COLUMNS, MODELS, NODES, ROW, Step, device, epoch, journal, make, meter, options, stepper

from freshgo import Device, History, Loader, propagate
from freshgo.nn import accelerate, precomputed

ROUNDS = 3
RESIDENT = 8
"""Batches that stay on the device."""


@dataclass(frozen=True)
class Lever:
    """One way to make an epoch of GraphSAGE shorter."""

    loader: dict[str, Any] = field(default_factory=dict)
    recorded: bool = False
    first_layer: bool = False
    half: bool = False
    history: bool = False


TENTH, AUTO = (NODES * ROW // 10, "auto") if meter.real else (None, None)
DRAWN: dict[str, Any] = {"device": Device("cuda", sample_on="device", lists_on="device")} if meter.real else {}
ON_HOST: dict[str, Any] = {"device": Device("cuda", sample_on="device", lists_on="host")} if meter.real else {}
LEVERS = {
    "no option": Lever(),
    "transpose": Lever({"transpose": True}),
    "pad": Lever({"transpose": True, "pad": True}),
    "recorded steps": Lever({"transpose": True, "pad": True}, recorded=True),
    "first layer precomputed": Lever({"transpose": True}, first_layer=True),
    "float16 rows": Lever({"transpose": True}, half=True),
    "device cache of a tenth": Lever({"transpose": True, "device_cache": TENTH}),
    "device cache by default": Lever({"transpose": True, "device_cache": AUTO}),
    "drawn by the device": Lever({"transpose": True, **DRAWN}),
    "drawn from lists on the host": Lever({"transpose": True, **ON_HOST}),
    "history": Lever({"transpose": True}, history=True),
    "all that go together": Lever({"transpose": True, "pad": True}, recorded=True, first_layer=True, half=True),
}


def graph(data: Data, lever: Lever) -> Data:
    if lever.half:
        data = copy.copy(data)
        data.x = data.x.half()
    if lever.first_layer:
        data = propagate(data, "x", progress=False)
    return data


def loader_options(lever: Lever) -> dict[str, Any]:
    more = options() | device() | {"device_cache": None} | lever.loader
    if lever.first_layer:
        more |= {"num_neighbors": more["num_neighbors"][:-1], "first_layer": "mean"}
    return more


def prepare(lever: Lever) -> tuple[Step, History | None]:
    model = MODELS["SAGE"](COLUMNS).to(meter.device)
    if lever.first_layer:
        precomputed(model)
    history = History(device=meter.device) if lever.history else None
    if history is not None:
        history.attach(model)
        step, update = stepper(model), history.update

        def with_history(batch: Any) -> None:
            step(batch)
            update()

        return with_history, history
    accelerate(model)
    return stepper(model, lever.recorded), None


def measure(name: str, lever: Lever, data: Data, bus: float) -> float:
    """Journal one lever. Returns the seconds of its epoch."""
    step, history = prepare(lever)
    more = {"history": history} if history is not None else {}
    if meter.real:
        torch.cuda.reset_peak_memory_stats()
    with Loader(graph(data, lever), **loader_options(lever), **more) as loader:
        epoch(step, loader)  # the first one warms up
        epochs = statistics.median(epoch(step, loader) for _ in range(ROUNDS))
        stats = loader.stats()
        held, rows = stats.get("held", 0), max(stats["rows"], 1)
        alone = resident = 0.0
        if history is None:  # whose update belongs to the batch before the next one
            alone = statistics.median(epoch(lambda _: None, loader) for _ in range(ROUNDS))
            kept = list(itertools.islice(loader, RESIDENT))
    if history is None:
        epoch(step, kept)
        resident = statistics.median(epoch(step, kept) for _ in range(ROUNDS)) * BATCHES / len(kept)
    taken = {"epoch": epochs, "loader alone": alone, "resident batches": resident}
    found: dict[str, Any] = {name: round(seconds * 1e3 / BATCHES, 2) for name, seconds in taken.items() if seconds > 0}
    if meter.real:
        found["peak_gb"] = round(torch.cuda.max_memory_allocated() / 1e9, 2)
    if history is None and bus > 0:
        copying = (rows - held) / rows * epoch_bytes(stats, lever) / bus
        found["copies hidden"] = round(1 - max(0.0, epochs - resident) / copying, 3)
        if name == "transpose":
            journal.goal("copies hidden", 0.95, found["copies hidden"])
    journal.write(lever=name, **found)
    return epochs


def epoch_bytes(stats: dict[str, Any], lever: Lever) -> float:
    """Bytes of the rows of an epoch, whose loader has counted them in all its epochs."""
    a_batch = stats["rows"] / max(stats["batches"], 1)
    return a_batch * BATCHES * ROW * (2 if lever.first_layer else 1) / (2 if lever.half else 1)


def main() -> None:
    bus = limits(meter, journal)["from locked memory"]
    data = make()
    taken: dict[str, float] = {}
    for name, lever in LEVERS.items():
        seconds = journal.attempt(name, lambda name=name, lever=lever: measure(name, lever, data, bus), 40)
        if seconds is not None:
            taken[name] = seconds
    if "transpose" in taken:
        shortest = min(taken, key=lambda name: taken[name])
        journal.write(contest="epoch of SAGE by option", graph=f"{BATCHES} batches in memory",
                      ms={name: round(seconds * 1e3, 1) for name, seconds in taken.items()},
                      ratio={name: round(seconds / taken["transpose"], 2) for name, seconds in taken.items()},
                      shortest=shortest)  # fmt: skip
        journal.goal("epoch of SAGE, seconds", 0.20, taken["transpose"], most=True)
        if "all that go together" in taken:
            journal.goal(
                "epoch of SAGE, recorded and precomputed, seconds", 0.12, taken["all that go together"], most=True
            )


if __name__ == "__main__":
    main()
