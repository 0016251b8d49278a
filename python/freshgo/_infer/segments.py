"""What is computed between the layers of an inference that add up rows."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor, fx

from freshgo._infer.division import FLOAT, Division
from freshgo._infer.files import Rows
from freshgo._infer.run import NUMPY, Run, Task
from freshgo._infer.stream import Stream
from freshgo._infer.tables import Tables

COMPUTED = 4 << 20
"""Bytes of the rows that a layer computes at a time, where ``batch_size`` has fewer: a call of PyTorch costs as much as
some kilobytes of rows, and waits for its threads. 10^8 rows of 8 numbers are 800 steps, where 1,024 at a time are 10^5.
Rows of 1,024 numbers are 1,024 at a time, as ``batch_size`` has them."""


class Segments:
    """Computes the segments of a stream, and writes what later layers and segments read."""

    def __init__(self, task: Task, run: Run, stream: Stream, division: Division, tables: Tables) -> None:
        self._task, self._run, self._stream, self._division, self._tables = task, run, stream, division, tables

    def first(self, given: Tensor) -> Tensor:
        """Return what the first layer is given, of rows of the input."""
        segment = self._stream.segments[0]
        rows: Tensor = segment(given, {})[segment.feeds[0]]
        return rows

    def rows(self, place: int) -> int:
        """How many rows the layer before a segment and the segment compute at a time, at least."""
        segment = self._stream.segments[place]
        computed = [segment.start, *segment.steps, *segment.start.all_input_nodes]
        values = [value for node in computed if isinstance(value := node.meta.get("value"), Tensor)]
        widest = max([self._task.widest(), *(value[0].numel() for value in values if value.dim() > 1)])
        return COMPUTED // (FLOAT * widest)

    def take(self, place: int, first: int, rows: Tensor) -> None:
        """Compute a segment, of rows that the layer before it gives, and keep what is read later."""
        segment, count = self._stream.segments[place], rows.size(0)
        values = segment(rows, {node: self._beside(node, first, count) for node in segment.beside})
        for layer, node in segment.feeds.items():
            parts = self._division.stages[layer].parts
            self._tables.messages(layer).write(first, parts.messages(values[node]).cpu())
            own = parts.own(values[node])
            if own is not None:
                self._tables.own(layer).write(first, own.cpu())
        for node in segment.kept:
            self._beside_file(node).write(first, values[node].cpu())
        if place == len(self._stream.layers):
            result, made = self._tables.result(), values[self._stream.output]
            file = self._run.file(result.arrival_path, result.shape, result.dtype)
            result.take(file, first, made.cpu().to(self._task.dtype))

    def remove(self, place: int) -> None:
        """Remove the rows that no segment reads after a layer."""
        for node in self._stream.segments[place + 1].dropped:
            self._run.remove(self._beside_file(node))

    def on_device(self, rows: Tensor) -> Tensor:
        """Return rows where the model is."""
        return rows if self._task.device is None else rows.to(self._task.device)

    def _beside(self, node: fx.Node, first: int, count: int) -> Tensor:
        """Rows that a segment has kept."""
        file = self._beside_file(node)
        rows = np.empty((count, *file.shape[1:]), file.dtype)
        file.read(first, rows)
        return self.on_device(torch.from_numpy(rows).to(node.meta["value"].dtype))

    def _beside_file(self, node: fx.Node) -> Rows:
        value: Tensor = node.meta["value"]
        dtype = NUMPY[self._task.dtype] if value.is_floating_point() else value.cpu().numpy().dtype
        path = self._run.work / f"beside_{node.name}.npy"
        return self._run.file(path, (self._task.store.num_nodes, *value.shape[1:]), dtype)
