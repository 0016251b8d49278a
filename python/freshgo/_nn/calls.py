"""The order in which a model that users write calls its message-passing layers, as ``torch.fx`` records it."""

from __future__ import annotations

import inspect
from collections.abc import Mapping

import torch_geometric.nn as pyg
from torch import fx, nn

from freshgo._traced.threads import ThreadTracer
from freshgo.errors import InvalidArgumentError


class _Tracer(ThreadTracer):
    """Enters what has message-passing layers inside."""

    def is_leaf_module(self, m: nn.Module, module_qualified_name: str) -> bool:
        if isinstance(m, pyg.MessagePassing):
            return True
        ready = m.__module__.startswith("torch_geometric.nn.") and not any(
            isinstance(part, pyg.MessagePassing) for part in m.modules()
        )
        return ready or super().is_leaf_module(m, module_qualified_name)


def first_called(model: nn.Module) -> list[nn.Module]:
    """Return the message-passing layers that read nothing which another one has computed, in the order of their calls;
    none where the model cannot be recorded without values.

    Raises:
        InvalidArgumentError: a layer reads rows that parameters of the model have mapped.
    """
    parameters = inspect.signature(model.forward).parameters.values()
    defaults = {of.name: of.default for of in parameters if of.default is not of.empty}
    before = set(vars(model))
    try:
        graph = _Tracer().trace(model, concrete_args=defaults)
    except Exception:  # whatever the code of a model makes of values that are not there
        return []
    finally:
        for name in set(vars(model)) - before:  # constants of the graph
            delattr(model, name)
    modules, behind, found = dict(model.named_modules(remove_duplicate=False)), set(), []
    for node in graph.nodes:
        module = modules.get(str(node.target)) if node.op == "call_module" else None
        after = any(read in behind for read in node.all_input_nodes)
        if isinstance(module, pyg.MessagePassing) and not after and module not in found:
            check_rows(node, modules)
            found.append(module)
        if after or isinstance(module, pyg.MessagePassing):
            behind.add(node)
    return found


def check_rows(layer: fx.Node, modules: Mapping[str, nn.Module]) -> None:
    """Check that the rows which a first layer reads do not come out of a module with parameters.

    Raises:
        InvalidArgumentError: they do, so nothing that was computed from the rows of the graph stands for them.
    """
    read: list[fx.Node] = []
    fx.node.map_arg(layer.args[0] if layer.args else layer.kwargs.get("x"), read.append)
    seen = set(read)
    while read:
        node = read.pop()
        module = modules.get(str(node.target)) if node.op == "call_module" else None
        if node.op == "get_attr" or (module is not None and next(module.parameters(), None) is not None):
            what = "" if module is None else f", {type(module).__name__},"
            raise InvalidArgumentError(
                f"the first layer, {layer.target!r}, cannot be precomputed: {str(node.target)!r}{what} changes the "
                "rows before it. Aggregates are of the rows of the graph: call the layer with x itself"
            )
        read.extend(of for of in node.all_input_nodes if of not in seen)
        seen.update(node.all_input_nodes)
