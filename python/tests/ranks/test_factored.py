"""Training by executors that sample and executors that train: the plain loop's result, whoever does what or dies."""

from __future__ import annotations

import copy
import functools
import gc
import multiprocessing
import multiprocessing.forkserver
import random
import time
from pathlib import Path
from typing import Any

import factored_steps
import numpy as np
import pytest
import rank_jobs
import torch
from factored_steps import Clock, Net
from rank_jobs import NODES, drawn_graph, open_loader
from seeds import seed

from freshgo import History, LinkLoader, Loader, MemoryBudget, convert, errors
from freshgo._factored.parameters import Parameters
from freshgo.factored import Training, train

BATCHES = 18


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    rng = np.random.default_rng(seed(5))
    graph = {
        **drawn_graph(rng),
        "t": rng.integers(100, size=NODES),
    }
    path = tmp_path_factory.mktemp("factored") / "graph"
    convert(graph, path, progress=False).close()
    return path


def open_files() -> int:
    gc.collect()
    return len(list(Path("/proc/self/fd").iterdir()))


def made(model: torch.nn.Module) -> torch.optim.Optimizer:
    return torch.optim.Adam(model.parameters(), lr=0.01)


def kill_and_go_on(path: Path, directory: Path, victim: int, after: int, executors: int) -> float:
    """Train two epochs, in the second of which an executor is killed, and go on with another number of them. Returns
    how many seconds after the death there was an error."""
    model = Net()
    plain, optimizer = copy.deepcopy(model), made(model)
    plain_optimizer = made(plain)
    marker = directory / "victim"
    step = functools.partial(factored_steps.killing, marker, after)
    losses = []

    def after_epoch(training: Training) -> None:
        losses.append(training.losses)
        (process,) = (p for p in multiprocessing.active_children() if p.name == f"freshgo-executor-{victim}")
        marker.write_text(str(process.pid))

    with open_loader(path) as loader:
        before = open_files()
        with pytest.raises(errors.ExecutorError, match=rf"executor {victim} \(process \d+\) was killed by signal 9"):
            train(step, loader, model, optimizer, executors=2, epochs=2, batches_per_update=1, after_epoch=after_epoch)
        late = time.monotonic() - float(marker.with_suffix(".killed").read_text())
        assert late < factored_steps.PAUSE, "nobody noticed the death before the other executor went on"
        assert not multiprocessing.active_children()
        assert open_files() <= before + 2  # of multiprocessing's tracker and its server
        state = loader.state_dict()
        assert state["epoch"] == 1
        assert state["batches"] <= BATCHES
        rest = train(factored_steps.loss, loader, model, optimizer, executors=executors, batches_per_update=1)
        assert not multiprocessing.active_children()
        assert loader.state_dict()["epoch"] == 2
        assert rest.stats()["updates"] == BATCHES - state["batches"]
        loader.set_epoch(0)
        expected = [
            factored_steps.plain(factored_steps.loss, loader, plain, plain_optimizer, 3, epoch) for epoch in range(2)
        ]
    assert losses == expected[:1]
    assert rest.losses == expected[1][state["batches"] :]
    for name, value in plain.state_dict().items():
        assert torch.equal(value, model.state_dict()[name]), name
    return late


def test_it_is_the_plain_loop_to_the_bit_whoever_is_killed(path: Path, tmp_path: Path) -> None:
    rng = random.Random(seed(3))
    kill_and_go_on(path, tmp_path, rng.randrange(2), rng.randrange(BATCHES // 2), 1)


@pytest.mark.long
def test_fifty_kills(path: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rng, late = random.Random(seed(4)), []
    for number in range(50):
        directory = tmp_path / str(number)
        directory.mkdir()
        victim, after, executors = rng.randrange(2), rng.randrange(BATCHES // 2), rng.randrange(1, 4)
        late.append(kill_and_go_on(path, directory, victim, after, executors))
    rank_jobs.report(capsys, late)


def test_executors_come_from_a_process_without_threads(path: Path) -> None:
    model = Net()
    with open_loader(path) as loader:
        train(factored_steps.loss, loader, model, made(model), executors=2)
    server = Path("/proc", str(multiprocessing.forkserver._forkserver._forkserver_pid))  # type: ignore[attr-defined]
    mapped = (server / "maps").read_text()
    assert "libtorch" in mapped
    assert "libfreshgo" not in mapped
    assert "libcuda.so" not in mapped
    assert len(list((server / "task").iterdir())) == 1


def test_batches_of_links_have_their_labels(path: Path) -> None:
    model = Net()
    plain, optimizer = copy.deepcopy(model), made(model)
    with LinkLoader(path, [3, 2], neg_sampling="binary", batch_size=500, shuffle=True, seed=3) as loader:
        trained = train(factored_steps.loss_of_links, loader, model, optimizer, executors=1, batches_per_update=1)
        loader.set_epoch(0)
        expected = factored_steps.plain(factored_steps.loss_of_links, loader, plain, made(plain), 3, 0)
    assert trained.losses == expected
    assert len(expected) == 8


def test_staleness_is_bounded_and_every_batch_comes_once(path: Path) -> None:
    clock = Clock(NODES)
    optimizer = torch.optim.SGD(clock.parameters(), lr=1)
    with open_loader(path) as loader:
        training = train(
            factored_steps.tick, loader, clock, optimizer, executors=2, staleness=2, batches_per_update=2, epochs=1
        )
        versions = [-loss for loss in training.losses]  # of the first epoch: no node has come before
        assert len(versions) == BATCHES
        assert all(0 <= number // 2 - version <= 2 for number, version in enumerate(versions))
        assert clock.updates == BATCHES // 2
        assert torch.equal(clock.seen.detach(), torch.full((NODES,), 0.5))
        stats = training.stats()
        assert not stats["measuring"]
        assert stats["ratio"] == pytest.approx(stats["training_seconds"] / stats["sampling_seconds"])
        assert sum(stats["sampled_by"]) == sum(stats["trained_by"]) == BATCHES
        ages = [number // 2 - int(version) for number, version in enumerate(versions)]
        assert stats["staleness"]["batches"] == [ages.count(age) for age in range(3)]
        figure = training.plot()
        labels = [label.get_text() for label in figure.axes[0].get_yticklabels()]
        assert stats["samplers"] == 1  # whose threads are on all cores
        assert [label.split()[1] for label in labels] == ["samples:", "trains:"]
        assert "K = " in figure.axes[0].get_title()


def test_types_transforms_and_errors_of_the_step(typed_path: Path) -> None:
    options: dict[str, Any] = {"batch_size": 16, "shuffle": True, "seed": 3, "transform": factored_steps.summed}
    model = torch.nn.Linear(2, 1)
    plain = copy.deepcopy(model)
    losses = []

    def after_epoch(training: Training) -> None:
        losses.append(training.losses)
        with torch.no_grad():
            model.bias.fill_(1000)  # which the next epoch begins with

    with Loader(typed_path, [3, 2], "paper", **options) as loader:
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
        with pytest.raises(LookupError, match="as it was told") as caught:
            train(factored_steps.typed_loss, loader, model, optimizer, executors=1, epochs=2, after_epoch=after_epoch)
        assert isinstance(caught.value.__cause__, errors.ExecutorError)
        assert "typed_loss" in str(caught.value.__cause__)
        loader.set_epoch(0)
        optimizer = torch.optim.SGD(plain.parameters(), lr=0.01)
        expected = factored_steps.plain(factored_steps.typed_loss, loader, plain, optimizer, 3, 0)
    assert losses == [expected]


def test_gradients_and_parameters_in_shared_memory() -> None:
    torch.manual_seed(seed(6))
    model = Net()
    model.frozen = torch.nn.Parameter(torch.empty(0))
    other = copy.deepcopy(model)
    ours = Parameters(model, 2, 3)
    theirs = Parameters(other, 2, 3, ours.fd)
    values = []
    for version in range(5):
        with torch.no_grad():
            for tensor in (*model.parameters(), *model.buffers()):
                tensor.copy_(torch.randn(tensor.shape) * 9)
        values.append(copy.deepcopy(model.state_dict()))
        ours.publish(version)
        for back in range(min(version + 1, 2)):
            theirs.fetch(version - back)
            assert all(torch.equal(value, values[version - back][name]) for name, value in other.state_dict().items())
    given = []
    for slot in range(3):
        other.zero_grad()
        other.first.weight.grad = torch.randn(other.first.weight.shape)
        if slot == 1:
            other.last.bias.grad = torch.randn(3)
        other.norm.running_mean.fill_(slot)
        given.append((theirs.deposit(slot), other.first.weight.grad, other.last.bias.grad))
    model.unused.weight.grad = torch.ones(2, 2)
    ours.collect([0, 1, 2], [present for present, _, _ in given])
    assert torch.equal(model.first.weight.grad, (given[0][1] + given[1][1] + given[2][1]) / 3)
    assert torch.equal(model.last.bias.grad, given[1][2] / 3)
    assert model.unused.weight.grad is None
    assert model.norm.running_mean.eq(0).all()
    sparse = torch.nn.Embedding(4, 2, sparse=True)
    shared = Parameters(sparse, 1, 1)
    sparse(torch.tensor([1])).sum().backward()
    with pytest.raises(errors.InvalidArgumentError, match="sparse"):
        shared.deposit(0)
    with pytest.raises(errors.InvalidArgumentError, match="call it once"):
        Parameters(torch.nn.LazyLinear(2), 1, 1)


def test_wrong_use(path: Path) -> None:
    model = Net()
    optimizer = made(model)
    refused: list[tuple[dict[str, Any], type[Exception], str]] = [
        ({"executors": 0}, errors.InvalidArgumentError, "executors"),
        ({"executors": 2, "epochs": 0}, errors.InvalidArgumentError, "epochs"),
        ({"executors": 2, "staleness": -1}, errors.InvalidArgumentError, "staleness"),
        ({"executors": 2, "queue": 1}, errors.InvalidArgumentError, "queue"),
        ({"executors": 2, "batches_per_update": "2"}, errors.DTypeError, "batches_per_update"),
        (
            {"executors": 2, "roles": "best"},
            errors.InvalidArgumentError,
            "roles must be 'auto' or a dict .* got 'best'",
        ),
        (
            {"executors": 2, "roles": {"samplers": 2}},
            errors.InvalidArgumentError,
            "a dict of 'samplers' and 'trainers'",
        ),
        (
            {"executors": 2, "roles": {"samplers": 2, "trainers": 1}},
            errors.InvalidArgumentError,
            "executors=2, got 2 samplers and 1 trainers",
        ),
        (
            {"executors": 2, "roles": {"samplers": 2, "trainers": 0}, "switching": False},
            errors.InvalidArgumentError,
            "switching",
        ),
        ({"executors": 1, "switching": False}, errors.InvalidArgumentError, "switching"),
        ({"executors": 2, "devices": ["cpu"]}, errors.InvalidArgumentError, "one for each of 2 executors, got 1"),
        ({"executors": 1, "devices": ["disk"]}, errors.InvalidArgumentError, "disk"),
        ({"executors": 1, "devices": ["cuda:64"]}, errors.InvalidArgumentError, "cuda:64.*torch finds"),
        ({"executors": 1, "devices": "cpu"}, errors.DTypeError, "list of devices"),
        ({"executors": 2, "after_epoch": 3}, errors.DTypeError, "after_epoch must be callable"),
        ({"executors": 1, "step": lambda model, batch: None}, errors.DTypeError, "must be able to import"),
        ({"executors": 1, "step": 3}, errors.DTypeError, "step must be callable"),
        ({"executors": 1, "model": 3}, errors.DTypeError, "model must be a torch.nn.Module"),
        ({"executors": 1, "optimizer": 3}, errors.DTypeError, "optimizer must be a torch.optim.Optimizer"),
        ({"executors": 1, "loader": [3]}, errors.DTypeError, "loader must be a freshgo.Loader"),
    ]
    with open_loader(path, memory="64MiB") as loader:
        usual = {"step": factored_steps.loss, "loader": loader, "model": model, "optimizer": optimizer}
        for wrong, kind, message in refused:
            with pytest.raises(kind, match=message):
                train(**{**usual, **wrong})
        with pytest.raises(errors.BudgetError, match="for 500 samplers") as caught:
            train(**usual, executors=500, roles={"samplers": 500, "trainers": 0})
        assert caught.value.minimum > 64 << 20
        assert len(list(loader)) == BATCHES
    others: list[tuple[dict[str, Any], str]] = [
        ({"history": History()}, "history"),
        ({"reorder": 4}, "reorder"),
        ({"memory": MemoryBudget("1GiB")}, "a MemoryBudget"),
        ({"rank": 0, "world_size": 2}, "rank and world_size"),
        ({"transform": len, "transform_workers": 1}, "transform_workers"),
        ({"share": "host"}, "share"),
    ]
    for options, message in others:
        with (
            open_loader(path, **options) as loader,
            pytest.raises(errors.InvalidArgumentError, match=f"a loader with {message}"),
        ):
            train(factored_steps.loss, loader, model, optimizer, executors=1)
    graph = {"edge_index": np.zeros((2, 3), np.int64), "x": np.zeros((4, 2), np.float32)}
    with open_loader(graph) as loader, pytest.raises(errors.InvalidArgumentError, match="needs a store"):
        train(factored_steps.loss, loader, model, optimizer, executors=1)
    assert not multiprocessing.active_children()
