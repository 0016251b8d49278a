"""What the ranks of a host do that share one loader."""

from __future__ import annotations

import contextlib
import gc
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import torch.distributed as dist
from rank_jobs import digest, group, open_links, open_loader, open_typed

from freshgo import Labor, Loader, RandomWalk, errors
from freshgo._host_loader import client


def typed(data: Any, **options: Any) -> Loader:
    """Of the heterogeneous store beside the other."""
    return open_typed(Path(data).with_name("typed"), **options)


KINDS: dict[str, Callable[..., Loader]] = {
    "uniform": open_loader,
    "in order": lambda data, **o: open_loader(data, shuffle=False, **o),
    "weighted": lambda data, **o: open_loader(data, weight_attr="w", **o),
    "labor": lambda data, **o: open_loader(data, neighbor_sampler=Labor(batch_dependency=3), **o),
    "walks": lambda data, **o: open_loader(data, num_neighbors=[RandomWalk(6, 2, top=3)] * 2, **o),
    "induced": lambda data, **o: open_loader(data, subgraph_type="induced", **o),
    "times": lambda data, **o: open_loader(data, time_attr="t", **o),
    "links": open_links,
    "types": typed,
    "planned": lambda data, **o: open_loader(data, cache="belady", feature_cache=100_000, **o),
    "lru": lambda data, **o: open_loader(data, cache="lru", feature_cache=100_000, **o),
    "transposed": lambda data, **o: open_loader(data, transpose=True, **o),
    "padded": lambda data, **o: open_loader(data, pad=True, **o),
}


def servers() -> list[int]:
    """The processes that serve ranks of this Python now."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            command = (entry / "cmdline").read_bytes()
            if command.startswith(sys.executable.encode()) and b"freshgo._host_loader.server" in command:
                found.append(int(entry.name))
    return found


def shared_bytes(server: int) -> int:
    """The memory that a server's batches take."""
    for entry in Path(f"/proc/{server}/fd").iterdir():
        with contextlib.suppress(OSError):
            if str(entry.readlink()).startswith("/memfd:freshgo "):
                return entry.stat().st_blocks * 512
    raise AssertionError("the server has no shared memory")


def kinds(file: str, rank: int, world: int, data: Any, names: Sequence[str]) -> list[Any]:
    """Two epochs of each kind of loader."""
    found = []
    with group(file, rank, world), open_loader(data, share="host"):  # which keeps the server
        for name in names:
            with KINDS[name](data, share="host") as loader:
                found.append((len(loader), [[digest(batch) for batch in loader] for _ in range(2)]))
    return found


def several(file: str, rank: int, world: int, data: Any) -> Any:
    """Two loaders at a time, served by one process, and what is left of it."""
    with group(file, rank, world):
        with open_loader(data, share="host") as train, open_loader(data, share="host", seed=4, uneven="join") as valid:
            served = servers()
            found = [[digest(batch) for batch in loader] for loader in (train, valid, train)]
            both = [[digest(one), digest(other)] for one, other in zip(train, valid, strict=False)]
            dist.barrier()  # every rank has taken its batches
            stats = train.stats()
            dist.barrier()
            kept = next(iter(train))
        dist.barrier()
        alive = wait_until(lambda: not servers())
        return served, found, both, stats, (digest(kept), alive)


def wait_until(holds: Callable[[], bool], seconds: float = 10) -> bool:
    end = time.monotonic() + seconds
    while not holds():
        if time.monotonic() > end:
            return False
        time.sleep(0.05)
    return True


def early(file: str, rank: int, world: int, data: Any) -> Any:
    """Epochs that are left early, a trace, and batches on demand beside an epoch."""
    with group(file, rank, world), open_loader(data, share="host") as loader:
        iterator = iter(loader)
        found = [[digest(next(iterator)) for _ in range(2)]]
        own = loader.sample([5, rank])
        found.append([digest(next(iterator))])
        state = loader.state_dict()
        found.append([digest(batch) for batch in loader])
        trace = [n_id.tolist() for n_id in loader.trace(0)]
        loader.load_state_dict(state)
        found.append([digest(batch) for batch in loader])
        return found, digest(own), trace


class LostError(Exception):
    """What a handler of signals may raise."""


@contextlib.contextmanager
def losing(name: str, calls: Sequence[int], *, after: bool) -> Iterator[None]:
    """Let some calls of a method of the shared loader raise, before or after their work."""
    method, count = getattr(client.SharedLoader, name), 0

    def patched(self: Any, *args: Any, **kwargs: Any) -> Any:
        nonlocal count
        count += 1
        if count in calls and not after:
            raise LostError
        result = method(self, *args, **kwargs)
        if count in calls:
            raise LostError
        return result

    setattr(client.SharedLoader, name, patched)
    try:
        yield
    finally:
        setattr(client.SharedLoader, name, method)


def until_there(iterator: Iterator[Any]) -> Any:
    while True:
        with contextlib.suppress(LostError):
            return next(iterator, None)


def interrupted(file: str, rank: int, world: int, data: Any) -> list[Any]:
    """An epoch each in which batches are lost on their way: before their tensors are made, and after."""
    found = []
    with group(file, rank, world), open_loader(data, share="host") as loader:
        for name, after in (("_answer", False), ("_answer", True), ("_batch", False), ("_batch", True), ("next", True)):
            iterator, batches = iter(loader), []
            batches.append(digest(next(iterator)))
            calls = [2, 3, 5] if rank == 0 else [4]
            with losing(name, calls, after=after):
                while (batch := until_there(iterator)) is not None:
                    batches.append(digest(batch))
            found.append(batches)
    return found


def growth(file: str, rank: int, world: int, data: Any, batches: int) -> Any:
    """The shared memory after some epochs, and after many, while a few tensors are kept."""
    sizes, made, kept = [], 0, []
    with group(file, rank, world), open_loader(data, share="host", memory="32MiB") as loader:
        while made < batches:
            for step, batch in enumerate(loader):
                made += 1
                if made % 50 == 0:
                    kept = [*kept[-3:], batch.x]
                if made in (batches // 4, batches):
                    sizes.append(shared_bytes(servers()[0]))
                if made == batches or (step == 3 and made % 5 == 0):
                    break
    return sizes


def resident(process: int | str) -> int:
    """The memory of a process, of which it has its part of what several share: PSS, in bytes."""
    gc.collect()
    lines = Path(f"/proc/{process}/smaps_rollup").read_text().splitlines()
    return next(int(line.split()[1]) << 10 for line in lines if line.startswith("Pss:"))


def budget(file: str, rank: int, world: int, data: Any, given: Sequence[dict[str, Any]]) -> list[int]:
    """The memory of this rank, and on the first also that of the server, after two epochs of each of some loaders."""
    found = []
    with group(file, rank, world):
        for options in given:
            with open_loader(data, batch_size=128, **options) as loader:
                for _ in range(2):
                    batch = None
                    for batch in loader:  # noqa: B007
                        pass
                del batch
                dist.barrier()  # nobody has batches any more
                found.append(resident("self") + sum(map(resident, servers() if rank == 0 else [])))
                dist.barrier()
            wait_until(lambda: not servers())
    return found


def victim(file: str, rank: int, world: int, data: Any, told: str, sleeper: int | None, after: int) -> Any:
    """Train until something is killed; how long the error took once it was, and which it is."""
    with group(file, rank, world), open_loader(data, share="host") as loader:
        list(loader)  # imports what batches are made of
        Path(f"{told}-{rank}").write_text(str(os.getpid()))
        made = 0
        try:
            while True:
                for _ in loader:
                    made += 1
                    time.sleep(0.002)
                    if made == after and rank == sleeper:
                        time.sleep(60)  # to be killed while the others wait for it
        except errors.FreshgoError as error:
            return time.time(), type(error), str(error), loader.state_dict()


def killed(process: int) -> float:
    """Kill a process and return when."""
    os.kill(process, signal.SIGKILL)
    return time.time()


def refused(file: str, rank: int, world: int, data: Any, options: dict[str, Any], own: bool) -> str:
    """What opening a loader with these options raises, on every rank or on one of them."""
    with group(file, rank, world), open_loader(data, share="host", **(options if own or rank == 1 else {})):
        return "opened"


def differing(file: str, rank: int, world: int, data: Any, given: Sequence[Sequence[dict[str, Any]]]) -> list[str]:
    """What each rank is told of loaders whose options differ; after each all of them open one that they agree on."""
    found = []
    with group(file, rank, world), open_loader(data, share="host", seed=4) as kept:  # which keeps the server
        for options in given:
            try:
                with open_loader(data, **{"share": "host", **options[rank]}) as loader:
                    found.append(f"opened {sum(1 for _ in loader)}")
            except errors.RankError as error:
                found.append(str(error))
            with open_loader(data, share="host") as loader:
                assert sum(1 for _ in loader)
        assert sum(1 for _ in kept)
    return found


def before_the_group(file: str, rank: int, world: int, data: Any) -> Any:
    """A loader that is opened alone, and begins an epoch as a rank."""
    with open_loader(data, share="host") as loader:
        alone = [digest(batch) for batch in loader]
        with group(file, rank, world):
            next(iter(loader))
    return alone
