"""An inference whose layers add up rows: every row is read in order, never once for each neighbour.

What is added up lies in memory, as many columns of all nodes as fit at a time, while the neighbour lists pass by in
their order, as in ``propagate``. A layer writes what the next one adds up, in slices of columns, so that each slice is
read once. Where rows that a layer gives depend column by column on what was added up, it makes them slice by slice.
"""

from __future__ import annotations

import contextlib
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, fx

from freshgo._infer.columns import Columns, ranges
from freshgo._infer.division import FLOAT, Division, Part, Sizes, divide
from freshgo._infer.dtypes import one_dtype
from freshgo._infer.files import Moved, Rows
from freshgo._infer.input import Input
from freshgo._infer.lists import Lists, lists_in, lists_of
from freshgo._infer.order import order_of
from freshgo._infer.outputs import Made
from freshgo._infer.relaid import arrays_by_place, write_by_place
from freshgo._infer.result import Result
from freshgo._infer.run import NUMPY, Run
from freshgo._infer.sums import Sums
from freshgo.errors import InvalidArgumentError

Step = tuple[str, int]
"""What is done, and for which layer."""

ALONE = ("places", "degrees")
"""Steps that are for no layer."""


class Streamed(Run):
    """Steps: the lists by place, where rows lie in an order of their own; the degrees where a layer needs them; the
    input, mapped where the first layer does that first, unless it goes to memory; for each layer the sums of its
    slices, where there are several, and its rows, or these by columns; and the result in the order asked for."""

    _division: Division

    def _plan(self) -> str:
        seeds, count = self._inputs.seeds, self._store.num_nodes
        if seeds is not None and seeds.numel() and not 0 <= int(seeds.min()) <= int(seeds.max()) < count:
            wrong = int(seeds.min()) if int(seeds.min()) < 0 else int(seeds.max())
            raise InvalidArgumentError(f"nodes has {wrong}, expected nodes in [0, {count})")
        assert self._planned.stream is not None  # else passes are epochs
        self._stream = self._planned.stream
        self._norm = self._stream.norm
        self._weight = weight = self._stream.weight
        apart = weight is not None and self._store.weight_attr != weight
        self._now = Moved()
        start = self._stream.segments[0].start
        self._input = Input(self._store, self._tensor, self._device, self._memory, self._now, start.meta["value"].dtype)
        sizes = Sizes(
            self._store.num_nodes,
            self._store.num_edges,
            self._memory,
            self._dtype.itemsize,
            FLOAT * self._store.num_edges if apart else 0,
            self._input.least(),
        )
        stream, direct = self._stream, self._stream.direct()
        layers = [
            Part(parts, stream.widths[place], stream.segments[place + 1].columns, direct and place == 0)
            for place, parts in enumerate(stream.layers)
        ]
        with self._one_dtype():
            self._division = divide(layers, sizes, self._device)
        stages = self._division.stages
        self._order = order_of(self._store, self._now)
        self._steps: list[Step] = [] if self._order is None else [("places", 0)]
        self._steps += [("degrees", 0)] if self._norm is not None else []
        self._steps += [] if stages[0].held else [("scan", 0)]
        for place, stage in enumerate(stages):
            if stage.by_columns:
                self._steps += [("slices", place)]
                continue
            self._steps += [("add", place)] if stage.slices > 1 else []
            self._steps += [("finish", place)]
        self._steps += [] if self._order is None and seeds is None else [("arrange", len(stages) - 1)]
        self._count = len(self._steps)
        self.moved: dict[Step, Moved] = {step: Moved() for step in self._steps}
        self.moved_before = Moved()
        self._columns: dict[str, Columns] = {}
        self._asked: Result | None = None
        return f"{self._steps} {[str(stage) for stage in stages]}"

    def complete(self) -> dict[str, Made]:
        if self._order is not None and self._state["pass"] == 0:
            self._step(self._steps[0])
        with contextlib.closing(self._open_lists()) as self._lists:
            self._sums_of = Sums(self._lists, lambda: self._kept("degrees", 2, dtype=np.float32))
            while self._state["pass"] < len(self._steps):
                self._step(self._steps[self._state["pass"]])
        return self._made()

    def _step(self, step: Step) -> None:
        before = Moved(self._now.read, self._now.written)
        try:
            with self._one_dtype():
                getattr(self, f"_{step[0]}")(step[1])
        except BaseException:
            with contextlib.suppress(Exception):  # what ended it is what is told
                self._save()
            raise
        self._end(step)
        self.moved[step] = Moved(self._now.read - before.read, self._now.written - before.written)

    def _one_dtype(self) -> contextlib.AbstractContextManager[None]:
        """Where layers are called, to which all rows come as float32."""
        given = f"the tensor {self._tensor!r} and the rows of layers"
        return one_dtype("the model", given, None, {torch.float32}, self._parameters)

    def _open_lists(self) -> Lists:
        """The lists, with the numbers that nodes have here: their places."""
        before = Moved(self._now.read, self._now.written)
        if self._order is None:
            lists = lists_of(self._store, self._weight, self._division.edges, self._now)
        else:
            lists = lists_in(self._by_place(), self._division.edges, self._now)
        self.moved_before = Moved(self._now.read - before.read, self._now.written - before.written)
        return lists

    # Its files.

    def _by_place(self) -> dict[str, Rows]:
        """Those of the lists of a store with an order of its own."""
        arrays = arrays_by_place(self._store, self._weight is not None)
        return {
            name: self._file(self._work / f"lists_{name}.npy", (size,), dtype) for name, (size, dtype) in arrays.items()
        }

    def _kept(self, name: str, columns: int, slices: int = 1, dtype: Any = None) -> Columns:
        """Columns of all nodes, in the files of a name."""
        if name not in self._columns:
            how = NUMPY[self._dtype] if dtype is None else dtype
            self._columns[name] = Columns(self._work / name, self._store.num_nodes, columns, slices, how, self._now)
        return self._columns[name]

    def _messages(self, place: int) -> Columns:
        stage = self._division.stages[place]
        return self._kept(f"messages{place}", stage.columns, stage.slices)

    def _own(self, place: int) -> Columns:
        stage = self._division.stages[place]
        return self._kept(f"own{place}", stage.own, stage.slices if stage.by_columns else 1)

    def _sums(self, place: int) -> Columns:
        stage = self._division.stages[place]
        return self._kept(f"sums{place}", stage.columns, stage.slices, np.float32)

    def _sync(self) -> None:
        super()._sync()
        for columns in self._columns.values():
            columns.sync()

    def _close_files(self) -> None:
        super()._close_files()
        for columns in self._columns.values():
            columns.close()
        self._columns.clear()

    def _end(self, step: Step) -> None:
        """Go on to the next step, and remove what no later one reads."""
        self._sync()
        self._state |= {"pass": self._state["pass"] + 1, "batches": 0}
        self._saved.write(self._state)
        if step[0] in ("finish", "slices"):
            for name in (f"messages{step[1]}", f"own{step[1]}", f"sums{step[1]}"):
                if name in self._columns:
                    self._columns.pop(name).remove()
            for node in self._stream.segments[step[1] + 1].dropped:
                file = self._beside_file(node)
                self._files.pop(file.path).close()
                file.path.unlink(missing_ok=True)
        if step[0] == "arrange":
            self._result().came.unlink()

    def _done(self, step: Step, units: int, of: int) -> None:
        """Note how far a step is."""
        self._state["batches"] = units
        if self._report is not None:
            alone = step[0] in ALONE
            steps = [other for other in self._steps if other[1] == step[1] and other[0] not in ALONE]
            steps = [step] if alone else steps
            stage = step[0] if alone else f"layer {step[1] + 1} of {len(self._division.stages)}"
            total = self._store.num_nodes
            self._report(stage, total * (steps.index(step) * of + units) // (len(steps) * max(1, of)), total)
        if time.monotonic() > self._next_save:
            self._save()

    # Its steps.

    def _places(self, _: int) -> None:
        """Write the lists anew, with the places of nodes for their numbers."""
        assert self._order is not None  # the step is for it
        edges = self._store.num_edges
        with contextlib.closing(lists_of(self._store, self._weight, self._division.edges, self._now)) as lists:
            for done in write_by_place(
                lists, self._order, self._by_place(), self._division.free, self._state["batches"]
            ):
                self._done(("places", 0), done, edges)

    def _degrees(self, _: int) -> None:
        """Find by which each node's row is multiplied, and what its own loop weighs beside the loops in its list."""
        assert self._norm is not None  # the step is for it
        kept, own = self._kept("degrees", 2, dtype=np.float32), self._norm
        units = list(ranges(self._store.num_nodes, 1 << 16))
        for unit in range(self._state["batches"], len(units)):
            first, end = units[unit]
            degree, listed = torch.zeros(end - first), torch.zeros(end - first)
            loops = torch.full((end - first,), own.fill if own.loops else 0.0)
            for piece in self._lists.pieces(first, end):
                targets = torch.repeat_interleave(torch.arange(piece.ptr.numel() - 1), piece.ptr.diff())
                targets += piece.first - first
                weight = torch.ones(piece.sources.numel()) if piece.weight is None else piece.weight
                degree.index_add_(0, targets, weight)
                if own.loops:
                    loop = piece.sources == targets + first
                    targets, weight = targets[loop], weight[loop]
                    loops.numpy()[targets.numpy()] = weight.numpy()  # the last of several stays
                    listed.index_add_(0, targets, weight)
            scale = (degree - listed + loops).pow(-0.5)
            kept.write(first, torch.stack([scale.masked_fill_(scale == torch.inf, 0), loops - listed], 1))
            self._done(("degrees", 0), unit + 1, len(units))

    def _scan(self, _: int) -> None:
        """Write what layers add up of the input, and what later segments read of it."""
        for at, rows in self._input.rows(self._state["batches"], self._division.free):
            self._take(0, at, rows)
            self._done(("scan", 0), at + rows.size(0), self._store.num_nodes)

    def _add(self, place: int) -> None:
        """Write the sums, slice by slice, but for the last one."""
        stage, sums = self._division.stages[place], self._sums(place)
        units = list(ranges(self._store.num_nodes, stage.adding))
        for s in range(self._state["batches"] // max(1, len(units)), stage.slices - 1):
            rows = self._loaded(place, s)
            for unit in range(self._state["batches"] - s * len(units), len(units)):
                first, end = units[unit]
                sums.files[s].write(first, self._sums_of.summed(stage.parts, rows, first, end))
                self._done(("add", place), s * len(units) + unit + 1, (stage.slices - 1) * len(units))
            del rows  # before the next slice comes

    def _slices(self, place: int) -> None:
        """Write what the next layer adds up, slice by slice."""
        stage, kept, out = self._division.stages[place], self._messages(place), self._messages(place + 1)
        own = self._own(place) if stage.own else None
        units = list(ranges(self._store.num_nodes, stage.adding))
        scanned = self._store.num_nodes if stage.held else 0  # the first units are rows of the input
        total = scanned + stage.slices * len(units)
        for s in range(max(0, self._state["batches"] - scanned) // max(1, len(units)), stage.slices):
            held = stage.held and s == 0
            rows = self._sums_of.scaled(stage.parts, self._first_slice(total)) if held else self._loaded(place, s)
            columns, before = slice(kept.at[s], kept.at[s + 1]), scanned + s * len(units)
            for unit in range(max(0, self._state["batches"] - before), len(units)):
                first, end = units[unit]
                summed = self._on_device(self._sums_of.summed(stage.parts, rows, first, end))
                beside = None if own is None else self._on_device(own.slice(s, first, end))
                out.files[s].write(first, stage.columns_of(summed, beside, columns).cpu())
                self._done(("slices", place), before + unit + 1, total)
            del rows  # before the next slice comes

    def _first_slice(self, total: int) -> Tensor:
        """The first slice of what the first layer adds up, from the input. What is beside it is written, if it is not
        yet there."""
        stage, kept, done = self._division.stages[0], self._messages(0), self._state["batches"]
        beside = self._own(0) if stage.own else None
        out = torch.empty(self._store.num_nodes, kept.at[1])
        for at, given in self._input.rows(0, self._division.free - out.nbytes):
            rows = self._first(given)
            made, end = stage.parts.messages(rows).cpu(), at + rows.size(0)
            out[at:end] = made[:, : kept.at[1]]
            if end > done:
                kept.write(at, made, since=1)
                own = stage.parts.own(rows)
                if beside is not None and own is not None:
                    beside.write(at, own.cpu())
                self._done(("slices", 0), end, total)
        return out

    def _finish(self, place: int) -> None:
        """Write what the next layer adds up, or the result."""
        stage = self._division.stages[place]
        last = place == len(self._division.stages) - 1
        result = self._result() if last else None
        table, beside = self._held() if stage.held else (self._loaded(place, stage.slices - 1), None)
        units = list(ranges(self._store.num_nodes, stage.finishing))
        for unit in range(self._state["batches"], len(units)):
            first, end = units[unit]
            if result is None or result.has(first, end):
                total = self._sums_of.summed(stage.parts, table, first, end)
                if stage.slices > 1:
                    total = self._sums(place).read(first, end, total)
                own = None
                if stage.parts.needs_messages():
                    own = table[first:end]
                    own = own if stage.slices == 1 else self._messages(place).read(first, end, own)
                elif stage.own:
                    own = self._own(place).read(first, end) if beside is None else beside[first:end]
                for lo, hi in ranges(end - first, self._batch_size):
                    mine = None if own is None else self._on_device(own[lo:hi])
                    made = stage.parts.combine(self._on_device(total[lo:hi]), mine)
                    self._take(place + 1, first + lo, made)
            self._done(("finish", place), unit + 1, len(units))

    def _loaded(self, place: int, s: int) -> Tensor:
        """A slice of what a layer adds up."""
        rows = self._messages(place).load(s, self._division.rows)
        return self._sums_of.scaled(self._division.stages[place].parts, rows)

    def _held(self) -> tuple[Tensor, Tensor | None]:
        """All that the first layer adds up, and the own rows beside it, from the input."""
        stage, count = self._division.stages[0], self._store.num_nodes
        rows, own = torch.empty(count, stage.columns), torch.empty(count, stage.own)
        for at, given in self._input.rows(0, self._division.free - rows.nbytes - own.nbytes):
            here = slice(at, at + given.size(0))
            first = self._first(given)
            rows[here] = stage.parts.messages(first).cpu()
            beside = stage.parts.own(first)
            if beside is not None:
                own[here] = beside.cpu()
            if self._report is not None:
                self._report(f"layer 1 of {len(self._division.stages)}", 0, count)
        return self._sums_of.scaled(stage.parts, rows), own if stage.own else None

    def _on_device(self, rows: Tensor) -> Tensor:
        return rows if self._device is None else rows.to(self._device)

    def _first(self, given: Tensor) -> Tensor:
        """What the first layer is given, of rows of the input."""
        segment = self._stream.segments[0]
        rows: Tensor = segment(given, {})[segment.feeds[0]]
        return rows

    def _take(self, place: int, first: int, rows: Tensor) -> None:
        """Compute a segment, of rows that the layer before it gives, and keep what is read later."""
        segment, count = self._stream.segments[place], rows.size(0)
        values = segment(rows, {node: self._beside(node, first, count) for node in segment.beside})
        for layer, node in segment.feeds.items():
            parts = self._division.stages[layer].parts
            self._messages(layer).write(first, parts.messages(values[node]).cpu())
            own = parts.own(values[node])
            if own is not None:
                self._own(layer).write(first, own.cpu())
        for node in segment.kept:
            self._beside_file(node).write(first, values[node].cpu())
        if place == len(self._stream.layers):
            result, made = self._result(), values[self._stream.output]
            result.take(self._file(result.came, result.shape, result.dtype), first, made.cpu().to(self._dtype))

    def _beside(self, node: fx.Node, first: int, count: int) -> Tensor:
        """Rows that a segment has kept."""
        file = self._beside_file(node)
        rows = np.empty((count, *file.shape[1:]), file.dtype)
        file.read(first, rows)
        return self._on_device(torch.from_numpy(rows).to(node.meta["value"].dtype))

    def _beside_file(self, node: fx.Node) -> Rows:
        value: Tensor = node.meta["value"]
        dtype = NUMPY[self._dtype] if value.is_floating_point() else value.cpu().numpy().dtype
        path = self._work / f"beside_{node.name}.npy"
        return self._file(path, (self._store.num_nodes, *value.shape[1:]), dtype)

    def _arrange(self, place: int) -> None:
        """Put the rows of the result into order."""
        result = self._result()
        came, file = (self._file(path, result.shape, result.dtype) for path in (result.came, result.path))
        for bucket in result.arrange(came, file, self._state["batches"]):
            self._done(("arrange", place), bucket, len(result.buckets))

    def _result(self) -> Result:
        """The rows of the last layer. It has the places of the nodes that are asked for."""
        if self._asked is None:
            self._asked = Result(
                self._rows_path(len(self._layers) - 1, ""),
                self._store.num_nodes,
                self._stream.columns_out(),
                NUMPY[self._dtype],
                self._order,
                self._inputs.seeds,
                self._division.free,
            )
        return self._asked

    def _file(self, path: Path, shape: tuple[int, ...], dtype: Any) -> Rows:
        if path not in self._files:
            self._files[path] = Rows(path, shape, dtype, self._now)
        return self._files[path]
