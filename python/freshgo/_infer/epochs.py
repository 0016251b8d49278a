"""An inference whose passes are epochs of a loader: one hop with all neighbours, of all nodes."""

from __future__ import annotations

import contextlib
import math
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from freshgo._args import checks
from freshgo._args.hints import among
from freshgo._args.npy_files import read_npy_header
from freshgo._args.parts import EdgeParts, GraphParts, NodeParts
from freshgo._args.size import too_small
from freshgo._args.types import EdgeType
from freshgo._infer.dtypes import one_dtype
from freshgo._infer.layers import Key, Work, degrees_of
from freshgo._infer.norm import Norm
from freshgo._infer.outputs import Made
from freshgo._infer.run import NUMPY, Run, Task
from freshgo._native import convert as native_convert
from freshgo.errors import BudgetError, InvalidArgumentError
from freshgo.loader import Loader
from freshgo.options import Disk

LOADED = 0.75
"""The part of the memory that a loader has. The rest is for what a batch takes outside of it."""

DEGREES = -1
"""Of the passes, the one that finds the degrees of all nodes."""


class Epochs:
    """Passes over the graph: one for each layer, and before them one for the degrees where a layer needs them.

    The first pass writes the edges by target. They and the rows of a layer make the store of the next layer.
    """

    def __init__(self, task: Task, work: Path) -> None:
        self._task, self._plan, self._types, self._layers = task, task.plan, task.types, task.layers
        self._passes = [*([DEGREES] if self._plan.norms else []), *range(len(self._layers))]
        self.run = Run(task, work, "", len(self._passes))

    def complete(self) -> dict[str, Made]:
        """Compute what is left and return what the last layer gave, by node type."""
        last = len(self._layers) - 1
        while self.run.state["pass"] < len(self._passes):
            layer = self._passes[self.run.state["pass"]]
            try:
                try:
                    self._pass(layer)
                except BudgetError as error:  # at first, or for a batch that is larger than those measured then
                    raise self._too_little(error) from None
                if 0 <= layer < last:
                    self._convert(layer)
            except BaseException:
                with contextlib.suppress(Exception):  # what ended it is what is told
                    self.run.save()
                raise
            self._advance(layer)
        return self.run.made()

    def _advance(self, layer: int) -> None:
        """Go on to the next pass, and remove what no later one reads."""
        self.run.end_step()
        self.run.close_files()
        if layer > 0:
            shutil.rmtree(self._store_path(layer), ignore_errors=True)
        if 0 <= layer < len(self._layers) - 1:
            unnamed: list[Key] = [(node_type, None) for node_type in self._types.node_types]
            for node_type, name in (*unnamed, *self._layers[layer].dropped):
                self.run.rows_path(layer, node_type, name).unlink(missing_ok=True)

    def _edges_path(self, edge_type: EdgeType, name: str = "") -> Path:
        """The ends of all edges of a type, or one of their tensors, by target."""
        names = ["", *self._task.edge_tensors(edge_type)]
        return self.run.work / f"edges{self.run.place(edge_type)}_{names.index(name)}.npy"

    def _store_path(self, layer: int) -> Path:
        """What a layer after the first reads."""
        return self.run.work / f"layer{layer}"

    def _pass(self, layer: int) -> None:
        last = layer == len(self._layers) - 1
        counts = self._task.inputs.counts if last else self._types.num_nodes
        total = sum(counts.values())
        degrees = {}
        if layer >= 0:
            degrees = {
                norm: torch.from_numpy(np.load(self._degrees_path(i))) for i, norm in enumerate(self._plan.norms)
            }
        stage = "degrees" if layer == DEGREES else f"layer {layer + 1} of {len(self._layers)}"
        if self.run.state["batches"] * self._task.batch_size >= total:
            return  # what is left is to make a store of the rows
        with self._loader(layer, self._task.nodes if last else None) as loader:
            state = loader.state_dict()
            loader.load_state_dict({**state, "batches": self.run.state["batches"]})
            for batch in loader:
                done = self.run.state["batches"]
                edges = self._take_edges(batch) if self.run.state["pass"] == 0 and len(self._layers) > 1 else {}
                if layer == DEGREES:
                    self._write_degrees(batch)
                else:
                    self._compute(layer, batch, degrees, counts)
                self.run.state |= {"batches": done + 1, "edges": {**self.run.state["edges"], **edges}}
                if self._task.report is not None:
                    self._task.report(stage, min((done + 1) * self._task.batch_size, total), total)
                self.run.save_in_time()

    def _degrees_path(self, place: int) -> Path:
        return self.run.work / f"degrees{place}.npy"

    def _write_degrees(self, batch: Any) -> None:
        """Write what layers normalise by, of the nodes of a batch."""
        for place, norm in enumerate(self._plan.norms):
            assert self._plan.program is not None  # it has the layers that normalise
            degrees = degrees_of(self._plan.program, norm, batch, self._types).cpu()
            node_type = norm.edge_type[2]
            lo, hi = self._ranges(self._types.num_nodes)[node_type]
            if lo < hi:
                file = self.run.file(self._degrees_path(place), (self._types.num_nodes[node_type],), np.float32)
                file.write(lo, degrees)

    def _ranges(self, counts: Mapping[str, int]) -> dict[str, tuple[int, int]]:
        """Which of the nodes of each type, in their order, come first in the batch at hand."""
        begin, first, made = self.run.state["batches"] * self._task.batch_size, 0, {}
        for node_type in self._types.node_types:
            count = counts.get(node_type, 0)
            lo, hi = max(begin, first), min(begin + self._task.batch_size, first + count)
            made[node_type] = (lo - first, max(lo, hi) - first)
            first += count
        return made

    def _loader(self, layer: int, nodes: Any) -> Loader:
        """The batches of a pass: one hop, with all neighbours."""
        inputs = self._task.every_type() if nodes is None and not self._types.homogeneous else nodes
        return Loader(
            self._task.store if layer <= 0 else self._store_path(layer),
            [-1] * (1 if layer < 0 else self._layers[layer].hops),
            inputs,
            batch_size=self._task.batch_size,
            return_edge_id=False,
            memory=max(1, int(self._task.memory * LOADED)),
            disk=Disk(checksums=True),
            device=self._task.device,
            device_cache=None,
            progress=False,
        )

    def _too_little(self, error: BudgetError) -> BudgetError:
        """What a loader lacks, in bytes of ``memory``."""
        if not error.minimum:
            return error
        least = math.ceil(error.minimum / LOADED)
        return BudgetError(too_small(self._task.memory, least), least)

    def _compute(self, layer: int, batch: Any, degrees: Mapping[Norm, Tensor], counts: Mapping[str, int]) -> None:
        """Write the rows that a layer gives of a batch."""
        tensor, ranges = None if layer else self._task.tensor, self._ranges(counts)
        given = f"the rows of layer {layer}" if layer else f"the tensor {tensor!r}"
        rows = self._rows_of(layer, batch)
        of_nodes = {norm: degrees[norm][self._part(batch, norm.edge_type[0]).n_id.cpu()] for norm in degrees}
        work = Work(rows, self._beside(layer, batch, ranges), _without_numbers(batch), of_nodes)
        with one_dtype(f"layer {layer + 1}", given, tensor, {of.dtype for of in rows.values()}, self._task.parameters):
            result = self._layers[layer].compute(work)
        unknown = [node_type for node_type, _ in result if node_type not in self._types.node_types]
        if unknown:
            known = among(unknown[0], self._types.node_types)
            raise InvalidArgumentError(f"layer {layer + 1} returned rows of {unknown[0]!r}, expected of {known}")
        last = layer == len(self._layers) - 1
        for node_type, (lo, hi) in ranges.items():
            path = self.run.rows_path(layer, node_type)
            there = (node_type, None) in result
            if lo < hi and lo > 0 and path.exists() != there and (last or self._plan.program is None):
                raise InvalidArgumentError(
                    f"layer {layer + 1} returned rows of {node_type!r} for some batches and left them out for others"
                )
            for (of, name), made in result.items():
                if lo < hi and of == node_type:
                    made = self._checked(layer, node_type, made, hi - lo, exact=name is not None)
                    dtype = NUMPY[self._task.dtype] if made.dtype == self._task.dtype else made.numpy().dtype
                    file = self.run.file(self.run.rows_path(layer, of, name), (counts[of], *made.shape[1:]), dtype)
                    file.write(lo, made)
        ends = last and sum(counts.values()) <= (self.run.state["batches"] + 1) * self._task.batch_size
        if ends and not any(self.run.rows_path(layer, node_type).exists() for node_type in self._types.node_types):
            raise InvalidArgumentError(f"layer {layer + 1} returned no rows, and it is the last one")

    def _part(self, batch: Any, node_type: str) -> Any:
        return batch[node_type] if node_type else batch

    def _rows_of(self, layer: int, batch: Any) -> dict[Key, Tensor]:
        """The rows of all nodes of a batch that a layer reads."""
        keys, made = self._layers[layer].sources, {}
        if keys is None:
            keys = tuple((node_type, None) for node_type in self._types.node_types)
        for node_type, name in keys:
            part, of = self._part(batch, node_type), self._task.tensor if name is None else name
            if of in part:
                made[node_type, name] = _wide(part[of])
        return made

    def _beside(self, layer: int, batch: Any, ranges: Mapping[str, tuple[int, int]]) -> dict[Key, Tensor]:
        """The rows of the nodes that come first in a batch which a layer reads of earlier ones."""
        made = {}
        for node_type, name in self._layers[layer].beside:
            lo, hi = ranges[node_type]
            nodes = self._part(batch, node_type).n_id[: hi - lo].cpu().numpy()
            there = read_npy_header(self.run.rows_path(layer, node_type, name))
            file = self.run.file(Path(there.path), there.shape, there.dtype)
            rows = torch.from_numpy(file.at(nodes))
            rows = rows.float() if rows.dtype == torch.float16 else rows
            made[node_type, name] = rows if self._task.device is None else rows.to(self._task.device)
        return made

    def _checked(self, layer: int, node_type: str, rows: Any, count: int, *, exact: bool) -> Tensor:
        """Rows as they are written. ``exact`` ones may be of any dtype, which numbers that are no floats keep."""
        of = f" of {node_type!r}" if node_type else ""
        if exact:
            whole: Tensor = rows.detach().cpu()
            return whole.to(self._task.dtype) if whole.is_floating_point() else whole
        fewest = 2 if self._plan.functions else 1
        if not isinstance(rows, Tensor) or rows.dim() < fewest or rows.size(0) != count or not rows.is_floating_point():
            raise InvalidArgumentError(
                f"layer {layer + 1} must return rows of floats{of}, one for each of the {count} nodes that come first "
                f"in the batch, got {checks.shown(rows)}{f' and {rows.dtype}' if isinstance(rows, Tensor) else ''}"
            )
        return rows.detach().to("cpu", self._task.dtype)

    def _take_edges(self, batch: Any) -> dict[str, int]:
        """Write the edges of a batch, and return how many of each type are written then."""
        ends = {}
        for edge_type, count in self._task.edges.items():
            part = batch if self._types.homogeneous else batch[edge_type]
            sources, targets = (batch if self._types.homogeneous else batch[edge_type[end]] for end in (0, 2))
            edges, at = part.edge_index.cpu(), self.run.state["edges"].get(str(self.run.place(edge_type)), 0)
            if edges.size(1) == 0:
                continue
            file = self.run.file(self._edges_path(edge_type), (2, count), np.int64)
            file.write_numbers(at, sources.n_id.cpu()[edges[0]])
            file.write_numbers(count + at, targets.n_id.cpu()[edges[1]])
            for name in self._task.edge_tensors(edge_type):
                rows = part[name].cpu()
                rows = rows.float() if rows.dtype == torch.bfloat16 else rows
                path = self._edges_path(edge_type, name)
                self.run.file(path, (count, *rows.shape[1:]), rows.numpy().dtype).write(at, rows)
            ends[str(self.run.place(edge_type))] = at + edges.size(1)
        return ends

    def _convert(self, layer: int) -> None:
        """Make the store that the layer after this one reads."""
        self.run.sync()
        nodes, edges = {}, {}
        following = self._layers[layer + 1].sources
        for node_type, count in self._types.num_nodes.items():
            names = [None] if following is None else [name for of, name in following if of == node_type]
            paths = {
                self._task.tensor if name is None else name: self.run.rows_path(layer, node_type, name)
                for name in names
            }
            tensors: dict[str, Any] = {name: read_npy_header(path) for name, path in paths.items() if path.exists()}
            nodes[node_type] = NodeParts(count, tensors, {})
        for edge_type, count in self._task.edges.items():
            if count == 0:
                edges[edge_type] = EdgeParts(torch.empty((2, 0), dtype=torch.long), {})
                continue
            tensors = {
                name: read_npy_header(self._edges_path(edge_type, name)) for name in self._task.edge_tensors(edge_type)
            }
            edges[edge_type] = EdgeParts(read_npy_header(self._edges_path(edge_type)), tensors)
        if following is None and not any(part.tensors for part in nodes.values()):
            raise InvalidArgumentError(f"layer {layer + 1} returned no rows, the next layer has no input")
        path = self._store_path(layer + 1)
        parts = GraphParts(nodes, edges)
        native_convert.convert(parts, path, memory=self._task.memory, overwrite=True, progress=self._task.report)


def _wide(rows: Tensor) -> Tensor:
    return rows.float() if rows.dtype in (torch.float16, torch.bfloat16) else rows


def _without_numbers(batch: Any) -> Any:
    """Take the numbers of edges out of a batch: those of a layer's store are not the user's."""
    for part in [batch[key] for key in batch.edge_types] if hasattr(batch, "edge_types") else [batch]:
        if "e_id" in part:
            del part["e_id"]
    return batch
