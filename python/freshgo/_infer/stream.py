"""A traced model whose message-passing layers only add rows up, one layer after the other."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, fx

from freshgo._infer.linear import Linear, linear
from freshgo._infer.norm import Norm
from freshgo._infer.program import Program
from freshgo._traced.levels import ROWS, STACKED, level
from freshgo._traced.recording import refused
from freshgo._traced.rowwise import columns_of, is_columnwise


@dataclasses.dataclass(frozen=True)
class Segment:
    """What is computed of the rows that a layer gives, or of the input, for ranges of nodes."""

    program: Program
    start: fx.Node
    """The layer, or the input."""
    steps: list[fx.Node]
    beside: list[fx.Node]
    """Rows that earlier segments have kept."""
    kept: list[fx.Node]
    """Rows that later segments read."""
    dropped: list[fx.Node]
    """Rows that no later segment reads."""
    feeds: dict[int, fx.Node]
    """Which rows a layer adds up."""
    columns: Callable[[Tensor, slice], Tensor] | None
    """Some columns of what the next layer adds up, of these columns of the rows that this one gives, where that is all
    there is and each column depends on itself."""

    def __call__(self, made: Tensor, beside: Mapping[fx.Node, Tensor]) -> dict[fx.Node, Any]:
        values: dict[fx.Node, Any] = {**beside, self.start: made}
        self.program.run(self.steps, values, {"": made.size(0)})
        return values


@dataclasses.dataclass(frozen=True)
class Stream:
    """Layers in their order. Segment i is before layer i, the last one behind the last layer."""

    layers: list[Linear]
    widths: list[int]
    """Columns of the rows that a layer is given."""
    segments: list[Segment]
    output: fx.Node
    weight: str | None
    """The tensor of edges that layers multiply rows by."""
    norm: Norm | None

    def columns_out(self) -> int:
        """Columns of the result."""
        return int(self.output.meta["value"].size(1))

    def direct(self) -> bool:
        """Whether the first layer adds up what is made of the input, and nothing else is made of it."""
        first = self.segments[0]
        return list(first.feeds) == [0] and not first.kept


def stream_of(program: Program) -> Stream | None:
    """The layers of a program by themselves; None where one does not only add rows up."""
    traced, convs = program.traced, list(program.convs.values())
    inputs = [node for node in traced.inputs if level(node).kind == ROWS and node in program.nodes]
    output = next(iter(traced.outputs.values()))
    if len(inputs) != 1 or level(inputs[0]).of != "" or not convs or output.meta["value"].dim() != 2:
        return None
    if inputs[0].meta["value"].dim() != 2 or len(traced.outputs) != 1:
        return None
    layers: list[Linear] = []
    weights: set[str] = set()
    for conv in convs:
        parts = _layer(conv, program, weights)
        if parts is None or conv.node.meta["value"].dim() != 2:
            return None
        layers.append(parts)
    norms = {parts.norm for parts in layers if parts.norm is not None}
    if len(norms) > 1 or len(weights) > 1:
        return None
    given = [next(iter(conv.every)) for conv in convs]
    if any(of.meta["value"].dim() != 2 for of in given):
        return None
    widths = [int(of.meta["value"].size(1)) for of in given]
    segments = _segments(program, inputs[0], given)
    return Stream(layers, widths, segments, output, next(iter(weights), None), next(iter(norms), None))


def _layer(conv: Any, program: Program, weights: set[str]) -> Linear | None:
    """A layer, if it only adds up the rows of one node; the name of the weights of edges is put among ``weights``."""
    arguments = {name: value for name, value in conv.arguments.items() if value is not None}
    weight = arguments.pop("edge_weight", None)
    x = arguments.get("x")
    x = x[0] if isinstance(x, tuple) and len(x) == 2 and x[0] is x[1] else x
    if set(arguments) != {"x", "edge_index"} or not isinstance(x, fx.Node) or level(x).kind != ROWS:
        return None
    name = None
    if weight is not None:
        if weight not in program.traced.inputs:
            return None
        name = program.traced.inputs[weight][1]
    norm = None if conv.norm is None else dataclasses.replace(conv.norm, edge_weight=name)
    parts = linear(conv.module, norm, name)
    if parts is not None and name is not None:
        weights.add(name)
    return parts


def _segments(program: Program, start: fx.Node, given: list[fx.Node]) -> list[Segment]:
    """Cut a program before each layer."""
    convs = {node: place for place, node in enumerate(program.convs)}
    when: dict[fx.Node, int] = {}
    rows = [node for node in program.nodes if node is start or level(node).kind in (ROWS, STACKED)]
    for node in rows:
        before = max((when[read] for read in node.all_input_nodes if read in when), default=0)
        when[node] = convs[node] + 1 if node in convs else before
    output = next(iter(program.traced.outputs.values()))
    last: dict[fx.Node, int] = {}
    for node in rows:
        users = [when[user] for user in node.users if user in when and user not in convs]
        users += [len(convs)] if node is output else []
        last[node] = max(users, default=0)
        if last[node] > when[node] and level(node).kind == STACKED:
            raise refused(f"{node.name} is needed behind a later message-passing layer", node.meta.get("line"))
    segments = []
    for place in range(len(convs) + 1):
        mine = [node for node in rows if when[node] == place]
        first = start if place == 0 else list(convs)[place - 1]
        steps = [node for node in mine if node is not first and node not in convs]
        reads = {read for node in steps for read in node.all_input_nodes if read in when}
        reads |= {output} if place == len(convs) else set()
        segment = Segment(
            program,
            first,
            steps,
            [node for node in rows if node in reads and when[node] < place],
            [node for node in mine if last[node] > place],
            [node for node in rows if when[node] < place == last[node]],
            {layer: of for layer, of in enumerate(given) if when[of] == place},
            None,
        )
        segments.append(dataclasses.replace(segment, columns=_columns(segment, place, program)))
    return segments


def _columns(segment: Segment, place: int, program: Program) -> Callable[[Tensor, slice], Tensor] | None:
    """What ``columns`` of a segment is."""
    if place == 0 or segment.beside or segment.kept or list(segment.feeds) != [place]:
        return None
    steps, module = segment.steps, program.traced.module
    ends = [segment.start, *steps]
    chained = all(list(dict.fromkeys(node.all_input_nodes))[:1] == [ends[i]] for i, node in enumerate(steps))
    if not chained or segment.feeds[place] is not ends[-1]:
        return None
    if not all(is_columnwise(node, module(node)) and node.meta["value"].dim() == 2 for node in steps):
        return None

    def made(rows: Tensor, columns: slice) -> Tensor:
        for node in steps:
            called = module(node)
            rows = columns_of(called, columns, rows) if called is not None else _function(node, rows)
        return rows

    return made


def _function(node: fx.Node, rows: Tensor) -> Tensor:
    """A function of the node's first argument."""
    rest: Any = node.args[1:]
    if node.op == "call_method":
        made: Tensor = getattr(rows, str(node.target))(*rest, **node.kwargs)
        return made
    target: Any = node.target
    return torch.as_tensor(target(rows, *rest, **node.kwargs))
