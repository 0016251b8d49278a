"""What History and the parts of it see of each other and of a loader."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

import torch
from torch import Tensor

from freshgo._args.types import Layout
from freshgo._batch.structure import Levels
from freshgo._history.training_step import Step


class Rows(Protocol):
    """A :class:`freshgo.History`, as the hooks in a model see it."""

    @property
    def _step(self) -> Step | None:
        """The training step at hand; None where the newest batch is a plain one."""

    @property
    def _keeps_rows(self) -> bool:
        """Whether kept are the rows that the next layer reads; else what a layer adds up."""

    def _check_levels(self, num_layers: int) -> None:
        """Raise an error if a model with this number of layers lacks a level that is kept."""

    def _batches(self) -> Layout | None:
        """The types and the tensors of the loader's batches; None while there is no loader."""

    def _evaluating(self) -> bool:
        """Whether history is neither read nor written now."""

    def _merged(self, levels: Levels, level: int, parts: list[Tensor]) -> list[Tensor]:
        """The aggregates of all rows of a level, of whose computed ones, type after type, these are the parts."""

    def _rows(self, levels: Levels, level: int, h: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """The rows that layer ``level + 1`` reads of the batch of these levels, by node type."""


class Decisions(Protocol):
    """What decides over the entries: the history calls of a :class:`freshgo._native.loader.Loader`."""

    @property
    def closed(self) -> bool:
        """Whether its loader was closed."""

    def history_buffer(self) -> Tensor | None: ...
    def history_update(
        self, iteration: int, row_bytes: int, norms: list[tuple[Tensor, Tensor]]
    ) -> list[tuple[torch.Tensor, torch.Tensor]]: ...
    def history_admitted(self, norms: object) -> list[tuple[torch.Tensor, torch.Tensor]]: ...
    def history_skip(self, iteration: int) -> None: ...
    def history_stats(self) -> dict[str, Any]: ...
    def history_forecast(self, epoch: int, done: int, layers: int) -> list[int]: ...
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
