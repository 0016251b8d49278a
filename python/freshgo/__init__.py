"""freshgo: mini-batches for GNN training in PyTorch, from graphs that do not fit in memory.

    from freshgo import Loader, Store, convert

    store = convert(data, "papers.freshgo", memory="8GiB")      # once
    loader = Loader(store, num_neighbors=[15, 10, 5], input_nodes="train",
                    batch_size=1024, shuffle=True, memory="8GiB")
    for batch in loader:
        out = model(batch.x, batch.edge_index)[: batch.batch_size]

Importing this package loads neither PyTorch nor native code. Names are imported at their first use, and the first
store, graph, conversion or operator loads the native library.
"""

from __future__ import annotations

import importlib
import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any

from freshgo import errors
from freshgo.errors import FreshgoError

if TYPE_CHECKING:
    from freshgo import distributed as distributed
    from freshgo import factored as factored
    from freshgo import nn as nn
    from freshgo import ops as ops
    from freshgo import optim as optim
    from freshgo import options as options
    from freshgo import policies as policies
    from freshgo import pyg as pyg
    from freshgo import samplers as samplers
    from freshgo._args.versions import StoreVersion
    from freshgo._batch.structure import HeteroBlock
    from freshgo._native.process import library
    from freshgo.append import append
    from freshgo.batch import Batch, Block
    from freshgo.convert import convert
    from freshgo.heterobatch import HeteroBatch, TypeBatch
    from freshgo.history import History
    from freshgo.ids import Ids
    from freshgo.infer import infer
    from freshgo.lab import Simulation, hotness, plot_policies, simulate
    from freshgo.levels import with_levels
    from freshgo.links import LinkLoader
    from freshgo.loader import Loader
    from freshgo.memory import MemoryBudget
    from freshgo.options import Device, Disk, Ranks
    from freshgo.plan import Plan
    from freshgo.policies import Auto, Belady, Hotness, Online
    from freshgo.propagate import propagate
    from freshgo.relayout import relayout
    from freshgo.samplers import Labor, RandomWalk
    from freshgo.shard import shard
    from freshgo.store import QuantizationError, Store, StoredEdges, StoredNodes, TensorInfo, quantization_error
    from freshgo.tables import Table, convert_tables
    from freshgo.transfer import fetch, push
    from freshgo.update import update

__version__ = "0.1.0"

__all__ = [
    "Auto",
    "Batch",
    "Belady",
    "Block",
    "Device",
    "Disk",
    "FreshgoError",
    "HeteroBatch",
    "HeteroBlock",
    "History",
    "Hotness",
    "Ids",
    "Labor",
    "LinkLoader",
    "Loader",
    "MemoryBudget",
    "Online",
    "Plan",
    "QuantizationError",
    "RandomWalk",
    "Ranks",
    "Simulation",
    "Store",
    "StoreVersion",
    "StoredEdges",
    "StoredNodes",
    "Table",
    "TensorInfo",
    "TypeBatch",
    "__version__",
    "append",
    "convert",
    "convert_tables",
    "distributed",
    "errors",
    "fetch",
    "hotness",
    "infer",
    "library",
    "plot_policies",
    "propagate",
    "push",
    "quantization_error",
    "relayout",
    "shard",
    "simulate",
    "update",
    "with_levels",
]


_LATER = {
    "append": ("append",),
    "batch": ("Batch", "Block"),
    "convert": ("convert",),
    "heterobatch": ("HeteroBatch", "TypeBatch"),
    "history": ("History",),
    "ids": ("Ids",),
    "infer": ("infer",),
    "lab": ("Simulation", "hotness", "plot_policies", "simulate"),
    "levels": ("with_levels",),
    "links": ("LinkLoader",),
    "loader": ("Loader",),
    "memory": ("MemoryBudget",),
    "options": ("Device", "Disk", "Ranks"),
    "plan": ("Plan",),
    "policies": ("Auto", "Belady", "Hotness", "Online"),
    "propagate": ("propagate",),
    "relayout": ("relayout",),
    "samplers": ("Labor", "RandomWalk"),
    "shard": ("shard",),
    "store": ("QuantizationError", "Store", "StoredEdges", "StoredNodes", "TensorInfo", "quantization_error"),
    "tables": ("Table", "convert_tables"),
    "transfer": ("fetch", "push"),
    "update": ("update",),
    "_args.versions": ("StoreVersion",),
    "_batch.structure": ("HeteroBlock",),
    "_native.process": ("library",),
}
"""Modules that are imported at the first use of one of these names."""

_MODULES = ("distributed", "factored", "nn", "ops", "optim", "options", "policies", "pyg", "samplers")
"""Modules that are imported at their first use: pyg needs PyG, ops registers operators with torch."""


class _Package(ModuleType):
    """Keeps functions in the place of the modules of the same name.

    Python sets ``freshgo.convert`` to the module ``freshgo.convert`` when it has imported that module.
    """

    def __setattr__(self, name: str, value: Any) -> None:
        if isinstance(value, ModuleType) and name in _LATER.get(name, ()):
            value = getattr(value, name)
        super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Package


def __dir__() -> list[str]:
    return sorted({*__all__, *_MODULES})


if not TYPE_CHECKING:  # type checkers, which would take any name for one that there is, read the imports above

    def __getattr__(name: str) -> Any:
        if name in _MODULES:
            return importlib.import_module(f"freshgo.{name}")
        module = next((module for module, names in _LATER.items() if name in names), None)
        if module is None:
            raise AttributeError(f"module 'freshgo' has no attribute {name!r}", name=name, obj=sys.modules[__name__])
        value = globals()[name] = getattr(importlib.import_module(f"freshgo.{module}"), name)
        return value
