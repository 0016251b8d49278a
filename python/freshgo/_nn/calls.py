"""The order in which a model that users write calls its message-passing layers, as ``torch.fx`` records it."""

from __future__ import annotations

import inspect
from collections.abc import Collection

import torch_geometric.nn as pyg
from torch import fx, nn

from freshgo._traced.rowwise import name_of
from freshgo._traced.threads import ThreadTracer


class _Tracer(ThreadTracer):
    """Enters what has message-passing layers inside."""

    def is_leaf_module(self, m: nn.Module, module_qualified_name: str) -> bool:
        if isinstance(m, pyg.MessagePassing):
            return True
        ready = m.__module__.startswith("torch_geometric.nn.") and not any(
            isinstance(part, pyg.MessagePassing) for part in m.modules()
        )
        return ready or super().is_leaf_module(m, module_qualified_name)


_CASTS = ("to", "float", "double", "half", "bfloat16", "type", "contiguous")

_SHAPES = ("size", "dim", "shape", "ndim", "device", "dtype")
"""What is read of rows beside their numbers."""


def first_called(model: nn.Module) -> list[nn.Module]:
    """Return the message-passing layers that read nothing which another one has computed, in the order of their calls;
    none where the model cannot be recorded without values."""
    modules, behind, found = dict(model.named_modules(remove_duplicate=False)), set(), []
    for node in _recorded(model):
        module = modules.get(str(node.target)) if node.op == "call_module" else None
        after = any(read in behind for read in node.all_input_nodes)
        if isinstance(module, pyg.MessagePassing) and not after and module not in found:
            found.append(module)
        if after or isinstance(module, pyg.MessagePassing):
            behind.add(node)
    return found


def other_reader(model: nn.Module, layers: Collection[nn.Module]) -> str | None:
    """Return the name of what reads the rows that ``layers`` are called with, beside these; None where nothing does, or
    where the model cannot be recorded without values."""
    modules = dict(model.named_modules(remove_duplicate=False))
    nodes = _recorded(model)
    calls = {node for node in nodes if node.op == "call_module" and modules.get(str(node.target)) in layers}
    rows = [_given(of) for node in calls for of in (*node.args[:1], node.kwargs.get("x")) if isinstance(of, fx.Node)]
    while rows:
        for user in rows.pop().users:
            name = name_of(user)
            if name in _CASTS:
                rows.append(user)
            elif user not in calls and name not in _SHAPES:
                return name
    return None


def _given(rows: fx.Node) -> fx.Node:
    """Return the rows before their dtype was changed."""
    while name_of(rows) in _CASTS:
        rows = rows.all_input_nodes[0]
    return rows


def _recorded(model: nn.Module) -> list[fx.Node]:
    """Return the operations of a model; none where it cannot be recorded without values."""
    parameters = inspect.signature(model.forward).parameters.values()
    defaults = {of.name: of.default for of in parameters if of.default is not of.empty}
    before = set(vars(model))
    try:
        return list(_Tracer().trace(model, concrete_args=defaults).nodes)
    except Exception:  # whatever the code of a model makes of values that are not there
        return []
    finally:
        for name in set(vars(model)) - before:  # constants of the graph
            delattr(model, name)
