"""An inference, layer by layer: what is loaded, computed and written, and where it goes on after it was ended."""

from __future__ import annotations

import contextlib
import hashlib
import math
import shutil
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from freshgo._args import checks
from freshgo._args.npy_files import read_npy_header
from freshgo._args.parts import EdgeParts, GraphParts, NodeParts
from freshgo._args.progress import Progress
from freshgo._args.types import EdgeType, Inputs
from freshgo._data.source import StoreSource
from freshgo._infer.files import RESULT, Lock, Rows, State
from freshgo._infer.layers import Layer
from freshgo._infer.outputs import Made
from freshgo._native import convert as native_convert
from freshgo.errors import BudgetError, DTypeError, InvalidArgumentError
from freshgo.loader import Loader
from freshgo.store import Store

SAVED_EVERY = 5.0
"""Seconds between two notes of how far it is. Arbitrary: what a killed process may have to compute again."""

LOADED = 0.75
"""The part of the memory that a loader has. The rest is for what a batch takes outside of it."""

DEGREES = -1
"""Of the passes, the one that finds the degrees of all nodes."""


class Run:
    """One inference, in a directory of its own.

    It makes passes over the graph: one for each layer, and before them one for the degrees where a layer needs them.
    The first pass writes the edges by target, of which with the rows of a layer the store of the next one is made.
    """

    def __init__(
        self,
        store: Store,
        work: Path,
        layers: list[Layer],
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
        self._store, self._layers, self._tensor = store, layers, tensor
        self._memory, self._batch_size, self._device = memory, batch_size, device
        self._dtype, self._report = dtype, report
        source = StoreSource(store, owned=False)
        self._types = source.types
        self._edges = {edge_type: source.num_edges(edge_type) for edge_type in self._types.edge_types}
        self._norm = next((layer.norm for layer in layers if layer.norm is not None), None)
        self._check_graph()
        given = nodes if nodes is not None or self._types.homogeneous else self._every_type()
        self._nodes: Any = given
        self._inputs: Inputs = self._types.inputs(given, source.split, source.splits)
        plan = self._plan()
        self._work = work
        self._files: dict[Any, Rows] = {}
        self._lock = Lock(self._work)
        try:
            self._saved = State(self._work)
            self._state = self._begin(self._described(model, plan))
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

    def _plan(self) -> str:
        """Choose the passes, and describe what the files of the directory depend on."""
        self._passes = [*([DEGREES] if self._norm is not None else []), *range(len(self._layers))]
        self._count = len(self._passes)
        return ""

    def complete(self) -> dict[str, Made]:
        """Compute what is left and return what the last layer gave, by node type."""
        last = len(self._layers) - 1
        while self._state["pass"] < len(self._passes):
            layer = self._passes[self._state["pass"]]
            try:
                self._pass(layer)
                if 0 <= layer < last:
                    self._convert(layer)
            except BaseException as error:
                with contextlib.suppress(Exception):  # what ended it is what is told
                    self._save()
                if isinstance(error, BudgetError):  # of a batch that is larger than those measured at first
                    raise self._too_little(error) from None
                raise
            self._advance(layer)
        return self._made()

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

    def _check_graph(self) -> None:
        types = self._types
        stored = [(self._store[t] if t else self._store).tensors for t in types.node_types]
        if not any(self._tensor in of and of[self._tensor].level == "node" for of in stored):
            raise InvalidArgumentError(
                f"the store has no node-level tensor {self._tensor!r}, the input of the first layer"
            )
        frames = [item for of in self._store._frames().values() for item in of.items()]
        whole = next((name for name, frame in frames if self._tensor in frame.widths(name)), None)
        if whole is not None:
            raise InvalidArgumentError(
                f"tensor={self._tensor!r} is part of the TensorFrame {whole!r}, expected a tensor by itself; a layer "
                "finds the frame in the batch"
            )
        if not types.homogeneous and any(layer.basic for layer in self._layers):
            raise InvalidArgumentError("a BasicGNN is for homogeneous graphs, and the store is not: give layers=")
        for layer in self._layers:
            for name in layer.edge_tensors:
                if name not in self._edge_tensors(types.edge_types[0]):
                    raise InvalidArgumentError(f"the store has no edge-level tensor {name!r}")

    def _edge_tensors(self, edge_type: EdgeType) -> list[str]:
        of = self._store.tensors if self._types.homogeneous else self._store[edge_type].tensors
        return [name for name, info in of.items() if info.level == "edge"]

    def _described(self, model: torch.nn.Module | None, plan: str) -> str:
        """A short name of everything that the rows depend on."""
        what = (self._store.uuid, self._tensor, self._dtype, self._batch_size, self._inputs.config, self._layers)
        digest = hashlib.sha256(f"{what[:5]} {[layer.describe() for layer in self._layers]} {model!r} {plan}".encode())
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

    def _advance(self, layer: int) -> None:
        """Go on to the next pass, and remove what no later one reads."""
        for file in self._files.values():
            file.sync()
        self._state |= {"pass": self._state["pass"] + 1, "batches": 0}
        self._saved.write(self._state)
        self._close_files()
        if layer > 0:
            shutil.rmtree(self._store_path(layer), ignore_errors=True)
        if 0 <= layer < len(self._layers) - 1:
            for node_type in self._types.node_types:
                self._rows_path(layer, node_type).unlink(missing_ok=True)

    # Its files.

    def _place(self, key: str | EdgeType) -> int:
        of: list[Any] = self._types.node_types if isinstance(key, str) else self._types.edge_types
        return of.index(key)

    def _rows_path(self, layer: int, node_type: str) -> Path:
        """The rows of a node type that a layer gives."""
        return self._work / f"rows{layer}_{self._place(node_type)}.npy"

    def _edges_path(self, edge_type: EdgeType, name: str = "") -> Path:
        """The ends of all edges of a type, or one of their tensors, by target."""
        names = ["", *self._edge_tensors(edge_type)]
        return self._work / f"edges{self._place(edge_type)}_{names.index(name)}.npy"

    def _store_path(self, layer: int) -> Path:
        """What a layer after the first reads."""
        return self._work / f"layer{layer}"

    def _file(self, path: Path, shape: tuple[int, ...], dtype: Any) -> Rows:
        if path not in self._files:
            self._files[path] = Rows(path, shape, dtype)
        return self._files[path]

    def _close_files(self) -> None:
        for file in self._files.values():
            file.close()
        self._files.clear()

    # A pass.

    def _pass(self, layer: int) -> None:
        last = layer == len(self._layers) - 1
        counts = self._inputs.counts if last else self._types.num_nodes
        total = sum(counts.values())
        degrees = None
        if layer >= 0 and self._norm is not None:
            degrees = torch.from_numpy(np.load(self._work / "degrees.npy"))
        stage = "degrees" if layer == DEGREES else f"layer {layer + 1} of {len(self._layers)}"
        if self._state["batches"] * self._batch_size >= total:
            return  # what is left is to make a store of the rows
        with self._loader(layer, self._nodes if last else None) as loader:
            state = loader.state_dict()
            loader.load_state_dict({**state, "batches": self._state["batches"]})
            for batch in loader:
                done = self._state["batches"]
                edges = self._take_edges(batch) if self._state["pass"] == 0 and len(self._layers) > 1 else {}
                if layer == DEGREES:
                    assert self._norm is not None  # the pass is for it
                    file = self._file(self._work / "degrees.npy", (total,), np.float32)
                    file.write(done * self._batch_size, self._norm.degrees(batch).cpu())
                else:
                    self._compute(layer, batch, degrees, counts)
                self._state |= {"batches": done + 1, "edges": {**self._state["edges"], **edges}}
                if self._report is not None:
                    self._report(stage, min((done + 1) * self._batch_size, total), total)
                if time.monotonic() > self._next_save:
                    self._save()

    def _loader(self, layer: int, nodes: Any) -> Loader:
        """The batches of a pass: one hop, with all neighbours."""
        inputs = self._every_type() if nodes is None and not self._types.homogeneous else nodes
        try:
            return Loader(
                self._store if layer <= 0 else self._store_path(layer),
                [-1],
                inputs,
                batch_size=self._batch_size,
                memory=int(self._memory * LOADED),
                checksums=True,
                device=self._device,
            )
        except BudgetError as error:
            raise self._too_little(error) from None

    def _too_little(self, error: BudgetError) -> BudgetError:
        """What a loader lacks, in bytes of ``memory``."""
        if str(error).startswith("infer "):
            return error
        least = math.ceil(error.minimum / LOADED)
        return BudgetError(f"infer needs {least} bytes of memory, got {self._memory}: {error}", least)

    def _compute(self, layer: int, batch: Any, degrees: Tensor | None, counts: Mapping[str, int]) -> None:
        """Write the rows that a layer gives of a batch."""
        result = self._layers[layer].compute(self._rows_of(batch), _without_numbers(batch), degrees)
        if self._types.homogeneous:
            result = {"": result}
        elif not isinstance(result, Mapping):
            raise DTypeError(f"layer {layer + 1} must return a dict of rows by node type, got {checks.shown(result)}")
        begin, first = self._state["batches"] * self._batch_size, 0
        for node_type in self._types.node_types:
            count = counts.get(node_type, 0)
            lo, hi = max(begin, first), min(begin + self._batch_size, first + count)
            if lo < hi and node_type in result:
                rows = self._checked(layer, node_type, result[node_type], hi - lo)
                path = self._rows_path(layer, node_type)
                self._file(path, (count, *rows.shape[1:]), NUMPY[self._dtype]).write(lo - first, rows)
            first += count

    def _rows_of(self, batch: Any) -> Any:
        """The rows of the layer before."""
        if self._types.homogeneous:
            return _wide(batch[self._tensor])
        return {
            node_type: _wide(batch[node_type][self._tensor])
            for node_type in self._types.node_types
            if self._tensor in batch[node_type]
        }

    def _checked(self, layer: int, node_type: str, rows: Any, count: int) -> Tensor:
        of = f" of {node_type!r}" if node_type else ""
        if not isinstance(rows, Tensor) or rows.dim() < 2 or rows.size(0) != count or not rows.is_floating_point():
            raise InvalidArgumentError(
                f"layer {layer + 1} must return rows of floats{of}, one for each of the {count} nodes that come first "
                f"in the batch, got {checks.shown(rows)}"
            )
        return rows.detach().to("cpu", self._dtype)

    def _take_edges(self, batch: Any) -> dict[str, int]:
        """Write the edges of a batch, and return how many of each type are written then."""
        ends = {}
        for edge_type, count in self._edges.items():
            part = batch if self._types.homogeneous else batch[edge_type]
            sources, targets = (batch if self._types.homogeneous else batch[edge_type[end]] for end in (0, 2))
            edges, at = part.edge_index.cpu(), self._state["edges"].get(str(self._place(edge_type)), 0)
            if edges.size(1) == 0:
                continue
            file = self._file(self._edges_path(edge_type), (2, count), np.int64)
            file.write_numbers(at, sources.n_id.cpu()[edges[0]])
            file.write_numbers(count + at, targets.n_id.cpu()[edges[1]])
            for name in self._edge_tensors(edge_type):
                rows = part[name].cpu()
                rows = rows.float() if rows.dtype == torch.bfloat16 else rows
                path = self._edges_path(edge_type, name)
                self._file(path, (count, *rows.shape[1:]), rows.numpy().dtype).write(at, rows)
            ends[str(self._place(edge_type))] = at + edges.size(1)
        return ends

    def _convert(self, layer: int) -> None:
        """Make the store that the layer after this one reads."""
        for file in self._files.values():
            file.sync()
        nodes, edges = {}, {}
        for node_type, count in self._types.num_nodes.items():
            path = self._rows_path(layer, node_type)
            tensors: dict[str, Any] = {self._tensor: read_npy_header(path)} if path.exists() else {}
            nodes[node_type] = NodeParts(count, tensors, {})
        for edge_type, count in self._edges.items():
            if count == 0:
                edges[edge_type] = EdgeParts(torch.empty((2, 0), dtype=torch.long), {})
                continue
            names = self._edge_tensors(edge_type)
            tensors = {name: read_npy_header(self._edges_path(edge_type, name)) for name in names}
            edges[edge_type] = EdgeParts(read_npy_header(self._edges_path(edge_type)), tensors)
        if not any(part.tensors for part in nodes.values()):
            raise InvalidArgumentError(f"layer {layer + 1} returned no rows, the next layer has no input")
        path = self._store_path(layer + 1)
        parts = GraphParts(nodes, edges)
        native_convert.convert(parts, path, memory=self._memory, overwrite=True, progress=self._report)


NUMPY = {torch.float32: np.float32, torch.float16: np.float16}


def _wide(rows: Tensor) -> Tensor:
    return rows.float() if rows.dtype in (torch.float16, torch.bfloat16) else rows


def _without_numbers(batch: Any) -> Any:
    """Take the numbers of edges out of a batch: those of a layer's store are not the user's."""
    for part in [batch[key] for key in batch.edge_types] if hasattr(batch, "edge_types") else [batch]:
        if "e_id" in part:
            del part["e_id"]
    return batch
