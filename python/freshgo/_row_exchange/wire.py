"""What the ranks of a process group tell each other, and the bytes that they hand over."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor

from freshgo._host.ranks import timeout_of_world
from freshgo._row_exchange import schedule
from freshgo._row_exchange.schedule import Way
from freshgo.errors import RankError

Result = TypeVar("Result")


class LinkLostError(RankError):
    """Another rank is gone, or did not answer in time. Nothing can be said to the others any more."""


class Wire:
    """Process groups of its own, over all ranks, so that nothing here meets what the training sends: one for
    announcements and ids, and one for the rows, which may be under way meanwhile. Each is used by one thread.
    They are gloo's, since rows come from memory of the host. All ranks make them together, and call the same in the
    same order."""

    def __init__(self) -> None:
        timeout = timeout_of_world()
        self._control: Any = dist.new_group(backend="gloo", timeout=timeout)
        self._rows: Any = dist.new_group(backend="gloo", timeout=timeout)
        self.rank, self.world_size = dist.get_rank(), dist.get_world_size()
        self._partners = schedule.partners(self.world_size, self.rank)

    def announce(self, mine: Tensor) -> Tensor:
        """Return the announcements of all ranks, vectors of the same length: int64 ``[ranks, length]``.

        Raises:
            LinkLostError: as for :meth:`hand_over`
        """
        return self._linked(lambda: self._announce(mine))

    def _announce(self, mine: Tensor) -> Tensor:
        announced = [torch.empty_like(mine) for _ in range(self.world_size)]
        dist.all_gather(announced, mine, group=self._control)
        return torch.stack(announced)

    def exchange_ids(self, ids: Sequence[Tensor], counts: Sequence[int]) -> list[Tensor]:
        """Send int64 numbers to every rank, and return the numbers of all ranks.

        Raises:
            LinkLostError: as for :meth:`hand_over`
        """
        received = torch.empty(sum(counts), dtype=torch.int64)
        of = [one.numel() for one in ids]
        sent = torch.cat(list(ids))
        self._linked(lambda: dist.all_to_all_single(received, sent, list(counts), of, group=self._control))
        return list(torch.split(received, list(counts)))

    def exchange_rows(
        self, sent: Tensor, parts: Sequence[int], received: Tensor, n_bytes: Sequence[int], way: Way
    ) -> None:
        """Send every rank its part, and receive a part from each.

        Raises:
            LinkLostError: another rank has ended, or its host cannot be reached
        """
        if way == "rounds":
            self._linked(lambda: self._in_rounds(torch.split(sent, list(parts)), torch.split(received, list(n_bytes))))
        else:
            self._linked(lambda: dist.all_to_all_single(received, sent, list(n_bytes), list(parts), group=self._rows))

    def _linked(self, operation: Callable[[], Result]) -> Result:
        try:
            return operation()
        except RuntimeError as error:  # what torch.distributed raises
            reason = str(error).splitlines()[0] if str(error) else type(error).__name__
            raise LinkLostError(
                f"rank {self.rank} of {self.world_size} lost the others in the exchange of rows: a rank has ended, or "
                f"does not answer within the timeout of the process group ({reason})"
            ) from None

    def _in_rounds(self, messages: Sequence[Tensor], received: Sequence[Tensor]) -> None:
        for other in self._partners:
            out = schedule.pieces(messages[other].numel(), schedule.ROUND_BYTES)
            back = schedule.pieces(received[other].numel(), schedule.ROUND_BYTES)
            for piece in range(max(len(out), len(back))):
                under_way = []
                if piece < len(back):
                    first, end = back[piece]
                    under_way.append(dist.irecv(received[other][first:end], src=other, group=self._rows))
                if piece < len(out):
                    first, end = out[piece]
                    under_way.append(dist.isend(messages[other][first:end], dst=other, group=self._rows))
                for one in under_way:
                    if one is not None:
                        one.wait()

    def close(self) -> None:
        """Leave the groups: ranks that still wait for this one get an error."""
        groups, self._control, self._rows = (self._control, self._rows), None, None
        for group in groups:
            if group is not None and dist.is_initialized():
                dist.destroy_process_group(group)
