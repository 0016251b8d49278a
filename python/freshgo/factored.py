"""Training in which some processes sample and others train (FGNN, 5 and 6)."""

from __future__ import annotations

import copy
import dataclasses
import math
import os
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

import torch

from freshgo._args import checks, host
from freshgo._args.entry import entry
from freshgo._args.size import format_size, least_size
from freshgo._data.narrow import Delivered
from freshgo._data.source import StoreSource
from freshgo._device import row_cache
from freshgo._device.delivery import packed
from freshgo._factored.executor import Graph
from freshgo._factored.held_rows import HeldRows
from freshgo._factored.job import Job, Span
from freshgo._factored.schedule import Schedule
from freshgo._loader.asked import device_cache_of
from freshgo._loader.engine import Engine, engine_of
from freshgo._plots.executors import figure
from freshgo.errors import BudgetError, DTypeError, InvalidArgumentError
from freshgo.loader import Loader
from freshgo.memory import MemoryBudget

__all__ = ["Training", "train"]


class Training:
    """What :func:`train` did.

    Attributes:
        epoch: the epoch that was trained last.
        losses: its losses, in the order of its batches.
    """

    def __init__(self, schedule: Schedule, spans: deque[Span], figures: Mapping[str, int]) -> None:
        self._schedule, self._spans, self._figures = schedule, spans, figures
        self.epoch = -1
        self.losses: list[float] = []

    def stats(self) -> dict[str, Any]:
        """Return what was decided, and from what.

        - ``"executors"``, ``"samplers"``, ``"trainers"``; ``"measuring"``: whether their numbers are still to be
          chosen.
        - ``"sampling_seconds"`` (T_s) and ``"training_seconds"`` (T_t) of one batch, their ``"ratio"`` (K), and
          ``"standby_seconds"`` (T_t'), by executor, of one that stands in; None where nothing was measured.
        - ``"switches"``: how often a sampler began to stand in as a trainer. ``"last_switches"``: the last thousand,
          each ``"executor"``, ``"number"`` (of the batch), ``"queued"`` (M_r) and ``"profit"`` (P, seconds).
        - ``"sampled_by"`` and ``"trained_by"``: batches by executor. ``"updates"``: steps of the optimizer.
        - ``"staleness"``: the ``"bound"``, and how many ``"batches"`` were computed with parameters that were 0, 1, ...
          updates old.
        - ``"queued_bytes"``: of all batches that samplers have made. ``"device_cache_rows"`` and
          ``"device_cache_bytes"``: what each device holds.
        """
        return {**self._schedule.stats(), **self._figures}

    def plot(self) -> Any:
        """Return a matplotlib figure of what each executor did when."""
        return figure(list(self._spans), self.stats())

    def __repr__(self) -> str:
        stats = self.stats()
        return (
            f"Training({stats['updates']:,} updates, {stats['samplers']} of {stats['executors']} executors sample, "
            f"{stats['switches']:,} switches)"
        )


@entry
def train(
    step: Callable[[Any, Any], torch.Tensor],
    loader: Loader[Any],
    model: torch.nn.Module,
    optimizer: torch.optim.Optimizer,
    *,
    executors: int,
    roles: Literal["auto"] | Mapping[str, int] = "auto",
    epochs: int = 1,
    staleness: int = 0,
    batches_per_update: int | None = None,
    queue: int | None = None,
    switching: bool = True,
    devices: Sequence[str | torch.device] | None = None,
    device_cache: int | str | None = "auto",
    after_epoch: Callable[[Training], None] | None = None,
) -> Training:
    """Train a model with processes that sample and processes that train (FGNN, 5).

    Samplers make the loader's batches, which trainers take through shared memory, each batch once. A sampler that has
    nothing to do stands in as a trainer where that is faster. Gradients come together in this process, where the
    optimizer makes one step of the mean of ``batches_per_update`` of them, in the order of the batches.

        def step(model, batch):
            out = model(batch.x, batch.edge_index)[: batch.batch_size]
            return F.cross_entropy(out, batch.y[: batch.batch_size])

        if __name__ == "__main__":
            freshgo.factored.train(step, loader, model, optimizer, executors=4, epochs=10)

    With ``staleness=0`` the result does not depend on executors, roles and switches: it is, to the bit, that of one
    process that computes the same steps. Before each step PyTorch's generators are seeded by the loader's ``seed``, the
    epoch and the batch.

    ``model`` and ``optimizer`` stay in this process and have the result, also after an error. The loader continues
    where the updates end, so the same call, or a loop of your own, goes on from there; its ``state_dict`` may be saved
    in ``after_epoch``. While this runs the loader holds no memory.

    Executors are started by Python's ``forkserver``: ``step``, ``model`` and the loader's ``transform`` must be
    importable, and a program calls this under ``if __name__ == "__main__"``. They end with this call, or with this
    process. Each has its part of the threads of PyTorch. A sampler has ``num_workers`` threads as the loader, but all
    of them together have no more than there are cores.

    Args:
        step: called with a copy of the model and a batch, on its device, in an executor; returns the loss, a tensor of
            one number.
        loader: a loader of a store, whose next epochs are trained. Its ``memory`` is divided among the samplers; the
            batches that wait come on top. Not with ``history``, ``embeddings``, ``reorder``, ``device``,
            ``pin_memory``, ``transform_workers``, ``share``, ``features``, a :class:`MemoryBudget`, or several ranks.
        model: its parameters and buffers are trained. Gradients must not be sparse. Buffers are those of the first
            batch of an update, as in DistributedDataParallel.
        optimizer: of the parameters of ``model``. What clips gradients or changes the rate of learning is a hook of its
            step.
        executors: how many processes.
        roles: ``{"samplers": n, "trainers": m}``, together ``executors``. ``"auto"``: one samples until the times T_s
            to make a batch and T_t to train on it are measured, then ``ceil(executors / (T_t / T_s + 1))`` do, or all
            of them where updates are synchronous, have a batch for each and samplers are switching, as far as
            ``memory`` suffices and cores for their threads: with ``num_workers=0`` those of one sampler are on all
            cores already. Without trainers, samplers alternate.
        epochs: how many epochs.
        staleness: by how many updates the parameters that a gradient is computed with may be older than those that it
            changes. 0 is synchronous training.
        batches_per_update: batches whose gradients make one update. None: ``executors``, which is the update of
            DistributedDataParallel with as many ranks. Unless a batch may be stale, at most this many are trained at
            the same time. The last update of an epoch may have fewer.
        queue: at least 2; batches that may wait for a trainer. None: twice as many as executors, at least 8.
        switching: whether samplers stand in as trainers.
        devices: the device of each executor, such as ``["cuda:0", "cuda:1"]``. None: the CPU. If all executors that may
            train have CUDA devices, batches come packed, and are unpacked there; with ``staleness=0`` a trainer's next
            batch is sent while its device computes.
        device_cache: the bytes of the hottest rows that each of these devices holds, as ``device_cache`` of a
            :class:`Loader`. Batches leave these rows out, and the device puts them in. ``"auto"``: once an epoch of at
            least 8 batches is trained, half of what the device with the least free memory has, less a thirty-second of
            the device. None: no cache.
        after_epoch: called after each epoch in this process.

    Returns:
        The epochs' losses and times, and a picture.

    Raises:
        InvalidArgumentError, DTypeError: an argument is invalid, or cannot be sent to another process.
        BudgetError: the loader's memory is too small for this number of samplers; ``minimum`` works.
        ExecutorError: an executor was killed. What ``step`` raises is raised here, from an error with its traceback.
    """
    graph = _checked(step, loader, model, optimizer)
    count = checks.count("executors", executors, 1, 4096)
    bound, updates = checks.count("staleness", staleness, 0), checks.count("epochs", epochs, 1)
    together = count if batches_per_update is None else checks.count("batches_per_update", batches_per_update, 1)
    waiting = max(8, 2 * count) if queue is None else checks.count("queue", queue, 2)
    memory, smallest = int(graph.options["memory"]), int(loader.stats()["memory_smallest"])
    samplers = _samplers(roles, count)
    if samplers is not None and samplers * smallest > memory:
        raise BudgetError(
            f"memory={format_size(memory)} is too small for {samplers} samplers: they need at least "
            f"{least_size(samplers * smallest)}",
            samplers * smallest,
        )
    served = math.ceil(host.cores() / int(graph.options["num_workers"]))
    switches = checks.flag("switching", switching)
    if not switches and count in (1, samplers):
        raise InvalidArgumentError("without trainers the samplers must be switching, got switching=False")
    if after_epoch is not None and not callable(after_epoch):
        raise DTypeError(f"after_epoch must be callable, got {checks.shown(after_epoch)}")
    places = _devices(devices, count)
    may_train = range(0 if switches or samplers is None else samplers, count)
    packs = all(torch.device(places[number]).type == "cuda" for number in may_train)
    schedule = Schedule(
        count,
        samplers,
        queue=waiting,
        staleness=bound,
        per_update=together,
        switching=switches,
        most_samplers=max(1, min(memory // max(1, smallest), served, count if switches else count - 1)),
        ahead=packs,
    )
    engine = engine_of(loader)
    rows = HeldRows(engine.source, engine.request, _cache_size(device_cache, engine, packs))
    if packs:
        graph = _packed(graph, engine)
    epoch, done, end = engine.hand_out()
    held = rows.given()
    job = Job(graph, step, model, optimizer, schedule, places, may_train, packs, memory)
    training = Training(schedule, job.spans, job.figures)
    try:
        if held is not None:
            job.hold(held, may_drop=False)
            job.figures |= rows.figures(held)
        for left in reversed(range(updates)):
            try:
                training.losses = job.epoch(epoch, done, end, int(graph.options["seed"]))
            finally:
                engine.seek(*((epoch + 1, 0) if schedule.finished else (epoch, schedule.done)))
            training.epoch = epoch
            if after_epoch is not None:
                after_epoch(training)
            if left:
                epoch, done, end = engine.hand_out()
                if rows.due(sum(schedule.trained_by)) and (held := rows.fitted(job.room())) is not None:
                    job.hold(held, may_drop=True)
                    job.figures |= rows.figures(held)
    finally:
        job.close()
    return training


def _checked(step: object, loader: Loader[Any], model: object, optimizer: object) -> Graph:
    """Check what is trained, and return what makes its batches in other processes."""
    if not callable(step):
        raise DTypeError(f"step must be callable, got {checks.shown(step)}")
    if not isinstance(loader, Loader):
        raise DTypeError(f"loader must be a freshgo.Loader, got {type(loader).__name__}")
    if not isinstance(model, torch.nn.Module):
        raise DTypeError(f"model must be a torch.nn.Module, got {type(model).__name__}")
    if not isinstance(optimizer, torch.optim.Optimizer):
        raise DTypeError(f"optimizer must be a torch.optim.Optimizer, got {type(optimizer).__name__}")
    engine = engine_of(loader)
    asked, source = engine.request.asked, engine.source
    if not isinstance(source, StoreSource):
        raise InvalidArgumentError("factored training needs a store, which every sampler opens: convert() the graph")
    here = {
        "history": asked.history is not None,
        "embeddings": bool(asked.embeddings),
        "reorder": engine.options["reorder"] != 0,
        "device: give train() devices": asked.device is not None,
        "pin_memory": asked.pin_memory,
        "transform_workers": asked.transform_workers > 0,
        "share": asked.ranks.share is not None,
        "features": asked.ranks.features is not None,
        "a MemoryBudget": isinstance(asked.memory, MemoryBudget),
        "rank and world_size": asked.ranks.rank is not None,
        "several ranks": asked.member.shared(),
    }
    for what, given in here.items():
        if given:
            raise InvalidArgumentError(f"factored training cannot be used with a loader with {what}")
    path = os.path.abspath(source.store.path)  # noqa: PTH100 (which resolves no links)
    return Graph(path, source.store.uuid, engine.options, engine.assembler)


def _cache_size(given: object, engine: Engine, packs: bool) -> int | Literal["auto"] | None:
    """Return the bytes of the rows that each device holds. ``packs``: all that may train have CUDA devices."""
    size, pad = device_cache_of(given), engine.options["pad"]
    if size == "auto":
        return "auto" if packs and not pad and row_cache.obstacle(engine.source) is None else None
    if size is not None and not packs:
        raise InvalidArgumentError(
            f"device_cache={given!r} needs devices= with a CUDA device for every executor that may train; samplers do "
            "unless switching=False"
        )
    if size is not None and pad:
        raise InvalidArgumentError("pad=True of the loader and device_cache cannot be used together: give one of them")
    return size


def _packed(graph: Graph, engine: Engine) -> Graph:
    """Let batches come packed, and be widened where they are unpacked."""
    options, source = packed(graph.options, narrow=bool(engine.source.narrow)), engine.source
    assembler = copy.copy(graph.assembler)
    assembler.narrow = Delivered(source.narrow, engine.request.options["feature_dtype"], options["feature_dtype"])
    return dataclasses.replace(graph, options=options, assembler=assembler)


def _samplers(roles: object, executors: int) -> int | None:
    """Return how many are to sample; None: as is measured."""
    if isinstance(roles, str) and roles == "auto":
        return None
    if not isinstance(roles, Mapping) or set(roles) != {"samplers", "trainers"}:
        raise InvalidArgumentError(
            f"roles must be 'auto' or a dict of 'samplers' and 'trainers', got {checks.shown(roles)}"
        )
    samplers = checks.count("roles['samplers']", roles["samplers"], 1)
    trainers = checks.count("roles['trainers']", roles["trainers"], 0)
    if samplers + trainers != executors:
        raise InvalidArgumentError(
            f"roles must add up to executors={executors}, got {samplers} samplers and {trainers} trainers"
        )
    return samplers


def _devices(devices: object, executors: int) -> list[str]:
    """Return the names of the devices of the executors."""
    if devices is None:
        return ["cpu"] * executors
    if isinstance(devices, str) or not isinstance(devices, Sequence):
        raise DTypeError(f"devices must be a list of devices, got {checks.shown(devices)}")
    if len(devices) != executors:
        raise InvalidArgumentError(f"devices must have one for each of {executors} executors, got {len(devices)}")
    for device in devices:
        if not isinstance(device, str | torch.device):
            raise DTypeError(f"devices must be names of devices or torch.device objects, got {checks.shown(device)}")
        try:
            of = torch.device(device)
        except RuntimeError as error:
            raise InvalidArgumentError(f"devices has {device!r}, expected a device that torch has: {error}") from None
        if of.type == "cuda" and (of.index or 0) >= (have := torch.cuda.device_count()):
            raise InvalidArgumentError(f"devices has {str(device)!r}, but torch finds {have} CUDA devices")
    return [str(device) for device in devices]
