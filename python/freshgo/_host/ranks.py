"""What the ranks of a process group tell each other, and which of them are on one host."""

from __future__ import annotations

import contextlib
import datetime
import os
import weakref
from pathlib import Path
from typing import Any

import torch.distributed

from freshgo.errors import RankError


def where() -> tuple[str, ...]:
    """Return what processes have in common that can share memory and sockets."""
    boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    return boot, str(os.stat("/proc/self/ns/net").st_ino), str(os.geteuid())  # noqa: PTH116 (not a path in a tree)


def neighbours(places: list[tuple[str, ...]], rank: int) -> range:
    """Return the adjacent ranks around one that are on its host."""
    first, end = rank, rank + 1
    while first > 0 and places[first - 1] == places[rank]:
        first -= 1
    while end < len(places) and places[end] == places[rank]:
        end += 1
    return range(first, end)


_beside: tuple[weakref.ref[Any], Any] | None = None  # the default process group, and one of gloo beside it


def control_group() -> Any:
    """Return a process group of all ranks that takes tensors of the host: the default one, or beside one of NCCL, one
    of gloo, so that nobody needs a current device for what ranks tell each other, or waits for the training's
    operations there. All ranks call this together.

    Raises:
        RuntimeError: another rank has ended, or has not come within the timeout of the group
    """
    global _beside
    world: Any = torch.distributed.group.WORLD
    with contextlib.suppress(RuntimeError):  # it has no backend for the host
        world._get_backend(torch.device("cpu"))
        return world
    if _beside is None or _beside[0]() is not world:
        group = torch.distributed.new_group(backend="gloo", timeout=timeout_of_world())
        _beside = weakref.ref(world), group
    return _beside[1]


def gathered(what: str, mine: Any) -> list[Any]:
    """Return what every rank of the process group says, in their order. All ranks call this together, to do the same,
    which ``what`` says.

    Raises:
        RankError: another rank does something else, has ended, or does not answer in time.
    """
    said: list[Any] = [None] * torch.distributed.get_world_size()
    try:
        torch.distributed.all_gather_object(said, (what, mine), group=control_group())
    except RuntimeError as error:  # what torch.distributed raises
        told = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise RankError(
            "all ranks of the process group take part here, and another one has ended, or has not come within the "
            f"timeout of the group: its own output says why ({told})"
        ) from error
    doing: dict[str, list[int]] = {}
    for rank, (other, _) in enumerate(said):
        doing.setdefault(other, []).append(rank)
    if len(doing) > 1:
        different = ", ".join(f"{other} on {spoken(where)}" for other, where in doing.items())
        raise RankError(
            f"the ranks do not do the same together: {different}; give all of them the same loaders, to be "
            "used in the same order"
        )
    return [value for _, value in said]


def timeout_of_world() -> datetime.timedelta | None:
    """Return how long operations of the default process group wait for other ranks; None where it does not say."""
    for device in ("cpu", "cuda"):
        try:
            backend = torch.distributed.group.WORLD._get_backend(torch.device(device))  # type: ignore[union-attr]
        except RuntimeError:  # it has none for this device
            continue
        waits = getattr(getattr(backend, "options", None), "_timeout", None)
        if isinstance(waits, datetime.timedelta):
            return waits
    return None


def spoken(ranks: list[int]) -> str:
    """Return ranks as a message names them."""
    return f"rank {ranks[0]}" if len(ranks) == 1 else f"ranks {', '.join(map(str, ranks))}"
