"""The layers of a model that users write, found by recording it with ``torch.fx`` over a small random graph.

A pruned batch has other rows at each level. So a layer must read what the layer before it has computed and nothing
else, changed row by row, and so must the rows that the model returns.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import fx, nn

from freshgo._args.types import Layout, Row
from freshgo._history.layer_forms import by_relation
from freshgo._traced.levels import CONSTANT, EDGES, ENDS, OTHER, ROWS, level, mapped, nodes_in
from freshgo._traced.recording import Traced, UntraceableError, call_model, refused, trace_model
from freshgo._traced.rowwise import name_of
from freshgo._traced.sample import Given, Sample, counts, random_ends, random_rows
from freshgo._traced.states import evaluating, uncached
from freshgo._traced.trials import check_rows, check_same
from freshgo.errors import InvalidArgumentError

_BY_HAND = (
    ": call h = history(h, block) before each layer over batch.blocks(), where h[: block.num_dst] are the rows of the "
    "targets"
)
_NEVER = ": a row that is kept has no rows of the levels below it, so no history can serve this model"


def found_layers(model: nn.Module, layout: Layout, names: str) -> list[nn.Module]:
    """Return the message-passing layers of a model in the order of their calls, one that is called twice twice.

    Raises:
        InvalidArgumentError: the model cannot be recorded, or a layer cannot be given the rows of a level alone; the
            message says which, and at which line. ``names`` is how a user would name the layers.
    """
    kind = type(model).__name__
    try:
        lazy = next((name for name, of in model.named_parameters() if nn.parameter.is_lazy(of)), None)
        if lazy is not None:
            raise refused(f"{lazy} is uninitialized: call the model once before", None)
        with torch.no_grad(), evaluating(model), uncached(model):
            traced = _recorded(model, *_sample(model, layout))
    except UntraceableError as error:
        raise InvalidArgumentError(
            f"the layers of {kind} were not found: {error}; layers that are called one after the other, each on the "
            f"rows of the one before, may be named as attach(model, layers=[{names}])"
        ) from error.__cause__
    try:
        return _Chain(model, traced).layers()
    except UntraceableError as error:
        raise InvalidArgumentError(f"{kind} cannot be attached: {error}") from None


def _recorded(model: nn.Module, sample: Sample, given: Mapping[str, Given]) -> Traced:
    """The model as it is recorded, after trials of its rows."""
    traced = trace_model(model, sample, given, layers=_is_layer)
    live = _live(traced)
    passing = {node for node in live if _is_layer(traced.module(node)) or hasattr(traced.module(node), "propagate")}
    check_rows(traced, live, sample, passing)
    check_same(traced, call_model(model, sample, given), traced.outputs[None])
    return traced


def _is_layer(module: Any) -> bool:
    """Whether a module is one layer over all types: a HeteroConv, or what ``to_hetero`` has made of a layer."""
    if not isinstance(module, nn.Module):
        return False
    made = isinstance(module, fx.GraphModule) and any(hasattr(part, "propagate") for part in module.modules())
    return made or by_relation(module)


def _sample(model: nn.Module, layout: Layout) -> tuple[Sample, dict[str, Given]]:
    """A graph with tensors like those of the batches, and which of them each parameter of ``forward`` gets."""
    generator = torch.Generator().manual_seed(0)
    device = next((of.device for of in model.parameters()), torch.device("cpu"))
    floats = next((of.dtype for of in model.parameters() if of.is_floating_point()), torch.float32)
    nodes = counts(layout.types.node_types)
    ends = random_ends(nodes, layout.types.edge_types, generator)

    def rows(key: Any, of: Row, count: int, kind: str) -> Any:
        made = random_rows((count, *of[1]), of[0], kind, generator)
        return (made.to(floats) if made.is_floating_point() else made).to(device)

    sample = Sample(
        nodes,
        {key: both.to(device) for key, both in ends.items()},
        {key: rows(key, of, nodes[key[0]], ROWS) for key, of in _node_rows(layout).items()},
        {key: rows(key, of, ends[key[0]].size(1), EDGES) for key, of in layout.edges.items()},
    )
    return sample, _given(model, layout)


def _node_rows(layout: Layout) -> dict[tuple[Any, str], Row]:
    """The tensors of nodes that a batch has."""
    return {**layout.nodes, **{(node_type, "n_id"): (torch.int64, ()) for node_type in layout.types.node_types}}


def _given(model: nn.Module, layout: Layout) -> dict[str, Given]:
    of_nodes, of_edges = ({name for _, name in of} for of in (_node_rows(layout), layout.edges))
    typed = not layout.types.homogeneous
    given: dict[str, Given] = {}
    for name, parameter in inspect.signature(model.forward).parameters.items():
        bare = name.removesuffix("_dict")
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD) or (bare != name and not typed):
            continue
        if bare == "edge_index":
            given[name] = Given(ENDS, None, typed)
        elif bare in of_nodes or bare in of_edges:
            given[name] = Given(ROWS if bare in of_nodes else EDGES, bare, typed)
        elif parameter.default is parameter.empty:
            raise refused(
                f"forward() takes {name!r}, expected edge_index, the name of a tensor of the loader's graph "
                f"({', '.join(sorted(of_nodes | of_edges))}) or, by type, such a name with _dict behind",
                None,
            )
    return given


def _live(traced: Traced) -> list[fx.Node]:
    """The nodes that what the model returns depends on."""
    waiting: list[fx.Node] = []
    mapped(traced.outputs[None], waiting.append)
    found: set[fx.Node] = set()
    while waiting:
        node = waiting.pop()
        if node not in found:
            found.add(node)
            waiting += node.all_input_nodes
    return [node for node in traced.graph.nodes if node in found]


class _Chain:
    """The layers of a recorded model, as far as each reads the rows of the one before."""

    def __init__(self, model: nn.Module, traced: Traced) -> None:
        self._traced, self._nodes = traced, _live(traced)
        self._names = {id(module): name for name, module in model.named_modules()}
        self._of: dict[fx.Node, frozenset[int]] = {}
        """The levels whose rows a value is made of: 0 are the features."""
        self._found: list[nn.Module] = []

    def layers(self) -> list[nn.Module]:
        """The layers in the order of their calls."""
        for node in self._nodes:
            module = self._traced.module(node)
            if level(node).kind == OTHER:
                raise refused(f"{name_of(node)} makes neither a row for each node nor the same for all", _line(node))
            if _is_layer(module) or hasattr(module, "propagate"):
                self._call(node, module)
            elif level(node).kind in (CONSTANT, EDGES, ENDS):
                self._of[node] = frozenset()
            elif node.op == "placeholder":
                self._of[node] = frozenset([0])
            else:
                self._of[node] = frozenset().union(*(self._of[read] for read in node.all_input_nodes))
        if not self._found:
            raise refused("it calls no message-passing layer", None)
        returned: list[fx.Node] = []
        mapped(self._traced.outputs[None], returned.append)
        for node in returned:
            if self._of[node]:
                self._check([node], len(self._found), "what forward() returns is")
        return self._found

    def _call(self, node: fx.Node, module: nn.Module) -> None:
        """Take note of a layer, if it is called as ``layer(h, edge_index, ...)``."""
        number = len(self._found) + 1
        called = f"layer {number}, {self._names.get(id(module)) or 'model'} ({type(module).__name__}),"
        values = [*node.args, *node.kwargs.values()]
        first, second = (values[at] if at < len(values) else None for at in (0, 1))
        typed = isinstance(first, dict)
        if isinstance(first, tuple | list):
            raise refused(
                f"{called} is given rows of sources and of targets: give it one tensor, history makes the pair",
                _line(node),
            )
        if typed != isinstance(second, dict) or not all(level(of).kind == ENDS for of in nodes_in(second)):
            raise refused(f"{called} is not called as layer(h, edge_index, ...)", _line(node))
        if not typed and isinstance(first, fx.Node) and level(first).of:
            raise refused(
                f"{called} is called with the rows of one node type, {level(first).of!r}: with history a layer gets "
                "dicts of rows and edges of all types, as HeteroConv, HGTConv or what to_hetero makes of one layer",
                _line(node),
            )
        rows = [of for of in nodes_in(values) if self._of.get(of)]
        self._check(rows, number - 1, f"{called} reads rows", _line(node))
        self._found.append(module)
        self._of[node] = frozenset([number])

    def _check(self, rows: list[fx.Node], want: int, what: str, line: Any = None) -> None:
        """Check that rows are made of one level alone."""
        levels = frozenset().union(*(self._of[node] for node in rows))
        if levels == {want}:
            return
        mixed = self._mixed(rows)
        if mixed is not None:
            line, what = _line(mixed), f"{_called(self._traced, mixed)} takes rows"
            levels = self._of[mixed]
        of = " and ".join(_spoken(each) for each in sorted(levels))
        if len(levels) == 1:
            raise refused(f"{what} made of {of}, expected {_spoken(want)}: with history each layer is one hop", line)
        remedy = _BY_HAND if max(levels) - min(levels) == 1 else _NEVER
        raise refused(f"{what} made of {of}, and a pruned batch has other rows at each level{remedy}", line)

    def _mixed(self, rows: list[fx.Node]) -> fx.Node | None:
        """The first operation that brings rows of several levels together."""
        behind, waiting = set(), list(rows)
        while waiting:
            node = waiting.pop()
            if node not in behind:
                behind.add(node)
                waiting += node.all_input_nodes
        several: Iterator[fx.Node] = (node for node in self._nodes if node in behind and len(self._of[node]) > 1)
        return next(several, None)


def _line(node: fx.Node) -> Any:
    return node.meta.get("line")


def _called(traced: Traced, node: fx.Node) -> str:
    module = traced.module(node)
    return type(module).__name__ if module is not None else name_of(node)


def _spoken(number: int) -> str:
    return "the features" if number == 0 else f"what layer {number} computes"
