"""The rows that the devices of executors hold: on all of them the same ones, because a batch leaves its rows out before
it is known who trains it."""

from __future__ import annotations

from typing import Literal

import torch

from freshgo._args.size import format_size
from freshgo._data.source import Source
from freshgo._device import fitting, row_cache
from freshgo._device.rows import parts_of
from freshgo._loader.request import Request
from freshgo._observe.log import LOG
from freshgo.errors import BudgetError


class HeldRows:
    """Chooses them: before the first epoch where ``size`` is given, else when the devices are known to have room."""

    def __init__(self, source: Source, request: Request, size: int | Literal["auto"] | None) -> None:
        self._source, self._request, self._size = source, request, size

    def given(self) -> torch.Tensor | None:
        """Return the row of each node in tables of the given size, int32, -1 for none. None: no size is given."""
        return self._chosen(self._size) if isinstance(self._size, int) else None

    def due(self, trained: int) -> bool:
        """Return whether :meth:`fitted` is to choose a size once ``trained`` batches are trained."""
        return self._size == "auto" and trained >= fitting.STEPS

    def fitted(self, room: int) -> torch.Tensor | None:
        """Return the rows for which each device has room, as :meth:`given` does. None: it is not worth it."""
        least, most = fitting.bounds(parts_of(self._source))
        self._size = min(room, most)
        if self._size < least:
            return None
        try:
            return self._chosen(self._size)
        except BudgetError as error:  # of the host, where the rows are ranked
            LOG.info("no device_cache: %s", error)
            return None

    def _chosen(self, n_bytes: int) -> torch.Tensor:
        ids = row_cache.choose(self._source, self._request.policy, self._request.options, n_bytes)
        LOG.info("each device holds %d rows in a device_cache of %s", ids.numel(), format_size(n_bytes))
        return row_cache.DeviceCache(ids, parts_of(self._source)).row_of_node

    def figures(self, row_of_node: torch.Tensor) -> dict[str, int]:
        """Return what each device holds, for ``Training.stats()``."""
        n_bytes = row_cache.bytes_of(row_of_node, parts_of(self._source))
        return {"device_cache_rows": int((row_of_node >= 0).sum()), "device_cache_bytes": n_bytes}
