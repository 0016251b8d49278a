"""An inference whose layers add up rows: every row is read in order, never once for each neighbour.

What is added up lies in memory, as many columns of all nodes as fit at a time, while the neighbour lists pass by in
their order, as in ``propagate``. A layer writes what the next one adds up, in slices of columns, so that each slice is
read once. Where rows that a layer gives depend column by column on what was added up, it makes them slice by slice.
"""

from __future__ import annotations

import contextlib
from pathlib import Path

import torch
from torch import Tensor

from freshgo._infer.columns import ranges, table
from freshgo._infer.division import FLOAT, Part, Sizes, divide
from freshgo._infer.dtypes import one_dtype
from freshgo._infer.files import Moved
from freshgo._infer.input import Input
from freshgo._infer.lists import Lists, lists_in, lists_of, opening_bytes
from freshgo._infer.order import order_of
from freshgo._infer.outputs import Made
from freshgo._infer.relaid import write_by_place
from freshgo._infer.run import Run, Task
from freshgo._infer.segments import Segments
from freshgo._infer.sums import Sums
from freshgo._infer.tables import Tables
from freshgo.errors import InvalidArgumentError

Step = tuple[str, int]
"""What is done, and for which layer."""

ALONE = ("places", "degrees")
"""Steps that are for no layer."""


class Streamed:
    """Steps: the lists by place, where rows lie in an order of their own; the degrees where a layer needs them; the
    input, mapped where the first layer does that first, unless it goes to memory; for each layer the sums of its
    slices, where there are several, and its rows, or these by columns; and the result in the order asked for."""

    def __init__(self, task: Task, work: Path) -> None:
        seeds, store, stream = task.inputs.seeds, task.store, task.plan.stream
        count = store.num_nodes
        if seeds is not None and seeds.numel() and not 0 <= int(seeds.min()) <= int(seeds.max()) < count:
            wrong = int(seeds.min()) if int(seeds.min()) < 0 else int(seeds.max())
            raise InvalidArgumentError(f"nodes has {wrong}, expected nodes in [0, {count})")
        assert stream is not None  # else passes are epochs
        self._task, self._store, self._norm, self._weight = task, store, stream.norm, stream.weight
        self._total = Moved()
        dtype = stream.segments[0].start.meta["value"].dtype
        self._input = Input(store, task.tensor, task.device, task.memory, self._total, dtype)
        weights = opening = 0
        if stream.weight is not None and store.weight_attr != stream.weight:
            weights, opening = FLOAT * store.num_edges, opening_bytes(store, stream.weight)
        sizes = Sizes(count, store.num_edges, task.memory, task.dtype.itemsize, weights, self._input.least(), opening)
        direct = stream.direct()
        layers = [
            Part(parts, stream.widths[place], stream.segments[place + 1].columns, direct and place == 0)
            for place, parts in enumerate(stream.layers)
        ]
        with self._one_dtype():
            self.division = divide(layers, sizes, task.device)
        stages = self.division.stages
        self._order = order_of(store, self._total)
        self._steps: list[Step] = [] if self._order is None else [("places", 0)]
        self._steps += [("degrees", 0)] if self._norm is not None else []
        self._steps += [] if stages[0].from_input else [("scan", 0)]
        for place, stage in enumerate(stages):
            if stage.by_columns:
                self._steps += [("slices", place)]
                continue
            self._steps += [("add", place)] if stage.slices > 1 else []
            self._steps += [("finish", place)]
        self._steps += [] if self._order is None and seeds is None else [("arrange", len(stages) - 1)]
        self.moved: dict[Step, Moved] = {step: Moved() for step in self._steps}
        self.moved_before = Moved()
        described = f"{self._steps} {[str(stage) for stage in stages]}"
        self.run = Run(task, work, described, len(self._steps), self._total)
        self._tables = Tables(task, self.run, self.division, self._order)
        self._segments = Segments(task, self.run, stream, self.division, self._tables)

    def complete(self) -> dict[str, Made]:
        """Compute what is left and return what the last layer gave."""
        if self._order is not None and self.run.state["pass"] == 0:
            self._step(self._steps[0])
        with contextlib.closing(self._open_lists()) as self._lists:
            self._sums_of = Sums(self._lists, self._tables.degrees)
            while self.run.state["pass"] < len(self._steps):
                self._step(self._steps[self.run.state["pass"]])
        return self.run.made()

    def _step(self, step: Step) -> None:
        before = Moved(self._total.read, self._total.written)
        try:
            with self._one_dtype():
                getattr(self, f"_{step[0]}")(step[1])
        except BaseException:
            with contextlib.suppress(Exception):  # what ended it is what is told
                self.run.save()
            raise
        self._end(step)
        self.moved[step] = Moved(self._total.read - before.read, self._total.written - before.written)

    def _one_dtype(self) -> contextlib.AbstractContextManager[None]:
        """Where layers are called, to which all rows come as float32."""
        given = f"the tensor {self._task.tensor!r} and the rows of layers"
        return one_dtype("the model", given, None, {torch.float32}, self._task.parameters)

    def _open_lists(self) -> Lists:
        """The lists, with the numbers that nodes have here: their places."""
        before = Moved(self._total.read, self._total.written)
        if self._order is None:
            lists = lists_of(self._store, self._weight, self.division.edges, self._total)
        else:
            lists = lists_in(self._tables.lists(weighted=self._weight is not None), self.division.edges, self._total)
        self.moved_before = Moved(self._total.read - before.read, self._total.written - before.written)
        return lists

    def _end(self, step: Step) -> None:
        """Go on to the next step, and remove what no later one reads."""
        self.run.end_step()
        if step[0] in ("finish", "slices"):
            self._tables.remove(step[1])
            self._segments.remove(step[1])
        if step[0] == "arrange":
            self._tables.result().arrival_path.unlink()

    def _done(self, step: Step, units: int, of: int) -> None:
        """Note how far a step is."""
        self.run.state["batches"] = units
        if self._task.report is not None:
            alone = step[0] in ALONE
            steps = [other for other in self._steps if other[1] == step[1] and other[0] not in ALONE]
            steps = [step] if alone else steps
            stage = step[0] if alone else f"layer {step[1] + 1} of {len(self.division.stages)}"
            total = self._store.num_nodes
            self._task.report(stage, total * (steps.index(step) * of + units) // (len(steps) * max(1, of)), total)
        self.run.save_in_time()

    # Its steps.

    def _places(self, _: int) -> None:
        """Write the lists anew, with the places of nodes for their numbers."""
        assert self._order is not None  # the step is for it
        edges = self._store.num_edges
        with contextlib.closing(lists_of(self._store, self._weight, self.division.edges, self._total)) as lists:
            files = self._tables.lists(weighted=self._weight is not None)
            for done in write_by_place(lists, self._order, files, self.division.free, self.run.state["batches"]):
                self._done(("places", 0), done, edges)

    def _degrees(self, _: int) -> None:
        """Find by which each node's row is multiplied, and what its own loop weighs beside the loops in its list."""
        assert self._norm is not None  # the step is for it
        kept, own = self._tables.degrees(), self._norm
        units = list(ranges(self._store.num_nodes, 1 << 16))
        for unit in range(self.run.state["batches"], len(units)):
            first, end = units[unit]
            degree, listed = (torch.zeros(end - first, dtype=torch.float32) for _ in range(2))
            loops = torch.full((end - first,), own.fill if own.loops else 0.0, dtype=torch.float32)
            for piece in self._lists.pieces(first, end):
                targets = torch.repeat_interleave(torch.arange(piece.ptr.numel() - 1), piece.ptr.diff())
                targets += piece.first - first
                ones = torch.ones(piece.sources.numel(), dtype=torch.float32)
                weight = ones if piece.weight is None else piece.weight
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
        for at, rows in self._input.rows(self.run.state["batches"], self.division.free):
            self._segments.take(0, at, rows)
            self._done(("scan", 0), at + rows.size(0), self._store.num_nodes)

    def _add(self, place: int) -> None:
        """Write the sums, slice by slice, but for the last one."""
        stage, sums = self.division.stages[place], self._tables.sums(place)
        units = list(ranges(self._store.num_nodes, stage.adding))
        for s in range(self.run.state["batches"] // max(1, len(units)), stage.slices - 1):
            rows = self._loaded(place, s)
            for unit in range(self.run.state["batches"] - s * len(units), len(units)):
                first, end = units[unit]
                sums.files[s].write(first, self._sums_of.summed(stage.parts, rows, first, end))
                self._done(("add", place), s * len(units) + unit + 1, (stage.slices - 1) * len(units))
            del rows  # before the next slice comes

    def _slices(self, place: int) -> None:
        """Write what the next layer adds up, slice by slice."""
        stage, kept, out = self.division.stages[place], self._tables.messages(place), self._tables.messages(place + 1)
        own = self._tables.own(place) if stage.own else None
        units = list(ranges(self._store.num_nodes, stage.adding))
        scanned = self._store.num_nodes if stage.from_input else 0  # the first units are rows of the input
        total = scanned + stage.slices * len(units)
        for s in range(max(0, self.run.state["batches"] - scanned) // max(1, len(units)), stage.slices):
            direct = stage.from_input and s == 0
            rows = self._sums_of.scaled(stage.parts, self._first_slice(total)) if direct else self._loaded(place, s)
            columns, before = slice(kept.at[s], kept.at[s + 1]), scanned + s * len(units)
            for unit in range(max(0, self.run.state["batches"] - before), len(units)):
                first, end = units[unit]
                summed = self._segments.on_device(self._sums_of.summed(stage.parts, rows, first, end))
                beside = None if own is None else self._segments.on_device(own.slice(s, first, end))
                out.files[s].write(first, stage.columns_of(summed, beside, columns).cpu())
                self._done(("slices", place), before + unit + 1, total)
            del rows  # before the next slice comes

    def _first_slice(self, total: int) -> Tensor:
        """The first slice of what the first layer adds up, from the input. What is beside it is written, if it is not
        yet there."""
        stage, kept, done = self.division.stages[0], self._tables.messages(0), self.run.state["batches"]
        beside = self._tables.own(0) if stage.own else None
        out = table(self._store.num_nodes, kept.at[1])
        for at, given in self._input.rows(0, self.division.free - out.nbytes):
            rows = self._segments.first(given)
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
        stage = self.division.stages[place]
        last = place == len(self.division.stages) - 1
        result = self._tables.result() if last else None
        table, beside = self._first_messages() if stage.from_input else (self._loaded(place, stage.slices - 1), None)
        units = list(ranges(self._store.num_nodes, stage.finishing))
        for unit in range(self.run.state["batches"], len(units)):
            first, end = units[unit]
            if result is None or result.has(first, end):
                total = self._sums_of.summed(stage.parts, table, first, end)
                if stage.slices > 1:
                    total = self._tables.sums(place).read(first, end, total)
                own = None
                if stage.parts.needs_messages():
                    own = table[first:end]
                    own = own if stage.slices == 1 else self._tables.messages(place).read(first, end, own)
                elif stage.own:
                    own = self._tables.own(place).read(first, end) if beside is None else beside[first:end]
                for lo, hi in ranges(end - first, max(self._task.batch_size, self._segments.rows(place + 1))):
                    mine = None if own is None else self._segments.on_device(own[lo:hi])
                    made = stage.parts.combine(self._segments.on_device(total[lo:hi]), mine)
                    self._segments.take(place + 1, first + lo, made)
            self._done(("finish", place), unit + 1, len(units))

    def _loaded(self, place: int, s: int) -> Tensor:
        """A slice of what a layer adds up."""
        rows = self._tables.messages(place).load(s, self.division.rows)
        return self._sums_of.scaled(self.division.stages[place].parts, rows)

    def _first_messages(self) -> tuple[Tensor, Tensor | None]:
        """All that the first layer adds up, and the own rows beside it, from the input."""
        stage, count = self.division.stages[0], self._store.num_nodes
        rows, own = (table(count, columns) for columns in (stage.columns, stage.own))
        for at, given in self._input.rows(0, self.division.free - rows.nbytes - own.nbytes):
            here = slice(at, at + given.size(0))
            first = self._segments.first(given)
            rows[here] = stage.parts.messages(first).cpu()
            beside = stage.parts.own(first)
            if beside is not None:
                own[here] = beside.cpu()
            if self._task.report is not None:
                self._task.report(f"layer 1 of {len(self.division.stages)}", 0, count)
        return self._sums_of.scaled(stage.parts, rows), own if stage.own else None

    def _arrange(self, place: int) -> None:
        """Put the rows of the result into order."""
        result = self._tables.result()
        unordered, file = (
            self.run.file(path, result.shape, result.dtype) for path in (result.arrival_path, result.path)
        )
        for bucket in result.arrange(unordered, file, self.run.state["batches"]):
            self._done(("arrange", place), bucket, len(result.buckets))
