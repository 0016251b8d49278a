"""freshgo: GNN training in PyTorch from graphs larger than memory.

    from freshgo import Loader, Store, convert

    store = convert(data, "papers.freshgo", memory="8GiB")      # once
    loader = Loader(store, num_neighbors=[15, 10, 5], input_nodes="train",
                    batch_size=1024, shuffle=True, memory="8GiB")
    for batch in loader:
        out = model(batch.x, batch.edge_index)[: batch.batch_size]

Importing this package loads no native code; the first store, graph or conversion does.
"""

from __future__ import annotations

from freshgo import errors
from freshgo.batch import Batch, Block
from freshgo.convert import convert
from freshgo.errors import FreshgoError
from freshgo.lab import Simulation, hotness, plot_policies, simulate
from freshgo.loader import Loader
from freshgo.plan import Plan
from freshgo.policies import Belady, Hotness, Online
from freshgo.relayout import relayout
from freshgo.store import Store, TensorInfo

__version__ = "0.1.0"

__all__ = [
    "Batch",
    "Belady",
    "Block",
    "FreshgoError",
    "Hotness",
    "Loader",
    "Online",
    "Plan",
    "Simulation",
    "Store",
    "TensorInfo",
    "__version__",
    "convert",
    "errors",
    "hotness",
    "plot_policies",
    "relayout",
    "simulate",
]
