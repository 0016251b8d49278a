"""The hottest rows in a table on the device (FGNN, section 6.1): a batch brings only the others across the bus.

The loader marks each node of a batch as cached or missed when it is sampled (``place``), neither reads nor copies the
rows of those that are cached, and plans and caches in memory without them. The device puts the rows together.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator

import torch
from torch import Tensor

from freshgo._args.choices import METRICS
from freshgo._data.source import Source
from freshgo._native import cuda
from freshgo._native import loader as native_loader
from freshgo._native.header import AUTO
from freshgo._native.loader import Loader as NativeLoader
from freshgo._native.options import LoaderOptions, loader_options
from freshgo.errors import InvalidArgumentError
from freshgo.policies import Resolved

_CHUNK_BYTES = 8 << 20
"""Rows that are brought to the device at a time while the table is filled: enough for the disk to be busy."""

PLACE = "place"

Assemble = Callable[[Tensor, Tensor, Tensor], Tensor]


@dataclasses.dataclass(frozen=True)
class Part:
    """Nodes that have the same tensors: all of a graph, or those of one type."""

    prefix: str
    """Of the tensors in a batch of the library: ``"n0/"`` of the first type, else nothing."""
    num_nodes: int
    widths: dict[str, int]
    """Bytes of a row of each node-level tensor, by its name in a batch."""

    @property
    def width(self) -> int:
        """Bytes of a row of all of them."""
        return sum(self.widths.values())


def parts_of(source: Source) -> list[Part]:
    """The parts of a graph, in the order of its nodes' numbers."""
    prefixes = [source.types.node_name(i, "") for i in range(len(source.types.num_nodes))]
    return [
        Part(prefix, count, {name: n for name, n in source.row_bytes.items() if name.startswith(prefix)})
        for prefix, count in zip(prefixes, source.types.num_nodes.values(), strict=True)
    ]


class DeviceCache:
    """Rows of every node-level tensor on a device, and which nodes they belong to.

    ``row_of_node`` is int32 ``[num_nodes]`` on the CPU: the row of each node in the tables of its part, or -1.
    """

    def __init__(self, ids: Tensor, parts: list[Part], assemble: Assemble) -> None:
        """A cache for the rows of ``ids``, ascending, which :meth:`fill` brings there."""
        self.rows = ids.numel()
        self.tables: dict[str, Tensor] = {}
        self.row_of_node = torch.full((sum(part.num_nodes for part in parts),), -1, dtype=torch.int32)
        self._parts = parts
        self._counts: dict[str, int] = {}  # rows of each table
        self._assemble = assemble
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

    def finish(self, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
        """Replace the missed rows of a batch by those of all its nodes."""
        for part in self._parts:
            place = tensors.pop(part.prefix + PLACE)
            for name in part.widths:
                tensors[name] = self._assemble(self.tables[name], tensors[name], place)
        return tensors


def hottest(scores: Tensor, count: int) -> Tensor:
    """The ids of the ``count`` highest scores, ascending; of equal scores those of the lower ids."""
    if count == 0:
        return torch.empty(0, dtype=torch.int64)
    bound = scores.kthvalue(scores.numel() - count + 1).values
    above = (scores > bound).nonzero().view(-1)
    equal = (scores == bound).nonzero().view(-1)[: count - above.numel()]
    return torch.cat([above, equal]).sort().values


def choose(source: Source, policy: Resolved, options: LoaderOptions, n_bytes: int) -> Tensor:
    """The nodes whose rows a cache of ``n_bytes`` is to hold, ascending.

    They are ranked as ``cache`` says where that ranks nodes, else by how often batches of the first epochs have them.

    Raises:
        InvalidArgumentError: there is room for no row, or nothing to cache.
    """
    if not source.row_bytes:
        raise InvalidArgumentError("device_cache holds rows of node-level tensors, and the graph has none")
    parts = parts_of(source)
    if any(part.prefix + PLACE in part.widths for part in parts):
        raise InvalidArgumentError(f"device_cache uses the name {PLACE!r} itself: rename this tensor")
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
        ranking: LoaderOptions = {**options, "cache": policy.name}
        if policy.name not in METRICS:
            ranking = {**options, "cache": "oracle", "presc_epochs": AUTO}
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
    alone = loader_options(  # without hops
        seeds=ids,
        batch_size=rows,
        prefetch=2,
        cache="none",
        feature_cache=0,
        neighbor_cache=0,
        io=options["io"],
        checksums=options["checksums"],
        aggregate=options.get("aggregate"),
    )
    loader = NativeLoader(source.native, alone)
    try:
        loader.start(0, 0)
        while (batch := loader.next()) is not None:
            yield {name: batch.tensors[name] for name in source.row_bytes}
    finally:
        loader.close()


def assembler(device: torch.device) -> Assemble:
    """What puts rows together on a device: the kernel of the library, where it has one that runs there."""
    return cuda.assemble if cuda.obstacle(device) is None else assemble


def assemble(table: Tensor, missed: Tensor, place: Tensor) -> Tensor:
    """Put rows together: ``table[place[i]]`` where that is not negative, else ``missed[~place[i]]``.

    With PyTorch's own operations, on any device and for any dtype; the kernel of the library moves half the bytes.
    """
    shape = (place.numel(), *table.shape[1:])
    if table.numel() == 0 and missed.numel() == 0:
        return table.new_empty(shape)
    if table.size(0) == 0:
        rows = _words(missed).index_select(0, ~place)
    else:
        rows = _words(table).index_select(0, place.clamp(min=0))
        if missed.size(0) > 0:
            others = _words(missed).index_select(0, (~place).clamp_(min=0))
            rows = torch.where((place < 0).unsqueeze(1), others, rows)
    return rows.view(table.dtype).view(shape)


def _words(rows: Tensor) -> Tensor:
    """Rows as integers, the widest that they consist of: not every dtype can be selected by index."""
    flat = rows.reshape(rows.size(0), -1)
    n_bytes = flat.size(1) * flat.element_size()
    kind = next(k for k in (torch.int64, torch.int32, torch.int16, torch.uint8) if n_bytes % k.itemsize == 0)
    return flat.view(kind)
