"""Who samples, who trains, and when a sampler stands in as a trainer (FGNN, 5.3).

The schedule is told what has happened and says what to do next. It has no clock and starts nothing, so that a test can
drive it through any order of events.

Samplers 0 to n - 1 divide the batches in turn: a planned cache must know its batches ahead. Trainers take whatever is
ready, the lowest number first. A batch may be made while fewer than ``queue`` batches before it wait for a trainer, and
trained once the parameters are at most ``staleness`` updates older than those that its update is applied to. A trainer
with a device gets the batch after its present one ahead, if nobody may train that one yet.
"""

from __future__ import annotations

import math
from collections import deque
from dataclasses import asdict, dataclass
from typing import Any

_ENOUGH = 4
"""Batches after which the time for one is taken as known. The first step of a process is slow and does not count."""

_KEPT = 1000
"""The last switches, whose reasons are kept."""


@dataclass(frozen=True)
class Sample:
    """Make a batch: of those from ``first`` on, the sampler makes every ``of``-th from the ``rank``-th on."""

    number: int
    first: int
    rank: int
    of: int


@dataclass(frozen=True)
class Train:
    """Compute the gradient of a batch, with the parameters after ``version`` updates."""

    number: int
    version: int
    ahead: int | None = None
    """A batch of a later update that the executor receives with this one. No other executor trains it."""


Task = Sample | Train


@dataclass(frozen=True)
class Switch:
    """A sampler that began to stand in as a trainer."""

    executor: int
    number: int
    """The batch that it took."""
    queued: int
    """M_r: the batches that waited for a trainer."""
    profit: float
    """P in seconds; infinite where there is no trainer."""


@dataclass
class _Mean:
    total: float = 0.0
    count: int = 0

    def add(self, seconds: float) -> None:
        self.total += seconds
        self.count += 1

    @property
    def value(self) -> float | None:
        return self.total / self.count if self.count else None


class Schedule:
    """The tasks of executors over epochs. ``samplers`` is how many of them sample; None: as the first batches say, one
    until then, and at most ``most_samplers``."""

    def __init__(
        self,
        executors: int,
        samplers: int | None,
        *,
        queue: int,
        staleness: int,
        per_update: int,
        switching: bool = True,
        most_samplers: int | None = None,
        ahead: bool = False,
    ) -> None:
        self.executors, self.queue, self.staleness, self.per_update = executors, queue, staleness, per_update
        self.switching = switching
        self.ahead = ahead and staleness == 0  # stale updates leave few batches that nobody may train yet
        self.most_samplers = executors if most_samplers is None else min(executors, most_samplers)
        self.measuring = samplers is None and self.most_samplers > 1
        self.samplers = samplers or 1
        self.away: set[int] = set()
        """Executors that get nothing to do, because they are still starting."""
        self.version = 0
        """Updates that were applied."""
        self.num_switches = 0
        self.switches: deque[Switch] = deque(maxlen=_KEPT)
        """The last of them."""
        self.stale = [0] * (staleness + 1)
        """The number of batches by the age of their parameters, in updates."""
        self.made, self.trained_by = [0] * executors, [0] * executors
        self._sampling = _Mean()
        self._training = _Mean()  # of those that are trainers
        self._standby = [_Mean() for _ in range(executors)]
        self._warm: set[int] = set()  # who has trained a batch
        self._running: dict[int, Task] = {}
        self._previous: dict[int, Task] = {}
        self.begin(0, 0)

    def begin(self, first: int, end: int) -> None:
        """Begin an epoch of the batches ``first`` to ``end``, once the one before is done."""
        self._first, self._end, self._base = first, end, self.version
        self._first_waiting = first  # that no trainer has taken
        self._ready: set[int] = set()
        self._taken: set[int] = set()  # above the lowest
        self._ahead: dict[int, int] = {}  # the batch that an executor has, and has not begun
        self._computed: set[int] = set()  # whose gradients are in no update yet
        self._divide(first)

    @property
    def done(self) -> int:
        """The number of the batch after the last one that is part of the parameters."""
        return min(self._end, self._first + (self.version - self._base) * self.per_update)

    @property
    def finished(self) -> bool:
        """Whether the epoch is over."""
        return self.done == self._end

    @property
    def sampling_seconds(self) -> float | None:
        """T_s; None: not known yet."""
        return self._sampling.value

    @property
    def training_seconds(self) -> float | None:
        """T_t, of the trainers, or where there is none of those who stand in; None: not known yet."""
        if self._training.count or self.samplers < self.executors:
            return self._training.value
        known = [mean.value for mean in self._standby if mean.value is not None]
        return sum(known) / len(known) if known else None

    @property
    def ratio(self) -> float | None:
        """K = T_t / T_s; None: not known yet."""
        training, sampling = self.training_seconds, self.sampling_seconds
        return None if training is None or not sampling else training / sampling

    def slot(self, number: int) -> int:
        """Where the gradient of a batch is kept, of ``(staleness + 1) * per_update`` places."""
        return (number - self._first) % ((self.staleness + 1) * self.per_update)

    def decide(self) -> list[tuple[int, Task]]:
        """Return what executors that do nothing are to do now."""
        tasks: list[tuple[int, Task]] = []
        idle = [executor for executor in range(self.executors) if executor not in {*self._running, *self.away}]
        standby = []
        for executor in idle:
            if executor >= self.samplers:
                continue
            number = self._next[executor]
            if number < min(self._end, self._first_waiting + self.queue):
                self._next[executor] += self._stride
                task = self._running[executor] = self._previous[executor] = Sample(
                    number, self._part, executor, self._stride
                )
                tasks.append((executor, task))
            else:
                self._run.pop(executor, None)
                standby.append(executor)
        for executor in [executor for executor in idle if executor >= self.samplers] + standby:
            waiting = self._trainable(executor)
            if not waiting:
                continue
            if executor < self.samplers:
                # Also batches of later updates, which trainers cannot begin yet.
                queued = len(self._ready) + len(self._ahead)
                profit = self.profit(executor, queued)
                if profit <= 0:
                    continue
                if not isinstance(self._previous.get(executor), Train):
                    self.num_switches += 1
                    self.switches.append(Switch(executor, min(waiting), queued, profit))
            tasks.append((executor, self._take(executor, min(waiting))))
        return tasks

    def profit(self, executor: int, queued: int) -> float:
        """P = M_r * T_t / N_t - T_t': by how many seconds a sampler that stands in has trained a batch before the
        trainers would have come to it."""
        trainers = self.executors - self.samplers
        if trainers == 0:
            return math.inf
        usual = self.training_seconds
        if not self.switching or usual is None:
            return -math.inf
        own = self._standby[executor].value
        return queued * usual / trainers - (usual if own is None else own)

    def sampled(self, executor: int, number: int, end: float) -> None:
        """Note that a batch is made, and when."""
        del self._running[executor]
        self._ready.add(number)
        self.made[executor] += 1
        last = self._run.get(executor)
        if last is not None:
            self._sampling.add(end - last)
        if executor in self._run:
            self._run[executor] = end
        self._settle()

    def trained(self, executor: int, number: int, seconds: float) -> None:
        """Note that the gradient of a batch is computed, and how long that took."""
        del self._running[executor]
        self._computed.add(number)
        self.trained_by[executor] += 1
        if executor in self._warm:
            (self._standby[executor] if executor < self.samplers else self._training).add(seconds)
        self._warm.add(executor)
        self._settle()

    def update(self) -> range | None:
        """Return the batches of the next update, in the order in which their gradients are added, if all of those are
        there; it is applied then."""
        first = self.done
        batches = range(first, min(first + self.per_update, self._end))
        if not batches or not self._computed.issuperset(batches):
            return None
        self._computed.difference_update(batches)
        self.version += 1
        return batches

    def _divide(self, part: int) -> None:
        """Let the samplers of now take turns from a batch on."""
        self._part, self._stride = part, self.samplers
        self._next = [part + executor for executor in range(self.samplers)]
        # When each of them gave its last batch, until it has a pause, in which its threads go on.
        self._run: dict[int, float | None] = dict.fromkeys(range(self.samplers))

    def _settle(self) -> None:
        """Choose how many sample, once the first batches say how long it takes: N_s = ceil(N / (K + 1)).

        A synchronous update of a batch for each executor, or more, waits for whoever is last. There all sample and all
        stand in: with fewer samplers, which first fill the queue again, epochs took up to 1.24 times as long."""
        if not self.measuring or self.ratio is None:
            return
        if self._sampling.count + 1 < min(_ENOUGH, self.queue):
            return
        self.measuring = False
        even = self.switching and not self.staleness and self.per_update >= self.executors
        wanted = self.executors if even else math.ceil(self.executors / (self.ratio + 1))
        self.samplers = min(wanted, self.most_samplers)
        self._divide(self._next[0])

    @property
    def _end_trainable(self) -> int:
        """The number after the last batch that may be trained with the parameters of now."""
        return self._first + (self.version - self._base + self.staleness + 1) * self.per_update

    def _trainable(self, executor: int) -> list[int]:
        """The batches that wait for a trainer or that this one has, and that may be trained now."""
        waiting = [*self._ready, *([self._ahead[executor]] if executor in self._ahead else [])]
        return [number for number in waiting if number < self._end_trainable]

    def _take(self, executor: int, number: int) -> Train:
        if self._ahead.get(executor) == number:
            del self._ahead[executor]
        else:
            self._claim(number)
        of = self._base + (number - self._first) // self.per_update
        self.stale[of - self.version] += 1
        task = Train(number, self.version, self._take_ahead(executor))
        self._running[executor] = self._previous[executor] = task
        return task

    def _take_ahead(self, executor: int) -> int | None:
        """Claim a batch for an executor that begins to train another one. A sampler may sample next, and so claims
        none."""
        if not self.ahead or self.measuring or executor < self.samplers or executor in self._ahead:
            return None
        number = min((number for number in self._ready if number >= self._end_trainable), default=None)
        if number is not None:
            self._claim(number)
            self._ahead[executor] = number
        return number

    def _claim(self, number: int) -> None:
        """Take a batch from those that wait."""
        self._ready.remove(number)
        self._taken.add(number)
        while self._first_waiting in self._taken:
            self._taken.remove(self._first_waiting)
            self._first_waiting += 1

    def stats(self) -> dict[str, Any]:
        """Return what was decided, and from what."""
        return {
            "executors": self.executors,
            "samplers": self.samplers,
            "trainers": self.executors - self.samplers,
            "measuring": self.measuring,
            "sampling_seconds": self.sampling_seconds,
            "training_seconds": self.training_seconds,
            "standby_seconds": [mean.value for mean in self._standby],
            "ratio": self.ratio,
            "switches": self.num_switches,
            "last_switches": [asdict(switch) for switch in self.switches],
            "sampled_by": list(self.made),
            "trained_by": list(self.trained_by),
            "updates": self.version,
            "staleness": {"bound": self.staleness, "batches": list(self.stale)},
        }
