"""An inference: what it was asked for, its files, and where it goes on after it was ended."""

from __future__ import annotations

import hashlib
import shutil
import time
from abc import ABC, abstractmethod
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from freshgo._args.progress import Progress
from freshgo._args.types import EdgeType, Inputs
from freshgo._data.source import StoreSource
from freshgo._infer.files import RESULT, Lock, Rows, State
from freshgo._infer.layers import Plan, dtypes_of
from freshgo._infer.outputs import Made
from freshgo.store import Store

SAVED_EVERY = 5.0
"""Seconds between two notes of how far it is. Arbitrary: what a killed process may have to compute again."""

NUMPY = {torch.float32: np.float32, torch.float16: np.float16}
"""The types of rows on disk."""


class Run(ABC):
    """One inference, in a directory of its own: what it was asked for, its files, and how far it is."""

    _count: int
    """The number of steps. A step that was interrupted begins again."""

    def __init__(
        self,
        store: Store,
        work: Path,
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
    ) -> None:
        self._store, self._planned, self._tensor = store, plan, tensor
        self._layers = plan.layers
        self._memory, self._batch_size, self._device = memory, batch_size, device
        self._dtype, self._report = dtype, report
        self._parameters = dtypes_of(model, plan)
        source = StoreSource(store, owned=False)
        self._types = source.types
        self._edges = {edge_type: source.num_edges(edge_type) for edge_type in self._types.edge_types}
        given = nodes if nodes is not None or self._types.homogeneous else self._every_type()
        self._nodes: Any = given
        self._inputs: Inputs = self._types.inputs(given, source.split, source.splits)
        steps = self._plan()
        self._work = work
        self._files: dict[Any, Rows] = {}
        self._lock = Lock(self._work)
        try:
            self._saved = State(self._work)
            self._state = self._begin(self._described(model, steps))
        except BaseException:
            self._lock.close()
            raise
        self._next_save = time.monotonic() + SAVED_EVERY

    def __enter__(self) -> Run:
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        self._close_files()
        if kind is None:
            shutil.rmtree(self._work, ignore_errors=True)
        self._lock.close()

    @abstractmethod
    def _plan(self) -> str:
        """Choose the steps, and describe what the files of the directory depend on."""

    @abstractmethod
    def complete(self) -> dict[str, Made]:
        """Compute what is left and return what the last layer gave, by node type."""

    def _made(self) -> dict[str, Made]:
        """The files of the last layer. They are not there if the process that went before has begun to move them."""
        made, before, first = {}, 0, 0
        for node_type, total in self._types.num_nodes.items():
            path, nodes = self._rows_path(len(self._layers) - 1, node_type), None
            count = self._inputs.counts.get(node_type, 0)
            if self._inputs.seeds is not None and self._inputs.config.get(node_type) != "all":
                nodes = self._inputs.seeds[before : before + count] - first
            if self._types.homogeneous or path.exists():
                made[node_type] = Made(path, nodes)
            before, first = before + count, first + total
        return made

    def _every_type(self) -> dict[str, None]:
        """All nodes, as input nodes of a heterogeneous graph."""
        return {node_type: None for node_type, count in self._types.num_nodes.items() if count}

    def _edge_tensors(self, edge_type: EdgeType) -> list[str]:
        of = self._store.tensors if self._types.homogeneous else self._store[edge_type].tensors
        return [name for name, info in of.items() if info.level == "edge"]

    def _described(self, model: torch.nn.Module | None, steps: str) -> str:
        """A short name of everything that the rows depend on."""
        what = (self._store.uuid, self._tensor, self._dtype, self._batch_size, self._inputs.config)
        digest = hashlib.sha256(f"{what} {self._planned.config} {model!r} {steps}".encode())
        for name, value in ({} if model is None else model.state_dict()).items():
            digest.update(name.encode())
            if isinstance(value, Tensor):
                digest.update(value.detach().cpu().contiguous().view(-1).view(torch.uint8).numpy().tobytes())
        return digest.hexdigest()

    # How far it is.

    def _begin(self, config: str) -> dict[str, Any]:
        """Return where this inference is, after removing what another one left."""
        state = self._saved.read()
        ours = state is not None and state.get("version") == 1 and state.get("config") == config
        if state is not None and ours and (state["pass"] < self._count or self._left()):
            return state
        for path in self._work.iterdir():
            if path.name != "lock":
                shutil.rmtree(path) if path.is_dir() else path.unlink()
        return {"version": 1, "config": config, "pass": 0, "batches": 0, "edges": {}}

    def _left(self) -> bool:
        """Whether there are results: the process that went before may have ended after it had published them."""
        last = len(self._layers) - 1
        rows = any(self._rows_path(last, node_type).exists() for node_type in self._types.node_types)
        return rows or (self._work / RESULT).exists()

    def _sync(self) -> None:
        """Make what was written durable."""
        for file in self._files.values():
            file.sync()

    def _save(self) -> None:
        self._sync()
        self._saved.write(self._state)
        self._next_save = time.monotonic() + SAVED_EVERY

    # Its files.

    def _place(self, key: str | EdgeType) -> int:
        of: list[Any] = self._types.node_types if isinstance(key, str) else self._types.edge_types
        return of.index(key)

    def _rows_path(self, layer: int, node_type: str, name: str | None = None) -> Path:
        """The rows of a node type that a layer is for, or others by their name."""
        return self._work / f"{f'rows{layer}' if name is None else name}_{self._place(node_type)}.npy"

    def _file(self, path: Path, shape: tuple[int, ...], dtype: Any) -> Rows:
        if path not in self._files:
            self._files[path] = Rows(path, shape, dtype)
        return self._files[path]

    def _close_files(self) -> None:
        for file in self._files.values():
            file.close()
        self._files.clear()
