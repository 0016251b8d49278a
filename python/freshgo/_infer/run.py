"""An inference: what it was asked for, its files, and where it goes on after it was ended."""

from __future__ import annotations

import contextlib
import hashlib
import shutil
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from freshgo._args.progress import Progress
from freshgo._args.types import EdgeType, Inputs
from freshgo._data.source import StoreSource
from freshgo._infer.columns import Columns
from freshgo._infer.files import RESULT, Moved, Rows, State
from freshgo._infer.layers import Plan, dtypes_of
from freshgo._infer.outputs import Made
from freshgo._staging.workplace import workplace
from freshgo.store import Store

SAVED_EVERY = 5.0
"""Seconds between two notes of how far it is. Arbitrary: what a killed process may have to compute again."""

NUMPY = {torch.float32: np.float32, torch.float16: np.float16}
"""The types of rows on disk."""


class Task:
    """What an inference was asked for."""

    def __init__(
        self,
        store: Store,
        plan: Plan,
        model: torch.nn.Module | None,
        *,
        nodes: Any,
        tensor: str,
        memory: int,
        batch_size: int,
        device: str | torch.device | None,
        dtype: torch.dtype,
        report: Progress | None,
        origin: str,
    ) -> None:
        """``origin`` names the store, and what of it may be another in the next call."""
        self._origin = origin
        self.store, self.plan, self.tensor = store, plan, tensor
        self.layers = plan.layers
        self.memory, self.batch_size, self.device = memory, batch_size, device
        self.dtype, self.report = dtype, report
        self.parameters = dtypes_of(model, plan)
        self._model = model
        source = StoreSource(store, owned=False)
        self.types = source.types
        self.edges = {edge_type: source.num_edges(edge_type) for edge_type in self.types.edge_types}
        self.nodes: Any = nodes if nodes is not None or self.types.homogeneous else self.every_type()
        self.inputs: Inputs = self.types.inputs(self.nodes, source.split, source.splits)

    def every_type(self) -> dict[str, None]:
        """Return all nodes, as input nodes of a heterogeneous graph."""
        return {node_type: None for node_type, count in self.types.num_nodes.items() if count}

    def edge_tensors(self, edge_type: EdgeType) -> list[str]:
        """Return the names of the tensors of an edge type."""
        of = self.store.tensors if self.types.homogeneous else self.store[edge_type].tensors
        return [name for name, info in of.items() if info.level == "edge"]

    def widest(self) -> int:
        """Return the largest size of a parameter in any dimension."""
        parameters = () if self._model is None else self._model.parameters()
        return max((size for parameter in parameters for size in parameter.shape), default=1)

    def digest(self, steps: str) -> str:
        """Return a short name of everything that the rows depend on, the steps of the computation included."""
        what = (self._origin, self.tensor, self.dtype, self.batch_size, self.inputs.config)
        digest = hashlib.sha256(f"{what} {self.plan.config} {self._model!r} {steps}".encode())
        for name, value in ({} if self._model is None else self._model.state_dict()).items():
            digest.update(name.encode())
            if isinstance(value, Tensor):
                digest.update(value.detach().cpu().contiguous().view(-1).view(torch.uint8).numpy().tobytes())
        return digest.hexdigest()


class Run:
    """The directory of an inference: its files, and how far it is. One process has it at a time."""

    def __init__(self, task: Task, work: Path, steps: str, count: int, moved: Moved | None = None) -> None:
        """There are ``count`` steps, and the files depend on the description ``steps``. A step that was interrupted
        begins again."""
        self._types, self._inputs, self._layers = task.types, task.inputs, len(task.layers)
        self._num_nodes, self._dtype = task.store.num_nodes, NUMPY[task.dtype]
        self.work, self._count = work, count
        self._moved = Moved() if moved is None else moved
        self._files: dict[Path, Rows] = {}
        self._columns: dict[str, Columns] = {}
        self._held = contextlib.ExitStack()
        try:
            self._held.enter_context(workplace(work, "", kept=True))
            self._saved = State(work)
            self.state = self._begin(task.digest(steps))
        except BaseException:
            self._held.__exit__(*sys.exc_info())
            raise
        self._next_save = time.monotonic() + SAVED_EVERY

    def __enter__(self) -> Run:
        return self

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        self.close_files()
        self._held.__exit__(kind, error, trace)

    def made(self) -> dict[str, Made]:
        """Return the files of the last layer, by node type. They are not there if the process that went before has
        begun to move them."""
        made, before, first = {}, 0, 0
        for node_type, total in self._types.num_nodes.items():
            path, nodes = self.rows_path(self._layers - 1, node_type), None
            count = self._inputs.counts.get(node_type, 0)
            if self._inputs.seeds is not None and self._inputs.config.get(node_type) != "all":
                nodes = self._inputs.seeds[before : before + count] - first
            if self._types.homogeneous or path.exists():
                made[node_type] = Made(path, nodes)
            before, first = before + count, first + total
        return made

    # How far it is.

    def _begin(self, config: str) -> dict[str, Any]:
        """Return where this inference is, after removing what another one left."""
        state = self._saved.read()
        ours = state is not None and state.get("version") == 1 and state.get("config") == config
        if state is not None and ours and (state["pass"] < self._count or self._has_results()):
            return state
        for path in self.work.iterdir():
            if path.name != "lock":
                shutil.rmtree(path) if path.is_dir() else path.unlink()
        return {"version": 1, "config": config, "pass": 0, "batches": 0, "edges": {}}

    def _has_results(self) -> bool:
        """Whether there are results: the process that went before may have ended after it had published them."""
        last = self._layers - 1
        rows = any(self.rows_path(last, node_type).exists() for node_type in self._types.node_types)
        return rows or (self.work / RESULT).exists()

    def sync(self) -> None:
        """Make what was written durable."""
        for file in self._open_files():
            file.sync()

    def save(self) -> None:
        """Note how far it is."""
        self.sync()
        self._saved.write(self.state)
        self._next_save = time.monotonic() + SAVED_EVERY

    def save_in_time(self) -> None:
        """Note how far it is, if the last note is some seconds old."""
        if time.monotonic() > self._next_save:
            self.save()

    def end_step(self) -> None:
        """Go on to the next step."""
        self.sync()
        self.state |= {"pass": self.state["pass"] + 1, "batches": 0}
        self._saved.write(self.state)

    # Its files.

    def place(self, key: str | EdgeType) -> int:
        """Return the number of a node type or an edge type."""
        of: list[Any] = self._types.node_types if isinstance(key, str) else self._types.edge_types
        return of.index(key)

    def rows_path(self, layer: int, node_type: str, name: str | None = None) -> Path:
        """Return the path of the rows of a node type that a layer is for, or others by their name."""
        return self.work / f"{f'rows{layer}' if name is None else name}_{self.place(node_type)}.npy"

    def file(self, path: Path, shape: tuple[int, ...], dtype: Any) -> Rows:
        """Return the open file of some rows."""
        if path not in self._files:
            self._files[path] = Rows(path, shape, dtype, self._moved)
        return self._files[path]

    def columns(self, name: str, columns: int, slices: int = 1, dtype: Any = None) -> Columns:
        """Return columns of all nodes, in the files of a name."""
        if name not in self._columns:
            how = self._dtype if dtype is None else dtype
            self._columns[name] = Columns(self.work / name, self._num_nodes, columns, slices, how, self._moved)
        return self._columns[name]

    def _open_files(self) -> list[Rows | Columns]:
        return [*self._files.values(), *self._columns.values()]

    def remove(self, file: Rows) -> None:
        """Close and remove an open file."""
        self._files.pop(file.path).close()
        file.path.unlink(missing_ok=True)

    def remove_columns(self, name: str) -> None:
        """Close and remove the files of a name, if they are open."""
        if name in self._columns:
            self._columns.pop(name).remove()

    def close_files(self) -> None:
        """Close every file."""
        for file in self._open_files():
            file.close()
        self._files.clear()
        self._columns.clear()
