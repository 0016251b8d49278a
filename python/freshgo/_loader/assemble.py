"""From a raw batch of the library to the object that the loop gets."""

from __future__ import annotations

from typing import Any

from freshgo._batch.blocks import levels_of
from freshgo._data.narrow import Delivered
from freshgo._loader.arrange import arrange, batch_class, trace_of
from freshgo._loader.request import Request
from freshgo._loader.transforming import Underway
from freshgo._native.loader import RawBatch
from freshgo._observe.ranges import stage


class Assembler:
    """Widens the tensors of raw batches, arranges them as batches, and calls the user's transform."""

    def __init__(self, request: Request, narrow: Delivered) -> None:
        self.request, self.narrow = request, narrow
        self.batch_class = batch_class(request.types)
        self._token = object()  # tells the batches of this loader from others

    def arranged(self, raw: RawBatch, request: Request | None = None) -> Any:
        """Return the batch of a request, by default the loader's own, before its transform."""
        with stage("freshgo.arrange"):
            self.narrow.apply(raw.tensors)
            return arrange(self.batch_class, self.request if request is None else request, raw)

    def transformed(self, batch: Any) -> Any:
        """Return what the transform makes of a batch."""
        transform = self.request.asked.transform
        if transform is None:
            return batch
        with stage("freshgo.transform"):
            return transform(batch)

    def finished(self, raw: RawBatch) -> Any:
        """Return what the loop gets for a batch of an epoch."""
        if isinstance(raw, Underway):
            return raw.result()
        batch = self.arranged(raw)
        history = self.request.asked.history
        if history is not None:
            levels = levels_of(batch)
            if levels is not None:
                levels.owner = self._token
            history._steps.hand_over(levels)
        return self.transformed(batch)

    def nodes(self, raw: RawBatch) -> Any:
        """Return what a trace yields for a batch: its nodes."""
        return trace_of(self.request.types, raw.tensors)
