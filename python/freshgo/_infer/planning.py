"""From a model that a user gives to how it is computed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import fx

from freshgo._args import checks
from freshgo._args.hints import did_you_mean, listed, only
from freshgo._args.types import Types
from freshgo._data.source import StoreSource
from freshgo._infer.alone import as_model, parameters_of
from freshgo._infer.batches import Whole, check_depth
from freshgo._infer.dtypes import one_dtype
from freshgo._infer.layers import Layer, Plan, functions_plan, program_plan
from freshgo._infer.program import Program
from freshgo._infer.sample import sample_of
from freshgo._infer.stream import stream_of
from freshgo._infer.trials import check_hop
from freshgo._traced.levels import EDGES, ENDS, ROWS, level
from freshgo._traced.lines import line_of
from freshgo._traced.recording import ENTRY, Traced, UntraceableError, call_model, trace_model
from freshgo._traced.sample import Given, Sample
from freshgo._traced.trials import check_rows, check_same
from freshgo.errors import DTypeError, InvalidArgumentError
from freshgo.store import Store

_ENDS = ("edge_index", "edge_index_dict")
_ROWS = ("x", "x_dict")


def plan_of(
    model: Any,
    layers: Any,
    store: Store,
    *,
    tensor: str,
    edge_weight: str | None = None,
    edge_attr: str | None = None,
    inputs: Mapping[str, str] | None = None,
    output: int | str | None = None,
    fallback: str | None = None,
    depth: int | None = None,
    memory: int = 1 << 30,
    device: Any = None,
) -> Plan:
    """Check a model, or its layers as functions, and plan how it is computed over a store."""
    types = StoreSource(store, owned=False).types
    check_tensor(store, types, tensor)
    if layers is not None:
        if any(of is not None for of in (edge_weight, edge_attr, inputs, output, fallback, depth)):
            raise InvalidArgumentError(
                "edge_weight, edge_attr, inputs, output, fallback and depth cannot be used with layers=, which take "
                "tensors from the batch"
            )
        return functions_plan(layers)
    if model is None:
        raise InvalidArgumentError("infer() needs a model, or its layers as functions (layers=), got neither")
    model = getattr(model, "_orig_mod", model)  # of torch.compile
    _check_width(model, store, tensor)
    by_option = {"edge_weight": edge_weight, "edge_attr": edge_attr}
    by_type = [f"{name}_dict" for name, of in by_option.items() if of is not None]
    model = as_model(model, [*by_type, *(inputs if isinstance(inputs, Mapping) else ())])
    given = bound(model, store, types, tensor, by_option, inputs or {})
    try:
        return _traced(model, store, types, given, tensor, by_option, output, memory, device)
    except UntraceableError as error:
        if fallback is None:
            raise InvalidArgumentError(
                f"{error}; infer() computes ranges of nodes between message-passing layers: change the model, give its "
                'layers by layers=, or pass fallback="batches"'
            ) from error.__cause__
    return _in_batches(model, store, types, given, output, depth, memory, device)


def check_model(model: Any) -> None:
    """Check that a model may be inferred with at all."""
    if model is None:
        return
    if not isinstance(model, torch.nn.Module):
        raise DTypeError(f"model must be a torch.nn.Module or None, got {type(model).__name__}")
    if model.training:
        raise InvalidArgumentError("model is in training mode, in which dropout is random: call model.eval()")
    for name, module in model.named_modules():
        if module.training and not isinstance(module, torch.nn.ModuleList | torch.nn.ModuleDict):
            raise InvalidArgumentError(
                f"{name} ({type(module).__name__}) of the model is in training mode: call model.eval()"
            )
    for name, parameter in model.named_parameters():
        if torch.nn.parameter.is_lazy(parameter):
            raise InvalidArgumentError(
                f"{name} of the model is uninitialized: call the model once, or load its state_dict"
            )


def bound(
    model: torch.nn.Module,
    store: Store,
    types: Types,
    tensor: str,
    by_option: Mapping[str, str | None],
    inputs: Mapping[str, str],
) -> dict[str, Given]:
    """What each parameter of ``forward`` is given, by its name."""
    if not isinstance(inputs, Mapping) or not all(isinstance(of, str) for pair in inputs.items() for of in pair):
        raise DTypeError(
            f"inputs must be a dict from names of parameters to names of tensors, got {checks.shown(inputs)}"
        )
    named = not types.homogeneous
    parameters = parameters_of(model)
    given: dict[str, Given] = {}
    kind = type(model).__name__
    for name, parameter in parameters.items():
        bare = name.removesuffix("_dict")
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            continue
        if inputs.get(name) == "edge_index":
            given[name] = Given(ENDS, None, named)
        elif name in inputs:
            given[name] = Given(_level(store, types, inputs[name], f"inputs has {name!r}:"), inputs[name], named)
        elif name in _ENDS and (named or name == "edge_index"):
            given[name] = Given(ENDS, None, named)
        elif name in _ROWS and (named or name == "x"):
            given[name] = Given(ROWS, tensor, named)
        elif by_option.get(bare) is not None and (named or name == bare):
            weight = str(by_option[bare])
            if _levels(store, types, weight) != {"edge"}:
                edges = _of_level(store, types, "edge")
                raise InvalidArgumentError(f"the store has no edge-level tensor {weight!r}{only(weight, edges)}")
            given[name] = Given(EDGES, weight, named)
        elif parameter.default is parameter.empty:
            raise InvalidArgumentError(_unknown(kind, name, store, types, by_option))
    for name in inputs:
        if name not in parameters:
            raise InvalidArgumentError(
                f"inputs has {name!r}, but forward() of {kind} takes {', '.join(parameters) or 'nothing'}"
            )
    for name, of in by_option.items():
        if of is not None and not any(each.removesuffix("_dict") == name for each in given):
            raise InvalidArgumentError(f"{kind} takes no {name}: its forward() takes {', '.join(parameters)}")
    return given


def _unknown(kind: str, name: str, store: Store, types: Types, by_option: Mapping[str, str | None]) -> str:
    """What is said of a parameter that is given nothing."""
    if name in by_option:
        return f"forward() of {kind} takes {name!r}: name its tensor, as {name}={name!r}"
    if name in ("x_dict", "edge_index_dict") and types.homogeneous:
        return f"forward() of {kind} takes {name!r}, and the store is homogeneous: expected x and edge_index"
    if name in ("data", "batch"):
        return f"forward() of {kind} takes {name!r}: let it take x and edge_index, and call it with those of {name}"
    names = store.tensors if types.homogeneous else store[types.node_types[0]].tensors
    example = name if name in names else next(iter(names), "x")
    return (
        f"forward() of {kind} takes {name!r}, which infer() does not know: name its tensor, as "
        f"inputs={{{name!r}: {example!r}}}, the edges as 'edge_index', or give it a default. x, edge_index, "
        "edge_weight, edge_attr and, by type, x_dict and edge_index_dict are known"
    )


def _level(store: Store, types: Types, name: str, where: str) -> str:
    """Whether a tensor of a store has rows for nodes or for edges."""
    levels = _levels(store, types, name)
    if levels == {"node"}:
        return ROWS
    if levels == {"edge"}:
        return EDGES
    there = "tensors of nodes and of edges" if levels else "no tensor"
    near = "" if levels else did_you_mean(name, [*_of_level(store, types, "node"), *_of_level(store, types, "edge")])
    raise InvalidArgumentError(f"{where} the store has {there} of the name {name!r}{near}")


def _levels(store: Store, types: Types, name: str) -> set[str]:
    """What a tensor of a store has rows for, of all its types."""
    return {part.tensors[name].level for part in _parts(store, types) if name in part.tensors}


def _of_level(store: Store, types: Types, level: str) -> list[str]:
    """The names of the tensors of nodes, or of edges."""
    return sorted({name for part in _parts(store, types) for name, of in part.tensors.items() if of.level == level})


def _parts(store: Store, types: Types) -> list[Any]:
    keys: list[Any] = [*types.node_types, *types.edge_types]
    return [store] if types.homogeneous else [store[key] for key in keys]


def _traced(
    model: torch.nn.Module,
    store: Store,
    types: Types,
    given: Mapping[str, Given],
    tensor: str,
    by_option: Mapping[str, str | None],
    output: int | str | None,
    memory: int,
    device: Any,
) -> Plan:
    """Trace a model over a sample with tensors like the store's. Where rows are only added up they come as float32, so
    that is tried for tensors of another dtype."""
    try:
        return _over(model, _sample(model, store, given, memory, device), types, given, tensor, by_option, output)
    except (DTypeError, RuntimeError) as error:
        info = store.tensors.get(tensor) if types.homogeneous else None
        if info is None or info.dtype == torch.float32:
            raise
        sample = _sample(model, store, given, memory, device, torch.float32)
        try:
            plan = _over(model, sample, types, given, tensor, by_option, output)
        except Exception:
            raise error from None
        if plan.stream is None:
            raise
        return plan


def _sample(
    model: torch.nn.Module,
    store: Store,
    given: Mapping[str, Given],
    memory: int,
    device: Any,
    floats: torch.dtype | None = None,
) -> Sample:
    names = {str(of.tensor) for of in given.values() if of.level == ROWS}
    edges = {str(of.tensor) for of in given.values() if of.level == EDGES}
    avoid = {size for parameter in model.parameters() for size in parameter.shape}
    return sample_of(store, names, edges, memory, device, avoid=avoid, floats=floats)


def _over(
    model: torch.nn.Module,
    sample: Sample,
    types: Types,
    given: Mapping[str, Given],
    tensor: str,
    by_option: Mapping[str, str | None],
    output: int | str | None,
) -> Plan:
    rows = {of.dtype for (_, name), of in sample.rows.items() if name == tensor}
    parameters = {of.dtype for of in model.parameters() if of.is_floating_point()}
    with one_dtype("layer 1", f"the tensor {tensor!r}", tensor, rows, parameters):
        try:
            traced = trace_model(model, sample, given)
            again = call_model(model, sample, given)
        except RuntimeError as error:
            if not any(word in str(error) for word in ("shape", "size", "dimension")):
                raise
            line = line_of(error.__cause__ or error, ENTRY)
            raise InvalidArgumentError(
                f"{f'{line}: ' if line else ''}the model fails on rows like those of the store's {tensor!r}: "
                f"{str(error).partition(chr(10))[0]}"
            ) from error
    found = traced.outputs[None]
    check_same(traced, again, found)
    program = Program(Traced(traced.graph, traced.modules, traced.inputs, outputs_of(model, found, output, types)))
    read = {name for node, (_, name) in traced.inputs.items() if node in program.nodes}
    for option, name in by_option.items():
        if name is not None and name not in read:
            raise InvalidArgumentError(f"{type(model).__name__} takes no {option}: no layer of it reads it")
    check_rows(program.traced, program.nodes, sample, program.convs)
    for conv in program.convs.values():
        check_hop(conv, sample)
    return program_plan(program, stream_of(program), types)


def outputs_of(model: torch.nn.Module, found: Any, output: int | str | None, types: Types) -> dict[Any, fx.Node]:
    """The rows that a model returns, by node type."""
    kind = type(model).__name__
    if output is not None:
        found = _chosen(kind, found, output)
    by_type = isinstance(found, dict) and set(found) <= set(types.node_types)
    if found == {}:
        raise InvalidArgumentError(
            f"{kind} returns no rows over the edge types of the store: {listed(types.edge_types)}"
        )
    if by_type and all(isinstance(of, fx.Node) for of in found.values()):
        return {key: _node_rows(kind, of, key) for key, of in found.items()}
    if isinstance(found, tuple | list | dict):
        keys = list(found) if isinstance(found, dict) else list(range(len(found)))
        container = type(found).__name__.removeprefix("immutable_")
        raise InvalidArgumentError(
            f"{kind} returns a {container} with the entries {', '.join(map(repr, keys))}: choose one by "
            f"output={keys[0] if keys else 0!r}"
        )
    if not isinstance(found, fx.Node):
        raise InvalidArgumentError(f"{kind} returns {checks.shown(found)}, expected rows of nodes")
    return {level(found).of if level(found).kind == ROWS else "": _node_rows(kind, found, None)}


def _chosen(kind: str, found: Any, output: int | str) -> Any:
    """An entry of what a model returns."""
    keys: list[Any] = list(found) if isinstance(found, dict) else []
    keys = list(range(len(found))) if isinstance(found, tuple | list) else keys
    if output not in keys:
        there = f"its entries are {', '.join(map(repr, keys))}" if keys else "it returns a tensor: omit output="
        raise InvalidArgumentError(f"output={output!r} is no entry of what {kind} returns: {there}")
    return found[output]


def _node_rows(kind: str, node: fx.Node, key: Any) -> fx.Node:
    of = level(node)
    if of.kind != ROWS or (key is not None and of.of != key):
        raise InvalidArgumentError(
            f"{kind} returns {of}{f' for {key!r}' if key is not None else ''}, expected a row for each node"
        )
    return node


def _in_batches(
    model: torch.nn.Module,
    store: Store,
    types: Types,
    given: Mapping[str, Given],
    output: int | str | None,
    depth: int | None,
    memory: int,
    device: Any,
) -> Plan:
    """Compute a model as it is over batches with all neighbours up to a depth, which is tried on a sample."""
    if depth is None:
        raise InvalidArgumentError(
            'fallback="batches" needs depth=: how many hops away the model reads, one for each message-passing layer '
            "and one more where degrees of neighbours count, as for GCNConv"
        )
    sample = _sample(model, store, given, memory, device)
    compute = Whole.over(sample, model, given, output, types)
    check_depth(compute, sample, depth)
    return Plan([Layer(compute, compute.sources(), hops=depth)], f"batches of depth {depth} {output!r} {given}")


def check_tensor(store: Store, types: Types, tensor: str) -> None:
    """Check that a store has the input of a model."""
    stored = [(store[t] if t else store).tensors for t in types.node_types]
    if not any(tensor in of and of[tensor].level == "node" for of in stored):
        there = only(tensor, _of_level(store, types, "node"))
        raise InvalidArgumentError(
            f"the store has no node-level tensor {tensor!r}, which tensor= names as the input of the first layer{there}"
        )
    frames = [item for of in store._contents.frames().values() for item in of.items()]
    whole = next((name for name, frame in frames if tensor in frame.widths(name)), None)
    if whole is not None:
        raise InvalidArgumentError(
            f"tensor={tensor!r} is part of the TensorFrame {whole!r}, expected a tensor by itself; a layer finds the "
            "frame in the batch"
        )


def _check_width(model: Any, store: Store, tensor: str) -> None:
    """Check that a model of PyG takes rows as long as those of the tensor."""
    info, width = store.tensors.get(tensor), getattr(model, "in_channels", None)
    if info is not None and isinstance(width, int) and width > 0 and info.shape[1:] != (width,):
        raise InvalidArgumentError(
            f"model takes rows of {width} numbers (in_channels), the tensor {tensor!r} has shape {list(info.shape)}"
        )
