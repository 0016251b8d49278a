"""Message-passing layers over a batch of one hop, as a traced model calls them."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, fx

from freshgo._args.types import EdgeType
from freshgo._infer.norm import Norm, norm_of
from freshgo._traced.levels import CONSTANT, EDGES, ENDS, ROWS, level, mapped

_OF_PAIRS = ("SAGEConv", "GINConv", "GraphConv")
"""Convolutions that give the same rows from sources and targets apart, and so compute none for the neighbours."""


@dataclasses.dataclass
class Hop:
    """A batch of one hop: its targets are the first nodes of each type."""

    targets: dict[str, int]
    ends: dict[EdgeType, Tensor]
    edges: Callable[[fx.Node], Tensor]
    """The rows of edges that a node of the model stands for."""
    degrees: Mapping[Norm, Tensor] = dataclasses.field(default_factory=dict)
    """Of the batch's nodes in the whole graph."""


class Convolution:
    """A call of a message-passing layer."""

    def __init__(self, node: fx.Node, module: Any) -> None:
        self.node, self.module = node, module
        self.arguments = dict(inspect.signature(module.forward).bind(*node.args, **node.kwargs).arguments)
        self.every: set[fx.Node] = set()
        """Rows that it reads of all nodes of a batch."""
        self.near: set[fx.Node] = set()
        """Rows that it reads of the targets."""
        self._filled(self.every.add, self.near.add, lambda _: None, lambda _: None)
        ends = [each for each in self.arguments.items() if _is(each[1], ENDS)]
        weight = self.arguments.get("edge_weight")
        self.norm = norm_of(module, weight, level(ends[0][1]).of) if len(ends) == 1 else None
        self._edges = ends[0][0] if ends else ""
        self._pairs = type(module).__name__ in _OF_PAIRS and _is(self.arguments.get("x"), ROWS)

    def _filled(
        self,
        every: Callable[[fx.Node], Any],
        near: Callable[[fx.Node], Any],
        ends: Callable[[fx.Node], Any],
        edges: Callable[[fx.Node], Any],
    ) -> dict[str, Any]:
        """The arguments, with values for the nodes."""

        def of(node: fx.Node) -> Any:
            kind = level(node).kind
            if kind == CONSTANT:
                return node.meta["value"]
            return {ROWS: every, ENDS: ends, EDGES: edges}[kind](node)

        def filled(value: Any) -> Any:
            pair = isinstance(value, tuple) and len(value) == 2 and _is(value[1], ROWS)
            if pair:
                return (mapped(value[0], of), near(value[1]))
            return mapped(value, of)

        return {name: filled(value) for name, value in self.arguments.items()}

    def __call__(self, hop: Hop, every: Mapping[fx.Node, Tensor], near: Callable[[fx.Node], Tensor]) -> Any:
        """The rows of the targets."""
        count = hop.targets.get(level(self.node).of, 0)
        if count == 0 and isinstance(self.node.meta["value"], Tensor):
            return self.node.meta["value"][:0]
        given = self._filled(every.__getitem__, near, lambda node: hop.ends[level(node).of], hop.edges)
        if self._pairs:
            given["x"] = (given["x"], given["x"][:count])
        if self.norm is None:
            return self._cut(self.module(**_called(self.module, given)), hop)
        weight = given.get("edge_weight")
        edges, weight = self.norm.normalised(given[self._edges], weight, count, hop.degrees[self.norm])
        rows = next(rows for rows in given.values() if isinstance(rows, Tensor) and rows.is_floating_point())
        given |= {self._edges: edges, "edge_weight": weight.to(rows.dtype)}
        self.module.normalize = False
        try:
            return self._cut(self.module(**_called(self.module, given)), hop)
        finally:
            self.module.normalize = True

    def _cut(self, made: Any, hop: Hop) -> Any:
        """The rows of the targets alone."""
        if isinstance(made, dict):
            return {of: None if rows is None else rows[: hop.targets.get(of, 0)] for of, rows in made.items()}
        count = hop.targets.get(level(self.node).of, 0)
        return made[:count] if isinstance(made, Tensor) else (made[0][:count], *made[1:])


def _is(value: Any, kind: str) -> bool:
    return isinstance(value, fx.Node) and level(value).kind == kind


def _called(module: Any, given: dict[str, Any]) -> dict[str, Any]:
    """Arguments by name, with those of ``**kwargs`` among them."""
    more = [p.name for p in inspect.signature(module.forward).parameters.values() if p.kind == p.VAR_KEYWORD]
    for name in more:
        given = {**given, **given.pop(name, {})}
    return given


def degrees_of(norm: Norm, ends: Tensor, weight: Tensor | None, targets: int) -> Tensor:
    """The degrees of the targets of a batch."""
    return norm.degrees(ends, weight, targets).to(torch.float32)
