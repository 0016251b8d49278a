"""The caller's side of a training: it starts the executors, hands out what the schedule decides, and applies updates.

The caller's model and optimizer stay in its own process. Executors send gradients; an update is a step of that
optimizer, whose result is published for all of them.
"""

from __future__ import annotations

import contextlib
import copy
import mmap
import multiprocessing
import os
import pickle
import select
import socket
import time
from collections import Counter, deque
from typing import Any

import torch
from torch import nn

from freshgo._args import host
from freshgo._factored import executor
from freshgo._factored.executor import Graph, Made, Work
from freshgo._factored.parameters import Parameters
from freshgo._factored.schedule import Sample, Schedule, Task, Train
from freshgo._host import wire
from freshgo._native.options import LoaderOptions
from freshgo.errors import DTypeError, ExecutorError, FreshgoError

_SPANS = 20_000
"""Spans of work that are kept for the picture, the last ones."""

Span = tuple[int, str, float, float]
"""An executor, what it did, and from when to when, in seconds."""


class Job:
    """Executors that run. An error of one of them ends all."""

    def __init__(
        self,
        graph: Graph,
        step: Any,
        model: nn.Module,
        optimizer: torch.optim.Optimizer,
        schedule: Schedule,
        devices: list[str],
        training: range,
        packed: bool,
        memory: int,
    ) -> None:
        self.schedule = schedule
        schedule.away = set(range(schedule.executors))
        self._optimizer, self._memory, self._threads = optimizer, memory, int(graph.options["num_workers"])
        versions = schedule.staleness + 1
        slots = versions * schedule.per_update
        self._parameters = Parameters(model, versions, slots)
        threads = max(1, torch.get_num_threads() // schedule.executors)
        model_of_executors = copy.deepcopy(model).to("cpu")
        work = Work(graph, model_of_executors, step, devices, training, packed, versions, slots, threads)
        self._rooms: list[int | None] = []
        used = Counter(torch.device(devices[number]).index or 0 for number in training)
        self._most_on_device = max(used.values(), default=1)
        self._processes: list[Any] = []
        self._connections: list[socket.socket] = []
        self._fds: dict[int, int] = {}  # the memory of each sampler
        self._has_memory: set[tuple[int, int]] = set()  # pairs of an executor and a sampler whose memory it has
        self._made: dict[int, Made] = {}
        self._tasks: dict[int, Task] = {}
        self._present: dict[int, list[int]] = {}
        self._losses: dict[int, float] = {}
        self.began = time.monotonic()
        self.spans: deque[Span] = deque(maxlen=_SPANS)
        self.figures = {"queued_bytes": 0, "device_cache_rows": 0, "device_cache_bytes": 0}
        self._watch = select.poll()
        try:
            self._start(_pickled(work))
        except BaseException:
            self.close()
            raise

    def _start(self, work: bytes) -> None:
        # Forked from a process that has imported torch, and has neither the library nor threads: an executor does not
        # have to import it. The first to start such a process says what it imports, for the whole program.
        context = multiprocessing.get_context("forkserver")
        context.set_forkserver_preload([executor.__name__])
        for number in range(self.schedule.executors):
            ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            with theirs:
                self._connections.append(ours)
                process = context.Process(
                    target=executor.main, args=(theirs, number, work), daemon=True, name=f"freshgo-executor-{number}"
                )
                process.start()
                self._processes.append(process)
            self._watch.register(ours, select.POLLIN)
            self._send(number, ("parameters_at",), self._parameters.fd)

    def room(self) -> int:
        """Return the bytes that a cache of rows may take of each device, between epochs. The samplers' memory is free
        after this, until they make batches again."""
        self._rooms.clear()
        for number in range(len(self._connections)):
            self._send(number, ("room",))
        while len(self._rooms) < len(self._connections):
            self._receive_all()
        return min(room for room in self._rooms if room is not None) // self._most_on_device

    def hold(self, row_of_node: torch.Tensor, *, may_drop: bool) -> None:
        """Let the devices hold these rows, which batches leave out from now on. With ``may_drop`` those of a sampler
        bring them where its memory is too small to say where rows are."""
        fd = os.memfd_create("freshgo-held", os.MFD_CLOEXEC)
        try:
            os.ftruncate(fd, row_of_node.nbytes)
            torch.frombuffer(mmap.mmap(fd, 0), dtype=torch.int32).copy_(row_of_node)
            for number in range(len(self._connections)):
                self._send(number, ("hold", may_drop), fd)
        finally:
            os.close(fd)

    def epoch(self, epoch: int, first: int, end: int, seed: int) -> list[float]:
        """Train on the batches ``first`` to ``end`` of an epoch. Returns their losses."""
        schedule = self.schedule
        schedule.begin(first, end)
        self._parameters.publish(schedule.version)  # with what the caller has changed since the last epoch
        self._made.clear()
        self._losses.clear()
        while True:
            while (batches := schedule.update()) is not None:
                self._apply(batches)
            if schedule.finished:
                return [self._losses[number] for number in range(first, end)]
            for number, task in schedule.decide():
                self._order(number, task, epoch, seed)
            self._receive_all()

    def _order(self, number: int, task: Task, epoch: int, seed: int) -> None:
        self._tasks[number] = task
        if isinstance(task, Sample):
            self._send(number, ("sample", task, epoch, self._sampler_options()))
            return
        made = self._made.pop(task.number, None)  # None: the executor was given it with another one
        ahead = None if task.ahead is None else self._made.pop(task.ahead)
        for given in (made, ahead):
            if given is not None and (number, given.sampler) not in self._has_memory:
                self._send(number, ("memory_of", given.sampler), self._fds[given.sampler])
                self._has_memory.add((number, given.sampler))
        self._send(number, ("train", task, made, ahead, self.schedule.slot(task.number), (seed, epoch)))

    def _sampler_options(self) -> LoaderOptions:
        """What a sampler has of the loader's memory and of the cores."""
        samplers = self.schedule.samplers
        threads = min(self._threads, max(1, int(host.cores()) // samplers))
        return {"memory": self._memory // samplers, "num_workers": threads}

    def _apply(self, batches: range) -> None:
        slots = [self.schedule.slot(number) for number in batches]
        self._parameters.collect(slots, [self._present.pop(number) for number in batches])
        self._optimizer.step()
        self._parameters.publish(self.schedule.version)

    def _receive_all(self) -> None:
        """Wait for messages, and take one of each executor that has sent some."""
        numbers = {connection.fileno(): number for number, connection in enumerate(self._connections)}
        for fd, _ in self._watch.poll():
            self._receive(numbers[fd])

    def _receive(self, number: int) -> None:
        """Take one message of an executor."""
        try:
            message = wire.receive(self._connections[number])
        except OSError:
            message = None
        if message is None:
            raise self._lost(number)
        (what, *content), fd = message
        if what == "failed":
            error, trace = content
            raise error from ExecutorError(f"executor {number} failed:\n{trace}")
        if what == "ready":
            self.schedule.away.discard(number)
            return
        if what == "room":
            self._rooms.append(content[0])
            return
        if what == "memory":
            assert fd is not None, "it comes with the message"
            self._fds[number] = fd
            return
        task = self._tasks.pop(number)
        began, ended, *rest = content
        if what == "sampled":
            kind, self._made[task.number] = "sampling", rest[0]
            self.figures["queued_bytes"] += rest[0].n_bytes
            self.schedule.sampled(number, task.number, ended)
        else:
            kind = "standing in" if number < self.schedule.samplers else "training"
            self._losses[task.number], self._present[task.number] = rest
            self.schedule.trained(number, task.number, ended - began)
        self.spans.append((number, kind, began - self.began, ended - self.began))

    def _send(self, number: int, message: Any, fd: int | None = None) -> None:
        try:
            wire.send(self._connections[number], message, fd)
        except OSError:
            while True:  # it may have said why
                self._receive(number)

    def _lost(self, number: int) -> FreshgoError:
        process = self._processes[number]
        process.join(1)
        code, task = process.exitcode, self._tasks.get(number)
        how = f"was killed by signal {-code}" if code is not None and code < 0 else f"ended with {code}"
        if code == 1 and number in self.schedule.away:  # multiprocessing could not import the program
            return ExecutorError(
                f"executor {number} could not start, its error is above: a program that calls train() must do so under "
                "if __name__ == '__main__'"
            )
        kind = "training on" if isinstance(task, Train) else "making"
        doing = "idle" if task is None else f"{kind} batch {task.number}"
        return ExecutorError(
            f"executor {number} (process {process.pid}) {how} while it was {doing}; the model has the updates so far, "
            "and the loader is where they end: call train() again to go on"
        )

    def close(self) -> None:
        """End all executors."""
        for process in self._processes:
            process.kill()
        for process in self._processes:
            process.join()
            process.close()
        self._processes.clear()
        for connection in self._connections:
            connection.close()
        for fd in (*self._fds.values(), self._parameters.fd):
            with contextlib.suppress(OSError):
                os.close(fd)
        self._fds.clear()


def _pickled(work: Work) -> bytes:
    try:
        return pickle.dumps(work, protocol=pickle.HIGHEST_PROTOCOL)
    except Exception as error:
        raise DTypeError(
            "step, model and the loader's transform are sent to other processes, which must be able to import what "
            f"they are made of, so no lambda and no function within another: {error}"
        ) from error
