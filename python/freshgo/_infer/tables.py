"""The files of an inference whose layers add up rows."""

from __future__ import annotations

import numpy as np

from freshgo._infer.columns import Columns
from freshgo._infer.division import Division
from freshgo._infer.files import Rows
from freshgo._infer.order import Order
from freshgo._infer.relaid import arrays_by_place
from freshgo._infer.result import Result
from freshgo._infer.run import NUMPY, Run, Task


class Tables:
    """What layers add up, the own rows beside it, and their sums, in columns of all nodes; and the result."""

    def __init__(self, task: Task, run: Run, division: Division, order: Order | None) -> None:
        self._task, self._run, self._division, self._order = task, run, division, order
        self._result: Result | None = None

    def messages(self, place: int) -> Columns:
        """Return what a layer adds up."""
        stage = self._division.stages[place]
        return self._run.columns(f"messages{place}", stage.columns, stage.slices)

    def own(self, place: int) -> Columns:
        """Return the nodes' own rows that a layer reads."""
        stage = self._division.stages[place]
        return self._run.columns(f"own{place}", stage.own, stage.slices if stage.by_columns else 1)

    def sums(self, place: int) -> Columns:
        """Return the sums of a layer."""
        stage = self._division.stages[place]
        return self._run.columns(f"sums{place}", stage.columns, stage.slices, np.float32)

    def degrees(self) -> Columns:
        """Return the two columns that GCN's coefficients are made of."""
        return self._run.columns("degrees", 2, dtype=np.float32)

    def lists(self, *, weighted: bool) -> dict[str, Rows]:
        """Return the files of the neighbour lists of a store with an order of its own, by place."""
        arrays = arrays_by_place(self._task.store, weighted)
        return {
            name: self._run.file(self._run.work / f"lists_{name}.npy", (size,), dtype)
            for name, (size, dtype) in arrays.items()
        }

    def result(self) -> Result:
        """Return the rows of the last layer. It has the places of the nodes that are asked for."""
        if self._result is None:
            stream = self._task.plan.stream
            assert stream is not None  # else passes are epochs
            self._result = Result(
                self._run.rows_path(len(self._task.layers) - 1, ""),
                self._task.store.num_nodes,
                stream.columns_out(),
                NUMPY[self._task.dtype],
                self._order,
                self._task.inputs.seeds,
                self._division.free,
            )
        return self._result

    def remove(self, place: int) -> None:
        """Remove the columns of a layer that is done."""
        for name in ("messages", "own", "sums"):
            self._run.remove_columns(f"{name}{place}")
