"""Which batches of an epoch a loader makes where the ranks of a job make them together."""

from __future__ import annotations

import dataclasses
import weakref
from collections.abc import Mapping
from typing import Any, get_args

import torch.distributed

from freshgo._args.checks import shown
from freshgo._args.choices import Uneven
from freshgo._native.loader import share_count
from freshgo.errors import RankError
from freshgo.options import Ranks


@dataclasses.dataclass(frozen=True)
class Share:
    """The batches of one rank: every ``world_size``-th of those that are left, from the ``rank``-th on."""

    rank: int = 0
    world_size: int = 1
    uneven: Uneven = "pad"

    def members(self) -> dict[str, int]:
        """Return the members of ``fg_share``."""
        return {"rank": self.rank, "world_size": self.world_size, "uneven": get_args(Uneven).index(self.uneven)}

    def count(self, batches: int, done: int = 0) -> int:
        """Return the number of its batches in an epoch, once all ranks together have made some."""
        return share_count(self.members(), batches, done)


@dataclasses.dataclass(frozen=True)
class Membership:
    """The place of a loader among ranks, as :class:`freshgo.Ranks` gives it."""

    given: tuple[int, int] | None
    """A rank and a number of ranks; None: those of ``torch.distributed``, whatever they are when they are needed."""
    uneven: Uneven

    @classmethod
    def of(cls, ranks: Ranks, *, drop_last: bool) -> Membership:
        """Return the place that was given, with the default of ``uneven``."""
        given = None if ranks.rank is None or ranks.world_size is None else (int(ranks.rank), int(ranks.world_size))
        return cls(given, ranks.uneven or ("drop" if drop_last else "pad"))

    def shared(self) -> bool:
        """Whether the ranks belong to a process group of several."""
        return self.given is None and self.now().world_size > 1

    def now(self, uneven: Uneven | None = None) -> Share:
        """Return the share of an epoch that begins now, with ``uneven`` in place of its own."""
        rank, world_size = (group_rank() if self.given is None else self.given) or (0, 1)
        return Share(rank, world_size, uneven or self.uneven)


def group_rank() -> tuple[int, int] | None:
    """Return the rank of this process and their number; None where ``torch.distributed`` is not initialised."""
    distributed = torch.distributed
    if not distributed.is_available() or not distributed.is_initialized():
        return None
    return distributed.get_rank(), distributed.get_world_size()


class Agreement:
    """Whether all ranks make batches of the same epoch. They are asked once, where a loader first begins an epoch in a
    process group."""

    def __init__(self) -> None:
        self._group: weakref.ref[Any] | None = None  # which has agreed

    def pending(self, of: Membership) -> bool:
        """Whether the ranks are to be asked: those of a process group of several, which has not been asked."""
        if not of.shared():
            return False
        return self._group is None or self._group() is not torch.distributed.group.WORLD

    def gather(self, mine: Mapping[str, Any]) -> list[dict[str, Any]]:
        """Return what every rank says of its epoch, in their order. All ranks call this together."""
        from freshgo._host.ranks import gathered  # a loader of one rank does not need it

        said = gathered("beginning an epoch", dict(mine))
        self._group = weakref.ref(torch.distributed.group.WORLD)
        return said


def check_same(said: list[dict[str, Any]]) -> None:
    """Raise where ranks say different things: the same error on every rank."""
    from freshgo._host.ranks import spoken  # likewise

    different = []
    for key in dict.fromkeys(key for one in said for key in one):
        of: dict[str, list[int]] = {}
        for rank, one in enumerate(said):
            of.setdefault(shown(one[key]) if key in one else "missing", []).append(rank)
        if len(of) > 1:
            different.append(f"{key} is {', '.join(f'{value} on {spoken(where)}' for value, where in of.items())}")
    if different:
        raise RankError(
            f"the ranks do not make batches of one epoch: {'; '.join(different)}; give all of them the same graph, "
            "options and state, or a loader that one rank iterates alone ranks=Ranks(rank=0, world_size=1)"
        )
