"""A traced model, cut at its message-passing layers: what is computed when, and which values wait for later.

Everything between two layers is computed for ranges of nodes as soon as its arguments are there, and is kept only if a
later pass reads it.
"""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import torch
from torch import Tensor, fx

from freshgo._infer.hop import Convolution, Hop
from freshgo._traced.levels import CONSTANT, COUNT, OTHER, ROWS, STACKED, Level, level, mapped
from freshgo._traced.recording import Traced, compute, refused


@dataclasses.dataclass(frozen=True)
class Pass:
    """What is computed over all nodes and their neighbours at a time: layers whose arguments are there."""

    before: list[fx.Node]
    """Computed of all nodes of a batch, for the layers: of the first pass, whose arguments are those of the model."""
    steps: list[fx.Node]
    """Computed of the targets of a batch, layers among them."""
    sources: list[fx.Node]
    """Rows that all nodes of a batch bring."""
    beside: list[fx.Node]
    """Rows that the targets bring."""
    kept: list[fx.Node]
    """Rows of the targets that later passes read."""
    dropped: list[fx.Node]
    """Rows on disk that no later pass reads."""


class Program:
    """The passes of a model."""

    def __init__(self, traced: Traced) -> None:
        self.traced = traced
        self.nodes = _live(traced)
        self.convs: dict[fx.Node, Convolution] = {}
        for node in self.nodes:
            module = traced.module(node)
            if module is not None and hasattr(module, "propagate"):
                self.convs[node] = Convolution(node, module)
        self._depth: dict[fx.Node, int] = {}
        for node in self.nodes:
            before = max((self._depth[read] for read in node.all_input_nodes), default=0)
            self._depth[node] = before + 1 if node in self.convs else before
        self.count = max([1, *self._depth.values()])
        self.norms = list(dict.fromkeys(conv.norm for conv in self.convs.values() if conv.norm is not None))
        self.passes = [self._pass(number) for number in range(1, self.count + 1)]

    def made(self, node: fx.Node) -> int:
        """The pass that makes the rows of a node."""
        return max(1, self._depth[node])

    def reads(self, node: fx.Node) -> Iterable[fx.Node]:
        """The nodes whose rows of targets a node is computed of."""
        return self.convs[node].near if node in self.convs else node.all_input_nodes

    def _pass(self, number: int) -> Pass:
        rows = [node for node in self.nodes if level(node).kind in (ROWS, STACKED)]
        mine = [node for node in rows if self.made(node) == number]
        layers = [conv for node, conv in self.convs.items() if self.made(node) == number]
        every = {node for conv in layers for node in conv.every}
        before: set[fx.Node] = set()
        if number == 1:
            waiting = list(every)
            while waiting:
                node = waiting.pop()
                if node not in before:
                    before.add(node)
                    waiting += [read for read in node.all_input_nodes if level(read).kind in (ROWS, STACKED)]
        needed = {read for node in mine for read in self.reads(node)}  # but for numbers of nodes, which are at hand
        if number == self.count:
            needed |= set(self.traced.outputs.values())
        last = {node: self._needed(node) for node in rows}
        inputs = [node for node in rows if node.op == "placeholder"]
        steps = [node for node in mine if node.op != "placeholder"]
        return Pass(
            [node for node in self.nodes if node in before and node.op != "placeholder"],
            steps,
            inputs if number == 1 else [node for node in rows if node in every],
            [node for node in rows if node in needed and self.made(node) < number],
            [node for node in mine if last[node] >= number],
            [node for node in rows if self.made(node) <= number == last[node] and number < self.count],
        )

    def _needed(self, node: fx.Node) -> int:
        """The last pass after which the rows of a node must still be on disk; 0 if they need not be."""
        made, last = self.made(node), 0
        for user in node.users:
            if user not in self._depth or user.op == "output":
                continue
            when = self.made(user)
            near = node in self.reads(user)
            if near and when > made:
                last = max(last, when)
            if user in self.convs and node in self.convs[user].every and when > made:
                last = max(last, when - 1)
        if node in self.traced.outputs.values() and self.count > made:
            last = self.count
        if last and level(node).kind == STACKED:
            raise refused(
                f"{node.name}, {level(node)}, is needed behind a later message-passing layer: stack rows there",
                node.meta.get("line"),
            )
        return last

    def values(self, number: int, hop: Hop, sources: Mapping[fx.Node, Tensor], beside: Mapping[fx.Node, Tensor]) -> Any:
        """What a pass makes of a batch: the rows of the targets by node."""
        of, every = self.passes[number - 1], dict(sources)
        self.run(of.before, every, {level(node).of: rows.size(0) for node, rows in sources.items()})
        near: dict[fx.Node, Any] = dict(beside)

        def rows(node: fx.Node) -> Any:
            if node not in near:
                near[node] = every[node][: hop.targets.get(level(node).of, 0)]
            return near[node]

        for node in of.sources:
            if self.made(node) == number and node.op == "placeholder":
                rows(node)
        for node in of.steps:
            if node in self.convs:
                near[node] = self.convs[node](hop, every, rows)
            elif node not in near:
                near[node] = self._computed(node, rows, hop.targets)
        return near

    def run(self, nodes: Iterable[fx.Node], values: dict[fx.Node, Any], counts: Mapping[str, int]) -> None:
        """Compute nodes in their order, of rows that are there; ``counts`` are how many of each type."""
        for node in nodes:
            values[node] = self._computed(node, values.__getitem__, counts)

    def _computed(self, node: fx.Node, rows: Callable[[fx.Node], Any], counts: Mapping[str, int]) -> Any:
        """The value of a node, of rows and of how many there are."""

        def of(read: fx.Node) -> Any:
            kind = level(read).kind
            if kind == CONSTANT:
                return read.meta["value"]
            if kind != COUNT:
                return rows(read)
            own = read.op == "call_method" and read.target == "size"
            return counts[level(read).of] if own else self._computed(read, rows, counts)

        args, kwargs = (mapped(given, of) for given in (node.args, node.kwargs))
        return compute(node, self.traced.module(node), args, kwargs)

    def edges(self, node: fx.Node, read: Callable[[Level, str], Tensor]) -> Tensor:
        """The rows of edges of a node, of the tensors that ``read`` gives of a batch."""
        if node in self.traced.inputs:
            of, tensor = self.traced.inputs[node]
            return read(of, str(tensor))

        def value(each: fx.Node) -> Any:
            return each.meta["value"] if level(each).kind == CONSTANT else self.edges(each, read)

        args, kwargs = (mapped(of, value) for of in (node.args, node.kwargs))
        made: Tensor = compute(node, self.traced.module(node), args, kwargs)
        return made

    def describe(self) -> str:
        """What the rows depend on beside the parameters of the model."""
        constants = [node.meta["value"] for node in self.nodes if node.op == "get_attr"]
        digests = [_digest(of) for of in constants if isinstance(of, Tensor)]
        lines = [f"{node.name} {node.op} {_name(node)} {node.args} {node.kwargs}" for node in self.nodes]
        inputs = [(node.name, str(of)) for node, of in self.traced.inputs.items()]
        outputs = [(key, node.name) for key, node in self.traced.outputs.items()]
        return f"{lines} {inputs} {outputs} {digests}"


def _name(node: fx.Node) -> str:
    return str(getattr(node.target, "__name__", node.target))


def _digest(constant: Tensor) -> str:
    return hashlib.sha256(constant.detach().cpu().contiguous().view(-1).view(torch.uint8).numpy().tobytes()).hexdigest()


def _live(traced: Traced) -> list[fx.Node]:
    """The nodes that the outputs depend on, in their order."""
    found: set[fx.Node] = set()
    waiting = list(traced.outputs.values())
    while waiting:
        node = waiting.pop()
        if node not in found:
            found.add(node)
            waiting += node.all_input_nodes
    nodes = [node for node in traced.graph.nodes if node in found]
    for node in nodes:
        if level(node).kind == OTHER:
            raise node.meta.get("why") or refused(
                f"{node.name} is neither a row for each node nor the same for all", node.meta.get("line")
            )
    return nodes
