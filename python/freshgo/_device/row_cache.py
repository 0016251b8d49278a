"""The hottest rows in a table on the device (FGNN, section 6.1): a batch brings only the others across the bus.

The loader marks each node of a batch as cached or missed when it is sampled (``place``), neither reads nor copies the
rows of those that are cached, and plans and caches in memory without them. The device puts the rows together (rows.py).
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from freshgo._args.choices import METRICS
from freshgo._args.size import format_size
from freshgo._data.source import Source
from freshgo._device.rows import PLACE, Part, parts_of
from freshgo._native import loader as native_loader
from freshgo._native.header import AUTO
from freshgo._native.options import LoaderOptions
from freshgo.errors import InvalidArgumentError
from freshgo.policies import Resolved

_CHUNK_BYTES = 8 << 20
"""Rows that are brought to the device at a time while the table is filled: enough for the disk to be busy."""


class DeviceCache:
    """Rows of every node-level tensor on a device, and which nodes they belong to.

    ``row_of_node`` is int32 ``[num_nodes]`` on the CPU: the row of each node in the tables of its part, or -1.
    """

    def __init__(self, ids: Tensor, parts: list[Part]) -> None:
        """A cache for the rows of ``ids``, ascending, which :meth:`fill` brings there."""
        self.rows = ids.numel()
        self.tables: dict[str, Tensor] = {}
        self.row_of_node = torch.full((sum(part.num_nodes for part in parts),), -1, dtype=torch.int32)
        self._counts: dict[str, int] = {}  # rows of each table
        first = 0
        for part in parts:
            own = ids[(ids >= first) & (ids < first + part.num_nodes)]
            self.row_of_node[own] = torch.arange(own.numel(), dtype=torch.int32)
            self._counts |= dict.fromkeys(part.widths, own.numel())
            first += part.num_nodes

    @property
    def n_bytes(self) -> int:
        """What the tables take."""
        return sum(table.numel() * table.element_size() for table in self.tables.values())

    def fill(self, chunks: Iterator[dict[str, Tensor]], device: torch.device) -> None:
        """Copy the rows, in the order of the ids, to the device, in the current stream; the host waits for it."""
        filled = dict.fromkeys(self._counts, 0)
        for chunk in chunks:
            for name, rows in chunk.items():
                if name not in self.tables:
                    self.tables[name] = rows.new_empty((self._counts[name], *rows.shape[1:]), device=device)
                first = filled[name]
                filled[name] += rows.size(0)
                self.tables[name][first : filled[name]].copy_(rows)


def hottest(scores: Tensor, count: int) -> Tensor:
    """The ids of the ``count`` highest scores, ascending; of equal scores those of the lower ids."""
    if count == 0:
        return torch.empty(0, dtype=torch.int64)
    bound = scores.kthvalue(scores.numel() - count + 1).values
    above = (scores > bound).nonzero().view(-1)
    equal = (scores == bound).nonzero().view(-1)[: count - above.numel()]
    return torch.cat([above, equal]).sort().values


def obstacle(source: Source) -> str | None:
    """Why a graph cannot have a cache; None where it can."""
    if not source.row_bytes:
        return "device_cache holds rows of node-level tensors, and the graph has none"
    if any(part.prefix + PLACE in part.widths for part in parts_of(source)):
        return f"device_cache uses the name {PLACE!r} itself: rename this tensor"
    return None


def bytes_of(row_of_node: Tensor, parts: list[Part]) -> int:
    """Return the bytes of the rows of a cache."""
    of_parts = torch.split(row_of_node, [part.num_nodes for part in parts])
    return sum(int((of >= 0).sum()) * part.width for of, part in zip(of_parts, parts, strict=True))


def no_room(n_bytes: int, device: torch.device, error: Exception) -> InvalidArgumentError:
    """Return the error for a size that a device has no memory for."""
    return InvalidArgumentError(
        f"device_cache of {format_size(n_bytes)} does not fit into the free memory of {device}: give less, and leave "
        f"room for the model and its batches ({error})"
    )


def filled(source: Source, policy: Resolved, options: LoaderOptions, n_bytes: int, device: torch.device) -> DeviceCache:
    """Return a cache of ``n_bytes`` on ``device``, filled in the current stream."""
    ids = choose(source, policy, options, n_bytes)
    cache = DeviceCache(ids, parts_of(source))
    cache.fill(read_rows(source, ids, options), device)
    return cache


def choose(source: Source, policy: Resolved, options: LoaderOptions, n_bytes: int) -> Tensor:
    """The nodes whose rows a cache of ``n_bytes`` is to hold, ascending.

    They are ranked as ``cache`` says where that ranks nodes, else by how often batches of the first epochs have them.

    Raises:
        InvalidArgumentError: there is room for no row, or nothing to cache.
    """
    wrong = obstacle(source)
    if wrong is not None:
        raise InvalidArgumentError(wrong)
    parts = parts_of(source)
    width = max(part.width for part in parts)
    if n_bytes < width:
        raise InvalidArgumentError(
            f"device_cache must have room for a row of every node-level tensor, {width} bytes, got {n_bytes}"
        )
    if sum(part.num_nodes * part.width for part in parts) <= n_bytes and source.types.total < 2**31:
        return _with_rows(parts).nonzero().view(-1)
    if policy.scores is not None:
        scores = policy.scores
    else:
        ranking: LoaderOptions = {**options, "cache": policy.name, "history": None}
        if policy.name not in METRICS:
            ranking = {**ranking, "cache": "oracle", "presc_epochs": AUTO}
        scores = native_loader.hotness(source.native, source.types.total, ranking)
    if len(parts) == 1:
        return hottest(scores, min(source.types.total, 2**31 - 1, n_bytes // max(width, 1)))
    return hottest_bytes(scores, parts, n_bytes)


def _with_rows(parts: list[Part]) -> Tensor:
    """Bool ``[num_nodes]``: the nodes that have tensors."""
    return torch.cat([torch.full((part.num_nodes,), bool(part.widths)) for part in parts])


def hottest_bytes(scores: Tensor, parts: list[Part], n_bytes: int) -> Tensor:
    """The ids of the nodes with the highest scores whose rows fit together into ``n_bytes``, ascending; of equal scores
    those of the lower ids. A row saves as many bytes in a batch as it takes on the device, so the wide ones of equally
    hot nodes are worth no more than the narrow ones."""
    ids = _with_rows(parts).nonzero().view(-1)
    ids = ids[scores[ids].sort(descending=True, stable=True).indices]
    counts = torch.tensor([part.num_nodes for part in parts])
    widths = torch.tensor([part.width for part in parts])
    taken = widths[torch.searchsorted(counts.cumsum(0), ids, right=True)].cumsum(0)
    return ids[: min(int(torch.searchsorted(taken, n_bytes, right=True)), 2**31 - 1)].sort().values


def read_rows(source: Source, ids: Tensor, options: LoaderOptions) -> Iterator[dict[str, Tensor]]:
    """The rows of ``ids`` of every node-level tensor, in their order, some at a time."""
    rows = max(1, _CHUNK_BYTES // max(1, *(part.width for part in parts_of(source))))
    more = {name: options.get(name) for name in ("io", "checksums", "aggregate")}
    for tensors in native_loader.stored_rows(source.native, ids, rows, **more):
        yield {name: tensors[name] for name in source.row_bytes}
