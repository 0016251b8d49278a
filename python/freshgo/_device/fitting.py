"""How much of a device the cache of a loader takes where the loader chooses (``device_cache="auto"``).

The device is asked after the first steps of the model, when PyTorch has allocated what a step needs: the cache takes
half of what is left. Where the device runs out of memory all the same, it takes half as much from the next epoch on.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

import torch

from freshgo._args.size import format_size
from freshgo._device.row_cache import DeviceCache
from freshgo._device.rows import Part
from freshgo._device.streams import Streams
from freshgo._observe.log import LOG
from freshgo.errors import BudgetError

STEPS = 8
"""Batches that the loop has received when the device is asked. Arbitrary: the first steps allocate what others use."""

_LEAST = 100
"""A cache of fewer than a hundredth of the rows is not worth opening the loader again. Arbitrary."""

_MARGIN = 32
"""A thirty-second of the device stays free beside the half, for what PyTorch's allocator cannot use. Arbitrary."""

_lock = threading.Lock()  # of several loaders, one after the other takes half of what is left


def room(streams: Streams) -> int:
    """Return the bytes that a cache may take of a device now."""
    free, total = streams.memory()
    return free // 2 - total // _MARGIN


def bounds(parts: list[Part]) -> tuple[int, int]:
    """Return the bytes of the smallest cache of these rows that is worth having, and of one that holds all rows."""
    most = sum(part.num_nodes * part.width for part in parts)
    return max(most // _LEAST, *(part.width for part in parts)), most


class Fitting:
    """Makes the cache of a loader, of the size that the device has room for."""

    def __init__(self, make: Callable[[int], DeviceCache], streams: Streams, parts: list[Part], device: object) -> None:
        """``make`` returns a filled cache of the given bytes; ``parts`` are the node types of the graph."""
        self._make, self._streams, self._device = make, streams, device
        self._least, self._most = bounds(parts)
        self._n_bytes: int | None = None  # not decided
        self._failures = 0  # of the device, when it was

    def due(self, received: int, *, within: bool) -> bool:
        """Whether :meth:`fit` makes another cache. ``received`` counts batches of all epochs. ``within`` an epoch, only
        the first cache is made."""
        if self._n_bytes is None:
            if received >= STEPS and self._room() < self._least:
                self._n_bytes = 0
            return received >= STEPS and self._n_bytes is None
        return not within and self._n_bytes > 0 and self._streams.failures() > self._failures

    def fit(self) -> DeviceCache | None:
        """Return a cache; None where there is no room. The one before is gone."""
        with _lock:
            if self._n_bytes is None:
                n_bytes = self._room()
            else:
                n_bytes = self._n_bytes // 2
                LOG.warning(
                    "%s ran out of memory beside a device_cache of %s, which takes at most %s from now on",
                    *(self._device, format_size(self._n_bytes), format_size(n_bytes)),
                )
            made = self._made(n_bytes)
            self._n_bytes = 0 if made is None else made.n_bytes
            self._failures = self._streams.failures()
        if made is not None:
            LOG.info("%s holds %d rows in a device_cache of %s", self._device, made.rows, format_size(made.n_bytes))
        return made

    def _room(self) -> int:
        return min(room(self._streams), self._most)

    def _made(self, n_bytes: int) -> DeviceCache | None:
        if n_bytes < self._least:
            return None
        try:
            return self._make(n_bytes)
        except torch.cuda.OutOfMemoryError:
            pass
        except BudgetError as error:  # of the host, where the rows are ranked
            LOG.info("no device_cache: %s", error)
            return None
        return self._made(n_bytes // 2)
