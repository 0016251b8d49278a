"""What History and the parts of it see of each other and of a loader."""

from __future__ import annotations

from typing import Any, Protocol

import torch
from torch import Tensor

from freshgo._args.types import Layout


class Decisions(Protocol):
    """What decides over the entries: the history calls of a :class:`freshgo._native.loader.Loader`."""

    @property
    def closed(self) -> bool:
        """Whether its loader was closed."""

    def stats(self) -> dict[str, Any]: ...
    def history_buffer(self) -> Tensor | None: ...
    def history_update(
        self, iteration: int, row_bytes: int, norms: list[tuple[Tensor, Tensor]]
    ) -> list[tuple[torch.Tensor, torch.Tensor]]: ...
    def history_admitted(self, norms: object) -> list[tuple[torch.Tensor, torch.Tensor]]: ...
    def history_skip(self, iteration: int) -> None: ...
    def history_stats(self) -> dict[str, Any]: ...
    def history_forecast(self, epoch: int, done: int, layers: int) -> list[int]: ...
    def history_bound(self, stale: int) -> None: ...
    def history_save(self) -> bytes: ...
    def history_restore(self, state: bytes) -> None: ...


class Feeder(Protocol):
    """The engine of the :class:`freshgo.Loader` whose batches a history prunes."""

    @property
    def native(self) -> Decisions:
        """What decides over the entries."""

    def layout(self) -> Layout:
        """The types and the tensors of its batches."""

    def rank(self, *, take: bool) -> list[int] | None:
        """The rank, and the number of ranks, of the epochs that begin now; None where there is one. With ``take`` spans
        in epochs go by their length from now on."""

    def upcoming(self) -> tuple[int, int]:
        """The epoch that the next ``iter`` begins, and how many of its batches have been made."""

    def rewind(self) -> None:
        """End the epoch that runs, so that the next ``iter`` goes on with it after the last batch yielded."""
