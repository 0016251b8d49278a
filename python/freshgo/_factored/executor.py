"""A process that samples batches, trains on them, or does one after the other, as it is told.

What it samples stays in its shared memory until whoever trains on it has dropped the tensors. It ends with the process
that has started it.
"""

from __future__ import annotations

import hashlib
import math
import mmap
import os
import pickle
import select
import signal
import socket
import threading
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from freshgo._factored.parameters import Parameters
from freshgo._factored.receiver import OnDevice, Receiver, Sent, Unpacked
from freshgo._factored.schedule import Sample, Train
from freshgo._host import wire
from freshgo._host_loader.server import SPACE, open_native
from freshgo._loader.arrange import Assembler
from freshgo._loader.ranks import Share
from freshgo._native.loader import Loader as NativeLoader
from freshgo._native.loader import RawBatch
from freshgo._native.options import LoaderOptions
from freshgo._native.shared import Lent, Place, SharedBatches, SharedMapping, dtype_of
from freshgo._observe.log import LOG
from freshgo.errors import BudgetError, DTypeError


@dataclass(frozen=True)
class Graph:
    """What makes the batches of a loader in another process."""

    store: str
    uuid: str
    options: LoaderOptions
    assembler: Assembler


@dataclass(frozen=True)
class Work:
    """What all executors have in common."""

    graph: Graph
    model: nn.Module
    step: Callable[[nn.Module, Any], torch.Tensor]
    devices: list[str]
    training: range
    """Who may train."""
    packed: bool
    """Batches come packed, for CUDA devices."""
    versions: int
    slots: int
    threads: int
    """Of PyTorch, in each process."""


@dataclass(frozen=True)
class Made:
    """A batch in the memory of a sampler."""

    sampler: int
    num_seeds: int
    places: list[Place]

    @property
    def n_bytes(self) -> int:
        """The bytes of its tensors."""
        return sum(math.prod(place.shape) * dtype_of(place.dtype).itemsize for place in self.places)


class Executor:
    """The answers of a process to what it is told."""

    def __init__(self, connection: socket.socket, number: int, work: Work) -> None:
        self._connection, self._number, self._work = connection, number, work
        graph, trains = work.graph, number in work.training
        device = torch.device(work.devices[number] if trains else "cpu")  # which a device's memory is not spent on
        self._receiver: Receiver = (
            Unpacked(graph.assembler, device, graph.store, graph.uuid)
            if work.packed and trains
            else OnDevice(graph.assembler, device)
        )
        self._model = work.model.to(self._receiver.device)
        self._parameters: Parameters | None = None
        self._memory: SharedBatches | None = None
        self._native: NativeLoader | None = None
        self._opened: LoaderOptions = {}  # with this part of the memory and the threads
        self._held: torch.Tensor | None = None  # the rows that devices hold, by node
        self._may_drop = False  # batches may bring these rows if memory is too small
        self._part: Any = None  # the epoch, the first batch and the share of the batches that come next
        self._sent: Lent
        self._mappings: dict[int, SharedMapping] = {}
        self._ahead: dict[int, Sent] = {}  # batches that were sent to the device while another one was trained

    def run(self) -> None:
        """Do as told until the other end is gone."""
        wire.send(self._connection, ("ready",))
        while (message := wire.receive(self._connection)) is not None:
            (what, *arguments), fd = message
            answer = getattr(self, f"_{what}")(*arguments, *(() if fd is None else (fd,)))
            if answer is not None:
                wire.send(self._connection, answer)

    def _parameters_at(self, fd: int) -> None:
        self._parameters = Parameters(self._model, self._work.versions, self._work.slots, fd)
        os.close(fd)

    def _memory_of(self, sampler: int, fd: int) -> None:
        self._mappings[sampler] = SharedMapping(fd)
        os.close(fd)

    def _room(self) -> tuple[Any, ...]:
        self._close()  # its memory is for ranking the rows
        return "room", self._receiver.room()

    def _hold(self, may_drop: bool, fd: int) -> None:
        self._held = torch.frombuffer(mmap.mmap(fd, 0), dtype=torch.int32)
        os.close(fd)
        self._may_drop = may_drop
        assert self._native is None, "_room() has closed it"
        self._share()  # before there is a loader that reads the rows
        self._receiver.hold(self._held)

    def _sample(self, task: Sample, epoch: int, of_all: LoaderOptions) -> tuple[Any, ...]:
        began = time.monotonic()
        self._share()  # before there is a loader
        self._sent.settle()
        native = self._loader(of_all)
        part = epoch, task.first, task.rank, task.of
        if self._part != part:
            native.take(Share(task.rank, task.of, "join").members())
            native.start(epoch, task.first)
            self._part = part
        raw = native.next()
        assert raw is not None, "the schedule knows how many batches there are"
        return "sampled", began, time.monotonic(), Made(self._number, raw.num_seeds, self._sent.send(raw.tensors))

    def _share(self) -> None:
        if self._memory is None:
            self._memory = SharedBatches(SPACE)
            self._sent = Lent(self._memory)
            wire.send(self._connection, ("memory",), self._memory.fd)

    def _loader(self, of_all: LoaderOptions) -> NativeLoader:
        if self._opened != of_all:
            self._close()
        if self._native is None:
            try:
                self._native = self._open({**of_all, "held": self._held})
            except BudgetError as error:
                if self._held is None or not self._may_drop:
                    raise
                LOG.info("batches bring all their rows: %s", error)
                self._native = self._open(of_all)
            self._opened = of_all
        return self._native

    def _open(self, options: LoaderOptions) -> NativeLoader:
        graph = self._work.graph
        return open_native(graph.store, graph.uuid, {**graph.options, **options})

    def _close(self) -> None:
        if self._native is not None:
            self._native.close()
            self._native = self._part = None

    def _train(
        self, task: Train, made: Made | None, ahead: Made | None, slot: int, seed: tuple[int, int]
    ) -> tuple[Any, ...]:
        assert self._parameters is not None, "they are sent first"
        began = time.monotonic()
        self._parameters.fetch(task.version)
        torch.manual_seed(drawn(*seed, task.number))
        batch = self._receiver.batch(self._ahead.pop(task.number) if made is None else self._send(made))
        self._model.zero_grad(set_to_none=True)
        loss = self._work.step(self._model, batch)
        if not isinstance(loss, torch.Tensor) or loss.numel() != 1:
            raise DTypeError(f"step must return the loss, a tensor of one number, got {loss!r}")
        loss.backward()  # type: ignore[no-untyped-call]
        if task.ahead is not None and ahead is not None:
            self._ahead[task.ahead] = self._send(ahead)  # while the device computes: deposit() waits for it
        present = self._parameters.deposit(slot)
        number = loss.item()
        self._receiver.settle()
        return "trained", began, time.monotonic(), number, present

    def _send(self, made: Made) -> Sent:
        return self._receiver.send(RawBatch(0, made.num_seeds, self._mappings[made.sampler].tensors(made.places)))


def drawn(*of: int) -> int:
    """The seed of what PyTorch draws in a step: it depends on the batch, and not on who trains it."""
    return int.from_bytes(hashlib.blake2b(repr(of).encode(), digest_size=7).digest(), "little")


def main(connection: socket.socket, number: int, pickled: bytes) -> None:
    """Be an executor, in a process of its own."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # who has started this answers it
    threading.Thread(target=_end_with, args=(connection,), daemon=True).start()
    try:
        try:
            work: Work = pickle.loads(pickled)
            torch.set_num_threads(work.threads)
            Executor(connection, number, work).run()
        except (BrokenPipeError, ConnectionResetError):
            pass
        except Exception as error:
            told = traceback.format_exc()
            try:
                pickle.loads(pickle.dumps(error))
            except Exception:  # of a class that others cannot make
                error = RuntimeError(f"{type(error).__name__}: {error}")
            wire.send(connection, ("failed", error, told))
    finally:
        os._exit(0)  # and free nothing: tensors that others have lie in memory that they still map


def _end_with(connection: socket.socket) -> None:
    """End the process when the other end is gone, whatever it does then."""
    watch = select.poll()
    watch.register(connection, select.POLLRDHUP | select.POLLHUP)
    watch.poll()
    os._exit(0)
