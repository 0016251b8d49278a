"""The layers of a model, each a pass over the graph: those of a program that was traced, or functions."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, fx

from freshgo._args import checks
from freshgo._args.types import UNNAMED, EdgeType, Types
from freshgo._infer.dtypes import of_edges
from freshgo._infer.hop import Hop
from freshgo._infer.norm import Norm
from freshgo._infer.program import Program
from freshgo._infer.stream import Stream
from freshgo._traced.levels import Level, level
from freshgo.errors import DTypeError

Key = tuple[str, str | None]
"""A node type, and the name of rows of it. The rows that a layer is for have no name."""


@dataclasses.dataclass(frozen=True)
class Work:
    """A batch, as a layer gets it."""

    rows: dict[Key, Tensor]
    """Of all nodes of the batch."""
    beside: dict[Key, Tensor]
    """Of the nodes that come first in it."""
    batch: Any
    degrees: Mapping[Norm, Tensor]
    """Of the batch's nodes in the whole graph."""


@dataclasses.dataclass(frozen=True)
class Layer:
    """A layer of a model."""

    compute: Callable[[Work], dict[Key, Any]]
    """Returns rows of the batch's input nodes."""
    sources: tuple[Key, ...] | None = None
    """The rows that it reads of all nodes of a batch; None: whatever the layer before has given."""
    beside: tuple[Key, ...] = ()
    """The rows that it reads of the nodes that come first."""
    dropped: tuple[Key, ...] = ()
    """Rows that no layer behind it reads."""
    hops: int = 1
    """How far it reads."""


@dataclasses.dataclass(frozen=True)
class Plan:
    """How a model is computed."""

    layers: list[Layer]
    config: str
    """What its rows depend on beside the parameters of the model."""
    norms: Sequence[Norm] = ()
    """What layers need to know of all nodes before the first."""
    stream: Stream | None = None
    """The layers by themselves, if all of them only add rows up."""
    program: Program | None = None
    functions: Sequence[Any] = ()
    """The layers that a user gave."""


def dtypes_of(model: torch.nn.Module | None, plan: Plan) -> set[torch.dtype]:
    """The dtypes of the parameters of a model, or of layers that are modules, as far as they are floats."""
    modules = [each for each in (model, *plan.functions) if isinstance(each, torch.nn.Module)]
    return {of.dtype for module in modules for of in module.parameters() if of.is_floating_point()}


def functions_plan(layers: Sequence[Any]) -> Plan:
    """The layers that a user gives, as functions of the rows of the layer before and a batch."""
    if isinstance(layers, str) or not isinstance(layers, Sequence) or not layers:
        raise DTypeError(f"layers must be a list of functions, got {checks.shown(layers)}")
    for i, layer in enumerate(layers):
        if not callable(layer):
            raise DTypeError(f"layers[{i}] must be callable, got {checks.shown(layer)}")
    names = [getattr(layer, "__qualname__", type(layer).__qualname__) for layer in layers]
    made = [Layer(_Function(layer, f"layer {i + 1}")) for i, layer in enumerate(layers)]
    return Plan(made, str(names), functions=layers)


@dataclasses.dataclass(frozen=True)
class _Function:
    """A layer that a user gives."""

    layer: Callable[[Any, Any], Any]
    name: str

    def __call__(self, work: Work) -> dict[Key, Any]:
        named = hasattr(work.batch, "edge_types")
        h: Any = {node_type: rows for (node_type, _), rows in work.rows.items()}
        result = self.layer(h if named else h[""], work.batch)
        if not named:
            return {("", None): result}
        if not isinstance(result, Mapping):
            raise DTypeError(f"{self.name} must return a dict of rows by node type, got {checks.shown(result)}")
        return {(node_type, None): rows for node_type, rows in result.items()}


def program_plan(program: Program, stream: Stream | None, types: Types) -> Plan:
    """The passes of a traced model."""
    names = {node: _key(program, node) for node in program.nodes}

    def keys(nodes: Iterable[fx.Node]) -> tuple[Key, ...]:
        return tuple(names[node] for node in nodes)

    layers = []
    for number, of in enumerate(program.passes, 1):
        compute = _Pass(program, number, names, types)
        layers.append(Layer(compute, keys(of.sources), keys(of.beside), keys(of.dropped)))
    return Plan(layers, program.describe(), program.norms, stream, program)


def _key(program: Program, node: fx.Node) -> Key:
    """The name of rows: of an input, its tensor."""
    if node in program.traced.inputs:
        return str(level(node).of), program.traced.inputs[node][1]
    return str(level(node).of), f"value_{node.name}"


@dataclasses.dataclass(frozen=True)
class _Pass:
    """A pass of a program over a batch."""

    program: Program
    number: int
    names: Mapping[fx.Node, Key]
    types: Types

    def __call__(self, work: Work) -> dict[Key, Any]:
        of = self.program.passes[self.number - 1]
        hop = hop_of(self.program, work.batch, self.types, work.degrees)
        sources = {node: work.rows[self.names[node]] for node in of.sources}
        beside = {node: work.beside[self.names[node]] for node in of.beside}
        values = self.program.values(self.number, hop, sources, beside)
        made: dict[Key, Any] = {self.names[node]: values[node] for node in of.kept}
        if self.number == self.program.count:
            for node in self.program.traced.outputs.values():
                found = values[node] if node in values else sources[node][: hop.targets.get(self.names[node][0], 0)]
                made[self.names[node][0], None] = found
        return made


def hop_of(program: Program, batch: Any, types: Types, degrees: Mapping[Norm, Tensor]) -> Hop:
    """A batch of one hop, as a program's layers see it."""
    named = not types.homogeneous
    targets: dict[str, int] = {}
    for node_type in types.node_types:
        part = batch[node_type] if named else batch
        targets[node_type] = int(part.batch_size) if "batch_size" in part else 0
    ends = ends_of(batch, types)

    def read(of: Level, name: str) -> Tensor:
        return of_edges(_part(batch, of.of, named)[name])

    return Hop(targets, ends, lambda node: program.edges(node, read), degrees)


def ends_of(batch: Any, types: Types) -> dict[EdgeType, Tensor]:
    """The edges of a batch by type. A node that comes first in it twice has two rows: loops of the second lead from
    it to itself, as layers recognise them."""
    found = {}
    for key in types.edge_types:
        edges: Tensor = _part(batch, key, not types.homogeneous).edge_index
        if key[0] == key[2]:
            part = batch if types.homogeneous else batch[key[0]]
            first = part.n_id[: int(part.batch_size) if "batch_size" in part else 0]
            if first.unique().numel() < first.numel():
                sources, targets = edges
                loops = part.n_id[sources] == part.n_id[targets]
                edges = torch.stack([torch.where(loops, targets, sources), targets])
        found[key] = edges
    return found


def _part(batch: Any, key: EdgeType, named: bool) -> Any:
    assert named or key == UNNAMED  # the only edge type of a homogeneous graph
    return batch[key] if named else batch


def degrees_of(program: Program, norm: Norm, batch: Any, types: Types) -> Tensor:
    """The degrees of the input nodes of a batch, of the type at which the edges of a norm end."""
    hop = hop_of(program, batch, types, {})
    weight = None if norm.edge_weight is None else hop.edges(norm.edge_weight)
    return norm.degrees(hop.ends[norm.edge_type], weight, hop.targets[norm.edge_type[2]])
