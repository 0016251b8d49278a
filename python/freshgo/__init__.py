"""freshgo: mini-batches for GNN training in PyTorch, from graphs that do not fit in memory.

    from freshgo import Loader, Store, convert

    store = convert(data, "papers.freshgo", memory="8GiB")      # once
    loader = Loader(store, num_neighbors=[15, 10, 5], input_nodes="train",
                    batch_size=1024, shuffle=True, memory="8GiB")
    for batch in loader:
        out = model(batch.x, batch.edge_index)[: batch.batch_size]

Importing this package loads no native code; the first store, graph, conversion or operator does. ``freshgo.ops``,
``freshgo.nn``, ``freshgo.factored`` and other parts that not every program needs are imported at their first use.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from freshgo import distributed, errors
from freshgo._args.versions import StoreVersion
from freshgo._batch.structure import HeteroBlock
from freshgo._native.process import library
from freshgo.append import append
from freshgo.batch import Batch, Block
from freshgo.convert import convert
from freshgo.errors import FreshgoError
from freshgo.heterobatch import HeteroBatch, TypeBatch
from freshgo.ids import Ids
from freshgo.infer import infer
from freshgo.loader import Loader
from freshgo.memory import MemoryBudget
from freshgo.plan import Plan
from freshgo.policies import Belady, Hotness, Online
from freshgo.propagate import propagate
from freshgo.relayout import relayout
from freshgo.samplers import Labor, RandomWalk
from freshgo.shard import shard
from freshgo.store import QuantizationError, Store, StoredEdges, StoredNodes, TensorInfo, quantization_error
from freshgo.update import update

if TYPE_CHECKING:
    from freshgo.history import History
    from freshgo.lab import Simulation, hotness, plot_policies, simulate
    from freshgo.links import LinkLoader
    from freshgo.tables import Table, convert_tables

__version__ = "0.1.0"

__all__ = [
    "Batch",
    "Belady",
    "Block",
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
    "hotness",
    "infer",
    "library",
    "plot_policies",
    "propagate",
    "quantization_error",
    "relayout",
    "shard",
    "simulate",
    "update",
]


_LATER = {
    **dict.fromkeys(("Simulation", "hotness", "plot_policies", "simulate"), "lab"),
    **dict.fromkeys(("Table", "convert_tables"), "tables"),
    "History": "history",
    "LinkLoader": "links",
}
"""The modules of names that are imported at their first use, so that ``import freshgo`` is quick.

A function that has the name of its module cannot be among them: importing the module would put that in its place.
"""


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


def __getattr__(name: str) -> Any:
    if name in ("factored", "nn", "ops"):  # nn needs PyG, and ops registers operators with torch
        return importlib.import_module(f"freshgo.{name}")
    if name in _LATER:
        return getattr(importlib.import_module(f"freshgo.{_LATER[name]}"), name)
    raise AttributeError(f"module 'freshgo' has no attribute {name!r}")
