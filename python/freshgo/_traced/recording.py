"""A model as a graph of operations, recorded while its ``forward`` runs over a small random graph.

Each operation is computed as it is recorded, so that shapes, dtypes and the entries of dicts are known to the code that
runs, and so that what an operation cannot do is told at its line.
"""

from __future__ import annotations

import dataclasses
import inspect
import operator
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, fx

from freshgo._traced.levels import CONSTANT, COUNT, EDGES, ENDS, OTHER, ROWS, STACKED, Level, level, mapped, tensors
from freshgo._traced.lines import Line, line_here, line_of
from freshgo._traced.rowwise import METADATA, class_of, is_identity, name_of, why_not_rowwise
from freshgo._traced.sample import Given, Sample
from freshgo._traced.threads import ThreadTracer
from freshgo._traced.value import Value
from freshgo.errors import FreshgoError, InvalidArgumentError

ENTRY = "trace_model"
"""The function of this module that runs a model: lines below it are the model's."""

_LEAVES = (
    "torch.nn.",
    "torch_geometric.nn.norm.",
    "torch_geometric.nn.dense.",
    "torch_geometric.nn.aggr.",
    "torch_geometric.nn.pool.",
    "torch_geometric.nn.encoding",
    "torch_geometric.nn.attention.",
)
_CONTAINERS = (torch.nn.Sequential, torch.nn.ModuleList, torch.nn.ModuleDict)


class UntraceableError(InvalidArgumentError):
    """A model that cannot be computed for some rows at a time as it is."""


@dataclasses.dataclass(frozen=True)
class Traced:
    """A model that was recorded."""

    graph: fx.Graph
    modules: Mapping[str, torch.nn.Module]
    inputs: dict[fx.Node, tuple[Level, str | None]]
    """The placeholders that are read, with what they are and the name of the tensor."""
    outputs: dict[Any, fx.Node]
    """What the model returns, by node type."""

    def module(self, node: fx.Node) -> Any:
        """The module that a node calls, if it does."""
        return self.modules[str(node.target)] if node.op == "call_module" else None


def compute(node: fx.Node, module: Any, args: Any, kwargs: Any) -> Any:
    """Compute a node of given arguments."""
    if node.meta.get("mutates"):
        args, kwargs = (mapped(of, torch.Tensor.clone, Tensor) for of in (args, kwargs))
    if node.op == "call_module":
        return module(*args, **kwargs)
    if node.op == "call_method":
        return getattr(args[0], str(node.target))(*args[1:], **kwargs)
    target: Any = node.target
    return target(*args, **kwargs)


class _Tracer(ThreadTracer):
    """Records a model over a sample."""

    def __init__(
        self, sample: Sample, given: Mapping[str, Given], layers: Callable[[torch.nn.Module], bool] | None
    ) -> None:
        from torch_geometric.nn import MessagePassing

        super().__init__()
        self._layers = layers
        self._sample, self._given = sample, given
        self._computing = False
        self._constants: list[Tensor] = []
        self._passing = MessagePassing
        self.inputs: dict[fx.Node, tuple[Level, str | None]] = {}

    # What the base class asks.

    def is_leaf_module(self, m: torch.nn.Module, module_qualified_name: str) -> bool:
        if self._passes(m):
            return True
        contains = isinstance(m, _CONTAINERS) or type(m).__name__ == "HeteroDictLinear"
        return class_of(m).__module__.startswith(_LEAVES) and not contains

    def create_args_for_root(self, root_fn: Any, is_module: bool, concrete_args: Any = None) -> tuple[Any, list[Any]]:
        args: list[Any] = [self.root]
        named = {}
        parameters = dict(list(inspect.signature(root_fn).parameters.items())[1:])
        for name, parameter in parameters.items():
            given = self._given.get(name)
            value = parameter.default if given is None else self._bound(name, given)
            if parameter.kind in (parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD):
                args.append(value)
            elif parameter.kind == parameter.KEYWORD_ONLY:
                named[name] = value
        named |= {name: self._bound(name, given) for name, given in self._given.items() if name not in parameters}
        return (lambda *positional: root_fn(*positional, **named)) if named else root_fn, args

    def _bound(self, name: str, given: Given) -> Any:
        of = self._sample.given(given)
        made = {}
        for key, value in of.items():
            suffix = "" if not given.by_type else "__" + ("__".join(key) if isinstance(key, tuple) else key)
            proxy = super().create_proxy("placeholder", name + _identifier(suffix), (), {})
            proxy.node.meta.update(value=value, level=Level(given.level, key))
            self.inputs[proxy.node] = level(proxy.node), given.tensor
            made[key] = proxy
        return made if given.by_type else next(iter(made.values()))

    def proxy(self, node: fx.Node) -> fx.Proxy:
        return Value(node, self)

    def create_arg(self, a: Any) -> Any:
        if issubclass(type(a), fx.Proxy):
            return a.node
        if not isinstance(a, Tensor):
            return super().create_arg(a)
        node = self.create_node("get_attr", f"constant{len(self._constants)}", (), {})
        node.meta.update(value=a, level=Level(CONSTANT))
        self._constants.append(a)
        return node

    def call_module(self, m: torch.nn.Module, forward: Any, args: Any, kwargs: Any) -> Any:
        if self._computing or not self.here():
            return forward(*args, **kwargs)
        original: Any = m.__dict__.get("_modules", {}).get("_orig_mod")
        if original is not None:  # of torch.compile
            return self.call_module(original, original.forward, args, kwargs)
        return super().call_module(m, forward, args, kwargs)

    def getattr(self, attr: str, attr_val: Any, parameter_proxy_cache: dict[str, Any]) -> Any:
        return attr_val  # parameters are constants: what is made of them is computed at once

    def create_proxy(self, kind: str, target: Any, args: Any, kwargs: Any, *more: Any, **names: Any) -> Any:
        if kind == "call_method" and target.endswith("_") and not target.endswith("__"):
            target = target.rstrip("_") if hasattr(Tensor, target.rstrip("_")) else target
        proxy = super().create_proxy(kind, target, args, kwargs, *more, **names)
        node = proxy.node
        if kind in ("placeholder", "output"):
            return proxy
        node.meta["line"] = line_here(ENTRY)
        module = self._module(node)
        node.meta["level"] = self._level(node, module)
        node.meta["value"] = self._computed(node, module)
        passes = module is not None and isinstance(module, self._passing)
        if level(node).kind in (ROWS, EDGES, OTHER) and not passes and is_identity(node, module):
            first = node.args[0]
            if isinstance(first, fx.Node):
                self.graph.erase_node(node)
                return self.proxy(first)
        return self._structured(proxy)

    # What a value is.

    def _passes(self, module: torch.nn.Module) -> bool:
        """Whether a module is a message-passing layer, or taken as one."""
        return isinstance(module, self._passing) or (self._layers is not None and self._layers(module))

    def _module(self, node: fx.Node) -> Any:
        return self.root.get_submodule(str(node.target)) if node.op == "call_module" else None

    def _level(self, node: fx.Node, module: Any) -> Level:
        """What a call gives, of what it reads."""
        read = [level(of) for of in node.all_input_nodes]
        passes = module is not None and self._passes(module)
        if any(of.kind == OTHER for of in read) or (not passes and any(of.kind == ENDS for of in read)):
            return self._stray(node, module, passes=passes)
        if passes:
            return self._of_convolution(node, module)
        kinds = {of for of in read if of.kind != CONSTANT}
        if not kinds:
            return Level(CONSTANT)
        if len(kinds) == 1 and next(iter(kinds)).kind == COUNT:
            return next(iter(kinds))
        rows = {of._replace(kind=ROWS) if of.kind == STACKED else of for of in kinds if of.kind != COUNT}
        counted = {of.of for of in kinds if of.kind == COUNT}
        if len(rows) != 1 or counted - {next(iter(rows)).of}:
            raise self._refused(node, f"{name_of(node)} takes {' and '.join(sorted(str(of) for of in kinds))} together")
        found = next(iter(rows))
        if node.op == "call_method" and node.target == "size":
            return Level(COUNT, found.of)
        why = None if _is_metadata(node) else why_not_rowwise(node, module)
        if why is not None:
            raise self._refused(node, why)
        return found

    def _stray(self, node: fx.Node, module: Any, *, passes: bool) -> Level:
        """What a call gives that reads edges outside of layers, or what was made of them so: nothing may come of it,
        but code may look at it, as ``dropout_edge`` does in evaluation.

        Raises:
            UntraceableError: rows or a layer would depend on it.
        """
        before = [of for of in node.all_input_nodes if level(of).kind == OTHER]
        if before:
            why = before[0].meta.get("why") or self._refused(
                node, "reads what is neither a row for each node nor the same for all"
            )
        else:
            why = self._refused(
                node,
                f"{self._called(node, module)} reads edge_index, which only message-passing layers may: store the "
                "edges as they are to be passed to the layers",
            )
        if passes or any(level(of).kind in (ROWS, STACKED, EDGES) for of in node.all_input_nodes):
            raise why
        node.meta["why"] = why
        return Level(OTHER)

    def _of_convolution(self, node: fx.Node, module: Any) -> Level:
        read = [level(of) for of in node.all_input_nodes]
        ends = [of.of for of in read if of.kind == ENDS]
        if not ends:
            raise self._refused(node, f"{type(module).__name__} is called without the edge_index of the graph")
        if not any(of.kind == ROWS for of in read):
            raise self._refused(
                node,
                f"{type(module).__name__} passes rows that come from no tensor of the store, such as an "
                "embedding table of the model: store them as a tensor, and give forward() its rows",
            )
        if any(of.kind == COUNT for of in read):
            raise self._refused(node, f"{type(module).__name__} is given a number of nodes: omit size=")
        return Level(ROWS, ends[0][2])

    def _computed(self, node: fx.Node, module: Any) -> Any:
        args, kwargs = (mapped(of, lambda read: read.meta["value"]) for of in (node.args, node.kwargs))
        before = [of.clone() for of in tensors((args, kwargs))]
        mine = (mapped(of, torch.Tensor.clone, Tensor) for of in (args, kwargs))
        again = list(mine)
        self._computing = True
        try:
            value = compute(node, module, *again)
        finally:
            self._computing = False
        if module is not None and self._passes(module):
            if isinstance(value, Tensor):
                self._check_rows(node, module, value)
        elif level(node).kind in (ROWS, EDGES):
            after = tensors(tuple(again))
            if any(not torch.equal(a, b) and not a.isnan().any() for a, b in zip(before, after, strict=True)):
                node.meta["mutates"] = True
            if isinstance(value, Tensor):
                self._check_rows(node, module, value)
        return value

    def _check_rows(self, node: fx.Node, module: Any, value: Tensor) -> None:
        """Check that there is a row for each row that was read, and note where rows are counted."""
        of = self._counted(value, level(node))
        if of.kind == OTHER:
            count = self._sample.count(level(node))
            raise self._refused(
                node,
                f"{self._called(node, module)} mixes rows: of the {count} rows of a small random graph it makes a "
                f"tensor of shape {list(value.shape)}",
            )
        node.meta["level"] = of

    def _counted(self, value: Any, of: Level) -> Level:
        """A level, with the dimension of a tensor that counts its rows."""
        if not isinstance(value, Tensor) or of.kind not in (ROWS, EDGES, STACKED):
            return of
        count = self._sample.count(of)
        if value.dim() > 0 and value.size(0) == count:
            return of if of.kind == EDGES else Level(ROWS, of.of)
        if of.kind != EDGES and value.dim() > 1 and value.size(1) == count:
            return Level(STACKED, of.of)
        return Level(OTHER)

    def _structured(self, proxy: Any) -> Any:
        """What the running code gets: numbers and flags as they are, containers with a value for each entry."""
        node = proxy.node
        value, of = node.meta["value"], level(node)
        if isinstance(value, Tensor) or of.kind == COUNT:
            return proxy
        if isinstance(value, dict):
            return {key: self._entry(proxy, key) for key in value}
        if isinstance(value, tuple | list) and any(True for _ in tensors(value)):
            entries = [self._entry(proxy, i) for i in range(len(value))]
            return type(value)(*entries) if hasattr(value, "_fields") else type(value)(entries)
        if of.kind == OTHER and value is not None and not _is_metadata(node):
            return proxy
        if of.kind in (ROWS, STACKED, EDGES) and value is not None and not _is_metadata(node):
            raise self._refused(node, f"{self._called(node, None)} makes {type(value).__name__} of rows")
        return value

    def _entry(self, proxy: Any, key: Any) -> Any:
        """An entry of what a call returns; of a dict, the key may be a node type."""
        value, of = proxy.node.meta["value"][key], level(proxy.node)
        if value is None:
            return None
        entry = super().create_proxy("call_function", operator.getitem, (proxy, key), {})
        if of.kind == ROWS and key in self._sample.nodes:
            of = Level(ROWS, key)
        entry.node.meta.update(value=value, level=self._counted(value, of), line=proxy.node.meta["line"])
        if "why" in proxy.node.meta:
            entry.node.meta["why"] = proxy.node.meta["why"]
        return self._structured(entry)

    def _called(self, node: fx.Node, module: Any) -> str:
        return type(module).__name__ if module is not None else name_of(node)

    def _refused(self, node: fx.Node, why: str) -> UntraceableError:
        return refused(why, node.meta.get("line"))


def _is_metadata(node: fx.Node) -> bool:
    return node.op == "call_method" and node.target in METADATA


def refused(why: str, line: Line | None) -> UntraceableError:
    """The error of a model that is not taken as it is."""
    at = f"{line}: " if line is not None else ""
    return UntraceableError(f"{at}{why}")


def trace_model(
    model: torch.nn.Module,
    sample: Sample,
    given: Mapping[str, Given],
    layers: Callable[[torch.nn.Module], bool] | None = None,
) -> Traced:
    """Record a model over a sample. Modules for which ``layers`` is true are taken as message-passing layers.

    Raises:
        UntraceableError: it has an operation that needs all nodes, or one that cannot be recorded.
        InvalidArgumentError: it fails on rows of these shapes.
    """
    tracer = _Tracer(sample, given, layers)
    try:
        graph = tracer.trace(model)
    except FreshgoError:
        raise
    except fx.proxy.TraceError as error:
        raise refused(
            "which line runs depends on values of the graph, so that the model cannot be traced", line_of(error, ENTRY)
        ) from error
    except Exception as error:
        first = str(error).partition("\n")[0]
        failed = _fails(model, sample, given)
        if failed is not None:
            raise failed from error
        raise refused(f"cannot be traced ({type(error).__name__}: {first})", line_of(error, ENTRY)) from error
    outputs = next(node for node in graph.nodes if node.op == "output").args[0]
    inputs = {node: of for node, of in tracer.inputs.items() if node.users}
    return Traced(graph, dict(model.named_modules(remove_duplicate=False)), inputs, {None: outputs})


def call_model(model: torch.nn.Module, of: Any, given: Mapping[str, Given]) -> Any:
    """Call a model with what its parameters are given: of a sample, or of another graph that has ``given``."""
    named = {}
    for name, what in given.items():
        values = of.given(what)
        named[name] = values if what.by_type else next(iter(values.values()))
    return model(**named)


def _fails(model: torch.nn.Module, sample: Sample, given: Mapping[str, Given]) -> Exception | None:
    """The error of a model that does not run over rows like these, recorded or not."""
    try:
        call_model(model, sample, given)
    except RuntimeError as error:
        return error
    except Exception as error:
        dicts = any(what.by_type for what in given.values())
        hint = (
            ", which are dicts by type (torch_geometric.nn.to_hetero makes a model that takes these)" if dicts else ""
        )
        return InvalidArgumentError(f"model fails on tensors like the store's{hint}: {type(error).__name__}: {error}")
    return None


def _identifier(name: str) -> str:
    return "".join(letter if letter.isalnum() else "_" for letter in name)
