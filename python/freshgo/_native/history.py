"""The calls of a loader that concern its history cache; see ``freshgo/history.h``."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from typing import Any

import torch

from freshgo._native import abi, dlpack, header
from freshgo._native.options import pointer_to

POLL_MS = 50
"""How long a call may block before Ctrl-C is looked for."""


class HistoryCalls:
    """A part of :class:`freshgo._native.loader.Loader`."""

    _handle: Callable[[], int]
    _judged: tuple[object, Any, list[tuple[torch.Tensor, torch.Tensor]], Any] | None = None  # arrays of the last update

    def history_buffer(self) -> torch.Tensor | None:
        """The buffer (uint8), or None where it is on another device."""
        return _tensor("fg_history_buffer", self._handle())

    def history_update(
        self, iteration: int, row_bytes: int, norms: Sequence[tuple[torch.Tensor, torch.Tensor]]
    ) -> list[tuple[torch.Tensor, torch.Tensor]]:
        """Judge a batch by the gradient norms (float32) of each hidden layer's computed rows and hits.

        Returns:
            For each hidden layer which of the computed rows are kept and in which slots (int64, one dimension).
        """
        raw, kept = (header.HistoryLayer * len(norms))(), []
        alive = [(computed.contiguous(), hits.contiguous()) for computed, hits in norms]
        for layer, (computed, hits) in zip(raw, alive, strict=True):
            rows, slots = (torch.empty(computed.numel(), dtype=torch.int64, device="cpu") for _ in range(2))
            kept.append((rows, slots))
            layer.computed, layer.num_computed = pointer_to(computed, ctypes.c_float), computed.numel()
            layer.hits, layer.num_hits = pointer_to(hits, ctypes.c_float), hits.numel()
            layer.rows, layer.slots = pointer_to(rows, ctypes.c_int64), pointer_to(slots, ctypes.c_int64)
        self._judged = norms, raw, kept, alive
        _update(self._handle(), iteration, row_bytes, raw, len(norms))
        return self.history_admitted(norms)

    def history_admitted(self, norms: object) -> list[tuple[torch.Tensor, torch.Tensor]]:
        """What :meth:`history_update` returned for these very ``norms``, if they were the last, or would have, had
        Ctrl-C not struck: nothing where that was before the library had judged."""
        if self._judged is None or self._judged[0] is not norms:
            return []
        _, raw, kept, _ = self._judged
        return [
            (rows[: layer.num_admitted], slots[: layer.num_admitted])
            for layer, (rows, slots) in zip(raw, kept, strict=True)
        ]

    def history_skip(self, iteration: int) -> None:
        """End the update of a batch with nothing kept or judged."""
        _update(self._handle(), iteration, 0, None, 0)

    def history_stats(self) -> dict[str, Any]:
        """What the history did."""
        return abi.read_json("fg_history_stats", self._handle())

    def history_forecast(self, epoch: int, done: int, layers: int) -> list[int]:
        """Predict what the history does in an epoch after its first ``done`` batches, by hidden layer: see
        ``freshgo/history.h``."""
        counts = (ctypes.c_int64 * (4 + 2 * layers))()
        arguments = (self._handle(), epoch, done, layers, POLL_MS, counts)
        while abi.call("fg_history_forecast", *arguments) == header.TIMEOUT:
            pass
        return list(counts)

    def history_bound(self, stale: int) -> None:
        """Bound the age of entries by a number of iterations, from the next epoch on; this ends the running one."""
        abi.call("fg_history_bound", self._handle(), stale)

    def history_save(self) -> bytes:
        """The state of the decisions."""
        state = _tensor("fg_history_save", self._handle())
        return b"" if state is None else state.numpy().tobytes()

    def history_restore(self, state: bytes) -> None:
        """Take over a saved state, which ends the running epoch.

        Raises:
            FormatError: these bytes are no state of this history
        """
        abi.call("fg_history_restore", self._handle(), state, len(state))


def _update(handle: int, iteration: int, row_bytes: int, layers: Any, count: int) -> None:
    while abi.call("fg_history_update", handle, iteration, row_bytes, layers, count, POLL_MS) == header.TIMEOUT:
        pass


def _tensor(function: str, handle: int) -> torch.Tensor | None:
    """The one tensor that a function gives."""
    slots, versioned = (header.Tensor * 1)(), dlpack.use_versioned()
    try:
        abi.call(function, handle, int(versioned), slots)
        if not slots[0].managed:
            return None
        (tensor,) = dlpack.to_torch(slots, 1, versioned).values()
    except BaseException:  # Ctrl-C may strike right after the library handed it over
        dlpack.discard(slots, 1, versioned)
        raise
    return tensor


def begin_step(loader: HistoryCalls) -> None:
    """Begin the training step of the next batch that was taken."""
    abi.call("fg_history_begin", loader._handle())


def end_step(loader: HistoryCalls) -> None:
    """End the step of the newest batch, before the next one is waited for. Nothing is kept without an update."""
    while abi.call("fg_history_end", loader._handle(), POLL_MS) == header.TIMEOUT:
        pass
