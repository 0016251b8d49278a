"""What ranks do whose loaders take rows from each other."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch.distributed as dist

if __name__ == "__main__":  # of a host, run without pytest
    sys.path.insert(0, str(Path(__file__).parent))

from rank_jobs import digest, group, open_links, open_loader, open_typed

from freshgo import Loader, errors
from freshgo._row_exchange import schedule

KINDS = {"nodes": open_loader, "links": open_links, "typed": open_typed}

Case = tuple[str, Any, dict[str, Any]]
"""A kind of loader, its data and its options."""


def cases(file: str, rank: int, world: int, of: Sequence[Case], round_bytes: int) -> list[Any]:
    """An epoch of each loader, and what its exchange took."""
    schedule.ROUND_BYTES = round_bytes
    found = []
    with group(file, rank, world):
        for kind, data, options in of:
            with KINDS[kind](data, **options) as loader:
                found.append(([digest(batch) for batch in loader], loader.stats().get("sharded")))
    return found


def left_early(file: str, rank: int, world: int, data: Any, options: dict[str, Any], pause: float) -> list[list[str]]:
    """Epochs that each rank leaves elsewhere, one that it begins again, and a whole one. The others begin ``pause``
    seconds after rank 0."""
    with group(file, rank, world), open_loader(data, **options) as loader:
        found = []
        for steps in (2 + rank, 1, 100):
            time.sleep(pause * rank)
            found.append([digest(b) for _, b in zip(range(steps), loader, strict=False)])
        list(loader.trace(0))
        return [*found, [digest(batch) for batch in loader]]


def refused(file: str, rank: int, world: int, data: Sequence[Any], options: Sequence[dict[str, Any]]) -> int:
    """Begin an epoch of parts and options that differ from rank to rank, twice."""
    with group(file, rank, world), open_loader(data[rank], **options[rank]) as loader:
        first = _said(loader)
        try:
            return sum(1 for _ in loader)
        except Exception as error:
            assert first == f"{type(error).__name__}: {error}"
            raise


def dies(file: str, rank: int, world: int, data: Any, options: dict[str, Any]) -> int:
    """One rank is killed in mid-epoch; the others go on until they cannot."""
    made = 0
    with group(file, rank, world), open_loader(data, **options) as loader:
        for _ in range(3):
            for _ in loader:
                made += 1
                if rank == world - 1 and made == 3:
                    os.kill(os.getpid(), signal.SIGKILL)
    return made


def victim(file: str, rank: int, world: int, data: Any, options: dict[str, Any], told: str) -> Any:
    """Go on until another rank is killed; when the error came, which it is, and the state."""
    with group(file, rank, world), open_loader(data, **options) as loader:
        list(loader)  # imports what batches are made of
        Path(f"{told}-{rank}").write_text(str(os.getpid()))
        try:
            while True:
                for _ in loader:
                    time.sleep(0.002)
        except errors.FreshgoError as error:
            return time.time(), type(error), str(error), loader.state_dict()


def damaged(file: str, rank: int, world: int, data: Any, options: dict[str, Any]) -> list[str]:
    """What two epochs say of parts of which some page cannot be read."""
    with group(file, rank, world):
        with open_loader(data, **options) as loader:
            said = [_said(loader) for _ in range(2)]
        dist.barrier()
    return said


def _said(loader: Loader) -> str:
    """What an epoch raises."""
    try:
        return f"{sum(1 for _ in loader)} batches"
    except Exception as error:
        return f"{type(error).__name__}: {error}"


def on_a_host(rank: int, world: int, port: int, data: str, directory: str) -> None:
    """An epoch over hosts, then another whose link is lost: when ``directory`` has the file ``cut``."""
    dist.init_process_group(
        "gloo", init_method=f"tcp://10.77.1.1:{port}", rank=rank, world_size=world, timeout=timedelta(seconds=8)
    )
    out = Path(directory)
    with open_loader(data, features="sharded", cache="none", uneven="join") as loader:
        (out / f"epoch-{rank}").write_text("\n".join(digest(batch) for batch in loader))
        made, error = 0, ""
        try:
            while not error:
                for _ in loader:
                    made += 1
                (out / f"again-{rank}").write_text(str(made))
        except Exception as raised:
            error = f"{type(raised).__name__}: {raised}"
        (out / f"error-{rank}").write_text(error)


if __name__ == "__main__":
    arguments = sys.argv[1:]
    on_a_host(int(arguments[0]), int(arguments[1]), int(arguments[2]), arguments[3], arguments[4])
    os._exit(0)  # without its peers nothing is left to say
