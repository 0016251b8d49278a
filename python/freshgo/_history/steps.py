"""The training steps of a history: each pruned batch from being handed over to its update."""

from __future__ import annotations

import warnings
from collections.abc import Mapping

from torch import Tensor, nn

from freshgo._args import checks
from freshgo._args.types import Layout
from freshgo._batch.structure import Levels
from freshgo._history.checks import levels_of_model
from freshgo._history.entries import Entries
from freshgo._history.interfaces import Feeder
from freshgo._history.training_step import Step
from freshgo.errors import InvalidArgumentError


class Steps:
    """The step at hand, and the mode of the model. The loader hands batches over, and layers ask for rows of them."""

    def __init__(self, entries: Entries) -> None:
        self.entries, self.keeps = entries, entries.keeps
        self.training = True
        self.model: nn.Module | None = None
        """The attached model, whose own mode decides too."""
        self.current: Step | None = None
        """The training step at hand; None where the newest batch is a plain one."""
        self._warned = False
        self._judged = False  # whether it is known that the layer of the kept level adds up,
        self._seen = False  # and that it reads features

    def bind(self, loader: Feeder, hops: int) -> None:
        """Belong to a loader, which samples ``hops`` hops."""
        self.entries.bind(loader, hops)
        self.current = None

    def layout(self) -> Layout | None:
        """Return the types and the tensors of the loader's batches; None while there is no loader."""
        loader = self.entries.loader
        return None if loader is None else loader.layout()

    def check_levels(self, num_layers: int) -> None:
        """Raise an error if a model with this number of layers lacks a level that is kept."""
        levels_of_model(self.keeps.levels, num_layers, f"the model has {num_layers} message-passing layers")

    def evaluating(self) -> bool:
        """Return whether history is neither read nor written now."""
        return not self.training or (self.model is not None and not self.model.training)

    def begin_epoch(self, done: int = 0) -> bool:
        """Return whether the epoch that begins now uses history; ``done`` of its batches have been made before."""
        self.drop_unseen()
        self.entries.restore_pending()
        return not self.evaluating() and self.entries.begin_epoch(done)

    def judge(self, level: int, *, adds_up: bool, name: str) -> None:
        """Note whether the layer that makes ``level`` adds up. Where it does not, nothing is kept of it unless the
        level was named: such a layer learns from computed rows alone, which costs accuracy."""
        if self._judged or not self.keeps.sums or level not in (self.keeps.levels or ()):
            return
        self._judged = True
        if not adds_up:
            self._leave(
                f"what {name} computes is no sum with fixed coefficients; History(levels={level}) keeps what it "
                "returns, History(keep='rows') what the next layer reads, both at a cost in accuracy"
            )

    def judge_rows(self, levels: Levels, level: int, rows: Mapping[str, Tensor]) -> None:
        """Note whether the rows that layer 1 reads are features. Where they are learned, sums of them grow stale and
        pass no gradient on, so nothing is kept of them unless the level was named."""
        if self._seen or not self.keeps.sums or level > 0 or levels.first_bytes is not None:
            return
        self._seen = True
        if any(of.requires_grad for of in rows.values()):
            self._leave("the rows that layer 1 reads are learned; History(levels=1) keeps sums of them nevertheless")

    def _leave(self, why: str) -> None:
        self.entries.leave(why)
        if self.current is not None:
            self.current.kept = []

    def forget_model(self) -> None:
        """Judge the layers of another model."""
        self._judged, self._seen, self.entries.left = False, False, None

    def drop_unseen(self) -> None:
        """Forget a batch that was handed over and that no model has seen: the loop was left."""
        if self.current is not None and not self.current.seen_by_model:
            self.current = None

    def hand_over(self, levels: Levels | None) -> None:
        """Begin the step of a batch that the loader yields; ``levels`` is None for a plain batch."""
        self.entries.write()
        before = self.current
        self.current = None if levels is None else Step(levels, self.keeps)
        if self.current is not None and self.entries.left is not None:
            self.current.kept = []
        if levels is not None:
            self.entries.trail.add(levels)
        if before is not None and not before.done and not self._warned:
            self._warned = True
            warnings.warn(
                "history.update() was not called for a batch before the next one was requested: such batches "
                "keep nothing and save nothing; call it after every loss.backward()",
                UserWarning,
                stacklevel=checks.caller(),
            )

    def update(self) -> None:
        """Keep the stable rows of the batch at hand, after its backward pass, and end its step."""
        step = self.current
        if step is None or step.done:
            return
        native = self.entries.native
        try:
            if self.evaluating():
                native.history_skip(step.levels.index)
            else:
                self.entries.keep(step)
        finally:
            step.forget()

    def rows(self, levels: Levels, level: int, h: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Return the rows that layer ``level + 1`` reads of the batch of these levels, by node type."""
        return self._checked(levels).input(level, h, self.entries.buffer, self.entries.estimation.add)

    def merged(self, levels: Levels, level: int, parts: list[Tensor]) -> list[Tensor]:
        """Return the aggregates of all rows of a level. ``parts`` are the computed ones, type after type."""
        return self._checked(levels).merged(level, parts, self.entries.buffer, self.entries.estimation.add)

    def _checked(self, levels: Levels) -> Step:
        """Return the step at hand.

        Raises:
            InvalidArgumentError: it is over, or the levels are of another batch.
        """
        step = self.current
        if self.evaluating():
            raise InvalidArgumentError(
                "the batch was pruned for training, but the history or its model is in evaluation: evaluate with a "
                "loader that has no history, or begin an epoch of this one after eval()"
            )
        if step is not None and step.levels.owner is not levels.owner:
            raise InvalidArgumentError("the batch was pruned by another loader's history")
        if step is None or step.levels.index != levels.index:
            raise InvalidArgumentError(
                f"batch {levels.index} is not the newest batch of its loader: the rows that it needs are kept only "
                "until the next batch is asked for, so train on each batch before the next"
            )
        if step.done:
            raise InvalidArgumentError(
                f"update() has been called for batch {levels.index}, and the cache may have dropped the rows that the "
                "batch needs: run a batch through the model before you call update() for it"
            )
        return step
