"""One training step over a pruned batch: what it reads of the history, and what decides over what is kept."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from itertools import accumulate
from typing import Any

import torch
from torch import Tensor

from freshgo._args.types import EdgeType
from freshgo._batch import tables
from freshgo._batch.structure import Levels
from freshgo._history.crossing import Fetched, sent
from freshgo.errors import DTypeError, InvalidArgumentError


class Buffer:
    """Embeddings in a tensor of bytes: slot ``s`` begins at ``s`` rows, and a row is as wide as the widest layer."""

    def __init__(self, raw: Tensor) -> None:
        self.raw = raw
        self.dtype: torch.dtype | None = None  # None until the first update
        self.width = 0
        self.widths: dict[int, tuple[int, ...]] = {}  # by level, of the parts of its rows

    @property
    def row_bytes(self) -> int:
        """Bytes of a slot; 0 until the first update."""
        return 0 if self.dtype is None else self.width * self.dtype.itemsize

    def columns(self, parts: Sequence[Tensor]) -> list[Tensor]:
        """The slots, for each part of a row ``[slots, columns of the part]``; a layer that is narrower than the widest
        uses the first columns."""
        assert self.dtype is not None
        slots = self.raw.numel() // self.row_bytes
        table = self.raw[: slots * self.row_bytes].view(self.dtype).view(slots, self.width)
        ends = accumulate(part.size(1) for part in parts)
        return [table[:, end - part.size(1) : end] for end, part in zip(ends, parts, strict=True)]

    def check(self, parts: Sequence[Tensor], level: int) -> None:
        """Raise an error if rows made of these parts differ from the stored rows in width or dtype.

        Raises:
            InvalidArgumentError, DTypeError: another device, another dtype, or rows that are too wide.
        """
        h, width = parts[0], sum(part.size(1) for part in parts)
        if h.device != self.raw.device:
            raise InvalidArgumentError(
                f"layer {level} computes on {h.device}, the history's buffer is on {self.raw.device}: "
                f"make it with History(device={str(h.device)!r}), or move the model"
            )
        if len({part.dtype for part in parts}) > 1:
            raise DTypeError(
                f"what is kept of layer {level} must have one dtype, got {[str(part.dtype) for part in parts]}"
            )
        if not h.dtype.is_floating_point:
            raise DTypeError(f"rows of layer {level} must be floating point to be kept, got {h.dtype}")
        if self.dtype is not None and h.dtype != self.dtype:
            raise DTypeError(
                f"layer {level} computes {h.dtype}, the history holds {self.dtype} since its first update: keep to one "
                "dtype (autocast in every step or in none), or begin with a new History"
            )
        if self.dtype is not None and width > self.width:
            raise InvalidArgumentError(
                f"layer {level} computes rows of {width} columns, the widest that the history holds since its "
                f"first update have {self.width}: begin with a new History for another model"
            )
        now, before = tuple(part.size(1) for part in parts), self.widths.get(level, ())
        if any(a != b for a, b in zip(now, before, strict=False)):
            raise InvalidArgumentError(
                f"what is kept of layer {level} has {now} columns, what the history holds of it has {before}: begin "
                "with a new History for another model"
            )

    def take(self, other: Buffer) -> None:
        """Take over the embeddings of another buffer of this size."""
        self.dtype, self.width, self.widths = other.dtype, other.width, dict(other.widths)
        if self.raw is not other.raw:
            self.raw.copy_(other.raw)

    def learn(self, parts: Sequence[Tensor], level: int) -> None:
        """Take note of how wide the parts of a level are; where some types are absent there may be fewer."""
        now = tuple(part.size(1) for part in parts)
        if len(now) > len(self.widths.get(level, ())):
            self.widths[level] = now


Admitted = list[tuple[Tensor, Tensor]]
"""Of each hidden layer which of the computed rows are kept and in which slots: int64, one dimension."""


@dataclasses.dataclass(frozen=True)
class Unwritten:
    """Rows on their way to the buffer: ``rows[l - 1]`` are the parts of the computed ones of layer ``l``, judged by
    ``norms``."""

    norms: object
    buffer: Buffer
    dtype: torch.dtype
    width: int
    rows: list[list[Tensor]]

    def write(self, admitted: Admitted) -> None:
        """Write those that are kept."""
        buffer = self.buffer
        if buffer.dtype is None:
            buffer.dtype, buffer.width = self.dtype, self.width
        if not any(rows.numel() for rows, _ in admitted):  # as where nothing was judged
            return
        both = [of for pair in admitted for of in pair]
        there = iter(torch.split(sent(torch.cat(both), buffer.raw.device), [of.numel() for of in both]))
        for level, parts in enumerate(self.rows[: len(admitted)], 1):
            rows, slots = next(there), next(there)
            if not rows.numel():
                continue
            buffer.learn(parts, level)
            every = rows.numel() == parts[0].size(0)
            if every:  # in their order, they need not be gathered
                slots = torch.empty_like(slots).index_copy_(0, rows, slots)
            for part, column in zip(parts, buffer.columns(parts), strict=True):
                column.index_copy_(0, slots, part if every else part.index_select(0, rows))


@dataclasses.dataclass
class _Seen:
    """What a step saw of a hidden layer."""

    rows: list[Tensor]
    """The parts of the computed rows, detached, in the order of the layer's outputs."""
    versions: list[int]
    gradient: Tensor | None = None
    """Of the level's table, summed over backward passes."""


@dataclasses.dataclass(frozen=True)
class Keeps:
    """What a history keeps."""

    aggregates: bool
    """What a layer adds up, which enters whatever its gradients are; else the rows that the next layer reads."""
    levels: tuple[int, ...] | None
    """The hidden levels, ascending; None: all."""
    sums: bool = False
    """Nothing is kept of a layer that does not add up."""

    def of(self, num_layers: int) -> list[int]:
        """Return the kept hidden levels of a model with this number of layers."""
        return [level for level in range(1, num_layers) if self.levels is None or level in self.levels]


class Step:
    """The training step of one batch, from being handed over to its update."""

    def __init__(self, levels: Levels, keeps: Keeps) -> None:
        self.levels, self._keeps = levels, keeps
        self.kept = keeps.of(levels.num_layers)
        """The kept hidden levels."""
        self.seen: dict[int, _Seen] = {}
        self.seen_by_model = False  # whether any layer has read its input
        self.done = False  # whether the update has been, or is not to be
        self.bytes_saved = 0  # of the features, once they were read
        self._alias: tuple[object, Levels] | None = None

    def on(self, device: torch.device) -> Levels:
        """The levels with their tensors on ``device``."""
        if self.levels.nodes[0].device != device:
            self.levels = self.levels.to(device, non_blocking=True)
        return self.levels

    def recognise(self, given: object, edges: Mapping[EdgeType, Tensor]) -> Levels | None:
        """Return the levels if ``edges`` are the batch's: a copy that was made by moving the batch. They were ``given``
        in this object, by which they are known when they come again."""
        if self._alias is not None and self._alias[0] is given:
            return self._alias[1]
        if not tables.may_have(self.levels, edges):
            return None
        levels = self.on(next(iter(edges.values())).device)
        if not tables.have(levels, edges):
            return None
        self._alias = (given, levels)
        return levels

    def has_gaps(self, x: Mapping[str, Tensor]) -> bool:
        """Whether ``x`` are the features of this batch, which are zeros for nodes that need none, and has such."""
        gaps: list[Tensor] = []
        for node_type, gap in tables.unread(self.levels).items():
            rows = x.get(node_type)
            if rows is None:
                continue
            if rows.dim() == 0 or rows.size(0) != gap.numel():
                return False
            gaps.append(rows[gap.to(rows.device)])
        return bool(gaps) and not any(bool(rows.any()) for rows in gaps)

    def input(
        self, level: int, given: Mapping[str, Tensor], buffer: Callable[[], Buffer], probed: Callable[..., None]
    ) -> dict[str, Tensor]:
        """Return the rows that layer ``level + 1`` reads, by node type: of the features, or computed and stored ones in
        their places.

        Raises:
            InvalidArgumentError, DTypeError: what was given is not what this level needs.
        """
        self.seen_by_model = True
        rows_of = tables.checked(self.levels, level, given)
        if level == 0:
            return self._features(rows_of)
        if self._keeps.aggregates:  # the layer below has returned all rows
            tables.check_whole(self.levels, level, rows_of)
            return dict(rows_of)
        h = tables.flatten(self.levels, level, rows_of)
        return tables.split(self.levels, level, self.merged(level, [h], buffer, probed)[0])

    def merged(
        self, level: int, parts: list[Tensor], buffer: Callable[[], Buffer], probed: Callable[..., None]
    ) -> list[Tensor]:
        """The table of a hidden level, of whose computed rows, or aggregates, these are the parts side by side."""
        if level not in self.kept:
            return parts  # there are no hits
        levels = self.on(parts[0].device)
        computed, hit, slot = levels.computed[level], levels.hit[level], levels.slot[level]
        assert computed is not None
        assert hit is not None
        assert slot is not None
        store = buffer()
        store.check(parts, level)
        if levels.probe is not None and level not in self.seen:
            self._probe(levels, level, parts, store, probed)
        if hit.numel():
            columns = store.columns(parts)
            whole = [
                _table(part, computed, hit, column.index_select(0, slot))
                for part, column in zip(parts, columns, strict=True)
            ]
        else:  # computed rows stand in the order of the table
            whole = [part.view_as(part) for part in parts]
        self._observe(level, parts, whole)
        return whole

    def _features(self, x: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """What layer 1 reads of the features."""
        levels = self.levels if not x else self.on(next(iter(x.values())).device)
        read = tables.features(levels, x)
        width = levels.first_bytes or {name: rows.size(1) * rows.element_size() for name, rows in x.items()}
        self.bytes_saved = sum(levels.spared[name] * n_bytes for name, n_bytes in width.items())
        return read

    def _observe(self, level: int, parts: list[Tensor], whole: list[Tensor]) -> None:
        seen = self.seen.setdefault(level, _Seen([], []))
        # of several passes the last is kept
        seen.rows, seen.versions = [part.detach() for part in parts], [_version(part) for part in parts]
        if self._keeps.aggregates or not torch.is_grad_enabled():
            return
        table = whole[0]
        if not table.requires_grad:  # nothing below learns, and the gradient is wanted all the same
            table.requires_grad_()

        def add(gradient: Tensor) -> None:
            gradient = gradient.detach()
            seen.gradient = gradient if seen.gradient is None else seen.gradient + gradient

        table.register_hook(add)  # type: ignore[no-untyped-call]  # it has no hints

    def _probe(
        self, levels: Levels, level: int, parts: list[Tensor], store: Buffer, probed: Callable[..., None]
    ) -> None:
        assert levels.probe is not None
        assert levels.probe_slot is not None
        assert levels.probe_age is not None
        at, slot, age = levels.probe[level], levels.probe_slot[level], levels.probe_age[level]
        if at is not None and at.numel():
            assert slot is not None
            exact = torch.cat([part.detach().index_select(0, at) for part in parts], 1)
            probed(level, exact, torch.cat([of.index_select(0, slot) for of in store.columns(parts)], 1), age)

    def observed(self) -> tuple[torch.dtype, int, list[tuple[Tensor, Tensor]]]:
        """Return dtype and width of what is to be stored, and for each hidden layer the gradient norms (float32) of
        computed rows and of hits: of aggregates zeros and none, and none of a layer that is not kept.

        Raises:
            InvalidArgumentError, DTypeError: there is nothing to judge by; the message says why.
        """
        missing = [level for level in self.kept if level not in self.seen]
        if missing:
            how = "attach(model) and give the model the batch's own edge_index"
            if self.levels.named:
                how = "attach(model, layers=[...]) and give the layers the batch's own edge_index_dict"
            ask = f"history.{how}, or h = history(h, block) before every layer of batch.blocks()"
            raise InvalidArgumentError(
                f"the batch was pruned, but the model did not ask for its rows of layer "
                f"{', '.join(map(str, missing))}, so its results are wrong: call {ask}"
            )
        if not self._keeps.aggregates and all(self.seen[level].gradient is None for level in self.kept):
            raise InvalidArgumentError(
                "update() was called before a backward pass reached this batch's layers: call it after "
                "loss.backward(); nothing was kept of this batch"
            )
        for level in self.kept:
            seen = self.seen[level]
            if [_version(part) for part in seen.rows] != seen.versions:
                raise InvalidArgumentError(
                    f"the rows of layer {level} changed after the next layer had read them: no row of this batch "
                    "can be kept"
                )
        dtypes = {self.seen[level].rows[0].dtype for level in self.kept}
        if len(dtypes) > 1:
            raise DTypeError(f"hidden layers must compute one dtype to share a buffer, got {sorted(map(str, dtypes))}")
        width = max((sum(part.size(1) for part in self.seen[level].rows) for level in self.kept), default=0)
        return dtypes.pop(), width, self._norms()

    def rows(self) -> list[list[Tensor]]:
        """Return the parts of the computed rows of each kept hidden level."""
        return [self.seen[level].rows if level in self.kept else [] for level in range(1, self.levels.num_layers)]

    def _norms(self) -> list[tuple[Tensor, Tensor]]:
        """Return the norms on the host, which waits for the backward pass, once, where gradients decide."""
        counts, found = [], []
        for level in range(1, self.levels.num_layers):
            computed, hit = self.levels.computed[level], self.levels.hit[level]
            assert computed is not None
            assert hit is not None
            judged = level in self.kept
            # Aggregates enter whatever their gradients are, and leave for none.
            counts += [computed.numel() * judged, hit.numel() * (judged and not self._keeps.aggregates)]
            if judged and not self._keeps.aggregates:
                found.append(_norms_of(self.seen[level].gradient, computed, hit))
        norms = Fetched(torch.cat(found)).wait() if found else torch.zeros(sum(counts), dtype=torch.float32)
        each = iter(torch.split(norms, counts))
        return list(zip(each, each, strict=True))

    def forget(self) -> None:
        """Let go of what the step held."""
        self.done = True
        self.seen.clear()
        self._alias = None


def _table(h: Tensor, computed: Tensor, hit: Tensor, stored: Tensor) -> Tensor:
    """Computed and stored rows in their places. Gradients go to the computed ones."""
    table = h.new_empty(computed.numel() + hit.numel(), h.size(1))
    table.index_copy_(0, hit, stored)
    return table.index_copy_(0, computed, h)


def _norms_of(gradient: Tensor | None, computed: Tensor, hit: Tensor) -> Tensor:
    """Return the gradient norms (float32) of the computed rows of a table, then of the hits."""
    if gradient is None:  # the loss does not depend on this layer
        return torch.zeros(computed.numel() + hit.numel(), dtype=torch.float32, device=computed.device)
    if gradient.is_sparse:
        gradient = gradient.to_dense()
    # Half precision is squared and summed in float32: 256 squared is too large for float16.
    wide = torch.promote_types(gradient.dtype, torch.float32)
    norms: Tensor = torch.linalg.vector_norm(gradient, dim=1, dtype=wide).to(torch.float32)
    return norms.index_select(0, torch.cat([computed, hit]))


def _version(tensor: Tensor) -> Any:
    return 0 if tensor.is_inference() else tensor._version
