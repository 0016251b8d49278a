"""The order in which a model that users write calls its message-passing layers, as ``torch.fx`` records it."""

from __future__ import annotations

import inspect

import torch_geometric.nn as pyg
from torch import nn

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


def first_called(model: nn.Module) -> list[nn.Module]:
    """Return the message-passing layers that read nothing which another one has computed, in the order of their calls;
    none where the model cannot be recorded without values."""
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
            found.append(module)
        if after or isinstance(module, pyg.MessagePassing):
            behind.add(node)
    return found
