"""Processes that are the ranks of a job, and what they are told to do. They are started once and joined into process
groups of any size, over a file."""

from __future__ import annotations

import contextlib
import gc
import hashlib
import multiprocessing
import os
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from multiprocessing.connection import Connection
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
import torch.distributed as dist
import warm
from flat_options import grouped
from torch.nn.parallel import DistributedDataParallel

from freshgo import LinkLoader, Loader, distributed

if TYPE_CHECKING:
    import pytest

NODES = 400
PATIENCE = 120
"""Seconds after which a rank is taken to hang."""


class Ranks:
    """Processes to be ranks, of which each runs one job at a time."""

    def __init__(self, count: int, directory: Path) -> None:
        self._directory, self._groups = directory, 0
        self._places = [_started() for _ in range(count)]

    def run(self, job: Callable[..., Any], world: int, *args: Any) -> list[Any]:
        """What the job returns on each rank of a new group; an exception where it raised one."""
        self.begin(job, world, *args)
        return [self.found(rank) for rank in range(world)]

    def begin(self, job: Callable[..., Any], world: int, *args: Any) -> None:
        """Let the ranks of a new group begin a job."""
        self._groups += 1
        for rank in range(world):
            if not self._places[rank][0].is_alive():  # a job has killed it
                self._places[rank] = _started()
            self._places[rank][1].send((job, str(self._directory / f"group-{self._groups}"), rank, world, args))

    def found(self, rank: int) -> Any:
        """What the job that was begun returns on a rank; an exception where it raised one. Of a rank that was killed
        this raises EOFError."""
        pipe = self._places[rank][1]
        assert pipe.poll(PATIENCE), f"rank {rank} hangs"
        return pipe.recv()

    def close(self) -> None:
        for process, _ in self._places:
            process.kill()
            process.join()


def _started() -> tuple[Any, Connection]:
    """A process to be a rank, and what it is told by."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["torch.distributed", "torch_geometric.data"])  # seconds of each process
    ours, theirs = context.Pipe()
    process = context.Process(target=_serve, args=(theirs,), daemon=True)
    process.start()
    theirs.close()
    return process, ours


def _serve(pipe: Connection) -> None:
    torch.set_num_threads(1)
    with contextlib.suppress(EOFError):
        while True:
            job, file, rank, world, args = pipe.recv()
            try:
                found = job(file, rank, world, *args)
            except Exception as error:  # the test looks at it
                found = error
            pipe.send(found)


def well(found: list[Any]) -> list[Any]:
    """What the ranks of a job have returned, of which none has raised an error."""
    for one in found:
        if isinstance(one, Exception):
            raise one
    return found


def of_rank(epoch: Sequence[Any], rank: int, world: int, uneven: str = "pad") -> list[Any]:
    """The batches of a rank, of those of all."""
    count = len(epoch)
    whole = count // world * world if uneven == "drop" else -(-count // world) * world
    return [epoch[number % count] for number in range(rank, count if uneven == "join" else whole, world)]


def report(capsys: pytest.CaptureFixture[str], late: Sequence[float]) -> None:
    """Print how many seconds after each of some kills the others raised. How fast that is depends on what else the
    machine does, so that a test asserts of it only that nothing hangs."""
    with capsys.disabled():
        print(f"\n{len(late)} kills: errors after {statistics.median(late):.2f} s, at most {max(late):.2f} s")


@contextlib.contextmanager
def group(file: str, rank: int, world: int) -> Iterator[None]:
    """A process group over gloo."""
    os.environ["LOCAL_WORLD_SIZE"] = str(world)
    dist.init_process_group("gloo", init_method=f"file://{file}", rank=rank, world_size=world)
    try:
        yield
    finally:
        with contextlib.suppress(Exception):  # what the job raised matters
            dist.destroy_process_group()
        os.environ.pop("LOCAL_WORLD_SIZE", None)


def digest(batch: Any) -> str:
    """Everything in a batch, to compare."""
    of_all = hashlib.sha256()
    tensors = _tensors(batch.to_dict())
    assert tensors, "a batch without tensors would equal any other"
    for name, value in sorted(tensors.items()):
        of_all.update(f"{name} {value.dtype} {list(value.shape)} ".encode())
        of_all.update(value.contiguous().reshape(-1).view(torch.uint8).numpy().tobytes())  # NumPy has no bfloat16
    return of_all.hexdigest()


def _tensors(values: dict[Any, Any]) -> dict[str, torch.Tensor]:
    """All tensors by their names, those of a type by its name and their own."""
    found = {}
    for name, value in values.items():
        if isinstance(value, torch.Tensor):
            found[str(name)] = value
        elif isinstance(value, dict):
            found |= {f"{name} {inner}": tensor for inner, tensor in _tensors(value).items()}
    return found


def drawn_graph(rng: np.random.Generator, *, skewed: bool = False) -> dict[str, Any]:
    """A graph with rows of features; in a skewed one few nodes have most of the edges."""
    ends = NODES * rng.random((2, 4000)) ** 2 if skewed else rng.integers(NODES, size=(2, 4000))
    x = rng.standard_normal((NODES, 128), dtype=np.float32)
    return {"num_nodes": NODES, "edge_index": ends.astype(np.int64), "x": x}


def open_loader(data: Any, **options: Any) -> Loader:
    usual = {"num_neighbors": [4, 3], "batch_size": 23, "shuffle": True, "seed": 3}
    return Loader(data, **grouped(**{**usual, **options}))


def open_links(data: Any, **options: Any) -> Loader:
    ends = torch.arange(400, dtype=torch.int64).view(2, 200)
    options = {"neg_sampling": "binary", "batch_size": 23, "shuffle": True, "seed": 3, **grouped(**options)}
    return LinkLoader(data, [4, 3], ends, **options)


def open_typed(data: Any, **options: Any) -> Loader:
    """A loader of users and items."""
    return open_loader(data, input_nodes={"user": None, "item": torch.arange(0, 200, 3)}, **options)


def epochs(file: str, rank: int, world: int, data: Any, options: dict[str, Any]) -> tuple[int, list[list[str]]]:
    """The length of an epoch, and two of them."""
    with group(file, rank, world), open_loader(data, **options) as loader:
        return len(loader), [[digest(batch) for batch in loader] for _ in range(2)]


def differ(file: str, rank: int, world: int, data: Sequence[Any], options: Sequence[dict[str, Any]]) -> int:
    """Begin an epoch of graphs, options and positions that differ from rank to rank."""
    mine = dict(options[rank])
    at = mine.pop("at", 0)
    with group(file, rank, world), open_loader(data[rank], **mine) as loader:
        loader.load_state_dict(loader.state_dict() | {"batches": at})
        return sum(1 for _ in loader)


def without_the_last(file: str, rank: int, world: int, data: Any, options: dict[str, Any]) -> int:
    """An epoch that the last rank leaves the group before."""
    with group(file, rank, world):
        if rank == world - 1:
            return 0
        with open_loader(data, **options) as loader:
            return sum(1 for _ in loader)


def before_and_after(file: str, rank: int, world: int, data: Any) -> dict[str, Any]:
    """A loader that is made and used by one process, becomes that of a rank, and is used by one process again."""
    found: dict[str, Any] = {}
    with open_loader(data) as loader:
        found["alone"] = len(loader), [digest(batch) for batch in loader]
        with group(file, rank, world):
            found["ranks"] = len(loader), [digest(batch) for batch in loader]
            interrupted = iter(loader)
            found["begun"] = [digest(next(interrupted)) for _ in range(2)]
            state = loader.state_dict()
        try:
            next(interrupted)
        except Exception as error:
            found["error"] = error
        found["state"] = state, loader.state_dict()
        loader.load_state_dict(state)
        found["left"] = [digest(batch) for batch in loader]
        found["after"] = len(loader), [digest(batch) for batch in loader]
    return found


def go_on(file: str, rank: int, world: int, data: Any, options: dict[str, Any], state: Any, steps: int) -> Any:
    """Some batches after a state, and the state then."""
    with group(file, rank, world), open_loader(data, **options) as loader:
        if state is not None:
            loader.load_state_dict(state)
        found = []
        for batch in loader:
            found.append(digest(batch))
            if len(found) == steps:
                break
        return found, loader.state_dict()


def train(file: str, rank: int, world: int, data: Any, options: dict[str, Any]) -> tuple[int, list[float]]:
    """Two epochs of DDP, in Join where ranks have batches of their own; the steps and the weights."""
    from torch.distributed.algorithms.join import Join

    with group(file, rank, world), open_loader(data, **options) as loader:
        torch.manual_seed(0)
        model = DistributedDataParallel(torch.nn.Linear(128, 3))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        steps = 0
        for _ in range(2):
            with Join([model], enable=options["uneven"] == "join"):
                for batch in loader:
                    optimizer.zero_grad()
                    model(batch.x).square().mean().backward()
                    optimizer.step()
                    steps += 1
        return steps, torch.cat([p.detach().flatten() for p in model.parameters()]).tolist()


def evaluation(file: str, rank: int, world: int, data: Any, options: dict[str, Any]) -> Any:
    """Sums over the seeds of an epoch, once in the middle of nothing and once after an epoch of training."""

    def step(batch: Any) -> dict[str, Any]:
        assert not torch.is_grad_enabled()
        seeds = batch.n_id[: batch.batch_size]
        return {"seeds": batch.batch_size, "ids": seeds.sum(), "each": torch.bincount(seeds, minlength=400)}

    with group(file, rank, world), open_loader(data, **options) as loader:
        first = distributed.evaluate(step, loader)
        list(loader)
        return first, distributed.evaluate(step, loader), loader.state_dict()["epoch"]


def soak(file: str, rank: int, world: int, data: Any, options: dict[str, Any], batches: int) -> tuple[int, int]:
    """Many batches over many epochs, some left early; the pages that are resident after a quarter of them and in the
    end."""
    resident, made = [], 0
    with group(file, rank, world), open_loader(data, **options) as loader:
        while made < batches:
            for step, _ in enumerate(loader):
                made += 1
                if made == batches // 4 or made == batches:
                    gc.collect()
                    resident.append(int(Path("/proc/self/statm").read_text().split()[1]))
                if made == batches or (step == 3 and made % 5 == 0):
                    break
    return resident[0], resident[1]


def judged_with(loader: Loader, rows: int) -> Loader:
    """A loader whose order of batches is made for a cache of so many rows, as that of another memory would be."""
    loader._engine.openings.change(reorder_rows=rows)
    loader._engine.order.value = loader._engine.order.planned()
    return loader


def reordered(file: str, rank: int, world: int, data: Any, options: dict[str, Any], rows: Sequence[int]) -> Any:
    """An epoch whose order differs from rank to rank."""
    with group(file, rank, world), judged_with(open_loader(data, **options), rows[rank]) as loader:
        before = loader.state_dict()["config"]["reorder"]
        found = [digest(batch) for batch in loader]
        return before, loader.state_dict()["config"]["reorder"], found


Ways = dict[str, tuple[Any, dict[str, Any]]]
"""Data and options of loaders of the same batches, by a name."""

Leaving = Sequence[tuple[int, float]]
"""After how many batches each rank leaves an epoch, of at least one, and the seconds that it rests before."""


def works(file: str, rank: int, world: int, ways: Ways, way: str, actions: Sequence[Any]) -> list[Any]:
    """What ranks do that keep to the rule: epochs that each leaves where it likes, traces, and states that
    another loader goes on with."""
    found: list[Any] = []
    with group(file, rank, world), contextlib.ExitStack() as opened:

        def begun(way: str) -> Loader:
            data, options = ways[way]
            return opened.enter_context(open_loader(data, **options))

        def batches(steps: int) -> list[str]:
            return [digest(batch) for _, batch in zip(range(steps), loader, strict=False)]

        loader = begun(way)
        for action, of in actions:
            if action == "epoch":
                steps, seconds = of[rank]
                time.sleep(seconds)
                found.append(batches(steps))
            elif action == "trace":
                found.append([n_id.tolist() for n_id in loader.trace(of)])
            else:  # the name of a way, and where to go on with it
                found.append(batches(of))
                state = loader.state_dict()
                loader.close()
                loader = begun(action)
                loader.load_state_dict(state)
    return found


def torchrun(count: int, *arguments: object, restarts: int = 0) -> str:
    """Run a script in several processes, and return what they printed."""
    options = [f"--nproc-per-node={count}", f"--max-restarts={restarts}", "--standalone"]
    parent = warm.start("import sys; from torch.distributed.run import main; main(sys.argv[1:])", *options, *arguments)
    printed, said = parent.communicate(300)
    assert parent.returncode == 0, said
    return printed
