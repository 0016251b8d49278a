"""The schedule of factored training, through random orders of events."""

from __future__ import annotations

import heapq
import math
import random

import pytest
from seeds import seed

from freshgo._factored.schedule import Sample, Schedule, Task, Train


class Run:
    """Executors whose work takes random times."""

    def __init__(self, rng: random.Random, schedule: Schedule, sampling: float, training: float) -> None:
        self.rng, self.schedule = rng, schedule
        self.seconds = {Sample: sampling, Train: training}
        self.now = 0.0
        self.sent_ahead = 0

    def epoch(self, first: int, end: int) -> None:
        schedule = self.schedule
        schedule.begin(first, end)
        made: list[int] = []
        trained: list[int] = []
        updated: list[int] = []
        has: dict[int, int] = {}  # a batch that an executor was given ahead
        busy: list[tuple[float, int, Task, float]] = []
        schedule.away = set(self.rng.sample(range(schedule.executors), self.rng.randrange(schedule.executors + 1)))
        while True:
            while (batches := schedule.update()) is not None:
                assert set(batches) <= set(trained)
                assert len(batches) == schedule.per_update or batches.stop == end
                updated += batches
            for executor, task in schedule.decide():
                assert executor not in [other for _, other, _, _ in busy]
                assert executor not in schedule.away
                if isinstance(task, Sample):
                    assert task.number >= task.first
                    assert (task.number - task.first) % task.of == task.rank == executor
                else:
                    if has.get(executor) == task.number:
                        del has[executor]
                        self.sent_ahead += 1
                    else:
                        made.remove(task.number)
                    # Of the version that it is trained with, and of the one that its update is applied to.
                    target = schedule.version - len(updated) // schedule.per_update
                    target += (task.number - first) // schedule.per_update
                    assert 0 <= target - task.version <= schedule.staleness
                    trained.append(task.number)
                    if task.ahead is not None:
                        assert schedule.ahead
                        assert schedule.samplers <= executor not in has
                        assert (task.ahead - first) // schedule.per_update > len(updated) // schedule.per_update
                        made.remove(task.ahead)
                        has[executor] = task.ahead
                took = self.seconds[type(task)] * self.rng.uniform(0.2, 2)
                heapq.heappush(busy, (self.now + took, executor, task, took))
            if schedule.away and (not busy or self.rng.random() < 0.1):
                schedule.away.remove(max(schedule.away))
                continue
            if not busy:
                break
            self.now, executor, task, took = heapq.heappop(busy)
            if isinstance(task, Sample):
                made.append(task.number)
                assert len(made) <= schedule.queue
                schedule.sampled(executor, task.number, self.now)
            else:
                schedule.trained(executor, task.number, took)
        assert schedule.finished
        assert updated == list(range(first, end))
        assert sorted(trained) == updated


def test_every_batch_is_trained_once() -> None:
    rng, switches, chosen, ahead = random.Random(seed(1)), 0, set(), 0
    while switches < 200 or len(chosen) < 4 or ahead < 200:
        executors = rng.randrange(1, 6)
        schedule = Schedule(
            executors,
            rng.choice([None, rng.randrange(1, executors + 1)]),
            queue=rng.randrange(2, 12),
            staleness=rng.randrange(4),
            per_update=rng.randrange(1, 6),
            ahead=rng.random() < 0.5,
        )
        run = Run(rng, schedule, rng.uniform(0.1, 5), rng.uniform(0.1, 5))
        for _ in range(3):
            first = rng.randrange(5)
            run.epoch(first, first + rng.randrange(60))
        switches += schedule.num_switches
        ahead += run.sent_ahead
        chosen.add(schedule.samplers)
        stats = schedule.stats()
        assert sum(stats["sampled_by"]) == sum(stats["trained_by"]) == sum(stats["staleness"]["batches"])


@pytest.mark.parametrize(("sampling", "training"), [(1.0, 1.0), (1.0, 3.0), (4.0, 1.0), (1.0, 30.0)])
def test_roles_follow_the_times(sampling: float, training: float) -> None:
    """N_s = ceil(N / (K + 1))."""
    schedule = Schedule(8, None, queue=16, staleness=8, per_update=1)
    run = Run(random.Random(0), schedule, sampling, training)
    run.rng.uniform = lambda *_: 1.0  # type: ignore[method-assign]
    run.epoch(0, 100)
    assert not schedule.measuring
    assert schedule.ratio == pytest.approx(training / sampling, rel=1e-6)
    assert schedule.samplers == math.ceil(8 / (training / sampling + 1))


def test_memory_bounds_the_samplers() -> None:
    schedule = Schedule(8, None, queue=16, staleness=8, per_update=1, most_samplers=2)
    Run(random.Random(0), schedule, 5.0, 1.0).epoch(0, 100)
    assert schedule.samplers == 2
    assert schedule.num_switches == 0


def test_a_sampler_stands_in_while_that_pays() -> None:
    """P = M_r * T_t / N_t - T_t', by executor; infinite without trainers."""
    schedule = Schedule(4, 1, queue=8, staleness=8, per_update=1)
    assert schedule.profit(0, 100) == -math.inf  # nothing is known yet
    Run(random.Random(0), schedule, 0.01, 1.0).epoch(0, 100)
    usual, own = schedule.training_seconds, schedule.stats()["standby_seconds"][0]
    assert schedule.profit(0, 8) == pytest.approx(8 * usual / 3 - own)
    assert schedule.profit(0, 2) < 0
    assert schedule.num_switches > 0
    assert all(switch.profit > 0 and switch.executor == 0 for switch in schedule.switches)
    assert Schedule(2, 2, queue=8, staleness=0, per_update=1).profit(1, 1) == math.inf
    never = Schedule(4, 1, queue=8, staleness=8, per_update=1, switching=False)
    Run(random.Random(0), never, 0.01, 1.0).epoch(0, 100)
    assert never.num_switches == 0
    assert never.trained_by[0] == 0


def test_a_sampler_stands_in_for_a_batch_of_the_same_update() -> None:
    """M_r counts the whole queue: of a synchronous update at most one batch waits beside the one that is trained."""
    seconds = {}
    for switching in (True, False):
        schedule = Schedule(2, 1, queue=8, staleness=0, per_update=2, switching=switching)
        run = Run(random.Random(0), schedule, 0.01, 1.0)
        run.rng.uniform = lambda *_: 1.0  # type: ignore[method-assign]
        run.epoch(0, 40)
        assert (schedule.num_switches > 0) == switching
        seconds[switching] = run.now
    assert seconds[False] > 40 > 25 > seconds[True]  # of 20 updates of two batches


SAMPLING = [
    4.43, 4.19, 4.42, 5.9, 3.42, 5.61, 3.71, 4.14, 4.35, 3.16, 3.79, 3.6, 3.35, 3.09, 3.08, 3.16,
    3.01, 2.99, 3.85, 3.29, 3.09, 3.51, 4.2, 3.62, 3.52, 3.58, 3.5, 3.4, 3.81, 3.34, 3.82, 4.39,
]  # fmt: skip
TRAINING = [
    1.74, 1.55, 1.66, 2.36, 1.36, 1.53, 1.75, 1.95, 1.61, 1.26, 1.6, 1.52, 1.17, 1.25, 1.44, 1.58,
    1.22, 1.12, 1.33, 1.55, 1.28, 1.73, 1.63, 1.52, 1.59, 1.53, 1.63, 1.17, 1.54, 1.45, 1.64, 1.69,
]  # fmt: skip
"""Milliseconds of consecutive batches of bench/loader/factored.py's sampling-bound model, on one busy core."""


class Replay(random.Random):
    """Draws the recorded times, over their means, in place of random ones."""

    def __init__(self) -> None:
        super().__init__(0)
        self.at = 0

    def randrange(self, *_: int) -> int:  # type: ignore[override]
        return 0  # no executor is away

    def uniform(self, *_: float) -> float:
        self.at += 1
        recorded = (SAMPLING, TRAINING)[self.at % 2]
        return recorded[self.at // 2 % len(recorded)] * len(recorded) / sum(recorded)


def replayed(
    sampling: float,
    training: float,
    samplers: int | None,
    staleness: int,
    per_update: int,
    switching: bool,
    *,
    ahead: bool = False,
) -> float:
    """The time of an epoch of 400 batches on eight executors, after one in which the roles are chosen."""
    schedule = Schedule(
        8, samplers, queue=16, staleness=staleness, per_update=per_update, switching=switching, ahead=ahead
    )
    run = Run(Replay(), schedule, sampling, training)
    run.epoch(0, 400)
    began = run.now
    run.epoch(0, 400)
    return run.now - began


GATHERED = 0.52
"""The part of the time of that model's sampler that gathers rows, of 256 bytes and in memory. Wider ones take more."""


@pytest.mark.parametrize(("staleness", "per_update"), [(0, 8), (8, 1)])
@pytest.mark.parametrize("ratio", [1 / 32, 1 / 16, 1 / 8, 1 / 4, 1 / 2, 1, 2, 4, 8, 16], ids="T_s/T_t={:.3g}".format)
def test_chosen_roles_are_near_the_best_fixed_ones(ratio: float, staleness: int, per_update: int) -> None:
    fixed = [
        replayed(ratio, 1, samplers, staleness, per_update, switching)
        for samplers in range(1, 9)
        for switching in (True, False)
        if switching or samplers < 8
    ]
    chosen = replayed(ratio, 1, None, staleness, per_update, True)
    assert chosen <= 1.1 * min(fixed)
    assert max(fixed) > 1.1 * min(fixed)  # roles matter
    # Subgraphs in the queue, whose rows the trainers gather, would gain nothing.
    gathered = GATHERED * ratio
    assert chosen <= 1.05 * replayed(ratio - gathered, 1 + gathered, None, staleness, per_update, True)
    # Rows that the trainers' devices hold are gathered by nobody.
    held = replayed(ratio - gathered, 1, None, staleness, per_update, True)
    assert held <= 1.01 * chosen
    assert held < 0.75 * chosen or ratio < 1


@pytest.mark.parametrize("per_update", [1, 7, 8])
@pytest.mark.parametrize("ratio", [1 / 32, 1 / 8, 1 / 2])
def test_batches_that_trainers_get_ahead_cost_no_time(ratio: float, per_update: int) -> None:
    """They belong to later updates, so nobody else waits for one, though nobody else may take it."""
    for samplers in (1, None):
        plain = replayed(ratio, 1, samplers, 0, per_update, True)
        assert replayed(ratio, 1, samplers, 0, per_update, True, ahead=True) <= 1.03 * plain
    schedule = Schedule(8, 1, queue=16, staleness=0, per_update=per_update, switching=False, ahead=True)
    run = Run(Replay(), schedule, 1 / 32, 1)
    run.epoch(0, 400)
    assert run.sent_ahead > 0.8 * 400  # of updates of eight, a trainer is given the last one when it is free
    assert not Schedule(8, 1, queue=16, staleness=1, per_update=per_update, ahead=True).ahead
