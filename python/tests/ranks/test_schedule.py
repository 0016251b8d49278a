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

    def epoch(self, first: int, end: int) -> None:
        schedule = self.schedule
        schedule.begin(first, end)
        made: list[int] = []
        trained: list[int] = []
        updated: list[int] = []
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
                    assert task.number in made
                    # Of the version that it is trained with, and of the one that its update is applied to.
                    target = schedule.version - len(updated) // schedule.per_update
                    target += (task.number - first) // schedule.per_update
                    assert 0 <= target - task.version <= schedule.staleness
                    made.remove(task.number)
                    trained.append(task.number)
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
    rng, switches, chosen = random.Random(seed(1)), 0, set()
    while switches < 200 or len(chosen) < 4:
        executors = rng.randrange(1, 6)
        schedule = Schedule(
            executors,
            rng.choice([None, rng.randrange(1, executors + 1)]),
            queue=rng.randrange(2, 12),
            staleness=rng.randrange(4),
            per_update=rng.randrange(1, 6),
        )
        run = Run(rng, schedule, rng.uniform(0.1, 5), rng.uniform(0.1, 5))
        for _ in range(3):
            first = rng.randrange(5)
            run.epoch(first, first + rng.randrange(60))
        switches += schedule.num_switches
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
